// expect: after the gradients that a call writes to stands a variable of type VjpWorkspace<Scalar>
#include <sympow/attention/attention_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

void f(const MatrixXd& Q, Gradients<double, Stationary>& gradients, [[maybe_unused]] VjpWorkspace<double>& own,
       [[maybe_unused]] Workspace<double>& other) {
#ifdef SYMPOW_CONTROL
  return attention_vjp(Linear{}, stationary(), Q, Q, Q, Q, gradients, own);
#else
  return static_cast<void>(attention_vjp(Linear{}, stationary(), Q, Q, Q, Q, gradients, other));
#endif
}
