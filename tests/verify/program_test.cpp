// A program of one's own propositions: what it prints, writes and returns, and what it says of mistakes.
#include <sympow/verify/program.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "catch.hpp"
#include "files.hpp"
#include "json_reader.hpp"
#include "reports/report_files.hpp"

using namespace sympow::verify;
namespace test = sympow::test;
namespace files = std::filesystem;

namespace {

void small(Ledger& ledger, std::uint64_t seed) {
  ledger.holds("a1", 1e-16, 1e-15, "a = a", "F §1");
  ledger.holds("a2", static_cast<double>(seed), {1e6, "seeds are large", "row rule"}, "seeds are bounded", "F §2");
}
void large(Ledger& ledger, std::uint64_t) {
  ledger.erratum("b1", 1, .5, "a = b", "F §2, box", "a = a", 0, 0);
  ledger.control("c1", 1, .5, "a mutant", "(extension)");
  ledger.documents("d1", "a listing runs", "F", "it does not");
}
void wrong(Ledger& ledger, std::uint64_t) { ledger.holds("w1", 2, 1, "2 ≤ 1", "F §3"); }

std::vector<PropositionGroup> fine() { return {{"small", small}, {"large", large}}; }
std::vector<PropositionGroup> with_wrong() { return {{"small", small}, {"wrong", wrong}}; }

bool greet(const std::string& scalar, std::uint64_t seed) { return scalar == "double" && seed == 3; }

const std::vector<Paper> papers_of_mine = {{"F", "My Paper", "A. Researcher", "2026", "", ""}};

struct Outcome {
  int status;
  std::string out, errors;
};

std::string read(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

Outcome run(std::vector<const char*> arguments, std::vector<PropositionGroup> (*groups)() = fine,
            std::FILE* out = std::tmpfile()) {
  arguments.insert(arguments.begin(), "mine");
  std::FILE* errors = std::tmpfile();
  const Program program{"mine",  "Decides mine.", groups, nullptr, papers_of_mine, {{"--greet", "says hello", greet}},
                        nullptr, report_files()};
  const int status = run_program(static_cast<int>(arguments.size()), arguments.data(), program, out, errors);
  return {status, read(out), read(errors)};
}

}  // namespace

TEST_CASE("a program of one's own propositions prints heading, lines, table and total", "[verify]") {
  const auto [status, out, errors] = run({});
  REQUIRE(status == 0);
  REQUIRE(out.starts_with("mine: double, seed 1; sympow "));
  REQUIRE_THAT(out, test::contains("  F  A. Researcher. My Paper. 2026\n"));
  REQUIRE_THAT(out, test::contains("holds       a2"));
  REQUIRE_THAT(out,
               test::contains(
                   "5 statements in double: 2 hold, 1 is an erratum (the printed form fails, the corrected one holds), "
                   "1 control fails as it must,\n1 is about the papers' listings"));
  REQUIRE_THAT(out, test::contains("F                                2           1                       1       4\n"));
  REQUIRE(out.find("bound: ") == std::string::npos);
  REQUIRE_THAT(errors, test::contains("deciding group 2 of 2: large\n"));
  REQUIRE_THAT(run({"--explain"}).out, test::contains("bound: seeds are large\n"));
  REQUIRE_THAT(run({"--seed", "7"}).out, test::contains("7.0e+00 <=  1.0e+06"));
}

TEST_CASE("an unexpected statement gives the exit status 1", "[verify]") {
  const auto [status, out, errors] = run({}, with_wrong);
  REQUIRE(status == 1);
  REQUIRE_THAT(out, test::contains("UNEXPECTED  w1"));
  REQUIRE_THAT(out, test::contains("1 unexpected"));
  REQUIRE(run({"--filter", "a"}, with_wrong).status == 0);
  REQUIRE(run({"--verdict", "unexpected"}, with_wrong).status == 1);
}

TEST_CASE("selections on the command line", "[verify]") {
  REQUIRE_THAT(run({"--filter", "a,b", "--filter", "c1"}).out, test::contains("\n4 statements in double"));
  REQUIRE_THAT(run({"--filter", "a,b", "--verdict", "erratum"}).out, test::contains("\n1 statement in double"));
  REQUIRE_THAT(run({"--words", "MUTANT"}).out, test::contains("\n1 statement in double"));
  REQUIRE_THAT(run({"--paper", "F"}).out, test::contains("\n4 statements in double"));
}

TEST_CASE("ids are found in either case", "[verify]") {
  for (const char* ids : {"A,B1", "a,b1"})
    REQUIRE_THAT(run({"--filter", ids}).out, test::contains("\n3 statements in double"));
}

TEST_CASE("a list is all that is printed", "[verify]") {
  const auto [status, out, errors] = run({"--list"});
  REQUIRE(status == 0);
  REQUIRE(errors.empty());
  REQUIRE_THAT(out, test::contains("b1           erratum     a = b  [F §2, box]\n"));
  REQUIRE_THAT(out, test::contains("\n5 statements\n"));
  REQUIRE(out.find("<=") == std::string::npos);
}

TEST_CASE("all files are written in one run", "[verify]") {
  const test::Folder folder;
  const std::string json = folder / "a.json", tex = folder / "a.tex", md = folder / "a.md", svg = folder / "a.svg";
  const auto [status, out, errors] =
      run({"--json", json.c_str(), "--latex", tex.c_str(), "--markdown", md.c_str(), "--figure", svg.c_str()});
  REQUIRE(status == 0);
  REQUIRE(folder.names().size() == 4);
  REQUIRE(test::read_json(test::bytes_of(json)).at("propositions").items.size() == 5);
  REQUIRE_THAT(test::bytes_of(tex), test::contains("\\end{document}"));
  REQUIRE_THAT(test::bytes_of(md), test::contains("My Paper"));
  REQUIRE_THAT(test::bytes_of(svg), test::contains("</svg>"));
}

TEST_CASE("a mistake on the command line is one line that names it, and the exit status 2", "[verify]") {
  const auto complaint = [](const std::vector<const char*>& arguments) {
    const auto [status, out, errors] = run(arguments);
    REQUIRE(status == 2);
    REQUIRE(errors.starts_with("mine: "));
    REQUIRE(std::count(errors.begin(), errors.end(), '\n') == 1);
    REQUIRE(out.empty());
    return errors.substr(6, errors.size() - 7);
  };
  REQUIRE(complaint({"--what"}) == "unknown argument --what");
  REQUIRE(complaint({"a1"}) == "unknown argument a1");
  REQUIRE(complaint({"--filter"}) == "--filter needs a value");
  REQUIRE(complaint({"--filter", "--list"}) == "--filter needs a value, not '--list'");
  REQUIRE(complaint({"--filter", "a,,b"}) == "--filter a,,b: nothing stands before or after a comma");
  REQUIRE(complaint({"--seed", "-1"}) == "--seed -1: a whole number of up to 18 digits is needed");
  REQUIRE(complaint({"--scalar", "half"}) == "--scalar half: double is needed");
  REQUIRE(complaint({"--paper", "A"}) == "--paper A: one of F is needed");
  REQUIRE(complaint({"--verdict", "fine"}) ==
          "--verdict fine: one of holds, erratum, control, documented, unexpected is needed");
  REQUIRE(complaint({"--json", "a", "--json", "b"}) == "--json b: --json is given twice");
  REQUIRE(complaint({"--json", "a", "--latex", "a"}) == "--json a: is the same file as --latex a");
  REQUIRE(complaint({"--json", "a", "--latex", "./a"}) == "--json a: is the same file as --latex ./a");
  REQUIRE(complaint({"--json", "-"}) == "--json -: names no file");
  REQUIRE(complaint({"--greet", "--list"}) == "--list does not go with --greet");
  const auto [status, out, errors] = run({"--filter", "zz", "--words", "no such"});
  REQUIRE(status == 2);
  REQUIRE(errors.ends_with("mine: no statement fits --filter zz --words no such\n"));
}

TEST_CASE("a file that cannot be written is named at once, and nothing is left of it", "[verify]") {
  const test::Folder folder;
  files::create_directory(folder / "taken");
  for (const std::string& path : {folder / "taken", folder / "none/a.json", std::string("/dev/full")}) {
    if (path == "/dev/full" && !files::exists(path)) continue;
    for (const char* option : {"--json", "--latex", "--markdown", "--figure"}) {
      const auto [status, out, errors] = run({option, path.c_str()});
      CAPTURE(option, path, errors);
      REQUIRE(status == 2);
      REQUIRE_THAT(errors, test::contains(std::string("mine: ") + option + " " + path + ": cannot be written"));
      REQUIRE((out.empty() || path == "/dev/full"));
      REQUIRE(folder.names().size() == 1);
    }
  }
  const std::string kept = folder / "kept.json";
  std::ofstream(kept) << "before";
  REQUIRE(run({"--json", kept.c_str(), "--latex", (folder / "none/a.tex").c_str()}).status == 2);
  REQUIRE(test::bytes_of(kept) == "before");
  REQUIRE(run({"--json", kept.c_str(), "--filter", "zz"}).status == 2);
  REQUIRE(test::bytes_of(kept) == "before");
  REQUIRE(folder.names().size() == 2);
  {
    sympow::io::OutputFile file("--json", folder / "late.json");
    files::create_directory(folder / "late.json");
    file.open() << "{}";
    file.finish();
    REQUIRE_THROWS_WITH(file.commit(), test::contains("--json " + (folder / "late.json") + ": cannot be written"));
  }
  REQUIRE(folder.names().size() == 3);
}

TEST_CASE("a link to a file is followed, and a file that is replaced keeps its mode", "[verify]") {
  const test::Folder folder;
  for (const char* option : {"--json", "--latex", "--markdown", "--figure"})
    for (const auto mode : {files::perms::owner_read | files::perms::owner_write, files::perms(0764)}) {
      CAPTURE(option);
      const std::string file = folder / "file", link = folder / "link";
      std::ofstream(file) << "before";
      files::permissions(file, mode);
      files::remove(link);
      files::create_symlink("file", link);
      REQUIRE(run({option, link.c_str()}).status == 0);
      REQUIRE(files::is_symlink(link));
      REQUIRE(test::bytes_of(file).size() > 100);
      REQUIRE(files::status(file).permissions() == mode);
      files::remove(file);
      REQUIRE(run({option, link.c_str()}).status == 0);
      REQUIRE(files::is_symlink(link));
      REQUIRE(test::bytes_of(file).size() > 100);
      REQUIRE(folder.names().size() == 2);
    }
}

TEST_CASE("what is open already is written to, not replaced", "[verify]") {
  const files::path path = files::temp_directory_path() / "sympow_open_already";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  const files::path open = "/proc/self/fd/" + std::to_string(fileno(file));
  if (files::exists(open)) {  // where there is such a folder
    std::fputs("first\n", file);
    std::fflush(file);
    sympow::io::OutputFile output("--out", open.string());
    output.open() << "second\n";
    output.finish();
    output.commit();
    std::ifstream in(path);
    CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == "first\nsecond\n");
  }
  std::fclose(file);
  files::remove(path);
}

