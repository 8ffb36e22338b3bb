// A complex gate and RoPE: propositions 3.D4 to 3.D4z.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include <sympow/rotation/block_rotation.hpp>
#include "propositions/full_attention.hpp"
#include "propositions/positional_listings.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// Tokens whose pairs of coordinates are read as complex numbers, and their two systems.
template <class Scalar>
struct ComplexGate {
  static constexpr Index d = DualityInput<Scalar>::d, T = DualityInput<Scalar>::T;

  Tokens<Scalar> tokens;
  Tokens<double> dense;
  DenseVector<double> omega;
  Duality<Scalar> sides;
  Bound bound = turning_bound<Scalar>(1, T);

  explicit ComplexGate(const DualityInput<Scalar>& in) : ComplexGate(in.tokens, in.theta) {}
  ComplexGate(const Tokens<Scalar>& given, const DenseVector<double>& theta)
      : tokens(given),
        dense(given.dense()),
        omega(theta),
        sides(duality(systems::complex_gate(theta, Pairing::interleaved), systems::rope(theta, Pairing::interleaved),
                      rotations(theta), given)) {}

  /// Coordinates 2n and 2n + 1 of a column as a complex number.
  [[nodiscard]] static std::complex<double> pair(const Dense<double>& X, Index n, Index t) {
    return {X(2 * n, t), X(2 * n + 1, t)};
  }
  /// Ω_n (i - j).
  [[nodiscard]] double angle(Index n, Index i, Index j) const { return omega[n] * static_cast<double>(i - j); }
  /// R^k of the text, d × d.
  [[nodiscard]] Dense<double> turn(Index k) const { return rotation_matrix(static_cast<double>(k) * omega); }

  /// Σ_n term(n, i, j) as a causal matrix of scores.
  template <class Term>
  [[nodiscard]] Dense<double> summed(const Term& term) const {
    return causal_matrix(
        T,
        [&](Index i, Index j) {
          double sum = 0;
          for (Index n = 0; n < d / 2; ++n) sum += term(n, i, j);
          return sum;
        },
        0);
  }
  /// Σ_n |q||k| cos(Ω_n (i - j) + sign φ(q) - φ(k)).
  [[nodiscard]] Dense<double> cosines(double sign) const {
    return summed([&](Index n, Index i, Index j) {
      const auto q = pair(dense.Q, n, i), k = pair(dense.K, n, j);
      return std::abs(q) * std::abs(k) * std::cos(angle(n, i, j) + sign * std::arg(q) - std::arg(k));
    });
  }
  /// (R^{s(i + first)} q_i)·(R^{s(j + first)} k_j).
  [[nodiscard]] Dense<double> rotated(Index s, Index first) const {
    const auto R = [&](Index t) { return turn(s * (t + first)); };
    return causal_matrix(
        T, [&](Index i, Index j) { return (R(i) * dense.Q.column(i)).dot(R(j) * dense.K.column(j)); }, 0);
  }
  /// S_t = S_{t-1} e^{iΩ} + v_t k_tᴴ, o_t = Re(S_t q_t), over the complex numbers.
  [[nodiscard]] Dense<double> recurrence() const {
    const Index e = dense.V.rows();
    std::vector<std::complex<double>> S(static_cast<std::size_t>(e * d / 2));
    Dense<double> Y = Dense<double>::zero(e, T);
    for (Index t = 0; t < T; ++t)
      for (Index n = 0; n < d / 2; ++n)
        for (Index r = 0; r < e; ++r) {
          auto& entry = S[static_cast<std::size_t>(n * e + r)];
          entry = entry * std::polar(1., omega[n]) + dense.V(r, t) * std::conj(pair(dense.K, n, t));
          Y(r, t) += (entry * pair(dense.Q, n, t)).real();
        }
    return Y;
  }
  /// The definition's units of both sides.
  [[nodiscard]] double disagreement(const Dense<double>& scores) const { return sides.disagreement(scores, mask(T)); }
  [[nodiscard]] double departure(const Dense<double>& scores) const { return sides.departure(scores, mask(T)); }

 private:
  [[nodiscard]] static DenseGates rotations(const DenseVector<double>& theta) {
    return DenseGates({static_cast<std::size_t>(T), Dense<double>(rotation_matrix(theta))});
  }
};

