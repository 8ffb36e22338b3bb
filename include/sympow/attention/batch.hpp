// All heads of a batch of sequences in one call, in a form that is chosen at run time.
#pragma once

#include <algorithm>
#include <concepts>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/form_calls.hpp>
#include <sympow/attention/scan.hpp>
#include <sympow/core/checks.hpp>
#include <sympow/core/heads.hpp>
#include <sympow/core/memory_layout.hpp>
#include <sympow/core/parallel.hpp>
#include <sympow/transition/transition.hpp>

namespace SYMPOW_NAMESPACE {

/// Run-time choices of a batch.
struct BatchOptions {
  Form form = Form::automatic;  ///< of all heads, or each its own
  int threads = 0;              ///< at most so many, 0 for all; more than one where the program is compiled with OpenMP
  Options head = {};            ///< of every head; diagnostics are given by the calls of one head
};

namespace detail {
/// The contents of a container of states, gradients or tapes, or nothing. It owns nothing.
template <class Content>
class GivenRange {
 public:
  GivenRange() = default;
  /// To contents by themselves, which must outlive it.
  template <class List>
    requires std::same_as<std::remove_const_t<List>, std::vector<std::remove_const_t<Content>>>
  GivenRange(List& list)  // NOLINT(google-explicit-constructor)
      : GivenRange(&list, std::ssize(list), [](const void* all, Index n) {
          return Given<Content>{(*static_cast<List*>(const_cast<void*>(all)))[static_cast<std::size_t>(n)]};
        }) {}

  [[nodiscard]] explicit operator bool() const { return at_ != nullptr; }  ///< whether a range is given
  [[nodiscard]] Index size() const { return size_; }
  [[nodiscard]] Given<Content> operator[](Index n) const { return at_ == nullptr ? Given<Content>() : at_(range_, n); }

 protected:
  using At = Given<Content> (*)(const void*, Index);
  GivenRange(const void* range, Index size, At at) : range_(range), size_(size), at_(at) {}

 private:
  const void* range_ = nullptr;
  Index size_ = 0;
  At at_ = nullptr;
};
template <class T>
using ContentOf = std::remove_reference_t<decltype(StateAccess::content(std::declval<T&>()))>;
}  // namespace detail

/// The elements of a caller's container, or of a view that gives references to them; or none, if it is left out. It
/// owns nothing.
template <class T>
class RangeRef : public detail::GivenRange<detail::ContentOf<T>> {
  using Base = detail::GivenRange<detail::ContentOf<T>>;

 public:
  RangeRef() = default;
  /// To the elements of a container, which must outlive it.
  template <std::ranges::random_access_range Range>
    requires(!std::same_as<std::remove_cvref_t<Range>, RangeRef>)
  RangeRef(Range&& range)  // NOLINT(google-explicit-constructor): a container stands where its elements are asked for
      : Base(std::addressof(range), std::ranges::ssize(range), &element<std::remove_reference_t<Range>>) {}

