// Kernels as they are written, on the host: right, without faults, no transaction too many, and no line of it needless.
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "catch.hpp"
#include "every_name.hpp"
#include "gemm.hpp"
#include "row_sums.hpp"

using namespace sympow::test;
namespace host = sympow::cuda::block::host;

namespace {

template <class T>
struct Problem {
  int m, n, k;
  std::int64_t lda, ldb, ldc;
  host::Buffer<T> a, b;
  host::Buffer<float> c;

  Problem(int rows, int columns, int depth, unsigned seed)
      : m(rows),
        n(columns),
        k(depth),
        lda((k + 7) / 8 * 8),
        ldb((n + 7) / 8 * 8),
        ldc(n),
        a(size(m, lda)),
        b(size(k, ldb)),
        c(size(m, ldc)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < k; ++j) a.set(at(i, j, lda), round_to<T>(normal(random)));
    for (int i = 0; i < k; ++i)
      for (int j = 0; j < n; ++j) b.set(at(i, j, ldb), round_to<T>(normal(random)));
  }
  static std::size_t size(int rows, std::int64_t stride) { return static_cast<std::size_t>(rows * stride); }
  static std::size_t at(int i, int j, std::int64_t stride) { return static_cast<std::size_t>(i * stride + j); }

  host::Report run(const host::Options& options) {
    const typename Gemm<T>::Args args{a, b, c, m, n, k, lda, ldb, ldc};
    host::Report report = host::launch<Gemm<T>>({(n + 31) / 32, (m + 31) / 32, 1}, args, options);
    c.check_stored(report, "C", [](std::size_t) { return true; });
    return report;
  }

  /// The largest error over its bound. One mma takes 16 products into the accumulator. By the rule that cuts most, each
  /// of the 17 terms loses less than 2^-25 2^e, 2^e at most the largest term, then the sum less than 2^-23 of itself.
  /// With S = Σ |a b|, which bounds terms and sums (but for what they were off by before, 1 + 2^-10 covers it),
  /// ⌈k / 16⌉ steps lose at most ⌈k / 16⌉ (17/4 + 1) 2^-23 S. The tail of a tile only adds zeros.
  double error() const {
    double worst = 0;
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double exact = 0, sizes = 0;
        for (int l = 0; l < k; ++l) {
          const double product = double{to_float(a[at(i, l, lda)])} * double{to_float(b[at(l, j, ldb)])};
          exact += product;
          sizes += std::abs(product);
        }
        const double bound = (k + 15) / 16 * (17. / 4 + 1) * 0x1p-23 * (1 + 0x1p-10) * sizes;
        worst = std::max(worst, std::abs(double{c[at(i, j, ldc)]} - exact) / bound);
      }
    return worst;
  }
};

}  // namespace

TEMPLATE_TEST_CASE("a tiled product is right at every edge, in any order of warps", "[cuda]", bf16, fp16) {
  const auto [m, n, k] = GENERATE(std::array{1, 2, 1}, std::array{31, 34, 33}, std::array{64, 32, 128},
                                  std::array{33, 30, 100}, std::array{5, 64, 16});
  const auto mma = GENERATE(host::MmaSum::hopper, host::MmaSum::nearest, host::MmaSum::toward_zero);
  CAPTURE(m, n, k, static_cast<int>(mma));
  std::vector<float> first;
  for (const auto schedule : {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random}) {
    Problem<TestType> problem(m, n, k, 7);
    const host::Report report = problem.run({schedule, 3, mma, {}});
    INFO(report.text());
    REQUIRE(report.clean());
    REQUIRE(problem.error() <= 1);
    std::vector<float> c;
    for (std::size_t i = 0; i < problem.c.size(); ++i) c.push_back(problem.c[i]);
    if (first.empty()) first = c;
    REQUIRE(c == first);  // the same bits
  }
}

