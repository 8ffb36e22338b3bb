// Transitions of a user's own: what their frames hold is theirs, and goes wherever a state goes.
#include <sympow/sympow.hpp>

#include <Eigen/Geometry>
#include <sstream>

#include "catch.hpp"
#include "random.hpp"

#include <sympow/verify/laws.hpp>

using namespace sympow;
using sympow::test::contains;
using sympow::test::Random;

namespace {

/// Turns every three channels by a rotation of its own in space at every token; these do not commute.
class SpaceRotations {
 public:
  static constexpr KeyAction key_action = KeyAction::turn;
  static constexpr std::string_view kind = "entries of 3 x 3 blocks";

  /// w: d × T, three numbers a block: axis times angle.
  explicit SpaceRotations(Eigen::MatrixXd w) : w_(std::move(w)) {}

  [[nodiscard]] Index length() const { return w_.cols(); }
  [[nodiscard]] Index key_dimension() const { return w_.rows(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  void check_frame(const Frame& frame, Index d) const { frame.require(kind, 3 * d); }

  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index d) const {
    Eigen::MatrixXd A = Eigen::MatrixXd::Zero(d, d);
    for (Index c = 0; c < d; c += 3) A.block<3, 3>(c, c) = step(token, c);
    return A;
  }

  template <class S>
  void to_segment_frame(Frame& frame, Segment s, Batch<S> queries, Batch<S> keys, Batch<S> logits) const {
    const Index d = w_.rows();
    if (frame.empty()) frame.begin(kind, Eigen::Matrix3d::Identity().reshaped().replicate(d / 3, 1));
    for (Index t = 0; t < s.size; ++t)
      for (Index c = 0; c < d; c += 3) {
        Eigen::Map<Eigen::Matrix3d> P(frame.numbers().data() + 3 * c);
        P *= step(s.begin + t, c);
        for (auto* x : {&queries, &keys}) {
          const Eigen::Matrix<S, 3, 1> turned = P.cast<S>() * x->col(t).template segment<3>(c);
          x->col(t).template segment<3>(c) = turned;
        }
      }
    if (logits.size() != 0) logits = keys.transpose() * queries;
  }
  template <class S>
  void apply_to_queries(Segment, Batch<S>) const {}

 private:
  [[nodiscard]] Eigen::Matrix3d step(Index token, Index c) const {
    const Eigen::Vector3d w = w_.col(token).segment<3>(c);
    return Eigen::AngleAxisd(w.norm(), w.normalized()).toRotationMatrix();
  }
  Eigen::MatrixXd w_;
};
static_assert(Transition<SpaceRotations>);

/// A_i = I + u_i w_iᵀ, which grows as it likes; for the attention form only.
class RankOneSteps {
 public:
  static constexpr KeyAction key_action = KeyAction::mix;

  RankOneSteps(Eigen::MatrixXd u, Eigen::MatrixXd w) : u_(std::move(u)), w_(std::move(w)) {}

