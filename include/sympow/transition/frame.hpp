// The coordinate frame of a state's keys: rotations of a sequence that the state does not undo.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>
#include <sympow/rotation/turns.hpp>

namespace SYMPOW_NAMESPACE {

/// The coordinates in which a state stores its keys. The transition defines the meaning of the numbers and names their
/// kind; another kind is rejected. A state copies, merges, saves and loads frames without interpreting them. Frames of
/// one kind are equal if their numbers agree to 1e-9, for `Frame::angles` mod 2π. Other kinds should represent each
/// coordinate system uniquely.
class Frame {
 public:
  /// Kind of the library's rotations: μ in radians in [-π, π], at most d/2 of them. No angles and zeros both mean μ =
  /// 0.
  static constexpr std::string_view angles = "angles";

  /// The frame at the start of a sequence.
  Frame() = default;
  /// Numbers of a kind, named by a plural noun such as "angles" or "block entries".
  template <class Numbers>
  Frame(std::string_view kind, const Eigen::DenseBase<Numbers>& numbers) {
    begin(kind, numbers);
  }

  [[nodiscard]] bool empty() const { return numbers_.empty(); }      ///< at the start of a sequence
  [[nodiscard]] const std::string& kind() const { return kind_; }    ///< kind of the numbers
  [[nodiscard]] Index size() const { return std::ssize(numbers_); }  ///< count of the numbers
  [[nodiscard]] Eigen::Map<Eigen::VectorXd> numbers() { return {numbers_.data(), size()}; }  ///< the numbers
  [[nodiscard]] Eigen::Map<const Eigen::VectorXd> numbers() const { return {numbers_.data(), size()}; }  ///< read-only

  /// Replaces kind and numbers. Allocates only if there are more numbers than ever before.
  template <class Numbers>
  void begin(std::string_view kind, const Eigen::DenseBase<Numbers>& numbers) {
    kind_ = kind;
    numbers_.resize(static_cast<std::size_t>(numbers.size()));
    this->numbers() = numbers.derived().reshaped();
  }
  /// Resets to the start of a sequence; keeps the memory.
  void clear() {
    kind_.clear();
    numbers_.clear();
  }

  /// Throws `FrameMismatch` unless empty or of this kind and count; without a kind, unless empty.
  void require(std::string_view kind = "", Index count = 0) const {
    if (empty() || (kind_ == kind && size() == count)) return;
    if (kind.empty())
      detail::raise<FrameMismatch>("the state was built under a rotation of ", size(), " ", kind_,
                                   ", the transition has none; resume it with the same kind");
    detail::raise<FrameMismatch>("the state was built under a rotation of ", size(), " ", kind_,
                                 ", the transition has ", count, " ", kind);
  }

  friend bool operator==(const Frame&, const Frame&) = default;

 private:
  std::string kind_;
  std::vector<double> numbers_;
};

namespace detail {

/// Whether two frames are the same up to what sums in another order differ by.
inline bool same_coordinates(const Frame& a, const Frame& b) {
  constexpr double most = 1e-9;
  if (a.size() != b.size() || (!a.empty() && a.kind() != b.kind())) return false;
  const bool are_angles = a.kind() == Frame::angles;
  for (Index n = 0; n < a.size(); ++n) {
    const double x = a.numbers()[n], apart = x - b.numbers()[n];
    if (!(std::abs(are_angles ? reduced_angle(apart) : apart) <=
          (are_angles ? most : most * std::max(1.0, std::abs(x)))))
      return false;
  }
  return true;
}

/// A frame in a message.
inline std::string described(const Frame& frame) {
  return frame.empty() ? "that of a first token" : "one of " + std::to_string(frame.size()) + " " + frame.kind();
}

}  // namespace detail
}  // namespace SYMPOW_NAMESPACE
