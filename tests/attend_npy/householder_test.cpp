// Householder chains on a user's arrays: DeltaNet, PaTH and their gated kinds, states that are continued, and what is
// refused.
#include <sympow/attention/state_file.hpp>

#include "chain.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

void check(const Choice& choice, const std::string& form, std::uint64_t seed, bool delta_rule = false,
           const std::string& more = "") {
  CAPTURE(choice.text(), form, seed, delta_rule, more);
  const ProgramFolder folder;
  const Chain chain(choice, seed, delta_rule);
  const Finished finished = folder.run(chain.save(folder) + " --out y.npy --form " + form + more);
  CAPTURE(finished.out);
  REQUIRE(finished.err == "");
  REQUIRE(finished.status == 0);
  const sympow::io::Array Y = folder.read("y.npy");
  REQUIRE(Y.shape == folder.read("v.npy").shape);
  REQUIRE(Y.holds<float>() == choice.single);
  with_feature_of(choice, [&](const auto& feature) { REQUIRE(chain.distance(feature, by_head(Y)) <= 1); });
}

// Runs tokens 0 … 49 of one set of arrays, then the next 50 of another from the states that the first left.
template <class First, class Second>
Finished run_in_two(const ProgramFolder& folder, const First& first, const Second& second) {
  const Finished begun = folder.run(first.save(folder, 0, 50) + " --out y1.npy --state-out states");
  CAPTURE(begun.err);
  REQUIRE(begun.status == 0);
  return folder.run(second.save(folder, 50, 50) + " --out y.npy --state-in states");
}

}  // namespace

TEST_CASE("DeltaNet and Gated DeltaNet in every form are the recurrence by hand", "[attend_npy]") {
  std::uint64_t seed = 0;
  for (const std::string form : {"auto", "attention", "recurrent", "chunked"})
    for (const int axes : {2, 3, 4})
      for (const bool single : {false, true})
        for (const Index tokens : {1, 17, 130}) {
          ++seed;
          check({.axes = axes, .tokens = tokens, .d = 5, .feature = "linear", .single = single, .gates = seed % 2 == 0},
                form, seed, seed % 3 != 0, form == "chunked" ? " --chunk 20 --compare" : " --compare");
        }
  for (const std::string form : {"attention", "recurrent", "chunked"}) {
    check({.axes = 4, .tokens = 70, .power = 1, .gates = true, .scale = -.5}, form, 200, true, " --compare");
    check({.tokens = 0, .feature = "linear"}, form, 201, true);
    check({.axes = 3, .tokens = 40, .d = 1, .e = 1, .feature = "linear"}, form, 202, false, " --compare");
  }
}

TEST_CASE("PaTH and PaTH-FoX are the definition, and so are powers", "[attend_npy]") {
  std::uint64_t seed = 300;
  for (const auto& [feature, power] :
       std::vector<std::pair<std::string, int>>{{"exponential", 0}, {"power", 2}, {"power", 3}})
    for (const std::string form : {"auto", "attention"})
      for (const int axes : {2, 3, 4})
        for (const bool single : {false, true}) {
          ++seed;
          check({.axes = axes,
                 .tokens = 80,
                 .feature = feature,
                 .power = power,
                 .single = single,
                 .gates = seed % 3 != 0,
                 .scale = .5},
                form, seed, seed % 4 == 0, seed % 5 == 0 ? "" : " --compare");
        }
}

TEST_CASE("the comparison of a power under a chain is with the definition, and needs no state", "[attend_npy]") {
  const ProgramFolder folder;
  const Chain chain({.tokens = 60, .d = 4}, 1);
  const Finished finished =
      folder.run(chain.save(folder) + " --out y.npy --compare");  // D = 10: else it would be chunked
  REQUIRE(finished.status == 0);
  REQUIRE_THAT(finished.out, contains("attention form") && contains("from the rows in double"));
  for (const char* other : {"chunked", "make keys grow"}) REQUIRE(finished.out.find(other) == std::string::npos);
  REQUIRE(finished.out.find("gives the rows in double") == std::string::npos);
  folder.save<float>("x.npy", {2, 128}, std::vector<float>(256, .05f));
  folder.save<float>("n.npy", {2}, {1, 1});
  REQUIRE(
      folder.run("--q x.npy --k x.npy --v x.npy --householder x.npy --strength n.npy --power 8 --compare --out y.npy")
          .status == 0);  // a state would take more than there is
}

