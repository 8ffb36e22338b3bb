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

constexpr double inf = std::numeric_limits<double>::infinity();

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
  [[nodiscard]] std::size_t at_gate(int b, int i, int h) const {
    return index((batch.first(b) + i) * gate_stride + h);
  }
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
    double exact_sum = 0, sizes = 0, mass = 0, greatest = -inf;
    int since = -1;
    std::vector<double> norms(index(chunk));
    for (int i = 0; i < chunk; ++i) {
      const std::size_t a = first + index(i);
      const double gate = gated && i < tokens ? double{gates[at_gate(b, n * chunk + i, h)]} : 0;
      if (gate == -inf)
        since = i, greatest = -inf;
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
        if (key[a] != -inf || inverse[a] != 0 || to_end[a] != 0) return say("a zero key", i);
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
    if (chunks.total[at] != (since < 0 ? total : -inf)) return "total";
    if (chunks.end[at] != end) return "end";
    for (int i = 0; i < chunk; ++i) {
      const std::size_t a = first + index(i);
      const double weight = i < since || key[a] == -inf ? 0 : std::exp2(total + key[a] - std::ceil(end));
      // The exponent: two roundings in double, then its fraction to float, u / 2; exp2: 2 units in the last place. Below
      // 2^-126 the argument is down to -24, and results are multiples of 2^-149.
      const double exponent = i < since || key[a] == -inf ? 0 : std::abs(total) + std::abs(key[a]) + std::abs(end) + 1;
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
    problem.fill([](int, int i) { return 1. + i % 7; }, [](int, int i) { return i % 29 == 12 ? -inf : -.01 * (i % 5); });
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
    problem.fill([&](int, int i) { return i % 11 == 5 ? 0. : i % 13 == 6 ? 1. : size; },
                 [&](int, int i) { return i == 40 ? -inf : i % 3 == 0 ? gate : -.01; });
  };
  check<TestType>(run, {90}, false, 64, {1, 1, 1}, 16, power);
}
