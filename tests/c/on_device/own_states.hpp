// States of a batch on the device as the C interface has them, and as sympow::cuda does.
#pragma once

#include "batch.hpp"

namespace sympow::test {

/// States of a batch on the device, and their memory.
struct OwnStates {
  DeviceBytes memory;
  CStates handle;

  OwnStates(const sympow_attention* attention, const Sizes& x) : memory(bytes(attention, x)) {
    sympow_state_shape shape = shape_of(x);
    shape.memory = memory.view();
    fine(sympow_states_create(attention, &shape, nullptr, &handle));
  }
  static sympow_state_shape shape_of(const Sizes& x) {
    sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
    shape.batch = x.B, shape.heads = x.Hg == 0 ? x.Hk : x.Hg, shape.d = x.d, shape.e = x.e;
    shape.device = {SYMPOW_CUDA, 0}, shape.dtype = x.type, shape.key_heads = x.Hk;
    return shape;
  }
  static std::size_t bytes(const sympow_attention* attention, const Sizes& x) {
    const sympow_state_shape shape = shape_of(x);
    std::size_t n = 0;
    fine(sympow_states_bytes(attention, &shape, &n));
    return n;
  }
};

/// The same of sympow::cuda.
struct CudaStates {
  Array<std::byte> state_memory, tail_memory;
  cuda::State state;
  cuda::Tail tail;

  explicit CudaStates(const cuda::Problem& p) : state_memory(state_bytes(p)), tail_memory(tail_bytes(p)) {
    done(cuda::state_in(p, state_memory.data(), state_memory.size(), state));
    done(cuda::tail_in(p, 64, tail_memory.data(), tail_memory.size(), tail));
  }
  static std::size_t state_bytes(const cuda::Problem& p) {
    std::size_t n = 0;
    done(cuda::state_bytes(p, n));
    return n;
  }
  static std::size_t tail_bytes(const cuda::Problem& p) {
    std::size_t n = 0;
    done(cuda::tail_bytes(p, 64, n));
    return n;
  }
};

/// States as arrays, of power 2, and as sympow::cuda takes them.
struct StateTensors {
  DeviceTensor sums, normaliser, angles;

  explicit StateTensors(const Sizes& x)
      : sums({x.B, heads(x), dimension(x), x.e}, f32_type),
        normaliser({x.B, heads(x), dimension(x)}, f32_type),
        angles({x.B, heads(x), x.d / 2}, {SYMPOW_FLOAT, 64, 1}) {}
  cuda::StateArrays cuda_arrays(bool turns) {
    return {sums.data<float>(), normaliser.data<float>(), turns ? angles.data<double>() : nullptr};
  }

 private:
  static std::int64_t heads(const Sizes& x) { return x.Hg == 0 ? x.Hk : x.Hg; }
  static std::int64_t dimension(const Sizes& x) { return cuda::monomials(2, static_cast<int>(x.d)); }
};

}  // namespace sympow::test
