// A batch of heads in the caller's memory: whose columns are whose tokens.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/core/memory_layout.hpp>

namespace SYMPOW_NAMESPACE {

/// The heads of a batch of sequences, in place: B sequences, H heads, D numbers a token.
///
///     bthd    [B, T, H, D]    entry (b, t, h, i) at ((b T + t) H + h) D + i
///     bhtd    [B, H, T, D]    at ((b H + h) T + t) D + i
///     strided                 at b sequence + t token + h head + i, as the strides say
///     packed  [ΣT, H, D]      token t of sequence b at ((offset_b + t) H + h) D + i
///
/// `head(b, h)` is a D × T_b map whose columns are the tokens of one head; their numbers are neither copied nor owned.
/// Lengths and offsets are copied, once: copies of the heads share them. Write `Heads<float>` for outputs and
/// `Heads<const float>` for inputs; the first converts into the second.
///
///     const auto Q = Heads<const float>::bthd(q.data(), B, T, H, d);
template <class S>
class Heads {
 public:
  using Scalar = std::remove_const_t<S>;
  /// What `head` gives: columns with an outer stride, writable unless S is const.
  using Head = Eigen::Map<std::conditional_t<std::is_const_v<S>, const Matrix<Scalar>, Matrix<Scalar>>,
                          Eigen::Unaligned, Eigen::OuterStride<>>;

  /// Order [B, T, H, D]. `lengths`, if given, has the tokens T_b ≤ T of every sequence; the rest of it is padding.
  /// Throws `ShapeMismatch`, `DimensionOverflow` where the bytes of the batch do not fit the index type.
  [[nodiscard]] static Heads bthd(S* data, Index B, Index T, Index H, Index D, std::span<const Index> lengths = {}) {
    Heads heads = padded(data, B, T, H, D, lengths);
    heads.strides_ = {T * H * D, H * D, D};
    return heads;
  }

  /// Order [B, H, T, D], likewise.
  [[nodiscard]] static Heads bhtd(S* data, Index B, Index H, Index T, Index D, std::span<const Index> lengths = {}) {
    Heads heads = padded(data, B, T, H, D, lengths);
    heads.strides_ = {H * T * D, D, T * D};
    return heads;
  }

  /// Numbers from one sequence, token and head to the next.
  struct Strides {
    Index sequence,  ///< from b to b + 1
        token,       ///< from t to t + 1
        head;        ///< from h to h + 1
  };

  /// Any order whose tokens are apart, likewise: a stride of tokens is at least D. That all entries lie in `data`, and
  /// those of outputs apart, is the caller's business.
  [[nodiscard]] static Heads strided(S* data, Index B, Index T, Index H, Index D, Strides strides,
                                     std::span<const Index> lengths = {}) {
    Heads heads = padded(data, B, T, H, D, lengths);
    if (T > 1 && strides.token < D) heads.refuse("the stride of tokens is ", strides.token, ", must be at least ", D);
    heads.strides_ = strides;
    return heads;
  }

  /// Order [ΣT, H, D]: sequence b has the tokens from offsets[b] to offsets[b + 1]. The B + 1 offsets start at 0, do
  /// not decrease and end at `tokens`, so that no token belongs to nobody. Throws `ShapeMismatch`, `DimensionOverflow`.
  [[nodiscard]] static Heads packed(S* data, Index tokens, Index H, Index D, std::span<const Index> offsets) {
    Heads heads(data, 1, tokens, H, D);
    if (offsets.empty()) heads.refuse("there are no offsets, must be B + 1 of them, from 0");
    heads.sequences_ = std::ssize(offsets) - 1;
    if (offsets[0] != 0) heads.refuse("offset 0 is ", offsets[0], ", must be 0");
    for (std::size_t b = 1; b < offsets.size(); ++b)
      if (offsets[b] < offsets[b - 1])
        heads.refuse("offset ", b, " is ", offsets[b], ", must not be below offset ", b - 1, ", which is ",
                     offsets[b - 1]);
    if (offsets.back() != tokens)
      heads.refuse("the last offset is ", offsets.back(), ", must be ", tokens, " (the tokens of all sequences)");
    heads.offsets_ = kept(offsets);
    heads.strides_ = {0, H * D, D};
    return heads;
  }

  /// The same batch, read only.
  operator Heads<const S>() const
    requires(!std::is_const_v<S>)
  {
    Heads<const S> heads(data_, sequences_, tokens_, heads_, dimension_);
    heads.strides_ = {strides_.sequence, strides_.token, strides_.head};
    heads.lengths_ = lengths_;
    heads.offsets_ = offsets_;
    return heads;
  }

  [[nodiscard]] Index sequences() const { return sequences_; }        ///< B
  [[nodiscard]] Index heads() const { return heads_; }                ///< H
  [[nodiscard]] Index dimension() const { return dimension_; }        ///< D
  [[nodiscard]] Index to_next_head() const { return strides_.head; }  ///< numbers from a head of a sequence to the next