/// 3.D4 to 3.D4p: the recurrence over the complex numbers.
template <class Scalar>
void complex_recurrence(Ledger& ledger, const ComplexGate<Scalar>& gate) {
  const Dense<double> hermitian = gate.summed([&](Index n, Index i, Index j) {
    return (std::conj(gate.pair(gate.dense.K, n, j)) * std::polar(1., gate.angle(n, i, j)) *
            gate.pair(gate.dense.Q, n, i))
        .real();
  });
  ledger.holds("3.D4", worse(gate.sides.linear.disagreement(gate.recurrence()), gate.disagreement(hermitian)),
               gate.bound,
               "duality 4: S e^{iΩ} + v kᴴ with o = Re(S q) is Σ_j v_j Re(k_jᴴ e^{iΩ(t-j)} q_t), H the conjugate "
               "transpose; under softmax these scores are RoPE; in units of the row rule",
               "D §4, \"Formally …\", \"The construction of rotation matrix based …\"");
  ledger.erratum("3.D4p", gate.departure(gate.cosines(-1)), visible_error,
                 "Re(kᴴ e^{iΩ(t-j)} q) = Σ |q||k| cos(Ω(t-j) - φ_q - φ_k); in units of max|V|",
                 "D §4, \"Using the phase–amplitude split of the …\"",
                 "cos(Ω(t-j) + φ_q - φ_k), in units of the row rule", gate.disagreement(gate.cosines(1)), gate.bound);
}

/// 3.D4c to 3.D4i: rotations of the plane.
template <class Scalar>
void plane_rotations(Ledger& ledger, Random& random) {
  constexpr double u = unit_roundoff<Scalar>;
  const auto one = [](double angle) { return DenseVector<double>::constant(1, 1, angle); };
  const auto rotation = [&](double angle) { return BlockRotation<Scalar>(one(angle)); };
  const auto dense = [](const BlockRotation<Scalar>& R) -> Dense<Scalar> { return R.toDenseMatrix(); };
  const auto reference = [&](double angle) -> Dense<double> { return rotation_matrix(one(angle)); };
  const auto direction = [](double angle) {
    DenseVector<Scalar> v(2);
    v[0] = static_cast<Scalar>(std::cos(angle));
    v[1] = static_cast<Scalar>(std::sin(angle));
    return v;
  };
  const auto form = [&](double left, double turn, double right) {
    const DenseVector<Scalar> turned = rotation(turn) * direction(right);
    return direction(left).dot(turned);
  };
  double printed = 0, exchanged = 0, backwards = 0, composed = 0, inverse = 0;
  for (int n = 0; n < 50; ++n) {
    const double a = 2 * random.normal(), q = 2 * random.normal(), k = 2 * random.normal();
    printed = worse(printed, std::abs(std::cos(a - q - k) - form(q, a, k)));
    exchanged = worse(exchanged, std::abs(std::cos(a + q - k) - form(k, a, q)));
    backwards = worse(backwards, std::abs(std::cos(a + q - k) - form(q, -a, k)));
    const Dense<double> sum = reference(a + q);
    const Dense<Scalar> there = dense(rotation(a)), back = dense(rotation(a).inverse());
    composed = worse(composed, distance((there * dense(rotation(q))).in_double(), sum));
    composed = worse(composed, distance(dense(rotation(a) * rotation(q)).in_double(), sum));
    inverse = worse(inverse, distance(back.in_double(), reference(-a)));
    inverse = worse(inverse, distance(back.in_double(), there.transpose().in_double()));
    inverse = worse(inverse, distance((there * back).in_double(), Dense<double>::identity(2)));
  }
  // A product of two 2 × 2 matrices of rounded cosines and sines: 2 · (1 + 1 + 2) u; angles up to 30 by a few u of
  // double.
  const double bound = 8 * u + 100 * unit_roundoff<double>;
  ledger.erratum("3.D4c", printed, visible_error,
                 "cos(Ω(t-j) - φ_q - φ_k) = [cos φ_q; sin φ_q]ᵀ R^{t-j} [cos φ_k; sin φ_k]; residual: the largest "
                 "difference at 50 random angles",
                 "D §4, \"Using the cosine identity …\"",
                 "cos(Ω(t-j) + φ_q - φ_k) = [cos φ_k; sin φ_k]ᵀ R^{t-j} [cos φ_q; sin φ_q], q and k exchanged",
                 exchanged, bound);
  ledger.holds("3.D4cb.fix", backwards, bound,
               "cos(Ω(t-j) + φ_q - φ_k) = [cos φ_q; sin φ_q]ᵀ R^{-(t-j)} [cos φ_k; sin φ_k]",
               "correction of D §4, \"Using the cosine identity …\"");
  ledger.holds("3.D4r", composed, bound, "R_α R_β = R_{α+β}, as a product of matrices and by the rule",
               "D §4, box, \"Proof for Rotation Composition …\"");

  double powers = 0;
  Dense<Scalar> power = Dense<Scalar>::identity(2);
  for (int k = 0; k < 50; ++k, power = power * dense(rotation(.83))) {
    const Dense<double> expected = reference(.83 * k);
    powers = worse(powers, distance(power.in_double(), expected));
    powers = worse(powers, distance(dense(rotation(.83).pow(k)).in_double(), expected));
  }
  ledger.holds("3.D4k", powers, 50 * bound, "R_ω^k = R_{kω} for k ≥ 0, by 49 products and by the rule",
               "D §4, box, \"Proof for Rotation Composition …\"");
  ledger.holds("3.D4i", inverse, bound, "R_ω⁻¹ = R_{-ω} = R_ωᵀ", "D §4, box, \"Rotation Matrix Inverse …\"");
}

