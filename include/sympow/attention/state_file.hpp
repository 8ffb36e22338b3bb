// States as files: versioned, with shape and checksum.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <istream>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <sympow/attention/state.hpp>
#include <sympow/core/checked_file.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {

inline constexpr std::array<char, 8> state_magic = {'S', 'Y', 'M', 'P', 'O', 'W', 'S', '\n'};
inline constexpr std::int64_t state_version = 5;

/// What a file says of a feature map, and the name of that number.
struct FeatureIdentity {
  const char* name;
  std::int64_t number;
  int degree;  ///< P of a power, else 0
};
template <FeatureMap F>
FeatureIdentity identity_of(const F& feature) {
  constexpr int degree = F::score == Score::power ? degree_of<F> : 0;
  if constexpr (requires { feature.fingerprint(); })
    return {"fingerprint of the feature map, of its kind, size and seed,", feature.fingerprint(), degree};
  else
    return {"degree P", degree_of<F>, degree};
}

/// The fields of a state in the order of the file, to be written or read by `visit(field, name, is_possible)`: sizes
/// that fit, decays that are logarithms of at most 1, weights and frames that are numbers.
template <class Scalar>
void visit_state(StateContent<Scalar>& content, int degree, auto& visit) {
  const auto is_finite = [](double x) { return std::isfinite(x); };
  const auto is_decay = [](double x) { return x <= 0; };
  const auto is_weight = [](double x) { return !(x < 0); };
  const auto is_fraction = [](double x) { return .5 < x && x < 2; };
  const auto is_any = [](double) { return true; };
  // log2 of a power's weight b ‖k‖^P is P (range + log2 √d) at most, and values need half a range more.
  constexpr double range = std::numeric_limits<Scalar>::max_exponent, any = std::numeric_limits<double>::max();
  const double largest_exponent = degree > 0 ? (2 * degree + 1) * range : any;
  const auto is_exponent = [&](double x) { return x <= largest_exponent; };
  Frames<Scalar>& frames = content.frames;
  constexpr Index most = std::numeric_limits<Index>::max() / 2;  // more tokens must be countable
  visit(frames.tokens, "tokens", [](Index n) { return 0 <= n && n <= most; });
  visit(frames.log_decay, "log_decay", is_decay);
  visit(frames.log_channels, "log_channels", is_decay);
  visit(frames.key_product, "key product", [&](double) { return degree == 1; });  // φ(x) = x
  visit(frames.start, "start frame", is_finite);
  visit(frames.end, "frame", is_finite);
  StateSums<Scalar>& sums = content.sums;
  RecentTokens<Scalar>& recent = sums.recent;
  sums.make_dense();
  visit(sums.L, "exponent", is_exponent);
  visit(sums.A, "absolute weight", is_weight);
  visit(sums.channel_weights, "absolute weights of channels", is_weight);
  visit(sums.S, "S", is_any);
  visit(sums.Z, "Z", is_any);
  visit(sums.elapsed.high, "decay since the last fold", is_decay);
  visit(sums.elapsed.low, "rest of the decay since the last fold", is_finite);
  visit(sums.log_channels, "decay of channels since the last fold", is_decay);
  visit(recent.size, "tail size", [&](Index n) { return 0 <= n && n <= std::min(recent.capacity(), frames.tokens); });
  const Index n = recent.size;
  const auto visit_part = [&](auto part, const char* name, const auto& is_possible) {
    Matrix<typename decltype(part)::Scalar> copy = part;
    visit(copy, name, is_possible);
    part = copy;
  };
  visit_part(ColumnView<double>(recent.exponents).head(n), "tail exponents",
             [&](double x) { return is_exponent(x + sums.elapsed.log2()); });
  visit_part(ColumnView<Scalar>(recent.fractions).head(n), "tail fractions", is_fraction);
  visit_part(MatrixView<Scalar>(recent.keys).leftCols(n), "tail keys", is_any);
  visit_part(MatrixView<Scalar>(recent.values).leftCols(n), "tail values", is_any);
  recent.extent = measure_extent<Scalar>(MatrixView<Scalar>(recent.values).leftCols(n));
}

