// Segments of tokens through a state: the engine of the recurrent and of the chunked form.
#pragma once

#include <sympow/attention/engine/dispatch.hpp>
#include <sympow/attention/engine/state_call.hpp>
#include <sympow/attention/engine/sums_reader.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// Takes segments through a state. With its folded sums S, its tail and the segment's own keys
///
///     rows i:   b_0i S φ(q_i) + Σ_{j in the tail} s_ij v_j + Σ_{j ≤ i} s_ij v_j     (and the same with v = 1)
///     tail  ←   the segment's tokens, or where it cannot hold them S ← b_0n S + Σ_j b_jn v_j φ(k_j)ᵀ over both
///
/// by panels of φ that never leave the cache.
template <class Scalar, FiniteFeatureMap F>
class StateEngine {
  static constexpr int degree = degree_of<F>;

 public:
  StateEngine(const F& feature, StateCall<Scalar, F>& call)
      : feature_(feature),
        call_(call),
        sums_(StateParts::sums(call.state)),
        tail_(StateParts::tail(call.state)),
        frames_(StateParts::frames(call.state)),
        memory_(call.memory),
        loader_(feature, call.transition, memory_.segment, call.Q.rows(), call.options.scale),
        reader_(feature, sums_, memory_, call.rows),
        action_(call.transition.key_action()),
        has_common_scale_(call.rows != RowKind::signed_means) {}

  /// Segments of `size` tokens, one after the other.
  void run(Index tokens, Index size) {
    size = std::max<Index>(1, std::min(size, tokens));
    reserve(size);
    for (Index begin = 0; begin < tokens; begin += size) dispatch(*this, {begin, std::min(size, tokens - begin)});
  }

  /// The papers' literal step: the token enters the sums first, and is read with all others through φ.
  void run_literally(Index tokens) {
    reserve(1);
    OwnScaleRows<Scalar, F> rows(memory_.own_scale, call_.rows, call_.options.diagnostics);
    for (Index token = 0; token < tokens; ++token)
      for (head_ = 0; head_ < call_.heads(); ++head_) {
        if (head_ == 0) {
          load(load_gates({token, 1}));
          take(none(), [](Index, const Entries<Scalar>&) {});
        } else {
          undo(1);
          load({token, 1});
        }
        loader_.stand_at_end(call_.queries_of(head_).middleCols(token, 1));
        rows.reset(call_.V.rows(), loader_.queries(), room(loader_.keys()));
        if (reader_.begin(rows, loader_.queries(), {})) reader_.read_all(rows, loader_.queries().vectors);
        write(rows);
      }
  }

  Index run_common(Segment segment) {
    return for_heads(segment, [&](Segment seen) { return add_common(seen); });
  }
  Index run_own(Segment segment) {
    return for_heads(segment, [&](Segment seen) { return add_own(seen); });
  }

 private:
  // run(segment) for every head of the group, each for as many tokens as those before it could do; the last one moves the state.
  template <class Run>
  Index for_heads(Segment segment, const Run& run) {
    for (head_ = 0; head_ < call_.heads(); ++head_) segment.size = segment.size > 0 ? run(segment) : 0;
    return segment.size;
  }
  [[nodiscard]] bool is_last() const { return head_ + 1 == call_.heads(); }

  Index add_common(Segment segment) {
    segment = load_gates(segment);
    if (!call_.reads) {
      load(segment);
      take(none(), [](Index, const Entries<Scalar>&) {});
      return segment.size;
    }
    if (!has_common_scale_ || room_for(tail_.largest_value()) != 0) return 0;
    Index n = moderate_tokens(segment);
    CommonScaleRows<Scalar, F> rows(memory_.common_scale, call_.rows, call_.options.diagnostics);
    while (n > 0) {
      load({segment.begin, n});
      const Keys<Scalar> own = loader_.keys(), tail = tail_keys();
      CommonScale<degree> scale = scale_of_all(tail);
      const Index fit = call_.takes() ? std::min(tokens_without_room(own), scale.add_own(own.log_b, own.exponents)) : n;
      if (scale.exponent() == no_weight) return undo(0);
      if (fit < n) {
        n = undo(fit);
        continue;
      }
      rows.reset(call_.V.rows(), loader_.queries(), scale.exponent());
      add_direct(rows, own, tail);
      if (sums_.empty()) {
        rows.finish(loader_.queries());
        if (const Index fine = rows.first_too_small(loader_.queries()); fine < n) {
          n = undo(fine);
          continue;
        }
      }
      complete(rows);
      break;
    }
    return n;
  }