TEST_CASE("vectors are used as given, and chains that make keys grow are compared where keys have grown",
          "[attend_npy]") {
  for (const bool single : {false, true}) {
    const Choice choice{.axes = 3, .tokens = 60, .feature = "linear", .single = single};
    Chain chain(choice, 7);
    for (double& w : chain.W.entries) w *= 1.25;  // exact; |w|² is about 1.56
    const ProgramFolder folder;
    const Finished finished = folder.run(chain.save(folder) + " --out y.npy --compare");
    CAPTURE(single, finished.out);
    REQUIRE(finished.status == 0);
    REQUIRE(chain.distance(Linear{}, by_head(folder.read("y.npy"))) <= 1);
    REQUIRE_THAT(finished.out, contains(" of 180 steps of the chain make keys grow") &&
                                   contains("W / np.linalg.norm(W, axis=-1, keepdims=True)") &&
                                   contains("np.clip(ST, 0, 2)"));
  }
  // One vector at every token: what lies along it grows by 2 % each time, which a state does not count.
  const Choice choice{.tokens = 400, .d = 16, .feature = "linear"};
  Chain chain(choice, 8);
  for (std::size_t n = 16; n < chain.W.entries.size(); ++n) chain.W.entries[n] = chain.W.entries[n - 16];
  chain.arrays.K = chain.W;
  for (double& beta : chain.strength.entries) beta = 2.02;
  const ProgramFolder folder;
  REQUIRE(folder.run(chain.save(folder, 0, 200) + " --out y1.npy --state-out states").status == 0);
  const Finished resumed = folder.run(chain.save(folder, 200, 200) + " --out y.npy --state-in states --compare");
  CAPTURE(resumed.out);
  REQUIRE(resumed.status == 0);
}

TEST_CASE("a sequence under a chain in pieces is the whole, and its state holds the product", "[attend_npy]") {
  std::uint64_t seed = 400;
  for (const std::string form : {"auto", "recurrent", "chunked"})
    for (const int axes : {2, 3, 4})
      for (const bool single : {false, true}) {
        const Choice choice{.axes = axes, .tokens = 110, .feature = "linear", .single = single, .gates = axes != 2};
        const Chain chain(choice, ++seed, axes == 4);
        CAPTURE(choice.text(), form, seed);
        const ProgramFolder folder;
        const auto in_pieces = [&](bool forget) {
          return chain.distance(
              Linear{}, run_in_pieces(folder, chain, choice, {50, 1, 59}, {form}, forget, forget ? "" : " --compare"));
        };
        REQUIRE(in_pieces(true) > 1e3);
        REQUIRE(in_pieces(false) <= 1);
        if (axes != 2) continue;
        const auto check_product = [&](auto state) {
          load(state, folder / "states");
          REQUIRE(state.tokens() == choice.tokens);
          Eigen::MatrixXd product = Eigen::MatrixXd::Identity(choice.d, choice.d);
          for (Index t = 0; t < choice.tokens; ++t) product *= chain.transition(0, 0).key_matrix(t, choice.d);
          const double n = static_cast<double>(choice.tokens);
          REQUIRE((state.key_product().template cast<double>() - product).norm() <= 4 * n * chain.arrays.unit());
        };
        if (single)
          check_product(State<float, Linear>(choice.d, choice.e));
        else
          check_product(State<double, Linear>(choice.d, choice.e));
      }
}

