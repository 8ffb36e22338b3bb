// What the host finds: races, copies in flight, bounds and what nobody wrote, in shared and global memory; registers,
// barriers, warps that end; other orders of warps.
#include "mini.hpp"

using namespace sympow::test;

namespace {

const auto bring = [](const MiniArgs& x, Shared<float> s) {  // 64 bf16: 128 bytes
  cp_async<16>(s.as<bf16>(), lane() * 8, x.y, lane() * 8, 16, lane() < 8);
};

constexpr auto produce_and_consume = [](const auto& x, auto s) {  // two stages; barriers 1, 2: full, 3, 4: empty
  constexpr int steps = 6, stages = 2;
  if (warp() == 0)
    for (int n = 0; n < steps; ++n) {
      const int stage = n % stages;
      if (n >= stages) bar_sync(3 + stage, 96);
      put(s, lane() + stage * 32, static_cast<float>(n));
      bar_arrive(1 + stage, 96);
    }
  else {
    Lanes<float> sum = 0.f;
    for (int n = 0; n < steps; ++n) {
      const int stage = n % stages;
      bar_sync(1 + stage, 96);
      sum += get(s, (lane() ^ 1) + stage * 32);
      if (n + stages < steps) bar_arrive(3 + stage, 96);
    }
    const Lanes<float> r[1] = {sum};
    if (warp() == 1) store(x.x, lane() + 32, r);
  }
};

}  // namespace

TEST_CASE("global memory has bounds, alignment and a first writer", "[cuda]") {
  constexpr auto above = [](const auto& x, auto) { get(x.x, lane() + 33); };
  REQUIRE(always<1, above>({"out of bounds: entry 64 in global memory"}));
  constexpr auto below = [](const auto& x, auto) { put(x.x, lane() - 1, 0); };
  REQUIRE(always<1, below>({"out of bounds: entry -1 in global memory"}));
  constexpr auto misaligned = [](const auto& x, auto) {
    Lanes<float> r[2];
    load(r, x.x, lane() + 1, lane() < 1);
  };
  REQUIRE(always<1, misaligned>({"misaligned: 8 bytes at entry 1 in global memory"}));
  constexpr auto copied = [](const auto& x, auto s) {
    cp_async<16>(s.template as<bf16>(), lane() * 8, x.y, lane() * 4, 16, lane() < 8);
    cp_async_wait<0>();
  };
  REQUIRE(always<1, copied>({"misaligned: 16 bytes at entry 4 in global memory"}));
  constexpr auto unset = [](const auto& x, auto) { get(x.x, lane() + 32); };
  REQUIRE(always<1, unset>({"loads global memory that nobody wrote"}));
  constexpr auto right = [](const auto& x, auto) {
    const Lanes<float> r[1] = {get(x.x, lane())};
    store(x.x, lane() + 32, r);
  };
  REQUIRE(faults<1, right>() == "");
}

TEST_CASE("an entry is stored once, by one block, and by all that must", "[cuda]") {
  constexpr auto twice = [](const auto& x, auto) { put(x.x, lane() / 2 + 32, 0); };
  REQUIRE(always<1, twice>({"stores an entry twice, first at line"}));
  constexpr auto by_all_blocks = [](const auto& x, auto) { put(x.x, lane() + 32, 0); };
  REQUIRE(faults<1, by_all_blocks>(1) == "");
  REQUIRE(always<1, by_all_blocks>({"stores an entry that another block stored at line"}, 2));
  constexpr auto read_by_another = [](const auto& x, auto) {
    if (block_index(0) == 0) put(x.x, lane(), 0);
    if (block_index(0) == 1) get(x.x, lane());
  };
  REQUIRE(always<1, read_by_another>({"race: loads what another block stores", "race: stores what another block loads"},
                                     2));
  constexpr auto by_another_warp = [](const auto& x, auto) {
    if (warp() == 0) put(x.x, lane(), 0);
    if (warp() == 1) get(x.x, lane());
  };
  REQUIRE(always<2, by_another_warp>({"race: loads what another warp stores", "race: stores what another warp loads"}));

  host::Buffer<float> y(8);
  for (std::size_t i = 0; i < 6; ++i) y.set(i, 0);
  host::Report report;
  y.check_stored(report, "y", [](std::size_t i) { return i != 2; });
  REQUIRE(report.faults.size() == 2);
  REQUIRE(report.faults.contains("y: 2 entries were never stored, the first is 6"));
  REQUIRE(report.faults.contains("y[2] was stored, must not be"));
}

TEST_CASE("sectors of global memory are counted", "[cuda]") {
  constexpr auto strided = [](const auto& x, auto) {
    get(x.x, lane() / 8 * 8);  // four sectors for 16 bytes
    get(x.x, lane());
  };
  REQUIRE((run<1, strided>().global()) == host::Traffic{4 + 4, 1 + 4});
}

