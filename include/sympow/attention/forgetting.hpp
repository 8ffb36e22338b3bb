// The decay that goes into sums at a fold.
#pragma once

#include <sympow/core/two_part_factor.hpp>
#include <sympow/core/view.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// What every entry of S and Z is multiplied by when a decay goes into them.
struct Forgetting {
  double factor;                         ///< of all, that of the slowest channel included
  ColumnView<const double> of_channels;  ///< of each entry, D; empty where the channels agree

  /// f(factor, begin, n) for columns that have a factor in common, of so many from the first on.
  template <class Scalar, class Function>
  void for_factors(Index first, Index size, const Function& f) const {
    if (of_channels.size() == 0) return f(TwoPartFactor<Scalar>(factor), first, size);
    for (Index i = first; i < first + size; ++i) f(TwoPartFactor<Scalar>(of_channels[i]), i, Index(1));
  }
  /// Columns of S and entries of Z, from the first on, forget.
  template <class Scalar>
  void multiply(Index first, MatrixView<Scalar> S, ColumnView<Scalar> Z) const {
    if (of_channels.size() == 0 && factor == 1) return;
    for_factors<Scalar>(first, S.cols(), [&](const TwoPartFactor<Scalar>& by, Index begin, Index n) {
      by.multiply(S.data() + (begin - first) * S.rows(), n * S.rows());
      by.multiply(Z.data() + (begin - first), n);
    });
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
