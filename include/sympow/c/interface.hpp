// The functions of sympow.h. They are defined here: one source file of a library includes this.
#pragma once

#include <sympow/c/calls.hpp>

using namespace sympow;  // of this one file
using namespace sympow::c;
using sympow::detail::raise;

extern "C" {

const char* sympow_error(void) { return error_text; }

int32_t sympow_version(void) { return SYMPOW_VERSION; }

sympow_status sympow_attention_create(const sympow_options* options, sympow_attention** attention) {
  return guarded([&] {
    check_pointer(attention, "attention");
    give(attention, settings_of(options));
  });
}
void sympow_attention_destroy(sympow_attention* attention) { destroy(attention); }

sympow_status sympow_feature_dimension(const sympow_attention* attention, int64_t d, int64_t* dimension) {
  return guarded([&] {
    check_handle(attention, "attention");
    check_pointer(dimension, "dimension");
    const Settings& settings = attention->settings;
    *dimension = engine_of(settings, Element::float64).dimension(settings, size_in("d", d));
  });
}

sympow_status sympow_workspace_create(const sympow_tensor* memory, sympow_workspace** workspace) {
  return guarded([&] {
    check_pointer(workspace, "workspace");
    std::optional<DeviceMemory> of_device;
    if (memory != nullptr) {
      check_pointer(memory, "memory");
      check_device("memory", memory->device, memory->device);
      if (memory->device.type == SYMPOW_CPU)
        raise<InvalidArgument>("memory is on a CPU, where a workspace grows; must be null");
      of_device = device_memory_in(memory, "memory");
      of_device->bytes.name = "the workspace";
    }
    give(workspace, std::move(of_device));
  });
}
void sympow_workspace_destroy(sympow_workspace* workspace) { destroy(workspace); }

sympow_status sympow_workspace_bytes(const sympow_attention* attention, const sympow_inputs* inputs, int32_t call,
                                     size_t* bytes) {
  return guarded([&] {
    check_handle(attention, "attention");
    check_pointer(bytes, "bytes");
    if (call < SYMPOW_CALL_ATTEND || call > SYMPOW_CALL_PREFILL_VJP)
      raise<InvalidArgument>("call is ", call, ", must lie in 0 … ", int{SYMPOW_CALL_PREFILL_VJP});
    if constexpr (has_cuda)
      if (are_on_device(inputs)) {
        *bytes = device_workspace_bytes(attention->settings, inputs, call);
        return;
      }
    inputs_in(inputs, attention->settings);
    *bytes = 0;
  });
}

sympow_status sympow_attend(const sympow_attention* attention, const sympow_inputs* inputs, sympow_states* states,
                            const sympow_tensor* rows, sympow_workspace* workspace, void* stream) {
  return guarded([&] { attend_arrays(attention, inputs, states, rows, workspace, stream, nullptr); });
}

sympow_status sympow_decode(const sympow_attention* attention, const sympow_inputs* inputs, sympow_states* states,
                            const sympow_tensor* rows, sympow_workspace* workspace, void* stream) {
  const Form form = Form::recurrent;
  return guarded([&] { attend_arrays(attention, inputs, states, rows, workspace, stream, &form); });
}

sympow_status sympow_decode_slots(const sympow_attention* attention, const sympow_inputs* inputs, sympow_states* states,
                                  const sympow_slots* slots, const sympow_tensor* rows, sympow_workspace* workspace,
                                  void* stream) {
  return guarded([&] {
    check_handle(attention, "attention");
    check_pointer(slots, "slots");
    check_on_device(states, "sympow_decode of all of them, or sympow_states_assign before and after it");
    if constexpr (has_cuda) {
      check_pointer(read_struct(inputs, "inputs", sympow_inputs SYMPOW_INPUTS_INIT).queries, "inputs->queries");
      if (!are_on_device(inputs)) raise<InvalidArgument>("inputs->queries is on a CPU, must be where the states are");
      decode_on_device(attention->settings, inputs, states, slots, rows, workspace, stream);
    }
  });
}

sympow_status sympow_attend_vjp(const sympow_attention* attention, const sympow_inputs* inputs,
                                const sympow_tensor* d_rows, const sympow_states* states,
                                sympow_state_gradients* state_gradients, const sympow_gradients* gradients,
                                sympow_workspace* workspace, void* stream) {
  return guarded([&] {
    check_handle(attention, "attention");
    const Settings& settings = attention->settings;
    if constexpr (has_cuda)
      if (are_on_device(inputs))
        return attend_vjp_on_device(settings, inputs, d_rows, states, state_gradients, gradients, workspace, stream);
    const auto [in, dY] = Call(settings, inputs, states, d_rows, "d_rows", stream);
    if (state_gradients != nullptr)
      check_alike("state_gradients", on_cpu(state_gradients).shape(), on_cpu(states, "states").shape(), "states");
    const Results to = results_in(gradients, in);
    check_outputs(
        {&to.queries, &to.keys, &to.values, pointer_to(to.log_gates), pointer_to(to.theta), pointer_to(to.beta),
         pointer_to(to.scale), pointer_to(to.channel_gates), pointer_to(to.householder), pointer_to(to.strengths)},
        in, &*dY);
    with_scratch(workspace, [&](Scratch& scratch) {
      engine_of(settings, in.element())
          .attend_vjp(settings, in, *dY, states == nullptr ? nullptr : states->states.get(),
                      state_gradients == nullptr ? nullptr : state_gradients->gradients.get(), to, scratch);
    });
  });
}

sympow_status sympow_diagnose(const sympow_attention* attention, const sympow_inputs* inputs,
                              const sympow_states* states, const sympow_tensor* diagnostics,
                              sympow_workspace* workspace, void* stream) {
  return guarded([&] {
    check_handle(attention, "attention");
    const Settings& settings = attention->settings;
    if constexpr (has_cuda)
      if (are_on_device(inputs))
        raise<NotBuilt>("inputs->queries is on a CUDA device, and sympow_diagnose is for a CPU alone");
    const Inputs in = inputs_in(inputs, settings);
    if (states != nullptr) check_states(on_cpu(states, "states").shape(), settings, in);
    const Array to = diagnostics_in(diagnostics, in);
    check_stream(stream);
    check_outputs({&to}, in);
    with_scratch(workspace, [&](Scratch& scratch) {
      engine_of(settings, in.element())
          .diagnose(settings, in, states == nullptr ? nullptr : states->states.get(), to, scratch);
    });
  });
}

sympow_status sympow_states_create(const sympow_attention* attention, const sympow_state_shape* shape,
                                   const sympow_states* after, sympow_states** states) {
  return guarded([&] {
    check_handle(attention, "attention");
    check_pointer(states, "states");
    const sympow_state_shape given = shape_in(shape);
    if constexpr (has_cuda)
      if (given.device.type == SYMPOW_CUDA) {
        if (after != nullptr)
          raise<InvalidArgument>("after is given, must be null on a CUDA device: create states on a CPU and move them");
        return give(states, states_on_device(device_shape_in(given, attention->settings), given.memory));
      }
    const StateShape sizes = state_shape_in(given, attention->settings);
    if (after != nullptr) check_alike("shape", sizes, on_cpu(after, "after").shape(), "after");
    give(states, sizes.engine->states(attention->settings, sizes, after == nullptr ? nullptr : after->states.get()));
  });
}
void sympow_states_destroy(sympow_states* states) { destroy(states); }

sympow_status sympow_states_bytes(const sympow_attention* attention, const sympow_state_shape* shape, size_t* bytes) {
  return guarded([&] {
    check_handle(attention, "attention");
    check_pointer(bytes, "bytes");
    sympow_state_shape given = shape_in(shape);
    given.memory = nullptr;
    if constexpr (has_cuda)
      if (given.device.type == SYMPOW_CUDA) {
        *bytes = device_state_bytes(device_shape_in(given, attention->settings));
        return;
      }
    state_shape_in(given, attention->settings);
    *bytes = 0;
  });
}

sympow_status sympow_states_move(sympow_states* from, sympow_states* to, const sympow_tensor* tokens,
                                 sympow_workspace* workspace, void* stream) {
  return guarded([&] {
    check_handle(from, "from");
    check_handle(to, "to");
    std::optional<Array> counted;
    if (tokens != nullptr) counted = array_of(tokens, "tokens", 1, "B", integral);
    if (workspace != nullptr) check_handle(workspace, "workspace");
    if ((from->states == nullptr) == (to->states == nullptr))
      raise<InvalidArgument>("from and to are ", to->states == nullptr ? "both on a CUDA device" : "both on a CPU",
                             ", must be one on a CPU and one on a CUDA device");
    if constexpr (has_cuda) move_states(*from, *to, counted, workspace, stream);
  });
}

sympow_status sympow_states_copy(const sympow_states* states, sympow_states** copy) {
  return guarded([&] {
    const States& of = on_cpu(states, "states");
    check_pointer(copy, "copy");
    give(copy, of.copy());
  });
}

sympow_status sympow_states_drop(sympow_states* states, const sympow_tensor* tokens, const sympow_slots* slots,
                                 void* stream) {
  return guarded([&] {
    check_on_device(states, "sympow_states_assign of a copy from before them");
    check_pointer(slots, "slots");
    if constexpr (has_cuda) drop_tokens(*states, tokens, slots, stream);
  });
}

sympow_status sympow_states_copy_slots(sympow_states* states, const sympow_slots* slots, sympow_states* from,
                                       const sympow_slots* from_slots, void* stream) {
  return guarded([&] {
    check_on_device(states, "sympow_states_assign");
    check_handle(from, "from");
    if (!from->on_device) raise<InvalidArgument>("from is on a CPU, must be on a CUDA device: sympow_states_move");
    check_pointer(slots, "slots");
    check_pointer(from_slots, "from_slots");
    if constexpr (has_cuda) copy_slots(*states, slots, *from, from_slots, stream);
  });
}

sympow_status sympow_states_clear(sympow_states* states) {
  return guarded([&] {
    check_handle(states, "states");
    states->on_device ? states->on_device->clear() : states->states->clear();
  });
}

sympow_status sympow_states_assign(sympow_states* states, int64_t sequence, const sympow_states* from,
                                   int64_t from_sequence) {
  return guarded([&] {
    States& to = on_cpu(states, "states");
    const States& other = on_cpu(from, "from");
    StateShape given = other.shape();
    check_index("sequence", sequence, to.shape().batch, "sequences of states");
    check_index("from_sequence", from_sequence, given.batch, "sequences of from");
    given.batch = to.shape().batch;  // that may differ
    check_alike("from", given, to.shape(), "states");
    to.assign(sequence, other, from_sequence);
  });
}

sympow_status sympow_states_read_as_bf16(sympow_states* states, int32_t rounds) {
  return guarded([&] {
    States& of = on_cpu(states, "states");
    if (rounds != 0 && rounds != 1) raise<InvalidArgument>("rounds is ", rounds, ", must be 0 or 1");
    of.read_as_bf16(rounds == 1);
  });
}

sympow_status sympow_states_merge(const sympow_states* left, const sympow_states* right, sympow_states** merged) {
  return guarded([&] {
    const States &first = on_cpu(left, "left"), &second = on_cpu(right, "right");
    check_pointer(merged, "merged");
    check_alike("right", second.shape(), first.shape(), "left");
    give(merged, first.merged(second));
  });
}

sympow_status sympow_states_tokens(const sympow_states* states, int64_t sequence, int64_t head, int64_t* tokens) {
  return guarded([&] {
    check_handle(states, "states");
    check_pointer(tokens, "tokens");
    const auto check = [&](const auto& shape) {
      check_index("sequence", sequence, shape.batch, "sequences of the states");
      check_index("head", head, shape.heads, "heads of the states");
    };
    if (states->on_device) {
      check(states->on_device->shape());
      *tokens = states->on_device->tokens(static_cast<Index>(sequence));
      return;
    }
    check(states->states->shape());
    *tokens = states->states->tokens(static_cast<Index>(sequence), static_cast<Index>(head));
  });
}

sympow_status sympow_states_read(const sympow_states* states, const sympow_tensor* sums,
                                 const sympow_tensor* normaliser, const sympow_tensor* angles) {
  return guarded([&] {
    const States& of = on_cpu(states, "states");
    const StateArrays to(of.shape(), sums, normaliser, angles);
    to.check_apart();
    of.read(pointer_to(to.sums), pointer_to(to.normaliser), pointer_to(to.angles));
  });
}

sympow_status sympow_states_write(sympow_states* states, const sympow_tensor* sums, const sympow_tensor* normaliser,
                                  const sympow_tensor* angles) {
  return guarded([&] {
    States& to = on_cpu(states, "states");
    check_pointer(sums, "sums");
    check_pointer(normaliser, "normaliser");
    const StateArrays of(to.shape(), sums, normaliser, angles);
    to.write(*of.sums, *of.normaliser, pointer_to(of.angles));
  });
}

sympow_status sympow_states_to_arrays(sympow_states* states, const sympow_tensor* sums, const sympow_tensor* normaliser,
                                      const sympow_tensor* angles, sympow_workspace* workspace, void* stream) {
  return guarded([&] {
    check_on_device(states, "sympow_states_read");
    if (workspace != nullptr) check_handle(workspace, "workspace");
    if constexpr (has_cuda) states_to_arrays(*states, sums, normaliser, angles, workspace, stream);
  });
}

sympow_status sympow_states_of_arrays(sympow_states* states, const sympow_tensor* sums, const sympow_tensor* normaliser,
                                      const sympow_tensor* angles, void* stream) {
  return guarded([&] {
    check_on_device(states, "sympow_states_write");
    if constexpr (has_cuda) states_of_arrays(*states, sums, normaliser, angles, stream);
  });
}

sympow_status sympow_states_save(const sympow_states* states, const char* path) {
  return guarded([&] {
    const States& of = on_cpu(states, "states");
    check_pointer(path, "path");
    of.save(path);
  });
}

sympow_status sympow_states_load(sympow_states* states, const char* path) {
  return guarded([&] {
    States& of = on_cpu(states, "states");
    check_pointer(path, "path");
    of.load(path);
  });
}

sympow_status sympow_state_gradients_create(const sympow_states* like, const sympow_tensor* sums,
                                            const sympow_tensor* normaliser, const sympow_tensor* angles,
                                            sympow_state_gradients** state_gradients) {
  return guarded([&] {
    check_handle(like, "like");
    check_pointer(state_gradients, "state_gradients");
    if constexpr (has_cuda)
      if (like->on_device)
        return give(state_gradients, state_gradients_on_device(*like->on_device, sums, normaliser, angles));
    const States& alike = on_cpu(like, "like");
    const StateArrays of(alike.shape(), sums, normaliser, angles);
    give(state_gradients, alike.gradients(pointer_to(of.sums), pointer_to(of.normaliser), pointer_to(of.angles)));
  });
}
void sympow_state_gradients_destroy(sympow_state_gradients* state_gradients) { destroy(state_gradients); }

sympow_status sympow_state_gradients_read(const sympow_state_gradients* state_gradients, const sympow_tensor* sums,
                                          const sympow_tensor* normaliser, const sympow_tensor* angles) {
  return guarded([&] {
    const StateGradients& of = on_cpu(state_gradients);
    const StateArrays to(of.shape(), sums, normaliser, angles);
    to.check_apart();
    of.read(pointer_to(to.sums), pointer_to(to.normaliser), pointer_to(to.angles));
  });
}

}  // extern "C"
