#include "checks.hpp"

#include <cmath>
#include <cstddef>
#include <cstring>

#include "instantiations.hpp"
#include "memory.hpp"

namespace sympow::cuda::library {

namespace {

constexpr std::int64_t most_tokens = std::int64_t{1} << 30, most_blocks = 65535;
constexpr const char* without_rates = "rates is a null pointer";

const char* name_of(Element element) noexcept {
  return element == Element::bf16 ? "bf16" : element == Element::fp16 ? "fp16" : element == Element::f32 ? "f32" : "?";
}

Status check_alignment(const char* name, const void* data, std::size_t alignment) noexcept {
  if (reinterpret_cast<std::uintptr_t>(data) % alignment == 0) return {};
  return refuse(Code::bad_argument, "%s: its address is %p and must be a multiple of %zu", name, data, alignment);
}

/// An array that kernels take 16 bytes of at once, and what the problem says of it.
struct Part {
  const char* name;
  const void* data;
  bool needed;
  const char* unneeded = nullptr;  // why it must not be there
};
template <std::size_t N>
Status check_parts(const Part (&parts)[N], const char* of) noexcept {
  for (const Part& part : parts) {
    char name[60];
    std::snprintf(name, sizeof name, "%s of the %s", part.name, of);
    if (part.needed && !part.data) return refuse(Code::bad_argument, "%s: a null pointer", name);
    if (!part.needed && part.data && part.unneeded)
      return refuse(Code::bad_argument, "%s: it is there, but %s", name, part.unneeded);
    SYMPOW_CUDA_TRY(check_alignment(name, part.data, 16));
  }
  return {};
}

/// "P 1 with d 64, 128; P 2 with d 16, …": the table, of an element.
void write_table(Element element, char* text, std::size_t size) noexcept {
  std::size_t used = 0;
  int power = 0;
  for (const Instantiation& i : instantiations) {
    if (!is_compiled(i.power, i.d, element)) continue;
    char entry[40];
    if (i.power == power)
      std::snprintf(entry, sizeof entry, ", %d", i.d);
    else
      std::snprintf(entry, sizeof entry, "%sP %d with d %d", power == 0 ? "" : "; ", i.power, i.d);
    power = i.power;
    const std::size_t length = std::strlen(entry);
    if (used + length + 1 > size) break;
    std::memcpy(text + used, entry, length + 1);
    used += length;
  }
}

Status check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) noexcept {
  if (value >= least && value <= most) return {};
  return refuse(Code::bad_argument, "%s is %lld and must be %lld to %lld", name, static_cast<long long>(value),
                static_cast<long long>(least), static_cast<long long>(most));
}

/// What all arrays of a kind have in common.
struct Kind {
  const char* name;
  Element element;
  std::int64_t heads, channels;
  std::size_t alignment;  // of pointer and strides, in bytes
  bool written;

