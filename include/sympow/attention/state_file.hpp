// States as files: versioned, with shape and checksum.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
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

namespace SYMPOW_NAMESPACE {

namespace detail {

/// FNV-1a over bytes: to see damage, not attack.
inline std::uint64_t checksum(const std::string& bytes) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return hash;
}

inline constexpr std::array<char, 8> state_magic = {'S', 'Y', 'M', 'P', 'O', 'W', 'S', '\n'};
inline constexpr std::int64_t state_version = 4;
static_assert(std::endian::native == std::endian::little, "state files are little-endian, and this machine is not");

/// The fields of a state in the order of the file, to be written or read by `visit`.
template <class Scalar, class F, class Visitor>
void visit_state(State<Scalar, F>& state, Visitor&& visit) {
  StateContent<Scalar>& content = StateAccess::content(state);
  Frames<Scalar>& frames = content.frames;
  visit(frames.tokens, "tokens");
  visit(frames.log_decay, "log_decay");
  visit(frames.log_channels, "log_channels");
  visit(frames.key_product, "key product");
  visit(frames.start, "start frame");
  visit(frames.end, "frame");
  StateSums<Scalar>& sums = content.sums;
  sums.make_dense();
  visit(sums.L, "exponent");
  visit(sums.A, "absolute weight");
  visit(sums.channel_weights, "absolute weights of channels");
  visit(sums.S, "S");
  visit(sums.Z, "Z");
  visit(sums.elapsed.high, "decay since the last fold");
  visit(sums.elapsed.low, "rest of the decay since the last fold");
  visit(sums.log_channels, "decay of channels since the last fold");
  visit(sums.recent.size, "tail size");
  const Index n = sums.recent.size;
  if (n < 0 || n > sums.recent.capacity()) return;  // what follows cannot be understood
  const auto visit_part = [&](auto part, const char* name) {
    Matrix<typename decltype(part)::Scalar> copy = part;
    visit(copy, name);
    part = copy;
  };
  visit_part(ColumnView<double>(sums.recent.exponents).head(n), "tail exponents");
  visit_part(ColumnView<Scalar>(sums.recent.fractions).head(n), "tail fractions");
  visit_part(MatrixView<Scalar>(sums.recent.keys).leftCols(n), "tail keys");
  visit_part(MatrixView<Scalar>(sums.recent.values).leftCols(n), "tail values");
  sums.recent.extent = measure_extent<Scalar>(MatrixView<Scalar>(sums.recent.values).leftCols(n));
}

class StateWriter {
 public:
  void operator()(Index value, const char* = "") { put(value); }
  void put(std::int64_t value) { append(&value, sizeof value); }
  void operator()(double value, const char*) { append(&value, sizeof value); }
  template <class Derived>
  void operator()(const Eigen::PlainObjectBase<Derived>& x, const char*) {
    put(x.rows());
    put(x.cols());
    append(x.data(), static_cast<std::size_t>(x.size()) * sizeof(typename Derived::Scalar));
  }
  void operator()(const Frame& frame, const char*) {
    put(std::ssize(frame.kind()));
    append(frame.kind().data(), frame.kind().size());
    put(frame.size());
    append(frame.numbers().data(), static_cast<std::size_t>(frame.size()) * sizeof(double));
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void append(const void* data, std::size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
  }
  std::string bytes_;
};

class StateReader {
 public:
  StateReader(const std::string& bytes, Index key_dimension) : bytes_(bytes), d_(key_dimension) {}

  void operator()(Index& value, const char* name) {
    std::int64_t in_file = 0;
    take(&in_file, sizeof in_file, name);
    if (!std::in_range<Index>(in_file))
      raise<InvalidStateFile>("state file: ", name, " is ", in_file, ", which does not fit the index type");
    value = static_cast<Index>(in_file);
  }
  void operator()(double& value, const char* name) { take(&value, sizeof value, name); }

  // Any number of any kind: what they mean is the business of the transition, which looks at them when the state is
  // resumed.
  void operator()(Frame& frame, const char* name) {
    std::string kind(count_of(1, name), 0);
    take(kind.data(), kind.size(), name);
    const std::size_t count = count_of(sizeof(double), name);
    Eigen::VectorXd numbers(static_cast<Index>(count));
    take(numbers.data(), count * sizeof(double), name);
    if (kind == Frame::angles && numbers.size() > d_ / 2)
      raise<InvalidStateFile>("state file: ", name, " has ", numbers.size(), " angles, must have ", d_ / 2, " at most");
    frame.begin(kind, numbers);
  }

