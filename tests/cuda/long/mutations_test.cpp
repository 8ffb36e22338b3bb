// Sums of chunks and rows of attention without any one of their barriers, waits, predicates or indices: each is found
// out, by a fault or by other numbers, in one of the instantiations.
#include "mutations.hpp"
#include "update_cases.hpp"

using namespace sympow::test;

namespace {

/// Three stages of keys in a chunk, the second ends within a tile; resets within tiles; 64 value channels and 8 more.
template <class K>
Case ragged() {
  Case how = case_of<K>({350, 3});
  how.chunk = 192;
  how.e = 72;
  how.log_gate = [](int t) { return t == 20 || t == 330 ? -infinity : t % 40 == 7 ? -1. : -.01; };
  return how;
}

/// kernel(forward, options) runs it and checks what it stored; results(forward) are its bits.
template <class K, class Kernel, class Results>
void mutate_kernel(Found& found, const Kernel& kernel, const Results& results) {
  mutate(found, [&](const host::Options& options, host::Report& report) {
    ArraysOf<K> x(ragged<K>());
    Forward<typename K::T, K::P, K::d> forward(x);
    report = kernel(forward, options);
    return report.clean() ? results(forward) : std::string();
  });
}

template <class K>
void mutate_update(Found& found) {
  const auto kernel = [](auto& forward, const host::Options& options) {
    REQUIRE(forward.weights({}).clean());
    host::Report report = forward.update(options);
    const std::vector<bool> used = forward.batch.used(1);
    const std::size_t D = index(monomial_count(K::P, K::d)), e = index(forward.x.how.e);
    forward.own_sums.check_stored(report, "sums", [&](std::size_t i) { return bool{used[i / (D * e)]}; });
    forward.own_normaliser.check_stored(report, "normaliser", [&](std::size_t i) { return bool{used[i / D]}; });
    return report;
  };
  mutate_kernel<K>(found, kernel, [](const auto& forward) { return bits(forward.own_sums, forward.own_normaliser); });
}

template <class K>
void mutate_attention(Found& found, bool by_pairs = true) {
  const auto kernel = [&](auto& forward, const host::Options& options) {
    forward.by_pairs = by_pairs;
    if (!by_pairs) {  // what a reset of its tile hides
      forward.x.set(forward.x.keys, 0, 15, 0, 3, not_a_number);
      forward.x.set(forward.x.values, 0, 15, 0, 3, not_a_number);
    }
    REQUIRE(forward.states({}).clean());
    host::Report report = forward.attention(options, true);
    forward.x.rows.check_stored(report, "rows");
    forward.x.condition.check_stored(report, "condition");
    return report;
  };
  mutate_kernel<K>(found, kernel,
                   [](const auto& forward) { return bits(forward.x.rows.data, forward.x.condition.data); });
}

}  // namespace

TEST_CASE("sums of chunks without any one of their barriers, waits or predicates are found out", "[cuda]") {
  Found found;
  mutate_update<Kernels<bf16, 2, 16>>(found);
  mutate_update<Kernels<bf16, 3, 16>>(found);
  mutate_update<Kernels<bf16, 1, 64>>(found);
  mutate_update<Kernels<bf16, 4, 16>>(found);
  REQUIRE(found.size() == 58);
  // What it waits for before it puts φ into registers again: nvcc gives those another place while a product reads them.
  REQUIRE(survivors(found) == "update.hpp skip\nupdate.hpp wait less\n");
}

TEST_CASE("rows of attention without any one of their barriers, waits or predicates are found out", "[cuda]") {
  Found found;
  mutate_attention<Kernels<bf16, 2, 16>>(found);
  mutate_attention<Kernels<bf16, 3, 16>>(found);
  mutate_attention<Kernels<bf16, 1, 128>>(found);
  mutate_attention<Kernels<bf16, 2, 32>>(found);
  REQUIRE(found.size() == 89);
  // Lanes that exchange places all store zeros; registers that a product still reads are left to nvcc; and a warp of
  // these kernels has no lane without a row to copy.
  REQUIRE(survivors(found) == "attention.hpp exchange lanes\nattention.hpp wait less\ntile_copy.hpp unmask\n");
}

TEST_CASE("rows along a chunk without any one of their barriers, waits or predicates are found out", "[cuda]") {
  Found found;
  mutate_attention<Kernels<bf16, 1, 64>>(found, false);
  mutate_attention<Kernels<bf16, 1, 128>>(found, false);
  REQUIRE(found.size() == 114);
  // Registers that a product still reads are left to nvcc; lanes that exchange places all store zeros.
  REQUIRE(survivors(found) ==
          "linear_attention.hpp skip\nlinear_attention.hpp wait less\nlinear_attention.hpp exchange lanes\n"
          "linear_attention.hpp exchange lanes\nlinear_attention.hpp skip\nlinear_attention.hpp wait less\n");
}
