// Queries and keys of a segment on the way back: loaded as on the way there, and from the gradients of what transport
// has made of them to those of the call and of the transition's parameters.
#pragma once

#include <sympow/attention/engine/checks.hpp>
#include <sympow/attention/gradient/memory.hpp>
#include <sympow/core/two_part_factor.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// One call on its way back: everything is checked. Gradients are added to those that are there, if it `adds`.
template <class Scalar>
struct VjpCall {
  const TransitionView<Scalar>& transition;
  VjpView<Scalar>& vjp;
  RowKind rows;
  Options options;
  MatrixView<const Scalar> Q, K, V, dY;
  MatrixView<Scalar> dQ, dK, dV;
  double& d_scale;
  bool adds;
  EngineMemory<Scalar>& memory;
  AdjointMemory<Scalar>& adjoint_memory;
  KnownRows<Scalar> known = {};
};

/// The vectors of one segment after the other.
template <class Scalar, FeatureMap F>
class SegmentVectors {
 protected:
  static constexpr int degree = degree_of<F>;
  static constexpr bool is_embedded = F::score == Score::embedded, is_exponential = F::score == Score::exponential;

  /// With φ of an embedded score, or `by_slopes`, which it then has.
  SegmentVectors(const F& feature, const VjpCall<Scalar>& call, bool by_slopes)
      : feature_(feature),
        call_(call),
        memory_(call.memory),
        own_(call.adjoint_memory),
        by_slopes_(by_slopes),
        sees_features_(is_embedded && !by_slopes),
        loader_(feature, call.transition, call.memory.segment, call.K.rows(), call.options.scale, sees_features_),
        action_(call.transition.key_action()) {}
  ~SegmentVectors() = default;

  /// Memory for segments of n tokens.
  void reserve(Index n) {
    loader_.reserve(n);
    own_.reserve(call_.K.rows(), loader_.vector_rows(), call_.V.rows(), n);
  }

  /// The tokens of a segment that have keys, and those that have queries.
  [[nodiscard]] Segment key_tokens(Segment s) const {
    return {s.begin, std::clamp<Index>(call_.K.cols() - s.begin, 0, s.size)};
  }
  [[nodiscard]] Segment query_tokens(Segment s) const {
    const Index offset = call_.options.mask.offset, begin = std::clamp(offset, s.begin, s.end());
    return {begin, std::clamp(offset + call_.Q.cols(), begin, s.end()) - begin};
  }

  /// Loads the tokens of a segment whose gates are: those of them that have queries, and those that have keys.
  void load(Segment s, Frame& frame, Segment query_tokens, Segment key_tokens) {
    query_tokens_ = query_tokens;
    key_tokens_ = key_tokens;
    loader_.load(s.size, frame, query_tokens, queries_of(call_.Q), key_tokens, keys_of(call_.K), keys_of(call_.V));
    if (degree == 1 && !is_exponential) loader_.weigh_zero_keys();  // (k·q) changes with k at k = 0 as well
  }

  /// Whether an embedded score is known by its slope.
  static bool has_slope([[maybe_unused]] const F& feature) {
    if constexpr (is_embedded) return feature.has_slope();
    return false;
  }
  /// Whether angles are seen as they are, and not those between two tokens: by φ of an embedded score, and under a full
  /// mask, which has earlier and later keys.
  [[nodiscard]] bool is_absolute() const { return sees_features_ || call_.options.mask.is_full; }

