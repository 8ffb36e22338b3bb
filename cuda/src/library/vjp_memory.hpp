// The workspace of attend_vjp.
#pragma once

#include "../gradient/state_part.hpp"
#include "arguments.hpp"

namespace sympow::cuda::library {

/// The arrays of a workspace beside those of the forward pass: see RowArrays, FlowArrays, KeyUnits, RowUnits; and of
/// the chunked form AdjointWeights, ChunkArrays and Prefixes of adjoints; with rotary AngleArrays.
struct VjpMemory {
  AttentionMemory forward;
  std::byte *query_units, *row_units, *key_units;
  double *exponent, *peak;
  float *factor, *offset, *inverse;
  std::int32_t *unit, *values_exponent;
  double *row, *key, *inside, *through;
  float *row_mass, *weights;
  std::int32_t *ends, *exponents;
  double* begin;
  float* own_mass;
  double* enter;
  float *mass, *keep, *add;
  std::int32_t* shift;
  std::byte *adjoint_sums, *adjoint_rest;  // rest: null unless states are split
  float* adjoint_normaliser;
  double *later, *passing;
  double *angle_row, *angle_key, *angle_inside, *angle_through, *angle_later, *angle_passing;
  double *rate_rows, *rate_keys, *rate_passing;
  float *later_rows, *later_chunks;
  double *unit_of_rows, *unit_of_chunks;
  double* scale_products;
  float* whole;

  VjpMemory(const Problem& p, const Plan& plan, Pieces& pieces) noexcept : forward(p, plan, pieces) {
    const std::uint64_t slots = product(p.query_heads, plan.slots), rows = product(slots, plan.chunk);
    const std::uint64_t blocks = static_cast<std::uint64_t>(plan.chunk / block_tokens), all = all_tokens(p);
    pieces.take(query_units, product(all, p.query_heads, p.d, bytes_of(p.element)));
    pieces.take(row_units, product(all, p.query_heads, p.e, bytes_of(p.element)));
    pieces.take(key_units, product(all, p.key_heads, p.d, bytes_of(p.element)));
    pieces.take(exponent, rows);
    pieces.take(peak, rows);
    pieces.take(factor, rows);
    pieces.take(offset, rows);
    pieces.take(inverse, rows);
    pieces.take(unit, slots);
    pieces.take(values_exponent, product(p.key_heads, plan.slots, blocks));
    const bool has_flows = p.gate_heads > 0;
    pieces.take(row, has_flows ? rows : 0);
    pieces.take(key, has_flows ? rows : 0);
    pieces.take(inside, has_flows ? rows : 0);
    pieces.take(through, has_flows ? product(slots, blocks, blocks) : 0);

    const bool states = plan.form == Form::chunked;
    const std::uint64_t of_states = states ? product(p.state_heads(), plan.slots) : 0;
    const std::uint64_t padded = product(of_states, state_rows(p.power, p.d));
    pieces.take(row_mass, states ? rows : 0);
    pieces.take(weights, states ? rows : 0);
    pieces.take(ends, of_states);
    pieces.take(exponents, of_states);
    pieces.take(begin, of_states);
    pieces.take(own_mass, of_states);
    pieces.take(enter, of_states);
    pieces.take(mass, of_states);
    pieces.take(keep, of_states);
    pieces.take(add, of_states);
    pieces.take(shift, of_states);
    pieces.take(adjoint_sums, product(padded, p.e, bytes_of(p.element)));
    adjoint_rest = nullptr;
    if (splits(p)) pieces.take(adjoint_rest, product(padded, p.e, bytes_of(p.element)));
    pieces.take(adjoint_normaliser, padded);
    pieces.take(later, has_flows ? product(of_states, plan.chunk) : 0);
    pieces.take(passing, has_flows ? of_states : 0);

    const std::uint64_t key_slots = product(p.key_heads, plan.slots), pairs = static_cast<std::uint64_t>(p.d / 2);
    pieces.take(angle_row, p.rates ? rows : 0);
    pieces.take(angle_key, p.rates ? product(key_slots, plan.chunk) : 0);
    pieces.take(angle_inside, p.rates ? rows : 0);
    pieces.take(angle_through, p.rates ? product(slots, blocks, blocks) : 0);
    pieces.take(angle_later, p.rates && states ? product(key_slots, plan.chunk) : 0);
    pieces.take(angle_passing, p.rates && states ? key_slots : 0);
    pieces.take(rate_rows, p.rates ? product(slots, blocks, pairs) : 0);
    pieces.take(rate_keys, p.rates ? product(key_slots, blocks, pairs) : 0);
    pieces.take(rate_passing, p.rates && states ? product(key_slots, pairs) : 0);
    const std::uint64_t keys = p.rates ? product(key_slots, plan.chunk) : 0, after = states ? keys : 0;
    pieces.take(later_rows, product(keys, p.d));
    pieces.take(later_chunks, product(after, p.d));
    pieces.take(unit_of_rows, keys);
    pieces.take(unit_of_chunks, after);
    pieces.take(scale_products, product(slots, blocks));
    pieces.take(whole, padded);
  }
  /// With what only the chunked form has.
  [[nodiscard]] RowArrays of_rows(bool states) const {
    return {{exponent}, {peak}, {factor}, {offset}, {inverse}, {states ? row_mass : nullptr}, {unit}};
  }
  [[nodiscard]] FlowArrays flows(bool states) const {
    return {{row}, {key}, {inside}, {through}, {states ? later : nullptr}, {states ? passing : nullptr}};
  }
  /// Without gradients of angles: only what is turned.
  [[nodiscard]] AngleArrays angles(const Rotary& rotary, bool wanted, bool states) const {
    if (!wanted) return {rotary};
    return {rotary,
            {{angle_row},
             {angle_key},
             {angle_inside},
             {angle_through},
             {states ? angle_later : nullptr},
             {states ? angle_passing : nullptr}},
            {rate_rows},
            {rate_keys},
            {rate_passing},
            {{later_rows}, {unit_of_rows}},
            {{states ? later_chunks : nullptr}, {unit_of_chunks}}};
  }
  [[nodiscard]] ChunkArrays adjoint_chunks() const {
    return {{forward.total}, {begin}, {own_mass}, {enter}, {mass}, {keep}, {add}, {shift}};
  }
  /// States before chunks: those that rows are made of, and their normalisers as floats.
  template <class T>
  [[nodiscard]] StatesOfChunks<T> states() const {
    Prefixes<T> prefixes = prefixes_of<T>(forward);
    prefixes.normaliser = {};
    prefixes.whole = {whole};
    return {prefixes, chunks_of(forward)};
  }
  template <class T>
  [[nodiscard]] StatesOfChunks<T> adjoints() const {
    Prefixes<T> prefixes;
    prefixes.sums = {reinterpret_cast<T*>(adjoint_sums)};
    prefixes.rest = {reinterpret_cast<T*>(adjoint_rest)};
    prefixes.whole = {adjoint_normaliser};
    return {prefixes, adjoint_chunks()};
  }
};

}  // namespace sympow::cuda::library
