// A matrix whose numbers lie in two planes: their upper halves, and what these lack.
#pragma once

#include <cstring>

#include <sympow/core/packet_of_bits.hpp>
#include <sympow/core/view.hpp>

namespace SYMPOW_NAMESPACE::detail {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"  // of a packet as a template argument

/// The upper halves of numbers: of two packets, one below the other, each pair of numbers in one word.
template <class Scalar>
class UpperHalves {
  using Packet = packets::Packet<Scalar>;
  using Word = Bits<Scalar>;
  using Words = typename PacketOfBits<Scalar>::type;
  static constexpr int half = 4 * sizeof(Word);

 public:
  static constexpr Index lanes = packets::lanes<Scalar>, block = 2 * lanes;  // rows to a packet of words
  static constexpr bool is_padded = true;                                    // to whole blocks

  UpperHalves(const Word* data, Index right) : data_(data), right_(right) {}
  /// From a row and a column on; the row is the first of a block.
  [[nodiscard]] UpperHalves at(Index i, Index k) const { return {data_ + i / 2 + k * right_, right_}; }
  /// So many packets of the first column, an even number.
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

/// A matrix of numbers x = upper + lower, where upper is x rounded to the upper half of its bits: of a float a bf16,
/// off by 2^-8 |x| at most, of a double by 2^-21 |x|; of denormals by as much of the smallest normal number, and
/// infinite from so near to the largest number on. The planes are as large as the matrix, its rows filled up to a whole
/// number of blocks. Who reads one plane moves half the bytes, and nothing is lost. What is no number stays none,
/// whatever its bits.
template <class Scalar>
class HalvedMatrix {
  using Packet = packets::Packet<Scalar>;
  using Word = Bits<Scalar>;
  using Words = typename PacketOfBits<Scalar>::type;
  using Signed = typename PacketOfBits<Scalar, std::make_signed_t<Word>>::type;
  using Plane = Eigen::Matrix<Word, Dynamic, Dynamic>;
  static constexpr int half = 4 * sizeof(Word);
  static constexpr Index lanes = UpperHalves<Scalar>::lanes, block = UpperHalves<Scalar>::block;

 public:
  HalvedMatrix() = default;
  /// A matrix of zeros.
  HalvedMatrix(Index rows, Index cols) : rows_(rows) {
    for (Plane* plane : {&upper_, &lower_}) plane->setZero((rows + block - 1) / block * lanes, cols);
  }

  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index cols() const { return upper_.cols(); }
  [[nodiscard]] bool empty() const { return upper_.cols() == 0; }
  /// Numbers that its memory could hold, what fills rows up included.
  [[nodiscard]] Index size() const { return upper_.size() + lower_.size(); }
  void set_zero() {
    upper_.setZero();
    lower_.setZero();
  }

  /// The upper halves of all columns.
  [[nodiscard]] UpperHalves<Scalar> upper() const { return {upper_.data(), upper_.rows()}; }

  /// X ← some columns.
  void get(Index first, MatrixView<Scalar> X) const {
    write_blocks(X, first, [&](Index words, Scalar* x) __attribute__((always_inline)) {
      const Words upper = load(upper_, words), lower = load(lower_, words);
      store(x, (upper << half) + extended(lower << half));
      store(x + lanes, (upper >> half << half) + extended(lower));
    });
  }
  /// X ← their upper halves.
  void get_upper(Index first, MatrixView<Scalar> X) const {
    write_blocks(X, first, [&](Index words, Scalar* x) __attribute__((always_inline)) {
      const Words upper = load(upper_, words);
      store(x, upper << half);
      store(x + lanes, upper >> half << half);
    });
  }
  /// Some columns ← X.
  void set(Index first, MatrixView<const Scalar> X) {
    constexpr Word nearest = Word(1) << (half - 1);
    const auto put = [&](Index words, const Scalar* x) __attribute__((always_inline)) {
      const Words a = a_number(load(x)), b = a_number(load(x + lanes));
      store(upper_.data() + words, ((a + nearest) >> half) | ((b + nearest) >> half << half));
      store(lower_.data() + words, (a << half >> half) | (b << half));
    };
    for_blocks(X, first, put, [&](Index words, const Scalar* x, Index rows) {
      Scalar filled[size_of(block)] = {};
      std::copy_n(x, rows, filled);
      put(words, filled);
    });
  }

 private:
  template <class Number>
  static Words load(const Number* from) {
    Words some;
    std::memcpy(&some, from, sizeof some);
    return some;
  }
  static Words load(const Plane& plane, Index words) { return load(plane.data() + words); }
  template <class Number>
  static void store(Number* to, Words some) {
    std::memcpy(to, &some, sizeof some);
  }
  // The upper half of a word as a signed number.
  static Words extended(Words x) { return std::bit_cast<Words>(Signed(std::bit_cast<Signed>(x) >> half)); }
  // What is no number has an upper half that is none, which rounding leaves alone.
  static Words a_number(Words x) {
    constexpr Word infinity = std::bit_cast<Word>(std::numeric_limits<Scalar>::infinity()),
                   none = std::bit_cast<Word>(std::numeric_limits<Scalar>::quiet_NaN());
    if constexpr (lanes == 1)
      return (x << 1 >> 1) > infinity ? none : x;
    else
      return (x << 1 >> 1) > (Words{} + infinity) ? (Words{} + none) : x;
  }
  // whole(words, x) for blocks of rows of columns, from the words of the planes on, or part(words, x, rows).
  template <class Columns, class Whole, class Part>
  void for_blocks(Columns X, Index first, const Whole& whole, const Part& part) const {
    for (Index k = 0; k < X.cols(); ++k) {
      auto* x = X.data() + k * X.outerStride();
      Index words = (first + k) * upper_.rows(), left = rows_;
      for (; left >= block; left -= block, x += block, words += lanes) whole(words, x);
      if (left > 0) part(words, x, left);
    }
  }
  template <class F>
  void write_blocks(MatrixView<Scalar> X, Index first, const F& f) const {
    for_blocks(X, first, f, [&](Index words, Scalar* x, Index rows) {
      Scalar filled[size_of(block)];
      f(words, filled);
      std::copy_n(filled, rows, x);
    });
  }

  Index rows_ = 0;
  Plane upper_, lower_;  // a word has the halves of two rows, `lanes` apart
};

#pragma GCC diagnostic pop

/// Columns of a matrix that are read: some of them whole, or all by their upper halves.
template <class Scalar>
struct ColumnsRead {
  MatrixView<const Scalar> whole;  ///< else none
  const HalvedMatrix<Scalar>* halves = nullptr;
};

}  // namespace SYMPOW_NAMESPACE::detail
