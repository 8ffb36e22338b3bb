// A segment of tokens on the way back: its own pairs, and the way from all that concerns it to queries, keys, values
// and the parameters of the transition.
#pragma once

#include <sympow/attention/options.hpp>
#include <sympow/detail/forward.hpp>
#include <sympow/detail/row_gradients.hpp>
#include <sympow/simd/two_part_factor.hpp>
#include <sympow/transition/segment_vjp.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// The sums and the outputs, e × T, of a forward pass; null where none are saved.
template <class Scalar>
struct SavedRows {
  const RowSum* sums = nullptr;
  const Scalar* Y = nullptr;
};

template <class Scalar>
struct BackwardBuffers;

/// Where gradients are added or, if nothing is there and it does not `add`, written.
template <class Scalar>
struct VjpResults {
  MatrixView<Scalar> dQ, dK, dV;
  double& scale;
  bool adds = true;
};

/// What a pass on its way back is given, checked: the call, without its Y, and what the loss says of its rows.
template <class Scalar>
struct BackwardCall : ForwardCall<Scalar> {
  VjpView<Scalar>* vjp;  ///< of the transition
  MatrixView<const Scalar> dY;
  VjpResults<Scalar> to;
  ForwardBuffers<Scalar>& forward;
  BackwardBuffers<Scalar>& buffers;
  SavedRows<Scalar> saved = {};
};

/// What a segment of n tokens needs, whose vectors have `rows` numbers: those of keys, or of φ of embedded scores.
template <class Scalar>
struct SegmentBackwardBuffers {
  SegmentBuffers<Scalar> segment;
  RowGradientBuffers<Scalar> rows;
  Panel<Scalar> products, d_logits, slopes;    ///< n × n: v_j·dŷ_i, then couplings; of logits
  Panel<Scalar> weights, wholes, row_factors;  ///< n, of keys; of rows
  Panel<Scalar> G, dV, from_behind_values;     ///< e × n
  Panel<Scalar> queries, keys, moved_queries, moved_keys, d_plain_queries, d_plain_keys;  ///< d × n
  Panel<Scalar> d_queries, d_keys, features, from_before, from_behind;                    ///< rows × n
  Panel<Scalar> moved_query_features, moved_key_features;                                 ///< likewise, where embedded
  Panel<Scalar> state, adjoint;                                                           ///< (e + 1) × d, mixed
  Panel<double> shifts, flows, of_rows, of_keys, through, scratch;
  Panel<double> levels, pending;  ///< n + 2, see `take_passes`
};

/// The vectors of a segment count from powers of two, a column each, so that none is lost beside others:
///
///     row i   g_i = 2^{exponent_i} (…), as `RowGradients` has it     key j   2^{E_j} f_j = 2^{M + shift_j} w_j
///     ∂loss/∂(q̂_i·k̂_j) = 2^{exponent_i + M + shift_j} slope_ij,      slope_ij = P x^{P-1} w_j v⁺_j·ĝ_i
///
/// A `SegmentVjp` takes rows with exponents near H and levels near L in the unit 2^{H + L}: queries 2^{exponent_i -
/// H} q̂_i, keys 2^{shift_j + M - L} k̂_j. That is one pass but for extreme input. The level of a row is that of the
/// heaviest key it sees; what a past of the heaviest key 2^N and later rows give counts from
///
///     rows    ∂loss/∂q̂_i = 2^{exponent_i + N} from_before_i        keys   ∂loss/∂k̂_j = 2^{U + shift_j} from_behind_j
template <class Scalar, FeatureMap F>
class SegmentBackward {
  static constexpr bool is_embedded = F::score == Score::embedded, is_exponential = F::score == Score::exponential;

 public:
  static constexpr double most_apart = KeyScales<Scalar>::most_apart,
                          most_unit = std::numeric_limits<double>::max_exponent - 24;  ///< log2 of a number

