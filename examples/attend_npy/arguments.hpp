// The options of the program.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <sympow.h>

#include "bad_input.hpp"

namespace attend_npy {

inline constexpr const char* usage =
    R"(Attention whose scores are powers of inner products, on arrays from numpy or PyTorch.

  %s --q Q.npy --k K.npy --v V.npy --out Y.npy
    [--feature power|linear|exponential|random] [--power P] [--features M] [--seed N]
    [--form auto|attention|recurrent|chunked] [--chunk C]
    [--layout bthd|bhtd] [--lengths N,N,...|L.npy]
    [--log-gate G.npy] [--theta TH.npy [--beta B.npy] [--pairing interleaved|half-split]]
    [--householder W.npy --strength ST.npy [--delta-rule]] [--scale S] [--normalize auto|sum|none]
    [--state-in FILE] [--state-out FILE] [--diagnostics D.npy] [--grad DY.npy] [--compare]

  y_i = sum_{j <= i} s_ij v_j  (/ sum_j s_ij),   s_ij = kappa(S q_i . M_ij k_j) b_ij
  b_ij = exp(G_{j+1} + ... + G_i),   M_ij turns the pair (2n, 2n+1), or (n, n + d/2), by -(B_{j+1} + ... + B_i) TH_n,
  or is the product of I - ST_t w_t w_t^T over t = i ... j+1

  --q --k --v      little-endian f4 or f8 in C order, all of one type: (T, d), (H, T, d) or (B, T, H, d). V may have another last axis;
                   K and V may have fewer heads, H_kv, whose number divides H: head h of Q reads head h / (H / H_kv)
  --out            Y, of Q's type and shape but for the last axis, which is V's
  --layout         of four axes: bthd, (B, T, H, d), the default, or bhtd, (B, H, T, d); all arrays have the same one
  --lengths        tokens of each of the B sequences, at most T, as a list or as i4 or i8 of shape (B,). What follows is padding: it
                   may hold anything, neither weighs nor decays, and is 0 in Y and D
  --feature        kappa: s^P (power, the default), s (linear), exp(s) (exponential, which has the attention form only) or an estimate
                   of exp(s) by positive orthogonal random features, FAVOR+, which has all forms (random); there S multiplies q
  --power          P of 1 ... 8, default 2
  --features       M, how many features random has; one draw for all batches and heads
  --seed           N of 0 ... 9223372036854775807 for that draw, default 1; a state continues under the M and N that it was built with
  --form           attention is O(T^2); recurrent and chunked are O(T) with a state of (e + 1) D numbers a head, where D is
                   C(d + P - 1, P), d (linear) or M (random). auto (the default): the cheapest, attention up to about 2 D tokens;
                   a state form if there is a state file to read or write
  --chunk          tokens in a chunk of the chunked form; by default the cheapest
  --log-gate       G, natural logarithms, at most 0, -inf allowed: Q's shape without the last axis, (T,), (H, T) or (B, T, H).
                   The first acts on a state that was read
  --theta          TH, (d/2,): radians that queries and keys turn by per unit of beta; mu_1 includes the first beta
  --beta           B, shaped as G; default 1
  --pairing        which entries make a pair: interleaved (the default), (2n, 2n+1), or half-split, (n, n + d/2), as most checkpoints
  --householder    W, of K's shape and type, one vector w a token, used as given: nothing is normalised. In place of --theta. No key grows
                   if 0 <= ST |w|^2 <= 2; for unit vectors save W / np.linalg.norm(W, axis=-1, keepdims=True). All forms for linear
                   and power 1 (DeltaNet, with --log-gate Gated DeltaNet); attention only for other powers and exponential (PaTH,
                   PaTH-FoX); not for random
  --strength       ST, any finite numbers, K's shape without the last axis: 0 keeps, 1 projects, 2 reflects along a unit vector
  --delta-rule     values are multiplied by ST before anything else
  --scale          S, default 1; inside the power
  --normalize      sum: rows are divided by the sum of their scores; none: they are not. auto (the default): sum for even P,
                   exponential and random, none for odd P and linear, which have scores of either sign and take no sum
  --state-in       continue the sequences that left these states, with the --scale, --theta and --pairing of then: states do not hold those
  --state-out      leave the states behind. One state for each batch and head of Q, one after the other, all heads of the first
                   batch first, each as sympow::save writes it: see sympow/attention/state_file.hpp
  --diagnostics    D, f8, of Y's shape but for the last axis, which is 3: log|denominator|, row condition number, 1 for a row without
                   information (its Y is 0) or else 0
  --grad           DY, the gradient of a loss in Y, of Y's type and shape. Leaves beside Y the gradient in all that was given of --q, --k,
                   --v, --log-gate, --theta, --beta, --householder, --strength and --scale, each of its own type and shape and by the
                   name of Y with _d and that of the option: y_dq.npy, y_dlog_gate.npy. They are 0 where there is padding. Those of
                   recurrent are made by the chunked form; a state that was read is constant, one that is left is not in the loss
  --compare        run every form that the feature has, print how far they are apart by the row rule,
                   |Y - Y'| / (4 u K max|V| (1 + sqrt n)), and exit with 1 if that is above 1 or a row holds information in one
                   form and none in another; Y is that of the chosen form. The rows
                   in double are those of the attention form: T^2 d operations a head

Exit status: 0 done, 1 the forms disagree, 2 bad input, output that cannot be written, too little memory or rows that are not numbers,
with one line that says what; then no output file is left behind.
)";

