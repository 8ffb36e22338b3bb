// Gradients where numbers are extreme, gates are closed, and rows say nothing.
#include "require_by_rule.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 4, e = 3, T = 40;
constexpr double infinity = std::numeric_limits<double>::infinity();

template <class Scalar>
Problem<Scalar> problem(double gates = .1, std::uint64_t seed = 3) {
  Random random(seed);
  return {random, d, e, T, gates};
}

}  // namespace

TEST_CASE("a closed gate has the gradient 0, and one that is all but closed those of the definition", "[gradient]") {
  const auto check = [](auto norm, const auto& feature, const auto& x) {
    using Normalization = decltype(norm);
    CAPTURE(typeid(feature).name());
    for (const Index closed : {0, 1, 7, 8, 11, 15, 16, 39}) {  // in chunks of 8: first, middle and last
      CAPTURE(closed);
      auto large = x;
      large.dY.rightCols(T - closed) *= 1e4f;
      for (const double gate : {-infinity, -1e5}) {
        large.parameters.log_gamma[closed] = gate;
        const auto A = decay(large.parameters.log_gamma);
        check_forms<Normalization>(feature, A, large);
        const auto zero_at = [&](const auto& g) { CHECK(g.transition.log_gamma[closed] == 0); };
        zero_at(attention_vjp<Normalization>(feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = large.dY}));
        if constexpr (has_state_forms<std::remove_cvref_t<decltype(feature)>, Decay>)
          for (const Index chunk : {1, 8})
            zero_at(chunked_vjp<Normalization>(
                feature, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = large.dY, .options = {.chunk = chunk}}));
      }
    }
  };
  check(Normalized{}, SymmetricPower<2>{}, problem<double>());
  check(Normalized{}, Exponential{}, problem<double>());
  check(Unnormalized{}, Linear{}, problem<float>(3));
}

TEST_CASE("queries and keys of 0 have the gradients of linear sums, and none of means of squares", "[gradient]") {
  auto x = problem<double>();
  x.Q.col(0).setZero(), x.Q.col(9).setZero(), x.Q.col(39).setZero();
  x.K.col(1).setZero(), x.K.col(10).setZero(), x.K.col(38).setZero();
  const auto A = decay(x.parameters.log_gamma);
  check_forms<Unnormalized>(Linear{}, A, x);
  check_forms<Unnormalized>(SymmetricPower<2>{}, A, x);
  check_forms<Normalized>(SymmetricPower<2>{}, A, x);
  check_forms<Unnormalized>(SymmetricPower<3>{}, A, x);
  check_forms<Normalized>(Exponential{}, A, x);
  const auto turn = rotary(x.parameters.theta, x.parameters.beta, Pairing::interleaved);
  check_forms<Unnormalized>(Linear{}, turn, x, {"", Steps::rates});
  check_forms<Unnormalized>(Linear{}, householder(x.parameters.w, x.parameters.strengths), x, {"", Steps::mixing});
  const auto sums = attention_vjp<Unnormalized>(Linear{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY});
  const auto means = attention_vjp<Normalized>(SymmetricPower<2>{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY});
  for (const Index t : {9, 39}) {
    CHECK(sums.Q.col(t).norm() > 0);
    CHECK(means.Q.col(t).isZero(0));
  }
  for (const Index t : {1, 10, 38}) {
    CHECK(sums.K.col(t).norm() > 0);
    CHECK(means.K.col(t).isZero(0));
  }
}

