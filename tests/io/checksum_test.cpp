// A checksum sees damage, and is the same on every machine.
#include <set>
#include <span>
#include <string>

#include <sympow/io/checksum.hpp>

#include "catch.hpp"

using namespace sympow::io;

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