  Index add_own(Segment segment) {
    segment = load_gates(segment);
    if (has_common_scale_) segment.size = std::min(segment.size, few_tokens);
    load(segment);
    OwnScaleRows<Scalar, F> rows(memory_.own_scale, call_.rows, call_.options.diagnostics);
    rows.reset(call_.V.rows(), loader_.queries(), room(loader_.keys()));
    add_direct(rows, loader_.keys(), tail_keys());
    complete(rows);
    return segment.size;
  }

  // Memory for n tokens and the longest tail, so that no later segment asks for more.
  void reserve(Index n) {
    const Index longest = tail_.capacity(), rows = loader_.vector_rows(), e = call_.V.rows(),
                most = std::max(n, longest), own = has_common_scale_ ? std::min(n, few_tokens) : n;
    loader_.reserve(n);
    reader_.reserve(n);
    if (has_common_scale_) CommonScaleRows<Scalar, F>(memory_.common_scale, call_.rows, nullptr).reserve(e, n, most);
    OwnScaleRows<Scalar, F>(memory_.own_scale, call_.rows, nullptr).reserve(e, own, most);
    memory_.tail.reserve(rows, longest);
    memory_.tail_logits(longest, n);
    memory_.fold.template reserve<F>(rows, e, sums_.S.cols(), n, longest + n, action_ == KeyAction::scale);
    memory_.noise(n), memory_.lengths(n), memory_.channels(call_.Q.rows());
    StateParts::interrupted(call_.state) = true;  // until the call is done
  }

  // Where queries and keys turn from.
  Frame& frame() { return call_.takes() ? frames_.end : *call_.standing; }

  // See `SegmentLoader::load_gates`. Behind a gate of 0 nothing is left, whatever it was.
  Segment load_gates(Segment segment) {
    segment = loader_.load_gates(segment);
    if (loader_.begins_anew()) {
      sums_.clear();
      tail_.clear();
      frames_.log_decay = no_weight;
    }
    return segment;
  }

  void load(Segment segment) {
    const Segment nothing{segment.begin, 0};
    const auto columns = [&](MatrixView<const Scalar> x, bool wanted) {
      return x.middleCols(wanted ? segment.begin : 0, wanted ? segment.size : 0);
    };
    memory_.frame = frame();
    loader_.load(segment.size, frame(), call_.reads ? segment : nothing, columns(call_.queries_of(head_), call_.reads),
                 call_.takes() ? segment : nothing, columns(call_.K, call_.takes()), columns(call_.V, call_.takes()));
  }
  // As before the last segment was loaded; returns its argument.
  Index undo(Index n) {
    frame() = memory_.frame;
    return n;
  }

  Keys<Scalar> tail_keys() { return memory_.tail.direct_keys(feature_, tail_, call_.options.diagnostics != nullptr); }
  MatrixView<Scalar> none() { return {nullptr, loader_.vector_rows(), 0}; }

  // Σ log a of the loaded segment by channel, nothing where none decays by itself.
  const Eigen::VectorXd* log_channels(Segment segment) {
    if (action_ != KeyAction::scale) return nullptr;
    call_.transition.log_channel_totals(segment, memory_.log_channels);
    return &memory_.log_channels;
  }
  // The decay of the sums over a segment, without its scalar gates: of the channel that forgets least.
  double slowest_channel_over(Segment segment) {
    const Eigen::VectorXd* log_a = log_channels(segment);
    if (log_a == nullptr) return sums_.template slowest_decay<degree>() - sums_.log_decay;
    double slowest = log_a->size() == 0 ? 0 : no_weight;
    for (Index c = 0; c < log_a->size(); ++c) slowest = std::max(slowest, sums_.log_channels[c] + (*log_a)[c]);
    return degree * slowest;
  }

  // Tokens of a segment over which nothing decays so much that a common scale ends.
  Index moderate_tokens(Segment segment) {
    Index n = loader_.tokens_within(least_log_decay);
    const double before = action_ == KeyAction::scale ? degree * largest_of(sums_.log_channels) : 0;
    while (action_ == KeyAction::scale && n > 1 &&
           !(slowest_channel_over({segment.begin, n}) - before >= least_log_decay))
      n /= 2;
    return n;
  }
  // Of the values that a segment meets.
  [[nodiscard]] double room(const Keys<Scalar>& own) {
    return room_for(std::max(own.extent.largest, tail_.largest_value()));
  }

