// The kernels of slots against a model on the host: which tails are folded, what is copied, and what has a fault.
#include <array>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "batches.hpp"
#include "catch.hpp"
#include "decode/copy_slots.hpp"
#include "decode/reserve_tails.hpp"

using namespace sympow::test;
using sympow::cuda::CopySlots;
using sympow::cuda::ReserveTails;

namespace {

using Integers = std::vector<std::int32_t>;
constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min(),
                       most = std::numeric_limits<std::int32_t>::max();

/// Buffers and what must be in them.
struct Reserved {
  int batch, slots, capacity = 64, most_left, tokens;
  bool folds, drops, has_indices = true;
  host::Buffer<std::int32_t> indices, dropped, counts, faults, of_slots, tails, folded_slots, folded;
  Integers before;

  Reserved(int sequences, int of_slots_, int left, int fresh, bool may_fold, bool may_drop)
      : batch(sequences),
        slots(of_slots_),
        most_left(left),
        tokens(fresh),
        folds(may_fold),
        drops(may_drop),
        indices(index(batch)),
        dropped(index(batch)),
        counts(index(slots)),
        faults(index(batch)),
        of_slots(index(batch)),
        tails(index(batch)),
        folded_slots(index(batch)),
        folded(index(batch)) {
    std::mt19937 random(3);
    const auto below = [&](int n) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(n)); };
    Integers order(index(slots));
    for (int s = 0; s < slots; ++s) order[index(s)] = s;
    std::shuffle(order.begin(), order.end(), random);
    const Integers wrong_indices = {-1, least, slots, most}, wrong_counts = {-1, least, capacity + 1, most};
    for (int b = 0; b < batch; ++b) {
      indices.set(index(b), below(4) == 0 ? wrong_indices[index(below(4))] : order[index(b)]);
      dropped.set(index(b), below(8) == 0 ? wrong_counts[index(below(4))] : below(8));
    }
    for (int s = 0; s < slots; ++s) {
      before.push_back(below(8) == 0   ? wrong_counts[index(below(4))]
                       : below(2) == 0 ? most_left + below(3) - 1
                                       : below(65));
      counts.set(index(s), before.back());
    }
  }

  host::Report run(const host::Options& options = {}) {
    ReserveTails::Args args{{},     {},    counts, faults,   of_slots,  tails,  folded_slots,
                            folded, batch, slots,  capacity, most_left, tokens, folds};
    if (has_indices) args.indices = indices;
    if (drops) args.dropped = dropped;
    host::Report report = host::launch<ReserveTails>(grid(ReserveTails::blocks(batch)), args, options);
    const auto all = [](std::size_t) { return true; };
    for (const auto* buffer : {&faults, &of_slots, &tails, &folded_slots, &folded})
      buffer->check_stored(report, "a result", all);
    return report;
  }
  /// The first sequence whose results are not those of the model; -1 if there is none.
  [[nodiscard]] int wrong() const {
    Integers after = before;
    for (int b = 0; b < batch; ++b) {
      const std::int32_t s = has_indices ? indices[index(b)] : b;
      const bool inside = s >= 0 && s < slots;
      const std::int64_t count = inside ? before[index(s)] : 0, drop = inside && drops ? dropped[index(b)] : 0;
      const bool is_right = count >= 0 && count <= capacity && drop >= 0 && drop <= count;
      const std::int64_t left = is_right ? count - drop : 0;
      const bool is_full = left > most_left, is_active = inside && is_right && (!is_full || folds);
      if (is_active) after[index(s)] = static_cast<std::int32_t>((is_full ? 0 : left) + tokens);
      const bool same = faults[index(b)] == (s >= slots             ? 1
                                             : inside && !is_active ? 2
                                                                    : 0) &&
                        of_slots[index(b)] == (is_active ? s : -1) &&
                        folded_slots[index(b)] == (is_active && is_full ? s : -1) &&
                        folded[index(b)] == (is_active && is_full ? left : 0) &&
                        (!is_active || tails[index(b)] == (is_full ? 0 : left));
      if (!same) return b;
    }
    for (int s = 0; s < slots; ++s)
      if (counts[index(s)] != after[index(s)]) return batch + s;
    return -1;
  }
  [[nodiscard]] std::string results() const {
    std::string all;
    for (const auto* buffer : {&faults, &of_slots, &tails, &folded_slots, &folded, &counts})
      for (std::size_t i = 0; i < buffer->size(); ++i) all += std::to_string((*buffer)[i]) + " ";
    return all;
  }
};

