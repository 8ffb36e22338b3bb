// The program's rows are those of the definition, for every shape, feature, form and type.
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

// Runs a choice in a form and requires the rows of the definition, of the right shape and type.
void check(const Choice& choice, const std::string& form, std::uint64_t seed, const std::string& more = "") {
  CAPTURE(choice.text(), form, seed, more);
  const ProgramFolder folder;
  const Arrays arrays(choice, seed);
  const Finished finished = folder.run(arrays.save(folder) + " --out y.npy --form " + form + " " + more);
  REQUIRE(finished.err == "");
  REQUIRE(finished.status == 0);
  const sympow::io::Array Y = folder.read("y.npy"), V = folder.read("v.npy");
  REQUIRE(Y.shape == V.shape);
  REQUIRE(Y.holds<float>() == choice.single);
  REQUIRE(arrays.distance(by_head(Y)) <= 1);
}

}  // namespace

TEST_CASE("every feature in every form over every kind of shape", "[attend_npy]") {
  Random random(1);
  const std::vector<std::pair<std::string, int>> features = {{"power", 1},  {"power", 2},       {"power", 3},
                                                             {"power", 4},  {"power", 6},       {"power", 8},
                                                             {"linear", 1}, {"exponential", 0}, {"random", 0}};
  const Index lengths[] = {1, 2, 63, 64, 65, 130};
  std::uint64_t seed = 0;
  for (const auto& [feature, power] : features)
    for (const std::string form : {"auto", "attention", "recurrent", "chunked"})
      for (const int axes : {2, 3, 4}) {
        if (feature == "exponential" && (form == "recurrent" || form == "chunked")) continue;
        Choice choice{.axes = axes, .tokens = lengths[random.integer(0, 5)], .feature = feature, .power = power};
        choice.single = random.integer(0, 1) == 1;
        choice.gates = random.integer(0, 1) == 1;
        choice.angles = random.integer(0, 1) == 1;
        choice.rates = choice.angles && random.integer(0, 1) == 1;
        choice.normalize = power < 6 && random.integer(0, 2) == 0 ? "none" : "auto";
        check(choice, form, ++seed);
      }
}

TEST_CASE("lengths, chunks, odd d, one channel and other scales", "[attend_npy]") {
  for (const int axes : {2, 3, 4})
    for (const std::string form : {"auto", "attention", "recurrent", "chunked"})
      check({.axes = axes, .tokens = 0, .gates = true}, form, 1);
  for (const Index chunk : {1, 2, 63, 64, 65, 1000})
    check({.axes = 4, .tokens = 130, .gates = true, .angles = true}, "chunked", 2, "--chunk " + std::to_string(chunk));
  for (const std::string form : {"attention", "recurrent", "chunked"}) {
    check({.axes = 3, .d = 5, .e = 7, .gates = true}, form, 3);
    check({.axes = 3, .d = 1, .e = 1, .power = 4}, form, 4);
    check({.axes = 2, .power = 3, .scale = -.25}, form, 5);
    check({.axes = 4, .single = true, .normalize = "sum", .scale = 1e-3}, form, 6);
    check({.power = 5, .angles = true}, form, 7);
    check({.power = 7}, form, 8);
    check({.axes = 4, .feature = "random", .single = true, .angles = true, .scale = -.5, .features = 7}, form, 9);
    check({.axes = 3, .d = 1, .e = 1, .feature = "random", .features = 1, .seed = 77}, form, 10);
  }
}

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

TEST_CASE("random features are those of their number and seed, in all heads", "[attend_npy]") {
  const ProgramFolder folder;
  const Arrays arrays({.axes = 4, .feature = "random"}, 1);
  const std::string words = arrays.save(folder);
  const auto rows = [&](std::string options, const std::string& name) {
    std::string all = words;
    all.replace(all.find("--features 24"), 13, options);
    REQUIRE(folder.run(all + " --out " + name).status == 0);
    return bytes_of(folder / name);
  };
  const std::string seed_1 = rows("--features 24", "a.npy");
  REQUIRE(rows("--features 24 --seed 1", "b.npy") == seed_1);
  REQUIRE(rows("--features 24 --seed 2", "c.npy") != seed_1);
  REQUIRE(rows("--features 25", "d.npy") != seed_1);
  REQUIRE(arrays.distance(by_head(folder.read("a.npy"))) <= 1);
  REQUIRE(arrays.distance(by_head(folder.read("c.npy"))) > 1e3);
  REQUIRE_THAT(folder.run(words + " --out e.npy --compare").out, contains("random 24, 6 heads of 40 tokens"));
  const auto form_of = [&](Index features) {
    return folder
        .run(Arrays({.tokens = 1500, .feature = "random", .features = features}, 1).save(folder) + " --out y.npy")
        .out;
  };
  REQUIRE_THAT(form_of(20), contains("chunked form"));
  REQUIRE_THAT(form_of(2000), contains("attention form"));
}

TEST_CASE("diagnostics are the logarithm of the denominator, the condition number and the flag", "[attend_npy]") {
  for (const std::string form : {"attention", "recurrent", "chunked"})
    for (const int axes : {2, 3, 4})
      for (const bool single : {false, true}) {
        Choice choice{.axes = axes, .tokens = 70, .single = single, .gates = true, .angles = axes != 3};
        if (axes == 2) choice.power = 3;
        CAPTURE(choice.text(), form);
        const ProgramFolder folder;
        Arrays arrays(choice, 11);
        const Index nothing = 5;  // this token's query is 0 in every head
        for (std::size_t n = 0; n < arrays.Q.entries.size(); ++n)
          if (static_cast<Index>(n) / choice.d % choice.tokens == nothing) arrays.Q.entries[n] = 0;
        REQUIRE(folder.run(arrays.save(folder) + " --out y.npy --diagnostics d.npy --form " + form).status == 0);
        const sympow::io::Array file = folder.read("d.npy");
        sympow::io::Shape shape = folder.read("v.npy").shape;
        shape.back() = 3;
        REQUIRE(file.shape == shape);
        REQUIRE(file.holds<double>());
        const Numbers D = by_head(file), Y = by_head(folder.read("y.npy"));
        REQUIRE(arrays.distance(Y) <= 1);
        arrays.each_head([&]<class F, class N>(F, N, const verify::DirectRows<double>& rows, Index b, Index h) {
          const Eigen::MatrixXd d = D.head(b, h, 0, D.tokens);
          for (Index i = 0; i < D.tokens; ++i) {
            CAPTURE(b, h, i);
            const bool empty = i == nothing;
            REQUIRE(d(2, i) == (empty && choice.divides() ? 1 : 0));
            if (empty) {
              REQUIRE(Y.head(b, h, i, 1).isZero(0));
              REQUIRE(d(0, i) == -std::numeric_limits<double>::infinity());
              continue;
            }
            const double denominator = std::abs(rows.denominator[i]),
                         K = choice.divides() ? rows.condition[i] : rows.condition[i] / denominator;
            const double off =
                4 * arrays.unit() * K * (1 + std::sqrt(rows.window[i]));  // the row rule for the denominator
            REQUIRE(std::abs(d(0, i) - std::log(denominator)) <= 2 * off + 1e-12);
            REQUIRE(std::abs(d(1, i) / K - 1) <= 4 * off + 1e-12);
          }
        });
      }
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
        const bool is_reference = !single && feature != "exponential";  // or it would be compared with itself
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
