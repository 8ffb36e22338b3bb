// The gradients that the library gives, in every form and for every score, against the definition; and what its states
// on the way cost.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include <sympow/attention/tape.hpp>
#include <sympow/verify/proposition.hpp>
#include "propositions/largest.hpp"
#include "propositions/library_gradients.hpp"

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A problem of no states for a feature map and a normalisation, without a gradient on rows that say nothing.
template <class Normalization, class Scalar, class F>
[[nodiscard]] GradientProblem problem_of(const F& feature, GradientProblem p) {
  p.mu.setZero(), p.d_mu.setZero();
  p.call.score = F::score;
  p.call.degree = sympow::detail::degree_of<F>;
  p.call.divided = divides<Normalization, F>;
  p.call.signed_means = std::is_same_v<Normalization, SignedNormalized>;
  p.call.feature = dense_feature(feature, p.call.Q.rows());
  p.set_steps();
  p.call = without_degenerate_rows(p.call, {unit_roundoff<Scalar>});
  return p;
}

/// How far `attention_vjp` is from the definition.
template <class Normalization, Moves moves, class Scalar, class F>
[[nodiscard]] double attention_apart(const F& feature, const GradientProblem& drawn) {
  const GradientProblem p = problem_of<Normalization, Scalar>(feature, drawn);
  const auto exact = defined_gradients(p);
  const auto found = by_attention_vjp<Normalization, moves, Scalar>(feature, p, exact.rotary.mu);
  return gradients_apart(p, found, exact, {unit_roundoff<Scalar>}).residual;
}
/// And `chunked_vjp`, without states.
template <class Normalization, Moves moves, class Scalar, class F>
[[nodiscard]] double chunked_apart(const F& feature, const GradientProblem& drawn, Index chunk) {
  const GradientProblem p = problem_of<Normalization, Scalar>(feature, drawn);
  const auto exact = defined_gradients(p);
  const auto found = by_chunked_vjp<Normalization, moves, Scalar>(feature, p, chunk, exact.rotary.mu);
  return gradients_apart(p, found, exact, arithmetic_of_chunks<Scalar>(p, chunk)).residual;
}
/// And with a state at both ends.
template <class Normalization, Moves moves, class Scalar, class F>
[[nodiscard]] double resumed_apart(const F& feature, Random& random, ProblemShape shape, Index chunk) {
  shape.has_state = false;
  GradientProblem drawn = problem_of<Normalization, Scalar>(feature, drawn_problem<Scalar>(random, shape));
  const Index D = feature.dimension(shape.d);
  drawn.d_mu = random.vector<Scalar>(drawn.theta.size()).template cast<Wide>();
  drawn.call.d_final = random.matrix<Scalar>(shape.e + 1, D).template cast<Wide>() / 8;
  GradientProblem before = drawn.segment(0, 7);
  for (auto* X : {&before.call.K, &before.call.V})
    *X = random.matrix<Scalar>(X->rows(), X->cols()).template cast<Wide>();
  ResumedProblem<moves, Scalar, F> resumed(feature, std::move(drawn), before);
  resumed.p.call = without_degenerate_rows(resumed.p.call, {unit_roundoff<Scalar>});
  const GradientProblem& p = resumed.p;
  return gradients_apart(p, resumed.template by_chunked_vjp<Normalization>(chunk), defined_gradients(p),
                         arithmetic_of_chunks<Scalar>(p, chunk))
      .residual;
}

/// Every score with what it is drawn with: visit<Normalization, moves>(feature), by name.
template <class Scalar>
struct LibraryScores {
  static constexpr Index d = 4;

