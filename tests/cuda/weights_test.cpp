// Weights of tokens: right in every layout of a batch, at the ends of the formats, behind resets and behind NaN.
#include "weights/weights.hpp"

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "batches.hpp"
#include "catch.hpp"

using namespace sympow::test;

namespace {

/// Keys and gates of a batch; the rows of keys are 8 entries longer than they need to be.
template <class T>
struct Problem {
  Batch batch;
  Heads heads;
  int d, power, gate_stride;
  host::Buffer<T> keys;
  host::Buffer<float> gates;
  host::Buffer<double> sum, key, level;
  host::Buffer<float> inverse, to_end;
  host::Buffer<std::int32_t> reset;
  ChunkBuffers chunks;
  bool gated = true;

  Problem(std::vector<int> lengths, bool packed, int chunk, Heads of_heads, int of_d, int of_power)
      : batch(std::move(lengths), packed, chunk),
        heads(of_heads),
        d(of_d),
        power(of_power),
        gate_stride(heads.state),
        keys(index(batch.tokens() * heads.key * (d + 8))),
        gates(index(batch.tokens() * gate_stride)),
        sum(entries()),
        key(entries()),
        level(entries()),
        inverse(entries()),
        to_end(entries()),
        reset(entries()),
        chunks(heads.state * batch.slots) {}

  /// Keys of norms about `size(b, i)`, gates `gate(b, i)`, with some noise by head.
  void fill(const std::function<double(int, int)>& size, const std::function<double(int, int)>& gate) {
    std::mt19937 random(4);
    std::normal_distribution<double> normal;
    for (int b = 0; b < batch.size(); ++b)
      for (int i = 0; i < batch.length(b); ++i) {
        for (int h = 0; h < heads.key; ++h)
          for (int c = 0; c < d; ++c)
            set_key(b, i, h, c, static_cast<float>(std::clamp(normal(random) * size(b, i), -largest(), largest())));
        for (int h = 0; h < heads.state; ++h)
          gates.set(at_gate(b, i, h), static_cast<float>(gate(b, i) * (1 + .25 * h)));
      }
  }
  static double largest() { return double{to_float(T{fraction_bits<T> == 7 ? 0x7f7f : 0x7bff})}; }
  void set_key(int b, int i, int h, int c, float x) { keys.set(at_key(b, i, h) + index(c), round_to<T>(x)); }
  [[nodiscard]] std::size_t at_key(int b, int i, int h) const {
    return index(((batch.first(b) + i) * heads.key + h) * (d + 8));
  }
  [[nodiscard]] std::size_t at_gate(int b, int i, int h) const { return index((batch.first(b) + i) * gate_stride + h); }
  [[nodiscard]] std::size_t entries() const { return index(heads.state * batch.slots * batch.chunk); }
  [[nodiscard]] std::size_t slot(int b, int n, int h) const { return index(h * batch.slots + batch.slot(b) + n); }
  [[nodiscard]] std::size_t entry(int b, int n, int h) const { return slot(b, n, h) * index(batch.chunk); }

  host::Report run(const host::Options& options = {}) {
    const std::int64_t per_sequence = batch.packed ? 0 : batch.longest;
    const std::int64_t row = heads.key * (d + 8);
    typename Weights<T>::Args args{{keys, per_sequence * row, row, d + 8},
                                   {{}, per_sequence * gate_stride, gate_stride, 1},
                                   batch.sequences(),
                                   heads,
                                   d,
                                   power,
                                   {sum, key, level, inverse, to_end, reset},
                                   chunks.arrays()};
    if (gated) args.log_gates.data = gates;
    const Blocks blocks = Weights<T>::blocks(args.sequences, heads);
    host::Report report = host::launch<Weights<T>>(grid(blocks), args, options);
    const std::vector<bool> used = batch.used(heads.state);
    const auto of_token = [&](std::size_t i) { return bool{used[i / index(batch.chunk)]}; };
    const auto of_chunk = [&](std::size_t i) { return bool{used[i]}; };
    sum.check_stored(report, "sum", of_token);
    key.check_stored(report, "key", of_token);
    level.check_stored(report, "level", of_token);
    inverse.check_stored(report, "inverse", of_token);
    to_end.check_stored(report, "to_end", of_token);
    reset.check_stored(report, "reset", of_token);
    chunks.total.check_stored(report, "total", of_chunk);
    chunks.end.check_stored(report, "end", of_chunk);
    chunks.own_mass.check_stored(report, "own_mass", of_chunk);
    return report;
  }
  [[nodiscard]] std::string results() const {
    return bits(sum, key, level, inverse, to_end, reset, chunks.total, chunks.end, chunks.own_mass);
  }

