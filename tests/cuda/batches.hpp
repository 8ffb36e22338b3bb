// Batches of sequences for tests of kernels: how they lie in memory, and what kernels keep of their chunks.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "layout/blocks.hpp"
#include "layout/chunks.hpp"

namespace sympow::test {

using namespace sympow::cuda;
using namespace sympow::cuda::block;
namespace host = sympow::cuda::block::host;

/// Roundings to nearest: of a sum of r rounded terms, r u.
inline constexpr double u_float = 0x1p-24, u_double = 0x1p-53;

inline std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
inline host::Grid grid(const Blocks& blocks) { return {static_cast<int>(blocks.x), blocks.y, 1}; }

/// Sequences of such lengths. Packed: one after the other; padded: each has room for the longest.
struct Batch {
  std::vector<int> lengths;
  bool packed;
  int chunk, longest, slots;

  Batch(std::vector<int> of, bool is_packed, int of_chunk)
      : lengths(std::move(of)),
        packed(is_packed),
        chunk(of_chunk),
        longest(*std::max_element(lengths.begin(), lengths.end())),
        slots(tokens() / chunk + static_cast<int>(lengths.size())),
        offsets_(lengths.size() + 1),
        lengths_(lengths.size()) {
    for (std::size_t b = 0; b <= lengths.size(); ++b) offsets_.set(b, std::int64_t{first(static_cast<int>(b))});
    for (std::size_t b = 0; b < lengths.size(); ++b) lengths_.set(b, lengths[b]);
  }
  [[nodiscard]] int size() const { return static_cast<int>(lengths.size()); }
  [[nodiscard]] int length(int b) const { return lengths[index(b)]; }
  [[nodiscard]] int chunks(int b) const { return (length(b) + chunk - 1) / chunk; }
  /// The row of its first token, where rows count through the batch.
  [[nodiscard]] int first(int b) const {
    return packed ? std::accumulate(lengths.begin(), lengths.begin() + b, 0) : b * longest;
  }
  [[nodiscard]] int slot(int b) const { return first(b) / chunk + b; }
  [[nodiscard]] int tokens() const { return first(size()); }
  /// The slots in use, a state head after the other.
  [[nodiscard]] std::vector<bool> used(int heads) const {
    std::vector<bool> all(index(heads * slots));
    for (int h = 0; h < heads; ++h)
      for (int b = 0; b < size(); ++b)
        for (int n = 0; n < chunks(b); ++n) all[index(h * slots + slot(b) + n)] = true;
    return all;
  }
  Sequences sequences() {
    const bool equal = std::all_of(lengths.begin(), lengths.end(), [&](int length) { return length == longest; });
    Sequences result{{}, {}, size(), longest, chunk, slots};
    if (packed) result.offsets = offsets_;
    if (!packed && !equal) result.lengths = lengths_;
    return result;
  }

 private:
  host::Buffer<std::int64_t> offsets_;
  host::Buffer<std::int32_t> lengths_;
};

/// TokenArrays of all slots and state heads.
struct TokenBuffers {
  explicit TokenBuffers(int count)
      : sum(index(count)),
        key(index(count)),
        level(index(count)),
        inverse(index(count)),
        to_end(index(count)),
        reset(index(count)),
        mass(index(count)) {}
  TokenArrays arrays() { return {sum, key, level, inverse, to_end, reset, {}}; }
  TokenArrays with_mass() { return {sum, key, level, inverse, to_end, reset, mass}; }

  host::Buffer<double> sum, key, level;
  host::Buffer<float> inverse, to_end;
  host::Buffer<std::int32_t> reset;
  host::Buffer<float> mass;
};

/// ChunkArrays of all slots and state heads.
struct ChunkBuffers {
  explicit ChunkBuffers(int count)
      : total(index(count)),
        end(index(count)),
        own_mass(index(count)),
        enter(index(count)),
        mass(index(count)),
        keep(index(count)),
        add(index(count)),
        shift(index(count)) {}
  ChunkArrays arrays() { return {total, end, own_mass, enter, mass, keep, add, shift}; }

  host::Buffer<double> total, end;
  host::Buffer<float> own_mass;
  host::Buffer<double> enter;
  host::Buffer<float> mass, keep, add;
  host::Buffer<std::int32_t> shift;
};

/// Which entries were set, and their bits, one array after the other.
template <class... T>
std::string bits(const host::Buffer<T>&... buffers) {
  std::string all;
  const auto append = [&](const auto& buffer) {
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      all += buffer.is_set(i) ? '+' : '-';
      if (buffer.is_set(i)) all.append(reinterpret_cast<const char*>(&buffer[i]), sizeof(buffer[i]));
    }
  };
  (append(buffers), ...);
  return all;
}

/// What survives of all mutations of a kernel that runs clean: `run(mutation)` is the bits of its results, "" if it has
/// faults.
template <class Run>
std::string survivors(const host::Report& clean, const Run& run) {
  const std::string right = run(host::Mutation{});
  std::string text = right.empty() ? "the kernel itself\n" : "";
  for (const host::Mutation& mutation : host::mutations(clean))
    if (run(mutation) == right) text += host::text(mutation) + "\n";
  return text;
}

}  // namespace sympow::test