  template <class Visit>
  static void sums(const Visit& visit) {
    visit.template operator()<Unnormalized, Moves::rotary>(Linear{});
    visit.template operator()<Unnormalized, Moves::channels>(Linear{});
    visit.template operator()<Unnormalized, Moves::householder>(Linear{});
    visit.template operator()<SignedNormalized, Moves::rotary>(Linear{});
  }
  template <class Visit>
  static void squares(const Visit& visit) {
    visit.template operator()<Normalized, Moves::rotary>(SymmetricPower<2>{});
    visit.template operator()<Normalized, Moves::channels>(SymmetricPower<2>{});
    visit.template operator()<Unnormalized, Moves::nothing>(SymmetricPower<2>{});
  }
  template <class Visit>
  static void positions(const Visit& visit) {
    visit.template operator()<Normalized, Moves::structured>(SymmetricPower<2>{});
  }
  template <class Visit>
  static void eighth_powers(const Visit& visit) {
    visit.template operator()<Normalized, Moves::nothing>(SymmetricPower<8>{});
    visit.template operator()<Normalized, Moves::rotary>(SymmetricPower<8>{});
  }
  template <class Visit>
  static void features(const Visit& visit) {
    visit.template operator()<Normalized, Moves::rotary>(PositiveRandomFeatures(d, 7));
    visit.template operator()<Unnormalized, Moves::nothing>(TrigonometricRandomFeatures(d, 7));
    visit.template operator()<Normalized, Moves::structured>(HyperbolicRandomFeatures(d, 7));
  }
  // In the attention form alone.
  template <class Visit>
  static void exponentials(const Visit& visit) {
    visit.template operator()<Normalized, Moves::rotary>(Exponential{});
    visit.template operator()<Normalized, Moves::channels>(Exponential{});
    visit.template operator()<Normalized, Moves::householder>(Exponential{});
    visit.template operator()<Normalized, Moves::structured>(Exponential{});
    visit.template operator()<Unnormalized, Moves::rotary>(Exponential{});
  }
  template <class Visit>
  static void chains_of_powers(const Visit& visit) {
    visit.template operator()<Normalized, Moves::householder>(SymmetricPower<2>{});
  }
};

/// A and D: the attention form.
template <class Scalar>
void gradients_of_attention(Ledger& ledger, Random& random) {
  using Scores = LibraryScores<Scalar>;
  Largest longer;
  const auto add = [&](const std::string& id, const std::string& what, const auto& each) {
    Largest apart;
    each([&]<class Normalization, Moves moves>(const auto& feature) {
      for (const Closing closing : {Closing::never, Closing::slowly, Closing::fast})
        apart.add(attention_apart<Normalization, moves, Scalar>(
            feature, drawn_problem<Scalar>(random, {.moves = moves, .closing = closing, .T = 11, .has_state = false})));
      longer.add(attention_apart<Normalization, moves, Scalar>(
          feature, drawn_problem<Scalar>(random, {.moves = moves, .T = 30, .has_state = false})));
    });
    ledger.holds("grad.A." + id, apart.value(), {1, {}, gradient_unit},
                 "attention_vjp, " + what + ": the gradient of the definition in everything", "(extension)");
  };
  add("sums", "P = 1, sums and signed means", [](const auto& visit) { Scores::sums(visit); });
  add("squares", "P = 2, means and sums", [](const auto& visit) { Scores::squares(visit); });
  add("chains", "P = 2, means, a Householder chain", [](const auto& visit) { Scores::chains_of_powers(visit); });
  add("positions", "P = 2, means, structured rotations", [](const auto& visit) { Scores::positions(visit); });
  add("p8", "P = 8, means", [](const auto& visit) { Scores::eighth_powers(visit); });
  add("exponential", "e^x, means and sums", [](const auto& visit) { Scores::exponentials(visit); });
  add("features", "random features of three kinds", [](const auto& visit) { Scores::features(visit); });
  ledger.holds("grad.D", longer.value(), {1, {}, gradient_unit},
               "attention_vjp of 30 tokens, every score, normalisation and transition", "(extension)");
}

