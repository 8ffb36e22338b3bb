// Segments of queries back through blocks of keys: the engine of the gradients of the attention form.
#pragma once

#include <sympow/attention/gradient/segment_adjoint.hpp>
#include <sympow/attention/gradient/with_rows.hpp>
#include <sympow/transition/flows.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Segments from the last to the first, of rows that the forward pass has left. A segment sees its own keys and, pulled
/// through what lies between, the blocks before it, one at a time: logits, what the loss gains by them, and what rows
/// and keys get, while all pairs of the block are in a cache. What a block's keys get from later rows waits for its
/// turn. Under a full mask rows come first and see all blocks, and then keys do. Five products a pair, of factors that
/// none of them has to turn round: pairs have a row a query.
template <class Scalar, FeatureMap F>
class AttentionAdjoint final : SegmentAdjoint<Scalar, F> {
  using Base = SegmentAdjoint<Scalar, F>;
  using Base::action_, Base::call_, Base::degree, Base::is_embedded, Base::is_exponential, Base::loader_, Base::log2_of,
      Base::memory_, Base::own_, Base::rows_, Base::size;
  using typename Base::Level;
  static constexpr Index most = 96;  // tokens of a segment

 public:
  AttentionAdjoint(const F& feature, const VjpCall<Scalar>& call)
      : Base(feature, call, Base::has_slope(feature), false),
        kept_(call.adjoint_memory.blocks),
        keys_(call.memory.attention, call.V, loader_.vector_rows(), true),
        tokens_(tokens_of(call.Q, call.K, call.options.mask)),
        pulls_(action_ == KeyAction::scale || action_ == KeyAction::mix) {}

  void run() {
    reserve();
    load_all();
    const bool is_full = call_.options.mask.is_full;
    if (is_full) take_back(true, false);
    take_back(!is_full, true);
  }

 private:
  // A block that the rows of the segment see, and its decay up to the segment's first token.
  struct Seen {
    Index block;
    LogDecay between;
  };

  // All segments, their queries or their keys or both.
  void take_back(bool with_queries, bool with_keys) {
    own_.through(Base::flows_through()).setZero();
    for (block_ = keys_.size(); block_-- > 0;) {
      const Segment s = loader_.load_gates(keys_[block_].tokens), none{s.begin, 0};
      const Frame& start = kept_.frames[static_cast<std::size_t>(block_)];
      Frame frame = start;
      Base::load(s, frame, with_queries ? Base::query_tokens(s) : none, with_keys ? Base::key_tokens(s) : none);
      Base::take_back(start);
    }
  }

  void reserve() {
    const Index n = std::min(most, tokens_), keys = call_.K.cols(), rows = loader_.vector_rows();
    Base::reserve(n);
    keys_.reserve(n);
    for (auto* panel : {&kept_.logits, &kept_.products}) (*panel)(n, n);
    if (Base::by_slopes_) kept_.slopes(n, n), own_.slopes(n, n);
    kept_.queries(n, rows), kept_.G(n, call_.V.rows());
    kept_.d_keys(rows, keys).setZero();
    kept_.of_keys(keys).setZero();
    for (auto* panel : {&kept_.weights, &kept_.sums}) (*panel)(n);
    for (auto* panel : {&kept_.gates, &kept_.gates_low}) (*panel)(n);
    kept_.d_block(std::max(rows, call_.V.rows()), n);
  }

  // All keys, block by block, and where each block starts.
  void load_all() {
    keys_.clear();
    kept_.frames.clear();
    Frame frame;
    for (Segment rest{0, tokens_}; rest.size > 0;) {
      Segment s = loader_.load_gates({rest.begin, std::min(most, rest.size)});
      s.size = loader_.tokens_within(least_log_decay);
      kept_.frames.push_back(frame);
      Base::load(s, frame, {s.begin, 0}, Base::key_tokens(s));
      keys_.keep(loader_);
      rest = {s.end(), rest.size - s.size};
    }
    kept_.gates_through.assign(static_cast<std::size_t>(keys_.size()), 0);
    kept_.through(Base::flows_through(), keys_.size()).setZero();
  }

