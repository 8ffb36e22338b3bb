// Streams of a million steps in float, with learned rotary: the last rows against the definition in double.
//
// The references share nothing with the library: angles are θ times Σ β, which is exact, in long double; under γ = .999
// every score within reach is evaluated, and for γ = 1, where all keys count, Σ v k kᵀ is summed in long double.
#include <sympow/rotation/frequencies.hpp>

#include "catch.hpp"
#include "forms.hpp"
#include "random.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 8, e = 2, checked = 4096, piece = 1000;
constexpr double u = std::numeric_limits<float>::epsilon() / 2;

// In units of the row rule. An honest stream has .02, for errors of many steps cancel; gates rounded to float have .4.
constexpr double bound = .05;

enum class Course { literal, recurrent, chunked };

// Queries and keys that mostly point along the slowest pair of the rotation, and values with a trend: the row condition
// number is about 3 and a row depends on all of its window, so that the rule sees small errors.
struct Stream {
  Index T;
  double log_gamma;
  Eigen::MatrixXf Q, K, V;
  Eigen::VectorXd beta, theta = rotary_frequencies<double>(d, 4096);

  Stream(Index length, double gamma, std::uint64_t seed) : T(length), log_gamma(std::log(gamma)) {
    Random random(seed);
    Q = .2F * random.matrix<float>(d, T);
    K = .2F * random.matrix<float>(d, T);
    V = .2F * random.matrix<float>(e, T);
    Q.row(d - 2).array() += 1;
    K.row(d - 2).array() += 1;
    for (Index t = 0; t < T; ++t) V.col(t).array() += static_cast<float>(std::sin(.005 * static_cast<double>(t)));
    // Multiples of 2^-20, so that sums of them are exact.
    beta = Eigen::VectorXd::NullaryExpr(
        T, [&] { return std::ldexp(std::round(std::ldexp(1 + std::tanh(random.normal()), 20)), -20); });
  }

  // The last rows of the library, the whole stream having gone through one state in pieces.
  [[nodiscard]] Eigen::MatrixXf last_rows(Course course) const {
    State<float, SymmetricPower<2>> state(d, e, course == Course::literal ? 0 : 32);
    Workspace<float> workspace;
    Eigen::MatrixXf Y(e, T);
    for (Index begin = 0; begin < T; begin += piece) {
      const Index n = std::min(piece, T - begin);
      const auto transition =
          decay(Eigen::VectorXd::Constant(n, log_gamma)) * rotary(theta, beta.segment(begin, n), Pairing::interleaved);
      const auto run = [&](const auto& run_form) {
        run_form(Q.middleCols(begin, n), K.middleCols(begin, n), V.middleCols(begin, n), Y.middleCols(begin, n),
                 transition);
      };
      if (course == Course::chunked)
        run([&](const auto& q, const auto& k, const auto& v, auto y, const auto& A) {
          chunked(SymmetricPower<2>{}, A, q, k, v, state, y, workspace);
        });
      else
        run([&](const auto& q, const auto& k, const auto& v, auto y, const auto& A) {
          recurrent(SymmetricPower<2>{}, A, q, k, v, state, y, workspace);
        });
    }
    return Y.rightCols(checked);
  }

  // Queries or keys turned by their absolute angles, in double.
  [[nodiscard]] Eigen::MatrixXd turned(const Eigen::MatrixXf& x) const {
    Eigen::MatrixXd y = x.cast<double>();
    double sum = 0;  // Σ β, exact
    for (Index t = 0; t < T; ++t) {
      sum += beta[t];
      for (Index n = 0; n < d / 2; ++n) {
        const Real angle = static_cast<Real>(sum) * static_cast<Real>(theta[n]);
        const auto c = static_cast<double>(std::cos(angle)), s = static_cast<double>(std::sin(angle));
        const double a = y(2 * n, t), b = y(2 * n + 1, t);
        y(2 * n, t) = c * a - s * b;
        y(2 * n + 1, t) = s * a + c * b;
      }
    }
    return y;
  }
};

// The last rows of the definition and what the rule allows them.
struct Expected {
  Eigen::MatrixXd Y{e, checked};
  Eigen::VectorXd condition{checked}, window{checked};
};

// Every score within reach of the gates: beyond 1e-18 of the weight nothing counts.
Expected by_scores(const Stream& stream) {
  const Eigen::MatrixXd Q = stream.turned(stream.Q), K = stream.turned(stream.K), V = stream.V.cast<double>();
  Expected rows;
  const auto reach = static_cast<Index>(-18 * std::numbers::ln10 / stream.log_gamma);
  Eigen::VectorXd gates(reach + 1), squares(stream.T);  // γ^age, ‖k_j‖²
  for (Index age = 0; age <= reach; ++age) gates[age] = std::exp(static_cast<double>(age) * stream.log_gamma);
  for (Index j = 0; j < stream.T; ++j) squares[j] = K.col(j).squaredNorm();
  for (Index n = 0; n < checked; ++n) {
    const Index i = stream.T - checked + n;
    const double* const q = &Q(0, i);
    double sums[e] = {}, scores = 0, absolute = 0, window = 0;
    for (Index j = std::max<Index>(0, i - reach); j <= i; ++j) {
      const double *const k = K.data() + j * d, *const v = V.data() + j * e, b = gates.data()[i - j];
      double logit = 0;
      for (Index c = 0; c < d; ++c) logit += k[c] * q[c];
      const double score = b * logit * logit;
      for (Index c = 0; c < e; ++c) sums[c] += v[c] * score;
      scores += score;
      absolute += b * squares.data()[j];
      window += b;
    }
    for (Index c = 0; c < e; ++c) rows.Y(c, n) = sums[c] / scores;
    rows.condition[n] = absolute * Q.col(i).squaredNorm() / scores;
    rows.window[n] = window;
  }
  return rows;
}

