// Calls with the tokens of a test, in arrays as callers have them, and their rows against the definition.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device.hpp"
#include "library/instantiations.hpp"
#include "library/memory.hpp"
#include "reference.hpp"

namespace sympow::test {

enum class Layout {
  dense,   ///< [B, T, H, D]
  apart,   ///< [B, H, T, D + 8], so that nothing is next to each other but channels
  packed,  ///< sequences one after the other
};

/// Where token t of sequence b lies.
struct Places {
  Layout layout;
  std::int64_t batch, tokens;
  std::vector<std::int64_t> offsets = {0};  // of packed sequences

  Places(Layout l, const Tokens& x) : layout(l), batch(x.batch), tokens(x.tokens) {
    for (const std::int64_t length : x.lengths) offsets.push_back(offsets.back() + length);
  }
  cuda::View view(void* data, cuda::Element element, std::int64_t heads, std::int64_t channels) const {
    if (layout == Layout::apart)
      return {data, element, heads * tokens * (channels + 8), channels + 8, tokens * (channels + 8)};
    return cuda::dense(data, element, tokens, heads, channels);
  }
  std::size_t size(std::int64_t heads, std::int64_t channels) const {
    const std::int64_t all = layout == Layout::packed ? offsets.back() : batch * tokens;
    return static_cast<std::size_t>(all * heads * (layout == Layout::apart ? channels + 8 : channels));
  }
  std::size_t at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t heads, std::int64_t channels) const {
    const cuda::View v = view(nullptr, cuda::Element::bf16, heads, channels);
    if (layout == Layout::packed)
      return static_cast<std::size_t>((offsets[static_cast<std::size_t>(b)] + t) * v.token + h * v.head);
    return static_cast<std::size_t>(b * v.sequence + t * v.token + h * v.head);
  }
};

/// A number that differs where any of the bits do, but by chance: FNV-1a.
template <class T>
unsigned long long digest(const std::vector<T>& x) {
  unsigned long long sum = 0xcbf29ce484222325;
  for (const std::byte byte : std::as_bytes(std::span(x)))
    sum = (sum ^ static_cast<unsigned long long>(byte)) * 0x100000001b3;
  return sum;
}

/// The arrays of a call on the device.
class Arrays {
 public:
  Arrays(const Tokens& x, Layout layout)
      : places(layout, x),
        offsets(places.offsets),
        lengths(std::vector<std::int32_t>(x.lengths.begin(), x.lengths.end())),
        tokens_(x),
        queries_(bytes(x.queries, x.query_heads, x.d)),
        keys_(bytes(x.keys, x.key_heads, x.d)),
        values_(bytes(x.values, x.key_heads, x.e)),
        log_gates_(arranged<float>(x.log_gates, x.gate_heads, 1, [](float g) { return g; })),
        beta_(arranged<float>(x.beta(), x.key_heads, 1, [](float step) { return step; })),
        rates_(x.rates()),
        rows_(places.size(x.query_heads, x.e) * x.format.bytes()),
        condition_(places.size(x.query_heads, 1)) {}

  /// From token `first` of each sequence on.
  cuda::Inputs inputs(std::int64_t first = 0) const {
    const Tokens& x = tokens_;
    cuda::Inputs inputs;
    inputs.queries = from(first, queries_.data(), x.format.element, x.query_heads, x.d);
    inputs.keys = from(first, keys_.data(), x.format.element, x.key_heads, x.d);
    inputs.values = from(first, values_.data(), x.format.element, x.key_heads, x.e);
    if (x.gate_heads > 0) inputs.log_gates = from(first, log_gates_.data(), cuda::Element::f32, x.gate_heads, 1);
    if (x.rotary && x.rotary->beta) inputs.beta = from(first, beta_.data(), cuda::Element::f32, x.key_heads, 1);
    return inputs;
  }
  /// What a problem says of rotary.
  void set_rotary(cuda::Problem& p) const {
    if (!tokens_.rotary) return;
    p.rates = rates_.data();
    p.pairing = tokens_.rotary->halves ? cuda::Pairing::half_split : cuda::Pairing::interleaved;
  }
  cuda::Outputs outputs(std::int64_t first = 0) const {
    const Tokens& x = tokens_;
    return {from(first, rows_.data(), x.format.element, x.query_heads, x.e),
            from(first, condition_.data(), cuda::Element::f32, x.query_heads, 1),
            {}};
  }
  std::vector<std::uint32_t> row_bits() const {
    const std::vector<std::byte> bytes = rows_.values();
    const std::size_t size = tokens_.format.bytes();
    std::vector<std::uint32_t> bits(bytes.size() / size);
    for (std::size_t i = 0; i < bits.size(); ++i) std::memcpy(&bits[i], &bytes[i * size], size);
    return bits;
  }

