// What the host finds in shared memory: races between warps and lanes, copies in flight, bounds, what nobody wrote.
#include "mini.hpp"

using namespace sympow::test;

namespace {

const auto put = [](Shared<float> s, const Lanes<int>& i, float value) {
  const Lanes<float> r[1] = {value};
  store(s, i, r);
};
const auto get = [](Shared<float> s, const Lanes<int>& i) {
  Lanes<float> r[1];
  load(r, s, i);
  return r[0];
};
const auto bring = [](const MiniArgs& x, Shared<float> s) {  // 64 bf16: 128 bytes
  cp_async<16>(s.as<bf16>(), lane() * 8, x.y, lane() * 8, 16, lane() < 8);
};

}  // namespace

TEST_CASE("a missing barrier between warps is a race in every schedule", "[cuda]") {
  constexpr auto read_after_write = [](const auto&, auto s) {
    if (warp() == 0) put(s, lane(), 1);
    if (warp() == 1) get(s, lane());
  };
  REQUIRE(always<2, read_after_write>({"race: reads what another warp wrote", "race: writes what another warp reads"}));
  REQUIRE_THAT((faults<2, read_after_write>()), contains("race: reads what another warp wrote at line"));

  constexpr auto write_after_read = [](const auto&, auto s) {
    put(s, lane() + warp() * 32, 1);
    barrier();
    get(s, lane());
    if (warp() == 1) put(s, lane(), 2);
  };
  REQUIRE(always<2, write_after_read>({"race: writes what another warp reads", "race: reads what another warp wrote"}));
  REQUIRE_THAT((faults<2, write_after_read>()), contains("race: writes what another warp reads at line"));

  constexpr auto write_after_write = [](const auto&, auto s) { put(s, lane(), 1); };
  REQUIRE(always<2, write_after_write>({"race: writes what another warp wrote"}));

  constexpr auto right = [](const auto&, auto s) {
    if (warp() == 0) put(s, lane(), 1);
    barrier();
    get(s, lane());
    barrier();
    if (warp() == 1) put(s, lane(), 2);
  };
  REQUIRE(faults<2, right>() == "");
}

TEST_CASE("a missing warp barrier is a race between lanes", "[cuda]") {
  constexpr auto read_after_write = [](const auto&, auto s) {
    put(s, lane(), 1);
    get(s, lane() ^ 1);
  };
  REQUIRE(always<1, read_after_write>({"race: reads what another lane of the warp wrote"}));
  constexpr auto write_after_read = [](const auto&, auto s) {
    put(s, lane(), 1);
    get(s, lane());
    warp_barrier();
    get(s, lane() ^ 1);
    put(s, lane(), 2);
  };
  REQUIRE(always<1, write_after_read>({"race: writes what another lane of the warp reads"}));
  constexpr auto write_after_write = [](const auto&, auto s) { put(s, lane() / 2, 1); };
  REQUIRE(always<1, write_after_write>({"race: writes what another lane of the warp wrote"}));
  constexpr auto matrix_after_write = [](const auto&, auto s) {
    for (int n = 0; n < 4; ++n) put(s, lane() + n * 32, 1);
    Lanes<Pair<bf16>> r[4];
    ldmatrix<false>(r, s.template as<bf16>(), lane() * 8);
  };
  REQUIRE(always<1, matrix_after_write>({"race: reads what another lane of the warp wrote"}));
  constexpr auto right = [](const auto&, auto s) {
    put(s, lane(), 1);
    warp_barrier();
    get(s, lane() ^ 1);
    warp_barrier();
    put(s, lane(), 2);
  };
  REQUIRE(faults<1, right>() == "");
}

