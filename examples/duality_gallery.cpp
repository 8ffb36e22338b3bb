// The scores of six linear systems above those of their softmax duals, over the bytes of a real text, as one picture.
//
//     duality_gallery [FILE] [--tokens 96] [--out duality_gallery.pgm]
//
// Fixed random projections of the bytes give every token its query, key, gate and strength; nothing is learned. Both
// systems of a pair have the same transition, so what one forgets and how it turns is to be seen in both. The program
// draws the scores, says how far back they reach, and checks that both score matrices hold the same logits. Exit
// status: 0 they do, 1 they do not, 2 bad input or output that cannot be written.
#include <sympow/io/output_file.hpp>
#include <sympow/sympow.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "text_tokens.hpp"

#ifndef SYMPOW_DUALITY_GALLERY_TEXT  // the build says where it is
#define SYMPOW_DUALITY_GALLERY_TEXT "README.md"
#endif

using namespace sympow;

namespace {

using Eigen::MatrixXd, Eigen::VectorXd;

constexpr Index d = 32, fewest = 16, most = 512;
constexpr double sharpness = 3;  // length of the queries; that of the keys is 1

struct Arguments {
  std::string text = SYMPOW_DUALITY_GALLERY_TEXT, out = "duality_gallery.pgm";
  Index tokens = 96;
};

/// The arguments that a command line says. Throws `std::invalid_argument`.
Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  bool has_text = false;
  for (std::size_t n = 0; n < words.size(); ++n) {
    const std::string& word = words[n];
    if (word == "--tokens" || word == "--out") {
      if (n + 1 == words.size() || words[n + 1].empty() || words[n + 1].starts_with("--"))
        throw std::invalid_argument(word + " needs a value");
      const std::string& value = words[++n];
      if (word == "--out") {
        arguments.out = value;
        continue;
      }
      const bool is_number = value.size() <= 8 && value.find_first_not_of("0123456789") == std::string::npos;
      arguments.tokens = is_number ? std::stol(value) : 0;
      if (arguments.tokens < fewest || arguments.tokens > most)
        throw std::invalid_argument("--tokens is " + value + ", must be a whole number of " + std::to_string(fewest) +
                                    " to " + std::to_string(most));
    } else if (word.starts_with("-") && word != "-") {
      throw std::invalid_argument("unknown option " + word + "; see duality_gallery --help");
    } else if (has_text || word.empty()) {
      throw std::invalid_argument(word.empty() ? "FILE is an empty name" : "two texts are given");
    } else {
      arguments.text = word;
      has_text = true;
    }
  }
  return arguments;
}

/// What all systems take. A query and a key have the direction of their token: its byte's, and a part that all tokens
/// share, in the pair of coordinates that RoPE turns around in `wave` tokens. As the bias of a layer would, that part
/// gives logits what knows positions alone.
struct Tokens {
  static constexpr Index pair = 2;
  MatrixXd Q, K;
  VectorXd log_gamma, beta, theta = rope_frequencies<double>(d);

  explicit Tokens(const std::string& text) {
    MatrixXd X = text_tokens::project<double>(text, d, 1, 1) / std::sqrt(static_cast<double>(d));
    X.middleRows<2>(2 * pair).array() += .5;
    K = systems::unit_columns(X);
    Q = sharpness * K;
    const auto one_number = [&](std::uint64_t seed) { return text_tokens::project<double>(text, 1, seed, 1); };
    log_gamma = systems::log_sigmoid(9 + 5 * one_number(8).array()).reshaped();
    beta = systems::sigmoid(one_number(3).array() - 2).reshaped();
  }

  [[nodiscard]] double wave() const { return 2 * std::numbers::pi / theta[pair]; }
};

/// A pair of systems and their scores: entry (j, i) is what query i makes of key j. Linear scores have either sign;
/// those of a softmax are weights with the sum 1.
struct Pair {
  const char *name, *dual_name, *to_see;
  MatrixXd linear, softmax;
  double disagreement = 0;  // of their logits
};

