// What an attention does to arrays of a scalar type: one interface for all types, powers and kinds of scores.
#pragma once

#include <memory>
#include <vector>

#include <sympow/attention/device_state.hpp>
#include <sympow/attention/gradient_calls.hpp>
#include <sympow/c/inputs.hpp>

namespace SYMPOW_NAMESPACE::c {

/// Scratch memory of calls of either type.
struct Scratch {
  Workspaces<float> of_float = {};
  Workspaces<double> of_double = {};
  VjpWorkspaces<float> of_float_vjp = {};
  VjpWorkspaces<double> of_double_vjp = {};
};

class Engine;

/// The sizes of states, and what made them.
struct StateShape {
  const Engine* engine;
  Element element;
  Scores scores;
  Index batch, heads, d, e, tail, D, pairs;  ///< `pairs` of channels that rotary turns
  friend bool operator==(const StateShape&, const StateShape&) = default;
};

/// Gradients in states.
class StateGradients {
 public:
  explicit StateGradients(const StateShape& shape) : shape_(shape) {}
  virtual ~StateGradients() = default;
  [[nodiscard]] const StateShape& shape() const { return shape_; }
  virtual void read(const Array* sums, const Array* normaliser, const Array* angles) const = 0;

 private:
  StateShape shape_;
};

/// States of B sequences and Hs heads.
class States {
 public:
  explicit States(const StateShape& shape) : shape_(shape) {}
  virtual ~States() = default;
  [[nodiscard]] const StateShape& shape() const { return shape_; }
  [[nodiscard]] virtual std::unique_ptr<States> copy() const = 0;
  virtual void clear() = 0;
  /// All heads of one sequence become those of a sequence of others, which have as many.
  virtual void assign(Index sequence, const States& from, Index from_sequence) = 0;
  virtual void read_as_bf16(bool rounds) = 0;
  [[nodiscard]] virtual std::unique_ptr<States> merged(const States& right) const = 0;
  [[nodiscard]] virtual Index tokens(Index sequence, Index head) const = 0;
  virtual void read(const Array* sums, const Array* normaliser, const Array* angles) const = 0;
  virtual void write(const Array& sums, const Array& normaliser, const Array* angles) = 0;
  virtual void save(const char* path) const = 0;
  virtual void load(const char* path) = 0;
  /// As sympow::cuda has them, b Hs + h, and back, after so many tokens of each sequence.
  [[nodiscard]] virtual std::vector<DeviceState> device_states() const = 0;
  virtual void set(const std::vector<DeviceState>& states, const std::vector<Index>& tokens) = 0;
  /// Null: zeros.
  [[nodiscard]] virtual std::unique_ptr<StateGradients> gradients(const Array* sums, const Array* normaliser,
                                                                  const Array* angles) const = 0;

 protected:
  States(const States&) = default;

 private:
  StateShape shape_;
};

/// Where gradients go; null: not wanted.
struct Results {
  Array queries, keys, values;
  std::optional<Array> log_gates = {}, theta = {}, beta = {}, scale = {};
  std::optional<Array> channel_gates = {}, householder = {}, strengths = {};
};

/// The calls of a scalar type and a feature map.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Without rows states move on.
  virtual void attend(const Settings& settings, const Inputs& in, Form form, States* states, const Array* rows,
                      Scratch& scratch) const = 0;
  virtual void attend_vjp(const Settings& settings, const Inputs& in, const Array& d_rows, const States* states,
                          StateGradients* state_gradients, const Results& results, Scratch& scratch) const = 0;
  /// Writes what is said of the rows, [B, T_q, H, 3].
  virtual void diagnose(const Settings& settings, const Inputs& in, const States* states, const Array& diagnostics,
                        Scratch& scratch) const = 0;
  /// D. Throws `DimensionOverflow`, and `InvalidArgument` where there is no embedding.
  [[nodiscard]] virtual Index dimension(const Settings& settings, Index d) const = 0;
  /// Empty states, after others of the same sizes or null.
  [[nodiscard]] virtual std::unique_ptr<States> states(const Settings& settings, const StateShape& shape,
                                                       const States* after) const = 0;
};

/// A state's sums, normaliser and angles as arrays of an interface, the axes of [B, Hs, …] checked.
struct StateArrays {
  std::optional<Array> sums = {}, normaliser = {}, angles = {};

  StateArrays(const StateShape& shape, const sympow_tensor* of_sums, const sympow_tensor* of_normaliser,
              const sympow_tensor* of_angles) {
    const auto take = [&](std::optional<Array>& to, const sympow_tensor* from, const char* name, const char* axes,
                          std::initializer_list<Index> sizes, Element element, const char* whose) {
      if (from == nullptr) return;
      to = array_of(from, name, sizes.size(), axes);
      check_element(*to, element, whose);
      std::size_t n = 0;
      for (const Index size : sizes) check_axis(*to, n++, size, "of the states");
    };
    take(sums, of_sums, "sums", "B, Hs, D, e", {shape.batch, shape.heads, shape.D, shape.e}, shape.element,
         "the states");
    take(normaliser, of_normaliser, "normaliser", "B, Hs, D", {shape.batch, shape.heads, shape.D}, shape.element,
         "the states");
    take(angles, of_angles, "angles", "B, Hs, d/2", {shape.batch, shape.heads, shape.pairs}, Element::float64,
         "angles");
  }
  /// As outputs.
  void check_apart() const {
    check_outputs({pointer_to(sums), pointer_to(normaliser), pointer_to(angles)},
                  std::initializer_list<const Array*>{});
  }
};

}  // namespace SYMPOW_NAMESPACE::c
