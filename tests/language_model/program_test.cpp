// The program: what it trains, that a kill loses nothing, and what it says of mistakes.
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <sympow/core/random.hpp>

#include "catch.hpp"
#include "files.hpp"

using namespace sympow::test;

namespace {

// Runs the program in a folder, what it says going to `said`; killed after so many microseconds, if they are not 0.
// Returns its exit status, -1 if it was killed.
int run(const fs::path& folder, std::vector<std::string> words, useconds_t until_kill = 0) {
  words.insert(words.begin(), SYMPOW_LANGUAGE_MODEL);
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string said = folder / "said";
    if (std::freopen(said.c_str(), "w", stdout) == nullptr || dup2(1, 2) < 0 || chdir(folder.c_str()) != 0) _exit(99);
    execv(arguments[0], arguments.data());
    _exit(98);
  }
  if (until_kill > 0) {
    usleep(until_kill);
    kill(child, SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::vector<std::string> training(const std::string& out, int steps) {
  return {"train",
          "--data",
          SYMPOW_SOURCE_DIR "/README.md",
          "--out",
          out,
          "--context",
          "64",
          "--batch",
          "4",
          "--steps",
          std::to_string(steps),
          "--layers",
          "2",
          "--d_model",
          "32",
          "--heads",
          "2",
          "--d",
          "16",
          "--rate",
          "5e-3",
          "--checkpoint_every",
          "3"};
}

double loss_of_row(const std::string& table, std::size_t row) {
  std::size_t at = 0;
  for (std::size_t n = 0; n <= row; ++n) at = table.find('\n', at) + 1;
  for (int comma = 0; comma < 2; ++comma) at = table.find(',', at) + 1;
  return std::stod(table.substr(at));
}

}  // namespace

TEST_CASE("a run that is killed again and again makes the same bits as one that is not", "[language_model]") {
  const Folder folder;
  constexpr int steps = 60;
  REQUIRE(run(folder.path, training("run", steps)) == 0);
  fs::rename(folder.path / "run", folder.path / "whole");
  const std::uint64_t seed = static_cast<std::uint64_t>(getpid());
  CAPTURE(seed);
  sympow::Random random(seed);
  int kills = 0;
  while (true) {
    const int status = run(folder.path, training("run", steps), static_cast<useconds_t>(random.integer(2000, 400000)));
    if (status == 0) break;
    REQUIRE(status == -1);
    REQUIRE(++kills < 200);
  }
  CAPTURE(kills);
  const std::string name = "step-00000060.safetensors";
  const std::string weights = bytes_of(folder.path / "whole" / name);
  REQUIRE(weights.size() > 30000);
  CHECK(weights == bytes_of(folder.path / "run" / name));
  for (const auto& file : fs::directory_iterator(folder.path / "run"))
    CHECK(file.path().filename().string().find("partial") == std::string::npos);
}

TEST_CASE("a tiny model learns a real text, reads on and is evaluated", "[language_model]") {
  const Folder folder;
  REQUIRE(run(folder.path, training("run", 150)) == 0);
  const std::string table = bytes_of(folder.path / "run" / "loss.csv");
  CHECK(loss_of_row(table, 149) < .6 * loss_of_row(table, 0));
  REQUIRE(run(folder.path, {"evaluate", "--out", "run", "--windows", "2", "--csv", "losses.csv"}) == 0);
  const std::string losses = bytes_of(folder.path / "losses.csv");
  CHECK(std::count(losses.begin(), losses.end(), '\n') == 1 + 8 * 64);
  REQUIRE(run(folder.path, {"generate", "--out", "run", "--prompt", "The state ", "--bytes", "50"}) == 0);
  const std::string said = bytes_of(folder.path / "said");
  CHECK(said.size() == 10 + 50 + 1);
  CHECK(said.starts_with("The state "));
  REQUIRE(run(folder.path, {"generate", "--out", "run", "--prompt", "The state ", "--bytes", "50"}) == 0);
  CHECK(said == bytes_of(folder.path / "said"));

  auto other = training("run", 160);
  other.insert(other.end(), {"--seed", "2"});
  CHECK(run(folder.path, other) == 2);
  CHECK(bytes_of(folder.path / "said").find("--seed is 2, but 1 in run/step-00000150.safetensors") !=
        std::string::npos);
}

TEST_CASE("a generation that stops and goes on makes the same text", "[language_model]") {
  for (const char* setting : {"conformal", "softmax"}) {
    CAPTURE(setting);
    const Folder folder;
    auto words = training("run", 6);
    words.insert(words.end(), {"--setting", setting});
    REQUIRE(run(folder.path, words) == 0);
    const auto generate = [&](std::vector<std::string> more) {
      more.insert(more.begin(), {"generate", "--out", "run"});
      const int status = run(folder.path, more);
      const std::string said = bytes_of(folder.path / "said");
      return status == 0 ? said.substr(0, said.size() - 1) : std::to_string(status) + ": " + said;
    };
    const std::string whole = generate({"--prompt", "The state ", "--bytes", "60"});
    CHECK(whole.size() == 70);
    CHECK(generate({"--prompt", "The state ", "--bytes", "60", "--seed", "2"}) != whole);
    std::string text;
    for (const char* count : {"20", "1", "0", "39"})
      text += generate({"--prompt", text.empty() ? "The state " : "", "--bytes", count, "--state", "its state"});
    CHECK(text == whole);

    const std::string state = bytes_of(folder.path / "its state");
    const auto refuses = [&](const std::string& bytes, const std::string& why) {
      write_bytes(folder.path / "bad", bytes);
      const std::string said = generate({"--bytes", "1", "--state", "bad"});
      CAPTURE(said, why);
      CHECK(said.starts_with("2: language_model: --state bad: "));
      CHECK(said.find(why) != std::string::npos);
      CHECK(bytes_of(folder.path / "bad") == bytes);
    };
    refuses("", "is no file of a generation");
    refuses("the quick brown fox jumps over the lazy dog", "is no file of a generation");
    for (const std::size_t n :
         {std::size_t{30}, std::size_t{60}, state.size() / 2, state.size() - 9, state.size() - 1}) {
      refuses(state.substr(0, n), "is cut or damaged");
      std::string bytes = state;
      bytes[n] = static_cast<char>(bytes[n] ^ 1);
      refuses(bytes, "is cut or damaged");
    }
    words[10] = "9";  // steps
    REQUIRE(run(folder.path, words) == 0);
    refuses(state, "is of another checkpoint");
  }
}

TEST_CASE("what the program refuses", "[language_model]") {
  const Folder folder;
  const auto refuses = [&](const std::vector<std::string>& words, const std::string& why) {
    CAPTURE(why);
    CHECK(run(folder.path, words) == 2);
    CHECK(bytes_of(folder.path / "said").find(why) != std::string::npos);
  };
  refuses({"study"}, "study is no command");
  refuses({"train"}, "--data is missing");
  refuses({"train", "data"}, "data is no option");
  refuses({"train", "--data"}, "--data needs a value");
  refuses({"train", "--data", "nothing.txt"}, "nothing.txt");
  refuses({"train", "--steps", "many"}, "--steps is many");
  refuses({"train", "--layers", "0"}, "--layers is 0, must be at least 1");
  refuses({"train", "--steps", "-1"}, "--steps is -1");
  refuses({"train", "--data", SYMPOW_SOURCE_DIR "/README.md", "--context", "0"}, "--context is 0");
  refuses({"train", "--data", SYMPOW_SOURCE_DIR "/README.md", "--context", "999999999"}, "a window needs 1000000000");
  refuses({"train", "--data", SYMPOW_SOURCE_DIR "/README.md", "--setting", "hard"}, "--setting is hard");
  refuses({"train", "--data", SYMPOW_SOURCE_DIR "/README.md", "--power", "3"}, "--power is 3");
  refuses({"train", "--data", SYMPOW_SOURCE_DIR "/README.md", "--d", "15"}, "must be even");
  refuses({"evaluate", "--out", "nowhere"}, "there is no checkpoint");
  refuses({"generate", "--out", "nowhere", "--prompt", "a"}, "there is no checkpoint");
  refuses({"generate", "--out", "nowhere", "--state", "a", "--state", "b"}, "--state is given twice");
  refuses({"plot"}, "plot takes the folder of the tables");
  refuses({"plot", "nowhere"}, "nowhere/runs.csv");
  CHECK_FALSE(fs::exists(folder.path / "run"));
}
