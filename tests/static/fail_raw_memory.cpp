// expect: queries, keys, values and outputs are matrices with one token a column: of T x d numbers
#include <sympow/sympow.hpp>

using namespace sympow;

Eigen::MatrixXf f(const float* q, Index d, Index T) {
#ifdef SYMPOW_CONTROL
  const Eigen::Map<const Eigen::MatrixXf> Q(q, d, T);
  return attention(SymmetricPower<2>{}, stationary(), Q, Q, Q);
#else
  static_cast<void>(d + T);
  return attention(SymmetricPower<2>{}, stationary(), q, q, q);
#endif
}
