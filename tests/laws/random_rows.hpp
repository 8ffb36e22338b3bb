// Rows of random and adversarial input, by the hundred thousand: a finite input gives finite rows, and every row that
// is not flagged keeps the rule, whatever the feature map, the transition, the form and the mask, and however the
// sequence was split, merged and saved.
//
//     SYMPOW_ROWS=1000000 SYMPOW_SEED=7 test_laws "as many random rows as asked for keep the rule*"
#pragma once

#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include <sympow/verify/row_rule.hpp>

#include "any_tokens.hpp"
#include "batches.hpp"
#include "catch.hpp"
#include "elu_plus_one.hpp"
#include "forms.hpp"

namespace sympow::test {

template <FeatureMap F>
constexpr int degree = [] {
  if constexpr (F::score == Score::power) return F::degree;
  return F::score == Score::exponential ? 0 : 1;
}();

/// φ by its formula, in long double.
inline Embedding embedding_of(const EluPlusOne&) {
  return [](const Matrix<Real>& x) -> Matrix<Real> {
    return x.unaryExpr([](Real one) { return one > 0 ? one + 1 : std::exp(one); });
  };
}
inline Embedding embedding_of(const PositiveRandomFeatures& feature) {
  return [W = feature.projections().cast<Real>().eval()](const Matrix<Real>& x) -> Matrix<Real> {
    const Matrix<Real> exponents = (W * x).rowwise() - x.colwise().squaredNorm() / 2;
    return exponents.array().exp() / std::sqrt(static_cast<Real>(W.rows()));
  };
}
Embedding embedding_of(const auto&) { return {}; }

struct Tally {
  Index rows = 0, flagged = 0, loose = 0, checks = 0, violations = 0;
  std::map<std::string, Index> rows_of_form = {};
  std::map<std::string, double> worst_of = {};  // in units of the rule for ordinary rows, by feature map
};

/// The worst row of a case.
struct Finding {
  double ratio = 0;  // above 1: against the rule
  double plain = 0;  // in units of the rule for ordinary rows, which these need not keep
  std::string form;
  Index row = -1;
};

template <class Scalar, class F, class Normalization>
class Case {
 public:
  using StateOf = State<Scalar, std::conditional_t<FiniteFeatureMap<F>, F, Linear>>;
  static constexpr bool means = verify::divides<Normalization, F>;
  static constexpr bool is_embedded = F::score == Score::embedded;
  /// Whether this map and normalization stand for all in what they have nothing to do with.
  static constexpr bool sees_all =
      (degree<F> == 0 || degree<F> == 2) && std::same_as<Normalization, DefaultNormalization>;

  Case(const F& feature, Tokens tokens, std::uint64_t seed)
      : feature_(feature), tokens_(std::move(tokens)), seed_(seed) {
    tokens_.round_to<Scalar>();
  }

  /// Every form of these tokens.
  Finding check(Tally& tally) {
    tally_ = &tally;
    found_ = {};
    Random random(seed_);
    const Index chunk = random.integer(1, 70);
    rows_ =
        reference_rows(degree<F>, tokens_, means,
                       std::same_as<Scalar, double> ? AngleSums::in_double : AngleSums::exact, embedding_of(feature_));
    if constexpr (std::same_as<Normalization, SignedNormalized>) widen_to_range_of_signed_means();
    with_transition(tokens_, [&](const auto& transition) { check_forms(transition, chunk); });
    if constexpr (FiniteFeatureMap<F>)
      if (tokens_.mask == causal() && (tokens_.w.size() == 0 || degree<F> == 1)) check_pieces(random);
    return found_;
  }

 private:
  template <class G>
  static void with_transition(const Tokens& tokens, const G& g) {
    with_any_transition<Scalar, sees_all>(tokens, [&]<class A>(const A& transition) {
      constexpr bool is_lifted = A::key_action == KeyAction::scale || A::key_action == KeyAction::mix;
      if constexpr (!(is_embedded && is_lifted)) g(transition);
    });
  }

  void widen_to_range_of_signed_means() {
    for (Index i = 0; i < rows_.Y.cols(); ++i)
      if (rows_.largest[i] > 0) {
        const Real factor = 1 + rows_.Y.col(i).cwiseAbs().maxCoeff() / rows_.largest[i];
        rows_.absolute[i] *= factor, rows_.direct[i] *= factor;
      }
  }

