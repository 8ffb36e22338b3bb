// Whatever is wrong with the input: exit status 2, one line that says what, and no file that was not there before.
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

// A folder with good files, and the words that run them.
struct Good {
  ProgramFolder folder;
  std::string inputs = Arrays({.axes = 4, .tokens = 5, .gates = true, .angles = true, .rates = true}, 1).save(folder);

  void refuses(const std::string& words, const std::vector<std::string>& reasons) const {
    const auto before = folder.names();
    const Finished finished = folder.run(words);
    CAPTURE(words, finished.out, finished.err);
    REQUIRE(finished.status == 2);
    REQUIRE(finished.out == "");
    REQUIRE(finished.err.starts_with("attend_npy: "));
    REQUIRE(finished.err.find('\n') == finished.err.size() - 1);
    for (const std::string& reason : reasons) REQUIRE_THAT(finished.err, contains(reason));
    REQUIRE(folder.names() == before);
  }

  // Refuses the good words with `name` in the place of the file of an option.
  void refuses_file(const std::string& option, const std::string& name, const std::vector<std::string>& reasons) const {
    const std::string good = option + " " +
                             (option == "--log-gate" ? "g"
                              : option == "--theta"  ? "th"
                                                     : option.substr(2, 1)) +
                             ".npy";
    std::string words = inputs;
    words.replace(words.find(good), good.size(), option + " " + name);
    refuses(words + " --out y.npy --diagnostics d.npy", reasons);
  }
};

std::vector<double> numbers(std::size_t n) { return std::vector<double>(n, .5); }

}  // namespace

TEST_CASE("the good input of these tests is good", "[attend_npy]") {
  const Good good;
  REQUIRE(good.folder.run(good.inputs + " --out y.npy --diagnostics d.npy --state-out s").status == 0);
  REQUIRE(good.folder.names() ==
          std::set<std::string>{"b.npy", "d.npy", "g.npy", "k.npy", "q.npy", "s", "th.npy", "v.npy", "y.npy"});
}

