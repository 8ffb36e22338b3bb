// expect: and a transition that moves states: one that scales channels has log_channel_totals; one that mixes them
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