  /// With φ of an embedded score, or by the slopes of its closed form.
  SegmentBackward(const F& feature, const BackwardCall<Scalar>& of, SegmentBackwardBuffers<Scalar>& memory, Index most,
                  bool by_slopes)
      : call(of),
        buffers(memory),
        segment(memory.segment, feature, *of.transition, of.options.scale, of.K.rows(), most,
                is_embedded && !by_slopes),
        rows(memory.rows, of.rows),
        feature_(feature),
        sees_features_(is_embedded && !by_slopes),
        action_(of.transition->key_action()) {
    segment.weigh_zero_keys(true);
    through().setZero();
  }

  /// Whether an embedded score has a slope in closed form.
  static bool has_slope([[maybe_unused]] const F& feature) {
    if constexpr (is_embedded) return feature.has_slope();
    return false;
  }
  /// Whether what turns sees absolute angles, and not those between two tokens: through φ of an embedded score, and
  /// under a full mask, which has earlier and later keys.
  [[nodiscard]] bool is_absolute() const {
    return action_ == KeyAction::turn && (sees_features_ || call.options.mask.is_full);
  }
  [[nodiscard]] bool by_slopes() const { return is_embedded && !sees_features_; }
  [[nodiscard]] KeyAction action() const { return action_; }
  /// Numbers of `through`: channels that decay, or planes that turn.
  [[nodiscard]] Index flows_through() const {
    return action_ == KeyAction::scale ? call.K.rows() : action_ == KeyAction::turn ? call.vjp->planes().count : 0;
  }
  /// Couplings of earlier keys with later rows by channel or plane or, where angles are absolute, what turned under a
  /// segment's rows and keys and those of later ones.
  [[nodiscard]] ColumnView<double> through() { return buffers.through(flows_through()); }

  /// Loads the tokens whose gates are loaded: those that have queries, those that have keys, or both. Returns where
  /// they have turned to from `start`.
  const Frame& load(const Frame& start, bool with_queries, bool with_keys, const LogGate& elapsed = {}) {
    const Segment all = segment.range();
    queries_ = with_queries ? query_tokens(call, all) : Segment{all.begin, 0};
    keys_ = with_keys ? key_tokens(call, all) : Segment{all.begin, 0};
    start_ = frame_ = start;
    segment.load(elapsed, frame_, queries_of(call.Q), first_row(), keys_of(call.K), keys_of(call.V));
    scales = {.shifts = buffers.shifts(size()).data(), .weights = buffers.weights(size()).data()};
    scales.template set<F>(segment.keys());
    return frame_;
  }
  [[nodiscard]] Index size() const { return segment.size(); }
  [[nodiscard]] Index token(Index i) const { return segment.range().begin + i; }
  [[nodiscard]] Index query_count() const { return queries_.size; }
  /// The segment's own keys that row i sees.
  [[nodiscard]] Segment own_seen(Index i) const {
    return seen_keys(call.options.mask, token(i), {segment.range().begin, keys_.size});
  }
  [[nodiscard]] Index first_row() const { return queries_.size == 0 ? 0 : queries_.begin - segment.range().begin; }
  /// The columns of those tokens that have queries, and of those that have keys.
  template <class X>
  [[nodiscard]] X queries_of(const X& x) const {
    return x.middleCols(queries_.size == 0 ? 0 : queries_.begin - call.options.mask.offset, queries_.size);
  }
  template <class X>
  [[nodiscard]] X keys_of(const X& x) const {
    return x.middleCols(keys_.size == 0 ? 0 : keys_.begin, keys_.size);
  }

  /// Takes the loaded segment back; a past has
  ///
  ///     void read(segment)       what rows see of it, as far as the sums of rows are not saved
  ///     void go_back(segment)    sets N, U, from_before, from_behind, of_rows, of_keys, the gate's flow and `through`
  template <class Past>
  void go_back(Past& past) {
    if (!call.to.adds)
      for (MatrixView<Scalar> x : {queries_of(call.to.dQ), keys_of(call.to.dK), keys_of(call.to.dV)}) x.setZero();
    find_rows(past);
    N = U = log2_zero;
    gate_through = 0;
    has_mixed = false;
    if (!is_absolute()) through().setZero();
    differentiate_own();
    past.go_back(*this);
    if (!call.options.mask.is_full) {  // else without gates
      // flows_t += Σ_{i ≥ t} of_rows_i + Σ_{j < t} of_keys_j + gate_through: what acts at t multiplies these pairs
      double from = 0, before = gate_through;
      for (Index t = size(); t-- > 0;) flows()[t] += from += buffers.of_rows(size())[t];
      for (Index t = 0; t < size(); before += buffers.of_keys(size())[t++]) flows()[t] += before;
      call.vjp->add_decay_flows(segment.range(), flows());
    }
    take_passes();
  }

