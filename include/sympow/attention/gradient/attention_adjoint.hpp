// Segments of queries back through blocks of keys: the engine of the gradients of the attention form.
#pragma once

#include <sympow/attention/engine/key_blocks.hpp>
#include <sympow/attention/gradient/segment_adjoint.hpp>
#include <sympow/transition/flows.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Segments from the last to the first. The rows of a segment see its own keys and, pulled through what lies between,
/// the blocks before it; of these pairs the logits X and the products Vᵀ dY are kept, 2 n numbers a key, until the rows
/// know what the loss asks of them. What a block's keys get from later rows waits for its turn. Under a full mask rows
/// come first and see all blocks, and then keys do. Five products a pair.
template <class Scalar, FeatureMap F>
class AttentionAdjoint final : SegmentAdjoint<Scalar, F> {
  using Base = SegmentAdjoint<Scalar, F>;
  using Base::action_, Base::call_, Base::degree, Base::is_embedded, Base::is_exponential, Base::loader_, Base::log2_of,
      Base::memory_, Base::own_, Base::rows_, Base::size;
  using typename Base::Level;
  static constexpr Index most = 144;  // tokens of a segment
  static constexpr Index short_sum = 16;

 public:
  AttentionAdjoint(const F& feature, const VjpCall<Scalar>& call)
      : Base(feature, call, Base::has_slope(feature)),
        kept_(call.adjoint_memory.blocks),
        keys_(call.memory.attention, call.V, loader_.vector_rows()),
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
    for (auto* panel : {&kept_.logits, &kept_.products}) (*panel)(keys* n);
    if (Base::by_slopes_) kept_.slopes(keys * n), own_.slopes(n, n);
    kept_.d_keys(rows, keys).setZero();
    kept_.of_keys(keys).setZero();
    for (auto* panel : {&kept_.weights, &kept_.ones, &kept_.sums}) (*panel)(n);
    kept_.ones(n).setOnes();
    kept_.d_block(std::max(rows, call_.V.rows()), n), kept_.d_logits(n, n);
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

