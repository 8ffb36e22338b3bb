// Which form is taken, what --compare says of all, and the usage.
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

TEST_CASE("the automatic form is chunked where a state pays or is wanted", "[attend_npy]") {
  const auto form_of = [](Index tokens, const std::string& more) {
    const ProgramFolder folder;
    const Finished finished =
        folder.run(Arrays({.tokens = tokens, .d = 4}, 1).save(folder) + " --out y.npy" + more);  // D = 10
    REQUIRE(finished.status == 0);
    return finished.out;
  };
  REQUIRE_THAT(form_of(20, ""), contains("attention form"));
  REQUIRE_THAT(form_of(2000, ""), contains("chunked form"));
  REQUIRE_THAT(form_of(40, " --state-out s"), contains("chunked form"));
}

TEST_CASE("the forms are compared on request", "[attend_npy]") {
  for (const std::string feature : {"power", "linear", "exponential", "random"})
    for (const int axes : {2, 3, 4})
      for (const bool single : {false, true}) {
        const Choice choice{
            .axes = axes, .tokens = 70, .feature = feature, .single = single, .gates = true, .angles = axes == 4};
        CAPTURE(choice.text());
        const ProgramFolder folder;
        const Arrays arrays(choice, 3);
        const std::string words = arrays.save(folder);
        const Finished finished = folder.run(words + " --out y.npy --compare");
        CAPTURE(finished.out);
        REQUIRE(finished.err == "");
        REQUIRE(finished.status == 0);
        REQUIRE_THAT(finished.out, contains("the forms agree"));
        REQUIRE_THAT(finished.out, contains("attention"));
        const bool is_reference = !single;  // or it would be compared with itself
        REQUIRE((finished.out.find("attention   gives the rows in double") != std::string::npos) == is_reference);
        REQUIRE((finished.out.find("recurrent") != std::string::npos) == (feature != "exponential"));
        REQUIRE(folder.run(words + " --out alone.npy").status == 0);
        REQUIRE(bytes_of(folder / "y.npy") == bytes_of(folder / "alone.npy"));
      }
}

// q k to the eighth, for a q and a k whose roundings all point one way: no arithmetic in float keeps 4 u here.

TEST_CASE("forms that disagree end with status 1, and Y is written", "[attend_npy]") {
  const ProgramFolder folder;
  folder.save<float>("q.npy", {3, 1}, std::vector<float>(3, 1.0048837661743164F));
  folder.save<float>("k.npy", {3, 1}, std::vector<float>(3, 1.0488295555114746F));
  folder.save<float>("v.npy", {3, 1}, std::vector<float>(3, 1));
  const std::string words = "--q q.npy --k k.npy --v v.npy --out y.npy --normalize none --compare --power ";
  const Finished finished = folder.run(words + "8");
  CAPTURE(finished.out);
  REQUIRE(finished.status == 1);
  REQUIRE_THAT(finished.out, contains("DISAGREE"));
  REQUIRE(folder.names().contains("y.npy"));
  REQUIRE(folder.run(words + "2").status == 0);
}

// Queries at nearly a right angle to every key: the attention form sees their small scores, a state only their noise.

TEST_CASE("a row that says something in one form and nothing in another is a difference", "[attend_npy]") {
  const ProgramFolder folder;
  const std::size_t T = 100;
  std::vector<float> q, k;
  for (std::size_t t = 0; t < T; ++t) {
    q.insert(q.end(), {t % 2 == 0 ? 1e-4F : 1.F, 1.F});
    k.insert(k.end(), {1.F, 0.F});
  }
  folder.save<float>("q.npy", {T, 2}, q);
  folder.save<float>("k.npy", {T, 2}, k);
  const Finished finished = folder.run("--q q.npy --k k.npy --v k.npy --out y.npy --compare");
  CAPTURE(finished.out);
  REQUIRE(finished.status == 1);
  REQUIRE_THAT(finished.out,
               contains("DISAGREE") && contains(" of 100 rows hold information in one form and none in another"));
}

TEST_CASE("the usage names every option", "[attend_npy]") {
  const ProgramFolder folder;
  const Finished finished = folder.run("--help");
  REQUIRE(finished.status == 0);
  for (const char* option :
       {"--q",        "--k",          "--v",           "--out",      "--feature", "--power", "--features",
        "--seed",     "--form",       "--chunk",       "--log-gate", "--theta",   "--beta",  "--householder",
        "--strength", "--delta-rule", "--layout",      "--lengths",  "--pairing", "--scale", "--normalize",
        "--state-in", "--state-out",  "--diagnostics", "--compare"})
    REQUIRE_THAT(finished.out, contains(option));
}
