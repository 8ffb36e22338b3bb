// expect: queries, keys, values and outputs are matrices with one token a column: of T x d numbers
#include <sympow/sympow.hpp>

#include <vector>

using namespace sympow;

Eigen::MatrixXf f(const std::vector<float>& q, State<float, Linear>& state) {
#ifdef SYMPOW_CONTROL
  const Eigen::Map<const Eigen::MatrixXf> Q(q.data(), 1, std::ssize(q));
  return chunked(Linear{}, stationary(), Q, Q, Q, state);
#else
  return chunked(Linear{}, stationary(), q, q, q, state);
#endif
}