TEST_CASE("a tiled product moves no byte twice and meets no bank twice", "[cuda]") {
  Problem<bf16> problem(64, 96, 128, 1);
  const host::Report report = problem.run({});
  INFO(report.text());
  REQUIRE(report.blocks == 6);
  for (const auto& [place, site] : report.sites) {
    CAPTURE(place.text(), site.instruction);
    REQUIRE(site.shared.transactions == site.shared.ideal);
    REQUIRE(site.global.transactions == site.global.ideal);
  }
  const long tiles = 6 * 4;  // of 32 × 32 × 32
  REQUIRE(report.executed("mma") == tiles * 4 * 2 * 2);
  REQUIRE(report.executed("ldmatrix") == tiles * 4 * 2 * 2);
  REQUIRE(report.executed("cp_async") == tiles * 4 * 2);
  REQUIRE(report.executed("bar_sync") == tiles * 4);
  const long copied = tiles * 2 * 32 * 32 * 2, read = tiles * 4 * 2 * 2 * 32 * 16, stored = 64 * 96 * 4;  // bytes
  REQUIRE(report.shared() == host::Traffic{(copied + read) / 128, (copied + read) / 128});
  REQUIRE(report.global() == host::Traffic{(copied + stored) / 32, (copied + stored) / 32});
}

TEST_CASE("a tiled product without any one of its barriers, waits, predicates or indices is found out", "[cuda]") {
  const auto broken = [](const host::Mutation& mutation) {
    Problem<bf16> problem(33, 34, 133, 2);
    const host::Report report = problem.run({host::Schedule::forward, 0, host::MmaSum::hopper, mutation});
    return std::pair(report, !(problem.error() <= 1));
  };
  const auto [clean, wrong] = broken({});
  INFO(clean.text());
  REQUIRE((clean.clean() && !wrong));
  const auto all = host::mutations(clean);
  REQUIRE(all.size() == 28);
  std::string survivors;
  for (const host::Mutation& mutation : all) {
    const auto [report, differs] = broken(mutation);
    if (report.clean() && !differs) survivors += text(mutation) + "\n";
  }
  REQUIRE(survivors == "");
}

TEMPLATE_TEST_CASE("every name of the block is carried out in any order of warps", "[cuda]", bf16, fp16) {
  using Kernel = EveryName<TestType>;
  host::Buffer<TestType> x(512), halves(640);
  host::Buffer<float> w(256), numbers(Kernel::number_rows * 64), quadruples(256);
  host::Buffer<Pair<TestType>> pairs(Kernel::pair_rows * 64);
  for (std::size_t i = 0; i < 512; ++i) x.set(i, round_to<TestType>(static_cast<float>(i % 37) - 18));
  for (std::size_t i = 0; i < 256; ++i) w.set(i, static_cast<float>(i));
  const auto schedule = GENERATE(host::Schedule::forward, host::Schedule::reverse, host::Schedule::random);
  const typename Kernel::Args args{x, w, halves, pairs, numbers, quadruples};
  const host::Report report = host::launch<Kernel>({}, args, {schedule, 1, host::MmaSum::hopper, {}});
  INFO(report.text());
  REQUIRE(report.clean());
  for (std::size_t i = 0; i < 512; ++i) {
    const bool whole = i < 464 || i % 2 == 0;  // the last copies bring two of four bytes
    REQUIRE(halves[i].bits == (whole ? x[i].bits : 0));
  }
  for (std::size_t i = 0; i < 64; ++i) REQUIRE(halves[576 + i].bits == x[7 * i].bits);
  for (std::size_t i = 0; i < 256; ++i) REQUIRE(quadruples[i] == w[i < 128 ? i + 128 : i]);
}

TEST_CASE("rows are summed", "[cuda]") {
  const int m = 70, n = 200;
  host::Buffer<float> x(70 * 200), y(70);
  for (std::size_t i = 0; i < x.size(); ++i) x.set(i, static_cast<float>(i % 200));

  host::Report report = host::launch<RowSums>({(m + 3) / 4, 1, 1}, {x, y, m, n});
  y.check_stored(report, "y", [](std::size_t) { return true; });
  INFO(report.text());
  REQUIRE(report.clean());
  REQUIRE(report.global().transactions == 70 * 200 * 4 / 32 + 70);  // every entry once; a sector for each sum

  for (std::size_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == 199 * 200 / 2);
}
