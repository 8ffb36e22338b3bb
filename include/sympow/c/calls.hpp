// The arguments of a call, read and checked, and the engine that they are for.
#pragma once

#include <array>

#include <sympow/c/engine_of.hpp>
#include <sympow/c/handles.hpp>

// Engines are compiled elsewhere, see SYMPOW_C_ENGINES.
SYMPOW_C_ENGINES(extern, float)
SYMPOW_C_ENGINES(extern, double)

namespace SYMPOW_NAMESPACE::c {

/// The engine of settings for numbers of a type: the one place where types are chosen.
template <class Scalar>
const Engine& engine_for(const Scores& scores) {
  if (scores.features > 0) return EngineOf<Scalar, PositiveRandomFeatures>::instance();
  constexpr std::array engines = {
      EngineOf<Scalar, Exponential>::instance,       EngineOf<Scalar, SymmetricPower<1>>::instance,
      EngineOf<Scalar, SymmetricPower<2>>::instance, EngineOf<Scalar, SymmetricPower<3>>::instance,
      EngineOf<Scalar, SymmetricPower<4>>::instance, EngineOf<Scalar, SymmetricPower<5>>::instance,
      EngineOf<Scalar, SymmetricPower<6>>::instance, EngineOf<Scalar, SymmetricPower<7>>::instance,
      EngineOf<Scalar, SymmetricPower<8>>::instance};
  static_assert(engines.size() == max_power + 1);
  return engines[static_cast<std::size_t>(scores.power)]();
}
inline const Engine& engine_of(const Settings& settings, Element element) {
  return element == Element::float32 ? engine_for<float>(settings.scores) : engine_for<double>(settings.scores);
}

/// A size that must not be negative.
inline Index size_in(const char* name, std::int64_t size) {
  if (size < 0) detail::raise<ShapeMismatch>(name, " is ", size, ", must not be negative");
  if (!std::in_range<Index>(size)) detail::raise<DimensionOverflow>(name, " is ", size, ", no index holds it");
  return static_cast<Index>(size);
}

/// Throws `InvalidArgument` unless states are on a CPU.
inline const States& on_cpu(const sympow_states* states, const char* name) {
  check_handle(states, name);
  if (states->on_device)
    detail::raise<InvalidArgument>(name,
                                   " are on a CUDA device, must be on a CPU: sympow_states_move brings them there");
  return *states->states;
}
inline States& on_cpu(sympow_states* states, const char* name) {
  on_cpu(static_cast<const sympow_states*>(states), name);
  return *states->states;
}

inline StateGradients& on_cpu(const sympow_state_gradients* state_gradients) {
  check_handle(state_gradients, "state_gradients");
  if (state_gradients->on_device)
    detail::raise<InvalidArgument>(
        "state_gradients are on a CUDA device, must be on a CPU: there they are the arrays that they were created "
        "with");
  return *state_gradients->gradients;
}
/// Throws `InvalidArgument` for states on a CPU.
inline void check_on_device(const sympow_states* states, const char* instead) {
  check_handle(states, "states");
  if (!states->on_device)
    detail::raise<InvalidArgument>("states are on a CPU, must be on a CUDA device; here it is ", instead);
}

/// The sizes of states of an attention. Throws `InvalidArgument` for scores without an embedding, `ShapeMismatch`,
/// `DimensionOverflow`, `NotBuilt`.
inline StateShape state_shape_in(const sympow_state_shape& x, const Settings& settings) {
  check_device("shape", x.device);
  if (x.memory != nullptr) detail::raise<InvalidArgument>("shape->memory is on a CPU, where it must be null");
  const Element element = element_in("shape", x.dtype, floating);
  const Engine& engine = engine_of(settings, element);
  const StateShape shape{&engine,
                         element,
                         settings.scores,
                         size_in("shape->batch", x.batch),
                         size_in("shape->heads", x.heads),
                         size_in("shape->d", x.d),
                         size_in("shape->e", x.e),
                         settings.tail,
                         engine.dimension(settings, size_in("shape->d", x.d)),
                         settings.pairs(size_in("shape->d", x.d))};
  Index count = 0;
  if (__builtin_mul_overflow(shape.batch, shape.heads, &count))
    detail::raise<DimensionOverflow>("shape: ", shape.batch, " sequences of ", shape.heads,
                                     " heads are more than fit the index type");
  return shape;
}

/// A struct of sizes, and those of it on a device.
inline sympow_state_shape shape_in(const sympow_state_shape* given) {
  const sympow_state_shape x = read_struct(given, "shape", sympow_state_shape SYMPOW_STATE_SHAPE_INIT);
  if (x.reserved != 0) detail::raise<InvalidArgument>("shape->reserved is ", x.reserved, ", must be 0");
  return x;
}
inline DeviceShape device_shape_in(const sympow_state_shape& x, const Settings& settings) {
  if (settings.scores.features > 0)
    detail::raise<NotBuilt>("options->scores is SYMPOW_SCORES_RANDOM, whose states are on a CPU alone");
  const Index heads = size_in("shape->heads", x.heads), key_heads = size_in("shape->key_heads", x.key_heads);
  return {x.device,
          element_in("shape", x.dtype, device_numbers),
          settings.scores.power,
          size_in("shape->batch", x.batch),
          heads,
          key_heads == 0 ? heads : key_heads,
          size_in("shape->d", x.d),
          size_in("shape->e", x.e),
          capacity_of(settings)};
}

/// Throws unless states are those of a call: `InvalidArgument`, `ShapeMismatch`.
inline void check_states(const StateShape& shape, const Settings& settings, const Inputs& in) {
  if (shape.scores != settings.scores || shape.element != in.element())
    detail::raise<InvalidArgument>("states are of ", name_of(shape.scores), " and ", name_of(shape.element),
                                   ", must be of ", name_of(settings.scores), " and ", name_of(in.element()),
                                   ", as the attention and the queries");
  detail::check_size("sequences of states", shape.batch, in.sequences(), "sequences of the queries");
  detail::check_size("d of states", shape.d, in.queries.shape[3], "numbers of a query");
  detail::check_size("e of states", shape.e, in.values.shape[3], "numbers of a value");
  if (in.key_heads() == in.query_heads())
    detail::check_size("heads of states", shape.heads, in.key_heads(), "heads of queries and keys");
  if (shape.heads != in.query_heads() && shape.heads != in.key_heads())
    detail::raise<ShapeMismatch>("heads of states is ", shape.heads, ", must be ", in.key_heads(),
                                 " (heads of the keys) or ", in.query_heads(), " (of the queries)");
}

/// Throws unless states and what goes with them have the same sizes and were made by the same power and type.
inline void check_alike(const char* name, const StateShape& shape, const StateShape& other, const char* whose) {
  const auto check = [&](const char* size, Index x, Index y) {
    if (x != y) detail::raise<ShapeMismatch>(name, ": ", size, " is ", x, ", must be ", y, ", that of ", whose);
  };
  check("B", shape.batch, other.batch), check("Hs", shape.heads, other.heads);
  check("d", shape.d, other.d), check("e", shape.e, other.e);
  check("tail", shape.tail, other.tail);
  if (shape.scores != other.scores)
    detail::raise<ShapeMismatch>(name, " is of ", name_of(shape.scores), ", must be of ", name_of(other.scores),
                                 ", as ", whose);
  if (shape != other) detail::raise<ShapeMismatch>(name, " is of another type or rotation than ", whose);
}

/// Throws `InvalidArgument` unless 0 ≤ index < size.
inline void check_index(const char* name, std::int64_t index, Index size, const char* of) {
  if (index < 0 || index >= size)
    detail::raise<InvalidArgument>(name, " is ", index, ", must be at least 0 and below ", size, ", the ", of);
}

/// Throws unless a stream is null.
inline void check_stream(const void* stream) {
  if (stream != nullptr) detail::raise<InvalidArgument>("stream is not null, must be null: the arrays are on a CPU");
}

/// Rows, or gradients in them, [B, T_q, H, e].
inline Array rows_in(const sympow_tensor* tensor, const char* name, const Inputs& in) {
  Array rows = heads_in(tensor, name, "B, T_q, H, e", in.place);
  check_element(rows, in.element(), "the queries");
  check_axis(rows, 0, in.sequences(), "sequences of the queries");
  check_axis(rows, 1, in.queries.shape[1], "tokens of the queries");
  check_axis(rows, 2, in.query_heads(), "heads of the queries");
  check_axis(rows, 3, in.values.shape[3], "numbers of a value");
  return rows;
}

/// What is said of rows, [B, T_q, H, 3] of float64.
inline Array diagnostics_in(const sympow_tensor* tensor, const Inputs& in) {
  constexpr std::array only = {Element::float64};
  Array diagnostics = array_of(tensor, "diagnostics", 4, "B, T_q, H, 3", only);
  for (std::size_t axis = 0; axis < 3; ++axis)
    check_axis(diagnostics, axis, in.queries.shape[axis], "that of the queries");
  check_axis(diagnostics, 3, 3, "numbers of a row");
  return diagnostics;
}

/// What a call on a CPU reads, whichever way it goes, and its rows or the gradients in them; calls that move states may
/// have none.
struct Call {
  Inputs in;
  std::optional<Array> rows;

