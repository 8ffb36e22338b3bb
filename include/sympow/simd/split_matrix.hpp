// A matrix stored as two planes: the high halves of its entries' bits, and the low halves.
#pragma once

#include <cstring>

#include <sympow/core/view.hpp>
#include <sympow/simd/packet_of_bits.hpp>

namespace SYMPOW_NAMESPACE::detail {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"  // packet attributes

/// The high halves of entries. A word holds the high halves of two entries, one packet apart.
template <class Scalar>
class HighColumns {
  using Packet = packets::Packet<Scalar>;
  using Word = Bits<Scalar>;
  using Words = typename PacketOfBits<Scalar>::type;
  static constexpr int half = 4 * sizeof(Word);

 public:
  static constexpr Index lanes = packets::lanes<Scalar>, block = 2 * lanes;  // rows per packet of words
  static constexpr bool is_padded = true;                                    // with zeros, to whole blocks

  HighColumns(const Word* data, Index right) : data_(data), right_(right) {}
  /// The part from row i and column k on; i is the first row of a block.
  [[nodiscard]] HighColumns at(Index i, Index k) const { return {data_ + i / 2 + k * right_, right_}; }
  /// Loads the first `packets` packets of the first column; `packets` is even.
  template <int packets>
  [[gnu::always_inline]] void load(Packet* x) const {
    static_assert(packets % 2 == 0);
    unrolled<packets / 2>([&](auto p) __attribute__((always_inline)) {
      Words words;
      std::memcpy(&words, data_ + p * lanes, sizeof words);
      x[2 * p] = std::bit_cast<Packet>(Words(words << half));
      x[2 * p + 1] = std::bit_cast<Packet>(Words(words >> half << half));
    });
  }

 private:
  const Word* data_;
  Index right_;
};

/// A matrix x = high + low, with high = x rounded to the high half of its bits: bf16 for float. The error is at
/// most 2^-8 |x| for float, 2^-21 |x| for double; for denormals the same part of the smallest normal number. Values
/// that near to the largest number round to infinity. Each plane pads the rows to whole blocks. Reading one plane moves
/// half the bytes; both restore x exactly. NaN stays NaN.
template <class Scalar>
class SplitMatrix {
  using Packet = packets::Packet<Scalar>;
  using Word = Bits<Scalar>;
  using Words = typename PacketOfBits<Scalar>::type;
  using Signed = typename PacketOfBits<Scalar, std::make_signed_t<Word>>::type;
  using Plane = Eigen::Matrix<Word, Dynamic, Dynamic>;
  static constexpr int half = 4 * sizeof(Word);
  static constexpr Index lanes = HighColumns<Scalar>::lanes, block = HighColumns<Scalar>::block;

 public:
  SplitMatrix() = default;
  /// A matrix of zeros.
  SplitMatrix(Index rows, Index cols) : rows_(rows) {
    for (Plane* plane : {&high_, &low_}) plane->setZero((rows + block - 1) / block * lanes, cols);
  }

  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index cols() const { return high_.cols(); }
  [[nodiscard]] bool empty() const { return high_.cols() == 0; }
  /// Entries that the memory could hold, padding included.
  [[nodiscard]] Index size() const { return high_.size() + low_.size(); }
  void set_zero() {
    high_.setZero();
    low_.setZero();
  }

  /// The upper parts of all columns.
  [[nodiscard]] HighColumns<Scalar> high() const { return {high_.data(), high_.rows()}; }

  /// X ← columns first, first + 1, ….
  void get(Index first, MatrixView<Scalar> X) const {
    write_blocks(X, first, [&](Index words, Scalar* x) __attribute__((always_inline)) {
      const Words upper = load(high_, words), lower = load(low_, words);
      store(x, (upper << half) + sign_extended_high(lower << half));
      store(x + lanes, (upper >> half << half) + sign_extended_high(lower));
    });
  }
  /// X ← the upper parts of columns first, first + 1, ….
  void get_high(Index first, MatrixView<Scalar> X) const {
    write_blocks(X, first, [&](Index words, Scalar* x) __attribute__((always_inline)) {
      const Words upper = load(high_, words);
      store(x, upper << half);
      store(x + lanes, upper >> half << half);
    });
  }
  /// Columns first, first + 1, … ← X.
  void set(Index first, MatrixView<const Scalar> X) {
    constexpr Word nearest = Word(1) << (half - 1);
    const auto put = [&](Index words, const Scalar* x) __attribute__((always_inline)) {
      const Words a = canonical_nan(load(x)), b = canonical_nan(load(x + lanes));
      store(high_.data() + words, ((a + nearest) >> half) | ((b + nearest) >> half << half));
      store(low_.data() + words, (a << half >> half) | (b << half));
    };
    for_blocks(X, first, put, [&](Index words, const Scalar* x, Index rows) {
      Scalar padded[size_of(block)] = {};
      std::copy_n(x, rows, padded);
      put(words, padded);
    });
  }

 private:
  template <class Number>
  static Words load(const Number* from) {
    Words words;
    std::memcpy(&words, from, sizeof words);
    return words;
  }
  static Words load(const Plane& plane, Index words) { return load(plane.data() + words); }
  template <class Number>
  static void store(Number* to, Words words) {
    std::memcpy(to, &words, sizeof words);
  }
  // The high half of a word, sign-extended.
  static Words sign_extended_high(Words x) { return std::bit_cast<Words>(Signed(std::bit_cast<Signed>(x) >> half)); }
  // Maps every NaN to the quiet NaN, which survives rounding to the high half.
  static Words canonical_nan(Words x) {
    constexpr Word infinity = std::bit_cast<Word>(std::numeric_limits<Scalar>::infinity()),
                   none = std::bit_cast<Word>(std::numeric_limits<Scalar>::quiet_NaN());
    if constexpr (lanes == 1)
      return (x << 1 >> 1) > infinity ? none : x;
    else
      return (x << 1 >> 1) > (Words{} + infinity) ? (Words{} + none) : x;
  }
  // Calls whole(words, x) for each full block of rows and part(words, x, rows) for the remainder; `words` is the offset
  // in the planes.
  template <class Columns, class Whole, class Part>
  void for_blocks(Columns X, Index first, const Whole& whole, const Part& part) const {
    for (Index k = 0; k < X.cols(); ++k) {
      auto* x = X.data() + k * X.outerStride();
      Index words = (first + k) * high_.rows(), left = rows_;
      for (; left >= block; left -= block, x += block, words += lanes) whole(words, x);
      if (left > 0) part(words, x, left);
    }
  }
  template <class F>
  void write_blocks(MatrixView<Scalar> X, Index first, const F& f) const {
    for_blocks(X, first, f, [&](Index words, Scalar* x, Index rows) {
      Scalar padded[size_of(block)];
      f(words, padded);
      std::copy_n(padded, rows, x);
    });
  }

  Index rows_ = 0;
  Plane high_, low_;  // a word has the halves of two rows, `lanes` apart
};

#pragma GCC diagnostic pop

}  // namespace SYMPOW_NAMESPACE::detail
