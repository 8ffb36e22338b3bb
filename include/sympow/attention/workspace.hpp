// The scratch memory of the forms.
#pragma once

#include <vector>

#include <sympow/attention/engine/row_sums.hpp>
#include <sympow/transition/transition.hpp>

namespace sympow {
namespace detail {
/// A block of keys in the attention form: gates to its end and lengths, their largest weight in log2, and its log decay.
template <class Scalar>
struct KeyBlock {
  KeyFactors<Scalar> factors;
  double reference = no_weight, log_decay = 0;
  double absolute = 0;  // weight of all, lengths included, for diagnostics
};
}  // namespace detail

/// Scratch of one call at a time; keep it to reuse its memory. It holds nothing that outlives a call: any form, feature map and
/// shape may use the same one in turn. Once it has seen the largest call, calls allocate nothing.
template <class Scalar>
struct Workspace {
  detail::Panel<Scalar> queries;            ///< d × n, a segment's queries at its start
  detail::Panel<Scalar> keys;               ///< d × n, its keys at its end; all of them in the attention form
  detail::Panel<Scalar> logits;             ///< keys by queries, then weights
  detail::Panel<Scalar> own_logits;         ///< of a block's queries with its own keys in the attention form
  detail::Panel<Scalar> own_queries;        ///< d × n, its queries at its start
  detail::Panel<Scalar> own_weights;        ///< n, of its own keys
  detail::Panel<Scalar> all_weights;        ///< T, of all keys in the attention form
  detail::Panel<Scalar> absolute_logits;    ///< the same of lengths, for diagnostics
  detail::Panel<Scalar> features;           ///< D × n, of queries, then of keys
  detail::Panel<Scalar> key_features;       ///< D × n, of an embedded score
  detail::Panel<Scalar> tail_features;      ///< D × m, of a state's tail
  detail::Panel<Scalar> numerators;         ///< e × n, read from a state; weighted values on their way into it
  detail::Panel<Scalar> row;                ///< n × 3, denominators read from a state, and their absolute weights
  detail::Panel<Scalar> weights;            ///< n, of keys on their way into a state
  detail::Panel<Scalar> tail_weights;       ///< m, of keys of a tail
  detail::Panel<Scalar> fold_weights;       ///< m + n, of all keys that a state takes in
  detail::Panel<Scalar> fold_norms;         ///< m + n, their lengths
  detail::Panel<double> noise;              ///< n, weights relative to which a denominator can be rounding
  detail::Panel<double> absolute_weights;   ///< n, of all that a row sees, for diagnostics
  detail::Panel<Scalar> query_norms;        ///< n, lengths for diagnostics
  detail::Panel<Scalar> key_norms;          ///< n, likewise
  detail::Panel<Scalar> all_key_norms;      ///< T, of all keys in the attention form
  detail::Panel<Scalar> tail_norms;         ///< m, likewise
  detail::Panel<double> query_exponents;    ///< n, log2 of what was taken out of the columns
  detail::Panel<double> key_exponents;      ///< n, likewise
  detail::Panel<double> all_key_exponents;  ///< T, of all keys in the attention form
  detail::Panel<double> from_start;         ///< n, log decay from a segment's start through each token
  detail::Panel<double> to_end;             ///< n, from each token to the segment's end
  detail::Panel<double> gates;              ///< n, from each key to a query
  detail::Panel<double> shift;              ///< n, log2 scales of a contribution
  detail::Panel<double> absolute_shift;     ///< n, of its absolute weights
  detail::Panel<double> gate;               ///< n, log2 of its decay
  detail::Panel<Scalar> tokens;    ///< 2n × d, queries and keys of a chunk with the tokens of a channel side by side
  detail::Panel<Scalar> columns;   ///< the same, one token a column
  detail::Panel<Scalar> panel;     ///< 2n × block, some entries of their features
  detail::Panel<Scalar> prefixes;  ///< 2n × (P - 1), on the way there
  detail::Panel<Scalar> weighted;  ///< e × n, values on their way into a state
  detail::Panel<Scalar> partial;   ///< e × n, sums over some entries
  detail::Panel<Scalar> partial_denominators;    ///< n, likewise
  detail::Panel<Scalar> sums;                    ///< e × n, over all
  detail::Panel<Scalar> sum_residues;            ///< e × n, what their roundings have lost
  detail::Panel<Scalar> denominators;            ///< n, over all
  detail::Panel<Scalar> denominator_residues;    ///< n, what their roundings have lost
  std::vector<Index> reserved;                   ///< the last shape of the recurrent form that there is memory for
  Frame frame;                                   ///< coordinates of the attention form
  Eigen::VectorXd channels;                      ///< d, a segment's log channel decay
  detail::Panel<double> channel_decays;          ///< d × 2, decays by channel and ones
  detail::Panel<double> lifted_decays;           ///< D × 2, their monomials
  detail::KeyFactors<Scalar> factors;            ///< gates and lengths of keys on their way into weights
  std::vector<detail::KeyBlock<Scalar>> blocks;  ///< of keys in the attention form
  detail::RowSums<Scalar> rows;                  ///< the rows in the making
  detail::RowSums<Scalar> absolute;              ///< their absolute weights, for diagnostics
};

}  // namespace sympow
