// A call whose gradients are to be known, as dense numbers in long double: what no library type is left in.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/transition/transition.hpp>
#include <sympow/verify/direct.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// The arithmetic of gradients by their definition.
using Wide = long double;

/// φ with its Jacobian, dense: `evaluate(x, φ, Dφ)` fills D and D × d numbers. Without a function there is no φ.
struct DenseFeature {
  Index dimension = 0;  ///< D
  /// max_r ‖w_r‖ of features that are exponentials of w_r·x; 0 for others.
  Wide longest_projection = 0;
  /// x, φ and Dφ.
  std::function<void(const Vector<Wide>& x, Vector<Wide>& phi, Matrix<Wide>& jacobian)> evaluate = {};
};

/// Attention with everything that has a gradient, and the gradient of its outputs.
///
/// The initial state is a key before token 0, seen through A_0 A_1 … A_i, where A_0, the frame, is what a turning
/// transition starts at. A loss on the final state is a row behind token T - 1.
struct GradientCall : detail::DirectCall {
  Wide scale = 1;                        ///< `Options::scale`
  KeyAction action = KeyAction::none;    ///< what A_t does in key space
  Matrix<Wide> Q = {},                   ///< d × T_q
      K = {},                            ///< d × T_k
      V = {},                            ///< e × T_k
      dY = {};                           ///< e × T_q
  std::vector<Matrix<Wide>> steps = {};  ///< A_t in key space; none if all are the identity
  Matrix<Wide> frame = {};               ///< A_0, of turning transitions; empty: the identity
  DenseFeature feature = {};             ///< needed for embedded scores, and where there is a state
  Matrix<Wide> initial = {};             ///< [S_0; Z_0], (e + 1) × D; empty: none
  Matrix<Wide> d_final = {};             ///< [dS_T; dZ_T], (e + 1) × D; empty: no loss on it

  /// Whether angles are seen as they are, and not those between two tokens, so that their gradients are sums over all
  /// later tokens.
  [[nodiscard]] bool is_absolute() const { return score == Score::embedded || mask.is_full; }
  /// Whether it goes on from a state, or a loss sees the final one.
  [[nodiscard]] bool has_state() const { return initial.size() + d_final.size() > 0; }
  /// The end of the keys that a query sees.
  [[nodiscard]] Index seen(Index query) const { return end(query, K.cols()); }

  /// Throws `ShapeMismatch` for what does not fit, `InvalidArgument` for what has no definition.
  void check() const {
    using sympow::detail::check_size, sympow::detail::raise;
    check_size("rows of K", K.rows(), Q.rows(), "rows of Q");
    check_size("columns of V", V.cols(), K.cols(), "columns of K");
    check_size("rows of dY", dY.rows(), V.rows(), "rows of V");
    check_size("columns of dY", dY.cols(), Q.cols(), "columns of Q");
    if (!steps.empty()) check_size("steps", std::ssize(steps), tokens(), "tokens");
    for (const auto* S : {&initial, &d_final}) {
      if (S->size() == 0) continue;
      check_size("rows of a state", S->rows(), V.rows() + 1, "rows of V, and one");
      check_size("columns of a state", S->cols(), feature.dimension, "D of the feature map");
    }
    const bool moves = action == KeyAction::scale || action == KeyAction::mix;
    if ((score == Score::embedded || mask.is_full) && moves)
      raise<InvalidArgument>("gradient_call: embedded scores and full masks need keys that turn or stay");
    if ((score == Score::embedded || has_state()) && !feature.evaluate)
      raise<InvalidArgument>("gradient_call: this needs a feature map with a Jacobian; set `feature`");
    if (has_state() && action == KeyAction::mix && (score != Score::power || degree > 1))
      raise<InvalidArgument>("gradient_call: what mixes keys moves a state of Linear only");
  }
};

