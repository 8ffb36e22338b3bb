// A user's program: one attention call, whose last row of one value is that value.
#include <sympow/sympow.hpp>

#include <cmath>
#include <cstdio>

int main() {
  const Eigen::MatrixXd Q = Eigen::MatrixXd::Ones(4, 8), V = Eigen::MatrixXd::Constant(3, 8, 2.5);
  const Eigen::MatrixXd Y = sympow::attention(sympow::SymmetricPower<2>{}, sympow::Stationary{}, Q, Q, V);
  std::printf("%g\n", Y(2, 7));
#ifdef SYMPOW_COMPILED_GRADIENTS  // equal keys: no value depends on which of them weighs more
  const auto gradients =
      sympow::attention_vjp(sympow::SymmetricPower<2>{}, sympow::Stationary{}, {.Q = Q, .K = Q, .V = V, .dY = V});
  if (!(gradients.Q.cwiseAbs().maxCoeff() < 1e-12)) return 1;
#endif
  return std::abs(Y(2, 7) - 2.5) < 1e-14 ? 0 : 1;
}
