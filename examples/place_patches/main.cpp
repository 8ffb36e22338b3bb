// The patches of a picture attend to each other, placed by no position, by one coordinate (their place in reading
// order) and by two.
//
//     place_patches [PICTURE.pnm] [--patch 8] [--query ROW,COL] [--out attend.ppm]
//
// A patch without its mean, through a fixed random projection, is both query and key: attention by resemblance and
// nearness. Nothing is learned. The program moves the picture and says which logits change, and draws where one patch
// attends.
//
// grace_hopper.pgm: Commodore Grace M. Hopper, official portrait photograph of the United States Navy, January 1984, in
// the public domain; cropped and reduced to 160 x 192 greys from the copy among matplotlib's sample data.
#include <sympow/core/random.hpp>
#include <sympow/io/output_file.hpp>
#include <sympow/structured/generator_families.hpp>
#include <sympow/sympow.hpp>
#include <sympow/verify/proposition.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "picture.hpp"

using namespace sympow;

namespace place_patches {
namespace {

using Eigen::MatrixXd, Eigen::VectorXd;

constexpr Index d = 64, most_patches = 2048;
constexpr Index down = 2, right = 3;  // patches that the picture moves by
constexpr double base = 10;           // of the rates in two dimensions, 1 to 1/10 radian a patch
constexpr double common = 2;          // squared length of what all tokens share
constexpr double u = verify::unit_roundoff<double>;

struct Size {
  Index rows, columns;
  [[nodiscard]] Index patches() const { return rows * columns; }
};

Size widened(const Size& size) { return {size.rows + down, size.columns + right}; }

/// Square patches in reading order, a token each: mean-free, projected to d dimensions, of length 1 on average, plus
/// one vector for all. As the bias of a layer would, that vector gives a logit a part that knows the positions alone.
struct Patches {
  Size size;
  MatrixXd tokens;  // d × patches

  Patches(const Picture& picture, Index side)
      : size{picture.rows() / side, picture.cols() / side}, tokens(side * side, size.patches()) {
    for (Index n = 0; n < size.patches(); ++n) {
      const Index row = n / size.columns, column = n % size.columns;
      tokens.col(n) = picture.block(row * side, column * side, side, side).reshaped();
      tokens.col(n).array() -= tokens.col(n).mean();
    }
    tokens = (Random(1).matrix(d, side * side) * tokens).eval();
    const double norm = tokens.norm();
    if (norm > 1e-9) tokens *= std::sqrt(static_cast<double>(size.patches())) / norm;
    tokens.array() += std::sqrt(common / static_cast<double>(d));
  }