  /// The first entry that is out of its bound, in words.
  [[nodiscard]] std::string wrong() const {
    for (int h = 0; h < heads.state; ++h)
      for (int b = 0; b < batch.size(); ++b)
        for (int n = 0; n < batch.chunks(b); ++n)
          if (const std::string what = wrong_in(b, n, h); !what.empty())
            return what + " of head " + std::to_string(h) + ", sequence " + std::to_string(b) + ", chunk " +
                   std::to_string(n);
    return "";
  }

 private:
  [[nodiscard]] std::string wrong_in(int b, int n, int h) const {
    const int chunk = batch.chunk, tokens = std::min(chunk, batch.length(b) - n * chunk);
    const int key_head = h / (heads.state / heads.key);
    const std::size_t first = entry(b, n, h), at = slot(b, n, h);
    const auto say = [](const char* what, int i) { return what + (" of token " + std::to_string(i)); };
    const int passes = (chunk + 255) / 256;
    double exact_sum = 0, sizes = 0, mass = 0, greatest = -infinity;
    int since = -1;
    std::vector<double> norms(index(chunk));
    for (int i = 0; i < chunk; ++i) {
      const std::size_t a = first + index(i);
      const double gate = gated && i < tokens ? double{gates[at_gate(b, n * chunk + i, h)]} : 0;
      if (gate == -infinity)
        since = i, greatest = -infinity;
      else
        exact_sum += gate * std::log2(std::exp(1.)), sizes += std::abs(gate) * std::log2(std::exp(1.));
      if (reset[a] != since) return say("reset", i);
      // The gate times log2 e: 2 roundings (one of the constant); sums of lanes, 5, and of 8 warps a pass. The sum here
      // has one for each token.
      const double sum_bound = (7 + 8 * passes + i) * u_double * sizes;
      if (!(std::abs(sum[a] - exact_sum) <= sum_bound)) return say("sum", i);

      double square = 0;
      for (int c = 0; c < d && i < tokens; ++c)
        square += std::pow(double{to_float(keys[at_key(b, n * chunk + i, key_head) + index(c)])}, 2);
      if (square == 0) {
        if (key[a] != -infinity || inverse[a] != 0 || to_end[a] != 0) return say("a zero key", i);
      } else {
        // Squares and their sums of 16 and 4: 21 roundings.
        const double x = -std::log2(double{inverse[a]});
        if (x != std::floor(x) || std::abs(x) > 126) return say("inverse", i);
        if (x < 126 && square > std::exp2(2 * x) * (1 + 22 * u_float)) return say("x too small", i);
        if (x > -126 && square <= std::exp2(2 * x - 2) * (1 - 22 * u_float)) return say("x too large", i);
        const double lambda = power * x;
        if (!(std::abs(key[a] - (lambda - exact_sum)) <= sum_bound + 2 * u_double * (std::abs(lambda) + sizes)))
          return say("key", i);
        norms[index(i)] = std::pow(std::sqrt(square) * std::exp2(-x), power);
      }
      greatest = std::max(greatest, key[a]);
      if (level[a] != greatest) return say("level", i);
    }
    const double total = sum[first + index(chunk) - 1], end = total + greatest;
    if (chunks.total[at] != (since < 0 ? total : -infinity)) return "total";
    if (chunks.end[at] != end) return "end";
    for (int i = 0; i < chunk; ++i) {
      const std::size_t a = first + index(i);
      const double weight = i < since || key[a] == -infinity ? 0 : std::exp2(total + key[a] - std::ceil(end));
      // The exponent: two roundings in double, then its fraction to float, u / 2; exp2: 2 units in the last place.
      // Below 2^-126 the argument is down to -24, and results are multiples of 2^-149.
      const double exponent =
          i < since || key[a] == -infinity ? 0 : std::abs(total) + std::abs(key[a]) + std::abs(end) + 1;
      const double bound = (5 * u_float + 2 * u_double * exponent) * weight + (weight < 0x1p-125 ? 0x1p-146 : 0);
      if (!(std::abs(double{to_end[a]} - weight) <= bound) || to_end[a] > 1) return say("to_end", i);
      mass += weight * norms[index(i)];
    }
    // Of a term: its weight 5 and the shift to the end 5, ‖k̂‖² 21 and its powers, the product; sums of passes, lanes,
    // warps. Terms below 2^-126 may be lost.
    const double bound = (10 + 12 * power + 1 + passes + 5 + 8) * u_float + 4 * u_double * (sizes + 2000);
    if (!(std::abs(double{chunks.own_mass[at]} - mass) <= bound * mass + chunk * 0x1p-120)) return "own_mass";
    return "";
  }
};

/// Three schedules: no fault, right, the same bits. The report of one.
template <class T>
host::Report check(const std::function<void(Problem<T>&)>& run_on, std::vector<int> lengths, bool packed, int chunk,
                   Heads heads, int d, int power) {
  std::string first;
  host::Report report;
  for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
    Problem<T> problem(lengths, packed, chunk, heads, d, power);
    run_on(problem);
    report = problem.run({schedule, 3, host::MmaSum::hopper, {}});
    INFO(report.text());
    REQUIRE(report.clean());
    REQUIRE(problem.wrong() == "");
    if (first.empty()) first = problem.results();
    REQUIRE(problem.results() == first);
  }
  return report;
}

}  // namespace

