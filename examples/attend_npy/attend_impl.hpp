// The definition of `attend`, for the two files that instantiate it.
#pragma once

#include <algorithm>

#include <sympow/attention/attention.hpp>
#include <sympow/attention/chunked.hpp>
#include <sympow/attention/recurrent.hpp>
#include <sympow/attention/state_file.hpp>
#include <sympow/verify/proposition.hpp>

#include "attend.hpp"
#include "features.hpp"
#include "gradients.hpp"
#include "reference.hpp"
#include "state_files.hpp"

namespace attend_npy {
namespace detail {

using namespace sympow;

/// One head: its arrays in place, and what runs over them.
template <class Scalar, class F>
class Head {
 public:
  using Carried = StateOf<Scalar, F>;

  Head(const F& feature, const Problem& problem, Index n, VjpWorkspace<Scalar>& workspace)
      : feature_(feature),
        problem_(problem),
        n_(n),
        workspace_(workspace),
        transition_(problem.transition<Scalar>(n)),
        Q_(problem.queries<Scalar>(n)),
        K_(problem.keys<Scalar>(n)),
        V_(problem.values<Scalar>(n)) {}

  [[nodiscard]] Index b() const { return n_ / problem_.H; }  ///< its sequence
  [[nodiscard]] Index h() const { return n_ % problem_.H; }  ///< which of the heads of its queries

  void run(Form form, Carried& state, Batch<Scalar> Y, Diagnostics* diagnostics) const {
    const Options options{
        .scale = problem_.arguments.scale, .chunk = problem_.arguments.chunk, .diagnostics = diagnostics};
    std::visit(
        [&]<class Acting>(const Acting& A) {
          with_normalization<F>(problem_.arguments.divides(), [&]<class N>(N) {
            if constexpr (sympow::has_state_forms<F, Acting>) {
              if (form == Form::recurrent) return recurrent<N>(feature_, A, Q_, K_, V_, state, Y, workspace_, options);
              if (form == Form::chunked) return chunked<N>(feature_, A, Q_, K_, V_, state, Y, workspace_, options);
            }
            if constexpr (goes_with<F, Acting>) attention<N>(feature_, A, Q_, K_, V_, Y, workspace_, options);
          });
        },
        transition_);
  }

  /// Adds the gradients of the head from `state`.
  void take_back(const Carried& state, ProblemGradients<Scalar>& gradients) const {
    add_gradients<Scalar, F>(feature_, problem_, n_, transition_, state, workspace_, gradients);
  }

  /// Runs every form that can start from `state` and compares each with the others, and with the rows in double if
  /// nothing came before.
  void compare(const Carried& state, bool resumed, Comparison& found) const {
    constexpr double never = std::numeric_limits<double>::infinity();
    std::vector<Side> sides;
    Diagnostics diagnostics;
    const auto add = [&](const char* name, Form form, double tokens_per_update) {
      Carried from = state;
      if (problem_.theta || problem_.W) tokens_per_update = 1;  // every token rounds its angles, or moves keys on
      sides.push_back({name, Matrix<Scalar>(V_.rows(), V_.cols()), tokens_per_update, {}});
      run(form, from, sides.back().Y, &diagnostics);
      sides.back().degenerate = diagnostics.is_degenerate.cast<double>().matrix().transpose();
    };
    if (!resumed) add("attention", Form::attention, never);
    if (problem_.arguments.has_state()) {
      add("recurrent", Form::recurrent, 1);
      add("chunked", Form::chunked, static_cast<double>(problem_.arguments.chunk));
    }
    const verify::DirectRows<double> rows =
        resumed
            ? rows_after(state, diagnostics, sides.back().Y)
            : reference(feature_, problem_.transition<double>(n_), Q_.template cast<double>(),
                        K_.template cast<double>(), V_.template cast<double>(), problem_.arguments.scale, divides());
    const std::vector<Index> kept = comparable(rows, sides, found);
    const verify::DirectRows<double> those{columns(rows.Y, kept),
                                           columns(rows.denominator.transpose(), kept).transpose(),
                                           columns(rows.condition.transpose(), kept).transpose(),
                                           columns(rows.window.transpose(), kept).transpose(), rows.largest_value};
    for (auto& side : sides) {
      if (divides() && !side.Y.allFinite())
        found.largest = never;  // a mean of finite values is finite, whatever it says
      side.Y = columns(side.Y, kept);
    }
    const auto difference = [&](const auto& a, const auto& b, double tokens_per_update) {
      double ratio = 0;
      with_normalization<F>(divides(), [&]<class N>(N) {
        ratio = verify::row_rule<N, F>(those, a, b, verify::unit_roundoff<Scalar>, tokens_per_update);
      });
      found.largest = std::max(found.largest, ratio);
      return ratio;
    };
    for (std::size_t n = 0; n < sides.size(); ++n) {
      if (!resumed) {
        double& worst = found.from_reference[sides[n].name];
        worst = std::max(worst, difference(sides[n].Y, those.Y, sides[n].tokens_per_update));
      }
      for (std::size_t m = 0; m < n; ++m)
        difference(sides[n].Y, sides[m].Y, std::min(sides[n].tokens_per_update, sides[m].tokens_per_update));
    }
  }

