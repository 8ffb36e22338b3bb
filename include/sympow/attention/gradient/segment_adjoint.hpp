// A segment of tokens on the way back: its rows, its pairs, and from them to queries, keys, values and parameters.
#pragma once

#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/gradient/memory.hpp>
#include <sympow/attention/gradient/pair_adjoints.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// One call on its way back: everything is checked. The gradients are 0 at first.
template <class Scalar>
struct VjpCall {
  const TransitionView<Scalar>& transition;
  VjpView<Scalar>& vjp;
  RowKind rows;
  Options options;
  MatrixView<const Scalar> Q, K, V, dY;
  MatrixView<Scalar> dQ, dK, dV;
  double& d_scale;
  EngineMemory<Scalar>& memory;
  AdjointMemory<Scalar>& adjoint_memory;
};

/// What the backward walks share: a segment whose rows see its own keys and something before it, and whose keys are
/// seen by something behind it. The walks differ in what these are.
template <class Scalar, FeatureMap F>
class SegmentAdjoint {
 protected:
  static constexpr int degree = degree_of<F>;
  static constexpr bool is_embedded = F::score == Score::embedded, is_exponential = F::score == Score::exponential;

  SegmentAdjoint(const F& feature, const VjpCall<Scalar>& call)
      : feature_(feature),
        call_(call),
        memory_(call.memory),
        own_(call.adjoint_memory),
        loader_(feature, call.transition, call.memory.segment, call.K.rows(), call.options.scale, is_embedded),
        rows_(own_.rows, call.rows),
        action_(call.transition.key_action()) {}
  ~SegmentAdjoint() = default;

  /// Memory for segments of n tokens.
  void reserve(Index n) {
    loader_.reserve(n);
    own_.reserve(call_.K.rows(), loader_.vector_rows(), call_.V.rows(), n);
  }

  /// Loads the tokens of a segment whose gates are: those of them that have queries, and those that have keys.
  void load(Segment s, Frame& frame, Segment query_tokens, Segment key_tokens) {
    query_tokens_ = query_tokens;
    key_tokens_ = key_tokens;
    loader_.load(s.size, frame, query_tokens, queries_of(call_.Q), key_tokens, keys_of(call_.K), keys_of(call_.V));
  }

  /// Takes the loaded segment back. `start` is where its queries and keys turn from.
  void take_back(const Frame& start) {
    const Segment s = loader_.segment();
    rows_.begin(s.size, first_row(), queries_of(call_.dY));
    for (auto* flows : {&own_.flows, &own_.of_rows, &own_.of_keys}) (*flows)(s.size).setZero();
    keep_vectors();
    look_before();
    add_sums();
    const std::vector<RowRun>& runs = rows_.finish(loader_.queries());
    const double through = look_behind();
    take_runs(runs, start);
    add_outer_flows(own_.of_rows(s.size).data(), own_.of_keys(s.size).data(), through, own_.flows(s.size).data(),
                    s.size);
    call_.vjp.add_decay_flows(s, own_.flows(s.size).data());
  }

  /// What the rows see before the segment is looked at.
  virtual void look_before() = 0;
  /// log2 of the largest weight in it, for the segment's first token.
  [[nodiscard]] virtual double log2_before() = 0;
  /// The largest exponent of row i in it, of an exponential score.
  [[nodiscard]] virtual double largest_before(Index) { return no_weight; }
  /// Adds it to the sums of rows begin … end - 1, which are counted from 2^E on.
  virtual void add_before(Index begin, Index end, double E) = 0;
  /// Rows of a run have the gradients 2^R (G_i, last_i), in `own_.G`, `own_.last` and with G_i = inv_i dŷ_i
  /// `own_.factors`: what these are to their queries, and to what is before.
  virtual void read_back(const RowRun& run, double R, MatrixView<Scalar> d_queries) = 0;
  /// All rows are known, what sees the keys from behind is looked at. Returns what flows through the segment between
  /// both for its gates, and has it by channel or plane in `own_.through`.
  virtual double look_behind() = 0;
  /// The exponent of what the keys have from there, and what that is to them, of the unit 2^R.
  [[nodiscard]] virtual double exponent_behind() = 0;
  virtual void add_behind(double R, MatrixView<Scalar> d_keys, MatrixView<Scalar> dV) = 0;
  /// Whether what mixes flows through as well: `own_.state` and `own_.adjoint` are then set, their product in the unit
  /// 2^R.
  virtual bool mixes_state(double) { return false; }

