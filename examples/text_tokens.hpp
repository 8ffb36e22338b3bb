// A text as tokens: its bytes through fixed random projections, as a layer's weights would take them in.
#pragma once

#include <sympow/core/random.hpp>

#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace text_tokens {

/// The bytes of a file, or of standard input for "-".
inline std::string read(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& input = path == "-" ? std::cin : file;
  if (!input) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(input), {}};
}

/// W x_t for the one-hot bytes t, t - 1, … of a context: the sum of one column of W for each of them. One token a
/// column; entries are standard normal over the seeds.
template <class Scalar>
sympow::Matrix<Scalar> project(const std::string& bytes, sympow::Index rows, std::uint64_t seed,
                               sympow::Index context = 4) {
  using sympow::Index, sympow::Matrix;
  sympow::Random random(seed);
  const Matrix<Scalar> W = random.matrix<Scalar>(rows, 256 * context) / std::sqrt(static_cast<Scalar>(context));
  Matrix<Scalar> projected = Matrix<Scalar>::Zero(rows, static_cast<Index>(bytes.size()));
  for (Index t = 0; t < projected.cols(); ++t)
    for (Index back = 0; back < context && back <= t; ++back) {
      const auto byte = static_cast<unsigned char>(bytes[static_cast<std::size_t>(t - back)]);
      projected.col(t) += W.col(256 * back + byte);
    }
  return projected;
}

}  // namespace text_tokens
