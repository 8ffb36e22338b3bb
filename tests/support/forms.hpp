// Every form of a power of the logit on the same tokens, judged by the row rule against the definition.
#pragma once

#include <array>

#include <sympow/sympow.hpp>
#include "tokens.hpp"

namespace sympow::test {

inline constexpr std::array<const char*, 4> form_names = {"attention", "recurrent, tail 0", "recurrent", "chunked"};

/// Outputs and diagnostics of a call.
template <class Scalar>
struct Result {
  Matrix<Scalar> Y;
  Diagnostics diagnostics;
};

/// Runs one form; a state form goes on from `state`. `chunk` 0 is a recurrence.
template <class Normalization = DefaultNormalization, class Scalar, class F>
[[nodiscard]] Result<Scalar> run(const Tokens& tokens, State<Scalar, F>& state, Index chunk) {
  Result<Scalar> result;
  const Options options{.scale = tokens.scale, .chunk = chunk, .diagnostics = &result.diagnostics};
  const Matrix<Scalar> Q = tokens.Q.cast<Scalar>(), K = tokens.K.cast<Scalar>(), V = tokens.V.cast<Scalar>();
  tokens.with_transition([&](const auto& transition) {
    result.Y = chunk == 0 ? recurrent<Normalization>(F{}, transition, Q, K, V, state, options)
                          : chunked<Normalization>(F{}, transition, Q, K, V, state, options);
  });
  return result;
}
template <class Scalar, class F, class Normalization = DefaultNormalization>
[[nodiscard]] Result<Scalar> run_attention_form(const Tokens& tokens) {
  Result<Scalar> result;
  const Options options{.scale = tokens.scale, .diagnostics = &result.diagnostics};
  tokens.with_transition([&](const auto& transition) {
    result.Y = attention<Normalization>(F{}, transition, tokens.Q.cast<Scalar>(), tokens.K.cast<Scalar>(),
                                        tokens.V.cast<Scalar>(), options);
  });
  return result;
}

/// The verdicts on all forms, in the order of `form_names`. Tokens are rounded to the scalar first.
template <class Scalar, class F, class Normalization = DefaultNormalization>
[[nodiscard]] std::array<Verdict, 4> judge_forms(Tokens tokens, Index chunk = 64, Inputs inputs = Inputs::ordinary) {
  tokens.round_to<Scalar>();
  constexpr bool means = sympow::detail::row_kind<Normalization, F>() != sympow::detail::RowKind::sums;
  const ReferenceRows rows =
      reference_rows(F::degree, tokens, means, std::same_as<Scalar, double> ? AngleSums::in_double : AngleSums::exact);
  constexpr Real block = 64;  // keys that the attention form adds up at a time
  const Index d = tokens.Q.rows(), e = tokens.V.rows();
  const auto judged = [&](const Result<Scalar>& result, Real tokens_per_update) {
    return judge<Scalar>(rows, result.Y, result.diagnostics, static_cast<double>(tokens_per_update), inputs);
  };
  State<Scalar, F> literal(d, e, 0), tailed(d, e), by_chunks(d, e);
  return {judged(run_attention_form<Scalar, F, Normalization>(tokens), block),
          judged(run<Normalization>(tokens, literal, 0), 1),
          judged(run<Normalization>(tokens, tailed, 0), static_cast<Real>(tailed.tail_capacity() + 1)),
          judged(run<Normalization>(tokens, by_chunks, chunk), static_cast<Real>(chunk))};
}

}  // namespace sympow::test