 private:
  template <class Range>
  static detail::Given<detail::ContentOf<T>> element(const void* range, Index n) {
    using Reference = std::ranges::range_reference_t<Range>;
    constexpr bool gives_them = std::is_lvalue_reference_v<Reference> && std::convertible_to<Reference, T&>;
    static_assert(
        gives_them,
        "states and their gradients are a container of State<Scalar, Feature> and StateGradient<Scalar, "
        "Feature>, with the scalar type of the heads and the type of the feature map; a view gives references "
        "to them, not const ones where they are written, nor values or pointers");
    if constexpr (gives_them)
      return detail::StateAccess::given(
          OptionalRef<T>(std::ranges::begin(*const_cast<Range*>(static_cast<const Range*>(range)))[n]));
    else
      return {};
  }
};

/// The arguments of `attend` by name.
template <class Scalar, FeatureMap F>
struct AttendCall {
  Heads<const Scalar> Q, K, V;
  RangeRef<typename detail::StateOf<Scalar, F>::type> states = {};  ///< one a query head or key head, or none
  std::optional<Heads<Scalar>> Y = {};                              ///< rows; left out: the states alone move on
  OptionalRef<Tapes<Scalar, F>> tapes = {};                         ///< keep the forward pass for `attend_vjp`
  OptionalRef<Workspaces<Scalar>> workspaces = {};  ///< scratch; the call makes its own if they are left out
  BatchOptions options = {};
};

namespace detail {

// ---- The arguments of a batch, and what can be wrong with them: one check for both directions

/// Calls f; an error of one head's arguments says of which sequence and head, and stays of its type. Heads that share a
/// state are named by their key head.
template <class F>
void with_head_context(Index sequence, Index head, Index group, const F& f) {
  try {
    f();
  } catch (...) {
    rethrow_with_prefix(Errors{}, "sequence ", sequence, group > 1 ? ", key head " : ", head ", head / group, ": ");
  }
}

/// Transitions of a batch as a container, or as a callable; else it is given one for all heads.
template <class Given>
concept TransitionRange = !Transition<Given> && std::ranges::random_access_range<const Given>;
template <class Given>
concept TransitionCallable =
    !Transition<Given> && !TransitionRange<Given> && std::invocable<const Given&, Index, Index>;

/// Number n of them, or what a callable gives; and their type.
template <class Given>
decltype(auto) transition_among(const Given& given, [[maybe_unused]] Index n = 0) {
  if constexpr (TransitionRange<Given>)
    return std::ranges::begin(given)[n];
  else if constexpr (TransitionCallable<Given>)
    return given(n, n);
  else
    return given;
}
template <class Given>
using TransitionOfBatch = std::remove_cvref_t<decltype(transition_among(std::declval<const Given&>()))>;
/// One for all heads, a container that holds one for each head of each sequence, or a callable on (sequence, head).
template <class Given>
concept TransitionsOfBatch = Transition<TransitionOfBatch<Given>>;

/// The transitions of a batch, one for each group of query heads, their type and the way in which they were given
/// forgotten.
template <class Scalar>
class BatchTransitions {
 public:
  BatchTransitions() = default;
  BatchTransitions(const BatchTransitions&) = delete;
  BatchTransitions& operator=(const BatchTransitions&) = delete;
  virtual ~BatchTransitions() = default;

  [[nodiscard]] virtual KeyAction key_action() const = 0;
  [[nodiscard]] virtual bool moves_states() const = 0;
  /// For so many groups of `group` query heads, those of a sequence one after the other: calls a callable. Throws
  /// `ShapeMismatch` for a container of another size, and what the callable throws.
  virtual void begin(Index sequences, Index groups, Index group) = 0;
  /// visit(the transition of group n).
  virtual void with(Index n, const Visitor<const TransitionView<Scalar>&>& visit) const = 0;
};

template <class Scalar, class Given, class Base = BatchTransitions<Scalar>>
class BatchTransitionsOf : public Base {
  using A = TransitionOfBatch<Given>;

 public:
  explicit BatchTransitionsOf(const Given& given) : given_(given) {}

  [[nodiscard]] KeyAction key_action() const override { return A::key_action; }
  [[nodiscard]] bool moves_states() const override { return MovesStates<A>; }
  void begin([[maybe_unused]] Index sequences, [[maybe_unused]] Index groups, [[maybe_unused]] Index group) override {
    if constexpr (TransitionRange<Given>)
      check_size("number of transitions", std::ranges::ssize(given_), sequences * groups,
                 group == 1 ? "one a sequence and head" : "one a sequence and key head, as there are states");
    if constexpr (TransitionCallable<Given>) {
      built_.reserve(static_cast<std::size_t>(sequences * groups));
      for (Index n = 0; n < sequences * groups; ++n)
        with_head_context(n / groups, n % groups * group, group,
                          [&] { built_.push_back(given_(n / groups, n % groups)); });
    }
  }
  void with(Index n, const Visitor<const TransitionView<Scalar>&>& visit) const override {
    visit(ViewOf<Scalar, A>(transition(n)));
  }