TEST_CASE("what cannot be printed is an error, and ends the run at once", "[verify]") {
  if (!files::exists("/dev/full")) return;
  const auto lost = [](const std::vector<const char*>& arguments) {
    const auto [status, out, errors] = run(arguments, fine, std::fopen("/dev/full", "w"));
    REQUIRE(status == 2);
    REQUIRE(errors == "mine: standard output: cannot be written to its end\n");
  };
  lost({});
  lost({"--list"});
  lost({"--help"});
}

TEST_CASE("help and commands of the program's own", "[verify]") {
  const auto [status, out, errors] = run({"--help"});
  REQUIRE(status == 0);
  for (const char* word : {"usage: mine", "Decides mine.", "--filter", "--words", "--paper", "--verdict", "--list",
                           "--explain", "--scalar", "--seed", "--markdown", "--latex", "--json", "--figure", "--greet"})
    REQUIRE_THAT(out, test::contains(word));
  REQUIRE(run({"--greet", "--seed", "3"}).status == 0);
  REQUIRE(run({"--greet"}).status == 1);
}

TEST_CASE("the version is that of the project", "[verify]") {
  const std::string project = test::bytes_of(std::string(SYMPOW_SOURCE_DIR) + "/CMakeLists.txt");
  REQUIRE_THAT(project, test::contains(std::string("project(sympow VERSION ") + sympow::library_version + " "));
  const int digits = SYMPOW_VERSION;  // what the preprocessor is told
  REQUIRE(std::to_string(digits / 10000) + "." + std::to_string(digits / 100 % 100) + "." +
              std::to_string(digits % 100) ==
          sympow::library_version);
}
