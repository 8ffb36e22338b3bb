// The options of the program.
#pragma once

#include <Eigen/Core>

#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "picture.hpp"

#ifndef SYMPOW_PLACE_PATCHES_PICTURE  // the build says where it is
#define SYMPOW_PLACE_PATCHES_PICTURE "examples/place_patches/grace_hopper.pgm"
#endif

namespace place_patches {

inline constexpr const char* usage =
    R"(Attention among the patches of a picture, with positions of none, one and two coordinates.

  place_patches [PICTURE.pnm] [--patch 8] [--query ROW,COL] [--out attend.ppm]

  PICTURE.pnm   PGM or PPM, ASCII or raw (P2, P3, P5, P6), read as brightness; default: the portrait that comes with the program
  --patch       pixels along the side of a patch, 2 to 256, default 8; what is left over at the right and below is cut off
  --query       the patch whose attention is drawn, counted from 0; default: at five sixths of the way down and to the right.
                Attention is causal in reading order: a patch sees those above it, those to its left, and itself
  --out         a PPM of where that patch attends: without positions, by rotary over the reading order, by rotary in two dimensions

Exit status: 0 done, 1 a logit depends on where the picture is and must not, 2 bad input or output that cannot be
written, with one line that says what.
)";

struct Arguments {
  std::string picture = SYMPOW_PLACE_PATCHES_PICTURE, out = "attend.ppm";
  int patch = 8;
  std::optional<std::pair<int, int>> query;  // row, column
};

namespace detail {

/// A whole number of at most eight digits and nothing else; none otherwise.
inline std::optional<int> whole_number(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc{} && end == text.data() + text.size() && number >= 0 && text.size() <= 8;
  return is_number ? std::optional(number) : std::nullopt;
}

}  // namespace detail

/// The arguments that a command line says. Throws `BadInput`.
inline Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  bool has_picture = false;
  for (std::size_t n = 0; n < words.size(); ++n) {
    const std::string& word = words[n];
    if (!word.starts_with("-")) {
      if (word.empty()) fail("PICTURE.pnm is an empty name");
      if (std::exchange(has_picture, true)) fail("two pictures are given, ", arguments.picture, " and ", word);
      arguments.picture = word;
      continue;
    }
    if (word != "--patch" && word != "--query" && word != "--out")
      fail("unknown option ", word, "; see place_patches --help");
    if (n + 1 == words.size() || words[n + 1].empty() || words[n + 1].starts_with("--")) fail(word, " needs a value");
    const std::string& value = words[++n];
    if (word == "--out") arguments.out = value;
    if (word == "--patch") {
      const auto side = detail::whole_number(value);
      if (!side || *side < 2 || *side > 256) fail("--patch is ", value, ", must be a whole number of 2 to 256");
      arguments.patch = *side;
    }
    if (word == "--query") {
      const std::size_t comma = std::min(value.find(','), value.size());
      const auto row = detail::whole_number(value.substr(0, comma)),
                 column = detail::whole_number(value.substr(std::min(comma + 1, value.size())));
      if (!row || !column) fail("--query is ", value, ", must be ROW,COL, two whole numbers");
      arguments.query = {*row, *column};
    }
  }
  return arguments;
}

}  // namespace place_patches