 protected:
  [[nodiscard]] const A& transition(Index n) const {
    if constexpr (TransitionCallable<Given>)
      return built_[static_cast<std::size_t>(n)];
    else
      return transition_among(given_, n);
  }

 private:
  const Given& given_;
  std::vector<A> built_;  // by a callable
};

/// The form of a head.
inline Form form_of(const ProblemShape& shape, const BatchOptions& options) {
  if (options.form == Form::automatic && !shape.keeps_state && !options.head.mask.goes_with_states())
    return Form::attention;
  return options.form == Form::automatic ? cheapest_form(shape, options.head.costs) : options.form;
}

/// The chunk of a head that goes through `scan`, else 0. It has more than a quarter of all tokens, in many segments,
/// states that are small beside it, and work for some milliseconds. Nothing but shapes decides, so that results are the
/// same for any number of threads.
inline Index scanned_chunk(ProblemShape shape, Index all_tokens, const BatchOptions& options) {
  shape.from_nothing = false;  // its segments go on
  const Index T = shape.T;
  if (options.head.mask != causal() || T <= all_tokens / 4 ||
      static_cast<double>(T / 8 * (shape.d + shape.e) / (shape.e + 1)) < shape.D ||
      form_of(shape, options) != Form::chunked)
    return 0;
  constexpr double min_flops_to_split = 1e9;
  const Index chunk = chunk_of(options.head, shape);
  if (cost_of_chunks(shape, static_cast<double>(chunk), options.head.costs) < min_flops_to_split) return 0;
  return T / 16 >= scanned_segment(static_cast<Index>(shape.D), chunk) ? chunk : 0;
}

/// How the query heads of a group go, and operations that it takes, about.
struct GroupPlan {
  Form form = Form::attention;
  Index scanned_chunk = 0;  ///< the chunk of one that goes through `scan`, else 0
  double cost = 0;
};

/// Throws `ShapeMismatch` unless a size of x is that of y.
inline void check_same(const char* size, const char* x, Index actual, const char* y, Index expected) {
  if (actual != expected)
    raise<ShapeMismatch>(size, " of ", x, " is ", actual, ", must be ", expected, " (that of ", y, ")");
}
template <class S, class R>
void check_same_lengths(const char* name, const Heads<S>& x, const char* other, const Heads<R>& y,
                        const char* unless = "") {
  for (Index b = 0; b < std::max(x.sequences_of_other_lengths(), y.sequences_of_other_lengths()); ++b)
    if (x.length(b) != y.length(b))
      raise<ShapeMismatch>("length of sequence ", b, " in ", name, " is ", x.length(b), ", must be ", y.length(b),
                           " (that in ", other, ")", unless);
}

/// The arguments of a batch except its transitions. Y are the rows, if wanted, or their gradients dY.
template <class Scalar, class Row = Scalar>
struct BatchCall {
  using State = std::conditional_t<std::is_const_v<Row>, const StateContent<Scalar>, StateContent<Scalar>>;

  Heads<const Scalar> Q, K, V;
  std::optional<Heads<Row>> Y;
  GivenRange<State> states;
  BatchOptions options;
  Index group = 1;  ///< query heads that share a state

  /// The first query head of a group, and what it reads and writes.
  struct Head {
    Index sequence, head;
    typename Heads<const Scalar>::Head Q, K, V;
    typename Heads<Row>::Head Y;
  };

