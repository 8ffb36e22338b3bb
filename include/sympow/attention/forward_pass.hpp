// What the heads of a batch leave of their forward pass, for their gradients.
#pragma once

#include <sympow/attention/attention.hpp>
#include <sympow/attention/chunked.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {
struct ForwardPassAccess;

template <class S, class F>
struct HeadCheckpoints {
  struct None {};
  using type = None;
};
template <class S, FiniteFeatureMap F>
struct HeadCheckpoints<S, F> {
  using type = Checkpoints<S, F>;
};
}  // namespace detail

/// The tape of a batch: what `attend` without states leaves for `attend_vjp`, which then need not compute it again.
/// `RowSums` of heads in the attention form, `Checkpoints` of chunked ones under causal(). Other heads leave nothing,
/// nor do those that are cut into segments. A value, whose memory the next call uses again. Gradients are right with
/// and without, and the same bit for bit where chunks are longer than a state's tail, except under channel decay.
/// Queries, keys, values and transitions are not kept: they must be the same.
template <class S, FeatureMap F>
class ForwardPass {
 public:
  [[nodiscard]] Index size() const { return std::ssize(heads_); }  ///< query heads, of all sequences

 private:
  friend detail::ForwardPassAccess;

  struct Head {
    Form form = Form::automatic;  // that it went by, if it has left something
    RowSums<S, F> rows;
    [[no_unique_address]] typename detail::HeadCheckpoints<S, F>::type checkpoints;
  };
  std::vector<Head> heads_;
};

namespace detail {
struct ForwardPassAccess {
  static auto& heads(auto& tape) { return tape.heads_; }
  /// Of so many heads, which have left nothing yet.
  static void begin(auto& tape, Index count) {
    tape.heads_.resize(static_cast<std::size_t>(count));
    for (auto& head : tape.heads_) head.form = Form::automatic;
  }
  /// What a head has left if it went by this form, else null.
  static const auto* left_by(const auto& tape, Index head, Form form) {
    const auto& of_head = tape.heads_[static_cast<std::size_t>(head)];
    return of_head.form == form ? &of_head : nullptr;
  }
};
}  // namespace detail

}  // namespace SYMPOW_NAMESPACE