/// 3.D4x to 3.D4z: the scores in real numbers.
template <class Scalar>
void real_scores(Ledger& ledger, const ComplexGate<Scalar>& gate, Random& random) {
  constexpr Index d = ComplexGate<Scalar>::d, T = ComplexGate<Scalar>::T;
  const Tokens<double>& dense = gate.dense;
  // What the text's chain of equations ends in, q_tᵀ R^{t-j} k_j, belongs to the gate e^{-iΩ}.
  const ComplexGate<Scalar> opposite(gate.tokens, -gate.omega);
  const auto chain = [&](bool as_printed) {
    return causal_matrix(
        T,
        [&](Index i, Index j) { return dense.Q.column(i).dot(gate.turn(i - j) * dense.K.column(as_printed ? i : j)); },
        0);
  };
  const Dense<double> phases = gate.summed([&](Index n, Index i, Index j) {
    const auto q = gate.pair(dense.Q, n, i), k = gate.pair(dense.K, n, j);
    const double a = gate.angle(n, i, j), turned = std::arg(k) + a;
    return std::abs(q) * std::abs(k) *
           (std::cos(std::arg(q)) * std::cos(turned) + std::sin(std::arg(q)) * std::sin(turned));
  });
  ledger.erratum("3.D4x", opposite.departure(chain(true)), visible_error,
                 "the chain from amplitudes and phases to q_tᵀ R^{t-j} k ends in k_{t,n}; in units of max|V|",
                 "D §4, \"Applying the rotation matrix to the …\"",
                 "k_{j,n}: amplitudes and phases are stacked real and imaginary parts; in units of the row rule",
                 worse(opposite.disagreement(phases), opposite.disagreement(chain(false))), gate.bound);

  const BlockRotation<Scalar> R(gate.omega);
  double algebra = 0;
  const auto turned = [&](const Dense<Scalar>& X, Index t, Index k) {
    const DenseVector<Scalar> image = R.pow(static_cast<double>(k)) * X.column(t);
    return image.in_double();
  };
  for (Index t = 0; t < T; ++t)
    for (Index j = 0; j < T; ++j) {
      const DenseVector<double> q = dense.Q.column(t), k = dense.K.column(j);
      const double whole = q.dot(turned(gate.tokens.K, j, t - j));
      const double split = turned(gate.tokens.Q, t, -t).dot(turned(gate.tokens.K, j, -j));
      const double row = (gate.turn(t).transpose() * q).dot(gate.turn(-j) * k);
      algebra = worse(algebra, (std::abs(whole - row) + std::abs(row - split)) / (q.norm() * k.norm()));
    }
  // Three roundings of a turned coordinate, of whole once and of split twice.
  ledger.holds("3.D4y", algebra, 12 * unit_roundoff<Scalar> + 4 * angle_error(T),
               "q_tᵀ R^{t-j} k_j = (q_tᵀ R^t)(R^{-j} k_j) = (R_{-t} q_t)ᵀ (R_{-j} k_j), as algebra; relative to ‖q‖‖k‖",
               "D §4, \"Using this we can write the …\", \"By using the inverse of the …\"");
  ledger.erratum("3.D4b", gate.departure(gate.rotated(-1, 0)), visible_error,
                 "the recurrence's score is q̄_tᵀ k̄_j with q̄_t = R_{-t} q_t, k̄_j = R_{-j} k_j (in the box R_{-j} k_t); "
                 "in units of max|V|",
                 "D §4, \"By using the inverse of the …\"; D §4, box, \"The construction of rotation matrix based …\"",
                 "q̄_t = R_t q_t, k̄_j = R_j k_j, as in the listing; in units of the row rule",
                 gate.disagreement(gate.rotated(1, 0)), gate.bound);

  // Values of as many coordinates as queries, without which the printed product does not exist.
  const ComplexGate<Scalar> square({gate.tokens.Q, gate.tokens.K, random.matrix<Scalar>(d, T)}, gate.omega);
  Dense<double> sum = Dense<double>::zero(d, d), negative = sum, o(d, T), printed(d, T);
  for (Index t = 0; t < T; ++t) {
    const DenseVector<double> v = square.dense.V.column(t), k = dense.K.column(t), q = dense.Q.column(t);
    sum += v * (gate.turn(t) * k).transpose();
    negative += v * (gate.turn(-t) * k).transpose();
    o.col(t) = sum * (gate.turn(t) * q);
    printed.col(t) = negative.transpose() * (gate.turn(-t).transpose() * q);
  }
  ledger.erratum("3.D4o", square.sides.linear.departure(printed), visible_error,
                 "o_t = (q_t R_{-t}) Σ_j v_j (R_{-j} k_j)ᵀ, which multiplies q with v; in units of max|V|",
                 "D §4, \"We can apply this forget gate …\"",
                 "o_t = (Σ_j v_j (R_j k_j)ᵀ) (R_t q_t), in units of the row rule", square.sides.linear.disagreement(o),
                 gate.bound);
  ledger.holds("3.D4z", worse(gate.disagreement(gate.rotated(1, 0)), gate.disagreement(gate.rotated(1, 1))), gate.bound,
               "positions from 0, as in the listing, or from 1, as in the text, make no difference; in units of the "
               "row rule",
               "D §4, \"Formally …\"; D §4, listing");
}