TEST_CASE("bad options", "[attend_npy]") {
  const Good good;
  const std::string plain = "--q q.npy --k k.npy --v v.npy", most = plain + " --out y.npy";
  good.refuses("", {"--q is missing"});
  good.refuses(plain, {"--out is missing"});
  good.refuses("--k k.npy --v v.npy --out y.npy", {"--q is missing"});
  good.refuses(most + " --frobnicate", {"unknown option --frobnicate"});
  good.refuses(most + " extra", {"unknown option extra"});
  good.refuses(most + " --power=2", {"unknown option --power=2"});
  good.refuses(most + " --power", {"--power needs a value"});
  good.refuses(most + " --power --compare", {"--power needs a value, but is followed by '--compare'"});
  good.refuses(most + " --scale ''", {"--scale needs a value"});
  good.refuses(most + " --compare --compare", {"--compare is given twice"});
  good.refuses(most + " --q q.npy", {"--q is given twice"});
  for (const std::string power : {"0", "9", "-2", "2.5", "two", "99999999999999999999", "2x"})
    good.refuses(most + " --power " + power, {"--power is " + power + ", must be a whole number of 1 to 8"});
  for (const std::string chunk : {"0", "-1", "64k", "1e3", "99999999999999999999"})
    good.refuses(most + " --chunk " + chunk, {"--chunk is " + chunk + ", must be a whole number of 1 or more"});
  for (const std::string scale : {"nan", "inf", "1e999", "one", "1,5", "'1 '"})
    good.refuses(most + " --scale " + scale, {"--scale is ", "must be a finite number"});
  good.refuses(most + " --feature cosine", {"--feature is cosine, must be power, linear, exponential or random"});
  good.refuses(most + " --form fast", {"--form is fast, must be auto, attention, recurrent or chunked"});
  good.refuses(most + " --normalize yes", {"--normalize is yes, must be auto, sum or none"});
  good.refuses(most + " --power 3 --normalize sum", {"--normalize sum", "--power 3"});
  good.refuses(most + " --feature linear --normalize sum", {"--normalize sum", "--feature linear"});
  good.refuses(most + " --feature linear --power 2", {"--power 2 does not go with --feature linear"});
  good.refuses(most + " --feature random", {"--features is missing: --feature random needs to know how many"});
  for (const std::string features : {"0", "-3", "many", "2.5", "99999999999999999999"})
    good.refuses(most + " --feature random --features " + features,
                 {"--features is " + features + ", must be a whole number of 1 or more"});
  for (const std::string seed : {"-1", "x", "1.5", "99999999999999999999"})
    good.refuses(most + " --feature random --features 8 --seed " + seed,
                 {"--seed is " + seed + ", must be a whole number of 0 or more"});
  good.refuses(most + " --features 8", {"--features 8 does not go with the default --feature power"});
  good.refuses(most + " --feature linear --seed 8", {"--seed 8 does not go with --feature linear"});
  good.refuses(most + " --feature exponential --features 8", {"--features 8 does not go with --feature exponential"});
  good.refuses(most + " --feature random --features 8 --power 2", {"--power 2 does not go with --feature random"});
  good.refuses(most + " --feature random --features 8 --form attention --state-out s",
               {"--state-out does not go with --form attention"});
  good.refuses(most + " --feature random --features 100000000",
               {"--features 100000000: projections, a state and embeddings take ", "must be at most 4294967296"});
  good.refuses(most + " --beta b.npy", {"--beta b.npy needs --theta"});
  good.refuses(most + " --feature exponential --form chunked",
               {"--form chunked does not go with --feature exponential"});
  good.refuses(most + " --feature exponential --form recurrent",
               {"--form recurrent does not go with --feature exponential"});
  good.refuses(most + " --feature exponential --state-out s", {"--state-out does not go with --feature exponential"});
  good.refuses(most + " --feature exponential --state-in s", {"--state-in does not go with --feature exponential"});
  good.refuses(most + " --form attention --state-out s", {"--state-out does not go with --form attention"});
  good.refuses(most + " --form attention --state-in s", {"--state-in does not go with --form attention"});
}

TEST_CASE("bad files", "[attend_npy]") {
  const Good good;
  const ProgramFolder& folder = good.folder;
  write_bytes(folder / "foreign.npy", "not an array");
  const std::string q = bytes_of(folder / "q.npy");
  write_bytes(folder / "cut.npy", q.substr(0, q.size() - 8));
  write_bytes(folder / "longer.npy", q + "12345678");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = q;
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  write_bytes(folder / "big.npy", replaced("<f8", ">f8"));
  write_bytes(folder / "half.npy", replaced("<f8", "<f2"));
  write_bytes(folder / "whole.npy", replaced("<f8", "<i8"));
  write_bytes(folder / "fortran.npy", replaced("False, ", "True,  "));
  fs::create_directory(folder / "folder.npy");
  for (const char* option : {"--q", "--k", "--v", "--log-gate", "--theta", "--beta"}) {
    const std::string name = option;
    good.refuses_file(option, "gone.npy", {name + " gone.npy: there is no such file"});
    good.refuses_file(option, "folder.npy", {name + " folder.npy: is not a regular file"});
    good.refuses_file(option, "foreign.npy", {name + " foreign.npy: is not an npy file"});
    good.refuses_file(option, "cut.npy",
                      {name + " cut.npy: shape (2, 5, 3, 4) of f8 takes 960 bytes, the file has 952"});
    good.refuses_file(option, "longer.npy", {name + " longer.npy: shape", "takes 960 bytes, the file has 968"});
    good.refuses_file(option, "big.npy", {name + " big.npy: is big-endian ('>f8')"});
    good.refuses_file(option, "half.npy", {name + " half.npy: entries are of type '<f2', must be '<f4' or '<f8'"});
    good.refuses_file(option, "whole.npy", {name + " whole.npy: entries are of type '<i8'"});
    good.refuses_file(option, "fortran.npy", {name + " fortran.npy: is in Fortran order, must be in C order"});
  }
  good.refuses(good.inputs + " --out y.npy --state-in gone", {"--state-in gone: there is no such file"});
  good.refuses(good.inputs + " --out y.npy --state-in folder.npy", {"--state-in folder.npy: is not a regular file"});
  good.refuses(good.inputs + " --out y.npy --state-in q.npy",
               {"--state-in q.npy: state 0: state file: this is not one"});
}

