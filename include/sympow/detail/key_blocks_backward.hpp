// Blocks of keys as the past of a segment on the way back: the gradients of the attention form.
#pragma once

#include <sympow/detail/segment_backward.hpp>
#include <sympow/transition/flows.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Keys that later segments see together.
struct KeyBlockBackward {
  Segment tokens;
  Index keys = 0;
  Frame start;  ///< where queries and keys turn from
  LogGate total;
  bool resets = false;
  double M = 0;             ///< see `KeyScales`
  double top = log2_zero;   ///< the largest exponent of its keys, of those that are not 0
  double unit = log2_zero;  ///< of what waits: dk̂_j = 2^{unit + shift_j} d_keys_j, and dV_j likewise
  double gate_through = 0;  ///< couplings of keys before it with rows behind it
};
/// A block that the rows of a segment see, and the gates from its start to that of the segment.
struct SeenBlock {
  Index block;
  LogGate between;
};

template <class Scalar>
struct KeyBlocksBackwardBuffers {
  std::vector<KeyBlockBackward> blocks;  ///< those of a longer call stay, for their memory
  std::vector<SeenBlock> seen;
  Panel<Scalar> keys, weights, fractions, d_keys, dV;                                        ///< of all keys
  Panel<double> exponents, lengths, shifts, of_keys;                                         ///< likewise
  Panel<double> planes;                                                                      ///< planes × blocks
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
  using Block = KeyBlockBackward;

 public:
  static constexpr Index block_tokens = 96;

  KeyBlocksBackward(const F& feature, KeyBlocksBackwardBuffers<Scalar>& buffers) : m_(buffers), feature_(feature) {}

  [[nodiscard]] Index size() const { return count_; }
  [[nodiscard]] const Block& operator[](Index n) const { return m_.blocks[static_cast<std::size_t>(n)]; }

  /// Loads all keys.
  void load(Segments& s, Index tokens) {
    const Index d = s.segment.vector_rows(), e = s.call.V.rows(), keys = s.call.K.cols();
    m_.keys(d, keys), m_.weights(keys), m_.fractions(keys), m_.exponents(keys), m_.lengths(keys), m_.shifts(keys);
    m_.d_keys(d, keys), m_.dV(e, keys), m_.of_keys(keys).setZero();
    count_ = 0;
    Frame frame;
    for (Index t = 0; t < tokens; t += s.size()) {
      s.segment.load_gates({t, std::min(block_tokens, tokens - t)});
      const Frame start = frame;
      s.load(frame, {t, 0}, key_tokens(s.call, s.segment.range()));
      keep(s, start);
    }
    m_.planes(s.flows_through(), size()).setZero();
  }
  /// Goes on with a block, the last of which rows see the blocks before it; under a full mask they see all of them.
  void begin(Index block) { block_ = block; }

  void read(Segments& s) {
    m_.seen.clear();
    if (s.segment.resets() || !s.segment.has_queries()) return;
    LogGate between;
    const Mask& mask = s.call.options.mask;
    const Index first = mask.first(s.token(s.first_row()));
    for (Index b = mask.is_full ? size() : block_; b-- > 0;) {
      if (first >= (*this)[b].tokens.end()) break;
      between.add((*this)[b].total);
      m_.seen.push_back({b, between});
      if ((*this)[b].resets) break;
    }
  }
  void go_back(Segments& s) {
    take(s);
    if (!m_.seen.empty() && s.largest_exponent() != log2_zero) read_back(s);
  }

 private:
  static bool pulls(const Segments& s) { return s.action() == KeyAction::scale || s.action() == KeyAction::mix; }

