// What the walks do with the rows of a segment, whatever scales these have.
#pragma once

#include <sympow/attention/engine/segment.hpp>
#include <sympow/attention/feature_panels.hpp>
#include <sympow/core/halved_matrix.hpp>
#include <sympow/core/visitor.hpp>

namespace SYMPOW_NAMESPACE::detail {

template <class Scalar>
using SetLogits = Visitor<Index, MatrixView<Scalar>>;

/// For the queries i = 0 … n - 1 of a segment the sums Σ_j s_ij v_j and Σ_j s_ij, from the first contribution to the
/// written row. The models differ in the scales at which they keep them: one for all rows, or one a row. A call of it
/// does the work of a whole product, so that it may be virtual: the walks are compiled once for both.
template <class Scalar>
class Rows {
 public:
  /// Whether any row sees keys of weights up to 2^M that decay by e^between on their way to the segment's first token.
  [[nodiscard]] virtual bool sees(double M, const LogDecay& between) const = 0;

  /// The segment's own keys j ≤ i, from logits that are used up.
  virtual void add_own(MatrixView<Scalar> logits, const Keys<Scalar>& keys, const Queries<Scalar>& queries) = 0;

  /// All of some keys that they see. `set_logits(i, L)` writes the logits of these keys with the rows from i on, as
  /// many as L has columns.
  virtual void add_earlier(const SetLogits<Scalar>& set_logits, const Keys<Scalar>& keys,
                           const Queries<Scalar>& queries, const LogDecay& between) = 0;

  /// What follows is read from sums 2^exponent S and Z of the absolute weight A, which decay by e^between on their way
  /// to the segment's first token. `noise` has the largest denominator of each row that can be rounding, with that
  /// exponent.
  virtual void begin_read(double exponent, double A, ColumnView<const double> noise, const Queries<Scalar>& queries,
                          const LogDecay& between) = 0;
  /// By `count` rows from the first on, then by those that follow.
  virtual void begin_strip(Index first, Index count) = 0;
  /// Some entries of φ of their queries, and the same columns of S and entries of Z.
  virtual void add_read(const ColumnsRead<Scalar>& S, ColumnView<const Scalar> Z, const Entries<Scalar>& features) = 0;

  /// All is added.
  virtual void finish(const Queries<Scalar>& queries) = 0;

  /// y ← row i, which is query `query` of the call.
  virtual void write(Index i, Index query, const Queries<Scalar>& queries, ColumnView<Scalar> y) = 0;

 protected:
  ~Rows() = default;
};

}  // namespace SYMPOW_NAMESPACE::detail