  // The first row that has a query.
  [[nodiscard]] Index first_row() const { return query_tokens_.begin - loader_.segment().begin; }
  // The columns of those tokens that have queries, and of those that have keys.
  template <class X>
  [[nodiscard]] X queries_of(const X& x) const {
    return x.middleCols(query_tokens_.size == 0 ? 0 : query_tokens_.begin - call_.options.mask.offset,
                        query_tokens_.size);
  }
  template <class X>
  [[nodiscard]] X keys_of(const X& x) const {
    return x.middleCols(key_tokens_.size == 0 ? 0 : key_tokens_.begin, key_tokens_.size);
  }
  [[nodiscard]] static double log2_of(double log) { return log * std::numbers::log2e; }
  [[nodiscard]] Index size() const { return loader_.segment().size; }
  /// Numbers of `own_.through`.
  [[nodiscard]] Index flows_through() const {
    return action_ == KeyAction::scale ? call_.K.rows() : action_ == KeyAction::turn ? call_.vjp.planes().count : 0;
  }

  // From scaled logits to true ones.
  static void lengthen(ColumnView<Scalar> d_logits, const Keys<Scalar>& keys, double query_exponent, Index n) {
    for (Index j = 0; j < n; ++j)
      if (const double far = length_of(keys.exponents[j]) + length_of(query_exponent); far != 0)
        d_logits[j] = times_power_of_two(d_logits[j], far);
  }
  // n of a vector 2^n x that is loaded, which stands for itself where it is 0 or embedded.
  static double length_of(double exponent) { return is_embedded || exponent == no_weight ? 0 : exponent; }
  // Gates up to the segment, and then to row i of it.
  [[nodiscard]] LogDecay until(Index i, LogDecay gates = {}) {
    const Queries<Scalar> queries = loader_.queries();
    gates.add(LogDecay{queries.from_first[i], queries.from_first_low[i]});
    return gates;
  }
  // Y += 2^exponent X; X is used up.
  static void add_times_power_of_two(MatrixView<Scalar> Y, MatrixView<Scalar> X, double exponent) {
    for (Index t = 0; t < X.cols(); ++t) {
      auto x = X.col(t);
      set_times_power_of_two<Scalar>(x, x, exponent);
      Y.col(t) += x;
    }
  }

  const F& feature_;
  const VjpCall<Scalar>& call_;
  EngineMemory<Scalar>& memory_;
  AdjointMemory<Scalar>& own_;
  SegmentLoader<Scalar, F> loader_;
  RowAdjoints<Scalar, F> rows_;
  KeyAction action_;
  Segment query_tokens_, key_tokens_;

 private:
  static constexpr double bits_of_unit = 40;

  // Queries and keys as they were before transport, and as it has moved them.
  void keep_vectors() {
    const Index n = size(), d = call_.K.rows();
    own_.loaded_queries(d, n) = memory_.segment.queries(d, n);
    own_.loaded_keys(d, n) = memory_.segment.keys(d, n);
    if (action_ != KeyAction::scale && action_ != KeyAction::mix) return;
    const auto load = [&](MatrixView<Scalar> to, Index first, MatrixView<const Scalar> x, double factor) {
      if (x.cols() < n) to.setZero();
      if (x.cols() > 0)
        load_columns<F, Scalar>(x, to.middleCols(first, x.cols()), own_.scratch(x.cols()), own_.weights(x.cols()),
                                factor);
    };
    load(own_.queries(d, n), first_row(), queries_of(call_.Q), call_.options.scale);
    load(own_.keys(d, n), 0, keys_of(call_.K), 1);
  }

