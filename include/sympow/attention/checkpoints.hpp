// States that the chunked form leaves on its way, for its gradients.
#pragma once

#include <sympow/attention/state.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {
struct CheckpointsAccess;
}  // namespace detail

/// The tape of the chunked form: the states of a sequence before its first token and before every `checkpoint` chunks.
/// `chunked` fills it and `chunked_vjp` takes it in the place of the first state, which then recomputes only the states
/// between, (k - 1)/k of one product of D (e + 1) a token, k = `Options::checkpoint`, 0 being 1. Memory: (e + 1) D
/// numbers every k chunks, which the next call uses again. Gradients are the same bit for bit for every k, and without
/// a tape, except under channel decay, where chunks are longer than the state's tail. K, V, gates and rates are not
/// kept: they must be the same. `chunked_vjp` refuses another feature map, size, number of tokens or way to act on
/// keys.
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
}  // namespace detail

}  // namespace SYMPOW_NAMESPACE
