// The program: what it trains, that a kill loses nothing, and what it says of mistakes.
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <sympow/core/random.hpp>
#include <sympow/io/checkpoints.hpp>

#include "catch.hpp"
#include "files.hpp"

using namespace sympow::test;

namespace {

// Runs the program in a folder, what it says going to `said`, but its output to `out` if that is given; killed after so
// many microseconds, if they are not 0. Returns its exit status, -1 if it was killed.
int run(const fs::path& folder, std::vector<std::string> words, useconds_t until_kill = 0, const char* out = nullptr) {
  words.insert(words.begin(), SYMPOW_LANGUAGE_MODEL);
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string said = folder / "said";
    if (std::freopen(said.c_str(), "w", stdout) == nullptr || dup2(1, 2) < 0 || chdir(folder.c_str()) != 0) _exit(99);
    if (out != nullptr && std::freopen(out, "w", stdout) == nullptr) _exit(97);
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

// The first column of a table, its name included.
std::vector<std::string> steps_of(const std::string& table) {
  std::vector<std::string> steps;
  std::istringstream rows(table);
  for (std::string row; std::getline(rows, row);) steps.push_back(row.substr(0, row.find(',')));
  return steps;
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
    const int status =
        run(folder.path, training("run", steps), static_cast<useconds_t>(random.integer(2000, 400000 + 20000 * kills)));
    if (status == 0) break;
    REQUIRE(status == -1);
    REQUIRE(++kills < 200);
  }
  CAPTURE(kills);
  const std::string name = "step-00000060.safetensors";
  const std::string weights = bytes_of(folder.path / "whole" / name);
  REQUIRE(weights.size() > 30000);
  CHECK(weights == bytes_of(folder.path / "run" / name));
  CHECK(steps_of(bytes_of(folder.path / "run" / "loss.csv")) == steps_of(bytes_of(folder.path / "whole" / "loss.csv")));
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

  const auto refuses = [&](const std::string& option, const std::string& value, const std::string& why) {
    CHECK(run(folder.path, {"train", "--out", "run", "--steps", "160", option, value}) == 2);
    CHECK(bytes_of(folder.path / "said") ==
          "language_model: " + option + " is " + why + " in run/step-00000150.safetensors; take another --out\n");
  };
  refuses("--seed", "2", "2, but 1");
  refuses("--d_model", "64", "64, but 32");
  refuses("--data", "README.md", folder / "README.md, but " SYMPOW_SOURCE_DIR "/README.md");
}

TEST_CASE("a run goes on from its folder alone, and its table has every step once", "[language_model]") {
  const Folder folder;
  const fs::path table = folder.path / "run" / "loss.csv";
  auto words = training("run", 5);
  words.insert(words.end(), {"--key_heads", "1", "--setting", "softmax"});
  REQUIRE(run(folder.path, words) == 0);
  const std::string rows = bytes_of(table);
  write_bytes(table, rows + "6,1,2,3,4,5\n7,1,2,3");  // killed after the checkpoint
  CHECK(run(folder.path, {"train", "--out", "run"}) == 0);
  CHECK(bytes_of(table) == rows);
  write_bytes(table, rows + "6,1,2,3,4,5\n7,1,2,3");
  CHECK(run(folder.path, {"train", "--out", "run", "--steps", "7", "--rate", ".005", "--key_heads", "1"}) == 0);
  CHECK(steps_of(bytes_of(table)) == std::vector<std::string>{"step", "1", "2", "3", "4", "5", "6", "7"});
  CHECK(bytes_of(table).starts_with(rows));
  CHECK(bytes_of(folder.path / "said").find("going on from run/step-00000005.safetensors") != std::string::npos);
  fs::rename(folder.path / "run", folder.path / "moved");
  CHECK(run(folder.path, {"train", "--out", "moved", "--steps", "8"}) == 0);
  CHECK(fs::exists(folder.path / "moved" / "step-00000008.safetensors"));
  CHECK_FALSE(fs::exists(folder.path / "run"));
}

TEST_CASE("a folder takes one training at a time", "[language_model]") {
  const Folder folder;
  {
    const sympow::io::Checkpoints other(folder / "run");
    CHECK(run(folder.path, training("run", 3)) == 2);
    CHECK(bytes_of(folder.path / "said") ==
          "language_model: run: another program writes to this folder; wait for its end or take another one\n");
    CHECK(fs::exists(folder.path / "run"));
    CHECK_FALSE(fs::exists(folder.path / "run" / "loss.csv"));
  }
  CHECK(run(folder.path, training("run", 3)) == 0);
}

TEST_CASE("a checkpoint that lies gives way to the one before it", "[language_model]") {
  const Folder folder;
  REQUIRE(run(folder.path, training("run", 6)) == 0);
  const std::string first = folder / "run/step-00000003.safetensors", last = folder / "run/step-00000006.safetensors";
  const auto takes_first = [&](const std::string& why) {
    CAPTURE(why);
    CHECK(run(folder.path, {"generate", "--out", "run", "--prompt", "a", "--bytes", "1"}, 0, "text") == 0);
    const std::string said = bytes_of(folder.path / "said");
    CAPTURE(said);
    CHECK(said.starts_with("checkpoint of step 6 is not taken: "));
    CHECK(said.find(why) != std::string::npos);
    CHECK(bytes_of(folder.path / "text").size() == 3);
  };
  // settings of others, under a checksum that fits
  sympow::io::Safetensors file = sympow::io::read_safetensors(last);
  const auto lies = [&](const std::string& name, const std::string& value, const std::string& why) {
    auto metadata = file.metadata;
    metadata[name] = value;
    sympow::io::Checkpoints(folder / "run").save(6, file.tensors, metadata, 2);
    takes_first(why);
  };
  lies("d_model", "2147483646", "must be less than this machine's memory");
  lies("d_model", "4096", "is too short for the weights of its settings");
  lies("layers", "1000000000000", "--layers is 1000000000000, must be a number in 1 … 2147483647");
  lies("layers", "1", "which is not wanted");
  lies("heads", "0", "--heads is 0, must be a number in 1 … ");
  lies("setting", "hard", "--setting is hard");
  // a header of 1 TB of numbers, in a file with a hole
  const std::string header = R"({"x":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}})";
  const std::uint64_t size = header.size();
  write_bytes(last, std::string(reinterpret_cast<const char*>(&size), sizeof size) + header);
  fs::resize_file(last, sizeof size + size + (std::uintmax_t{1} << 40));
  takes_first("its tensors take 1099511627776 bytes, this machine has ");
  // none is left: nothing begins anew in its place
  write_bytes(first, "damaged");
  CHECK(run(folder.path, training("run", 9)) == 2);
  CHECK(bytes_of(folder.path / "said").find("--out run: none of its checkpoints can be taken") != std::string::npos);
}

TEST_CASE("what cannot be written ends with status 2, and nothing is lost", "[language_model]") {
  const Folder folder;
  REQUIRE(run(folder.path, training("run", 3)) == 0);
  const auto fails = [&](const std::vector<std::string>& words, const std::string& why, const char* out) {
    CHECK(run(folder.path, words, 0, out) == 2);
    CHECK(bytes_of(folder.path / "said") == "language_model: " + why + ": cannot be written to its end\n");
  };
  std::vector<std::string> generate = {"generate", "--out", "run", "--prompt", "a", "--bytes", "3", "--state", "its"};
  REQUIRE(run(folder.path, generate) == 0);
  const std::string state = bytes_of(folder.path / "its");
  fails(generate, "standard output", "/dev/full");
  CHECK(bytes_of(folder.path / "its") == state);
  fails({"evaluate", "--out", "run", "--windows", "1"}, "standard output", "/dev/full");
  fails({"help"}, "standard output", "/dev/full");
  fails({"evaluate", "--out", "run", "--windows", "1", "--csv", "/dev/full"}, "--csv /dev/full", "text");
  CHECK(run(folder.path, {"evaluate", "--out", "run", "--csv", "nowhere/losses.csv"}, 0, "text") == 2);
  CHECK(bytes_of(folder.path / "text").empty());

  fs::create_directory(folder.path / "full");
  fs::create_symlink("/dev/full", folder.path / "full" / "loss.csv");
  CHECK(run(folder.path, training("full", 6)) == 2);
  CHECK(bytes_of(folder.path / "said").find("language_model: full/loss.csv: cannot be written\n") != std::string::npos);
  CHECK_FALSE(fs::exists(folder.path / "full" / "step-00000003.safetensors"));
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
    for (const char* path : {".", "/dev/zero"})  // the latter has no end
      CHECK(generate({"--bytes", "1", "--state", path}).find("is no regular file") != std::string::npos);
    words[10] = "9";  // steps
    REQUIRE(run(folder.path, words) == 0);
    refuses(state, "is of another checkpoint");
  }
}

