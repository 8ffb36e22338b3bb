// Proposition 2 of the conformal paper, its proof and what the determinant in it really is: propositions P2a to P2n.
#pragma once

#include <Eigen/LU>
#include <cmath>
#include <complex>
#include <initializer_list>
#include <numbers>
#include <utility>

#include <sympow/rotation/block_rotation.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/tensor/symmetric_basis.hpp>
#include <sympow/tensor/tensor_power.hpp>
#include <sympow/verify/largest.hpp>
#include <sympow/verify/proposition.hpp>
#include <sympow/verify/random.hpp>

namespace sympow::verify {
namespace detail {

/// A ⊗ B as a matrix: the block of a_ij is a_ij B.
template <class Scalar>
Matrix<Scalar> kronecker(const Matrix<Scalar>& a, const Matrix<Scalar>& b) {
  Matrix<Scalar> product(a.rows() * b.rows(), a.cols() * b.cols());
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) product.block(i * b.rows(), j * b.cols(), b.rows(), b.cols()) = a(i, j) * b;
  return product;
}

/// A ⊗ … ⊗ A, p factors: the map of the papers' proof, d^p × d^p.
template <class Scalar>
Matrix<Scalar> kronecker_power(const Matrix<Scalar>& a, int p) {
  Matrix<Scalar> power = a;
  for (int level = 1; level < p; ++level) power = kronecker(power, a);
  return power;
}

/// log|det A| and the sign of det A, by elimination: determinants of lifted maps leave the range of a float.
template <class Scalar>
std::pair<double, double> log_determinant(const Matrix<Scalar>& a) {
  const Eigen::PartialPivLU<Matrix<Scalar>> lu(a);
  const Vector<double> pivots = lu.matrixLU().diagonal().template cast<double>();
  return {pivots.array().abs().log().sum(), pivots.array().sign().prod() * static_cast<double>(lu.permutationP().determinant())};
}

/// I - 2 v vᵀ/‖v‖², the reflection along a random direction.
template <class Scalar>
Matrix<Scalar> random_reflection(Random& random, Index d) {
  const Vector<double> v = random.vector<double>(d).normalized();
  return (Matrix<double>::Identity(d, d) - 2 * v * v.transpose()).template cast<Scalar>();
}

/// A random matrix with singular values in [1.1, 1.6] and a determinant of either sign: far from singular and far from det ±1.
template <class Scalar>
Matrix<Scalar> moderate_matrix(Random& random, Index d) {
  Vector<double> sizes(d);
  for (double& size : sizes) size = random.uniform(1.1, 1.6);
  if (random.integer(0, 1) == 1) sizes[0] = -sizes[0];
  return (random.rotation<double>(d) * sizes.asDiagonal() * random.rotation<double>(d)).template cast<Scalar>();
}
inline constexpr double smallest_of_moderate = 1.1;

/// How far rounding moves entries of lifted maps, in units of u and of the same map with |A| in place of A.
///
/// An entry of Sym^p(A) is a permanent: p levels of at most p multiplications and additions, then its weight; 8 d roundings of each
/// of the p factors stand for an A that is a rotation only up to rounding. D additions for a product with another such map.
inline double roundings_of_lift(Index d, int p, Index dimension) {
  return 2.0 * p * (p + 1) + 8.0 * static_cast<double>(d) * p + static_cast<double>(dimension) + 8;
}

/// Largest entry of |M|ᵀ|M|, what the rounding of MᵀM is relative to.
template <class Scalar>
double size_of_gram(const Matrix<Scalar>& m) {
  const Matrix<double> size = m.cwiseAbs().template cast<double>();
  return (size.transpose() * size).maxCoeff();
}

/// What the statements about one power have in common.
struct LiftErrors {
  Largest image, orthogonal, determinant, product, bridge, power_of_determinant, reflection;
  double image_bound = 0, orthogonal_bound = 0, determinant_bound = 0, product_bound = 0, bridge_bound = 0,
         power_of_determinant_bound = 0, reflection_bound = 0;
};

/// P2a to P2f and P2l for one dimension and one power, against the dense Sym^P by permanents.
template <class Scalar, int P>
void lift_identities(LiftErrors& errors, Random& random, Index d) {
  const auto raise = [](double& bound, double value) { bound = std::max(bound, value * unit_roundoff<Scalar>); };
  const Matrix<Scalar> rotation = random.rotation<Scalar>(d), general = moderate_matrix<Scalar>(random, d);
  const Matrix<Scalar> lifted = induced<P>(rotation).toDenseMatrix(), size = induced<P>(rotation.cwiseAbs()).toDenseMatrix();
  const Index dimension = lifted.rows();
  const auto entries = static_cast<double>(dimension);
  const double roundings = roundings_of_lift(d, P, dimension), gram = size_of_gram(size);

  for (int key = 0; key < 20; ++key) {
    const Vector<Scalar> k = random.vector<Scalar>(d);
    const double length = std::pow(static_cast<double>((rotation.cwiseAbs() * k.cwiseAbs()).norm()), P);
    const Vector<Scalar> phi = symmetric_power<P>(k), turned = rotation * k;
    errors.image.add(symmetric_power<P>(turned).eval(), lifted * phi, length);
    errors.image.add((induced<P>(rotation) * symmetric_power<P>(k)).eval(), lifted * phi, length);
  }
  raise(errors.image_bound, roundings + 8 * P);

  errors.orthogonal.add(lifted.transpose() * lifted, Matrix<Scalar>::Identity(dimension, dimension));
  raise(errors.orthogonal_bound, 2 * roundings * gram);

  errors.determinant.add(std::abs(static_cast<double>(lifted.determinant()) - 1));
  errors.determinant.add(std::abs(static_cast<double>(induced<P>(rotation).determinant()) - 1));
  raise(errors.determinant_bound, entries * (2 * roundings * gram));

  const Matrix<Scalar> lifted_general = induced<P>(general).toDenseMatrix();
  const Matrix<Scalar> general_size = induced<P>(general.cwiseAbs()).toDenseMatrix();
  const double product_size = static_cast<double>((size * general_size).maxCoeff());
  errors.product.add((induced<P>(rotation) * induced<P>(general)).toDenseMatrix(), lifted * lifted_general, product_size);
  raise(errors.product_bound, 2 * roundings);

  const SymmetricIsometry<Scalar> isometry(d, P);
  const Matrix<Scalar> J = isometry.toDenseMatrix(), full = kronecker_power(rotation, P);
  const Vector<Scalar> k = random.vector<Scalar>(d), phi = symmetric_power<P>(k), expanded = isometry * phi;
  errors.bridge.add(tensor_power<P>(k).eval(), expanded, std::pow(static_cast<double>(k.norm()), P));
  errors.bridge.add(isometry.transpose() * J, Matrix<Scalar>::Identity(dimension, dimension));
  errors.bridge.add(full * J, isometry * lifted, static_cast<double>(size.maxCoeff()));
  errors.bridge.add(isometry.transpose() * (full * J), lifted, static_cast<double>(size.maxCoeff()));
  raise(errors.bridge_bound, roundings + 2 * static_cast<double>(full.rows()) + 8 * P);

  // det(G)^C(d+p-1, d): the exponent is D p/d.
  const auto [log_det, sign] = log_determinant(general);
  const auto [lifted_log_det, lifted_sign] = log_determinant(lifted_general);
  const Index exponent = dimension * P / d;
  const double expected_sign = exponent % 2 == 0 ? 1 : sign, library_det = static_cast<double>(induced<P>(general).determinant());
  errors.power_of_determinant.add(std::abs(lifted_log_det - static_cast<double>(exponent) * log_det));
  errors.power_of_determinant.add(std::abs(std::log(std::abs(library_det)) - static_cast<double>(exponent) * log_det));
  errors.power_of_determinant.add(std::abs(lifted_sign - expected_sign) + std::abs(std::copysign(1, library_det) - expected_sign));
  raise(errors.power_of_determinant_bound,
        2 * entries * roundings * std::pow(static_cast<double>(general.norm()) / smallest_of_moderate, P));

  if (P > 3) return;
  const Matrix<Scalar> mirror = random_reflection<Scalar>(random, d), lifted_mirror = induced<P>(mirror).toDenseMatrix();
  const double parity = exponent % 2 == 0 ? 1 : -1;
  errors.reflection.add(std::abs(static_cast<double>(lifted_mirror.determinant()) - parity));
  errors.reflection.add(std::abs(static_cast<double>(induced<P>(mirror).determinant()) - parity));
  raise(errors.reflection_bound,
        entries * 2 * roundings * size_of_gram<Scalar>(induced<P>(mirror.cwiseAbs()).toDenseMatrix()));
}

/// P2g to P2j.fix: the tensor product of matrices, on which the papers' proof rests.
template <class Scalar>
void tensor_lift_identities(Ledger& ledger, Random& random) {
  constexpr double u = unit_roundoff<Scalar>;
  const Matrix<Scalar> rotation = random.rotation<Scalar>(3), cube = kronecker_power(rotation, 3);
  const double roundings = 2 * 3 + 2 * 27 + 2 * 8 * 3 * 3, gram = size_of_gram(cube);
  Largest turns;
  turns.add(cube.transpose() * cube, Matrix<Scalar>::Identity(27, 27));
  turns.add(std::abs(static_cast<double>(cube.determinant()) - 1));
  ledger.holds("P2g", turns.value(), 27 * roundings * gram * u, "P^{⊗p} is a rotation if P is: the case that the proof proves",
               "A §A.3; B §4");

  const Matrix<Scalar> v = random.matrix<Scalar>(3, 3), w = random.matrix<Scalar>(3, 3), size = rotation.cwiseAbs();
  const auto product_of = [](const Matrix<Scalar>& m) { return tensor_product(m.col(0), m.col(1), m.col(2)).eval(); };
  const Vector<Scalar> left = cube * product_of(v), right = cube * product_of(w);
  double expected = 1, scale = 1;
  for (Index i = 0; i < 3; ++i) {
    expected *= v.col(i).template cast<double>().dot(w.col(i).template cast<double>());
    scale *= static_cast<double>((size * v.col(i).cwiseAbs()).dot(size * w.col(i).cwiseAbs()));
  }
  ledger.holds("P2h", std::abs(static_cast<double>(left.dot(right)) - expected) / scale, (2 * roundings + 27) * u,
               "⟨P^{⊗p}(⊗v_i), P^{⊗p}(⊗w_i)⟩ = Π v_i·w_i for a rotation P, relative to the same of absolute values",
               "A §A.3, step 1");

  const auto condition = [](const Matrix<Scalar>& m) { return static_cast<double>(m.norm()) / smallest_of_moderate; };
  const Matrix<Scalar> a = moderate_matrix<Scalar>(random, 3), b = moderate_matrix<Scalar>(random, 4);
  const auto [log_a, sign_a] = log_determinant(a);
  const auto [log_b, sign_b] = log_determinant(b);
  const auto [log_ab, sign_ab] = log_determinant(kronecker(a, b));
  ledger.holds("P2i", std::abs(log_ab - (4 * log_a + 3 * log_b)) + std::abs(sign_ab - sign_b), 2 * 12 * (12 + 4) * condition(a) * condition(b) * u,
               "det(A ⊗ B) = det(A)^dim B det(B)^dim A, compared as logarithms and signs", "A §A.3, step 2");

  const double log_2 = std::log(2.0);
  const Matrix<Scalar> doubling = Vector<Scalar>{{Scalar(2), Scalar(1)}}.asDiagonal();
  const auto [log_doubled, sign_doubled] = log_determinant(kronecker_power(doubling, 3));
  ledger.erratum("P2j", std::abs(log_doubled / log_2 - 3 * 2) + std::abs(sign_doubled - 1), 12 * u,
                 "det(P^{⊗p}) = det(P)^{pd}; for diag(2, 1) and p = 3 that is 2^6, compared as log2", "A §A.3, step 2; B §4",
                 "det(P^{⊗p}) = det(P)^{p d^{p-1}}, here 2^12", std::abs(log_doubled / log_2 - 3 * 4), 12 * u);

  const Matrix<Scalar> mirror = random_reflection<Scalar>(random, 2);
  const double determinant = static_cast<double>(kronecker_power(mirror, 1).determinant()), mirror_bound = 16 * u;
  ledger.erratum("P2j'", std::abs(determinant - 1), mirror_bound, "the same for a reflection of the plane and p = 1: (-1)^{1·2} = 1",
                 "A §A.3, step 2", "det(P)^{p d^{p-1}} = (-1)^{1·1} = -1", std::abs(determinant + 1), mirror_bound);

  Largest corrected;
  double bound = 0;
  for (const auto& [d, p] : {std::pair<Index, int>{2, 1}, {2, 3}, {2, 4}, {3, 2}, {3, 3}, {4, 3}}) {
    const Matrix<Scalar> g = moderate_matrix<Scalar>(random, d), power = kronecker_power(g, p);
    const auto [log_det, sign] = log_determinant(g);
    const auto [log_power, sign_power] = log_determinant(power);
    const Index exponent = p * tensor_dimension(d, p) / d;
    const auto entries = static_cast<double>(power.rows());
    corrected.add(std::abs(log_power - static_cast<double>(exponent) * log_det));
    corrected.add(std::abs(sign_power - (exponent % 2 == 0 ? 1 : sign)));
    bound = std::max(bound, 2 * entries * (entries + 4 * p) * std::pow(condition(g), p));
  }
  ledger.holds("P2j.fix", corrected.value(), bound * u, "det(P^{⊗p}) = det(P)^{p d^{p-1}}, compared as logarithms and signs",
               "correction of A §A.3, step 2");
}

/// P2k, P2m and P2n: where orthogonality and the determinant of φ's own lift come from.
template <class Scalar>
void lift_scope(Ledger& ledger, Random& random) {
  constexpr double u = unit_roundoff<Scalar>;
  const Matrix<Scalar> mirror = random_reflection<Scalar>(random, 2), tensor = kronecker_power(mirror, 2);
  const Matrix<Scalar> lifted_mirror = induced<2>(mirror).toDenseMatrix();
  ledger.control("P2k", std::abs(static_cast<double>(lifted_mirror.determinant()) - static_cast<double>(tensor.determinant())),
                 (3 + 4) * 2 * roundings_of_lift(2, 2, 3) * 4 * u,
                 "the lift to φ has the determinant of the lift to tensors; a reflection of the plane has -1 and +1 for p = 2", "A §A.3");

  const Matrix<Scalar> rotation = random.rotation<Scalar>(3), lifted = induced<3>(rotation).toDenseMatrix();
  const MultiIndices<3> indices(3);
  Vector<Scalar> weight(indices.size());
  for (Index n = 0; n < indices.size(); ++n) weight[n] = std::sqrt(static_cast<Scalar>(multiplicity(indices[n])));
  const Matrix<Scalar> unweighted = weight.cwiseInverse().asDiagonal() * lifted * weight.asDiagonal();
  Largest skewed;
  skewed.add(unweighted.transpose() * unweighted, Matrix<Scalar>::Identity(indices.size(), indices.size()));
  ledger.control("P2m", skewed.value(), 2 * roundings_of_lift(3, 3, indices.size()) * size_of_gram(unweighted) * u,
                 "without the weights √(p!/Π c_i!) the lift of a rotation is orthogonal as well", "premise of A Proposition 2");

  // The eigenvectors of R(θ) are e_{2j-1} ∓ i e_{2j}, with eigenvalues e^{±iθ_j}; Sym^3 of them diagonalises Sym^3(R(θ)).
  using Complex = std::complex<Scalar>;
  const Vector<Scalar> angles{{Scalar(random.uniform(0, 2 * std::numbers::pi)), Scalar(random.uniform(0, 2 * std::numbers::pi))}};
  const Matrix<Complex> turned = induced<3>(BlockRotation<Scalar>(angles)).toDenseMatrix().template cast<Complex>();
  Matrix<Complex> eigenvectors = Matrix<Complex>::Zero(4, 4);
  Vector<double> phase(4);
  for (Index j = 0; j < 2; ++j) {
    const Scalar half = std::sqrt(Scalar(.5));
    eigenvectors.block(2 * j, 2 * j, 2, 2) << Complex(half), Complex(half), Complex(0, -half), Complex(0, half);
    phase.segment(2 * j, 2) << static_cast<double>(angles[j]), -static_cast<double>(angles[j]);
  }
  const MultiIndices<3> weights(4);
  Vector<std::complex<double>> eigenvalues(weights.size());
  for (Index n = 0; n < weights.size(); ++n) {
    const auto alpha = weights[n];
    eigenvalues[n] = std::polar(1.0, phase[alpha[0]] + phase[alpha[1]] + phase[alpha[2]]);
  }
  const Matrix<Complex> basis = induced<3>(eigenvectors).toDenseMatrix();
  const Matrix<std::complex<double>> diagonal = (basis.adjoint() * turned * basis).template cast<std::complex<double>>();
  Largest off;
  off.add((diagonal - Matrix<std::complex<double>>(eigenvalues.asDiagonal())).cwiseAbs(), Matrix<double>::Zero(20, 20));
  ledger.holds("P2n", off.value(), 3 * roundings_of_lift(4, 3, 20) * std::pow(2 * std::sqrt(2.0), 3) * u,
               "Sym^p(R(θ)) is diagonal in the basis lifted from the complex eigenvectors of R(θ), with eigenvalues e^{i Σ m_j θ_j}",
               "extension of A Proposition 2");
}

}  // namespace detail

