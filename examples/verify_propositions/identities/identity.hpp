// Statements of the papers over the rational numbers, by the ids under which they are decided in floating point.
#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include <sympow/exact/forms.hpp>
#include <sympow/verify/decide_exactly.hpp>

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {

/// An identity or inequality of rational functions. Its words and its place are those of the proposition with this id.
struct Identity {
  std::string id;
  ExactStatement statement;       ///< as printed
  ExactStatement corrected = {};  ///< erratum: what is true instead
};

/// Those of the papers, in groups.
class Identities {
 public:
  /// A statement that holds, or a control that must fail.
  void add(const std::string& id, ExactStatement statement) { all_.push_back({id, std::move(statement), {}}); }
  /// A printed form that is false, and its correction.
  void erratum(const std::string& id, ExactStatement printed, ExactStatement corrected) {
    all_.push_back({id, std::move(printed), std::move(corrected)});
  }
  [[nodiscard]] const std::vector<Identity>& all() const { return all_; }  ///< in the order in which they were added

 private:
  std::vector<Identity> all_;
};

namespace detail::identities {

using Exact = Inputs<Rational>;
using Numbers = Vector<Rational>;
using Square = Matrix<Rational>;
using Sequence = exact::Tokens<Rational>;
using exact::Gates;
using exact::Power;

/// Sums and products that are carried out at once: as expressions, every statement would compile classes of its own.
template <class X>
concept Plain = std::same_as<X, Square> || std::same_as<X, Numbers>;
template <class A>
concept Factor = std::same_as<A, Square> || std::same_as<A, Eigen::Transpose<Square>> ||
                 std::same_as<A, Eigen::Transpose<const Square>>;
template <Factor A, class X>
[[nodiscard]] Eigen::Matrix<Rational, Dynamic, X::ColsAtCompileTime> operator*(const A& a,
                                                                               const Eigen::MatrixBase<X>& x) {
  const Eigen::Matrix<Rational, Dynamic, X::ColsAtCompileTime> plain = x;
  return a.operator*(plain);
}
template <std::same_as<Rational> S, Plain X>
[[nodiscard]] X operator*(const S& s, X x) {
  return x *= s;
}
template <Plain X, std::same_as<Rational> S>
[[nodiscard]] X operator/(X x, const S& s) {
  return x /= s;
}
template <Plain X, class Y>
[[nodiscard]] X operator+(X x, const Eigen::MatrixBase<Y>& y) {
  return x += y;
}
template <Plain X, class Y>
[[nodiscard]] X operator-(X x, const Eigen::MatrixBase<Y>& y) {
  return x -= y;
}
template <Plain X>
[[nodiscard]] X operator-(X x) {
  return x *= Rational(-1);
}

/// I, d × d.
[[nodiscard]] inline Square one(Index d) { return Square::Identity(d, d); }
/// ‖x‖².
[[nodiscard]] inline Rational square(const Numbers& x) { return x.dot(x); }
/// Σ a_ij b_ij.
[[nodiscard]] inline Rational dot(const Square& a, const Square& b) { return a.cwiseProduct(b).sum(); }
/// A number.
[[nodiscard]] inline Rational number(Index n) { return Rational(n); }

/// T tokens of d coordinates with values of one, under which a row of ones stands: what a form makes of such values
/// without a division is [Σ s v; Σ s].
[[nodiscard]] inline Sequence tokens(Exact& x, Index d, Index T) {
  Sequence s{x.matrix("Q", d, T), x.matrix("K", d, T), Square::Ones(2, T)};
  s.V.row(0) = x.vector("v", T).transpose();
  return s;
}
/// Rows Σ s v / Σ s that must be equal, from [Σ s v; Σ s]; one without a sum has no distribution.
inline void same_rows(Exact& x, const Square& left, const Square& right, const std::string& words = {}) {
  for (Index i = 0; i < left.cols(); ++i)
    if (left(1, i).sign() != 0 && right(1, i).sign() != 0)
      x.equal(left(0, i) / left(1, i), right(0, i) / right(1, i), words);
}
/// T numbers that are 1 where a case is 0, so that the smallest one has open gates and whole strengths.
[[nodiscard]] inline Numbers ones_without(Exact& x, const std::string& name, Index T) {
  return Numbers::Ones(T) - x.vector("1 - " + name, T);
}
/// γ_1 … γ_T.
[[nodiscard]] inline std::vector<Rational> gates(Exact& x, Index T) {
  const Numbers gamma = ones_without(x, "γ", T);
  return {gamma.begin(), gamma.end()};
}
/// R(β_1 θ) … R(β_T θ), 2 n × 2 n: the numbers that are drawn are tan(β_i θ_n/2).
[[nodiscard]] inline std::vector<Square> turns(Exact& x, Index n, Index T) {
  const Square t = x.matrix("tan βθ/2", n, T);
  std::vector<Square> all;
  for (Index i = 0; i < T; ++i) all.push_back(exact::rotation(t.col(i)));
  return all;
}
/// R for all of T tokens.
[[nodiscard]] inline std::vector<Square> turn_of_all(Exact& x, Index n, Index T) {
  return {static_cast<std::size_t>(T), exact::rotation(x.vector("tan θ/2", n))};
}
/// R(μ_1) … R(μ_T) with μ_i = μ_{i-1} + β_i θ.
[[nodiscard]] inline std::vector<Square> absolute(const std::vector<Square>& turns) {
  std::vector<Square> all = turns;
  for (std::size_t i = 1; i < all.size(); ++i) all[i] = (turns[i] * all[i - 1]).eval();
  return all;
}
/// R(μ_i) q_i and R(μ_i) k_i.
[[nodiscard]] inline Sequence turned(Sequence x, const std::vector<Square>& at) {
  for (Index i = 0; i < x.size(); ++i) {
    x.Q.col(i) = (at[static_cast<std::size_t>(i)] * x.Q.col(i)).eval();
    x.K.col(i) = (at[static_cast<std::size_t>(i)] * x.K.col(i)).eval();
  }
  return x;
}
/// b_ij = Π_{k=j+1..i} γ_k.
[[nodiscard]] inline Rational product(const std::vector<Rational>& gamma, Index i, Index j) {
  Rational b(1);
  for (Index k = j + 1; k <= i; ++k) b *= gamma[static_cast<std::size_t>(k)];
  return b;
}
/// A_{j+1} … A_i; in descending order A_i … A_{j+1}.
[[nodiscard]] inline Square product(const std::vector<Square>& A, Index i, Index j, Index d, bool descending = false) {
  Square P = one(d);
  for (Index k = j + 1; k <= i; ++k) {
    const Square& next = A[static_cast<std::size_t>(k)];
    P = descending ? Square(next * P) : Square(P * next);
  }
  return P;
}
/// s^p.
[[nodiscard]] inline Rational power(const Rational& s, int p) { return Power{p}.kappa(s); }
/// [S; Z] after all tokens, by the recurrence.
template <class Feature>
[[nodiscard]] Square state_after(const Feature& feature, const Gates<Rational>& A, const Sequence& x) {
  exact::State<Rational> state;
  for (Index t = 0; t < x.size(); ++t) state.step(feature, A, x, t);
  return state.S;
}
/// [v; 1] (W m(k))ᵀ, what a token writes.
[[nodiscard]] inline Square written(int p, const Numbers& v, const Numbers& k) {
  Numbers extended = Numbers::Ones(v.size() + 1);
  extended.head(v.size()) = v;
  return extended * exact::weights<Rational>(k.size(), p).cwiseProduct(exact::monomials(k, p)).transpose();
}
/// The recurrence from nothing, without a division.
template <class Feature>
[[nodiscard]] Square recurrence(const Feature& feature, const Gates<Rational>& A, const Sequence& x) {
  exact::State<Rational> state;
  return exact::recurrent(feature, A, x, state, true);
}
/// A skew matrix.
[[nodiscard]] inline Square skew(Exact& x, const std::string& name, Index d) {
  const Numbers upper = x.vector(name, d * (d - 1) / 2);
  Square S = Square::Zero(d, d);
  Index n = 0;
  for (Index i = 0; i < d; ++i)
    for (Index j = i + 1; j < d; ++j) {
      S(i, j) = -upper[n];
      S(j, i) = upper[n++];
    }
  return S;
}
/// A rotation, the Cayley transform of a skew matrix.
[[nodiscard]] inline Square orthogonal(Exact& x, const std::string& name, Index d) {
  return exact::cayley(skew(x, name, d));
}
/// U C V of rotations U and V and a diagonal matrix C of cosines: its norm is at most 1.
[[nodiscard]] inline Square contraction(Exact& x, const std::string& name, Index d) {
  const Square U = orthogonal(x, name + ", left", d), V = orthogonal(x, name + ", right", d);
  Numbers cosines(d);
  for (Rational& c : cosines) c = exact::Turn<Rational>(x.number("cos of " + name)).cosine;
  return U * cosines.asDiagonal() * V;
}
/// A ⊗ B.
[[nodiscard]] inline Square kronecker(const Square& a, const Square& b) {
  Square product(a.rows() * b.rows(), a.cols() * b.cols());
  for (Index i = 0; i < a.rows(); ++i)
    for (Index j = 0; j < a.cols(); ++j) product.block(i * b.rows(), j * b.cols(), b.rows(), b.cols()) = a(i, j) * b;
  return product;
}
/// A ⊗ … ⊗ A, p factors.
[[nodiscard]] inline Square kronecker_power(const Square& a, int p) {
  Square all = a;
  for (int n = 1; n < p; ++n) all = kronecker(all, a);
  return all;
}

}  // namespace detail::identities
}  // namespace SYMPOW_NAMESPACE::verify
#endif