  /// Rows first … end - 1 of every sequence are those of the definition, and what is no row was not written.
  void check_rows(const std::string& what, const cuda::Problem& p, const Way& way, std::int64_t first = 0,
                  std::int64_t end = 1 << 30) const {
    const Tokens& x = tokens_;
    const std::vector<std::uint32_t> bits = row_bits();
    const std::vector<float> conditions = condition_.values();
    std::vector<bool> is_row(bits.size());
    double worst = 0;
    for (std::int64_t b = 0; b < x.batch; ++b)
      for (std::int64_t i = first; i < std::min(end, x.lengths[static_cast<std::size_t>(b)]); ++i)
        for (std::int64_t h = 0; h < x.query_heads; ++h) {
          const ReferenceRow row(x, b, i, h, p.is_normalised() ? 1 : static_cast<double>(p.scale));
          const std::size_t at = places.at(b, i, h, x.query_heads, x.e);
          for (std::size_t c = 0; c < row.numerator.size(); ++c) {
            const double y = x.format.number(bits[at + c]), error = row.error(c, y, p.is_normalised(), way);
            is_row[at + c] = true;
            worst = std::max(worst, error);
            if (!require(error <= 1, "%s: row %d of sequence %d, head %d, channel %d is %g, %g times its bound off",
                         what.c_str(), static_cast<int>(i), static_cast<int>(b), static_cast<int>(h),
                         static_cast<int>(c), y, error))
              return;
          }
          const float condition = conditions[places.at(b, i, h, x.query_heads, 1)];
          if (!require(condition >= 0 && static_cast<double>(condition) <= row.largest_condition(way),
                       "%s: the condition of row %d is %g and at most %g", what.c_str(), static_cast<int>(i),
                       static_cast<double>(condition), row.largest_condition(way)))
            return;
        }
    std::size_t others = 0;
    for (std::size_t i = 0; i < bits.size() && first == 0; ++i) others += !is_row[i] && bits[i] != x.format.unset();
    require(others == 0, "%s: %d entries beside the rows were written", what.c_str(), static_cast<int>(others));
    std::printf("  %-52s %4.2f of the bound, bits %016llx\n", what.c_str(), worst, digest(bits));
  }

  /// Of numbers [B, T, heads, channels], or of none, in the format of the call.
  std::vector<std::byte> bytes(const std::vector<double>& x, std::int64_t heads, int channels) const {
    const auto bits = arranged<std::uint32_t>(x, heads, channels, [&](double v) { return tokens_.format.bits(v); });
    const std::size_t size = tokens_.format.bytes();
    std::vector<std::byte> packed(bits.size() * size);
    for (std::size_t i = 0; i < bits.size(); ++i) std::memcpy(&packed[i * size], &bits[i], size);
    return packed;
  }

  Places places;
  Array<std::int64_t> offsets;
  Array<std::int32_t> lengths;

 private:
  template <class To, class From, class F>
  std::vector<To> arranged(const std::vector<From>& dense, std::int64_t heads, int channels, F convert) const {
    std::vector<To> x(places.size(heads, channels));
    std::memset(x.data(), 0xff, x.size() * sizeof(To));  // NaN, where no token is
    if (dense.empty()) return x;
    for (std::int64_t b = 0; b < places.batch; ++b)
      for (std::int64_t t = 0; t < tokens_.lengths[static_cast<std::size_t>(b)]; ++t)
        for (std::int64_t h = 0; h < heads; ++h)
          for (int c = 0; c < channels; ++c)
            x[places.at(b, t, h, heads, channels) + static_cast<std::size_t>(c)] = convert(
                dense[tokens_.row(b, t, h, heads) * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)]);
    return x;
  }
  template <class T>
  cuda::View from(std::int64_t first, T* data, cuda::Element element, std::int64_t heads, std::int64_t channels) const {
    cuda::View view = places.view(data, element, heads, channels);
    const std::size_t size = cuda::library::bytes_of(element) / sizeof(T);
    view.data = data + static_cast<std::size_t>(first * view.token) * size;
    return view;
  }

  const Tokens& tokens_;
  Array<std::byte> queries_, keys_, values_;
  Array<float> log_gates_, beta_;
  Array<double> rates_;
  Array<std::byte> rows_;
  Array<float> condition_;
};

/// attend with a workspace of its own, which begins as NaN.
inline bool run(const cuda::Problem& p, const cuda::Inputs& inputs, const cuda::Outputs& outputs, cuda::Stream stream) {
  std::size_t bytes = 0;
  if (!done(cuda::attention_workspace(p, bytes))) return false;
  const Array<std::byte> workspace(bytes);
  if (!done(cuda::attend(p, inputs, outputs, workspace.data(), bytes, stream))) return false;
  runtime(cudaStreamSynchronize(stream));
  return true;
}

/// A state, and the memory that it lies in.
struct OwnState {
  Array<std::byte> memory;
  cuda::State state;

  explicit OwnState(const cuda::Problem& p) : memory(bytes(p)) {
    done(cuda::state_in(p, memory.data(), memory.size(), state));
  }
  static std::size_t bytes(const cuda::Problem& p) {
    std::size_t n = 0;
    done(cuda::state_bytes(p, n));
    return n;
  }
};

/// A tail, and the memory that it lies in.
struct OwnTail {
  Array<std::byte> memory;
  cuda::Tail tail;

  OwnTail(const cuda::Problem& p, int capacity) : memory(bytes(p, capacity)) {
    done(cuda::tail_in(p, capacity, memory.data(), memory.size(), tail));
  }
  static std::size_t bytes(const cuda::Problem& p, int capacity) {
    std::size_t n = 0;
    done(cuda::tail_bytes(p, capacity, n));
    return n;
  }
};

/// Whether a case can run, and is wanted; where the table was narrowed it says which cannot.
inline bool can_run(const std::string& what, const cuda::Problem& p) {
  if (what.find(only) == std::string::npos) return false;
  if (cuda::library::is_compiled(p.power, p.d, p.element)) return true;
  std::printf("  %-52s not compiled\n", what.c_str());
  return false;
}

/// How rows came about.
inline Way way_of(const cuda::Problem& p) {
  cuda::Form form{};
  int chunk = 0;
  done(cuda::attention_form(p, form, chunk));
  const bool states = form == cuda::Form::chunked;
  return {chunk, states ? static_cast<double>(cuda::monomials(p.power, p.d)) : 0,
          static_cast<double>(p.tokens) / chunk + 2, states && p.states == cuda::Precision::split};
}

}  // namespace sympow::test
