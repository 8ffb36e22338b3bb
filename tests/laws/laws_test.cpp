// The laws hold for what is right, and find out feature maps and transitions that are not: in which form, and from
// which row on.
#include <sympow/sympow.hpp>
#include "catch.hpp"
#include "elu_plus_one.hpp"

#include <sstream>

#include <sympow/core/random.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using namespace sympow::verify;
using Eigen::MatrixXd, Eigen::VectorXd;
using sympow::test::EluPlusOne;

namespace {

struct Sequence {
  Index d = 4, e = 3, T = 90;
  Random random{3};
  MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T);
  VectorXd log_gamma = -.01 * random.vector(T).cwiseAbs(), beta = random.vector(T);
  VectorXd theta = rotary_frequencies<double>(d, 64);
  MatrixXd log_a = -.01 * random.matrix(d, T).cwiseAbs(), w = systems::unit_columns(random.matrix(d, T));

  [[nodiscard]] auto conformal() const {
    return [this](Segment s) {
      return decay(log_gamma.segment(s.begin, s.size)) *
             rotary(theta, beta.segment(s.begin, s.size), Pairing::interleaved);
    };
  }
  [[nodiscard]] auto reflections() const {
    return [this](Segment s) {
      return decay(log_gamma.segment(s.begin, s.size)) *
             householder(w.middleCols(s.begin, s.size), beta.segment(s.begin, s.size).array().tanh() + 1);
    };
  }
};

/// One that depends on how often it was asked.
struct Restless : EluPlusOne {
  mutable Index calls = 0;
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    EluPlusOne::embed(x, y);
    y *= 1 + .001 * static_cast<double>(++calls % 7);
  }
};

/// One that depends on the columns beside a column.
struct NormalizedTogether : EluPlusOne {
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    EluPlusOne::embed(x, y);
    if (y.size() > 0) y /= y.maxCoeff();
  }
};

/// Gates by channel of which a state hears nothing.
struct SilentChannels : ChannelDecay<double> {
  using ChannelDecay::ChannelDecay;
  void log_channel_totals(Segment, VectorXd& totals) const { totals.setZero(); }
};

/// A rotation that turns queries alone.
struct TurnsQueries : Rotary {
  using Rotary::Rotary;
  template <class S>
  void to_segment_frame(Frame& frame, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    Matrix<S> turned = keys;
    Rotary::to_segment_frame<S>(frame, segment, queries, turned, no_logits<S>());
    if (logits.size() != 0) logits = keys.transpose() * queries;
  }
};

/// A chain that leaves keys where they are.
struct UnmovedKeys : Householder<double> {
  explicit UnmovedKeys(const Householder<double>& chain) : Householder(chain) {}
  template <class S>
  void to_segment_frame(Frame& frame, Segment segment, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    if (logits.size() != 0) logits = keys.transpose() * queries;
    Householder::to_segment_frame<S>(frame, segment, queries, keys, no_logits<S>());
  }
};

template <class T>
std::string printed(const T& found) {
  std::ostringstream out;
  out << found;
  return out.str();
}

}  // namespace

TEST_CASE("a pair that has the attention form only is compared in it", "[laws]") {
  const Sequence x;
  const auto chain = x.reflections()({0, x.T});
  CHECK(three_forms_law(SymmetricPower<2>{}, chain, x.Q, x.K, x.V).holds());
  const FormResiduals found = form_residuals(direct_attention(SymmetricPower<2>{}, chain, x.Q, x.K, x.V),
                                             SymmetricPower<2>{}, chain, x.Q, x.K, x.V);
  CHECK(found.attention.residual > 0);
  CHECK(found.recurrent.residual == 0);

  const UnmovedKeys unmoved(householder(x.w, x.beta.array().tanh() + 1));
  const Residual broken = three_forms_law(SymmetricPower<2>{}, unmoved, x.Q, x.K, x.V);
  CHECK(broken.residual > 1e9);
  CHECK(broken.form == "attention");
  CHECK(broken.row > 0);
}

TEST_CASE("linear and softmax attention keep the definition at the dimensions of real heads", "[laws]") {
  const auto check = []<class Scalar>(Scalar) {
    for (const Index T : {1, 65, 1000}) {
      Random random(11);
      const auto Q = random.matrix<Scalar>(64, T), K = random.matrix<Scalar>(64, T), V = random.matrix<Scalar>(48, T);
      const auto conformal = decay(-.002 * random.vector(T).cwiseAbs()) *
                             rotary(rotary_frequencies<double>(64, 4096), random.vector(T), Pairing::half_split);
      CAPTURE(sizeof(Scalar), T);
      CHECK(three_forms_law(Linear{}, conformal, Q, K, V).holds());
      CHECK(three_forms_law(Exponential{}, conformal, Q, K, V, {.scale = .125}).holds());
    }
  };
  check(0.F);
  check(0.);
}

