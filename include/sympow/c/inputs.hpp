// The arrays that a call reads, checked against each other.
#pragma once

#include <optional>
#include <vector>

#include <sympow/c/overlaps.hpp>
#include <sympow/c/settings.hpp>

namespace SYMPOW_NAMESPACE::c {

/// What `sympow_inputs` holds.
struct Inputs {
  Array queries, keys, values;
  std::optional<Array> log_gates = {}, theta = {}, beta = {}, lengths_array = {};
  std::optional<Array> channel_gates = {}, householder = {}, strengths = {};
  Index most_tokens = 0;            ///< T, that the transition goes over
  std::vector<Index> lengths = {};  ///< of sequences; none: all are as long, or they lie on a device
  Place place = {};

  [[nodiscard]] Index sequences() const { return queries.shape[0]; }    ///< B
  [[nodiscard]] Index query_heads() const { return queries.shape[2]; }  ///< H
  [[nodiscard]] Index key_heads() const { return keys.shape[2]; }       ///< Hk
  [[nodiscard]] Element element() const { return queries.element; }
  /// Tokens that the transition of a sequence goes over: its queries may stand behind its keys.
  [[nodiscard]] Index tokens(Index sequence) const {
    const Index behind = most_tokens - queries.shape[1];
    return lengths.empty() ? most_tokens : lengths[static_cast<std::size_t>(sequence)] + behind;
  }
};

/// Null: not there.
inline const Array* pointer_to(const std::optional<Array>& x) { return x ? &*x : nullptr; }

/// The lengths of sequences, at most T. Throws `ShapeMismatch`.
inline std::vector<Index> lengths_in(const Array& array, Index T) {
  std::vector<Index> lengths;
  for (Index b = 0; b < array.shape[0]; ++b) {
    const std::byte* const x = array.at({b});
    const std::int64_t length = array.element == Element::int32 ? *reinterpret_cast<const std::int32_t*>(x)
                                                                : *reinterpret_cast<const std::int64_t*>(x);
    if (length < 0 || std::cmp_greater(length, T))
      detail::raise<ShapeMismatch>(array.name, "[", b, "] is ", length, ", must lie in 0 … T = ", T);
    lengths.push_back(static_cast<Index>(length));
  }
  return lengths;
}

/// Throws unless θ stands without channel gates and Householder vectors, and these go with the scores and the device.
inline void check_transition(const sympow_inputs& x, const Settings& settings, const Place& place) {
  const std::pair<const sympow_tensor*, const char*> acts[] = {{x.channel_gates, "inputs->channel_gates"},
                                                               {x.householder, "inputs->householder"}};
  for (const auto& [tensor, name] : acts) {
    if (tensor == nullptr) continue;
    if (x.theta != nullptr)
      detail::raise<InvalidArgument>("inputs->theta and ", name,
                                     " are given, must be one of them: they do not commute");
    if (place.device.type != SYMPOW_CPU) detail::raise<NotBuilt>(name, " is given, which is for a CPU alone");
    if (settings.scores.features > 0)
      detail::raise<InvalidArgument>(name,
                                     " is given, must be null with SYMPOW_SCORES_RANDOM: random features of keys "
                                     "know no such transition");
  }
}

/// The parameters of the transition. Throws as `inputs_in`.
inline void read_parameters(const sympow_inputs& x, const Settings& settings, Inputs& in) {
  const Place& place = in.place;
  const auto checked_parameter = [&](Array array, Index numbers, const char* why) {
    check_axis(array, 0, in.sequences(), "sequences of the queries");
    check_axis(array, 1, in.most_tokens, "tokens");
    if (in.key_heads() == in.query_heads()) check_axis(array, 2, in.key_heads(), "heads of queries and keys");
    if (array.shape[2] != in.key_heads() && array.shape[2] != in.query_heads())
      detail::raise<ShapeMismatch>(array.name, ": shape[2] is ", array.shape[2], ", must be ", in.key_heads(),
                                   " (heads of the keys) or ", in.query_heads(), " (of the queries)");
    if (array.dimensions == 4) check_axis(array, 3, numbers, why);
    return array;
  };
  const auto parameter = [&](const sympow_tensor* tensor, const char* name) {
    return checked_parameter(array_of(tensor, name, 3, "B, T, Hg", place.gates, place.device), 0, "");
  };
  const auto of_query = [&](const Array& array) {
    return checked_parameter(array, in.queries.shape[3], "numbers of a query");
  };
  check_transition(x, settings, place);
  if (x.log_gates != nullptr) in.log_gates = parameter(x.log_gates, "inputs->log_gates");
  if (x.theta != nullptr) {
    const bool has_axes = x.theta->ndim == 2;
    if (has_axes && place.device.type != SYMPOW_CPU)
      detail::raise<NotBuilt>("inputs->theta: ndim is 2, which is for a CPU alone");
    in.theta =
        array_of(x.theta, "inputs->theta", has_axes ? 2 : 1, has_axes ? "n, d/2" : "d/2", place.rates, place.device);
    const Index d = in.queries.shape[3];
    if (settings.rotary_dim == 0 && d % 2 != 0)
      detail::raise<OddDimension>("inputs->queries: shape[3] is ", d, ", must be even: theta turns pairs of channels");
    if (settings.rotary_dim > d)
      detail::raise<ShapeMismatch>("options->rotary_dim is ", settings.rotary_dim, ", must be at most ", d,
                                   " (numbers of a query)");
    check_axis(*in.theta, has_axes ? 1 : 0, settings.pairs(d), "pairs of channels of a query that turn");
    if (!settings.pairing)
      detail::raise<InvalidArgument>(
          "options->pairing is not said, must be SYMPOW_PAIRING_INTERLEAVED or SYMPOW_PAIRING_HALF_SPLIT where "
          "inputs->theta is given");
    if (has_axes && (in.theta->shape[0] == 0 || x.beta == nullptr))
      detail::raise<InvalidArgument>("inputs->theta has ", in.theta->shape[0],
                                     " axes, must have one at least, and inputs->beta for each of them");
  }
  if (x.beta != nullptr) {
    if (x.theta == nullptr) detail::raise<InvalidArgument>("inputs->beta is given, but no inputs->theta");
    in.beta = in.theta->dimensions == 1 ? parameter(x.beta, "inputs->beta")
                                        : checked_parameter(array_of(x.beta, "inputs->beta", 4, "B, T, Hg, n"),
                                                            in.theta->shape[0], "axes of inputs->theta");
  }
  if (x.channel_gates != nullptr)
    in.channel_gates = of_query(array_of(x.channel_gates, "inputs->channel_gates", 4, "B, T, Hg, d"));
  if (x.householder != nullptr) {
    in.householder = of_query(heads_in(x.householder, "inputs->householder", "B, T, Hg, d", place));
    check_element(*in.householder, in.element(), "the queries");
  }
  if (x.strengths != nullptr) {
    if (x.householder == nullptr)
      detail::raise<InvalidArgument>("inputs->strengths is given, but no inputs->householder");
    in.strengths = parameter(x.strengths, "inputs->strengths");
    check_axis(*in.strengths, 2, in.householder->shape[2], "heads of the Householder vectors");
  }
}

/// Reads a call. Throws `InvalidArgument`, `ShapeMismatch`, `DimensionOverflow`, `NotBuilt`; what the forms look at,
/// as gates and lengths, they check themselves. Where there are no rows, keys are in the place of null queries.
inline Inputs inputs_in(const sympow_inputs* given, const Settings& settings, const Place& place = {},
                        bool has_rows = true) {
  const sympow_inputs x = read_struct(given, "inputs", sympow_inputs SYMPOW_INPUTS_INIT);
  const bool has_queries = has_rows || x.queries != nullptr;
  Inputs in{has_queries ? heads_in(x.queries, "inputs->queries", "B, T_q, H, d", place)
                        : heads_in(x.keys, "inputs->keys", "B, T_k, Hk, d", place),
            heads_in(x.keys, "inputs->keys", "B, T_k, Hk, d", place),
            heads_in(x.values, "inputs->values", "B, T_k, Hk, e", place)};
  in.place = place;
  check_element(in.keys, in.element(), "the queries");
  check_element(in.values, in.element(), "the queries");
  check_axis(in.keys, 0, in.sequences(), "sequences of the queries");
  const Mask& mask = settings.options.head.mask;
  if (mask.is_aligned()) check_axis(in.keys, 1, in.queries.shape[1], "tokens of the queries, with this mask");
  check_axis(in.keys, 3, in.queries.shape[3], "numbers of a query");
  check_axis(in.values, 0, in.sequences(), "sequences of the queries");
  check_axis(in.values, 1, in.keys.shape[1], "tokens of the keys");
  check_axis(in.values, 2, in.key_heads(), "heads of the keys");
  if (in.query_heads() == 0 && in.key_heads() > 0)
    detail::raise<ShapeMismatch>("inputs->queries: shape[2] is 0, must be at least the ", in.key_heads(),
                                 " heads of the keys");
  if (in.query_heads() > 0 && (in.key_heads() == 0 || in.query_heads() % in.key_heads() != 0))
    detail::raise<ShapeMismatch>("inputs->queries: shape[2] is ", in.query_heads(), ", must be a multiple of the ",
                                 in.key_heads(), " heads of the keys");
  if (x.lengths != nullptr) {
    in.lengths_array = array_of(x.lengths, "inputs->lengths", 1, "B", place.lengths, place.device);
    check_axis(*in.lengths_array, 0, in.sequences(), "sequences of the queries");
    check_axis(in.keys, 1, in.queries.shape[1], "tokens of the queries, where there are lengths");
    if (place.device.type == SYMPOW_CPU) in.lengths = lengths_in(*in.lengths_array, in.keys.shape[1]);
  }
  if (__builtin_add_overflow(in.queries.shape[1], mask.offset, &in.most_tokens))
    detail::raise<InvalidArgument>("options->offset is ", mask.offset, ", which no token of the queries can have");
  in.most_tokens = std::max(in.most_tokens, in.keys.shape[1]);
  read_parameters(x, settings, in);
  return in;
}

/// Throws unless an output is apart from what a call reads.
inline void check_outputs(std::initializer_list<const Array*> outputs, const Inputs& in, const Array* also = nullptr) {
  check_outputs(outputs, {&in.queries, &in.keys, &in.values, pointer_to(in.log_gates), pointer_to(in.theta),
                          pointer_to(in.beta), pointer_to(in.lengths_array), pointer_to(in.channel_gates),
                          pointer_to(in.householder), pointer_to(in.strengths), also});
}

}  // namespace SYMPOW_NAMESPACE::c