/// Two pools of slots with an array of each kind. Words are their own places; empty tails hold nothing.
struct Copied {
  static constexpr int slots = 4, capacity = 64, pairs = 5;
  /// groups, rows, width; whether it is a tail, and the filling.
  static inline const std::array<CopySlots::Words, 4> kinds = {{{{}, {}, 2, 300, 8, false, 0},
                                                                {{}, {}, 4, 1, 2, false, -1048576},
                                                                {{}, {}, 2, capacity, 4, true, 0},
                                                                {{}, {}, 1, capacity, 2, true, 0}}};
  std::vector<std::unique_ptr<host::Buffer<std::int32_t>>> from, to;
  host::Buffer<std::int32_t> from_indices{pairs}, to_indices{pairs}, from_counts{slots}, to_counts{slots},
      faults{pairs};
  Integers sources, targets, counts;

  Copied(Integers of, Integers into, Integers tokens)
      : sources(std::move(of)), targets(std::move(into)), counts(std::move(tokens)) {
    for (std::size_t i = 0; i < pairs; ++i) from_indices.set(i, sources[i]), to_indices.set(i, targets[i]);
    for (std::size_t s = 0; s < slots; ++s) from_counts.set(s, counts[s]), to_counts.set(s, -7);
    for (const CopySlots::Words& kind : kinds) {
      const auto size = static_cast<std::size_t>(slots * kind.size());
      from.push_back(std::make_unique<host::Buffer<std::int32_t>>(size));
      to.push_back(std::make_unique<host::Buffer<std::int32_t>>(size));
      for (std::size_t i = 0; i < size; ++i)
        if (!kind.is_tail || is_token(kind, i, counts[i / static_cast<std::size_t>(kind.size())]))
          from.back()->set(i, static_cast<std::int32_t>(i) + 1);
    }
  }
  static bool is_token(const CopySlots::Words& kind, std::size_t i, int tokens) {
    return static_cast<int>(i / index(kind.width) % index(kind.rows)) < tokens;
  }
  host::Report run(const host::Options& options = {}) {
    CopySlots::Args args{};
    for (std::size_t n = 0; n < kinds.size(); ++n) {
      args.arrays[n] = kinds[n];
      args.arrays[n].from = *from[n], args.arrays[n].to = *to[n];
      args.blocks_of_pair += kinds[n].blocks();
    }
    args.array_count = static_cast<int>(kinds.size());
    args.from = {from_indices, slots}, args.to = {to_indices, slots};
    args.from_counts = from_counts, args.to_counts = to_counts, args.faults = faults;
    args.capacity = capacity;
    host::Report report = host::launch<CopySlots>(grid(CopySlots::blocks(pairs, args.blocks_of_pair)), args, options);
    faults.check_stored(report, "faults", [](std::size_t) { return true; });
    return report;
  }
  /// What differs from the model; empty if nothing does.
  [[nodiscard]] std::string wrong() const {
    Integers source_of(index(slots), -2);  // -2: not written
    for (std::size_t i = 0; i < pairs; ++i) {
      const int s = sources[i], t = targets[i];
      int fault = 0;
      if (t >= 0 && (s >= slots || t >= slots))
        fault = 1;
      else if (t >= 0 && s >= 0 && (counts[index(s)] < 0 || counts[index(s)] > capacity))
        fault = 2;
      else if (t >= 0)
        source_of[index(t)] = std::max(s, -1);
      if (faults[i] != fault) return "fault " + std::to_string(i);
    }
    for (int t = 0; t < slots; ++t) {
      const int s = source_of[index(t)], tokens = s < 0 ? 0 : counts[index(s)];
      if (to_counts[index(t)] != (s == -2 ? -7 : tokens)) return "count " + std::to_string(t);
      for (std::size_t n = 0; n < kinds.size(); ++n) {
        const auto size = static_cast<std::size_t>(kinds[n].size());
        for (std::size_t i = 0; i < size; ++i) {
          const std::size_t at = index(t) * size + i;
          const bool written = s != -2 && (!kinds[n].is_tail || is_token(kinds[n], i, tokens));
          if (to[n]->is_set(at) != written) return "array " + std::to_string(n) + " at " + std::to_string(at);
          if (!written) continue;
          const std::int32_t word = s < 0 ? (i % 2 == 1 ? kinds[n].fill : 0) : (*from[n])[index(s) * size + i];
          if ((*to[n])[at] != word) return "word " + std::to_string(at) + " of array " + std::to_string(n);
        }
      }
    }
    return "";
  }
};

