// The files of a language model: checkpoints, a corpus.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "checkpoints.hpp"
#include "corpus.hpp"
#include "files.hpp"
#include "tensors.hpp"

using namespace language_model;
using namespace sympow::test;

namespace {

/// What is printed on the standard error while it lives.
struct Complaints {
  std::ostringstream text;
  std::streambuf* before = std::cerr.rdbuf(text.rdbuf());
  Complaints() = default;
  Complaints(const Complaints&) = delete;
  Complaints& operator=(const Complaints&) = delete;
  ~Complaints() { std::cerr.rdbuf(before); }
};

}  // namespace

TEST_CASE("the last checkpoints are kept, and the newest is found", "[language_model]") {
  const Folder folder;
  const std::string run = folder / "run/of today";
  CHECK_FALSE(newest(run));
  CHECK_THROWS_WITH(Checkpoints(run, 0), contains("must be at least 1"));
  write_bytes(run + "/step-00000005.safetensors.partial-123", "cut");
  write_bytes(run + "/step-5.safetensors", "not a name of ours");
  write_bytes(run + "/loss.csv", "");
  const Checkpoints checkpoints(run, 2);
  CHECK_FALSE(newest(run));
  Numbers x;
  for (const sympow::Index step : {8, 9, 1200, 100'000'000}) {
    x.a[0] = static_cast<float>(step);
    checkpoints.save(step, x.tensors(), {{"rate", ".1"}, {"step", "a lie"}});
    const auto found = newest(run);
    REQUIRE(found);
    CHECK(found->step == step);
    CHECK(found->metadata.at("rate") == ".1");
    CHECK(found->metadata.at("step") == std::to_string(step));
    Numbers read;
    CHECK(sympow::io::read_safetensors(found->path, read.tensors()) == found->metadata);
    CHECK(same_bits(read.a, x.a));
  }
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run)) names.insert(entry.path().filename().string());
  CHECK(names == std::set<std::string>{"loss.csv", "step-00001200.safetensors", "step-100000000.safetensors",
                                       "step-5.safetensors"});
  checkpoints.save(50, x.tensors(), {});  // a run that went on from an earlier one keeps its own
  CHECK(fs::exists(run + "/step-00000050.safetensors"));
}