 private:
  // What one form makes of the head.
  struct Side {
    std::string name;
    Matrix<Scalar> Y;
    double tokens_per_update;
    Eigen::RowVectorXd degenerate;  // 1 for rows that it calls so
  };

  [[nodiscard]] bool divides() const { return problem_.arguments.divides(); }

  // What the row rule needs of a resumed sequence, from its diagnostics; what came before is known by its state only.
  verify::DirectRows<double> rows_after([[maybe_unused]] const Carried& state, const Diagnostics& diagnostics,
                                        const Matrix<Scalar>& Y) const {
    verify::DirectRows<double> rows;
    if constexpr (FiniteFeatureMap<F>) {
      rows.Y = Y.template cast<double>();
      rows.denominator = diagnostics.log_sum.array().exp();
      rows.condition = diagnostics.condition;
      if (!divides()) rows.condition = (diagnostics.condition.array().log() + diagnostics.log_sum.array()).exp();
      rows.condition.array() *= growth_after(state).array();
      rows.window = window<Scalar>(transition_, Y.cols(), static_cast<double>(state.tokens()));
      rows.largest_value = V_.size() > 0 ? static_cast<double>(V_.cwiseAbs().maxCoeff()) : 0;
      for (Index i = 0; i < Y.cols(); ++i) {  // |Y_i| is at most K_i max|V|, earlier values included
        const double least = rows.Y.col(i).cwiseAbs().maxCoeff() / rows.condition[i];
        if (std::isfinite(least)) rows.largest_value = std::max(rows.largest_value, least);
      }
    }
    return rows;
  }

  // How much longer keys have become under a chain, which the weights do not see: ‖A_1 … A_i‖ from the first token of
  // the state, 1 for a product that a contraction can have.
  template <class State>
  [[nodiscard]] Eigen::VectorXd growth_after(const State& state) const {
    Eigen::VectorXd growth = Eigen::VectorXd::Ones(Q_.cols());
    std::visit(
        [&]<class Acting>(const Acting& A) {
          if constexpr (Acting::key_action == KeyAction::mix) {
            Matrix<Scalar> product = state.key_product();
            if (product.size() == 0) product.setIdentity(problem_.d, problem_.d);
            for (Index i = 0; i < growth.size(); ++i) {
              A.apply_to_state(Segment{i, 1}, Batch<Scalar>(product));
              const auto size = static_cast<double>(product.stableNorm());
              if (!(size <= 1.01 * std::sqrt(static_cast<double>(problem_.d)))) growth[i] = size;
            }
          }
        },
        transition_);
    return growth;
  }

  template <class Derived>
  static Matrix<typename Derived::Scalar> columns(const Eigen::MatrixBase<Derived>& x, const std::vector<Index>& kept) {
    Matrix<typename Derived::Scalar> result(x.rows(), static_cast<Index>(kept.size()));
    for (Index i = 0; i < result.cols(); ++i) result.col(i) = x.col(kept[static_cast<std::size_t>(i)]);
    return result;
  }

