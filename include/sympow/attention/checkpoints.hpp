// States that the chunked form leaves on its way, for its gradients.
#pragma once

#include <limits>
#include <string_view>

#include <sympow/attention/chunked.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {
struct CheckpointsAccess;
}  // namespace detail

/// The states of a sequence before its first token and before every `checkpoint` chunks of it: a value, which `chunked`
/// fills and `chunked_vjp` takes in the place of the first state. It has then nothing of the forward pass to do again
/// but the states between, (k - 1)/k of one product of D (e + 1) a token, k = `Options::checkpoint`, 0 being 1. Memory:
/// (e + 1) D numbers every k chunks, which the next call uses again. Gradients are the same bit for bit for every k,
/// and without checkpoints, but under channel decay, where chunks are longer than the state's tail. They belong to the
/// feature map, K, V and the transition that they were left with: `chunked_vjp` sees another map, size, number of
/// tokens or way to act on keys, but no other K, V, gates or rates.
template <class S, FiniteFeatureMap F>
class Checkpoints {
 public:
  [[nodiscard]] Index size() const { return std::ssize(states_); }  ///< states
  [[nodiscard]] Index tokens_between() const { return between_; }   ///< tokens from one to the next
  [[nodiscard]] const State<S, F>& operator[](Index n) const { return states_[static_cast<std::size_t>(n)]; }

 private:
  friend detail::CheckpointsAccess;

  std::vector<State<S, F>> states_;
  Index tokens_ = 0, chunk_ = 0, between_ = 0;
  KeyAction action_ = KeyAction::none;
  Frame frame_;  // behind the last token
};

namespace detail {
struct CheckpointsAccess {
  static auto& states(auto& x) { return x.states_; }
  static auto& tokens(auto& x) { return x.tokens_; }
  static auto& chunk(auto& x) { return x.chunk_; }
  static auto& between(auto& x) { return x.between_; }
  static auto& action(auto& x) { return x.action_; }
  static auto& frame(auto& x) { return x.frame_; }
};

[[nodiscard]] constexpr std::string_view in_words(KeyAction action) {
  using enum KeyAction;
  return action == none    ? "leaves keys alone"
         : action == turn  ? "turns keys"
         : action == scale ? "scales the channels of keys"
                           : "mixes the channels of keys";
}

/// Throws `InvalidArgument`, `ShapeMismatch`, `FeatureMismatch` or `FrameMismatch` for checkpoints that the forward
/// pass of a call cannot have left.
template <class Scalar, class F, class A, class K, class V>
void check_checkpoints(const Checkpoints<Scalar, F>& checkpoints, const F& feature, const A& transition, const K& keys,
                       const V& values) {
  if (checkpoints.size() == 0) raise<InvalidArgument>("chunked_vjp: the checkpoints are empty, chunked() fills them");
  check_size("rows of K", keys.rows(), checkpoints[0].key_dimension(), "key dimension of the checkpoints");
  check_size("rows of V", values.rows(), checkpoints[0].value_dimension(), "value dimension of the checkpoints");
  check_size("columns of K", keys.cols(), CheckpointsAccess::tokens(checkpoints), "tokens of the checkpoints");
  if (!same_feature(checkpoints[0].feature(), feature))
    raise<FeatureMismatch>("the checkpoints were left with another feature map than that of the call");
  if (const KeyAction action = CheckpointsAccess::action(checkpoints); action != A::key_action)
    raise<FrameMismatch>("the checkpoints were left by a transition that ", in_words(action), ", that of the call ",
                         in_words(A::key_action));
  try {
    transition.check_frame(CheckpointsAccess::frame(checkpoints), keys.rows());
  } catch (...) {
    raise_again_after(Errors{}, "the last state of the checkpoints: ");
  }
}
}  // namespace detail

/// `chunked`, leaving checkpoints for its gradients. The rows are those without, bit for bit. Throws as it does; memory
/// may end on the way.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV>
void chunked(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
             const Eigen::MatrixBase<DV>& V, State<typename DQ::Scalar, F>& state, Batch<typename DQ::Scalar> Y,
             Checkpoints<typename DQ::Scalar, F>& checkpoints, Workspace<typename DQ::Scalar>& workspace,
             Options options = {}) {
  using Scalar = typename DQ::Scalar;
  const ConstBatch<Scalar> queries(Q.derived()), keys(K.derived()), values(V.derived());
  detail::check_call(transition, queries, keys, values, options);
  detail::check_state(state, feature, transition, queries, values);
  detail::check_output(Y, queries, values);
  if (options.mask != causal())
    detail::raise<InvalidArgument>(
        "chunked: checkpoints go with the mask causal(), of queries that stand at their keys");
  if (options.diagnostics != nullptr)
    detail::raise<InvalidArgument>("chunked: diagnostics are given by calls without checkpoints");
  options.check_finite = false;
  const Index T = keys.cols();
  HeadShape shape = head_shape(feature, transition, T, keys.rows(), values.rows());
  shape.keeps_state = true;
  shape.from_nothing = state.tokens() == 0;
  options.chunk = detail::chunk_of(options, shape);
  using Access = detail::CheckpointsAccess;
  std::vector<State<Scalar, F>> states;
  std::swap(states, Access::states(checkpoints));  // none if the call fails on its way
  Access::tokens(checkpoints) = T;
  Access::chunk(checkpoints) = options.chunk;
  Access::action(checkpoints) = A::key_action;
  const Index between = Access::between(checkpoints) =
      options.chunk * std::clamp<Index>(options.checkpoint, 1, std::numeric_limits<Index>::max() / options.chunk);
  if (!states.empty() &&
      !(same_feature(states.front().feature(), feature) && states.front().key_dimension() == state.key_dimension()))
    states.clear();
  std::size_t n = 0;
  const auto leave = [&](Index t) {
    if (t % between != 0) return;
    if (n == states.size()) states.push_back(state);
    auto& kept = detail::StateAccess::content(states[n++]);
    kept = detail::StateAccess::content(state);
    kept.interrupted = false;  // as the call is
  };
  const detail::Visitor<Index> visit_chunk(leave);
  detail::run_state_form<Normalization, F>(feature, transition, Q, K, V, state, Y, workspace, options,
                                           [&](detail::StateCall<Scalar> call) {
                                             call.visit_chunk = &visit_chunk;
                                             detail::StateForms<Scalar, F>::chunked(feature, call);
                                           });
  if (T == 0) leave(0);
  Access::frame(checkpoints) = state.frame();
  states.erase(states.begin() + static_cast<std::ptrdiff_t>(n), states.end());
  std::swap(states, Access::states(checkpoints));
}

}  // namespace SYMPOW_NAMESPACE