TEMPLATE_TEST_CASE("weights are right in every layout of a batch", "[cuda]", bf16, fp16) {
  const bool packed = GENERATE(false, true);
  const auto run = [](Problem<TestType>& problem) {
    problem.fill([](int, int i) { return 1. + i % 7; },
                 [](int, int i) { return i % 29 == 12 || i == 256 ? -infinity : -.01 * (i % 5); });
  };
  CAPTURE(packed);
  check<TestType>(run, {100, 0, 64, 1, 65, 0}, packed, 64, {4, 4, 2}, 24, 2);
  check<TestType>(run, {700, 257}, packed, 320, {2, 1, 1}, 16, 3);
  check<TestType>(run, {130, 130}, packed, 128, {4, 2, 2}, 64, 1);
  check<TestType>(run, {70}, packed, 64, {1, 1, 1}, 128, 4);
}

TEMPLATE_TEST_CASE("weights are right whatever the norms and gates", "[cuda]", bf16, fp16) {
  const double most = Problem<TestType>::largest(), least = fraction_bits<TestType> == 7 ? 0x1p-133 : 0x1p-24;
  const double size = GENERATE_COPY(1., 1e15, 1e-15, most, most / 1000, least, 50 * least);
  const double gate = GENERATE(0., -1e-6, -.7, -1000., -1e30);
  const int power = GENERATE(1, 2, 4);
  CAPTURE(size, gate, power);
  const auto run = [&](Problem<TestType>& problem) {
    problem.fill([&](int, int i) { return i % 11 == 5 || i >= 64 ? 0.
                                          : i % 13 == 6          ? 1.
                                                                 : size; },
                 [&](int, int i) { return i == 40      ? -infinity
                                          : i % 3 == 0 ? gate
                                                       : -.01; });
  };
  check<TestType>(run, {90}, false, 64, {1, 1, 1}, 16, power);
}

TEST_CASE("zero keys weigh nothing, wherever in a chunk they lie", "[cuda]") {
  const int first = GENERATE(0, 31, 256, 300, 320), last = GENERATE(301, 600, 640);
  CAPTURE(first, last);
  const auto run = [&](Problem<bf16>& problem) {
    problem.fill([&](int, int i) { return i >= first && i < last ? 1 : 0; }, [](int, int) { return -.1; });
  };
  check<bf16>(run, {640}, false, 320, {1, 1, 1}, 16, 2);
}

TEMPLATE_TEST_CASE("a norm that is a power of 2 is its own bound", "[cuda]", bf16, fp16) {
  Problem<TestType> problem({64}, false, 64, {1, 1, 1}, 32, 2);
  problem.fill([](int, int) { return 0; }, [](int, int) { return 0; });
  const int e = 14;
  const float little = std::ldexp(1.f, e - fraction_bits<TestType>);
  for (const int sign : {1, -1}) {
    problem.set_key(0, 0, 0, 3, std::ldexp(1.f, sign * e));
    for (int c = 4; c < 20; ++c) problem.set_key(0, 1, 0, c, static_cast<float>(-sign) * std::ldexp(1.f, sign * e - 3));
    problem.set_key(0, 2, 0, 31, static_cast<float>(sign) * (std::ldexp(1.f, e) + little));  // a little more
    problem.set_key(0, 3, 0, 31, static_cast<float>(sign) * (std::ldexp(1.f, e) - little));  // a little less
    REQUIRE(problem.run().clean());
    REQUIRE(problem.wrong() == "");
    REQUIRE(problem.inverse[0] == std::ldexp(1.f, -sign * e));
    REQUIRE(problem.inverse[1] == std::ldexp(1.f, 1 - sign * e));
    REQUIRE(problem.inverse[2] == std::ldexp(1.f, -e - 1));
    REQUIRE(problem.inverse[3] == std::ldexp(1.f, -e));
  }
}