// Whatever the row of such a query is, it adds nothing to the state's gradient, which is far below it here.
TEST_CASE("a query of 0 between gates that nearly close has no part in gradients of sums", "[gradient]") {
  const auto check = [](auto x, double gate) {
    x.parameters.log_gamma.segment(10, 3).setConstant(gate);
    x.parameters.log_a.middleCols(10, 3).setConstant(gate);
    x.K.rightCols(T - 10).setZero();
    x.Q.middleCols(10, 2).setZero();
    const auto& p = x.parameters;
    const Wide least = 4096 * Wide(std::numeric_limits<typename decltype(x.Q)::Scalar>::denorm_min());
    check_forms<Unnormalized>(SymmetricPower<3>{}, decay(p.log_gamma), x, {}, {}, least);
    check_forms<Unnormalized>(SymmetricPower<2>{}, channel_decay(p.log_a), x, {"", Steps::channels}, {}, least);
  };
  for (const double gate : {-90., -200.}) check(problem<float>(), gate);
  for (const double gate : {-745., -1e4}) check(problem<double>(), gate);
}

TEST_CASE("a scale of 0 has the gradient of linear sums", "[gradient]") {
  const auto x = problem<double>();
  const auto A = decay(x.parameters.log_gamma);
  check_forms<Unnormalized>(Linear{}, A, x, {}, {.scale = 0});
  check_forms<Unnormalized>(SymmetricPower<2>{}, A, x, {}, {.scale = 0});
  check_forms<Normalized>(SymmetricPower<2>{}, A, x, {}, {.scale = 0});
  check_forms<Normalized>(Exponential{}, A, x, {}, {.scale = 0});
  CHECK(attention_vjp<Unnormalized>(Linear{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.scale = 0}})
            .scale != 0);
  const auto squares = attention_vjp<Unnormalized>(SymmetricPower<2>{}, A,
                                                   {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.scale = 0}});
  CHECK(squares.scale == 0);
  CHECK(squares.K.isZero(0));
}

TEST_CASE("a logit of 0 has the slope 0 of an even power, and logits of both signs that of an odd one", "[gradient]") {
  auto x = problem<double>();
  x.Q.topRows(2).setZero(), x.K.leftCols(20).bottomRows(2).setZero();  // what the first twenty keys give is 0
  const auto A = decay(x.parameters.log_gamma);
  check_forms<Unnormalized>(SymmetricPower<2>{}, A, x);
  check_forms<Normalized>(SymmetricPower<2>{}, A, x);
  check_forms<Unnormalized>(SymmetricPower<3>{}, A, x);
  const auto squares = attention_vjp<Unnormalized>(SymmetricPower<2>{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY});
  CHECK(squares.Q.leftCols(20).isZero(0));
  CHECK(squares.K.leftCols(20).isZero(0));
}

TEST_CASE("gradients of one row alone, the first or the last", "[gradient]") {
  for (const Index row : {Index(0), Index(17), T - 1}) {
    CAPTURE(row);
    auto x = problem<float>();
    x.dY.leftCols(row).setZero(), x.dY.rightCols(T - 1 - row).setZero();
    const auto& p = x.parameters;
    const SymmetricPower<2> power;
    check_forms<Normalized>(power, decay(p.log_gamma), x);
    check_forms<Unnormalized>(Linear{}, decay(p.log_gamma), x);
    check_forms<Normalized>(Exponential{}, decay(p.log_gamma), x);
    check_forms<Normalized>(power, rotary(p.theta, p.beta, Pairing::interleaved), x, {"", Steps::rates});
    check_forms<Normalized>(power, channel_decay(p.log_a), x, {"", Steps::channels});
  }
}

TEST_CASE("gradients with keys of 10^6 and 10^-6", "[gradient]") {
  const Index few = 24;
  const SymmetricPower<8> feature;
  for (const bool falling : {false, true}) {
    CAPTURE(falling);
    Random random(5);
    Problem<float> x(random, 2, 2, few, .1);
    for (Index t = 0; t < few; ++t) x.K.col(t) *= (falling ? t < few / 2 : t % 2 == 0) ? 1e6f : 1e-6f;
    const Wide least = 4 * Wide(std::numeric_limits<float>::denorm_min());
    for (const double gates : {.1, 3.}) {
      x.parameters.log_gamma = -gates * random.vector(few).cwiseAbs();
      check_forms<Normalized>(feature, decay(x.parameters.log_gamma), x, {}, {}, least);
    }
    check_forms<Normalized>(feature, rotary(x.parameters.theta, Pairing::interleaved), x, {"", Steps::fixed_rates}, {},
                            least);
  }
}

