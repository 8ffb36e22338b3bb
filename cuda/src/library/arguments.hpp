// A caller's arrays as kernels take them.
#pragma once

#include <sympow/cuda/decode.hpp>

#include "../layout/chunks.hpp"
#include "../layout/turns.hpp"
#include "plan.hpp"

namespace sympow::cuda::library {

/// The problem of a call that has states but no tokens.
inline Problem without_tokens(Problem problem) {
  problem.tokens = problem.total_tokens = 0;
  problem.lengths = nullptr;
  problem.offsets = nullptr;
  problem.form = Form::chunked;
  problem.chunk = 0;
  return problem;
}

template <class T>
Global<T> global(T* data) {
  return {data};
}

/// Strides of axes with one entry count as 0: nobody needs to set them.
template <class T, class AnyView>
Rows<T> rows_of(const AnyView& view, const Problem& problem) {
  const bool padded = !problem.offsets;
  const std::int64_t tokens = padded ? problem.tokens : problem.total_tokens;
  return {{static_cast<T*>(view.data)},
          padded && problem.batch > 1 ? view.sequence : 0,
          tokens > 1 ? view.token : 0,
          view.head};
}

inline Sequences sequences_of(const Problem& problem, const Plan& plan) {
  return {
      {problem.offsets}, {problem.lengths},           static_cast<int>(problem.batch), static_cast<int>(problem.tokens),
      plan.chunk,        static_cast<int>(plan.slots)};
}

inline Heads heads_of(const Problem& problem) {
  return {static_cast<int>(problem.query_heads), static_cast<int>(problem.state_heads()),
          static_cast<int>(problem.key_heads)};
}

/// Kernels that get a state to read write none of it.
inline States states_of(const ConstState& state) {
  return {{const_cast<float*>(state.sums)},
          {const_cast<float*>(state.normaliser)},
          {const_cast<double*>(state.level)},
          {const_cast<float*>(state.mass)}};
}

template <class T>
Rows<const T> read_only(const Rows<T>& x) {
  return {{x.data.data}, x.sequence, x.token, x.head};
}

/// Of tokens with these paths, from these angles on.
inline Rotary rotary_of(const Problem& problem, const Rows<double>& paths, const double* begin) {
  return {{problem.rates},
          read_only(paths),
          {begin},
          static_cast<int>(problem.key_heads),
          problem.pairing == Pairing::half_split};
}

/// Arrays [B, T, heads, channels] of a workspace, without gaps; paths and turned keys.
template <class T>
Rows<T> rows_of_workspace(const Problem& p, T* data, std::int64_t heads, std::int64_t channels) {
  return rows_of<T>(dense(data, p.element, p.tokens, heads, channels), p);
}
inline Rows<double> paths_of(const Problem& p, const AttentionMemory& m) {
  return rows_of_workspace(p, m.paths, p.key_heads, 1);
}
template <class T>
Rows<T> turned_of(const Problem& p, const AttentionMemory& m) {
  return rows_of_workspace(p, reinterpret_cast<T*>(m.turned), p.key_heads, p.d);
}
inline Rows<double> paths_of(const Problem& p, const Tail& tail) {
  return {{tail.paths}, p.key_heads * tail.capacity, 1, tail.capacity};
}

inline TokenArrays tokens_of(const AttentionMemory& m) {
  return {{m.sum}, {m.key}, {m.level}, {m.inverse}, {m.to_end}, {m.reset}, {m.key_mass}};
}
inline ChunkArrays chunks_of(const AttentionMemory& m) {
  return {{m.total}, {m.end}, {m.own_mass}, {m.enter}, {m.mass}, {m.keep}, {m.add}, {m.shift}};
}
inline ChunkSums sums_of(const AttentionMemory& m) { return {{m.own_sums}, {m.own_normaliser}}; }
template <class T>
Prefixes<T> prefixes_of(const AttentionMemory& m) {
  return {{reinterpret_cast<T*>(m.prefix_sums)},
          {reinterpret_cast<T*>(m.prefix_normaliser)},
          {reinterpret_cast<T*>(m.prefix_rest)}};
}

}  // namespace sympow::cuda::library