/// φ^P and its Jacobian, entry by entry: φ_α = √(P! / Π c_i!) Π x_i^{c_i}, and c_i x_i^{c_i - 1} for each x_i^{c_i}.
[[nodiscard]] inline DenseFeature dense_symmetric_power(Index d, int P) {
  return {symmetric_dimension(d, P), 0, [d, P](const Vector<Wide>& x, Vector<Wide>& phi, Matrix<Wide>& jacobian) {
            const MultiIndices indices(d, P);
            phi.setZero(indices.size());
            jacobian.setZero(indices.size(), d);
            for (Index n = 0; n < indices.size(); ++n) {
              const auto alpha = indices[n];
              const Wide weight = std::sqrt(static_cast<Wide>(multiplicity(alpha)));
              phi[n] = weight;
              for (const Index i : alpha) phi[n] *= x[i];
              for (int left_out = 0; left_out < P; ++left_out) {
                Wide product = weight;
                for (int level = 0; level < P; ++level)
                  if (level != left_out) product *= x[alpha[level]];
                jacobian(n, alpha[left_out]) += product;
              }
            }
          }};
}

/// Random features of these projections W (m × d), by their formula, and its derivative.
[[nodiscard]] inline DenseFeature dense_random_features(RandomFeatureKind kind, const Matrix<double>& W) {
  const Index m = W.rows(), halves = kind == RandomFeatureKind::positive ? 1 : 2;
  const Matrix<Wide> w = W.cast<Wide>();
  return {halves * m, w.rowwise().norm().maxCoeff(),
          [=](const Vector<Wide>& x, Vector<Wide>& phi, Matrix<Wide>& jacobian) {
            const bool waves = kind == RandomFeatureKind::trigonometric;
            const Wide of_length = waves ? 1 : -1;  // the sign of ‖x‖²/2
            const Wide size =
                std::exp(of_length * x.squaredNorm() / 2) / std::sqrt(static_cast<Wide>(waves ? m : halves * m));
            phi.setZero(halves * m);
            jacobian.setZero(halves * m, x.size());
            for (Index r = 0; r < halves * m; ++r) {
              const bool second = r >= m;
              const Wide z = w.row(r % m).dot(x), sign = second ? -1 : 1;
              const Wide value = waves ? (second ? std::sin(z) : std::cos(z)) : std::exp(sign * z);
              const Wide slope = waves ? (second ? std::cos(z) : -std::sin(z)) : sign * value;
              phi[r] = size * value;
              jacobian.row(r) = size * (slope * w.row(r % m) + of_length * value * x.transpose());
            }
          }};
}

namespace detail {

/// φ of a map of the library, none of one that does not say what its derivative is.
template <class F>
DenseFeature dense_feature([[maybe_unused]] const F& feature, [[maybe_unused]] Index d) {
  if constexpr (F::score == Score::power) return dense_symmetric_power(d, F::degree);
  if constexpr (requires { feature.projections(); }) return dense_random_features(F::kind, feature.projections());
  return {};
}

}  // namespace detail

/// The numbers of a call. `feature` is set for the maps of the library; a map of your own needs its own Jacobian there.
/// Gates and A_t are what the transition says of them in double: where that is too coarse, set `steps`. Then set
/// `initial`, `d_final` and `frame` as there are any. Shapes as in `attention`.
template <class Normalization = DefaultNormalization, FeatureMap F, Transition A, class DQ, class DK, class DV,
          class DdY>
[[nodiscard]] GradientCall gradient_call(const F& feature, const A& transition, const Eigen::MatrixBase<DQ>& Q,
                                         const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                         const Eigen::MatrixBase<DdY>& dY, const Options& options = {}) {
  GradientCall call;
  call.score = F::score;
  if constexpr (F::score == Score::power) call.degree = F::degree;
  call.divided = divides<Normalization, F>;
  call.signed_means = std::is_same_v<Normalization, SignedNormalized>;
  call.mask = options.mask;
  call.scale = options.scale;
  call.action = A::key_action;
  call.Q = Q.template cast<Wide>();
  call.K = K.template cast<Wide>();
  call.V = V.template cast<Wide>();
  call.dY = dY.template cast<Wide>();
  call.feature = detail::dense_feature(feature, Q.rows());
  const Index T = std::max(K.cols(), Q.cols() + options.mask.offset);
  for (Index t = 0; t < T; ++t) {
    call.log_decay.push_back(transition.log_decay(t));
    if constexpr (A::key_action != KeyAction::none) {
      const Eigen::MatrixXd step = transition.key_matrix(t, Q.rows());
      call.steps.emplace_back(step.cast<Wide>());
    }
  }
  return call;
}

}  // namespace SYMPOW_NAMESPACE::verify