  [[nodiscard]] Index length() const { return w_.cols(); }
  [[nodiscard]] Index key_dimension() const { return w_.rows(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  void check_frame(const Frame& frame, Index) const { frame.require(); }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index i, Index d) const {
    return Eigen::MatrixXd::Identity(d, d) + u_.col(i) * w_.col(i).transpose();
  }
  void to_segment_frame(Frame&, Segment s, Batch<double> queries, Batch<double> keys, Batch<double> logits) const {
    for (Index t = 0; t < s.size; ++t) {
      for (Index j = 0; j < t; ++j) keys.col(j) += w_.col(s.begin + t) * u_.col(s.begin + t).dot(keys.col(j));
      if (logits.size() != 0) logits.col(t).head(t + 1) = keys.leftCols(t + 1).transpose() * queries.col(t);
    }
    for (Index t = 0; t < s.size; ++t) apply_to_queries({s.begin, t + 1}, queries.middleCols(t, 1));
  }
  void apply_to_queries(Segment s, Batch<double> queries) const {
    for (Index t = s.end() - 1; t >= s.begin; --t) queries += u_.col(t) * (w_.col(t).transpose() * queries);
  }

 protected:
  Eigen::MatrixXd u_, w_;
};
static_assert(Transition<RankOneSteps> && !MovesStates<RankOneSteps> && !has_state_forms<Linear, RankOneSteps>);
static_assert(!MovesStates<TransitionProduct<Decay, RankOneSteps>>);

/// The same with what moves a state.
struct MovingSteps : RankOneSteps {
  using RankOneSteps::RankOneSteps;
  void apply_to_keys(Segment s, Batch<double> keys) const {
    for (Index t = s.begin; t < s.end(); ++t) keys += w_.col(t) * (u_.col(t).transpose() * keys);
  }
  void apply_to_state(Segment s, Batch<double> X) const {
    for (Index t = s.begin; t < s.end(); ++t) X += (X * u_.col(t)) * w_.col(t).transpose();
  }
};
static_assert(has_state_forms<Linear, MovingSteps> && has_state_forms<Linear, TransitionProduct<MovingSteps, Decay>>);
static_assert(!has_state_forms<SymmetricPower<2>, MovingSteps>);

/// Gates that nobody has looked at.
struct GivenGates : KeepsKeys {
  explicit GivenGates(Eigen::VectorXd gates) : log_gamma(std::move(gates)) {}
  Eigen::VectorXd log_gamma;
  [[nodiscard]] Index length() const { return log_gamma.size(); }
  [[nodiscard]] double log_decay(Index i) const { return log_gamma[i]; }
};

/// The same by channel.
struct GivenChannels : GivenGates {
  static constexpr KeyAction key_action = KeyAction::scale;
  explicit GivenChannels(Eigen::MatrixXd gates)
      : GivenGates(Eigen::VectorXd::Zero(gates.cols())), log_a(std::move(gates)) {}
  Eigen::MatrixXd log_a;
  [[nodiscard]] Index key_dimension() const { return log_a.rows(); }
  [[nodiscard]] Eigen::MatrixXd key_matrix(Index i, Index) const {
    return log_a.col(i).array().exp().matrix().asDiagonal();
  }
  void log_channel_totals(Segment s, Eigen::VectorXd& totals) const {
    totals = log_a.middleCols(s.begin, s.size).rowwise().sum();
  }
  template <class S>
  void to_segment_frame(Frame& frame, Segment s, Batch<S> Q, Batch<S> K, Batch<S> logits) const {
    channel_decay(log_a).to_segment_frame(frame, s, Q, K, logits);
  }
  template <class S>
  void apply_to_queries(Segment s, Batch<S> Q) const {
    channel_decay(log_a).apply_to_queries(s, Q);
  }
};
static_assert(MovesStates<GivenChannels>);

struct Inputs {
  Random random{5};
  Index d = 6, e = 3, T = 90;
  Eigen::MatrixXd Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T), w = random.matrix(d, T);
  Eigen::VectorXd log_gamma = -.05 * random.vector(T).cwiseAbs();

