// Any number of threads: the same bits, rows that are right, and exceptions that arrive. test_threads_without compares
// with a program that knows no threads.
#include "long_heads.hpp"

#include <atomic>
#include <limits>
#include <new>

#include "batches.hpp"
#include "catch.hpp"

#include <sympow/verify/laws.hpp>

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr std::array thread_counts = {1, 2, 3, 5};

template <class Scalar>
void check_long_head(Index T) {
  LongHead<Scalar> head(T);
  head.each_kind([&]<class F>(const char* kind, const F& feature, const auto& transition_of) {
    const auto expected = head.run(feature, transition_of, 1);
    const Matrix<Scalar> Y = head.Y;
    for (const int threads : thread_counts) {
      CAPTURE(kind, sizeof(Scalar), T, threads);
      head.Y.setZero();
      const auto state = head.run(feature, transition_of, threads);
      REQUIRE(same_bits(head.Y, Y));
      REQUIRE(same_bits(state, expected));
    }
    CAPTURE(kind, sizeof(Scalar), T);
    const auto whole = transition_of(Segment{0, head.before + T});
    const verify::DirectRows rows = verify::direct_attention(feature, whole, head.Q, head.K, head.V);
    REQUIRE(verify::row_rule<DefaultNormalization, F>(rows, Y, rows.Y, verify::unit_roundoff<Scalar>) <= 1);

    // The state is the one that the forms of one head leave, and goes on: it knows its tokens, its transition and its
    // frame.
    State<Scalar, F> plain(head.d, head.e);
    (void)chunked(feature, whole, head.Q, head.K, head.V, plain);
    REQUIRE(expected.tokens() == plain.tokens());
    REQUIRE(expected.tail_capacity() == plain.tail_capacity());
    REQUIRE(std::abs(expected.log_decay() - plain.log_decay()) <= 1e-12 * std::abs(plain.log_decay()));
    REQUIRE((expected.log_channels() - plain.log_channels()).norm() <= 1e-12 * plain.log_channels().norm());
    REQUIRE(expected.frame().numbers().size() == plain.frame().numbers().size());
    REQUIRE((expected.frame().numbers() - plain.frame().numbers()).unaryExpr(&reduced_angle).norm() <= 1e-11);
    const double tolerance = 1e3 * verify::unit_roundoff<Scalar>;
    REQUIRE(static_cast<double>((expected.values() - plain.values()).norm()) <=
            tolerance * static_cast<double>(plain.values().norm()));
    REQUIRE(static_cast<double>((expected.key_product() - plain.key_product()).norm()) <= tolerance);
  });
}

// A feature map whose embedding fails at its n-th call.
struct Failing {
  static constexpr Score score = Score::power;
  static constexpr int degree = 2;
  static constexpr bool nonnegative = true;
  SymmetricPower<2> square;
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  int last = std::numeric_limits<int>::max();
  [[nodiscard]] Index dimension(Index d) const { return square.dimension(d); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    count();
    square.embed(x, y);
  }
  void count() const {
    if (++*calls >= last) throw std::bad_alloc();
  }
};

}  // namespace

TEST_CASE("a long head is the same bit for bit on any number of threads, and right", "[threads]") {
  // A segment is 16 tokens for D = 10 and chunks of 8: 16 whole segments and one less or more, a prime, a partial chunk
  // at the end.
  for (const Index T : {256, 257, 300, 1009}) check_long_head<double>(T);
}

TEST_CASE("a head is cut exactly where its shape says", "[threads]") {
  using sympow::detail::scanned_chunk, sympow::detail::scanned_segment;
  const Costs dear = LongHead<double>::dear;
  BatchOptions options{.form = Form::chunked, .head = {.chunk = 8, .costs = dear}};
  const auto is_scanned = [](Index T, Index d, Index e, double D, Index all_tokens, const BatchOptions& chosen) {
    return scanned_chunk({.T = T, .d = d, .e = e, .D = D}, all_tokens, chosen) > 0;
  };
  REQUIRE(scanned_segment(10, 8) == 16);
  REQUIRE(is_scanned(256, 4, 3, 10, 256, options));
  REQUIRE_FALSE(is_scanned(255, 4, 3, 10, 255, options));  // too short
  REQUIRE(is_scanned(256, 4, 3, 10, 1023, options));
  REQUIRE_FALSE(is_scanned(256, 4, 3, 10, 1024, options));   // one of four
  REQUIRE_FALSE(is_scanned(4096, 64, 64, 45760, 4096, {}));  // a state larger than its tokens
  REQUIRE(is_scanned(65536, 64, 64, 2080, 65536, {}));
  REQUIRE(scanned_chunk({.T = 65536, .d = 64, .e = 64, .D = 2080}, 65536, {}) ==
          cheapest_chunk({.T = 65536, .d = 64, .e = 64, .D = 2080, .from_nothing = false}));
  REQUIRE(scanned_segment(2080, 64) == 256);
  REQUIRE(scanned_segment(10, 64) == 64);
  REQUIRE(scanned_segment(766480, 64) == 512);
  REQUIRE(scanned_segment(10, 1000) == 1000);
  options.head.mask = causal(-1);
  REQUIRE_FALSE(is_scanned(256, 4, 3, 10, 256, options));  // the segments of a scan know one mask
  options.head.mask = full();
  REQUIRE_FALSE(is_scanned(256, 4, 3, 10, 256, options));
  options = {.form = Form::chunked, .head = {.chunk = 8}};
  REQUIRE_FALSE(is_scanned(256, 4, 3, 10, 256, options));  // done before a thread has begun
  options = {.form = Form::recurrent, .head = {.chunk = 8, .costs = dear}};
  REQUIRE_FALSE(is_scanned(256, 4, 3, 10, 256, options));
}

