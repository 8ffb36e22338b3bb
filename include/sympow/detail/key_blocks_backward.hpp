// Blocks of keys as the past of a segment on the way back: the gradients of the attention form.
#pragma once

#include <sympow/detail/segment_backward.hpp>
#include <sympow/transition/flows.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Keys that later segments see together.
template <class Scalar>
struct KeyBlockBackward {
  Segment tokens;
  Index keys = 0;
  Frame start;             ///< where queries and keys turn from
  LogGate total, between;  ///< of its gates, and of those from its start to that of the segment
  bool resets = false;
  double M = 0;             ///< see `KeyScales`
  double top = log2_zero;   ///< the largest exponent of its keys, of those that are not 0
  double unit = log2_zero;  ///< of what waits: dk̂_j = 2^{unit + shift_j} d_keys_j, and dV_j likewise
  double gate_through = 0;  ///< couplings of keys before it with rows behind it
  Panel<double> planes;     ///< the same by plane
  Panel<Scalar> vectors, weights, fractions, d_keys, dV;
  Panel<double> exponents, lengths, shifts, of_keys;
};
template <class Scalar>
struct KeyBlocksBackwardBuffers {
  std::vector<KeyBlockBackward<Scalar>> blocks;  ///< those of a longer call stay, for their memory
  Panel<Scalar> queries, queries_down, G, G_down, last, row_factors, key_factors, row_sums;  ///< of the segment's rows
  Panel<Scalar> logits, products, slopes, moved_keys, d_rows;                                ///< of them with a block
  Panel<Scalar> pulled;  ///< queries before every block
  Panel<double> sums_of_rows, sums_of_keys;
  Panel<Scalar> wholes, rests;
};

/// All keys, block by block. A segment sees its own keys and, pulled through what lies between, the blocks before it,
/// one at a time: logits, what the loss gains by them, and what rows and keys get, while all pairs of a block are in a
/// cache. What a block's keys get from later rows waits for its turn. Five products a pair, of factors that but one
/// need not be turned round: pairs have a row a query.
template <class Scalar, FeatureMap F>
class KeyBlocksBackward {
  static constexpr bool is_embedded = F::score == Score::embedded, is_exponential = F::score == Score::exponential;
  using Segments = SegmentBackward<Scalar, F>;
  using Block = KeyBlockBackward<Scalar>;

 public:
  static constexpr Index block_tokens = 96;

  KeyBlocksBackward(const F& feature, KeyBlocksBackwardBuffers<Scalar>& buffers) : m_(buffers), feature_(feature) {}

  [[nodiscard]] Index size() const { return count_; }
  [[nodiscard]] Block& operator[](Index n) { return m_.blocks[static_cast<std::size_t>(n)]; }

  /// Loads all keys.
  void load(Segments& s, Index tokens) {
    count_ = 0;
    Frame frame;
    for (Index t = 0; t < tokens; t += s.size()) {
      s.segment.load_gates({t, std::min(block_tokens, tokens - t)});
      const Frame start = frame;
      frame = s.load(start, false, true);
      keep(s, start);
    }
  }
  /// Goes on with a block, the last of which rows see the blocks before it; under a full mask they see all of them.
  void begin(Index block) { block_ = block; }

  /// The sums of rows are saved.
  void read(Segments&) {}
  void go_back(Segments& s) {
    take(s);
    far_ = s.call.options.mask.is_full ? size() : block_;
    near_ = far_ - 1;
    if (s.segment.resets() || s.largest_exponent() == log2_zero) return;
    const Index first = s.call.options.mask.first(s.token(s.first_row()));
    LogGate between;
    while (far_ > 0 && first < (*this)[far_ - 1].tokens.end()) {
      Block& block = (*this)[--far_];
      between.add(block.total);
      block.between = between;
      if (block.resets) break;
    }
    read_back(s);
  }

 private:
  // Log2 of what does not matter, where all rows of a segment see all keys before it and have forgotten none of them.
  [[nodiscard]] double least(const Segments& s) const {
    const bool is_known = !is_exponential && !s.call.options.mask.has_window() && s.action() != KeyAction::scale;
    return is_known ? negligible_weight<Scalar>(feature_) : log2_zero;
  }
  static bool pulls(const Segments& s) { return s.action() == KeyAction::scale || s.action() == KeyAction::mix; }