  /// Another array like it.
  [[nodiscard]] Kind named(const char* other, bool is_written) const noexcept {
    return {other, element, heads, channels, alignment, is_written};
  }
};
Kind queries_of(const Problem& p) noexcept { return {"queries", p.element, p.query_heads, p.d, 16, false}; }
Kind keys_of(const Problem& p) noexcept { return {"keys", p.element, p.key_heads, p.d, 16, false}; }
Kind values_of(const Problem& p) noexcept { return {"values", p.element, p.key_heads, p.e, 16, false}; }
Kind beta_of(const Problem& p) noexcept { return {"beta", Element::f32, p.key_heads, 1, 4, false}; }
Kind gates_of(const Problem& p) noexcept { return {"log gates", Element::f32, p.gate_heads, 1, 4, false}; }

Status check_view(const Problem& problem, const ConstView& view, const Kind& kind) noexcept {
  if (!view.data) return refuse(Code::bad_argument, "%s: a null pointer", kind.name);
  if (view.element != kind.element)
    return refuse(Code::bad_argument, "%s: the element is %s and must be %s", kind.name, name_of(view.element),
                  name_of(kind.element));
  SYMPOW_CUDA_TRY(check_alignment(kind.name, view.data, kind.alignment));
  const bool packed = problem.offsets != nullptr;
  const struct {
    const char* name;
    std::int64_t stride, size;
  } axes[] = {{"sequence", view.sequence, packed ? 1 : problem.batch},
              {"token", view.token, packed ? problem.total_tokens : problem.tokens},
              {"head", view.head, kind.heads}};
  std::uint64_t last = static_cast<std::uint64_t>(kind.channels);
  for (const auto& axis : axes) {
    if (axis.size <= 1) continue;  // its stride is not used
    const auto stride = static_cast<long long>(axis.stride);
    if (axis.stride < 0 || (kind.written && axis.stride < kind.channels))
      return refuse(Code::bad_argument, "%s: the %s stride is %lld and must be at least %lld", kind.name, axis.name,
                    stride, kind.written ? static_cast<long long>(kind.channels) : 0LL);
    const std::size_t unit = kind.alignment / bytes_of(kind.element);
    if (static_cast<std::uint64_t>(axis.stride) % unit != 0)
      return refuse(Code::bad_argument, "%s: the %s stride is %lld entries and must be a multiple of %zu", kind.name,
                    axis.name, stride, unit);
    last += product(axis.stride, axis.size - 1);
    if (last >= beyond / 4) return refuse(Code::too_large, "%s: the last entry is beyond 2^60", kind.name);
  }
  return {};
}

Status check_gates(const Problem& problem, const ConstView& gates) noexcept {
  if (problem.gate_heads == 0) {
    if (gates.data) return refuse(Code::bad_argument, "log gates: they are there, but gate_heads is 0");
    return {};
  }
  return check_view(problem, gates, gates_of(problem));
}

Status check_beta(const Problem& problem, const ConstView& beta) noexcept {
  if (!beta.data) return {};
  if (!problem.rates) return refuse(Code::bad_argument, "beta: it is there, but rates is a null pointer");
  return check_view(problem, beta, beta_of(problem));
}

bool has_tokens(const Problem& p) noexcept { return p.batch > 0 && (p.offsets ? p.total_tokens : p.tokens) > 0; }

Status check_inputs(const Problem& p, const Inputs& inputs) noexcept {
  SYMPOW_CUDA_TRY(check_view(p, inputs.queries, queries_of(p)));
  SYMPOW_CUDA_TRY(check_view(p, inputs.keys, keys_of(p)));
  SYMPOW_CUDA_TRY(check_view(p, inputs.values, values_of(p)));
  SYMPOW_CUDA_TRY(check_gates(p, inputs.log_gates));
  return check_beta(p, inputs.beta);
}

Status check_rotary(const Problem& p) noexcept {
  SYMPOW_CUDA_TRY(check_alignment("rates", p.rates, 16));
  if (p.pairing && *p.pairing != Pairing::interleaved && *p.pairing != Pairing::half_split)
    return refuse(Code::bad_argument, "pairing is %d, which is none", static_cast<int>(*p.pairing));
  if (p.rates && !p.pairing)
    return refuse(Code::bad_argument, "pairing is not said, must be interleaved or halves where there are rates");
  return {};
}

}  // namespace

