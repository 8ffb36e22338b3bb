// What queries read of the sums that a state has folded.
#pragma once

#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/engine/memory.hpp>
#include <sympow/attention/engine/rows.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Adds S φ(q) and Z φ(q) to rows, by some columns of S at a time.
template <class Scalar, FeatureMap F>
class SumsReader {
 public:
  SumsReader(const F& feature, const FoldedSums<Scalar>& sums, EngineMemory<Scalar>& memory, RowKind rows)
      : feature_(feature), sums_(sums), memory_(memory), rows_(rows) {}

  /// The most queries at a time. Whether they are so few that φ is made one by one is said by this alone: the bits of a
  /// row must not depend on where its segment is cut.
  void reserve(Index queries) { few_ = queries <= few_columns; }

  /// Whether there are sums to read; the queries are then where these are. Nothing is forgotten yet but what is owed
  /// and e^since.
  bool begin(Rows<Scalar>& rows, const Queries<Scalar>& queries, LogDecay since) const {
    if (sums_.empty()) return false;
    const Index n = queries.size();
    auto lengths = memory_.lengths(n);
    const bool pulls = sums_.channels_differ();
    if (pulls) {
      sums_.pull_to_last_fold(queries.vectors, memory_.channels);
      set_norms<Scalar>(queries.vectors, lengths);
    }
    auto noise = memory_.noise(n);
    if (entries_are_nonnegative() || rows_ == RowKind::sums)
      noise.setZero();  // nothing cancels, or it may
    else
      sums_.template set_noise<degree_of<F>>(queries.vectors, pulls ? lengths : queries.lengths, noise,
                                             memory_.channels);
    since.add(sums_.template slowest_decay<degree_of<F>>());
    rows.begin_read(sums_.exponent(), sums_.A, noise, queries, since);
    return true;
  }

  /// All of them, by strips of queries.
  void read_all(Rows<Scalar>& rows, MatrixView<Scalar> queries) const {
    const MatrixView<Scalar> none(nullptr, queries.rows(), 0);
    for (Index i = 0, n = 0; i < queries.cols(); i += n) {
      n = std::min(strip, queries.cols() - i);
      rows.begin_strip(i, n);
      for_feature_panels(feature_, memory_.fold.panels, few_ ? 0 : panel_width, none, queries.middleCols(i, n),
                         [&](Index first, const Entries<Scalar>& features) {
                           const Index size = features.cols();
                           rows.add_read(columns(first, size), ColumnView<const Scalar>(sums_.Z).segment(first, size),
                                         features);
                         });
    }
  }

 private:
  // As they lie for few queries, which read all of them at once; what many read in halves is rounded once for all of
  // them.
  [[nodiscard]] ColumnsRead<Scalar> columns(Index first, Index size) const {
    if (!sums_.is_halved()) return {MatrixView<const Scalar>(sums_.S).middleCols(first, size)};
    const Index e = sums_.halves.rows();
    if (few_) return {{nullptr, e, 0}, &sums_.halves};
    const auto rounded = memory_.fold.columns(e, size);
    sums_.halves.get_upper(first, rounded);
    return {rounded};
  }
  [[nodiscard]] bool entries_are_nonnegative() const {
    if constexpr (F::score == Score::embedded)
      return feature_.entries_are_nonnegative();
    else
      return has_nonnegative_entries<F>;
  }

  const F& feature_;
  const FoldedSums<Scalar>& sums_;
  EngineMemory<Scalar>& memory_;
  RowKind rows_;
  bool few_ = false;
};

}  // namespace SYMPOW_NAMESPACE::detail
