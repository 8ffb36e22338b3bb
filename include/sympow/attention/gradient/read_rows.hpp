// What rows read of a state on the way back.
#pragma once

#include <sympow/attention/gradient/memory.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// read_i += Σ_c φ_ic Z_c and products_i += Σ_c φ_ic a_ic over some entries of φ, by short sums in the scratch.
template <class Scalar>
void add_row_products(const Entries<Scalar>& features, MatrixView<const Scalar> a, ColumnView<const Scalar> Z,
                      ColumnView<double> read, ColumnView<double> products, ColumnView<Scalar> sums,
                      ColumnView<Scalar> sums_of_products) {
  constexpr Index few = 16;
  const Index n = read.size(), down = features.innerStride();
  for (Index first = 0; first < a.cols(); first += few) {
    sums.setZero(), sums_of_products.setZero();
    for (Index c = first; c < std::min(first + few, a.cols()); ++c) {
      const Scalar *const x = features.data() + c * features.outerStride(), *const y = a.col(c).data(), z = Z[c];
      Scalar *const of_z = sums.data(), *const of_a = sums_of_products.data();
      for (Index i = 0; i < n; ++i) {
        const Scalar phi = x[i * down];
        of_z[i] += phi * z;
        of_a[i] += phi * y[i];
      }
    }
    read += sums.template cast<double>();
    products += sums_of_products.template cast<double>();
  }
}

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
