// The choice of form and chunk of the CUDA library: what must hold for any constants, and what those of an H100 give.
#include "library/cost_model.hpp"
#include "catch.hpp"

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
  REQUIRE(cheapest_form(shape(64, 8, 64, D)) == Form::quadratic);
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
