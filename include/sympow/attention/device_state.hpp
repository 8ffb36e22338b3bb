// A state in the layout of `sympow::cuda`, in memory of the host: on its way to a GPU and back.
#pragma once

#include <cmath>
#include <numbers>
#include <vector>

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/attention/state.hpp>
#include <sympow/combinatorics/multi_index.hpp>
#include <sympow/feature/symmetric_power.hpp>

namespace SYMPOW_NAMESPACE {

/// One sequence and head of a `cuda::State`, in units of 2^⌈L⌉. Row n of S belongs to the n-th of the `MultiIndices`,
/// as row n of a `State`, but without the root of its multiplicity: entries are Σ_j b_j Π_l k_{α_l j} v_j.
struct DeviceState {
  std::vector<float> sums;           ///< D × e, a monomial a row: S
  std::vector<float> normaliser;     ///< D: Z
  double level = detail::log2_zero;  ///< L; -∞ of an empty state
  float mass = 0;                    ///< A = Σ_j b_j ‖k_j‖^P
  std::vector<double> turns = {};    ///< d/2, of rotary: μ / 2π of the last token; none where nothing has turned
};

namespace detail {

/// √(P! / Π c_i!) of all monomials.
template <int P>
Eigen::ArrayXd root_multiplicities(Index d) {
  const MultiIndices<P> all(d);
  Eigen::ArrayXd roots(all.size());
  Index n = 0;
  for (const auto& alpha : all) roots[n++] = std::sqrt(static_cast<double>(multiplicity(alpha)));
  return roots;
}

/// See `device_state`, of sums that are dense and settled.
template <class Scalar>
DeviceState device_state(const StateSums<Scalar>& settled, const Frames<Scalar>& frames, const Eigen::ArrayXd& roots) {
  const Frame& frame = frames.end;
  const bool turns = frame.kind() == Frame::angles && 2 * frame.size() == frames.log_channels.size();
  if (!(frame.empty() || turns) || frames.key_product.size() != 0)
    raise<FrameMismatch>("device_state: a GPU turns keys by d/2 angles, those of the state turn otherwise");
  const auto& S = settled.S;
  const auto& Z = settled.Z;
  const Index e = S.rows();
  DeviceState device;
  device.sums.resize(static_cast<std::size_t>(S.size()));
  device.normaliser.resize(static_cast<std::size_t>(Z.size()));
  device.turns.resize(static_cast<std::size_t>(frame.size()));
  Eigen::VectorXd::Map(device.turns.data(), frame.size()) = frame.numbers() * (std::numbers::inv_pi / 2);
  device.level = settled.L;
  device.mass = static_cast<float>(settled.A);
  Eigen::ArrayXXf::Map(device.sums.data(), e, Z.size()) =
      (S.template cast<double>().array().rowwise() / roots.transpose()).template cast<float>();
  Eigen::ArrayXf::Map(device.normaliser.data(), Z.size()) =
      (Z.template cast<double>().array() / roots).template cast<float>();
  return device;
}

/// See `state_of_device`; into an empty state.
template <class Scalar>
void set_from_device(StateContent<Scalar>& state, const DeviceState& device, Index tokens, double log_decay,
                     const Eigen::ArrayXd& roots) {
  StateSums<Scalar>& sums = state.sums;
  const Index d = state.key_dimension(), e = sums.value_rows();
  check_size("sums of the device's state", std::ssize(device.sums), sums.S.size(), "D e");
  check_size("normaliser of the device's state", std::ssize(device.normaliser), sums.Z.size(), "D");
  const auto angles = Eigen::VectorXd::Map(device.turns.data(), std::ssize(device.turns));
  if (angles.size() > 0) {
    check_size("turns of the device's state", angles.size(), d % 2 == 0 ? d / 2 : 0, "d/2");
    state.frames.end.begin(Frame::angles, angles * (2 * std::numbers::pi));
  }
  if (tokens < 0) raise<InvalidArgument>("state_of_device: tokens is ", tokens, ", must not be negative");
  if (!(log_decay <= 0)) raise<InvalidArgument>("state_of_device: log_decay is ", log_decay, ", must be ≤ 0");
  state.frames.tokens = tokens;
  state.frames.log_decay = log_decay;
  if (device.level == log2_zero) return;
  sums.L = device.level;
  sums.A = static_cast<double>(device.mass);
  const auto S = Eigen::ArrayXXf::Map(device.sums.data(), e, roots.size());
  const auto Z = Eigen::ArrayXf::Map(device.normaliser.data(), roots.size());
  sums.S = (S.template cast<double>().rowwise() * roots.transpose()).template cast<Scalar>();
  sums.Z = (Z.template cast<double>() * roots).template cast<Scalar>();
}

}  // namespace detail

/// A state for the device, its tail folded in. Every entry is rounded to float once. Cost: a copy and (e + 1) D more.
/// Throws `InterruptedState`, and `FrameMismatch` for keys that a transition has turned otherwise than by d/2 angles.
template <class Scalar, int P>
[[nodiscard]] DeviceState device_state(const State<Scalar, SymmetricPower<P>>& state) {
  return detail::device_state(detail::StateAccess::sums(state), detail::StateAccess::content(state).frames,
                              detail::root_multiplicities<P>(state.key_dimension()));
}

/// The state of a device after `tokens` tokens, with an empty tail. The sum of their log gates is known to the caller;
/// only `merge` asks for it. Throws `ShapeMismatch` where the sizes are not those of keys in R^d and values in R^e,
/// `InvalidArgument` for tokens below 0 and a decay above.
template <class Scalar, int P>
[[nodiscard]] State<Scalar, SymmetricPower<P>> state_of_device(
    const DeviceState& device, Index d, Index e, Index tokens, double log_decay = 0,
    Index tail = State<Scalar, SymmetricPower<P>>::default_tail) {
  State<Scalar, SymmetricPower<P>> state(d, e, tail);
  detail::set_from_device(detail::StateAccess::content(state), device, tokens, log_decay,
                          detail::root_multiplicities<P>(d));
  return state;
}

}  // namespace SYMPOW_NAMESPACE
