// Queries and keys of different number, against the definition.
#include <sympow/sympow.hpp>
#include "catch.hpp"

#include <sympow/verify/direct.hpp>

#include "random.hpp"

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;

namespace {

struct Shape {
  Index queries, keys, offset;
  [[nodiscard]] Index tokens() const { return std::max(keys, queries + offset); }
};

// Rows within what the row rule allows the attention form, 4 u K_i max|V|. Rotations and Householder chains round a
// logit once a token, which is allowed for.
template <class F, class A>
void check(const F& feature, const A& transition, const Shape& shape, bool is_full = false,
           Index window = Mask::unlimited) {
  const Index d = 4, e = 3;
  Random random(5);
  const MatrixXd Q = random.matrix(d, shape.queries), K = random.matrix(d, shape.keys),
                 V = random.matrix(e, shape.keys);
  const double scale = .7;
  const Mask mask = is_full ? full(shape.offset) : sliding_window(window, shape.offset);
  MatrixXd Y = MatrixXd::Constant(e, shape.queries, 77);
  Workspace<double> workspace;
  Diagnostics diagnostics;
  attention(feature, transition, Q, K, V, Y, workspace, {.scale = scale, .diagnostics = &diagnostics, .mask = mask});
  const auto expected = verify::direct_attention<DefaultNormalization, long double>(feature, transition, Q, K, V,
                                                                                    {.scale = scale, .mask = mask});
  const auto ratio = [&](const MatrixXd& found, Index i) {  // to u K_i max|V|; a row that sees nothing is 0
    const long double apart = (found.col(i).cast<long double>() - expected.Y.col(i)).cwiseAbs().maxCoeff();
    const long double unit = 0x1p-53L * expected.condition[i] * expected.largest_value;
    return static_cast<double>(apart == 0 ? 0 : apart / unit);
  };
  CAPTURE(shape.queries, shape.keys, shape.offset, is_full, window);
  if constexpr (FiniteFeatureMap<F>) {
    if (is_full && shape.offset == 0) {
      for (const Index chunk : {1, 7, 200}) {
        State<double, F> state(feature, d, e);
        MatrixXd by_chunks = Y;
        chunked(feature, transition, Q, K, V, state, by_chunks, workspace,
                {.scale = scale, .chunk = chunk, .mask = mask});
        const double updates = static_cast<double>(shape.keys / chunk + 1);
        for (Index i = 0; i < shape.queries; ++i) REQUIRE(ratio(by_chunks, i) <= 32 * (1 + std::sqrt(updates)));
      }
    }
  }
  const double roundings = A::key_action == KeyAction::none ? 4 : 32;
  for (Index i = 0; i < shape.queries; ++i) {
    CAPTURE(i);
    REQUIRE(ratio(Y, i) <= roundings);
    REQUIRE(((expected.denominator[i] == 0) == (diagnostics.condition[i] == 0)));
  }
}

constexpr Shape shapes[] = {{9, 9, 0},    {5, 9, 4},      {3, 9, 2},     {9, 4, -3},      {7, 3, 1},
                            {0, 5, 2},    {5, 0, 1},      {1, 97, 96},   {100, 230, 97},  {98, 98, 1},
                            {30, 20, 96}, {200, 50, -60}, {1, 241, 240}, {260, 500, 241}, {242, 242, 1}};

template <class Make>
void for_shapes(const Make& make) {
  for (const Shape& shape : shapes) {
    Random random(3);
    const Index T = shape.tokens();
    const VectorXd log_gamma = -.02 * random.vector(T).cwiseAbs();
    make(shape, log_gamma, random);
  }
}

}  // namespace

TEST_CASE("a causal mask with an offset: queries stand at later tokens, before or beyond the keys", "[attention]") {
  for_shapes([](const Shape& shape, const VectorXd& log_gamma, Random& random) {
    const Index T = shape.tokens();
    const VectorXd theta = random.vector(2), beta = random.vector(T);
    const auto conformal = decay(log_gamma) * rotary(theta, beta, Pairing::interleaved);
    check(SymmetricPower<2>{}, conformal, shape);
    check(Linear{}, decay(log_gamma), shape);
    check(SymmetricPower<2>{}, channel_decay(-.05 * random.matrix(4, T).cwiseAbs()), shape);
    const MatrixXd w = random.matrix(4, T).colwise().normalized();
    check(Exponential{}, decay(log_gamma) * householder(w, VectorXd::Constant(T, .7)), shape);
  });
}