TEST_CASE("a checkpoint that is cut or has one bit flipped gives way to the one before it", "[language_model]") {
  const Folder folder;
  const std::string run = folder.path.string(), last = run + "/" + checkpoint_name(2);
  Numbers x = odd_numbers();
  const Checkpoints checkpoints(run, 2);
  checkpoints.save(1, x.tensors(), {{"rate", ".1"}});
  checkpoints.save(2, x.tensors(), {{"rate", ".1"}});
  REQUIRE(newest(run)->step == 2);
  const std::string whole = bytes_of(last);
  REQUIRE(whole.size() > 250);
  const auto falls_back = [&](const std::string& bytes) {
    write_bytes(last, bytes);
    const Complaints complaints;
    const auto found = newest(run);
    return found && found->step == 1 && complaints.text.str().find(last + ": ") != std::string::npos;
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
  CHECK(falls_back(bytes_of(run + "/" + checkpoint_name(1))));  // whole, of another step
  write_bytes(last, whole);
  CHECK(newest(run)->step == 2);
  for (const int step : {1, 2}) write_bytes(run + "/" + checkpoint_name(step), "damaged");
  const Complaints complaints;
  CHECK_FALSE(newest(run));
}

TEST_CASE("a checksum sees every change of a word, and carries pieces on", "[language_model]") {
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

TEST_CASE("a corpus takes every file of a folder once, in the order of names, and holds some out", "[language_model]") {
  const Folder folder;
  std::map<std::string, std::string> of_names;
  for (int n = 0; n < 200; ++n)
    of_names["b" + std::to_string(n % 7) + "/" + std::to_string(n)] =
        "<" + std::to_string(n) + ">" + std::string(3, '\0');
  of_names["a.b"] = "<first>";
  of_names["a/b"] = "<second>";  // '.' is before '/'
  for (const auto& [name, bytes] : of_names) write_bytes(folder.path / name, bytes);
  write_bytes(folder.path / "c/again", "<17>" + std::string(3, '\0'));
  write_bytes(folder.path / "c/empty", "");
  const Corpus corpus(folder.path.string());
  CHECK(corpus.training.size() + corpus.held_out.size() == 202);
  CHECK(corpus.held_out.size() >= 2);
  CHECK(corpus.held_out.size() <= 25);
  std::set<std::string> all;
  for (const Documents& side : {corpus.training, corpus.held_out}) {
    CHECK(side.boundaries.front() == 0);
    CHECK(side.boundaries.back() == std::ssize(side.bytes));
    auto place = of_names.begin();
    for (std::size_t n = 0; n + 1 < side.boundaries.size(); ++n) {
      const auto begin = static_cast<std::size_t>(side.boundaries[n]),
                 end = static_cast<std::size_t>(side.boundaries[n + 1]);
      const std::string document = side.bytes.substr(begin, end - begin);
      CHECK(all.insert(document).second);
      place = std::find_if(place, of_names.end(), [&](const auto& file) { return file.second == document; });
      CHECK(place != of_names.end());  // the order is that of the names
    }
  }
  // Where the files lie and what they are called changes no side, and more of them none of those that were there.
  fs::rename(folder.path / "b3", folder.path / "z");
  write_bytes(folder.path / "new", "another");
  const Corpus other(folder.path.string());
  const auto documents = [](const Documents& side) {
    std::set<std::string> found;
    for (std::size_t n = 0; n + 1 < side.boundaries.size(); ++n)
      found.insert(side.bytes.substr(static_cast<std::size_t>(side.boundaries[n]),
                                     static_cast<std::size_t>(side.boundaries[n + 1] - side.boundaries[n])));
    return found;
  };
  CHECK(std::ranges::includes(documents(other.training), documents(corpus.training)));
  CHECK(std::ranges::includes(documents(other.held_out), documents(corpus.held_out)));
}

TEST_CASE("two documents are one on each side, and of one the last tenth is held out", "[language_model]") {
  const Folder folder;
  for (int n = 0; n < 40; ++n) {
    write_bytes(folder.path / "first", "first " + std::to_string(n));
    write_bytes(folder.path / "second", "second " + std::to_string(n));
    const Corpus corpus(folder.path.string());
    CHECK(corpus.training.size() == 1);
    CHECK(corpus.held_out.size() == 1);
  }
  write_bytes(folder.path / "first", "0123456789abcdefghij");
  const Corpus of_one(folder / "first");
  CHECK(of_one.training.bytes == "0123456789abcdefgh");
  CHECK(of_one.held_out.bytes == "ij");
  write_bytes(folder.path / "second", "0123456789abcdefghij");
  CHECK(Corpus(folder.path.string()).held_out.bytes == "ij");
}

TEST_CASE("windows follow from seed, step and number alone, and lie in one document", "[language_model]") {
  Documents documents{"text", {}};
  for (const std::size_t size : {5u, 3u, 4u, 9u, 1u}) documents.append(std::string(size, 'x'));
  CHECK(documents.window(1, 2, 3, 4) == documents.window(1, 2, 3, 4));
  std::map<Index, int> counts;
  constexpr int draws = 9000;
  for (Index n = 0; n < draws; ++n) ++counts[documents.window(1, n / 8, n % 8, 4)];
  std::set<Index> places;
  for (const auto& [place, count] : counts) {
    places.insert(place);
    // 1000 ± 6 standard deviations of a binomial, √(9000 · 1/9 · 8/9) = 29.8
    CHECK(std::abs(count - draws / 9) < 179);
  }
  CHECK(places == std::set<Index>{0, 1, 8, 12, 13, 14, 15, 16, 17});
  Documents one{"text", {}};
  one.append(std::string(1 << 20, 'x'));
  CHECK(one.window(1, 0, 0, 1) == 580047);  // on every machine
  std::set<Index> different;
  for (const std::uint64_t seed : {1u, 2u, 3u})
    for (const Index step : {1, 2, 3})
      for (const Index n : {1, 2, 3}) different.insert(one.window(seed, step, n, 1));
  CHECK(different.size() == 27);
  CHECK_THROWS_AS(documents.window(1, 0, 0, 10), InvalidCorpus);
  CHECK_THROWS_WITH(documents.window(1, 0, 0, 10),
                    contains("text: the longest of 5 documents has 9 bytes, a window needs 10"));
}

TEST_CASE("a corpus that is none says so", "[language_model]") {
  const Folder folder;
  CHECK_THROWS_WITH(Corpus(folder / "none"), contains("none: there is no such file or folder"));
  CHECK_THROWS_WITH(Corpus(folder.path.string()), contains("there are no bytes in its 0 files"));
  write_bytes(folder.path / "empty", "");
  CHECK_THROWS_WITH(Corpus(folder.path.string()), contains("there are no bytes in its 1 files"));
  CHECK_THROWS_AS(Corpus(folder / "empty"), InvalidCorpus);
}