  /// What the loss asks of the rows.
  template <class Past>
  void find_rows(Past& past) {
    begin_rows();
    past.read(*this);
    restore_rows();
    rows.finish(segment);
  }

  const BackwardCall<Scalar>& call;
  SegmentBackwardBuffers<Scalar>& buffers;
  LoadedSegment<Scalar, F> segment;
  RowGradients<Scalar, F> rows;
  KeyScales<Scalar> scales;
  double N = log2_zero, U = log2_zero;  ///< see above; -∞: nothing comes from there
  double gate_through = 0;              ///< couplings of earlier keys with later rows
  bool has_mixed = false;               ///< whether `buffers.state` and `buffers.adjoint` are set

  [[nodiscard]] double* flows() { return buffers.flows(size()).data(); }
  /// The largest exponent of rows with a gradient.
  [[nodiscard]] double largest_exponent() {
    double largest = log2_zero;
    for (Index i = 0; i < size(); ++i) largest = std::max(largest, rows[i].exponent);
    return largest;
  }

 private:
  // dY and Y, vectors of which the loss asks nothing hidden, and the products of own pairs.
  void begin_rows() {
    const Index n = size(), keys = keys_.size;
    rows.begin(n, first_row(), queries_of(call.dY));
    for (auto* panel : {&buffers.flows, &buffers.of_rows, &buffers.of_keys}) (*panel)(n).setZero();
    zero_rows_without_gradient();
    set_levels();
    if (keys == 0) return;
    set_causal_product(products(), segment.keys().values, rows.dY());
    if constexpr (is_embedded) {
      if (!by_slopes() || queries_.size == 0) return;
      auto slopes = buffers.slopes(n, n).topRows(keys);
      set_causal_product(slopes, segment.key_vectors().leftCols(keys), segment.queries().direct);
      feature_.set_slopes(slopes, ColumnView<const double>(segment.keys().lengths, keys),
                          ColumnView<const double>(segment.queries().lengths, n), true);
    }
  }
  // Queries of rows without a loss, and keys that only such rows see, are 0 where they are not finite: in products with
  // zeros they would show.
  void zero_rows_without_gradient() {
    const Index n = size();
    const Mask& mask = call.options.mask;
    const auto is_asked = [&](Index j) {  // by a row that sees it
      for (Index i = j; i < n && mask.first(token(i)) <= token(j); ++i)
        if (rows[i].has_dY()) return true;
      return false;
    };
    const auto is_finite = [](ColumnView<const Scalar> x) {
      return squared_norm(x.data(), x.size()) * Scalar(0) == Scalar(0) || x.allFinite();
    };
    for (Index i = 0; i < n; ++i) {
      if (!rows[i].has_dY() && !is_finite(segment.queries().vectors.col(i))) {
        segment.queries().vectors.col(i).setZero(), buffers.segment.queries(call.K.rows(), n).col(i).setZero();
        segment.logits().col(i).setZero();
      }
      if (i < keys_.size && !is_finite(own_keys().col(i)) && !is_asked(i))
        own_keys().col(i).setZero(), segment.key_vectors().col(i).setZero();
    }
  }
  // The exponent of the heaviest own key that a row sees.
  void set_levels() {
    const WeightedKeys<Scalar> keys = segment.keys();
    RunningLargest levels;
    const auto level_of = [&](Index j) {
      return is_exponential || keys.norms[j] == Scalar(0) ? log2_zero : keys.exponents[j];
    };
    for (Index i = 0; i < size(); ++i) buffers.levels(size() + 2)[i] = levels.over(own_seen(i), level_of);
  }
  // What the forward pass has left of the rows.
  void restore_rows() {
    if (call.saved.sums == nullptr || queries_.size == 0 || !(rows.divides() || is_exponential)) return;
    const auto Y = queries_of(MatrixView<const Scalar>(call.saved.Y, call.V.rows(), call.Q.cols()));
    const RowSum* const sums = call.saved.sums + queries_.begin - call.options.mask.offset;
    for (Index i = 0; i < Y.cols(); ++i)
      if (rows[first_row() + i].has_dY()) rows.restore(first_row() + i, sums[i], Y.col(i), segment);
  }
  // Own pairs: logits become scores, v_j·dŷ_i couplings, and d_logits are set, each beside 2^{exponent_i + M +
  // shift_j}.
  void differentiate_own() {
    const Index n = size(), keys = keys_.size;
    auto d_logits = buffers.d_logits(n, n);
    if (keys == 0 || queries_.size == 0) return d_logits.setZero(), void();
    const WeightedKeys<Scalar> own = segment.keys();
    const MatrixView<Scalar> x = segment.logits(), e = products();
    auto wholes = buffers.wholes(is_exponential ? keys : 0);
    for (Index j = 0; j < wholes.size(); ++j)
      wholes[j] =
          static_cast<Scalar>(std::max(own.exponents[j] - own.heaviest, -PackedExponential<Scalar>::largest_whole));
    for (Index i = 0; i < n; ++i) {
      const auto [first, seen] = own_seen(i);
      const Index count = rows[i].has_gradient() ? seen : 0,  // else all is 0, whatever dy is
          read = (i / keys_at_once + 1) * keys_at_once;
      for (MatrixView<Scalar> pairs : {x, e, d_logits}) {
        pairs.col(i).head(first).setZero();
        pairs.col(i).segment(first + count, std::min(pairs.rows(), read) - first - count).setZero();
      }
      Scalar *const of_row = x.col(i).data() + first, *const slopes = d_logits.col(i).data() + first;
      const double length = segment.queries().lengths[i];
      if constexpr (is_exponential) {
        lengthen(of_row, own.lengths + first, length, count);
        set_exponential_scores(of_row, wholes.data() + first, own.fractions + first, count,
                               segment.gate_exponents()[i] - rows[i].level + own.heaviest,
                               std::log2(static_cast<double>(segment.gate_fractions()[i])));
      }
      with_scores<F>(degree_in(feature_), [&](const auto& power) {
        differentiate_scores_of_row(power, of_row, e.col(i).data() + first, slopes, scales.weights + first,
                                    rows[i].factor, rows[i].last, count);
      });
      if (by_slopes()) multiply_entries(slopes, buffers.slopes(n, n).col(i).data() + first, count);
      if constexpr (is_exponential) lengthen(slopes, own.lengths + first, length, count);
    }
    add_own_flows();
  }
  // flows_t += Σ_{j < t ≤ i} c_ij, a row's couplings beside its level.
  void add_own_flows() {
    constexpr double near = 500;
    const Index n = size(), keys = keys_.size;
    if (call.options.mask.is_full) return;
    double *const factors = buffers.scratch(n).data(), level = -log2_zero;
    for (Index i = 0; i < n; ++i) {
      if (!rows[i].has_gradient()) continue;
      const double seen = buffers.levels(n)[i], of_row = seen == log2_zero ? scales.M : seen;
      if (!(std::abs(of_row - level) < near)) {
        level = of_row;
        for (Index j = 0; j < keys; ++j) factors[j] = nearest_power_of_two<double>(scales.M + scales.shifts[j] - level);
      }
      const Scalar* const couplings = products().col(i).data();
      const double exponent = rows[i].exponent + level, half = std::floor(exponent / 2),
                   factor = nearest_power_of_two<double>(half),
                   other_factor = nearest_power_of_two<double>(exponent - half);
      double before = 0;
      for (Index t = 1; t <= i; ++t) {
        if (t <= keys) before += factors[t - 1] * static_cast<double>(couplings[t - 1]);
        flows()[t] += before * factor * other_factor;
      }
    }
  }