/// Both score matrices: with V = I the outputs are the scores, those of a delta rule without the factor β_j of its
/// values. One transition means one logit q_i·M_ij k_j,
///
///     s_ij / b_ij = q_i·M_ij k_j = log(p_ij / p_ii) - log b_ij + s_ii
///
/// for the linear scores s and the weights p of the softmax, as b_ii = 1. Beyond e^-500 numbers are too small to tell.
template <class System>
Pair examine(const char* name, const char* dual_name, const char* to_see, const System& system, const Tokens& tokens) {
  const MatrixXd identity = MatrixXd::Identity(tokens.Q.cols(), tokens.Q.cols());
  const auto scores = [&](const auto& of) {
    return attention(of.feature, of.transition, tokens.Q, tokens.K, identity);
  };
  Pair pair{name, dual_name, to_see, scores(system), scores(systems::dual(system))};
  const MatrixXd D = gate_distances(system.transition, identity.cols());  // -log b
  const auto &s = pair.linear, &p = pair.softmax;
  MatrixXd difference = MatrixXd::Zero(D.rows(), D.cols());
  for (Index i = 0; i < D.cols(); ++i)
    for (Index j = 0; j <= i; ++j)
      if (D(j, i) <= 500)
        difference(j, i) = s(j, i) * std::exp(D(j, i)) - s(i, i) - std::log(p(j, i) / p(i, i)) - D(j, i);
  pair.disagreement = difference.cwiseAbs().maxCoeff<Eigen::PropagateNaN>();
  return pair;
}

/// Within how many tokens half of a row's weight lies, on average over the later half of the rows.
double half_of_the_weight(const MatrixXd& scores) {
  const Index T = scores.cols(), first = T / 2;
  double sum = 0;
  for (Index i = first; i < T; ++i) {
    const VectorXd weight = scores.col(i).head(i + 1).cwiseAbs();
    double left = weight.sum() / 2;
    Index back = 0;
    while (back < i && (left -= weight[i - back]) > 0) ++back;
    sum += static_cast<double>(back);
  }
  return sum / static_cast<double>(T - first);
}

/// Brightness from 0 to 1 of a score, by the size of its row's largest and on a logarithmic scale of `decades`: grey is
/// nothing, white much, black much and negative.
MatrixXd brightness(const MatrixXd& scores) {
  constexpr double decades = 2;
  MatrixXd picture = MatrixXd::Constant(scores.cols(), scores.cols(), .5);
  for (Index i = 0; i < scores.cols(); ++i) {
    const double largest = scores.col(i).head(i + 1).cwiseAbs().maxCoeff();
    for (Index j = 0; j <= i && largest > 0; ++j) {
      const double size = std::max(0., 1 + std::log10(std::abs(scores(j, i)) / largest) / decades);
      picture(i, j) += std::copysign(size / 2, scores(j, i));
    }
  }
  return picture;
}

/// All linear systems in a row above their duals, pixels white between them.
MatrixXd draw(const std::vector<Pair>& pairs) {
  constexpr Index margin = 6, width_of_panel = 192;
  const Index T = pairs[0].linear.cols(), side = std::max<Index>(1, width_of_panel / T), panel = T * side;
  const Index step = panel + margin;
  MatrixXd picture = MatrixXd::Ones(2 * step - margin, static_cast<Index>(pairs.size()) * step - margin);
  for (std::size_t n = 0; n < pairs.size(); ++n)
    for (const bool below : {false, true}) {
      const MatrixXd small = brightness(below ? pairs[n].softmax : pairs[n].linear);
      picture.block(below ? step : 0, static_cast<Index>(n) * step, panel, panel) =
          MatrixXd::NullaryExpr(panel, panel, [&](Index y, Index x) { return small(y / side, x / side); });
    }
  return picture;
}

/// Writes a raw PGM. Throws `std::invalid_argument` if that is not possible.
void write_pgm(const std::string& path, const MatrixXd& picture) {
  std::ofstream file(path, std::ios::binary);
  file << "P5\n" << picture.cols() << ' ' << picture.rows() << "\n255\n";
  for (Index y = 0; y < picture.rows(); ++y)
    for (Index x = 0; x < picture.cols(); ++x)
      file.put(static_cast<char>(static_cast<unsigned char>(std::lround(255 * picture(y, x)))));
  if (!file.flush()) throw std::invalid_argument("--out " + path + ": cannot be written");
}

