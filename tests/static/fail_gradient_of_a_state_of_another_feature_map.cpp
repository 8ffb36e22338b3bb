// expect: a variable of type StateGradient<Scalar, Feature>, with the scalar type of the keys and the type of
#include <sympow/attention/chunked_vjp.hpp>

#include <sympow/sympow.hpp>

using namespace sympow;
using Eigen::MatrixXd;

auto f(const MatrixXd& Q, State<double, Linear>& state, [[maybe_unused]] StateGradient<double, Linear>& adjoint,
       [[maybe_unused]] StateGradient<double, SymmetricPower<2>>& other) {
#ifdef SYMPOW_CONTROL
  return chunked_vjp(Linear{}, stationary(), Q, Q, Q, Q, state, adjoint);
#else
  return chunked_vjp(Linear{}, stationary(), Q, Q, Q, Q, state, other);
#endif
}