/// The body of a state file: fields that are visited are appended to it, or read from it.
class StateBody {
 public:
  /// Of a state of keys in R^d, to be written, or these bytes, to be read.
  explicit StateBody(Index key_dimension) : d_(key_dimension) {}
  StateBody(Index key_dimension, std::string bytes) : bytes_(std::move(bytes)), d_(key_dimension), reads_(true) {}

  template <class Number, class IsPossible>
    requires std::is_arithmetic_v<Number>
  void operator()(Number& value, const char* name, const IsPossible& is_possible) {
    pass(value, name);
    require(is_possible(value), name);
  }

  // Any number of any kind: what they mean is the business of the transition, which looks at them when the state is
  // resumed.
  template <class IsPossible>
  void operator()(Frame& frame, const char* name, const IsPossible& is_possible) {
    std::string kind = frame.kind();
    std::vector<double> numbers(frame.numbers().begin(), frame.numbers().end());
    pass_list(kind, name), pass_list(numbers, name);
    if (kind == Frame::angles && std::ssize(numbers) > d_ / 2)
      raise<InvalidStateFile>("state file: ", name, " has ", numbers.size(), " angles, must have ", d_ / 2, " at most");
    require(std::ranges::all_of(numbers, is_possible) && (numbers.empty() || !kind.empty()), name);
    frame.begin(kind, Eigen::VectorXd::Map(numbers.data(), std::ssize(numbers)));
  }

  // The key product and the weights of channels are there or not, as the file says; every other shape is the target's.
  template <class Derived, class IsPossible>
  void operator()(Eigen::PlainObjectBase<Derived>& x, const char* name, const IsPossible& is_possible) {
    Index rows = x.rows(), cols = x.cols();
    pass(rows, name), pass(cols, name);
    const std::string field = name;
    if ((field == "key product" && (rows == d_ || rows == 0) && (cols == d_ || cols == 0)) ||
        (field.starts_with("absolute weights") && rows == d_ && cols == 1)) {
      if (reads_ && rows > 0 && cols > left<typename Derived::Scalar>() / rows)
        raise<InvalidStateFile>("state file: it ends inside of ", name);
      resize_safely(x.derived(), rows, cols);
    }
    if (rows != x.rows() || cols != x.cols())
      raise<InvalidStateFile>("state file: ", name, " is ", rows, " x ", cols, ", must be ", x.rows(), " x ", x.cols());
    pass(x.derived().data(), x.size(), name);
    require(std::all_of(x.derived().data(), x.derived().data() + x.size(), is_possible), name);
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] bool at_end() const { return position_ == bytes_.size(); }

 private:
  void require(bool is_possible, const char* name) const {
    if (reads_ && !is_possible) raise<InvalidStateFile>("state file: its fields contradict each other at ", name);
  }
  // As many numbers as are left to be read.
  template <class T>
  [[nodiscard]] Index left() const {
    return static_cast<Index>((bytes_.size() - position_) / sizeof(T));
  }
  template <class T>
  void pass(T* x, Index n, const char* name) {
    if (n == 0) return;
    const std::size_t size = static_cast<std::size_t>(n) * sizeof(T);
    if (!reads_) return bytes_.append(reinterpret_cast<const char*>(x), size), void();
    if (n > left<T>()) raise<InvalidStateFile>("state file: it ends inside of ", name);
    std::memcpy(x, bytes_.data() + position_, size);
    position_ += size;
  }
  void pass(double& value, const char* name) { pass(&value, 1, name); }
  void pass(Index& value, const char* name) {
    std::int64_t in_file = value;
    pass(&in_file, 1, name);
    if (!std::in_range<Index>(in_file))
      raise<InvalidStateFile>("state file: ", name, " is ", in_file, ", which does not fit the index type");
    value = static_cast<Index>(in_file);
  }
  // A number of things, and these.
  template <class List>
  void pass_list(List& x, const char* name) {
    Index count = std::ssize(x);
    pass(count, name);
    if (const Index most = left<typename List::value_type>(); reads_ && (count < 0 || count > most))
      raise<InvalidStateFile>("state file: ", name, " has the size ", count, ", must lie in 0 … ", most);
    x.resize(static_cast<std::size_t>(count));
    pass(x.data(), count, name);
  }

