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
          scale};
}

ReferenceRows ReferenceRows::last(Index n) const {
  return {Y.rightCols(n),
          denominator.tail(n),
          absolute.tail(n),
          bound.tail(n),
          direct.tail(n),
          window.tail(n),
          largest.tail(n),
          forgotten.tail(n),
          P,
          d,
          means,
          turned};
}

ReferenceRows reference_rows(int P, const Tokens& tokens, bool means, AngleSums sums) {
  constexpr Real infinity = std::numeric_limits<Real>::infinity();
  const Index d = tokens.Q.rows(), T = tokens.size(), pairs = tokens.theta.size();
  Matrix<Real> Q = tokens.Q.cast<Real>() * static_cast<Real>(tokens.scale), K = tokens.K.cast<Real>();
  const Matrix<Real> V = tokens.V.cast<Real>();
  Vector<Real> log_b = Vector<Real>::Zero(T), log_slowest = Vector<Real>::Zero(T), angles = Vector<Real>::Zero(pairs);
  ReferenceRows rows{Matrix<Real>::Zero(V.rows(), T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     Vector<Real>::Zero(T),
                     P,
                     d,
                     means,
                     pairs > 0 || tokens.log_a.size() > 0};
  Vector<Real> norms(T), lengths(T),
      rounded = Vector<Real>::Zero(T);  // of keys as they are and as they came; Σ |log b|
  for (Index i = 0; i < T; ++i) {
    for (Index n = 0; n < pairs; ++n) {
      const double beta = tokens.beta.size() > 0 ? tokens.beta[i] : 1, theta = tokens.theta[n];
      if (sums == AngleSums::exact)
        angles[n] += static_cast<Real>(beta) * static_cast<Real>(theta);
      else
        angles[n] = std::remainder(static_cast<double>(angles[n]) + beta * theta, 2 * std::numbers::pi);
      const Real c = std::cos(angles[n]), s = std::sin(angles[n]);
      for (Matrix<Real>* x : {&Q, &K}) {
        const Real a = (*x)(2 * n, i), b = (*x)(2 * n + 1, i);
        (*x)(2 * n, i) = c * a - s * b;
        (*x)(2 * n + 1, i) = s * a + c * b;
      }
    }
    if (tokens.log_gamma.size() > 0) {
      log_b.head(i).array() += static_cast<Real>(tokens.log_gamma[i]);
      rounded.head(i).array() -= static_cast<Real>(tokens.log_gamma[i]);
    }
    if (tokens.log_a.size() > 0) {
      const Vector<Real> log_a = tokens.log_a.col(i).cast<Real>();
      for (Index c = 0; c < d; ++c) K.row(c).head(i) *= std::exp(log_a[c]);
      log_slowest.head(i).array() += P * log_a.maxCoeff();
      rounded.head(i).array() += P * (log_a.array() > -infinity).select(log_a, 0).cwiseAbs().maxCoeff();
      norms.head(i) = K.leftCols(i).colwise().norm().transpose();
    }
    norms[i] = lengths[i] = K.col(i).norm();
    const Real length = Q.col(i).norm();
    rows.largest[i] = std::max(i > 0 ? rows.largest[i - 1] : 0, V.rows() > 0 ? V.col(i).cwiseAbs().maxCoeff() : 0);
    Real shift = -infinity;  // a mean does not see a common factor
    for (Index j = 0; j <= i; ++j)
      if (Q.col(i).dot(K.col(j)) != 0) shift = std::max(shift, log_b[j]);
    if (!means || std::isinf(shift)) shift = 0;
    Real age = 0;
    for (Index j = 0; j <= i; ++j) {
      rows.window[i] += std::exp(log_b[j] + log_slowest[j]);
      if (norms[j] == 0) continue;
      const Real b = std::exp(log_b[j] - shift), logit = Q.col(i).dot(K.col(j));
      const Real weight = b * integer_power<Real>(length * norms[j], P);
      rows.absolute[i] += weight;
      age += weight * static_cast<Real>(i - j);
      rows.bound[i] += b * std::exp(log_slowest[j]) * integer_power<Real>(length * lengths[j], P);
      if (logit == 0) continue;
      const Real score = b * integer_power(logit, P);
      rows.Y.col(i) += score * V.col(j);
      rows.denominator[i] += score;
      rows.direct[i] += b * length * norms[j] * integer_power(std::abs(logit), P - 1);
      if (score != 0) rows.forgotten[i] += std::abs(score) * rounded[j];
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
Verdict judge(const ReferenceRows& rows, const Matrix<Scalar>& Y, const Eigen::MatrixXd& diagnostics,
              double tokens_per_update, Inputs inputs) {
  constexpr Real u = std::numeric_limits<Scalar>::epsilon() / 2, infinity = std::numeric_limits<Real>::infinity();
  Verdict verdict;
  for (Index i = 0; i < Y.cols(); ++i) {
    Real ratio = 0;
    if (rows.means && diagnostics(2, i) != 0) {
      ++verdict.flagged;
      const bool excused = rows.denominator[i] == 0 || rows.bound[i] * 32 * u >= std::abs(rows.denominator[i]);
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
      for (Index c = 0; c < Y.rows(); ++c) {
        const Real expected = rows.Y(c, i), found = static_cast<Real>(Y(c, i)), difference = std::abs(found - expected);
        if (std::isinf(found) && !rows.means &&
            std::abs(expected) + allowed >= static_cast<Real>(std::numeric_limits<Scalar>::max()))
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

template Verdict judge<float>(const ReferenceRows&, const Matrix<float>&, const Eigen::MatrixXd&, double, Inputs);
template Verdict judge<double>(const ReferenceRows&, const Matrix<double>&, const Eigen::MatrixXd&, double, Inputs);

}  // namespace sympow::test
