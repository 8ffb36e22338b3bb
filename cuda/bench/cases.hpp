// The cases: attention of whole sequences, forward and with its gradients, and decoding.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <sympow/cuda/decode.hpp>
#include <sympow/cuda/gradient.hpp>

#include "operations.hpp"
#include "report.hpp"

namespace sympow::cuda::bench {

/// How much of a case is measured.
struct Effort {
  double seconds = .25;  ///< of calls in a stream
  bool graph = true;     ///< the call as a graph as well
  bool parts = false;    ///< its kernels, and the clock behind it
  bool once = false;     ///< one call, untimed
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

/// These, what comes back to their rows, and memory for gradients.
class TrainingArrays : public Arrays {
 public:
  TrainingArrays(const Problem& p, std::uint32_t seed, cudaStream_t stream) : Arrays(p, seed, stream) {
    const std::int64_t tokens = p.batch * p.tokens;
    const auto memory = [&](std::int64_t heads, std::int64_t channels, std::size_t size) {
      return Memory(static_cast<std::size_t>(tokens * heads * channels) * size);
    };
    const std::size_t size = bytes_of(p.element);
    d_rows_ = normal_array(p.element, tokens * p.query_heads * p.e, seed * 4, stream);
    rows.d_rows = dense(std::as_const(d_rows_).get(), p.element, p.tokens, p.query_heads, p.e);
    if (p.is_normalised()) {
      factors_ = memory(p.query_heads, 1, 4);
      outputs.factors = dense(factors_.get(), Element::f32, p.tokens, p.query_heads, 1);
      rows.rows = outputs.rows, rows.factors = outputs.factors;
    }
    queries_ = memory(p.query_heads, p.d, size), keys_ = memory(p.key_heads, p.d, size);
    values_ = memory(p.key_heads, p.e, size), gates_ = memory(p.gate_heads, 1, 4);
    gradients.queries = dense(queries_.get(), p.element, p.tokens, p.query_heads, p.d);
    gradients.keys = dense(keys_.get(), p.element, p.tokens, p.key_heads, p.d);
    gradients.values = dense(values_.get(), p.element, p.tokens, p.key_heads, p.e);
    if (p.gate_heads > 0) gradients.log_gates = dense(gates_.get(), Element::f32, p.tokens, p.gate_heads, 1);
  }
  RowGradients rows;
  Gradients gradients;

 private:
  Memory d_rows_, factors_, queries_, keys_, values_, gates_;
};

/// As many arrays as make every call find its own out of the cache.
template <class Set>
std::vector<Set> rotating(const Problem& p, std::size_t l2_bytes, cudaStream_t stream) {
  const double sets = std::ceil(2. * static_cast<double>(l2_bytes) / std::max(bytes_of_arrays(p), 1.));
  std::vector<Set> arrays;
  for (std::uint32_t s = 0; s < static_cast<std::uint32_t>(std::clamp(sets, 1., 32.)); ++s)
    arrays.emplace_back(p, s + 1, stream);
  return arrays;
}

/// Ends the case where what was written for queries, of so many channels, is not finite, or all 0: its first and last
/// entries.
inline void check_rows(const Problem& p, const View& rows, int channels, cudaStream_t stream) {
  check(cudaStreamSynchronize(stream), "rows");
  const std::int64_t count = p.batch * p.tokens * p.query_heads * channels, some = std::min<std::int64_t>(count, 4096);
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

/// Fills in the times of `call(i)`.
template <class Call>
void measure(Result& r, const Effort& effort, cudaStream_t stream, const Call& call) {
  if (effort.once) return call(0);
  r.times = time_calls(stream, call, effort.seconds);
  if (effort.graph) r.graph_ms = time_graph(stream, call);
  if (!effort.parts) return;
  r.clock_ghz = clock_after(stream, call);
  r.parts = time_parts(stream, call);
}

/// Measures `call(set, workspace)` on whole sequences, and looks at what it wrote to `written(set)`, of that many
/// channels.
template <class Set, class Call, class Written>
Result time_sequences(const std::string& name, const Problem& p, const Effort& effort, cudaStream_t stream,
                      Status (*workspace_of)(const Problem&, std::size_t&) noexcept, const Call& call,
                      const Written& written, int channels) {
  Result r;
  r.name = name;
  try {
    Form form;
    check(attention_form(p, form, r.chunk), name.c_str());
    r.form = form == Form::attention ? "quadratic" : "chunked";
    const std::vector<Set> sets = rotating<Set>(p, effort.l2_bytes, stream);
    std::size_t bytes = 0;
    check(workspace_of(p, bytes), name.c_str());
    const Memory workspace(bytes);
    const auto timed = [&](int i) { call(sets[static_cast<std::size_t>(i) % sets.size()], workspace); };
    r.operations = operations(p, form, r.chunk), r.bytes = bytes_of_arrays(p);
    measure(r, effort, stream, timed);
    check_rows(p, written(sets[0]), channels, stream);
  } catch (const NotCompiled& error) {
    r.error = error.what();
  } catch (const std::exception& error) {
    r.error = error.what(), r.failed = true;
    static_cast<void>(cudaGetLastError());
  }
  return r;
}

/// A call of `attend`.
inline Result time_attention(const std::string& name, const Problem& p, const Effort& effort, cudaStream_t stream) {
  return time_sequences<Arrays>(
      name, p, effort, stream, attention_workspace,
      [&](const Arrays& a, const Memory& workspace) {
        check(attend(p, a.inputs, a.outputs, workspace.get(), workspace.bytes(), stream), name.c_str());
      },
      [](const Arrays& a) { return a.outputs.rows; }, p.e);
}

/// A call of `attend` and one of `attend_vjp` on what it leaves. Rates count the operations and bytes of the first one
/// alone.
inline Result time_training(const std::string& name, const Problem& p, const Effort& effort, cudaStream_t stream) {
  return time_sequences<TrainingArrays>(
      name, p, effort, stream, attention_vjp_workspace,
      [&](const TrainingArrays& a, const Memory& workspace) {
        Forward forward;
        Outputs outputs = a.outputs;
        RowGradients rows = a.rows;
        outputs.forward = &forward, rows.forward = &forward;
        check(attend(p, a.inputs, outputs, workspace.get(), workspace.bytes(), stream), name.c_str());
        check(attend_vjp(p, a.inputs, rows, a.gradients, workspace.get(), workspace.bytes(), stream), name.c_str());
      },
      [](const TrainingArrays& a) { return a.gradients.queries; }, p.d);
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
    measure(r, effort, stream, call);
    check_rows(p, tokens.outputs.rows, p.e, stream);
  } catch (const NotCompiled& error) {
    r.error = error.what();
  } catch (const std::exception& error) {
    r.error = error.what(), r.failed = true;
    static_cast<void>(cudaGetLastError());
  }
  return r;
}

}  // namespace sympow::cuda::bench
