// A sequence on the way back, chunk by chunk from the last: the engine of the gradients of the chunked form.
#pragma once

#include <sympow/attention/gradient/chunk_adjoint.hpp>

namespace SYMPOW_NAMESPACE::detail {

/// A state in a sequence: all that the way back needs of it.
template <class Scalar>
struct StateAt {
  FoldedSums<Scalar> sums;
  Frame frame;
};

/// The state before the first token or, one after the other, those before every so many tokens; and the adjoint state:
/// behind the last token, then before the first.
template <class Scalar>
struct StatesOfVjp {
  std::vector<StateAt<Scalar>>& states;  ///< used up
  Index tokens_between;                  ///< whole chunks; none where there is one state
  AdjointContent<Scalar>& adjoint;
  std::vector<ReadRows<Scalar>>* read = nullptr;  ///< what the rows of every chunk have read, from `rows` to `run`
};

/// Takes chunks back from the last to the first, each from the state before it. Of these every k-th is kept, if the
/// call does not have them, and the others are made again, `Options::checkpoint` = k; which makes no difference to a
/// bit. Under a full mask there is one state, behind all keys.
template <class Scalar, FeatureMap F>
class ChunkedAdjoint final : ChunkAdjoint<Scalar, F> {
  using Base = ChunkAdjoint<Scalar, F>;
  using Base::action_, Base::call_, Base::feature_, Base::gauge_, Base::loader_, Base::memory_, Base::own_;

 public:
  ChunkedAdjoint(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states)
      : Base(feature, call, states.adjoint),
        kept_(states.states),
        tokens_between_(states.tokens_between),
        read_(states.read),
        d_frame_(states.adjoint.frame) {}

  /// By chunks of so many tokens.
  void run(Index chunk) {
    cut(chunk);
    if (call_.options.mask.is_full) return run_full();
    for_chunks([&](StateAt<Scalar>& before, Index n) {
      load(before, n);
      ReadRows<Scalar>* read = read_ == nullptr ? nullptr : &(*read_)[static_cast<std::size_t>(n)];
      Base::take_back(before.sums, before.frame, read, n > 0 || read == nullptr);
    });
  }
  /// Only has the rows read the states and go into H, which is that before the first chunk then.
  void run_rows(Index chunk) {
    cut(chunk);
    read_->resize(own_.segments.size());
    for_chunks([&](StateAt<Scalar>& before, Index n) {
      load(before, n);
      Base::take_rows(before.sums, (*read_)[static_cast<std::size_t>(n)]);
    });
  }
  /// The state behind the last token, in the place of the first.
  void absorb_all(Index chunk) {
    cut(chunk);
    for (const Segment& s : own_.segments) absorb(kept_.front(), s);
  }

 private:
  // visit(state before chunk n, n) from the last to the first.
  template <class Visit>
  void for_chunks(const Visit& visit) {
    const std::vector<Index> starts = starts_of_groups();
    if (kept_.size() == 1 && starts.size() > 1) keep_states(starts);
    std::vector<StateAt<Scalar>> group;
    Index end = std::ssize(own_.segments);
    for (std::size_t g = starts.size(); g-- > 0; end = starts[g]) {
      group.push_back(std::move(kept_[g]));
      for (Index n = starts[g]; n + 1 < end; ++n) {
        StateAt<Scalar> next = group.back();
        absorb(next, segment(n));
        group.push_back(std::move(next));
      }
      for (Index n = end; n-- > starts[g]; group.pop_back()) visit(group.back(), n);
    }
  }

  // All rows read the state behind all keys and go into H, which then all keys read.
  void run_full() {
    StateAt<Scalar>& state = kept_.front();
    std::vector<Frame> starts;
    for (const Segment& s : own_.segments) {
      starts.push_back(state.frame);
      absorb(state, s);
    }
    const auto take_back_all = [&](bool rows) {
      for (Index n = std::ssize(own_.segments); n-- > 0;) {
        const Segment s = loader_.load_gates(segment(n)), none{s.begin, 0};
        const Frame& start = starts[static_cast<std::size_t>(n)];
        Frame frame = start;
        Base::load(s, frame, rows ? Base::query_tokens(s) : none, rows ? none : Base::key_tokens(s));
        Base::take_back(state.sums, start);
      }
    };
    const Eigen::VectorXd gauge = gauge_;
    gauge_.setZero();
    take_back_all(true);
    const Eigen::VectorXd of_rows = gauge_;  // to dμ, whose way goes by keys
    gauge_ = d_frame_;
    state.sums.clear();
    take_back_all(false);
    if constexpr (Base::is_embedded)
      gauge_ += of_rows;
    else
      gauge_ = gauge;
  }
  static constexpr double most_bytes = 128 << 20;  // of states that are kept where the call leaves it open

  [[nodiscard]] Segment segment(Index n) const { return own_.segments[static_cast<std::size_t>(n)]; }

