// The cases: attention of whole sequences, and decoding.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <sympow/cuda/decode.hpp>

#include "operations.hpp"
#include "report.hpp"

namespace sympow::cuda::bench {

/// How much of a case is measured.
struct Effort {
  double seconds = .25;  ///< of calls in a stream
  bool graph = true;     ///< the call as a graph as well
  bool parts = false;    ///< its kernels
  std::size_t l2_bytes = 50 << 20;
};

/// Arrays of a problem, random normal, without gaps.
class Arrays {
 public:
  Arrays(const Problem& p, std::uint32_t seed, cudaStream_t stream) {
    const std::int64_t tokens = p.batch * p.tokens;
    const auto array = [&](std::int64_t heads, std::int64_t channels, std::uint32_t which) {
      return normal_array(p.element, tokens * heads * channels, seed * 4 + which, stream);
    };
    queries_ = array(p.query_heads, p.d, 1), keys_ = array(p.key_heads, p.d, 2), values_ = array(p.key_heads, p.e, 3);
    rows_ = Memory(static_cast<std::size_t>(tokens * p.query_heads * p.e) * bytes_of(p.element));
    inputs.queries = dense(std::as_const(queries_).get(), p.element, p.tokens, p.query_heads, p.d);
    inputs.keys = dense(std::as_const(keys_).get(), p.element, p.tokens, p.key_heads, p.d);
    inputs.values = dense(std::as_const(values_).get(), p.element, p.tokens, p.key_heads, p.e);
    outputs.rows = dense(rows_.get(), p.element, p.tokens, p.query_heads, p.e);
    if (p.gate_heads > 0) {
      gates_ = log_gate_array(tokens * p.gate_heads, 1e-3f, seed * 4 + 4, stream);  // a window of a thousand tokens
      inputs.log_gates = dense(std::as_const(gates_).get(), Element::f32, p.tokens, p.gate_heads, 1);
    }
  }
  Inputs inputs;
  Outputs outputs;

 private:
  Memory queries_, keys_, values_, gates_, rows_;
};

/// As many arrays as make every call find its own out of the cache.
inline std::vector<Arrays> rotating_arrays(const Problem& p, std::size_t l2_bytes, cudaStream_t stream) {
  const double sets = std::ceil(2. * static_cast<double>(l2_bytes) / std::max(bytes_of_arrays(p), 1.));
  std::vector<Arrays> arrays;
  for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(std::clamp(sets, 1., 32.)); ++s)
    arrays.emplace_back(p, s + 1, stream);
  return arrays;
}

/// Ends the case where rows are not finite, or all 0: the first and last ones.
inline void check_rows(const Problem& p, const View& rows, cudaStream_t stream) {
  check(cudaStreamSynchronize(stream), "rows");
  const std::int64_t count = p.batch * p.tokens * p.query_heads * p.e, some = std::min<std::int64_t>(count, 4096);
  const std::size_t size = bytes_of(p.element);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(some) * size);
  for (const std::int64_t from : {std::int64_t{0}, count - some}) {
    check(
        cudaMemcpy(bytes.data(), static_cast<const unsigned char*>(rows.data) + from * static_cast<std::int64_t>(size),
                   bytes.size(), cudaMemcpyDeviceToHost),
        "rows");
    bool finite = true, any = false;
    for (std::size_t i = 0; i < bytes.size(); i += size) {
      const unsigned high = bytes[i + size - 1] * 256u + bytes[i + size - 2];  // sign, exponent, first bits
      const unsigned exponent = p.element == Element::fp16 ? 0x7c00 : 0x7f80;
      finite = finite && (high & exponent) != exponent;
      any = any || (high & 0x7fff) != 0;
    }
    if (!finite || !any) throw std::runtime_error(finite ? "rows are all 0" : "rows are not finite");
  }
}

