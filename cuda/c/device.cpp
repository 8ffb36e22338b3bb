// sympow.h with arrays on a GPU. All arguments are checked before anything is on the stream.
#include <sympow/c/handles.hpp>

#include "call.hpp"
#include "slots.hpp"

namespace SYMPOW_NAMESPACE::c {

namespace {

/// The problem of whole sequences.
const cuda::Problem& of_sequences(const Settings& settings, const DeviceCall& call) {
  if (settings.options.form == Form::recurrent)
    detail::raise<NotBuilt>("options->form is SYMPOW_FORM_RECURRENT, which on a CUDA device is that of sympow_decode");
  return call.problem;
}

/// A problem with states, before and after.
cuda::Problem with_states(cuda::Problem problem) {
  if (problem.form == Form::attention)
    detail::raise<InvalidArgument>("options->form is SYMPOW_FORM_ATTENTION, which has no states, but states are given");
  problem.carries_state = true;
  return problem;
}

/// A problem of new tokens.
cuda::Problem of_decoding(const DeviceCall& call) {
  cuda::Problem problem = call.problem;
  if (problem.lengths != nullptr)
    detail::raise<NotBuilt>(
        "inputs->lengths is given; decoding on a CUDA device takes as many new tokens of every "
        "sequence, and it must be null: sympow_states_drop takes some back");
  problem.form = Form::automatic;
  problem.chunk = 0;
  return problem;
}

template <class F>
std::size_t bytes_of_call(const cuda::Problem& problem, const F& function) {
  std::size_t bytes = 0;
  check(function(problem, bytes));
  return bytes;
}
std::size_t attention_bytes(const cuda::Problem& p) { return bytes_of_call(p, cuda::attention_workspace); }
/// Of so many slots: the more, the fewer.
std::size_t decode_bytes(const cuda::Problem& problem, int capacity, Index slots) {
  alignas(std::int32_t) static std::int32_t some_counts[1] = {};  // that there are counts is all that matters
  cuda::Tail tail;
  tail.capacity = capacity;
  tail.counts = some_counts;
  return bytes_of_call(problem, [&](const cuda::Problem& p, std::size_t& bytes) {
    return cuda::decode_workspace(p, tail, {slots}, bytes);
  });
}
std::size_t fold_bytes(const cuda::Problem& problem, int capacity) {
  std::size_t bytes = 0;
  check(cuda::fold_workspace(problem, capacity, bytes));
  return bytes;
}

/// The memory of a call for gradients: a workspace for both passes, the rows and denominators of the first one, which
/// the second one needs, the gradient of states, and with rotary the states after the last token.
struct RowsAgain {
  std::size_t workspace, rows = 0, factors = 0, gradient = 0, after = 0;