/// B and C: chunks.
template <class Scalar>
void gradients_of_chunks(Ledger& ledger, Random& random) {
  using Scores = LibraryScores<Scalar>;
  const auto add = [&](const std::string& id, const std::string& what, const auto& each) {
    Largest apart;
    each([&]<class Normalization, Moves moves>(const auto& feature) {
      for (const Index chunk : {1, 5, 64})
        apart.add(resumed_apart<Normalization, moves, Scalar>(feature, random, {.moves = moves, .T = 13}, chunk));
    });
    ledger.holds("grad.B." + id, apart.value(), {1, {}, gradient_unit},
                 "chunked_vjp, " + what + ", from a state and with a loss on the last: the gradient of the definition",
                 "(extension)");
  };
  add("sums", "P = 1, sums and signed means", [](const auto& visit) { Scores::sums(visit); });
  add("squares", "P = 2, means and sums", [](const auto& visit) { Scores::squares(visit); });
  add("positions", "P = 2, means, structured rotations", [](const auto& visit) { Scores::positions(visit); });
  add("p8", "P = 8, means", [](const auto& visit) { Scores::eighth_powers(visit); });
  add("features", "random features of three kinds", [](const auto& visit) { Scores::features(visit); });

  const auto draws = [&](const std::string& P, const auto& each) {
    Largest apart;
    each([&]<class Normalization, Moves moves>(const auto& feature) {
      for (const Closing closing : {Closing::never, Closing::slowly, Closing::fast})
        for (const Index T : {1, 17, 24}) {
          const auto p =
              drawn_problem<Scalar>(random, {.moves = moves, .closing = closing, .T = T, .has_state = false});
          apart.add(chunked_apart<Normalization, moves, Scalar>(feature, p, 8));
        }
    });
    ledger.holds("grad.C.p" + P, apart.value(), {1, {}, gradient_unit},
                 "chunked_vjp by 8 tokens, P = " + P + ", random draws of up to 24 tokens, all transitions and gates",
                 "(extension)");
  };
  draws("1", [](const auto& visit) { Scores::sums(visit); });
  draws("2", [](const auto& visit) { Scores::squares(visit), Scores::positions(visit); });
  draws("8", [](const auto& visit) { Scores::eighth_powers(visit); });
}

/// W: one query and one key for all tokens, so that roundings are alike.
template <class Scalar>
void gradients_of_aligned_tokens(Ledger& ledger, Random& random) {
  const auto add = [&]<class Normalization>(Normalization, const auto& feature) {
    Largest apart;
    for (int draw = 0; draw < 6; ++draw) {
      auto p = drawn_problem<Scalar>(random, {.moves = Moves::rotary,
                                              .closing = draw % 2 == 0 ? Closing::never : Closing::slowly,
                                              .T = random.integer(2, 40),
                                              .has_state = false});
      for (Index t = 0; t < p.call.tokens(); ++t) {
        p.call.K.col(t) = p.call.Q.col(t) = p.call.Q.col(0);
        if (draw % 3 == 0) p.call.V.col(t) = p.call.V.col(0).cwiseAbs(), p.call.dY.col(t) = p.call.dY.col(0);
      }
      if (draw % 3 != 0) p.beta.setZero();  // nor does anything turn
      apart.add(chunked_apart<Normalization, Moves::rotary, Scalar>(feature, p, 8));
    }
    const std::string P = std::to_string(std::remove_cvref_t<decltype(feature)>::degree);
    ledger.holds("grad.W.p" + P, apart.value(), {1, {}, gradient_unit},
                 "one query and one key for all tokens, P = " + P + ": chunked_vjp is the gradient of the definition",
                 "(extension)");
  };
  add(Unnormalized{}, SymmetricPower<1>{});
  add(Normalized{}, SymmetricPower<2>{});
  add(Normalized{}, SymmetricPower<8>{});
}

/// φ², which counts the tokens that it is asked for.
struct CountedSquares {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  std::shared_ptr<Index> tokens = std::make_shared<Index>(0);
  [[nodiscard]] Index dimension(Index d) const { return symmetric_dimension(d, 2); }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    *tokens += x.cols();
    SymmetricPower<2>{}.embed(x, y);
  }
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, const Y& y, const DY& dy, DX&& dx) const {
    SymmetricPower<2>{}.embed_vjp(x, y, dy, dx);
  }
};

