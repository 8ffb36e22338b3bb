// attention = recurrent = chunked = the definition, by the row rule.
#include <sympow/sympow.hpp>
#include "catch.hpp"

#include <sympow/core/random.hpp>
#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;
using namespace sympow::verify;

namespace {

enum class Gates { none, slow, random };

// log γ: 0; about -.001, a window of a thousand tokens; log σ of normal numbers, a window of a few.
Eigen::VectorXd log_gates(Random& random, Index T, Gates gates) {
  if (gates == Gates::none) return Eigen::VectorXd::Zero(T);
  Eigen::VectorXd x(T);
  for (Index i = 0; i < T; ++i)
    x[i] = gates == Gates::slow ? -.002 * random.uniform() : -std::log1p(std::exp(-random.normal() - 1));
  return x;
}

template <class Scalar, class F>
double worst_row(const F& feature, Index d, Index e, Index T, Gates gates, std::uint64_t seed) {
  Random random(seed);
  const auto Q = random.matrix<Scalar>(d, T), K = random.matrix<Scalar>(d, T), V = random.matrix<Scalar>(e, T);
  const Eigen::VectorXd log_gamma = log_gates(random, T, gates);
  if (d % 2 != 0) return three_forms_law(feature, decay(log_gamma), Q, K, V).residual;
  const Eigen::VectorXd beta = Eigen::VectorXd::NullaryExpr(T, [&] { return 1 + std::tanh(random.normal()); });
  const auto conformal = decay(log_gamma) * rotary(rotary_frequencies<double>(d, 4096), beta, Pairing::interleaved);
  return three_forms_law(feature, conformal, Q, K, V).residual;
}

struct Shape {
  Index d, e;
};

template <class Scalar, class F>
void check(std::initializer_list<Shape> shapes, std::initializer_list<Index> lengths) {
  for (const auto [d, e] : shapes)
    for (const Index T : lengths)
      for (const Gates gates : {Gates::none, Gates::slow, Gates::random}) {
        CAPTURE(d, e, T, static_cast<int>(gates));
        REQUIRE(worst_row<Scalar>(F{}, d, e, T, gates, 11) <= 1);
      }
}

constexpr std::initializer_list<Index> all_lengths = {0, 1, 2, 63, 64, 65, 130, 1000};
constexpr std::initializer_list<Index> short_lengths = {1, 65, 130};

}  // namespace

TEST_CASE("the three forms agree in double, small shapes, every length", "[laws]") {
  check<double, Linear>({{1, 1}, {6, 3}}, all_lengths);
  check<double, SymmetricPower<1>>({{6, 3}}, all_lengths);
  check<double, SymmetricPower<2>>({{1, 2}, {2, 5}, {7, 3}, {16, 5}}, all_lengths);
  check<double, SymmetricPower<3>>({{1, 1}, {8, 5}}, all_lengths);
  check<double, SymmetricPower<4>>({{1, 1}, {5, 2}, {8, 3}}, all_lengths);
  check<double, Exponential>({{1, 1}, {8, 5}}, all_lengths);
}

TEST_CASE("the three forms agree in double, the dimensions of real heads", "[laws]") {
  check<double, Linear>({{64, 32}}, short_lengths);
  check<double, SymmetricPower<2>>({{64, 48}}, short_lengths);
  check<double, SymmetricPower<3>>({{32, 16}}, short_lengths);
  check<double, SymmetricPower<4>>({{16, 24}}, short_lengths);
  check<double, Exponential>({{64, 48}}, short_lengths);
}

TEST_CASE("the three forms agree in double, large states and a thousand tokens", "[laws][.long]") {
  check<double, SymmetricPower<2>>({{64, 48}}, {1000});
  check<double, SymmetricPower<3>>({{64, 3}, {32, 16}}, {130, 1000});
  check<double, SymmetricPower<4>>({{32, 3}, {16, 24}}, {130, 1000});
}

TEST_CASE("the three forms agree in float", "[laws]") {
  check<float, Linear>({{6, 3}}, {1, 65, 130});
  check<float, SymmetricPower<2>>({{16, 5}}, {1, 65, 130, 1000});
  check<float, SymmetricPower<4>>({{8, 3}}, {1, 65, 130});
}

TEST_CASE("the three forms agree under channel decay and for every chunk", "[laws]") {
  Random random(5);
  const Index d = 6, e = 4, T = 150;
  const auto Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T);
  const Eigen::MatrixXd slow = -random.matrix(d, T).cwiseAbs() * .01;
  const Eigen::VectorXd log_gamma = log_gates(random, T, Gates::slow);
  for (const Index chunk : {1, 2, 17, 64, 149, 150, 151, 1000}) {
    CAPTURE(chunk);
    const Options options{.scale = .7, .chunk = chunk};
    CHECK(three_forms_law(Linear{}, channel_decay(slow), Q, K, V, options).residual <= 1);
    CHECK(three_forms_law(SymmetricPower<2>{}, channel_decay(slow) * decay(log_gamma), Q, K, V, options).residual <= 1);
    CHECK(three_forms_law(SymmetricPower<3>{}, channel_decay(slow * 100), Q, K, V, options).residual <= 1);
    CHECK(three_forms_law(SymmetricPower<2>{}, constant_decay(.99) * stationary(), Q, K, V, options).residual <= 1);
  }
  CHECK(three_forms_law(Exponential{}, channel_decay(slow), Q, K, V).residual <= 1);
}

TEST_CASE("unnormalised and signed rows agree as well", "[laws]") {
  Random random(6);
  const Index d = 6, e = 4, T = 100;
  const auto Q = random.matrix(d, T), K = random.matrix(d, T), V = random.matrix(e, T);
  const auto transition =
      decay(log_gates(random, T, Gates::slow)) * rotary(rope_frequencies<double>(d), Pairing::half_split);
  CHECK(three_forms_law<Unnormalized>(SymmetricPower<2>{}, transition, Q, K, V).residual <= 1);
  CHECK(three_forms_law<Unnormalized>(Exponential{}, transition, Q, K, V).residual <= 1);
  CHECK(three_forms_law<SignedNormalized>(SymmetricPower<3>{}, transition, Q, K, V).residual <= 1);
}
