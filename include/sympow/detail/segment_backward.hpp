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

/// One call on its way back: everything is checked. Gradients are added to those that are there, if it `adds`.
template <class Scalar>
struct BackwardCall {
  const TransitionView<Scalar>& transition;
  VjpView<Scalar>& vjp;
  RowKind rows;
  Options options;
  MatrixView<const Scalar> Q, K, V, dY;
  MatrixView<Scalar> dQ, dK, dV;
  double& d_scale;
  bool adds;
  ForwardBuffers<Scalar>& forward;
  BackwardBuffers<Scalar>& buffers;
  SavedRows<Scalar> saved = {};
};

/// What a segment of n tokens needs, whose vectors have `rows` numbers: those of keys, or of φ of embedded scores.
template <class Scalar>
struct SegmentBackwardBuffers {
  SegmentBuffers<Scalar> segment;
  RowGradientBuffers<Scalar> rows;
  Panel<Scalar> products, d_logits, slopes, other_logits;  ///< n × n: v_j·dŷ_i, then couplings; of logits
  Panel<Scalar> weights, wholes;                           ///< n, of keys
  Panel<Scalar> G, dV, from_behind_values;                 ///< e × n
  Panel<Scalar> queries, keys, moved_queries, moved_keys, d_plain_queries, d_plain_keys;  ///< d × n
  Panel<Scalar> d_queries, d_keys, features, from_before, from_behind;                    ///< rows × n
  Panel<Scalar> moved_query_features, moved_key_features;                                 ///< likewise, where embedded
  Panel<Scalar> state, adjoint;                                                           ///< (e + 1) × d, mixed
  Panel<double> shifts, levels, flows, of_rows, of_keys, through, scratch;
  Panel<double> row_levels, key_levels;  ///< n + 1, of what goes through the transition together
};

