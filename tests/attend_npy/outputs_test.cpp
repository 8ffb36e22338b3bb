// What becomes of files and of what is printed: links, modes, and ends of disk, memory and reader.
#include <csignal>

#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

// Requires that there is one line of complaint and no file that was not there.
void refused(const ProgramFolder& folder, const std::set<std::string>& before, const Finished& finished,
             const std::string& reason) {
  CAPTURE(finished.out, finished.err);
  REQUIRE(finished.status == 2);
  REQUIRE_THAT(finished.err, Catch::StartsWith("attend_npy: ") && contains(reason));
  REQUIRE(std::count(finished.err.begin(), finished.err.end(), '\n') == 1);
  REQUIRE(folder.names() == before);
}

}  // namespace

TEST_CASE("a link to a file that is not there yet is followed", "[attend_npy]") {
  const ProgramFolder folder;
  const std::string words = Arrays({.tokens = 5}, 1).save(folder);
  fs::create_directory(folder / "elsewhere");
  fs::create_symlink("elsewhere/first.npy", folder / "link.npy");
  fs::create_symlink("second.npy", folder / "elsewhere/first.npy");
  REQUIRE(folder.run(words + " --out link.npy").status == 0);
  REQUIRE(fs::is_symlink(folder / "link.npy"));
  REQUIRE(fs::is_symlink(folder / "elsewhere/first.npy"));
  REQUIRE(fs::is_regular_file(folder / "elsewhere/second.npy"));
  fs::create_symlink("loop.npy", folder / "loop.npy");
  fs::create_symlink("nowhere/y.npy", folder / "astray.npy");
  const auto before = folder.names();
  refused(folder, before, folder.run(words + " --out loop.npy"),
          "--out loop.npy: cannot be written, its links do not end");
  refused(folder, before, folder.run(words + " --out astray.npy"), "--out astray.npy: cannot be written, No such file");
}

TEST_CASE("a limit on the size of files is no signal, and leaves none", "[attend_npy]") {
  const ProgramFolder folder;
  const std::string words = Arrays({.tokens = 400}, 1).save(folder);
  const auto before = folder.names();
  refused(folder, before, folder.run(words + " --out y.npy", "ulimit -f 1; "),
          "--out y.npy: cannot be written to its end");
  refused(folder, before, folder.run(words + " --out y.npy --state-out s --diagnostics d.npy", "ulimit -f 1; "),
          "cannot be written to its end");
}

TEST_CASE("what cannot be printed is an error, and leaves no file", "[attend_npy]") {
  const ProgramFolder folder;
  const std::string words = Arrays({.tokens = 5}, 1).save(folder) + " --out y.npy";
  const auto before = folder.names();
  for (const std::string elsewhere : {">&-", ">/dev/full"}) {
    if (elsewhere == ">/dev/full" && !fs::exists("/dev/full")) continue;
    CAPTURE(elsewhere);
    refused(folder, before, folder.run(words, "", elsewhere), "standard output: cannot be written to its end");
    refused(folder, before, folder.run("--help", "", elsewhere), "standard output: cannot be written to its end");
  }
  REQUIRE(folder.run(words, "", ">&- 2>&- <&-").status == 2);
  REQUIRE(folder.names() == before);
  REQUIRE(folder.run(words, "", "<&-").status == 0);
}

TEST_CASE("a signal that ends the program leaves no partial file", "[attend_npy]") {
  const ProgramFolder folder;
  folder.save<float>("x.npy", {40000, 2}, std::vector<float>(80000, .5F));
  const std::string has_partial = "ls '" + folder / "" + "' | grep -q partial";
  const int status = folder
                         .run("--q x.npy --k x.npy --v x.npy --feature exponential --out y.npy", "exec ",
                              "& for n in $(seq 1000); do " + has_partial + " && break; sleep .01; done; " +
                                  has_partial + " || exit 1; kill $!; wait $!")
                         .status;
  REQUIRE(status == 128 + SIGTERM);
  REQUIRE(folder.names() == std::set<std::string>{"x.npy"});
}

// The sanitizers have a memory of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("the end of memory is no signal, wherever it comes", "[attend_npy]") {
  const ProgramFolder folder;
  const std::string words = Arrays({.axes = 3, .tokens = 700}, 1).save(folder) + " --out y.npy --compare";
  const auto before = folder.names();
  const auto run = [&](int kilobytes) {
    fs::remove(folder / "y.npy");
    return folder.run(words, "ulimit -v " + std::to_string(kilobytes) + "; ");
  };
  int least = 1000, most = 1000000;  // a limit that is too low for the libraries, and one that is not
  while (most - least > 8) {
    const int middle = (least + most) / 2, status = run(middle).status;
    const bool has_started = status == 0 || status == 2 || status == 128 + SIGABRT;
    (has_started ? most : least) = middle;
  }
  bool was_refused = false;
  for (int kilobytes = most; kilobytes < most + 4000; kilobytes += kilobytes < most + 200 ? 8 : 200) {
    const Finished finished = run(kilobytes);
    CAPTURE(kilobytes, finished.err);
    if (finished.status == 0) continue;
    was_refused = true;
    refused(folder, before, finished, "there is not enough memory for these arrays");
  }
  REQUIRE(was_refused);
}
#endif

TEST_CASE("a row that is not a number though the input is finite names the scale", "[attend_npy]") {
  const ProgramFolder folder;
  const std::string words = Arrays({.axes = 4, .tokens = 5, .feature = "random", .scale = 1e308}, 1).save(folder);
  const auto before = folder.names();
  refused(folder, before, folder.run(words + " --out y.npy --diagnostics d.npy"),
          "--scale is 1e+308: row (0, 0, 0) of Y is not a number though --q q.npy, --k k.npy and --v v.npy are finite");
}
