// What the state forms carry from token to token.
#pragma once

#include <sympow/attention/cost_model.hpp>
#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/core/checks.hpp>
#include <sympow/core/optional_ref.hpp>
#include <sympow/detail/state_fold.hpp>

namespace SYMPOW_NAMESPACE {
namespace detail {

/// The content of a state, of its gradient or of a tape, as a pass sees it, or nothing.
template <class Content>
struct Given : OptionalRef<Content> {
  const void* feature = nullptr;  ///< its feature map; none: that of the call
};

struct StateAccess {
  static auto& content(auto& x) { return x.content_; }
  /// Sums of a state, dense and without recent tokens, that all decay is in. Costs a copy.
  static auto sums(const auto& state) { return state.settled(); }
  template <class X>
  static auto given(OptionalRef<X> x) {
    using Content = std::remove_reference_t<decltype(content(*x))>;
    return x ? Given<Content>{x->content_, x->feature_address()} : Given<Content>{};
  }
  template <class StateType, class Content>
  static StateType make(const typename StateType::Feature& feature, Content content) {
    return StateType(feature, std::move(content));
  }
  /// Makes a tape that of a call, with the memory that it has; empty until the call is done.
  static void begin(auto& tape, const auto& feature) { tape.begin(feature); }
};

/// Throws what the constructor of `State` does for these sizes.
template <class Scalar>
void check_state_sizes(Index dimension, Index d, Index e, Index tail) {
  Index rows = 0, bytes = 0, most = 0;
  if (dimension < 0)
    raise<InvalidArgument>("State: the dimension of the feature map for d = ", d, " is ", dimension,
                           ", must not be negative");
  if (__builtin_add_overflow(e, Index(1), &rows) || __builtin_mul_overflow(dimension, rows, &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<Index>(sizeof(Scalar)), &bytes))
    raise<DimensionOverflow>("State: d = ", d, " and e = ", e, " make (e + 1) D = (", e, " + 1) x ", dimension,
                             " entries, which do not fit the index type");
  if (__builtin_mul_overflow(std::max<Index>(tail, 1), std::max({d, e, Index(8)}), &most) ||
      __builtin_mul_overflow(most, static_cast<Index>(sizeof(Scalar)), &most))
    raise<DimensionOverflow>("State: d = ", d, ", e = ", e, " and tail = ", tail,
                             " make a tail that does not fit the index type");
}
/// D, of sizes that are checked.
template <class Scalar, FeatureMap F>
Index state_dimension(const F& feature, Index d, Index e, Index tail) {
  if (d < 0 || e < 0 || tail < 0)
    raise<ShapeMismatch>("State: d = ", d, ", e = ", e, " and tail = ", tail, " must not be negative");
  Index dimension = 0;
  try {
    dimension = feature.dimension(d);
  } catch (...) {
    rethrow_with_prefix(Errors{}, "State: d = ", d, " and e = ", e, ": ");
  }
  check_state_sizes<Scalar>(dimension, d, e, tail);
  return dimension;
}

/// The content of an empty state that starts at a frame.
template <class Scalar>
StateContent<Scalar> empty_state(Index dimension, Index d, Index e, Index tail, Frame frame = {}) {
  StateContent<Scalar> content{{d, e, dimension, tail}};
  content.frames.end = std::move(frame);
  content.frames.start = content.frames.end;
  content.frames.log_channels.setZero(d);
  return content;
}
template <class Scalar, FeatureMap F>
StateContent<Scalar> empty_state(const F& feature, Index d, Index e, Index tail, Frame frame = {}) {
  return empty_state<Scalar>(state_dimension<Scalar>(feature, d, e, tail), d, e, tail, std::move(frame));
}

/// Tokens of a tail unless the caller says otherwise, `usual_tail_tokens` in cost_model.hpp. None for features that are
/// never negative: nothing cancels among them, and to embed a tail for every token would cost more than it saves.
[[nodiscard]] constexpr Index usual_tail(bool nonnegative_entries) {
  return nonnegative_entries ? 0 : usual_tail_tokens;
}

/// Σ_j b_j ‖k_j‖^P of Z = Σ_j b_j φ(k_j) for keys in R^d, at least 0. It is linear in Z for an even P = 2n, as
///
///     ‖k‖^2n = Σ_β (n! / Π β_i!) Π_i k_i^{2β_i},   φ_{2β}(k) = √((2n)! / Π (2β_i)!) Π_i k_i^{2β_i}
///
/// Else ‖Z‖, the least that it can be. Cost: D.
template <FeatureMap F, class Scalar>
double absolute_weight(const Vector<Scalar>& Z, [[maybe_unused]] Index d) {
  constexpr int P = degree_of<F>;
  if constexpr (F::score != Score::power || P % 2 != 0) {
    return static_cast<double>(Z.norm());
  } else {
    const MultiIndices<P> indices(d);
    double weight = 0;
    for (const auto& half : MultiIndices<P / 2>(d)) {
      MultiIndex<P> square;
      for (int level = 0; level < P; ++level) square[level] = half[level / 2];
      weight += static_cast<double>(Z[indices.rank(square)]) * static_cast<double>(multiplicity(half)) /
                std::sqrt(static_cast<double>(multiplicity(square)));
    }
    return std::max(weight, 0.);
  }
}

/// Throws `InterruptedState` for a state that a call has left half way.
template <class Scalar>
void check_whole(const StateContent<Scalar>& state) {
  if (state.interrupted)
    raise<InterruptedState>("the state was left half way by a call that failed; assign or load another into it");
}

/// All tokens and decays of a state in sums that are dense.
template <class Scalar>
StateSums<Scalar> settled(const FoldSums<Scalar>& fold, const StateContent<Scalar>& state) {
  check_whole(state);
  StateSums<Scalar> copy = state.sums;
  fold(copy);
  copy.make_dense();
  copy.settle();
  return copy;
}

}  // namespace detail

/// The state of a recurrence: a value. Copy it to branch, keep it to resume.
///
///     S = Σ_j b_Tj v_j φ(k̂_j)ᵀ  (e × D),   Z = Σ_j b_Tj φ(k̂_j)ᵀ  (1 × D)
///
/// over the T tokens seen so far, with keys k̂ in the coordinates of `frame()`. It is kept as 2^M times sums over keys
/// of length at most 1, with a running exponent L (M = ⌈L⌉), so that it never overflows; and the last tokens are kept
/// as they are, in a tail of up to `tail` tokens that is folded into the sums when it is full: scores of recent tokens
/// are exact to rounding, and a token costs one read of S. With tail 0 the recurrence is the papers' literal one. A
/// fresh state is empty: its first token forgets nothing, whatever its gate. A call that fails half way, as memory ends
/// or a feature map throws, leaves the state `interrupted()`; what is then asked of it throws `InterruptedState` until
/// another one is assigned or loaded. Size: (e + 1) D scalars and tail (d + e) more. Source: Conformal Transformations,
/// §2 and eq. (2).
template <class S, FiniteFeatureMap F>
class State {
 public:
  using Scalar = S;
  using Feature = F;