  void keep(Segments& s, const Frame& start) {
    const WeightedKeys<Scalar> keys = s.segment.keys();
    const Segment tokens = s.segment.range();
    const Index n = keys.size, d = s.segment.vector_rows(), first = n == 0 ? 0 : tokens.begin;
    if (static_cast<std::size_t>(count_) == m_.blocks.size()) m_.blocks.emplace_back();
    Block& block = m_.blocks[static_cast<std::size_t>(count_++)];
    block.start = start;
    block.tokens = tokens, block.keys = n, block.total = s.segment.total(), block.resets = s.segment.resets();
    block.M = s.scales.M, block.top = block.unit = log2_zero, block.gate_through = 0;
    for (Index j = 0; j < n; ++j) {
      std::copy_n(keys.vectors.at(j, 0).data, d, m_.keys(d, s.call.K.cols()).col(first + j).data());
      if (is_exponential || keys.norms[j] != Scalar(0)) block.top = std::max(block.top, keys.exponents[j]);
    }
    const auto copy = [&](const auto* from, auto& to) { std::copy_n(from, n, to(s.call.K.cols()).data() + first); };
    copy(s.scales.weights, m_.weights), copy(keys.fractions, m_.fractions), copy(keys.exponents, m_.exponents);
    copy(keys.lengths, m_.lengths), copy(s.scales.shifts, m_.shifts);
  }
  // What waits for the keys of the segment.
  void take(Segments& s) {
    const Block& block = (*this)[block_];
    const Index n = s.segment.keys().size, first = n == 0 ? 0 : block.tokens.begin;
    s.gate_through = block.gate_through;
    if (!s.is_absolute()) s.through() = m_.planes(s.flows_through(), size()).col(block_);
    if (n == 0) return;
    std::copy_n(m_.of_keys(s.call.K.cols()).data() + first, n, s.buffers.of_keys(s.size()).data());
    if (block.unit == log2_zero) return;
    s.U = block.unit;
    s.buffers.from_behind(s.segment.vector_rows(), s.size()).leftCols(n) = keys_of(m_.d_keys, block, s);
    s.buffers.from_behind_values(s.call.V.rows(), s.size()).leftCols(n) =
        m_.dV(s.call.V.rows(), s.call.K.cols()).middleCols(first, n);
  }
  MatrixView<Scalar> keys_of(Panel<Scalar>& panel, const Block& block, const Segments& s) {
    return panel(s.segment.vector_rows(), s.call.K.cols())
        .middleCols(block.keys == 0 ? 0 : block.tokens.begin, block.keys);
  }
  // The queries as they see the block number m of those that are seen, counted from the nearest.
  MatrixView<Scalar> queries_at(Segments& s, Index m) {
    const Index n = s.size(), d = s.segment.vector_rows();
    return pulls(s) ? m_.pulled(d, n * std::ssize(m_.seen)).middleCols(n * m, n) : s.segment.queries().vectors;
  }
  [[nodiscard]] const SeenBlock& seen(Index m) const { return m_.seen[static_cast<std::size_t>(m)]; }

