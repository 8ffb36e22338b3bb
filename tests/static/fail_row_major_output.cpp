// expect: an output is written in place: it is column-major, one token a column, and has the scalar type of queries,
// keys and values
#include <sympow/sympow.hpp>

using namespace sympow;

void f(const Eigen::MatrixXd& Q, State<double, Linear>& state, Workspace<double>& workspace) {
#ifdef SYMPOW_CONTROL
  Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> rows(Q.cols(), Q.rows());
  auto Y = rows.transpose();
#else
  Eigen::Matrix<double, Dynamic, Dynamic, Eigen::RowMajor> Y(Q.rows(), Q.cols());
#endif
  recurrent(Linear{}, stationary(), Q, Q, Q, state, Y, workspace);
}