  /// Tokens of a tail unless the caller says otherwise: 0 where no entry of φ is negative.
  static constexpr Index default_tail = detail::usual_tail(has_nonnegative_entries<F>);

  /// The empty state for keys in R^d and values in R^e. `frame` is where it starts: that of another state whose
  /// sequence it continues, see `merge`. Throws `DimensionOverflow` if (e + 1) D or the tail does not fit,
  /// `ShapeMismatch` for a negative size, `std::bad_alloc` where memory ends.
  State(Index d, Index e, Index tail = default_tail, Frame frame = {}) : State(F{}, d, e, tail, std::move(frame)) {}
  /// The same for a feature map that has parameters.
  State(F feature, Index d, Index e, Index tail = default_tail, Frame frame = {})
      : feature_(std::move(feature)),
        content_(detail::empty_state<S>(detail::pass_feature<S>(feature_), d, e, tail, std::move(frame))) {}

  /// The state whose sums are S, e × D, and Z, D, as the formula has them, of keys in the coordinates of `frame`: for
  /// states that are parameters, were computed or came from elsewhere. It has seen no token, and its tail is empty.
  /// Whether a mean is degenerate is decided by Σ_j b_j ‖k̂_j‖^P: exact for even powers, else taken to be ‖Z‖. Throws
  /// `ShapeMismatch`, `NotFinite`, and what the constructor of the empty state does.
  template <class Values, class Normalizer>
  State(F feature, Index d, const Eigen::MatrixBase<Values>& values, const Eigen::MatrixBase<Normalizer>& normalizer,
        Index tail = default_tail, Frame frame = {})
      : State(std::move(feature), d, values.rows(), tail, std::move(frame)) {
    detail::set_sums({"State", "S", "Z"}, content_.sums, values, normalizer);
    content_.sums.A = detail::absolute_weight<F>(content_.sums.Z, d);
  }

