// expect: an output is written in place: it is column-major, one token a column, and has the scalar type of queries,
// keys and values
#include <sympow/sympow.hpp>

using namespace sympow;

void f(const Eigen::MatrixXf& Q, Workspace<float>& workspace, const Options& options) {
#ifdef SYMPOW_CONTROL
  Eigen::MatrixXf Y(Q.rows(), Q.cols());
#else
  Eigen::MatrixXd Y(Q.rows(), Q.cols());
#endif
  attention(Linear{}, stationary(), Q, Q, Q, Y.leftCols(Q.cols()), workspace, options);
}