  // Of a block with the rows: logits, and v_j·dŷ_i. One block after the other, as columns of all keys would be too far
  // apart for a cache.
  MatrixView<Scalar> part(Panel<Scalar>& panel, const KeyBlock& block, Index keys) {
    const Index first = std::min(block.tokens.begin, call_.K.cols());
    return {panel(call_.K.cols() * size()).data() + first * size(), keys, size()};
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
    keys_.walk_back(is_full ? keys_.size() : block_, loader_.first(),
                    [&](Index b, const LogDecay& between) { seen_.push_back({b, between}); });
    const Index n = size(), count = std::ssize(seen_);
    if (pulls_) kept_.pulled(loader_.vector_rows(), n * count);
    for (Index m = 0; m < count; ++m) {
      const KeyBlock& block = keys_[seen_[static_cast<std::size_t>(m)].block];
      MatrixView<Scalar> queries = queries_at(m);
      if (pulls_ && m == 0) queries = loader_.queries().vectors;
      if (pulls_ && m > 0) {
        queries = queries_at(m - 1);
        call_.transition.pull(keys_[seen_[static_cast<std::size_t>(m - 1)].block].tokens, Batch<Scalar>(queries));
      }
      const Keys<Scalar> keys = keys_.keys_in(block);
      if (keys.size() == 0) continue;
      set_product(part(kept_.logits, block, keys.size()), keys.vectors, queries);
      set_product(part(kept_.products, block, keys.size()), keys.values.transpose(), rows_.dY());
      if (Base::by_slopes_) set_slopes(block, keys);
    }
  }
  // From the logits of a block to their scores and slopes.
  void set_slopes(const KeyBlock& block, const Keys<Scalar>& keys) {
    auto logits = part(kept_.logits, block, keys.size()), slopes = part(kept_.slopes, block, keys.size());
    slopes = logits;
    Base::set_slopes(slopes, keys, false);
    loader_.set_scores(logits, keys.exponents, loader_.queries().exponents);
  }
  [[nodiscard]] double log2_before() override {
    double largest = no_weight;
    for (const Seen& seen : seen_) largest = std::max(largest, keys_[seen.block].M + log2_of(seen.between.high));
    return largest;
  }
  double largest_before(Index i) override {
    double largest = no_weight;
    for_seen([&](const KeyBlock& block, const Keys<Scalar>& keys, const LogDecay& between) {
      largest =
          std::max(largest, largest_exponent(part(kept_.logits, block, keys.size()).col(i).data(), keys,
                                             Base::until(i, between), loader_.queries().exponents[i], keys.size()));
    });
    return largest;
  }
  void add_before(Index begin, Index end, double E) override {
    for_seen([&](const KeyBlock& block, const Keys<Scalar>& keys, const LogDecay& between) {
      const Index count = keys.size();
      auto logits = part(kept_.logits, block, count), products = part(kept_.products, block, count);
      const auto weights = weights_of(keys, between, E);
      for (Index i = begin; i < end; ++i) {
        Scalar* const x = logits.col(i).data();
        if constexpr (is_exponential)
          weigh_exponentials(x, keys, Base::until(i, between), loader_.queries().exponents[i], E * std::numbers::ln2,
                             count);
        rows_.add(i, sums_of_scores<degree>(x, weights.data(), products.col(i).data(), count));
      }
    });
  }
  // Of the keys of a block beside 2^E, all 1 where scores have become numbers.
  ColumnView<const Scalar> weights_of(const Keys<Scalar>& keys, const LogDecay& between, double E,
                                      const Level& level = {}) {
    const Index n = keys.size();
    if constexpr (is_exponential) return kept_.ones(n);
    auto weights = kept_.weights(n);
    const double M = level.is_only ? keys.M : Base::set_weights_of(level, keys, weights);
    const double factor = M == no_weight ? 0 : between.weight(M - E + level.below());
    set_scaled(weights.data(), level.is_only ? keys.weights.data() : weights.data(), static_cast<Scalar>(factor), n);
    return weights;
  }
  // visit(block, keys, between) for the blocks with keys that the rows see.
  template <class Visit>
  void for_seen(const Visit& visit) {
    for (const Seen& seen : seen_)
      if (const Keys<Scalar> keys = keys_.keys_in(keys_[seen.block]); keys.size() > 0)
        visit(keys_[seen.block], keys, seen.between);
  }

