// Gradients beside the rows: their names, and what is in them.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "gradients.hpp"
#include "output_files.hpp"

namespace attend_npy {

/// The name of the gradient in what an option gave: of --log-gate beside y.npy, y_dlog_gate.npy.
inline std::string gradient_path(const std::string& out, std::string option) {
  std::ranges::replace(option, '-', '_');
  std::filesystem::path path = out;
  path.replace_filename(path.stem().string() + "_d" + option.substr(2) + path.extension().string());
  return path.string();
}

/// The gradients of a run and the files that they go to.
template <class Scalar>
class GradientFiles {
 public:
  /// Opens them; none where gradients are not wanted. Throws as `OutputFiles`.
  GradientFiles(const Problem& problem, OutputFiles& files) : problem_(problem) {
    if (!problem.dY) return;
    gradients_.emplace(problem);
    each([&](const char* option, const Array&, const auto&) {
      paths_.push_back(gradient_path(problem.arguments.out, option));
      streams_.push_back(&files.open("gradient", paths_.back()));
    });
  }

  /// Null where they are not wanted.
  [[nodiscard]] ProblemGradients<Scalar>* gradients() { return gradients_ ? &*gradients_ : nullptr; }

  /// Writes each in the type of what it is a gradient in. Throws `BadInput` for one that is not a number.
  void write() {
    if (!gradients_) return;
    auto stream = streams_.begin();
    each([&](const char*, const Array& of, const auto& gradient) {
      const auto write_as = [&]<class Number>(const std::vector<Number>&) {
        std::vector<Number> numbers(gradient.size());
        std::ranges::transform(gradient, numbers.begin(), [](auto x) { return static_cast<Number>(x); });
        check(of, numbers);
        write_npy(**stream++, of.shape, numbers);
      };
      std::visit(write_as, of.entries);
    });
  }

  /// Where they go.
  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }
  /// How many entries were written as infinite.
  [[nodiscard]] Index beyond() const { return beyond_; }

 private:
  template <class Visitor>
  void each(const Visitor& visit) const {
    ProblemGradients<Scalar>::each(*gradients_, problem_, visit);
  }

  template <class Number>
  void check(const Array& of, const std::vector<Number>& gradient) {
    for (std::size_t n = 0; n < gradient.size(); ++n)
      if (std::isnan(gradient[n]))
        fail("the gradient of ", of.name, ": entry ", position(of.shape, n),
             " is not a number though the input is finite, what it is made of leaves the range of ", problem_.Q.type());
      else if (std::isinf(gradient[n]))
        ++beyond_;
  }

  const Problem& problem_;
  std::optional<ProblemGradients<Scalar>> gradients_;
  std::vector<std::string> paths_;
  std::vector<std::ostream*> streams_;
  Index beyond_ = 0;
};

}  // namespace attend_npy