  void check() const {
    const char* const of_Y = std::is_const_v<Row> ? "dY" : "Y";
    check_same("number of sequences", "K", K.sequences(), "Q", Q.sequences());
    check_same("number of sequences", "V", V.sequences(), "Q", Q.sequences());
    if (Y) check_same("number of sequences", of_Y, Y->sequences(), "Q", Q.sequences());
    if (options.head.mask == causal()) check_same_lengths("K", K, "Q", Q, " unless options.head.mask says otherwise");
    check_same_lengths("V", V, "K", K);
    if (Y) check_same_lengths(of_Y, *Y, "Q", Q);
    check_same("number of heads", "V", V.heads(), "K", K.heads());
    if (Y) check_same("number of heads", of_Y, Y->heads(), "Q", Q.heads());
    check_same("dimension", "K", K.dimension(), "Q", Q.dimension());
    if (Y) check_same("dimension", of_Y, Y->dimension(), "V", V.dimension());
    if (Q.heads() == 0 && K.heads() > 0)
      raise<ShapeMismatch>("number of heads of Q is 0, must be at least that of K, which is ", K.heads());
    if (Q.heads() > 0 && (K.heads() == 0 || Q.heads() % K.heads() != 0))
      raise<ShapeMismatch>("number of heads of Q is ", Q.heads(), ", must be a multiple of that of K, which is ",
                           K.heads());
    if (options.threads < 0) raise<InvalidArgument>("options: threads is ", options.threads, ", must not be negative");
    if (options.head.diagnostics != nullptr)
      raise<InvalidArgument>("options: a batch gives no diagnostics; call a head by itself for its own");
  }

  /// Query heads that read the same keys, H / H_kv; 0 if there is none.
  [[nodiscard]] Index heads_of_key() const { return K.heads() == 0 ? 0 : Q.heads() / K.heads(); }
  /// Groups of a sequence, and of all sequences.
  [[nodiscard]] Index groups() const { return Q.heads() / group; }
  [[nodiscard]] Index all_groups() const { return Q.sequences() * groups(); }
  [[nodiscard]] HeadGroup head_group() const { return {group, Q.to_next_head(), Y ? Y->to_next_head() : 0}; }
  /// Query head h of a sequence, which reads key head h / (H / H_kv).
  [[nodiscard]] Head head(Index b, Index h) const {
    const Index key_head = h / heads_of_key();
    using Rows = typename Heads<Row>::Head;
    return {b,
            h,
            Q.head(b, h),
            K.head(b, key_head),
            V.head(b, key_head),
            Y ? Y->head(b, h) : Rows(nullptr, V.dimension(), 0, Eigen::OuterStride<>(V.dimension()))};
  }
  [[nodiscard]] Head first_head(Index n) const { return head(n / groups(), n % groups() * group); }
};

/// A batch of which everything is checked that both directions have in common: what it throws is what `attend` and
/// `attend_vjp` both throw.
template <class F, class Scalar, class Row>
class CheckedBatch {
 public:
  /// Throws `ShapeMismatch`, `InvalidArgument`, and with the sequence and head in the message what the form throws for
  /// one, and what a callable that gives transitions throws.
  CheckedBatch(const F& feature, BatchTransitions<Scalar>& transitions, const BatchCall<Scalar, Row>& batch)
      : call(checked(batch)), feature_(feature), transitions_(transitions) {
    transitions.begin(call.Q.sequences(), call.groups(), call.group);
    const Form form = call.options.form;
    const bool has_form = form == Form::attention || form == Form::automatic;
    if (call.states && form == Form::attention)
      raise<InvalidArgument>("options: the attention form has no states; leave them out, or take another form");
    if (!has_states() && (call.states || !has_form))
      raise<InvalidArgument>(transitions_.key_action() == KeyAction::mix
                                 ? "options: Householder vectors have states for power 1 alone; leave states out and "
                                   "take the attention form"
                                 : "options: this feature map with this transition has the attention form only");
    if (call.states || !has_form) check_state_mask(call.options.head.mask);
    for (Index b = 0; b < call.Q.sequences() && call.groups() > 0; ++b) all_tokens_ += call.Q.length(b) * call.groups();
    for (Index n = 0; n < call.all_groups(); ++n) {
      const Index b = n / call.groups(), h = n % call.groups() * call.group;
      with_head_context(b, h, call.group, [&] { check_group(n); });
      for (Index r = 1; call.options.head.check_finite && r < call.group; ++r)
        with_head_context(b, h + r, 1, [&] { check_finite("Q", call.Q.head(b, h + r)); });
    }
  }