  // Weights of the first keys beside 2^E.
  ColumnView<const Scalar> weights_of(Index count, double E) {
    const Keys<Scalar> keys = loader_.keys();
    auto weights = own_.weights(count);
    double M = keys.M;
    if (count == keys.size())
      weights = keys.weights;
    else
      M = set_weights<degree>(weights, keys.log_b.head(count), keys.log_b_low.head(count), keys.exponents.head(count),
                              own_.scratch(2 * count));
    if (M != no_weight) set_scaled(weights.data(), weights.data(), power_of_two<Scalar>(M - E), count);
    return weights;
  }
  // The keys of the segment that row i sees.
  [[nodiscard]] Index seen_by(Index i) const { return std::min(i + 1, key_tokens_.size); }

  // Sums of the rows, by groups of them that one reference serves.
  void add_sums() {
    const Index n = size();
    const Keys<Scalar> keys = loader_.keys();
    auto products = own_.products(n, n);
    if (keys.size() > 0) set_causal_product(products.topRows(keys.size()), keys.values, rows_.dY());
    if constexpr (is_exponential) return add_exponentials();
    double seen = log2_before();
    for (Index begin = 0, end = 0; begin < n; begin = end) {
      double least = no_weight;
      for (; end < n; ++end) {
        const double next =
            end < keys.size() ? std::max(seen, degree * keys.exponents[end] + log2_of(keys.log_b[end])) : seen;
        if (least != no_weight && next - least > -least_weight) break;
        seen = next;
        if (least == no_weight) least = seen;
      }
      const double E = std::ceil(seen);
      rows_.references().segment(begin, end - begin).setConstant(E);
      if (E == no_weight) continue;
      const auto weights = weights_of(std::min(end, keys.size()), E);
      for (Index i = begin; i < end; ++i)
        rows_.add(i,
                  sums_of_scores<degree>(logits().col(i).data(), weights.data(), products.col(i).data(), seen_by(i)));
      add_before(begin, end, E);
    }
  }
  // The same for e^x, each row with a reference of its own: the largest of its exponents. Logits become scores.
  void add_exponentials() {
    const Keys<Scalar> keys = loader_.keys();
    auto ones = own_.weights(keys.size());
    ones.setOnes();
    for (Index i = 0; i < size(); ++i) {
      const double length = loader_.queries().exponents[i];
      Scalar* const x = logits().col(i).data();
      const double largest = std::max(largest_before(i), largest_exponent(x, keys, until(i), length, seen_by(i)));
      const double E = rows_.references()[i] = std::ceil(log2_of(largest));
      if (E == no_weight) continue;
      weigh_exponentials(x, keys, until(i), length, E * std::numbers::ln2, seen_by(i));
      rows_.add(i, sums_of_scores<1>(x, ones.data(), own_.products(size(), size()).col(i).data(), seen_by(i)));
      add_before(i, i + 1, E);
    }
  }
  [[nodiscard]] MatrixView<Scalar> logits() { return memory_.segment.logits(size(), size()); }

  // All gradients of the segment, in a unit for every run of rows and one for what comes from behind; in one for all
  // where that is no matter.
  void take_runs(const std::vector<RowRun>& runs, const Frame& start) {
    const double behind = exponent_behind();
    RowRun none{0, 0, 0, no_weight}, one = none;
    Index count = 0;
    for (const RowRun& run : runs)
      if (run.R != no_weight) one = run, ++count;
    const double apart = one.R == no_weight || behind == no_weight ? 0 : std::abs(one.R - behind);
    if (count <= 1 && apart <= bits_of_unit) return take_run(one, true, std::max(one.R, behind), start);
    own_.moments(flows_through()).setZero();
    for (const RowRun& run : runs)
      if (run.R != no_weight) take_run(run, false, run.R, start);
    take_run(none, true, behind, start);
    if (is_embedded) own_.through(flows_through()) += own_.moments(flows_through());
  }

