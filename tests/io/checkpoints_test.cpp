// Checkpoints: what is kept, what is found, and that no damage goes unseen; the checksum that sees it.
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>

#include <sympow/core/checked_file.hpp>
#include <sympow/io/checkpoints.hpp>

#include "catch.hpp"
#include "files.hpp"
#include "tensors.hpp"

using namespace sympow;
using namespace sympow::io;
using namespace sympow::test;

namespace {

std::optional<Checkpoint> newest(const std::string& folder) {
  std::ostringstream complaints;
  return newest_checkpoint(folder, complaints);
}

std::string name_of(int step) { return "step-0000000" + std::to_string(step) + ".safetensors"; }

}  // namespace

TEST_CASE("the last checkpoints are kept, and the newest is found", "[io]") {
  const Folder folder;
  const std::string run = folder / "run/of today";
  CHECK_FALSE(newest(run));
  write_bytes(run + "/step-00000005.safetensors.partial-123", "cut");
  write_bytes(run + "/step-5.safetensors", "not a name of ours");
  write_bytes(run + "/loss.csv", "");
  const Checkpoints checkpoints(run);
  CHECK_FALSE(newest(run));
  Numbers x;
  CHECK_THROWS_WITH(checkpoints.save(7, x.tensors(), {}, 0), contains("must be at least 1"));
  for (const Index step : {8, 9, 1200, 100'000'000}) {
    x.a[0] = static_cast<float>(step);
    checkpoints.save(step, x.tensors(), {{"rate", ".1"}, {"step", "a lie"}}, 2);
    const auto found = newest(run);
    REQUIRE(found);
    CHECK(found->step == step);
    CHECK(found->metadata.at("rate") == ".1");
    CHECK(found->metadata.at("step") == std::to_string(step));
    Numbers read;
    CHECK(read_safetensors(found->path, read.tensors()) == found->metadata);
    CHECK(same_bits(read.a, x.a));
  }
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run)) names.insert(entry.path().filename().string());
  CHECK(names == std::set<std::string>{"lock", "loss.csv", "step-00001200.safetensors", "step-100000000.safetensors",
                                       "step-5.safetensors"});
  checkpoints.save(50, x.tensors(), {}, 2);  // a run that went on from an earlier one keeps its own
  CHECK(fs::exists(run + "/step-00000050.safetensors"));
}

TEST_CASE("a checkpoint that is cut or has one bit flipped gives way to the one before it", "[io]") {
  const Folder folder;
  const std::string run = folder.path.string(), last = run + "/" + name_of(2);
  Numbers x = odd_numbers();
  const Checkpoints checkpoints(run);
  checkpoints.save(1, x.tensors(), {{"rate", ".1"}}, 2);
  checkpoints.save(2, x.tensors(), {{"rate", ".1"}}, 2);
  REQUIRE(newest(run)->step == 2);
  const std::string whole = bytes_of(last);
  REQUIRE(whole.size() > 250);
  const auto falls_back = [&](const std::string& bytes) {
    write_bytes(last, bytes);
    std::ostringstream complaints;
    const auto found = newest_checkpoint(run, complaints);
    return found && found->step == 1 && complaints.str().find(last + ": ") != std::string::npos;
  };
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    if (!falls_back(whole.substr(0, n))) FAIL_CHECK("cut");
    for (int bit = 0; bit < 8; ++bit) {
      if (bit == 5 && n == whole.find("\\u000a") + 5) continue;  // \u000A is the same name
      std::string bytes = whole;
      bytes[n] = static_cast<char>(bytes[n] ^ (1 << bit));
      if (!falls_back(bytes)) FAIL_CHECK("bit " << bit);
    }
  }
  CHECK(falls_back(whole + '\0'));
  CHECK(falls_back(bytes_of(run + "/" + name_of(1))));  // whole, of another step
  write_bytes(last, whole);
  CHECK(newest(run)->step == 2);
  for (const int step : {1, 2}) write_bytes(run + "/" + name_of(step), "damaged");
  CHECK_FALSE(newest(run));
}

TEST_CASE("a checkpoint that is larger than memory, or that its reader refuses, gives way to the one before it",
          "[io]") {
  const Folder folder;
  const std::string run = folder.path.string(), last = run + "/" + name_of(2);
  Numbers x = odd_numbers();
  const Checkpoints checkpoints(run);
  for (const int step : {1, 2}) checkpoints.save(step, x.tensors(), {}, 2);
  std::vector<Index> loaded;
  std::ostringstream complaints;
  const auto found = newest_checkpoint(run, complaints, [&](const Checkpoint& checkpoint) {
    loaded.push_back(checkpoint.step);
    if (checkpoint.step == 2) throw InvalidArgument("not mine");
  });
  REQUIRE(found);
  CHECK(found->step == 1);
  CHECK(loaded == std::vector<Index>{2, 1});
  CHECK(complaints.str().find("checkpoint of step 2 is not taken: not mine") != std::string::npos);

  const std::string header = R"({"x":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}})";
  const std::uint64_t size = header.size();
  write_bytes(last, std::string(reinterpret_cast<const char*>(&size), sizeof size) + header);
  fs::resize_file(last, sizeof size + size + (std::uintmax_t{1} << 40));  // a hole, which takes no room
  REQUIRE(newest(run));
  CHECK(newest(run)->step == 1);
  CHECK_THROWS_WITH(read_safetensors(last), contains("its tensors take 1099511627776 bytes, this machine has "));
}

TEST_CASE("a folder of checkpoints has one writer at a time", "[io]") {
  const Folder folder;
  const std::string run = folder / "run";
  {
    const Checkpoints first(run);
    CHECK_THROWS_AS(Checkpoints(run), FolderInUse);
    CHECK_THROWS_WITH(Checkpoints(run), contains(run + ": another program writes to this folder"));
    const Checkpoints other(folder / "other");
  }
  const Checkpoints after(run);
  write_bytes(folder / "file", "");
  CHECK_THROWS_AS(Checkpoints(folder / "file"), CannotWrite);
}

// ---- the checksum ----

TEST_CASE("a checksum sees every change of a word, and carries pieces on", "[io]") {
  const auto of = [](const std::string& bytes) { return checksum(std::as_bytes(std::span(bytes))); };
  const std::string zeros(24, '\0');
  for (std::size_t n = 0; n < zeros.size(); ++n)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = zeros;
      bytes[n] = static_cast<char>(1 << bit);
      CHECK(of(bytes) != of(zeros));
      bytes[(n + 8) % 24] = static_cast<char>(1 << bit);  // the same bit of two words, a sign too
      CHECK(of(bytes) != of(zeros));
    }
  std::set<std::uint64_t> sums;
  for (std::size_t n = 0; n <= zeros.size(); ++n) sums.insert(of(zeros.substr(0, n)));
  CHECK(sums.size() == 25);
  CHECK(of("abcdefghijk") == 10383859052688319563u);  // on every machine
}
