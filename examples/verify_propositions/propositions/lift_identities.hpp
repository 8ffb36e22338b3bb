// The lift Sym^P of a matrix against its definition, for some dimensions and powers at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include <sympow/core/random.hpp>
#include <sympow/tensor/induced.hpp>
#include <sympow/tensor/symmetric_basis.hpp>
#include <sympow/tensor/tensor_power.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/dense.hpp"
#include "propositions/largest.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// Σ a_n b_n in double.
template <class Scalar>
double inner_product(const Dense<Scalar>& a, const Dense<Scalar>& b) {
  return a.in_double().dot(b.in_double());
}

/// |A|, entry by entry.
template <class Scalar>
Dense<Scalar> absolute(Dense<Scalar> a) {
  for (Index n = 0; n < a.size(); ++n) a.data()[n] = std::abs(a.data()[n]);
  return a;
}

/// A ⊗ B as a matrix: the block of a_ij is a_ij B.
template <class Scalar>
Dense<Scalar> kronecker(const Dense<Scalar>& a, const Dense<Scalar>& b) {
  Dense<Scalar> product(a.rows() * b.rows(), a.cols() * b.cols());
  for (Index j = 0; j < product.cols(); ++j)
    for (Index i = 0; i < product.rows(); ++i)
      product(i, j) = a(i / b.rows(), j / b.cols()) * b(i % b.rows(), j % b.cols());
  return product;
}

/// A ⊗ … ⊗ A, p factors: the map of the papers' proof, d^p × d^p.
template <class Scalar>
Dense<Scalar> kronecker_power(const Dense<Scalar>& a, int p) {
  Dense<Scalar> power = a;
  for (int level = 1; level < p; ++level) power = kronecker(power, a);
  return power;
}

/// log|det A| and the sign of det A, by elimination in double with pivots.
inline std::pair<double, double> log_determinant(Dense<double> a) {
  double log = 0, sign = 1;
  for (Index n = 0; n < a.rows(); ++n) {
    Index pivot = n;
    for (Index i = n; i < a.rows(); ++i)
      if (std::abs(a(i, n)) > std::abs(a(pivot, n))) pivot = i;
    if ((pivot != n) != (a(pivot, n) < 0)) sign = -sign;
    log += std::log(std::abs(a(pivot, n)));
    for (Index j = n; j < a.cols(); ++j) std::swap(a(n, j), a(pivot, j));
    for (Index i = n + 1; i < a.rows(); ++i) {
      const double factor = a(i, n) / a(n, n);
      for (Index j = n; j < a.cols(); ++j) a(i, j) -= factor * a(n, j);
    }
  }
  return {log, sign};
}

/// How far rounding moves log|det A| of an n × n matrix A whose entries are products of p factors: d log det A = tr(A⁻¹
/// dA), with the roundings of the entries and those of n steps of elimination.
template <class Scalar>
double determinant_bound(Index n, int p, double condition) {
  const auto steps = static_cast<double>(n);
  return steps * condition * (p * unit_roundoff<Scalar> + steps * unit_roundoff<double>);
}

/// I - 2 v vᵀ/‖v‖², the reflection along a random direction.
template <class Scalar>
Dense<Scalar> random_reflection(Random& random, Index d) {
  const DenseVector<double> v = random.vector<double>(d);
  return (Dense<double>::identity(d) - 2 / v.dot(v) * (v * v.transpose())).template to<Scalar>();
}

/// A random matrix with singular values in [1.1, 1.6] and a determinant of either sign: far from singular and far from
/// ±1.
template <class Scalar>
Dense<Scalar> moderate_matrix(Random& random, Index d) {
  const Dense<double> rotation = random.rotation<double>(d);
  DenseVector<double> stretches(d);
  for (double& stretch : stretches) stretch = random.uniform(1.1, 1.6);
  if (random.integer(0, 1) == 1) stretches[0] *= -1;
  const Dense<double> other = random.rotation<double>(d);
  return (rotation * stretches.diagonal_matrix() * other).template to<Scalar>();
}

