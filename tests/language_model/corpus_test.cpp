// The texts that a language model learns from.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "corpus.hpp"
#include "files.hpp"

using namespace language_model;
using namespace sympow::test;

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
  CHECK(corpus.training.texts.size() + corpus.held_out.texts.size() == 202);
  CHECK(corpus.held_out.texts.size() >= 2);
  CHECK(corpus.held_out.texts.size() <= 25);
  std::set<std::string> all;
  for (const Documents& side : {corpus.training, corpus.held_out}) {
    auto place = of_names.begin();
    for (const std::string& document : side.texts) {
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
    return std::set<std::string>(side.texts.begin(), side.texts.end());
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
    CHECK(corpus.training.texts.size() == 1);
    CHECK(corpus.held_out.texts.size() == 1);
  }
  write_bytes(folder.path / "first", "0123456789abcdefghij");
  const Corpus of_one(folder / "first");
  CHECK(of_one.training.texts[0] == "0123456789abcdefgh");
  CHECK(of_one.held_out.texts[0] == "ij");
  write_bytes(folder.path / "second", "0123456789abcdefghij");
  CHECK(Corpus(folder.path.string()).held_out.texts[0] == "ij");
}

TEST_CASE("windows follow from seed, step and number alone, and lie in one document", "[language_model]") {
  const Documents documents{"text", {"abcde", "fgh", "ijkl", "mnopqrstu", "v"}};
  const auto window = [&](std::uint64_t seed, Index step, Index n) {
    const auto bytes = documents.window(seed, step, n, 4);
    return std::string(bytes.begin(), bytes.end());
  };
  CHECK(window(1, 2, 3) == window(1, 2, 3));
  std::map<std::string, int> counts;
  constexpr int draws = 9000;
  for (Index n = 0; n < draws; ++n) ++counts[window(1, n / 8, n % 8)];
  std::set<std::string> found;
  for (const auto& [bytes, count] : counts) {
    found.insert(bytes);
    // 1000 ± 6 standard deviations of a binomial, √(9000 · 1/9 · 8/9) = 29.8
    CHECK(std::abs(count - draws / 9) < 179);
  }
  CHECK(found == std::set<std::string>{"abcd", "bcde", "ijkl", "mnop", "nopq", "opqr", "pqrs", "qrst", "rstu"});
  const Documents one{"text", {std::string(1 << 20, 'x')}};
  const auto place = [&](std::uint64_t seed, Index step, Index n) {
    return one.window(seed, step, n, 1).data() - language_model::bytes_of(one.texts[0]).data();
  };
  CHECK(place(1, 0, 0) == 580047);  // on every machine
  std::set<Index> different;
  for (const std::uint64_t seed : {1u, 2u, 3u})
    for (const Index step : {1, 2, 3})
      for (const Index n : {1, 2, 3}) different.insert(place(seed, step, n));
  CHECK(different.size() == 27);
  CHECK_THROWS_AS(documents.window(1, 0, 0, 10), sympow::InvalidArgument);
  CHECK_THROWS_WITH(documents.window(1, 0, 0, 10),
                    contains("text: the longest of 5 documents has 9 bytes, a window needs 10"));
}

TEST_CASE("a corpus that is none says so", "[language_model]") {
  const Folder folder;
  CHECK_THROWS_WITH(Corpus(folder / "none"), contains("none: there is no such file or folder"));
  CHECK_THROWS_WITH(Corpus(folder.path.string()), contains("there are no bytes in its 0 files"));
  write_bytes(folder.path / "empty", "");
  CHECK_THROWS_WITH(Corpus(folder.path.string()), contains("there are no bytes in its 1 files"));
  CHECK_THROWS_AS(Corpus(folder / "empty"), sympow::InvalidArgument);
}