TEST_CASE("a register that was never set is found where it is used", "[cuda]") {
  constexpr auto value = [](const auto& x, auto) {
    Lanes<float> r[1];
    load(r, x.x, lane(), lane() < 31);
    store(x.x, lane() + 32, r);
  };
  REQUIRE(always<1, value>({"needs a register that was never set: the value"}));
  constexpr auto index = [](const auto& x, auto) {
    Lanes<int> i;
    get(x.x, i + 1);
  };
  REQUIRE(always<1, index>({"needs a register that was never set: the index"}));
  constexpr auto predicate = [](const auto& x, auto) {
    Lanes<float> r[1], unset;
    load(r, x.x, lane(), unset < 1.f);
  };
  REQUIRE(always<1, predicate>({"needs a register that was never set: the predicate"}));
  constexpr auto factor = [](const auto&, auto) {
    Lanes<Pair<bf16>> a[4] = {Pair<bf16>{0}, Pair<bf16>{0}, {}, Pair<bf16>{0}}, b[2] = {Pair<bf16>{0}, Pair<bf16>{0}};
    Lanes<float> c[4] = {0.f, 0.f, 0.f, 0.f};
    a[2] = {};
    mma(c, a, b);
  };
  REQUIRE(always<1, factor>({"needs a register that was never set: A"}));
  constexpr auto accumulator = [](const auto&, auto) {
    const Lanes<Pair<bf16>> zero = Pair<bf16>{0}, a[4] = {zero, zero, zero, zero}, b[2] = {zero, zero};
    Lanes<float> c[4];
    mma(c, a, b);
  };
  REQUIRE(always<1, accumulator>({"needs a register that was never set: C"}));
  constexpr auto through_shuffle = [](const auto& x, auto) {
    Lanes<float> r[1];
    load(r, x.x, lane(), lane() < 31);
    const Lanes<float> moved[1] = {shuffle_xor(r[0], 16)};
    store(x.x, lane() + 32, moved, lane() != 15);
  };
  REQUIRE(faults<1, through_shuffle>() == "");
}

TEST_CASE("producers and consumers meet at named barriers", "[cuda]") {
  REQUIRE(faults<3, produce_and_consume>() == "");
}

TEST_CASE("producers and consumers without any one of their barriers are found out", "[cuda]") {
  const auto clean = run<3, produce_and_consume>();
  int broken = 0;
  for (const auto& mutation : host::mutations(clean)) {
    if (mutation.change != host::Change::skip || clean.sites.at(mutation.place).instruction[0] != 'b') continue;
    CAPTURE(text(mutation));
    host::Buffer<float> x(64);
    host::Buffer<bf16> y(64);
    REQUIRE(!host::launch<Mini<3, produce_and_consume>>({1, 1, 1}, {x, y}, {{}, 0, {}, mutation}).clean());
    ++broken;
  }
  REQUIRE(broken == 4);
}

TEST_CASE("a barrier orders only the warps that meet at it", "[cuda]") {
  constexpr auto third = [](const auto&, auto s) {
    if (warp() == 0) put(s, lane(), 1);
    if (warp() < 2) bar_sync(1, 64);
    if (warp() == 1) get(s, lane());
    if (warp() == 2) get(s, lane());
  };
  REQUIRE(always<3, third>({"race: reads what another warp wrote", "race: writes what another warp reads"}));
  constexpr auto arrives = [](const auto&, auto s) {  // who only arrives is not after those who come later
    if (warp() == 1) put(s, lane(), 1);
    if (warp() == 0) bar_arrive(1, 64);
    if (warp() == 1) bar_sync(1, 64);
    if (warp() == 0) get(s, lane());
  };
  REQUIRE(always<2, arrives>({"race: reads what another warp wrote", "race: writes what another warp reads"}));
}

TEST_CASE("what a kernel throws comes out of its launch", "[cuda]") {
  constexpr auto throws = [](const auto&, auto) { throw 7; };
  REQUIRE_THROWS_AS((run<2, throws>()), int);
}

TEST_CASE("warps that end before a barrier, and those that wait for each other, are deadlocks", "[cuda]") {
  constexpr auto leaves = [](const auto&, auto) {
    if (warp() == 1) return;
    barrier();
  };
  REQUIRE(always<3, leaves>({"deadlock: barrier 0 has 64 of 96 threads; ended without it: warps 1"}));
  constexpr auto crossed = [](const auto&, auto) {
    bar_sync(1 + warp(), 64);
    bar_sync(2 - warp(), 64);
  };
  REQUIRE(always<2, crossed>({"deadlock: barrier 1 has 32 of 64 threads"}));
  constexpr auto twice = [](const auto&, auto) {
    if (warp() == 0) bar_arrive(1, 64);
    if (warp() == 0) bar_arrive(1, 64);
  };
  REQUIRE(always<2, twice>({"comes to barrier 1 a second time before the others have come once"}));
  constexpr auto counts = [](const auto&, auto) { bar_sync(1, warp() == 0 ? 64 : 32); };
  REQUIRE(always<2, counts>({"barrier 1 is of 32 threads here, of 64 elsewhere", "deadlock: barrier 1 has 32 of 64"}));
  constexpr auto too_many = [](const auto&, auto) { bar_sync(16, 64); };
  REQUIRE(always<2, too_many>({"barrier 16 of 64 threads in a block of 64"}));
}

TEST_CASE("bytes that several lanes ask for are moved once", "[cuda]") {
  host::Spans spans{};
  spans[0] = {72, 16}, spans[3] = {64, 16}, spans[5] = {124, 8}, spans[9] = {72, 8};  // 64 … 87 and 124 … 131
  REQUIRE(host::sectors(spans) == host::Traffic{3, 1});
}

// ---- shared memory ----

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
          "block_test.cpp:" + std::to_string(line) + ": reads shared memory that nobody wrote\n");
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
