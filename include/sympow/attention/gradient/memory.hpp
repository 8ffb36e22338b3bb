// The scratch memory of the backward walks.
#pragma once

#include <sympow/attention/engine/memory.hpp>
#include <sympow/attention/gradient/row_adjoints.hpp>
#include <sympow/attention/gradient/through_states.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// What the attention form keeps of all keys on the way back, and of the rows of a segment with one block, a row a
/// query.
template <class Scalar>
struct BlockAdjointMemory {
  std::vector<Frame> frames;          ///< where the queries and keys of each block turn from
  std::vector<double> gates_through;  ///< couplings that flow through each block
  Panel<double> through, of_keys;     ///< planes × blocks; couplings of each key with the rows of later blocks
  Panel<Scalar> logits, products;     ///< n × n
  Panel<Scalar> slopes;               ///< the same, of scores that are known by them
  Panel<Scalar> pulled;               ///< d × n for every block
  Panel<Scalar> queries, G;           ///< n × d and n × e
  Panel<Scalar> d_keys;               ///< of all keys, from later rows
  Panel<Scalar> weights, sums, d_block;
  Panel<double> gates, gates_low;    ///< of rows
  Panel<Scalar> Y;                   ///< of a forward pass that nobody has kept,
  std::vector<RowSum> sums_of_rows;  ///< and its sums
};

/// What the backward walks keep of a segment of n tokens, whose vectors have `rows` rows: those of keys, or of φ where
/// scores are embedded.
template <class Scalar>
struct AdjointMemory {
  RowAdjointMemory<Scalar> rows;
  BlockAdjointMemory<Scalar> blocks;
  std::vector<Segment> segments;
  LiftedTurns turns;
  Panel<Scalar> products, d_logits;             ///< n × n: v_j·dŷ_i, then couplings; gradients of logits
  Panel<Scalar> slopes;                         ///< n × n, of scores that are known by them
  Panel<Scalar> weights, factors, last;         ///< n; of rows, in their unit
  Panel<Scalar> faint_logits, faint_weights;    ///< n
  Panel<Scalar> G, dV;                          ///< e × n
  Panel<Scalar> tokens_down;                    ///< n × e, of dŷ or v
  Panel<Scalar> queries, keys;                  ///< d × n, before transport
  Panel<Scalar> moved_queries, moved_keys;      ///< the same, used up
  Panel<Scalar> d_queries, d_keys;              ///< rows × n
  Panel<Scalar> d_plain_queries, d_plain_keys;  ///< d × n, of what an embedded score was made of
  Panel<Scalar> features;                       ///< rows × n
  Panel<Scalar> d_row_vectors;                  ///< rows × 2 n: Sᵀ dŷ and Z brought back through φ
  Panel<Scalar> d_key_vectors, d_keys_of_Z;     ///< rows × n: Hᵀ v⁺ brought back through φ, and its last row alone
  Panel<Scalar> key_values;                     ///< e × n: H φ(k)
  Panel<Scalar> state, adjoint, transposed;     ///< (e + 1) × d of a state that is mixed
  Panel<double> read, read_products;            ///< n: Zᵀφ(q) and φ(q)·Sᵀ dŷ
  Panel<double> flows, of_rows, of_keys;        ///< n: couplings through every token; of rows with what is before, …
  Panel<double> through, moments, monomials, scratch;
  Panel<double> levels, level_exponents;       ///< of keys
  Panel<Scalar> other_products, other_logits;  ///< n × n, where keys have several levels

  /// Memory for so much.
  void reserve(Index d, Index vector_rows, Index e, Index n) {
    rows.reserve(e, n);
    for (auto* panel : {&products, &d_logits}) (*panel)(n, n);
    for (auto* panel : {&G, &dV, &tokens_down, &key_values}) (*panel)(e, n);
    for (auto* panel : {&queries, &keys, &moved_queries, &moved_keys, &d_plain_queries, &d_plain_keys}) (*panel)(d, n);
    for (auto* panel : {&d_queries, &d_keys, &features, &d_key_vectors, &d_keys_of_Z}) (*panel)(vector_rows, n);
    d_row_vectors(vector_rows, 2 * n);
    for (auto* panel : {&weights, &factors, &last, &faint_logits, &faint_weights}) (*panel)(n);
    for (auto* panel : {&read, &read_products, &flows, &of_rows, &of_keys, &levels, &level_exponents}) (*panel)(n);
    through(d), moments(d), scratch(std::max(d, 2 * n));
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
