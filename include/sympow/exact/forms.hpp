// The definition and the three forms, by the papers' formulas.
#pragma once

#include <algorithm>
#include <vector>

#include <sympow/exact/matrices.hpp>
#include <sympow/exact/monomials.hpp>

namespace SYMPOW_NAMESPACE::exact {

/// Queries, keys and values, a token a column: d × T, d × T, e × T.
template <class Scalar>
struct Tokens {
  Matrix<Scalar> Q;  ///< queries
  Matrix<Scalar> K;  ///< keys
  Matrix<Scalar> V;  ///< values

  /// T.
  [[nodiscard]] Index size() const { return Q.cols(); }
};

/// A_t = γ_t M_t in key space, for every token t.
///
///     (A_{j+1} … A_i)ᵀ = b_ij M_ij,   S_t = S_{t-1} A_t + v_t φ(k_t)ᵀ
///
/// A transition of your own is any type with these two functions.
template <class Scalar>
struct Gates {
  std::vector<Scalar> gamma;            ///< γ_t; none for 1
  std::vector<Matrix<Scalar>> turning;  ///< M_t, d × d; none for I

  /// γ_t.
  [[nodiscard]] Scalar decay(Index t) const { return gamma.empty() ? Scalar(1) : gamma[static_cast<std::size_t>(t)]; }
  [[nodiscard]] Matrix<Scalar> key_matrix(Index t, Index d) const {
    return turning.empty() ? Matrix<Scalar>(Matrix<Scalar>::Identity(d, d)) : turning[static_cast<std::size_t>(t)];
  }
};

/// Causal attention with any scores, divided by their sum unless `sums`.
///
///     y_i = Σ_{j ≤ i} s(i, j) v_j / Σ_{j ≤ i} s(i, j)
///
/// Throws `InvalidArgument` for a sum of 0.
template <class Score, class Scalar>
[[nodiscard]] Matrix<Scalar> attend(const Score& score, const Matrix<Scalar>& V, bool sums = false) {
  Matrix<Scalar> Y = Matrix<Scalar>::Zero(V.rows(), V.cols());
  for (Index i = 0; i < V.cols(); ++i) {
    Scalar sum(0);
    for (Index j = 0; j <= i; ++j) {
      const Scalar s = score(i, j);
      sum += s;
      Y.col(i) += s * V.col(j);
    }
    if (!sums) Y.col(i) /= sum;
  }
  return Y;
}

/// The definition: scores κ(k_jᵀ M_{j+1} … M_i q_i) Π_{t=j+1..i} γ_t. Cost: T² d².
template <class Feature, class Transition, class Scalar>
[[nodiscard]] Matrix<Scalar> definition(const Feature& feature, const Transition& A, const Tokens<Scalar>& x,
                                        bool sums = false) {
  const auto score = [&](Index i, Index j) {
    Vector<Scalar> q = x.Q.col(i);
    Scalar b(1);
    for (Index t = i; t > j; --t) {
      q = (A.key_matrix(t, q.size()) * q).eval();
      b *= A.decay(t);
    }
    return Scalar(feature.kappa(Scalar(x.K.col(j).dot(q))) * b);
  };
  return attend(score, x.V, sums);
}

/// [S; Z] of the recurrence, in coordinates in which no root is left: a row is Σ_j v_j (W m(k_j))ᵀ, and what reads it
/// is m(q).
template <class Scalar>
struct State {
  Matrix<Scalar> S;  ///< (e + 1) × D; empty at first

  /// S ← γ S L(M) + [v; 1] (W m(k))ᵀ.
  template <class Feature, class Transition>
  void step(const Feature& feature, const Transition& A, const Tokens<Scalar>& x, Index t) {
    const Vector<Scalar> k = x.K.col(t);
    const Vector<Scalar> written = feature.template metric<Scalar>(k.size()).cwiseProduct(feature.embed(k));
    if (S.size() == 0)
      S = Matrix<Scalar>::Zero(x.V.rows() + 1, written.size());
    else
      S = (A.decay(t) * moved(feature, A.key_matrix(t, k.size()))).eval();
    S.topRows(x.V.rows()) += x.V.col(t) * written.transpose();
    S.row(x.V.rows()) += written.transpose();
  }

  /// S L(M), without a lift that is the identity, as that of gates is.
  template <class Feature>
  [[nodiscard]] Matrix<Scalar> moved(const Feature& feature, const Matrix<Scalar>& M) const {
    if (M == Matrix<Scalar>::Identity(M.rows(), M.cols())) return S;
    return S * feature.lifted(M);
  }

  /// [S φ(q); Z φ(q)].
  template <class Feature>
  [[nodiscard]] Vector<Scalar> read(const Feature& feature, const Vector<Scalar>& q) const {
    return S * feature.embed(q);
  }
};

/// A row from [Σ s v; Σ s]. Throws `InvalidArgument` for a sum of 0 that is to be divided by.
template <class Scalar>
[[nodiscard]] Vector<Scalar> row_of(const Vector<Scalar>& both, bool sums) {
  const Vector<Scalar> row = both.head(both.size() - 1);
  return sums ? row : Vector<Scalar>(row / both[both.size() - 1]);
}

/// The recurrent form from a state, which is left after the last token.
///
///     S_i = γ_i S_{i-1} Sym(M_i) + v_i φ(k_i)ᵀ,   y_i = S_i φ(q_i) / Z_i φ(q_i)
template <class Feature, class Transition, class Scalar>
[[nodiscard]] Matrix<Scalar> recurrent(const Feature& feature, const Transition& A, const Tokens<Scalar>& x,
                                       State<Scalar>& state, bool sums = false) {
  Matrix<Scalar> Y(x.V.rows(), x.size());
  for (Index t = 0; t < x.size(); ++t) {
    state.step(feature, A, x, t);
    Y.col(t) = row_of<Scalar>(state.read(feature, Vector<Scalar>(x.Q.col(t))), sums);
  }
  return Y;
}

/// The chunked form: scores within a chunk, and the state of all tokens before it.
template <class Feature, class Transition, class Scalar>
[[nodiscard]] Matrix<Scalar> chunked(const Feature& feature, const Transition& A, const Tokens<Scalar>& x, Index chunk,
                                     bool sums = false) {
  Matrix<Scalar> Y(x.V.rows(), x.size());
  State<Scalar> state;
  for (Index begin = 0; begin < x.size(); begin += chunk) {
    const Index end = std::min(begin + chunk, x.size());
    for (Index i = begin; i < end; ++i) {
      Vector<Scalar> q = x.Q.col(i), both = Vector<Scalar>::Zero(x.V.rows() + 1);
      Scalar b(1);
      for (Index j = i; j >= begin; --j) {
        const Scalar s = feature.kappa(Scalar(x.K.col(j).dot(q))) * b;
        both.head(x.V.rows()) += s * x.V.col(j);
        both[x.V.rows()] += s;
        q = (A.key_matrix(j, q.size()) * q).eval();  // at last to the end of the chunk before
        b *= A.decay(j);
      }
      if (begin > 0) both += b * state.read(feature, q);
      Y.col(i) = row_of<Scalar>(both, sums);
    }
    for (Index t = begin; t < end; ++t) state.step(feature, A, x, t);
  }
  return Y;
}

}  // namespace SYMPOW_NAMESPACE::exact