  // The gradients of some rows, and if `with_behind` those of all keys from behind and of what flows through, in the
  // unit 2^R.
  void take_run(const RowRun& run, bool with_behind, double R, const Frame& start) {
    if (R == no_weight) R = 0;
    const Index n = size(), e = call_.V.rows(), keys = key_tokens_.size;
    auto d_logits = own_.d_logits(n, n), dV = own_.dV(e, keys);
    auto d_queries = own_.d_queries(loader_.vector_rows(), n), d_keys = own_.d_keys(loader_.vector_rows(), n);
    d_logits.setZero(), d_queries.setZero(), d_keys.setZero(), dV.setZero();
    if (run.begin < run.end) {
      set_row_gradients(run, R);
      differentiate_own(run, R, d_logits, dV);
      read_back(run, R, d_queries);
    }
    if (with_behind) add_behind(R, d_keys.leftCols(keys), dV);
    add_times_power_of_two(keys_of(call_.dV), dV, R);
    go_back(with_behind, R, start);
  }
  void set_row_gradients(const RowRun& run, double R) {
    const Index n = size(), e = call_.V.rows();
    auto factors = own_.factors(n), last = own_.last(n);
    for (Index i = run.begin; i < run.end; ++i) {
      const double rho = rows_.exponents()[i];
      const Scalar beside = rho == no_weight ? Scalar(0) : power_of_two<Scalar>(rho - R);
      factors[i] = rows_.factors()[i] * beside;
      last[i] = rows_.last()[i] * beside;
      set_scaled(own_.G(e, n).col(i).data(), rows_.dY().col(i).data(), factors[i], e);
    }
  }
  // The pairs of the segment.
  void differentiate_own(const RowRun& run, double R, MatrixView<Scalar> d_logits, MatrixView<Scalar> dV) {
    const Index n = size(), count = run.end - run.begin, seen = seen_by(run.end - 1);
    if (seen == 0) return;
    auto products = own_.products(n, n), scores = logits();
    const auto weights = weights_of(seen, run.E);
    for (Index i = run.begin; i < run.end; ++i) {
      Scalar* const x = scores.col(i).data();
      differentiate_scores<F>(x, products.col(i).data(), d_logits.col(i).data(), weights.data(), own_.factors(n)[i],
                              own_.last(n)[i], seen_by(i));
      std::fill(x + seen_by(i), x + seen, Scalar(0));
      if constexpr (is_exponential)
        lengthen(d_logits.col(i), loader_.keys(), loader_.queries().exponents[i], seen_by(i));
    }
    add_pair_flows(products.topRows(seen).middleCols(run.begin, count), run.begin, power_of_two<double>(R),
                   own_.flows(n).data());
    set_product(dV.leftCols(seen), own_.G(call_.V.rows(), n).middleCols(run.begin, count),
                scores.block(0, run.begin, seen, count).transpose());
  }

