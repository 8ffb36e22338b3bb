// Kernels of gradients without any one of their barriers, waits, predicates or indices: each is found out, by a fault
// or by other numbers, in one of the instantiations.
#include "backward_cases.hpp"
#include "mutations.hpp"

using namespace sympow::test;

namespace {

enum class Kind { several, one, one_without_gates };  // heads and tiles of values

/// Two blocks and a part of a third; resets within blocks; 64 value channels and 8 more, and a group of two.
template <class K>
Case ragged(Kind kind) {
  Case how = case_of<K>({170, 3});
  how.chunk = 192;
  how.e = kind == Kind::several ? 72 : 8;
  how.heads = kind == Kind::several ? Heads{2, 2, 1} : Heads{1, 1, 1};
  how.has_factors = how.normalised;
  if (kind != Kind::one_without_gates)
    how.log_gate = [](int t) { return t == 20 || t == 150 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  return how;
}

/// run(backward, options) runs a kernel after all that it needs, and checks what it stored; its bits are `results`.
template <class K, class Run, class Results>
void mutate_kernel(Found& found, Kind kind, const Run& run, const Results& results) {
  mutate(found, [&](const host::Options& options, host::Report& report) -> std::string {
    ArraysOf<K> x(ragged<K>(kind));
    GradientBuffers<typename K::T, K::d> gradients(x, 0);
    Backward<typename K::T, K::P, K::d> backward(x, gradients);
    REQUIRE(backward.forward.run_quadratic({}).clean());
    report = run(backward, options);
    return report.clean() ? results(backward) : std::string();
  });
}

template <class K>
void mutate_units(Found& found, Kind kind) {
  mutate_kernel<K>(
      found, kind, [](auto& backward, const host::Options& options) { return backward.units(options); },
      [](const auto& b) {
        return bits(b.query_units, b.row_units, b.key_units, b.values_exponent, b.inverse, b.unit, b.exponent, b.peak,
                    b.factor, b.offset);
      });
}
template <class K>
void mutate_queries(Found& found, Kind kind) {
  const auto run = [](auto& backward, const host::Options& options) {
    REQUIRE(backward.units({}).clean());
    host::Report report = backward.queries(options);
    backward.gradients.d_queries.check_stored(report, "dq");
    return report;
  };
  mutate_kernel<K>(found, kind, run,
                   [](const auto& b) { return bits(b.gradients.d_queries.data, b.row, b.inside, b.through); });
}
template <class K>
void mutate_keys(Found& found, Kind kind) {
  const auto run = [](auto& backward, const host::Options& options) {
    REQUIRE(backward.units({}).clean());
    host::Report report = backward.keys(options);
    backward.gradients.d_keys.check_stored(report, "dk");
    backward.gradients.d_values.check_stored(report, "dv");
    return report;
  };
  mutate_kernel<K>(found, kind, run,
                   [](const auto& b) { return bits(b.gradients.d_keys.data, b.gradients.d_values.data, b.key); });
}
template <class K>
void mutate_flows(Found& found, Kind kind) {
  const auto run = [](auto& backward, const host::Options& options) {
    REQUIRE(backward.units({}).clean());
    REQUIRE(backward.queries({}).clean());
    REQUIRE(backward.keys({}).clean());
    host::Report report = backward.flows(options);
    backward.gradients.d_gates.check_stored(report, "d log gate");
    return report;
  };
  mutate_kernel<K>(found, kind, run, [](const auto& b) { return bits(b.gradients.d_gates.data); });
}

}  // namespace

TEST_CASE("units of gradients without any one instruction are found out", "[cuda]") {
  Found found;
  mutate_units<Kernels<bf16, 2, 16>>(found, Kind::several);
  mutate_units<Kernels<bf16, 1, 64>>(found, Kind::one);
  REQUIRE(found.size() == 40);
  REQUIRE(survivors(found) == "");
}
TEST_CASE("gradients of queries without any one instruction are found out", "[cuda]") {
  Found found;
  mutate_queries<Kernels<bf16, 2, 16>>(found, Kind::several);
  mutate_queries<Kernels<bf16, 1, 128>>(found, Kind::one_without_gates);
  REQUIRE(found.size() == 72);
  REQUIRE(survivors(found) == "");
}
TEST_CASE("gradients of keys without any one instruction are found out", "[cuda]") {
  Found found;
  mutate_keys<Kernels<bf16, 2, 16>>(found, Kind::several);
  mutate_keys<Kernels<bf16, 1, 128>>(found, Kind::one);
  REQUIRE(found.size() == 67);
  // A barrier of the block comes before that of the warp.
  REQUIRE(survivors(found) == "pair_tiles.hpp skip\n");
}
TEST_CASE("gradients of gates without any one instruction are found out", "[cuda]") {
  Found found;
  mutate_flows<Kernels<bf16, 2, 16>>(found, Kind::one);
  REQUIRE(found.size() == 13);
  REQUIRE(survivors(found) == "");
}