  // The key product and the weights of channels are there or not, as the file says; every other shape is the target's.
  template <class Derived>
  void operator()(Eigen::PlainObjectBase<Derived>& x, const char* name) {
    Index rows = 0, cols = 0;
    operator()(rows, name);
    operator()(cols, name);
    const std::string field = name;
    if ((field == "key product" && (rows == d_ || rows == 0) && (cols == d_ || cols == 0)) ||
        (field.starts_with("absolute weights") && rows == d_ && cols == 1)) {
      const auto entries_left = static_cast<Index>((bytes_.size() - position_) / sizeof(typename Derived::Scalar));
      if (rows > 0 && cols > entries_left / rows) raise<InvalidStateFile>("state file: it ends inside of ", name);
      resize_safely(x.derived(), rows, cols);
    }
    if (rows != x.rows() || cols != x.cols())
      raise<InvalidStateFile>("state file: ", name, " is ", rows, " x ", cols, ", must be ", x.rows(), " x ", x.cols());
    take(x.derived().data(), static_cast<std::size_t>(x.size()) * sizeof(typename Derived::Scalar), name);
  }

  [[nodiscard]] bool at_end() const { return position_ == bytes_.size(); }

 private:
  // A number of things of so many bytes each, which must be there.
  std::size_t count_of(std::size_t bytes, const char* name) {
    Index count = 0;
    operator()(count, name);
    const auto most = static_cast<Index>((bytes_.size() - position_) / bytes);
    if (count < 0 || count > most)
      raise<InvalidStateFile>("state file: ", name, " has the size ", count, ", must lie in 0 … ", most);
    return static_cast<std::size_t>(count);
  }
  void take(void* target, std::size_t size, const char* name) {
    if (bytes_.size() - position_ < size) raise<InvalidStateFile>("state file: it ends inside of ", name);
    if (size > 0) std::memcpy(target, bytes_.data() + position_, size);
    position_ += size;
  }
  const std::string& bytes_;
  std::size_t position_ = 0;
  Index d_;
};

/// Whether the fields are those of some state: sizes that fit, decays that are logarithms of at most 1, weights and
/// frames that are numbers.
template <class Scalar, class F>
bool plausible(State<Scalar, F>& state) {
  const auto all = [](const auto& x, const auto& is_right) {
    return std::all_of(x.data(), x.data() + x.size(), is_right);
  };
  const auto is_decay = [](double x) { return x <= 0; };
  const auto is_finite = [](double x) { return std::isfinite(x); };
  const auto is_weight = [](double x) { return !(x < 0); };
  // log2 of a power's weight b ‖k‖^P is P (range + log2 √d) at most, and values need half a range more.
  constexpr double range = std::numeric_limits<Scalar>::max_exponent, any = std::numeric_limits<double>::max(),
                   largest_exponent = F::score == Score::power ? (2 * degree_of<F> + 1) * range : any;
  const auto is_exponent = [](double x) { return x <= largest_exponent; };
  if (state.tokens() > std::numeric_limits<Index>::max() / 2) return false;  // more tokens must be countable
  const auto is_frame = [&](const Frame& frame) {
    return all(frame.numbers(), is_finite) && (frame.empty() || !frame.kind().empty());
  };
  const auto is_fraction = [](double x) { return .5 < x && x < 2; };
  auto& [sums, frames, interrupted] = StateAccess::content(state);
  const auto& recent = sums.recent;
  const double elapsed = sums.elapsed.log2();  // since time 0, from which the recent tokens count
  const auto is_recent_exponent = [&](double x) { return is_exponent(x + elapsed); };
  return recent.size >= 0 && recent.size <= recent.capacity() && frames.tokens >= recent.size &&
         is_decay(frames.log_decay) && all(frames.log_channels, is_decay) && is_frame(frames.start) &&
         is_frame(frames.end) && (keys_are_features<F> || frames.key_product.size() == 0) && is_weight(sums.A) &&
         all(sums.channel_weights, is_weight) && is_exponent(sums.L) && is_decay(sums.elapsed.high) &&
         is_finite(sums.elapsed.low) && all(sums.log_channels, is_decay) &&
         all(recent.exponents.head(recent.size), is_recent_exponent) &&
         all(recent.fractions.head(recent.size), is_fraction);
}

/// So many bytes, or as many as there are: memory follows what is there, whatever a head says.
inline std::string read_bytes(std::istream& in, std::int64_t size) {
  constexpr std::int64_t least = 1 << 14;
  std::string bytes;
  while (in && std::cmp_less(bytes.size(), size)) {
    const auto there = static_cast<std::int64_t>(bytes.size());
    const auto before = bytes.size(), wanted = static_cast<std::size_t>(std::min(std::max(there, least), size - there));
    bytes.resize(before + wanted);
    in.read(bytes.data() + before, static_cast<std::streamsize>(wanted));
    bytes.resize(before + static_cast<std::size_t>(in.gcount()));
  }
  return bytes;
}

/// What a file says of a feature map, and the name of that number.
template <FeatureMap F>
std::pair<const char*, std::int64_t> identity_of([[maybe_unused]] const F& feature) {
  if constexpr (requires { feature.fingerprint(); })
    return {"fingerprint of the feature map, of its kind, size and seed,", feature.fingerprint()};
  else
    return {"degree P", degree_of<F>};
}

}  // namespace detail

/// Writes a state. Format, little-endian:
///
///     8 bytes "SYMPOWS\n" · int64 version (4) · int64 bytes of a scalar · int64 degree P · int64 feature dimension D ·
///     int64 d · int64 e · int64 tail · int64 bytes of the body · uint64 FNV-1a of the body ·
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
  detail::check_whole(state);
  State<Scalar, F> copy = state;
  detail::StateWriter head, body;
  detail::visit_state(copy, body);
  for (const Index value : {static_cast<Index>(detail::state_version), static_cast<Index>(sizeof(Scalar)),
                            static_cast<Index>(detail::identity_of(state.feature()).second),
                            state.feature().dimension(state.key_dimension()), state.key_dimension(),
                            state.value_dimension(), state.tail_capacity(), static_cast<Index>(body.bytes().size()),
                            static_cast<Index>(std::bit_cast<std::int64_t>(detail::checksum(body.bytes())))})
    head(value);
  out.write(detail::state_magic.data(), detail::state_magic.size());
  out << head.bytes() << body.bytes();
  if (!out.flush()) detail::raise<InvalidStateFile>("state file: cannot be written");
}

