// Every transition keeps the promise of the protocol: logits and moved vectors are those of its dense A_i.
#include "catch.hpp"
#include "random.hpp"

#include <sympow/rotation/frequencies.hpp>
#include <sympow/transition/decay.hpp>
#include <sympow/transition/householder.hpp>
#include <sympow/transition/product.hpp>
#include <sympow/transition/rotary.hpp>

using namespace sympow;
using sympow::test::Random;

namespace {

constexpr double u = std::numeric_limits<double>::epsilon() / 2;

// q_iᵀ M_ij k_j with M_ij = (A_{j+1} … A_i)ᵀ for all j ≤ i, by the dense matrices.
template <class A>
Eigen::MatrixXd logits(const A& transition, const Eigen::MatrixXd& Q, const Eigen::MatrixXd& K) {
  const Index d = Q.rows(), T = Q.cols();
  Eigen::MatrixXd found(T, T), pulled = Q;  // the queries from the last token to j, as they see key j
  for (Index j = T; j-- > 0;) {
    found.col(j).tail(T - j) = pulled.rightCols(T - j).transpose() * K.col(j);
    pulled.rightCols(T - j) = (transition.key_matrix(j, d) * pulled.rightCols(T - j)).eval();
  }
  return found;
}

// Transports segment by segment; every logit, inside a segment and across with the pulls between, must be the defined
// one. Each of at most T steps is rounded, relative to the lengths of query and key: 8 T u of the scalar type S.
template <class S = double, class A>
void check_segment_frame(const A& transition, Index d, Index T, Random& random, Index longest = 9) {
  const Eigen::MatrixXd Q = random.matrix<S>(d, T).template cast<double>(),
                        K = random.matrix<S>(d, T).template cast<double>();
  const Eigen::MatrixXd expected = logits(transition, Q, K);
  constexpr double own_u = std::numeric_limits<S>::epsilon() / 2;
  Matrix<S> keys = K.cast<S>();
  std::vector<Segment> segments;
  Frame frame;
  for (Index begin = 0; begin < T; begin = segments.back().end()) {
    const Segment own{begin, std::min(random.integer(1, longest), T - begin)};
    Matrix<S> queries = Q.middleCols(begin, own.size).cast<S>(), inside(own.size, own.size);
    transition.template to_segment_frame<S>(frame, own, queries, keys.middleCols(begin, own.size), inside);
    const auto check = [&](auto found, Index i, Index j) {
      CAPTURE(T, d, i, j);
      REQUIRE(std::abs(static_cast<double>(found) - expected(i, j)) <=
              8 * static_cast<double>(T) * own_u * Q.col(i).norm() * K.col(j).norm());
    };
    for (Index i = 0; i < own.size; ++i)
      for (Index j = 0; j <= i; ++j) check(inside(j, i), begin + i, begin + j);
    for (auto earlier = segments.rbegin(); earlier != segments.rend(); ++earlier) {
      for (Index i = 0; i < own.size; ++i)
        for (Index j = earlier->begin; j < earlier->end(); ++j) check(queries.col(i).dot(keys.col(j)), begin + i, j);
      transition.template apply_to_queries<S>(*earlier, queries);
    }
    segments.push_back(own);
  }
}

}  // namespace

TEST_CASE("to_segment_frame and apply_to_queries give the defined logits", "[transition]") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
    CAPTURE(seed);
    Random random(seed);
    const Index d = 2 * random.integer(1, 5), T = random.integer(1, 40);
    const Eigen::VectorXd theta = random.vector(d / 2) * 3, beta = random.vector(T);
    const Eigen::MatrixXd log_a = -random.matrix(d, T).cwiseAbs();
    check_segment_frame(stationary(), d, T, random);
    check_segment_frame(constant_decay(.5), d, T, random);
    check_segment_frame(decay(-beta.cwiseAbs()), d, T, random);
    check_segment_frame(rotary(theta, Pairing::interleaved), d, T, random);
    check_segment_frame(rotary(theta, beta, Pairing::interleaved), d, T, random);
    check_segment_frame(rotary(theta, beta, Pairing::half_split), d, T, random);
    check_segment_frame(channel_decay(log_a), d, T, random);
    check_segment_frame(channel_decay(log_a * 500), d, T, random);  // e^-500 a token: nothing may overflow on the way
    check_segment_frame(decay(-beta.cwiseAbs()) * rotary(theta, beta, Pairing::interleaved), d, T, random);
    check_segment_frame(channel_decay(log_a) * constant_decay(.9), d, T, random);
  }
}

