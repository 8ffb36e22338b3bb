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
  static constexpr bool is_embedded = F::score == Score::embedded;

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

  /// Takes the loaded segment back. `start` is where its queries and keys turn from.
  void take_back(const Frame& start) {
    const Segment s = loader_.segment();
    rows_.begin(s.size, 0, columns_of(call_.dY, s));
    for (auto* flows : {&own_.flows, &own_.of_rows, &own_.of_keys}) (*flows)(s.size).setZero();
    keep_vectors(s);
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
  /// Adds it to the sums of rows begin … end - 1, which are counted from 2^E on.
  virtual void add_before(Index begin, Index end, double E) = 0;
  /// Row i of reference E has the gradient (inv dŷ, last) 2^R: what that is to its query, and with what is before.
  virtual void read_back(Index i, double E, Scalar inv, Scalar last, double R, ColumnView<Scalar> d_query) = 0;
  /// All rows are known, what sees the keys from behind is looked at. Returns what flows through the segment between
  /// both for its gates, and has it by channel or plane in `own_.through`.
  virtual double look_behind() = 0;
  /// The exponent of what the keys have from there, and what that is to them, of the unit 2^R.
  [[nodiscard]] virtual double exponent_behind() = 0;
  virtual void add_behind(double R, MatrixView<Scalar> d_keys, MatrixView<Scalar> dV) = 0;
  /// What mixes a state may have more to say.
  virtual void complete(TransportVjp<Scalar>&, double) {}

  static MatrixView<const Scalar> columns_of(MatrixView<const Scalar> x, Segment s) {
    return x.middleCols(s.begin, s.size);
  }
  [[nodiscard]] static double log2_of(double log) { return log * std::numbers::log2e; }
  [[nodiscard]] Index size() const { return loader_.segment().size; }
  /// Numbers of `own_.through`.
  [[nodiscard]] Index flows_through() const {
    return action_ == KeyAction::scale ? call_.K.rows() : action_ == KeyAction::turn ? call_.vjp.planes().count : 0;
  }

  const F& feature_;
  const VjpCall<Scalar>& call_;
  EngineMemory<Scalar>& memory_;
  AdjointMemory<Scalar>& own_;
  SegmentLoader<Scalar, F> loader_;
  RowAdjoints<Scalar, F> rows_;
  KeyAction action_;

 private:
  static constexpr double bits_of_unit = 40;

  // Queries and keys as they were before transport.
  void keep_vectors(Segment s) {
    if (action_ != KeyAction::scale && action_ != KeyAction::mix) return;
    const Index d = call_.K.rows();
    load_columns<F, Scalar>(columns_of(call_.Q, s), own_.queries(d, s.size), own_.scratch(s.size),
                            own_.weights(s.size), call_.options.scale);
    load_columns<F, Scalar>(columns_of(call_.K, s), own_.keys(d, s.size), own_.scratch(s.size), own_.weights(s.size), 1);
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

  // Sums of the rows, by groups of them that one reference serves.
  void add_sums() {
    const Index n = size();
    const Keys<Scalar> keys = loader_.keys();
    const MatrixView<Scalar> logits = loader_.logits();
    auto products = own_.products(n, n);
    set_causal_product(products, keys.values, rows_.dY());
    double seen = log2_before();
    for (Index begin = 0, end = 0; begin < n; begin = end) {
      double least = no_weight;
      for (; end < n; ++end) {
        const double next = std::max(seen, degree * keys.exponents[end] + log2_of(keys.log_b[end]));
        if (least != no_weight && next - least > -least_weight) break;
        seen = next;
        if (least == no_weight) least = seen;
      }
      const double E = std::ceil(seen);
      rows_.references().segment(begin, end - begin).setConstant(E);
      if (E == no_weight) continue;
      const auto weights = weights_of(end, E);
      for (Index i = begin; i < end; ++i)
        rows_.add(i, sums_of_scores<degree>(&logits(0, i), weights.data(), &products(0, i), i + 1));
      add_before(begin, end, E);
    }
  }

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
    for (const RowRun& run : runs)
      if (run.R != no_weight) take_run(run, false, run.R, start);
    take_run(none, true, behind, start);
  }

  // The gradients of some rows, and if `with_behind` those of all keys from behind and of what flows through, in the
  // unit 2^R.
  void take_run(const RowRun& run, bool with_behind, double R, const Frame& start) {
    if (R == no_weight) R = 0;
    const Index n = size(), e = call_.V.rows(), count = run.end - run.begin;
    MatrixView<Scalar> logits = loader_.logits();
    auto products = own_.products(n, n), d_logits = own_.d_logits(n, n), G = own_.G(e, n), dV = own_.dV(e, n);
    auto d_queries = own_.d_queries(loader_.vector_rows(), n), d_keys = own_.d_keys(loader_.vector_rows(), n);
    d_logits.setZero(), d_queries.setZero(), d_keys.setZero(), dV.setZero();
    if (count > 0) {
      const auto weights = weights_of(run.end, run.E);
      for (Index i = run.begin; i < run.end; ++i) {
        const double rho = rows_.exponents()[i];
        const Scalar beside = rho == no_weight ? Scalar(0) : power_of_two<Scalar>(rho - R);
        const Scalar inv = rows_.factors()[i] * beside, last = rows_.last()[i] * beside;
        Scalar* const scores = logits.col(i).data();
        differentiate_scores<degree>(scores, products.col(i).data(), d_logits.col(i).data(), weights.data(), inv, last, i + 1);
        std::fill(scores + i + 1, scores + run.end, Scalar(0));
        set_scaled(&G(0, i), &rows_.dY()(0, i), inv, e);
        if (rho != no_weight) read_back(i, run.E, inv, last, R, d_queries.col(i));
      }
      add_pair_flows(products.middleCols(run.begin, count), run.begin, power_of_two<double>(R), own_.flows(n).data());
      set_product(dV.leftCols(run.end), G.middleCols(run.begin, count),
                  logits.block(0, run.begin, run.end, count).transpose());
    }
    if (with_behind) add_behind(R, d_keys, dV);
    const Segment s = loader_.segment();
    add_times_power_of_two(call_.dV.middleCols(s.begin, n), dV, R);
    go_back(with_behind, R, start);
  }

  // From logits and moved vectors to the queries and keys of the call, and to the transition's parameters.
  void go_back(bool with_behind, double R, Frame start) {
    const Index n = size(), d = call_.K.rows(), rows = loader_.vector_rows();
    auto d_logits = own_.d_logits(n, n);
    auto d_queries = own_.d_queries(rows, n), d_keys = own_.d_keys(rows, n);
    auto moved_queries = own_.moved_queries(d, n), moved_keys = own_.moved_keys(d, n);
    moved_queries = memory_.segment.queries(d, n), moved_keys = memory_.segment.keys(d, n);
    if constexpr (is_embedded) {
      const Queries<Scalar> queries = loader_.queries();
      const Keys<Scalar> keys = loader_.keys();
      add_causal_pairs<Scalar>(queries.vectors, keys.vectors, d_logits, d_queries, d_keys);
      auto to_queries = own_.d_plain_queries(d, n), to_keys = own_.d_plain_keys(d, n);
      feature_.embed_vjp(moved_queries, own_.copy(queries.vectors), queries.exponents, d_queries, to_queries);
      feature_.embed_vjp(moved_keys, own_.copy(keys.vectors), keys.exponents, d_keys, to_keys);
      transport_back(start, with_behind, R, no_logits<Scalar>(), to_queries, to_keys);
    } else {
      transport_back(start, with_behind, R, d_logits, d_queries, d_keys);
    }
  }
  void transport_back(Frame& start, bool with_behind, double R, Batch<Scalar> d_logits, MatrixView<Scalar> d_queries,
                      MatrixView<Scalar> d_keys) {
    const Index n = size(), d = call_.K.rows();
    const Segment s = loader_.segment();
    auto through = own_.through(flows_through());
    TransportVjp<Scalar> x{own_.moved_queries(d, n), own_.moved_keys(d, n), d_queries, d_keys, d_logits};
    if (action_ == KeyAction::scale || action_ == KeyAction::mix) {
      x.queries = Batch<Scalar>(own_.queries(d, n));
      x.keys = Batch<Scalar>(own_.keys(d, n));
    }
    x.unit = power_of_two<double>(R);
    x.is_absolute = is_embedded;
    if (with_behind && through.size() > 0) {
      for (Index u = 0; u < through.size(); ++u) through[u] = times_power_of_two(through[u], -R);
      x.through = through.data();
    }
    if (with_behind) complete(x, R);
    call_.vjp.transport_vjp(start, s, x);
    if (with_behind)
      for (Index u = 0; u < through.size(); ++u) through[u] = times_power_of_two(through[u], R);
    const Queries<Scalar> queries = loader_.queries();
    const Keys<Scalar> keys = loader_.keys();
    for (Index i = 0; i < n; ++i) {
      const auto q = columns_of(call_.Q, s).col(i);
      auto dq = d_queries.col(i), to = call_.dQ.col(s.begin + i);
      set_times_power_of_two<Scalar>(dq, dq, R - length_of(queries.exponents[i]));
      for (Index c = 0; c < d; ++c) {
        const auto gradient = static_cast<double>(dq[c]);
        call_.d_scale += static_cast<double>(q[c]) * gradient;
        to[c] += static_cast<Scalar>(call_.options.scale * gradient);
      }
      auto dk = d_keys.col(i);
      set_times_power_of_two<Scalar>(dk, dk, R - length_of(keys.exponents[i]));
      call_.dK.col(s.begin + i) += dk;
    }
  }
  // n of a vector 2^n x that is loaded, which stands for itself where it is 0 or embedded.
  static double length_of(double exponent) { return is_embedded || exponent == no_weight ? 0 : exponent; }
  // Y += 2^exponent X; X is used up.
  static void add_times_power_of_two(MatrixView<Scalar> Y, MatrixView<Scalar> X, double exponent) {
    for (Index t = 0; t < X.cols(); ++t) {
      auto x = X.col(t);
      set_times_power_of_two<Scalar>(x, x, exponent);
      Y.col(t) += x;
    }
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