enum Feature { power, linear, exponential, random };

/// What a command line says: words by their option, and the numbers and choices in them.
struct Arguments {
  std::map<std::string, std::string> given;
  std::int64_t degree = 2, features = 0, seed = 1, chunk = 0;
  double scale = 1;
  int feature = Feature::power, form = SYMPOW_FORM_AUTOMATIC, normalize = 0, layout = 0,
      pairing = 0;  // places in `choices`

  [[nodiscard]] bool has(const std::string& option) const { return given.contains(option); }
  /// "--q q.npy"
  [[nodiscard]] std::string text(const std::string& option) const {
    return option + (given.at(option).empty() ? "" : " " + given.at(option));
  }
  /// Whether no score is negative.
  [[nodiscard]] bool nonnegative() const { return feature >= Feature::exponential || degree % 2 == 0; }
  /// Whether there are state forms: a finite embedding, which is the key itself where a Householder chain acts.
  [[nodiscard]] bool has_state() const {
    return feature != Feature::exponential && (!has("--householder") || degree == 1);
  }
  [[nodiscard]] bool has_state_file() const { return has("--state-in") || has("--state-out"); }
  [[nodiscard]] bool divides() const { return normalize == 0 ? nonnegative() : normalize == 1; }
};

inline const std::map<std::string, std::vector<std::string>> choices = {
    {"--feature", {"power", "linear", "exponential", "random"}},
    {"--form", {"auto", "attention", "recurrent", "chunked"}},
    {"--normalize", {"auto", "sum", "none"}},
    {"--layout", {"bthd", "bhtd"}},
    {"--pairing", {"interleaved", "half-split"}}};

inline int one_of(const std::string& option, const std::string& value) {
  const auto& names = choices.at(option);
  const auto found = std::ranges::find(names, value);
  if (found != names.end()) return static_cast<int>(found - names.begin());
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : name == names.back() ? " or " : ", ") + name;
  fail(option, " is ", value, ", must be ", all);
}

inline std::int64_t whole_number(const std::string& option, const std::string& value, std::int64_t least,
                                 std::int64_t most = INT64_MAX) {
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(value.c_str(), &end, 10);
  const bool is_number = !value.empty() && (value[0] == '-' || (value[0] >= '0' && value[0] <= '9')) && *end == '\0';
  if (!is_number || errno != 0 || number < least || number > most)
    fail(option, " is ", value, ", must be a whole number of ", least,
         most == INT64_MAX ? " or more" : " to " + std::to_string(most));
  return number;
}

inline double finite_number(const std::string& option, const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  const bool starts_well = !value.empty() && std::string("+-.0123456789").find(value[0]) != std::string::npos;
  if (!starts_well || *end != '\0' || !std::isfinite(number)) fail(option, " is ", value, ", must be a finite number");
  return number;
}

