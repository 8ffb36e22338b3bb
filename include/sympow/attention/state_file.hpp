// States as files: versioned, with shape and checksum.
#pragma once

#include <array>
#include <bit>
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

namespace sympow {

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
inline constexpr std::int64_t state_version = 1;
static_assert(std::endian::native == std::endian::little && std::same_as<Index, std::int64_t>,
              "state files are little-endian with 64-bit sizes, and this machine is not");

/// The fields of a state in the order of the file, to be written or read by `visit`.
template <class Access, class Visitor>
void visit_state(Access& parts, Visitor&& visit) {
  visit(parts.tokens, "tokens");
  visit(parts.log_decay, "log_decay");
  visit(parts.log_channels, "log_channels");
  visit(parts.key_product, "key product");
  visit(parts.start.angles, "start angles");
  visit(parts.frame.angles, "angles");
  visit(parts.L, "exponent");
  visit(parts.A, "absolute weight");
  visit(parts.S, "S");
  visit(parts.Z, "Z");
  visit(parts.tail_size, "tail size");
  visit(parts.tail_log_decay, "tail decay");
  visit(parts.tail_log_channels, "tail channels");
  visit(parts.tail_exponents, "tail exponents");
  visit(parts.tail_log_b, "tail gates");
  visit(parts.tail_keys, "tail keys");
  visit(parts.tail_values, "tail values");
}

class StateWriter {
 public:
  void operator()(std::int64_t value, const char* = "") { append(&value, sizeof value); }
  void operator()(double value, const char*) { append(&value, sizeof value); }
  template <class Derived>
  void operator()(const Eigen::PlainObjectBase<Derived>& x, const char*) {
    operator()(static_cast<std::int64_t>(x.rows()));
    operator()(static_cast<std::int64_t>(x.cols()));
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

  void operator()(std::int64_t& value, const char* name = "") { take(&value, sizeof value, name); }
  void operator()(double& value, const char* name) { take(&value, sizeof value, name); }

  // Angles and the key product are there or not, as the file says; every other shape is the target's.
  template <class Derived>
  void operator()(Eigen::PlainObjectBase<Derived>& x, const char* name) {
    std::int64_t rows = 0, cols = 0;
    operator()(rows, name);
    operator()(cols, name);
    const bool is_angles = std::string(name).ends_with("angles"), is_product = name == std::string("key product");
    if ((is_angles && cols == 1 && 0 <= rows && rows <= d_ / 2) || (is_product && rows == d_ && cols == d_))
      x.resize(rows, cols);
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
template <class Access>
bool plausible(const Access& parts) {
  const auto all_decays = [](const auto& x) { return (x.array() <= 0).all(); };
  const auto all_finite = [](const auto& x) { return x.array().isFinite().all(); };
  const auto exponents = parts.tail_exponents.array();
  return parts.tokens >= 0 && parts.tail_size >= 0 && parts.tail_size <= parts.tail_keys.cols() && !(parts.A < 0) &&
         parts.L < -no_weight && parts.log_decay <= 0 && parts.tail_log_decay <= 0 && all_decays(parts.log_channels) &&
         all_decays(parts.tail_log_channels) && all_decays(parts.tail_log_b) && (exponents < -no_weight).all() &&
         all_finite(parts.start.angles) && all_finite(parts.frame.angles);
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
///     8 bytes "SYMPOWS\n" · int64 version (1) · int64 bytes of a scalar · int64 degree P · int64 feature dimension D · int64 d · int64 e ·
///     int64 tail · int64 bytes of the body · uint64 FNV-1a of the body · the body: the fields in the order of `detail::visit_state`, a number as
///     8 bytes, a matrix as int64 rows, int64 columns and its entries column by column
///
/// A reader accepts its own version only; a field that is added raises the version, and a version once released is read by all later
/// ones. Of the feature map its degree is stored, 1 where it is no power, or the fingerprint of one that has it, and D. Throws `InvalidStateFile` if the stream fails.
template <class Scalar, class F>
void save(const State<Scalar, F>& state, std::ostream& out) {
  State<Scalar, F> copy = state;
  detail::StateAccess<State<Scalar, F>> parts{copy};
  detail::StateWriter head, body;
  detail::visit_state(parts, body);
  for (const Index value :
       {static_cast<Index>(detail::state_version), static_cast<Index>(sizeof(Scalar)),
        static_cast<Index>(detail::identity_of(state.feature()).second), parts.S.cols(), state.key_dimension(),
        state.value_dimension(), state.tail(), static_cast<Index>(body.bytes().size()),
        static_cast<Index>(std::bit_cast<std::int64_t>(detail::checksum(body.bytes())))})
    head(static_cast<std::int64_t>(value));
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
  const std::int64_t d = state.key_dimension(), most = loaded.bytes() + 8 * (64 + 6 * (d + state.tail()) + d * d);
  if (head[7] < 0 || head[7] > most)
    detail::raise<InvalidStateFile>("state file: a body of ", head[7], " bytes cannot be this state's");
  std::string body(static_cast<std::size_t>(head[7]), '\0');
  if (!in.read(body.data(), static_cast<std::streamsize>(body.size())))
    detail::raise<InvalidStateFile>("state file: it ends inside of its body");
  if (detail::checksum(body) != std::bit_cast<std::uint64_t>(head[8]))
    detail::raise<InvalidStateFile>("state file: the checksum does not match");
  detail::StateAccess<State<Scalar, F>> parts{loaded};
  detail::StateReader reader(body, state.key_dimension());
  detail::visit_state(parts, reader);
  const bool can_mix = detail::keys_are_features<F>;
  if (!reader.at_end() || !detail::plausible(parts) || (!can_mix && parts.key_product.size() != 0))
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

}  // namespace sympow
