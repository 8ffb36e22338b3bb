// A request: tokens of some sequences, of which the first ones are read at once and the others arrive one by one.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>

#include <sympow/attention/device_state.hpp>
#include <sympow/cuda/decode.hpp>

#include "device.hpp"

namespace cuda_decode {

using sympow::Index;

/// The nearest bf16, and back.
inline std::uint16_t to_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float from_bf16(std::uint16_t x) {
  const std::uint32_t bits = std::uint32_t{x} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr int power = 2;
constexpr Index d = 64, batch = 2, heads = 2, prompt = 200, generated = 80, tokens = prompt + generated;
using CpuState = sympow::State<double, sympow::SymmetricPower<power>>;

/// An array [B, T, H, channels] of bf16 in memory of the host.
struct Array {
  std::vector<std::uint16_t> bits;
  Index channels;

  Array(std::vector<std::uint16_t> of, Index n) : bits(std::move(of)), channels(n) {}
  Array(std::mt19937& random, Index n) : bits(static_cast<std::size_t>(batch * tokens * heads * n)), channels(n) {
    std::normal_distribution<float> normal;
    for (auto& x : bits) x = to_bf16(normal(random));
  }
  /// Some tokens of a sequence and head as the CPU takes them, a column each.
  Eigen::MatrixXd head(Index b, Index h, Index first, Index count) const {
    return Eigen::MatrixXd::NullaryExpr(channels, count, [&](Index c, Index t) {
      return from_bf16(bits[static_cast<std::size_t>(((b * tokens + first + t) * heads + h) * channels + c)]);
    });
  }
};

/// Gates [B, T, H], natural logarithms.
struct Gates {
  std::vector<float> logs;

  explicit Gates(std::mt19937& random) : logs(static_cast<std::size_t>(batch * tokens * heads)) {
    std::uniform_real_distribution<float> uniform(-.02f, 0);
    for (auto& x : logs) x = uniform(random);
  }
  Eigen::VectorXd head(Index b, Index h, Index first, Index count) const {
    return Eigen::VectorXd::NullaryExpr(
        count, [&](Index t) { return logs[static_cast<std::size_t>((b * tokens + first + t) * heads + h)]; });
  }
};

/// The arrays of a request on both sides, its states and tails on the device.
class Request {
 public:
  Array queries, keys, values;
  Gates gates;
  sympow::cuda::State state;

  Request(std::mt19937& random, Pool& pool)
      : queries(random, d), keys(random, d), values(random, d), gates(random), problem_(problem(prompt)) {
    using namespace sympow::cuda;
    const auto bring = [&](const auto& x) {
      auto* to = pool.take<typename std::decay_t<decltype(x)>::value_type>(x.size());
      copy_to_device(to, x);
      return to;
    };
    queries_ = bring(queries.bits), keys_ = bring(keys.bits), values_ = bring(values.bits);
    gates_ = bring(gates.logs);
    rows_ = pool.take<std::uint16_t>(values.bits.size());
    condition_ = pool.take<float>(gates.logs.size());
    std::size_t bytes = 0;
    check(state_bytes(problem_, bytes));
    check(state_in(problem_, pool.take(bytes), bytes, state));
    check(tail_bytes(problem_, 64, bytes));
    check(tail_in(problem_, 64, pool.take(bytes), bytes, tail_));
    const auto make_room = [&](const Status& status) {
      check(status);
      workspace_bytes_ = std::max(workspace_bytes_, bytes);
    };
    make_room(attention_workspace(problem_, bytes));
    make_room(decode_workspace(problem(1), bytes));
    make_room(fold_workspace(problem(1), 64, bytes));
    workspace_ = pool.take(workspace_bytes_);
  }

  /// Rows of the prompt, and the state after it.
  void prefill(const Stream& stream) {
    sympow::cuda::Outputs to = outputs(0);
    to.final_state = state;
    check(attend(problem_, inputs(0), to, workspace_, workspace_bytes_, stream));
  }

  /// Rows of the tokens first … end - 1, one after the other.
  void decode(const Stream& stream, Index first, Index end) {
    for (Index t = first; t < end; ++t) {
      if (tail_.count == tail_.capacity) fold(stream);
      check(
          sympow::cuda::decode(problem(1), state, tail_, inputs(t), outputs(t), workspace_, workspace_bytes_, stream));
    }
  }

  /// The tokens of the tail into the state.
  void fold(const Stream& stream) {
    check(sympow::cuda::fold(problem(1), state, tail_, workspace_, workspace_bytes_, stream));
  }

  Array rows() const { return {copy_to_host(rows_, values.bits.size()), d}; }
  std::vector<float> condition() const { return copy_to_host(condition_, gates.logs.size()); }

 private:
  static sympow::cuda::Problem problem(Index count) {
    sympow::cuda::Problem p;
    p.power = power, p.d = p.e = static_cast<int>(d), p.batch = batch, p.tokens = count;
    p.query_heads = p.key_heads = p.gate_heads = heads;
    p.carries_state = true;
    return p;
  }
  /// From token t on.
  sympow::cuda::Inputs inputs(Index t) const {
    using sympow::cuda::Element;
    const auto from = [&](const std::uint16_t* x) {
      return sympow::cuda::dense(static_cast<const void*>(x + t * heads * d), Element::bf16, tokens, heads, d);
    };
    const void* gates_from = gates_ + t * heads;
    return {from(queries_),
            from(keys_),
            from(values_),
            sympow::cuda::dense(gates_from, Element::f32, tokens, heads, 1),
            {}};
  }
  sympow::cuda::Outputs outputs(Index t) const {
    using sympow::cuda::Element;
    return {sympow::cuda::dense(static_cast<void*>(rows_ + t * heads * d), Element::bf16, tokens, heads, d),
            sympow::cuda::dense(static_cast<void*>(condition_ + t * heads), Element::f32, tokens, heads, 1),
            {}};
  }

  sympow::cuda::Problem problem_;
  std::uint16_t *queries_, *keys_, *values_, *rows_;
  float *gates_, *condition_;
  sympow::cuda::Tail tail_;
  std::byte* workspace_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace cuda_decode