/// An upper bound of ‖|A|‖/s_min for such a matrix.
template <class Scalar>
double condition_of_moderate(const Dense<Scalar>& a) {
  return std::sqrt(inner_product(a, a)) / 1.1;
}

/// How far rounding moves entries of lifted maps, in units of u and of the same map with |A| in place of A.
///
/// An entry of Sym^p(A) is a permanent: p levels of at most p multiplications and additions, then its weight; 8 d
/// roundings of each of the p factors stand for an A that is a rotation only up to rounding. D additions for a product
/// with another such map.
inline double roundings_of_lift(Index d, int p, Index dimension) {
  return 2.0 * p * (p + 1) + 8.0 * static_cast<double>(d) * p + static_cast<double>(dimension) + 8;
}

/// Largest entry of |M|ᵀ|M|, what the rounding of MᵀM is relative to; it is on the diagonal.
template <class Scalar>
double size_of_gram(const Dense<Scalar>& m) {
  double largest = 0;
  for (Index j = 0; j < m.cols(); ++j)
    largest = std::max(largest, m.column(j).in_double().dot(m.column(j).in_double()));
  return largest;
}

/// Sym^P behind one type for every P, so that what follows is compiled once.
template <class Scalar>
struct Lift {
  using M = Dense<Scalar>;
  int power;
  M (*dense)(const M& a);                ///< Sym^P(A) by permanents
  M (*embedding)(const M& x);            ///< φ(x)
  M (*image)(const M& a, const M& x);    ///< Sym^P(A) φ(x) by the rule
  M (*product)(const M& a, const M& b);  ///< Sym^P(A) Sym^P(B) by the rule
  double (*determinant)(const M& a);     ///< det Sym^P(A) by the rule

  template <int P>
  static Lift of() {
    return {P,
            [](const M& a) -> M { return induced<P>(a.plain()).toDenseMatrix(); },
            [](const M& x) -> M { return symmetric_power<P>(x.plain()); },
            [](const M& a, const M& x) -> M { return induced<P>(a.plain()) * symmetric_power<P>(x.plain()); },
            [](const M& a, const M& b) -> M { return (induced<P>(a.plain()) * induced<P>(b.plain())).toDenseMatrix(); },
            [](const M& a) { return static_cast<double>(induced<P>(a.plain()).determinant()); }};
  }
};

/// Proposition 2 and what surrounds it: every `check` adds to the residuals and raises what rounding excuses.
template <class Scalar>
class LiftIdentities {
  using M = Dense<Scalar>;

 public:
  struct Statement {
    Largest residual;
    double bound = 0;
    void excuse(double roundings) { bound = std::max(bound, roundings * unit_roundoff<Scalar>); }
  };
  Statement image, orthogonal, determinant, product, bridge, power_of_determinant, reflection;

  void check(const Lift<Scalar>& lift, Random& random, Index d) {
    const M rotation = random.rotation<Scalar>(d), lifted = lift.dense(rotation), size = lift.dense(absolute(rotation));
    const M general = moderate_matrix<Scalar>(random, d);
    check_rotation(lift, random, rotation, lifted, size);
    check_bridge(lift, random, rotation, lifted, size);
    check_general(lift, rotation, lifted, size, general);
    if (lift.power <= 3) check_reflection(lift, random_reflection<Scalar>(random, d));
  }

 private:
  void check_rotation(const Lift<Scalar>& lift, Random& random, const M& rotation, const M& lifted, const M& size) {
    const int p = lift.power;
    const double roundings = roundings_of_lift(rotation.rows(), p, lifted.rows()), gram = size_of_gram(size);
    for (int key = 0; key < 20; ++key) {
      const M k = random.matrix<Scalar>(rotation.rows(), 1), expected = lifted * lift.embedding(k);
      const M longest = absolute(rotation) * absolute(k);
      const double length = std::pow(inner_product(longest, longest), p / 2.0);
      image.residual.template add<Scalar>(lift.embedding(rotation * k), expected, length);
      image.residual.template add<Scalar>(lift.image(rotation, k), expected, length);
    }
    image.excuse(roundings + 8 * p);
    orthogonal.residual.template add<Scalar>(lifted.transpose() * lifted, M::identity(lifted.rows()));
    orthogonal.excuse(2 * roundings * gram);
    const auto [log, sign] = log_determinant(lifted.in_double());
    determinant.residual.add(std::abs(sign * std::exp(log) - 1));
    determinant.residual.add(std::abs(lift.determinant(rotation) - 1));
    determinant.excuse(static_cast<double>(lifted.rows()) * 2 * roundings * gram);
  }