  // From the farthest block on: what rows get there is pulled back through the blocks that are nearer.
  void read_back(const RowRun& run, double R, MatrixView<Scalar> d_queries) override {
    const double unit = power_of_two<double>(R);
    const Index count = run.end - run.begin;
    const auto d_rows = d_queries.middleCols(run.begin, count);
    double flow = 0;
    for (Index m = std::ssize(seen_); m-- > 0;) {
      const Seen& seen = seen_[static_cast<std::size_t>(m)];
      const KeyBlock& block = keys_[seen.block];
      const Keys<Scalar> keys = keys_.keys_in(block);
      const auto queries = queries_at(m).middleCols(run.begin, count);
      pass_through(seen.block, flow, unit, queries, d_rows);
      if (pulls_) call_.vjp.pull_vjp(block.tokens, Batch<Scalar>(queries), Batch<Scalar>(d_rows), unit);
      if (keys.size() == 0) continue;
      const double highest = Base::set_levels(keys, keys.size(), R, [&](Index j) {
        return degree * keys.exponents[j] + log2_of(keys.log_b[j] + seen.between.high) - run.E;
      });
      Base::for_levels(highest, [&](const Level& level) {
        const double lower = R - level.below();
        auto d_logits = kept_.d_logits(keys.size(), count);
        flow += differentiate(run, lower, seen, level, d_logits) * power_of_two<double>(-level.below());
        auto d_keys = kept_.d_block(d_queries.rows(), keys.size());
        set_product(d_keys, queries, d_logits.transpose());
        if (level.number > 0) d_logits *= power_of_two<Scalar>(-level.below());
        add_product(d_rows, keys.vectors.transpose(), d_logits);
        auto waiting = kept_.d_keys(d_queries.rows(), call_.K.cols()).middleCols(block.tokens.begin, keys.size());
        for (Index j = 0; j < keys.size(); ++j)
          detail::add_times_power_of_two<Scalar>(waiting.col(j), d_keys.col(j),
                                                 lower - Base::length_of(keys.exponents[j]));
      });
    }
  }
  // Couplings of the rows with what lies before a block flow through it.
  void pass_through(Index block, double flow, double unit, MatrixView<Scalar> queries, MatrixView<Scalar> d_queries) {
    kept_.gates_through[static_cast<std::size_t>(block)] += unit * flow;
    if (action_ != KeyAction::turn || Base::is_absolute()) return;
    const Coupling coupling = coupling_of(call_.vjp.planes());
    auto of_run = own_.scratch(coupling.size), through = kept_.through(coupling.size, keys_.size()).col(block);
    of_run.setZero();
    for (Index i = 0; i < queries.cols(); ++i)
      coupling.add(of_run.data(), coupling.size, 1, queries.col(i).data(), coupling.size, d_queries.col(i).data(),
                   coupling.size);
    through += unit * of_run;
  }
  // The pairs of a run of rows with a block's keys of a level, in the unit 2^R; returns the sum of their couplings.
  double differentiate(const RowRun& run, double R, const Seen& seen, const Level& level, MatrixView<Scalar> d_logits) {
    const KeyBlock& block = keys_[seen.block];
    const Keys<Scalar> keys = keys_.keys_in(block);
    const Index n = keys.size(), count = run.end - run.begin, e = call_.V.rows();
    auto scores = Base::used_up(level, part(kept_.logits, block, n), own_.other_logits),
         products = Base::used_up(level, part(kept_.products, block, n), own_.other_products);
    auto of_keys = kept_.of_keys(call_.K.cols()).segment(block.tokens.begin, n);
    const auto weights = weights_of(keys, seen.between, run.E, level);
    const double unit = power_of_two<double>(R);
    double flow = 0;
    auto sums = kept_.sums(n);  // over a few rows
    sums.setZero();
    for (Index i = run.begin; i < run.end; ++i) {
      auto of_row = d_logits.col(i - run.begin), couplings = products.col(i);
      if (rows_.exponents()[i] == no_weight) couplings.setZero();  // no gradient, whatever dy is
      const double sum = differentiate_scores<F>(scores.col(i).data(), couplings.data(), of_row.data(), weights.data(),
                                                 own_.factors(size())[i], own_.last(size())[i], n);
      if constexpr (is_exponential) Base::lengthen(of_row, keys, loader_.queries().exponents[i], n);
      if (Base::by_slopes_) of_row.array() *= part(kept_.slopes, block, n).col(i).array();
      own_.of_rows(size())[i] += unit * sum;
      flow += sum;
      sums += couplings;
      if ((i - run.begin) % short_sum != short_sum - 1 && i + 1 < run.end) continue;
      of_keys += unit * sums.template cast<double>();
      sums.setZero();
    }
    auto dV = kept_.d_block(e, n);
    set_product(dV, own_.G(e, size()).middleCols(run.begin, count), scores.middleCols(run.begin, count).transpose());
    Base::add_times_power_of_two(call_.dV.middleCols(block.tokens.begin, n), dV, R);
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
    return entry > Scalar(0) ? std::log2(static_cast<double>(entry)) + Base::length_of(loader_.keys().exponents[j])
                             : no_weight;
  }
  void add_behind(double R, const Level& level, MatrixView<Scalar> d_keys, MatrixView<Scalar>) override {
    for (Index j = 0; j < d_keys.cols(); ++j)
      if (level.is_only || own_.levels(d_keys.cols())[j] == level.number)
        set_times_power_of_two<Scalar>(d_keys.col(j), waiting().col(j),
                                       Base::length_of(loader_.keys().exponents[j]) - R);
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
    AttentionVjp<Scalar, EmbeddedFeature<Scalar>>::run(EmbeddedFeatureOf<Scalar, F>(feature), call);
  else
    AttentionAdjoint<Scalar, F>(feature, call).run();
}

}  // namespace SYMPOW_NAMESPACE::detail
