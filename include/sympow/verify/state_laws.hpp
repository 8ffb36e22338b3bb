// The laws of states: a sequence goes on from one as if it had never been split, whether the state was handed on,
// merged or saved.
#pragma once

#include <cstring>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <sympow/attention/scan.hpp>
#include <sympow/attention/state_file.hpp>
#include <sympow/verify/form_laws.hpp>

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A sequence whose segments go through a state. `transition_of(segment)` is the transition of some tokens.
template <class Normalization, class Scalar, FiniteFeatureMap F, class TransitionOf>
struct SplitSequence {
  const F& feature;
  const TransitionOf& transition_of;
  Matrix<Scalar> Q, K, V;
  const Options& options;

  using StateOf = State<Scalar, F>;

  [[nodiscard]] Index tokens() const { return Q.cols(); }
  [[nodiscard]] StateOf state(Index tail = StateOf::default_tail, Frame frame = {}) const {
    return StateOf(feature, Q.rows(), V.rows(), tail, std::move(frame));
  }

  /// The rows of a segment from a state, which is left at its end.
  [[nodiscard]] Matrix<Scalar> rows(Segment s, bool by_chunks, StateOf& state) const {
    const auto transition = transition_of(s);
    const auto q = Q.middleCols(s.begin, s.size), k = K.middleCols(s.begin, s.size), v = V.middleCols(s.begin, s.size);
    return by_chunks ? chunked<Normalization>(feature, transition, q, k, v, state, options)
                     : recurrent<Normalization>(feature, transition, q, k, v, state, options);
  }

  [[nodiscard]] auto defined() const {
    return direct_attention<Normalization>(feature, transition_of(Segment{0, tokens()}), Q, K, V, options);
  }
};

/// Throws `InvalidArgument` unless they are places among so many tokens, in order.
inline void check_splits(const std::vector<Index>& splits, Index tokens) {
  Index before = 0;
  for (const Index split : splits) {
    if (split < before || split > tokens)
      sympow::detail::raise<InvalidArgument>("a split is at token ", split, ", must lie between ", before, " and ",
                                             tokens);
    before = split;
  }
}

/// Entries that differ in any bit, and the first row that has one. `first` is the number of the first row.
template <class Scalar>
Residual differing_bits(const std::string& form, const Matrix<Scalar>& a, const Matrix<Scalar>& b, Index first) {
  Residual found{0, 0, form};
  for (Index i = 0; i < a.cols(); ++i)
    for (Index r = 0; r < a.rows(); ++r)
      if (std::memcmp(&a(r, i), &b(r, i), sizeof(Scalar)) != 0) {
        if (found.row < 0) found.row = first + i;
        ++found.residual;
      }
  return found;
}

}  // namespace detail

/// Splitting a sequence anywhere changes nothing.
///
/// `transition_of(segment)` returns the transition of some tokens, such as `decay(log_gamma.segment(s.begin, s.size))`.
/// Tokens before `split` go through `recurrent` and the rest through `chunked`, and the other way round, with the state
/// handed on. What is compared: all rows, with the definition. Bound 1 in units of the row rule. Throws
/// `InvalidArgument` for a split beyond the tokens.
template <class Normalization = DefaultNormalization, FiniteFeatureMap F, class TransitionOf, class DQ, class DK,
          class DV>
[[nodiscard]] Residual splitting_law(const F& feature, const TransitionOf& transition_of,
                                     const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                     const Eigen::MatrixBase<DV>& V, Index split, const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  const detail::SplitSequence<Normalization, typename DQ::Scalar, F, TransitionOf> all{feature, transition_of, Q, K,
                                                                                       V,       options};
  detail::check_splits({split}, all.tokens());
  const auto rows = all.defined();
  Residual found{0, 1};
  for (const bool chunks_first : {false, true}) {
    auto state = all.state();
    Matrix<Scalar> Y(V.rows(), Q.cols());
    Y.leftCols(split) = all.rows({0, split}, chunks_first, state);
    const Segment rest{split, all.tokens() - split};
    Y.rightCols(rest.size) = all.rows(rest, !chunks_first, state);
    found = worse(found, detail::named(chunks_first ? "chunked, then recurrent" : "recurrent, then chunked",
                                       worst_row<Normalization, F>(rows, Y, rows.Y, unit_roundoff<Scalar>)));
  }
  return found;
}