  Call(const Settings& settings, const sympow_inputs* inputs, const sympow_states* states, const sympow_tensor* tensor,
       const char* name_of_rows, void* stream, bool has_rows = true)
      : in(inputs_in(inputs, settings, {}, has_rows)) {
    if (states != nullptr) check_states(on_cpu(states, "states").shape(), settings, in);
    if (has_rows) rows = rows_in(tensor, name_of_rows, in);
    check_stream(stream);
  }
};

/// f(scratch memory), that of a workspace or of this call.
inline void with_scratch(sympow_workspace* workspace, const auto& f) {
  if (workspace != nullptr) {
    check_handle(workspace, "workspace");
    if (workspace->memory)
      detail::raise<InvalidArgument>(
          "workspace is that of a CUDA device, must be one without memory: the arrays are on "
          "a CPU");
    return f(workspace->scratch);
  }
  Scratch own;
  f(own);
}

/// `sympow_attend` in a form; null: that of the options.
inline void attend_arrays(const sympow_attention* attention, const sympow_inputs* inputs, sympow_states* states,
                          const sympow_tensor* rows, sympow_workspace* workspace, void* stream, const Form* form) {
  check_handle(attention, "attention");
  const Settings& settings = attention->settings;
  if constexpr (has_cuda)
    if (are_on_device(inputs))
      return form == nullptr ? attend_on_device(settings, inputs, states, rows, workspace, stream)
                             : decode_on_device(settings, inputs, states, nullptr, rows, workspace, stream);
  if (form != nullptr) check_handle(states, "states");
  const auto [in, to] = Call(settings, inputs, states, rows, "rows", stream, rows != nullptr || states == nullptr);
  check_outputs({pointer_to(to)}, in);
  with_scratch(workspace, [&](Scratch& scratch) {
    engine_of(settings, in.element())
        .attend(settings, in, form == nullptr ? settings.options.form : *form,
                states == nullptr ? nullptr : states->states.get(), pointer_to(to), scratch);
  });
}

/// Where gradients go, of the shapes of what they are of.
inline Results results_in(const sympow_gradients* given, const Inputs& in) {
  const sympow_gradients x = read_struct(given, "gradients", sympow_gradients SYMPOW_GRADIENTS_INIT);
  const auto like = [](Array array, const Array& of) {
    for (std::size_t n = 0; n < of.dimensions; ++n) check_axis(array, n, of.shape[n], of.name.c_str());
    return array;
  };
  const auto of_heads = [&](const sympow_tensor* tensor, const char* name, const Array& of, const char* axes) {
    Array array = like(heads_in(tensor, name, axes, in.place), of);
    check_element(array, in.element(), "the queries");
    return array;
  };
  const auto of_parameter = [&](const sympow_tensor* tensor, const std::string& name, const std::optional<Array>& of,
                                const char* axes, std::span<const Element> allowed) -> std::optional<Array> {
    if (tensor == nullptr) return std::nullopt;
    if (!of) detail::raise<InvalidArgument>("gradients->", name, " is given, but no inputs->", name);
    return like(array_of(tensor, "gradients->" + name, of->dimensions, axes, allowed, in.place.device), *of);
  };
  Results results{of_heads(x.queries, "gradients->queries", in.queries, "B, T_q, H, d"),
                  of_heads(x.keys, "gradients->keys", in.keys, "B, T_k, Hk, d"),
                  of_heads(x.values, "gradients->values", in.values, "B, T_k, Hk, e")};
  results.log_gates = of_parameter(x.log_gates, "log_gates", in.log_gates, "B, T, Hg", in.place.gates);
  results.theta = of_parameter(x.theta, "theta", in.theta, "d/2", in.place.rates);
  results.beta = of_parameter(x.beta, "beta", in.beta, "B, T, Hg", in.place.gates);
  results.channel_gates =
      of_parameter(x.channel_gates, "channel_gates", in.channel_gates, "B, T, Hg, d", in.place.gates);
  results.householder = of_parameter(x.householder, "householder", in.householder, "B, T, Hg, d", in.place.gates);
  results.strengths = of_parameter(x.strengths, "strengths", in.strengths, "B, T, Hg", in.place.gates);
  if (x.scale != nullptr) {
    check_pointer(x.scale, "gradients->scale");
    results.scale =
        array_of(x.scale, "gradients->scale", x.scale->ndim == 0 ? 0 : 1, "1", in.place.rates, in.place.device);
    if (x.scale->ndim != 0) check_axis(*results.scale, 0, 1, "one number");
  }
  return results;
}

}  // namespace SYMPOW_NAMESPACE::c