TEST_CASE("channel decay keeps the type of its gates and sums any number of tokens and channels", "[transition]") {
  Random random(7);
  for (const Index d : {16, 31, 64, 100}) {
    const Eigen::MatrixXf log_a = -random.matrix(d, 60).cwiseAbs().cast<float>();
    const auto narrow = channel_decay(log_a);
    const auto wide = channel_decay(log_a.cast<double>());
    static_assert(std::is_same_v<decltype(narrow), const ChannelDecay<float>>);
    static_assert(std::is_same_v<decltype(wide), const ChannelDecay<double>>);
    check_segment_frame(narrow, d, 60, random, 50);
    check_segment_frame<float>(narrow, d, 60, random, 50);
    check_segment_frame<float>(wide, d, 60, random, 50);
    for (const Segment segment : {Segment{0, 0}, Segment{3, 1}, Segment{0, 16}, Segment{15, 18}, Segment{1, 59}}) {
      Eigen::VectorXd narrow_totals(d), wide_totals(d);
      narrow.log_channel_totals(segment, narrow_totals);
      wide.log_channel_totals(segment, wide_totals);
      CHECK(narrow_totals == wide_totals);
      const Eigen::VectorXd sums = log_a.cast<double>().middleCols(segment.begin, segment.size).rowwise().sum();
      CHECK((narrow_totals - sums).cwiseAbs().maxCoeff() <= 64 * u * std::abs(sums.minCoeff()));
    }
  }
}

TEST_CASE("Householder chains give the defined logits, whatever the strengths", "[transition]") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
    Random random(seed);
    const Index d = random.integer(1, 9), T = random.integer(1, 90);
    CAPTURE(seed, d, T);
    const Eigen::MatrixXd w = random.matrix(d, T).colwise().normalized();
    const Eigen::VectorXd beta = random.vector(T).array().tanh() + 1, one = Eigen::VectorXd::Ones(T);
    check_segment_frame(householder(w, beta), d, T, random);
    for (const double strength : {0., 1., 2.}) check_segment_frame(householder(w, strength * one), d, T, random);
    const Eigen::MatrixXd same = w.col(0).replicate(1, T);  // every product within T is as large as it can be
    for (const double strength : {.5, 1., 2.}) check_segment_frame(householder(same, strength * one), d, T, random);
    check_segment_frame(decay(-beta) * householder(w, beta), d, T, random);
  }
}

// Log gates of d channels and T tokens: about -slowness, or -∞ for a share of channels, and for all of one token in
// ten.
Eigen::MatrixXd some_gates(Random& random, Index d, Index T, double slowness, double closed) {
  Eigen::MatrixXd log_a = -slowness * random.matrix(d, T).cwiseAbs();
  for (Index t = 0; t < T; ++t)
    for (Index c = 0; c < d; ++c)
      if (random.uniform() < closed || (closed > 0 && t % 10 == 7))
        log_a(c, t) = -std::numeric_limits<double>::infinity();
  return log_a;
}

TEST_CASE("channel gates before a Householder chain give the defined logits", "[transition]") {
  for (const std::uint64_t seed : {1u, 2u, 3u})
    for (const double slowness : {0., .01, 1., 20., 1000.})
      for (const double closed : {0., .02}) {
        Random random(seed);
        const Index d = random.integer(1, 20), T = random.integer(1, 160), longest = random.integer(1, 150);
        CAPTURE(seed, slowness, closed, d, T, longest);
        const Eigen::MatrixXd w = random.matrix(d, T).colwise().normalized(),
                              log_a = some_gates(random, d, T, slowness, closed);
        const Eigen::VectorXd beta = random.vector(T).array().tanh() + 1;
        check_segment_frame(channel_decay(log_a) * householder(w, beta), d, T, random, longest);
        check_segment_frame<float>(
            decay(-beta) * channel_decay(log_a.cast<float>()) * householder(w.cast<float>(), beta), d, T, random,
            longest);
      }
}

TEST_CASE("gates and a chain are one transition wherever scalar decays stand", "[transition]") {
  Random random(9);
  const Index d = 5, T = 70;
  const auto gates = channel_decay(some_gates(random, d, T, 1, .02));
  const auto chain = householder(random.matrix(d, T).colwise().normalized().eval(), Eigen::VectorXd::Constant(T, .7));
  const auto scalar = decay(-random.vector(T).cwiseAbs());
  const auto gated = gates * chain;
  static_assert(std::is_same_v<decltype(gated), const Householder<double>>);
  for (const Index t : {0, 7, 69})
    CHECK(gated.key_matrix(t, d) == gates.key_matrix(t, d).diagonal().asDiagonal() * chain.key_matrix(t, d));
  const Eigen::MatrixXd X = random.matrix(d, 3);
  const auto moved = [&](const auto& transition) {
    Eigen::MatrixXd columns = X;
    transition.template apply_to_queries<double>(Segment{1, T - 1}, columns);
    CHECK(transition.log_decay(3) == scalar.log_decay(3));
    return columns;
  };
  const Eigen::MatrixXd expected = moved(scalar * gated);
  CHECK(moved(scalar * gates * chain) == expected);
  CHECK(moved(gates * scalar * chain) == expected);
  CHECK(moved(gates * (scalar * chain)) == expected);
  CHECK(moved(gates * (chain * scalar)) == expected);
  CHECK((gates * gated).key_matrix(5, d).isApprox(gates.key_matrix(5, d) * gated.key_matrix(5, d)));
  const auto none = gates.part({0, 0}) * chain.part({0, 0});
  CHECK(none.is_gated());
  CHECK(none.zero_gradient(0).log_a.rows() == d);
  const auto flat = channel_decay(Eigen::MatrixXd(0, 3)) * householder(Eigen::MatrixXd(0, 3), Eigen::VectorXd::Ones(3));
  CHECK(flat.total_max_log_gate() == 0);
  CHECK_THROWS_AS(channel_decay(Eigen::MatrixXd::Zero(d, T - 1)) * chain, ShapeMismatch);
  CHECK_THROWS_AS(channel_decay(Eigen::MatrixXd::Zero(d + 1, T)) * chain, ShapeMismatch);
}

