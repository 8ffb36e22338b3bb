// The products of a warp that are still under way.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "lanes.hpp"
#include "report.hpp"

namespace sympow::cuda::block::host {

/// Groups of products, the oldest first; the last is open. The sums of a product live here until its group is waited
/// for, and the registers hold nothing meanwhile.
struct Products {
  struct Read {
    Place place;
    std::size_t at;
    std::array<unsigned char, 16> bytes;
  };
  struct Group {
    std::vector<Lanes<float>*> sums;
    std::vector<Read> reads;
  };

  void remember(const Place& place, std::size_t at, const unsigned char* bytes) {
    groups_.back().reads.push_back({place, at, {}});
    std::memcpy(groups_.back().reads.back().bytes.data(), bytes, 16);
  }
  /// What a register will hold.
  Lanes<float>& in_flight(Lanes<float>& sum) {
    groups_.back().sums.push_back(&sum);
    const auto [entry, is_new] = values_.try_emplace(&sum, sum);
    if (is_new) sum = Lanes<float>();
    return entry->second;
  }
  void commit() { groups_.emplace_back(); }
  /// Completes all but the last `pending` groups; what they read.
  std::vector<Read> wait(int pending) {
    std::vector<Read> reads;
    while (groups_.size() > static_cast<std::size_t>(pending) + 1) {
      reads.insert(reads.end(), groups_.front().reads.begin(), groups_.front().reads.end());
      const std::vector<Lanes<float>*> sums = std::move(groups_.front().sums);
      groups_.pop_front();
      for (Lanes<float>* const sum : sums) {
        const bool is_needed = std::any_of(groups_.begin(), groups_.end(), [&](const Group& g) {
          return std::find(g.sums.begin(), g.sums.end(), sum) != g.sums.end();
        });
        if (is_needed || !values_.contains(sum)) continue;
        *sum = values_.at(sum);
        values_.erase(sum);
      }
    }
    return reads;
  }
  /// Whether any product was never waited for.
  [[nodiscard]] bool pending() const { return !values_.empty(); }

 private:
  std::deque<Group> groups_ = std::deque<Group>(1);
  std::map<Lanes<float>*, Lanes<float>> values_;
};

}  // namespace sympow::cuda::block::host
