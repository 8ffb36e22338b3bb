// Memory may end at any allocation of a gradient: what is left can be used again and gives the same bits, and the
// gradient of a state is as it was.

#include <vector>

#include <sympow/attention/batch.hpp>
#include <sympow/attention/batch_vjp.hpp>
#include <sympow/attention/forms.hpp>
#include <sympow/feature/exponential.hpp>
#include <sympow/feature/linear.hpp>
#include <sympow/feature/symmetric_power.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

#include "../no_malloc/requests.hpp"
#include "catch.hpp"
#include "random.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

using Power = SymmetricPower<2>;
using Eigen::MatrixXf, Eigen::VectorXd;

constexpr Index d = 4, e = 3, T = 41;
const Options options{.scale = .5, .chunk = 8};

struct Inputs {
  Random random{1};
  MatrixXf Q = random.matrix<float>(d, T), K = random.matrix<float>(d, T), V = random.matrix<float>(e, T),
           dY = random.matrix<float>(e, T);
};

const VectorXd gates = -.05 * Random(2).vector(T).cwiseAbs(), rates = Random(3).vector(T);
auto turning() { return decay(gates) * rotary(rope_frequencies<double>(d), rates, Pairing::interleaved); }
auto by_channel() { return channel_decay(-.1 * Random(4).matrix(d, T).cwiseAbs()); }
auto mixing() {
  return decay(gates) * householder(Random(5).matrix<float>(d, T).colwise().normalized().eval(), Random(6).vector(T));
}

// All numbers of a call's gradients.
template <class A>
std::vector<double> numbers_of(const Gradients<float, A>& g) {
  std::vector<double> all{g.scale};
  const auto add = [&](const auto& x) {
    for (Index n = 0; n < x.size(); ++n) all.push_back(static_cast<double>(x.data()[n]));
  };
  const auto add_parameters = [&](const auto& self, const auto& of) -> void {
    if constexpr (requires { of.left(); }) self(self, of.left()), self(self, of.right());
    if constexpr (requires { of.log_gamma.size(); }) add(of.log_gamma);
    if constexpr (requires { of.log_a; }) add(of.log_a);
    if constexpr (requires { of.theta; }) add(of.theta);
    if constexpr (requires { of.beta; }) add(of.beta);
    if constexpr (requires { of.w; }) add(of.w);
  };
  add(g.Q), add(g.K), add(g.V);
  add_parameters(add_parameters, g.transition);
  return all;
}

// A call that fails at its n-th request, for every n, and is then made again with all that it has left.
template <class A, class Call, class Check>
void check_failures(const Call& call, const Check& check_left) {
  Gradients<float, A> expected;
  VjpWorkspace<float> fresh;
  call(expected, fresh);
  long n = 0;
  for (bool done = false; !done; ++n) {
    Gradients<float, A> gradients;
    VjpWorkspace<float> workspace;
    done = ends_without(n, [&] { call(gradients, workspace); });
    if (!done) {
      check_left();
      call(gradients, workspace);
    }
    REQUIRE(numbers_of(gradients) == numbers_of(expected));
  }
  REQUIRE(n > 1);
}

template <class F, class A>
void check_attention(const F& feature, const A& transition) {
  const Inputs x;
  check_failures<A>(
      [&](auto& gradients, auto& workspace) {
        gradients = attention_vjp(
            feature, transition,
            {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .reuse = gradients, .workspace = workspace, .options = options});
      },
      [] {});
  Tape<float, F> tape;
  MatrixXf Y(e, T);
  check_failures<A>(
      [&](auto& gradients, auto& workspace) {
        tape = {};
        attention(feature, transition, x.Q, x.K, x.V, {Y, tape}, workspace, options);
        gradients = attention_vjp(feature, transition,
                                  {.Q = x.Q,
                                   .K = x.K,
                                   .V = x.V,
                                   .dY = x.dY,
                                   .tape = tape,
                                   .reuse = gradients,
                                   .workspace = workspace,
                                   .options = options});
      },
      [&] { REQUIRE((tape.rows() == 0 || tape.rows() == T)); });
}

