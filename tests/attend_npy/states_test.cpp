// Sequences that are continued from state files.
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

TEST_CASE("a sequence in pieces is the whole sequence, unless the state is dropped", "[attend_npy]") {
  const std::vector<std::pair<std::string, int>> features = {{"power", 1}, {"power", 2},  {"power", 3},
                                                             {"power", 4}, {"linear", 1}, {"random", 0}};
  std::uint64_t seed = 0;
  for (const auto& [feature, power] : features)
    for (const int axes : {2, 3, 4})
      for (const bool single : {false, true}) {
        const Choice choice{.axes = axes,
                            .tokens = 110,
                            .feature = feature,
                            .power = power,
                            .single = single,
                            .gates = true,
                            .angles = axes != 2,
                            .rates = axes == 4};
        const Arrays arrays(choice, ++seed);
        CAPTURE(choice.text(), seed);
        const ProgramFolder folder;
        REQUIRE(folder.run(arrays.save(folder) + " --out y.npy --form attention").status == 0);
        const Numbers whole = by_head(folder.read("y.npy"));
        double largest = 0;
        for (const double y : whole.entries) largest = std::max(largest, std::abs(y));
        const double most = largest * (single ? 1e-3 : 1e-9);
        REQUIRE(distance(run_in_pieces(folder, arrays, choice, {50, 60}, {"recurrent", "chunked"}), whole) <= most);
        REQUIRE(distance(run_in_pieces(folder, arrays, choice, {1, 0, 64, 20, 25}, {"chunked", "recurrent", "auto"}),
                         whole) <= most);
        REQUIRE(distance(run_in_pieces(folder, arrays, choice, {50, 60}, {"chunked"}, true), whole) > 10 * most);
      }
}

TEST_CASE("resumed forms are compared", "[attend_npy]") {
  for (const bool single : {false, true})
    for (const int power : {2, 3}) {
      const Choice choice{.axes = 4, .tokens = 100, .power = power, .single = single, .gates = true, .angles = true};
      const Arrays arrays(choice, 4);
      const ProgramFolder folder;
      REQUIRE(folder.run(arrays.save(folder, 0, 50) + " --out y.npy --state-out states").status == 0);
      const Finished finished = folder.run(arrays.save(folder, 50, 50) + " --out y.npy --state-in states --compare");
      CAPTURE(choice.text(), finished.out, finished.err);
      REQUIRE(finished.status == 0);
      REQUIRE_THAT(finished.out, contains("recurrent and chunked from --state-in") && contains("the forms agree"));
    }
}

TEST_CASE("a state of random features goes on under the same ones only", "[attend_npy]") {
  const ProgramFolder folder;
  const Choice choice{.axes = 3, .feature = "random", .features = 10, .seed = 3};
  const auto words = [&](Choice other) { return Arrays(other, 1).save(folder) + " --out y.npy --state-in states"; };
  REQUIRE(folder.run(Arrays(choice, 1).save(folder) + " --out y.npy --state-out states").status == 0);
  REQUIRE(folder.run(words(choice)).status == 0);
  Choice other_seed = choice, other_number = choice;
  other_seed.seed = 4;
  other_number.features = 11;
  for (const Choice& other : {other_seed, other_number, Choice{.axes = 3}}) {
    const Finished finished = folder.run(words(other));
    CAPTURE(finished.err);
    REQUIRE(finished.status == 2);
    REQUIRE_THAT(finished.err, contains("state 0: state file: "));
  }
}

TEST_CASE("states of other arrays are refused, and nothing is left behind", "[attend_npy]") {
  const ProgramFolder folder;
  const auto save = [&](const Choice& choice) { return Arrays(choice, 1).save(folder); };
  REQUIRE(folder.run(save({.axes = 3, .angles = true}) + " --out y.npy --state-out states").status ==
          0);  // three states, double
  const std::string states = bytes_of(folder / "states");
  fs::remove(folder / "y.npy");
  const auto refused = [&](const std::string& words, const std::string& reason) {
    const auto before = folder.names();
    const Finished finished = folder.run(words + " --state-in states --out y.npy --diagnostics d.npy --state-out left");
    CAPTURE(words, reason, finished.err);
    REQUIRE(finished.status == 2);
    REQUIRE_THAT(finished.err, Catch::StartsWith("attend_npy: --state-in states") && contains(reason));
    REQUIRE(std::count(finished.err.begin(), finished.err.end(), '\n') == 1);
    REQUIRE(folder.names() == before);
  };
  refused(save({.axes = 2, .angles = true}), "goes on after 1 state, one a sequence and head");
  refused(save({.axes = 4, .angles = true}), "holds 3 states, must hold 6, one a sequence and head");
  refused(save({.axes = 3}), "sequence 0, head 0: the state was built under a rotation of 2 angles");
  refused(save({.axes = 3, .single = true, .angles = true}), "state 0: state file: bytes of a scalar is 8, must be 4");
  refused(save({.axes = 3, .d = 6, .angles = true}), "state 0: state file: key dimension d is 4, must be 6");
  refused(save({.axes = 3, .e = 2, .angles = true}), "state 0: state file: value dimension e is 3, must be 2");
  refused(save({.axes = 3, .feature = "random", .angles = true, .features = 10}),
          "state 0: state file: fingerprint of the feature map, of its kind, size and seed, is 2, must be ");
  refused(save({.axes = 3, .power = 3, .angles = true}), "state 0: state file: degree P is 2, must be 3");
  const std::string words = save({.axes = 3, .angles = true});
  write_bytes(folder / "states", states.substr(0, states.size() - 1));
  refused(words, "state 2: state file: it ends inside of its body");
  write_bytes(folder / "states", states + "x");
  refused(words, "goes on after 3 states");
  std::string damaged = states;
  damaged[states.size() / 2] = static_cast<char>(damaged[states.size() / 2] ^ 1);
  write_bytes(folder / "states", damaged);
  refused(words, "state 1: state file: the checksum does not match");
  write_bytes(folder / "states", "");
  refused(words, "state 0: state file: this is not one");
  write_bytes(folder / "states", bytes_of(folder / "q.npy"));
  refused(words, "state 0: state file: this is not one");
  write_bytes(folder / "states", states);
  REQUIRE(folder.run(words + " --state-in states --out y.npy").status == 0);
}