constexpr auto orders = {host::Schedule::forward, host::Schedule::reverse, host::Schedule::random};

}  // namespace

TEST_CASE("tails are reserved, folded and cut as the model says", "[cuda]") {
  for (const int batch : {1, 32, 130, 300})
    for (const bool folds : {false, true})
      for (const bool drops : {false, true})
        for (const auto& [left, tokens] : {std::pair(62, 2), std::pair(0, 0), std::pair(64, 0)})
          for (const auto schedule : orders) {
            Reserved x(batch, 320, left, tokens, folds, drops);
            x.has_indices = batch != 32;
            const host::Report report = x.run({schedule, 3, host::MmaSum::hopper, {}});
            CAPTURE(batch, folds, drops, left, tokens);
            INFO(report.text());
            REQUIRE(report.clean());
            REQUIRE(x.wrong() == -1);
          }
}

TEST_CASE("slots are copied to the bit, or empty, or not at all", "[cuda]") {
  for (const auto schedule : orders) {
    const auto check = [&](Copied x) {
      const host::Report report = x.run({schedule, 3, host::MmaSum::hopper, {}});
      INFO(report.text());
      REQUIRE(report.clean());
      REQUIRE(x.wrong() == "");
      REQUIRE(report.global().transactions == report.global().ideal);
    };
    check({{2, -1, 0, 3, 0}, {0, 3, -1, 1, 2}, {5, 0, 64, 0}});
    check({{1, 4, most, 0, 0}, {0, 1, 2, 4, most}, {1, 2, 3, 4}});
    check({{0, 1, 2, least, -1}, {0, 1, 2, 3, least}, {-1, 65, 63, 0}});
  }
}

TEST_CASE("slots without any one of their predicates or indices are found out", "[cuda]") {
  host::Report clean;
  const auto reserve = [&](const host::Mutation& mutation) {
    Reserved x(130, 320, 62, 2, true, true);
    const host::Report report = x.run({host::Schedule::forward, 0, host::MmaSum::hopper, mutation});
    if (mutation.change == host::Change::none) clean = report;
    return report.clean() && x.wrong() == -1 ? x.results() : "";
  };
  reserve({});
  REQUIRE(host::mutations(clean).size() == 15);
  REQUIRE(survivors(clean, reserve) == "");
  const auto copy = [&](const host::Mutation& mutation) -> std::string {
    Copied x({2, -1, 0, 3, 0}, {0, 3, -1, 1, 2}, {5, 0, 62, 0});
    const host::Report report = x.run({host::Schedule::forward, 0, host::MmaSum::hopper, mutation});
    if (mutation.change == host::Change::none) clean = report;
    return report.clean() && x.wrong().empty() ? "right" : "";
  };
  copy({});
  REQUIRE(host::mutations(clean).size() == 14);
  REQUIRE(survivors(clean, copy) == "");
}