TEST_CASE("a checkpoint of numbers that are not finite, or make such, is not used", "[language_model]") {
  const Folder folder;
  REQUIRE(run(folder.path, training("run", 6)) == 0);
  std::set<fs::path> checkpoints;
  for (const auto& file : fs::directory_iterator(folder.path / "run"))
    if (file.path().extension() == ".safetensors") checkpoints.insert(file.path());
  REQUIRE(checkpoints.size() > 1);
  const std::string newest = checkpoints.rbegin()->string();
  const auto file = sympow::io::read_safetensors(newest);
  std::vector<sympow::io::Tensor> tensors(file.tensors.begin(), file.tensors.end());
  const auto write_newest = [&] {
    sympow::io::Metadata metadata = file.metadata;
    metadata.erase("checksum");
    metadata["checksum"] = sympow::io::detail::compute_checksum(tensors, metadata);
    sympow::io::write_safetensors(newest, tensors, metadata);
  };
  for (const auto& tensor : tensors) std::ranges::fill(tensor.numbers, 3e38f);
  write_newest();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"generate", "--out", "run", "--prompt", "a"},
                                                {"evaluate", "--out", "run", "--windows", "1", "--length", "9"}}) {
    CHECK(run(folder.path, words, 0, "text") == 2);
    const std::string said = bytes_of(folder.path / "said");
    CAPTURE(said);  // the order of sums decides whether an infinity or a NaN is met first
    CHECK((said.find("finite") != std::string::npos || said.find("nan,") != std::string::npos));
  }
  tensors.front().numbers[0] = std::numeric_limits<float>::quiet_NaN();
  write_newest();
  REQUIRE(run(folder.path, {"generate", "--out", "run", "--prompt", "a", "--bytes", "3"}) == 0);
  CHECK(bytes_of(folder.path / "said").find("has numbers that are not finite") != std::string::npos);
}

