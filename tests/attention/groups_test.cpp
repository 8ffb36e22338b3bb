// Query heads that share one state: what each would get from a state of its own, and what that state would be.
#include <limits>

#include "batches.hpp"
#include "catch.hpp"

#include <sympow/verify/laws.hpp>

using namespace sympow;
using namespace sympow::test;

namespace {

using Power = SymmetricPower<2>;
constexpr Index H = 6, groups = 2, G = H / groups, d = RandomBatch<float>::d, e = RandomBatch<float>::e;
constexpr Costs dear{.segment = 1e9};  // so that short heads are worth threads

// The transitions of key heads.
const auto turning = [](const RandomBatch<float>& batch) { return batch.transitions(); };
const auto still = [](const RandomBatch<float>& batch) {
  return [&](Index, Index) { return rotary(batch.theta, Pairing::interleaved); };
};
const auto by_channel = [](const RandomBatch<float>& batch) {
  return [&](Index b, Index g) {
    Random random(static_cast<std::uint64_t>(b * groups + g));
    return channel_decay(-.1 * random.matrix(d, batch.lengths[static_cast<std::size_t>(b)]).cwiseAbs());
  };
};

template <class F>
auto fresh_states(const F& feature, Index count, Index tail) {
  return std::vector<State<float, F>>(static_cast<std::size_t>(count), State<float, F>(feature, d, e, tail));
}

// Piece after piece, with states of key heads and with those of query heads: the former's bits are those of the last
// head of a group.
template <class F, class MakeTransitions>
void check_pieces(const F& feature, Index tail, Order order, const MakeTransitions& transitions_for,
                  Mask mask = causal()) {
  for (const Form form : {Form::recurrent, Form::chunked}) {
    auto shared = fresh_states(feature, 3 * groups, tail), alone = fresh_states(feature, 3 * H, tail);
    std::uint64_t seed = 1;
    for (const Index n : {40, 1, 1, 33, 0, 97, 1}) {
      RandomBatch<float> batch(order, {n, n / 2, n}, H, groups, ++seed), expected = batch;
      const auto of_key_head = transitions_for(batch);
      const BatchOptions options{.form = form, .head = {.scale = .5, .chunk = 16, .mask = mask}};
      batch.attend(feature, of_key_head, options, shared);
      expected.attend(feature, [&](Index b, Index h) { return of_key_head(b, h / G); }, options, alone);
      for (Index b = 0; b < 3; ++b)
        for (Index h = 0; h < H; ++h) {
          CAPTURE(static_cast<int>(form), static_cast<int>(order), tail, n, b, h);
          REQUIRE(batch.Y.heads().padding(b, h).isZero(0));
          if (h % G == G - 1) REQUIRE(same_bits(batch.Y.heads().head(b, h), expected.Y.heads().head(b, h)));
          REQUIRE(same_bits(shared[static_cast<std::size_t>(b * groups + h / G)], alone[batch.index(b, h)]));
        }
    }
  }
}

// The rows of a batch whose key heads have their own gates, against the definition.
void check_rows(RandomBatch<float>& batch, const char* what) {
  for (Index b = 0; b < batch.B(); ++b)
    for (Index h = 0; h < H; ++h) {
      const auto rows = verify::direct_attention(Power{}, batch.transition(b, h / G), batch.Q.heads().head(b, h),
                                                 batch.K.heads().head(b, h / G), batch.V.heads().head(b, h / G));
      CAPTURE(what, b, h);
      REQUIRE(verify::row_rule<DefaultNormalization, Power>(rows, batch.Y.heads().head(b, h), rows.Y,
                                                            verify::unit_roundoff<float>) <= 1);
    }
}

}  // namespace

TEST_CASE("a state that query heads share is the one that each would keep, in its bits", "[attention]") {
  check_pieces(Power{}, 32, Order::packed, turning);
  check_pieces(Power{}, 0, Order::bthd, turning);
  check_pieces(Power{}, 32, Order::bthd, by_channel);
  check_pieces(Power{}, 0, Order::bhtd, by_channel);
  check_pieces(PositiveRandomFeatures(d, 6), 0, Order::bthd, turning);
  check_pieces(Power{}, 32, Order::bthd, still, full());
}