/// H: states that are made again.
template <class Scalar>
void cost_of_states(Ledger& ledger, Random& random) {
  constexpr Index T = 256, chunk = 16, d = 4, e = 4;
  const CountedSquares feature;
  const Matrix<Scalar> Q = random.matrix<Scalar>(d, T), K = random.matrix<Scalar>(d, T),
                       V = random.matrix<Scalar>(e, T), dY = random.matrix<Scalar>(e, T);
  const auto A = decay(-.05 * random.vector(T).cwiseAbs());
  const State<Scalar, CountedSquares> empty(feature, d, e, 0);
  VjpWorkspace<Scalar> workspace;
  Gradients<Scalar, Decay> first, g;
  double alone = 0;  // tokens that were embedded where every state is at hand
  const auto embedded = [&](OptionalRef<const State<Scalar, CountedSquares>> from,
                            OptionalRef<const Tape<Scalar, CountedSquares>> tape, const Options& options) {
    StateGradient<Scalar, CountedSquares> adjoint(feature, d, e);
    *feature.tokens = 0;
    g = chunked_vjp(feature, A,
                    {.Q = Q,
                     .K = K,
                     .V = V,
                     .dY = dY,
                     .state = from,
                     .tape = tape,
                     .d_state = adjoint,
                     .reuse = g,
                     .workspace = workspace,
                     .options = options});
    return static_cast<double>(*feature.tokens) / T;
  };
  const auto ratio = [&](double count) { return (2 + 4 + count - alone) / 2; };
  for (const Index k : {1, 2, 4, 5, 16}) {
    const Options options{.chunk = chunk, .checkpoint = k};
    Tape<Scalar, CountedSquares> checkpoints;
    Matrix<Scalar> Y(e, T);
    State<Scalar, CountedSquares> state = empty;
    chunked(feature, A, Q, K, V, state, {Y, checkpoints}, workspace, options);
    const double count = embedded({}, checkpoints, options);
    if (k == 1) alone = count, first = g;
    const std::string id = "grad.H" + std::to_string(k),
                      what =
                          "(2 + 4 + states made again)/2 products of D (e + 1), forward and backward by forward, a "
                          "state every " +
                          std::to_string(k) + " chunks";
    const Bound bound{3.4, "(2 + 4 + 4/5)/2"};
    if (k <= 5)
      ledger.holds(id, ratio(count), bound, what, "(extension)");
    else
      ledger.control(id, ratio(count), bound, what, "(extension)");
    Largest apart;
    apart.add(g.Q, first.Q), apart.add(g.K, first.K), apart.add(g.V, first.V);
    apart.add(Matrix<double>(g.transition.log_gamma), Matrix<double>(first.transition.log_gamma));
    apart.add(std::abs(g.scale - first.scale));
    ledger.holds(id + ".bits", apart.value(), 0,
                 "a state every " + std::to_string(k) + " chunks changes no bit of any gradient", "(extension)");
  }
  ledger.holds("grad.H0", ratio(embedded(empty, {}, {.chunk = chunk})), {3.5, "(2 + 5)/2"},
               "the same of a call that knows nothing of the forward pass: five products", "(extension)");
}

}  // namespace detail

/// The library's gradients against the definition.
///
/// grad.A to grad.D, grad.W, grad.H. Inputs are drawn from the seed. Source: none; docs of the library.
template <class Scalar>
void gradient_library_propositions(Ledger& ledger, std::uint64_t seed) {
  Random random(seed);
  detail::gradients_of_attention<Scalar>(ledger, random);
  detail::gradients_of_chunks<Scalar>(ledger, random);
  detail::gradients_of_aligned_tokens<Scalar>(ledger, random);
  detail::cost_of_states<Scalar>(ledger, random);
}

}  // namespace SYMPOW_NAMESPACE::verify
