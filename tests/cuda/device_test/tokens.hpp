// Sequences of tokens as tests make them, on the host.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <sympow/cuda/problem.hpp>

#include "../turned.hpp"
#include "block/number.hpp"

namespace sympow::test {

/// Numbers of an element type in memory, and what they are.
struct Format {
  cuda::Element element;
  cuda::Products products = cuda::Products::exact;

  std::size_t bytes() const { return is_float() ? 4 : 2; }
  double u() const { return is_float() ? 0x1p-24 : is_bf16() ? 0x1p-8 : 0x1p-11; }
  /// The largest error of rounding a number near 0; of floats, of their three parts.
  double tiny() const { return element == cuda::Element::fp16 ? 0x1p-25 : 0x1p-134; }
  /// What a product of tensor cores leaves out, in relation to it.
  double lost() const {
    return !is_float() ? 0 : products == cuda::Products::exact ? (1 + 0x1p-9) * 0x1p-24 : (1 + 0x1p-8) * 0x1p-15;
  }
  /// What so many sums lose in so many steps of 16 products: an mma (17/4 + 1) 2^-23 of its terms; of floats the
  /// products are summed alone, 1 + 2^-4 of their sizes in all parts, and then added in float.
  double cut(double sums, double steps) const {
    constexpr double mma = 21. / 4 * 0x1p-23;
    return is_float() ? sums * (1 + 0x1p-4) * mma + steps * 0x1p-24 : steps * mma;
  }
  std::uint32_t bits(double x) const {
    const auto f = static_cast<float>(x);
    return is_float()  ? std::bit_cast<std::uint32_t>(f)
           : is_bf16() ? cuda::block::round_to<cuda::block::bf16>(f).bits
                       : cuda::block::round_to<cuda::block::fp16>(f).bits;
  }
  double number(std::uint32_t bits) const {
    const auto half = static_cast<std::uint16_t>(bits);
    return static_cast<double>(is_float()  ? std::bit_cast<float>(bits)
                               : is_bf16() ? cuda::block::to_float(cuda::block::bf16{half})
                                           : cuda::block::to_float(cuda::block::fp16{half}));
  }
  /// Of entries that nobody wrote.
  std::uint32_t unset() const { return is_float() ? 0xffffffff : 0xffff; }
  const char* name() const {
    return !is_float() ? is_bf16() ? "bf16" : "fp16" : products == cuda::Products::exact ? "f32" : "f32, fast";
  }
  bool is_float() const { return element == cuda::Element::f32; }
  bool is_bf16() const { return element == cuda::Element::bf16; }
};
inline constexpr Format all_formats[] = {
    {cuda::Element::bf16}, {cuda::Element::fp16}, {cuda::Element::f32}, {cuda::Element::f32, cuda::Products::fast}};

enum class Gates { none, slow, any };  ///< any: 0 and -∞ and -1000 among them

/// Queries, keys, values [B, T, H, channels] and log gates [B, T, H] without gaps, T the longest sequence; as they are
/// in the formats of the device.
struct Tokens {
  Format format;
  int power, d, e;
  std::int64_t batch, tokens, query_heads, key_heads, gate_heads;
  std::vector<double> queries, keys, values;
  std::vector<float> log_gates;
  std::vector<std::int64_t> lengths;
  std::optional<Rotation> rotary = {};

  /// Channels of different sizes, so that each makes a difference. Entries of queries and keys are positive: rows are
  /// well conditioned, and no error can hide behind a large bound. Values drift: early tokens make a difference.
  Tokens(const cuda::Problem& p, Gates gates, unsigned seed)
      : format{p.element, p.products},
        power(p.power),
        d(p.d),
        e(p.e),
        batch(p.batch),
        tokens(p.tokens),
        query_heads(p.query_heads),
        key_heads(p.key_heads),
        gate_heads(p.gate_heads),
        lengths(static_cast<std::size_t>(p.batch), p.tokens) {
    std::mt19937 random(seed);
    const auto unit = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
    const auto fill = [&](std::vector<double>& x, std::int64_t heads, int channels, auto entry) {
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t t = 0; t < tokens; ++t)
          for (std::int64_t h = 0; h < heads; ++h)
            for (int c = 0; c < channels; ++c) x.push_back(format.number(format.bits(entry(t, c))));
    };
    const auto positive = [&](std::int64_t, int c) { return (.5 + (c * 7 % 16) / 16.) * (.5 + unit()); };
    fill(queries, query_heads, d, positive);
    fill(keys, key_heads, d, positive);
    fill(values, key_heads, e, [&](std::int64_t t, int c) {
      return (static_cast<double>(t) / static_cast<double>(tokens) - .5) * (c % 3 - 1) * 4 + unit() + (c % 5) / 2.;
    });
    for (std::int64_t i = 0; i < batch * tokens * gate_heads && gates != Gates::none; ++i) {
      const double kind = gates == Gates::any ? unit() : 1;
      log_gates.push_back(kind < .02   ? -std::numeric_limits<float>::infinity()
                          : kind < .04 ? -1000.f
                          : kind < .1  ? 0.f
                                       : static_cast<float>(-.02 * unit()));
    }
  }

  /// The same values, queries of ±1 whose sum is 0, keys of 1 and 2, and of 0 from token `end` on.
  Tokens signs_and_ones(std::int64_t end) const {
    Tokens x = *this;
    std::mt19937 random(5);
    const auto channels = static_cast<std::size_t>(d);
    for (std::size_t i = 0; i < x.queries.size(); ++i) x.queries[i] = i % channels < channels / 2 ? -1 : 1;
    for (auto row = x.queries.begin(); row != x.queries.end(); row += d) std::shuffle(row, row + d, random);
    for (std::size_t i = 0; i < x.keys.size(); ++i) {
      const auto token = static_cast<std::int64_t>(i / channels) / key_heads % tokens;
      x.keys[i] = token >= end ? 0 : random() % 2 == 0 ? 1 : 2;
    }
    return x;
  }
  /// These tokens, with queries and keys multiplied by another factor in each group of 16 channels, up to d 128.
  Tokens uneven() const {
    constexpr double sizes[] = {1, 3, .5, 2, 4, .75, 1.5, 2.5};
    Tokens x = *this;
    for (auto* rows : {&x.queries, &x.keys})
      for (std::size_t i = 0; i < rows->size(); ++i)
        (*rows)[i] = format.number(format.bits((*rows)[i] * sizes[i % static_cast<std::size_t>(d) / 16]));
    return x;
  }
  /// The same tokens with rotary.
  Tokens turned(const Rotation& by) const {
    Tokens x = *this;
    x.rotary = by;
    return x;
  }
  /// β of every token and key head, none where there are none given.
  std::vector<float> beta() const {
    std::vector<float> all;
    for (std::int64_t i = 0; i < batch * tokens * key_heads && rotary && rotary->beta; ++i)
      all.push_back(step(i / key_heads % tokens, i % key_heads));
    return all;
  }
  float step(std::int64_t t, std::int64_t h) const {
    return static_cast<float>(rotary->step(static_cast<int>(t), static_cast<int>(h)));
  }
  std::vector<double> rates() const {
    std::vector<double> all;
    for (int j = 0; j < d / 2 && rotary; ++j) all.push_back(Rotation::rate(j, d / 2));
    return all;
  }

  std::size_t row(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t heads) const {
    return static_cast<std::size_t>((b * tokens + t) * heads + h);
  }
};

}  // namespace sympow::test
