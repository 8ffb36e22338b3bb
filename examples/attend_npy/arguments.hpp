// The options of the program.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sympow/attention/cost_model.hpp>
#include <sympow/core/config.hpp>
#include <sympow/rotation/turns.hpp>

#include "bad_input.hpp"

namespace attend_npy {

inline constexpr const char* usage =
    R"(Attention whose scores are powers of inner products, on arrays from numpy or PyTorch.

  attend_npy --q Q.npy --k K.npy --v V.npy --out Y.npy
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
                   in double take T^2 d operations a head, T^2 d^2 with --householder

Exit status: 0 done, 1 the forms disagree, 2 bad input, output that cannot be written, too little memory or rows that are not numbers,
with one line that says what; then no output file is left behind.
)";

enum class Feature { power, linear, exponential, random };
using sympow::Form;
enum class Normalize { automatic, sum, none };
enum class Layout { bthd, bhtd };  // the order of four axes
using sympow::Pairing;

struct Arguments {
  // Paths, empty if not given.
  std::string q, k, v, out, log_gate, theta, beta, householder, strength, state_in, state_out, diagnostics, grad;
  std::string lengths;  // a list or a path, empty if not given
  Layout layout = Layout::bthd;
  bool has_layout = false;  // whether it was given
  Pairing pairing = Pairing::interleaved;
  Feature feature = Feature::power;
  int power = 2;
  std::ptrdiff_t features = 0;  // of random
  std::uint64_t seed = 1;
  Form form = Form::automatic;
  std::ptrdiff_t chunk = 0;  // 0 lets the library choose
  double scale = 1;
  bool has_scale = false;  // whether it was given
  Normalize normalize = Normalize::automatic;
  bool delta_rule = false;
  bool compare = false;

  /// P of s^P.
  [[nodiscard]] int degree() const { return feature == Feature::linear ? 1 : power; }
  /// Whether no score is negative.
  [[nodiscard]] bool nonnegative() const {
    return feature == Feature::exponential || feature == Feature::random || degree() % 2 == 0;
  }
  /// Whether there are state forms: a finite embedding, which is the key itself where a Householder chain acts.
  [[nodiscard]] bool has_state() const {
    return feature != Feature::exponential && (householder.empty() || (feature != Feature::random && degree() == 1));
  }
  [[nodiscard]] bool has_state_file() const { return !state_in.empty() || !state_out.empty(); }
  /// Whether rows are divided by the sum of their scores.
  [[nodiscard]] bool divides() const {
    return normalize == Normalize::automatic ? nonnegative() : normalize == Normalize::sum;
  }
};

namespace detail {

inline std::ptrdiff_t whole_number(const std::string& option, const std::string& value, std::ptrdiff_t least,
                                   std::ptrdiff_t most) {
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(value.c_str(), &end, 10);
  const bool is_number = !value.empty() && (value[0] == '-' || (value[0] >= '0' && value[0] <= '9')) && *end == '\0';
  if (!is_number || errno != 0 || number < least || number > most)
    fail(option, " is ", value, ", must be a whole number of ", least,
         most == PTRDIFF_MAX ? " or more" : " to " + std::to_string(most));
  return static_cast<std::ptrdiff_t>(number);
}

inline double finite_number(const std::string& option, const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  const bool is_number =
      !value.empty() && std::string("+-.0123456789").find(value[0]) != std::string::npos && *end == '\0';
  if (!is_number || !std::isfinite(number)) fail(option, " is ", value, ", must be a finite number");
  return number;
}

template <class Value>
Value one_of(const std::string& option, const std::string& value,
             const std::vector<std::pair<std::string, Value>>& choices) {
  std::string names;
  for (const auto& [name, choice] : choices) {
    if (value == name) return choice;
    names += (names.empty() ? "" : name == choices.back().first ? " or " : ", ") + name;
  }
  fail(option, " is ", value, ", must be ", names);
}

/// Throws unless the options of a Householder chain go together.
inline void check_chain(const Arguments& arguments) {
  const std::string chain = "--householder " + arguments.householder, strength = "--strength " + arguments.strength;
  if (arguments.delta_rule && arguments.strength.empty())
    fail("--delta-rule needs --strength: it multiplies the values by the numbers in it");
  if (arguments.householder.empty() && !arguments.strength.empty())
    fail(strength, " needs --householder: it multiplies w w^T of the vectors in it");
  if (arguments.householder.empty()) return;
  if (arguments.strength.empty()) fail(chain, " needs --strength: one number for each token and head");
  if (!arguments.theta.empty() || !arguments.beta.empty())
    fail(chain, " does not go with ",
         arguments.theta.empty() ? "--beta " + arguments.beta : "--theta " + arguments.theta,
         ": one transition at most acts on keys");
  if (arguments.feature == Feature::random)
    fail(chain, " does not go with --feature random: a chain is not defined on random features");
}

}  // namespace detail

