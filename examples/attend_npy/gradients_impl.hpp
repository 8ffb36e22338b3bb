// The definition of `add_gradients`, for the two files that instantiate it.
#pragma once

#include <sympow/attention/attention_vjp.hpp>
#include <sympow/attention/chunked_vjp.hpp>
#include <sympow/systems/peer_parameters.hpp>

#include "features.hpp"
#include "gradients.hpp"

namespace attend_npy {
namespace detail {

using namespace sympow;

/// Where the gradients of one head are added.
template <class Scalar>
class HeadGradients {
 public:
  HeadGradients(const Problem& problem, Index n, ProblemGradients<Scalar>& all)
      : problem_(problem), b_(n / problem.H), h_(n % problem.H), all_(all) {}

  template <class A>
  void add(const Gradients<Scalar, A>& of) {
    of_queries(all_.Q, problem_.d) += of.Q;
    of_keys(all_.K, problem_.d) += of.K;
    add_values(of.V);
    add_parameters(of.transition, of.V);
    if (problem_.scale) all_.scale[0] += of.scale;
  }

 private:
  template <class S>
  [[nodiscard]] auto of_queries(std::vector<S>& x, Index width) const {
    return problem_.heads(x.data(), problem_.H, width).head(b_, h_);
  }
  template <class S>
  [[nodiscard]] auto of_keys(std::vector<S>& x, Index width) const {
    return problem_.heads(x.data(), problem_.H_kv, width).head(b_, problem_.key_head(h_));
  }

  void add_parameters(const Decay::Gradient& of, const Matrix<Scalar>&) {
    if (problem_.log_gate) of_queries(all_.log_gate, 1) += of.log_gamma.transpose();
  }
  template <class G>
  void add_parameters(const G& of, const Matrix<Scalar>& dV) {
    add_parameters(of.left(), dV);
    if constexpr (requires { of.right().w; }) {
      of_keys(all_.W, problem_.d) += of.right().w;
      of_keys(all_.strength, 1) += of.right().beta.transpose() + of_delta_rule(dV);
    } else {
      Eigen::Map<Eigen::VectorXd>(all_.theta.data(), std::ssize(all_.theta)) += of.right().theta;
      if (problem_.beta) of_queries(all_.beta, 1) += of.right().beta.transpose();
    }
  }

  // The delta rule's values are β v: dβ = v·dV, and then dv = β dV. Without it 0, and dV.
  [[nodiscard]] Eigen::RowVectorXd of_delta_rule(const Matrix<Scalar>& dV) const {
    if (!problem_.given_V) return Eigen::RowVectorXd::Zero(dV.cols());
    const auto V = problem_.heads(problem_.given_V->template data<Scalar>(), problem_.H_kv, problem_.e)
                       .head(b_, problem_.key_head(h_));
    return V.template cast<double>().cwiseProduct(dV.template cast<double>()).colwise().sum();
  }
  void add_values(const Matrix<Scalar>& dV) {
    auto values = of_keys(all_.V, problem_.e);
    if (!problem_.given_V) {
      values += dV;
      return;
    }
    std::visit(
        [&](const auto& strengths) {
          const auto strength = problem_.heads(strengths.data(), problem_.H_kv, 1).head(b_, problem_.key_head(h_));
          values += sympow::systems::delta_rule_values(dV, strength.row(0));
        },
        problem_.strength->entries);
  }

  const Problem& problem_;
  Index b_, h_;
  ProblemGradients<Scalar>& all_;
};

/// The gradients of head n alone, from a state of which those are not asked for.
template <class N, class Scalar, class F, class A>
Gradients<Scalar, A> gradients_of(const F& feature, const A& transition, const Problem& problem, Index n,
                                  [[maybe_unused]] const StateOf<Scalar, F>& state, VjpWorkspace<Scalar>& workspace) {
  const auto Q = problem.queries<Scalar>(n), K = problem.keys<Scalar>(n);
  const auto V = problem.values<Scalar>(n);
  const auto dY = problem.heads(problem.dY->data<Scalar>(), problem.H, problem.e).head(n / problem.H, n % problem.H);
  const Options options{.scale = problem.arguments.scale, .chunk = problem.arguments.chunk};
  Gradients<Scalar, A> gradients;
  if constexpr (has_state_forms<F, A>)
    if (problem.form != Form::attention) {
      StateGradient<Scalar, F> adjoint(feature, problem.d, problem.e);  // of a loss in Y alone
      gradients = chunked_vjp<N>(feature, transition,
                                 {.Q = Q,
                                  .K = K,
                                  .V = V,
                                  .dY = dY,
                                  .state = state,
                                  .d_state = adjoint,
                                  .reuse = gradients,
                                  .workspace = workspace,
                                  .options = options});
      return gradients;
    }
  gradients = attention_vjp<N>(
      feature, transition,
      {.Q = Q, .K = K, .V = V, .dY = dY, .reuse = gradients, .workspace = workspace, .options = options});
  return gradients;
}

}  // namespace detail

template <class Scalar, class F>
void add_gradients(const F& feature, const Problem& problem, Index n, const Transition<Scalar>& transition,
                   const StateOf<Scalar, F>& state, sympow::VjpWorkspace<Scalar>& workspace,
                   ProblemGradients<Scalar>& gradients) {
  std::visit(
      [&]<class A>(const A& acting) {
        if constexpr (goes_with<F, A>)
          with_normalization<F>(problem.arguments.divides(), [&]<class N>(N) {
            detail::HeadGradients<Scalar>(problem, n, gradients)
                .add(detail::gradients_of<N, Scalar>(feature, acting, problem, n, state, workspace));
          });
      },
      transition);
}

#define ATTEND_NPY_GRADIENTS_OF(Scalar, F)                                                           \
  template void add_gradients<Scalar, F>(const F&, const Problem&, Index, const Transition<Scalar>&, \
                                         const StateOf<Scalar, F>&, sympow::VjpWorkspace<Scalar>&,   \
                                         ProblemGradients<Scalar>&);

}  // namespace attend_npy
