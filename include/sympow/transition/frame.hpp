// Where a state's keys are seen from: what a sequence has done to them so far and the state does not undo.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sympow/core/checks.hpp>
#include <sympow/core/concepts.hpp>

namespace SYMPOW_NAMESPACE {

/// The coordinates in which a state keeps its keys: numbers whose meaning and count are the business of the transition
/// that turns, and the name of their kind, by which others refuse them. A state carries, merges, saves and loads them
/// and looks at none. Two frames of one kind are the same where their numbers agree to 1e-9, those of the kind
/// `Frame::angles` mod 2π; under other kinds coordinates that have several numbers should always get the same ones.
class Frame {
 public:
  /// The kind of the library's own rotations: μ, radians in [-π, π], d/2 at most. No angles and zeros are both μ = 0.
  static constexpr std::string_view angles = "angles";

  /// That of a sequence's first token, before anything has turned.
  Frame() = default;
  /// Numbers of a kind, which says in the plural what each is: "angles", "block entries".
  template <class Numbers>
  Frame(std::string_view kind, const Eigen::DenseBase<Numbers>& numbers) {
    begin(kind, numbers);
  }

  [[nodiscard]] bool empty() const { return numbers_.empty(); }                              ///< nothing has turned yet
  [[nodiscard]] const std::string& kind() const { return kind_; }                            ///< what the numbers are
  [[nodiscard]] Index size() const { return std::ssize(numbers_); }                          ///< how many there are
  [[nodiscard]] Eigen::Map<Eigen::VectorXd> numbers() { return {numbers_.data(), size()}; }  ///< the numbers
  [[nodiscard]] Eigen::Map<const Eigen::VectorXd> numbers() const { return {numbers_.data(), size()}; }  ///< likewise

  /// Forgets what it was and has these numbers. Allocates nothing where it has had as many before.
  template <class Numbers>
  void begin(std::string_view kind, const Eigen::DenseBase<Numbers>& numbers) {
    kind_ = kind;
    numbers_.resize(static_cast<std::size_t>(numbers.size()));
    this->numbers() = numbers.derived().reshaped();
  }
  /// As that of a first token; memory stays.
  void clear() {
    kind_.clear();
    numbers_.clear();
  }

  /// Throws `FrameMismatch` unless it is empty or has so many numbers of this kind; without a kind, unless it is empty.
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

}  // namespace SYMPOW_NAMESPACE
