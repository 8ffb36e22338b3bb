// Attention on a user's own arrays, from numpy or PyTorch, in any form: see `usage` in arguments.hpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <new>
#include <span>

#include "attend.hpp"
#include "features.hpp"
#include "gradient_files.hpp"
#include "output_files.hpp"
#include "process.hpp"
#include "read_problem.hpp"

using namespace attend_npy;

namespace {

std::string whole(double x) {
  std::array<char, 400> digits{};
  std::snprintf(digits.data(), digits.size(), "%.0f", x);
  return digits.data();
}

// The form of a problem, the chosen one or the cheapest, and its chunk unless that is chosen. Throws `BadInput` if it
// needs a state that is too large.
Form choose_form(Problem& problem) {
  const Arguments& arguments = problem.arguments;
  if (!arguments.has_state()) return Form::attention;
  const std::size_t scalar = problem.Q.holds<float>() ? sizeof(float) : sizeof(double);
  const double D = dimension(arguments, problem.d), tokens = static_cast<double>(problem.longest());
  const sympow::ProblemShape shape{.T = problem.longest(),
                                   .d = problem.d,
                                   .e = problem.e,
                                   .D = D,
                                   .action = problem.W ? sympow::KeyAction::mix : sympow::KeyAction::none,
                                   .keeps_state = arguments.has_state_file(),
                                   .from_nothing = arguments.state_in.empty()};
  if (arguments.chunk == 0) problem.arguments.chunk = sympow::cheapest_chunk(shape);
  const Index chunk = std::min(problem.longest(), arguments.chunk);
  const double projections = arguments.feature == Feature::random ? D * static_cast<double>(problem.d) * 8 : 0;
  // Gradients keep states along the way: every √n-th of n chunks, those between two of them, and their own.
  const double states = arguments.grad.empty()
                            ? 1
                            : 3 + 2 * std::ceil(std::sqrt(tokens / static_cast<double>(std::max<Index>(chunk, 1))));
  const double bytes = states * state_bytes(D, problem.e, scalar) + chunk_bytes(D, chunk, scalar) + projections;

  const Form form = arguments.form == Form::automatic ? sympow::cheapest_form(shape) : arguments.form;
  const double of_attention = D * tokens * static_cast<double>(scalar) + projections;  // φ of all keys
  if (arguments.feature == Feature::random && std::max(bytes, of_attention) > most_state_bytes)
    fail("--features ", arguments.features, ": projections, a state and embeddings take ",
         whole(std::max(bytes, of_attention)), " bytes, must be at most ", whole(most_state_bytes));
  if ((form != Form::attention || arguments.compare) && bytes > most_state_bytes)
    fail("P = ", arguments.degree(), " on d = ", problem.d, " and e = ", problem.e, " needs D = ", whole(D), ": ",
         states == 1 ? "a state" : whole(states) + " states", " and a chunk of ", chunk, " tokens take ", whole(bytes),
         " bytes, must be at most ", whole(most_state_bytes),
         "; --form attention needs neither, without --compare and state files");
  if (!arguments.state_out.empty()) {
    std::error_code error;
    const auto folder = std::filesystem::absolute(arguments.state_out, error).parent_path();
    const auto space = std::filesystem::space(folder, error);
    const double needed = state_bytes(D, problem.e, scalar) * static_cast<double>(problem.count());
    if (!error && needed > static_cast<double>(space.available))
      fail("--state-out ", arguments.state_out, ": ", problem.count(), " states take ", whole(needed),
           " bytes, there are ", space.available, " left");
  }
  return form;
}

// "1 row holds", "2 rows hold".
std::string counted(Index count, const char* one, const char* several) {
  return std::to_string(count) + " " + (count == 1 ? one : several);
}

void describe(const Problem& problem) {
  const char* forms[] = {"", "attention", "recurrent", "chunked"};
  const char* features[] = {"power", "linear", "exponential", "random"};
  const char* axes[] = {"(T, d)", "(H, T, d)", problem.heads_first ? "(B, H, T, d)" : "(B, T, H, d)"};
  const Arguments& arguments = problem.arguments;
  std::printf("%s%s, %s of %s, d = %td, e = %td, %s, %s form\n", features[static_cast<int>(arguments.feature)],
              arguments.feature == Feature::power    ? (" " + std::to_string(arguments.power)).c_str()
              : arguments.feature == Feature::random ? (" " + std::to_string(arguments.features)).c_str()
                                                     : "",
              counted(problem.count(), "head", "heads").c_str(), counted(problem.T, "token", "tokens").c_str(),
              problem.d, problem.e, problem.Q.holds<float>() ? "float" : "double",
              forms[static_cast<int>(problem.form)]);
  std::printf("Q is %s = %s, K %s, V %s\n", axes[problem.Q.shape.size() - 2], text(problem.Q.shape).c_str(),
              text(problem.K.shape).c_str(), text(problem.V.shape).c_str());
  if (!problem.lengths.empty())
    std::printf("the longest sequence has %s, the rest is padding\n",
                counted(problem.longest(), "token", "tokens").c_str());
}

// At how many tokens a chain can make a key longer, where β |w|² is not in [0, 2] but for rounding, and the remedy;
// nothing if at none.
template <class Scalar>
std::string about_growth(const Problem& problem) {
  if (!problem.W) return "";
  constexpr double most = 2 + 16 * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
  Index growing = 0, steps = 0;
  each_step<Scalar>(problem, [&](double beta, double squared, std::size_t) {
    ++steps;
    if (!(0 <= beta * squared && beta * squared <= most)) ++growing;
  });
  if (growing == 0) return "";
  return std::to_string(growing) + " of " + counted(steps, "step", "steps") + " of the chain " +
         (growing == 1 ? "makes keys grow, its" : "make keys grow, their") +
         " ST |w|^2 is not in [0, 2]; it is with W / np.linalg.norm(W, axis=-1, keepdims=True) and np.clip(ST, 0, 2)";
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
  std::printf("largest    %8.3f by the row rule: the forms %s\n", found.largest, found.agree() ? "agree" : "DISAGREE");
  const auto say = [&](Index count, const char* one, const char* several) {
    if (count > 0) std::printf("%td of %td %s\n", count, found.rows, count == 1 ? one : several);
  };
  say(found.meaningless_to_some, "rows holds information in one form and none in another",
      "rows hold information in one form and none in another");
  say(found.without_information, "rows holds no information and was not compared",
      "rows hold no information and were not compared");
  say(found.out_of_range, "rows leaves the range of the type and was not compared",
      "rows leave the range of the type and were not compared");
}

// Throws for a row that is not a number though the input is finite.
template <class Scalar>
void check_rows(const Problem& problem, const std::vector<Scalar>& Y, const std::string& growth) {
  const auto e = static_cast<std::size_t>(problem.e);
  for (std::size_t row = 0; row < Y.size() / e; ++row) {
    const std::span<const Scalar> entries(Y.data() + row * e, e);
    if (std::ranges::all_of(entries, [](Scalar y) { return std::isnan(y); }))
      fail("--scale is ", problem.arguments.scale, ": row ",
           position({problem.Q.shape.begin(), problem.Q.shape.end() - 1}, row), " of Y is not a number though ",
           problem.Q.name, ", ", problem.K.name, " and ", problem.V.name, " are finite, its scores leave the range of ",
           problem.Q.type(), growth.empty() ? "" : "; ", growth);
  }
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

  GradientFiles<Scalar> gradients(problem, files);

  const Results<Scalar> results = attend<Scalar>(problem, arguments.state_in.empty() ? nullptr : &state_in, state_out,
                                                 state_in_name, gradients.gradients());
  const std::string growth = about_growth<Scalar>(problem);
  check_rows(problem, results.Y, growth);
  write_npy(out, problem.rows_of(problem.e), results.Y);
  if (diagnostics != nullptr) write_npy(*diagnostics, problem.rows_of(3), results.diagnostics);
  gradients.write();
  files.finish();

  describe(problem);
  for (const std::string& path : gradients.paths())
    std::printf("%s%s", path == gradients.paths().front() ? "gradients in " : ", ", path.c_str());
  if (!gradients.paths().empty()) std::printf("\n");
  if (!growth.empty()) std::printf("%s\n", growth.c_str());
  const auto beyond = std::count_if(results.Y.begin(), results.Y.end(), [](Scalar y) { return !std::isfinite(y); });
  if (beyond > 0)
    std::printf("%s beyond the range of the type\n", counted(beyond, "entry of Y is", "entries of Y are").c_str());
  if (gradients.beyond() > 0)
    std::printf("%s beyond the range of the type\n",
                counted(gradients.beyond(), "entry of gradients is", "entries of gradients are").c_str());
  if (arguments.compare) report(problem, results.comparison);
  sympow::io::require_printed();
  files.commit();
  return results.comparison.agree() ? 0 : 1;
}

int run(const Arguments& arguments) {
  Problem problem = read_problem(arguments);
  problem.form = choose_form(problem);
  return problem.Q.holds<float>() ? run<float>(problem) : run<double>(problem);
}

}  // namespace

int main(int argc, char** argv) {
  prepare_process();
  try {
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (std::ranges::find_first_of(words, std::array{"--help", "-h"}) == words.end()) return run(parse(words));
    std::fputs(usage, stdout);
    sympow::io::require_printed();
    return 0;
  } catch (const std::bad_alloc&) {
    return refuse_for_memory();
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}