TEST_CASE("a batch is the same bit for bit on any number of threads, long and short heads in it", "[threads]") {
  for (const Form form : {Form::attention, Form::recurrent, Form::chunked}) {
    RandomBatch<float> batch(Order::bthd, {40, 0, 900, 1, 63}, 2, 1, 1);
    std::vector<float> expected;
    auto states_of_one = batch.fresh_states<SymmetricPower<2>>();
    for (const int threads : thread_counts) {
      CAPTURE(static_cast<int>(form), threads);
      auto states = batch.fresh_states<SymmetricPower<2>>();
      Workspaces<float> workspaces;
      const BatchOptions options{
          .form = form, .threads = threads, .head = {.chunk = 8, .costs = LongHead<double>::dear}};
      const auto q = batch.Q.heads(), k = batch.K.heads(), v = batch.V.heads(), y = batch.Y.heads();
      std::ranges::fill(batch.Y.data, 7.f);
      if (form == Form::attention)
        attend(SymmetricPower<2>{}, batch.transitions(),
               {.Q = q, .K = k, .V = v, .Y = y, .workspaces = workspaces, .options = options});
      else
        attend(SymmetricPower<2>{}, batch.transitions(),
               {.Q = q, .K = k, .V = v, .states = states, .Y = y, .workspaces = workspaces, .options = options});
      if (threads == 1) {
        expected = batch.Y.data;
        states_of_one = states;
      }
      REQUIRE(std::memcmp(expected.data(), batch.Y.data.data(), expected.size() * sizeof(float)) == 0);
      for (std::size_t n = 0; n < states.size(); ++n) REQUIRE(same_bits(states[n], states_of_one[n]));
    }
  }
}

TEST_CASE("an exception on any thread arrives, and all threads have stopped", "[threads]") {
  for (const Index T : {40, 300})  // by heads, by segments
    for (const int threads : thread_counts) {
      RandomBatch<double> batch(Order::bthd, {T, T}, T == 40 ? 8 : 1, 1, 3);
      Failing feature;
      feature.last = 5;
      Workspaces<double> workspaces;
      CAPTURE(T, threads);
      REQUIRE_THROWS_AS(attend(feature, stationary(),
                               {.Q = batch.Q.heads(),
                                .K = batch.K.heads(),
                                .V = batch.V.heads(),
                                .Y = batch.Y.heads(),
                                .workspaces = workspaces,
                                .options = {.form = Form::chunked,
                                            .threads = threads,
                                            .head = {.chunk = 8, .costs = LongHead<double>::dear}}}),
                        std::bad_alloc);
      const int calls = *feature.calls;
      REQUIRE(calls <= 5 + threads);  // what was running has failed as well, nothing began after
      REQUIRE(*feature.calls == calls);
    }
}

TEST_CASE("there is a workspace for every thread that a call uses, and the calls that follow keep them", "[threads]") {
  RandomBatch<double> batch(Order::bthd, {80, 80}, 4, 1, 4);  // work for several threads
  Workspaces<double> workspaces;
  const auto call = [&] {
    attend(SymmetricPower<2>{}, batch.transitions(),
           {.Q = batch.Q.heads(),
            .K = batch.K.heads(),
            .V = batch.V.heads(),
            .Y = batch.Y.heads(),
            .workspaces = workspaces,
            .options = {.threads = 3}});
  };
  call();
#ifdef _OPENMP
  REQUIRE(workspaces.size() == 3);
#else
  REQUIRE(workspaces.size() == 1);
#endif
  const auto* const kept = workspaces.data();
  call();
  REQUIRE(workspaces.data() == kept);
}