TEST_CASE("the residuals of the forms name the form and the row, the law a function that is the cause", "[laws]") {
  const Sequence x;
  const SilentChannels silent(x.log_a);
  const SymmetricPower<2> feature;
  CHECK(three_forms_law(feature, channel_decay(x.log_a), x.Q, x.K, x.V).holds());
  CHECK(printed(three_forms_law(feature, silent, x.Q, x.K, x.V)).starts_with("log_channel_totals: "));
  const auto rows = direct_attention(feature, silent, x.Q, x.K, x.V);
  const FormResiduals forms = form_residuals(rows, feature, silent, x.Q, x.K, x.V);
  const Residual found = worse(forms.recurrent, forms.chunked);
  CAPTURE(found);
  CHECK(!found.holds());
  CHECK((found.form == "recurrent, tail 0" || found.form == "recurrent" || found.form == "chunked"));
  CHECK(found.row > 0);
  CHECK(printed(found).starts_with(found.form + ", row " + std::to_string(found.row) + ": "));
  CHECK(printed(found).ends_with(" > 1"));
  CHECK(printed(Residual{.25, 1}) == "0.25 <= 1");
}

TEST_CASE("merged states are the state of the whole, whatever the split", "[laws]") {
  const Sequence x;
  const auto channels = [&](Segment s) { return channel_decay(x.log_a.middleCols(s.begin, s.size)); };
  for (const std::vector<Index>& splits :
       {std::vector<Index>{}, {0}, {40}, {0, 0, 89}, {1, 2, 3}, {10, 50, 50, 70}, {30, 90}}) {
    CAPTURE(splits);
    CHECK(merge_law(SymmetricPower<2>{}, x.conformal(), x.Q, x.K, x.V, splits).holds());
    CHECK(merge_law(SymmetricPower<3>{}, channels, x.Q, x.K, x.V, splits).holds());
    CHECK(merge_law(Linear{}, x.reflections(), x.Q, x.K, x.V, splits).holds());
    CHECK(merge_law(EluPlusOne{}, x.conformal(), x.Q, x.K, x.V, splits).holds());
  }
  const auto silent = [&](Segment s) { return SilentChannels(x.log_a.middleCols(s.begin, s.size)); };
  const Residual found = merge_law(SymmetricPower<2>{}, silent, x.Q, x.K, x.V, {40, 70});
  CAPTURE(found);
  CHECK(found.residual > 1e6);
  CHECK(found.form.find("merged from the ") != std::string::npos);
  CHECK(found.row >= 70);
  CHECK_THROWS_AS(merge_law(Linear{}, x.conformal(), x.Q, x.K, x.V, {40, 30}), InvalidArgument);
  CHECK_THROWS_AS(merge_law(Linear{}, x.conformal(), x.Q, x.K, x.V, {91}), InvalidArgument);
}

TEST_CASE("a saved and loaded state goes on with the same bits", "[laws]") {
  const Sequence x;
  for (const Index split : {0, 1, 40, 89, 90}) {
    CAPTURE(split);
    CHECK(saved_state_law(SymmetricPower<2>{}, x.conformal(), x.Q, x.K, x.V, split).holds());
    CHECK(saved_state_law(Linear{}, x.reflections(), x.Q, x.K, x.V, split).holds());
    CHECK(saved_state_law(PositiveRandomFeatures(x.d, 16), x.conformal(), x.Q, x.K, x.V, split).holds());
  }
  const Residual found = saved_state_law(Restless{}, x.conformal(), x.Q, x.K, x.V, 40);
  CAPTURE(found);
  CHECK(!found.holds());
  CHECK(found.bound == 0);
  CHECK(found.residual >= 1);
  CHECK(found.form.find("tail") != std::string::npos);
  CHECK(found.row >= 40);
}

TEST_CASE("splitting finds a state that is not handed on as it was", "[laws]") {
  const Sequence x;
  const auto silent = [&](Segment s) { return SilentChannels(x.log_a.middleCols(s.begin, s.size)); };
  const Residual found = splitting_law(SymmetricPower<2>{}, silent, x.Q, x.K, x.V, 40);
  CAPTURE(found);
  CHECK(!found.holds());
  CHECK((found.form == "recurrent, then chunked" || found.form == "chunked, then recurrent"));
  CHECK(found.row > 0);
  CHECK_THROWS_AS(splitting_law(Linear{}, x.conformal(), x.Q, x.K, x.V, 91), InvalidArgument);
}