  std::string bytes_;
  std::size_t position_ = 0;
  Index d_;
  bool reads_ = false;
};

/// See `save`.
template <class Scalar>
void save_state(StateContent<Scalar> state, const FeatureIdentity& feature, std::ostream& out) {
  check_whole(state);
  const StateSums<Scalar>& sums = state.sums;
  StateBody body(state.key_dimension());
  visit_state(state, feature.degree, body);
  write_file(out, "state file", state_magic,
             {state_version, sizeof(Scalar), feature.number, sums.Z.size(), state.key_dimension(), sums.value_rows(),
              sums.recent.capacity()},
             body.bytes());
}
/// See `load`.
template <class Scalar>
void load_state(StateContent<Scalar>& state, const FeatureIdentity& feature, std::istream& in) {
  const Index d = state.key_dimension(), e = state.sums.value_rows(), tail = state.sums.recent.capacity();
  std::array<std::int64_t, 7> head{};
  std::string bytes = read_file(in, "state file", state_magic, head,
                                {{0, "version", state_version},
                                 {1, "bytes of a scalar", sizeof(Scalar)},
                                 {2, feature.name, feature.number},
                                 {4, "key dimension d", d},
                                 {5, "value dimension e", e},
                                 {6, "tail", tail},
                                 {3, "feature dimension D", state.sums.Z.size()}});  // which follows from d
  StateContent<Scalar> loaded = empty_state<Scalar>(state.sums.Z.size(), d, e, tail);
  StateBody body(d, std::move(bytes));
  visit_state(loaded, feature.degree, body);
  if (!body.at_end()) raise<InvalidStateFile>("state file: its fields contradict each other");
  if (state.sums.is_split()) loaded.sums.split_up();
  state = std::move(loaded);
}

}  // namespace detail

/// Writes a state. Format, little-endian:
///
///     8 bytes "SYMPOWS\n" · int64 version (5) · int64 bytes of a scalar · int64 degree P · int64 feature dimension D ·
///     int64 d · int64 e · int64 tail · int64 bytes of the body · uint64 checksum of the body ·
///     the body: the fields in the order of `detail::visit_state`
///
///     a number    8 bytes
///     a matrix    int64 rows · int64 columns · its entries column by column
///     a frame     int64 bytes of the name of its kind · the name · int64 numbers · the numbers
///
/// A field that is added raises the version, and a file of another version is refused. Of the feature map its degree is
/// stored, 1 where it is no power, or the fingerprint of one that has it, and D. Throws
/// `InvalidStateFile` if the stream fails, `InterruptedState`.
template <class Scalar, class F>
void save(const State<Scalar, F>& state, std::ostream& out) {
  detail::save_state(detail::StateAccess::content(state), detail::identity_of(state.feature()), out);
}

/// Reads a state into one of the same type and shape (d, e, tail), which goes on reading S rounded if it did. Throws
/// `InvalidStateFile`, which says what is wrong; the state is then as it was.
template <class Scalar, class F>
void load(State<Scalar, F>& state, std::istream& in) {
  detail::load_state(detail::StateAccess::content(state), detail::identity_of(state.feature()), in);
}

/// The same by the name of a file.
template <class Scalar, class F>
void save(const State<Scalar, F>& state, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  if (!out) detail::raise<InvalidStateFile>("state file: cannot write ", path);
  save(state, out);
}
/// The same by the name of a file.
template <class Scalar, class F>
void load(State<Scalar, F>& state, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) detail::raise<InvalidStateFile>("state file: cannot read ", path);
  try {
    load(state, in);
  } catch (const InvalidStateFile& error) {
    detail::raise<InvalidStateFile>(path, ": ", error.what());
  }
}

}  // namespace SYMPOW_NAMESPACE
