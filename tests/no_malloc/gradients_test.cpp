// Gradients with warm memory ask for it some times a block or a chunk, for frames, states and the gradients of the
// transition, and never by the token or the pair.
#include <typeinfo>
#include <vector>

#include <sympow/attention/batch_vjp.hpp>
#include <sympow/attention/gradients.hpp>

#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

#include "catch.hpp"
#include "random.hpp"
#include "requests.hpp"

using namespace sympow;
using sympow::test::Random, sympow::test::requests_of;

namespace {

constexpr Index d = 8, e = 5, chunk = 16;

// How often a call may ask: for the transition's gradient, so often beside it, and so often by block or chunk.
struct Allowed {
  long beside, by_part;
  [[nodiscard]] long requests(long of_parameters, Index parts) const {
    return of_parameters + beside + by_part * static_cast<long>(parts);
  }
};

template <class Scalar, class F, class A>
void check(const A& transition, Index T, const Allowed& by_blocks, const Allowed& by_chunks) {
  Random random(1);
  const Matrix<Scalar> Q = random.matrix<Scalar>(d, T), K = random.matrix<Scalar>(d, T),
                       V = random.matrix<Scalar>(e, T), dY = random.matrix<Scalar>(e, T);
  const long of_parameters = requests_of([&] { static_cast<void>(transition.zero_gradient(T)); });
  Gradients<Scalar, A> gradients;
  VjpWorkspace<Scalar> workspace;
  Options options{.scale = .5, .chunk = chunk};
  const auto directly = [&] {
    gradients = attention_vjp(
        F{}, transition,
        {.Q = Q, .K = K, .V = V, .dY = dY, .reuse = gradients, .workspace = workspace, .options = options});
  };
  CAPTURE(T, typeid(F).name(), typeid(A).name());
  directly();
  CHECK(requests_of(directly) <= by_blocks.requests(of_parameters, (T + 95) / 96));

  const State<Scalar, F> state(d, e);
  for (const Index spacing : {0, 1, 3}) {
    options.checkpoint = spacing;
    StateGradient<Scalar, F> adjoint(d, e);
    const auto chunks = [&] {
      gradients = chunked_vjp(F{}, transition,
                              {.Q = Q,
                               .K = K,
                               .V = V,
                               .dY = dY,
                               .state = state,
                               .d_state = adjoint,
                               .reuse = gradients,
                               .workspace = workspace,
                               .options = options});
    };
    chunks();
    CHECK(requests_of(chunks) <= by_chunks.requests(of_parameters, (T + chunk - 1) / chunk));
  }
}

template <class Scalar, class F>
void check_transitions() {
  for (const Index T : {50, 200, 400}) {
    Random random(2);
    const Eigen::VectorXd log_gamma = -.01 * random.vector(T).cwiseAbs(), beta = random.vector(T);
    const Eigen::VectorXd theta = rotary_frequencies<double>(d, 4096);
    check<Scalar, F>(decay(log_gamma), T, {0, 1}, {40, 4});
    check<Scalar, F>(decay(log_gamma) * rotary(theta, beta, Pairing::interleaved), T, {0, 5}, {40, 8});
    constexpr long copy = 4;  // of the gates, beside those of the slowest channel
    check<Scalar, F>(channel_decay(-.01 * random.matrix(d, T).cwiseAbs()), T, {copy, 1}, {40 + copy, 5});
  }
}

}  // namespace

TEST_CASE("gradients ask for memory by the block and the chunk alone", "[no_malloc]") {
  check_transitions<float, SymmetricPower<2>>();
  check_transitions<double, SymmetricPower<3>>();
}

TEST_CASE("gradients of a chain ask for memory by the piece", "[no_malloc]") {
  for (const Index T : {50, 200, 400}) {
    Random random(3);
    const Matrix<float> w = random.matrix<float>(d, T).colwise().normalized();
    const long blocks = (T + 95) / 96;
    check<float, Linear>(householder(w, random.vector(T)), T, {30, 20 * blocks}, {40, 25});
  }
}

TEST_CASE("gradients of a batch whose workspaces are warm ask as their heads do", "[no_malloc]") {
  constexpr Index B = 2, T = 64, H = 4, groups = 2;
  Random random(3);
  const Matrix<float> Q = random.matrix<float>(d, B * T * H), K = random.matrix<float>(d, B * T * groups),
                      V = random.matrix<float>(e, B * T * groups), dY = random.matrix<float>(e, B * T * H);
  Matrix<float> dQ = Q, dK = K, dV = V;
  const auto heads = [](auto& x, Index count) {
    return Heads<std::remove_pointer_t<decltype(x.data())>>::bthd(x.data(), B, T, count, x.rows());
  };
  const auto gates = [](Index, Index) { return decay(Eigen::VectorXd::Constant(T, -.01)); };
  VjpWorkspaces<float> workspaces;
  for (const Form form : {Form::attention, Form::chunked}) {
    const auto call = [&] {
      static_cast<void>(attend_vjp(SymmetricPower<2>{}, gates,
                                   {.Q = heads(Q, H),
                                    .K = heads(K, groups),
                                    .V = heads(V, groups),
                                    .dY = heads(dY, H),
                                    .dQ = heads(dQ, H),
                                    .dK = heads(dK, groups),
                                    .dV = heads(dV, groups),
                                    .workspaces = workspaces,
                                    .options = {.form = form, .threads = 1, .head = {.chunk = chunk}}}));
    };
    call();
    // A head: its transition, made twice, and the gradient of it; then as above. The rest is of the batch.
    const long of_head = form == Form::attention ? 4 + 1 : 4 + 50 + 4 * T / chunk;
    CAPTURE(static_cast<int>(form));
    CHECK(requests_of(call) <= B * H * of_head + 60);
  }
}