  // What goes through the transition together: rows beside 2^H, and keys beside 2^L.
  struct Pass {
    double H, L;
    bool has_behind, has_flow;
  };
  // All rows with a gradient, what comes from behind, n, and what flows through, n + 1, by passes of those whose
  // exponents and levels are near each other.
  void take_passes() {
    const Index n = size(), behind = n, flow = n + 1;
    auto pending = buffers.pending(n + 2), levels = buffers.levels(n + 2);
    RunningLargest with_zeros;  // keys of length 0 have gradients too
    for (Index i = 0; i < n; ++i) {
      const double seen = with_zeros.over(own_seen(i), [&](Index j) { return segment.keys().exponents[j]; });
      pending[i] = rows[i].exponent, levels[i] = std::max(levels[i], N);
      if (levels[i] == log2_zero) levels[i] = is_exponential || seen == log2_zero ? scales.M : seen;
    }
    levels[behind] = levels[flow] = scales.M;
    pending[behind] = U - scales.M + (has_mixed ? std::max(0., N - scales.M) : 0);
    double largest = 0;
    for (const double x : through())
      if (!(std::abs(x) <= largest)) largest = std::abs(x);
    pending[flow] = std::isfinite(largest) ? std::ceil(std::log2(largest)) - scales.M : pending[behind];
    for (Index top = 0;;) {
      if (pending.head(flow).maxCoeff(&top) == log2_zero) top = flow;
      if (pending[top] == log2_zero) return;
      const auto is_near = [&, H = pending[top], level = levels[top]](Index i) {
        return H - pending[i] <= most_apart && std::abs(levels[i] - level) <= most_apart;
      };
      Pass pass{pending[top], levels[top], is_near(behind), false};
      for (Index i = 0; i < flow; ++i)
        if (is_near(i)) pass.L = std::max(pass.L, levels[i]);
      pass.H = std::min(pass.H, most_unit - pass.L);  // 2^{H + L} is a number
      pass.has_flow = top == flow || std::abs(pending[flow] + scales.M - pass.H - pass.L) < most_unit;
      for (Index i = 0; i < n; ++i)
        buffers.row_factors(n)[i] = is_near(i) ? nearest_power_of_two<Scalar>(rows[i].exponent - pass.H) : Scalar(0);
      take_pass(pass);
      for (Index i = 0; i < flow; ++i)
        if (is_near(i)) pending[i] = log2_zero;
      pending[top] = log2_zero;
      if (pass.has_flow) pending[flow] = log2_zero;
    }
  }

