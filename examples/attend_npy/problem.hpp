// The arrays of one run, checked, and how sympow.h sees them.
#pragma once

#include <array>
#include <deque>
#include <ranges>

#include <sympow/io/npy.hpp>

#include "arguments.hpp"

namespace attend_npy {

using namespace sympow::io;  // arrays of numpy
using sympow::Index;

/// Arrays by their option.
using Arrays = std::map<std::string, Array>;

struct Problem {
  Arguments arguments;
  Arrays arrays;
  std::vector<std::int64_t> lengths;  ///< tokens of every sequence; none if there is no padding
  Index B = 1, H = 1, H_kv = 1, T = 0, d = 0, e = 0;
  bool heads_first = false;  ///< in memory, before the tokens

  [[nodiscard]] const Array& operator[](const std::string& option) const { return arrays.at(option); }
  [[nodiscard]] bool is_single() const { return (*this)["--q"].holds<float>(); }
  [[nodiscard]] Index length(Index b) const { return lengths.empty() ? T : lengths[static_cast<std::size_t>(b)]; }
  [[nodiscard]] Index longest() const { return lengths.empty() ? T : *std::ranges::max_element(lengths); }
  /// The shape of Q with another last axis, or without one.
  [[nodiscard]] Shape rows_of(Index width) const {
    Shape shape = (*this)["--q"].shape;
    shape.back() = width;
    return shape;
  }
  /// Heads of an array, and numbers that it has for each token and head.
  [[nodiscard]] Index heads_of(const std::string& option) const {
    const bool is_of_keys = option == "--k" || option == "--v" || option == "--householder" || option == "--strength";
    return is_of_keys ? H_kv : H;
  }
  [[nodiscard]] Index width_of(const std::string& option) const {
    if (option == "--q" || option == "--k" || option == "--householder") return d;
    return option == "--v" || option == "--grad" ? e : 1;
  }
  /// Where the numbers of a token stand in an array of so many heads and numbers.
  [[nodiscard]] std::size_t place(Index heads, Index width, Index b, Index t, Index h) const {
    return static_cast<std::size_t>((b * heads * T + (heads_first ? h * T + t : t * heads + h)) * width);
  }
  /// visit(place) of every number of an array that is no padding.
  void each_place(const std::string& option, const auto& visit) const {
    const Index heads = heads_of(option), width = width_of(option);
    for (Index b = 0; b < B; ++b)
      for (Index h = 0; h < heads; ++h)
        for (Index t = 0; t < length(b); ++t)
          for (Index i = 0; i < width; ++i) visit(place(heads, width, b, t, h) + static_cast<std::size_t>(i));
  }
};

/// Tensors of sympow.h on numbers that stay where they are.
class Tensors {
 public:
  /// Of these sizes and strides; strides of none: dense.
  template <class S>
  const sympow_tensor* add(const S* numbers, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {}) {
    const std::uint8_t code = std::is_floating_point_v<S> ? SYMPOW_FLOAT : SYMPOW_INT;
    Tensor& x = tensors_.emplace_back(Tensor{std::move(shape), std::move(strides), {}});
    x.view = {const_cast<S*>(numbers),
              {SYMPOW_CPU, 0},
              static_cast<std::int32_t>(x.shape.size()),
              {code, 8 * sizeof(S), 1},
              x.shape.data(),
              x.strides.empty() ? nullptr : x.strides.data(),
              0};
    return &x.view;
  }
  /// [B, T, heads, width], or without the last axis.
  template <class S>
  const sympow_tensor* add(const Problem& problem, const S* numbers, Index heads, Index width, bool has_width = true) {
    const Index T = problem.T, first = problem.heads_first ? 1 : heads, second = problem.heads_first ? T : 1;
    std::vector<std::int64_t> shape{problem.B, T, heads}, strides{T * heads * width, first * width, second * width};
    if (has_width) shape.push_back(width), strides.push_back(1);
    return add(numbers, std::move(shape), std::move(strides));
  }
  /// An array of the problem, or one like it; null where there is none.
  const sympow_tensor* add(const Problem& problem, const Arrays& arrays, const std::string& option) {
    const auto found = arrays.find(option);
    if (found == arrays.end()) return nullptr;
    return std::visit(
        [&](const auto& numbers) {
          if (option == "--theta") return add(numbers.data(), {problem.d / 2});
          if (option == "--scale") return add(numbers.data(), {1});
          const bool has_width = found->second.shape.size() == problem["--q"].shape.size();
          return add(problem, numbers.data(), problem.heads_of(option), problem.width_of(option), has_width);
        },
        found->second.entries);
  }

