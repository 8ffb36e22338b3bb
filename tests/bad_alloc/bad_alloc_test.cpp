// Memory may end at any allocation: every call here is made with its first request for memory failing, then with its
// second, and so on until one comes to its end. After each failure everything can be destroyed and used again, and a
// state is as it was, or says that it is not.

#include <array>
#include <optional>
#include <sstream>
#include <vector>

#include <sympow/attention/batch.hpp>
#include <sympow/attention/diagnostics.hpp>
#include <sympow/attention/forms.hpp>
#include <sympow/attention/options.hpp>
#include <sympow/attention/state_file.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/random_features.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/structured/generator_families.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/transition/structured_rotary.hpp>

#include "../no_malloc/requests.hpp"
#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

using Power = SymmetricPower<2>;
using Eigen::MatrixXf, Eigen::VectorXd;

constexpr Index d = 4, e = 3, T = 41, tail = 8;
const Options options{.scale = .5, .chunk = 8};

// Runs attempt(n), which says whether its call came to its end without request n, for n = 0, 1, … until it does.
template <class Attempt>
void each_failure(const Attempt& attempt) {
  long n = 0;
  while (!attempt(n)) ++n;
  REQUIRE(n > 0);
}

template <class F>
std::string bytes_of(const State<float, F>& state) {
  std::ostringstream out;
  save(state, out);
  return out.str();
}

// A state that a call has left half way refuses every use until another one is assigned to it.
template <class F>
void check_refuses(State<float, F> state) {
  const State<float, F> fresh(state.feature(), d, e, state.tail_capacity());
  Workspace<float> workspace;
  const MatrixXf K = MatrixXf::Zero(d, 1), V = MatrixXf::Zero(e, 1);
  const auto half_way = contains("left half way by a call that failed");
  REQUIRE_THROWS_AS(static_cast<void>(state.values()), InterruptedState);
  REQUIRE_THROWS_WITH(static_cast<void>(state.normalizer()), half_way);
  REQUIRE_THROWS_WITH(absorb(state.feature(), stationary(), K, V, state, workspace), half_way);
  REQUIRE_THROWS_WITH(recurrent(state.feature(), stationary(), K, K, V, state), half_way);
  REQUIRE_THROWS_WITH(static_cast<void>(merge(state, fresh)), half_way);
  REQUIRE_THROWS_WITH(static_cast<void>(merge(fresh, state)), half_way);
  REQUIRE_THROWS_WITH(bytes_of(state), half_way);
  std::istringstream file(bytes_of(fresh));
  load(state, file);
  REQUIRE_FALSE(state.interrupted());
}

// Whether a state is as it was before a call that failed; otherwise it says so.
template <class F>
bool is_as_before(const State<float, F>& state, const std::string& before) {
  if (!state.interrupted()) return bytes_of(state) == before;
  check_refuses(state);
  return true;
}

struct Inputs {
  explicit Inputs(Index rows = d, Index tokens = T) {
    Random random(1);
    Q = random.matrix<float>(rows, tokens);
    K = random.matrix<float>(rows, tokens);
    V = random.matrix<float>(e, tokens);
  }
  MatrixXf Q, K, V;
};

// Transitions for some tokens of so many rows.
VectorXd gates(Index tokens) { return -.05 * Random(2).vector(tokens).cwiseAbs(); }
const auto turning = [](Index rows, Index tokens) {
  return decay(gates(tokens)) * rotary(rope_frequencies<double>(rows), Pairing::interleaved);
};
const auto placed = [](Index rows, Index tokens) {
  return structured_rotary(circulant_family<float>(rows, Eigen::MatrixXd::Ones(1, (rows - 1) / 2)),
                           Random(3).matrix(1, tokens));
};
const auto by_channel = [](Index rows, Index tokens) {
  return channel_decay(-.1 * Random(4).matrix(rows, tokens).cwiseAbs());
};
const auto mixing = [](Index rows, Index tokens) {
  return decay(gates(tokens)) *
         householder(Random(5).matrix<float>(rows, tokens).colwise().normalized(), Random(6).vector(tokens));
};

// φ(x) = x, which fails after some calls.
struct Failing {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = false;
  int* calls;
  [[nodiscard]] Index dimension(Index rows) const { return rows; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    if (--*calls < 0) throw 7;
    y = x;
  }
};

