// What the heads of a batch leave of their forward pass, for their gradients.
#pragma once

#include <sympow/attention/batch.hpp>
#include <sympow/attention/checkpoints.hpp>
#include <sympow/attention/row_sums.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {
struct ForwardPassAccess;

template <class S, class F>
struct HeadCheckpoints {
  using type = NoStates;
};
template <class S, FiniteFeatureMap F>
struct HeadCheckpoints<S, F> {
  using type = Checkpoints<S, F>;
};
}  // namespace detail

/// What `attend` without states leaves for `attend_vjp`, which then has nothing of it to do again: `RowSums` of heads
/// in the attention form, `Checkpoints` of chunked ones under causal(). Other heads leave nothing, nor do such as are
/// cut into segments. A value, whose memory the next call uses again. Gradients are right with and without, and the
/// same bit for bit where chunks are longer than a state's tail, but under channel decay. What the rows are of is not
/// kept: queries, keys, values and transitions must be the same.
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
  static auto& heads(auto& pass) { return pass.heads_; }
};

/// Runs heads so that they leave what is known of them.
template <class Normalization, class S, class F>
struct LeaveForwardPass {
  ForwardPass<S, F>& pass;

  /// For so many heads.
  void begin(Index count) const {
    auto& heads = ForwardPassAccess::heads(pass);
    heads.resize(static_cast<std::size_t>(count));
    for (auto& head : heads) head.form = Form::automatic;
  }
  /// Whether it has run head n; else nothing has happened.
  template <class A, class Q, class K, class V, class Y>
  bool run(Index n, Form form, const F& feature, const A& transition, const Q& queries, const K& keys, const V& values,
           const Y& rows, Workspace<S>& workspace, const Options& options) const {
    auto& head = ForwardPassAccess::heads(pass)[static_cast<std::size_t>(n)];
    if (form == Form::attention) {
      attention<Normalization>(feature, transition, queries, keys, values, rows, head.rows, workspace, options);
      head.form = form;
      return true;
    }
    if constexpr (has_state_forms<F, A>)
      if (form == Form::chunked && options.mask == causal()) {
        State<S, F> state(feature, queries.rows(), values.rows());
        state.drop_key_product();
        chunked<Normalization>(feature, transition, queries, keys, values, state, rows, head.checkpoints, workspace,
                               options);
        head.form = form;
        return true;
      }
    return false;
  }
};

}  // namespace detail

inline namespace SYMPOW_THREADS {

/// `attend` without states, leaving its forward pass for `attend_vjp`. Y is that without, bit for bit.
template <class Normalization = DefaultNormalization, FeatureMap F, class Transitions, class Scalar>
void attend(const F& feature, const Transitions& transitions, Heads<const std::type_identity_t<Scalar>> Q,
            Heads<const std::type_identity_t<Scalar>> K, Heads<const std::type_identity_t<Scalar>> V, Heads<Scalar> Y,
            ForwardPass<std::type_identity_t<Scalar>, F>& pass, Workspaces<std::type_identity_t<Scalar>>& workspaces,
            const BatchOptions& options = {}) {
  detail::NoStates none;
  detail::run_batch<Normalization>(feature, transitions, detail::BatchCall<Scalar>{Q, K, V, Y, options}, none,
                                   workspaces, detail::LeaveForwardPass<Normalization, Scalar, F>{pass});
}

}  // namespace SYMPOW_THREADS
}  // namespace SYMPOW_NAMESPACE
