// The symmetric power embedding of columns, in runs made of those of lower powers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <sympow/core/concepts.hpp>
#include <sympow/tensor/symmetric_power_tree.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Numbers that are written together, 64 bytes; those of a class one by one.
template <class Scalar>
inline constexpr Index packet_size =
    Eigen::NumTraits<Scalar>::RequireInitialization ? 1 : std::max<Index>(1, 64 / Index(sizeof(Scalar)));

/// Writes a column from its first entry to its last. Runs go out in whole packets while the column has room for one:
/// what is written past the end of a run is overwritten by the next. A run is read up to packet_size - 1 entries past
/// its end.
template <class Scalar>
class ColumnInMemory {
  using Packet = Eigen::Array<Scalar, packet_size<Scalar>, 1>;

 public:
  ColumnInMemory(Scalar* begin, Index size) : next_(begin), room_(size) {}

  void put(Scalar value) {
    *next_++ = value;
    --room_;
  }
  void put(Scalar factor, const Scalar* x, Index size) {
    Scalar* const y = next_;
    const Index whole = std::min(size, room_ - packet_size<Scalar> + 1);
    const Packet factors = Packet::Constant(factor);
    Index i = 0;
#pragma GCC unroll 1  // most runs are short
    for (; i < whole; i += packet_size<Scalar>) Packet::Map(y + i) = factors * Packet::Map(x + i);
#pragma GCC unroll 1
    for (; i < size; ++i) y[i] = factor * x[i];
    next_ += size;
    room_ -= size;
  }

 private:
  Scalar* next_;
  Index room_;
};

/// The same for a column whose entries lie apart.
template <class Column>
class AnyColumn {
  using Scalar = typename Column::Scalar;

 public:
  explicit AnyColumn(Column column) : column_(std::move(column)) {}

  void put(Scalar value) { column_[next_++] = value; }
  void put(Scalar factor, const Scalar* x, Index size) {
    column_.segment(next_, size) = factor * Vector<Scalar>::Map(x, size);
    next_ += size;
  }

 private:
  Column column_;
  Index next_ = 0;
};

/// φ^P of columns of d entries, one after the other.
///
/// Let T_m list Π x_{α_l} / √(Π c_i!) over the non-decreasing α of length m. Where α begins with b exactly k times, its
/// entry is x_b^k/√k! times one of T_{m-k}, and the rest of α runs through the tail of that list: all indices beyond b.
/// So T_1 = x, T_2, … are listed first, as many as the scratch has room for, and φ^P = √P! T_P is written by the run.
/// What has no list is walked through in the same order.
template <class Scalar, std::size_t P>
class SymmetricPowerColumns {
 public:
  explicit SymmetricPowerColumns(Index d) : d_(d) {
    constexpr Index padding = packet_size<Scalar> - 1;
    std::array<Index, P> begins{};
    Index used = 0;
    counts_[0] = 1;
    for (std::size_t m = 1; m < P; ++m) {
      const auto length = static_cast<Index>(m);
      counts_[m] = counts_[m - 1] * (d + length - 1) / length;
      const Index needed = used + counts_[m] + padding;
      if (m > 1 && (listed_ < m - 1 || needed > room)) continue;
      begins[m] = used;
      used = needed;
      listed_ = m;
    }
    if (used > room) large_scratch_.resize(static_cast<std::size_t>(used));
    Scalar* const scratch = used > room ? large_scratch_.data() : scratch_.data();
    for (std::size_t m = 1; m <= listed_; ++m) {
      ends_[m] = scratch + begins[m] + counts_[m];
      std::fill_n(ends_[m], padding, Scalar(0));
    }
    for (std::size_t k = 2; k <= P; ++k) inverse_roots_[k] = inverse_root_of<Scalar>(static_cast<Index>(k));
  }

  SymmetricPowerColumns(const SymmetricPowerColumns&) = delete;
  SymmetricPowerColumns& operator=(const SymmetricPowerColumns&) = delete;

  /// φ^P of d entries that lie side by side.
  template <class Column>
  void fill(const Scalar* x, Column column) {
    std::copy_n(x, d_, ends_[1] - d_);
    list<2>();
    complete<P>(column, root_of<Scalar>(factorial(static_cast<Index>(P))), 0, counts_);
  }

 private:
  static constexpr Index room = 4096;
  using Counts = std::array<Index, P>;

  template <std::size_t m>
  void list() {
    if constexpr (m < P) {
      if (m > listed_) return;
      ColumnInMemory<Scalar> column(ends_[m] - counts_[m], counts_[m] + packet_size<Scalar> - 1);
      complete<m>(column, Scalar(1), 0, counts_);
      list<m + 1>();
    }
  }

  // prefix T_m of the indices from `first` on; `counts` are the lengths of T_0, T_1, … of these.
  template <std::size_t m, class Column>
  void complete(Column& column, Scalar prefix, Index first, Counts counts) const {
    const Scalar* const x = ends_[1] - d_;
    for (Index b = first; b < d_; ++b) {
      for (std::size_t j = m - 1; j > 0; --j) counts[j] -= counts[j - 1];  // of those beyond b
      repeat<m, 1>(column, prefix * x[b], b, x[b], counts);
    }
  }

  // Of these the ones that begin with b at least k times, k times being in the prefix.
  template <std::size_t m, std::size_t k, class Column>
  [[gnu::always_inline]] void repeat(Column& column, Scalar prefix, Index b, Scalar x, const Counts& counts) const {
    if constexpr (k == m) {
      column.put(prefix);
    } else {
      repeat<m, k + 1>(column, prefix * (x * inverse_roots_[k + 1]), b, x, counts);
      constexpr std::size_t rest = m - k;
      if constexpr (rest > 1) {
        if (rest > listed_) {
          complete<rest>(column, prefix, b + 1, counts);
          return;
        }
      }
      column.put(prefix, ends_[rest] - counts[rest], counts[rest]);
    }
  }

  Index d_;
  std::size_t listed_ = 0;
  Counts counts_{};
  std::array<Scalar*, P> ends_{};  // of the lists, each followed by zeros that are read with it
  std::array<Scalar, P + 1> inverse_roots_;
  std::array<Scalar, room> scratch_;
  std::vector<Scalar> large_scratch_;
};

}  // namespace SYMPOW_NAMESPACE::detail
