// expect: queries, keys, values and dY of a batch are Heads of one scalar type
#include <sympow/attention/batch_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

void f([[maybe_unused]] Heads<const double> x, [[maybe_unused]] Heads<double> dx, VjpWorkspaces<double>& workspaces,
       [[maybe_unused]] const MatrixXd& Q) {
#ifdef SYMPOW_CONTROL
  return static_cast<void>(attend_vjp(Linear{}, stationary(), x, x, x, x, dx, dx, dx, workspaces));
#else
  return attend_vjp(Linear{}, stationary(), Q, Q, Q, Q, dx, dx, dx, workspaces);
#endif
}
