// expect: gradients that are written in place are a variable of type Gradients<Scalar, A>
#include <sympow/attention/attention_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

void f(const MatrixXd& Q, [[maybe_unused]] Gradients<double, Stationary>& own,
       [[maybe_unused]] Gradients<double, ConstantDecay>& other, VjpWorkspace<double>& workspace) {
#ifdef SYMPOW_CONTROL
  return attention_vjp(Linear{}, stationary(), Q, Q, Q, Q, own, workspace);
#else
  return static_cast<void>(attention_vjp(Linear{}, stationary(), Q, Q, Q, Q, other, workspace));
#endif
}