/// Throws unless the options go with each other.
inline void check(const Arguments& x) {
  for (const char* needed : {"--q", "--k", "--v", "--out"})
    if (!x.has(needed)) fail(needed, " is missing; see ", program_name, " --help");
  for (const auto& [option, needed] : std::map<std::string, std::string>{{"--beta", "--theta"},
                                                                         {"--pairing", "--theta"},
                                                                         {"--strength", "--householder"},
                                                                         {"--householder", "--strength"},
                                                                         {"--delta-rule", "--strength"}})
    if (x.has(option) && !x.has(needed)) fail(x.text(option), " needs ", needed);
  const std::string feature = x.has("--feature") ? x.text("--feature") : "the default --feature power";
  const auto refuse = [&](const std::string& option, const std::string& other) {
    fail(option.ends_with("-in") || option.ends_with("-out") ? option : x.text(option), " does not go with ", other);
  };
  for (const char* option : {"--theta", "--beta"})
    if (x.has("--householder") && x.has(option))
      refuse("--householder", x.text(option) + ": one transition acts on keys");
  if (x.has("--householder") && x.feature == Feature::random) refuse("--householder", feature);
  if (x.has("--power") && x.feature != Feature::power) refuse("--power", feature);
  if (x.feature == Feature::random && !x.has("--features"))
    fail("--features is missing: --feature random needs to know how many");
  for (const char* option : {"--features", "--seed"})
    if (x.has(option) && x.feature != Feature::random) refuse(option, feature);
  if (x.normalize == 1 && !x.nonnegative())
    refuse("--normalize",
           (x.has("--power") ? x.text("--power") : feature) + ": scores of either sign give no distribution");
  for (const char* option : {"--state-in", "--state-out", "--form"}) {
    if (!x.has(option) || (option == std::string("--form") && x.form <= SYMPOW_FORM_ATTENTION)) continue;
    if (x.feature == Feature::exponential) refuse(option, feature + ", which has no state; its form is attention");
    if (!x.has_state())
      refuse(option, "--householder and --power " + std::to_string(x.degree) +
                         ": a chain moves states of --feature linear or --power 1 only; its form here is attention");
    if (x.form == SYMPOW_FORM_ATTENTION) refuse(option, "--form attention, which has no state");
  }
}

/// The arguments that a command line says. Throws `BadInput` for what no array could make right.
inline Arguments parse(const std::vector<std::string>& words) {
  const std::string options =
      " --q --k --v --out --log-gate --theta --beta --householder --strength --state-in --state-out --diagnostics "
      "--grad "
      "--lengths --feature --power --features --seed --form --chunk --scale --normalize --layout --pairing ";
  Arguments x;
  for (std::size_t n = 0; n < words.size(); ++n) {
    const std::string& option = words[n];
    const bool is_flag = option == "--compare" || option == "--delta-rule", is_last = n + 1 == words.size();
    if (!is_flag && (!option.starts_with("--") || options.find(" " + option + " ") == std::string::npos))
      fail("unknown option ", option, "; see ", program_name, " --help");
    if (x.has(option)) fail(option, " is given twice");
    if (!is_flag && (is_last || words[n + 1].empty() || words[n + 1].starts_with("--")))
      fail(option, " needs a value", is_last ? "" : ", but is followed by '" + words[n + 1] + "'");
    x.given[option] = is_flag ? "" : words[++n];
  }
  for (const auto& [option, place] : std::map<std::string, int*>{{"--feature", &x.feature},
                                                                 {"--form", &x.form},
                                                                 {"--normalize", &x.normalize},
                                                                 {"--layout", &x.layout},
                                                                 {"--pairing", &x.pairing}})
    if (x.has(option)) *place = one_of(option, x.given[option]);
  if (x.has("--power")) x.degree = whole_number("--power", x.given["--power"], 1, 8);
  if (x.has("--features")) x.features = whole_number("--features", x.given["--features"], 1);
  if (x.has("--seed")) x.seed = whole_number("--seed", x.given["--seed"], 0);
  if (x.has("--chunk")) x.chunk = whole_number("--chunk", x.given["--chunk"], 1);
  if (x.has("--scale")) x.scale = finite_number("--scale", x.given["--scale"]);
  if (x.feature == Feature::linear) x.degree = 1;
  check(x);
  return x;
}

}  // namespace attend_npy