/// The vectors of a segment count from powers of two, a column each, so that none is lost beside others:
///
///     row i   g_i = 2^{exponent_i} (…), as `RowGradients` has it     key j   2^{E_j} f_j = 2^{M + shift_j} w_j
///     ∂loss/∂(q̂_i·k̂_j) = 2^{exponent_i + M + shift_j} slope_ij,      slope_ij = P x^{P-1} w_j v⁺_j·ĝ_i
///
/// A `SegmentVjp` takes rows with exponents near H and keys with exponents near L in the unit 2^{H + L}: queries
/// 2^{exponent_i - H} q̂_i, keys 2^{shift_j + M - L} k̂_j. That is one pass but for extreme input. Where keys do not
/// move, nothing flows, and a row takes all of its keys at once, L being near the heaviest. What a past of the heaviest
/// key 2^N and later rows give counts from
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
        segment(memory.segment, feature, of.transition, of.options.scale, of.K.rows(), most, is_embedded && !by_slopes),
        rows(memory.rows, of.rows),
        feature_(feature),
        sees_features_(is_embedded && !by_slopes),
        action_(of.transition.key_action()) {
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
    return action_ == KeyAction::scale ? call.K.rows() : action_ == KeyAction::turn ? call.vjp.planes().count : 0;
  }
  /// Couplings of earlier keys with later rows by channel or plane or, where angles are absolute, what turned under a
  /// segment's rows and keys and those of later ones.
  [[nodiscard]] ColumnView<double> through() { return buffers.through(flows_through()); }

  /// Loads the tokens whose gates are loaded: those that have queries, those that have keys, or both. Returns where
  /// they have turned to from `start`.
  const Frame& load(const Frame& start, bool with_queries, bool with_keys, const LogGate& elapsed = {}) {
    const Segment all = segment.range();
    const Index offset = call.options.mask.offset, first = std::clamp(offset, all.begin, all.end());
    queries_ = {first, with_queries ? std::clamp(offset + call.Q.cols(), first, all.end()) - first : 0};
    keys_ = {all.begin, with_keys ? std::clamp<Index>(call.K.cols() - all.begin, 0, all.size) : 0};
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
      call.vjp.add_decay_flows(segment.range(), flows());
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
    for (Index i = 0; i < size(); ++i) buffers.levels(size())[i] = levels.over(own_seen(i), level_of);
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
      differentiate_scores_of_row<F>(of_row, e.col(i).data() + first, slopes, scales.weights + first, rows[i].factor,
                                     rows[i].last, count);
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

  // Rows and keys of one pass: those with these levels. What flows through the segment goes with one of them.
  struct Pass {
    double of_rows, H, L;  ///< of_rows is H, or none where only a flow goes through
    bool is_only, has_flow;
  };
  // All pairs, by passes of those whose exponents are near each other.
  void take_passes() {
    const auto next = [](ColumnView<const double> levels, double below) {
      double largest = log2_zero;
      for (const double level : levels)
        if (level < below) largest = std::max(largest, level);
      return largest;
    };
    set_pass_levels();
    const auto of_rows = buffers.row_levels(size() + 1), of_keys = buffers.key_levels(size() + 1);
    const double top = next(of_rows, -log2_zero), heaviest = next(of_keys, -log2_zero);
    double largest = 0;
    for (const double x : through()) largest = std::max(largest, std::abs(x));
    const double flow = std::isfinite(largest) ? std::ceil(std::log2(largest)) : log2_zero;
    const bool is_only = std::isinf(next(of_rows, top)) && std::isinf(next(of_keys, heaviest)),
               has_flow = is_only && (flow == log2_zero || std::abs(flow - top - heaviest) < most_unit);
    adds_ = call.adds || !has_flow;
    if (!call.adds && !has_flow)
      for (MatrixView<Scalar> x : {queries_of(call.dQ), keys_of(call.dK), keys_of(call.dV)}) x.setZero();
    if (!has_flow) take_pass({none, flow == log2_zero ? 0 : flow, 0, false, true});
    for (double H = top; !std::isinf(H); H = next(of_rows, H)) {
      add_value_gradients(H);
      for (double L = heaviest; !std::isinf(L); L = next(of_keys, L)) take_pass({H, H, L, is_only, has_flow});
    }
  }
  // Rounds the exponents of rows and keys to whole widths below the largest; entry n is that of what comes from later
  // rows and from earlier keys. A row that takes all of its keys at once has the level of the heaviest in place of
  // theirs.
  void set_pass_levels() {
    const auto near = [](double x, double largest, double width) {
      return largest - width * std::trunc((largest - x) / width);
    };
    const Index n = size();
    auto of_rows = buffers.row_levels(n + 1), of_keys = buffers.key_levels(n + 1);
    const double M = scales.M, of_behind = U - M;
    const auto near_M = [&](double x) { return near(x, M, x > M || !splits_keys() ? most_apart : 2 * most_apart); };
    double top = largest_exponent();
    if (top == log2_zero) top = of_behind == log2_zero ? 0 : of_behind;
    for (Index i = 0; i < n; ++i) {
      const bool counts = splits_keys() ? i < keys_.size : rows[i].has_gradient();
      const double level = splits_keys() ? segment.keys().exponents[i] : std::max(buffers.levels(n)[i], N);
      of_rows[i] = rows[i].has_gradient() ? near(rows[i].exponent, top, most_apart) : none;
      of_keys[i] = !counts ? none : level == log2_zero ? M : near_M(level);
    }
    of_rows[n] = of_behind == log2_zero ? top : near(of_behind, top, most_apart);
    of_keys[n] = splits_keys() && N != log2_zero ? near_M(N) : M;
  }
  [[nodiscard]] bool splits_keys() const { return action_ != KeyAction::none && !is_exponential; }
  [[nodiscard]] bool has_row(const Pass& pass, Index i) { return buffers.row_levels(size() + 1)[i] == pass.of_rows; }
  [[nodiscard]] bool has_pair(const Pass& pass, Index i, Index j) {
    return has_row(pass, i) && buffers.key_levels(size() + 1)[splits_keys() ? j : i] == pass.L;
  }
  // What row i gets from before, and key j from behind.
  [[nodiscard]] bool has_before(const Pass& pass, Index i) { return N != log2_zero && has_pair(pass, i, size()); }
  [[nodiscard]] bool has_behind(const Pass& pass, Index j) { return U != log2_zero && has_pair(pass, size(), j); }

  void take_pass(Pass pass) {
    const Index n = size(), rows_of_vectors = segment.vector_rows(), keys = keys_.size;
    pass.H = std::min(pass.H, most_unit - pass.L);  // 2^{H + L} is a number
    auto d_logits = buffers.d_logits(n, n);
    MatrixView<Scalar> of_pass = pass.is_only ? d_logits : buffers.other_logits(n, n);
    bool is_empty = !pass.is_only && !pass.has_flow;
    for (Index i = 0; i < n && !pass.is_only; ++i) {
      of_pass.col(i).head(i + 1).setZero();
      for (Index j = 0; j < std::min(i + 1, keys) && has_row(pass, i); ++j)
        if (has_pair(pass, i, j)) of_pass(j, i) = d_logits(j, i), is_empty = false;
    }
    auto d_queries = buffers.d_queries(rows_of_vectors, n), d_keys = buffers.d_keys(rows_of_vectors, n);
    for (Index i = 0; i < n; ++i) {
      const bool of_before = has_before(pass, i), of_behind = i < keys && has_behind(pass, i);
      is_empty = is_empty && !of_before && !of_behind;
      auto dq = d_queries.col(i), dk = d_keys.col(i);
      if (!of_before) dq.setZero();
      if (!of_behind) dk.setZero();
      if (of_before) set_times_power_of_two<Scalar>(dq, buffers.from_before(dq.size(), n).col(i), N - pass.L);
      if (of_behind)
        set_times_power_of_two<Scalar>(dk, buffers.from_behind(dk.size(), n).col(i), U - scales.M - pass.H);
    }
    if (!is_empty || has_state(pass)) move_back(pass, of_pass, d_queries, d_keys);
  }
  // dV_j = Σ_{i ≥ j} s_ij g_i over the rows of a level, and what comes from behind.
  void add_value_gradients(double H) {
    const Index n = size(), e = call.V.rows(), keys = keys_.size;
    const auto levels = buffers.row_levels(n + 1);
    auto G = buffers.G(e, n), dV = buffers.dV(e, n).leftCols(keys);
    for (Index i = 0; i < n; ++i)
      if (levels[i] == H)
        rows.set_gradient(G.col(i), i, nearest_power_of_two<Scalar>(rows[i].exponent - H));
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
    auto to = keys_of(call.dV);
    const bool has_behind = U != log2_zero && levels[n] == H;
    for (Index j = 0; j < keys; ++j) {
      if (has_behind)
        add_times_power_of_two<Scalar>(dV.col(j), buffers.from_behind_values(e, n).col(j), U - scales.M - H);
      add_to_output(to.col(j), dV.col(j), H + scales.M + scales.shifts[j]);
    }
  }

  // Columns of the moved vectors for a pass: of queries, 0 for rows of other passes, and of keys.
  void scale_vectors(const Pass& pass, MatrixView<const Scalar> queries, MatrixView<Scalar> to_queries,
                     MatrixView<const Scalar> keys, MatrixView<Scalar> to_keys) {
    for (Index i = 0; i < size(); ++i) {
      if (!has_row(pass, i))
        to_queries.col(i).setZero();
      else
        set_scaled(to_queries.col(i).data(), queries.col(i).data(),
                   nearest_power_of_two<Scalar>(rows[i].exponent - pass.H), queries.rows());
      const double exponent = scales.shifts[i] + scales.M - pass.L;
      if (i < keys_.size && exponent <= most_apart)  // what is heavier no row of the pass sees
        set_scaled(to_keys.col(i).data(), keys.col(i).data(), nearest_power_of_two<Scalar>(exponent), keys.rows());
      else
        to_keys.col(i).setZero();
    }
  }
  // From logits and moved vectors to the queries and keys of the call, and to the transition's parameters.
  void move_back(const Pass& pass, MatrixView<Scalar> d_logits, MatrixView<Scalar> d_queries,
                 MatrixView<Scalar> d_keys) {
    const Index n = size(), d = call.K.rows();
    const bool has_pairs = queries_.size > 0 && keys_.size > 0;
    const MatrixView<Scalar> plain_queries = buffers.segment.queries(d, n), plain_keys = segment.key_vectors();
    auto moved_queries = pass.is_only ? plain_queries : buffers.moved_queries(d, n),
         moved_keys = pass.is_only ? plain_keys : buffers.moved_keys(d, n);
    if constexpr (is_embedded)
      if (sees_features_) {
        const Index D = d_queries.rows();
        auto queries = buffers.moved_query_features(D, n), keys = buffers.moved_key_features(D, n);
        scale_vectors(pass, segment.queries().vectors, queries, own_keys(), keys);
        if (has_pairs) add_causal_pairs<Scalar>(queries, keys, d_logits, d_queries, d_keys);
        auto to_queries = buffers.d_plain_queries(d, n), to_keys = buffers.d_plain_keys(d, n);
        bring_back(plain_queries, segment.queries().vectors, segment.queries().lengths, d_queries, to_queries);
        bring_back(plain_keys, own_keys(), segment.keys().lengths, d_keys, to_keys);
        scale_vectors(pass, plain_queries, moved_queries, plain_keys, moved_keys);
        return call_segment_vjp(pass, moved_queries, moved_keys, no_logits<Scalar>(), to_queries, to_keys);
      }
    scale_vectors(pass, plain_queries, moved_queries, plain_keys, moved_keys);
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
    const Index of_state = has_state(pass) ? call.V.rows() + 1 : 0;
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
    call.vjp.to_segment_frame_vjp(frame_, segment.range(), x);
    if (is_absolute()) add_times_power_of_two<double>(through(), flows, R);
    add_vector_gradients(pass, d_queries, d_keys);
  }
  // The states on both sides of the segment go with what comes from before and from behind.
  [[nodiscard]] bool has_state(const Pass& pass) { return has_mixed && has_pair(pass, size(), size()); }
  void add_vector_gradients(const Pass& pass, MatrixView<Scalar> d_queries, MatrixView<Scalar> d_keys) {
    const auto length_of = [](double length) { return is_embedded || length == log2_zero ? 0 : length; };
    const Index d = call.K.rows(), begin = segment.range().begin;
    const auto Q = queries_of(call.Q);
    const auto dQ = queries_of(call.dQ), dK = keys_of(call.dK);
    int of_scale = 0;
    const double scale = call.options.scale, mantissa = scale == 1 ? 1 : std::frexp(scale, &of_scale);
    for (Index i = 0; i < Q.cols(); ++i) {
      const Index row = first_row() + i;
      auto dq = d_queries.col(row);
      if (!has_row(pass, row)) {
        if (!adds_) dQ.col(i).setZero();
        continue;
      }
      set_times_power_of_two<Scalar>(dq, dq, rows[row].exponent + pass.L - length_of(segment.queries().lengths[row]));
      const auto product = static_cast<double>(dot_product(Q.col(i).data(), dq.data(), d));
      if (std::isfinite(product) || !dq.isZero(0)) call.d_scale += product;
      if (mantissa != 1) TwoPartFactor<Scalar>(mantissa).multiply(dq.data(), d);
      add_to_output(dQ.col(i), dq, of_scale);
      for (const auto* next : {&call.Q, &call.K, &call.V, &call.dY}) prefetch_column(*next, begin - 1 - i);
    }
    for (Index j = 0; j < dK.cols(); ++j) {
      add_to_output(dK.col(j), d_keys.col(j),
                    pass.H + scales.M + scales.shifts[j] - length_of(segment.keys().lengths[j]));
      for (const auto* next : {&call.dQ, &call.dK, &call.dV}) prefetch_column<true>(*next, begin - 1 - j);
    }
  }
  // 2^exponent x goes to a gradient of the call.
  void add_to_output(ColumnView<Scalar> to, ColumnView<const Scalar> x, double exponent) const {
    if (adds_)
      add_times_power_of_two<Scalar>(to, x, exponent);
    else
      set_times_power_of_two<Scalar>(to, x, exponent);
  }
  [[nodiscard]] MatrixView<Scalar> products() { return buffers.products(size(), size()).topRows(keys_.size); }
  // The keys as logits and states take them.
  [[nodiscard]] MatrixView<Scalar> own_keys() {
    return sees_features_ ? buffers.segment.key_features(segment.vector_rows(), size()) : segment.key_vectors();
  }

  static constexpr double none = std::numeric_limits<double>::quiet_NaN();  // a level that nothing has
  static constexpr Index keys_at_once = 24;  // that products take as one, as far as rows see them: whole tiles
  const F& feature_;
  const bool sees_features_;
  KeyAction action_;
  Segment queries_, keys_;
  Frame start_, frame_;
  bool adds_ = true;
};

}  // namespace SYMPOW_NAMESPACE::detail