TEST_CASE("copies in flight may be neither read nor written, and are waited for", "[cuda]") {
  constexpr auto early = [](const auto& x, auto s) {
    bring(x, s);
    cp_async_commit();
    Lanes<float> r[1];
    load(r, s, lane() * 4, lane() < 8);
    cp_async_wait<0>();
  };
  REQUIRE(always<1, early>({"reads what the copy at line"}));
  constexpr auto too_few = [](const auto& x, auto s) {
    bring(x, s);
    cp_async_commit();
    cp_async_wait<1>();
    barrier();
    get(s, lane());
  };
  REQUIRE(always<1, too_few>({"brings, without waiting for it"}));
  constexpr auto overwritten = [](const auto& x, auto s) {
    bring(x, s);
    put(s, lane(), 1);
    cp_async_commit();
    cp_async_wait<0>();
  };
  REQUIRE(always<1, overwritten>({"is still writing"}));
  constexpr auto forgotten = [](const auto& x, auto s) {
    bring(x, s);
    cp_async_commit();
  };
  REQUIRE(always<1, forgotten>({"this copy is never waited for"}));
  constexpr auto uncommitted = [](const auto& x, auto s) {
    bring(x, s);
    cp_async_wait<0>();
  };
  REQUIRE(always<1, uncommitted>({"this copy is never waited for"}));
  constexpr auto of_other_lanes = [](const auto& x, auto s) {
    bring(x, s);
    cp_async_commit();
    cp_async_wait<0>();
    get(s, lane());
  };
  REQUIRE(always<1, of_other_lanes>({"race: reads what another lane of the warp wrote"}));
  constexpr auto of_other_warps = [](const auto& x, auto s) {
    if (warp() == 0) bring(x, s);
    cp_async_commit();
    cp_async_wait<0>();
    barrier();
    get(s, lane());
  };
  REQUIRE(faults<2, of_other_warps>() == "");
  constexpr auto source = [](const auto& x, auto s) {
    cp_async<4>(s, lane(), x.x, lane(), 4);
    cp_async_commit();
    const Lanes<float> r[1] = {100.f};
    store(x.x, lane(), r);
    cp_async_wait<0>();
  };
  REQUIRE(always<1, source>({"the source of this copy changes before it is waited for"}));
  constexpr auto too_many_bytes = [](const auto& x, auto s) {
    cp_async<4>(s, lane(), x.x, lane(), where(lane() < 1, 5, 4));
    cp_async_commit();
    cp_async_wait<0>();
  };
  REQUIRE(always<1, too_many_bytes>({"a copy of 5 of 4 bytes"}));
}

TEST_CASE("shared memory has bounds, alignment and a first writer", "[cuda]") {
  constexpr auto unset = [](const auto&, auto s) { get(s, lane()); };
  REQUIRE(always<1, unset>({"reads shared memory that nobody wrote"}));
  constexpr auto outside = [](const auto&, auto s) { put(s, lane() + 225, 1); };
  REQUIRE(always<1, outside>({"out of bounds: entry 256 of an array of 256 in shared memory"}));
  constexpr auto below = [](const auto&, auto s) { put(s, lane() - 1, 1); };
  REQUIRE(always<1, below>({"out of bounds: entry -1"}));
  constexpr auto misaligned = [](const auto&, auto s) {
    const Lanes<float> r[4] = {0.f, 0.f, 0.f, 0.f};
    store(s, lane() * 4 + 2, r, lane() < 8);
  };
  REQUIRE(always<1, misaligned>({"misaligned: 16 bytes from byte 8 in shared memory"}));
  constexpr auto too_large = [](const auto&, auto) {
    Arena arena;
    arena.take<float>(257);
  };
  REQUIRE(always<1, too_large>({"takes 1028 bytes of shared memory, the kernel has 1024"}));
}

TEST_CASE("a fault names the file and the line", "[cuda]") {
  constexpr unsigned line = __LINE__ + 3;
  constexpr auto unset = [](const auto&, auto s) {
    Lanes<float> r[1];
    load(r, s, lane());
  };
  REQUIRE((faults<1, unset>()) ==
          "shared_memory_test.cpp:" + std::to_string(line) + ": reads shared memory that nobody wrote\n");
}

TEST_CASE("wavefronts of shared memory are counted by the fullest bank", "[cuda]") {
  constexpr auto strided = [](const auto&, auto s) {
    put(s, lane() * 8, 1);  // 8 words in each of 4 banks
    Lanes<float> r[4];
    load(r, s, lane() * 0);  // 16 bytes for all, in four phases
  };
  const host::Report report = run<1, strided>();
  REQUIRE(report.shared() == host::Traffic{8 + 4, 1 + 4});
}