  void note(const std::string& form, const ReferenceRows& rows, const Result<Scalar>& result, Real tokens_per_update,
            Index first = 0) {
    const bool moves_keys = tokens_.w.size() > 0 || tokens_.mask != causal();
    const auto judged = [&](Inputs inputs) {
      return judge<Scalar>(rows, result.Y, result.diagnostics, static_cast<double>(moves_keys ? 1 : tokens_per_update),
                           inputs);
    };
    const Verdict verdict = judged(Inputs::aligned);
    found_.plain = std::max(found_.plain, judged(Inputs::ordinary).worst);
    const Index compared = verdict.compared + verdict.flagged;
    tally_->rows += compared, tally_->rows_of_form[form] += compared, tally_->flagged += verdict.flagged,
        tally_->loose += verdict.loose;
    ++tally_->checks;
    if (verdict.worst > found_.ratio) found_ = {verdict.worst, found_.plain, form, verdict.row + first};
  }

  void note_bits(const std::string& form, const Matrix<Scalar>& Y, const Matrix<Scalar>& expected) {
    ++tally_->checks;
    if (!same_bits(Y, expected)) found_ = {std::numeric_limits<double>::infinity(), found_.plain, form, -1};
  }

  template <class A>
  void check_forms(const A& transition, Index chunk) {
    const Matrix<Scalar> Q = tokens_.Q.template cast<Scalar>(), K = tokens_.K.template cast<Scalar>(),
                         V = tokens_.V.template cast<Scalar>();
    const auto options = [&](Result<Scalar>& result) {
      return Options{.scale = tokens_.scale, .chunk = chunk, .diagnostics = &result.diagnostics, .mask = tokens_.mask};
    };
    const auto by_attend = [&](Form form) {
      Matrix<Scalar> Y(V.rows(), Q.cols());
      Workspaces<Scalar> workspaces;
      const auto one_head = [](const Matrix<Scalar>& x) {
        return Heads<const Scalar>::bhtd(x.data(), 1, 1, x.cols(), x.rows());
      };
      attend<Normalization>(
          feature_, transition,
          {.Q = one_head(Q),
           .K = one_head(K),
           .V = one_head(V),
           .Y = Heads<Scalar>::bhtd(Y.data(), 1, 1, Y.cols(), Y.rows()),
           .workspaces = workspaces,
           .options = {
               .form = form, .threads = 1, .head = {.scale = tokens_.scale, .chunk = chunk, .mask = tokens_.mask}}});
      return Y;
    };
    Result<Scalar> result;
    result.Y = attention<Normalization>(feature_, transition, Q, K, V, options(result));
    note("attention", rows_, result, 64);
    constexpr bool is_batched = sees_all || A::key_action == KeyAction::none;  // which a batch does not look at
    if constexpr (is_batched) note_bits("attend, attention", by_attend(Form::attention), result.Y);
    if constexpr (has_state_forms<F, A>) {
      if (!tokens_.mask.goes_with_states()) return;
      const Index d = K.rows(), e = V.rows();
      StateOf literal(feature_, d, e, 0), tailed(feature_, d, e), by_chunks = tailed;
      result.Y = recurrent<Normalization>(feature_, transition, Q, K, V, literal, options(result));
      note("recurrent, tail 0", rows_, result, 1);
      result.Y = recurrent<Normalization>(feature_, transition, Q, K, V, tailed, options(result));
      note("recurrent", rows_, result, static_cast<Real>(tailed.tail_capacity() + 1));
      result.Y = chunked<Normalization>(feature_, transition, Q, K, V, by_chunks, options(result));
      note("chunked", rows_, result, static_cast<Real>(chunk));
      if constexpr (is_batched) note_bits("attend, chunked", by_attend(Form::chunked), result.Y);
    }
  }

  // The rows of a segment from a state.
  Result<Scalar> piece(Segment s, Index chunk, StateOf& state) const {
    const Tokens part = tokens_.segment(s);
    Result<Scalar> result;
    with_transition(part, [&]<class A>(const A& transition) {
      if constexpr (has_state_forms<F, A>) {
        const Options options{.scale = tokens_.scale, .chunk = chunk, .diagnostics = &result.diagnostics};
        const Matrix<Scalar> Q = part.Q.cast<Scalar>(), K = part.K.cast<Scalar>(), V = part.V.cast<Scalar>();
        result.Y = chunk == 0 ? recurrent<Normalization>(feature_, transition, Q, K, V, state, options)
                              : chunked<Normalization>(feature_, transition, Q, K, V, state, options);
      }
    });
    return result;
  }