// A workspace as it may come into a call: new, after one of more rows that turned or scaled keys, or after one of as
// many.
std::vector<Workspace<float>> workspaces_in_use() {
  std::vector<Workspace<float>> all(4);
  const auto use = [](Workspace<float>& workspace, Index rows, const auto& transition) {
    const Inputs x(rows, 3);
    State<float, Power> state(rows, e);
    MatrixXf Y(e, 3);
    chunked(Power{}, transition(rows, 3), x.Q, x.K, x.V, state, Y, workspace);
    attention(Power{}, transition(rows, 3), x.Q, x.K, x.V, Y, workspace);
  };
  use(all[1], 6, turning);
  use(all[2], 6, by_channel);
  use(all[3], d, turning);
  return all;
}

// A call that writes Y with a workspace, in which memory ends, and then with that workspace again: the same rows.
template <class Call>
void check_workspace(const Call& call) {
  MatrixXf expected(e, T), Y(e, T);
  Workspace<float> fresh;
  call(expected, fresh);
  const std::vector<Workspace<float>> used = workspaces_in_use();
  for (const Workspace<float>& before : used)
    each_failure([&](long n) {
      Workspace<float> workspace = before;
      Y.setZero();
      const bool done = ends_without(n, [&] { call(Y, workspace); });
      if (!done) call(Y, workspace);
      REQUIRE(Y == expected);
      return done;
    });
}

template <class F, class MakeTransition>
void check_attention(const F& feature, const MakeTransition& transition_of) {
  const Inputs x;
  const auto transition = transition_of(d, T);
  check_workspace([&](MatrixXf& Y, auto& workspace) {
    Diagnostics diagnostics;
    detail::reset(diagnostics, 2);
    Options diagnosed = options;
    diagnosed.diagnostics = &diagnostics;
    attention(feature, transition, x.Q, x.K, x.V, Y, workspace, diagnosed);
  });
}

template <class F, class MakeTransition>
void check_state_forms(const F& feature, const MakeTransition& transition_of) {
  const Inputs x;
  const auto transition = transition_of(d, T);
  State<float, F> empty(feature, d, e, tail), literal(feature, d, e, 0), begun = empty;
  static_cast<void>(chunked(feature, transition, x.Q, x.K, x.V, begun, options));
  const auto check = [&](const State<float, F>& before, const auto& form) {
    const std::string bytes = bytes_of(before);
    check_workspace([&](MatrixXf& Y, auto& workspace) {
      State<float, F> state = before;
      try {
        form(feature, transition, x.Q, x.K, x.V, state, Y, workspace, options);
      } catch (const std::bad_alloc&) {
        requests_counted();  // what follows may ask for memory
        REQUIRE(is_as_before(state, bytes));
        state = before;
        REQUIRE(bytes_of(state) == bytes);
        throw;
      }
    });
  };
  const auto chunks = [](auto&&... arguments) { chunked(arguments...); };
  const auto steps = [](auto&&... arguments) { recurrent(arguments...); };
  for (const auto* before : {&empty, &begun}) {
    check(*before, chunks);
    check(*before, steps);
  }
  check(literal, steps);
}

}  // namespace

TEST_CASE("attention after memory ended in it", "[bad_alloc]") {
  check_attention(Power{}, turning);
  check_attention(Power{}, by_channel);
  check_attention(Exponential{}, placed);
  check_attention(Exponential{}, mixing);
  check_attention(PositiveRandomFeatures(d, 6), turning);
}

TEST_CASE("a state in whose call memory ended is as it was or says that it is not", "[bad_alloc]") {
  check_state_forms(Power{}, turning);
  check_state_forms(Power{}, placed);
  check_state_forms(Power{}, by_channel);
  check_state_forms(Linear{}, mixing);
  check_state_forms(PositiveRandomFeatures(d, 6), turning);
}

TEST_CASE("a state whose call ended by an exception of a feature map refuses the next one", "[bad_alloc]") {
  const Inputs x;
  for (int calls = 0;; ++calls) {
    int left = calls;
    const Failing feature{&left};
    State<float, Failing> state(feature, d, e, tail);
    try {
      static_cast<void>(chunked(feature, turning(d, T), x.Q, x.K, x.V, state, options));
      break;
    } catch (int) {
      left = 1000;
      REQUIRE(state.interrupted());
      REQUIRE_THROWS_AS(chunked(feature, turning(d, T), x.Q, x.K, x.V, state, options), InterruptedState);
      state = State<float, Failing>(feature, d, e, tail);
      static_cast<void>(chunked(feature, turning(d, T), x.Q, x.K, x.V, state, options));
    }
  }
}