TEST_CASE("a row of which nothing is asked may see a key that is too heavy for those before it", "[gradient]") {
  for (const Index row : {3, 20, 39}) {
    auto x = problem<float>();
    x.K *= 1e-6f;
    x.K.col(row) *= 1e12f;
    x.dY.col(row).setZero();
    x.dY.rightCols(T - row).setZero();
    const auto check = [&](const auto& g) {
      CAPTURE(row);
      CHECK(g.Q.allFinite());
      CHECK(g.K.allFinite());
      CHECK(g.V.allFinite());
      CHECK(g.K.leftCols(row).norm() > 0);
      CHECK(g.K.rightCols(T - row).isZero(0));
    };
    const auto A = decay(x.parameters.log_gamma);
    check(attention_vjp(SymmetricPower<8>{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY}));
    for (const Index chunk : {5, 16})
      check(
          chunked_vjp(SymmetricPower<8>{}, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.chunk = chunk}}));
  }
}

// At each of these tokens all channels nearly close, or some close and the others nearly do, and no key is near.
TEST_CASE("gradients of rows that see only what nearly closed channels have left", "[gradient]") {
  const auto check = [](auto norm, const auto& feature, auto x, double gate, std::initializer_list<Index> tokens) {
    using Normalization = decltype(norm);
    using Scalar = typename decltype(x.Q)::Scalar;
    // What rows with keys of their own have from before is below all numbers.
    const Wide least = 4096 * Wide(std::numeric_limits<Scalar>::denorm_min());
    for (const bool half : {false, true}) {
      CAPTURE(gate, half, tokens.size());
      for (const Index t : tokens) {
        x.parameters.log_a.col(t).setConstant(gate);
        if (half) x.parameters.log_a.col(t).head(2).setConstant(-infinity);
        x.K.middleCols(t, 2).setZero();
      }
      const Kind kind{"", Steps::channels};
      check_forms<Normalization>(feature, channel_decay(x.parameters.log_a), x, kind, {}, least);
      if constexpr (std::is_same_v<Scalar, double>)
        check_forms<Normalization>(feature, decay(x.parameters.log_gamma) * channel_decay(x.parameters.log_a), x, kind,
                                   {}, least);
    }
  };
  check(Normalized{}, SymmetricPower<8>{}, problem<float>(), -15, {9});
  check(Normalized{}, SymmetricPower<8>{}, problem<float>(), -15, {9, 10, 11});
  check(Normalized{}, SymmetricPower<8>{}, problem<float>(), -30, {7, 8, 16});
  check(Normalized{}, SymmetricPower<2>{}, problem<float>(), -60, {15, 16});
  check(Normalized{}, SymmetricPower<2>{}, problem<float>(), -400, {0, 1, 38});
  check(SignedNormalized{}, SymmetricPower<3>{}, problem<double>(), -400, {9});
  check(Unnormalized{}, SymmetricPower<3>{}, problem<double>(), -60, {8, 9});
}