/// Decides P2a to P2n in the given type and adds them to the ledger.
template <class Scalar>
void induced_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::LiftErrors e;
  detail::lift_identities<Scalar, 1>(e, random, 2);
  for (const Index d : {2, 3, 4}) detail::lift_identities<Scalar, 2>(e, random, d);
  for (const Index d : {2, 3, 4}) detail::lift_identities<Scalar, 3>(e, random, d);
  for (const Index d : {2, 3}) detail::lift_identities<Scalar, 4>(e, random, d);
  detail::lift_identities<Scalar, 5>(e, random, 2);
  ledger.holds("P2a", e.image.value(), e.image_bound,
               "φ(P k) = P̄ φ(k) with P̄_{αβ} = per(P[α|β])/√(Π c_i(α)! Π c_i(β)!), relative to ‖|P||k|‖^p", "A Proposition 2; B §4");
  ledger.holds("P2b", e.orthogonal.value(), e.orthogonal_bound, "P̄ᵀ P̄ = I if P is a rotation", "A Proposition 2; B §4");
  ledger.holds("P2c", e.determinant.value(), e.determinant_bound, "det P̄ = 1 if P is a rotation", "A Proposition 2; B §4");
  ledger.holds("P2d", e.product.value(), e.product_bound, "Sym^p(P G) = Sym^p(P) Sym^p(G) for any G, relative to the same of |P|, |G|",
               "extension of A Proposition 2");
  ledger.holds("P2e", e.bridge.value(), e.bridge_bound, "φ_TP = J φ_SYM with JᵀJ = I, P^{⊗p} J = J P̄ and Jᵀ P^{⊗p} J = P̄",
               "bridge that A §A.3 leaves out");
  ledger.holds("P2f", e.power_of_determinant.value(), e.power_of_determinant_bound,
               "det Sym^p(G) = det(G)^C(d+p-1, d), compared as logarithms and signs", "extension of A Proposition 2");
  detail::tensor_lift_identities<Scalar>(ledger, random);
  detail::lift_scope<Scalar>(ledger, random);
  ledger.holds("P2l", e.reflection.value(), e.reflection_bound, "det Sym^p of a reflection is (-1)^C(d+p-1, d)",
               "extension of A Proposition 2");
}

}  // namespace sympow::verify