  // The rows that every form must see alike: those that say something, and not just barely, and that stay in the range
  // of the type, where rounding is relative.
  std::vector<Index> comparable(const verify::DirectRows<double>& rows, const std::vector<Side>& sides,
                                Comparison& found) const {
    constexpr double least = 2 * static_cast<double>(std::numeric_limits<Scalar>::min());
    constexpr double most = static_cast<double>(std::numeric_limits<Scalar>::max());
    // Within a factor of two of the threshold either answer is right.
    constexpr double barely = 2 * verify::unit_roundoff<Scalar>, surely = verify::unit_roundoff<Scalar> / 2;
    std::vector<Index> kept;
    for (Index i = 0; i < rows.Y.cols(); ++i) {
      const double size = rows.condition[i] * rows.largest_value;  // of which 4u may be rounding
      const bool fits = size <= most && size >= least && rows.largest_value >= 1024 * least;
      const auto flagged =
          std::count_if(sides.begin(), sides.end(), [i](const Side& s) { return s.degenerate[i] != 0; });
      const bool either = verify::degenerate(rows, i, barely) && !verify::degenerate(rows, i, surely);
      ++found.rows;
      if (0 < flagged && flagged < std::ssize(sides) && !either)
        ++found.meaningless_to_some;
      else if (divides() && verify::degenerate(rows, i, barely))
        ++found.without_information;
      else if (!(fits && rows.Y.col(i).allFinite()) && !(size == 0 && rows.Y.col(i).isZero(0)))
        ++found.out_of_range;
      else
        kept.push_back(i);
    }
    return kept;
  }

  const F& feature_;
  const Problem& problem_;
  Index n_;
  VjpWorkspace<Scalar>& workspace_;
  Transition<Scalar> transition_;
  Eigen::Map<const Matrix<Scalar>, Eigen::Unaligned, Eigen::OuterStride<>> Q_, K_, V_;
};

template <class Scalar, class F>
Results<Scalar> attend(const F& feature, const Problem& problem, std::istream* state_in, std::ostream* state_out,
                       const std::string& state_in_name, ProblemGradients<Scalar>* gradients) {
  const bool diagnose = !problem.arguments.diagnostics.empty();
  Results<Scalar> results;
  const auto rows = static_cast<std::size_t>(problem.count() * problem.T);
  results.Y.resize(rows * static_cast<std::size_t>(problem.e));
  if (diagnose) results.diagnostics.resize(rows * 3);
  VjpWorkspace<Scalar> workspace;
  const bool nothing_to_do = problem.T == 0 && state_in == nullptr && state_out == nullptr;
  for (Index n = 0; n < (nothing_to_do ? 0 : problem.count()); ++n) {
    const bool all_forms = problem.arguments.compare && problem.arguments.has_state();
    auto state = make_state<Scalar>(feature, problem.form, all_forms, problem.d, problem.e);
    if (state_in != nullptr) load_one(state, *state_in, state_in_name, n, problem.count());
    const Head<Scalar, F> head(feature, problem, n, workspace);
    try {
      if (problem.arguments.compare) head.compare(state, state_in != nullptr, results.comparison);
      if (gradients != nullptr) head.take_back(state, *gradients);
      Diagnostics diagnostics;
      head.run(problem.form, state, problem.heads(results.Y.data(), problem.H, problem.e).head(head.b(), head.h()),
               diagnose ? &diagnostics : nullptr);
      if (diagnose) {
        auto to = problem.heads(results.diagnostics.data(), problem.H, 3).head(head.b(), head.h());
        to.row(0) = diagnostics.log_sum;
        to.row(1) = diagnostics.condition;
        to.row(2) = diagnostics.is_degenerate.cast<double>();
      }
    } catch (const FrameMismatch& error) {
      fail(state_in_name, ", state ", n, ": ", error.what());
    }
    if (state_out != nullptr) save_one(state, *state_out, "--state-out " + problem.arguments.state_out);
  }
  if (state_in != nullptr) require_end(*state_in, state_in_name, problem.count());
  return results;
}

}  // namespace detail

template <class Scalar>
Results<Scalar> attend(const Problem& problem, std::istream* state_in, std::ostream* state_out,
                       const std::string& state_in_name, ProblemGradients<Scalar>* gradients) {
  return with_feature(problem.arguments, problem.d, [&](const auto& feature) {
    return detail::attend<Scalar>(feature, problem, state_in, state_out, state_in_name, gradients);
  });
}

}  // namespace attend_npy
