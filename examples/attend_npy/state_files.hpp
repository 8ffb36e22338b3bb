// States of several heads in one file: one after the other, each as sympow::save writes it.
#pragma once

#include <istream>
#include <ostream>
#include <string>

#include <sympow/attention/state_file.hpp>

#include "arguments.hpp"
#include "bad_input.hpp"

namespace attend_npy {

/// What a head without a state carries.
struct NoState {};

namespace detail {
template <class Scalar, class F>
struct StateOfFeature {
  using type = NoState;
};
template <class Scalar, sympow::FiniteFeatureMap F>
struct StateOfFeature<Scalar, F> {
  using type = sympow::State<Scalar, F>;
};
}  // namespace detail

template <class Scalar, class F>
using StateOf = typename detail::StateOfFeature<Scalar, F>::type;

/// An empty state of d and e; without size where only the attention form runs.
template <class Scalar, class F>
StateOf<Scalar, F> make_state(const F& feature, Form form, bool all_forms, std::ptrdiff_t d, std::ptrdiff_t e) {
  if constexpr (sympow::FiniteFeatureMap<F>) {
    const bool needed = form != Form::attention || all_forms;
    const std::ptrdiff_t least = F::score == sympow::Score::embedded ? d : 0;  // projections are of R^d
    return needed ? StateOf<Scalar, F>(feature, d, e) : StateOf<Scalar, F>(feature, least, 0, 0);
  } else {
    return {};
  }
}

/// Reads state n of `count`. Throws `BadInput`; the state is then as it was.
template <class State>
void load_one([[maybe_unused]] State& state, [[maybe_unused]] std::istream& in,
              [[maybe_unused]] const std::string& name, [[maybe_unused]] std::ptrdiff_t n,
              [[maybe_unused]] std::ptrdiff_t count) {
  if constexpr (!std::is_same_v<State, NoState>) {
    if (n > 0 && in.peek() == std::istream::traits_type::eof())
      fail(name, ": holds ", n, n == 1 ? " state" : " states", ", must hold ", count, ", one for each batch and head");
    try {
      sympow::load(state, in);
    } catch (const sympow::InvalidArgument& error) {
      fail(name, ", state ", n, ": ", error.what());
    }
  }
}

/// Throws `BadInput` unless all has been read.
inline void require_end(std::istream& in, const std::string& name, std::ptrdiff_t count) {
  if (in.peek() != std::istream::traits_type::eof())
    fail(name, ": goes on after ", count, count == 1 ? " state" : " states", ", one for each batch and head");
}

/// Writes one state. Throws `BadInput`.
template <class State>
void save_one([[maybe_unused]] const State& state, [[maybe_unused]] std::ostream& out,
              [[maybe_unused]] const std::string& name) {
  if constexpr (!std::is_same_v<State, NoState>) {
    try {
      sympow::save(state, out);
    } catch (const sympow::InvalidStateFile&) {
      fail(name, ": cannot be written to its end");
    }
  }
}

}  // namespace attend_npy
