// Positions of several coordinates: queries and keys turn by a family of commuting rotations.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <type_traits>

#include <sympow/rotation/commuting_generators.hpp>
#include <sympow/transition/flows.hpp>
#include <sympow/transition/transport_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// A_i = R_STR(r_i - r_{i-1}), lifted; M_ij = R_STR(r_j - r_i). The n-dimensional rotary positions of STRING; RoPE for
/// one coordinate.
template <class S>
class StructuredRotary {
 public:
  static constexpr KeyAction key_action = KeyAction::turn;

  /// Throws `ShapeMismatch` unless the positions have d_c rows, `NotFinite`.
  StructuredRotary(CommutingGenerators<S> family, Eigen::MatrixXd positions)
      : family_(std::move(family)), basis_(family_.basis()), positions_(std::move(positions)) {
    detail::check_size("rows of the positions", positions_.rows(), family_.size(), "generators of the family");
    for (Index t = 0; t < positions_.cols(); ++t)
      for (Index k = 0; k < positions_.rows(); ++k)
        if (!std::isfinite(positions_(k, t)))
          detail::raise<NotFinite>("structured_rotary: coordinate ", k, " of position ", t, " is ", positions_(k, t),
                                   ", must be finite");
  }

  [[nodiscard]] Index length() const { return positions_.cols(); }
  [[nodiscard]] Index key_dimension() const { return family_.dimension(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  [[nodiscard]] const CommutingGenerators<S>& family() const { return family_; }  ///< the family
  [[nodiscard]] const Eigen::MatrixXd& positions() const { return positions_; }   ///< r, d_c × T

  void check_frame(const Frame& frame, Index) const { frame.require(Frame::angles, family_.planes()); }

  [[nodiscard]] Eigen::MatrixXd key_matrix(Index token, Index) const {
    Eigen::VectorXd step = positions_.col(token);
    if (token > 0) step -= positions_.col(token - 1);
    return family_.at(step).toDenseMatrix().template cast<double>();
  }

  // Queries and keys of token i turn by R(r_i), positions being absolute: their inner products turn by r_j - r_i.
  template <class Scalar>
  void transport(Frame& frame, Segment segment, Batch<Scalar> queries, Batch<Scalar> keys, Batch<Scalar> logits) const {
    static_assert(std::is_same_v<S, Scalar>,
                  "the family must have the scalar type of queries and keys: CommutingGenerators<Scalar>");
    if constexpr (std::is_same_v<S, Scalar>) {
      if (frame.empty()) frame.begin(Frame::angles, Eigen::VectorXd::Zero(family_.planes()));
      auto angles = frame.numbers();
      multiply(basis_.transpose(), queries);
      multiply(basis_.transpose(), keys);
      for (Index t = 0; t < segment.size; ++t) {
        set_angles(segment.begin + t, angles);
        detail::turn_on(angles, angles.data(), 0, Pairing::interleaved, queries.col(t).data(), keys.col(t).data());
      }
      if (logits.size() != 0) detail::set_causal_product(logits, keys, queries);
      multiply(basis_, queries);
      multiply(basis_, keys);
    }
  }

  template <class Scalar>
  void pull(Segment, const Batch<Scalar>&) const {}

  /// Of the parameters, all in double.
  struct Gradient {
    Eigen::MatrixXd positions;    ///< ∂loss/∂r, d_c × T
    Eigen::MatrixXd frequencies;  ///< ∂loss/∂Λ, d_c × m
    /// skew(UᵀdU), d × d: the loss of U exp(hΩ) grows by its product ⟨·,Ω⟩ with Ω skew. Empty where U is not kept.
    Eigen::MatrixXd basis;
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const {
    const Index d = family_.has_basis() ? family_.dimension() : 0;
    return {Eigen::MatrixXd::Zero(family_.size(), tokens), Eigen::MatrixXd::Zero(family_.size(), family_.planes()),
            Eigen::MatrixXd::Zero(d, d)};
  }
  void add_decay_flows(Segment, const double*, Gradient&) const {}
  [[nodiscard]] StructuredRotary part(Segment s) const { return {family_, positions_.middleCols(s.begin, s.size)}; }
  void join(const Gradient& part, Segment s, Gradient& whole) const {
    whole.positions.middleCols(s.begin, s.size) += part.positions;
    whole.frequencies += part.frequencies;
    whole.basis += part.basis;
  }

  // Positions are absolute, so that nothing flows: with m_i = ⟨dq̃_i, J q̃_i⟩ + ⟨dk̂_i, J k̂_i⟩ by planes, dr_i = Λ m_i
  // and dΛ = Σ_i r_i m_iᵀ. U acts before and after the turns. Asks for memory of 2 d² numbers where there is a U.
  template <std::same_as<S> Scalar>
  void transport_vjp(Frame& frame, Segment segment, TransportVjp<Scalar>& x, Gradient& g) const {
    if (frame.empty()) frame.begin(Frame::angles, Eigen::VectorXd::Zero(family_.planes()));
    auto angles = frame.numbers();
    for (auto* batch : {&x.moved_queries, &x.moved_keys, &x.d_queries, &x.d_keys}) multiply(basis_.transpose(), *batch);
    add_to_basis(x, false, g);
    detail::add_causal_pairs<S>(x.moved_queries, x.moved_keys, x.d_logits, x.d_queries, x.d_keys);
    const detail::Coupling coupling{detail::Coupling::neighbours, family_.planes()};
    for (Index t = 0; t < segment.size; ++t) {
      const auto position = positions_.col(segment.begin + t);
      S *const q = x.moved_queries.col(t).data(), *const k = x.moved_keys.col(t).data(),
               *const dq = x.d_queries.col(t).data(), *const dk = x.d_keys.col(t).data();
      auto moments = angles;  // the same memory, one after the other
      moments.setZero();
      coupling.add(moments.data(), moments.size(), x.unit, q, 1, dq, 1);
      coupling.add(moments.data(), moments.size(), x.unit, k, 1, dk, 1);
      g.positions.col(segment.begin + t).noalias() += family_.frequencies() * moments;
      g.frequencies.noalias() += position * moments.transpose();
      set_angles(segment.begin + t, angles);
      angles *= -1;
      detail::turn_on(angles, angles.data(), 0, Pairing::interleaved, dq, dk);
      if (family_.has_basis()) detail::turn_on(angles, angles.data(), 0, Pairing::interleaved, q, k);
      angles *= -1;
    }
    add_to_basis(x, true, g);
    multiply(basis_, x.d_queries);
    multiply(basis_, x.d_keys);
  }
  template <std::same_as<S> Scalar>
  void pull_vjp(Segment, const Batch<Scalar>&, const Batch<Scalar>&, double, Gradient&) const {}

 private:
  void set_angles(Index token, Eigen::Map<Eigen::VectorXd> angles) const {
    for (Index u = 0; u < angles.size(); ++u)
      angles[u] = reduced_angle(family_.frequencies().col(u).dot(positions_.col(token)));
  }

  // skew(UᵀdU) grows by that of x dxᵀ of what U is applied to, or of dx xᵀ of what it has made.
  void add_to_basis(TransportVjp<S>& x, bool applied, Gradient& g) const {
    if (!family_.has_basis()) return;
    Matrix<S> sum = Matrix<S>::Zero(g.basis.rows(), g.basis.cols());
    detail::add_product(sum, x.moved_queries, x.d_queries.transpose());
    detail::add_product(sum, x.moved_keys, x.d_keys.transpose());
    const Eigen::MatrixXd twice = (sum - sum.transpose()).template cast<double>();
    g.basis += (applied ? .5 : -.5) * x.unit * twice;
  }

  // X ← U X a few columns at a time, on the stack where d allows.
  template <class Factor>
  void multiply(const Factor& U, Batch<S> X) const {
    if (!family_.has_basis()) return;
    constexpr Index room = 8192;
    const Index d = X.rows(), together = std::max<Index>(1, room / std::max<Index>(d, 1));
    std::array<S, room> stack;
    Vector<S> heap(d > room ? d : 0);
    for (Index t = 0; t < X.cols(); t += together) {
      const Index n = std::min(together, X.cols() - t);
      Eigen::Map<Matrix<S>> image(d > room ? heap.data() : stack.data(), d, n);
      detail::set_product(image, U, X.middleCols(t, n));
      X.middleCols(t, n) = image;
    }
  }

  CommutingGenerators<S> family_;
  Matrix<S> basis_;
  Eigen::MatrixXd positions_;
};

/// Tokens at positions r_1 … r_T of d_c coordinates each.
///
///     M_ij = R_STR(r_j - r_i),   R_STR(r) = exp(Σ_k r_k L_k)
///
/// r: d_c × T, absolute, from a grid (`grid_positions`) or from the data; in double. A sequence that is continued goes
/// on in the same coordinates. Cost a token: 8 d² operations for U, none where the family is in its block basis
/// (`in_block_basis`, with Uᵀ taken into the projections of queries and keys), and m (d_c + two sines). Throws
/// `ShapeMismatch`, `NotFinite`. Source: Equivariant Structured Positional Rotations, §2.
template <class S, MatrixExpression Positions>
[[nodiscard]] StructuredRotary<S> structured_rotary(CommutingGenerators<S> family, const Positions& r) {
  return {std::move(family), r.template cast<double>()};
}

}  // namespace SYMPOW_NAMESPACE