TEST_CASE("shapes and types that disagree", "[attend_npy]") {
  const Good good;
  const ProgramFolder& folder = good.folder;
  folder.save<float>("single.npy", {2, 5, 3, 4}, std::vector<float>(120, .5f));
  folder.save<double>("transposed.npy", {2, 3, 5, 4}, numbers(120));
  folder.save<double>("longer.npy", {2, 6, 3, 4}, numbers(144));
  folder.save<double>("wider.npy", {2, 5, 3, 6}, numbers(180));
  folder.save<double>("three.npy", {10, 3, 4}, numbers(120));
  folder.save<double>("one.npy", {120}, numbers(120));
  folder.save<double>("five.npy", {1, 2, 5, 3, 4}, numbers(120));
  folder.save<double>("none.npy", {}, numbers(1));
  folder.save<double>("no_width.npy", {2, 5, 3, 0}, {});
  folder.save<double>("two.npy", {2, 5}, numbers(10));
  folder.save<double>("odd.npy", {2, 5, 3, 3}, numbers(90));
  folder.save<double>("angles.npy", {3}, numbers(3));
  folder.save<double>("angles_2d.npy", {1, 2}, numbers(2));
  good.refuses_file("--k", "single.npy", {"--k single.npy: is of type f4, must be f8 as --q q.npy is"});
  good.refuses_file("--v", "single.npy", {"--v single.npy: is of type f4, must be f8"});
  good.refuses_file("--k", "transposed.npy", {"--k transposed.npy: shape is (2, 3, 5, 4), must be (2, 5, 3, 4)"});
  good.refuses_file("--k", "wider.npy", {"--k wider.npy: shape is (2, 5, 3, 6), must be (2, 5, 3, 4)"});
  good.refuses_file("--v", "longer.npy", {"--v longer.npy: shape is (2, 6, 3, 4), must be (2, 5, 3, 4)"});
  good.refuses_file("--v", "three.npy", {"--v three.npy: shape is (10, 3, 4), must be (2, 5, 3, 4)"});
  for (const std::string name : {"one.npy", "five.npy", "none.npy"})
    good.refuses_file("--q", name, {"--q " + name + ": shape is (", "must be (T, d), (H, T, d) or (B, T, H, d)"});
  good.refuses("--q no_width.npy --k no_width.npy --v v.npy --out y.npy",
               {"--q no_width.npy", "its last axis d must be at least 1"});
  good.refuses("--q q.npy --k k.npy --v no_width.npy --out y.npy",
               {"--v no_width.npy", "its last axis must be at least 1"});
  for (const std::string option : {"--log-gate", "--beta"})
    good.refuses_file(option, "two.npy",
                      {option + " two.npy: shape is (2, 5), must be (2, 5, 3), one number for each token and head"});
  good.refuses_file("--theta", "angles.npy",
                    {"--theta angles.npy: shape is (3,), must be (2,), half of the last axis of --q q.npy"});
  good.refuses_file("--theta", "angles_2d.npy", {"--theta angles_2d.npy: shape is (1, 2), must be (2,)"});
  good.refuses("--q odd.npy --k odd.npy --v odd.npy --theta th.npy --out y.npy",
               {"--theta th.npy: turns pairs, and the last axis of --q odd.npy is odd, 3"});
}

