// States before each chunk: right in every layout of a batch, within the roundings that the scan must make.
#include "scan/scan.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "batches.hpp"
#include "catch.hpp"

using namespace sympow::test;

namespace {

/// Multinomial coefficients of all monomials, in order.
std::vector<double> coefficients(int power, int d) {
  std::vector<double> all;
  std::vector<int> channels(index(power), 0);
  while (true) {
    double c = 1;
    for (int p = 0, run = 0; p < power; ++p) {
      run = p > 0 && channels[index(p)] == channels[index(p) - 1] ? run + 1 : 1;
      c *= (p + 1.) / run;
    }
    all.push_back(std::round(c));
    int last = power - 1;
    while (last >= 0 && channels[index(last)] == d - 1) --last;
    if (last < 0) return all;
    std::fill(channels.begin() + last, channels.end(), channels[index(last)] + 1);
  }
}

/// The row of each monomial in a state between chunks, by its channels: as state_rows.hpp says, written anew.
std::vector<int> rows_of_monomials(int power, int d) {
  std::map<std::vector<int>, int> row_of;
  int stage = 0;
  const auto tuples = [](int degree, int below) {
    std::vector<std::vector<int>> all(1);
    for (int p = 0; p < degree; ++p) {
      std::vector<std::vector<int>> longer;
      for (const auto& t : all)
        for (int c = t.empty() ? 0 : t.back(); c < below; ++c) {
          longer.push_back(t);
          longer.back().push_back(c);
        }
      all = longer;
    }
    return all;
  };
  if (power == 1) {
    for (int i = 0; i < d; ++i) row_of[{i}] = i;
  } else {
    for (int b = 0; b < d / 8; ++b) {
      const auto all = tuples(power - 1, 8 * b + 8);
      for (std::size_t first = 0; first < all.size(); first += 8, ++stage)
        for (std::size_t f = first; f < std::min(first + 8, all.size()); ++f)
          for (int n = 0; n < 8; ++n) {
            std::vector<int> monomial = all[f];
            if (monomial.back() > 8 * b + n) continue;
            monomial.push_back(8 * b + n);
            const int within = static_cast<int>(f - first);
            row_of[monomial] = 64 * stage + (power == 2 ? 8 * within + n : 8 * n + within);
          }
    }
  }
  std::vector<int> rows;
  for (const auto& monomial : tuples(power, d)) rows.push_back(row_of.at(monomial));
  return rows;
}

/// Sums of the chunks of a batch, 64 tokens each, and initial states.
template <class T>
struct Problem {
  Batch batch;
  int heads, power, d, D, rows, e;
  bool started, finals, is_split;
  ChunkBuffers chunks;
  host::Buffer<float> own_sums, own_normaliser, initial_sums, initial_normaliser, final_sums, final_normaliser;
  host::Buffer<T> sums, normaliser, rest;

  Problem(std::vector<int> lengths, bool packed, int of_heads, int of_power, int of_d, int of_e, bool with_initial,
          bool with_final, bool with_rest = false)
      : batch(std::move(lengths), packed, 64),
        heads(of_heads),
        power(of_power),
        d(of_d),
        D(monomial_count(power, d)),
        rows(state_rows(power, d)),
        e(of_e),
        started(with_initial),
        finals(with_final),
        is_split(with_rest),
        chunks(heads * batch.slots),
        own_sums(index(heads * batch.slots * D * e)),
        own_normaliser(index(heads * batch.slots * D)),
        initial_sums(index(heads * batch.size() * D * e)),
        initial_normaliser(index(heads * batch.size() * D)),
        final_sums(initial_sums.size()),
        final_normaliser(initial_normaliser.size()),
        sums(index(heads * batch.slots * rows * e)),
        normaliser(index(heads * batch.slots * rows * 4)),
        rest(is_split ? sums.size() : 0) {
    std::mt19937 random(9);
    std::normal_distribution<float> normal;
    const std::vector<bool> used = batch.used(heads);
    for (std::size_t s = 0; s < used.size(); ++s) {
      if (!used[s]) continue;
      chunks.keep.set(s, random() % 8 == 0 ? 0 : static_cast<float>(random() % 1000) / 512);
      chunks.add.set(s, static_cast<float>(random() % 1000) / 512);
      chunks.shift.set(s, 3 + static_cast<int>(random() % 20));
      for (std::size_t i = 0; i < index(D * e); ++i) own_sums.set(s * index(D * e) + i, normal(random));
      for (std::size_t i = 0; i < index(D); ++i) own_normaliser.set(s * index(D) + i, normal(random));
    }
    for (std::size_t i = 0; i < initial_sums.size(); ++i) initial_sums.set(i, normal(random));
    for (std::size_t i = 0; i < initial_normaliser.size(); ++i) initial_normaliser.set(i, normal(random));
  }
  [[nodiscard]] std::size_t slot(int b, int n, int h) const { return index(h * batch.slots + batch.slot(b) + n); }

