// What layers remember, as files: a layer goes on in another run of a program where it stopped in this one.
#pragma once

#include <sstream>

#include <sympow/attention/state_file.hpp>
#include <sympow/layer/layer_state.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {
inline constexpr std::array<char, 8> layer_state_magic = {'S', 'Y', 'M', 'P', 'O', 'W', 'L', '\n'};
inline constexpr std::int64_t layer_state_version = 1;
}  // namespace detail

/// Writes what a layer remembers. Format, little-endian:
///
///     8 bytes "SYMPOWL\n" · int64 version (1) · int64 bytes of a scalar · int64 sequences · int64 states ·
///     int64 seen numbers of a token · int64 tokens · int64 bytes of the body · uint64 FNV-1a of the body · the body
///
/// The body is the states as `save` writes each of them, 0 seen numbers of a token beside them; or without states the
/// seen numbers, token by token, of one sequence after the other. Throws `InvalidStateFile` if the stream fails, and
/// what `save` of a state throws.
template <class Scalar, class L>
void save(const LayerState<Scalar, L>& state, std::ostream& out) {
  std::ostringstream stream;
  std::int64_t states = 0;
  if constexpr (LayerState<Scalar, L>::is_constant) {
    states = std::ssize(state.states_);
    for (const auto& of_head : state.states_) save(of_head, stream);
  } else {
    const Index capacity = state.seen_.cols() / state.sequences_;
    for (Index b = 0; b < state.sequences_; ++b)
      stream.write(reinterpret_cast<const char*>(state.seen_.data() + b * capacity * state.seen_.rows()),
                   state.tokens_ * state.seen_.rows() * static_cast<std::streamsize>(sizeof(Scalar)));
  }
  const std::string body = std::move(stream).str();
  out.write(detail::layer_state_magic.data(), detail::layer_state_magic.size());
  detail::StateWriter head;
  for (const std::int64_t value :
       {detail::layer_state_version, static_cast<std::int64_t>(sizeof(Scalar)),
        static_cast<std::int64_t>(state.sequences_), states, static_cast<std::int64_t>(state.seen_.rows()),
        static_cast<std::int64_t>(state.tokens_), static_cast<std::int64_t>(body.size()),
        std::bit_cast<std::int64_t>(detail::checksum(body))})
    head.put(value);
  out << head.bytes() << body;
  if (!out.flush()) detail::raise<InvalidStateFile>("layer state file: cannot be written");
}

/// Reads it into the state of a layer with the same feature map, recipe and sizes, of as many sequences: the layer goes
/// on with the same bits. Throws `InvalidStateFile`, which says what is wrong; the state is then as it was. Memory
/// follows what the file has, whatever its head says.
template <class Scalar, class L>
void load(LayerState<Scalar, L>& state, std::istream& in) {
  const auto refuse = [](const auto&... words) { detail::raise<InvalidStateFile>("layer state file: ", words...); };
  std::array<char, 8> magic{};
  if (!in.read(magic.data(), magic.size()) || magic != detail::layer_state_magic) refuse("this is not one");
  std::array<std::int64_t, 8> head{};
  if (!in.read(reinterpret_cast<char*>(head.data()), sizeof head)) refuse("it ends inside of its head");
  std::int64_t states = 0;
  if constexpr (LayerState<Scalar, L>::is_constant) states = std::ssize(state.states_);
  const std::array<std::pair<const char*, std::int64_t>, 5> expected = {
      {{"version", detail::layer_state_version},
       {"bytes of a scalar", sizeof(Scalar)},
       {"number of sequences", state.sequences_},
       {"number of states", states},
       {"seen numbers of a token", state.seen_.rows()}}};
  for (std::size_t n = 0; n < expected.size(); ++n)
    if (head[n] != expected[n].second) refuse(expected[n].first, " is ", head[n], ", must be ", expected[n].second);
  const std::int64_t tokens = head[5], size = head[6];
  if (tokens < 0 || size < 0) refuse(tokens, " tokens and a body of ", size, " bytes cannot be this layer's");
  const std::string body = detail::read_bytes(in, size);
  if (std::cmp_not_equal(body.size(), size)) refuse("it ends inside of its body");
  if (detail::checksum(body) != std::bit_cast<std::uint64_t>(head[7])) refuse("the checksum does not match");

  if constexpr (LayerState<Scalar, L>::is_constant) {
    std::istringstream stream(body);
    auto loaded = state.states_;
    for (auto& of_head : loaded) {
      load(of_head, stream);
      if (of_head.tokens() != tokens) refuse("a state has seen ", of_head.tokens(), " tokens, not ", tokens);
    }
    if (stream.peek() != std::istringstream::traits_type::eof()) refuse("bytes follow its last state");
    state.states_ = std::move(loaded);
  } else {
    const auto of_token =
        static_cast<std::int64_t>(state.seen_.rows() * state.sequences_) * static_cast<std::int64_t>(sizeof(Scalar));
    if (size % of_token != 0 || size / of_token != tokens)
      refuse("a body of ", size, " bytes is not that of ", tokens, " tokens, ", of_token, " bytes each");
    Matrix<Scalar> seen(state.seen_.rows(), static_cast<Index>(tokens) * state.sequences_);
    if (size > 0) std::memcpy(seen.data(), body.data(), body.size());
    state.seen_.swap(seen);
  }
  state.tokens_ = static_cast<Index>(tokens);
}

}  // namespace SYMPOW_NAMESPACE
