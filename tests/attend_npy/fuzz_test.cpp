// Mutated files thrown at the reader: each ends in success or in a clear typed error, and takes no more memory than the
// file is long.
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>

#include <sympow/io/npy.hpp>

#include "catch.hpp"
#include "random.hpp"

namespace {
std::size_t largest_request = 0;  // of operator new
}

// The sanitizers have an operator new of their own, and a limit.
#if defined(__SANITIZE_ADDRESS__)
#define SYMPOW_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SYMPOW_TEST_SANITIZED
#endif
#endif

#ifndef SYMPOW_TEST_SANITIZED
void* operator new(std::size_t bytes) {
  largest_request = std::max(largest_request, bytes);
  if (void* memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
// Not inlined, or g++ sees a free without its malloc.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace {

using namespace sympow;
using test::Random;

std::size_t place(Random& random, std::size_t size) {
  return static_cast<std::size_t>(random.integer(0, static_cast<Index>(size)));
}

// One to four changes of any kind.
std::string mutated(std::string bytes, const std::vector<std::string>& words, Random& random) {
  for (Index changes = random.integer(1, 4); changes > 0; --changes) {
    const std::size_t front =
        random.uniform() < .5 ? std::min<std::size_t>(bytes.size(), 128) : bytes.size();  // headers are at the front
    const std::size_t at = place(random, front);
    switch (random.integer(0, 7)) {
      case 0:  // a bit
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.integer(0, 7)));
        break;
      case 2:  // a byte
        if (at < bytes.size()) bytes[at] = static_cast<char>(random.integer(0, 255));
        break;
      case 3:  // the end is lost
        bytes.resize(at);
        break;
      case 4:  // something is put in
        bytes.insert(at, std::string(place(random, 16), static_cast<char>(random.integer(0, 255))));
        break;
      case 5:  // something is lost
        bytes.erase(at, place(random, 16));
        break;
      case 6: {  // a word of the format, or a number, over something
        const std::string& word = words[place(random, words.size() - 1)];
        bytes.replace(at, random.uniform() < .5 ? word.size() : 0, word);
        break;
      }
      default: {  // a size that lies
        const std::int64_t sizes[] = {-1,        0,        1, 7, 1 << 16, std::int64_t(1) << 31, std::int64_t(1) << 40,
                                      INT64_MAX, INT64_MIN};
        const std::int64_t size = sizes[place(random, 8)];
        const std::size_t aligned = at / 8 * 8;
        if (aligned + 8 <= bytes.size()) std::memcpy(bytes.data() + aligned, &size, 8);
      }
    }
  }
  return bytes;
}

std::string written(const std::string& header, int major, std::size_t data) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  for (std::size_t n = 0, size = header.size(); n < (major == 1 ? 2u : 4u); ++n, size /= 256)
    bytes += static_cast<char>(size % 256);
  return bytes + header + std::string(data, '\1');
}

}  // namespace

TEST_CASE("a hundred thousand mutated npy files", "[attend_npy]") {
  std::vector<std::string> files;
  for (const sympow::io::Shape& shape :
       {sympow::io::Shape{3, 4}, sympow::io::Shape{2, 3, 2, 2}, sympow::io::Shape{0, 5}}) {
    std::ostringstream single, twice;
    sympow::io::write_npy(single, shape, std::vector<float>(sympow::io::entries_of(shape, 4).value(), 1));
    sympow::io::write_npy(twice, shape, std::vector<double>(sympow::io::entries_of(shape, 8).value(), 1));
    files.push_back(single.str());
    files.push_back(twice.str());
  }
  for (const int major : {1, 2, 3})
    files.push_back(written("{'shape': (5,), 'descr': '<f8', 'fortran_order': False}\n", major, 40));
  std::vector<std::string> words = {
      " ", "\n", "(3, 4)", "[('a', '<f4')]", std::string("\x93NUMPY\1\0", 8), std::string("\xff\xff\xff\x7f", 4)};
  std::istringstream more(
      "{ } ( ) , ' \" : 0 7 -1 4294967296 9223372036854775807 99999999999999999999 'descr' 'shape' 'fortran_order' "
      "'<f4' '<f8' '>f8' '|O' True False");
  for (std::string word; more >> word;) words.push_back(word);
  constexpr int rounds = 100000;
  const std::uint64_t seed = 20240601;
  Random random(seed);
  int succeeded = 0, failed = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string bytes = mutated(files[place(random, files.size() - 1)], words, random);
    std::istringstream in(bytes);
    largest_request = 0;
    try {
      const sympow::io::Array array = sympow::io::read_npy(in, bytes.size(), "X");
      ++succeeded;
      const std::size_t each = array.holds<float>() ? 4 : 8;
      if (sympow::io::entries_of(array.shape, each) != array.size() || array.size() * each > bytes.size())
        FAIL("round " << round << ": a shape that lies");
    } catch (const sympow::io::InvalidNpy& error) {
      ++failed;
      if (!std::string(error.what()).starts_with("X: "))
        FAIL("round " << round << ": not a clear line: " << error.what());
    }
    if (largest_request > 4 * bytes.size() + 4096)
      FAIL("round " << round << ": asked for " << largest_request << " bytes");
  }
  CAPTURE(seed, succeeded, failed);
  REQUIRE(succeeded > rounds / 100);
  REQUIRE(failed > rounds / 4);
}