  explicit RowsAgain(const cuda::Problem& p) : workspace(bytes_of_call(p, cuda::attention_vjp_workspace)) {
    const auto rounded = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
    Index count = 0, of_rows = 0;
    if (__builtin_mul_overflow(p.batch, p.tokens, &count) || __builtin_mul_overflow(count, p.query_heads, &count) ||
        __builtin_mul_overflow(count, Index{4} * p.e, &of_rows))
      detail::raise<DimensionOverflow>("d_rows: more bytes than fit the index type");
    rows = rounded(static_cast<std::size_t>(p.element == cuda::Element::f32 ? of_rows : of_rows / 2));
    if (p.is_normalised()) factors = rounded(static_cast<std::size_t>(count) * 4);
    if (p.carries_state) gradient = rounded(bytes_of_call(p, cuda::state_bytes));
    if (p.rates != nullptr) after = gradient;
  }
  [[nodiscard]] std::size_t bytes() const { return workspace + rows + factors + gradient + after; }
};

/// The states of a call, whose sequences they have in order or in slots. Throws `InvalidArgument`, `ShapeMismatch`,
/// `InterruptedState`.
StatesOnDevice& states_in(const sympow_states* given, const DeviceCall& call, bool has_slots = false) {
  check_handle(given, "states");
  if (!given->on_device)
    detail::raise<InvalidArgument>("states are on a CPU, must be where the queries are: sympow_states_move");
  auto& states = static_cast<StatesOnDevice&>(*given->on_device);
  const DeviceShape& shape = states.shape();
  const cuda::Problem& p = call.problem;
  check_device("states", shape.device, call.in.place.device);
  if (shape.power != p.power || shape.element != call.in.element())
    detail::raise<InvalidArgument>("states are of power ", shape.power, " and ", name_of(shape.element),
                                   ", must be of power ", p.power, " and ", name_of(call.in.element()),
                                   ", as the attention and the queries");
  if (!has_slots)
    detail::check_size("sequences of states", shape.batch, call.in.sequences(), "sequences of the queries");
  detail::check_size("d of states", shape.d, call.in.queries.shape[3], "numbers of a query");
  detail::check_size("e of states", shape.e, call.in.values.shape[3], "numbers of a value");
  detail::check_size("key heads of states", shape.key_heads, call.in.key_heads(), "heads of the keys");
  detail::check_size("heads of states", shape.heads, p.state_heads(),
                     p.gate_heads > 0 ? "heads of the log gates" : "heads of the keys, without log gates");
  states.check_whole();
  return states;
}

/// Gradients in these states. Throws `InvalidArgument`, `ShapeMismatch`.
const DeviceStateGradients* adjoint_in(const sympow_state_gradients* given, const StatesOnDevice* states) {
  if (given == nullptr) return nullptr;
  check_handle(given, "state_gradients");
  if (!given->on_device)
    detail::raise<InvalidArgument>(
        "state_gradients are on a CPU, must be where the queries are: create them like states there");
  if (!(given->on_device->shape == states->shape()))
    detail::raise<ShapeMismatch>("state_gradients has other sizes, type or power than states");
  return given->on_device.get();
}

/// Throws what sympow::cuda says of a call before anything else is on the stream. `without_memory` makes it without a
/// workspace, which is what it finds wrong last; it would not of no tokens.
void check_first(const cuda::Problem& problem, const auto& without_memory) {
  if (problem.batch == 0 || problem.tokens == 0) return;
  const cuda::Status status = without_memory();
  if (status.code() != cuda::Code::workspace_too_small) check(status);
}

cuda::Stream stream_of(void* stream) { return static_cast<cuda::Stream>(stream); }

}  // namespace

std::size_t device_workspace_bytes(const Settings& settings, const sympow_inputs* inputs, std::int32_t kind) {
  const DeviceCall call(settings, inputs);
  const int capacity = capacity_of(settings);
  if (kind == SYMPOW_CALL_DECODE) {
    return decode_bytes(of_decoding(call), capacity, call.problem.batch);
  }
  const cuda::Problem& problem = of_sequences(settings, call);
  if (kind == SYMPOW_CALL_ATTEND_VJP) return RowsAgain(problem).bytes();
  if (kind == SYMPOW_CALL_PREFILL_VJP) return RowsAgain(with_states(problem)).bytes();
  if (kind == SYMPOW_CALL_ATTEND) return attention_bytes(problem);
  return std::max(attention_bytes(with_states(problem)), fold_bytes(problem, capacity));
}

void attend_on_device(const Settings& settings, const sympow_inputs* given, const sympow_states* given_states,
                      const sympow_tensor* given_rows, const sympow_workspace* given_workspace, void* given_stream) {
  const DeviceCall call(settings, given);
  const cuda::Problem& whole = of_sequences(settings, call);
  const cuda::Problem problem = given_states == nullptr ? whole : with_states(whole);
  StatesOnDevice* const states = given_states == nullptr ? nullptr : &states_in(given_states, call);
  const Array rows = rows_in(given_rows, "rows", call.in);
  std::size_t bytes = attention_bytes(problem);
  if (states != nullptr && states->has_tail()) bytes = std::max(bytes, states->fold_bytes());
  const DeviceMemory& workspace = workspace_in(given_workspace, bytes, call.in.place.device);
  check_outputs({&rows, &workspace.bytes, states == nullptr ? nullptr : states->memory()}, call.in);
  cuda::Inputs inputs = call.inputs;
  cuda::Outputs outputs{view_of(rows), {}, {}};
  if (states != nullptr) {
    outputs.final_state = states->state(problem);
    if (!states->is_empty()) inputs.initial_state = outputs.final_state;
  }
  const cuda::Stream stream = stream_of(given_stream);
  check_first(problem, [&] { return cuda::attend(problem, inputs, outputs, nullptr, 0, stream); });

  const CurrentDevice current(call.in.place.device.id);
  const auto attend = [&] {
    check(cuda::attend(problem, inputs, outputs, workspace.bytes.data, workspace.size(), stream));
  };
  if (states == nullptr) return attend();
  states->guarded([&] {
    if (states->is_empty()) states->clear(stream);
    if (states->has_tail()) states->fold(workspace, stream);
    attend();
    states->count(problem);
  });
}

void decode_on_device(const Settings& settings, const sympow_inputs* given, const sympow_states* given_states,
                      const sympow_slots* given_slots, const sympow_tensor* given_rows,
                      const sympow_workspace* given_workspace, void* given_stream) {
  const DeviceCall call(settings, given);
  const cuda::Problem problem = of_decoding(call);
  const bool has_slots = given_slots != nullptr;
  StatesOnDevice& states = states_in(given_states, call, has_slots);
  const DeviceShape& shape = states.shape();
  const DeviceSlots slots(given_slots, "slots", call.in.sequences(), shape);
  const Array rows = rows_in(given_rows, "rows", call.in);
  const std::size_t bytes =
      std::max(decode_bytes(problem, shape.capacity, shape.batch), states.must_fold(problem) ? states.fold_bytes() : 0);
  const DeviceMemory& workspace = workspace_in(given_workspace, bytes, call.in.place.device);
  check_outputs({&rows, &workspace.bytes, states.memory(), pointer_to(slots.faults)}, call.in,
                pointer_to(slots.indices));
  const cuda::Outputs outputs{view_of(rows), {}, {}};
  const cuda::Stream stream = stream_of(given_stream);
  cuda::Tail empty = states.tail(problem);
  empty.count = 0;
  check_first(problem, [&] {
    return cuda::decode(problem, states.state(problem), empty, slots.slots, call.inputs, outputs, nullptr, 0, stream);
  });

  const CurrentDevice current(call.in.place.device.id);
  states.guarded([&] {
    if (states.is_empty()) states.clear(stream);
    if (states.must_fold(problem)) states.fold(workspace, stream);
    states.append(problem, has_slots, stream, [&](cuda::Tail& tail) {
      check(cuda::decode(problem, states.state(problem), tail, slots.slots, call.inputs, outputs, workspace.bytes.data,
                         workspace.size(), stream));
    });
  });
}

void attend_vjp_on_device(const Settings& settings, const sympow_inputs* given, const sympow_tensor* given_d_rows,
                          const sympow_states* given_states, const sympow_state_gradients* given_adjoint,
                          const sympow_gradients* given_gradients, const sympow_workspace* given_workspace,
                          void* given_stream) {
  const DeviceCall call(settings, given);
  const cuda::Problem& whole = of_sequences(settings, call);
  const bool has_states = given_states != nullptr || given_adjoint != nullptr;
  const cuda::Problem problem = has_states ? with_states(whole) : whole;
  const Array d_rows = rows_in(given_d_rows, "d_rows", call.in);
  const StatesOnDevice* const states = has_states ? &states_in(given_states, call) : nullptr;
  if (has_states && states->has_tail())
    detail::raise<InvalidArgument>(
        "states have tokens in their tail, which gradients do not go through; sympow_states_to_arrays folds it");
  const DeviceStateGradients* const adjoint = adjoint_in(given_adjoint, states);
  const bool has_angles = adjoint != nullptr && adjoint->angles;
  if (has_angles && problem.rates == nullptr)
    detail::raise<FrameMismatch>("state_gradients have angles, but inputs->theta is null: nothing turns");
  const Results results = results_in(given_gradients, call.in);
  check_dense(results.theta);
  const RowsAgain again(problem);
  const DeviceMemory& workspace = workspace_in(given_workspace, again.bytes(), call.in.place.device);
  check_outputs(
      {&results.queries, &results.keys, &results.values, pointer_to(results.log_gates), pointer_to(results.theta),
       pointer_to(results.beta), pointer_to(results.scale), &workspace.bytes, has_states ? states->memory() : nullptr,
       adjoint == nullptr ? nullptr : &adjoint->sums, adjoint == nullptr ? nullptr : &adjoint->normaliser,
       adjoint == nullptr ? nullptr : pointer_to(adjoint->angles)},
      call.in, &d_rows);
  const cuda::Stream stream = stream_of(given_stream);
  std::byte* memory = workspace.bytes.data + again.workspace;
  cuda::Inputs inputs = call.inputs;
  if (has_states && !states->is_empty()) inputs.initial_state = states->state(problem);
  cuda::RowGradients rows{view_of(d_rows)};
  cuda::Outputs forward;
  const bool needs_forward = problem.is_normalised() || results.scale || has_angles;
  if (needs_forward)
    rows.rows = forward.rows =
        cuda::dense(static_cast<void*>(memory), problem.element, problem.tokens, problem.query_heads, problem.e);
  memory += again.rows;
  if (problem.is_normalised())
    rows.factors = forward.factors =
        cuda::dense(static_cast<void*>(memory), cuda::Element::f32, problem.tokens, problem.query_heads, 1);
  memory += again.factors;
  cuda::Gradients gradients{view_of(results.queries),
                            view_of(results.keys),
                            view_of(results.values),
                            view_of(results.log_gates),
                            {},
                            view_of(results.beta),
                            results.theta ? reinterpret_cast<double*>(results.theta->data) : nullptr,
                            results.scale ? reinterpret_cast<double*>(results.scale->data) : nullptr};
  check_first(problem, [&] { return cuda::attend_vjp(problem, inputs, rows, gradients, nullptr, 0, stream); });

  const CurrentDevice current(call.in.place.device.id);
  cuda::StateArrays arrays;
  if (adjoint != nullptr) {
    arrays = data_of(adjoint->sums, adjoint->normaliser, pointer_to(adjoint->angles));
    check(cuda::state_in(problem, memory, again.gradient, gradients.initial_state));
    memory += again.gradient;
    if (has_angles)
      check(cuda::state_in(problem, memory, again.after, forward.final_state));
    else
      gradients.initial_state.turns = nullptr;
    rows.final_state = gradients.initial_state;
  }
  cuda::Forward left;
  if (needs_forward) {
    forward.forward = &left;
    check(cuda::attend(problem, inputs, forward, workspace.bytes.data, again.workspace, stream));
    rows.forward = &left;
  }
  if (adjoint != nullptr)
    check(cuda::gradient_of_arrays(problem, arrays, forward.final_state, gradients.initial_state, stream));
  check(cuda::attend_vjp(problem, inputs, rows, gradients, workspace.bytes.data, again.workspace, stream));
  if (adjoint != nullptr)
    check(cuda::gradient_to_arrays(problem, gradients.initial_state, inputs.initial_state, arrays, stream));
}

std::size_t device_state_bytes(const DeviceShape& shape) { return StatesOnDevice(shape, nullptr).bytes(); }

std::unique_ptr<DeviceStates> states_on_device(const DeviceShape& shape, const sympow_tensor* given) {
  const DeviceMemory memory = device_memory_in(given, "shape->memory");
  check_device("shape->memory", memory.device, shape.device);
  return std::make_unique<StatesOnDevice>(shape, &memory);
}

}  // namespace SYMPOW_NAMESPACE::c
