#include "reference.hpp"

#include <sympow/attention/attention.hpp>

namespace attend_npy {
namespace {

using namespace sympow;

// As verify::double_rows, but for sums and embedded scores as well, and by logarithms: no power of a length overflows
// on the way.
template <class Normalization, class F, class A>
verify::DirectRows<double> rows_in_double(const F& feature, const A& transition, const Eigen::MatrixXd& Q,
                                          const Eigen::MatrixXd& K, const Eigen::MatrixXd& V, double scale) {
  const Index T = Q.cols();
  Diagnostics of_scores, of_all;
  Eigen::VectorXd of_weights;  // log A_i
  Eigen::VectorXd log_gates(T);
  for (Index i = 0; i < T; ++i) log_gates[i] = transition.log_decay(i);
  const Eigen::MatrixXd ones = Eigen::MatrixXd::Ones(1, T), q = Q.colwise().stableNorm(), k = K.colwise().stableNorm();
  verify::DirectRows<double> rows;
  rows.Y = attention<Normalization>(feature, transition, Q, K, V, {.scale = scale, .diagnostics = &of_scores});
  rows.denominator = of_scores.log_sum.array().exp();
  if constexpr (F::score == Score::embedded) {  // lengths are those of φ, which the diagnostics see
    of_weights = of_scores.condition.array().log().matrix() + of_scores.log_sum;
  } else {
    (void)attention<Unnormalized>(feature, decay(log_gates), q, k, ones,
                                  {.scale = std::abs(scale), .diagnostics = &of_all});
    of_weights = of_all.log_sum;
  }
  rows.condition = of_weights.array().exp();
  if constexpr (std::is_same_v<Normalization, Normalized>)
    rows.condition = (of_weights - of_scores.log_sum).array().exp();
  rows.largest_value = V.size() > 0 ? V.cwiseAbs().maxCoeff() : 0;
  return rows;
}

}  // namespace

template <class F>
verify::DirectRows<double> reference(const F& feature, const Transition<double>& transition, const Eigen::MatrixXd& Q,
                                     const Eigen::MatrixXd& K, const Eigen::MatrixXd& V, double scale, bool divides) {
  verify::DirectRows<double> rows;
  std::visit(
      [&]<class A>(const A& transition_of_keys) {
        with_normalization<F>(divides, [&]<class N>(N) {
          constexpr bool is_chain = A::key_action == KeyAction::mix;
          if constexpr (FiniteFeatureMap<F> && !is_chain)
            rows = rows_in_double<N>(feature, transition_of_keys, Q, K, V, scale);
          else if constexpr (goes_with<F, A>)
            rows = verify::direct_attention<N>(feature, transition_of_keys, Q, K, V, {.scale = scale});
        });
      },
      transition);
  rows.window = window<double>(transition, Q.cols(), 0);
  return rows;
}

#define ATTEND_NPY_REFERENCE(...)                                                                                      \
  template verify::DirectRows<double> reference(const __VA_ARGS__&, const Transition<double>&, const Eigen::MatrixXd&, \
                                                const Eigen::MatrixXd&, const Eigen::MatrixXd&, double, bool);
ATTEND_NPY_EACH_FEATURE(ATTEND_NPY_REFERENCE)

}  // namespace attend_npy
