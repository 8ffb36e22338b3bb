// expect: a state form needs a transition that moves states: one that mixes channels needs apply_to_keys
#include <sympow/sympow.hpp>

using namespace sympow;

Eigen::MatrixXd f(const Eigen::MatrixXd& Q, const Eigen::VectorXd& beta) {
  const auto chain = householder(Q, beta);
#ifdef SYMPOW_CONTROL
  return attention(SymmetricPower<2>{}, chain, Q, Q, Q);
#else
  return chunked(SymmetricPower<2>{}, chain, Q, Q, Q);
#endif
}
