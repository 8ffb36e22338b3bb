// expect: queries, keys, values and outputs of a batch are Heads of one scalar type, outputs not of a const one
#include <sympow/sympow.hpp>

using namespace sympow;

void f(Eigen::MatrixXf& Q, Workspaces<float>& workspaces) {
#ifdef SYMPOW_CONTROL
  const auto q = Heads<float>::bthd(Q.data(), 1, Q.cols(), 1, Q.rows());
  attend(Linear{}, stationary(), q, q, q, q, workspaces, {.threads = 1});
#else
  attend(Linear{}, stationary(), Q, Q, Q, Q, workspaces, {.threads = 1});
#endif
}