TEST_CASE("products of Householder factors act on queries, keys and states as their dense ones", "[transition]") {
  Random random(5);
  const Index T = 299, e = 130;
  for (const Index d : {0, 1, 7, 64, 65, 128, 129}) {
    const Eigen::VectorXd beta = random.vector(T).array().tanh() + 1;
    const auto plain = householder(random.matrix(d, T).colwise().normalized().eval(), beta);
    const auto gated = channel_decay(some_gates(random, d, T, 1, .001)) * plain;
    for (const auto& chain : {plain, gated})
      for (const Segment s : {Segment{0, 75},
                              {5, 3},
                              {15, 2},
                              {16, 16},
                              {3, 60},
                              {74, 1},
                              {20, 0},
                              {48, 48},
                              {96, 96},
                              {0, 299},
                              {47, 146},
                              {90, 198},
                              {144, 155}}) {
        Eigen::MatrixXd product = Eigen::MatrixXd::Identity(d, d), next = product;
        for (Index t = s.begin; t < s.end(); ++t) {
          sympow::detail::set_product(next, product, chain.key_matrix(t, d));
          product.swap(next);
        }
        const Eigen::MatrixXd X = random.matrix(d, e), rows = random.matrix(e, d);
        Eigen::MatrixXd pulled = X, pushed = X, advanced = rows;
        chain.apply_to_queries<double>(s, pulled);
        chain.apply_to_keys<double>(s, pushed);
        chain.apply_to_state<double>(s, advanced);
        const double bound = static_cast<double>(T) * u;  // of a contraction, a rounding a token
        CAPTURE(d, s.begin, s.size);
        CHECK((pulled - product * X).norm() <= bound * X.norm());
        CHECK((pushed - product.transpose() * X).norm() <= bound * X.norm());
        CHECK((advanced - rows * product).norm() <= bound * rows.norm());
      }
  }
}

TEST_CASE("long segments under a Householder chain give the defined logits", "[transition]") {
  Random random(6);
  const Index d = 9, T = 150;
  for (const Index longest : {40, 100, 150}) {
    const Eigen::VectorXd beta = random.vector(T).array().tanh() + 1;
    const auto chain = householder(random.matrix(d, T).colwise().normalized().eval(), beta);
    check_segment_frame(chain, d, T, random, longest);
  }
}

TEST_CASE("channels that are closed for good stay closed, and the others open", "[transition]") {
  Random random(7);
  Eigen::MatrixXd log_a = Eigen::MatrixXd::Zero(4, 20);
  log_a.row(1).setConstant(-std::numeric_limits<double>::infinity());
  log_a(2, 10) = -std::numeric_limits<double>::infinity();
  check_segment_frame(channel_decay(log_a), 4, 20, random);
}

TEST_CASE("the frame of a rotation is its angle so far, reduced", "[transition]") {
  Random random(8);
  const Index d = 6, T = 50;
  const Eigen::VectorXd theta = random.vector(d / 2) * 4, beta = random.vector(T);
  Eigen::MatrixXd Q = random.matrix(d, T), K = Q;
  const Eigen::MatrixXd before = K;
  Frame frame;
  const Rotary transition = rotary(theta, beta, Pairing::interleaved);
  transition.to_segment_frame<double>(frame, {0, 20}, Q.leftCols(20), K.leftCols(20), no_logits<double>());
  transition.to_segment_frame<double>(frame, {20, 30}, Q.rightCols(30), K.rightCols(30), no_logits<double>());
  for (Index j = 0; j < d / 2; ++j) {
    REQUIRE(std::abs(frame.numbers()[j]) <= std::numbers::pi);
    // T reductions and products, each rounded relative to at most π.
    REQUIRE(std::abs(reduced_angle(frame.numbers()[j] - beta.sum() * theta[j])) <= 100 * 4 * u * std::numbers::pi);
  }
  REQUIRE((K.col(T - 1) - BlockRotation<double>(frame.numbers()) * before.col(T - 1)).norm() <=
          8 * u * before.col(T - 1).norm());
}
