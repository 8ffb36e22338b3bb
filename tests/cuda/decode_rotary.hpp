// Angles of decoded tokens: those of the state, and paths since the last fold.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "paths/paths.hpp"
#include "turned.hpp"

namespace sympow::test {

/// Nothing is set, and nothing turns, without a rotation.
struct DecodeRotary {
  using Buffer = cuda::block::host::Buffer<double>;
  std::optional<Rotation> how;
  int batch, key, tail, tokens, d;
  cuda::block::host::Buffer<float> beta;  ///< [B, tokens, Hk]
  Buffer paths, turns, rates;             ///< [B, Hk, tail and tokens], [B, Hk, d/2], [d/2]

  DecodeRotary(const std::optional<Rotation>& of, int b, int h, int in_tail, int fresh, int channels)
      : how(of),
        batch(of ? b : 0),
        key(h),
        tail(in_tail),
        tokens(fresh),
        d(channels),
        beta(size(batch * tokens * key)),
        paths(size(batch * key * capacity())),
        turns(size(batch * key * d / 2)),
        rates(size(of ? d / 2 : 0)) {
    for (int j = 0; of && j < d / 2; ++j) rates.set(size(j), Rotation::rate(j, d / 2));
    for (int i = 0; i < batch; ++i)
      for (int n = 0; n < key; ++n) {
        for (int t = 0; t < tail; ++t) paths.set(size((i * key + n) * capacity() + t), path(n, t));
        for (int t = 0; t < tokens; ++t)
          beta.set(size((i * tokens + t) * key + n), static_cast<float>(how->step(tail + t, n)));
        for (int j = 0; j < d / 2; ++j) turns.set(size((i * key + n) * d / 2 + j), how->turns(i, n, j));
      }
  }
  [[nodiscard]] int capacity() const { return tail + tokens; }
  /// Of token t since the fold, key head h; and the angle of pair j, in radians.
  [[nodiscard]] double path(int h, int t) const {
    double sum = 0;
    for (int i = 0; i <= t; ++i) sum += how->step(i, h);
    return sum;
  }
  [[nodiscard]] auto angle(int b, int h, int t) const {
    return [this, b, h, way = path(h, t)](int j) {
      return 2 * std::numbers::pi * how->turns(b, h, j) + way * Rotation::rate(j, d / 2);
    };
  }

  /// Paths of the new tokens.
  cuda::block::host::Report run(const cuda::block::host::Options& options) {
    if (!how) return {};
    const cuda::Rows<double> of_tail{paths, key * capacity(), 1, capacity()};
    cuda::Paths::Args args{
        {beta, tokens * key, key, 1}, of_tail, {{}, {}, batch, tokens, 64, 0}, {tail}, key, d / 2, rates, {}, {}, {}};
    if (!how->beta) args.beta.data = {};
    return cuda::block::host::launch<cuda::Paths>({batch, key, 1}, args, options);
  }
  cuda::Rotary arguments() {
    if (!how) return {};
    return {rates, {paths, key * capacity(), 1, capacity()}, turns, key, how->halves};
  }
  /// Whether the paths of new tokens follow those of the tail.
  [[nodiscard]] bool appended() const {
    bool all = true;
    for (int b = 0; b < batch; ++b)
      for (int h = 0; h < key; ++h)
        for (int t = tail; t < capacity(); ++t)
          all = all &&
                std::abs(paths[size((b * key + h) * capacity() + t)] - path(h, t)) <= (t + 20) * 0x1p-53 * path(h, t);
    return all;
  }

 private:
  static std::size_t size(int n) { return static_cast<std::size_t>(n); }
};

}  // namespace sympow::test
