// The choice of form and chunk of the CUDA library: what must hold for any constants, and what those of an H100 give.
#include <cmath>

#include "catch.hpp"
#include "library/cost_model.hpp"

using namespace sympow::cuda;
using namespace sympow::cuda::library;

namespace {

Shape shape(double tokens, double heads, double d, double D) { return {tokens, tokens, heads, heads, d, d, D}; }

}  // namespace

TEST_CASE("the cost model chooses chunks that kernels have, none longer than a sequence needs", "[cuda]") {
  const double tokens = GENERATE(0., 1., 64., 65., 1000., 65536., 1e9), D = GENERATE(64., 2080., 52360.);
  const double heads = GENERATE(1., 8., 256.);
  const Shape s = shape(tokens, heads, 64, D);
  const int chunk = cheapest_chunk(s);
  CAPTURE(tokens, D, heads, chunk);
  REQUIRE((chunk >= 64 && chunk <= 1 << 14 && chunk % 64 == 0));
  REQUIRE((chunk == 64 || chunk < 2 * tokens));
  for (int other = 64; other < 2 * tokens && other <= 1 << 14; other *= 2)
    REQUIRE(seconds_of_chunks(s, chunk) <= seconds_of_chunks(s, other));
}

TEST_CASE("short sequences are quadratic, long ones chunked, and there is one crossover", "[cuda]") {
  const double D = GENERATE(64., 136., 2080., 8256., 52360.);
  bool chunked = false;
  for (double tokens = 64; tokens <= 1 << 24; tokens *= 2) {
    const bool now = cheapest_form(shape(tokens, 8, 64, D)) == Form::chunked;
    CAPTURE(D, tokens);
    REQUIRE((now || !chunked));
    chunked = now;
  }
  REQUIRE(chunked);
  REQUIRE(cheapest_form(shape(64, 8, 64, D)) == Form::attention);
}

TEST_CASE("costs grow with tokens, heads and embeddings, and follow their constants", "[cuda]") {
  const Shape s = shape(65536, 8, 64, 2080);
  REQUIRE(cheapest_chunk(s) == 1024);
  REQUIRE(seconds_of_chunks(shape(131072, 8, 64, 2080), 1024) > 1.9 * seconds_of_chunks(s, 1024));
  REQUIRE(seconds_of_chunks(shape(65536, 16, 64, 2080), 1024) > 1.9 * seconds_of_chunks(s, 1024));
  REQUIRE(seconds_of_chunks(shape(65536, 8, 64, 4160), 1024) > 1.5 * seconds_of_chunks(s, 1024));
  Shape split = s;
  split.terms = 2;
  const double more = 65536 * 8. * 2080 * 144 / Costs{}.query + 512 * 2080 * 128 / Costs{}.memory;
  REQUIRE(std::abs(seconds_of_chunks(split, 1024) - seconds_of_chunks(s, 1024) - more) < 1e-9 * more);
  REQUIRE(cheapest_chunk(split) == 1024);
  Costs slow_memory, slow_pairs;
  slow_memory.memory /= 16;
  slow_pairs.pair /= 16;
  REQUIRE(cheapest_chunk(s, slow_memory) > 1024);
  REQUIRE(cheapest_chunk(s, slow_pairs) < 1024);
}

namespace {

/// P 1 whose blocks go along their chunks.
Shape along(double tokens, double heads, double d) {
  Shape s = shape(tokens, heads, d, d);
  s.along = true;
  return s;
}
int blocks_of(const Shape& s, int chunk) {
  return static_cast<int>(std::ceil(s.all_tokens / chunk) * s.query_heads * std::ceil(s.e / 64));
}

}  // namespace

TEST_CASE("chunks that blocks go along are as many as multiprocessors take at once", "[cuda]") {
  const double multiprocessors = Costs{}.multiprocessors;
  const Shape s = along(65536, 8, 64);
  REQUIRE(cheapest_chunk(s) == 1344);
  REQUIRE(blocks_of(s, 1344) <= 3 * multiprocessors);
  REQUIRE(blocks_of(s, 1344) > 2.5 * multiprocessors);
  // No multiple of 64 is cheaper by more than a twentieth: those that were looked at are enough.
  const double tokens = GENERATE(1., 64., 1000., 8192., 65536., 1e6), heads = GENERATE(1., 8., 100.),
               d = GENERATE(64., 128.);
  const Shape any = along(tokens, heads, d);
  const int chunk = cheapest_chunk(any);
  CAPTURE(tokens, heads, d, chunk);
  REQUIRE((chunk >= 64 && chunk <= 1 << 14 && chunk % 64 == 0));
  REQUIRE((chunk == 64 || chunk < 2 * tokens));
  for (int other = 64; other < 2 * tokens && other <= 1 << 14; other += 64) {
    CAPTURE(other);
    REQUIRE(seconds_of_chunks(any, chunk) <= 1.05 * seconds_of_chunks(any, other));
  }
}

TEST_CASE("rows along chunks take linear time in a chunk, and follow the cost of a tile", "[cuda]") {
  const Shape s = along(65536, 8, 64);
  Shape pairs = s;
  pairs.along = false;
  // With as many blocks as take a whole number of rounds, all that a longer chunk saves is states between chunks.
  REQUIRE(std::abs(detail::seconds_along(s, 1024, {}) - detail::seconds_along(s, 2048, {})) <
          .3 * detail::seconds_along(s, 1024, {}));
  REQUIRE(detail::seconds_of_pairs(pairs, 2048, {}) > 1.5 * detail::seconds_of_pairs(pairs, 1024, {}));
  Costs slow;
  slow.tile *= 2;
  REQUIRE(detail::seconds_along(s, 1344, slow) - slow.launch == 2 * (detail::seconds_along(s, 1344, {}) - slow.launch));
  // Fewer than 2 ½ blocks of a multiprocessor wait for themselves.
  REQUIRE(std::abs(detail::seconds_along(along(6400, 1, 64), 64, {}) - Costs{}.launch - 2.5 * Costs{}.tile) < 1e-12);
  // Channels: twice those of keys take half as long again, twice those of values are twice the blocks.
  Shape wide = s;
  wide.e = 128;
  REQUIRE(detail::blocks_along(wide) == 2 * detail::blocks_along(s));
  REQUIRE(detail::seconds_along(along(65536, 8, 128), 16384, {}) > 1.4 * detail::seconds_along(s, 16384, {}));
  // Sequences of little work are quadratic, and there is one crossover.
  bool chunked = false;
  for (double tokens = 64; tokens <= 1 << 24; tokens *= 2) {
    const bool now = cheapest_form(along(tokens, 8, 64)) == Form::chunked;
    CAPTURE(tokens);
    REQUIRE((now || !chunked));
    chunked = now;
  }
  REQUIRE(chunked);
}
