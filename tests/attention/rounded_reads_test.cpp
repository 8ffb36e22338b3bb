// States whose sums are read rounded: by which bits, how far off, and that nothing else of them changes.
#include <sympow/attention/device_state.hpp>
#include <sympow/attention/gradients.hpp>
#include <sympow/attention/scan.hpp>
#include <sympow/attention/state_file.hpp>
#include <sympow/sympow.hpp>
#include <sympow/transition/householder.hpp>

#include <sstream>

#include "batches.hpp"
#include "catch.hpp"
#include "forms.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index d = 6, e = 5;

template <class Scalar, class F>
State<Scalar, F> rounding(State<Scalar, F> state) {
  state.read_as_bf16();
  return state;
}

// The same state, its sums being the numbers that are read.
template <class Scalar, class F>
State<Scalar, F> with_rounded_sums(State<Scalar, F> state) {
  auto& sums = detail::StateAccess::content(state).sums;
  detail::SplitMatrix<Scalar> split(sums.S.rows(), sums.S.cols());
  split.set(0, sums.S);
  split.get_high(0, sums.S);
  return state;
}

template <class Scalar, class F>
std::string bytes_of(const State<Scalar, F>& state) {
  std::ostringstream out;
  save(state, out);
  return out.str();
}

// Calls of a few tokens and of many, in both forms, on a state that tokens have gone before.
template <class Scalar, class F>
void check_reads(Gates gates, Turning turning, Index tail) {
  Random random(8);
  const Tokens before = sequence(random, d, e, 70, gates, Lengths::ordinary, turning);
  State<Scalar, F> state(d, e, tail);
  (void)run<Unnormalized>(before, state, 16);
  const auto read = with_rounded_sums(state);
  for (const Index T : {1, 3, 9, 60})
    for (const Index chunk : {0, 100}) {
      const Index waiting = state.tail_size();
      if (chunk == 0 && (T > 1 || tail == 0)) continue;  // of a state that does not change before it is read
      if (waiting > 0 && waiting + T > tail) continue;   // likewise
      CAPTURE(T, chunk, tail);
      const Tokens tokens = sequence(random, d, e, T, gates, Lengths::ordinary, turning);
      State<Scalar, F> rounds = rounding(state), rounded = read, whole = state;
      const auto rows = run<Unnormalized>(tokens, rounds, chunk);
      REQUIRE(same_bits(rows.Y, run<Unnormalized>(tokens, rounded, chunk).Y));
      (void)run<Unnormalized>(tokens, whole, chunk);
      REQUIRE(rounds.reads_as_bf16());
      REQUIRE(bytes_of(rounds) == bytes_of(whole));  // what is read rounded is summed as it is
    }
}

}  // namespace

TEST_CASE("queries read the upper halves of the sums, bit for bit, which stay as they are", "[attention]") {
  for (const Index tail : {0, 4, 32}) {
    check_reads<float, SymmetricPower<2>>(Gates::slow, Turning::rotary, tail);
    check_reads<float, SymmetricPower<2>>(Gates::random, Turning::channels, tail);
    check_reads<double, SymmetricPower<3>>(Gates::mixed, Turning::none, tail);
    check_reads<double, SymmetricPower<3>>(Gates::slow, Turning::channels, tail);
  }
}

TEST_CASE("rows of sums that are read rounded are off by 2^-8 of what they add up", "[attention]") {
  Random random(9);
  using Feature = SymmetricPower<2>;
  double worst = 0;
  for (int draw = 0; draw < 20; ++draw) {
    const Tokens before = sequence(random, d, e, 64, Gates::slow), next = sequence(random, d, e, 1, Gates::none);
    State<float, Feature> whole(d, e, 32);
    (void)run<Unnormalized>(before, whole, 64);  // too many for the tail: no token is in it
    REQUIRE(whole.tail_size() == 0);
    const Matrix<float> S = whole.values(), q = next.Q.cast<float>();
    State<float, Feature> rounds = rounding(whole);
    const Matrix<float> Y = run<Unnormalized>(next, whole, 0).Y, rounded = run<Unnormalized>(next, rounds, 0).Y;
    Matrix<float> phi(S.cols(), 1);
    Feature{}.embed(q, Batch<float>(phi));
    for (Index r = 0; r < e; ++r) {
      const double sum = (S.row(r).cast<double>().cwiseAbs() * phi.cast<double>().cwiseAbs()).value();
      worst = std::max(worst, std::abs(static_cast<double>(rounded(r, 0)) - static_cast<double>(Y(r, 0))) / sum);
    }
  }
  CHECK(worst <= 0x1p-8);
  CHECK(worst > 0x1p-13);  // they are rounded
}

TEST_CASE("files of states that read rounded are those of others", "[attention]") {
  Random random(10);
  const Tokens before = sequence(random, d, e, 50, Gates::slow);
  State<float, SymmetricPower<2>> state(d, e);
  (void)run(before, state, 0);
  const auto rounds = rounding(state);
  CHECK(bytes_of(rounds) == bytes_of(state));
  for (const bool goes_on : {false, true}) {
    State<float, SymmetricPower<2>> loaded(d, e);
    loaded.read_as_bf16(goes_on);
    std::istringstream in(bytes_of(rounds));
    load(loaded, in);
    CHECK(loaded.reads_as_bf16() == goes_on);
    CHECK(same_bits(loaded, state));
  }
}