TEST_CASE("a full mask: every query sees every key", "[attention]") {
  for_shapes([](const Shape& shape, const VectorXd&, Random& random) {
    if (shape.offset < 0) return;
    const VectorXd theta = random.vector(2), beta = random.vector(shape.tokens());
    check(SymmetricPower<2>{}, rotary(theta, beta, Pairing::interleaved), shape, true);
    check(Exponential{}, rotary(theta, beta, Pairing::interleaved), shape, true);
    check(Linear{}, stationary(), shape, true);
  });
  for (const Shape& shape : {Shape{120, 30, 0}, Shape{5, 130, 0}, Shape{0, 3, 0}, Shape{3, 0, 0}}) {
    Random random(8);
    check(SymmetricPower<2>{}, rotary(random.vector(2), random.vector(shape.tokens()), Pairing::interleaved), shape,
          true);
    check(Linear{}, stationary(), shape, true);
  }
}

TEST_CASE("a sliding window: a query sees the last keys up to its own token", "[attention]") {
  for (const Shape& shape : {Shape{9, 9, 0}, Shape{500, 500, 0}, Shape{100, 230, 130}, Shape{230, 100, 5}})
    for (const Index window : {1, 7, 239, 240, 241, 1000}) {  // beside blocks of 240 keys
      Random random(3);
      const Index T = shape.tokens();
      const VectorXd log_gamma = -.02 * random.vector(T).cwiseAbs(), beta = random.vector(T);
      const auto conformal = decay(log_gamma) * rotary(random.vector(2), beta, Pairing::interleaved);
      const MatrixXd w = random.matrix(4, T).colwise().normalized();
      if (shape.queries != shape.keys && window < 7) continue;  // few rows see anything
      check(SymmetricPower<2>{}, conformal, shape, false, window);
      check(SymmetricPower<2>{}, stationary(), shape, false, window);
      check(Linear{}, decay(log_gamma), shape, false, window);
      check(Exponential{}, channel_decay(-.05 * random.matrix(4, T).cwiseAbs()), shape, false, window);
      check(Exponential{}, decay(log_gamma) * householder(w, VectorXd::Constant(T, .7)), shape, false, window);
    }
}

// Keys and values from `first` on are other ones that the rows of `unseen` do not see: not a bit of these changes.
TEST_CASE("a row depends on what is in its window alone", "[attention]") {
  constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Index T = 600, window = 50;
  const auto check_map = [&](const auto& feature, const auto& transition) {
    Random random(11);
    const Eigen::MatrixXf Q = random.matrix(4, T).cast<float>(), K = random.matrix(4, T).cast<float>(),
                          V = random.matrix(3, T).cast<float>();
    const auto rows = [&](const Eigen::MatrixXf& keys, const Eigen::MatrixXf& values) {
      Diagnostics diagnostics;
      Eigen::MatrixXf Y = attention(feature, transition, Q, keys, values,
                                    {.diagnostics = &diagnostics, .mask = sliding_window(window)});
      Y.conservativeResize(Y.rows() + 1, Y.cols());
      Y.bottomRows(1) = diagnostics.condition.transpose().template cast<float>();
      return Y;
    };
    const Eigen::MatrixXf before = rows(K, V);
    for (const double x : {1e18, 1e-18, infinity, nan})
      for (const Index hidden : {0, 130, 239, 240, 400}) {
        CAPTURE(x, hidden);
        Eigen::MatrixXf keys = K, values = V;
        keys.col(hidden).setConstant(static_cast<float>(x));
        values.col(hidden).setConstant(static_cast<float>(x));
        const Eigen::MatrixXf after = rows(keys, values);
        CHECK(after.leftCols(hidden) == before.leftCols(hidden));
        CHECK(after.rightCols(T - hidden - window) == before.rightCols(T - hidden - window));
        CHECK((after.col(hidden).array() != before.col(hidden).array()).any());
        CHECK((after.col(hidden + window - 1).array() != before.col(hidden + window - 1).array()).any());
      }
  };
  check_map(SymmetricPower<2>{}, stationary());
  check_map(SymmetricPower<2>{}, constant_decay(.99));
  check_map(Linear{}, constant_decay(.99));
  check_map(Exponential{}, constant_decay(.99));
}

