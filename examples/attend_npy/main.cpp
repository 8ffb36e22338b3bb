// Attention on a user's own arrays, from numpy or PyTorch, in any form: see `usage` in arguments.hpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <limits>
#include <new>

#include "attend.hpp"
#include "features.hpp"
#include "output_file.hpp"

using namespace attend_npy;

namespace {

std::string whole(double x) {
  std::array<char, 400> digits{};
  std::snprintf(digits.data(), digits.size(), "%.0f", x);
  return digits.data();
}

// The form of a problem, the chosen one or the cheapest, and its chunk unless that is chosen. Throws `BadInput` if it needs a
// state that is too large.
Form choose_form(Problem& problem) {
  const Arguments& arguments = problem.arguments;
  if (!arguments.has_state()) return Form::attention;
  const std::size_t scalar = problem.Q.holds<float>() ? sizeof(float) : sizeof(double);
  const double D = dimension(arguments, problem.d), tokens = static_cast<double>(problem.layout.tokens);
  const sympow::HeadShape shape{.T = problem.layout.tokens,
                                .d = problem.d,
                                .e = problem.e,
                                .D = D,
                                .action = problem.W ? sympow::KeyAction::mix : sympow::KeyAction::none,
                                .keeps_state = arguments.has_state_file(),
                                .from_nothing = arguments.state_in.empty()};
  if (arguments.chunk == 0) problem.arguments.chunk = sympow::cheapest_chunk(shape);
  const Index chunk = std::min(problem.layout.tokens, arguments.chunk);
  const double projections = arguments.feature == Feature::random ? D * static_cast<double>(problem.d) * 8 : 0;
  const double bytes = state_bytes(D, problem.e, scalar) + chunk_bytes(D, chunk, scalar) + projections;

  const Form form = arguments.form == Form::automatic ? sympow::cheapest_form(shape) : arguments.form;
  const double of_attention = D * tokens * static_cast<double>(scalar) + projections;  // φ of all keys
  if (arguments.feature == Feature::random && std::max(bytes, of_attention) > most_state_bytes)
    fail("--features ", arguments.features, ": projections, a state and embeddings take ",
         whole(std::max(bytes, of_attention)), " bytes, must be at most ", whole(most_state_bytes));
  if ((form != Form::attention || arguments.compare) && bytes > most_state_bytes)
    fail("P = ", arguments.degree(), " on d = ", problem.d, " and e = ", problem.e, " needs D = ", whole(D),
         ": a state and a chunk of ", chunk, " tokens take ", whole(bytes), " bytes, must be at most ",
         whole(most_state_bytes), "; --form attention needs neither, without --compare and state files");
  if (!arguments.state_out.empty()) {
    std::error_code error;
    const auto folder = std::filesystem::absolute(arguments.state_out, error).parent_path();
    const auto space = std::filesystem::space(folder, error);
    const double needed = state_bytes(D, problem.e, scalar) * static_cast<double>(problem.layout.count());
    if (!error && needed > static_cast<double>(space.available))
      fail("--state-out ", arguments.state_out, ": ", problem.layout.count(), " states take ", whole(needed),
           " bytes, there are ", space.available, " left");
  }
  return form;
}

void describe(const Problem& problem) {
  const char* forms[] = {"", "attention", "recurrent", "chunked"};
  const char* features[] = {"power", "linear", "exponential", "random"};
  const Arguments& arguments = problem.arguments;
  std::printf("%s%s, %td head%s of %td tokens, d = %td, e = %td, %s, %s form\n",
              features[static_cast<int>(arguments.feature)],
              arguments.feature == Feature::power    ? (" " + std::to_string(arguments.power)).c_str()
              : arguments.feature == Feature::random ? (" " + std::to_string(arguments.features)).c_str()
                                                     : "",
              problem.layout.count(), problem.layout.count() == 1 ? "" : "s", problem.layout.tokens, problem.d,
              problem.e, problem.Q.holds<float>() ? "float" : "double", forms[static_cast<int>(problem.form)]);
}

// The tokens at which a chain can make a key longer: β |w|² is not in [0, 2], but for rounding.
template <class Scalar>
Index growing_steps(const Problem& problem) {
  constexpr double most = 2 + 16 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  const auto count = static_cast<Index>(problem.strength->size());
  const Eigen::Map<const sympow::Matrix<Scalar>> w(problem.W->data<Scalar>(), problem.d, count);
  Index found = 0;
  for (Index n = 0; n < count; ++n) {
    const double step =
        (*problem.strength)[static_cast<std::size_t>(n)] * w.col(n).template cast<double>().squaredNorm();
    if (!(0 <= step && step <= most)) ++found;
  }
  return found;
}

void report(const Problem& problem, const Comparison& found) {
  if (!problem.arguments.state_in.empty()) std::printf("recurrent and chunked from --state-in\n");
  // Rows in double are those of the attention form; of exponential scores and under a chain, those of the definition.
  const bool is_reference =
      !problem.Q.holds<float>() && problem.arguments.feature != Feature::exponential && !problem.W;
  for (const auto& [form, ratio] : found.from_reference)
    if (is_reference && form == "attention")
      std::printf("attention   gives the rows in double\n");
    else
      std::printf("%-10s %8.3f from the rows in double\n", form.c_str(), ratio);
  std::printf("largest    %8.3f by the row rule: the forms %s\n", found.largest,
              found.largest <= 1 ? "agree" : "DISAGREE");
  if (found.without_information > 0)
    std::printf("%td of %td rows hold no information and were not compared\n", found.without_information, found.rows);
  if (found.out_of_range > 0)
    std::printf("%td of %td rows leave the range of the type and were not compared\n", found.out_of_range, found.rows);
}

template <class Scalar>
int run(const Problem& problem) {
  const Arguments& arguments = problem.arguments;
  const std::string state_in_name = "--state-in " + arguments.state_in;
  std::ifstream state_in;
  if (!arguments.state_in.empty()) {
    std::error_code error;
    if (!std::filesystem::exists(arguments.state_in, error)) fail(state_in_name, ": there is no such file");
    if (!std::filesystem::is_regular_file(arguments.state_in, error)) fail(state_in_name, ": is not a regular file");
    state_in.open(arguments.state_in, std::ios::binary);
    if (!state_in) fail(state_in_name, ": cannot be read");
  }
  OutputFiles files;
  std::ostream& out = files.open("--out", arguments.out);
  std::ostream* diagnostics =
      arguments.diagnostics.empty() ? nullptr : &files.open("--diagnostics", arguments.diagnostics);
  std::ostream* state_out = arguments.state_out.empty() ? nullptr : &files.open("--state-out", arguments.state_out);

  const Results<Scalar> results =
      attend<Scalar>(problem, arguments.state_in.empty() ? nullptr : &state_in, state_out, state_in_name);
  write_npy(out, problem.V.shape, results.Y);
  if (diagnostics != nullptr) {
    Shape shape = problem.V.shape;
    shape.back() = 3;
    write_npy(*diagnostics, shape, results.diagnostics);
  }
  files.commit();

  describe(problem);
  if (problem.W)
    if (const Index growing = growing_steps<Scalar>(problem); growing > 0)
      std::printf("%td of %td steps of the chain make keys grow, their ST |w|^2 is not in [0, 2]\n", growing,
                  static_cast<Index>(problem.strength->size()));
  const auto beyond = std::count_if(results.Y.begin(), results.Y.end(), [](Scalar y) { return !std::isfinite(y); });
  if (beyond > 0) std::printf("%td entries of Y are beyond the range of the type\n", beyond);
  if (arguments.compare) report(problem, results.comparison);
  return results.comparison.largest <= 1 ? 0 : 1;
}

int run(const Arguments& arguments) {
  Problem problem = read_problem(arguments);
  problem.form = choose_form(problem);
  return problem.Q.holds<float>() ? run<float>(problem) : run<double>(problem);
}

// One line, whatever a file's name or header holds.
int refuse(std::string message) {
  std::replace_if(message.begin(), message.end(), [](unsigned char c) { return c < 32 || c == 127; }, '?');
  std::cerr << "attend_npy: " << message << '\n';
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (std::find(words.begin(), words.end(), "--help") != words.end() ||
      std::find(words.begin(), words.end(), "-h") != words.end()) {
    std::cout << usage;
    return 0;
  }
  try {
    return run(parse(words));
  } catch (const std::bad_alloc&) {
    return refuse("there is not enough memory for these arrays");
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}