// One channel is open at each of some tokens, none over several; keys from among them on are much shorter. A row of
// sums of positive numbers has q·dq = P y·dy: what it has lost would be missing there.
TEST_CASE("gradients of rows whose channels have forgotten longer keys", "[gradient]") {
  constexpr Index tokens = 300, channels = 4, values = 3, first = 86, shorter = 94, end = 102;
  const auto F = SymmetricPower<2>{};
  Random random(3);
  const Eigen::MatrixXd Q = random.matrix(channels, tokens), V = random.matrix(values, tokens).cwiseAbs(),
                        dY = random.matrix(values, tokens).cwiseAbs();
  Eigen::MatrixXd K = random.matrix(channels, tokens);
  K.rightCols(tokens - shorter) *= 1e-20;
  for (const double gate : {-15., -60.}) {
    Eigen::MatrixXd log_a = Eigen::MatrixXd::Constant(channels, tokens, -.01);
    for (Index t = first; t < end; ++t)
      for (Index c = 0; c < channels; ++c) log_a(c, t) = t % channels == c ? 0 : gate;
    const auto A = channel_decay(log_a);
    const Eigen::MatrixXd Y = attention<Unnormalized>(F, A, Q, K, V);
    const auto direct = attention_vjp<Unnormalized>(F, A, {.Q = Q, .K = K, .V = V, .dY = dY}),
               by_chunks = chunked_vjp<Unnormalized>(F, A, {.Q = Q, .K = K, .V = V, .dY = dY, .options = {.chunk = 8}});
    for (Index i = 0; i < tokens; ++i) {
      const double twice = 2 * Y.col(i).dot(dY.col(i));
      CAPTURE(gate, i, twice);
      CHECK(std::abs(Q.col(i).dot(direct.Q.col(i)) - twice) <= 1e-6 * twice);
      CHECK(std::abs(Q.col(i).dot(by_chunks.Q.col(i)) - twice) <= 1e-6 * twice);
    }
  }
}

TEST_CASE("gradients of losses of 10^25 and 10^-25 in turn", "[gradient]") {
  auto x = problem<float>();
  for (Index t = 0; t < T; ++t) x.dY.col(t) *= t % 2 == 0 ? 1e25f : 1e-25f;
  const auto A = decay(x.parameters.log_gamma);
  check_forms<Normalized>(SymmetricPower<2>{}, A, x);
  check_forms<Unnormalized>(Linear{}, A, x);
  check_forms<Normalized>(Exponential{}, A, x);
  check_forms<Normalized>(SymmetricPower<2>{}, rotary(x.parameters.theta, x.parameters.beta, Pairing::interleaved), x,
                          {"", Steps::rates});
  check_forms<Normalized>(SymmetricPower<2>{}, channel_decay(x.parameters.log_a), x, {"", Steps::channels});
  check_forms<Unnormalized>(Linear{}, householder(x.parameters.w.cast<float>(), x.parameters.strengths), x,
                            {"", Steps::mixing});
}

TEST_CASE("gradients where all channels forget fast", "[gradient]") {
  auto x = problem<float>();
  x.parameters.log_a.setConstant(-1.2);
  const Kind kind{"", Steps::channels};
  const Wide least = 4 * Wide(std::numeric_limits<float>::denorm_min());
  check_forms<Normalized>(SymmetricPower<2>{}, channel_decay(x.parameters.log_a), x, kind, {}, least);
  check_forms<Normalized>(SymmetricPower<8>{}, channel_decay(x.parameters.log_a), x, kind, {}, least);
  for (const Index t : {5, 16, 31}) x.parameters.log_a.col(t).setConstant(-400);
  check_forms<Normalized>(SymmetricPower<2>{}, channel_decay(x.parameters.log_a), x, kind, {}, least);
  check_forms<Unnormalized>(Linear{}, channel_decay(x.parameters.log_a), x, kind, {}, least);
}

TEST_CASE("gradients of linear sums whose queries are 10^-30", "[gradient]") {
  auto x = problem<float>();
  for (Index t = 0; t < T; t += 3) x.Q.col(t) *= 1e-30f;
  const auto A = decay(x.parameters.log_gamma);
  check_forms<Unnormalized>(Linear{}, A, x);
  check_forms<Unnormalized>(Linear{}, rotary(x.parameters.theta, x.parameters.beta, Pairing::interleaved), x,
                            {"", Steps::rates});
  check_forms<SignedNormalized>(Linear{}, A, x);
  x.Q *= 1e-30f;
  check_forms<Unnormalized>(Linear{}, A, x, {}, {}, 4 * Wide(std::numeric_limits<float>::denorm_min()));
}