template <class F, class A>
void check_chunks(const F& feature, const A& transition) {
  Inputs x;
  State<float, F> state(feature, d, e, 8);
  static_cast<void>(chunked(feature, transition, x.Q, x.K, x.V, state, options));
  const Index D = state.normalizer().size();
  const MatrixXf dS = x.random.matrix<float>(e, D), dZ = x.random.matrix<float>(D, 1);
  const StateGradient<float, F> given(feature, d, dS, dZ);
  StateGradient<float, F> adjoint = given;
  check_failures<A>(
      [&](auto& gradients, auto& workspace) {
        adjoint = given;
        gradients = chunked_vjp(feature, transition,
                                {.Q = x.Q,
                                 .K = x.K,
                                 .V = x.V,
                                 .dY = x.dY,
                                 .state = state,
                                 .d_state = adjoint,
                                 .reuse = gradients,
                                 .workspace = workspace,
                                 .options = options});
      },
      [&] {
        REQUIRE(adjoint.values() == given.values());
        REQUIRE(adjoint.normalizer() == given.normalizer());
      });
}

}  // namespace

TEST_CASE("gradients of attention after memory ended in them", "[bad_alloc]") {
  check_attention(Power{}, turning());
  check_attention(Power{}, by_channel());
  check_attention(Exponential{}, mixing());
}

TEST_CASE("gradients by chunks after memory ended in them", "[bad_alloc]") {
  check_chunks(Power{}, turning());
  check_chunks(Power{}, by_channel());
  check_chunks(Linear{}, mixing());
}

TEST_CASE("a tape that is filled again from another tail, or for values of another size, after memory ended in it",
          "[bad_alloc]") {
  const Inputs x;
  const auto A = decay(gates);
  for (const auto& [rows, tail] : {std::pair<Index, Index>{e, 33}, {e + 4, 8}}) {
    const MatrixXf V = Random(9).matrix<float>(rows, T);
    long n = 0;
    for (bool done = false; !done; ++n) {
      Tape<float, Power> tape;
      State<float, Power> first(d, e, 8), second(d, rows, tail), third(d, rows, 4);
      MatrixXf Y(e, T), other(rows, T);
      chunked(Power{}, A, x.Q, x.K, x.V, first, {Y, tape}, {}, options);
      done = ends_without(n, [&] { chunked(Power{}, A, x.Q, x.K, V, second, {other, tape}, {}, options); });
      chunked(Power{}, A, x.Q, x.K, V, third, {other, tape}, {}, options);
    }
    REQUIRE(n > 1);
  }
}

TEST_CASE("a workspace that goes on to keys of another size after memory ended in it", "[bad_alloc]") {
  const auto run = [](Index rows, VjpWorkspace<float>& workspace) {
    const MatrixXf X = Random(8).matrix<float>(rows, T);
    return chunked_vjp(Linear{}, channel_decay(-.1 * Random(4).matrix(rows, T).cwiseAbs()),
                       {.Q = X, .K = X, .V = X, .dY = X, .workspace = workspace, .options = options})
        .K;
  };
  VjpWorkspace<float> fresh;
  const MatrixXf expected = run(10, fresh);
  long n = 0;
  for (bool done = false; !done; ++n) {
    VjpWorkspace<float> workspace;
    run(4, workspace);
    done = ends_without(n, [&] { run(10, workspace); });
    REQUIRE(run(10, workspace) == expected);
  }
  REQUIRE(n > 1);
}

TEST_CASE("gradients of a batch after memory ended in them", "[bad_alloc]") {
  constexpr Index B = 2, H = 2, groups = 1, length = 13;
  Random random(7);
  const MatrixXf Q = random.matrix<float>(d, B * H * length), K = random.matrix<float>(d, B * groups * length),
                 V = random.matrix<float>(e, B * groups * length), dY = random.matrix<float>(e, B * H * length);
  MatrixXf dQ = Q, dK = K, dV = V;
  const auto transitions = [](Index, Index) {
    return decay(gates.head(length)) * rotary(rope_frequencies<double>(d), rates.head(length), Pairing::interleaved);
  };
  const auto in = [](const MatrixXf& x, Index heads) {
    return Heads<const float>::bthd(x.data(), B, length, heads, x.rows());
  };
  const auto out = [](MatrixXf& x, Index heads) { return Heads<float>::bthd(x.data(), B, length, heads, x.rows()); };
  for (const Form form : {Form::attention, Form::chunked})
    for (const int threads : {1, 2}) {
      CAPTURE(static_cast<int>(form), threads);
      const auto run = [&](VjpWorkspaces<float>& workspaces) {
        return attend_vjp(Power{}, transitions,
                          {.Q = in(Q, H),
                           .K = in(K, groups),
                           .V = in(V, groups),
                           .dY = in(dY, H),
                           .dQ = out(dQ, H),
                           .dK = out(dK, groups),
                           .dV = out(dV, groups),
                           .workspaces = workspaces,
                           .options = {.form = form, .threads = threads, .head = options}});
      };
      VjpWorkspaces<float> fresh;
      const auto expected = run(fresh);
      const MatrixXf q = dQ, k = dK, v = dV;
      long n = 0;
      for (bool done = false; !done; ++n) {
        VjpWorkspaces<float> workspaces;
        decltype(run(workspaces)) found;
        done = ends_without(n, [&] { found = run(workspaces); });
        if (!done) found = run(workspaces);
        REQUIRE(dQ == q);
        REQUIRE(dK == k);
        REQUIRE(dV == v);
        for (std::size_t h = 0; h < found.transitions.size(); ++h) {
          REQUIRE(found.transitions[h].template of<Decay>().log_gamma ==
                  expected.transitions[h].template of<Decay>().log_gamma);
          REQUIRE(found.transitions[h].template of<Rotary>().beta ==
                  expected.transitions[h].template of<Rotary>().beta);
        }
      }
      REQUIRE(n > 1);
    }
}

