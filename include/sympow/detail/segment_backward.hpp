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
  Panel<Scalar> weights, wholes, key_factors;              ///< n, of keys
  Panel<Scalar> G, dV, from_behind_values;                 ///< e × n
  Panel<Scalar> queries, keys, moved_queries, moved_keys, d_plain_queries, d_plain_keys;  ///< d × n
  Panel<Scalar> d_queries, d_keys, features, from_before, from_behind;                    ///< rows × n
  Panel<Scalar> moved_query_features, moved_key_features;                                 ///< likewise, where embedded
  Panel<Scalar> state, adjoint;                                                           ///< (e + 1) × d, mixed
  Panel<double> shifts, levels, flows, of_rows, of_keys, through, absolute, scratch, passes;

  void reserve(Index d, Index vector_rows, Index e, Index n) {
    rows.reserve(e, n);
    for (auto* panel : {&products, &d_logits}) (*panel)(n, n);
    for (auto* panel : {&weights, &wholes, &key_factors}) (*panel)(n);
    for (auto* panel : {&G, &dV, &from_behind_values}) (*panel)(e, n);
    for (auto* panel : {&queries, &keys, &moved_queries, &moved_keys, &d_plain_queries, &d_plain_keys}) (*panel)(d, n);
    for (auto* panel : {&d_queries, &d_keys, &features, &from_before, &from_behind}) (*panel)(vector_rows, n);
    for (auto* panel : {&shifts, &levels, &flows, &of_rows, &of_keys, &passes}) (*panel)(n);
    through(d), absolute(d), scratch(std::max(d, n));
  }
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
  static constexpr double most_apart = KeyScales<Scalar>::most_apart, band_width = 2 * most_apart;
  // Far below the least number: gradients of a transition's vectors are larger the shorter these are.
  static constexpr double least_number = std::numeric_limits<Scalar>::min_exponent -
                                         std::numeric_limits<Scalar>::digits -
                                         std::numeric_limits<Scalar>::max_exponent;

 public:
  /// With φ of an embedded score, or by the slopes of its closed form.
  SegmentBackward(const F& feature, const BackwardCall<Scalar>& of, SegmentBackwardBuffers<Scalar>& memory, Index most,
                  bool by_slopes)
      : call(of),
        buffers(memory),
        segment(memory.segment, feature, of.transition, of.options.scale, of.K.rows(), most, is_embedded && !by_slopes),
        rows(memory.rows, of.rows),
        feature_(feature),
        sees_features_(is_embedded && !by_slopes),
        by_slopes_(by_slopes),
        action_(of.transition.key_action()) {
    buffers.reserve(call.K.rows(), segment.vector_rows(), call.V.rows(), most);
    for (auto* panel : {&buffers.moved_query_features, &buffers.moved_key_features})
      (*panel)(sees_features_ ? segment.vector_rows() : 0, most);
    if (by_slopes) buffers.slopes(most, most);
    segment.weigh_zero_keys(true);
    absolute_through().setZero();
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
  [[nodiscard]] bool by_slopes() const { return by_slopes_; }
  [[nodiscard]] KeyAction action() const { return action_; }
  /// Numbers of `through`: channels that decay, or planes that turn.
  [[nodiscard]] Index flows_through() const {
    return action_ == KeyAction::scale ? call.K.rows() : action_ == KeyAction::turn ? call.vjp.planes().count : 0;
  }
  /// What turned under a segment's rows and keys and those of later ones, where angles are absolute.
  [[nodiscard]] ColumnView<double> absolute_through() { return buffers.absolute(flows_through()); }

  /// Loads the tokens of a range whose gates are loaded: those that have queries, and those that have keys.
  void load(Frame& frame, Segment with_queries, Segment with_keys, const LogGate& elapsed = {}) {
    queries_ = with_queries, keys_ = with_keys;
    segment.load(elapsed, frame, queries_of(call.Q), first_row(), keys_of(call.K), keys_of(call.V));
    scales = {buffers.shifts(size()).data(), buffers.weights(size()).data()};
    scales.template set<F>(segment.keys());
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

  /// Takes the loaded segment back, whose queries and keys turn from `start`; a past has
  ///
  ///     void read(segment)       what rows see of it, as far as the sums of rows are not saved
  ///     void go_back(segment)    sets N, U, from_before, from_behind, of_rows, of_keys, the gate's flow and `through`
  template <class Past>
  void go_back(Past& past, const Frame& start) {
    find_rows(past);
    N = U = log2_zero;
    gate_through = 0;
    has_mixed = false;
    through().setZero();
    differentiate_own();
    past.go_back(*this);
    if (!call.options.mask.is_full) {  // else without gates
      add_flows_beyond(buffers.of_rows(size()).data(), buffers.of_keys(size()).data(), gate_through, flows(), size());
      call.vjp.add_decay_flows(segment.range(), flows());
    }
    take_passes(start);
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
  KeyScales<Scalar> scales{nullptr, nullptr};
  double N = log2_zero, U = log2_zero;  ///< see above; -∞: nothing comes from there
  double gate_through = 0;              ///< couplings of earlier keys with later rows
  double mixed_exponent = 0;            ///< that of the product of `buffers.state` and `buffers.adjoint`
  bool has_mixed = false;               ///< whether these are set

  /// The same by channel or plane.
  [[nodiscard]] ColumnView<double> through() { return buffers.through(flows_through()); }
  [[nodiscard]] double* flows() { return buffers.flows(size()).data(); }
  /// The largest exponent of rows with a gradient.
  [[nodiscard]] double largest_exponent() {
    double largest = log2_zero;
    for (Index i = 0; i < size(); ++i) largest = std::max(largest, rows.exponent(i));
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
    if (!by_slopes_ || queries_.size == 0) return;
    auto slopes = buffers.slopes(n, n).topRows(keys);
    set_causal_product(slopes, segment.key_vectors().leftCols(keys), segment.queries().direct);
    set_slopes(slopes, segment.keys().lengths, segment.queries().lengths, keys, n, true);
  }
  // Queries of rows without a loss, and keys that only such rows see, are 0 where they are not finite: in products with
  // zeros they would show.
  void zero_rows_without_gradient() {
    const Index n = size();
    const Mask& mask = call.options.mask;
    const auto is_asked = [&](Index j) {  // by a row that sees it
      for (Index i = j; i < n && mask.first(token(i)) <= token(j); ++i)
        if (rows.has_dY(i)) return true;
      return false;
    };
    const auto is_finite = [](ColumnView<const Scalar> x) {
      return squared_norm(x.data(), x.size()) * Scalar(0) == Scalar(0) || x.allFinite();
    };
    for (Index i = 0; i < n; ++i) {
      if (!rows.has_dY(i) && !is_finite(segment.queries().vectors.col(i))) {
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
      return is_exponential || keys.given_norms[j] == Scalar(0) ? log2_zero : keys.exponents[j];
    };
    for (Index i = 0; i < size(); ++i) buffers.levels(size())[i] = levels.over(own_seen(i), level_of);
  }
  // What the forward pass has left of the rows.
  void restore_rows() {
    if (call.saved.sums == nullptr || queries_.size == 0 || !(rows.divides() || is_exponential)) return;
    const auto Y = queries_of(MatrixView<const Scalar>(call.saved.Y, call.V.rows(), call.Q.cols()));
    const RowSum* const sums = call.saved.sums + queries_.begin - call.options.mask.offset;
    for (Index i = 0; i < Y.cols(); ++i)
      if (rows.has_dY(first_row() + i)) rows.restore(first_row() + i, sums[i], Y.col(i), segment);
  }
  // κ'(x) in units of scores.
  void set_slopes([[maybe_unused]] MatrixView<Scalar> x, [[maybe_unused]] const double* down,
                  [[maybe_unused]] const double* right, [[maybe_unused]] Index n, [[maybe_unused]] Index m,
                  [[maybe_unused]] bool causal) {
    if constexpr (is_embedded)
      feature_.set_slopes(x, ColumnView<const double>(down, n), ColumnView<const double>(right, m), causal);
  }

  // Own pairs: logits become scores, v_j·dŷ_i couplings, and d_logits are set, each beside 2^{exponent_i + M +
  // shift_j}.
  void differentiate_own() {
    const Index n = size(), keys = keys_.size;
    auto d_logits = buffers.d_logits(n, n);
    if (keys == 0 || queries_.size == 0) return d_logits.setZero(), void();
    const auto lengths = segment.keys().lengths;
    MatrixView<Scalar> x = segment.logits(), e = products();
    if constexpr (is_exponential) set_wholes();
    for (Index i = 0; i < n; ++i) {
      const auto [first, count] = own_seen(i);
      const Index seen = first + count, rest = std::min(keys, (i / keys_at_once + 1) * keys_at_once) - seen;
      x.col(i).segment(seen, std::max<Index>(rest, 0)).setZero();
      d_logits.col(i).segment(seen, i + 1 - seen).setZero();
      const Index hidden = rows.has_gradient(i) ? first : seen;  // whatever dy is
      x.col(i).head(hidden).setZero(), d_logits.col(i).head(hidden).setZero(), e.col(i).head(first).setZero();
      if (hidden == seen) continue;
      Scalar *const of_row = x.col(i).data() + first, *const slopes = d_logits.col(i).data() + first;
      if constexpr (is_exponential) {
        lengthen(of_row, lengths + first, segment.queries().lengths[i], count);
        set_exponential_scores(of_row, buffers.wholes(n).data() + first, segment.keys().fractions + first, count,
                               segment.gate_exponents()[i] - rows.levels()[i] + top_,
                               std::log2(static_cast<double>(segment.gate_fractions()[i])));
      }
      differentiate_scores_of_row<F>(of_row, e.col(i).data() + first, slopes, scales.weights + first, rows.factor(i),
                                     rows.last(i), count);
      if (by_slopes_) multiply_entries(slopes, buffers.slopes(n, n).col(i).data() + first, count);
      if constexpr (is_exponential) lengthen(slopes, lengths + first, segment.queries().lengths[i], count);
    }
    add_own_flows();
  }
  void set_wholes() {
    constexpr double least = -PackedExponential<Scalar>::largest_whole;
    const WeightedKeys<Scalar> keys = segment.keys();
    top_ = log2_zero;
    for (Index j = 0; j < keys.size; ++j) top_ = std::max(top_, keys.exponents[j]);
    for (Index j = 0; j < keys.size; ++j)
      buffers.wholes(size())[j] = static_cast<Scalar>(std::max(keys.exponents[j] - top_, least));
  }
  // flows_t += Σ_{j < t ≤ i} c_ij, a row's couplings beside its level.
  void add_own_flows() {
    constexpr double near = 500;
    const Index n = size(), keys = keys_.size;
    if (call.options.mask.is_full) return;
    double *const factors = buffers.scratch(n).data(), level = -log2_zero;
    for (Index i = 0; i < n; ++i) {
      if (!rows.has_gradient(i)) continue;
      const double seen = buffers.levels(n)[i], of_row = seen == log2_zero ? scales.M : seen;
      if (!(std::abs(of_row - level) < near)) {
        level = of_row;
        for (Index j = 0; j < keys; ++j) factors[j] = nearest_power_of_two<double>(scales.M + scales.shifts[j] - level);
      }
      const Scalar* const couplings = products().col(i).data();
      const double exponent = rows.exponent(i) + level, factor = nearest_power_of_two<double>(exponent);
      const bool is_far = !(std::abs(exponent) < 2 * near);
      double before = 0;
      for (Index t = 1; t <= i; ++t) {
        if (t <= keys) before += factors[t - 1] * static_cast<double>(couplings[t - 1]);
        flows()[t] += is_far ? times_power_of_two(before, exponent) : before * factor;
      }
    }
  }

  // Rows of one pass, of which `passes` says the number, and their H and L; with what comes from behind, or without.
  // Where what turns or scales has far lighter keys, they come in bands of their own: they may be all that a token acts
  // on.
  struct Pass {
    double number, H, L;
    bool with_behind, is_only;
    double band = 0;
  };
  // All rows with a gradient, by passes of those whose exponents and levels are near each other.
  void take_passes(const Frame& start) {
    const Index n = size();
    double* const pass_of = buffers.passes(n).data();
    Index pending = 0;
    RunningLargest with_zeros;  // keys of length 0 have gradients too
    const double* const exponents = segment.keys().exponents;
    for (Index i = 0; i < n; ++i) {
      double& level = buffers.levels(n)[i];
      const double seen = with_zeros.over(own_seen(i), [&](Index j) { return is_exponential ? 0 : exponents[j]; });
      if (level = std::max(level, N); level == log2_zero) level = seen == log2_zero ? scales.M : seen;
      pass_of[i] = rows.has_gradient(i) ? 0 : -1;
      pending += pass_of[i] == 0;
    }
    bool with_behind = exponent_behind() != log2_zero || !through().isZero(0) || is_absolute(), is_first = true;
    adds_ = call.adds;
    for (double number = 1; pending > 0 || with_behind || is_first; ++number) {
      Pass pass = begin_pass(number, with_behind);
      const Index left = pending - std::count(pass_of, pass_of + n, number);
      pass.is_only = is_first && left == 0 && pass.with_behind == with_behind;
      if (pass.with_behind) with_behind = false;
      pending = left;
      const double L = pass.L;
      pass.is_only = pass.is_only && std::isinf(next_band(pass, L));
      for (double band = 0; !std::isinf(band); band = next_band(pass, L)) {
        pass.band = band, pass.L = L - band_width * band;
        take_pass(pass, start);
        is_first = false, adds_ = true, pass.with_behind = false;
      }
    }
  }
  // Of all that comes from behind.
  [[nodiscard]] double exponent_behind() const { return has_mixed ? std::max(U, mixed_exponent) : U; }
  // Chooses the rows of a pass: those near that of the largest exponent.
  Pass begin_pass(double number, bool may_have_behind) {
    const Index n = size();
    double *const pass_of = buffers.passes(n).data(), *const levels = buffers.levels(n).data();
    const double of_behind = exponent_behind() - scales.M;
    Pass pass{number, log2_zero, scales.M, may_have_behind, false};
    Index top = -1;
    for (Index i = 0; i < n; ++i)
      if (pass_of[i] == 0 && (top < 0 || rows.exponent(i) > rows.exponent(top))) top = i;
    if (top < 0) {
      pass.H = of_behind == log2_zero ? 0 : of_behind;
      return pass;
    }
    pass.H = rows.exponent(top), pass.L = levels[top];
    for (Index i = 0; i < n; ++i) {
      if (pass_of[i] != 0 || rows.exponent(i) < pass.H - most_apart || std::abs(levels[i] - levels[top]) > most_apart)
        continue;
      pass_of[i] = number;
      pass.L = std::max(pass.L, levels[i]);
    }
    const bool is_near = std::abs(of_behind - pass.H) <= most_apart && std::abs(scales.M - pass.L) <= most_apart;
    pass.with_behind = may_have_behind && (of_behind == log2_zero || is_near);
    return pass;
  }

  [[nodiscard]] double band_of(Index j, double L) const {
    return action_ == KeyAction::none || is_exponential || segment.keys().exponents[j] == log2_zero
               ? 0
               : std::max(0., std::floor((L - segment.keys().exponents[j]) / band_width));
  }
  // The next band of keys that the rows of a pass see; infinity: there is none whose gradients are numbers. A key may
  // be lighter by any number of bands, as random features of long keys are.
  [[nodiscard]] double next_band(const Pass& pass, double L) {
    Index seen = 0;
    double next = -log2_zero;
    for (Index i = 0; i < size(); ++i)
      if (buffers.passes(size())[i] == pass.number) seen = std::min(i + 1, keys_.size);
    for (Index j = 0; j < seen; ++j)
      if (const double band = band_of(j, L); band > pass.band) next = std::min(next, band);
    const bool ends = !std::isinf(next) && pass.H + L - band_width * next + largest_gradient() < least_number;
    return ends ? -log2_zero : next;
  }
  // The exponent beside 2^{H + L} of any gradient of own pairs.
  [[nodiscard]] double largest_gradient() {
    if constexpr (is_embedded) return -log2_zero;  // features have any length
    double shortest = 0;
    Scalar largest = 0;
    for (Index i = 0; i < size(); ++i) {
      for (const double length : {segment.queries().lengths[i], segment.keys().lengths[i]})
        if (length != log2_zero) shortest = std::min(shortest, length);
      largest = std::max(largest, buffers.d_logits(size(), size()).col(i).head(i + 1).cwiseAbs().maxCoeff());
    }
    return std::log2(static_cast<double>(largest)) - shortest;
  }

  void take_pass(Pass pass, const Frame& start) {
    constexpr double most = std::numeric_limits<double>::max_exponent - 24;
    const Index n = size(), rows_of_vectors = segment.vector_rows(), keys = keys_.size;
    pass.H = std::min(pass.H, most - pass.L);  // 2^{H + L} is a number
    const double* const pass_of = buffers.passes(n).data();
    auto d_logits = buffers.d_logits(n, n);
    MatrixView<Scalar> of_pass = pass.is_only ? d_logits : buffers.other_logits(n, n);
    if (!pass.is_only) {
      for (Index i = 0; i < n; ++i) {
        const Index seen = pass_of[i] == pass.number ? i + 1 : 0;
        of_pass.col(i).head(seen) = d_logits.col(i).head(seen);
        of_pass.col(i).segment(seen, i + 1 - seen).setZero();
        for (Index j = 0; j < std::min(seen, keys); ++j)
          if (band_of(j, pass.L + band_width * pass.band) != pass.band) of_pass(j, i) = 0;
      }
    }
    auto d_queries = buffers.d_queries(rows_of_vectors, n), d_keys = buffers.d_keys(rows_of_vectors, n);
    for (Index i = 0; i < n; ++i)
      if (N == log2_zero || pass_of[i] != pass.number || pass.band > 0)
        d_queries.col(i).setZero();
      else
        set_times_power_of_two<Scalar>(d_queries.col(i), buffers.from_before(rows_of_vectors, n).col(i), N - pass.L);
    const bool has_behind = pass.with_behind && U != log2_zero;
    const double of_behind = U - scales.M - pass.H;
    for (Index j = 0; j < n; ++j)
      if (!has_behind || j >= keys)
        d_keys.col(j).setZero();
      else
        set_times_power_of_two<Scalar>(d_keys.col(j), buffers.from_behind(rows_of_vectors, n).col(j), of_behind);
    add_value_gradients(pass, has_behind, of_behind);
    move_back(pass, start, of_pass, d_queries, d_keys);
  }
  // dV_j = Σ_{i ≥ j} s_ij g_i and what comes from behind.
  void add_value_gradients(const Pass& pass, bool has_behind, double of_behind) {
    const Index n = size(), e = call.V.rows(), keys = keys_.size;
    auto G = buffers.G(e, n), dV = buffers.dV(e, n).leftCols(keys);
    for (Index i = 0; i < n; ++i) {
      const bool is_in = buffers.passes(n)[i] == pass.number && pass.band == 0;
      rows.set_gradient(G.col(i), i, is_in ? nearest_power_of_two<Scalar>(rows.exponent(i) - pass.H) : Scalar(0));
      if (!is_in) G.col(i).setZero();
    }
    const MatrixView<Scalar> scores = segment.logits();
    for (Index j = 0, some; j < keys; j += some) {
      some = std::min(keys_at_once, keys - j);
      if (queries_.size > 0)
        set_product(dV.middleCols(j, some), G.rightCols(n - j), scores.block(j, j, some, n - j).transpose());
      else
        dV.middleCols(j, some).setZero();
    }
    auto to = keys_of(call.dV);
    for (Index j = 0; j < keys; ++j) {
      if (has_behind) add_times_power_of_two<Scalar>(dV.col(j), buffers.from_behind_values(e, n).col(j), of_behind);
      add_to_output(to.col(j), dV.col(j), pass.H + scales.M + scales.shifts[j]);
    }
  }

  // Columns of the moved vectors for a pass: of queries, 0 for rows of other passes, and of keys.
  void scale_vectors(const Pass& pass, MatrixView<const Scalar> queries, MatrixView<Scalar> to_queries,
                     MatrixView<const Scalar> keys, MatrixView<Scalar> to_keys) {
    for (Index i = 0; i < size(); ++i) {
      if (buffers.passes(size())[i] != pass.number)
        to_queries.col(i).setZero();
      else
        set_scaled(to_queries.col(i).data(), queries.col(i).data(),
                   nearest_power_of_two<Scalar>(rows.exponent(i) - pass.H), queries.rows());
      const double exponent = scales.shifts[i] + scales.M - pass.L;
      if (i < keys_.size && exponent <= most_apart)  // what is heavier no row of the pass sees
        set_scaled(to_keys.col(i).data(), keys.col(i).data(), nearest_power_of_two<Scalar>(exponent), keys.rows());
      else
        to_keys.col(i).setZero();
    }
  }
  // From logits and moved vectors to the queries and keys of the call, and to the transition's parameters.
  void move_back(const Pass& pass, const Frame& start, MatrixView<Scalar> d_logits, MatrixView<Scalar> d_queries,
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
        return call_segment_vjp(pass, start, moved_queries, moved_keys, no_logits<Scalar>(), to_queries, to_keys);
      }
    scale_vectors(pass, plain_queries, moved_queries, plain_keys, moved_keys);
    call_segment_vjp(pass, start, moved_queries, moved_keys, has_pairs ? Batch<Scalar>(d_logits) : no_logits<Scalar>(),
                     d_queries, d_keys);
  }
  // From gradients of φ to those of what it was made of.
  void bring_back(MatrixView<Scalar> x, MatrixView<Scalar> features, const double* lengths,
                  MatrixView<const Scalar> d_features, MatrixView<Scalar> dx) {
    auto copy = buffers.features(features.rows(), features.cols());  // used up
    copy = features;
    if constexpr (is_embedded) feature_.embed_vjp(x, copy, ColumnView<const double>(lengths, x.cols()), d_features, dx);
  }
  void call_segment_vjp(const Pass& pass, Frame start, MatrixView<Scalar> moved_queries, MatrixView<Scalar> moved_keys,
                        Batch<Scalar> d_logits, MatrixView<Scalar> d_queries, MatrixView<Scalar> d_keys) {
    const Index n = size(), d = call.K.rows();
    const double R = pass.H + pass.L;
    const bool reads_plain = action_ == KeyAction::scale || action_ == KeyAction::mix,
               mixes = has_mixed && pass.with_behind;
    auto flows = through_of(pass, R, start);
    const auto plain = [&](Panel<Scalar>& panel) { return panel(reads_plain ? d : 0, reads_plain ? n : 0); };
    auto queries = plain(buffers.queries), keys = plain(buffers.keys);
    if (reads_plain) {
      segment.load_plain(queries, keys, queries_of(call.Q), keys_of(call.K));
      scale_vectors(pass, queries, queries, keys, keys);
    }
    const Index of_state = mixes ? call.V.rows() + 1 : 0;
    auto state = buffers.state(of_state, d), adjoint = buffers.adjoint(of_state, d);
    if (mixes) state *= power_of_two<Scalar>(mixed_exponent - R);
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
    call.vjp.to_segment_frame_vjp(start, segment.range(), x);
    if (is_absolute())
      for (Index u = 0; u < flows.size(); ++u) absolute_through()[u] += times_power_of_two(flows[u], R);
    add_vector_gradients(pass, d_queries, d_keys);
  }
  // What flows through the segment, with one of its passes, in the unit 2^R; apart from the others where it would not
  // be a number there.
  ColumnView<double> through_of(const Pass& pass, double R, const Frame& start) {
    constexpr double most = std::numeric_limits<double>::max_exponent - 24;
    const Index count = flows_through();
    auto flows = buffers.scratch(count);
    flows.setZero();
    if (!pass.with_behind || (count > 0 && call.options.mask.is_full && !is_absolute())) return flows;
    auto all = is_absolute() ? absolute_through() : through();
    double largest = 0;
    for (const double x : all) largest = std::max(largest, std::abs(x));
    if (largest > 0 && std::isfinite(largest) && std::abs(std::log2(largest) - R) > most) {
      flow_through(start, all);
    } else {
      for (Index u = 0; u < count; ++u) flows[u] = times_power_of_two(all[u], -R);
      if (is_absolute()) all.setZero();
    }
    return flows;
  }
  // No vector has a gradient.
  void flow_through(Frame start, ColumnView<double> all) {
    const Index n = size(), d = call.K.rows();
    Matrix<Scalar> zeros = Matrix<Scalar>::Zero(d, n), to_queries = zeros, to_keys = zeros;
    const bool scales_keys = action_ == KeyAction::scale;
    SegmentVjp<Scalar> x{.moved_queries = Batch<Scalar>(zeros),
                         .moved_keys = Batch<Scalar>(zeros),
                         .d_queries = Batch<Scalar>(to_queries),
                         .d_keys = Batch<Scalar>(to_keys),
                         .queries = scales_keys ? Batch<Scalar>(zeros) : no_logits<Scalar>(),
                         .keys = scales_keys ? Batch<Scalar>(zeros) : no_logits<Scalar>(),
                         .through = all.data(),
                         .is_absolute = is_absolute()};
    call.vjp.to_segment_frame_vjp(start, segment.range(), x);
  }
  void add_vector_gradients(const Pass& pass, MatrixView<Scalar> d_queries, MatrixView<Scalar> d_keys) {
    const auto length_of = [](double length) { return is_embedded || length == log2_zero ? 0 : length; };
    const Index n = size(), d = call.K.rows(), begin = segment.range().begin;
    const auto Q = queries_of(call.Q);
    const auto dQ = queries_of(call.dQ), dK = keys_of(call.dK);
    int of_scale = 0;
    const double scale = call.options.scale, mantissa = scale == 1 ? 1 : std::frexp(scale, &of_scale);
    for (Index i = 0; i < Q.cols(); ++i) {
      const Index row = first_row() + i;
      auto dq = d_queries.col(row);
      if (buffers.passes(n)[row] != pass.number) {
        if (!adds_) dQ.col(i).setZero();
        continue;
      }
      set_times_power_of_two<Scalar>(dq, dq, rows.exponent(row) + pass.L - length_of(segment.queries().lengths[row]));
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

  static constexpr Index keys_at_once = 24;  // that products take as one, as far as rows see them: whole tiles
  const F& feature_;
  const bool sees_features_, by_slopes_;
  KeyAction action_;
  Segment queries_, keys_;
  double top_ = log2_zero;  // of the exponents of exponential scores
  bool adds_ = true;
};

}  // namespace SYMPOW_NAMESPACE::detail