  void take_pass(const Pass& pass) {
    const Index n = size(), rows_of_vectors = segment.vector_rows(), keys = keys_.size;
    auto d_queries = buffers.d_queries(rows_of_vectors, n), d_keys = buffers.d_keys(rows_of_vectors, n);
    d_queries.setZero(), d_keys.setZero();
    for (Index i = 0; i < n && N != log2_zero; ++i)
      if (is_in_pass(i))
        set_times_power_of_two<Scalar>(d_queries.col(i), buffers.from_before(rows_of_vectors, n).col(i), N - pass.L);
    const bool has_behind = pass.has_behind && U != log2_zero;
    const double of_behind = U - scales.M - pass.H;
    for (Index j = 0; j < keys && has_behind; ++j)
      set_times_power_of_two<Scalar>(d_keys.col(j), buffers.from_behind(rows_of_vectors, n).col(j), of_behind);
    add_value_gradients(pass, has_behind, of_behind);
    move_back(pass, d_queries, d_keys);
  }
  [[nodiscard]] bool is_in_pass(Index i) { return buffers.row_factors(size())[i] != Scalar(0); }
  // dV_j = Σ_{i ≥ j} s_ij g_i and what comes from behind.
  void add_value_gradients(const Pass& pass, bool has_behind, double of_behind) {
    const Index n = size(), e = call.V.rows(), keys = keys_.size;
    auto G = buffers.G(e, n), dV = buffers.dV(e, n).leftCols(keys);
    for (Index i = 0; i < n; ++i)
      if (is_in_pass(i))
        rows.set_gradient(G.col(i), i, buffers.row_factors(n)[i]);
      else
        G.col(i).setZero();
    const MatrixView<Scalar> scores = segment.logits();
    for (Index j = 0, some; j < keys; j += some) {
      some = std::min(keys_at_once, keys - j);
      if (queries_.size > 0)
        set_product(dV.middleCols(j, some), G.rightCols(n - j), scores.block(j, j, some, n - j).transpose());
      else
        dV.middleCols(j, some).setZero();
    }
    auto to = keys_of(call.to.dV);
    for (Index j = 0; j < keys; ++j) {
      if (has_behind) add_times_power_of_two<Scalar>(dV.col(j), buffers.from_behind_values(e, n).col(j), of_behind);
      add_times_power_of_two<Scalar>(to.col(j), dV.col(j), pass.H + scales.M + scales.shifts[j]);
    }
  }

