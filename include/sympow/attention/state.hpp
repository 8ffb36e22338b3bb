// What the state forms carry from token to token.
#pragma once

#include <sympow/core/checks.hpp>
#include <sympow/feature/feature_map.hpp>
#include <sympow/transition/transition.hpp>

namespace sympow {

namespace detail {
template <class State>
struct StateAccess;
}

/// The state of a recurrence: a value. Copy it to branch, keep it to resume.
///
///     S = Σ_j b_Tj v_j φ(k̂_j)ᵀ  (e × D),   Z = Σ_j b_Tj φ(k̂_j)ᵀ  (1 × D)
///
/// over the T tokens seen so far, with keys k̂ in the coordinates of `frame()`. A fresh state is empty: its first token forgets
/// nothing, whatever its gate. Splitting a sequence anywhere and resuming gives the outputs of the whole. Size: (e + 1) D scalars.
/// Source: Conformal Transformations, §2 and eq. (2).
template <class S, FiniteFeatureMap F>
class State {
 public:
  using Scalar = S;
  using Feature = F;

  /// The empty state for keys in R^d and values in R^e. Throws `DimensionOverflow` if (e + 1) D does not fit, `ShapeMismatch` for a
  /// negative size.
  State(Index d, Index e) : State(F{}, d, e) {}
  State(F feature, Index d, Index e) : feature_(std::move(feature)), d_(d) {
    if (d < 0 || e < 0) detail::raise<ShapeMismatch>("State: d = ", d, " and e = ", e, " must not be negative");
    const Index dimension = feature_.dimension(d);
    Index entries = 0;
    if (__builtin_mul_overflow(dimension, e + 1, &entries))
      detail::raise<DimensionOverflow>("State: ", e + 1, " x ", dimension, " entries do not fit the index type");
    S_.setZero(e, dimension);
    Z_.setZero(dimension);
  }

  [[nodiscard]] const F& feature() const { return feature_; }
  [[nodiscard]] Index key_dimension() const { return d_; }
  [[nodiscard]] Index value_dimension() const { return S_.rows(); }
  [[nodiscard]] Index tokens() const { return tokens_; }             ///< T, the tokens seen so far
  [[nodiscard]] const Matrix<S>& values() const { return S_; }       ///< S, e × D
  [[nodiscard]] const Vector<S>& normalizer() const { return Z_; }   ///< Zᵀ, D
  [[nodiscard]] const Frame& frame() const { return frame_; }        ///< the coordinates of its keys
  [[nodiscard]] double log_decay() const { return log_decay_; }      ///< Σ log γ_i over the tokens seen, the first gate included

  /// Bytes of S and Z.
  [[nodiscard]] Index bytes() const { return (S_.size() + Z_.size()) * static_cast<Index>(sizeof(S)); }

 private:
  friend detail::StateAccess<State>;
  F feature_;
  Index d_;
  Matrix<S> S_;
  Vector<S> Z_;
  Frame frame_;
  double log_decay_ = 0;
  Index tokens_ = 0;
};
template <FiniteFeatureMap F>
State(F, Index, Index) -> State<double, F>;

namespace detail {

// The forms' way into a state.
template <class Scalar, class F>
struct StateAccess<State<Scalar, F>> {
  State<Scalar, F>& state;
  Matrix<Scalar>& S = state.S_;
  Vector<Scalar>& Z = state.Z_;
  Frame& frame = state.frame_;

  // After the tokens of a segment, whose log gates sum to `log_decay`.
  void advance(Index tokens, double log_decay) {
    state.tokens_ += tokens;
    state.log_decay_ += log_decay;
  }

  // S ← γ S, in double: a γ near 1 rounded to float would drift by itself.
  void decay(double gamma) {
    if (gamma == 1) return;
    S = (S.template cast<double>() * gamma).template cast<Scalar>();
    Z = (Z.template cast<double>() * gamma).template cast<Scalar>();
  }

  // S ← S Sym(diag(factors)): a diagonal is lifted to the monomials of its entries, φ(a) / φ(1).
  void scale_channels(const Eigen::VectorXd& factors) {
    Matrix<double> lifted(S.cols(), 2);
    Matrix<double> both(factors.size(), 2);
    both << factors, Eigen::VectorXd::Ones(factors.size());
    state.feature_.embed(both, lifted);
    const Vector<Scalar> monomials = (lifted.col(0).array() / lifted.col(1).array()).template cast<Scalar>();
    S.array().rowwise() *= monomials.transpose().array();
    Z.array() *= monomials.array();
  }
};

/// Throws `ShapeMismatch` or `FrameMismatch` unless the state fits the call.
template <class Scalar, class F, class A, class Q, class V>
void check_state(const State<Scalar, F>& state, const A& transition, const Q& queries, const V& values) {
  static_assert(std::is_same_v<Scalar, typename Q::Scalar>, "the state and the queries must have the same scalar type");
  check_size("rows of Q", queries.rows(), state.key_dimension(), "key dimension of the state");
  check_size("rows of V", values.rows(), state.value_dimension(), "value dimension of the state");
  transition.check_frame(state.frame(), queries.rows());
}

}  // namespace detail
}  // namespace sympow