Status check_problem(const Problem& p) noexcept {
  SYMPOW_CUDA_TRY(check_range("batch", p.batch, 0, 0x7fffffff));
  SYMPOW_CUDA_TRY(check_range("tokens", p.tokens, 0, most_tokens));
  SYMPOW_CUDA_TRY(check_range("query_heads", p.query_heads, 1, most_blocks));
  SYMPOW_CUDA_TRY(check_range("key_heads", p.key_heads, 1, p.query_heads));
  if (p.query_heads % p.key_heads != 0)
    return refuse(Code::bad_argument, "query_heads is %lld and must be a multiple of key_heads, %lld",
                  static_cast<long long>(p.query_heads), static_cast<long long>(p.key_heads));
  if (p.gate_heads != 0 && p.gate_heads != p.key_heads && p.gate_heads != p.query_heads)
    return refuse(Code::bad_argument, "gate_heads is %lld and must be 0, key_heads (%lld) or query_heads (%lld)",
                  static_cast<long long>(p.gate_heads), static_cast<long long>(p.key_heads),
                  static_cast<long long>(p.query_heads));
  SYMPOW_CUDA_TRY(check_range("e", p.e, 8, 256));
  if (p.e % 8 != 0) return refuse(Code::bad_argument, "e is %d and must be a multiple of 8", p.e);
  if (p.offsets && p.lengths) return refuse(Code::bad_argument, "sequences are packed by offsets or padded, not both");
  SYMPOW_CUDA_TRY(check_alignment("offsets", p.offsets, alignof(std::int64_t)));
  SYMPOW_CUDA_TRY(check_alignment("lengths", p.lengths, alignof(std::int32_t)));
  if (p.offsets)
    SYMPOW_CUDA_TRY(
        check_range("total_tokens", p.total_tokens, 0, static_cast<std::int64_t>(product(p.batch, p.tokens))));
  if (!p.offsets && p.total_tokens > 0)
    return refuse(Code::bad_argument, "total_tokens is %lld, but offsets is a null pointer",
                  static_cast<long long>(p.total_tokens));
  SYMPOW_CUDA_TRY(check_rotary(p));
  if (!std::isfinite(p.scale)) return refuse(Code::bad_argument, "scale is %g and must be finite", p.scale);
  if (p.form != Form::automatic && p.form != Form::chunked && p.form != Form::attention)
    return refuse(Code::bad_argument, "form is %d, must be automatic, attention or chunked", static_cast<int>(p.form));
  if (p.form == Form::attention && p.carries_state)
    return refuse(Code::bad_argument, "the attention form has no state, but carries_state is set");
  if (p.chunk < 0 || p.chunk % 64 != 0 || p.chunk > 1 << 20)
    return refuse(Code::bad_argument, "chunk is %d and must be a multiple of 64 up to 2^20, or 0", p.chunk);
  if (p.element != Element::bf16 && p.element != Element::fp16 && p.element != Element::f32)
    return refuse(Code::bad_argument, "element is %d, which is none", static_cast<int>(p.element));
  if (p.products != Products::exact && p.products != Products::fast)
    return refuse(Code::bad_argument, "products is %d, which is none", static_cast<int>(p.products));
  if (p.states != Precision::rounded && p.states != Precision::split)
    return refuse(Code::bad_argument, "states is %d, which is none", static_cast<int>(p.states));
  if (is_compiled(p.power, p.d, p.element)) return {};
  char table[160] = "none";
  write_table(p.element, table, sizeof table);
  return refuse(Code::not_compiled, "there are no kernels of %s for P %d with d %d; there are: %s", name_of(p.element),
                p.power, p.d, table);
}