  // From the farthest block on: what rows get there is pulled back through the blocks that are nearer.
  void read_back(Segments& s) {
    const Index count = std::ssize(m_.seen);
    if (pulls(s)) {
      queries_at(s, 0) = s.segment.queries().vectors;
      for (Index m = 1; m < count; ++m) {
        queries_at(s, m) = queries_at(s, m - 1);
        s.call.transition.apply_to_queries((*this)[seen(m - 1).block].tokens, Batch<Scalar>(queries_at(s, m)));
      }
    }
    const auto raise_N = [&](bool of_zeros) {
      for (Index m = 0; m < count; ++m)
        if (const Block& block = (*this)[seen(m).block]; block.keys > 0 && (of_zeros || block.top != log2_zero))
          s.N = std::max(s.N, is_exponential ? 0 : block.M + Weight(seen(m).between).exponent);
    };
    raise_N(false);
    if (s.N == log2_zero) raise_N(true);  // keys of length 0 count where there are no others
    if (s.N == log2_zero) return;
    load_rows(s);
    auto d_rows = s.buffers.from_before(s.segment.vector_rows(), s.size());
    d_rows.setZero();
    double flow = 0;
    for (Index m = count; m-- > 0;) {
      const Segment tokens = (*this)[seen(m).block].tokens;
      const auto queries = scaled_queries(s, m);
      pass_through(s, seen(m).block, flow, queries, d_rows);
      if (pulls(s)) pull_back(s, tokens, queries, d_rows);
      if ((*this)[seen(m).block].keys > 0) flow += take_block(s, seen(m), queries, d_rows);
    }
  }
  // g_i = 2^{exponent_i} (G_i, last_i), and 2^{exponent_i - H} with the largest exponent H.
  void load_rows(Segments& s) {
    const Index n = s.size(), e = s.call.V.rows();
    const bool has_window = s.call.options.mask.has_window();
    H_ = s.largest_exponent();
    auto G = m_.G(e, n), scaled = s.buffers.G(e, n);
    for (Index i = 0; i < n; ++i) {
      const double exponent = has_window ? s.rows.exponent(i) : s.rows.exponent_outside(i);
      m_.row_factors(n)[i] = exponent == log2_zero ? Scalar(0) : nearest_power_of_two<Scalar>(exponent - H_);
      m_.last(n)[i] = s.rows.last(i);
      s.rows.set_gradient(G.col(i), i, Scalar(1));
      set_scaled(scaled.col(i).data(), G.col(i).data(), m_.row_factors(n)[i], e);
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
  MatrixView<Scalar> scaled_queries(Segments& s, Index m) {
    const Index n = s.size(), d = s.segment.vector_rows();
    auto queries = m_.queries(d, n);
    if (!pulls(s) && m + 1 < std::ssize(m_.seen)) return queries;
    const auto given = queries_at(s, m);
    set_copy(m_.queries_down(n, d), given.transpose());
    for (Index i = 0; i < n; ++i) set_scaled(queries.col(i).data(), given.col(i).data(), m_.row_factors(n)[i], d);
    return queries;
  }
  // Couplings of the rows with what lies before a block flow through it.
  void pass_through(Segments& s, Index b, double flow, MatrixView<Scalar> queries, MatrixView<Scalar> d_rows) {
    m_.blocks[static_cast<std::size_t>(b)].gate_through += flow;
    if (s.action() != KeyAction::turn || s.is_absolute()) return;
    const Coupling coupling = coupling_of(s.call.vjp.planes());
    auto through = s.buffers.scratch(coupling.size);
    through.setZero();
    coupling.template add_all<Scalar>(through.data(), 1, queries, d_rows);
    add_times_power_of_two<double>(m_.planes(coupling.size, size()).col(b), through, H_ + s.N);
  }
  void pull_back(Segments& s, Segment tokens, MatrixView<Scalar> queries, MatrixView<Scalar> d_rows) {
    constexpr double most_unit = std::numeric_limits<double>::max_exponent - 24;
    const double R = std::min(H_ + s.N, most_unit);
    if (R < H_ + s.N)
      for (Index i = 0; i < queries.cols(); ++i)
        set_times_power_of_two<Scalar>(queries.col(i), queries.col(i), H_ + s.N - R);
    s.call.vjp.apply_to_queries_vjp(tokens, Batch<Scalar>(queries), Batch<Scalar>(d_rows), power_of_two<double>(R));
  }

  // The rows with one block; returns the sum of their couplings.
  double take_block(Segments& s, const SeenBlock& of, MatrixView<Scalar> queries, MatrixView<Scalar> d_rows) {
    Block& block = m_.blocks[static_cast<std::size_t>(of.block)];
    const Index n = s.size(), count = block.keys, d = d_rows.rows(), e = s.call.V.rows(), first = block.tokens.begin;
    const Weight between(of.between);
    auto logits = m_.logits(n, count), slopes = m_.products(n, count);
    const auto keys = keys_of(m_.keys, block, s);
    const auto values = s.call.V.middleCols(first, count);
    set_product(logits, m_.queries_down(n, d), keys);
    set_product(slopes, m_.G_down(n, e), values);
    // Weights with 2^shift make what keys get fit to what waits for them.
    const double exponent = is_exponential ? 0 : between.exponent + block.M;
    bool is_far = false;
    const double shift = begin_block(s, block, H_ + exponent, is_far);
    const Index all = s.call.K.cols();
    Scalar *const weights = m_.key_factors(2 * count).data(), *const key_factors = weights + count;
    for (Index j = 0; j < count; ++j) {
      if (!is_exponential)
        weights[j] =
            m_.weights(all)[first + j] * static_cast<Scalar>(between.fraction * nearest_power_of_two<double>(shift));
      key_factors[j] = nearest_power_of_two<Scalar>(m_.shifts(all)[first + j]);
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
    if (!sees_all) hide(logits, rows_of);
    set_scores(s, block, of.between, shift, logits);
    auto of_rows = m_.sums_of_rows(n), of_keys = m_.sums_of_keys(count);
    of_rows.setZero(), of_keys.setZero();
    differentiate_block<F>(
        logits, slopes, weights, m_.last(n).data(),
        {m_.row_factors(n).data(), key_factors, of_rows.data(), of_keys.data(), m_.row_sums(n).data()}, rows_of);
    if (s.by_slopes()) slopes.array() *= m_.slopes(n, count).array();
    if constexpr (is_exponential) lengthen_logits(s, slopes, m_.lengths(all).data() + first);
    give_keys(s, block, is_far ? H_ + exponent - block.unit : 0, queries, logits, slopes);
    // dq̂_i = Σ_j slope_ij 2^{shift_j} k̂_j, without keys that do not matter beside the heaviest, where all rows see it
    const double least = mask.has_window() ? log2_zero : negligible_weight<Scalar, F>;
    if (exponent - s.N < least) return add_flows(s, block, exponent - shift, of_rows, of_keys);
    auto moved = m_.moved_keys(d, count);
    for (Index j = 0; j < count; ++j) {
      const double beside = m_.shifts(all)[first + j] + exponent - s.N;
      set_scaled(moved.col(j).data(), keys.col(j).data(),
                 beside < least ? Scalar(0) : nearest_power_of_two<Scalar>(beside - shift), d);
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
  // more than it, or 0 if they are far below.
  double begin_block(Segments& s, Block& block, double R, bool& is_far) {
    constexpr double headroom = 16;
    if (block.unit == log2_zero) {
      keys_of(m_.d_keys, block, s).setZero();
      m_.dV(s.call.V.rows(), s.call.K.cols()).middleCols(block.tokens.begin, block.keys).setZero();
      block.unit = R;
    } else if (R > block.unit + headroom) {
      const auto factor = nearest_power_of_two<Scalar>(block.unit - R);
      keys_of(m_.d_keys, block, s) *= factor;
      m_.dV(s.call.V.rows(), s.call.K.cols()).middleCols(block.tokens.begin, block.keys) *= factor;
      block.unit = R;
    }
    is_far = R - block.unit < -KeyScales<Scalar>::most_apart;
    return is_far ? 0 : R - block.unit;
  }
  // Logits of rows with keys that they do not see become those of pairs that do not matter.
  template <class RowsOf>
  static void hide(MatrixView<Scalar> logits, const RowsOf& rows_of) {
    constexpr Scalar least = is_exponential ? -PackedExponential<Scalar>::limit / 4 : Scalar(0);
    for (Index j = 0; j < logits.cols(); ++j) {
      const Segment seen = rows_of(j);
      auto column = logits.col(j);
      column.head(seen.begin).setConstant(least), column.tail(column.size() - seen.end()).setConstant(least);
    }
  }
  // Logits become scores where these are no powers of them.
  void set_scores([[maybe_unused]] Segments& s, [[maybe_unused]] const Block& block,
                  [[maybe_unused]] const LogGate& between, [[maybe_unused]] double shift,
                  [[maybe_unused]] MatrixView<Scalar> logits) {
    const Index n = s.size(), count = block.keys, first = block.tokens.begin;
    const double* const lengths = m_.lengths(s.call.K.cols()).data() + first;
    if constexpr (is_embedded) {
      if (!s.by_slopes()) return;
      const ColumnView<const double> of_rows(s.segment.queries().lengths, n), of_keys(lengths, count);
      auto slopes = m_.slopes(n, count);
      slopes = logits;
      feature_.set_slopes(slopes, of_rows, of_keys, false);
      feature_.set_scores(logits, of_rows, of_keys, false);
    } else if constexpr (is_exponential) {
      using Exponentials = PackedExponential<Scalar>;
      const Weight decay(between);
      Scalar* const wholes = m_.wholes(n).data();
      for (Index i = 0; i < n; ++i) {
        const double whole = block.top + decay.exponent + s.segment.gate_exponents()[i] - s.rows.levels()[i] + shift;
        const bool is_known = s.rows.has_gradient(i) && std::abs(whole) <= Exponentials::largest_whole;
        wholes[i] = is_known ? static_cast<Scalar>(whole) : Scalar(0);
        if (!is_known) logits.row(i).setConstant(-Exponentials::limit / 4);
        if (std::isnan(s.rows.factor(i))) logits.row(i).setConstant(s.rows.factor(i));
      }
      const double rest = std::log2(decay.fraction);
      lengthen_logits(s, logits, lengths);
      for (Index j = 0; j < count; ++j) {
        set_exponential_scores(
            logits.col(j).data(), wholes, m_.rests(n).data(), n,
            std::max(m_.exponents(s.call.K.cols())[first + j] - block.top, -Exponentials::largest_whole),
            static_cast<double>(m_.fractions(s.call.K.cols())[first + j]) + rest);
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
  void give_keys(Segments& s, const Block& block, double far, MatrixView<Scalar> queries, MatrixView<Scalar> scores,
                 MatrixView<Scalar> slopes) {
    const Index count = block.keys, e = s.call.V.rows(), d = queries.rows();
    const auto d_keys = keys_of(m_.d_keys, block, s);
    const auto dV = m_.dV(e, s.call.K.cols()).middleCols(block.tokens.begin, count);
    const auto G = s.buffers.G(e, s.size());
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
  double add_flows(Segments& s, const Block& block, double exponent, ColumnView<double> of_rows,
                   ColumnView<double> of_keys) {
    double sum = 0;
    for (Index i = 0; i < s.size(); ++i)
      if (s.rows.has_gradient(i)) {
        const double some = times_power_of_two(of_rows[i], s.rows.exponent(i) + exponent);
        s.buffers.of_rows(s.size())[i] += some;
        sum += some;
      }
    for (Index j = 0; j < block.keys; ++j)
      m_.of_keys(s.call.K.cols())[block.tokens.begin + j] +=
          times_power_of_two(of_keys[j], H_ + exponent + m_.shifts(s.call.K.cols())[block.tokens.begin + j]);
    return sum;
  }

  KeyBlocksBackwardBuffers<Scalar>& m_;
  const F& feature_;
  Index count_ = 0, block_ = 0;
  double H_ = 0;
  bool has_lengths_ = false;  // of queries
};

}  // namespace SYMPOW_NAMESPACE::detail