TEST_CASE("states change their kind of transition where the library lets them", "[attend_npy]") {
  const ProgramFolder folder;
  Choice choice{.axes = 3, .tokens = 100, .feature = "linear"};
  Choice turning = choice;
  turning.angles = true;
  Chain chain(choice, 500);
  const Arrays plain(choice, 500), turned(turning, 500);

  const Finished refused = run_in_two(folder, turned, chain);
  REQUIRE(refused.status == 2);
  REQUIRE_THAT(refused.err,
               Catch::StartsWith("attend_npy: --state-in states, state 0: the state was built under a rotation"));
  REQUIRE(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
  REQUIRE(!folder.names().contains("y.npy"));

  REQUIRE(run_in_two(folder, chain, turned).status == 0);
  REQUIRE(run_in_two(folder, chain, plain).status == 0);
  const Numbers unchained = by_head(folder.read("y.npy"));
  for (Index h = 0; h < 3; ++h)
    std::fill_n(chain.strength.entries.begin() + h * 100 + 50, 50, 0.0);  // strength 0 is no chain
  for (Index h = 0; h < 3; ++h) {
    const Eigen::MatrixXd expected = chain.by_hand(0, h).rightCols(50);
    REQUIRE((unchained.head(0, h, 0, 50) - expected).norm() <= 1e-12 * expected.norm());
  }
}

TEST_CASE("what does not go with a chain is refused in one line", "[attend_npy]") {
  const ProgramFolder folder;
  const Choice choice{.axes = 4, .tokens = 5, .gates = true};
  const Chain chain(choice, 600);
  chain.arrays.beta.save<double>(folder, "b.npy", 4, 0, 5, false);
  folder.save<double>("th.npy", {2}, {.1, .2});
  REQUIRE_THAT(chain.save(folder), contains("--householder"));
  const std::string plain = "--q q.npy --k k.npy --v v.npy --out y.npy --diagnostics d.npy";
  const std::string both = " --householder w.npy --strength st.npy", linear = " --feature linear";
  const auto refuses = [&](const std::string& more, const std::vector<std::string>& reasons,
                           const std::optional<std::string>& instead = std::nullopt) {
    const auto before = folder.names();
    const Finished finished = folder.run(instead.value_or(plain) + more);
    CAPTURE(more, finished.out, finished.err);
    REQUIRE(finished.status == 2);
    REQUIRE(finished.out == "");
    REQUIRE(finished.err.starts_with("attend_npy: "));
    REQUIRE(std::count(finished.err.begin(), finished.err.end(), '\n') == 1);
    for (const std::string& reason : reasons) REQUIRE_THAT(finished.err, contains(reason));
    REQUIRE(folder.names() == before);
  };

  refuses(" --householder w.npy", {"--householder w.npy needs --strength"});
  refuses(" --strength st.npy", {"--strength st.npy needs --householder"});
  refuses(" --delta-rule", {"--delta-rule needs --strength"});
  refuses(" --delta-rule --householder w.npy", {"--delta-rule needs --strength"});
  refuses(" --delta-rule --strength st.npy", {"--strength st.npy needs --householder"});
  refuses(both + " --delta-rule --delta-rule", {"--delta-rule is given twice"});
  refuses(" --strength st.npy --householder", {"--householder needs a value"});
  refuses(both + " --theta th.npy", {"--householder w.npy does not go with --theta th.npy"});
  refuses(both + " --beta b.npy", {"--householder w.npy does not go with --beta b.npy"});
  refuses(both + " --feature random --features 8", {"--householder w.npy does not go with --feature random"});
  for (const std::string form : {"recurrent", "chunked"}) {
    refuses(both + " --form " + form, {"--form " + form + " does not go with --householder and --power 2"});
    refuses(both + " --power 8 --form " + form, {"--form " + form + " does not go with --householder and --power 8"});
    refuses(both + " --feature exponential --form " + form,
            {"--form " + form + " does not go with --feature exponential"});
  }
  for (const std::string option : {"--state-in", "--state-out"}) {
    refuses(both + " " + option + " s", {option + " does not go with --householder and --power 2"});
    refuses(both + " --form attention " + option + " s", {option + " does not go with --householder and --power 2"});
    refuses(both + " --feature exponential " + option + " s", {option + " does not go with --feature exponential"});
    refuses(both + linear + " --form attention " + option + " s", {option + " does not go with --form attention"});
  }
  REQUIRE(folder.run(plain + both + linear + " --delta-rule --log-gate g.npy --state-out s").status == 0);
  for (const char* name : {"y.npy", "d.npy", "s"}) fs::remove(folder / name);

  const std::string w = bytes_of(folder / "w.npy");
  std::string fortran = w;
  write_bytes(folder / "fortran.npy", fortran.replace(fortran.find("False, "), 7, "True,  "));
  write_bytes(folder / "cut.npy", w.substr(0, w.size() - 8));
  folder.save<float>("single.npy", {2, 5, 3, 4}, std::vector<float>(120, .5f));
  folder.save<double>("transposed.npy", {2, 3, 5, 4}, std::vector<double>(120, .5));
  folder.save<double>("narrow.npy", {2, 5, 3, 3}, std::vector<double>(90, .5));
  folder.save<double>("two.npy", {2, 5}, std::vector<double>(10, .5));
  const auto with = [](std::size_t size, std::size_t place, double value) {
    std::vector<double> entries(size, .5);
    entries[place] = value;
    return entries;
  };
  const auto refuses_vectors = [&](const std::string& name, const std::string& reason) {
    refuses(linear + " --strength st.npy --householder " + name, {"--householder " + name + ": " + reason});
  };
  const auto refuses_strength = [&](const std::string& name, const std::string& reason) {
    refuses(linear + " --householder w.npy --strength " + name, {"--strength " + name + ": " + reason});
  };
  for (const std::string name : {"gone.npy", "fortran.npy", "cut.npy"}) {
    const std::string reason = name == "gone.npy"      ? "there is no such file"
                               : name == "fortran.npy" ? "is in Fortran order, must be in C order"
                                                       : "shape (2, 5, 3, 4) of f8 takes 960 bytes, the file has 952";
    refuses_vectors(name, reason);
    refuses_strength(name, reason);
  }
  refuses_vectors("single.npy", "is of type f4, must be f8 as --q q.npy is");
  refuses_vectors("transposed.npy", "shape is (2, 3, 5, 4), must be (2, 5, 3, 4), that of --k k.npy");
  refuses_vectors("narrow.npy", "shape is (2, 5, 3, 3), must be (2, 5, 3, 4)");
  refuses_strength("two.npy", "shape is (2, 5), must be (2, 5, 3), one number for each token and head");
  refuses_strength("w.npy", "shape is (2, 5, 3, 4), must be (2, 5, 3)");
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
    folder.save<double>("bad.npy", {2, 5, 3, 4}, with(120, 73, value));
    folder.save<double>("bad_strength.npy", {2, 5, 3}, with(30, 17, value));
    refuses_vectors("bad.npy", "entry (1, 1, 0, 1) is ");
    refuses_strength("bad_strength.npy", "entry (1, 0, 2) is ");
  }
  folder.save<double>("huge.npy", {2, 5, 3, 4}, with(120, 73, 1e200));
  refuses_vectors("huge.npy", "|w|^2 at (1, 1, 0) is inf");
  folder.save<float>("x.npy", {2, 4}, std::vector<float>(8, 0));
  folder.save<double>("wide.npy", {2}, {1, 1e39});
  refuses(" --q x.npy --k x.npy --v x.npy --out y.npy --householder x.npy --strength wide.npy",
          {"--strength wide.npy: entry (1,) is 1e+39, must be in the range of f4"}, "");
  folder.save<double>("huge_strength.npy", {2, 5, 3}, with(30, 17, 1e308));
  folder.save<double>("v.npy", {2, 5, 3, 3}, std::vector<double>(90, 10));
  refuses(" --householder w.npy --strength huge_strength.npy --delta-rule",
          {"--strength huge_strength.npy: times entry (1, 0, 2, 0) of --v v.npy is beyond the range of f8"});
}
