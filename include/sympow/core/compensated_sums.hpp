// Sums over many contributions that are as good after thousands of them.
#pragma once

#include <sympow/core/halved_matrix.hpp>
#include <sympow/core/panel.hpp>
#include <sympow/core/product.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// For rows i = 0 … n - 1 the numerators, e numbers each, and one denominator. Contributions are collected some at a
/// time, and enter the rows by an addition that keeps what its rounding loses.
template <class Scalar>
class CompensatedSums {
  static constexpr Index at_once = 4, panels_at_once = 16;  // contributions

 public:
  /// Memory for so many rows.
  void reserve(Index value_rows, Index rows) {
    for (auto* panel : {&partial_, &sums_, &residues_}) (*panel)(value_rows, rows);
    for (auto* panel : {&partial_denominators_, &denominators_, &denominator_residues_}) (*panel)(rows);
  }

  /// Rows without any contribution; without denominators unless they `divide`.
  void reset(Index value_rows, Index rows, bool divides) {
    e_ = value_rows;
    n_ = count_ = rows;
    first_ = 0;
    divides_ = divides;
    pending_ = settled_ = 0;
    last_ = 0;
  }

  /// Some rows of the next contribution to numerators: columns `first`, … of C += A B.
  template <class A, class B>
  void add_columns(Index first, Index count, const A& a, const B& b) {
    add(partial_(e_, n_).middleCols(first, count), a, b);
  }
  /// One number more in them.
  void add_entry(Index i, Index r, Scalar x) { partial_(e_, n_)(r, i) += x; }
  /// One number of the next contribution to denominators.
  void add_denominator(Index i, Scalar x) {
    Scalar& sum = partial_denominators_(n_)[i];
    sum = pending_ == 0 ? x : sum + x;
  }
  /// The next contribution is whole.
  void end_contribution() { ++pending_; }

  /// What follows is read by `count` rows from the first on: strips of rows one after the other, of which each is given
  /// as many contributions. Nothing is pending.
  void begin_strip(Index first, Index count) {
    if (first == 0) settled_before_ = settled_;
    first_ = first;
    count_ = count;
    pending_ = 0;
    settled_ = settled_before_;
  }
  /// The contribution S φ and Z φ of some entries of φ, rows × entries; those of a row lie side by side where S is read
  /// by its upper halves.
  template <class Features>
  void add_read(const ColumnsRead<Scalar>& S, ColumnView<const Scalar> Z, const Features& features) {
    auto numerators = partial_(e_, n_).middleCols(first_, count_);
    if (S.halves == nullptr)
      add(numerators, S.whole, features.transpose());
    else
      for (Index i = 0; i < count_; ++i)
        ColumnProduct<Scalar>::times_column(pending_ > 0, e_, features.cols(), S.halves->upper(),
                                            features.row(i).data(), numerators.col(i).data());
    if (divides_) add(partial_denominators_(n_).segment(first_, count_), features, Z);
    ++pending_;
  }

  /// Takes contributions into the rows, `factor` times, once there are some of them.
  void settle_some(Scalar factor) {
    if (pending_ >= at_once) settle(factor);
  }
  void settle_panels(Scalar factor) {
    if (pending_ >= panels_at_once) settle(factor);
  }
  /// The same for those that are left.
  void settle(Scalar factor) {
    if (pending_ == 0) return;
    settle(sums_, residues_, factor, partial_, e_);
    settle_denominators(factor);
  }
  /// The same for the last ones, before the rows are read.
  void finish(Scalar factor) {
    first_ = 0;
    count_ = n_;
    if (pending_ == 0 || settled_ != 1) return settle(factor);
    last_ = factor;  // numerators are added on the way out
    settle_denominators(factor);
  }

  [[nodiscard]] bool divides() const { return divides_; }  ///< whether there are denominators
  /// One of them, after `finish`; 0 where nothing was added.
  [[nodiscard]] Scalar denominator(Index i) { return settled_ == 0 ? Scalar(0) : denominators_(n_)[i]; }
  /// f(r, some) for the numerators of row i from r on, 16 at a time as a block and the rest one by one.
  template <class Visit>
  void visit_numerators(Index i, const Visit& visit) {
    using Block = Eigen::Array<Scalar, 16, 1>;
    const auto sums = sums_(e_, n_).col(i), partial = partial_(e_, n_).col(i);
    Index r = 0;
    for (; r + 16 <= e_ && settled_ > 0; r += 16) {
      Block some = Block::Map(sums.data() + r);
      if (last_ != Scalar(0)) some += last_ * Block::Map(partial.data() + r);
      visit(r, some);
    }
    for (; r < e_; ++r)
      visit(r, settled_ == 0 ? Scalar(0) : last_ == Scalar(0) ? sums[r] : sums[r] + last_ * partial[r]);
  }

 private:
  template <class C, class A, class B>
  void add(C&& c, const A& a, const B& b) const {
    if (pending_ == 0)
      set_product(c, a, b);
    else
      add_product(c, a, b);
  }

  void settle_denominators(Scalar factor) {
    if (divides_) settle(denominators_, denominator_residues_, factor, partial_denominators_, 1);
    pending_ = 0;
    ++settled_;
  }

  // So many numbers a row. The first contribution needs no residue, the second has none before it.
  void settle(Panel<Scalar>& sums, Panel<Scalar>& residues, Scalar factor, Panel<Scalar>& partial, Index each) const {
    if (settled_ == 0 && factor == Scalar(1) && count_ == n_) return std::swap(sums, partial);
    const auto some = [&](Panel<Scalar>& panel) { return panel(each * n_).segment(each * first_, each * count_); };
    if (settled_ == 0)
      some(sums) = factor * some(partial);
    else
      add_compensated(some(sums), some(residues), factor, some(partial), settled_ == 1);
  }

  Index e_ = 0, n_ = 0, pending_ = 0, settled_ = 0, settled_before_ = 0;
  Index first_ = 0, count_ = 0;  // of the strip
  bool divides_ = true;
  Scalar last_ = 0;  // what the numerators that are still pending are multiplied by
  Panel<Scalar> partial_, sums_, residues_;
  Panel<Scalar> partial_denominators_, denominators_, denominator_residues_;
};

}  // namespace SYMPOW_NAMESPACE::detail