TEST_CASE("rows of heads that share a state follow the row rule", "[attention]") {
  for (const Form form : {Form::recurrent, Form::chunked}) {
    RandomBatch<float> batch(Order::bthd, {150, 0, 97}, H, groups, 3);
    auto states = fresh_states(Power{}, 3 * groups, 32);
    batch.attend(Power{}, turning(batch), {.form = form, .head = {.chunk = 16}}, states);
    check_rows(batch, "ordinary");

    // Heads of a group that ask for other segments: keys and queries of any length, zeros, and gates that close.
    Random random(4);
    for (const Index b : {0, 2})
      for (Index h = 0; h < H; ++h) {
        auto Q = batch.Q.heads().head(b, h);
        for (Index t = 0; t < Q.cols(); ++t)
          Q.col(t) *= static_cast<float>(random.uniform() < .1 ? 0 : std::pow(10, random.uniform(-6, 6)));
        if (h >= groups) continue;
        auto K = batch.K.heads().head(b, h);
        for (Index t = 0; t < K.cols(); ++t)
          K.col(t) *= static_cast<float>(random.uniform() < .1 ? 0 : std::pow(10, random.uniform(-6, 6)));
        for (Index t = 0; t < K.cols(); ++t)
          if (random.uniform() < .05)
            batch.log_gamma[batch.index(b, h)][t] =
                random.uniform() < .5 ? -1000 : -std::numeric_limits<double>::infinity();
      }
    states = fresh_states(Power{}, 3 * groups, 32);
    batch.attend(Power{}, turning(batch), {.form = form, .head = {.chunk = 16}}, states);
    check_rows(batch, "of any size");
  }
}

TEST_CASE("a long group is cut into segments, with the same bits on any number of threads", "[attention]") {
  RandomBatch<float> first(Order::bthd, {300}, H, groups, 5);
  auto states = fresh_states(Power{}, groups, 32);
  const auto options = [](int threads) {
    return BatchOptions{.form = Form::chunked, .threads = threads, .head = {.chunk = 8, .costs = dear}};
  };
  first.attend(Power{}, turning(first), options(1), states);
  check_rows(first, "by segments");
  for (const int threads : {2, 3}) {
    RandomBatch<float> batch = first;
    auto again = fresh_states(Power{}, groups, 32);
    batch.attend(Power{}, turning(batch), options(threads), again);
    REQUIRE(batch.Y.data == first.Y.data);
    for (std::size_t n = 0; n < states.size(); ++n) REQUIRE(same_bits(again[n], states[n]));
  }
}

TEST_CASE("containers of another size than heads or key heads are refused by name", "[attention]") {
  RandomBatch<float> batch(Order::bthd, {5, 4}, H, groups, 6);
  const std::vector<float> before = batch.Y.data;
  const BatchOptions options{.form = Form::chunked};
  auto few = fresh_states(Power{}, 5, 32), shared = fresh_states(Power{}, 2 * groups, 32);
  REQUIRE_THROWS_AS(batch.attend(Power{}, turning(batch), options, few), ShapeMismatch);
  REQUIRE_THROWS_WITH(batch.attend(Power{}, turning(batch), options, few),
                      contains("number of states is 5, must be 12 (one per sequence and query head) or 4 (per"));
  const std::vector<ConstantDecay> of_query_heads(12, constant_decay(.9)), of_key_heads(4, constant_decay(.9));
  REQUIRE_THROWS_WITH(batch.attend(Power{}, of_query_heads, options, shared),
                      contains("number of transitions is 12, must be 4 (one a sequence and key head"));
  BatchOptions finite = options;
  finite.head.check_finite = true;
  batch.Q.heads().head(1, 4)(2, 3) = std::numeric_limits<float>::infinity();
  REQUIRE_THROWS_WITH(batch.attend(Power{}, of_key_heads, finite, shared),
                      contains("sequence 1, head 4: Q(2, 3) is inf"));
  REQUIRE(batch.Y.data == before);
  for (const auto& state : shared) REQUIRE(state.tokens() == 0);
  batch.log_gamma[batch.index(1, 1)][2] = .5;
  REQUIRE_THROWS_WITH(batch.attend(Power{}, turning(batch), options, shared),
                      contains("sequence 1, key head 1: the transition's log gate"));
  batch.attend(Power{}, of_key_heads, options, shared);
  REQUIRE(shared[3].tokens() == 4);
}