TEST_CASE("gradients of rows that do not fit the rows", "[attend_npy]") {
  const Good good;
  const ProgramFolder& folder = good.folder;
  folder.save<double>("dy.npy", {2, 5, 3, 3}, numbers(90));
  folder.save<double>("wide.npy", {2, 5, 3, 4}, numbers(120));
  folder.save<double>("transposed.npy", {2, 3, 5, 3}, numbers(90));
  folder.save<float>("single.npy", {2, 5, 3, 3}, std::vector<float>(90, .5f));
  std::vector<double> entries = numbers(90);
  entries[89] = std::numeric_limits<double>::quiet_NaN();
  folder.save<double>("nan.npy", {2, 5, 3, 3}, entries);
  const std::string words = good.inputs + " --out y.npy --grad ";
  good.refuses(words + "wide.npy", {"--grad wide.npy: shape is (2, 5, 3, 4), must be (2, 5, 3, 3), that of Y"});
  good.refuses(words + "transposed.npy", {"--grad transposed.npy: shape is (2, 3, 5, 3), must be (2, 5, 3, 3)"});
  good.refuses(words + "single.npy", {"--grad single.npy: is of type f4, must be f8 as --q q.npy is"});
  good.refuses(words + "nan.npy", {"--grad nan.npy: entry (1, 4, 2, 2) is nan, must be finite"});
  good.refuses(words + "gone.npy", {"--grad gone.npy: there is no such file"});
  good.refuses(words + "dy.npy --diagnostics y_dtheta.npy",
               {"gradient y_dtheta.npy: is the same file as --diagnostics y_dtheta.npy"});
  fs::create_directory(folder / "y_dbeta.npy");
  good.refuses(words + "dy.npy", {"gradient y_dbeta.npy: cannot be written, it is a directory"});
}

TEST_CASE("entries that are not finite, and gates that are not", "[attend_npy]") {
  const Good good;
  const ProgramFolder& folder = good.folder;
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto with = [&](const std::string& name, const sympow::io::Shape& shape, std::size_t place, double value) {
    auto entries = numbers(sympow::io::entries_of(shape, 8).value());
    if (name == "g_bad.npy")
      for (double& entry : entries) entry = -entry;
    entries[place] = value;
    folder.save<double>(name, shape, entries);
  };
  for (const double value : {infinity, -infinity, nan}) {
    with("bad.npy", {2, 5, 3, 4}, 73, value);
    for (const std::string option : {"--q", "--k"})
      good.refuses_file(option, "bad.npy", {option + " bad.npy: entry (1, 1, 0, 1) is ", "must be finite"});
    with("v_bad.npy", {2, 5, 3, 3}, 89, value);
    good.refuses_file("--v", "v_bad.npy", {"--v v_bad.npy: entry (1, 4, 2, 2) is ", "must be finite"});
    with("b_bad.npy", {2, 5, 3}, 0, value);
    good.refuses_file("--beta", "b_bad.npy", {"--beta b_bad.npy: entry (0, 0, 0) is ", "must be finite"});
    with("th_bad.npy", {2}, 1, value);
    good.refuses_file("--theta", "th_bad.npy", {"--theta th_bad.npy: entry (1,) is ", "must be finite"});
  }
  for (const double value : {1e-9, 1.0, infinity, nan}) {
    with("g_bad.npy", {2, 5, 3}, 17, value);
    good.refuses_file("--log-gate", "g_bad.npy",
                      {"--log-gate g_bad.npy: entry (1, 0, 2) is ", "must be a logarithm of at most 0"});
  }
  with("th_huge.npy", {2}, 0, 1e308);
  with("b_huge.npy", {2, 5, 3}, 3, 1e308);
  good.refuses("--q q.npy --k k.npy --v v.npy --out y.npy --theta th_huge.npy --beta b_huge.npy",
               {"--theta th_huge.npy", "no finite angle"});
}