TEST_CASE("a batch of heads is one head at a time", "[laws]") {
  constexpr Index B = 2, H = 4, groups = 2, d = 4, e = 3, T = 80;
  Random random(4);
  const auto numbers = [&](Index count) {
    const MatrixXd x = random.matrix(count, 1);
    return std::vector<double>(x.data(), x.data() + count);
  };
  const std::vector<double> q = numbers(B * T * H * d), k = numbers(B * T * groups * d),
                            v = numbers(B * T * groups * e);
  const std::vector<Index> lengths = {T, 37};
  const auto Q = Heads<const double>::bthd(q.data(), B, T, H, d, lengths);
  const auto K = Heads<const double>::bthd(k.data(), B, T, groups, d, lengths);
  const auto V = Heads<const double>::bthd(v.data(), B, T, groups, e, lengths);
  const VectorXd theta = rotary_frequencies<double>(d, 64);
  const auto turning = [&](Index, Index h) {
    return constant_decay(1 - .01 * static_cast<double>(h)) * rotary(theta, Pairing::interleaved);
  };
  CHECK(attend_law(SymmetricPower<2>{}, turning, Q, K, V).holds());
  CHECK(attend_law(Exponential{}, turning, Q, K, V).holds());
  CHECK(attend_law(EluPlusOne{}, turning, Q, K, V, {.threads = 1, .head = {.scale = .5, .chunk = 16}}).holds());
  CHECK(attend_law(Linear{}, [&](Index, Index) { return rotary(theta, Pairing::interleaved); }, Q, K, V,
                   {.head = {.mask = full()}})
            .holds());
  const Residual found = attend_law(NormalizedTogether{}, turning, Q, K, V);
  CAPTURE(found);
  CHECK(found.residual > 1e9);
  CHECK(found.form.find(", sequence ") != std::string::npos);
  CHECK(found.form.find(", head ") != std::string::npos);
  CHECK(found.row >= 0);
}

TEST_CASE("shifting all positions changes no row", "[laws]") {
  const Sequence x;
  VectorXd later = x.beta;
  later[0] += 17;
  const auto here = rotary(x.theta, x.beta, Pairing::interleaved), there = rotary(x.theta, later, Pairing::interleaved);
  CHECK(relative_position_law(SymmetricPower<2>{}, here, there, x.Q, x.K, x.V).holds());
  CHECK(relative_position_law(Exponential{}, here, there, x.Q, x.K, x.V).holds());
  CHECK(relative_position_law(Linear{}, stationary(), constant_decay(1), x.Q, x.K, x.V).holds());
  const auto family = rope_family<double>(x.d);
  const MatrixXd r = MatrixXd::NullaryExpr(1, x.T, [&](Index, Index t) { return static_cast<double>(t); });
  CHECK(relative_position_law(SymmetricPower<2>{}, structured_rotary(family, r),
                              structured_rotary(family, (r.array() + 40).matrix()), x.Q, x.K, x.V)
            .holds());

  const Residual of_queries =
      relative_position_law(SymmetricPower<2>{}, TurnsQueries(x.theta, x.beta, Pairing::interleaved),
                            TurnsQueries(x.theta, later, Pairing::interleaved), x.Q, x.K, x.V);
  CAPTURE(of_queries);
  CHECK(of_queries.residual > 1e9);
  CHECK(of_queries.form == "attention");
  CHECK(of_queries.row >= 0);
  CHECK(three_forms_law(EluPlusOne{}, here, x.Q, x.K, x.V).holds());
  CHECK(relative_position_law(EluPlusOne{}, here, there, x.Q, x.K, x.V).residual > 1e6);  // φ that a turn changes
}

namespace {

/// √x of entries that may be negative.
struct Root : EluPlusOne {
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = x.array().sqrt();
  }
};

}  // namespace

TEST_CASE("a map whose rows are no numbers breaks the laws", "[laws]") {
  const Sequence in;
  CHECK_FALSE(three_forms_law(Root{}, decay(in.log_gamma), in.Q, in.K, in.V).holds());
  MatrixXd Q = in.Q;
  Q(1, 7) = std::numeric_limits<double>::quiet_NaN();
  const Residual one = three_forms_law(SymmetricPower<2>{}, decay(in.log_gamma), Q, in.K, in.V);
  CHECK_FALSE(one.holds());
  CHECK(one.row == 7);
}