  State(const State&) = default;
  State(State&&) = default;
  State& operator=(State&&) = default;
  /// A copy in the place of this one, which stays as it is where memory ends.
  State& operator=(const State& other) { return *this = State(other); }
  ~State() = default;

  [[nodiscard]] const F& feature() const { return feature_; }                         ///< the feature map
  [[nodiscard]] Index key_dimension() const { return content_.key_dimension(); }      ///< d
  [[nodiscard]] Index value_dimension() const { return content_.sums.value_rows(); }  ///< e
  [[nodiscard]] Index tokens() const { return content_.frames.tokens; }               ///< T, the tokens seen so far
  /// Tokens that the tail can hold.
  [[nodiscard]] Index tail_capacity() const { return content_.sums.recent.capacity(); }
  [[nodiscard]] Index tail_size() const { return content_.sums.recent.size; }  ///< tokens that it holds

  /// The coordinates at its first token.
  [[nodiscard]] const Frame& start_frame() const { return content_.frames.start; }
  /// The coordinates of its keys, at its last token.
  [[nodiscard]] const Frame& frame() const { return content_.frames.end; }

  /// Σ log γ_i over the tokens seen, the first gate included.
  [[nodiscard]] double log_decay() const { return content_.frames.log_decay; }
  /// Σ log a_i over the tokens seen, by channel; zeros without channel decay.
  [[nodiscard]] const Eigen::VectorXd& log_channels() const { return content_.frames.log_channels; }

  /// A_1 … A_T of a transition that mixes channels, d × d; empty before the first, or if it is not kept.
  [[nodiscard]] const Matrix<S>& key_product() const { return content_.frames.key_product; }
  /// Keeps it no longer, nor does the file or a copy: a token under a Householder chain then costs 4 d² operations
  /// less, and the state cannot be the right one of a merge any more, which is what the product is for.
  void drop_key_product() { content_.frames.drop_product(); }

  /// Whether queries read S rounded to the upper half of its bits, in float to bf16; Z and the tail they read as they
  /// are. S itself stays as it is: its two halves lie apart, and a decoded token moves half the bytes. Rows of S are
  /// filled up to a multiple of two registers, 32 floats with AVX-512: other e gain less, and need memory for these.
  /// Sums S φ(q) are off by 2^-8 Σ_n |S_n φ_n(q)| more (2^-21 in double), before they are divided, where |S_n| is at
  /// least 2^-126 of the largest weight in S (2^-1022). Sums that are themselves kept in bf16 would stagnate: a token
  /// of 2^-9 of them leaves no trace. Gradients are those at S as it is. Costs a copy of S. Where memory ends the state
  /// is as it was.
  void read_as_bf16(bool rounds = true) { rounds ? content_.sums.split_up() : content_.sums.make_dense(); }
  /// Whether they do.
  [[nodiscard]] bool reads_as_bf16() const { return content_.sums.is_split(); }

  /// Whether a call that failed has left it half way.
  [[nodiscard]] bool interrupted() const { return content_.interrupted; }

  /// S, e × D, as the formula says, the tail folded in. Costs a copy; infinite or 0 where the type cannot hold it.
  [[nodiscard]] Matrix<S> values() const { return detail::unscaled(settled(), &detail::StateSums<S>::S); }
  /// Zᵀ, D, likewise.
  [[nodiscard]] Vector<S> normalizer() const { return detail::unscaled(settled(), &detail::StateSums<S>::Z); }

  /// Bytes of S, Z and the tail.
  [[nodiscard]] Index bytes() const {
    return (content_.sums.size() + content_.sums.Z.size() +
            tail_capacity() * (key_dimension() + value_dimension() + 1)) *
               static_cast<Index>(sizeof(S)) +
           tail_capacity() * static_cast<Index>(sizeof(double));
  }

 private:
  friend detail::StateAccess;

  State(const F& feature, detail::StateContent<S> content) : feature_(feature), content_(std::move(content)) {}
  [[nodiscard]] const void* feature_address() const { return &feature_; }
  [[nodiscard]] detail::StateSums<S> settled() const {
    return detail::settled<S>([&](detail::StateSums<S>& sums) { detail::fold_state(feature_, sums); }, content_);
  }

  F feature_;
  detail::StateContent<S> content_;
};
template <FiniteFeatureMap F, class... Sizes>
State(F, Index, Index, Sizes...) -> State<double, F>;

}  // namespace SYMPOW_NAMESPACE
