// A function of a transition that is wrong is found by its name, at lengths at which no form calls it or shows it.
#include <sympow/sympow.hpp>
#include "catch.hpp"

#include <sympow/core/random.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using namespace sympow::verify;
using Eigen::MatrixXd;

namespace {

/// A_i = I - u_i w_iᵀ, right in all that it does.
class Erasure {
 public:
  static constexpr KeyAction key_action = KeyAction::mix;

  Erasure(MatrixXd u, MatrixXd w) : u_(std::move(u)), w_(std::move(w)) {}

  [[nodiscard]] Index length() const { return w_.cols(); }
  [[nodiscard]] Index key_dimension() const { return w_.rows(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  [[nodiscard]] MatrixXd key_matrix(Index i, Index d) const {
    return MatrixXd::Identity(d, d) - u_.col(i) * w_.col(i).transpose();
  }
  void check_frame(const Frame& frame, Index) const { frame.require(); }
  void to_segment_frame(Frame&, Segment s, Batch<double> Q, Batch<double> K, Batch<double> logits) const {
    for (Index t = 0; t < s.size; ++t) {
      Erasure::apply_to_keys({s.begin + t, 1}, K.leftCols(t));
      if (logits.size() != 0) logits.col(t).head(t + 1) = K.leftCols(t + 1).transpose() * Q.col(t);
      Erasure::apply_to_queries({s.begin, t + 1}, Q.middleCols(t, 1));
    }
  }
  void apply_to_queries(Segment s, Batch<double> Q) const {
    for (Index i = s.end() - 1; i >= s.begin; --i) Q -= u_.col(i) * (w_.col(i).transpose() * Q).eval();
  }
  void apply_to_keys(Segment s, Batch<double> K) const {
    for (Index i = s.begin; i < s.end(); ++i) K -= w_.col(i) * (u_.col(i).transpose() * K).eval();
  }
  void apply_to_state(Segment s, Batch<double> X) const {
    for (Index i = s.begin; i < s.end(); ++i) X -= (X * u_.col(i)).eval() * w_.col(i).transpose();
  }

 protected:
  MatrixXd u_, w_;
};

struct PullsNothing : Erasure {
  using Erasure::Erasure;
  void apply_to_queries(Segment, Batch<double>) const {}
};
/// A_b … A_a Q.
struct PullsInOrder : Erasure {
  using Erasure::Erasure;
  void apply_to_queries(Segment s, Batch<double> Q) const {
    for (Index i = s.begin; i < s.end(); ++i) Q -= u_.col(i) * (w_.col(i).transpose() * Q).eval();
  }
};
struct PullsTheFirstTokens : Erasure {
  using Erasure::Erasure;
  void apply_to_queries(Segment s, Batch<double> Q) const { Erasure::apply_to_queries({0, s.size}, Q); }
};
/// A_a … A_b K.
struct PushesUntransposed : Erasure {
  using Erasure::Erasure;
  void apply_to_keys(Segment s, Batch<double> K) const { Erasure::apply_to_queries(s, K); }
};
/// X (A_a … A_b)ᵀ.
struct AdvancesTransposed : Erasure {
  using Erasure::Erasure;
  void apply_to_state(Segment s, Batch<double> X) const {
    MatrixXd columns = X.transpose();
    Erasure::apply_to_queries(s, columns);
    X = columns.transpose();
  }
};
struct LeavesOutTheLast : Erasure {
  using Erasure::Erasure;
  void apply_to_state(Segment s, Batch<double> X) const { Erasure::apply_to_state({s.begin, s.size - 1}, X); }
};
struct KeysStay : Erasure {
  using Erasure::Erasure;
  void to_segment_frame(Frame& frame, Segment s, Batch<double> Q, Batch<double> K, Batch<double> logits) const {
    MatrixXd keys = K;
    Erasure::to_segment_frame(frame, s, Q, keys, logits);
  }
};
struct QueriesStay : Erasure {
  using Erasure::Erasure;
  void to_segment_frame(Frame& frame, Segment s, Batch<double> Q, Batch<double> K, Batch<double> logits) const {
    MatrixXd queries = Q;
    Erasure::to_segment_frame(frame, s, queries, K, logits);
  }
};
/// A rotation that would be undone twice.
struct TurnsBack : Rotary {
  using Rotary::Rotary;
  template <class S>
  void apply_to_queries(Segment, Batch<S> Q) const {
    Q = (-Q).eval();
  }
};
struct PullsNoChannels : ChannelDecay<double> {
  using ChannelDecay::ChannelDecay;
  template <class S>
  void apply_to_queries(Segment, Batch<S>) const {}
};
struct SilentChannels : ChannelDecay<double> {
  using ChannelDecay::ChannelDecay;
  void log_channel_totals(Segment, Eigen::VectorXd& totals) const { totals.setZero(); }
};

struct Sequence {
  Index d = 5, e = 3, T = 8;
  explicit Sequence(Index tokens) : T(tokens) {}
  Random random{3};
  MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T);
  MatrixXd w = systems::unit_columns(random.matrix(d, T)), u = .5 * w + .1 * random.matrix(d, T);
  MatrixXd log_a = -.01 * random.matrix(d, T).cwiseAbs();

  /// Where the law finds a mixing transition wrong.
  template <class A>
  [[nodiscard]] std::string found() const {
    const Residual law = three_forms_law(Linear{}, constant_decay(.99) * A(u, w), Q, K, V);
    return law.holds() ? "nothing" : law.form;
  }
  template <class A>
  [[nodiscard]] std::string found(const A& transition) const {
    const Residual law = three_forms_law(SymmetricPower<2>{}, transition, Q, K, V);
    return law.holds() ? "nothing" : law.form;
  }
};

}  // namespace

TEST_CASE("a function of a mixing transition that is wrong is found by name at any length", "[laws]") {
  for (const Index T : {2, 4, 8, 90}) {
    CAPTURE(T);
    const Sequence x(T);
    CHECK(x.found<Erasure>() == "nothing");
    CHECK(x.found<PullsNothing>() == "apply_to_queries");
    CHECK(x.found<PullsTheFirstTokens>() == "apply_to_queries");
    CHECK(x.found<PushesUntransposed>() == "apply_to_keys");
    CHECK(x.found<AdvancesTransposed>() == "apply_to_state");
    CHECK(x.found<LeavesOutTheLast>() == "apply_to_state");
    CHECK(x.found<QueriesStay>() == "to_segment_frame of queries");
    if (T == 2) continue;  // segments of one token have no order, and their key stays where it is
    CHECK(x.found<PullsInOrder>() == "apply_to_queries");
    CHECK(x.found<KeysStay>() == "to_segment_frame of keys");
  }
}

TEST_CASE("so is a function of one that scales or turns", "[laws]") {
  const Sequence x(8);
  CHECK(x.found(channel_decay(x.log_a)) == "nothing");
  CHECK(x.found(PullsNoChannels(x.log_a)) == "apply_to_queries");
  CHECK(x.found(SilentChannels(x.log_a)) == "log_channel_totals");
  const Eigen::VectorXd theta = rotary_frequencies<double>(4, 64), beta = Eigen::VectorXd::Ones(8);
  const MatrixXd Q = x.Q.topRows(4), K = x.K.topRows(4);
  CHECK(three_forms_law(Linear{}, rotary(theta, beta, Pairing::interleaved), Q, K, x.V).holds());
  CHECK(three_forms_law(Linear{}, TurnsBack(theta, beta, Pairing::interleaved), Q, K, x.V).form == "apply_to_queries");
}

TEST_CASE("the functions of the library's own transitions are what they say", "[laws]") {
  for (const Index d : {1, 4, 64, 128})
    for (const Index T : {1, 3, 64})
      for (const double strength : {0., .5, 1., 2.}) {
        CAPTURE(d, T, strength);
        Random random(7);
        const MatrixXd w = systems::unit_columns(random.matrix(d, T)),
                       log_a = -strength * random.matrix(d, T).cwiseAbs();
        const Eigen::VectorXd beta = Eigen::VectorXd::Constant(T, strength);
        const auto holds = [&](const Residual& found) {
          CAPTURE(found);
          CHECK(found.holds());
        };
        holds(transition_residual<double>(householder(w, beta), T, d));
        holds(transition_residual<float>(householder(w.cast<float>(), beta), T, d));
        holds(transition_residual<double>(channel_decay(30 * log_a) * householder(w, beta), T, d));
        holds(transition_residual<float>(channel_decay(30 * log_a) * householder(w.cast<float>(), beta), T, d));
        holds(transition_residual<double>(channel_decay(log_a), T, d));
        holds(transition_residual<float>(channel_decay(log_a), T, d));
      }
}
