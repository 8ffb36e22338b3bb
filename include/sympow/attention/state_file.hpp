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

/// A state file that cannot be read: absent, foreign, of another version, shape or type, truncated or damaged.
struct InvalidStateFile : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

namespace detail {

/// FNV-1a over bytes: to see damage, not attack.
inline std::uint64_t checksum(const std::string& bytes) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return hash;
}

inline constexpr std::array<char, 8> state_magic = {'S', 'Y', 'M', 'P', 'O', 'W', 'S', '\n'};
inline constexpr std::int64_t state_version = 2;
static_assert(std::endian::native == std::endian::little, "state files are little-endian, and this machine is not");

/// The fields of a state in the order of the file, to be written or read by `visit`.
template <class Scalar, class F, class Visitor>
void visit_state(State<Scalar, F>& state, Visitor&& visit) {
  Frames<Scalar>& frames = StateParts::frames(state);
  visit(frames.tokens, "tokens");
  visit(frames.log_decay, "log_decay");
  visit(frames.log_channels, "log_channels");
  visit(frames.key_product, "key product");
  visit(frames.start.angles, "start angles");
  visit(frames.end.angles, "angles");
  StateParts::sums(state).visit(visit);
  StateParts::tail(state).visit(visit);
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

  // Angles and the key product are there or not, as the file says; every other shape is the target's.
  template <class Derived>
  void operator()(Eigen::PlainObjectBase<Derived>& x, const char* name) {
    Index rows = 0, cols = 0;
    operator()(rows, name);
    operator()(cols, name);
    const std::string field = name;
    if ((field.ends_with("angles") && cols == 1 && 0 <= rows && rows <= d_ / 2) ||
        (field == "key product" && rows == d_ && cols == d_) || (field.starts_with("absolute weights") && rows == d_))
      resize_anew(x.derived(), rows, cols);
    if (rows != x.rows() || cols != x.cols())
      raise<InvalidStateFile>("state file: ", name, " is ", rows, " x ", cols, ", must be ", x.rows(), " x ", x.cols());
    take(x.derived().data(), static_cast<std::size_t>(x.size()) * sizeof(typename Derived::Scalar), name);
  }

  [[nodiscard]] bool at_end() const { return position_ == bytes_.size(); }

 private:
  void take(void* target, std::size_t size, const char* name) {
    if (bytes_.size() - position_ < size) raise<InvalidStateFile>("state file: it ends inside of ", name);
    if (size > 0) std::memcpy(target, bytes_.data() + position_, size);
    position_ += size;
  }
  const std::string& bytes_;
  std::size_t position_ = 0;
  Index d_;
};