  // Columns of the moved vectors for a pass: of queries, 0 for rows of other passes, and of keys.
  void scale_vectors(const Pass& pass, MatrixView<const Scalar> queries, MatrixView<Scalar> to_queries,
                     MatrixView<const Scalar> keys, MatrixView<Scalar> to_keys) {
    const auto scale = [](ColumnView<const Scalar> x, ColumnView<Scalar> to, Scalar factor) {
      if (factor == Scalar(0)) return to.setZero(), void();
      set_scaled(to.data(), x.data(), factor, x.size());
    };
    for (Index i = 0; i < size(); ++i) {
      const double exponent = scales.shifts[i] + scales.M - pass.L;
      const bool is_seen = i < keys_.size && exponent <= most_apart;  // what is heavier no row of the pass sees
      scale(queries.col(i), to_queries.col(i), buffers.row_factors(size())[i]);
      scale(keys.col(i), to_keys.col(i), is_seen ? nearest_power_of_two<Scalar>(exponent) : Scalar(0));
    }
  }
  // From logits and moved vectors to the queries and keys of the call, and to the transition's parameters. Rows of
  // other passes have no queries.
  void move_back(const Pass& pass, MatrixView<Scalar> d_queries, MatrixView<Scalar> d_keys) {
    const Index n = size(), d = call.K.rows();
    const MatrixView<Scalar> plain_queries = buffers.segment.queries(d, n), plain_keys = segment.key_vectors();
    auto moved_queries = buffers.moved_queries(d, n), moved_keys = buffers.moved_keys(d, n),
         d_logits = buffers.d_logits(n, n);
    scale_vectors(pass, plain_queries, moved_queries, plain_keys, moved_keys);
    const bool has_pairs = queries_.size > 0 && keys_.size > 0;
    if constexpr (is_embedded)
      if (sees_features_) {
        const Index D = d_queries.rows();
        auto queries = buffers.moved_query_features(D, n), keys = buffers.moved_key_features(D, n);
        scale_vectors(pass, segment.queries().vectors, queries, own_keys(), keys);
        if (has_pairs) add_causal_pairs<Scalar>(queries, keys, d_logits, d_queries, d_keys);
        auto to_queries = buffers.d_plain_queries(d, n), to_keys = buffers.d_plain_keys(d, n);
        bring_back(plain_queries, segment.queries().vectors, segment.queries().lengths, d_queries, to_queries);
        bring_back(plain_keys, own_keys(), segment.keys().lengths, d_keys, to_keys);
        return call_segment_vjp(pass, moved_queries, moved_keys, no_logits<Scalar>(), to_queries, to_keys);
      }
    call_segment_vjp(pass, moved_queries, moved_keys, has_pairs ? Batch<Scalar>(d_logits) : no_logits<Scalar>(),
                     d_queries, d_keys);
  }
  // From gradients of φ to those of what it was made of.
  void bring_back(MatrixView<Scalar> x, MatrixView<Scalar> features, const double* lengths,
                  MatrixView<const Scalar> d_features, MatrixView<Scalar> dx) {
    auto copy = buffers.features(features.rows(), features.cols());  // used up
    copy = features;
    if constexpr (is_embedded) feature_.embed_vjp(x, copy, ColumnView<const double>(lengths, x.cols()), d_features, dx);
  }
  void call_segment_vjp(const Pass& pass, MatrixView<Scalar> moved_queries, MatrixView<Scalar> moved_keys,
                        Batch<Scalar> d_logits, MatrixView<Scalar> d_queries, MatrixView<Scalar> d_keys) {
    const Index n = size(), d = call.K.rows();
    const double R = pass.H + pass.L;
    const bool reads_plain = action_ == KeyAction::scale || action_ == KeyAction::mix;
    auto flows = buffers.scratch(flows_through());
    flows.setZero();
    if (pass.has_flow) set_times_power_of_two<double>(flows, through(), -R), through().setZero();
    const auto plain = [&](Panel<Scalar>& panel) { return panel(reads_plain ? d : 0, reads_plain ? n : 0); };
    auto queries = plain(buffers.queries), keys = plain(buffers.keys);
    if (reads_plain) {
      segment.load_plain(queries, keys, queries_of(call.Q), keys_of(call.K));
      scale_vectors(pass, queries, queries, keys, keys);
    }
    const Index of_state = has_mixed && pass.has_behind ? call.V.rows() + 1 : 0;
    auto state = buffers.state(of_state, d), adjoint = buffers.adjoint(of_state, d);
    state *= power_of_two<Scalar>(N + U - scales.M - R);
    SegmentVjp<Scalar> x{.moved_queries = moved_queries,
                         .moved_keys = moved_keys,
                         .d_queries = d_queries,
                         .d_keys = d_keys,
                         .d_logits = d_logits,
                         .queries = queries,
                         .keys = keys,
                         .state = state,
                         .adjoint = adjoint,
                         .through = flows.size() > 0 ? flows.data() : nullptr,
                         .unit = power_of_two<double>(R),
                         .is_absolute = is_absolute()};
    frame_ = start_;
    call.vjp->to_segment_frame_vjp(frame_, segment.range(), x);
    if (is_absolute()) add_times_power_of_two<double>(through(), flows, R);
    add_vector_gradients(pass, d_queries, d_keys);
  }
  void add_vector_gradients(const Pass& pass, MatrixView<Scalar> d_queries, MatrixView<Scalar> d_keys) {
    const auto length_of = [](double length) { return is_embedded || length == log2_zero ? 0 : length; };
    const Index d = call.K.rows(), begin = segment.range().begin;
    const auto Q = queries_of(call.Q);
    const auto dQ = queries_of(call.to.dQ), dK = keys_of(call.to.dK);
    int of_scale = 0;
    const double scale = call.options.scale, mantissa = scale == 1 ? 1 : std::frexp(scale, &of_scale);
    for (Index i = 0; i < Q.cols(); ++i) {
      const Index row = first_row() + i;
      auto dq = d_queries.col(row);
      if (!is_in_pass(row)) continue;
      set_times_power_of_two<Scalar>(dq, dq, rows[row].exponent + pass.L - length_of(segment.queries().lengths[row]));
      const auto product = static_cast<double>(dot_product(Q.col(i).data(), dq.data(), d));
      if (std::isfinite(product) || !dq.isZero(0)) call.to.scale += product;
      if (mantissa != 1) TwoPartFactor<Scalar>(mantissa).multiply(dq.data(), d);
      add_times_power_of_two<Scalar>(dQ.col(i), dq, of_scale);
      for (const auto* next : {&call.Q, &call.K, &call.V, &call.dY}) prefetch_column(*next, begin - 1 - i);
    }
    for (Index j = 0; j < dK.cols(); ++j) {
      add_times_power_of_two<Scalar>(dK.col(j), d_keys.col(j),
                                     pass.H + scales.M + scales.shifts[j] - length_of(segment.keys().lengths[j]));
      for (const auto* next : {&call.to.dQ, &call.to.dK, &call.to.dV}) prefetch_column<true>(*next, begin - 1 - j);
    }
  }
  [[nodiscard]] MatrixView<Scalar> products() { return buffers.products(size(), size()).topRows(keys_.size); }
  // The keys as logits and states take them.
  [[nodiscard]] MatrixView<Scalar> own_keys() {
    return sees_features_ ? buffers.segment.key_features(segment.vector_rows(), size()) : segment.key_vectors();
  }

  static constexpr Index keys_at_once = 24;  // that products take as one, as far as rows see them: whole tiles
  const F& feature_;
  const bool sees_features_;
  KeyAction action_;
  Segment queries_, keys_;
  Frame start_, frame_;
};

}  // namespace SYMPOW_NAMESPACE::detail