 private:
  struct Tensor {
    std::vector<std::int64_t> shape, strides;
    sympow_tensor view;
  };
  std::deque<Tensor> tensors_;
};

inline void check_shape(const Array& array, const Shape& expected, const std::string& why) {
  if (array.shape != expected)
    fail(array.name, ": shape is ", text(array.shape), ", must be ", text(expected), ", ", why);
}

/// The tokens of B sequences of up to T, from a file or a list; none if there is no option.
inline std::vector<std::int64_t> read_lengths(const Arguments& arguments, Index B, Index T) {
  if (!arguments.has("--lengths")) return {};
  const std::string &given = arguments.given.at("--lengths"), name = arguments.text("--lengths");
  std::vector<std::int64_t> lengths;
  if (given.find_first_not_of("0123456789,") != std::string::npos)
    lengths = read_whole_numbers("--lengths", given);
  else
    for (const auto number : std::views::split(given, ','))
      lengths.push_back(whole_number(name, {number.begin(), number.end()}, 0));
  if (std::ssize(lengths) != B)
    fail(name, ": ", lengths.size(), lengths.size() == 1 ? " length is" : " lengths are", " given, must be ", B,
         ", one for each sequence");
  for (std::size_t b = 0; b < lengths.size(); ++b)
    if (lengths[b] < 0 || lengths[b] > T) fail(name, ": length ", b, " is ", lengths[b], ", must be 0 to T = ", T);
  return lengths;
}

/// Sizes by the shapes of Q, K and V. Throws `BadInput`.
inline void read_sizes(Problem& x) {
  const Array &Q = x["--q"], &K = x["--k"], &V = x["--v"];
  const auto axes = Q.shape.size();
  if (axes < 2 || axes > 4) fail(Q.name, ": shape is ", text(Q.shape), ", must be (T, d), (H, T, d) or (B, T, H, d)");
  if (axes != 4 && x.arguments.has("--layout"))
    fail("--layout does not go with ", Q.name, " of shape ", text(Q.shape), ": it is the order of four axes");
  x.heads_first = axes < 4 || x.arguments.layout == 1;
  const std::size_t of_heads = axes < 4 ? axes - 3 : x.heads_first ? 1 : 2;  // which axis; none of two
  x.B = axes == 4 ? Q.shape[0] : 1;
  x.T = Q.shape[axes < 4 ? axes - 2 : x.heads_first ? 2 : 1];
  Shape of_keys = Q.shape;
  if (axes > 2) {
    x.H = x.H_kv = Q.shape[of_heads];
    const Index fewer = K.shape.size() == axes ? K.shape[of_heads] : 0;
    if (fewer > 0 && x.H % fewer == 0) of_keys[of_heads] = x.H_kv = fewer;
  }
  const std::string groups = ", or with fewer heads, whose number divides H = " + std::to_string(x.H);
  check_shape(K, of_keys, "that of " + Q.name + (axes > 2 ? groups : ""));
  if (V.shape.size() == axes) of_keys.back() = V.shape.back();
  check_shape(V, of_keys, "that of " + K.name + " up to the last axis");
  x.d = Q.shape.back(), x.e = V.shape.back();
  if (x.d == 0) fail(Q.name, ": shape is ", text(Q.shape), ", its last axis d must be at least 1");
  if (x.e == 0) fail(V.name, ": shape is ", text(V.shape), ", its last axis must be at least 1");
  x.lengths = read_lengths(x.arguments, x.B, x.T);
}

/// Throws unless an array has its shape and type, and entries that are finite, or logarithms of gates.
inline void check_array(const Problem& x, const std::string& option, const Array& array) {
  const Array &Q = x["--q"], &like = option == "--strength" ? x["--k"] : Q;
  const bool is_gate = option == "--log-gate";
  if (option == "--theta") {
    if (x.d % 2 != 0) fail(array.name, ": turns pairs, and the last axis of ", Q.name, " is odd, ", x.d);
    check_shape(array, {x.d / 2}, "half of the last axis of " + Q.name);
  } else if (is_gate || option == "--beta" || option == "--strength") {
    check_shape(array, {like.shape.begin(), like.shape.end() - 1},
                "one number for each token and head of " + like.name);
  } else {
    if (array.entries.index() != Q.entries.index())
      fail(array.name, ": is of type ", array.type(), ", must be ", Q.type(), " as ", Q.name, " is");
    if (option == "--grad") check_shape(array, x.rows_of(x.e), "that of Y");
    if (option == "--householder") check_shape(array, x["--k"].shape, "that of " + x["--k"].name);
  }
  const auto check_entry = [&](std::size_t n) {
    if (is_gate ? !(array[n] <= 0) : !std::isfinite(array[n]))
      fail(array.name, ": entry ", position(array.shape, n), " is ", array[n], ", must be ",
           is_gate ? "a logarithm of at most 0" : "finite");
  };
  if (option == "--theta")
    for (std::size_t n = 0; n < array.size(); ++n) check_entry(n);
  else
    x.each_place(option, check_entry);
}

/// Reads the arrays and checks them. Throws `BadInput`, `InvalidNpy`.
inline Problem read_problem(const Arguments& arguments) {
  Problem x;
  x.arguments = arguments;
  const std::vector<const char*> options = {"--q",    "--k",           "--v",        "--log-gate", "--theta",
                                            "--beta", "--householder", "--strength", "--grad"};
  for (const char* option : options) {
    if (arguments.has(option)) x.arrays[option] = read_npy(option, arguments.given.at(option));
    if (option == std::string("--v")) {
      for (const char* other : {"--k", "--v"})
        if (x[other].entries.index() != x["--q"].entries.index())
          fail(x[other].name, ": is of type ", x[other].type(), ", must be ", x["--q"].type(), " as ", x["--q"].name,
               " is");
      read_sizes(x);
    }
  }
  for (const char* option : options)
    if (arguments.has(option)) check_array(x, option, x[option]);
  double fastest = 0, longest = 1;
  if (arguments.has("--theta"))
    for (std::size_t n = 0; n < x["--theta"].size(); ++n) fastest = std::max(fastest, std::abs(x["--theta"][n]));
  if (arguments.has("--beta"))
    x.each_place("--beta", [&](std::size_t n) { longest = std::max(longest, std::abs(x["--beta"][n])); });
  if (!std::isfinite(fastest * longest))
    fail(x["--theta"].name, ": its largest rate times the largest of ", x["--beta"].name, " is no finite angle");
  if (arguments.has("--scale")) x.arrays["--scale"] = Array{"--scale", {}, std::vector<double>{arguments.scale}};
  return x;
}

}  // namespace attend_npy