TEST_CASE("gradients of states in a batch after memory ended in it", "[bad_alloc]") {
  constexpr Index H = 2;
  Random random(8);
  const MatrixXf Q = random.matrix<float>(d, H * T), K = random.matrix<float>(d, H * T),
                 V = random.matrix<float>(e, H * T), dY = random.matrix<float>(e, H * T);
  const Index D = Power{}.dimension(d);
  const std::vector<StateGradient<float, Power>> given(
      H, {Power{}, d, random.matrix<float>(e, D), random.matrix<float>(D, 1)});
  const std::vector<State<float, Power>> states(H, {d, e});
  const auto A = decay(gates);
  MatrixXf dQ = Q, dK = K, dV = V;
  const auto in = [](const MatrixXf& x) { return Heads<const float>::bthd(x.data(), 1, T, H, x.rows()); };
  const auto out = [](MatrixXf& x) { return Heads<float>::bthd(x.data(), 1, T, H, x.rows()); };
  const auto check = [&](const auto& run) {
    auto expected = given;
    VjpWorkspaces<float> fresh;
    run(expected, fresh);
    const MatrixXf q = dQ, k = dK, v = dV;
    long n = 0;
    for (bool done = false; !done; ++n) {
      auto adjoints = given;
      VjpWorkspaces<float> workspaces;
      done = ends_without(n, [&] { run(adjoints, workspaces); });
      if (!done) {
        for (const auto& adjoint : adjoints) {
          REQUIRE(adjoint.values() == given[0].values());
          REQUIRE(adjoint.normalizer() == given[0].normalizer());
        }
        run(adjoints, workspaces);
      }
      for (std::size_t h = 0; h < adjoints.size(); ++h) REQUIRE(adjoints[h].values() == expected[h].values());
      REQUIRE(dQ == q);
      REQUIRE(dK == k);
      REQUIRE(dV == v);
    }
    REQUIRE(n > 1);
  };
  check([&](auto& adjoints, auto& workspaces) {
    static_cast<void>(attend_vjp(Power{}, A,
                                 {.Q = in(Q),
                                  .K = in(K),
                                  .V = in(V),
                                  .dY = in(dY),
                                  .states = states,
                                  .d_states = adjoints,
                                  .dQ = out(dQ),
                                  .dK = out(dK),
                                  .dV = out(dV),
                                  .workspaces = workspaces,
                                  .options = {.threads = 1, .head = options}}));
  });
  check([&](auto& adjoints, auto& workspaces) {  // the engine of long heads
    for (auto* x : {&dQ, &dK, &dV}) x->setZero();
    auto gradient = A.zero_gradient(T);
    double scale = 0;
    auto to_Q = dQ.leftCols(T), to_K = dK.leftCols(T), to_V = dV.leftCols(T);
    const Power feature;
    const auto of_passes = detail::pass_feature<float>(feature);
    using OfPasses = detail::PowerFeature<float>;
    detail::VjpViewOf<float, Decay> of_call(A, gradient);
    const ConstBatch<float> of_Q = Q.leftCols(T), of_K = K.leftCols(T), of_V = V.leftCols(T), of_dY = dY.leftCols(T);
    detail::VjpInputs<float> inputs{{detail::RowKind::weighted_means, &of_call.transition(), of_Q, of_K, of_V, options},
                                    of_call,
                                    of_dY,
                                    {detail::StateAccess::content(states[0])}};
    inputs.d_state = detail::StateAccess::content(adjoints[0]);
    const detail::VjpResults<float> results{to_Q, to_K, to_V, scale};
    detail::ScanVjp<float, OfPasses>(of_passes, inputs, results, workspaces, detail::threads_of_program(1)).run();
  });
}