/// The arguments that a command line says. Throws `BadInput` for what no array could make right.
inline Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  const std::map<std::string, std::string Arguments::*> paths = {{"--q", &Arguments::q},
                                                                 {"--k", &Arguments::k},
                                                                 {"--v", &Arguments::v},
                                                                 {"--out", &Arguments::out},
                                                                 {"--log-gate", &Arguments::log_gate},
                                                                 {"--theta", &Arguments::theta},
                                                                 {"--beta", &Arguments::beta},
                                                                 {"--householder", &Arguments::householder},
                                                                 {"--strength", &Arguments::strength},
                                                                 {"--state-in", &Arguments::state_in},
                                                                 {"--state-out", &Arguments::state_out},
                                                                 {"--diagnostics", &Arguments::diagnostics},
                                                                 {"--grad", &Arguments::grad},
                                                                 {"--lengths", &Arguments::lengths}};
  const std::vector<std::string> others = {"--feature", "--power", "--features",  "--seed",   "--form",
                                           "--chunk",   "--scale", "--normalize", "--layout", "--pairing"};
  std::map<std::string, std::string> given;
  for (std::size_t n = 0; n < words.size(); ++n) {
    const std::string& option = words[n];
    const bool is_flag = option == "--compare" || option == "--delta-rule";
    if (!is_flag && !paths.contains(option) && std::find(others.begin(), others.end(), option) == others.end())
      fail("unknown option ", option, "; see attend_npy --help");
    if (given.contains(option)) fail(option, " is given twice");
    if (!is_flag && (n + 1 == words.size() || words[n + 1].empty() || words[n + 1].starts_with("--")))
      fail(option, " needs a value", n + 1 == words.size() ? "" : ", but is followed by '" + words[n + 1] + "'");
    given[option] = is_flag ? "" : words[++n];
  }

  using detail::one_of;
  for (const auto& [option, value] : given) {
    if (const auto path = paths.find(option); path != paths.end()) arguments.*(path->second) = value;
    if (option == "--feature")
      arguments.feature = one_of<Feature>(option, value,
                                          {{"power", Feature::power},
                                           {"linear", Feature::linear},
                                           {"exponential", Feature::exponential},
                                           {"random", Feature::random}});
    if (option == "--form")
      arguments.form = one_of<Form>(option, value,
                                    {{"auto", Form::automatic},
                                     {"attention", Form::attention},
                                     {"recurrent", Form::recurrent},
                                     {"chunked", Form::chunked}});
    if (option == "--normalize")
      arguments.normalize = one_of<Normalize>(
          option, value, {{"auto", Normalize::automatic}, {"sum", Normalize::sum}, {"none", Normalize::none}});
    if (option == "--layout")
      arguments.layout = one_of<Layout>(option, value, {{"bthd", Layout::bthd}, {"bhtd", Layout::bhtd}});
    if (option == "--pairing")
      arguments.pairing =
          one_of<Pairing>(option, value, {{"interleaved", Pairing::interleaved}, {"half-split", Pairing::half_split}});
    if (option == "--power")
      arguments.power = static_cast<int>(detail::whole_number(option, value, 1, sympow::max_power));
    if (option == "--features") arguments.features = detail::whole_number(option, value, 1, PTRDIFF_MAX);
    if (option == "--seed")
      arguments.seed = static_cast<std::uint64_t>(detail::whole_number(option, value, 0, PTRDIFF_MAX));
    if (option == "--chunk") arguments.chunk = detail::whole_number(option, value, 1, PTRDIFF_MAX);
    if (option == "--scale") arguments.scale = detail::finite_number(option, value);
    if (option == "--delta-rule") arguments.delta_rule = true;
    if (option == "--compare") arguments.compare = true;
  }

  for (const char* needed : {"--q", "--k", "--v", "--out"})
    if (!given.contains(needed)) fail(needed, " is missing; see attend_npy --help");
  arguments.has_layout = given.contains("--layout");
  arguments.has_scale = given.contains("--scale");
  detail::check_chain(arguments);
  if (given.contains("--beta") && !given.contains("--theta"))
    fail("--beta ", arguments.beta, " needs --theta: it multiplies the rates in it");
  if (given.contains("--pairing") && !given.contains("--theta"))
    fail("--pairing ", given["--pairing"], " needs --theta: it says which entries the rates in it turn");
  if (given.contains("--power") && arguments.feature != Feature::power)
    fail("--power ", arguments.power, " does not go with --feature ", given["--feature"]);
  if (arguments.feature == Feature::random && !given.contains("--features"))
    fail("--features is missing: --feature random needs to know how many");
  for (const char* option : {"--features", "--seed"})
    if (given.contains(option) && arguments.feature != Feature::random)
      fail(option, " ", given[option], " does not go with ",
           given.contains("--feature") ? "--feature " + given["--feature"] : "the default --feature power",
           ", it goes with --feature random");
  if (arguments.feature == Feature::exponential) {
    if (arguments.form == Form::recurrent || arguments.form == Form::chunked)
      fail("--form ", given["--form"],
           " does not go with --feature exponential, which has no state; its form is attention");
    if (arguments.has_state_file())
      fail(given.contains("--state-in") ? "--state-in" : "--state-out",
           " does not go with --feature exponential, which has no state");
  } else if (arguments.normalize == Normalize::sum && !arguments.nonnegative()) {
    fail("--normalize sum does not go with ",
         arguments.feature == Feature::linear ? "--feature linear" : "--power " + std::to_string(arguments.power),
         ": scores of either sign give no distribution");
  }
  const bool wants_state =
      arguments.has_state_file() || arguments.form == Form::recurrent || arguments.form == Form::chunked;
  if (arguments.feature == Feature::power && !arguments.has_state() && wants_state)
    fail(given.contains("--state-in")    ? "--state-in"
         : given.contains("--state-out") ? "--state-out"
                                         : "--form " + given["--form"],
         " does not go with --householder and --power ", arguments.power,
         ": a chain moves states of --feature linear or --power 1 only; its form here is attention");
  if (arguments.form == Form::attention && arguments.has_state_file())
    fail(given.contains("--state-in") ? "--state-in" : "--state-out",
         " does not go with --form attention, which has no state");
  return arguments;
}

}  // namespace attend_npy