  host::Report run(const host::Options& options = {}) {
    typename Scan<T>::Args args{{own_sums, own_normaliser},
                                chunks.arrays(),
                                {sums, normaliser},
                                {},
                                {},
                                batch.sequences(),
                                {heads, heads, heads},
                                power,
                                d,
                                e};
    if (is_split) args.prefixes.rest = rest;
    if (started) args.initial.sums = initial_sums, args.initial.normaliser = initial_normaliser;
    if (finals) args.final.sums = final_sums, args.final.normaliser = final_normaliser;
    const Blocks blocks = Scan<T>::blocks(args.sequences, args.heads, power, d, e);
    host::Report report = host::launch<Scan<T>>(grid(blocks), args, options);
    const std::vector<bool> used = batch.used(heads);
    sums.check_stored(report, "sums", [&](std::size_t i) { return bool{used[i / index(rows * e)]}; });
    rest.check_stored(report, "rest", [&](std::size_t i) { return bool{used[i / index(rows * e)]}; });
    normaliser.check_stored(report, "normaliser", [&](std::size_t i) { return bool{used[i / index(4 * rows)]}; });
    final_sums.check_stored(report, "final sums", [&](std::size_t) { return finals; });
    final_normaliser.check_stored(report, "final normaliser", [&](std::size_t) { return finals; });
    return report;
  }
  [[nodiscard]] std::string results() const { return bits(sums, normaliser, rest, final_sums, final_normaliser); }

  /// The largest error over its bound. What S was off by is kept, and each step rounds two products and their sum; c_m
  /// and 2^-p are exact, their product with S is rounded, then to T: by u in one term, by u² in two. The three terms of
  /// a normaliser hold all bits of a float. None holds those below the least number of T.
  [[nodiscard]] double error() const {
    const double least = fraction_bits<T> == 7 ? 0x1p-133 : 0x1p-24, unit = std::ldexp(.5, -fraction_bits<T>);
    const double u = is_split ? unit * unit : unit;
    const std::vector<double> all = coefficients(power, d);
    const std::vector<int> row_of = rows_of_monomials(power, d);
    double worst = 0;
    const auto compare = [&](double x, double exact, double bound) {
      const double off = std::abs(x - exact);
      worst = std::max(worst, off == 0 ? 0 : std::isnan(off) ? infinity : off / bound);
    };
    const auto walk = [&](int b, int h, int size, int i, double c, const auto& own, const auto& initial,
                          const auto& last, double rounding, const auto& prefix) {
      const std::size_t state = index((b * heads + h) * size + i);
      double x = started ? double{initial[state]} : 0, bound = 0;
      for (int n = 0; n < batch.chunks(b); ++n) {
        const std::size_t s = slot(b, n, h);
        const double scale = std::ldexp(c, -chunks.shift[s]);
        compare(prefix(s), x * scale, (bound + (u_float + rounding) * (std::abs(x) + bound)) * scale + least / 2);
        const double kept = double{chunks.keep[s]},
                     add = double{chunks.add[s]} * double{own[s * index(size) + index(i)]};
        bound = kept * bound + 2 * u_float * (kept * (std::abs(x) + bound) + std::abs(add));
        x = (kept == 0 ? 0 : kept * x) + add;
      }
      if (finals) compare(double{last[state]}, x, bound);
    };
    for (int b = 0; b < batch.size(); ++b)
      for (int h = 0; h < heads; ++h)
        for (int m = 0; m < D; ++m) {
          const double c = all[index(m)];
          const int row = row_of[index(m)];
          for (int i = m * e; i < (m + 1) * e; ++i)
            walk(b, h, D * e, i, c, own_sums, initial_sums, final_sums, u, [&](std::size_t s) {
              const std::size_t at = s * index(rows * e) + index(row * e + i % e);
              return double{to_float(sums[at])} + (is_split ? double{to_float(rest[at])} : 0);
            });
          walk(b, h, D, m, c, own_normaliser, initial_normaliser, final_normaliser, 0, [&](std::size_t s) {
            double sum = 0;
            for (std::size_t term = 0; term < 3; ++term)
              sum += double{to_float(normaliser[(s * index(rows) + index(row)) * 4 + term])};
            return sum;
          });
        }
    std::vector<bool> is_monomial(index(rows), false);  // the other rows hold 0
    for (const int row : row_of) is_monomial[index(row)] = true;
    const std::vector<bool> used = batch.used(heads);
    for (std::size_t s = 0; s < used.size(); ++s)
      for (std::size_t row = 0; used[s] && row < index(rows); ++row) {
        if (is_monomial[row]) continue;
        for (std::size_t c = 0; c < index(e); ++c) {
          compare(double{to_float(sums[(s * index(rows) + row) * index(e) + c])}, 0, 0);
          if (is_split) compare(double{to_float(rest[(s * index(rows) + row) * index(e) + c])}, 0, 0);
        }
        for (std::size_t t = 0; t < 4; ++t)
          compare(double{to_float(normaliser[(s * index(rows) + row) * 4 + t])}, 0, 0);
      }
    return worst;
  }
};

}  // namespace