  // Segments one after the other, each in a form of its own, with the state handed on, merged from two, or by way of a
  // file.
  void check_pieces(Random& random) {
    const Index d = tokens_.K.rows(), e = tokens_.V.rows(), T = tokens_.size(),
                tail = one_of<Index>(random, {0, 5, 32});
    StateOf state(feature_, d, e, tail);
    for (Index begin = 0; begin < T;) {
      const Segment s{begin, std::min(T - begin, random.integer(0, 60))};
      const Index chunk = random.uniform() < .5 ? 0 : random.integer(1, 40);
      const StateOf before = state;
      const Result<Scalar> result = piece(s, chunk, state);
      const double how = random.uniform();
      note(how < .3   ? "after pieces"
           : how < .6 ? "after a file"
                      : "after a merge",
           rows_.part(s.begin, s.size), result, 1, s.begin);
      if (how >= .6) {
        StateOf right(feature_, d, e, tail, before.frame());
        static_cast<void>(piece(s, random.integer(0, 40), right));
        state = merge(before, right);
      } else if (how >= .3) {
        std::stringstream file;
        save(state, file);
        StateOf loaded(feature_, d, e, state.tail_capacity());
        load(loaded, file);
        note_bits("file", loaded.values(), state.values());
        state = std::move(loaded);
      }
      begin = s.end();
    }
  }