Status check_vjp_arrays(const Problem& p, const Inputs& inputs, const RowGradients& rows,
                        const Gradients& gradients) noexcept {
  const struct {
    const char *article, *name;
    ConstState state;
    bool is_gradient;
  } states[] = {{"an", "initial state", inputs.initial_state, false},
                {"a", "gradient of the final state", rows.final_state, true},
                {"a", "gradient of the initial state", gradients.initial_state, true}};
  for (const auto& [article, name, state, is_gradient] : states) {
    if (!is_there(state)) continue;
    if (!p.carries_state)
      return refuse(Code::bad_argument, "there is %s %s, but carries_state is not set", article, name);
    SYMPOW_CUDA_TRY(check_state(p, state, name, is_gradient));
  }
  if (!has_tokens(p)) return {};
  SYMPOW_CUDA_TRY(check_inputs(p, inputs));
  const Kind of_rows = {"rows", p.element, p.query_heads, p.e, 16, false};
  SYMPOW_CUDA_TRY(check_view(p, rows.d_rows, of_rows.named("gradients of rows", false)));
  if (p.is_normalised() || gradients.scale) SYMPOW_CUDA_TRY(check_view(p, rows.rows, of_rows));
  if (p.is_normalised())
    SYMPOW_CUDA_TRY(check_view(p, rows.factors, {"factors", Element::f32, p.query_heads, 1, 4, false}));
  SYMPOW_CUDA_TRY(check_view(p, gradients.queries, queries_of(p).named("gradients of queries", true)));
  SYMPOW_CUDA_TRY(check_view(p, gradients.keys, keys_of(p).named("gradients of keys", true)));
  SYMPOW_CUDA_TRY(check_view(p, gradients.values, values_of(p).named("gradients of values", true)));
  if (gradients.log_gates.data) {
    if (p.gate_heads == 0)
      return refuse(Code::bad_argument, "gradients of log gates: they are there, but gate_heads is 0");
    SYMPOW_CUDA_TRY(check_view(p, gradients.log_gates, gates_of(p).named("gradients of log gates", true)));
  }
  if (!p.rates && (gradients.beta.data || gradients.rates))
    return refuse(Code::bad_argument, "gradients of %s: they are there, but %s", gradients.rates ? "rates" : "beta",
                  without_rates);
  if (gradients.beta.data) SYMPOW_CUDA_TRY(check_view(p, gradients.beta, beta_of(p).named("gradients of beta", true)));
  SYMPOW_CUDA_TRY(check_alignment("gradient of the scale", gradients.scale, alignof(double)));
  return check_alignment("gradients of rates", gradients.rates, alignof(double));
}

Status check_arrays(const Problem& p, const Inputs& inputs, const Outputs& outputs) noexcept {
  if (has_tokens(p)) {
    SYMPOW_CUDA_TRY(check_inputs(p, inputs));
    SYMPOW_CUDA_TRY(check_view(p, outputs.rows, {"rows", p.element, p.query_heads, p.e, 16, true}));
    if (outputs.condition.data)
      SYMPOW_CUDA_TRY(check_view(p, outputs.condition, {"condition", Element::f32, p.query_heads, 1, 4, true}));
    for (const auto* input : {&inputs.queries, &inputs.keys, &inputs.values})
      if (outputs.rows.data == input->data)
        return refuse(Code::bad_argument, "rows: their memory at %p is that of an input, which is read later",
                      outputs.rows.data);
    if (outputs.factors.data)
      SYMPOW_CUDA_TRY(check_view(p, outputs.factors, {"factors", Element::f32, p.query_heads, 1, 4, true}));
    if (outputs.factors.data && !p.is_normalised())
      return refuse(Code::bad_argument, "factors: they are there, but rows are not normalised");
  }
  const bool initial = is_there(inputs.initial_state), last = is_there(outputs.final_state);
  if ((initial || last) && !p.carries_state)
    return refuse(Code::bad_argument, "there is %s, but carries_state is not set",
                  initial ? "an initial state" : "a final state");
  if (initial) SYMPOW_CUDA_TRY(check_state(p, inputs.initial_state, "initial state"));
  if (last) SYMPOW_CUDA_TRY(check_state(p, outputs.final_state, "final state"));
  return {};
}

bool is_there(const ConstState& x) noexcept { return x.sums || x.normaliser || x.level || x.mass || x.turns; }

Status check_state(const Problem& p, const ConstState& state, const char* name, bool is_gradient) noexcept {
  return check_parts({{"sums", state.sums, true},
                      {"normaliser", state.normaliser, true},
                      {"level", state.level, true},
                      {"mass", state.mass, true},
                      {"turns", state.turns, p.rates && !is_gradient, p.rates ? nullptr : without_rates}},
                     name);
}