  // The queries as they see block number m, counted from the nearest.
  MatrixView<Scalar> queries_at(Index m) {
    const Index n = size(), d = loader_.vector_rows();
    return pulls_ ? kept_.pulled(d, n * (m + 1)).rightCols(n) : loader_.queries().vectors;
  }

  void look_before() override {
    seen_.clear();
    const bool is_full = call_.options.mask.is_full;
    if (loader_.begins_anew() || (is_full && Base::query_tokens_.size == 0)) return;
    keys_.walk_back(is_full ? keys_.size() : block_, loader_.first(), [&](Index b, const LogDecay& between) {
      seen_.push_back({b, between});
      return true;
    });
    const Index count = std::ssize(seen_);
    if (!pulls_ || count == 0) return;
    kept_.pulled(loader_.vector_rows(), size() * count);
    queries_at(0) = loader_.queries().vectors;
    for (Index m = 1; m < count; ++m) {
      queries_at(m) = queries_at(m - 1);
      call_.transition.pull(keys_[seen_[static_cast<std::size_t>(m - 1)].block].tokens, Batch<Scalar>(queries_at(m)));
    }
  }
  [[nodiscard]] double log2_before() override {
    return seen_.empty() ? no_weight : keys_[seen_[0].block].reach + log2_of(seen_[0].between.high);
  }

  void add_peak_before(Index i, Peak<degree>& peak) override {
    for (Index m = 0; m < std::ssize(seen_); ++m) {
      const Seen& seen = seen_[static_cast<std::size_t>(m)];
      const Keys<Scalar> keys = keys_.keys_in(keys_[seen.block]);
      if (keys.size() == 0) continue;
      auto query = kept_.queries(1, loader_.vector_rows()), logits = kept_.logits(1, keys.size());
      set_copy(query, queries_at(m).middleCols(i, 1).transpose());
      set_product(logits, query, keys.vectors);
      peak.add(ColumnView<const Scalar>(logits.data(), keys.size()), keys, seen.between);
    }
  }

