// Decides a statement over the rational numbers, and looks for the smallest case in which it is false.
#pragma once

#include <functional>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include <sympow/core/rational.hpp>
#include <sympow/verify/decision.hpp>
#include <sympow/verify/inputs.hpp>
#include <sympow/verify/proposition.hpp>

#ifdef SYMPOW_HAS_RATIONAL
namespace SYMPOW_NAMESPACE::verify {

/// A statement: what it draws and what it says must be equal; a generic lambda. One that returns what it should compare
/// compares nothing, which `decide_exactly` refuses.
using ExactStatement = std::function<void(Inputs<Rational>&)>;

namespace detail {

/// Whether a statement is true of these inputs; nothing, and the `reason` why, if it does not speak of them or divides
/// by 0 before it has found a difference.
[[nodiscard]] inline std::optional<bool> is_true_of(const ExactStatement& statement, Inputs<Rational>& inputs,
                                                    std::string* reason = nullptr) {
  std::string why;
  try {
    statement(inputs);
    return !inputs.difference();
  } catch (const NoCase&) {
    why = "a condition of the statement was not met, or enclosures were too wide";
  } catch (const InvalidArgument& error) {
    why = error.what();
  }
  if (inputs.difference()) return false;
  if (reason != nullptr) *reason = why;
  return {};
}

/// What is small: few entries that are not 0, small ones, few entries.
[[nodiscard]] inline std::tuple<long, long, long> cost_of(const Case& at) {
  long count = 0, size = 0, all = 0;
  for (const Input& input : at.inputs)
    for (const auto& [n, d] : input.entries) {
      count += n != 0;
      size += 2 * std::abs(n) + (n < 0) + d - 1;
      ++all;
    }
  return {count, size, all};
}

/// Smaller cases in which a statement is false.
class Minimizer {
 public:
  Minimizer(const ExactStatement& statement, Case at) : statement_(statement), best_(std::move(at)) {}

  [[nodiscard]] Case run() {
    search_small_sizes();
    while (shrink_entries()) continue;
    return best_;
  }

 private:
  static constexpr int tries = 60;

  // Sizes from the smallest up; in each the best of some draws of 0, ±1 and 2.
  void search_small_sizes() {
    std::vector<std::vector<Index>> all(1);
    for (const Size& size : best_.sizes) {
      std::vector<std::vector<Index>> longer;
      for (const auto& some : all)
        for (Index n = std::min(size.least, size.value); n <= size.value; ++n) {
          longer.push_back(some);
          longer.back().push_back(n);
        }
      all = std::move(longer);
    }
    std::ranges::sort(all, {}, [](const std::vector<Index>& sizes) {
      return std::pair(std::accumulate(sizes.begin(), sizes.end(), Index{0}), sizes);
    });
    for (const auto& sizes : all)
      if (search(sizes)) return;
  }

  bool search(const std::vector<Index>& values) {
    std::map<std::string, Index> sizes;
    for (std::size_t n = 0; n < values.size(); ++n) sizes[best_.sizes[n].name] = values[n];
    bool found = false;
    Random random(7);
    for (int n = 0; n < tries; ++n) {
      Inputs<Rational> inputs(random, {.largest = n < tries / 2 ? 1 : 2, .denominators = 1, .zeros_in_four = n % 4},
                              sizes);
      if (is_true_of(statement_, inputs) != false) continue;
      if (!found || cost_of(inputs.used()) < cost_of(best_)) best_ = inputs.used();
      found = true;
    }
    return found;
  }

  // The first smaller value of each entry that leaves the statement false.
  bool shrink_entries() {
    bool smaller = false;
    for (std::size_t i = 0; i < best_.inputs.size(); ++i)
      for (std::size_t e = 0; e < best_.inputs[i].entries.size(); ++e) {
        const Input& input = best_.inputs[i];
        const long limit = std::min(std::abs(input.entries[e].n) + input.entries[e].d - 1, 9L);
        for (long n = 0; n <= limit; ++n)
          if ((n <= input.highest && take(i, e, n)) || (-n >= input.lowest && take(i, e, -n))) {
            smaller = true;
            break;
          }
      }
    return smaller;
  }

  bool take(std::size_t i, std::size_t e, long value) {
    Case changed = best_;
    changed.inputs[i].entries[e] = {value, 1};
    if (value < changed.inputs[i].lowest || !(cost_of(changed) < cost_of(best_))) return false;
    Inputs<Rational> inputs(changed);
    if (is_true_of(statement_, inputs) != false) return false;
    best_ = std::move(changed);
    return true;
  }