TEST_CASE("what the program refuses", "[language_model]") {
  const Folder folder;
  const auto refuses = [&](const std::vector<std::string>& words, const std::string& why) {
    CAPTURE(why);
    CHECK(run(folder.path, words) == 2);
    const std::string said = bytes_of(folder.path / "said");
    CHECK(said.starts_with("language_model: "));
    CHECK(said.find(why) != std::string::npos);
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
  };
  refuses({"study"}, "study is no command, must be train, evaluate or generate");
  refuses({"train"}, "--data is missing");
  refuses({"train", "data"}, "data is no option");
  refuses({"train", "--data"}, "--data needs a value");
  refuses({"train", "--data", "nothing.txt"}, "nothing.txt");
  refuses({"train", "--steps", "many"}, "--steps is many");
  refuses({"train", "--layers", "0"}, "--layers is 0, must be a number in 1 … 2147483647");
  refuses({"train", "--d_model", "0"}, "--d_model is 0, must be a number in 1 … 2147483647");
  refuses({"train", "--batch", "9223372036854775807"}, "--batch is 9223372036854775807, must be a number in 1 … ");
  refuses({"train", "--steps", "-1"}, "--steps is -1, must be a number in 1 … ");
  refuses({"train", "--threads", "1.5"}, "--threads is 1.5, must be a number in 0 … 2147483647");
  refuses({"train", "--rate", "inf"}, "--rate is inf, must be a number in 0 … 1.79");
  refuses({"train", "--rate", "nan"}, "--rate is nan");
  refuses({"train", "--tied", "yes"}, "--tied is yes, must be 0 or 1");
  refuses({"train", "--longest", "0"}, "--longest is 0, must be at least 1");
  refuses({"train", "--heads", "8", "--key_heads", "3"}, "--key_heads is 3, must divide --heads, which is 8");
  refuses({"train", "--layers", "1000000", "--d_model", "100000"},
          "--layers 1000000 --d_model 100000 --heads 8 --d 32");
  refuses({"train", "--lenght", "5"}, "--lenght 5: there is no such option, must be one of --out --data --setting");
  refuses({"evaluate", "--lenght", "5"}, "--lenght 5: there is no such option, must be one of --out --data --threads");
  refuses({"evaluate", "--windows", "0"}, "--windows is 0, must be a number in 1 … ");
  refuses({"generate", "--temprature", "1"}, "--temprature 1: there is no such option, must be one of --out --prompt");
  write_bytes(folder.path / "file", "");
  for (const char* command : {"train", "evaluate", "generate"})
    refuses({command, "--out", "file"}, "--out is file, which is no folder, must be one or a new name");
  refuses({"train", "--context", "0"}, "--context is 0");
  refuses({"train", "--data", SYMPOW_SOURCE_DIR "/README.md", "--context", "999999999"}, "a window needs 1000000000");
  if (sympow::io::machine_memory() < 32'000'000'000)
    refuses({"train", "--data", SYMPOW_SOURCE_DIR "/README.md", "--context", "9", "--batch", "2147483647"},
            "--batch 2147483647 --context 9 make a step of ");
  refuses({"train", "--data", SYMPOW_SOURCE_DIR "/README.md", "--setting", "hard"}, "--setting is hard");
  refuses({"train", "--data", SYMPOW_SOURCE_DIR "/README.md", "--power", "3"}, "--power is 3");
  refuses({"train", "--d", "15"}, "--d is 15, must be even");
  refuses({"evaluate", "--out", "nowhere"}, "there is no checkpoint");
  refuses({"generate", "--out", "nowhere", "--prompt", "a"}, "there is no checkpoint");
  refuses({"generate", "--out", "nowhere", "--state", "a", "--state", "b"}, "--state is given twice");
  CHECK_FALSE(fs::exists(folder.path / "run"));
}