  // From the farthest block on: what rows get there is pulled back through the blocks that are nearer.
  void read_back(const RowRun& run, double R, MatrixView<Scalar> d_queries) override {
    const Index count = run.end - run.begin, d = d_queries.rows(), e = call_.V.rows();
    const auto d_rows = d_queries.middleCols(run.begin, count);
    set_copy(kept_.G(count, e), own_.G(e, size()).middleCols(run.begin, count).transpose());
    const double unit = R + run.slope;  // of logits, queries and keys
    double flow = 0;
    for (Index m = std::ssize(seen_); m-- > 0;) {
      const Seen& seen = seen_[static_cast<std::size_t>(m)];
      const KeyBlock& block = keys_[seen.block];
      const Keys<Scalar> keys = keys_.keys_in(block);
      const auto queries = queries_at(m).middleCols(run.begin, count);
      pass_through(seen.block, times_power_of_two(flow, R), unit, queries, d_rows);
      if (pulls_) Base::pull_back(block.tokens, unit, queries, d_rows);
      if (pulls_ || m + 1 == std::ssize(seen_)) set_copy(kept_.queries(count, d), queries.transpose());
      if (keys.size() == 0) continue;
      look_at(run, seen, keys);
      const double highest = run.is_faint ? 0 : Base::set_levels(keys, keys.size(), R, [&](Index j) {
        return degree * keys.exponents[j] + log2_of(keys.log_b[j] + seen.between.high) - run.E;
      });
      Base::for_levels(highest, [&](const Level& level) {
        const double lower = R - level.below();
        auto d_logits = Base::used_up(level, kept_.products(count, keys.size()), own_.other_products);
        flow += differentiate(run, lower, seen, level, d_logits) * power_of_two<double>(-level.below());
        add_waiting(block, keys, queries, d_logits, lower + run.slope);
        if (level.number > 0) d_logits *= power_of_two<Scalar>(-level.below());
        add_product(d_rows, keys.vectors, d_logits.transpose());
      });
    }
  }
  // What a block's keys get from the rows, in the unit 2^R.
  void add_waiting(const KeyBlock& block, const Keys<Scalar>& keys, MatrixView<Scalar> queries,
                   MatrixView<Scalar> d_logits, double R) {
    auto to = kept_.d_keys(queries.rows(), call_.K.cols()).middleCols(block.tokens.begin, keys.size());
    bool is_near = R == 0;
    for (Index j = 0; j < keys.size() && is_near; ++j) is_near = unit_of(keys.exponents[j]) == 0;
    if (is_near) return add_product(to, queries, d_logits);
    auto d_keys = kept_.d_block(to.rows(), to.cols());
    set_product(d_keys, queries, d_logits);
    for (Index j = 0; j < keys.size(); ++j)
      detail::add_times_power_of_two<Scalar>(to.col(j), d_keys.col(j), R - unit_of(keys.exponents[j]));
  }
  // The exponent of what waits for a key 2^n k̂: gradients are divided by its length, if that is far from 1.
  static double unit_of(double exponent) {
    constexpr double near = 16;
    const double length = Base::length_of(exponent);
    return std::abs(length) <= near ? 0 : length;
  }
  // Logits of the rows with a block, or their scores if these are no powers of them, slopes, and v_j·g_i.
  void look_at(const RowRun& run, const Seen& seen, const Keys<Scalar>& keys) {
    const Index count = run.end - run.begin, n = keys.size(), d = loader_.vector_rows(), e = call_.V.rows();
    auto logits = kept_.logits(count, n);
    set_product(logits, kept_.queries(count, d), keys.vectors);
    set_product(kept_.products(count, n), kept_.G(count, e), keys.values);
    const auto lengths = loader_.queries().exponents.segment(run.begin, count);
    if constexpr (is_embedded) {
      if (Base::by_slopes_) {
        auto slopes = kept_.slopes(count, n);
        slopes = logits;
        Base::feature_.set_slopes(slopes, lengths, keys.exponents, false);
        loader_.set_scores(logits, lengths, keys.exponents);
      }
    } else if constexpr (is_exponential) {
      auto gates = kept_.gates(count), low = kept_.gates_low(count);
      for (Index i = 0; i < count; ++i) {
        const LogDecay until = Base::until(run.begin + i, seen.between);
        gates[i] = until.high, low[i] = until.low;
      }
      const auto references = rows_.references().segment(run.begin, count);
      for (Index j = 0; j < n; ++j)
        weigh_exponentials(logits.col(j).data(), count, lengths, keys.exponents[j], gates, low,
                           {keys.log_b[j], keys.log_b_low[j]}, references);
    }
  }
  // Of the keys of a block beside 2^E; exponentials have them already.
  ColumnView<const Scalar> weights_of(const Keys<Scalar>& keys, const LogDecay& between, double E, const Level& level) {
    const Index n = keys.size();
    auto weights = kept_.weights(n);
    if constexpr (is_exponential) return weights;
    const double M = level.is_only ? keys.M : Base::set_weights_of(level, keys, weights);
    const double factor = M == no_weight ? 0 : between.weight(M - E + level.below());
    set_scaled(weights.data(), level.is_only ? keys.weights.data() : weights.data(), static_cast<Scalar>(factor), n);
    return weights;
  }
  // Couplings of the rows with what lies before a block flow through it; gradients are in the unit 2^R.
  void pass_through(Index block, double flow, double R, MatrixView<Scalar> queries, MatrixView<Scalar> d_queries) {
    kept_.gates_through[static_cast<std::size_t>(block)] += flow;
    if (action_ != KeyAction::turn || Base::is_absolute()) return;
    const Coupling coupling = coupling_of(call_.vjp.planes());
    auto through = own_.scratch(coupling.size);
    through.setZero();
    coupling.add_all<Scalar>(through.data(), 1, queries, d_queries);
    detail::add_times_power_of_two<double>(kept_.through(coupling.size, keys_.size()).col(block), through, R);
  }
  // The pairs of a run of rows with a block's keys of a level, in the unit 2^R; returns the sum of their couplings.
  double differentiate(const RowRun& run, double R, const Seen& seen, const Level& level, MatrixView<Scalar> d_logits) {
    const KeyBlock& block = keys_[seen.block];
    const Keys<Scalar> keys = keys_.keys_in(block);
    const Index n = keys.size(), count = run.end - run.begin, e = call_.V.rows();
    auto scores = Base::used_up(level, kept_.logits(count, n), own_.other_logits);
    auto pairs = Base::faint_pairs(n);
    const auto weights = run.is_faint ? pairs.bring_near({scores.data(), n}, keys, seen.between, run.E)
                                      : weights_of(keys, seen.between, run.E, level);
    const double flow =
        differentiate_pairs<F>(scores, d_logits, weights.data(), own_.last(size()).data() + run.begin, R,
                               own_.of_rows(size()).data() + run.begin,
                               kept_.of_keys(call_.K.cols()).data() + block.tokens.begin, kept_.sums(count).data());
    if (run.is_faint) pairs.bring_back({d_logits.data(), n}, run.slope);
    if (Base::by_slopes_) d_logits.array() *= kept_.slopes(count, n).array();
    if constexpr (is_exponential)
      for (Index j = 0; j < n; ++j)
        Base::lengthen(d_logits.col(j), loader_.queries().exponents.segment(run.begin, count), keys.exponents[j]);
    const auto G = own_.G(e, size()).middleCols(run.begin, count);
    const auto to = call_.dV.middleCols(block.tokens.begin, n);
    if (R == 0) return add_product(to, G, scores), flow;
    auto dV = kept_.d_block(e, n);
    set_product(dV, G, scores);
    Base::add_times_power_of_two(to, dV, R);
    return flow;
  }

