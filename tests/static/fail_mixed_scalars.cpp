// expect: queries, keys and values have one scalar type, float or double; use .cast<>()
#include <sympow/sympow.hpp>

using namespace sympow;

Eigen::MatrixXf f(const Eigen::MatrixXf& Q, const Eigen::MatrixXd& V) {
#ifdef SYMPOW_CONTROL
  return attention(Linear{}, stationary(), Q, Q, V.cast<float>());
#else
  return attention(Linear{}, stationary(), Q, Q, V);
#endif
}