TEMPLATE_TEST_CASE("what is not a number is seen from its token on, up to a reset", "[cuda]", bf16, fp16) {
  // Two chunks of 320 tokens; a bad token in the first, and a reset behind it or none.
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const bool in_key = GENERATE(false, true), reset = GENERATE(false, true);
  const int at = GENERATE(0, 31, 32, 255, 256, 300);
  CAPTURE(bad, in_key, reset, at);
  const auto gate = [&](int, int i) { return reset && i == 310 ? -infinity : -.1; };
  Problem<TestType> problem({700}, false, 320, {1, 1, 1}, 16, 2), without({700}, false, 320, {1, 1, 1}, 16, 2);
  problem.fill([](int, int) { return 1; }, gate);
  without.fill([](int, int) { return 1; }, gate);
  if (in_key)
    problem.set_key(0, at, 0, at % 16, bad);
  else
    problem.gates.set(problem.at_gate(0, at, 0), bad), without.gates.set(without.at_gate(0, at, 0), 0);
  REQUIRE(problem.run().clean());
  REQUIRE(without.run().clean());
  int differ = 0;  // from what must be: the same bits wherever it is not seen
  for (int i = 0; i < 960; ++i) {
    const bool seen = i >= at && i < (reset ? 310 : 320);
    const auto a = index(i);
    differ += std::isnan(problem.level[a]) != seen || (!seen && problem.level[a] != without.level[a]);
    differ += std::isnan(problem.key[a]) != (i == at) || (i != at && problem.key[a] != without.key[a]);
    differ += problem.sum[a] != without.sum[a] || problem.reset[a] != without.reset[a];
    if (reset || i >= 320) differ += problem.to_end[a] != without.to_end[a];
  }
  REQUIRE(differ == 0);
  for (std::size_t n = 0; n < 3; ++n) {
    REQUIRE(std::isnan(problem.chunks.end[n]) == (n == 0 && !reset));
    REQUIRE(std::isnan(problem.chunks.own_mass[n]) == (n == 0 && !reset));
    if (n > 0) REQUIRE(problem.chunks.total[n] == without.chunks.total[n]);
  }
}

TEST_CASE("a mass has the same bits in whatever pass its tokens come", "[cuda]") {
  // Units are whole, so going from one to the next is exact. Tokens 0 and 1, then two more in the same pass or the next
  // one; gates raise the level between them. Of ‖k̂‖^4 token 0 has 1, tokens behind it 1/16 and a little more. Sums of
  // gates are as off as double is, which no float here shows.
  const auto mass = [](int step, int third) {
    Problem<bf16> problem({512}, false, 512, {1, 1, 1}, 16, 4);
    problem.fill([](int, int) { return 0; }, [](int, int) { return 0; });
    const float gates[] = {-.1f, -.37f - .05f * static_cast<float>(step), -.61f - .03f * static_cast<float>(step),
                           -.2f};
    const int tokens[] = {0, 1, third, third + 1};
    for (std::size_t t = 0; t < 4; ++t) {
      problem.gates.set(problem.at_gate(0, tokens[t], 0), gates[t]);
      if (t < 3) problem.set_key(0, tokens[t], 0, 0, t == 0 ? 2 : 1 + 0x1p-7f);
    }
    REQUIRE(problem.run().clean());
    REQUIRE(problem.wrong() == "");
    return float{problem.chunks.own_mass[0]};
  };
  for (int step = 0; step < 32; ++step) {
    CAPTURE(step);
    REQUIRE(mass(step, 256 + 2) == mass(step, 2));
  }
}

TEST_CASE("weights move no byte twice where heads lie in order", "[cuda]") {
  // Keys of 64 channels and the 8 entries between rows: 144 bytes, so half of the rows begin in the middle of a sector.
  // The gates of a head are strided: a sector each.
  Problem<bf16> problem({1024}, false, 512, {8, 8, 2}, 64, 2);
  problem.fill([](int, int) { return 1; }, [](int, int) { return -.1; });
  const host::Report report = problem.run();
  INFO(report.text());
  REQUIRE(report.clean());
  REQUIRE(report.blocks == 2 * 8);
  const long tokens = 8 * 1024, in_middle = tokens / 2;
  const long keys = tokens * 4 + in_middle, gates = tokens, stored = tokens * 36 / 32 + 16 * 3, again = tokens * 8 / 32;
  REQUIRE(report.global().transactions == keys + gates + stored + again);
  REQUIRE(report.shared().transactions == report.shared().ideal);
}

TEST_CASE("weights without any one of their barriers, predicates or indices are found out", "[cuda]") {
  host::Report clean;
  const auto run = [&](const host::Mutation& mutation) {
    Problem<bf16> problem({700}, false, 320, {2, 2, 1}, 24, 2);
    problem.fill([](int, int i) { return 1. + i % 5; },
                 [](int, int i) { return i % 100 == 99 ? -infinity : -.01 * (i % 3); });
    const host::Report report = problem.run({host::Schedule::forward, 0, host::MmaSum::hopper, mutation});
    if (mutation.change == host::Change::none) clean = report;
    return report.clean() && problem.wrong().empty() ? problem.results() : "";
  };
  run({});
  REQUIRE(host::mutations(clean).size() == 16);
  REQUIRE(survivors(clean, run) == "");
}