TEST_CASE("merges, copies and a device have the numbers of states that read rounded", "[attention]") {
  Random random(11);
  const Tokens first = sequence(random, d, e, 50, Gates::slow, Lengths::ordinary, Turning::rotary),
               second = sequence(random, d, e, 45, Gates::slow, Lengths::ordinary, Turning::rotary);
  using Some = State<float, SymmetricPower<2>>;
  Some left(d, e);
  (void)run(first, left, 0);
  Some right(d, e, 32, left.frame());
  (void)run(second, right, 0);
  const Some merged = merge(left, right);
  CHECK(same_bits(merge(rounding(left), right), merged));
  CHECK(same_bits(merge(left, rounding(right)), merged));
  CHECK(same_bits(merge(rounding(left), rounding(right)), merged));
  CHECK_FALSE(merge(rounding(left), right).reads_as_bf16());
  CHECK(merge(left, rounding(right)).reads_as_bf16());
  CHECK(device_state(rounding(merged)).sums == device_state(merged).sums);
  const Some filled(d, 64);
  CHECK(rounding(filled).bytes() == filled.bytes());
  CHECK(rounding(merged).bytes() > merged.bytes());  // rows of 5 are filled up
  CHECK(rounding(merged).value_dimension() == e);
  Some back = rounding(merged);
  back.read_as_bf16(false);
  CHECK_FALSE(back.reads_as_bf16());
  CHECK(same_bits(back, merged));
}

TEST_CASE("gates of 0 empty a state that reads rounded, numbers that are none included", "[attention]") {
  Random random(12);
  Tokens tokens = sequence(random, d, e, 80, Gates::slow);
  tokens.V(2, 10) = std::numeric_limits<double>::quiet_NaN();
  tokens.log_gamma[60] = -std::numeric_limits<double>::infinity();
  State<float, SymmetricPower<2>> whole(d, e, 4), rounds = rounding(whole);
  const Matrix<float> Y = run<Unnormalized>(tokens, whole, 0).Y, rounded = run<Unnormalized>(tokens, rounds, 0).Y;
  for (Index t = 10; t < 60; ++t) CHECK(std::isnan(rounded(2, t)));
  CHECK(rounded.rightCols(20).allFinite());
  CHECK(same_bits(whole, rounds));
}

TEST_CASE("a long head by segments goes on reading rounded", "[attention]") {
  Random random(15);
  constexpr Index width = 32, T = 16384;  // the least work that goes through a scan
  const Tokens tokens = sequence(random, width, width, T, Gates::slow);
  const auto after = [&](bool rounds, int threads) {
    std::vector<State<float, SymmetricPower<2>>> states(1, State<float, SymmetricPower<2>>(width, width));
    states.front().read_as_bf16(rounds);
    Matrix<float> Q = tokens.Q.cast<float>(), K = tokens.K.cast<float>(), V = tokens.V.cast<float>(), Y(width, T);
    const auto view = [&](Matrix<float>& x) { return Heads<float>::bhtd(x.data(), 1, 1, T, x.rows()); };
    Workspaces<float> workspaces;
    attend<Unnormalized>(SymmetricPower<2>{}, decay(tokens.log_gamma),
                         {.Q = view(Q),
                          .K = view(K),
                          .V = view(V),
                          .states = states,
                          .Y = view(Y),
                          .workspaces = workspaces,
                          .options = {.form = Form::chunked, .threads = threads}});
    return std::pair(std::move(states.front()), Y);
  };
  const auto [whole, rows] = after(false, 1);
  const auto [rounds, rounded] = after(true, 2);
  CHECK(rounds.reads_as_bf16());
  CHECK(same_bits(rounds, whole));
  const Matrix<float> off = (rounded - rows).cwiseAbs();
  CHECK(off.leftCols(T / 2).maxCoeff() > 0);
  CHECK(off.rightCols(T / 2).maxCoeff() > 0);
}

TEST_CASE("chains of Householder matrices move states that read rounded", "[attention]") {
  Random random(13);
  const Matrix<float> K = random.matrix<float>(d, 60), V = random.matrix<float>(e, 60);
  const auto chain =
      decay(Eigen::VectorXd::Constant(60, -.001)) *
      householder(random.matrix<float>(d, 60).colwise().normalized().eval(), Eigen::VectorXd::Constant(60, .5));
  State<float, Linear> whole(d, e), rounds = rounding(whole), right = whole;
  const Matrix<float> Y = chunked(Linear{}, chain, K, K, V, whole, {.chunk = 8}),
                      rounded = chunked(Linear{}, chain, K, K, V, rounds, {.chunk = 8});
  CHECK(rounded != Y);
  CHECK(same_bits(whole, rounds));
  (void)chunked(Linear{}, chain, V.replicate(2, 1).topRows(d), K, V, right);
  CHECK(same_bits(merge(rounds, rounding(right)), merge(whole, right)));
}

TEST_CASE("gradients are those at the sums as they are", "[attention]") {
  Random random(14);
  const Tokens before = sequence(random, d, e, 50, Gates::slow), tokens = sequence(random, d, e, 40, Gates::slow);
  State<float, SymmetricPower<2>> whole(d, e);
  (void)run(before, whole, 0);
  const Matrix<float> Q = tokens.Q.cast<float>(), K = tokens.K.cast<float>(), V = tokens.V.cast<float>(),
                      dY = random.matrix<float>(e, 40);
  const auto gradient = [&](const State<float, SymmetricPower<2>>& state) {
    StateGradient<float, SymmetricPower<2>> adjoint(d, e);
    return std::pair(chunked_vjp(SymmetricPower<2>{}, decay(tokens.log_gamma),
                                 {.Q = Q, .K = K, .V = V, .dY = dY, .state = state, .d_state = adjoint}),
                     adjoint.values());
  };
  const auto [of_whole, d_whole] = gradient(whole);
  const auto [of_rounds, d_rounds] = gradient(rounding(whole));
  CHECK(same_bits(of_rounds.Q, of_whole.Q));
  CHECK(same_bits(of_rounds.K, of_whole.K));
  CHECK(same_bits(d_rounds, d_whole));
}