int run(const Arguments& arguments) {
  std::error_code ignored;
  if (std::filesystem::is_directory(arguments.text, ignored))
    throw std::invalid_argument(arguments.text + " is a directory, must be a text");
  if (std::filesystem::equivalent(arguments.text, arguments.out, ignored))
    throw std::invalid_argument("--out " + arguments.out + ": is the text itself");
  std::string text = text_tokens::read(arguments.text);
  text.resize(std::min(text.size(), static_cast<std::size_t>(arguments.tokens)));
  if (std::ssize(text) < fewest)
    throw std::invalid_argument(arguments.text + " holds " + std::to_string(text.size()) +
                                " bytes, must hold at least " + std::to_string(fewest));

  const Tokens tokens(text);
  std::vector<Pair> pairs;
  const auto start = std::chrono::steady_clock::now();
  const auto add = [&](const char* name, const char* dual_name, const char* to_see, const auto& system) {
    pairs.push_back(examine(name, dual_name, to_see, system, tokens));
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(1))
      std::fprintf(stderr, "  %zu of 6 pairs, %s\n", pairs.size(), name);
  };
  add("linear attention", "NoPE", "tokens that are alike, at any distance", systems::linear_attention());
  add("RetNet", "ALiBi", "fades from the diagonal at one rate", systems::retnet(systems::retnet_gamma(0)));
  add("Mamba-2", "FoX", "fades in steps, where gates close", systems::mamba2(tokens.log_gamma));
  add("complex gate", "RoPE", "stripes: queries and keys turn",
      systems::complex_gate(tokens.theta, Pairing::interleaved));
  add("DeltaNet", "PaTH", "a key fades as others like it come", systems::delta_net(tokens.K, tokens.beta));
  add("Gated DeltaNet", "PaTH-FoX", "both: like keys, and gates",
      systems::gated_delta_net(tokens.K, tokens.beta, tokens.log_gamma));
  write_pgm(arguments.out, draw(pairs));

  std::printf(
      "%s: the first %td bytes as tokens; d = %td, double\n"
      "%s: six columns, a linear system above its softmax dual. Row i of a panel is what token i makes of the\n"
      "tokens j <= i: white is much, grey nothing, black much and negative, by the row's largest and over two "
      "decades\n\n",
      arguments.text.c_str(), std::ssize(text), d, arguments.out.c_str());
  std::printf("%-27s%-27s%s\n", "", "half of the weight lies", "logits of both");
  std::printf("%-17s%-10s%-27s%-15s%s\n", "above", "below", "within: above, below", "differ by", "to be seen in both");
  for (const Pair& pair : pairs)
    std::printf("%-17s%-10s%4.1f%7.1f tokens%9s%-15.1e%s\n", pair.name, pair.dual_name, half_of_the_weight(pair.linear),
                half_of_the_weight(pair.softmax), "", pair.disagreement, pair.to_see);
  std::printf("\nRoPE turns what all tokens share once in %.1f tokens, the distance of the stripes.\n", tokens.wave());
  io::require_printed();
  return std::ranges::all_of(pairs, [](const Pair& pair) { return pair.disagreement <= 1e-9; }) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (std::ranges::find_first_of(words, std::array{"--help", "-h"}) == words.end()) return run(parse(words));
    std::printf(
        "usage: duality_gallery [FILE] [--tokens 96] [--out duality_gallery.pgm]\n"
        "Draws the scores of six linear systems above those of their softmax duals. FILE is any text, - standard "
        "input; default: %s\n"
        "--tokens: how many of its bytes, %td to %td; --out: a PGM\n",
        SYMPOW_DUALITY_GALLERY_TEXT, fewest, most);
    io::require_printed();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "duality_gallery: " << error.what() << '\n';
    return 2;
  }
}
