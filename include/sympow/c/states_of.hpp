// States of a scalar type and a feature map, and gradients in them.
#pragma once

#include <fstream>
#include <utility>

#include <sympow/attention/gradient_calls.hpp>
#include <sympow/attention/scan.hpp>
#include <sympow/attention/state_file.hpp>
#include <sympow/c/engine.hpp>
#include <sympow/c/written_sums.hpp>
#include <sympow/io/output_file.hpp>

namespace SYMPOW_NAMESPACE::c {

/// visit(b, h, n) of all states, n = b Hs + h.
inline void each_state(const StateShape& shape, const auto& visit) {
  for (Index n = 0; n < shape.batch * shape.heads; ++n)
    visit(n / shape.heads, n % shape.heads, static_cast<std::size_t>(n));
}

/// Writes sums, D e and D numbers, and d/2 angles, zeros where there are none. Throws `NotFinite` where the largest
/// number is beyond the ends of the type: it would be infinite, or all of them would be 0, as gradients may be.
template <class Scalar>
void write_sums(const Array* sums, const Array* normaliser, const Array* angles, Index b, Index h,
                detail::StateSums<Scalar> all, const auto& frame, bool are_gradients = false) {
  const auto write = [&](const Array& array, auto& x, const auto& with_view) {
    const auto largest = static_cast<double>(x.size() == 0 ? Scalar(0) : x.cwiseAbs().maxCoeff());
    const double exponent = largest > 0 && !all.empty() ? std::log2(largest) + all.exponent() : 0;
    using Limits = std::numeric_limits<Scalar>;
    if (exponent >= Limits::max_exponent || (exponent < Limits::min_exponent - 1 && !are_gradients))
      detail::raise<NotFinite>(array.name, ": the state of sequence ", b, " and head ", h, " has numbers up to 2^",
                               exponent, ", which ", name_of(array.element),
                               " cannot hold; sympow_states_save keeps it");
    detail::unscale(all, x);
    with_view(array, b, h, [&](auto to) { to = x; });
  };
  if (sums != nullptr) write(*sums, all.S, [](auto&&... x) { with_matrix<Scalar>(x...); });
  if (normaliser != nullptr) write(*normaliser, all.Z, [](auto&&... x) { with_vector<Scalar>(x...); });
  if (angles != nullptr)
    for (Index j = 0; j < angles->shape[2]; ++j) angles->set({b, h, j}, j < frame.size() ? frame[j] : 0.);
}

template <class Scalar, class F>
class StateGradientsOf final : public StateGradients {
 public:
  StateGradientsOf(const StateShape& shape, std::vector<StateGradient<Scalar, F>> gradients)
      : StateGradients(shape), all(std::move(gradients)) {}
  void read(const Array* sums, const Array* normaliser, const Array* angles) const override {
    each_state(shape(), [&](Index b, Index h, std::size_t n) {
      write_sums<Scalar>(sums, normaliser, angles, b, h, detail::StateGradientAccess::sums(all[n]), all[n].frame(),
                         true);
    });
  }

  std::vector<StateGradient<Scalar, F>> all;
};

template <class Scalar, class F>
class StatesOf final : public States {
 public:
  using One = State<Scalar, F>;

  StatesOf(const StateShape& shape, F feature, std::vector<One> states)
      : States(shape), all(std::move(states)), feature_(std::move(feature)) {}

  /// Empty ones, which begin where others end.
  [[nodiscard]] static std::vector<One> empty(const StateShape& shape, const F& feature,
                                              const std::vector<One>* after = nullptr) {
    std::vector<One> states;
    states.reserve(static_cast<std::size_t>(shape.batch * shape.heads));
    each_state(shape, [&](Index, Index, std::size_t n) {
      states.emplace_back(feature, shape.d, shape.e, shape.tail, after == nullptr ? Frame() : (*after)[n].frame());
    });
    return states;
  }

  [[nodiscard]] std::unique_ptr<States> copy() const override { return std::make_unique<StatesOf>(*this); }
  void clear() override { replace(empty(shape(), feature_)); }
  void assign(Index sequence, const States& from, Index from_sequence) override {
    const auto& others = static_cast<const StatesOf&>(from).all;
    const auto first = others.begin() + from_sequence * shape().heads;
    std::vector<One> states(first, first + shape().heads);
    for (One& one : states) {
      detail::check_whole(one);
      one.read_as_bf16(!all.empty() && all.front().reads_as_bf16());
    }
    std::ranges::move(states, all.begin() + sequence * shape().heads);
  }
  void read_as_bf16(bool rounds) override {
    std::vector<One> states = all;
    for (One& one : states) one.read_as_bf16(rounds);
    all.swap(states);
  }
  [[nodiscard]] std::unique_ptr<States> merged(const States& right) const override {
    std::vector<One> states;
    states.reserve(all.size());
    each_state(shape(), [&](Index b, Index h, std::size_t n) {
      detail::with_head_context(b, h, 1,
                                [&] { states.push_back(merge(all[n], static_cast<const StatesOf&>(right).all[n])); });
    });
    return std::make_unique<StatesOf>(shape(), feature_, std::move(states));
  }
  [[nodiscard]] Index tokens(Index sequence, Index head) const override {
    const One& one = all[static_cast<std::size_t>(sequence * shape().heads + head)];
    detail::check_whole(one);
    return one.tokens();
  }
  void read(const Array* sums, const Array* normaliser, const Array* angles) const override {
    check_all_whole();
    each_state(shape(), [&](Index b, Index h, std::size_t n) {
      write_sums<Scalar>(sums, normaliser, angles, b, h, detail::StateAccess::sums(all[n]), all[n].frame().numbers());
    });
  }
  void write(const Array& sums, const Array& normaliser, const Array* angles) override {
    std::vector<One> states;
    states.reserve(all.size());
    each_state(shape(), [&](Index b, Index h, std::size_t) {
      states.push_back(state_of_sums<Scalar>(feature_, shape(), sums, normaliser, angles, b, h));
    });
    replace(std::move(states));
  }