  const F& feature_;
  Tokens tokens_;
  std::uint64_t seed_;
  ReferenceRows rows_;
  Tally* tally_ = nullptr;
  Finding found_;
};

/// Tokens that still break the rule after all is taken away that can be.
Tokens smallest(Tokens tokens, const auto& breaks) {
  const auto try_it = [&](Tokens other) {
    if (!breaks(other)) return false;
    tokens = std::move(other);
    return true;
  };
  const auto without = [&](auto part) {
    Tokens other = tokens;
    part(other);
    return other;
  };
  for (Index size = tokens.size() / 2; size > 0 && tokens.mask == causal(); size /= 2)
    for (Index begin = 0; begin + size <= tokens.size();) {
      std::vector<Index> kept;
      for (Index t = 0; t < tokens.size(); ++t)
        if (t < begin || t >= begin + size) kept.push_back(t);
      if (kept.empty() || !try_it(chosen(tokens, kept))) begin += size;
    }
  try_it(without([](Tokens& x) { x.log_gamma.resize(0); }));
  try_it(without([](Tokens& x) { x.log_a.resize(0, 0); }));
  try_it(without([](Tokens& x) { x.theta.resize(0), x.beta.resize(0); }));
  try_it(without([](Tokens& x) { x.w.resize(0, 0), x.strength.resize(0); }));
  try_it(without([](Tokens& x) { x.scale = 1; }));
  for (Index r = 0; r < tokens.V.rows(); ++r)
    if (try_it(without([&](Tokens& x) { x.V = x.V.row(r).eval(); }))) break;
  return tokens;
}

inline std::string written(const Tokens& tokens) {
  std::ostringstream out;
  out << std::setprecision(17);
  const auto part = [&](const char* name, const Eigen::MatrixXd& x) {
    if (x.size() > 0) out << name << " =\n" << x << '\n';
  };
  part("Q", tokens.Q), part("K", tokens.K), part("V", tokens.V), part("log gamma", tokens.log_gamma.transpose());
  part("theta", tokens.theta.transpose()), part("beta", tokens.beta.transpose()), part("log a", tokens.log_a);
  part("w", tokens.w), part("strength", tokens.strength.transpose());
  out << "scale " << tokens.scale << ", mask " << tokens.mask.offset << (tokens.mask.is_full ? " full" : " causal")
      << (tokens.pairing == Pairing::half_split ? ", half split" : "");
  return out.str();
}

/// Tokens for a feature map: of any size where its scores are powers, up to the ends of the type at times.
template <class Scalar, class F>
Tokens tokens_for(Random& random) {
  constexpr bool is_float = std::same_as<Scalar, float>;
  constexpr int P = degree<F>;
  const Index d = random.integer(1, P <= 2 ? 10 : P <= 4 ? 6 : 4);
  if (F::score == Score::embedded) {
    const auto turning = random.uniform() < .5 ? Turning::none : Turning::rotary;
    return sequence(random, d, 2, random.integer(1, 160), static_cast<Gates>(random.integer(0, 7)),
                    random.uniform() < .5 ? Lengths::ordinary : Lengths::with_zeros, turning);
  }
  // (|scale| ‖q‖ ‖k‖)^P may leave the type, and a sum then does; its terms stay within the reference's range.
  Tokens tokens = any_tokens(random, d, is_float ? 8 : 20);
  if (random.uniform() < .2)
    move_to_ends(random, tokens, is_float ? 37 : std::min(300, 4900 / (2 * P + 1) - 30), is_float ? 12 : 250);
  if (random.uniform() < .3) tokens.pairing = Pairing::half_split;
  if (random.uniform() < (P <= 1 ? .3 : .1)) reflect(random, tokens);
  if (random.uniform() < .2) set_mask(random, tokens);
  return tokens;
}

template <class F>
F feature_of(Index d, std::uint64_t seed) {
  if constexpr (std::same_as<F, PositiveRandomFeatures>)
    return F(d, 16, {.seed = seed});
  else
    return F{};
}

// One random sequence through all forms.
template <class Scalar, class F, class Normalization = DefaultNormalization>
void check_sequence(const char* name, std::uint64_t seed, Tally& tally) {
  Random random(seed);
  const Tokens tokens = tokens_for<Scalar, F>(random);
  const F feature = feature_of<F>(tokens.K.rows(), seed);
  const Finding found = Case<Scalar, F, Normalization>(feature, tokens, seed).check(tally);
  double& worst = tally.worst_of[name];
  worst = std::max(worst, found.plain);
  if (found.ratio <= 1) return;
  constexpr Index shown = 12;  // smallest inputs
  std::string input;
  if (++tally.violations <= shown) {
    Tally other;
    const auto breaks = [&](const Tokens& x) {
      const Finding again = Case<Scalar, F, Normalization>(feature, x, seed).check(other);
      return again.ratio > 1 && again.form == found.form;
    };
    input = written(smallest(tokens, breaks));
  }
  const auto [ratio, plain, form, row] = found;
  CAPTURE(name, sizeof(Scalar), seed, form, row, tokens.size(), input);
  CHECK(ratio <= 1);
}

template <class Scalar>
void check_every_feature(std::uint64_t seed, Tally& tally) {
  check_sequence<Scalar, Linear>("Linear", seed, tally);
  check_sequence<Scalar, SymmetricPower<2>>("P = 2", seed, tally);
  check_sequence<Scalar, SymmetricPower<3>>("P = 3", seed, tally);
  check_sequence<Scalar, SymmetricPower<8>>("P = 8", seed, tally);
  check_sequence<Scalar, Exponential>("Exponential", seed, tally);
  check_sequence<Scalar, EluPlusOne>("EluPlusOne", seed, tally);
  check_sequence<Scalar, SymmetricPower<2>, Unnormalized>("P = 2, sums", seed, tally);
  check_sequence<Scalar, SymmetricPower<3>, SignedNormalized>("P = 3, signed", seed, tally);
  if constexpr (std::same_as<Scalar, float>) {  // the others in one type
    check_sequence<Scalar, SymmetricPower<4>>("P = 4", seed, tally);
    check_sequence<Scalar, SymmetricPower<5>>("P = 5", seed, tally);
    check_sequence<Scalar, SymmetricPower<8>, Unnormalized>("P = 8, sums", seed, tally);
    check_sequence<Scalar, PositiveRandomFeatures>("PositiveRandomFeatures", seed, tally);
  } else {
    check_sequence<Scalar, SymmetricPower<1>>("P = 1", seed, tally);
    check_sequence<Scalar, SymmetricPower<6>>("P = 6", seed, tally);
    check_sequence<Scalar, SymmetricPower<7>>("P = 7", seed, tally);
  }
}

// Sequences of every feature map and normalisation until there are enough rows. `progress`: a line for every twentieth
// of them.
template <class Scalar>
Tally check_rows(Index enough, std::uint64_t seed, bool progress = false) {
  Tally tally;
  for (Index lines = 0; tally.rows < enough; ++seed) {
    check_every_feature<Scalar>(seed, tally);
    if (progress && tally.rows / (enough / 20 + 1) > lines) {
      lines = tally.rows / (enough / 20 + 1);
      std::cerr << tally.rows << " rows, " << tally.flagged << " of them flagged, " << tally.loose << " loose, "
                << tally.checks << " checks, " << tally.violations << " sequences against the rule; next seed "
                << seed + 1 << std::endl;
    }
  }
  CAPTURE(tally.rows, tally.flagged);
  CHECK(tally.flagged < tally.rows / 3);  // or the rule would have been asked of too few
  return tally;
}

// A number that the environment sets.
inline Index asked(const char* name, Index otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

// As many rows as the environment asks for, with their numbers by form and the worst of them by feature map.
template <class Scalar>
void check_rows_asked_for() {
  const Tally tally =
      check_rows<Scalar>(asked("SYMPOW_ROWS", 5000000), static_cast<std::uint64_t>(asked("SYMPOW_SEED", 100000)), true);
  for (const auto& [form, rows] : tally.rows_of_form) std::cerr << form << ": " << rows << " rows\n";
  for (const auto& [name, worst] : tally.worst_of)
    std::cerr << name << ": at worst " << worst << " times the rule for ordinary rows\n";
}

}  // namespace sympow::test