  // Chunks, and where numbers end or a gate is 0 parts of them: nothing decays much over a segment, and no gate is 0
  // from its second token on.
  void cut(Index chunk) {
    const Index tokens = tokens_of(call_.Q, call_.K, call_.options.mask);
    chunk = std::max<Index>(1, std::min(chunk, tokens));
    Base::reserve(chunk);
    own_.segments.clear();
    for (Index t = 0; t < tokens;) {
      Segment some = loader_.load_gates({t, std::min(chunk - t % chunk, tokens - t)});
      some.size = loader_.tokens_within(least_log_decay);
      while (some.size > 1 && !(Base::slowest_channel(some) >= least_log_decay)) some.size /= 2;
      own_.segments.push_back(some);
      t = some.end();
    }
  }

  // The segments before which a state is kept.
  [[nodiscard]] std::vector<Index> starts_of_groups() const {
    const Index count = std::ssize(own_.segments), every = spacing(count);
    std::vector<Index> starts;
    for (Index n = 0; n < count; ++n)
      if (tokens_between_ > 0 ? segment(n).begin % tokens_between_ == 0 : n % every == 0) starts.push_back(n);
    return starts;
  }
  [[nodiscard]] Index spacing(Index chunks) const {
    if (call_.options.checkpoint > 0) return call_.options.checkpoint;
    const auto& sums = kept_.front().sums;
    const double bytes = static_cast<double>((sums.S.size() + sums.Z.size())) * sizeof(Scalar);
    Index every = 1;
    while (every * every<chunks&& static_cast<double>(chunks / every + every) * bytes> most_bytes) ++every;
    return every;
  }
  void keep_states(const std::vector<Index>& starts) {
    StateAt<Scalar> state = kept_.front();
    for (std::size_t g = 1; g < starts.size(); ++g) {
      for (Index n = starts[g - 1]; n < starts[g]; ++n) absorb(state, segment(n));
      kept_.push_back(state);
    }
  }

  void absorb(StateAt<Scalar>& state, Segment s) {
    loader_.load_gates(s);
    if (loader_.begins_anew()) state.sums.clear();
    Base::load(s, state.frame, {s.begin, 0}, Base::key_tokens(s));
    const Keys<Scalar> keys = loader_.keys();
    if constexpr (keys_are_features<F>)
      if (action_ == KeyAction::mix) {
        call_.transition.push(s, Batch<Scalar>(state.sums.Z));
        call_.transition.advance(s, Batch<Scalar>(state.sums.S));
      }
    const auto none = Keys<Scalar>::none(keys.vectors.rows(), call_.V.rows());
    state.sums.forget(loader_.total().high, loader_.log_channels(s, memory_.log_channels));
    state.sums.absorb(feature_, memory_.fold, none.vectors, none, {}, keys, loader_.rest(),
                      [](Index, const Entries<Scalar>&) {});
  }

  void load(const StateAt<Scalar>& before, Index n) {
    const Segment s = loader_.load_gates(segment(n));
    Frame frame = before.frame;
    Base::load(s, frame, s, s);
  }

  std::vector<StateAt<Scalar>>& kept_;
  Index tokens_between_;
  std::vector<ReadRows<Scalar>>* read_;
  const Eigen::VectorXd& d_frame_;  // behind the last token
};

/// The gradients of the chunked form, compiled once for a scalar type and a feature map.
template <class Scalar, FeatureMap F>
struct ChunkedVjp {
  static void run(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states, Index chunk);
  /// The first state goes to behind the last token.
  static void absorb(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states, Index chunk);
  /// H ← that before the first token, of these tokens' rows and of what it is behind them. `run` does the rest.
  static void rows(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states, Index chunk);
};
template <class Scalar, FeatureMap F>
void ChunkedVjp<Scalar, F>::run(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states,
                                Index chunk) {
  if constexpr (is_own_embedded<Scalar, F>)
    ChunkedVjp<Scalar, EmbeddedFeature<Scalar>>::run(EmbeddedFeatureOf<Scalar, F>(feature), call, states, chunk);
  else
    ChunkedAdjoint<Scalar, F>(feature, call, states).run(chunk);
}
template <class Scalar, FeatureMap F>
void ChunkedVjp<Scalar, F>::absorb(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states,
                                   Index chunk) {
  if constexpr (is_own_embedded<Scalar, F>)
    ChunkedVjp<Scalar, EmbeddedFeature<Scalar>>::absorb(EmbeddedFeatureOf<Scalar, F>(feature), call, states, chunk);
  else
    ChunkedAdjoint<Scalar, F>(feature, call, states).absorb_all(chunk);
}

template <class Scalar, FeatureMap F>
void ChunkedVjp<Scalar, F>::rows(const F& feature, const VjpCall<Scalar>& call, const StatesOfVjp<Scalar>& states,
                                 Index chunk) {
  if constexpr (is_own_embedded<Scalar, F>)
    ChunkedVjp<Scalar, EmbeddedFeature<Scalar>>::rows(EmbeddedFeatureOf<Scalar, F>(feature), call, states, chunk);
  else
    ChunkedAdjoint<Scalar, F>(feature, call, states).run_rows(chunk);
}

}  // namespace SYMPOW_NAMESPACE::detail