  /// Where the patches are among those of a larger canvas, if the first is put at `row`, `column`.
  [[nodiscard]] std::vector<Index> in(const Size& canvas, Index row, Index column) const {
    std::vector<Index> places;
    for (Index n = 0; n < size.patches(); ++n)
      places.push_back((row + n / size.columns) * canvas.columns + column + n % size.columns);
    return places;
  }
};

/// q_iᵀ M_ij k_j (row j, column i) of the picture's patches on a canvas that is empty elsewhere. With the identity for
/// values, the outputs are the scores, and the score of `Linear` is the logit.
template <class Place>
MatrixXd logits(const Patches& patches, const Place& place, const Size& canvas, Index row, Index column) {
  const auto places = patches.in(canvas, row, column);
  MatrixXd X = MatrixXd::Zero(d, canvas.patches());
  X(Eigen::all, places) = patches.tokens;
  const MatrixXd scores = attention(Linear{}, place(canvas), X, X, MatrixXd::Identity(X.cols(), X.cols()));
  return scores(places, places);
}

/// The largest |difference| of two tables of logits, relative to the lengths of query and key.
double change(const Patches& patches, const MatrixXd& a, const MatrixXd& b) {
  const VectorXd lengths = patches.tokens.colwise().norm();
  return ((a - b).array().abs() / (lengths * lengths.transpose()).array()).maxCoeff();
}

/// What a kind of position does: to the logits when the picture moves, and with the attention of one patch.
struct Findings {
  const char* name;
  double moved, widened;  // largest changes of a logit
  VectorXd weights;       // of the query over all patches
};

template <class Place>
Findings examine(const char* name, const Patches& patches, Index query, const Place& place) {
  const Size own = patches.size, wide = widened(own);
  const MatrixXd alone = logits(patches, place, own, 0, 0), at_corner = logits(patches, place, wide, 0, 0),
                 shifted = logits(patches, place, wide, down, right);
  const MatrixXd& X = patches.tokens;
  const MatrixXd weights =
      attention(SymmetricPower<2>{}, place(own), X, X, MatrixXd::Identity(own.patches(), own.patches()));
  return {name, change(patches, at_corner, shifted), change(patches, alone, shifted), weights.col(query)};
}

/// What rounding may do to a logit, of ‖q‖‖k‖: sums of d products, and angles that are rounded at every step of up to a
/// radian.
double rounding(const Size& size) { return 4 * u * static_cast<double>(d + size.patches()); }

std::string described(double change) {
  std::ostringstream text;
  text << std::setprecision(2) << change;
  if (change > 0 && change < 1e-10) text << " = " << std::lround(change / u) << " u";
  return text.str();
}

/// Σ_j w_j |r_j - r_query|, in patches.
double mean_distance(const Findings& findings, const Size& size, Index query) {
  const MatrixXd r = grid_positions({size.rows, size.columns});
  return (r.colwise() - r.col(query)).colwise().norm() * findings.weights;
}

/// The picture in the colours of the weights, one panel after the other. The query is framed; what it does not see is
/// dark.
Colours draw(const Picture& picture, Index side, const Size& size, Index query, const std::vector<Findings>& all) {
  constexpr Index margin = 8;
  constexpr std::array<double, 3> warm = {1, .55, .1}, frame = {.2, .9, 1};
  const Index step = picture.cols() + margin;
  Colours colours;
  for (std::size_t c = 0; c < 3; ++c) {
    colours[c].setOnes(picture.rows(), static_cast<Index>(all.size()) * step - margin);
    for (std::size_t n = 0; n < all.size(); ++n) {
      auto panel = colours[c].middleCols(static_cast<Index>(n) * step, picture.cols());
      panel = .2 * picture;
      const VectorXd& weights = all[n].weights;
      for (Index patch = 0; patch <= query; ++patch) {
        const auto square = [&](auto& of) {
          return of.block(patch / size.columns * side, patch % size.columns * side, side, side).array();
        };
        const double heat = std::sqrt(weights[patch] / weights.maxCoeff());
        square(panel) = (1 - heat) * .5 * square(picture) + heat * warm[c] * (.4 + .6 * square(picture));
        if (patch != query) continue;
        const MatrixXd inside = square(panel).block(1, 1, side - 2, side - 2);
        square(panel).setConstant(frame[c]);
        square(panel).block(1, 1, side - 2, side - 2) = inside.array();
      }
    }
  }
  return colours;
}

int run(const Arguments& arguments) {
  const Picture picture = read_picture(arguments.picture);
  std::error_code ignored;
  if (std::filesystem::equivalent(arguments.picture, arguments.out, ignored))
    fail("--out ", arguments.out, ": is the picture itself");
  const Index side = arguments.patch;
  const Size size{picture.rows() / side, picture.cols() / side};
  if (size.rows < 2 || size.columns < 2 || size.patches() > most_patches)
    fail("--patch ", side, ": cuts ", arguments.picture, ", ", picture.cols(), " x ", picture.rows(), " pixels, into ",
         size.rows, " rows of ", size.columns, " patches, must be 2 of 2 at least and ", most_patches,
         " patches at most");
  const auto [row, column] =
      arguments.query.value_or(std::pair(static_cast<int>(size.rows * 5 / 6), static_cast<int>(size.columns * 5 / 6)));
  if (row >= size.rows || column >= size.columns)
    fail("--query is ", row, ',', column, ", must be at most ", size.rows - 1, ',', size.columns - 1);
  const Index query = row * size.columns + column;

  const Patches patches(picture, side);
  const auto theta = rope_frequencies<double>(d);
  const auto in_two_dimensions = [](const CommutingGenerators<double>& family) {
    return [family](const Size& canvas) {
      return structured_rotary(family, grid_positions({canvas.rows, canvas.columns}));
    };
  };
  const std::vector<Findings> all = {
      examine("none", patches, query, [](const Size&) { return stationary(); }),
      examine("1-D rotary, reading order", patches, query,
              [&](const Size&) { return rotary(theta, Pairing::interleaved); }),
      examine("2-D rotary, axial", patches, query, in_two_dimensions(axial_family<double>(d, 2, base))),
      examine("2-D rotary, mixed", patches, query, in_two_dimensions(mixed_family<double>(d, 2, 1, base)))};

  write_picture(arguments.out, draw(picture, side, size, query, {all[0], all[1], all[3]}));
  std::printf("%s: %td rows of %td patches of %td x %td pixels; d = %td, P = 2, double\n\n", arguments.picture.c_str(),
              size.rows, size.columns, side, side, d);
  std::printf("%-28s%s %td patches down and %td to the right,\n", "", "the picture moves", down, right);
  std::printf("%-28s%-42s%s (%d, %d)\n", "", "a logit changes by at most, of |q||k|:", "patch", row, column);
  std::printf("%-28s%-19s%-23s%s\n", "positions", "on one canvas", "onto a wider canvas", "attends to");
  for (const Findings& findings : all)
    std::printf("%-28s%-19s%-23s%.1f patches away\n", findings.name, described(findings.moved).c_str(),
                described(findings.widened).c_str(), mean_distance(findings, size, query));

  std::printf(
      "\n%s: where patch (%d, %d) attends, framed, of those before it in reading order;\n"
      "without positions, by 1-D rotary, by mixed 2-D rotary\n",
      arguments.out.c_str(), row, column);
  io::require_printed();
  double largest = all[1].moved;
  for (const std::size_t n : {0U, 2U, 3U}) largest = std::max({largest, all[n].moved, all[n].widened});
  return largest <= rounding(widened(size)) ? 0 : 1;
}

// One line, whatever a name holds.
int refuse(std::string message) {
  std::replace_if(message.begin(), message.end(), [](unsigned char c) { return c < 32 || c == 127; }, '?');
  std::cerr << "place_patches: " << message << '\n';
  return 2;
}

}  // namespace
}  // namespace place_patches

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (std::ranges::find_first_of(words, std::array{"--help", "-h"}) == words.end())
      return place_patches::run(place_patches::parse(words));
    std::fputs(place_patches::usage, stdout);
    io::require_printed();
    return 0;
  } catch (const std::exception& error) {
    return place_patches::refuse(error.what());
  }
}