TEST_CASE("queries that stand against a state leave it marked if memory ends among them", "[bad_alloc]") {
  const Inputs x;
  Options all = options;
  all.mask = full();
  const auto transition = rotary(rope_frequencies<double>(d), Pairing::interleaved);
  const State<float, Power> before(d, e, tail);
  const std::string bytes = bytes_of(before);
  each_failure([&](long n) {
    State<float, Power> state = before;
    Workspace<float> workspace;
    MatrixXf Y(e, T);
    const bool done = ends_without(n, [&] { chunked(Power{}, transition, x.Q, x.K, x.V, state, Y, workspace, all); });
    if (!done) REQUIRE(is_as_before(state, bytes));
    return done;
  });
}

TEST_CASE("what is done to states has either happened or not", "[bad_alloc]") {
  const Inputs x;
  const auto filled = [&](Index rows, Index capacity, const auto& transition) {
    State<float, Power> state(rows, e, capacity);
    const Inputs own(rows);
    static_cast<void>(chunked(Power{}, transition, own.Q, own.K, own.V, state, options));
    return state;
  };
  const State<float, Power> left = filled(d, tail, turning(d, T)), other = filled(6, 3, turning(6, T)),
                            scaled = filled(d, tail, by_channel(d, T)), still = filled(d, tail, stationary());
  State<float, Power> right(d, e, tail, left.frame());
  static_cast<void>(chunked(Power{}, turning(d, T), x.Q, x.K, x.V, right, options));

  SECTION("merge, values, save and copies leave their arguments alone") {
    const std::string of_left = bytes_of(left), of_right = bytes_of(right);
    struct Sink : std::streambuf {
      Sink() { setp(memory.data(), memory.data() + memory.size()); }
      std::array<char, 1 << 14> memory;
    };
    const auto check = [&](const auto& call) {
      each_failure([&](long n) {
        const bool done = ends_without(n, call);
        REQUIRE(bytes_of(left) == of_left);
        REQUIRE(bytes_of(right) == of_right);
        return done;
      });
    };
    check([&] { static_cast<void>(merge(left, right)); });
    check([&] { static_cast<void>(left.values()); });
    check([&] { static_cast<void>(left.normalizer()); });
    check([&] {
      Sink sink;
      std::ostream out(&sink);
      save(left, out);
    });
    check([&] { const State<float, Power> copy = left; });
    check([&] { const State<float, Power> made(d, e, tail, left.frame()); });
    check([&] { const PositiveRandomFeatures made(d, 6); });
    check([&] { static_cast<void>(turning(d, T)); });
    check([&] { static_cast<void>(placed(d, T)); });
    check([&] { static_cast<void>(mixing(d, T)); });
  }
  SECTION("sums that are to lie otherwise lie as before, or do") {
    const std::string before = bytes_of(left);
    for (const bool rounds : {true, false})
      each_failure([&](long n) {
        State<float, Power> state = left;
        state.read_as_bf16(!rounds);
        const bool done = ends_without(n, [&] { state.read_as_bf16(rounds); });
        REQUIRE(state.reads_as_bf16() == (done == rounds));
        REQUIRE(bytes_of(state) == before);
        return done;
      });
  }
  SECTION("an assignment or a load that fails leaves the target as it was") {
    const std::array states{left, other, scaled, still, State<float, Power>(d, e, tail)};
    for (const auto& from : states)
      for (const auto& to : states) {
        const std::string before = bytes_of(to), after = bytes_of(from);
        each_failure([&](long n) {
          State<float, Power> target = to;
          const bool done = ends_without(n, [&] { target = from; });
          REQUIRE(bytes_of(target) == (done ? after : before));
          return done;
        });
        if (to.key_dimension() != from.key_dimension()) continue;
        each_failure([&](long n) {
          State<float, Power> target = to;
          std::istringstream file(after);
          const bool done = ends_without(n, [&] { load(target, file); });
          REQUIRE(bytes_of(target) == (done ? after : before));
          return done;
        });
      }
  }
  SECTION("an assignment of workspaces that fails leaves one that can be used") {
    const std::vector<Workspace<float>> used = workspaces_in_use();
    Workspace<float> fresh;
    MatrixXf Y(e, T), expected(e, T);
    attention(Power{}, turning(d, T), x.Q, x.K, x.V, expected, fresh, options);
    for (const auto& from : used)
      for (const auto& to : used) {
        long n = 0;
        for (bool done = false; !done; ++n) {
          Workspace<float> target = to;
          done = ends_without(n, [&] { target = from; });
          attention(Power{}, turning(d, T), x.Q, x.K, x.V, Y, target, options);
          REQUIRE(Y == expected);
        }
      }
  }
}