/// The state of a whole is the merged states of its parts, whatever the split.
///
/// `splits` are numbers of tokens s_1 ≤ s_2 ≤ … ≤ s_n. The parts [0, s_1), [s_1, s_2), … each go into a state of their
/// own, which starts at the frame of the one before; the n states are merged, once from the left and once from the
/// right. What is compared: the rows of the tokens from s_n on, which go on from the merged state in the recurrent and
/// in the chunked form, with the definition over the whole. Bound 1 in units of the row rule. Throws `InvalidArgument`
/// for splits out of order or beyond the tokens.
template <class Normalization = DefaultNormalization, FiniteFeatureMap F, class TransitionOf, class DQ, class DK,
          class DV>
[[nodiscard]] Residual merge_law(const F& feature, const TransitionOf& transition_of, const Eigen::MatrixBase<DQ>& Q,
                                 const Eigen::MatrixBase<DK>& K, const Eigen::MatrixBase<DV>& V,
                                 const std::vector<Index>& splits, const Options& options = {}) {
  using Scalar = typename DQ::Scalar;
  const detail::SplitSequence<Normalization, typename DQ::Scalar, F, TransitionOf> all{feature, transition_of, Q, K,
                                                                                       V,       options};
  detail::check_splits(splits, all.tokens());
  Residual found{0, 1};
  if (splits.empty()) return found;
  std::vector<State<Scalar, F>> parts;
  Workspace<Scalar> workspace;
  Index begin = 0;
  for (const Index end : splits) {
    parts.push_back(all.state(State<Scalar, F>::default_tail, parts.empty() ? Frame{} : parts.back().frame()));
    absorb(feature, transition_of(Segment{begin, end - begin}), all.K.middleCols(begin, end - begin),
           all.V.middleCols(begin, end - begin), parts.back(), workspace, options);
    begin = end;
  }
  const Segment rest{begin, all.tokens() - begin};
  const auto rows = all.defined().segment(rest.begin, rest.size);
  for (const bool from_left : {true, false}) {
    auto merged = from_left ? parts.front() : parts.back();
    for (std::size_t n = 1; n < parts.size(); ++n)
      merged = from_left ? merge(merged, parts[n]) : merge(parts[parts.size() - 1 - n], merged);
    for (const bool by_chunks : {false, true}) {
      auto state = merged;
      Residual one = worst_row<Normalization, F>(rows, all.rows(rest, by_chunks, state), rows.Y, unit_roundoff<Scalar>);
      one.form = std::string(by_chunks ? "chunked" : "recurrent") + ", states merged from the " +
                 (from_left ? "left" : "right");
      if (one.row >= 0) one.row += rest.begin;
      found = worse(found, one);
    }
  }
  return found;
}

/// A state that was saved and loaded goes on with the same rows, bit for bit.
///
/// Tokens before `split` go into a state, with a tail and without; it is saved, and loaded into an empty one. What is
/// compared: the rows of the tokens from `split` on, from the state and from the loaded one, in the recurrent and in
/// the chunked form. The residual is the number of entries that differ in any bit, the bound 0. Throws
/// `InvalidStateFile` if the state cannot be loaded, `InvalidArgument` for a split beyond the tokens.
template <class Normalization = DefaultNormalization, FiniteFeatureMap F, class TransitionOf, class DQ, class DK,
          class DV>
[[nodiscard]] Residual saved_state_law(const F& feature, const TransitionOf& transition_of,
                                       const Eigen::MatrixBase<DQ>& Q, const Eigen::MatrixBase<DK>& K,
                                       const Eigen::MatrixBase<DV>& V, Index split, const Options& options = {}) {
  using StateOf = State<typename DQ::Scalar, F>;
  const detail::SplitSequence<Normalization, typename DQ::Scalar, F, TransitionOf> all{feature, transition_of, Q, K,
                                                                                       V,       options};
  detail::check_splits({split}, all.tokens());
  const Segment rest{split, all.tokens() - split};
  Residual found{0, 0};
  for (const Index tail : {Index{0}, Index{32}}) {
    auto state = all.state(tail), loaded = all.state(tail);
    static_cast<void>(all.rows({0, split}, true, state));
    std::stringstream file;
    save(state, file);
    load(loaded, file);
    for (const bool by_chunks : {false, true}) {
      StateOf one = state, other = loaded;
      const std::string form = std::string(by_chunks ? "chunked" : "recurrent") + ", tail " + std::to_string(tail);
      found = worse(
          found, detail::differing_bits(form, all.rows(rest, by_chunks, one), all.rows(rest, by_chunks, other), split));
    }
  }
  return found;
}

}  // namespace SYMPOW_NAMESPACE::verify
