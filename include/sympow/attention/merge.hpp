// The states of two adjacent segments as the state of both: what a parallel scan is made of.
#pragma once

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/rotation/turns.hpp>

namespace SYMPOW_NAMESPACE {
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

/// Throws unless the right state goes on where the left one ends.
template <class Scalar, class F>
void check_adjacent(const State<Scalar, F>& left, const State<Scalar, F>& right) {
  check_whole(left);
  check_whole(right);
  check_size("key dimension of the right state", right.key_dimension(), left.key_dimension(), "that of the left");
  check_size("value dimension of the right state", right.value_dimension(), left.value_dimension(), "that of the left");
  if (!same_feature(left.feature(), right.feature()))
    raise<FeatureMismatch>("merge: the right state was built with another feature map than the left one");
  const Frame &end = left.frame(), &start = right.start_frame();
  if (!same_coordinates(end, start))
    raise<FrameMismatch>("merge: the right state must be started at the left one's frame(), ", described(end),
                         "; it was started at ",
                         start.size() == end.size() && start.kind() == end.kind() ? "others" : described(start));
  const auto &of_left = StateAccess::content(left).frames, &of_right = StateAccess::content(right).frames;
  if (of_right.have_mixed() && !of_right.keep_product())
    raise<FrameMismatch>(
        "merge: the right state has dropped its key product, which takes the left one's sums over its tokens");
  const bool left_scaled = !left.log_channels().isZero(0), right_scaled = !right.log_channels().isZero(0);
  if ((left_scaled && of_right.have_mixed()) || (right_scaled && of_left.have_mixed()))
    raise<FrameMismatch>(
        "merge: one state was built under channel decay, the other under a Householder chain; the two do not commute");
}

}  // namespace detail

/// The state after `left`'s tokens and then `right`'s.
///
///     S = S_left A_right + S_right,   A_right the whole transition of the right segment, its first gate included
///
/// `right` must have been started at `left.frame()`: `State right(feature, d, e, tail, left.frame())`. Associative up
/// to rounding, so a prefix scan over segments works. The result's tail is empty. Cost: two copies and 5 (e + 1) D.
/// Throws `InterruptedState`, `ShapeMismatch` for other sizes, `FeatureMismatch` for another feature map and
/// `FrameMismatch` for another frame, or for channel decay beside a Householder chain; its numbers may differ by 1e-9,
/// as sums taken in another order do.
template <class Scalar, FiniteFeatureMap F>
[[nodiscard]] State<Scalar, F> merge(const State<Scalar, F>& left, const State<Scalar, F>& right) {
  detail::check_adjacent(left, right);
  State<Scalar, F> first = left, result = right;
  auto &before = detail::StateAccess::content(first), &after = detail::StateAccess::content(result);
  detail::fold_state(left.feature(), before);
  detail::fold_state(left.feature(), after);
  detail::add_state(left.feature(), before, after);
  return result;
}

}  // namespace SYMPOW_NAMESPACE
