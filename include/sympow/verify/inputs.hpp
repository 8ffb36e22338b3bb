// The inputs of a statement that is decided exactly: drawn at random, or those of a given case.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sympow/core/exact_scalar.hpp>
#include <sympow/core/random.hpp>
#include <sympow/exact/enclosure.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// An input of a case, or a vector or matrix of inputs.
struct Input {
  /// n/d.
  struct Entry {
    long n = 0;  ///< of either sign
    long d = 1;  ///< above 0
  };
  std::string name;                 ///< by which the statement asks for it
  Index rows = 1;                   ///< of a matrix
  Index columns = 1;                ///< likewise
  long lowest = 0;                  ///< what may be drawn
  long highest = 0;                 ///< at most
  std::vector<Entry> entries = {};  ///< by columns
};

/// A size of a case.
struct Size {
  std::string name;  ///< by which the statement asks for it
  Index value = 1;   ///< what it is
  Index least = 1;   ///< the smallest that means anything
};

/// What a statement was evaluated at.
struct Case {
  std::vector<Size> sizes;    ///< in the order in which they were asked for
  std::vector<Input> inputs;  ///< likewise
  bool certified = false;     ///< real numbers were enclosed
  std::string scope = {};     ///< what of a statement is decided, where that is not all of its words
};

/// How inputs are drawn.
struct Draw {
  long largest = 99;      ///< numerators lie in -largest … largest
  long denominators = 9;  ///< and denominators in 1 … this
  int zeros_in_four = 0;  ///< how many of four entries are 0
  std::size_t round = 0;  ///< which of the sizes of each name, 0 the first
};

/// Thrown by `Inputs::require`: the case is none of the statement's.
struct NoCase {};

/// What a statement is a function of. It asks for sizes and inputs by name, and says what must be equal.
///
///     const auto binomial = [](auto& x) {           // (a + b)² = a² + b², which is false
///       const auto a = x.number("a"), b = x.number("b");
///       x.equal((a + b) * (a + b), a * a + b * b);
///     };
///
/// The first difference stays.
template <ExactScalar S>
class Inputs {
 public:
  using Scalar = S;

  /// Two sides that are not equal.
  struct Difference {
    S left;             ///< one side
    S right;            ///< the other
    std::string words;  ///< what they are, where the statement says so
  };

  /// Inputs drawn at random; sizes that are given here are not chosen.
  Inputs(Random& random, const Draw& draw, std::map<std::string, Index> sizes = {})
      : random_(&random), draw_(draw), sizes_(std::move(sizes)) {}
  /// Those of a case. Throws `NoCase` if the statement asks for others.
  explicit Inputs(const Case& given) : given_(&given) {}

  /// One of some sizes, by the round; the smallest that means anything is `least`.
  [[nodiscard]] Index size(const std::string& name, std::initializer_list<Index> sizes, Index least = 1) {
    if (sizes.size() == 0 || least < 1)
      sympow::detail::raise<InvalidArgument>("Inputs: size ", name, " must have values, the smallest at least 1");
    for (const Size& known : used_.sizes)
      if (known.name == name) return known.value;
    Index value = std::data(sizes)[std::min(draw_.round, sizes.size() - 1)];
    if (given_ != nullptr)
      for (const Size& size : given_->sizes)
        if (size.name == name) value = size.value;
    if (const auto fixed = sizes_.find(name); fixed != sizes_.end()) value = fixed->second;
    rounds_ = std::max(rounds_, sizes.size());
    used_.sizes.push_back({name, value, least});
    return value;
  }

  /// A rational number.
  [[nodiscard]] S number(const std::string& name) { return matrix(name, 1, 1)(0, 0); }
  /// A rational vector.
  [[nodiscard]] Vector<S> vector(const std::string& name, Index n) { return matrix(name, n, 1); }
  /// A rational matrix.
  [[nodiscard]] Matrix<S> matrix(const std::string& name, Index rows, Index columns) {
    const Input& input = next({name, rows, columns, -draw_.largest, draw_.largest}, draw_.denominators);
    Matrix<S> values(rows, columns);
    for (Index n = 0; n < values.size(); ++n) {
      const auto [top, bottom] = input.entries[static_cast<std::size_t>(n)];
      values.data()[n] = S(top) / S(bottom);
    }
    return values;
  }
  /// An integer in low … high.
  [[nodiscard]] Index integer(const std::string& name, Index low, Index high) {
    return integers(name, 1, 1, low, high)(0, 0);
  }

  /// A matrix of integers in low … high.
  [[nodiscard]] Matrix<Index> integers(const std::string& name, Index rows, Index columns, Index low, Index high) {
    require(low <= high);
    const Input& input = next({name, rows, columns, low, high}, 1);
    Matrix<Index> values(rows, columns);
    for (Index n = 0; n < values.size(); ++n) values.data()[n] = input.entries[static_cast<std::size_t>(n)].n;
    return values;
  }