  /// Queries and keys as they were before transport, where its way back reads them.
  void keep_vectors() {
    const Index n = size(), d = call_.K.rows();
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

  /// From logits and moved vectors to the queries and keys of the call, and to the transition's parameters.
  void go_back(bool with_behind, double R, Frame start) {
    const Index n = size(), d = call_.K.rows(), rows = loader_.vector_rows();
    auto d_logits = own_.d_logits(n, n);
    auto d_queries = own_.d_queries(rows, n), d_keys = own_.d_keys(rows, n);
    MatrixView<Scalar> moved_queries = this->moved_queries(), moved_keys = this->moved_keys();
    if (!is_last_) moved_queries = memory_.segment.queries(d, n), moved_keys = memory_.segment.keys(d, n);
    if constexpr (is_embedded)
      if (sees_features_) {
        const MatrixView<Scalar> queries = memory_.segment.query_features(rows, n),
                                 keys = memory_.segment.key_features(rows, n);
        add_causal_pairs<Scalar>(queries, keys, d_logits, d_queries, d_keys);
        auto to_queries = own_.d_plain_queries(d, n), to_keys = own_.d_plain_keys(d, n);
        bring_back(moved_queries, queries, memory_.segment.query_exponents(n), d_queries, to_queries);
        bring_back(moved_keys, keys, memory_.segment.key_exponents(n), d_keys, to_keys);
        return transport_back(start, with_behind, R, no_logits<Scalar>(), to_queries, to_keys);
      }
    transport_back(start, with_behind, R, is_absolute() ? no_logits<Scalar>() : Batch<Scalar>(d_logits), d_queries,
                   d_keys);
  }

  /// Whether what mixes flows through as well: `own_.state` and `own_.adjoint` are then set, their product in the unit
  /// 2^R.
  virtual bool mixes_state(double) { return false; }

  /// The queries, none where no token has one: under a full mask, where keys go back by themselves.
  [[nodiscard]] MatrixView<Scalar> queries() {
    const MatrixView<Scalar> all = loader_.queries().vectors;
    return all.leftCols(query_tokens_.size == 0 ? 0 : all.cols());
  }
  /// The first row that has a query.
  [[nodiscard]] Index first_row() const { return query_tokens_.begin - loader_.segment().begin; }
  /// The columns of those tokens that have queries, and of those that have keys.
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

  /// x(j, i), logits of keys and queries, ← κ'(x) in units of their scores; causal: for j ≤ i.
  void set_slopes([[maybe_unused]] MatrixView<Scalar> x, [[maybe_unused]] const Keys<Scalar>& keys,
                  [[maybe_unused]] bool causal) {
    if constexpr (is_embedded) feature_.set_slopes(x, keys.exponents, loader_.queries().exponents, causal);
  }
  /// From scaled logits to true ones.
  static void lengthen(ColumnView<Scalar> d_logits, ColumnView<const double> exponents, double exponent) {
    for (Index n = 0; n < d_logits.size(); ++n)
      if (const double far = length_of(exponents[n]) + length_of(exponent); far != 0)
        d_logits[n] = times_power_of_two(d_logits[n], far);
  }
  /// Queries and their gradients in the unit 2^R back through some tokens.
  void pull_back(Segment tokens, double R, MatrixView<Scalar> X, MatrixView<Scalar> dX) {
    const double beyond = beyond_units(R);
    if (beyond > 0) multiply(dX, beyond);
    call_.vjp.pull_vjp(tokens, Batch<Scalar>(X), Batch<Scalar>(dX), power_of_two<double>(R - beyond));
    if (beyond > 0) multiply(dX, -beyond);
  }
  /// n of a vector 2^n x that is loaded, which stands for itself where it is 0 or embedded.
  static double length_of(double exponent) { return is_embedded || exponent == no_weight ? 0 : exponent; }
  // Gates up to the segment, and then to row i of it.
  [[nodiscard]] LogDecay until(Index i, LogDecay gates = {}) {
    const Queries<Scalar> queries = loader_.queries();
    gates.add(LogDecay{queries.from_first[i], queries.from_first_low[i]});
    return gates;
  }
  /// Y += 2^exponent X.
  static void add_times_power_of_two(MatrixView<Scalar> Y, MatrixView<Scalar> X, double exponent) {
    for (Index t = 0; t < X.cols(); ++t) detail::add_times_power_of_two<Scalar>(Y.col(t), X.col(t), exponent);
  }
  /// 2^exponent dx goes to a gradient of the call.
  void give(ColumnView<Scalar> to, ColumnView<const Scalar> dx, double exponent) const {
    if (adds_)
      detail::add_times_power_of_two<Scalar>(to, dx, exponent);
    else
      set_times_power_of_two<Scalar>(to, dx, exponent);
  }

  const F& feature_;
  const VjpCall<Scalar>& call_;
  EngineMemory<Scalar>& memory_;
  AdjointMemory<Scalar>& own_;
  const bool by_slopes_, sees_features_;  ///< scores are direct, and their slopes known; or they are of φ
  SegmentLoader<Scalar, F> loader_;
  KeyAction action_;
  Segment query_tokens_, key_tokens_;
  bool adds_ = true;      ///< to gradients that are there
  bool is_last_ = false;  ///< of what goes back: vectors may be used up

 private:
  MatrixView<Scalar> moved_queries() { return moved(own_.moved_queries, memory_.segment.queries); }
  MatrixView<Scalar> moved_keys() { return moved(own_.moved_keys, memory_.segment.keys); }
  MatrixView<Scalar> moved(Panel<Scalar>& copies, Panel<Scalar>& loaded) {
    return (is_last_ ? loaded : copies)(call_.K.rows(), size());
  }
  static MatrixView<Scalar> none() { return {nullptr, 0, 0}; }
  // From gradients of φ to those of what it was made of; φ has no columns where tokens have nothing.
  void bring_back(MatrixView<Scalar> x, MatrixView<Scalar> features, ColumnView<const double> exponents,
                  MatrixView<const Scalar> d_features, MatrixView<Scalar> dx) {
    auto copy = own_.features(features.rows(), features.cols());
    copy = features;
    feature_.embed_vjp(x, copy, exponents, d_features, dx);
  }
  // What is to be taken out of a unit 2^R for 2^R to be a number.
  static double beyond_units(double R) { return std::max(0., R - (std::numeric_limits<double>::max_exponent - 1)); }
  // X ← 2^exponent X.
  static void multiply(MatrixView<Scalar> X, double exponent) {
    for (Index t = 0; t < X.cols(); ++t) set_times_power_of_two<Scalar>(X.col(t), X.col(t), exponent);
  }
  // Whether what flows through keeps all its digits in the unit 2^R.
  static bool fits(ColumnView<const double> through, double R) {
    for (Index u = 0; u < through.size(); ++u)
      if (times_power_of_two(times_power_of_two(through[u], -R), R) != through[u]) return false;
    return true;
  }
  // What flows through a segment alone, as it is: no vector has a gradient.
  void flow_through(Frame start, ColumnView<double> through) {
    const Index n = size(), d = call_.K.rows();
    Matrix<Scalar> zeros = Matrix<Scalar>::Zero(d, n), to_queries = zeros, to_keys = zeros;
    const bool scales = action_ == KeyAction::scale;
    TransportVjp<Scalar> x{.moved_queries = Batch<Scalar>(zeros),
                           .moved_keys = Batch<Scalar>(zeros),
                           .d_queries = Batch<Scalar>(to_queries),
                           .d_keys = Batch<Scalar>(to_keys),
                           .queries = scales ? Batch<Scalar>(zeros) : no_logits<Scalar>(),
                           .keys = scales ? Batch<Scalar>(zeros) : no_logits<Scalar>(),
                           .through = through.data(),
                           .is_absolute = is_absolute()};
    call_.vjp.transport_vjp(start, loader_.segment(), x);
  }
  void transport_back(Frame& start, bool with_behind, double R, Batch<Scalar> d_logits, MatrixView<Scalar> d_queries,
                      MatrixView<Scalar> d_keys) {
    const Index n = size(), d = call_.K.rows();
    const Segment s = loader_.segment();
    auto through = with_behind ? own_.through(flows_through()) : own_.scratch(flows_through());
    if (!with_behind) through.setZero();  // absolute angles leave the moments of the run there
    if (const double beyond = beyond_units(R); beyond > 0) {
      for (const auto& x : {MatrixView<Scalar>(d_logits), d_queries, d_keys}) multiply(x, beyond);
      R -= beyond;
    }
    const bool is_apart = with_behind && !fits(through, R);
    Eigen::VectorXd kept;
    if (is_apart) {
      flow_through(start, through);
      kept = through;
      through.setZero();
    }
    set_times_power_of_two<double>(through, through, -R);
    const bool reads_loaded = action_ == KeyAction::scale || action_ == KeyAction::mix;
    const bool has_mixed = with_behind && mixes_state(R);
    const Index of_state = has_mixed ? call_.V.rows() + 1 : 0;
    TransportVjp<Scalar> x{.moved_queries = moved_queries(),
                           .moved_keys = moved_keys(),
                           .d_queries = d_queries,
                           .d_keys = d_keys,
                           .d_logits = d_logits,
                           .queries = reads_loaded ? own_.queries(d, n) : none(),
                           .keys = reads_loaded ? own_.keys(d, n) : none(),
                           .state = has_mixed ? own_.state(of_state, d) : none(),
                           .adjoint = has_mixed ? own_.adjoint(of_state, d) : none(),
                           .through = (with_behind || is_absolute()) && through.size() > 0 ? through.data() : nullptr,
                           .unit = power_of_two<double>(R),
                           .is_absolute = is_absolute()};
    call_.vjp.transport_vjp(start, s, x);
    set_times_power_of_two<double>(through, through, R);
    if (is_apart) through += kept;
    if (is_absolute() && !with_behind) own_.moments(flows_through()) += through;
    const auto Q = queries_of(call_.Q);
    const auto dQ = queries_of(call_.dQ), dK = keys_of(call_.dK);
    int of_scale = 0;
    const double scale = call_.options.scale, mantissa = scale == 1 ? 1 : std::frexp(scale, &of_scale);
    for (Index i = 0; i < Q.cols(); ++i) {
      auto dq = d_queries.col(first_row() + i);
      set_times_power_of_two<Scalar>(dq, dq, R - length_of(loader_.queries().exponents[first_row() + i]));
      const auto product = static_cast<double>(dot_product(Q.col(i).data(), dq.data(), d));
      if (std::isfinite(product) || !dq.isZero(0)) call_.d_scale += product;  // a query may be hidden
      if (mantissa != 1) TwoPartFactor<Scalar>(mantissa).multiply(dq.data(), d);
      give(dQ.col(i), dq, of_scale);
      const Index before = s.begin - 1 - i;  // what comes next is asked for: to be read here, to be written below
      for (const auto* next : {&call_.Q, &call_.K, &call_.V, &call_.dY}) prefetch_column(*next, before);
    }
    const auto key_exponents = loader_.keys().exponents;
    for (Index j = 0; j < dK.cols(); ++j) {
      give(dK.col(j), d_keys.col(j), R - length_of(key_exponents[j]));
      for (const auto* next : {&call_.dQ, &call_.dK, &call_.dV}) prefetch_column<true>(*next, s.begin - 1 - j);
    }
  }
};

}  // namespace SYMPOW_NAMESPACE::detail