  /// Where its numbers lie: [B, T, H, D], or [1, ΣT, H, D] where sequences are packed.
  [[nodiscard]] detail::MemoryLayout layout() const {
    constexpr Index bytes = sizeof(S);
    const Index B = offsets_ == nullptr ? sequences_ : 1;
    detail::MemoryLayout layout{reinterpret_cast<const std::byte*>(data_), bytes, 4, {B, tokens_, heads_, dimension_}};
    layout.strides = {strides_.sequence * bytes, strides_.token * bytes, strides_.head * bytes, bytes};
    for (std::size_t n = 0; n < layout.dimensions; ++n)
      if (layout.strides[n] < 0) {
        layout.strides[n] *= -1;
        if (!layout.empty()) layout.data -= (layout.shape[n] - 1) * layout.strides[n];
      }
    return layout;
  }

  /// T_b, the tokens of a sequence.
  [[nodiscard]] Index length(Index sequence) const {
    const auto b = static_cast<std::size_t>(sequence);
    if (offsets_ != nullptr) return (*offsets_)[b + 1] - (*offsets_)[b];
    return lengths_ == nullptr ? tokens_ : (*lengths_)[b];
  }

  /// The first sequences, which have all lengths that there are: one where every sequence has T tokens.
  [[nodiscard]] Index sequences_of_other_lengths() const {
    return offsets_ == nullptr && lengths_ == nullptr ? std::min<Index>(sequences_, 1) : sequences_;
  }

  /// The tokens of a head, D × T_b. Throws `InvalidArgument` for one that there is not.
  [[nodiscard]] Head head(Index sequence, Index head) const {
    check_exists(sequence, head);
    return columns(sequence, head, 0, length(sequence));
  }

  /// What follows them up to T, D × (T - T_b); nothing where sequences are packed.
  [[nodiscard]] Head padding(Index sequence, Index head) const {
    check_exists(sequence, head);
    const Index n = length(sequence);
    return columns(sequence, head, n, offsets_ == nullptr ? tokens_ - n : 0);
  }

 private:
  template <class>
  friend class Heads;

  using Shared = std::shared_ptr<const std::vector<Index>>;
  static Shared kept(std::span<const Index> x) { return std::make_shared<std::vector<Index>>(x.begin(), x.end()); }

  Heads(S* data, Index B, Index T, Index H, Index D)
      : data_(data), sequences_(B), tokens_(T), heads_(H), dimension_(D) {
    Index bytes = sizeof(S);
    for (const auto& [name, size] : {std::pair{"sequences", B}, {"tokens", T}, {"heads", H}, {"dimension", D}}) {
      if (size < 0) detail::raise<ShapeMismatch>("heads: ", name, " is ", size, ", must not be negative");
      if (__builtin_mul_overflow(bytes, std::max<Index>(size, 1), &bytes))
        detail::raise<DimensionOverflow>("heads: B = ", B, ", T = ", T, ", H = ", H, " and D = ", D,
                                         " make more bytes than fit the index type");
    }
  }

  static Heads padded(S* data, Index B, Index T, Index H, Index D, std::span<const Index> lengths) {
    Heads heads(data, B, T, H, D);
    if (lengths.empty()) return heads;
    if (std::ssize(lengths) != B)
      heads.refuse("the number of lengths is ", std::ssize(lengths), ", must be ", B, " (one a sequence)");
    for (std::size_t b = 0; b < lengths.size(); ++b)
      if (lengths[b] < 0 || lengths[b] > T)
        heads.refuse("lengths[", b, "] is ", lengths[b], ", must lie in 0 … T = ", T);
    heads.lengths_ = kept(lengths);
    return heads;
  }

  // Says of which heads of a call it speaks.
  template <class Error = ShapeMismatch, class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    detail::raise<Error>("heads (", heads_, " of ", dimension_, " numbers): ", parts...);
  }

  void check_exists(Index sequence, Index head) const {
    if (sequence < 0 || sequence >= sequences_ || head < 0 || head >= heads_)
      refuse<InvalidArgument>("sequence ", sequence, ", head ", head, " is not among ", sequences_, " sequences of ",
                              heads_, " heads");
  }

  [[nodiscard]] Head columns(Index sequence, Index head, Index first, Index count) const {
    const Index begin = offsets_ == nullptr ? sequence * strides_.sequence
                                            : (*offsets_)[static_cast<std::size_t>(sequence)] * strides_.token;
    S* const at = data_ == nullptr ? nullptr : data_ + (begin + first * strides_.token + head * strides_.head);
    return Head(at, dimension_, count, Eigen::OuterStride<>(strides_.token));
  }

  S* data_;
  Index sequences_, tokens_, heads_, dimension_;
  Strides strides_ = {};
  Shared lengths_, offsets_;  // null where there are none
};

}  // namespace SYMPOW_NAMESPACE