  void keep(Segments& s, const Frame& start) {
    const WeightedKeys<Scalar> keys = s.segment.keys();
    const Index n = keys.size, d = s.segment.vector_rows();
    if (static_cast<std::size_t>(count_) == m_.blocks.size()) m_.blocks.emplace_back();
    Block& block = (*this)[count_++];
    block.start = start;
    block.tokens = s.segment.range(), block.keys = n, block.total = s.segment.total();
    block.resets = s.segment.resets();
    block.M = s.scales.M, block.top = s.scales.top, block.unit = log2_zero, block.gate_through = 0;
    const auto copy = [](const auto* from, auto& to, Index size) { std::copy_n(from, size, to(size).data()); };
    copy(keys.vectors.data, block.vectors, d * n);
    copy(s.scales.weights, block.weights, n), copy(keys.fractions, block.fractions, n);
    copy(keys.exponents, block.exponents, n), copy(keys.lengths, block.lengths, n),
        copy(s.scales.shifts, block.shifts, n);
    block.d_keys(d, n).setZero(), block.dV(s.call.V.rows(), n).setZero(), block.of_keys(n).setZero();
    block.planes(s.flows_through()).setZero();
  }
  // What waits for the keys of the segment.
  void take(Segments& s) {
    Block& block = (*this)[block_];
    const Index n = block.keys, d = s.segment.vector_rows(), e = s.call.V.rows();
    s.gate_through = block.gate_through;
    if (!s.is_absolute()) s.through() = block.planes(s.flows_through());
    if (s.segment.keys().size == 0) return;
    s.buffers.of_keys(s.size()).head(n) = block.of_keys(n);
    s.U = block.unit;
    s.buffers.from_behind(d, s.size()).leftCols(n) = block.d_keys(d, n);
    s.buffers.from_behind_values(e, s.size()).leftCols(n) = block.dV(e, n);
  }
  // The queries as they see a block.
  MatrixView<Scalar> queries_at(Segments& s, Index b) {
    const Index n = s.size(), d = s.segment.vector_rows();
    return pulls(s) ? m_.pulled(d, n * (near_ - far_ + 1)).middleCols(n * (near_ - b), n) : s.segment.queries().vectors;
  }
  // From the farthest block on: what rows get there is pulled back through the blocks that are nearer.
  void read_back(Segments& s) {
    for (Index b = near_; b >= far_ && pulls(s); --b) {
      queries_at(s, b) = b == near_ ? s.segment.queries().vectors : queries_at(s, b + 1);
      if (b < near_) s.call.transition->apply_to_queries((*this)[b + 1].tokens, Batch<Scalar>(queries_at(s, b)));
    }
    for (const bool of_zeros : {false, true})  // keys of length 0 count where there are no others
      for (Index b = near_; b >= far_ && (!of_zeros || s.N == log2_zero); --b)
        if (const Block& block = (*this)[b]; block.keys > 0 && (of_zeros || block.top != log2_zero))
          s.N = std::max(s.N, is_exponential ? 0 : block.M + Weight(block.between).exponent);
    if (s.N == log2_zero) return;
    load_rows(s);
    auto d_rows = s.buffers.from_before(s.segment.vector_rows(), s.size());
    d_rows.setZero();
    double flow = 0;
    for (Index b = far_; b <= near_; ++b) {
      Block& block = (*this)[b];
      const auto queries = scaled_queries(s, b);
      pass_through(s, block, flow, queries, d_rows);
      if (pulls(s)) pull_back(s, block.tokens, queries, d_rows);
      if (block.keys > 0) flow += take_block(s, block, queries, d_rows);
    }
  }
  // g_i = 2^{exponent_i} (G_i, last_i), and 2^{exponent_i - H} with the largest exponent H.
  void load_rows(Segments& s) {
    const Index n = s.size(), e = s.call.V.rows();
    H_ = s.largest_exponent();
    auto G = m_.G(e, n), scaled = s.buffers.G(e, n);
    for (Index i = 0; i < n; ++i) {
      const double below = s.rows[i].exponent - H_;  // a row that no key notices beside another gives it nothing
      m_.row_factors(n)[i] = below < least(s) ? Scalar(0) : nearest_power_of_two<Scalar>(below);
      m_.last(n)[i] = s.rows[i].last;
      s.rows.set_gradient(G.col(i), i, Scalar(1));
      s.rows.set_gradient(scaled.col(i), i, m_.row_factors(n)[i]);
    }
    set_copy(m_.G_down(n, e), G.transpose());
    if (is_exponential) {
      const double* const lengths = s.segment.queries().lengths;
      has_lengths_ = std::any_of(lengths, lengths + n, [](double length) { return length != 0; });
      auto rests = m_.rests(n);
      for (Index i = 0; i < n; ++i)
        rests[i] = static_cast<Scalar>(std::log2(static_cast<double>(s.segment.gate_fractions()[i])));
    }
  }
  // 2^{exponent_i - H} q̂_i as they see a block; those themselves stand down in `queries_down`.
  MatrixView<Scalar> scaled_queries(Segments& s, Index b) {
    const Index n = s.size(), d = s.segment.vector_rows();
    auto queries = m_.queries(d, n);
    if (!pulls(s) && b > far_) return queries;
    const auto given = queries_at(s, b);
    set_copy(m_.queries_down(n, d), given.transpose());
    for (Index i = 0; i < n; ++i) set_scaled(queries.col(i).data(), given.col(i).data(), m_.row_factors(n)[i], d);
    return queries;
  }
  // Couplings of the rows with what lies before a block flow through it.
  void pass_through(Segments& s, Block& block, double flow, MatrixView<Scalar> queries, MatrixView<Scalar> d_rows) {
    block.gate_through += flow;
    if (s.action() != KeyAction::turn || s.is_absolute()) return;
    const Coupling coupling = coupling_of(s.call.vjp->planes());
    auto through = s.buffers.scratch(coupling.size);
    through.setZero();
    coupling.template add_all<Scalar>(through.data(), 1, queries, d_rows);
    add_times_power_of_two<double>(block.planes(coupling.size), through, H_ + s.N);
  }
  void pull_back(Segments& s, Segment tokens, MatrixView<Scalar> queries, MatrixView<Scalar> d_rows) {
    const double R = std::min(H_ + s.N, Segments::most_unit);
    for (Index i = 0; i < queries.cols() && R < H_ + s.N; ++i)
      set_times_power_of_two<Scalar>(queries.col(i), queries.col(i), H_ + s.N - R);
    s.call.vjp->apply_to_queries_vjp(tokens, Batch<Scalar>(queries), Batch<Scalar>(d_rows), power_of_two<double>(R));
  }