  const ExactStatement& statement_;
  Case best_;
};

/// "d = 2, q = (1, 0), k = (0, 1)": sizes, and inputs that are not all 0.
[[nodiscard]] inline std::string text_of(const Case& at) {
  std::string text;
  const auto add = [&](const std::string& words) { text += (text.empty() ? "" : ", ") + words; };
  for (const Size& size : at.sizes) add(size.name + " = " + std::to_string(size.value));
  bool all_shown = true, some_shown = false;
  for (const Input& input : at.inputs) {
    std::string values;
    bool is_zero = true;
    for (Index i = 0; i < input.rows; ++i)
      for (Index j = 0; j < input.columns; ++j) {
        const auto [n, d] = input.entries[static_cast<std::size_t>(i + j * input.rows)];
        is_zero = is_zero && n == 0;
        if (i + j > 0) values += input.columns == 1 ? ", " : j == 0 ? "; " : " ";
        values += std::to_string(n) + (d == 1 ? "" : "/" + std::to_string(d));
      }
    all_shown = all_shown && !is_zero, some_shown = some_shown || !is_zero;
    if (is_zero) continue;
    const bool is_number = input.entries.size() == 1;
    add(input.name + " = " + (is_number ? values : input.columns == 1 ? "(" + values + ")" : "[" + values + "]"));
  }
  if (!all_shown) add(some_shown ? "other inputs 0" : "all inputs 0");
  return text;
}

/// "(d, T) = (2, 3), (3, 5); 20 seeds each".
[[nodiscard]] inline std::string domain_of(const std::vector<Case>& rounds, int seeds) {
  const auto listed = [](const std::vector<Size>& sizes, auto text) {
    std::string all;
    for (const Size& size : sizes) all += (all.empty() ? "" : ", ") + text(size);
    return sizes.size() > 1 ? "(" + all + ")" : all;
  };
  const std::string scope = rounds.front().scope;
  std::string text;
  for (const Case& round : rounds)
    if (!round.sizes.empty())
      text += (text.empty() ? listed(round.sizes, [](const Size& size) { return size.name; }) + " = " : ", ") +
              listed(round.sizes, [](const Size& size) { return std::to_string(size.value); });
  if (!text.empty()) text += "; ";
  if (!scope.empty()) text = scope + "; " + text;
  if (rounds.front().inputs.empty()) return text + "no other inputs";
  return text + std::to_string(seeds) + " seeds" + (rounds.size() > 1 ? " each" : "");
}

/// What is known of a case in which a statement is false.
[[nodiscard]] inline Decision refuted_by(const ExactStatement& statement, const Case& at) {
  Inputs<Rational> inputs(at);
  static_cast<void>(is_true_of(statement, inputs));
  const auto& [left, right, words] = inputs.difference().value();
  const std::string where = text_of(at);
  return {.method = inputs.used().certified ? Method::certified : Method::exact,
          .refuted = true,
          .domain = {},
          .residual = (left - right).text(),
          .counterexample = where + (where.empty() ? "" : ": ") + (words.empty() ? "" : words + " ") + left.text() +
                            " and not " + right.text(),
          .integers = static_cast<int>(std::get<0>(cost_of(at)))};
}

}  // namespace detail

/// Decides a statement over the rational numbers, at every one of its sizes and for so many seeds.
///
/// A seed draws fractions of integers up to 99, and then a case with many entries 0, 1 and -1, where what is generic is
/// not. An identity of polynomials of degree n that is false passes a seed with a probability of at most n/199
/// (Schwartz and Zippel, for 199 numerators). Nothing is claimed of other sizes. If it is false the case is minimised:
/// small sizes first, then few inputs that are not 0, then small ones. A condition or an inequality is tried, not
/// decided, for inputs that are not drawn. Throws `InvalidArgument` if no case can be drawn that the statement is
/// about, or if it compares nothing.
[[nodiscard]] inline Decision decide_exactly(const ExactStatement& statement, std::uint64_t seed = 1, int seeds = 20) {
  if (seeds < 1) sympow::detail::raise<InvalidArgument>("decide_exactly: seeds is ", seeds, ", must be at least 1");
  std::vector<Case> rounds;
  std::size_t count = 1;
  bool certifies = false, compares = false;
  std::string reason;
  for (std::size_t round = 0; round < count; ++round) {
    Random random(seed + 1000 * round);
    int decided = 0;
    for (int tried = 0; decided < seeds; ++tried) {
      if (tried == 20 * seeds)
        sympow::detail::raise<InvalidArgument>(
            "decide_exactly: the statement is about less than one of twenty cases that "
            "were drawn; of the last, ",
            reason);
      Inputs<Rational> generic(random, {.round = round}),
          sparse(random, {.largest = 1, .denominators = 1, .zeros_in_four = 1 + tried % 2, .round = round});
      const std::optional<bool> is_true = detail::is_true_of(statement, generic, &reason);
      count = std::max(count, generic.rounds());
      const bool has_inputs = !generic.used().inputs.empty();
      for (const Inputs<Rational>* inputs : {&generic, &sparse})
        if ((inputs == &generic ? is_true : has_inputs ? detail::is_true_of(statement, sparse) : std::nullopt) == false)
          return detail::refuted_by(statement, detail::Minimizer(statement, inputs->used()).run());
      if (!is_true) continue;
      certifies = certifies || generic.used().certified, compares = compares || generic.compares();
      if (decided++ == 0) rounds.push_back(generic.used());
      if (!has_inputs) break;
    }
  }
  if (!compares) sympow::detail::raise<InvalidArgument>("decide_exactly: the statement compares nothing");
  return {.method = certifies ? Method::certified : Method::exact,
          .refuted = false,
          .domain = detail::domain_of(rounds, seeds),
          .residual = "0",
          .counterexample = {},
          .integers = 0};
}

}  // namespace SYMPOW_NAMESPACE::verify
#endif
