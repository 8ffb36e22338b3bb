// expect: is Unnormalized, SignedNormalized or, for a feature map without negative scores, Normalized
#include <sympow/sympow.hpp>

using namespace sympow;

Eigen::MatrixXd f(const Eigen::MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  return attention<SignedNormalized>(SymmetricPower<3>{}, stationary(), Q, Q, Q);
#else
  return attention<Normalized>(SymmetricPower<3>{}, stationary(), Q, Q, Q);
#endif
}
