// What --compare says: the forms against each other and against rows in double, by the row rule.
#pragma once

#include <sympow/verify/row_rule.hpp>

#include "call.hpp"

namespace attend_npy {

/// How far forms differ, over all heads.
struct Comparison {
  std::map<std::string, double>
      from_reference;  ///< largest difference of a form from the rows in double; not if resumed
  double largest = 0;  ///< the largest of these and of any two forms
  Index rows = 0, meaningless_to_some = 0, without_information = 0, out_of_range = 0;
  [[nodiscard]] bool agree() const { return largest <= 1 && meaningless_to_some == 0; }
};

/// What one form makes of all heads.
struct Side {
  std::string name;
  double tokens_per_update;
  std::vector<double> rows, said;
};

/// The chain's β and |w|² at a token of a head of keys.
inline std::pair<double, double> step_at(const Problem& x, const Arrays& arrays, Index b, Index t, Index h) {
  const Array& W = arrays.at("--householder");
  double squared = 0;
  for (Index i = 0; i < x.d; ++i)
    squared += std::pow(W[x.place(x.H_kv, x.d, b, t, h) + static_cast<std::size_t>(i)], 2);
  return {arrays.at("--strength")[x.place(x.H_kv, 1, b, t, h)], squared};
}

/// What the row rule needs of head h of sequence b, as a side has found it; `before` tokens came earlier.
inline sympow::verify::DirectRows<double> rows_of(const Problem& x, const Arrays& arrays, const Side& side, Index b,
                                                  Index h, double before) {
  const Index n = x.length(b), key_head = h / (x.H / x.H_kv);
  sympow::verify::DirectRows<double> rows{Eigen::MatrixXd(x.e, n), Eigen::VectorXd(n), Eigen::VectorXd(n),
                                          Eigen::VectorXd(n), 0};
  double window = before, growth = 1;
  for (Index t = 0; t < n; ++t) {
    const double* const said = side.said.data() + x.place(x.H, 3, b, t, h);
    rows.Y.col(t) = Eigen::Map<const Eigen::VectorXd>(side.rows.data() + x.place(x.H, x.e, b, t, h), x.e);
    if (arrays.contains("--householder")) {
      const auto [beta, squared] = step_at(x, arrays, b, t, key_head);
      growth *= std::max(1., std::abs(1 - beta * squared));  // weights are those of keys as given
    }
    rows.denominator[t] = std::exp(said[0]);
    rows.condition[t] = growth * (x.arguments.divides() ? said[1] : std::exp(std::log(said[1]) + said[0]));
    const double gate = arrays.contains("--log-gate") ? arrays.at("--log-gate")[x.place(x.H, 1, b, t, h)] : 0;
    rows.window[t] = window = 1 + std::exp(gate) * window;
    for (Index i = 0; i < x.e; ++i)
      rows.largest_value =
          std::max(rows.largest_value,
                   std::abs(arrays.at("--v")[x.place(x.H_kv, x.e, b, t, key_head) + static_cast<std::size_t>(i)]));
  }
  for (Index t = 0; before > 0 && t < n; ++t) {  // |Y_i| is at most K_i max|V|, earlier values included
    const double least = rows.Y.col(t).cwiseAbs().maxCoeff() / rows.condition[t];
    if (std::isfinite(least)) rows.largest_value = std::max(rows.largest_value, least);
  }
  return rows;
}

/// The rows that every form must see alike: those that say something, and not just barely, in the range of the type.
template <class S>
std::vector<Index> comparable(const Problem& x, const sympow::verify::DirectRows<double>& rows,
                              const std::vector<Side>& sides, Index b, Index h, Comparison& found) {
  constexpr double unit = std::numeric_limits<S>::epsilon() / 2, least = 2. * std::numeric_limits<S>::min(),
                   most = std::numeric_limits<S>::max();
  std::vector<Index> kept;
  for (Index t = 0; t < rows.Y.cols(); ++t) {
    const double size = rows.condition[t] * rows.largest_value;  // of which 4 u may be rounding
    const bool fits = size <= most && size >= least && rows.largest_value >= 1024 * least;
    const auto flagged =
        std::ranges::count_if(sides, [&](const Side& side) { return side.said[x.place(x.H, 3, b, t, h) + 2] != 0; });
    const bool says_little = sympow::verify::degenerate(rows, t, 2 * unit);  // within a factor of two either is right
    ++found.rows;
    if (0 < flagged && flagged < std::ssize(sides) && !(says_little && !sympow::verify::degenerate(rows, t, unit / 2)))
      ++found.meaningless_to_some;
    else if (x.arguments.divides() && says_little)
      ++found.without_information;
    else if (!(fits && rows.Y.col(t).allFinite()) && !(size == 0 && rows.Y.col(t).isZero(0)))
      ++found.out_of_range;
    else
      kept.push_back(t);
  }
  return kept;
}

/// Runs every form that can start from the states, null: from nothing, and compares them.
template <class S>
Comparison compare(const Problem& x, const Arrays& arrays) {
  Call<S> call(x, arrays);
  std::vector<Side> sides;
  Comparison found;
  const bool resumed = x.arguments.has("--state-in"),
             turns = arrays.contains("--theta") || arrays.contains("--householder");
  const double chunk = static_cast<double>(x.arguments.chunk);
  const auto add = [&](const char* name, int form, double tokens_per_update) {
    const States states = resumed ? call.states() : nullptr;
    std::vector<double> said = call.diagnostics(form, states.get());
    const std::vector<S> rows = call.rows(form, states.get());
    sides.push_back({name, turns ? 1 : tokens_per_update, {rows.begin(), rows.end()}, std::move(said)});
  };
  if (!resumed) add("attention", SYMPOW_FORM_ATTENTION, std::numeric_limits<double>::infinity());
  if (x.arguments.has_state()) add("recurrent", SYMPOW_FORM_RECURRENT, 1), add("chunked", SYMPOW_FORM_CHUNKED, chunk);
  Side reference = sides.back();
  if (!resumed) {
    Arrays in_double = arrays;
    for (const char* option : {"--q", "--k", "--v", "--householder"})
      if (auto array = in_double.find(option); array != in_double.end() && array->second.template holds<float>()) {
        const auto& numbers = std::get<std::vector<float>>(array->second.entries);
        array->second.entries = std::vector<double>(numbers.begin(), numbers.end());
      }
    Call<double> exact(x, in_double);
    reference = {"", 1, exact.rows(SYMPOW_FORM_ATTENTION, nullptr), exact.diagnostics(SYMPOW_FORM_ATTENTION, nullptr)};
  }
  const States states = resumed ? call.states() : nullptr;
  for (Index n = 0; n < x.B * x.H; ++n) {
    const Index b = n / x.H, h = n % x.H;
    std::int64_t before = 0;
    if (resumed) check(sympow_states_tokens(states.get(), b, h, &before));
    auto rows = rows_of(x, arrays, reference, b, h, static_cast<double>(before));
    const std::vector<Index> kept = comparable<S>(x, rows, sides, b, h, found);
    const auto columns = [&](const auto& y) { return y(Eigen::all, kept).eval(); };
    std::vector<Eigen::MatrixXd> of_sides;
    for (const Side& side : sides) {
      const Eigen::MatrixXd Y = rows_of(x, arrays, side, b, h, 0).Y;
      if (x.arguments.divides() && !Y.allFinite()) found.largest = std::numeric_limits<double>::infinity();
      of_sides.push_back(columns(Y));
    }
    rows = {columns(rows.Y), rows.denominator(kept), rows.condition(kept), rows.window(kept), rows.largest_value};
    const auto difference = [&](const Eigen::MatrixXd& a, const Eigen::MatrixXd& c, double tokens_per_update) {
      const double ratio = sympow::verify::detail::worst_row<double>(rows, a, c, std::numeric_limits<S>::epsilon() / 2,
                                                                     tokens_per_update, x.arguments.divides(),
                                                                     sizeof(S) == 8 ? 4 : 2. / 27)
                               .residual;
      found.largest = std::max(found.largest, ratio);
      return ratio;
    };
    for (std::size_t i = 0; i < sides.size(); ++i) {
      if (!resumed) {
        double& worst = found.from_reference[sides[i].name];
        worst = std::max(worst, difference(of_sides[i], rows.Y, sides[i].tokens_per_update));
      }
      for (std::size_t j = 0; j < i; ++j)
        difference(of_sides[i], of_sides[j], std::min(sides[i].tokens_per_update, sides[j].tokens_per_update));
    }
  }
  return found;
}

}  // namespace attend_npy
