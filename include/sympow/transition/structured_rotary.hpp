// Multidimensional positions: a family of commuting rotations acts on queries and keys.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <type_traits>

#include <sympow/structured/commuting_generators.hpp>
#include <sympow/transition/flows.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE {

/// A_i = R_STR(r_i - r_{i-1}), lifted; M_ij = R_STR(r_j - r_i). n-dimensional rotary positions (STRING); RoPE for one
/// coordinate.
template <class S>
class StructuredRotary {
 public:
  static constexpr KeyAction key_action = KeyAction::turn;

  /// Throws `ShapeMismatch` unless the positions have d_c rows, and `NotFinite`.
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

  // Rotates queries and keys of token i by R(r_i); their inner products depend on r_j - r_i.
  template <class Scalar>
  void to_segment_frame(Frame& frame, Segment segment, Batch<Scalar> queries, Batch<Scalar> keys,
                        Batch<Scalar> logits) const {
    static_assert(std::is_same_v<S, Scalar>,
                  "the family must have the scalar type of queries and keys: CommutingGenerators<Scalar>");
    if constexpr (std::is_same_v<S, Scalar>) {
      if (frame.empty()) frame.begin(Frame::angles, Eigen::VectorXd::Zero(family_.planes()));
      auto angles = frame.numbers();
      multiply(basis_.transpose(), queries);
      multiply(basis_.transpose(), keys);
      for (Index t = 0; t < segment.size; ++t) {
        set_angles(segment.begin + t, angles);
        detail::advance_and_rotate(angles, angles.data(), 0, Pairing::interleaved, queries.col(t).data(),
                                   keys.col(t).data());
      }
      if (logits.size() != 0) detail::set_causal_product(logits, keys, queries);
      multiply(basis_, queries);
      multiply(basis_, keys);
    }
  }

  template <class Scalar>
  void apply_to_queries(Segment, const Batch<Scalar>&) const {}

  /// Gradient with respect to the parameters, in double.
  struct Gradient {
    Eigen::MatrixXd positions;    ///< ∂loss/∂r, d_c × T
    Eigen::MatrixXd frequencies;  ///< ∂loss/∂Λ, d_c × m
    /// skew(UᵀdU), d × d: the derivative of the loss at U exp(hΩ), Ω skew, is ⟨skew(UᵀdU), Ω⟩. Empty if U is not
    /// stored.
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

  // Positions are absolute, so nothing flows. With m_i = ⟨dq̃_i, J q̃_i⟩ + ⟨dk̂_i, J k̂_i⟩ per plane, dr_i = Λ m_i and
  // dΛ = Σ_i r_i m_iᵀ. U acts before and after the rotations. Allocates 2 d² entries if there is a U.
  template <std::same_as<S> Scalar>
  void to_segment_frame_vjp(Frame& frame, Segment segment, SegmentVjp<Scalar>& x, Gradient& g) const {
    if (frame.empty()) frame.begin(Frame::angles, Eigen::VectorXd::Zero(family_.planes()));
    auto angles = frame.numbers();
    for (auto* batch : {&x.moved_queries, &x.moved_keys, &x.d_queries, &x.d_keys}) multiply(basis_.transpose(), *batch);
    add_to_basis(x, false, g);
    detail::add_causal_pairs<S>(x.moved_queries, x.moved_keys, x.d_logits, x.d_queries, x.d_keys);
    const detail::Coupling coupling{detail::Coupling::interleaved, family_.planes()};
    for (Index t = 0; t < segment.size; ++t) {
      const auto position = positions_.col(segment.begin + t);
      S *const q = x.moved_queries.col(t).data(), *const k = x.moved_keys.col(t).data(),
               *const dq = x.d_queries.col(t).data(), *const dk = x.d_keys.col(t).data();
      auto moments = angles;  // reuses the memory of `angles`
      moments.setZero();
      coupling.add(moments.data(), moments.size(), x.unit, q, 1, dq, 1);
      coupling.add(moments.data(), moments.size(), x.unit, k, 1, dk, 1);
      g.positions.col(segment.begin + t).noalias() += family_.frequencies() * moments;
      g.frequencies.noalias() += position * moments.transpose();
      set_angles(segment.begin + t, angles);
      angles *= -1;
      detail::advance_and_rotate(angles, angles.data(), 0, Pairing::interleaved, dq, dk);
      if (family_.has_basis()) detail::advance_and_rotate(angles, angles.data(), 0, Pairing::interleaved, q, k);
      angles *= -1;
    }
    add_to_basis(x, true, g);
    multiply(basis_, x.d_queries);
    multiply(basis_, x.d_keys);
  }
  template <std::same_as<S> Scalar>
  void apply_to_queries_vjp(Segment, const Batch<Scalar>&, const Batch<Scalar>&, double, Gradient&) const {}

 private:
  void set_angles(Index token, Eigen::Map<Eigen::VectorXd> angles) const {
    for (Index u = 0; u < angles.size(); ++u)
      angles[u] = reduced_angle(family_.frequencies().col(u).dot(positions_.col(token)));
  }

  // Adds to skew(UᵀdU): the skew part of dx xᵀ for outputs of U, that of x dxᵀ for inputs.
  void add_to_basis(SegmentVjp<S>& x, bool applied, Gradient& g) const {
    if (!family_.has_basis()) return;
    Matrix<S> sum = Matrix<S>::Zero(g.basis.rows(), g.basis.cols());
    detail::add_product(sum, x.moved_queries, x.d_queries.transpose());
    detail::add_product(sum, x.moved_keys, x.d_keys.transpose());
    const Eigen::MatrixXd twice = (sum - sum.transpose()).template cast<double>();
    g.basis += (applied ? .5 : -.5) * x.unit * twice;
  }

  // X ← U X, a block of columns at a time, on the stack if d allows.
  template <class Factor>
  void multiply(const Factor& U, Batch<S> X) const {
    if (!family_.has_basis()) return;
    constexpr Index stack_size = 8192;
    const Index d = X.rows(), width = std::max<Index>(1, stack_size / std::max<Index>(d, 1));
    std::array<S, stack_size> stack;
    Vector<S> heap(d > stack_size ? d : 0);
    for (Index t = 0; t < X.cols(); t += width) {
      const Index n = std::min(width, X.cols() - t);
      Eigen::Map<Matrix<S>> image(d > stack_size ? heap.data() : stack.data(), d, n);
      detail::set_product(image, U, X.middleCols(t, n));
      X.middleCols(t, n) = image;
    }
  }

  CommutingGenerators<S> family_;
  Matrix<S> basis_;
  Eigen::MatrixXd positions_;
};

/// Tokens at positions r_1 … r_T with d_c coordinates.
///
///     M_ij = R_STR(r_j - r_i),   R_STR(r) = exp(Σ_k r_k L_k)
///
/// r: d_c × T, absolute, from a grid (`grid_positions`) or data, stored in double. A continued sequence uses the same
/// coordinates. Cost per token: m (d_c + two sines), and 8 d² operations for U. Avoid the latter with `in_block_basis`
/// and projections of queries and keys that include Uᵀ. Throws `ShapeMismatch`, `NotFinite`. Source: Equivariant
/// Structured Positional Rotations, §2.
template <class S, MatrixExpression Positions>
[[nodiscard]] StructuredRotary<S> structured_rotary(CommutingGenerators<S> family, const Positions& r) {
  return {std::move(family), r.template cast<double>()};
}

}  // namespace SYMPOW_NAMESPACE
