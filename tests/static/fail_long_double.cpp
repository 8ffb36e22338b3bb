// expect: queries, keys and values are of float or double; use .cast<>()
#include <sympow/sympow.hpp>

using namespace sympow;

auto f(const Matrix<long double>& Q) {
#ifdef SYMPOW_CONTROL
  return attention(SymmetricPower<2>{}, stationary(), Q.cast<double>(), Q.cast<double>(), Q.cast<double>());
#else
  return attention(SymmetricPower<2>{}, stationary(), Q, Q, Q);
#endif
}
