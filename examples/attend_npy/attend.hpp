// Every head of a problem through the chosen form, and through all of them for --compare.
#pragma once

#include <istream>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "gradients.hpp"
#include "problem.hpp"

namespace attend_npy {

/// What --compare found, over all heads.
struct Comparison {
  std::map<std::string, double>
      from_reference;  ///< largest difference of a form from the rows in double; not if resumed
  double largest = 0;  ///< the largest of these and of any two forms, by the row rule
  Index rows = 0;
  Index meaningless_to_some = 0;  ///< rows that one form calls degenerate and another does not
  Index without_information = 0;  ///< degenerate rows, which are not compared
  Index out_of_range = 0;         ///< rows beyond the range of the type, which are not compared

  /// Whether the forms say the same.
  [[nodiscard]] bool agree() const { return largest <= 1 && meaningless_to_some == 0; }
};

/// What a run leaves behind.
template <class Scalar>
struct Results {
  std::vector<Scalar> Y;            ///< of Q's shape but for the last axis
  std::vector<double> diagnostics;  ///< (…, T, 3), if they were asked for
  Comparison comparison;            ///< if it was asked for
};

/// Runs a problem. States are read from and written to the streams, if there are any; `state_in_name` is for messages.
/// Adds to the gradients, if they are wanted. Throws `BadInput`.
template <class Scalar>
Results<Scalar> attend(const Problem& problem, std::istream* state_in, std::ostream* state_out,
                       const std::string& state_in_name, ProblemGradients<Scalar>* gradients);

}  // namespace attend_npy
