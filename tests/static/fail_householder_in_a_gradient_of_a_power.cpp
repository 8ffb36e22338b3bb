// expect: a Householder chain multiplies the state by a matrix in key space
#include <sympow/attention/chunked_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

auto f(const MatrixXd& Q, const Eigen::VectorXd& beta) {
#ifdef SYMPOW_CONTROL
  return chunked_vjp(Linear{}, householder(Q, beta), Q, Q, Q, Q);
#else
  return chunked_vjp(SymmetricPower<2>{}, householder(Q, beta), Q, Q, Q, Q);
#endif
}