/// Reads a state into one of the same type and shape (d, e, tail), which goes on reading S rounded if it did. Throws
/// `InvalidStateFile`, which says what is wrong; the state is then as it was.
template <class Scalar, class F>
void load(State<Scalar, F>& state, std::istream& in) {
  std::array<char, 8> magic{};
  if (!in.read(magic.data(), magic.size()) || magic != detail::state_magic)
    detail::raise<InvalidStateFile>("state file: this is not one");
  std::array<std::int64_t, 9> head{};
  if (!in.read(reinterpret_cast<char*>(head.data()), sizeof head))
    detail::raise<InvalidStateFile>("state file: it ends inside of its head");
  const Index dimension = state.feature().dimension(state.key_dimension());
  if (head[0] != detail::state_version)
    detail::raise<InvalidStateFile>("state file: version is ", head[0], ", must be ", detail::state_version);
  const std::array<std::pair<const char*, std::int64_t>, 6> expected = {{{"bytes of a scalar", sizeof(Scalar)},
                                                                         detail::identity_of(state.feature()),
                                                                         {"feature dimension D", dimension},
                                                                         {"key dimension d", state.key_dimension()},
                                                                         {"value dimension e", state.value_dimension()},
                                                                         {"tail", state.tail_capacity()}}};
  for (const auto n : std::initializer_list<std::size_t>{0, 1, 3, 4, 5, 2})  // D follows from d
    if (head[n + 1] != expected[n].second)
      detail::raise<InvalidStateFile>("state file: ", expected[n].first, " is ", head[n + 1], ", must be ",
                                      expected[n].second);
  State<Scalar, F> loaded(state.feature(), state.key_dimension(), state.value_dimension(), state.tail_capacity());
  if (head[7] < 0) detail::raise<InvalidStateFile>("state file: a body of ", head[7], " bytes cannot be this state's");
  const std::string body = detail::read_bytes(in, head[7]);
  if (std::cmp_not_equal(body.size(), head[7]))
    detail::raise<InvalidStateFile>("state file: it ends inside of its body");
  if (detail::checksum(body) != std::bit_cast<std::uint64_t>(head[8]))
    detail::raise<InvalidStateFile>("state file: the checksum does not match");
  detail::StateReader reader(body, state.key_dimension());
  detail::visit_state(loaded, reader);
  if (!reader.at_end() || !detail::plausible(loaded))
    detail::raise<InvalidStateFile>("state file: its fields contradict each other");
  loaded.read_as_bf16(state.reads_as_bf16());
  state = std::move(loaded);
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