  /// Says what of a statement is decided, where that is not all of its words: "the scores".
  void about(const std::string& scope) { used_.scope = scope; }
  /// Leaves the case out unless a condition of the statement holds.
  static void require(bool condition) {
    if (!condition) throw NoCase{};
  }
  /// Two numbers that must be equal.
  void equal(const S& left, const S& right, const std::string& words = {}) { is(left == right, left, right, words); }
  /// Two matrices or vectors that must be equal.
  template <MatrixExpression X, MatrixExpression Y>
  void equal(const X& left, const Y& right, const std::string& words = {}) {
    const Matrix<S> a = left, b = right;
    if (a.rows() != b.rows()) differ(S(a.rows()), S(b.rows()), "rows");
    if (a.cols() != b.cols()) differ(S(a.cols()), S(b.cols()), "columns");
    for (Index n = 0; n < std::min(a.size(), b.size()); ++n) equal(a.data()[n], b.data()[n], words);
  }
  /// a ≤ b; if not, a is shown beside b.
  void at_most(const S& a, const S& b, const std::string& words = {}) { is(a <= b, a, b, words); }
  /// A condition that must hold.
  void is(bool so, const std::string& words = {}) { equal(S(so ? 1 : 0), S(1), words); }
  /// A condition on two numbers, which are shown if it fails.
  void is(bool so, const S& left, const S& right, const std::string& words = {}) {
    compares_ = true;
    if (!so) differ(left, right, words);
  }

#ifdef SYMPOW_HAS_RATIONAL
  /// Two real numbers that must be equal: their enclosures meet and are narrower than 10^-20. Leaves wider ones out.
  void meet(const exact::Enclosure& left, const exact::Enclosure& right, const std::string& words = {}) {
    used_.certified = compares_ = true;
    if (!left.meets(right)) return differ(left, right, words);
    const Rational narrow = Rational(1, 10000000000) * Rational(1, 10000000000);
    require(left.width() < narrow && right.width() < narrow);
  }
  /// a ≤ b for two real numbers. Leaves cases out whose enclosures overlap.
  void at_most(const exact::Enclosure& a, const exact::Enclosure& b, const std::string& words = {}) {
    used_.certified = compares_ = true;
    if (b.high < a.low) return differ(a, b, words);
    require(a.high <= b.low);
  }
#endif

  [[nodiscard]] const std::optional<Difference>& difference() const { return difference_; }  ///< the first
  [[nodiscard]] const Case& used() const { return used_; }      ///< sizes and inputs that were asked for
  [[nodiscard]] bool compares() const { return compares_; }     ///< whether anything was compared
  [[nodiscard]] std::size_t rounds() const { return rounds_; }  ///< the largest number of sizes of one name

 private:
  void differ(const S& left, const S& right, const std::string& words) {
    if (!difference_) difference_ = Difference{left, right, words};
  }
#ifdef SYMPOW_HAS_RATIONAL
  /// The middles, to six decimals where that shows a difference.
  void differ(const exact::Enclosure& left, const exact::Enclosure& right, const std::string& words) {
    const auto middle = [](const exact::Enclosure& x) { return (x.low + x.high) / Rational(2); };
    const auto rounded = [](const Rational& x) {
      return abs(x) < Rational(1000000000) ? Rational(std::lround(1e6 * x.to_double()), 1000000) : x;
    };
    const Rational a = rounded(middle(left)), b = rounded(middle(right));
    if (a == b) return differ(middle(left), middle(right), words);
    differ(a, b, words);
  }
#endif
  const Input& next(Input input, long denominators) {
    const std::size_t n = used_.inputs.size();
    if (input.rows < 0 || input.columns < 0)
      sympow::detail::raise<InvalidArgument>("Inputs: ", input.name, " is ", input.rows, " x ", input.columns);
    input.entries.resize(static_cast<std::size_t>(input.rows * input.columns));
    if (given_ != nullptr) {
      if (n >= given_->inputs.size()) throw NoCase{};
      const Input& same = given_->inputs[n];
      if (same.name != input.name || same.entries.size() != input.entries.size()) throw NoCase{};
      for (const Input::Entry& entry : same.entries)
        if (entry.n < input.lowest || entry.n > input.highest) throw NoCase{};
      input.entries = same.entries;
    } else {
      for (Input::Entry& entry : input.entries) {
        if (draw_.zeros_in_four > 0 && random_->integer(1, 4) <= draw_.zeros_in_four && input.lowest <= 0 &&
            0 <= input.highest)
          continue;
        entry = {random_->integer(input.lowest, input.highest), random_->integer(1, denominators)};
      }
    }
    return used_.inputs.emplace_back(std::move(input));
  }

  Random* random_ = nullptr;
  Draw draw_ = {};
  std::map<std::string, Index> sizes_ = {};
  const Case* given_ = nullptr;
  Case used_ = {};
  std::size_t rounds_ = 1;
  bool compares_ = false;
  std::optional<Difference> difference_ = {};
};

}  // namespace SYMPOW_NAMESPACE::verify
