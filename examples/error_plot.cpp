// Draws docs/error.svg: how exact a score is in float, by the form it goes through and the angle between query and key.
//
//     error_plot FILE.svg
//
// A key is followed by 100 zero keys, so that every row of its query is one score (q·k)^P times a value; the error is that of the
// unnormalised row against the same in double, median over pairs.
#include <sympow/core/random.hpp>
#include <sympow/sympow.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace sympow;

namespace {

constexpr int pairs = 15, points = 19;
constexpr double smallest_cosine = 1e-3, lowest_error = 1e-8, highest_error = 1e4;

struct Curve {
  const char *name, *colour;
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
  std::array<Curve, 4> curves = {{{"attention, and recurrent within the tail", "#1b7837"},
                                  {"recurrent past the tail, chunked past the chunk (through φ)", "#2166ac"},
                                  {"the literal recurrence, tail 0 (through φ)", "#b2182b"},
                                  {"u (Σ|q_i k_i| / |q·k|)^P", "#888888"}}};
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
      State<float, SymmetricPower<P>> literal(feature, d, 1, 0);
      const auto Y = recurrent<Unnormalized>(feature, stationary(), x.Q, x.K, x.V);
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

// One panel: logarithmic axes, cosine from right to left.
std::string panel(const std::array<Curve, 4>& curves, const char* title, double left) {
  constexpr double width = 330, height = 260, top = 60;
  const auto x = [&](double cos) { return left + width * (1 - std::log10(cos) / std::log10(smallest_cosine)); };
  const auto y = [&](double error) {
    const double clamped = std::clamp(error, lowest_error, highest_error);
    return top + height * (1 - std::log10(clamped / lowest_error) / std::log10(highest_error / lowest_error));
  };
  std::ostringstream svg;
  svg << "<text x='" << left + width / 2 << "' y='" << top - 12 << "' text-anchor='middle' font-weight='bold'>" << title
      << "</text>\n";
  for (int e = -8; e <= 4; e += 2) {
    const double at = y(std::pow(10.0, e));
    svg << "<path d='M" << left << ' ' << at << "h" << width << "' stroke='#ddd'/><text x='" << left - 6 << "' y='"
        << at + 4 << "' text-anchor='end'>1e" << e << "</text>\n";
  }
  for (int e = -3; e <= 0; ++e) {
    const double at = x(std::pow(10.0, e));
    svg << "<path d='M" << at << ' ' << top << "v" << height << "' stroke='#ddd'/><text x='" << at << "' y='"
        << top + height + 16 << "' text-anchor='middle'>" << std::pow(10.0, e) << "</text>\n";
  }
  svg << "<text x='" << left + width / 2 << "' y='" << top + height + 34 << "' text-anchor='middle'>cos(q, k)</text>\n";
  for (const Curve& curve : curves) {
    svg << "<polyline fill='none' stroke-width='2' stroke='" << curve.colour << "' points='";
    for (int point = 0; point < points; ++point)
      svg << x(cosine(point)) << ',' << y(curve.error[static_cast<std::size_t>(point)]) << ' ';
    svg << "'/>\n";
  }
  return svg.str();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: error_plot FILE.svg\n";
    return 2;
  }
  const auto quadratic = measure<2>(64), quartic = measure<4>(16);
  std::ofstream out(argv[1]);
  out << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 800 450' font-family='sans-serif' font-size='12'>\n"
      << "<rect width='800' height='450' fill='white'/>\n"
      << "<text x='20' y='22' font-size='14'>Relative error of one score (q·k)^P in float, median of " << pairs
      << " pairs</text>\n"
      << panel(quadratic, "P = 2, d = 64", 60) << panel(quartic, "P = 4, d = 16", 450);
  double at = 378;
  for (const Curve& curve : quadratic) {
    out << "<path d='M60 " << at << "h24' stroke-width='3' stroke='" << curve.colour << "'/><text x='92' y='" << at + 4
        << "'>" << curve.name << "</text>\n";
    at += 18;
  }
  out << "</svg>\n";
  if (!out.flush()) {
    std::cerr << "error_plot: cannot write " << argv[1] << '\n';
    return 2;
  }
  for (const int point : {0, 6, 12, 18})
    std::printf("cos %.3f   P 2 d 64: %.1e %.1e %.1e   P 4 d 16: %.1e %.1e %.1e\n", cosine(point),
                quadratic[0].error[static_cast<std::size_t>(point)],
                quadratic[1].error[static_cast<std::size_t>(point)],
                quadratic[2].error[static_cast<std::size_t>(point)], quartic[0].error[static_cast<std::size_t>(point)],
                quartic[1].error[static_cast<std::size_t>(point)], quartic[2].error[static_cast<std::size_t>(point)]);
}