/// 3.D4l and 3.D4m: the listing of RoPE.
template <class Scalar>
void rope_listing(Ledger& ledger, const ComplexGate<Scalar>& gate) {
  constexpr Index T = ComplexGate<Scalar>::T;
  const BlockRotation<Scalar> R(gate.omega);
  Tokens<Scalar> rotated = gate.tokens;
  for (Index t = 0; t < T; ++t) {
    rotated.Q.col(t) = R.pow(static_cast<double>(t)) * gate.tokens.Q.column(t);
    rotated.K.col(t) = R.pow(static_cast<double>(t)) * gate.tokens.K.column(t);
  }
  const Dense<double> listed = listed_rope(gate.dense, Dense<double>::zero(T, T));
  // One unit more for queries and keys that are rounded before the library sees them.
  ledger.holds("3.D4l", FullAttention<Scalar>(rotated).disagreement(listed), 1 + gate.bound,
               "rope() is Softmax(Q̄ K̄ᵀ) V with q̄_t = R_t q_t and ω_n = 10000^{-2n/d}, over all tokens; in units of the "
               "row rule",
               "D §4, listing");
  ledger.erratum("3.D4m", gate.sides.dual.departure(listed), visible_error,
                 "rope(), and Softmax(Q̄ K̄ᵀ) in the box, are causal like the recurrence; in units of max|V|",
                 "D §4, box, \"The construction of rotation matrix based …\"; D §4, listing",
                 "with the mask they are RoPE, in units of the row rule",
                 gate.sides.dual.disagreement(listed_rope(gate.dense, mask(T))), gate.bound);
}

}  // namespace detail

/// Every statement on the complex gate and its dual. Source: On the Legacy of Linear Transformers in Positional
/// Embeddings, §4.
template <class Scalar>
void rotary_duality_propositions(Ledger& ledger, std::uint64_t seed) {
  const detail::ComplexGate<Scalar> gate{detail::DualityInput<Scalar>(seed)};
  Random random(seed + 1);
  detail::complex_recurrence(ledger, gate);
  detail::plane_rotations<Scalar>(ledger, random);
  detail::real_scores(ledger, gate, random);
  detail::rope_listing(ledger, gate);
}

}  // namespace SYMPOW_NAMESPACE::verify