  // From logits and moved vectors to the queries and keys of the call, and to the transition's parameters.
  void go_back(bool with_behind, double R, Frame start) {
    const Index n = size(), d = call_.K.rows(), rows = loader_.vector_rows();
    auto d_logits = own_.d_logits(n, n);
    auto d_queries = own_.d_queries(rows, n), d_keys = own_.d_keys(rows, n);
    auto moved_queries = own_.moved_queries(d, n), moved_keys = own_.moved_keys(d, n);
    moved_queries = own_.loaded_queries(d, n), moved_keys = own_.loaded_keys(d, n);
    if constexpr (is_embedded) {
      const MatrixView<Scalar> queries = memory_.segment.query_features(rows, n),
                               keys = memory_.segment.key_features(rows, n);
      add_causal_pairs<Scalar>(queries, keys, d_logits, d_queries, d_keys);
      auto to_queries = own_.d_plain_queries(d, n), to_keys = own_.d_plain_keys(d, n);
      bring_back(moved_queries, queries, memory_.segment.query_exponents(n), d_queries, to_queries);
      bring_back(moved_keys, keys, memory_.segment.key_exponents(n), d_keys, to_keys);
      transport_back(start, with_behind, R, no_logits<Scalar>(), to_queries, to_keys);
    } else {
      transport_back(start, with_behind, R, d_logits, d_queries, d_keys);
    }
  }
  static MatrixView<Scalar> none() { return {nullptr, 0, 0}; }
  // From gradients of φ to those of what it was made of; φ has no columns where tokens have nothing.
  void bring_back(MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<const double> exponents,
                  MatrixView<const Scalar> d_features, MatrixView<Scalar> dx) {
    auto copy = own_.features(features.rows(), features.cols());
    copy = features;
    feature_.embed_vjp(x, copy, exponents, d_features, dx);
  }
  void transport_back(Frame& start, bool with_behind, double R, Batch<Scalar> d_logits, MatrixView<Scalar> d_queries,
                      MatrixView<Scalar> d_keys) {
    const Index n = size(), d = call_.K.rows();
    const Segment s = loader_.segment();
    auto through = with_behind ? own_.through(flows_through()) : own_.scratch(flows_through());
    if (!with_behind) through.setZero();  // embedded scores leave the moments of the run there
    for (Index u = 0; u < through.size(); ++u) through[u] = times_power_of_two(through[u], -R);
    const bool reads_loaded = action_ == KeyAction::scale || action_ == KeyAction::mix;
    const bool has_mixed = with_behind && mixes_state(R);
    const Index of_state = has_mixed ? call_.V.rows() + 1 : 0;
    TransportVjp<Scalar> x{.moved_queries = own_.moved_queries(d, n),
                           .moved_keys = own_.moved_keys(d, n),
                           .d_queries = d_queries,
                           .d_keys = d_keys,
                           .d_logits = d_logits,
                           .queries = reads_loaded ? own_.queries(d, n) : none(),
                           .keys = reads_loaded ? own_.keys(d, n) : none(),
                           .state = has_mixed ? own_.state(of_state, d) : none(),
                           .adjoint = has_mixed ? own_.adjoint(of_state, d) : none(),
                           .through = (with_behind || is_embedded) && through.size() > 0 ? through.data() : nullptr,
                           .unit = power_of_two<double>(R),
                           .is_absolute = is_embedded};
    call_.vjp.transport_vjp(start, s, x);
    for (Index u = 0; u < through.size(); ++u) through[u] = times_power_of_two(through[u], R);
    if (is_embedded && !with_behind) own_.moments(flows_through()) += through;
    const auto Q = queries_of(call_.Q);
    const auto dQ = queries_of(call_.dQ), dK = keys_of(call_.dK);
    for (Index i = 0; i < Q.cols(); ++i) {
      auto dq = d_queries.col(first_row() + i), to = dQ.col(i);
      set_times_power_of_two<Scalar>(dq, dq, R - length_of(loader_.queries().exponents[first_row() + i]));
      for (Index c = 0; c < d; ++c) {
        const auto gradient = static_cast<double>(dq[c]);
        call_.d_scale += static_cast<double>(Q(c, i)) * gradient;
        to[c] += static_cast<Scalar>(call_.options.scale * gradient);
      }
    }
    for (Index j = 0; j < dK.cols(); ++j) {
      auto dk = d_keys.col(j), to = dK.col(j);
      set_times_power_of_two<Scalar>(dk, dk, R - length_of(loader_.keys().exponents[j]));
      to += dk;
    }
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
