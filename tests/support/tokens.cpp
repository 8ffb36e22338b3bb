// Compiled once for all rooms, and optimised: see CMakeLists.txt.
#include "tokens.hpp"

namespace sympow::test {

Tokens Tokens::segment(Segment s) const {
  const auto part = [&](const auto& x) { return x.size() > 0 ? x.middleCols(s.begin, s.size).eval() : x; };
  const auto entries = [&](const Eigen::VectorXd& x) { return x.size() > 0 ? x.segment(s.begin, s.size).eval() : x; };
  return {Q.middleCols(s.begin, s.size),
          K.middleCols(s.begin, s.size),
          V.middleCols(s.begin, s.size),
          entries(log_gamma),
          theta,
          entries(beta),
          part(log_a),
          scale,
          pairing,
          part(w),
          entries(strength),
          mask};
}

ReferenceRows ReferenceRows::part(Index begin, Index size) const {
  return {Y.middleCols(begin, size),
          denominator.segment(begin, size),
          absolute.segment(begin, size),
          bound.segment(begin, size),
          direct.segment(begin, size),
          window.segment(begin, size),
          largest.segment(begin, size),
          forgotten.segment(begin, size),
          P,
          d,
          means,
          turned,
          exponential};
}

namespace {

/// Queries and keys turned by the absolute angles of their tokens.
void turn(const Tokens& tokens, AngleSums sums, Matrix<Real>& Q, Matrix<Real>& K) {
  const Index pairs = tokens.theta.size();
  const bool split = tokens.pairing == Pairing::half_split;
  Vector<Real> angles = Vector<Real>::Zero(pairs);
  for (Index t = 0; t < tokens.tokens(); ++t)
    for (Index n = 0; n < pairs; ++n) {
      const double beta = tokens.beta.size() > 0 ? tokens.beta[t] : 1, theta = tokens.theta[n];
      if (sums == AngleSums::exact)
        angles[n] += static_cast<Real>(beta) * static_cast<Real>(theta);
      else
        angles[n] = std::remainder(static_cast<double>(angles[n]) + beta * theta, 2 * std::numbers::pi);
      const Real c = std::cos(angles[n]), s = std::sin(angles[n]);
      const auto turn_column = [&, first = split ? n : 2 * n, second = split ? n + pairs : 2 * n + 1](auto x) {
        const Real a = x[first], b = x[second];
        x[first] = c * a - s * b;
        x[second] = s * a + c * b;
      };
      if (const Index i = t - tokens.mask.offset; 0 <= i && i < Q.cols()) turn_column(Q.col(i));
      if (t < K.cols()) turn_column(K.col(t));
    }
}

}  // namespace

ReferenceRows reference_rows(int P, const Tokens& tokens, bool means, AngleSums sums, const Embedding& embed) {
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  const Index n = tokens.K.cols(), T = tokens.size();
  const int degree = std::max(P, 1);
  Matrix<Real> Q = tokens.Q.cast<Real>() * static_cast<Real>(tokens.scale), K = tokens.K.cast<Real>();
  turn(tokens, sums, Q, K);
  if (embed) Q = embed(Q), K = embed(K);
  const Index d = Q.rows();
  const Matrix<Real> V = tokens.V.cast<Real>();
  Vector<Real> log_b = Vector<Real>::Zero(n), log_slowest = Vector<Real>::Zero(n);
  const Vector<Real> none = Vector<Real>::Zero(T);
  ReferenceRows rows{Matrix<Real>::Zero(V.rows(), T),
                     none,
                     none,
                     none,
                     none,
                     none,
                     none,
                     none,
                     degree,
                     d,
                     means,
                     tokens.theta.size() > 0 || tokens.log_a.size() > 0 || tokens.w.size() > 0,
                     P == 0};
  Vector<Real> norms = K.colwise().norm().transpose(),
               rounded = Vector<Real>::Zero(n);  // of keys as they are; Σ |log b|
  const Vector<Real> lengths = norms;            // of keys as they came
  for (Index t = 0; t < tokens.tokens(); ++t) {
    const Index before = std::min(t, n);
    if (tokens.log_gamma.size() > 0) {
      log_b.head(before).array() += static_cast<Real>(tokens.log_gamma[t]);
      rounded.head(before).array() -= static_cast<Real>(tokens.log_gamma[t]);
    }
    if (tokens.log_a.size() > 0) {
      const Vector<Real> log_a = tokens.log_a.col(t).cast<Real>();
      for (Index c = 0; c < d; ++c) K.row(c).head(before) *= std::exp(log_a[c]);
      log_slowest.head(before).array() += degree * log_a.maxCoeff();
      rounded.head(before).array() += degree * (log_a.array() > -infinity).select(log_a, 0).cwiseAbs().maxCoeff();
      norms.head(before) = K.leftCols(before).colwise().norm().transpose();
    }
    if (tokens.w.size() > 0) {  // rounding is relative to keys as they came
      const Vector<Real> w = tokens.w.col(t).cast<Real>();
      K.leftCols(before) -= static_cast<Real>(tokens.strength[t]) * w * (w.transpose() * K.leftCols(before)).eval();
    }
    const Index i = t - tokens.mask.offset, seen = tokens.mask.is_full ? n : std::min(t + 1, n),
                first = std::clamp<Index>(t - tokens.mask.window + 1, 0, std::max<Index>(seen, 0));
    if (i < 0 || i >= T) continue;
    const Real length = Q.col(i).norm();
    const Vector<Real> logits = K.leftCols(seen).transpose() * Q.col(i);
    rows.largest[i] = seen > first && V.rows() > 0 ? V.middleCols(first, seen - first).cwiseAbs().maxCoeff() : 0;
    Real shift = -infinity;  // a mean does not see a common factor
    for (Index j = first; j < seen; ++j)
      if (P == 0 || logits[j] != 0) shift = std::max(shift, P == 0 ? log_b[j] + logits[j] : log_b[j]);
    if (!means || std::isinf(shift)) shift = 0;
    Real age = 0;
    for (Index j = first; j < seen; ++j) {
      rows.window[i] += std::exp(log_b[j] + log_slowest[j]);
      if (P > 0 && norms[j] == 0) continue;
      const Real b = std::exp(log_b[j] - shift), logit = logits[j], size = length * norms[j];
      const Real score = P == 0 ? std::exp(log_b[j] + logit - shift) : logit == 0 ? 0 : b * integer_power(logit, P);
      const Real weight = P == 0 ? score * (1 + size) : b * integer_power(size, P);
      rows.absolute[i] += weight;
      age += weight * static_cast<Real>(std::abs(t - j));
      if (P == 0)
        rows.bound[i] = std::max(rows.bound[i], length * lengths[j]);
      else
        rows.bound[i] += b * std::exp(log_slowest[j]) * integer_power<Real>(length * lengths[j], P);
      if (score == 0) continue;
      rows.Y.col(i) += score * V.col(j);
      rows.denominator[i] += score;
      rows.direct[i] += P == 0 ? weight : b * size * integer_power(std::abs(logit), P - 1);
      rows.forgotten[i] += std::abs(score) * rounded[j];
    }
    if (rows.absolute[i] != 0) rows.window[i] = std::max(rows.window[i], age / rows.absolute[i]);
    if (!means || rows.denominator[i] == 0) continue;
    rows.Y.col(i) /= rows.denominator[i];
    rows.forgotten[i] /= std::abs(rows.denominator[i]);
    rows.direct[i] /= std::abs(rows.denominator[i]);
  }
  return rows;
}

template <class Scalar>
Verdict judge(const ReferenceRows& rows, const Matrix<Scalar>& Y, const Diagnostics& diagnostics,
              double tokens_per_update, Inputs inputs) {
  constexpr Real u = std::numeric_limits<Scalar>::epsilon() / 2, infinity = std::numeric_limits<Real>::infinity();
  Verdict verdict;
  for (Index i = 0; i < Y.cols(); ++i) {
    Real ratio = 0;
    if (rows.means && diagnostics.is_degenerate[i]) {
      ++verdict.flagged;
      const bool excused =
          rows.denominator[i] == 0 || (!rows.exponential && rows.bound[i] * 32 * u >= std::abs(rows.denominator[i]));
      ratio = excused && Y.col(i).isZero(0) ? 0 : infinity;
    } else {
      ++verdict.compared;
      const Real weight = rows.means ? rows.condition(i) : rows.absolute[i];
      constexpr Real of_gates = 8 * static_cast<Real>(std::numeric_limits<double>::epsilon());
      const Real updates = rows.window[i] / static_cast<Real>(tokens_per_update);
      const Real of_rotations = rows.turned ? 4 * rows.P : 0;
      const Real of_logits = inputs == Inputs::aligned ? rows.P * (2 + std::sqrt(static_cast<Real>(rows.d))) + 2 : 0;
      const Real of_updates = 4 * (1 + std::sqrt(updates)), one_way = inputs == Inputs::aligned ? 2 * updates : 0;
      const Real rule =
          std::max(std::max(of_updates, one_way) * weight, (of_rotations + of_logits) * rows.direct[i]) * u;
      const Real allowed = rows.largest[i] * (rule + of_gates * rows.forgotten[i]);
      const bool is_loose =
          rows.exponential ? (of_rotations + of_logits + 4) * rows.bound[i] * u >= 1 : rows.means && rule >= .5L;
      if (is_loose && Y.col(i).allFinite()) {
        ++verdict.loose;
        continue;
      }
      for (Index c = 0; c < Y.rows(); ++c) {
        const Real expected = rows.Y(c, i), found = static_cast<Real>(Y(c, i)), difference = std::abs(found - expected);
        if (std::isinf(found) && std::abs(expected) + allowed >= static_cast<Real>(std::numeric_limits<Scalar>::max()))
          continue;
        if (difference <= static_cast<Real>(std::numeric_limits<Scalar>::denorm_min())) continue;
        // A sum of exactly 0 leaves nothing but a rotation's roundings, under which its condition is infinite.
        const bool nothing = rows.means && rows.denominator[i] == 0 && !rows.turned;
        const Real one = nothing ? infinity : difference / allowed;
        ratio = one <= ratio ? ratio : std::isnan(one) ? infinity : one;
      }
    }
    if (static_cast<double>(ratio) > verdict.worst) {
      verdict.worst = static_cast<double>(ratio);
      verdict.row = i;
    }
  }
  return verdict;
}

template Verdict judge<float>(const ReferenceRows&, const Matrix<float>&, const Diagnostics&, double, Inputs);
template Verdict judge<double>(const ReferenceRows&, const Matrix<double>&, const Diagnostics&, double, Inputs);

}  // namespace sympow::test