TEST_CASE("a long head by segments, whose state moves at the end or not", "[bad_alloc]") {
  constexpr Index tokens = 60;  // four segments
  const Inputs x(d, tokens);
  MatrixXf Y(e, tokens), expected(e, tokens);
  for (const int threads : {1, 2}) {
    const auto check = [&](const auto& transition) {
      const State<float, Power> before(d, e, tail);
      const auto scan = [&](State<float, Power>& state, MatrixXf& rows, Workspaces<float>& workspaces) {
        const detail::ViewOf<float, std::remove_cvref_t<decltype(transition)>> view(transition);
        const Power power;
        const detail::ForwardCall<float> call{detail::RowKind::weighted_means, &view, x.Q, x.K, x.V, options, rows};
        detail::scan<float, detail::PowerFeature<float>>(detail::pass_feature<float>(power), call,
                                                         detail::StateAccess::content(state), workspaces,
                                                         detail::threads_of_program(threads));
      };
      State<float, Power> after = before;
      Workspaces<float> fresh;
      scan(after, expected, fresh);
      each_failure([&](long n) {
        State<float, Power> state = before;
        Workspaces<float> workspaces;
        const bool done = ends_without(n, [&] { scan(state, Y, workspaces); });
        if (!done) {
          REQUIRE(bytes_of(state) == bytes_of(before));
          scan(state, Y, workspaces);
        }
        REQUIRE(bytes_of(state) == bytes_of(after));
        REQUIRE(Y == expected);
        return done;
      });
    };
    check(turning(d, tokens));
    if (threads == 1) check(by_channel(d, tokens));
  }
}

TEST_CASE("a batch in which memory ended", "[bad_alloc]") {
  constexpr Index B = 2, H = 2, length = 13;
  const Inputs x(d, B * H * length);
  MatrixXf Y(e, B * H * length), expected = Y;
  const auto transitions = [](Index, Index) { return turning(d, length); };
  struct Case {
    Form form;
    int threads;
    Index key_heads;
  };
  for (const auto [form, threads, key_heads] :
       {Case{Form::attention, 1, H}, Case{Form::attention, 2, 1}, Case{Form::recurrent, 1, H},
        Case{Form::recurrent, 2, 1}, Case{Form::chunked, 2, H}, Case{Form::chunked, 1, 1}}) {
    const auto q = Heads<const float>::bthd(x.Q.data(), B, length, H, d),
               k = Heads<const float>::bthd(x.K.data(), B, length, key_heads, d),
               v = Heads<const float>::bthd(x.V.data(), B, length, key_heads, e);
    const std::vector<State<float, Power>> before(static_cast<std::size_t>(B * key_heads),
                                                  State<float, Power>(d, e, tail));
    const bool is_kept = form != Form::attention;
    const auto run = [&, chosen_form = form, chosen_threads = threads](auto& states, MatrixXf& rows,
                                                                       Workspaces<float>& workspaces) {
      const auto y = Heads<float>::bthd(rows.data(), B, length, H, e);
      const BatchOptions chosen{.form = chosen_form, .threads = chosen_threads, .head = options};
      if (chosen_form == Form::attention)
        attend(Power{}, transitions, {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces, .options = chosen});
      else
        attend(Power{}, transitions,
               {.Q = q, .K = k, .V = v, .states = states, .Y = y, .workspaces = workspaces, .options = chosen});
    };
    auto after = before;
    Workspaces<float> fresh;
    run(after, expected, fresh);
    each_failure([&](long n) {
      auto states = before;
      Workspaces<float> workspaces;
      const bool done = ends_without(n, [&] { run(states, Y, workspaces); });
      if (!done) {
        // A head is done, or has not begun, or says that it was interrupted.
        for (std::size_t s = 0; s < states.size(); ++s)
          if (states[s].tokens() != length || states[s].interrupted())
            REQUIRE(is_as_before(states[s], bytes_of(before[s])));
          else
            REQUIRE(bytes_of(states[s]) == bytes_of(after[s]));
        states = before;
        run(states, Y, workspaces);
      }
      REQUIRE(Y == expected);
      for (std::size_t s = 0; s < states.size() && is_kept; ++s) REQUIRE(bytes_of(states[s]) == bytes_of(after[s]));
      return done;
    });
  }
}
