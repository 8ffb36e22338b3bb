// Draws docs/error.svg: how exact a score is in float, by the form it goes through and the angle between query and key.
//
//     error_plot FILE.svg
//
// A key is followed by 100 zero keys, so that every row of its query is one score (q·k)^P times a value; the error is
// that of the unnormalised row against the same in double, median over pairs.
#include <sympow/core/random.hpp>
#include <sympow/sympow.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

#include "plot.hpp"

using namespace sympow;

namespace {

constexpr int pairs = 15, points = 19;
constexpr double smallest_cosine = 1e-3, lowest_error = 1e-8, highest_error = 1e4;

struct Curve {
  const char *name, *colour, *dashes;
  std::array<double, points> error{};
};

double cosine(int point) { return std::pow(smallest_cosine, point / (points - 1.0)); }

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + pairs / 2);
  return values[pairs / 2];
}

// A query at every token; a key at the given cosine to it, and zero keys after that.
struct Tokens {
  Matrix<float> Q, K, V;
};
Tokens tokens(Random& random, Index d, double cos, Index after) {
  const Eigen::VectorXd q = random.vector(d).normalized();
  const Eigen::VectorXd x = random.vector(d), orthogonal = (x - x.dot(q) * q).normalized();
  Eigen::MatrixXd K = Eigen::MatrixXd::Zero(d, after + 1);
  K.col(0) = cos * q + std::sqrt(1 - cos * cos) * orthogonal;
  return {q.cast<float>().replicate(1, after + 1), K.cast<float>(), Matrix<float>::Ones(1, after + 1)};
}

template <int P>
std::array<Curve, 4> measure(Index d) {
  std::array<Curve, 4> curves = {
      {{"attention, and recurrent within the tail", plot::green, ""},
       {"recurrent past the tail, chunked past the chunk (through φ)", plot::blue, "stroke-dasharray='8 3'"},
       {"the literal recurrence, tail 0 (through φ)", plot::vermillion, "stroke-dasharray='2 3'"},
       {"u (Σ|q_i k_i| / |q·k|)^P, what a sum through φ may lose", plot::gray, ""}}};
  const SymmetricPower<P> feature;
  Random random(1);
  for (int point = 0; point < points; ++point) {
    std::array<std::vector<double>, 4> errors;
    for (int pair = 0; pair < pairs; ++pair) {
      const Tokens x = tokens(random, d, cosine(point), 100);
      const Eigen::VectorXd q = x.Q.col(0).cast<double>(), k = x.K.col(0).cast<double>();
      const double exact = std::pow(q.dot(k), P);
      const auto error = [&](const Matrix<float>& Y, Index token) {
        return std::abs(static_cast<double>(Y(0, token)) / exact - 1);
      };
      State<float, SymmetricPower<P>> literal(feature, d, 1, 0), tailed(feature, d, 1);
      const auto Y = recurrent<Unnormalized>(feature, stationary(), x.Q, x.K, x.V, tailed);
      errors[0].push_back(
          std::max(error(attention<Unnormalized>(feature, stationary(), x.Q, x.K, x.V), 100), error(Y, 10)));
      errors[1].push_back(
          std::max(error(Y, 100), error(chunked<Unnormalized>(feature, stationary(), x.Q, x.K, x.V), 100)));
      errors[2].push_back(error(recurrent<Unnormalized>(feature, stationary(), x.Q, x.K, x.V, literal), 0));
      errors[3].push_back(std::ldexp(1.0, -24) * std::pow(q.cwiseAbs().dot(k.cwiseAbs()) / std::abs(q.dot(k)), P));
    }
    for (std::size_t c = 0; c < curves.size(); ++c)
      curves[c].error[static_cast<std::size_t>(point)] = median(errors[c]);
  }
  return curves;
}

std::string panel(const std::array<Curve, 4>& curves, const char* title, double left) {
  plot::Panel panel(title, {smallest_cosine, 1, 1, plot::decimal}, "cos(q, k)",
                    {lowest_error, highest_error, 2, plot::scientific}, "relative error", left);
  for (const Curve& curve : curves) {
    plot::Points line;
    for (int point = 0; point < points; ++point)
      line.emplace_back(cosine(point), curve.error[static_cast<std::size_t>(point)]);
    panel.curve(line, curve.colour, curve.dashes);
  }
  return panel.svg();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: error_plot FILE.svg\n";
    return 2;
  }
  const auto quadratic = measure<2>(64), quartic = measure<4>(16);
  std::string content = panel(quadratic, "P = 2, d = 64", 60) + panel(quartic, "P = 4, d = 16", 450);
  double at = 378;
  for (const Curve& curve : quadratic) {
    content += plot::legend(60, at, "h24",
                            std::string("stroke-width='3' stroke='") + curve.colour + "' " + curve.dashes, curve.name);
    at += 18;
  }
  const std::string title =
      "Relative error of one score (q·k)^P in float, median of " + std::to_string(pairs) + " pairs with this angle";
  if (!plot::write("error_plot", argv[1], 450, title, content)) return 2;
  for (const int point : {0, 6, 12, 18})
    std::printf("cos %.3f   P 2 d 64: %.1e %.1e %.1e   P 4 d 16: %.1e %.1e %.1e\n", cosine(point),
                quadratic[0].error[static_cast<std::size_t>(point)],
                quadratic[1].error[static_cast<std::size_t>(point)],
                quadratic[2].error[static_cast<std::size_t>(point)], quartic[0].error[static_cast<std::size_t>(point)],
                quartic[1].error[static_cast<std::size_t>(point)], quartic[2].error[static_cast<std::size_t>(point)]);
}
