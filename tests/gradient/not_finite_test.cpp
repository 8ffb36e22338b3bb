// Gradients of calls with queries that are not finite: they show in what the loss sees of them, and nowhere else.
#include <typeinfo>

#include "catch.hpp"
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3, T = 250, row = 125, block = 144;  // the end of the row's block of attention
constexpr double infinity = std::numeric_limits<double>::infinity(),
                 not_a_number = std::numeric_limits<double>::quiet_NaN();

// Gradients without the row, and with a query that is not finite; logits are all -∞, of both signs, or no numbers.
template <class Scalar, class F, class Check>
void with_each_query(const F& feature, bool is_asked, const Check& check) {
  for (const bool all_negative : {true, false})
    for (const double number : {infinity, -infinity, not_a_number}) {
      CAPTURE(typeid(F).name(), typeid(Scalar).name(), all_negative, number);
      Random random(3);
      Problem<Scalar> x(random, d, e, T, .05);
      if (all_negative) x.K.row(0) = -x.K.row(0).cwiseAbs();
      const auto A = decay(x.parameters.log_gamma);
      const Vector<Scalar> dy = x.dY.col(row);
      x.dY.col(row).setZero();
      const auto by_attention = attention_vjp(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY});
      auto by_chunks = by_attention;
      if constexpr (has_state_forms<F, Decay>)
        by_chunks = chunked_vjp(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.chunk = 16}});
      x.Q.col(row).setZero();
      x.Q(0, row) = static_cast<Scalar>(number);
      if (is_asked) x.dY.col(row) = dy;
      check(by_attention, attention_vjp(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY}), block);
      if constexpr (has_state_forms<F, Decay>)
        check(by_chunks, chunked_vjp(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.chunk = 16}}),
              block);
    }
}

}  // namespace

TEST_CASE("a query that is not finite changes no bit of a gradient that does not ask for its row", "[gradient]") {
  const auto check = [](const auto& clean, const auto& found, Index) { CHECK(equal_bits(clean, found)); };
  with_each_query<float>(Exponential{}, false, check);
  with_each_query<double>(SymmetricPower<3>{}, false, check);
}

TEST_CASE("a query that is not finite shows in the gradients of what its row sees", "[gradient]") {
  const auto check = [](const auto& clean, const auto& found, Index end) {
    const auto shows = [](const auto& x) { return (x.array() - x.array()).isNaN().colwise().any().all(); };
    CHECK(shows(found.Q.col(row)));
    CHECK(found.Q.leftCols(row) == clean.Q.leftCols(row));
    CHECK(found.Q.rightCols(T - row - 1) == clean.Q.rightCols(T - row - 1));
    CHECK(shows(found.K.leftCols(row + 1)));
    CHECK(found.K.rightCols(T - end) == clean.K.rightCols(T - end));
    CHECK(shows(found.V.leftCols(row + 1)));
    CHECK(found.V.rightCols(T - end) == clean.V.rightCols(T - end));
    CHECK(found.transition.log_gamma[0] == 0);
    CHECK(shows(found.transition.log_gamma.segment(1, row).transpose()));
    CHECK(found.transition.log_gamma.tail(T - row - 1) == clean.transition.log_gamma.tail(T - row - 1));
  };
  with_each_query<float>(Exponential{}, true, check);
  with_each_query<double>(SymmetricPower<3>{}, true, check);
}

TEST_CASE("a NaN in dY shows in what its row sees, however large other gradients are", "[gradient]") {
  Random random(4);
  Problem<float> x(random, d, e, 200, 0);
  x.dY.col(150) *= 1e-6f, x.dY.col(151) *= 1e38f;
  x.dY(0, 150) = static_cast<float>(not_a_number);
  const auto shows = [](const auto& found, Index columns) {
    const auto values = found.V.leftCols(columns).array();
    CHECK((values - values).isNaN().colwise().any().all());
  };
  for (const bool is_chunked : {false, true})
    for (const bool divides : {false, true}) {
      CAPTURE(is_chunked, divides);
      const auto check = [&]<class Normalization>(Normalization) {
        const SymmetricPower<2> feature;
        if (is_chunked)
          shows(chunked_vjp<Normalization>(feature, stationary(),
                                           {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.chunk = 64}}),
                151);
        else
          shows(attention_vjp<Normalization>(feature, stationary(), {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY}), 151);
      };
      divides ? check(Normalized{}) : check(Unnormalized{});
    }
}

TEST_CASE("no bit of a gradient depends on logits of pairs that a window hides", "[gradient]") {
  constexpr Index first = 110;  // the first query that does not see key 60
  Random random(5);
  Problem<float> x(random, d, e, 192, 0);
  const Options options{.mask = sliding_window(50)};
  x.K.col(60) *= 1e7f, x.Q.middleCols(60, 50) *= 1e-7f;
  const auto find = [&] {
    return attention_vjp(Exponential{}, stationary(), {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = options});
  };
  const auto long_logits = find();
  x.Q.rightCols(192 - first) *= 1e-7f;
  const auto short_logits = find();
  CHECK(long_logits.Q.leftCols(first) == short_logits.Q.leftCols(first));
  CHECK(long_logits.K.col(60) == short_logits.K.col(60));
  CHECK(long_logits.V.col(60) == short_logits.V.col(60));
}
