// Conformal-sympow over the bytes of a real text, in all three forms, with the recurrent one resumed from a copy of its
// state.
//
//     text_stream FILE        FILE may be - for standard input
//
// Fixed random projections of the one-hot bytes t, t - 1, t - 2 and t - 3 give every token its query, key, value, gate
// and rotation rate, as a layer's weights would. Nothing is learned: the program shows that the forms are one function
// on data that was not made for them, and what each of them costs.
#include <sympow/sympow.hpp>
#include <sympow/verify/proposition.hpp>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "double_rows.hpp"
#include "text_tokens.hpp"

using namespace sympow;

namespace {

constexpr Index d = 32, e = 32;
constexpr Index longest = 1 << 16;  // tokens; the attention form is quadratic in them
using Feature = SymmetricPower<2>;

template <class F>
double seconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(const std::string& path) {
  std::string text = text_tokens::read(path);
  if (text.size() < 2) throw std::runtime_error(path + " must hold at least two bytes");
  const std::size_t bytes = text.size();
  text.resize(std::min(bytes, static_cast<std::size_t>(longest)));
  const Index T = static_cast<Index>(text.size());
  std::printf("%s: %zu bytes, the first %td as tokens; P = 2, d = %td, e = %td, float\n",
              path == "-" ? "standard input" : path.c_str(), bytes, T, d, e);

  const Matrix<float> Q = text_tokens::project<float>(text, d, 1), K = text_tokens::project<float>(text, d, 2),
                      V = text_tokens::project<float>(text, e, 3);
  const Eigen::ArrayXd gate = text_tokens::project<float>(text, 1, 4).row(0).cast<double>(),
                       rate = text_tokens::project<float>(text, 1, 5).row(0).cast<double>();
  const Eigen::VectorXd log_gamma =
      -(-gate - 6).exp().log1p();  // log σ(x + 6) = -log(1 + e^{-x-6}): windows of hundreds of bytes
  const Eigen::VectorXd beta = 1 + rate.tanh(), theta = rotary_frequencies<double>(d, 4096);
  const auto conformal = [&](Index begin, Index n) {
    return decay(log_gamma.segment(begin, n)) * rotary(theta, beta.segment(begin, n), Pairing::interleaved);
  };

  Matrix<float> direct, streamed(e, T), in_chunks;
  State<float, Feature> state(d, e), other(d, e);
  const auto progress = [](const char* step) { std::fprintf(stderr, "  %s ...\n", step); };
  progress("attention form");
  const double direct_time = seconds([&] { direct = attention(Feature{}, conformal(0, T), Q, K, V); });
  progress("recurrent form");
  const Index half = T / 2, rest = T - half;
  const double streamed_time = seconds([&] {
    streamed.leftCols(half) =
        recurrent(Feature{}, conformal(0, half), Q.leftCols(half), K.leftCols(half), V.leftCols(half), state);
    State resumed = state;  // a value: the copy goes on, the original stays in the middle
    streamed.rightCols(rest) =
        recurrent(Feature{}, conformal(half, rest), Q.rightCols(rest), K.rightCols(rest), V.rightCols(rest), resumed);
  });
  progress("chunked form");
  const double chunked_time = seconds([&] { in_chunks = chunked(Feature{}, conformal(0, T), Q, K, V, other); });

  progress("every row against attention in double");
  const verify::DirectRows<double> rows = verify::double_rows(Feature{}, conformal(0, T), Q, K, V);
  bool agree = true;
  std::printf("\n%-12s%16s%26s\n", "form", "tokens/s", "error by the row rule");
  const auto report = [&](const char* form, double time, const Matrix<float>& Y, double tokens_per_update) {
    const double ratio = verify::row_rule<DefaultNormalization, Feature>(rows, Y, rows.Y, verify::unit_roundoff<float>,
                                                                         tokens_per_update);
    agree = agree && ratio <= 1;
    std::printf("%-12s%16.0f%18.3f %s\n", form, static_cast<double>(T) / time, ratio, ratio <= 1 ? "holds" : "BROKEN");
  };
  report("attention", direct_time, direct, std::numeric_limits<double>::infinity());
  report("recurrent", streamed_time, streamed, 1);
  report("chunked", chunked_time, in_chunks,
         static_cast<double>(cheapest_chunk(
             {.T = T, .d = d, .e = e, .D = static_cast<double>(state.normalizer().size()), .keeps_state = true})));
  std::printf(
      "\nThe error is the worst row's, against attention in double, in units of 4u K max|V| (1 + sqrt n); up to 1 is "
      "rounding.\n"
      "The recurrent form stopped at token %td and went on from a copy of its state: %td bytes, for any length of "
      "text.\n",
      half, state.bytes());
  return agree ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: text_stream FILE   (- for standard input)\n";
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "text_stream: " << error.what() << '\n';
    return 2;
  }
}
