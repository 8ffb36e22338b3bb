// Forms and gradients that another file compiles: declared for each kind of feature map, without a warning of an
// optimizing compiler.
#include <sympow/sympow.hpp>

using namespace sympow;

template <FeatureMap F>
float sum_of(const F& feature, const Eigen::MatrixXf& Q) {
  const auto A =
      decay(Eigen::VectorXd::Zero(Q.cols()).eval()) * rotary(Eigen::VectorXd::Ones(1).eval(), Pairing::interleaved);
  float sum = attention(feature, A, Q, Q, Q).sum();
  if constexpr (FiniteFeatureMap<F>)
    sum += chunked(feature, A, Q, Q, Q).sum() + chunked_vjp(feature, A, {.Q = Q, .K = Q, .V = Q, .dY = Q}).Q.sum();
  return sum;
}

float sum_of_all(const Eigen::MatrixXf& Q) {
  return sum_of(SymmetricPower<2>{}, Q) + sum_of(SymmetricPower<3>{}, Q) + sum_of(Linear{}, Q) +
         sum_of(Exponential{}, Q) + sum_of(PositiveRandomFeatures(2, 4), Q);
}