TEST_CASE("gates that are strong or zero, under an offset", "[attention]") {
  Random random(4);
  VectorXd log_gamma = -5 * random.vector(230).cwiseAbs();
  log_gamma[100] = log_gamma[150] = -std::numeric_limits<double>::infinity();
  check(SymmetricPower<2>{}, decay(log_gamma), {100, 230, 97});
  check(Exponential{}, decay(log_gamma), {100, 230, 130});
  check(SymmetricPower<2>{}, decay(log_gamma), {230, 230, 0}, false, 20);
  check(Exponential{}, decay(log_gamma), {230, 230, 0}, false, 20);
}

TEST_CASE("masks that make no sense are refused by name", "[attention]") {
  Random random(6);
  const MatrixXd Q = random.matrix(4, 3), K = random.matrix(4, 5), V = random.matrix(2, 5);
  const SymmetricPower<2> square;
  CHECK_THROWS_AS(attention(square, stationary(), Q, K, V), ShapeMismatch);
  CHECK_THROWS_AS(attention(square, stationary(), Q, K, V, {.mask = full(-1)}), InvalidArgument);
  CHECK_THROWS_AS(attention(square, constant_decay(.5), Q, K, V, {.mask = full()}), InvalidArgument);
  CHECK_THROWS_AS(attention(square, channel_decay(MatrixXd::Zero(4, 5)), Q, K, V, {.mask = full()}), InvalidArgument);
  CHECK_THROWS_AS(attention(square, decay(VectorXd::Zero(4)), Q, K, V, {.mask = causal(2)}), ShapeMismatch);
  CHECK_NOTHROW(attention(square, decay(VectorXd::Zero(5)), Q, K, V, {.mask = causal(2)}));
  CHECK_THROWS_AS(chunked(square, stationary(), Q, K, V, {.mask = causal(2)}), InvalidArgument);
  CHECK_THROWS_AS(attention(square, stationary(), K, K, V, {.mask = sliding_window(0)}), InvalidArgument);
  CHECK_THROWS_AS(attention(square, stationary(), Q, K, V, {.mask = sliding_window(3)}), ShapeMismatch);
  CHECK_THROWS_AS(attention(square, stationary(), K, K, V, {.mask = {0, true, 3}}), InvalidArgument);
  CHECK_THROWS_AS(attention(square, channel_decay(MatrixXd::Zero(4, 5)), K, K, V, {.mask = sliding_window(3)}),
                  InvalidArgument);
  CHECK_THROWS_AS(chunked(square, stationary(), K, K, V, {.mask = sliding_window(3)}), InvalidArgument);
}

TEST_CASE("to absorb tokens is to run them without looking at the rows", "[attention]") {
  Random random(9);
  const MatrixXd K = random.matrix(4, 150), V = random.matrix(2, 150), Q = random.matrix(4, 150);
  const auto A =
      decay(-.02 * random.vector(150).cwiseAbs()) * rotary(random.vector(2), random.vector(150), Pairing::interleaved);
  const SymmetricPower<2> square;
  State<double, SymmetricPower<2>> silent(4, 2), read(4, 2);
  Workspace<double> workspace;
  absorb(square, A, K, V, silent, workspace);
  (void)chunked(square, A, Q, K, V, read);
  CHECK(silent.values() == read.values());
  CHECK(silent.normalizer() == read.normalizer());
  CHECK(silent.frame().numbers() == read.frame().numbers());
  CHECK(silent.tokens() == 150);
  State<double, SymmetricPower<2>> absorbed(4, 2), seen(4, 2);  // whatever the mask
  absorb(square, stationary(), K, V, absorbed, workspace, {.mask = full()});
  (void)chunked(square, stationary(), Q, K, V, seen, {.mask = full()});
  CHECK(absorbed.values() == seen.values());
  CHECK(absorbed.tokens() == 150);
}