Status check_state_arrays(const Problem& p, const StateArrays& arrays) noexcept {
  return check_parts({{"sums", arrays.sums, p.batch > 0},
                      {"normaliser", arrays.normaliser, p.batch > 0},
                      {"angles", arrays.angles, false, p.rates ? nullptr : without_rates}},
                     "arrays of states");
}

Status check_capacity(int capacity) noexcept {
  if (capacity == 64 || capacity == 128) return {};
  return refuse(Code::bad_argument, "the tail's capacity is %d and must be 64 or 128", capacity);
}

Status check_tail(const Problem& p, const Tail& tail) noexcept {
  SYMPOW_CUDA_TRY(check_capacity(tail.capacity));
  SYMPOW_CUDA_TRY(check_range("the tail's count", tail.count, 0, tail.capacity));
  SYMPOW_CUDA_TRY(check_integers("the tail's counts", tail.counts, false));
  return check_parts({{"keys", tail.keys, true},
                      {"values", tail.values, true},
                      {"log gates", tail.log_gates, p.gate_heads > 0, "gate_heads is 0"},
                      {"paths", tail.paths, p.rates != nullptr, without_rates}},
                     "tail");
}

Status check_integers(const char* name, const void* data, bool needed) noexcept {
  if (needed && !data) return refuse(Code::bad_argument, "%s: a null pointer", name);
  return check_alignment(name, data, alignof(std::int32_t));
}

Status check_slots(const Problem& p, const Tail& tail, const Slots& slots) noexcept {
  SYMPOW_CUDA_TRY(check_range("batch of a decoding", p.batch, 0, most_blocks));
  SYMPOW_CUDA_TRY(check_range("slots", slots.count, slots.indices ? 0 : p.batch, 0x7fffffff));
  SYMPOW_CUDA_TRY(check_integers("indices of slots", slots.indices, false));
  SYMPOW_CUDA_TRY(check_integers("faults of slots", slots.faults, false));
  if (!tail.counts && (slots.indices || slots.faults))
    return refuse(Code::bad_argument, "%s of slots: they are there, but the tail's counts are a null pointer",
                  slots.indices ? "indices" : "faults");
  return {};
}

Status check_decoding(const Problem& p) noexcept {
  if (p.offsets || p.lengths)
    return refuse(Code::bad_argument, "decoding takes as many new tokens of every sequence: no offsets, no lengths");
  SYMPOW_CUDA_TRY(check_problem(p));
  SYMPOW_CUDA_TRY(check_range("batch of a decoding", p.batch, 0, most_blocks));
  return check_range("tokens of a decoding", p.tokens, 1, 64);
}

}  // namespace sympow::cuda::library

namespace sympow::cuda {

Status check_slots(const Slots& slots, const std::int32_t* indices, std::int64_t batch) noexcept {
  using namespace library;
  SYMPOW_CUDA_TRY(check_range("slots", slots.count, 0, 0x7fffffff));
  SYMPOW_CUDA_TRY(check_range("batch of a decoding", batch, 0, most_blocks));
  SYMPOW_CUDA_TRY(check_integers("indices of slots", indices, batch > 0));
  constexpr std::int64_t at_once = 1 << 16;
  for (std::int64_t first = 0; first == 0 || first < slots.count; first += at_once) {
    std::uint8_t taken[at_once / 8] = {};
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t index = indices[b];
      if (index >= slots.count)
        return refuse(Code::bad_argument, "index %lld of slots is %lld and must be below %lld, or negative",
                      static_cast<long long>(b), static_cast<long long>(index), static_cast<long long>(slots.count));
      if (index < first || index >= first + at_once) continue;
      std::uint8_t& eight = taken[(index - first) / 8];
      const auto bit = static_cast<std::uint8_t>(1 << (index - first) % 8);
      if (eight & bit)
        return refuse(Code::bad_argument, "index %lld of slots is %lld, which an earlier sequence has",
                      static_cast<long long>(b), static_cast<long long>(index));
      eight = static_cast<std::uint8_t>(eight | bit);
    }
  }
  return {};
}

}  // namespace sympow::cuda