TEST_CASE("gradients with values near the end of the type", "[gradient]") {
  auto x = problem<float>();
  x.V *= 1e30f;
  const auto A = decay(x.parameters.log_gamma);
  check_forms<Normalized>(Exponential{}, A, x);
  check_forms<Unnormalized>(Linear{}, A, x);
  check_forms<Normalized>(SymmetricPower<2>{}, A, x);
  // A state makes room for values in the exponent of its sums, which the weights of rows must not take for theirs.
  x = problem<float>();
  x.V *= 1e-25f;
  check_forms<Normalized>(SymmetricPower<2>{}, A, x);
}

TEST_CASE("gradients of keys of 10^-25 beside others, in squares", "[gradient]") {
  const Wide least = 4 * Wide(std::numeric_limits<float>::denorm_min());  // of dV, which is below all numbers
  for (const bool falling : {false, true}) {
    auto x = problem<float>();
    for (Index t = 0; t < T; ++t)
      if (falling ? t >= 20 : t % 2 == 0) x.K.col(t) *= 1e-25f;
    check_forms<Normalized>(SymmetricPower<2>{}, decay(x.parameters.log_gamma), x, {}, {}, least);
    check_forms<Unnormalized>(SymmetricPower<2>{}, decay(x.parameters.log_gamma), x, {}, {}, least);
    check_forms<Normalized>(SymmetricPower<2>{}, rotary(x.parameters.theta, x.parameters.beta, Pairing::interleaved), x,
                            {"", Steps::rates}, {}, least);
    check_forms<Normalized>(SymmetricPower<2>{}, channel_decay(x.parameters.log_a), x, {"", Steps::channels}, {},
                            least);
    x.dY *= 1e20f;
    check_forms<Normalized>(SymmetricPower<2>{}, decay(x.parameters.log_gamma), x, {}, {}, least);
  }
}

TEST_CASE("gradients of keys of 10^-25 in blocks of attention, beside others and by themselves", "[gradient]") {
  Random random(6);
  for (const bool by_blocks : {false, true}) {
    Problem<float> x(random, d, 2, 190, .02);  // blocks of 96
    for (Index t = 0; t < 190; ++t)
      if (by_blocks ? t < 96 : t % 3 == 0) x.K.col(t) *= 1e-25f;
    x.dY.leftCols(by_blocks ? 96 : 0).setZero();  // so that only rows behind their block ask for the short keys
    check_forms<Normalized>(SymmetricPower<2>{}, decay(x.parameters.log_gamma), x, {}, {},
                            4 * Wide(std::numeric_limits<float>::denorm_min()), {});
  }
}

TEST_CASE("what is not a number in dY or V is seen, and nothing crashes", "[gradient]") {
  const auto check = [](const auto& feature, const auto& transition, const auto& x) {
    for (const bool in_values : {false, true}) {
      auto broken = x;
      (in_values ? broken.V : broken.dY)(1, 20) = std::numeric_limits<float>::quiet_NaN();
      const auto seen = [&](const auto& g) {
        CHECK_FALSE(g.Q.allFinite());
        CHECK_FALSE(g.K.allFinite());
      };
      seen(attention_vjp(feature, transition, {.Q = broken.Q, .K = broken.K, .V = broken.V, .dY = broken.dY}));
      for (const Index chunk : {1, 16})
        seen(chunked_vjp(feature, transition,
                         {.Q = broken.Q, .K = broken.K, .V = broken.V, .dY = broken.dY, .options = {.chunk = chunk}}));
      CHECK_THROWS_AS(
          attention_vjp(
              feature, transition,
              {.Q = broken.Q, .K = broken.K, .V = broken.V, .dY = broken.dY, .options = {.check_finite = true}}),
          NotFinite);
    }
  };
  const auto x = problem<float>();
  check(SymmetricPower<2>{}, decay(x.parameters.log_gamma), x);
  check(SymmetricPower<2>{}, channel_decay(x.parameters.log_a), x);
  check(Linear{}, householder(x.parameters.w.cast<float>(), x.parameters.strengths), x);
}