TEST_CASE("monomials have the coefficients of their places", "[cuda]") {
  for (int power = 1; power <= largest_power; ++power)
    for (const int d : {1, 2, 5, 16, 24}) {
      CAPTURE(power, d);
      const std::vector<double> all = coefficients(power, d);
      REQUIRE(static_cast<int>(all.size()) == monomial_count(power, d));
      int differ = 0;
      for (int from = 0; from < monomial_count(power, d); from += 32) {
        const Lanes<float> c = multinomial(power, d, lane() + from);
        for (int l = 0; l < 32 && from + l < monomial_count(power, d); ++l)
          differ += double{c[l]} != all[index(from + l)];
      }
      REQUIRE(differ == 0);
    }
}

TEMPLATE_TEST_CASE("states are scanned within their roundings", "[cuda]", bf16, fp16) {
  const bool packed = GENERATE(false, true), started = GENERATE(false, true), finals = GENERATE(false, true),
             is_split = GENERATE(false, true);
  CAPTURE(packed, started, finals, is_split);
  const auto check = [&](std::vector<int> lengths, int heads, int power, int d, int e) {
    CAPTURE(power, d, e);
    std::string first;
    for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
      Problem<TestType> problem(lengths, packed, heads, power, d, e, started, finals, is_split);
      const host::Report report = problem.run({schedule, 3, host::MmaSum::hopper, {}});
      INFO(report.text());
      REQUIRE(report.clean());
      REQUIRE(problem.error() <= 1);
      if (first.empty()) first = problem.results();
      REQUIRE(problem.results() == first);
    }
  };
  check({130, 0, 64, 320, 321, 1}, 2, 2, 8, 12);
  check({64 * 37}, 1, 1, 16, 8);
  check({64, 65}, 1, 3, 8, 8);
  check({200}, 1, 4, 8, 4);
}

TEMPLATE_TEST_CASE("behind a reset nothing is left of what was not a number", "[cuda]", bf16, fp16) {
  Problem<TestType> problem({64 * 10}, false, 1, 2, 8, 8, true, true);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t n = 0; n < 10; ++n) problem.chunks.keep.set(n, n == 6 ? 0.f : 1.f);
  problem.own_sums.set(2 * 288 + 37, nan);
  problem.own_normaliser.set(2 * 36 + 11, -std::numeric_limits<float>::infinity());
  REQUIRE(problem.run().clean());
  int wrong = 0;
  for (std::size_t n = 0; n < 10; ++n) {
    const bool seen = n > 2 && n <= 6;
    // Entry 37 is of monomial (0, 4), in row 4; the normaliser's 11th is (1, 4), in row 12.
    for (std::size_t i = 0; i < 512; ++i) wrong += std::isnan(to_float(problem.sums[n * 512 + i])) != (seen && i == 37);
    for (std::size_t row = 0; row < 64; ++row)
      wrong += std::isfinite(to_float(problem.normaliser[(n * 64 + row) * 4])) == (seen && row == 12);
  }
  for (std::size_t i = 0; i < 288; ++i) wrong += std::isnan(problem.final_sums[i]);
  REQUIRE(wrong == 0);
}

TEST_CASE("a scan moves every byte of the states once", "[cuda]") {
  // 5 chunks of 2 heads, D = 136, 192 rows: 26 blocks of 4 warps a head.
  const bool is_split = GENERATE(false, true);
  Problem<bf16> problem({64 * 5}, false, 2, 2, 16, 64, false, true, is_split);
  const host::Report report = problem.run();
  INFO(report.text());
  REQUIRE(report.clean());
  REQUIRE(report.blocks == 52);
  // A normaliser is read by 32 rows at a time, whose monomials lie in pieces: 32 bytes are eight of them.
  std::set<std::pair<int, int>> pieces;
  const std::vector<int> row_of = rows_of_monomials(2, 16);
  for (int m = 0; m < 136; ++m) pieces.insert({row_of[index(m)] / 32, m / 8});
  const long of_normaliser = static_cast<long>(pieces.size());
  const long states = 10 * (136 * 64 * 4 / 32 + of_normaliser), finals = 2 * (136 * 64 * 4 / 32 + of_normaliser);
  const long prefixes = (is_split ? 2 : 1) * 10 * 192 * 64 * 2 / 32;
  const long normalisers = 10 * 192 * 4 * 2 / 32;
  const long factors = 26 * 4 * (3 * 1 + 3 * 2);  // 20 bytes each, those of the second head in two sectors
  REQUIRE(report.global().transactions == states + finals + prefixes + normalisers + factors);
}

TEST_CASE("a scan without any one of its predicates or indices is found out", "[cuda]") {
  host::Report clean;
  const auto run = [&](const host::Mutation& mutation) {
    Problem<bf16> problem({64 * 6, 64}, false, 2, 2, 8, 8, true, true, true);
    const host::Report report = problem.run({host::Schedule::forward, 0, host::MmaSum::hopper, mutation});
    if (mutation.change == host::Change::none) clean = report;
    return report.clean() && problem.error() <= 1 ? problem.results() : "";
  };
  run({});
  REQUIRE(host::mutations(clean).size() == 29);
  REQUIRE(survivors(clean, run) == "");
}
