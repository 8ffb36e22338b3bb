// The symmetric power embedding of columns, assembled from scaled runs of lower powers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include <sympow/simd/lanes.hpp>
#include <sympow/tensor/symmetric_power_tree.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Entries per 64-byte write; 1 for class types.
template <class Scalar>
inline constexpr int packet_size =
    Eigen::NumTraits<Scalar>::RequireInitialization ? 1 : std::max(1, 64 / int{sizeof(Scalar)});

/// Writes a column from first entry to last. A run is written in whole packets while the column has room; the next run
/// overwrites the excess. Reads up to packet_size - 1 entries past the end of a run.
template <class Scalar>
class ColumnInMemory {
  using Packet = Lanes<Scalar, packet_size<Scalar>>;

 public:
  ColumnInMemory(Scalar* begin, Index size) : next_(begin), remaining_(size) {}

  void put(Scalar value) {
    *next_++ = value;
    --remaining_;
  }
  void put(Scalar factor, const Scalar* x, Index size) {
    Scalar* const y = next_;
    const Index whole = std::min(size, remaining_ - packet_size<Scalar> + 1);
    const Packet factors = Packet::all(factor);
    Index i = 0;
#pragma GCC unroll 1  // runs are mostly short
    for (; i < whole; i += packet_size<Scalar>) (factors * Packet::load(x + i)).store(y + i);
#pragma GCC unroll 1
    for (; i < size; ++i) y[i] = factor * x[i];
    next_ += size;
    remaining_ -= size;
  }

 private:
  Scalar* next_;
  Index remaining_;
};

/// Writes a column with any stride from first entry to last.
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

/// φ^P of columns of d entries.
///
/// Let T_m list Π x_{α_l} / √(Π c_i!) over the non-decreasing α of length m. If α begins with exactly k indices b, its
/// entry is x_b^k/√k! times an entry of T_{m-k}. The remaining indices exceed b, so they run through a suffix of
/// T_{m-k}. T_1 = x, T_2, … are tabulated first, as far as the scratch allows; then φ^P = √P! T_P is written run by
/// run. Longer lists are enumerated recursively in the same order.
template <class Scalar>
class SymmetricPowerColumns {
 public:
  /// P > 1.
  SymmetricPowerColumns(int P, Index d) : P_(static_cast<std::size_t>(P)), d_(d) {
    constexpr Index padding = packet_size<Scalar> - 1;
    Counts begins{};
    Index used = 0;
    counts_[0] = 1;
    for (std::size_t m = 1; m < P_; ++m) {
      const auto length = static_cast<Index>(m);
      counts_[m] = counts_[m - 1] * (d + length - 1) / length;
      const Index needed = used + counts_[m] + padding;
      if (m > 1 && (tabulated_ < m - 1 || needed > scratch_size)) continue;
      begins[m] = used;
      used = needed;
      tabulated_ = m;
    }
    if (used > scratch_size) large_scratch_.resize(static_cast<std::size_t>(used));
    Scalar* const scratch = used > scratch_size ? large_scratch_.data() : scratch_.data();
    for (std::size_t m = 1; m <= tabulated_; ++m) {
      ends_[m] = scratch + begins[m] + counts_[m];
      std::fill_n(ends_[m], padding, Scalar(0));
    }
    for (std::size_t k = 2; k <= P_; ++k) inverse_roots_[k] = inverse_root_of<Scalar>(static_cast<Index>(k));
  }

  SymmetricPowerColumns(const SymmetricPowerColumns&) = delete;
  SymmetricPowerColumns& operator=(const SymmetricPowerColumns&) = delete;

  /// φ^P of d contiguous entries.
  template <class Column>
  void fill(const Scalar* x, Column column) {
    std::copy_n(x, d_, ends_[1] - d_);
    for (std::size_t m = 2; m <= tabulated_; ++m) {
      ColumnInMemory<Scalar> list(ends_[m] - counts_[m], counts_[m] + packet_size<Scalar> - 1);
      write_list(list, m, Scalar(1));
    }
    write_list(column, P_, root_of<Scalar>(factorial(static_cast<Index>(P_))));
  }

 private:
  static constexpr Index scratch_size = 4096;
  static constexpr std::size_t most = max_power;
  using Counts = std::array<Index, most>;

  // Writes factor · T_m. The compiler unrolls loops over m = 2.
  template <class Column>
  void write_list(Column& column, std::size_t m, Scalar factor) const {
    const auto write = [&](auto length) { write_completions(column, length, factor, 0, counts_); };
    if (m == 2) return write(std::integral_constant<std::size_t, 2>{});
    write(m);
  }

  // Writes prefix · T_m over indices ≥ `first`; counts[j] is the length of T_j over these.
  template <class Column, class Length>
  void write_completions(Column& column, Length m, Scalar prefix, Index first, Counts counts) const {
    const Scalar* const x = ends_[1] - d_;
    for (Index b = first; b < d_; ++b) {
      for (std::size_t j = m - 1; j > 0; --j) counts[j] -= counts[j - 1];  // lengths over indices beyond b
      // Entries that begin with b exactly k times, from k = m on; prefixes include these k factors.
      std::array<Scalar, most + 1> prefixes;
      prefixes[1] = prefix * x[b];
      for (std::size_t k = 2; k <= m; ++k) prefixes[k] = prefixes[k - 1] * (x[b] * inverse_roots_[k]);
      column.put(prefixes[m]);
      for (std::size_t k = m - 1; k > 0; --k)
        if (const std::size_t rest = m - k; rest == 1 || rest <= tabulated_)
          column.put(prefixes[k], ends_[rest] - counts[rest], counts[rest]);
        else
          write_completions(column, rest, prefixes[k], b + 1, counts);
    }
  }

  std::size_t P_;
  Index d_;
  std::size_t tabulated_ = 0;
  Counts counts_{};
  std::array<Scalar*, most> ends_{};  // ends of the lists; zeros follow each, for reads past the end
  std::array<Scalar, most + 1> inverse_roots_;
  std::array<Scalar, scratch_size> scratch_;
  std::vector<Scalar> large_scratch_;
};

}  // namespace SYMPOW_NAMESPACE::detail

/// Explicit instantiations; LINKAGE is `extern` where another file compiles them.
#define SYMPOW_SYMMETRIC_POWERS(LINKAGE, Scalar)                                           \
  LINKAGE template void sympow::detail::SymmetricPowerColumns<Scalar>::fill(const Scalar*, \
                                                                            sympow::detail::ColumnInMemory<Scalar>);

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_SYMMETRIC_POWERS(extern, float)
SYMPOW_SYMMETRIC_POWERS(extern, double)
#endif