// γ = 1 and P = 2: Σ_j (q·k_j)² v_j = qᵀ (Σ_j v_j k_j k_jᵀ) q.
Expected by_moments(const Stream& stream) {
  const Eigen::MatrixXd Q = stream.turned(stream.Q), K = stream.turned(stream.K);
  Real moments[e + 1][d][d] = {};
  Expected rows;
  Real length = 0;
  for (Index i = 0; i < stream.T; ++i) {
    const Index n = i - (stream.T - checked);
    const double *const k = &K(0, i), *const q = &Q(0, i);
    Real forms[e + 1] = {};
    for (Index a = 0; a < d; ++a)
      for (Index b = 0; b < d; ++b) {
        const Real outer = static_cast<Real>(k[a]) * static_cast<Real>(k[b]);
        for (Index c = 0; c < e; ++c) moments[c][a][b] += static_cast<Real>(stream.V(c, i)) * outer;
        moments[e][a][b] += outer;
        if (n < 0) continue;
        for (Index c = 0; c <= e; ++c) forms[c] += static_cast<Real>(q[a]) * moments[c][a][b] * static_cast<Real>(q[b]);
      }
    for (Index a = 0; a < d; ++a) length += static_cast<Real>(k[a]) * static_cast<Real>(k[a]);
    if (n < 0) continue;
    for (Index c = 0; c < e; ++c) rows.Y(c, n) = static_cast<double>(forms[c] / forms[e]);
    rows.condition[n] = static_cast<double>(length) * Q.col(i).squaredNorm() / static_cast<double>(forms[e]);
    rows.window[n] = static_cast<double>(i + 1);
  }
  return rows;
}

// The worst of the last rows in units of the row rule.
double worst_row(const Stream& stream, const Expected& expected, Course course) {
  const double tokens_per_update = course == Course::literal ? 1 : course == Course::recurrent ? 33 : 64;
  const double largest = static_cast<double>(stream.V.cwiseAbs().maxCoeff());
  const Eigen::MatrixXd difference = stream.last_rows(course).cast<double>() - expected.Y;
  REQUIRE(difference.allFinite());
  double worst = 0;
  for (Index n = 0; n < checked; ++n)
    worst = std::max(
        worst, difference.col(n).cwiseAbs().maxCoeff() /
                   (4 * u * expected.condition[n] * largest * (1 + std::sqrt(expected.window[n] / tokens_per_update))));
  return worst;
}

void check(const Stream& slow, const Expected& scores, std::uint64_t seed) {
  const Stream open(slow.T, 1, seed);
  const Expected moments = by_moments(open);
  CAPTURE(slow.T, seed);
  for (const Course course : {Course::literal, Course::recurrent, Course::chunked}) {
    CAPTURE(static_cast<int>(course));
    const double allowed = course == Course::literal ? 2 * bound : bound;  // it rounds the whole state twice a token
    CHECK(worst_row(slow, scores, course) <= allowed);
    CHECK(worst_row(open, moments, course) <= allowed);
  }
}

// One for two tests, as its rows take seconds.
const Stream& short_stream() {
  static const Stream stream(50000, .999, 1);
  return stream;
}
const Expected& rows_of_short_stream() {
  static const Expected rows = by_scores(short_stream());
  return rows;
}

}  // namespace

TEST_CASE("the last rows of a stream of 50,000 steps in float are those of the definition", "[laws]") {
  check(short_stream(), rows_of_short_stream(), 1);
}

TEST_CASE("the last rows of a stream of a million steps in float are those of the definition", "[laws][.long]") {
  const Stream stream(1000000, .999, 2);
  check(stream, by_scores(stream), 2);
}

TEST_CASE("the reference of a stream sees a gate, a turn or a key that is not what it should be", "[laws]") {
  Stream gates = short_stream(), turns = gates, keys = gates;
  gates.log_gamma = static_cast<double>(std::log(.999F));  // a gate that was rounded to float
  turns.theta = turns.theta.cast<float>().cast<double>();
  keys.K.col(49000) *= 1.5F;
  CHECK(worst_row(gates, rows_of_short_stream(), Course::recurrent) > 2 * bound);
  CHECK(worst_row(turns, rows_of_short_stream(), Course::recurrent) > 2 * bound);
  CHECK(worst_row(keys, rows_of_short_stream(), Course::recurrent) > 2 * bound);
}