  const BatchCall<Scalar, Row> call;

  [[nodiscard]] bool has_states() const {
    return goes_by_states(feature_, transitions_.key_action(), transitions_.moves_states());
  }
  /// Most groups have the shape of the first one, and its plan.
  [[nodiscard]] GroupPlan plan(Index n) const {
    return tokens(n) == first_shape_.T && is_from_nothing(n) == first_shape_.from_nothing ? first_plan_
                                                                                          : plan_of(shape(n));
  }
  /// Threads that have work for longer than it takes to wake them. The others are left alone.
  [[nodiscard]] Threads useful(Threads threads) const {
    constexpr double flops_of_thread = 1e5;
    threads.count = static_cast<int>(std::min<double>(threads.count, 1 + cost_ / flops_of_thread));
    return threads;
  }

 private:
  // Of group n.
  [[nodiscard]] Index tokens(Index n) const {
    const Index b = n / call.groups();
    return std::max(call.Q.length(b), call.K.length(b));
  }
  [[nodiscard]] bool is_from_nothing(Index n) const { return !call.states || call.states[n]->frames.tokens == 0; }
  // What the cost model asks of it.
  [[nodiscard]] ProblemShape shape(Index n) const {
    ProblemShape shape = head_shape(feature_, has_states(), transitions_.key_action(), tokens(n), call.Q.dimension(),
                                    call.V.dimension());
    shape.is_full = call.options.head.mask.is_full;
    shape.keeps_state = static_cast<bool>(call.states);
    shape.from_nothing = is_from_nothing(n);
    return shape;
  }
  [[nodiscard]] GroupPlan plan_of(const ProblemShape& shape) const {
    const Costs& costs = call.options.head.costs;
    GroupPlan plan{.form = form_of(shape, call.options)};
    plan.cost = static_cast<double>(call.group) *
                (plan.form == Form::attention
                     ? cost_of_pairs(shape, static_cast<double>(shape.T), costs)
                     : cost_of_chunks(shape, static_cast<double>(chunk_of(call.options.head, shape)), costs));
    if (F::score == Score::power && has_states()) plan.scanned_chunk = scanned_chunk(shape, all_tokens_, call.options);
    return plan;
  }
  // Shapes first: what follows reads heads by them.
  static BatchCall<Scalar, Row> checked(BatchCall<Scalar, Row> call) {
    call.check();
    const auto& states = call.states;
    if (!states) return call;
    const Index of_keys = call.Q.sequences() * call.K.heads(), of_queries = call.Q.sequences() * call.Q.heads();
    if (states.size() == of_keys)
      call.group = std::max<Index>(1, call.heads_of_key());
    else if (states.size() != of_queries)
      raise<ShapeMismatch>("number of states is ", states.size(), ", must be ", of_queries,
                           " (one per sequence and query head) or ", of_keys, " (per sequence and key head)");
    check_distinct("states", states);
    return call;
  }

  void check_group(Index n) {
    const auto x = call.first_head(n);
    transitions_.with(n, [&](const TransitionView<Scalar>& transition) {
      check_call<F::score>(ForwardCall<Scalar>{{}, &transition, x.Q, x.K, x.V, call.options.head});
      if (n == 0) first_plan_ = plan_of(first_shape_ = shape(0));
      const GroupPlan of_group = plan(n);
      cost_ += of_group.cost;
      if constexpr (has_embedding<F>)
        if (call.states || of_group.form != Form::attention)
          check_state(call.states[n], feature_, transition, x.Q.rows(), x.V.rows());
    });
  }

