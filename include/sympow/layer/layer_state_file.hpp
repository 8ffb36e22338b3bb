// What layers remember, as files: a layer goes on in another run of a program where it stopped in this one.
#pragma once

#include <sstream>

#include <sympow/attention/state_file.hpp>
#include <sympow/core/checked_file.hpp>
#include <sympow/layer/layer_state.hpp>

namespace SYMPOW_NAMESPACE {

namespace detail {
inline constexpr std::array<char, 8> layer_state_magic = {'S', 'Y', 'M', 'P', 'O', 'W', 'L', '\n'};
inline constexpr std::int64_t layer_state_version = 2;
}  // namespace detail

/// Writes what a layer remembers. Format, little-endian:
///
///     8 bytes "SYMPOWL\n" · int64 version (2) · int64 bytes of a scalar · int64 sequences · int64 states ·
///     int64 seen numbers of a token · int64 tokens · int64 bytes of the body · uint64 checksum of the body · the body
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
  detail::write_file(
      out, "layer state file", detail::layer_state_magic,
      {detail::layer_state_version, sizeof(Scalar), state.sequences_, states, state.seen_.rows(), state.tokens_}, body);
}

/// Reads it into the state of a layer with the same feature map, recipe and sizes, of as many sequences: the layer goes
/// on with the same bits. Throws `InvalidStateFile`, which says what is wrong; the state is then as it was. Memory
/// follows what the file has, whatever its head says.
template <class Scalar, class L>
void load(LayerState<Scalar, L>& state, std::istream& in) {
  const auto refuse = [](const auto&... words) { detail::raise<InvalidStateFile>("layer state file: ", words...); };
  std::int64_t states = 0;
  if constexpr (LayerState<Scalar, L>::is_constant) states = std::ssize(state.states_);
  std::array<std::int64_t, 6> head{};
  const std::string body = detail::read_file(in, "layer state file", detail::layer_state_magic, head,
                                             {{0, "version", detail::layer_state_version},
                                              {1, "bytes of a scalar", sizeof(Scalar)},
                                              {2, "number of sequences", state.sequences_},
                                              {3, "number of states", states},
                                              {4, "seen numbers of a token", state.seen_.rows()}});
  const std::int64_t tokens = head[5];
  if (tokens < 0) refuse(tokens, " tokens cannot be this layer's");
  const auto size = std::ssize(body);

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