  // The rows with one block; returns the sum of their couplings.
  double take_block(Segments& s, Block& block, MatrixView<Scalar> queries, MatrixView<Scalar> d_rows) {
    const Index n = s.size(), count = block.keys, d = d_rows.rows(), e = s.call.V.rows(), first = block.tokens.begin;
    const Weight between(block.between);
    auto logits = m_.logits(n, count), slopes = m_.products(n, count);
    const auto keys = block.vectors(d, count);
    const double *const lengths = block.lengths(count).data(), *const shifts = block.shifts(count).data();
    set_product(logits, m_.queries_down(n, d), keys);
    set_product(slopes, m_.G_down(n, e), s.call.V.middleCols(first, count));
    // Weights with 2^shift make what keys get fit to what waits for them.
    const double exponent = is_exponential ? 0 : between.exponent + block.M;
    const double above = raise_unit(s, block, H_ + exponent), far = above < -Segments::most_apart ? above : 0,
                 shift = above - far;
    Scalar *const weights = m_.key_factors(2 * count).data(), *const key_factors = weights + count;
    for (Index j = 0; j < count; ++j) {
      if (!is_exponential)
        weights[j] =
            block.weights(count)[j] * static_cast<Scalar>(between.fraction * nearest_power_of_two<double>(shift));
      key_factors[j] = nearest_power_of_two<Scalar>(shifts[j]);
    }
    const Index from = s.token(s.first_row()), to = s.token(s.first_row() + s.query_count() - 1);
    const Mask& mask = s.call.options.mask;
    const Segment tokens{first, count};
    const bool sees_all = seen_keys(mask, from, tokens).end() == count && seen_keys(mask, to, tokens).begin == 0;
    const auto rows_of = [&](Index j) {
      Index begin = 0, end = n;
      for (; !sees_all && begin < end && mask.end(s.token(begin)) <= first + j;) ++begin;
      for (; !sees_all && begin < end && mask.first(s.token(end - 1)) > first + j;) --end;
      return Segment{begin, end - begin};
    };
    for (Index j = 0; j < count && is_exponential && !sees_all; ++j) {  // no bit depends on what the mask hides
      const Segment seen = rows_of(j);
      constexpr Scalar least = -PackedExponential<Scalar>::limit / 4;
      logits.col(j).head(seen.begin).setConstant(least);
      logits.col(j).tail(n - seen.end()).setConstant(least);
    }
    set_scores(s, block, between, shift, logits);
    auto of_rows = m_.sums_of_rows(n), of_keys = m_.sums_of_keys(count);
    of_rows.setZero(), of_keys.setZero();
    const CouplingSums<Scalar> sums{m_.row_factors(n).data(), key_factors, of_rows.data(), of_keys.data(),
                                    m_.row_sums(n).data()};
    with_scores<F>(degree_in(feature_), [&](const auto& power) {
      differentiate_block(power, logits, slopes, weights, m_.last(n).data(), sums, rows_of);
    });
    for (Index j = 0; j < count && s.by_slopes(); ++j) {
      const Segment seen = rows_of(j);
      multiply_entries(slopes.col(j).data() + seen.begin, m_.slopes(n, count).col(j).data() + seen.begin, seen.size);
    }
    if constexpr (is_exponential) lengthen_logits(s, slopes, lengths);
    give_keys(s, block, far, queries, logits, slopes);
    // dq̂_i = Σ_j slope_ij 2^{shift_j} k̂_j, without keys that do not matter beside the heaviest
    auto moved = m_.moved_keys(d, count);
    for (Index j = 0; j < count; ++j) {
      const double beside = shifts[j] + exponent - s.N;
      set_scaled(moved.col(j).data(), keys.col(j).data(),
                 beside < least(s) ? Scalar(0) : nearest_power_of_two<Scalar>(beside - shift), d);
    }
    for (Index j = 0; j < count && !sees_all; ++j) {  // 0 · NaN must not reach a row that does not see it
      if (moved.col(j).allFinite()) continue;
      const Segment seen = rows_of(j);
      for (Index i = seen.begin; i < seen.end(); ++i) d_rows.col(i) += slopes(i, j) * moved.col(j);
      moved.col(j).setZero();
    }
    add_product(d_rows, moved, slopes.transpose());
    return add_flows(s, block, exponent - shift, of_rows, of_keys);
  }
  // Raises the unit of what waits for a block if it must; returns by which power of two gradients 2^R of the rows count
  // more than it.
  static double raise_unit(Segments& s, Block& block, double R) {
    constexpr double headroom = 16;
    if (block.unit == log2_zero) block.unit = R;
    if (R > block.unit + headroom) {
      const auto factor = nearest_power_of_two<Scalar>(block.unit - R);
      block.d_keys(s.segment.vector_rows(), block.keys) *= factor, block.dV(s.call.V.rows(), block.keys) *= factor;
      block.unit = R;
    }
    return R - block.unit;
  }
  // Logits become scores where these are no powers of them.
  void set_scores([[maybe_unused]] Segments& s, Block& block, [[maybe_unused]] const Weight& between,
                  [[maybe_unused]] double shift, [[maybe_unused]] MatrixView<Scalar> logits) {
    [[maybe_unused]] const Index n = s.size(), count = block.keys;
    [[maybe_unused]] const double *const lengths = block.lengths(count).data(), *const exponents =
                                                                                    block.exponents(count).data();
    if constexpr (is_embedded) {
      if (!s.by_slopes()) return;
      const ColumnView<const double> of_rows(s.segment.queries().lengths, n), of_keys(lengths, count);
      auto slopes = m_.slopes(n, count);
      slopes = logits;
      feature_.set_slopes(slopes, of_rows, of_keys, false);
      feature_.set_scores(logits, of_rows, of_keys, false);
    } else if constexpr (is_exponential) {
      using Exponentials = PackedExponential<Scalar>;
      Scalar* const wholes = m_.wholes(n).data();
      for (Index i = 0; i < n; ++i) {
        const double whole = block.top + between.exponent + s.segment.gate_exponents()[i] - s.rows[i].level + shift;
        const bool is_known = s.rows[i].has_gradient() && std::abs(whole) <= Exponentials::largest_whole;
        wholes[i] = is_known ? static_cast<Scalar>(whole) : Scalar(0);
        if (!is_known) logits.row(i).setConstant(-Exponentials::limit / 4);
        if (std::isnan(s.rows[i].factor)) logits.row(i).setConstant(s.rows[i].factor);
      }
      const double rest = std::log2(between.fraction);
      lengthen_logits(s, logits, lengths);
      for (Index j = 0; j < count; ++j) {
        set_exponential_scores(logits.col(j).data(), wholes, m_.rests(n).data(), n,
                               std::max(exponents[j] - block.top, -Exponentials::largest_whole),
                               static_cast<double>(block.fractions(count)[j]) + rest);
      }
    }
  }
  // Most vectors of exponential scores have no lengths beside their numbers.
  void lengthen_logits(Segments& s, MatrixView<Scalar> logits, const double* lengths) {
    for (Index j = 0; j < logits.cols(); ++j)
      if (has_lengths_ || lengths[j] != 0)
        lengthen(logits.col(j).data(), s.segment.queries().lengths, lengths[j], s.size());
  }
  // What the keys of a block get waits for them.
  void give_keys(Segments& s, Block& block, double far, MatrixView<Scalar> queries, MatrixView<Scalar> scores,
                 MatrixView<Scalar> slopes) {
    const Index count = block.keys, e = s.call.V.rows(), d = queries.rows();
    const auto d_keys = block.d_keys(d, count), dV = block.dV(e, count), G = s.buffers.G(e, s.size());
    if (far == 0) {
      add_product(d_keys, queries, slopes);
      return add_product(dV, G, scores);
    }
    auto some = m_.d_rows(std::max(d, e), count);
    set_product(some.topRows(d), queries, slopes);
    for (Index j = 0; j < count; ++j) add_times_power_of_two<Scalar>(d_keys.col(j), some.col(j).head(d), far);
    set_product(some.topRows(e), G, scores);
    for (Index j = 0; j < count; ++j) add_times_power_of_two<Scalar>(dV.col(j), some.col(j).head(e), far);
  }
  // Couplings are in units of 2^{exponent_i + exponent + shift_j}.
  double add_flows(Segments& s, Block& block, double exponent, ColumnView<double> of_rows, ColumnView<double> of_keys) {
    double sum = 0;
    for (Index i = 0; i < s.size(); ++i)
      if (s.rows[i].has_gradient()) {
        const double some = times_power_of_two(of_rows[i], s.rows[i].exponent + exponent);
        s.buffers.of_rows(s.size())[i] += some;
        sum += some;
      }
    for (Index j = 0; j < block.keys; ++j)
      block.of_keys(block.keys)[j] += times_power_of_two(of_keys[j], H_ + exponent + block.shifts(block.keys)[j]);
    return sum;
  }

  KeyBlocksBackwardBuffers<Scalar>& m_;
  const F& feature_;
  Index count_ = 0, block_ = 0, near_ = 0, far_ = 0;  // of blocks; the nearest and the farthest that rows see
  double H_ = 0;
  bool has_lengths_ = false;  // of queries
};

}  // namespace SYMPOW_NAMESPACE::detail