  const F& feature_;
  const BatchTransitions<Scalar>& transitions_;
  Index all_tokens_ = 0;
  ProblemShape first_shape_ = {};
  GroupPlan first_plan_ = {};
  double cost_ = 0;  // of all groups
};

/// The tapes of a batch: `begin` makes so many empty ones.
template <class Scalar>
struct BatchTapes {
  GivenRange<TapeContent<Scalar>> tapes = {};
  OptionalRef<const Visitor<Index>> begin = {};
};

/// Batches under any transitions, compiled once for a scalar type and a feature map as passes see it, and for any
/// program's threads.
template <class Scalar, FeatureMap F>
struct BatchForms {
  /// Checks all heads, then runs them.
  static void run(RowKind kind, const F& feature, BatchTransitions<Scalar>& transitions, const BatchCall<Scalar>& call,
                  const BatchTapes<Scalar>& tapes, OptionalRef<Workspaces<Scalar>> workspaces, const Threads& threads);
};

template <class Scalar, FeatureMap F>
void BatchForms<Scalar, F>::run(RowKind kind, const F& feature, BatchTransitions<Scalar>& transitions,
                                const BatchCall<Scalar>& x, const BatchTapes<Scalar>& kept,
                                OptionalRef<Workspaces<Scalar>> given, const Threads& most) {
  const CheckedBatch batch(feature, transitions, x);
  if (!x.Y && !x.states) raise<InvalidArgument>("attend: Y and states are left out, must be one of them at least");
  if (x.Y) check_outputs({{"Y", x.Y->layout()}}, {{"Q", x.Q.layout()}, {"K", x.K.layout()}, {"V", x.V.layout()}});
  if (x.states && kept.begin)
    raise<InvalidArgument>("attend: states and tapes are given; tapes are of calls without states");
  const auto& call = batch.call;
  Workspaces<Scalar> own;
  Workspaces<Scalar>& workspaces = given ? *given : own;
  Options options = call.options.head;
  const Index count = call.all_groups();
  const Threads threads = batch.useful(most);
  if (kept.begin) (*kept.begin)(count);
  // run(the inputs of group n)
  const auto with_group = [&](Index n, const auto& run) {
    auto head = call.first_head(n);
    for (Index r = 0; call.Y && r < call.group; ++r) call.Y->padding(head.sequence, head.head + r).setZero();
    transitions.with(n, [&](const TransitionView<Scalar>& transition) {
      run(FormInputs<Scalar>{
          {kind, &transition, head.Q, head.K, head.V, options, head.Y, call.Y.has_value(), call.head_group()},
          call.states[n],
          kept.tapes[n]});
    });
  };
  parallel_for(count, threads, workspaces, [&](Index n, Workspace<Scalar>& work) {
    const GroupPlan plan = batch.plan(n);
    if (plan.scanned_chunk > 0) return;
    with_group(n, [&](const FormInputs<Scalar>& of) { FormCalls<Scalar, F>::run(plan.form, feature, of, work); });
  });
  if constexpr (has_embedding<F> && F::score == Score::power)
    for (Index n = 0; n < count; ++n)
      if (options.chunk = batch.plan(n).scanned_chunk; options.chunk > 0)
        with_group(n, [&](const FormInputs<Scalar>& of) {
          with_state(feature, of, [&](auto& state) { scan(feature, of.call, state, workspaces, threads); });
        });
}

template <class Scalar, FeatureMap F, class Given>
void run_batch(RowKind kind, const F& feature, const Given& given, const AttendCall<Scalar, F>& x,
               const Threads& threads) {
  BatchTransitionsOf<Scalar, Given> transitions(given);
  const auto begin = [&](Index count) {
    x.tapes->resize(static_cast<std::size_t>(count));
    for (auto& tape : *x.tapes) StateAccess::begin(tape, feature);
  };
  const Visitor<Index> begin_tapes(begin);
  BatchTapes<Scalar> tapes;
  if (x.tapes) tapes = {RangeRef<Tape<Scalar, F>>(*x.tapes), begin_tapes};
  BatchForms<Scalar, InterfaceOf<Scalar, F>>::run(kind, pass_feature<Scalar>(feature), transitions,
                                                  {x.Q, x.K, x.V, x.Y, x.states, x.options}, tapes, x.workspaces,
                                                  threads);
}

}  // namespace detail

inline namespace SYMPOW_THREADS {

/// All heads of a batch of sequences, each by the form that the options name or that its own shape makes the cheapest,
/// going on from its state.
///
///     y_bh = form(feature, A_bh, q_bh, k_bg, v_bg, state_bh),   g = h / (H / H_kv),   b < B, h < H
///
///     attend(feature, transitions, {.Q = Q, .K = K, .V = V, .Y = Y});
///
/// Shapes: Q: B sequences of H heads, d numbers a token; K: H_kv heads of d, V: H_kv of e; Y: H of e. H is a multiple
/// of H_kv: query heads of a group stand together. Every sequence has its own length, 0 allowed, the same in all four;
/// their orders in memory may differ. Y shares no memory with the others, and is 0 where Q is padding, which neither
/// weighs nor decays. `transitions` is one for all heads, a container of B H, b H + h being that of head h of sequence
/// b, or a callable on (b, h); `states` a container of B H states in the same order, each left after its sequence's own
/// tokens; without them nothing came before. If the query heads of a group have the same gates, they can share one
/// state: pass B H_kv states, in the order b H_kv + g. Keys are then embedded
/// and folded once for the group, and transitions are indexed by key head. The number of states alone decides what a
/// callable is given:
///
///     [&](Index b, Index h) { return decay(gates[b * H + h]); }        B H states, or none: (sequence, query head)
///     [&](Index b, Index g) { return decay(gates[b * H_kv + g]); }     B H_kv states: (sequence, key head)
///
/// Threads run over sequences and heads. A head with more than a quarter of all tokens is cut into segments, whose
/// states are merged, see `merge`: for powers in the chunked form, at T of 16 segments of √(32 D) tokens or more, 8
/// states' worth of tokens and 10^9 operations. Results depend on shapes, on the options, on which states are empty and
/// at e = 1 on how far values lie apart, and not on threads: they are the same bit for bit for any number of them, and
/// without OpenMP. Tapes, of calls without states, keep of the forward pass what `attend_vjp` needs; Y is that
/// without. With states Y may be left out: they move on, to the same bits, at half the cost. Q is then not
/// looked at; give K in its place.
///
/// Throws `ShapeMismatch`, `InvalidArgument`, and with the sequence and head in the message what the form throws for
/// one, and what the callable throws, as the type that it is; nothing has then been touched. Memory may end later:
/// states of heads that were done have moved, see `State::interrupted`. Calls allocate transitions of a callable,
/// segments' states, and workspaces until each thread has seen the largest head.
template <class Normalization = DefaultNormalization, FeatureMap F, detail::TransitionsOfBatch Transitions>
void attend(const F& feature, const Transitions& transitions, const AttendCall<float, F>& call) {
  detail::run_batch(detail::row_kind<Normalization, F>(), feature, transitions, call,
                    detail::threads_of_program(call.options.threads));
}
/// Overload for double.
template <class Normalization = DefaultNormalization, FeatureMap F, detail::TransitionsOfBatch Transitions>
void attend(const F& feature, const Transitions& transitions, const AttendCall<double, F>& call) {
  detail::run_batch(detail::row_kind<Normalization, F>(), feature, transitions, call,
                    detail::threads_of_program(call.options.threads));
}

}  // namespace SYMPOW_THREADS
}  // namespace SYMPOW_NAMESPACE

/// Batches of all feature maps, compiled in one place as `SYMPOW_ALL_FORMS`.
#define SYMPOW_BATCH(LINKAGE, Scalar, ...) LINKAGE template struct sympow::detail::BatchForms<Scalar, __VA_ARGS__>;
#define SYMPOW_BATCHES(LINKAGE, Scalar) SYMPOW_PASS_FEATURES(SYMPOW_BATCH, LINKAGE, Scalar)

#ifdef SYMPOW_COMPILED_FORMS
SYMPOW_BATCHES(extern, float)
SYMPOW_BATCHES(extern, double)
#endif