  void save(const char* path) const override {
    check_all_whole();
    io::OutputFile file("states", path);
    try {
      for (const One& one : all) sympow::save(one, file.open());
    } catch (const InvalidStateFile& error) {
      detail::raise<InvalidStateFile>(path, ": ", error.what());
    }
    file.open();
    file.finish();
    file.commit();
  }
  void load(const char* path) override {
    std::ifstream in(path, std::ios::binary);
    const auto fail = [&](const auto&... parts) { detail::raise<InvalidStateFile>(path, ": ", parts...); };
    if (!in) fail("cannot be read");
    std::vector<One> states = empty(shape(), feature_);
    for (std::size_t n = 0; n < states.size(); ++n) {
      if (n > 0 && in.peek() == std::ifstream::traits_type::eof())
        fail("holds ", n, n == 1 ? " state" : " states", ", must hold ", states.size(), ", one a sequence and head");
      try {
        sympow::load(states[n], in);
      } catch (const InvalidStateFile& error) {
        fail("state ", n, ": ", error.what());
      }
    }
    if (in.peek() != std::ifstream::traits_type::eof())
      fail("goes on after ", states.size(), states.size() == 1 ? " state" : " states", ", one a sequence and head");
    replace(std::move(states));
  }

  [[nodiscard]] std::vector<DeviceState> device_states() const override {
    std::vector<DeviceState> states;
    if constexpr (F::score == Score::power)
      for (const One& one : all) states.push_back(device_state(one));
    return states;  // of powers: a device has no others, which callers have seen to
  }
  void set(const std::vector<DeviceState>& given, const std::vector<Index>& tokens) override {
    std::vector<One> states;
    if constexpr (F::score == Score::power)
      each_state(shape(), [&](Index b, Index, std::size_t n) {
        states.push_back(from_device(F{}, given[n], tokens[static_cast<std::size_t>(b)]));
      });
    replace(std::move(states));
  }

  [[nodiscard]] std::unique_ptr<StateGradients> gradients(const Array* sums, const Array* normaliser,
                                                          const Array* angles) const override {
    using Gradient = StateGradient<Scalar, F>;
    if (sums == nullptr && normaliser == nullptr && angles == nullptr)
      return std::make_unique<StateGradientsOf<Scalar, F>>(
          shape(), std::vector<Gradient>(all.size(), Gradient(feature_, shape().d, shape().e)));
    std::vector<Gradient> gradients;
    gradients.reserve(all.size());
    Matrix<Scalar> dS = Matrix<Scalar>::Zero(shape().e, shape().D);
    Vector<Scalar> dZ = Vector<Scalar>::Zero(shape().D);
    Eigen::VectorXd frame;
    each_state(shape(), [&](Index b, Index h, std::size_t) {
      if (sums != nullptr) with_matrix<Scalar>(*sums, b, h, [&](const auto& x) { dS = x; });
      if (normaliser != nullptr) with_vector<Scalar>(*normaliser, b, h, [&](const auto& x) { dZ = x; });
      if (angles != nullptr) {
        detail::resize_safely(frame, angles->shape[2]);
        for (Index j = 0; j < frame.size(); ++j)
          if (frame[j] = angles->number({b, h, j}); !std::isfinite(frame[j]))
            detail::raise<NotFinite>("angles: entry (", b, ", ", h, ", ", j, ") is ", frame[j], ", must be finite");
      }
      detail::with_head_context(b, h, 1, [&] { gradients.emplace_back(feature_, shape().d, dS, dZ, frame); });
    });
    return std::make_unique<StateGradientsOf<Scalar, F>>(shape(), std::move(gradients));
  }

  std::vector<One> all;

 private:
  // Others in the place of these, which are read as these are.
  void replace(std::vector<One> states) {
    if (!all.empty() && all.front().reads_as_bf16())
      for (One& one : states) one.read_as_bf16();
    all.swap(states);
  }
  template <int P>
  [[nodiscard]] One from_device(SymmetricPower<P>, const DeviceState& state, Index tokens) const {
    return state_of_device<Scalar, P>(state, shape().d, shape().e, tokens, 0, shape().tail);
  }
  void check_all_whole() const {
    for (const One& one : all) detail::check_whole(one);
  }

  F feature_;
};

}  // namespace SYMPOW_NAMESPACE::c
