// What rows read of a state on the way back.
#pragma once

#include <sympow/attention/gradient/memory.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// What n rows have read, kept until the gradient behind them is known: Zᵀφ(q_i) and φ(q_i)·Sᵀ dŷ_i, both brought back
/// through φ, and of what the noise of their denominators is made.
template <class Scalar>
class ReadRows {
 public:
  [[nodiscard]] bool is_known() const { return read_.size() > 0; }
  void keep(AdjointMemory<Scalar>& memory, ColumnView<const double> noise, MatrixView<const Scalar> brought_back) {
    const Index n = noise.size();
    read_ = memory.read(n), products_ = memory.read_products(n), noise_ = noise;
    brought_back_ = brought_back;
  }
  void put_back(AdjointMemory<Scalar>& memory, ColumnView<double> noise) const {
    memory.read(noise.size()) = read_, memory.read_products(noise.size()) = products_, noise = noise_;
    memory.d_row_vectors(brought_back_.rows(), brought_back_.cols()) = brought_back_;
  }

 private:
  Eigen::VectorXd read_, products_, noise_;
  Matrix<Scalar> brought_back_;
};

}  // namespace SYMPOW_NAMESPACE::detail