TEST_CASE("outputs that cannot be written", "[attend_npy]") {
  const Good good;
  fs::create_directory(good.folder / "folder");
  fs::create_symlink("/dev/null", good.folder / "device");
  for (const std::string option : {"--out", "--diagnostics", "--state-out"}) {
    const std::string words = good.inputs + (option == "--out" ? " " : " --out y.npy ") + option;
    good.refuses(words + " nowhere/x", {option + " nowhere/x: cannot be written"});
    good.refuses(words + " folder", {option + " folder: cannot be written, it is a directory"});
    good.refuses(words + " device", {option + " device: cannot be written, it is not a regular file"});
    good.refuses(words + " folder/", {option + " folder/: cannot be written"});
    good.refuses(words + " new/", {option + " new/: cannot be written"});
    good.refuses(words + " q.npy/x", {option + " q.npy/x: cannot be written"});
  }
  good.refuses(good.inputs + " --out y.npy --diagnostics y.npy",
               {"--diagnostics y.npy: is the same file as --out y.npy"});
  good.refuses(good.inputs + " --out y.npy --state-out ./y.npy",
               {"--state-out ./y.npy: is the same file as --out y.npy"});
}

TEST_CASE("an output may replace an input, and what a link points to", "[attend_npy]") {
  const Good good;
  REQUIRE(good.folder.run(good.inputs + " --out y.npy").status == 0);
  const std::string expected = bytes_of(good.folder / "y.npy");
  fs::create_symlink("y.npy", good.folder / "link.npy");
  write_bytes(good.folder / "y.npy", "something else");
  REQUIRE(good.folder.run(good.inputs + " --out link.npy").status == 0);
  REQUIRE(fs::is_symlink(good.folder / "link.npy"));
  REQUIRE(bytes_of(good.folder / "y.npy") == expected);
  REQUIRE(good.folder.run(good.inputs + " --out q.npy").status == 0);
  REQUIRE(bytes_of(good.folder / "q.npy") == expected);
}

TEST_CASE("an output that was there stays as it was when the input is bad", "[attend_npy]") {
  const Good good;
  for (const char* name : {"y.npy", "d.npy", "s"}) write_bytes(good.folder / name, "as it was");
  good.refuses("--q q.npy --k k.npy --v gone.npy --out y.npy --diagnostics d.npy --state-out s", {"--v gone.npy"});
  good.refuses("--q q.npy --k k.npy --v v.npy --out y.npy --diagnostics d.npy --state-in q.npy --state-out s",
               {"--state-in q.npy"});
  for (const char* name : {"y.npy", "d.npy", "s"}) REQUIRE(bytes_of(good.folder / name) == "as it was");
}

TEST_CASE("states and chunks that do not fit are refused before anything is allocated", "[attend_npy]") {
  const ProgramFolder folder;
  folder.save<float>("x.npy", {2, 128}, std::vector<float>(256, .5f));
  folder.save<float>("none.npy", {0, 1000000000000}, {});
  const auto refuses = [&](const std::string& words, const std::vector<std::string>& reasons) {
    const Finished finished = folder.run(words);
    CAPTURE(words, finished.err);
    REQUIRE(finished.status == 2);
    for (const std::string& reason : reasons) REQUIRE_THAT(finished.err, contains(reason));
    REQUIRE(folder.names() == std::set<std::string>{"x.npy", "none.npy"});
  };
  const std::string words = "--q x.npy --k x.npy --v x.npy --out y.npy";
  for (const std::string form : {"--form chunked", "--form recurrent", "--compare", "--state-out s"})
    refuses(words + " --power 8 " + form,
            {"P = 8 on d = 128 and e = 128 needs D = 2214919483920", "bytes, must be at most 4294967296"});
  refuses("--q none.npy --k none.npy --v none.npy --out y.npy --form chunked",
          {"d = 1000000000000", "bytes, must be at most 4294967296"});
  REQUIRE(folder.run(words + " --power 8").status == 0);  // attention needs no state
  REQUIRE(folder.run("--q none.npy --k none.npy --v none.npy --power 8 --out y.npy").status == 0);
}
