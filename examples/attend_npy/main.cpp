// Attention on a user's own arrays, from numpy or PyTorch, in any form: see `usage` in arguments.hpp.
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>

#include <sympow/attention/cost_model.hpp>

#include "compare.hpp"
#include "output_files.hpp"
#include "process.hpp"

using namespace attend_npy;

namespace {

std::string whole(double x) {
  std::array<char, 400> digits{};
  std::snprintf(digits.data(), digits.size(), "%.0f", x);
  return digits.data();
}

// "1 row holds", "2 rows hold".
std::string counted(Index count, const char* one, const char* several) {
  return std::to_string(count) + " " + (count == 1 ? one : several);
}

// The form of a problem, the chosen one or the cheapest, and its chunk unless that is chosen. Throws `BadInput` if it
// needs states that are too large.
int choose_form(Problem& x) {
  Arguments& arguments = x.arguments;
  if (!arguments.has_state()) return SYMPOW_FORM_ATTENTION;
  constexpr double most = 4294967296.0;
  const double size = x.is_single() ? 4 : 8, d = static_cast<double>(x.d), e = static_cast<double>(x.e);
  double D = 1;
  for (std::int64_t n = 0; n < arguments.degree; ++n) D *= (d + static_cast<double>(n)) / static_cast<double>(n + 1);
  if (arguments.feature == Feature::random) D = static_cast<double>(arguments.features);
  const sympow::ProblemShape shape{
      .T = x.longest(),
      .d = x.d,
      .e = x.e,
      .D = D,
      .action = arguments.has("--householder") ? sympow::KeyAction::mix : sympow::KeyAction::none,
      .keeps_state = arguments.has_state_file(),
      .from_nothing = !arguments.has("--state-in")};
  if (arguments.chunk == 0) arguments.chunk = sympow::cheapest_chunk(shape);
  const double tokens = static_cast<double>(x.longest()),
               chunk = std::min(tokens, static_cast<double>(arguments.chunk)), state = D * (e + 1) * size;
  // Gradients keep states along the way: every √n-th of n chunks, those between two of them, and their own.
  const double kept = arguments.has("--grad") ? 3 + 2 * std::ceil(std::sqrt(tokens / std::max(chunk, 1.))) : 1;
  const double heads = arguments.has_state_file() ? static_cast<double>(x.B * x.H) : 1;
  const double bytes = (kept + heads - 1) * state + (D * (chunk + 32) + 2 * chunk * chunk) * size;
  const int form =
      arguments.form == SYMPOW_FORM_AUTOMATIC ? static_cast<int>(sympow::cheapest_form(shape)) : arguments.form;
  if (arguments.feature == Feature::random && std::max(bytes, D * tokens * size) + 8 * D * d > most)
    fail("--features ", arguments.features, ": projections, a state and embeddings take ",
         whole(std::max(bytes, D * tokens * size) + 8 * D * d), " bytes, must be at most ", whole(most));
  if ((form != SYMPOW_FORM_ATTENTION || arguments.has("--compare")) && bytes > most)
    fail("P = ", arguments.degree, " on d = ", x.d, " and e = ", x.e, " needs D = ", whole(D),
         ": states and a chunk of ", chunk, " tokens take ", whole(bytes), " bytes, must be at most ", whole(most),
         "; --form attention needs neither, without --compare and state files");
  return form;
}

void describe(const Problem& x, int form) {
  const Arguments& arguments = x.arguments;
  const char* axes[] = {"(T, d)", "(H, T, d)", x.heads_first ? "(B, H, T, d)" : "(B, T, H, d)"};
  const std::string of = arguments.feature == Feature::power    ? " " + std::to_string(arguments.degree)
                         : arguments.feature == Feature::random ? " " + std::to_string(arguments.features)
                                                                : "";
  std::printf("%s%s, %s of %s, d = %td, e = %td, %s, %s form\n",
              choices.at("--feature")[static_cast<std::size_t>(arguments.feature)].c_str(), of.c_str(),
              counted(x.B * x.H, "head", "heads").c_str(), counted(x.T, "token", "tokens").c_str(), x.d, x.e,
              x.is_single() ? "float" : "double", choices.at("--form")[static_cast<std::size_t>(form)].c_str());
  std::printf("Q is %s = %s, K %s, V %s\n", axes[x["--q"].shape.size() - 2], text(x["--q"].shape).c_str(),
              text(x["--k"].shape).c_str(), text(x["--v"].shape).c_str());
  if (!x.lengths.empty())
    std::printf("the longest sequence has %s, the rest is padding\n", counted(x.longest(), "token", "tokens").c_str());
}

// At how many tokens a chain can make a key longer, where β |w|² is not in [0, 2] but for rounding, and the remedy;
// nothing if at none.
std::string about_growth(const Problem& x) {
  if (!x.arguments.has("--householder")) return "";
  const double most = 2 + 16 * (x.is_single() ? std::numeric_limits<float>::epsilon() : 0x1p-52);
  Index growing = 0, steps = 0;
  for (Index b = 0; b < x.B; ++b)
    for (Index h = 0; h < x.H_kv; ++h)
      for (Index t = 0; t < x.length(b); ++t, ++steps) {
        const auto [beta, squared] = step_at(x, x.arrays, b, t, h);
        if (!(0 <= beta * squared && beta * squared <= most)) ++growing;
      }
  if (growing == 0) return "";
  return std::to_string(growing) + " of " + counted(steps, "step", "steps") + " of the chain " +
         (growing == 1 ? "makes keys grow, its" : "make keys grow, their") +
         " ST |w|^2 is not in [0, 2]; it is with W / np.linalg.norm(W, axis=-1, keepdims=True) and np.clip(ST, 0, 2)";
}

void report(const Problem& x, const Comparison& found) {
  if (x.arguments.has("--state-in")) std::printf("recurrent and chunked from --state-in\n");
  for (const auto& [form, ratio] : found.from_reference)
    if (!x.is_single() && form == "attention")
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

// x times the strength of its token, for all values or gradients in them.
void multiply_by_strengths(const Problem& x, Array& values) {
  const Array& strength = x["--strength"];
  x.each_place("--v", [&](std::size_t n) {
    std::visit(
        [&]<class S>(std::vector<S>& numbers) {
          numbers[n] *= static_cast<S>(strength[n / static_cast<std::size_t>(x.e)]);
        },
        values.entries);
  });
}

// The delta rule's values are β v: dβ has v·dV besides, and dv = β dV.
void take_back_delta_rule(const Problem& x, Arrays& gradients) {
  Array &dV = gradients.at("--v"), &d_strength = gradients.at("--strength");
  std::vector<double> products(d_strength.size());
  x.each_place("--v", [&](std::size_t n) { products[n / static_cast<std::size_t>(x.e)] += x["--v"][n] * dV[n]; });
  std::visit(
      [&]<class S>(std::vector<S>& numbers) {
        for (std::size_t n = 0; n < numbers.size(); ++n) numbers[n] = static_cast<S>(numbers[n] + products[n]);
      },
      d_strength.entries);
  multiply_by_strengths(x, dV);
}

// Throws for a row that is not a number though the input is finite.
template <class S>
void check_rows(const Problem& x, const std::vector<S>& Y, const std::string& growth) {
  const auto e = static_cast<std::size_t>(x.e);
  for (std::size_t row = 0; row < Y.size() / e; ++row)
    if (std::ranges::all_of(std::span<const S>(Y.data() + row * e, e), [](S y) { return std::isnan(y); }))
      fail("--scale is ", x.arguments.scale, ": row ",
           position({x["--q"].shape.begin(), x["--q"].shape.end() - 1}, row), " of Y is not a number though ",
           x["--q"].name, ", ", x["--k"].name, " and ", x["--v"].name, " are finite, its scores leave the range of ",
           x["--q"].type(), growth.empty() ? "" : "; ", growth);
}

// The gradient of --log-gate beside y.npy: y_dlog_gate.npy.
std::string gradient_path(const std::string& out, std::string option) {
  std::ranges::replace(option, '-', '_');
  std::filesystem::path path = out;
  path.replace_filename(path.stem().string() + "_d" + option.substr(2) + path.extension().string());
  return path.string();
}

// Gradients of a run, written each beside the rows; returns entries that are infinite. Throws `BadInput` for NaN.
Index write_gradients(const Problem& x, const Arrays& gradients, const std::map<std::string, std::ostream*>& files) {
  Index beyond = 0;
  for (const auto& [option, file] : files) {
    const Array& gradient = gradients.at(option);
    for (std::size_t n = 0; n < gradient.size(); ++n)
      if (std::isnan(gradient[n]))
        fail("the gradient of ", gradient.name, ": entry ", position(gradient.shape, n),
             " is not a number though the input is finite, what it is made of leaves the range of ", x["--q"].type());
      else if (std::isinf(gradient[n]))
        ++beyond;
    std::visit([&](const auto& numbers) { write_npy(*file, gradient.shape, numbers); }, gradient.entries);
  }
  return beyond;
}

void say_beyond(Index count, const char* one, const char* several) {
  if (count > 0) std::printf("%s beyond the range of the type\n", counted(count, one, several).c_str());
}

template <class S>
int run(const Problem& x, int form) {
  const Arguments& arguments = x.arguments;
  if (arguments.has("--state-in")) {
    std::error_code error;
    const std::string name = arguments.text("--state-in"), path = arguments.given.at("--state-in");
    if (!std::filesystem::exists(path, error)) fail(name, ": there is no such file");
    if (!std::filesystem::is_regular_file(path, error)) fail(name, ": is not a regular file");
  }
  OutputFiles files;
  const auto open = [&](const char* option) -> std::ostream* {
    return arguments.has(option) ? &files.open(option, arguments.given.at(option)) : nullptr;
  };
  std::ostream *const out = open("--out"), *const diagnostics = open("--diagnostics"),
                      *const state_out = open("--state-out");
  std::map<std::string, std::ostream*> of_gradients;
  std::string paths;
  for (const char* option :
       {"--q", "--k", "--v", "--log-gate", "--theta", "--beta", "--householder", "--strength", "--scale"})
    if (arguments.has("--grad") && arguments.has(option)) {
      const std::string path = gradient_path(arguments.given.at("--out"), option);
      of_gradients[option] = &files.open("gradient", path);
      paths += (paths.empty() ? "gradients in " : ", ") + path;
    }

  Arrays arrays = x.arrays;
  if (arguments.has("--delta-rule")) {
    Array& V = arrays.at("--v");
    multiply_by_strengths(x, V);
    x.each_place("--v", [&](std::size_t n) {
      if (!std::isfinite(V[n]))
        fail(x["--strength"].name, ": times entry ", position(V.shape, n), " of ", V.name, " is beyond the range of ",
             V.type());
    });
  }
  const std::string growth = about_growth(x);
  Call<S> call(x, arrays);
  const States states = arguments.has_state_file() ? call.states() : nullptr;
  Comparison comparison;
  if (arguments.has("--compare")) comparison = compare<S>(x, arrays);
  Arrays gradients;
  if (!of_gradients.empty()) gradients = call.gradients(form, states.get());
  if (!of_gradients.empty() && arguments.has("--delta-rule")) take_back_delta_rule(x, gradients);
  if (diagnostics != nullptr) write_npy(*diagnostics, x.rows_of(3), call.diagnostics(form, states.get()));
  const std::vector<S> Y = call.rows(form, states.get());
  check_rows(x, Y, growth);
  write_npy(*out, x.rows_of(x.e), Y);
  const Index beyond = write_gradients(x, gradients, of_gradients);
  files.finish();
  if (state_out != nullptr)
    check(sympow_states_save(states.get(), files.partial("--state-out").c_str()), "--state-out ");

  describe(x, form);
  if (!paths.empty()) std::printf("%s\n", paths.c_str());
  if (!growth.empty()) std::printf("%s\n", growth.c_str());
  say_beyond(std::ranges::count_if(Y, [](S y) { return !std::isfinite(y); }), "entry of Y is", "entries of Y are");
  say_beyond(beyond, "entry of gradients is", "entries of gradients are");
  if (arguments.has("--compare")) report(x, comparison);
  require_printed();
  files.commit();
  return comparison.agree() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  prepare_process();
  if (argc > 0) program_name = std::strrchr(argv[0], '/') != nullptr ? std::strrchr(argv[0], '/') + 1 : argv[0];
  try {
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (std::ranges::find_first_of(words, std::array{"--help", "-h"}) == words.end()) {
      Problem problem = read_problem(parse(words));
      const int form = choose_form(problem);
      return problem.is_single() ? run<float>(problem, form) : run<double>(problem, form);
    }
    std::printf(usage, program_name);
    require_printed();
    return 0;
  } catch (const std::bad_alloc&) {
    return refuse_for_memory();
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}