/// Whether the fields are those of some state: sizes that fit, decays that are logarithms of at most 1, weights and angles that are
/// numbers.
template <class Scalar, class F>
bool plausible(State<Scalar, F>& state) {
  const auto all = [](const auto& x, const auto& is_right) {
    return std::all_of(x.data(), x.data() + x.size(), is_right);
  };
  const auto is_decay = [](double x) { return x <= 0; };
  const auto is_finite = [](double x) { return std::isfinite(x); };
  const auto is_weight = [](double x) { return !(x < 0); };
  const auto is_exponent = [](double x) { return x < -no_weight; };
  const Frames<Scalar>& frames = StateParts::frames(state);
  const FoldedSums<Scalar>& sums = StateParts::sums(state);
  Tail<Scalar>& tail = StateParts::tail(state);
  return frames.tokens >= tail.size() && is_decay(frames.log_decay) && all(frames.log_channels, is_decay) &&
         all(frames.start.angles, is_finite) && all(frames.end.angles, is_finite) &&
         (keys_are_features<F> || frames.key_product.size() == 0) && is_weight(sums.A) &&
         all(sums.channel_weights, is_weight) && is_exponent(sums.L) && is_decay(sums.log_decay) &&
         all(sums.log_channels, is_decay) && tail.size() >= 0 && tail.has_room_for(0) && all(tail.log_b(), is_decay) &&
         all(tail.exponents(), is_exponent);
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
///     8 bytes "SYMPOWS\n" · int64 version (2) · int64 bytes of a scalar · int64 degree P · int64 feature dimension D · int64 d · int64 e ·
///     int64 tail · int64 bytes of the body · uint64 FNV-1a of the body · the body: the fields in the order of `detail::visit_state`, a number as
///     8 bytes, a matrix as int64 rows, int64 columns and its entries column by column
///
/// A reader accepts its own version only; a field that is added raises the version, and a version once released is read by all later
/// ones. Of the feature map its degree is stored, 1 where it is no power, or the fingerprint of one that has it, and D. Throws `InvalidStateFile` if the stream fails, `InterruptedState`.
template <class Scalar, class F>
void save(const State<Scalar, F>& state, std::ostream& out) {
  detail::check_whole(state);
  State<Scalar, F> copy = state;
  detail::StateWriter head, body;
  detail::visit_state(copy, body);
  for (const Index value : {static_cast<Index>(detail::state_version), static_cast<Index>(sizeof(Scalar)),
                            static_cast<Index>(detail::identity_of(state.feature()).second),
                            state.feature().dimension(state.key_dimension()), state.key_dimension(),
                            state.value_dimension(), state.tail(), static_cast<Index>(body.bytes().size()),
                            static_cast<Index>(std::bit_cast<std::int64_t>(detail::checksum(body.bytes())))})
    head(value);
  out.write(detail::state_magic.data(), detail::state_magic.size());
  out << head.bytes() << body.bytes();
  if (!out.flush()) detail::raise<InvalidStateFile>("state file: cannot be written");
}

/// Reads a state into one of the same type and shape (d, e, tail). Throws `InvalidStateFile`, which says what is wrong; the state is
/// then as it was.
template <class Scalar, class F>
void load(State<Scalar, F>& state, std::istream& in) {
  std::array<char, 8> magic{};
  if (!in.read(magic.data(), magic.size()) || magic != detail::state_magic)
    detail::raise<InvalidStateFile>("state file: this is not one");
  std::array<std::int64_t, 9> head{};
  if (!in.read(reinterpret_cast<char*>(head.data()), sizeof head))
    detail::raise<InvalidStateFile>("state file: it ends inside of its head");
  const Index dimension = state.feature().dimension(state.key_dimension());
  const std::array<std::pair<const char*, std::int64_t>, 7> expected = {{{"version", detail::state_version},
                                                                         {"bytes of a scalar", sizeof(Scalar)},
                                                                         detail::identity_of(state.feature()),
                                                                         {"feature dimension D", dimension},
                                                                         {"key dimension d", state.key_dimension()},
                                                                         {"value dimension e", state.value_dimension()},
                                                                         {"tail", state.tail()}}};
  for (std::size_t n = 0; n < expected.size(); ++n)
    if (head[n] != expected[n].second)
      detail::raise<InvalidStateFile>("state file: ", expected[n].first, " is ", head[n], ", must be ",
                                      expected[n].second);
  State<Scalar, F> loaded(state.feature(), state.key_dimension(), state.value_dimension(), state.tail());
  const std::int64_t d = state.key_dimension(), most = loaded.bytes() + 8 * (64 + 7 * (d + state.tail()) + d * d);
  if (head[7] < 0 || head[7] > most)
    detail::raise<InvalidStateFile>("state file: a body of ", head[7], " bytes cannot be this state's");
  std::string body(static_cast<std::size_t>(head[7]), '\0');
  if (!in.read(body.data(), static_cast<std::streamsize>(body.size())))
    detail::raise<InvalidStateFile>("state file: it ends inside of its body");
  if (detail::checksum(body) != std::bit_cast<std::uint64_t>(head[8]))
    detail::raise<InvalidStateFile>("state file: the checksum does not match");
  detail::StateReader reader(body, state.key_dimension());
  detail::visit_state(loaded, reader);
  if (!reader.at_end() || !detail::plausible(loaded))
    detail::raise<InvalidStateFile>("state file: its fields contradict each other");
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
