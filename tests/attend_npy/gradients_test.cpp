// Gradients and chains as the program has them: the names of files, the delta rule, and what is refused.
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

// Random tokens under a chain, in files, and the words that name them.
std::string save_chain(const ProgramFolder& folder, Arrays& arrays) {
  const std::string words = arrays.save(folder);
  arrays.Q.save<double>(folder, "w.npy", 4, 0, 5);
  arrays.beta.save<double>(folder, "st.npy", 4, 0, 5, false);
  arrays.V.save<double>(folder, "dy.npy", 4, 0, 5);
  return words + " --householder w.npy --strength st.npy --grad dy.npy";
}

}  // namespace

TEST_CASE("gradients through the delta rule are those of values times strengths", "[attend_npy]") {
  const ProgramFolder folder;
  Arrays arrays({.axes = 4, .tokens = 5, .feature = "linear", .gates = true}, 3);
  for (double& w : arrays.Q.entries) w *= .3;
  const std::string words = save_chain(folder, arrays);
  const auto gradient = [&](const std::string& name) { return by_head(folder.read(name)).entries; };
  const auto of_tokens = [&](const std::string& name) {
    sympow::io::Array array = folder.read(name);
    array.shape.push_back(1);
    return by_head(array).entries;
  };
  for (const std::string form : {"attention", "chunked"}) {
    CAPTURE(form);
    arrays.V.save<double>(folder, "v.npy", 4, 0, 5);
    REQUIRE(folder.run(words + " --out y.npy --delta-rule --form " + form).status == 0);
    Numbers multiplied = arrays.V;
    for (std::size_t n = 0; n < multiplied.entries.size(); ++n) multiplied.entries[n] *= arrays.beta.entries[n / 3];
    multiplied.save<double>(folder, "v.npy", 4, 0, 5);
    REQUIRE(folder.run(words + " --out plain.npy --form " + form).status == 0);
    REQUIRE(folder.read("y.npy").entries == folder.read("plain.npy").entries);
    REQUIRE(gradient("y_dhouseholder.npy") == gradient("plain_dhouseholder.npy"));
    const auto dv = gradient("y_dv.npy"), of_values = gradient("plain_dv.npy");
    auto d_strength = of_tokens("plain_dstrength.npy");
    for (std::size_t n = 0; n < dv.size(); ++n) {
      REQUIRE(dv[n] == of_values[n] * arrays.beta.entries[n / 3]);
      d_strength[n / 3] += arrays.V.entries[n] * of_values[n];
    }
    const auto found = of_tokens("y_dstrength.npy");
    for (std::size_t n = 0; n < found.size(); ++n)
      REQUIRE(std::abs(found[n] - d_strength[n]) <= 1e-14 * (1 + std::abs(d_strength[n])));
  }
}

TEST_CASE("gradients of no tokens, and those that nobody asked for", "[attend_npy]") {
  for (const std::string form : {"attention", "chunked"}) {
    const ProgramFolder folder;
    const std::string words = Arrays({.axes = 4, .tokens = 0, .gates = true, .angles = true}, 1).save(folder);
    folder.save<double>("dy.npy", {2, 0, 3, 3}, {});
    REQUIRE(folder.run(words + " --out out/y --form " + form + " --grad dy.npy").status == 2);
    fs::create_directory(folder / "out");
    REQUIRE(folder.run(words + " --out out/y --form " + form).status == 0);
    REQUIRE(!fs::exists(folder / "out/y_dq"));
    const Finished finished = folder.run(words + " --out out/y --form " + form + " --grad dy.npy");
    CAPTURE(finished.err);
    REQUIRE(finished.status == 0);
    REQUIRE_THAT(finished.out,
                 contains("gradients in out/y_dq, out/y_dk, out/y_dv, out/y_dlog_gate, out/y_dtheta, out/y_dscale\n"));
    REQUIRE(std::get<std::vector<double>>(folder.read("out/y_dtheta").entries) == std::vector<double>{0, 0});
    REQUIRE(folder.read("out/y_dk").shape == sympow::io::Shape{2, 0, 3, 4});
  }
}

TEST_CASE("what does not go with a chain is refused in one line", "[attend_npy]") {
  const ProgramFolder folder;
  Arrays arrays({.axes = 4, .tokens = 5}, 6);
  save_chain(folder, arrays);
  folder.save<double>("th.npy", {2}, {.1, .2});
  const std::string plain = "--q q.npy --k k.npy --v v.npy --out y.npy", linear = " --feature linear",
                    both = " --householder w.npy --strength st.npy";
  const auto refuses = [&](const std::string& more, const std::string& reason) {
    const auto before = folder.names();
    const Finished finished = folder.run(plain + more);
    CAPTURE(more, finished.out, finished.err);
    REQUIRE(finished.status == 2);
    REQUIRE(finished.out == "");
    REQUIRE(std::count(finished.err.begin(), finished.err.end(), '\n') == 1);
    REQUIRE_THAT(finished.err, Catch::StartsWith("attend_npy: ") && contains(reason));
    REQUIRE(folder.names() == before);
  };
  refuses(" --householder w.npy", "--householder w.npy needs --strength");
  refuses(" --strength st.npy", "--strength st.npy needs --householder");
  refuses(" --delta-rule", "--delta-rule needs --strength");
  refuses(both + " --theta th.npy", "--householder w.npy does not go with --theta th.npy");
  refuses(both + " --feature random --features 8", "--householder w.npy does not go with --feature random");
  for (const std::string form : {"recurrent", "chunked"}) {
    refuses(both + " --form " + form, "--form " + form + " does not go with --householder and --power 2");
    refuses(both + " --feature exponential --form " + form,
            "--form " + form + " does not go with --feature exponential");
  }
  for (const std::string option : {"--state-in", "--state-out"}) {
    refuses(both + " " + option + " s", option + " does not go with --householder and --power 2");
    refuses(both + " --feature exponential " + option + " s", option + " does not go with --feature exponential");
    refuses(both + linear + " --form attention " + option + " s", option + " does not go with --form attention");
  }
  folder.save<double>("narrow.npy", {2, 5, 3, 3}, std::vector<double>(90, .5));
  refuses(linear + " --strength st.npy --householder narrow.npy", "shape is (2, 5, 3, 3), must be (2, 5, 3, 4)");
  refuses(linear + " --householder w.npy --strength w.npy", "shape is (2, 5, 3, 4), must be (2, 5, 3), one number for");
  std::vector<double> strengths(30, .5);
  strengths[17] = 1e308;
  folder.save<double>("huge.npy", {2, 5, 3}, strengths);
  folder.save<double>("v.npy", {2, 5, 3, 3}, std::vector<double>(90, 10));
  refuses(linear + " --householder w.npy --strength huge.npy --delta-rule",
          "--strength huge.npy: times entry (1, 0, 2, 0) of --v v.npy is beyond the range of f8");
  REQUIRE(folder.run(plain + both + linear + " --state-out s").status == 0);
}