  void check_bridge(const Lift<Scalar>& lift, Random& random, const M& rotation, const M& lifted, const M& size) {
    const int p = lift.power;
    const SymmetricIsometry<Scalar> J(rotation.rows(), p);
    const M full = kronecker_power(rotation, p), dense = J.toDenseMatrix(), turned = full * dense;
    const M k = random.matrix<Scalar>(rotation.rows(), 1), tensor = tensor_power(k.plain(), p), phi = lift.embedding(k);
    const double largest = size.largest();
    bridge.residual.template add<Scalar>(J * phi.plain(), tensor, std::pow(inner_product(k, k), p / 2.0));
    bridge.residual.template add<Scalar>(J.transpose() * dense.plain(), M::identity(lifted.rows()));
    bridge.residual.template add<Scalar>(J * lifted.plain(), turned, largest);
    bridge.residual.template add<Scalar>(J.transpose() * turned.plain(), lifted, largest);
    bridge.excuse(roundings_of_lift(rotation.rows(), p, lifted.rows()) + 2 * static_cast<double>(full.rows()) + 8 * p);
  }

  void check_general(const Lift<Scalar>& lift, const M& rotation, const M& lifted, const M& size, const M& general) {
    const int p = lift.power;
    const double roundings = roundings_of_lift(rotation.rows(), p, lifted.rows());
    const M lifted_general = lift.dense(general), product_size = size * (lift.dense(absolute(general)));
    product.residual.template add<Scalar>(lift.product(rotation, general), lifted * lifted_general,
                                          product_size.largest());
    product.excuse(2 * roundings);

    const auto [log_det, sign] = log_determinant(general.in_double());
    const auto [lifted_log, lifted_sign] = log_determinant(lifted_general.in_double());
    const double by_rule = lift.determinant(general), power = exponent(lift, general);
    const double expected_sign = std::fmod(power, 2) == 0 ? 1 : sign;
    power_of_determinant.residual.add(std::abs(lifted_log - power * log_det) + std::abs(lifted_sign - expected_sign));
    power_of_determinant.residual.add(std::abs(std::log(std::abs(by_rule)) - power * log_det));
    power_of_determinant.residual.add(std::abs(std::copysign(1, by_rule) - expected_sign));
    power_of_determinant.excuse(2 * static_cast<double>(lifted.rows()) * roundings *
                                std::pow(condition_of_moderate(general), p));
  }

  void check_reflection(const Lift<Scalar>& lift, const M& mirror) {
    const M lifted = lift.dense(mirror);
    const auto [log, sign] = log_determinant(lifted.in_double());
    const double parity = std::fmod(exponent(lift, mirror), 2) == 0 ? 1 : -1;
    reflection.residual.add(std::abs(sign * std::exp(log) - parity));
    reflection.residual.add(std::abs(lift.determinant(mirror) - parity));
    reflection.excuse(2 * static_cast<double>(lifted.rows()) *
                      roundings_of_lift(mirror.rows(), lift.power, lifted.rows()) *
                      size_of_gram(lift.dense(absolute(mirror))));
  }

  // C(d+p-1, d) = D p/d
  static double exponent(const Lift<Scalar>& lift, const M& a) {
    return static_cast<double>(symmetric_dimension(a.rows(), lift.power) * lift.power / a.rows());
  }
};

}  // namespace SYMPOW_NAMESPACE::verify::detail
