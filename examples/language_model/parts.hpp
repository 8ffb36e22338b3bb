// What a transformer has beside attention: layer normalisation, GELU, and the loss; each with its way back.
#pragma once

#include <sympow/core/concepts.hpp>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

namespace language_model {

using sympow::Index, sympow::Matrix, sympow::Vector, sympow::Batch, sympow::ConstBatch;

/// y = gain (x - mean) / √(variance + 10⁻⁵) + bias, by columns.
template <class S>
struct Norm {
  Vector<S> gain, bias;
};

/// What the way back needs: (x - mean) / √…, and 1 / √….
template <class S>
struct NormPass {
  Matrix<S> centred;
  Vector<S> factors;
};

template <class S>
void normalize(const Norm<S>& norm, const Matrix<S>& X, NormPass<S>& pass, Matrix<S>& Y) {
  pass.centred.resize(X.rows(), X.cols());
  pass.factors.resize(X.cols());
  Y.resize(X.rows(), X.cols());
  for (Index t = 0; t < X.cols(); ++t) {
    auto x = pass.centred.col(t);
    x = X.col(t).array() - X.col(t).mean();
    pass.factors[t] = 1 / std::sqrt(x.squaredNorm() / static_cast<S>(x.size()) + S(1e-5));
    x *= pass.factors[t];
    Y.col(t) = norm.gain.cwiseProduct(x) + norm.bias;
  }
}

/// dX += the gradient of X, from dY.
template <class S>
void normalize_vjp(const Norm<S>& norm, const NormPass<S>& pass, const Matrix<S>& dY, Norm<S>& gradient,
                   Matrix<S>& dX) {
  gradient.gain += dY.cwiseProduct(pass.centred).rowwise().sum();
  gradient.bias += dY.rowwise().sum();
  Vector<S> dx(dY.rows());
  for (Index t = 0; t < dY.cols(); ++t) {
    const auto x = pass.centred.col(t);
    dx = norm.gain.cwiseProduct(dY.col(t));
    const S mean = dx.mean(), along = dx.dot(x) / static_cast<S>(x.size());
    dX.col(t) += pass.factors[t] * (dx.array() - mean - along * x.array()).matrix();
  }
}

/// GELU by its tanh: y = x/2 (1 + tanh u), u = √(2/π) (x + .044715 x³).
template <class S>
void gelu(const Matrix<S>& X, Matrix<S>& Y) {
  const S a = std::sqrt(S(2) / std::numbers::pi_v<S>);
  Y = S(.5) * X.array() * (1 + (a * X.array() * (1 + S(.044715) * X.array().square())).tanh());
}
/// dX in the place of dY.
template <class S>
void gelu_vjp(const Matrix<S>& X, Matrix<S>& dY) {
  const S a = std::sqrt(S(2) / std::numbers::pi_v<S>);
  for (Index t = 0; t < X.cols(); ++t) {  // by columns, in the cache
    const auto x = X.col(t).array();
    const Eigen::Array<S, sympow::Dynamic, 1> w = (a * x * (1 + S(.044715) * x.square())).tanh();
    dY.col(t).array() *= S(.5) * (1 + w + x * (1 - w.square()) * a * (1 + S(3 * .044715) * x.square()));
  }
}

/// -log of the probability of the byte that comes, of every token: losses[t] of logits' column t, which becomes the
/// gradient of `weight` Σ_t losses[t].
template <class S>
void cross_entropy(Matrix<S>& logits, std::span<const std::uint8_t> next, S weight, Vector<double>& losses) {
  losses.resize(logits.cols());
  for (Index t = 0; t < logits.cols(); ++t) {
    auto x = logits.col(t);
    const Index byte = next[static_cast<std::size_t>(t)];
    const S largest = x.maxCoeff(), of_byte = x[byte];
    x = (x.array() - largest).exp();
    const S sum = x.sum();
    losses[t] = std::log(static_cast<double>(sum)) - static_cast<double>(of_byte - largest);
    x *= weight / sum;
    x[byte] -= weight;
  }
}

}  // namespace language_model