/// A call of `attend`.
inline Result time_attention(const std::string& name, const Problem& p, const Effort& effort, cudaStream_t stream) {
  Result r;
  r.name = name;
  try {
    Form form;
    check(attention_form(p, form, r.chunk), name.c_str());
    r.form = form == Form::quadratic ? "quadratic" : "chunked";
    const std::vector<Arrays> arrays = rotating_arrays(p, effort.l2_bytes, stream);
    std::size_t bytes = 0;
    check(attention_workspace(p, bytes), name.c_str());
    const Memory workspace(bytes);
    const auto call = [&](int i) {
      const Arrays& a = arrays[static_cast<std::size_t>(i) % arrays.size()];
      check(attend(p, a.inputs, a.outputs, workspace.get(), bytes, stream), name.c_str());
    };
    r.operations = operations(p, form, r.chunk), r.bytes = bytes_of_arrays(p);
    r.times = time_calls(stream, call, effort.seconds);
    if (effort.graph) r.graph_ms = time_graph(stream, call);
    if (effort.parts) r.parts = time_parts(stream, call);
    check_rows(p, arrays[0].outputs.rows, stream);
  } catch (const NotCompiled& error) {
    r.error = error.what();
  } catch (const std::exception& error) {
    r.error = error.what(), r.failed = true;
    static_cast<void>(cudaGetLastError());
  }
  return r;
}

/// A call of `decode` with so many tokens in the tail, against states of some tokens; or of `fold`, when `folds`.
inline Result time_decoding(const std::string& name, const Problem& p, int tail_count, bool folds, const Effort& effort,
                            cudaStream_t stream) {
  Result r;
  r.name = name, r.form = folds ? "fold" : "decode";
  try {
    std::size_t bytes = 0;
    check(state_bytes(p, bytes), name.c_str());
    const Memory state_memory(bytes);
    State state;
    check(state_in(p, state_memory.get(), bytes, state), name.c_str());
    Problem before = p;  // brings the states into being
    before.tokens = 256, before.carries_state = true;
    {
      Arrays a(before, 1, stream);
      a.outputs.final_state = state;
      check(attention_workspace(before, bytes), name.c_str());
      const Memory workspace(bytes);
      check(attend(before, a.inputs, a.outputs, workspace.get(), bytes, stream), name.c_str());
      check(cudaStreamSynchronize(stream), name.c_str());
    }
    constexpr int capacity = 64;
    check(tail_bytes(p, capacity, bytes), name.c_str());
    const Memory tail_memory(bytes);
    Tail tail;
    check(tail_in(p, capacity, tail_memory.get(), bytes, tail), name.c_str());
    const Arrays tokens(p, 2, stream);
    std::size_t fold_bytes = 0;
    check(decode_workspace(p, bytes), name.c_str());
    check(fold_workspace(p, capacity, fold_bytes), name.c_str());
    const Memory workspace(std::max(bytes, fold_bytes));
    const auto decode_at = [&](int count) {
      tail.count = count;
      check(decode(p, state, tail, tokens.inputs, tokens.outputs, workspace.get(), workspace.bytes(), stream),
            name.c_str());
    };
    const auto at_once = static_cast<int>(p.tokens);
    for (int count = 0; count + at_once <= capacity; count += at_once) decode_at(count);  // fills the tail
    const auto call = [&](int) {
      if (!folds) return decode_at(tail_count);
      tail.count = capacity;
      check(fold(p, state, tail, workspace.get(), workspace.bytes(), stream), name.c_str());
    };
    const double tail_tokens = static_cast<double>(p.batch * p.key_heads) * (folds ? capacity : tail_count);
    const double tail_moved = tail_tokens * (p.d + p.e) * static_cast<double>(bytes_of(p.element));
    r.bytes = bytes_of_states(p) * (folds ? 2 : 1) + tail_moved + (folds ? 0 : bytes_of_arrays(p));
    r.times = time_calls(stream, call, effort.seconds);
    if (effort.graph) r.graph_ms = time_graph(stream, call);
    if (effort.parts) r.parts = time_parts(stream, call);
    check_rows(p, tokens.outputs.rows, stream);
  } catch (const NotCompiled& error) {
    r.error = error.what();
  } catch (const std::exception& error) {
    r.error = error.what(), r.failed = true;
    static_cast<void>(cudaGetLastError());
  }
  return r;
}

}  // namespace sympow::cuda::bench