  double look_behind() override {
    const Index b = block_, n = Base::key_tokens_.size;
    if (!Base::is_absolute())  // whose moments are added up as they come
      own_.through(Base::flows_through()) = kept_.through(Base::flows_through(), keys_.size()).col(b);
    if (n > 0) own_.of_keys(size()).head(n) = kept_.of_keys(call_.K.cols()).segment(Base::key_tokens_.begin, n);
    return kept_.gates_through[static_cast<std::size_t>(b)];
  }
  [[nodiscard]] double exponent_behind() override {
    double largest = no_weight;
    for (Index j = 0; j < Base::key_tokens_.size; ++j) largest = std::max(largest, std::ceil(log2_behind(j)));
    return largest;
  }
  [[nodiscard]] double log2_behind(Index j) override {
    const Scalar entry = extent_of<Scalar>(waiting().middleCols(j, 1)).largest;
    return entry > Scalar(0) ? std::log2(static_cast<double>(entry)) + unit_of(loader_.keys().exponents[j]) : no_weight;
  }
  void add_behind(double R, const Level& level, MatrixView<Scalar> d_keys, MatrixView<Scalar>) override {
    for (Index j = 0; j < d_keys.cols(); ++j)
      if (level.is_only || own_.levels(d_keys.cols())[j] == level.number)
        set_times_power_of_two<Scalar>(d_keys.col(j), waiting().col(j), unit_of(loader_.keys().exponents[j]) - R);
  }
  // What the keys of the segment have from later rows.
  MatrixView<Scalar> waiting() { return Base::keys_of(kept_.d_keys(loader_.vector_rows(), call_.K.cols())); }

  BlockAdjointMemory<Scalar>& kept_;
  KeyBlocks<Scalar, F> keys_;
  std::vector<Seen> seen_;
  Index tokens_, block_ = 0;
  bool pulls_;
};

/// The gradients of the attention form, compiled once for a scalar type and a feature map.
template <class Scalar, FeatureMap F>
struct AttentionVjp {
  static void run(const F& feature, const VjpCall<Scalar>& call);
};
template <class Scalar, FeatureMap F>
void AttentionVjp<Scalar, F>::run(const F& feature, const VjpCall<Scalar>& call) {
  if constexpr (is_own_embedded<Scalar, F>)
    return AttentionVjp<Scalar, EmbeddedFeature<Scalar>>::run(EmbeddedFeatureOf<Scalar, F>(feature), call);
  else if (call.known.sums != nullptr || (call.rows == RowKind::sums && F::score != Score::exponential))
    return AttentionAdjoint<Scalar, F>(feature, call).run();
  else
    AttentionAdjoint<Scalar, F>(feature, with_rows(feature, call)).run();
}

}  // namespace SYMPOW_NAMESPACE::detail