TEST_CASE("what flows through a chunk of tiny keys between others", "[gradient]") {
  auto x = problem<double>();
  x.K *= 1e80;
  x.K.middleCols(16, 16) *= 1e-160;
  x.dY.leftCols(32).setZero();
  const auto power = SymmetricPower<2>{};
  const Wide least = 4 * Wide(std::numeric_limits<double>::denorm_min());  // what the values of tiny keys get
  check_forms<Normalized>(power, rotary(x.parameters.theta, x.parameters.beta, Pairing::interleaved), x,
                          {"", Steps::rates}, {}, least);
  check_forms<Normalized>(power, channel_decay(x.parameters.log_a), x, {"", Steps::channels}, {}, least);
  auto y = problem<double>();
  y.K.middleCols(16, 16).colwise().normalize();
  y.K.middleCols(16, 16) *= 45;  // e^{-45²/2} in φ
  y.dY.middleCols(16, 16).setZero();
  const auto A = rotary(y.parameters.theta, y.parameters.beta, Pairing::interleaved);
  const auto found = chunked_vjp(PositiveRandomFeatures(d, 16), A,
                                 {.Q = y.Q, .K = y.K, .V = y.V, .dY = y.dY, .options = {.chunk = 16}});
  CHECK(found.transition.theta.allFinite());
  CHECK(found.transition.beta.allFinite());
}

TEST_CASE("gradients of gates where lengths leave the type and scores do not", "[gradient]") {
  auto x = problem<double>();
  for (auto* X : {&x.Q, &x.K}) X->setZero();
  x.Q.row(0).setConstant(1e80);
  x.K.row(1).setConstant(1e80);
  x.dY *= 1e-5;
  const auto power = SymmetricPower<2>{};
  for (const double common : {1e70, 0.}) {
    CAPTURE(common);
    x.K.row(0).setConstant(common);
    const auto check = [&](const auto& A, const auto& of_steps) {
      const auto by_attention = attention_vjp<Unnormalized>(power, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY});
      const auto by_chunks =
          chunked_vjp<Unnormalized>(power, A, {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.chunk = 8}});
      for (const auto* found : {&by_attention, &by_chunks}) {
        CHECK(of_steps(*found).allFinite());
        if (common == 0) CHECK(of_steps(*found).isZero(0));
      }
    };
    check_forms<Unnormalized>(power, decay(x.parameters.log_gamma), x);
    check(decay(x.parameters.log_gamma), [](const auto& g) { return g.transition.log_gamma; });
    check(channel_decay(x.parameters.log_a), [](const auto& g) { return g.transition.log_a; });
  }
}

TEST_CASE("gradients of means of scores near the end of the type", "[gradient]") {
  auto x = problem<double>();
  x.Q.bottomRows(d - 1).setZero();
  x.K.row(0) *= 1e-152;
  x.V *= 1e6;
  const auto found = chunked_vjp<Normalized>(SymmetricPower<2>{}, decay(x.parameters.log_gamma),
                                             {.Q = x.Q, .K = x.K, .V = x.V, .dY = x.dY, .options = {.chunk = T}});
  CHECK(found.V.allFinite());
  CHECK(found.K.allFinite());
  CHECK(found.V.norm() > 0);
}

TEST_CASE("exponential scores of queries of 2^70 and keys of 2^-70 have the gradients of those near 1", "[gradient]") {
  constexpr Index several_blocks = 120;
  Random random(71);
  const auto draw = [&] { return Eigen::MatrixXf(random.matrix(d, several_blocks).cast<float>()); };
  const Eigen::MatrixXf Q = draw(), K = draw(), V = draw(), dY = draw();
  const auto A = constant_decay(.95);
  const auto near = attention_vjp(Exponential{}, A, {.Q = Q, .K = K, .V = V, .dY = dY});
  for (const float s : {0x1p70f, 0x1p-70f}) {
    const auto far = attention_vjp(Exponential{}, A, {.Q = Q * s, .K = K / s, .V = V, .dY = dY});
    CHECK(far.Q * s == near.Q);
    CHECK(far.K / s == near.K);
    CHECK(far.V == near.V);
  }
}