  [[nodiscard]] auto transition(Segment s) const {
    return decay(log_gamma.segment(s.begin, s.size)) * SpaceRotations(w.middleCols(s.begin, s.size));
  }
  [[nodiscard]] auto transition() const { return transition({0, T}); }
};

using StateType = State<double, SymmetricPower<2>>;
const SymmetricPower<2> feature;

// The state after some tokens, from a frame on.
StateType after(const Inputs& in, Segment s, const Frame& frame = {}, Index tail = 8) {
  StateType state(in.d, in.e, tail, frame);
  (void)chunked(feature, in.transition(s), in.Q.middleCols(s.begin, s.size), in.K.middleCols(s.begin, s.size),
                in.V.middleCols(s.begin, s.size), state);
  return state;
}

}  // namespace

TEST_CASE("rotations in space that do not commute run in every form, and split", "[attention]") {
  const Inputs in;
  CHECK(verify::three_forms_law(feature, in.transition(), in.Q, in.K, in.V, {.chunk = 7}).residual <= 1);
  const Eigen::MatrixXf Q = in.Q.cast<float>(), K = in.K.cast<float>(), V = in.V.cast<float>();
  CHECK(verify::three_forms_law(Exponential{}, in.transition(), Q, K, V).residual <= 1);
  for (const Index split : {1, 33, 89})
    CHECK(verify::splitting_law(
              feature, [&](Segment s) { return in.transition(s); }, in.Q, in.K, in.V, split)
              .residual <= 1);
}

TEST_CASE("a state under a frame of another kind than angles is merged, saved and loaded", "[attention]") {
  const Inputs in;
  const StateType left = after(in, {0, 40}), right = after(in, {40, 30}, left.frame()), whole = after(in, {0, 70});
  CHECK(left.frame().kind() == "entries of 3 x 3 blocks");
  CHECK(left.frame().size() == 18);
  StateType merged = merge(left, right);
  CHECK((merged.frame().numbers() - whole.frame().numbers()).norm() <= 1e-13);
  CHECK((merged.values() - whole.values()).norm() <= 1e-13 * whole.values().norm());

  std::stringstream file;
  save(right, file);
  StateType loaded(in.d, in.e, 8);
  REQUIRE_NOTHROW(load(loaded, file));
  CHECK(loaded.frame() == right.frame());
  CHECK(loaded.start_frame() == right.start_frame());
  CHECK(loaded.values() == right.values());
  CHECK(merge(left, loaded).values() == merged.values());

  Frame other = left.frame();
  other.numbers()[7] += 1e-6;
  CHECK_THROWS_WITH(merge(left, after(in, {40, 30}, other)), contains("it was started at others"));
  CHECK_THROWS_WITH(merge(left, after(in, {40, 30})), contains("of 18 entries of 3 x 3 blocks"));
  other.begin("numbers", left.frame().numbers());
  CHECK_THROWS_AS(merge(left, StateType(in.d, in.e, 8, other)), FrameMismatch);
}

TEST_CASE("a state is not resumed under a frame of another kind", "[attention]") {
  const Inputs in;
  StateType state = after(in, {0, 40});
  const auto resume = [&](const auto& A) {
    return recurrent(feature, A, in.Q.leftCols(1), in.K.leftCols(1), in.V.leftCols(1), state);
  };
  CHECK_THROWS_WITH(resume(stationary()),
                    contains("a rotation of 18 entries of 3 x 3 blocks, the transition has none"));
  CHECK_THROWS_WITH(resume(rotary(Eigen::VectorXd::Ones(3), Pairing::interleaved)),
                    contains("a rotation of 18 entries of 3 x 3 blocks, the transition has 3 angles"));
  StateType turned(in.d, in.e);
  (void)recurrent(feature, rotary(Eigen::VectorXd::Ones(3), Pairing::interleaved), in.Q, in.K, in.V, turned);
  CHECK_THROWS_AS(recurrent(feature, in.transition(), in.Q, in.K, in.V, turned), FrameMismatch);
}

TEST_CASE("one long head is cut into segments under a frame of another kind", "[attention]") {
  Inputs in;
  in.T = 1000;
  for (auto* x : {&in.Q, &in.K, &in.w}) *x = in.random.matrix(in.d, in.T);
  in.V = in.random.matrix(in.e, in.T);
  in.log_gamma = -.05 * in.random.vector(in.T).cwiseAbs();
  Eigen::MatrixXd Y(in.e, in.T);
  std::vector<StateType> states(1, StateType(in.d, in.e));
  Workspaces<double> workspaces;
  attend(feature, in.transition(),
         {.Q = Heads<const double>::bthd(in.Q.data(), 1, in.T, 1, in.d),
          .K = Heads<const double>::bthd(in.K.data(), 1, in.T, 1, in.d),
          .V = Heads<const double>::bthd(in.V.data(), 1, in.T, 1, in.e),
          .states = states,
          .Y = Heads<double>::bthd(Y.data(), 1, in.T, 1, in.e),
          .workspaces = workspaces,
          .options = {.form = Form::chunked, .threads = 2}});
  const verify::DirectRows rows = verify::direct_attention(feature, in.transition(), in.Q, in.K, in.V);
  CHECK(verify::row_rule<DefaultNormalization, SymmetricPower<2>>(rows, Y, rows.Y, verify::unit_roundoff<double>) <= 1);
  CHECK((states[0].frame().numbers() - after(in, {0, in.T}).frame().numbers()).norm() <= 1e-12);
}

TEST_CASE("what mixes channels and cannot move a state has the attention form", "[attention]") {
  Inputs in;
  const Eigen::MatrixXd u = -.2 * in.w, longer = .02 * in.w;
  CHECK(verify::three_forms_law(Linear{}, RankOneSteps(u, in.w), in.Q, in.K, in.V).residual <= 1);
  CHECK(verify::three_forms_law(Linear{}, RankOneSteps(longer, in.w), in.Q, in.K, in.V).residual <= 1);
  Eigen::MatrixXd Y(in.e, in.T);
  Workspaces<double> workspaces;
  attend(Linear{}, RankOneSteps(u, in.w),
         {.Q = Heads<const double>::bthd(in.Q.data(), 1, in.T, 1, in.d),
          .K = Heads<const double>::bthd(in.K.data(), 1, in.T, 1, in.d),
          .V = Heads<const double>::bthd(in.V.data(), 1, in.T, 1, in.e),
          .Y = Heads<double>::bthd(Y.data(), 1, in.T, 1, in.e),
          .workspaces = workspaces});
  CHECK(Y == attention(Linear{}, RankOneSteps(u, in.w), in.Q, in.K, in.V));
  CHECK(verify::three_forms_law(Linear{}, MovingSteps(u, in.w) * decay(in.log_gamma), in.Q, in.K, in.V).residual <= 1);
  CHECK(verify::splitting_law(
            Linear{},
            [&](Segment s) { return MovingSteps(u.middleCols(s.begin, s.size), in.w.middleCols(s.begin, s.size)); },
            in.Q, in.K, in.V, 41)
            .residual <= 1);
}

TEST_CASE("log gates of a user's own that are positive or no numbers are refused by every form", "[attention]") {
  const Inputs in;
  const auto refused = [&](const auto& A, const char* sentence) {
    CHECK_THROWS_AS(attention(feature, A, in.Q, in.K, in.V), InvalidGate);
    CHECK_THROWS_WITH(attention(feature, A, in.Q, in.K, in.V), contains(sentence));
    StateType state(in.d, in.e);
    (void)recurrent(feature, decay(in.log_gamma), in.Q, in.K, in.V, state);
    const StateType before = state;
    CHECK_THROWS_WITH(recurrent(feature, A, in.Q, in.K, in.V, state), contains(sentence));
    CHECK_THROWS_WITH(chunked(feature, A, in.Q, in.K, in.V, state), contains(sentence));
    CHECK(state.tokens() == before.tokens());
    CHECK(state.values() == before.values());
  };
  const GivenGates gates(in.log_gamma);
  const GivenChannels channels(-.1 * in.w.cwiseAbs());
  REQUIRE(verify::three_forms_law(feature, gates, in.Q, in.K, in.V).residual <= 1);
  REQUIRE(verify::three_forms_law(feature, channels, in.Q, in.K, in.V).residual <= 1);
  for (const double growing : {.1, 1e-12, std::numeric_limits<double>::infinity(), std::nan("")}) {
    GivenGates wrong = gates;
    wrong.log_gamma[17] = growing;
    refused(wrong, "the transition's log gate of token 17 is ");
    GivenChannels of_channels = channels;
    of_channels.log_a(4, 23) = growing;
    refused(constant_decay(.9) * of_channels, "the transition's log gate of channel 4 at token 23 is ");
  }
}
