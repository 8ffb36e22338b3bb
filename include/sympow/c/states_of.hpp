// States of a scalar type, and gradients in them.
#pragma once

#include <fstream>
#include <utility>

#include <sympow/attention/device_state.hpp>
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

/// What states ask of their feature map, whose type is forgotten.
template <class Scalar>
class StateFeature {
 public:
  virtual ~StateFeature() = default;
  virtual void fold(detail::StateSums<Scalar>& sums) const = 0;
  [[nodiscard]] virtual double absolute_weight(const Vector<Scalar>& Z, Index d) const = 0;
  [[nodiscard]] virtual detail::FeatureIdentity identity() const = 0;
  /// See `detail::root_multiplicities`; empty where there are no states on a device.
  [[nodiscard]] virtual Eigen::ArrayXd roots(Index d) const = 0;
};

template <class Scalar, class F>
class StateFeatureOf final : public StateFeature<Scalar> {
 public:
  explicit StateFeatureOf(F feature) : feature_(std::move(feature)) {}
  void fold(detail::StateSums<Scalar>& sums) const override { detail::fold_state(feature_, sums); }
  [[nodiscard]] double absolute_weight(const Vector<Scalar>& Z, Index d) const override {
    return detail::absolute_weight<F>(Z, d);
  }
  [[nodiscard]] detail::FeatureIdentity identity() const override { return detail::identity_of(feature_); }
  [[nodiscard]] Eigen::ArrayXd roots([[maybe_unused]] Index d) const override {
    if constexpr (F::score == Score::power)
      return detail::root_multiplicities<F::degree>(d);
    else
      return {};
  }

 private:
  F feature_;
};

template <class Scalar>
class StateGradientsOf final : public StateGradients {
 public:
  StateGradientsOf(const StateShape& shape, std::vector<detail::Adjoint<Scalar>> gradients)
      : StateGradients(shape), all(std::move(gradients)) {}
  void read(const Array* sums, const Array* normaliser, const Array* angles) const override {
    each_state(shape(), [&](Index b, Index h, std::size_t n) {
      write_sums<Scalar>(sums, normaliser, angles, b, h, detail::settled(all[n]), all[n].frame, true);
    });
  }

  std::vector<detail::Adjoint<Scalar>> all;
};

template <class Scalar>
class StatesOf final : public States {
 public:
  using One = detail::StateContent<Scalar>;
  using Feature = std::shared_ptr<const StateFeature<Scalar>>;

  StatesOf(const StateShape& shape, Feature feature, std::vector<One> states)
      : States(shape), all(std::move(states)), feature_(std::move(feature)) {}

  /// Empty ones, which begin where others end.
  [[nodiscard]] static std::vector<One> empty(const StateShape& shape, const std::vector<One>* after = nullptr) {
    detail::check_state_sizes<Scalar>(shape.D, shape.d, shape.e, shape.tail);
    std::vector<One> states;
    states.reserve(static_cast<std::size_t>(shape.batch * shape.heads));
    each_state(shape, [&](Index, Index, std::size_t n) {
      states.push_back(detail::empty_state<Scalar>(shape.D, shape.d, shape.e, shape.tail,
                                                   after == nullptr ? Frame() : (*after)[n].frames.end));
    });
    return states;
  }