  // What all rows see.
  CommonScale<degree> scale_of_all(const Keys<Scalar>& tail) {
    CommonScale<degree> scale;
    const double first = loader_.first().high;
    scale.add(sums_.L + (sums_.log_decay + first + slowest_channel_over(loader_.segment())) * std::numbers::log2e);
    scale.add(largest_log2_weight<degree>(tail.log_b, tail.exponents) + first * std::numbers::log2e);
    return scale;
  }

  // Scores of the segment's own keys and of those in the tail.
  void add_direct(Rows<Scalar>& rows, const Keys<Scalar>& own, const Keys<Scalar>& tail) {
    const Queries<Scalar> queries = loader_.queries();
    if (own.size() > 0) rows.add_own(loader_.logits(), own, queries);
    if (tail.size() == 0 || !rows.sees(tail, loader_.first())) return;
    auto logits = memory_.tail_logits(tail.size(), queries.size());
    set_product(logits, tail.vectors.transpose(), loader_.direct_queries());
    loader_.set_scores(logits, tail.exponents, queries.exponents);
    rows.add_earlier(logits, tail, queries, loader_.first());
  }

  // Reads the sums, on the way of a fold where there is one, takes the tokens, and writes.
  void complete(Rows<Scalar>& rows) {
    const bool takes = call_.takes() && is_last();
    const bool on_the_way =
        takes && reader_.by_panels() && !tail_.has_room_for(loader_.segment().size) && action_ != KeyAction::mix;
    const Queries<Scalar> queries = loader_.queries();
    const bool reads = reader_.begin(rows, queries, loader_.first());
    if (reads && !on_the_way) reader_.read_all(rows, queries.vectors);
    if (takes)
      take(reads && on_the_way ? queries.vectors : none(), [&](Index first, const Entries<Scalar>& features) {
        if (reads && on_the_way) reader_.read(rows, first, features);
      });
    write(rows);
    if (!is_last()) undo(0);
  }

  void write(Rows<Scalar>& rows) {
    const Segment own = loader_.segment();
    const Queries<Scalar> queries = loader_.queries();
    MatrixView<const Scalar> Q = call_.queries_of(head_);
    const MatrixView<Scalar> Y = call_.outputs_of(head_);
    rows.finish(queries);
    for (Index i = 0; i < own.size; ++i) {
      for (const auto* x : {&Q, &call_.K, &call_.V}) prefetch_column(*x, own.end() + i);
      prefetch_column<true>(Y, own.begin + i + 8);
      rows.write(i, own.begin + i, queries, Y.col(own.begin + i));
    }
  }

  // All that the state holds undergoes what the loaded segment does to it, and its tokens go into the tail, or with it into the sums.
  void take(MatrixView<Scalar> queries, Visitor<Index, const Entries<Scalar>&> read) {
    const Segment own = loader_.segment();
    const Keys<Scalar> keys = loader_.keys();
    const bool folds = !tail_.has_room_for(own.size);
    const Eigen::VectorXd* log_a = log_channels(own);
    const LogDecay& total = loader_.total();
    frames_.tokens += own.size;
    frames_.log_decay += total.high;
    if (log_a != nullptr) frames_.log_channels += *log_a;
    if constexpr (keys_are_features<F>)
      if (action_ == KeyAction::mix) mix(own);
    sums_.forget(total.high, log_a);
    if (!folds) {
      tail_.forget(total.high, log_a, degree);
      return tail_.append(loader_.plain_keys(), keys, loader_.rest());
    }
    tail_.forget(0, log_a, degree);  // the gates go into all keys
    sums_.absorb(feature_, memory_.fold, queries, memory_.tail.keys(feature_, tail_), total, keys, loader_.rest(),
                 read);
    tail_.clear();
  }

  // Multiplies the whole state by the A_i of a segment that mix channels; its features are the keys themselves.
  void mix(Segment segment) {
    Matrix<Scalar>& product = frames_.key_product;
    if (product.size() == 0) product.setIdentity(call_.Q.rows(), call_.Q.rows());
    call_.transition.push(segment, tail_.keys());
    call_.transition.push(segment, sums_.Z);
    call_.transition.advance(segment, sums_.S);
    call_.transition.advance(segment, product);
  }

  const F& feature_;
  StateCall<Scalar, F>& call_;
  FoldedSums<Scalar>& sums_;
  Tail<Scalar>& tail_;
  Frames<Scalar>& frames_;
  EngineMemory<Scalar>& memory_;
  SegmentLoader<Scalar, F> loader_;
  SumsReader<Scalar, F> reader_;
  KeyAction action_;
  bool has_common_scale_;
  Index head_ = 0;  // of the group, whose rows are made
};

}  // namespace SYMPOW_NAMESPACE::detail