  [[nodiscard]] std::unique_ptr<States> copy() const override { return std::make_unique<StatesOf>(*this); }
  void clear() override { replace(empty(shape())); }
  void assign(Index sequence, const States& from, Index from_sequence) override {
    const auto& others = static_cast<const StatesOf&>(from).all;
    const auto first = others.begin() + from_sequence * shape().heads;
    std::vector<One> states(first, first + shape().heads);
    for (One& one : states) {
      detail::check_whole(one);
      all.front().sums.is_split() ? one.sums.split_up() : one.sums.make_dense();
    }
    std::ranges::move(states, all.begin() + sequence * shape().heads);
  }
  void read_as_bf16(bool rounds) override {
    std::vector<One> states = all;
    for (One& one : states) rounds ? one.sums.split_up() : one.sums.make_dense();
    all.swap(states);
  }
  [[nodiscard]] std::unique_ptr<States> merged(const States& right) const override {
    std::vector<One> states;
    states.reserve(all.size());
    const auto fold = [&](detail::StateSums<Scalar>& sums) { feature_->fold(sums); };
    each_state(shape(), [&](Index b, Index h, std::size_t n) {
      const One& other = static_cast<const StatesOf&>(right).all[n];
      detail::with_head_context(b, h, 1, [&] { detail::check_adjacent(all[n], other, true); });
      states.push_back(detail::merged<Scalar>(fold, all[n], other));
    });
    return std::make_unique<StatesOf>(shape(), feature_, std::move(states));
  }
  [[nodiscard]] Index tokens(Index sequence, Index head) const override {
    const One& one = all[static_cast<std::size_t>(sequence * shape().heads + head)];
    detail::check_whole(one);
    return one.frames.tokens;
  }
  void read(const Array* sums, const Array* normaliser, const Array* angles) const override {
    check_all_whole();
    each_state(shape(), [&](Index b, Index h, std::size_t n) {
      write_sums<Scalar>(sums, normaliser, angles, b, h, settled(all[n]), all[n].frames.end.numbers());
    });
  }
  void write(const Array& sums, const Array& normaliser, const Array* angles) override {
    std::vector<One> states = empty(shape());
    each_state(shape(), [&](Index b, Index h, std::size_t n) {
      set_from_arrays(states[n], sums, normaliser, angles, b, h);
      states[n].sums.A = feature_->absolute_weight(states[n].sums.Z, shape().d);
    });
    replace(std::move(states));
  }

  void save(const char* path) const override {
    check_all_whole();
    io::OutputFile file("states", path);
    try {
      for (const One& one : all) detail::save_state(one, feature_->identity(), file.open());
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
    std::vector<One> states = empty(shape());
    for (std::size_t n = 0; n < states.size(); ++n) {
      if (n > 0 && in.peek() == std::ifstream::traits_type::eof())
        fail("holds ", n, n == 1 ? " state" : " states", ", must hold ", states.size(), ", one a sequence and head");
      try {
        detail::load_state(states[n], feature_->identity(), in);
      } catch (const InvalidStateFile& error) {
        fail("state ", n, ": ", error.what());
      }
    }
    if (in.peek() != std::ifstream::traits_type::eof())
      fail("goes on after ", states.size(), states.size() == 1 ? " state" : " states", ", one a sequence and head");
    replace(std::move(states));
  }

  [[nodiscard]] std::vector<DeviceState> device_states() const override {
    const Eigen::ArrayXd roots = feature_->roots(shape().d);
    std::vector<DeviceState> states;
    for (const One& one : all) states.push_back(detail::device_state(settled(one), one.frames, roots));
    return states;
  }
  void set(const std::vector<DeviceState>& given, const std::vector<Index>& tokens) override {
    const Eigen::ArrayXd roots = feature_->roots(shape().d);
    std::vector<One> states = empty(shape());
    each_state(shape(), [&](Index b, Index, std::size_t n) {
      detail::set_from_device(states[n], given[n], tokens[static_cast<std::size_t>(b)], 0, roots);
    });
    replace(std::move(states));
  }

  [[nodiscard]] std::unique_ptr<StateGradients> gradients(const Array* sums, const Array* normaliser,
                                                          const Array* angles) const override {
    using Gradient = detail::Adjoint<Scalar>;
    if (sums == nullptr && normaliser == nullptr && angles == nullptr)
      return std::make_unique<StateGradientsOf<Scalar>>(
          shape(), std::vector<Gradient>(all.size(), detail::no_adjoint<Scalar>(shape().D, shape().d, shape().e)));
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
      detail::with_head_context(
          b, h, 1, [&] { gradients.push_back(detail::adjoint_of_sums<Scalar>(shape().D, shape().d, dS, dZ, frame)); });
    });
    return std::make_unique<StateGradientsOf<Scalar>>(shape(), std::move(gradients));
  }

  std::vector<One> all;

 private:
  // Others in the place of these, which are read as these are.
  void replace(std::vector<One> states) {
    if (!all.empty() && all.front().sums.is_split())
      for (One& one : states) one.sums.split_up();
    all.swap(states);
  }
  [[nodiscard]] detail::StateSums<Scalar> settled(const One& one) const {
    return detail::settled<Scalar>([&](detail::StateSums<Scalar>& sums) { feature_->fold(sums); }, one);
  }
  void check_all_whole() const {
    for (const One& one : all) detail::check_whole(one);
  }

  Feature feature_;
};

}  // namespace SYMPOW_NAMESPACE::c
