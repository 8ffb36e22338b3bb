// The files of a language model: safetensors, checkpoints, a corpus.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "checkpoints.hpp"
#include "corpus.hpp"

using namespace language_model;
using sympow::test::contains;
namespace fs = std::filesystem;

namespace {

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_bytes(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

/// A folder that is gone with this object.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("sympow_files_test_" + std::to_string(getpid()));
  Folder() {
    fs::remove_all(path);
    fs::create_directory(path);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path / name).string(); }
  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(path)) found.insert(entry.path().filename().string());
    return found;
  }
};

/// What is printed on the standard error while it lives.
struct Complaints {
  std::ostringstream text;
  std::streambuf* before = std::cerr.rdbuf(text.rdbuf());
  Complaints() = default;
  Complaints(const Complaints&) = delete;
  Complaints& operator=(const Complaints&) = delete;
  ~Complaints() { std::cerr.rdbuf(before); }
};

/// Three tensors, of which the bits count: one of 3 numbers, one with none, one with no axis.
struct Numbers {
  std::vector<float> a, b, c;
  explicit Numbers(float fill = 0) : a(3, fill), c(1, fill) {}
  [[nodiscard]] std::vector<Tensor> tensors() {
    return {{"a.weight", {1, 3}, a}, {"b", {0, 7}, b}, {"ü\n\"c\\", {}, c}};
  }
};
Numbers odd_numbers() {
  Numbers x;
  x.a = {-0.0f, std::numeric_limits<float>::denorm_min(), std::bit_cast<float>(0x7fc12345u)};
  x.c = {1e30f};
  return x;
}
bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

/// A file of this header and so many zeros.
std::string file_of(const std::string& header, std::size_t data) {
  const std::uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data, '\0');
}

}  // namespace

TEST_CASE("tensors come back from a file bit for bit", "[language_model]") {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  Numbers written = odd_numbers(), read(7);
  const Metadata metadata = {{"step", "12"}, {"odd \"\\/", "a\nb\tc\x01 ü"}, {"", ""}};
  write_safetensors(path, written.tensors(), metadata);
  auto targets = read.tensors();
  std::ranges::reverse(targets);  // their order is not the file's
  CHECK(read_safetensors(path, targets) == metadata);
  CHECK(same_bits(read.a, written.a));
  CHECK(same_bits(read.c, written.c));
  CHECK(folder.names() == std::set<std::string>{"x.safetensors"});
  std::uint64_t size = 0;
  std::memcpy(&size, bytes_of(path).data(), 8);
  CHECK(size % 8 == 0);
  CHECK(bytes_of(path).size() == 8 + size + 4 * sizeof(float));

  std::ifstream in;
  const Header header = read_header(in, path);
  CHECK(header.metadata == metadata);
  REQUIRE(header.entries.size() == 3);
  CHECK(header.entries[0].name == "a.weight");
  CHECK(header.entries[0].shape == Shape{1, 3});
}

TEST_CASE("what cannot be written leaves the file that was there", "[language_model]") {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  std::vector<float> x(2, 1);
  write_safetensors(path, std::vector<Tensor>{{"x", {2}, x}});
  const std::string before = bytes_of(path);
  const auto refuses = [&](const std::vector<Tensor>& tensors, const std::string& words) {
    CHECK_THROWS_WITH(write_safetensors(path, tensors), contains(words));
    CHECK(bytes_of(path) == before);
    CHECK(folder.names().size() == 1);
  };
  refuses({{"x", {3}, x}}, "tensor \"x\" of shape [3] has 2 numbers");
  refuses({{"x", {2}, x}, {"x", {2}, x}}, "its name is taken");
  refuses({{"__metadata__", {2}, x}}, "its name is taken");
  CHECK_THROWS_AS(write_safetensors(folder / "no folder/x", std::vector<Tensor>{}), sympow::io::CannotWrite);
}

// from safetensors.torch import save; import torch
// print(save({"weight": torch.tensor([[1., 2.], [-3., .5]]), "bias": torch.tensor([4.])}, {"format": "pt"}))
TEST_CASE("a file that PyTorch's library wrote is read", "[language_model]") {
  const Folder folder;
  const std::string path = folder / "torch.safetensors";
  const char bytes[] =
      "\x9e\0\0\0\0\0\0\0"
      R"({"__metadata__":{"format":"pt"},"bias":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("weight":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]}})"
      "      "
      "\0\0\x80\x40\0\0\x80\x3f\0\0\0\x40\0\0\x40\xc0\0\0\0\x3f";
  std::string file(bytes, sizeof bytes - 1);
  file[0] = static_cast<char>(file.size() - 8 - 20);
  write_bytes(path, file);
  std::vector<float> weight(4), bias(1);
  const Metadata metadata =
      read_safetensors(path, std::vector<Tensor>{{"weight", {2, 2}, weight}, {"bias", {1}, bias}});
  CHECK(metadata == Metadata{{"format", "pt"}});
  CHECK(weight == std::vector<float>{1, 2, -3, .5});
  CHECK(bias == std::vector<float>{4});
}

TEST_CASE("escapes of names and metadata are characters", "[language_model]") {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  const std::map<std::string, std::string> characters = {
      {R"(\"\\\/\b\f\n\r\t)", "\"\\/\b\f\n\r\t"},
      {R"(\u0000\u0041\u007f)", std::string("\0A\x7f", 3)},
      {R"(\u0080\u00e9\u07ff)", "\u0080é\u07ff"},
      {R"(\u0800\ud7ff\uE000\uffFF)", "\u0800\ud7ff\ue000\uffff"},
      {R"(\ud800\udc00\ud83d\udE00\udbff\udfff)", "\U00010000\U0001f600\U0010ffff"},
      {"é\U0001f600", "é\U0001f600"}};
  for (const auto& [escaped, character] : characters) {
    CAPTURE(escaped);
    const std::string metadata = R"("__metadata__":{"a )" + escaped + R"(":")" + escaped + R"("})";
    write_bytes(path,
                file_of("{" + metadata + ",\"" + escaped + R"(":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4));
    std::vector<float> x(1, 7);
    CHECK(read_safetensors(path, std::vector<Tensor>{{character, {}, x}}) == Metadata{{"a " + character, character}});
    CHECK(x[0] == 0);
  }
}

TEST_CASE("bytes that lie are refused, with the file's name and what is wrong", "[language_model]") {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  std::vector<float> x(2, 7), y(1, 7);
  const std::vector<Tensor> tensors = {{"x", {2}, x}, {"y", {1}, y}};
  const auto refuses = [&](const std::string& bytes, const std::string& words) {
    CAPTURE(bytes.substr(0, 200));
    write_bytes(path, bytes);
    CHECK_THROWS_AS(read_safetensors(path, tensors), InvalidSafetensors);
    CHECK_THROWS_WITH(read_safetensors(path, tensors), contains(path + ": ") && contains(words));
    CHECK(x == std::vector<float>(2, 7));
  };
  const auto entry = [](const std::string& name, const std::string& shape, const std::string& offsets,
                        const std::string& type = "F32") {
    return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const auto of = [&](const std::string& first, const std::string& second) { return "{" + first + "," + second + "}"; };
  const std::string of_x = entry("x", "[2]", "[0,8]"), of_y = entry("y", "[1]", "[8,12]"), whole = of(of_x, of_y);

  write_bytes(path, file_of(" " + whole + " \n", 12));
  CHECK(read_safetensors(path, tensors).empty());
  std::ranges::fill(x, 7.f);

  // the length of the header
  refuses("", "shorter than its first 8 bytes");
  refuses("1234567", "shorter than its first 8 bytes");
  refuses(std::string(8, '\0') + whole, "at byte 0, lacks a {");
  refuses(file_of(whole, 0).substr(0, 30), "its header should have 108 bytes, can have 22");
  for (const std::uint64_t size : {std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    std::string bytes = file_of(whole, 12);
    std::memcpy(bytes.data(), &size, 8);
    refuses(bytes, "its header should have " + std::to_string(size) + " bytes, can have 120");
  }
  // JSON
  refuses(file_of("x", 0), "at byte 0, lacks a {");
  for (std::size_t n = 0; n < whole.size(); ++n) refuses(file_of(whole.substr(0, n), 12), "its header, at byte ");
  refuses(file_of(whole + "{}", 12), "goes on after its end");
  refuses(file_of(whole + '\0', 12), "goes on after its end");
  refuses(file_of("{" + std::string(100000, '{'), 12), "lacks a \"");
  refuses(file_of("{\"x\":" + std::string(100000, '['), 12), "lacks a {");
  refuses(file_of("{\"x\":{\"shape\":" + std::string(100000, '['), 12), "must have a whole number");
  refuses(file_of(of(of_x, of_y) + ",", 12), "goes on after its end");
  refuses(file_of("{" + of_x + ",}", 8), "lacks a \"");
  refuses(file_of("{\"__metadata__\":{\"a\":1}}", 0), "lacks a \"");
  refuses(file_of("{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", 0), "has \"a\" twice");
  refuses(file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "has \"__metadata__\" twice");
  refuses(file_of("{\"a\nb\":{}}", 0), "has a control character");
  for (const char* escape : {"\\x", "\\u12", "\\u+012", "\\u", "\\", "\\u00g0", "\\u-001", "\\ud83d\\u"})
    refuses(file_of("{\"" + std::string(escape) + "\":{}}", 0), "its header, at byte ");
  for (const char* halves : {"\\ud800", "\\udbff!", "\\udc00", "\\udfff\\ud800", "\\udc00\\udc00", "\\ud800\\ud800",
                             "\\ud800\\udbff", "\\ud800\\ue000", "\\ud800\\n", "\\ud800\\u0041", "\\ud800u0041"})
    refuses(file_of("{\"" + std::string(halves) + "\":{}}", 0), "has one half of a pair of escapes");
  // tensors
  refuses(file_of(of(of_x, of_x), 12), "has \"x\" twice");
  refuses(file_of("{" + of_x + "}", 8), "has no tensor \"y\"");
  refuses(file_of(of(whole.substr(1, whole.size() - 2), entry("z", "[0]", "[12,12]")), 12), "has the tensor \"z\"");
  refuses(file_of(of(of_x, entry("y", "[1,1]", "[8,12]")), 12), "\"y\" has the shape [1,1], must have [1]");
  refuses(file_of(of(of_x, entry("y", "[1]", "[8,12]", "BF16")), 12), "\"y\" is of BF16, must be of F32");
  refuses(file_of("{\"x\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8), "must have dtype, shape and data_offsets of \"x\"");
  refuses(file_of("{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"strides\":[1]}}", 8), "unknown key \"strides\"");
  refuses(file_of("{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2]}}", 8), "has \"dtype\" twice");
  // offsets
  refuses(file_of(of(of_x, entry("y", "[1]", "[8,16]")), 16), "\"y\" of shape [1] cannot have the bytes 8 to 16");
  refuses(file_of(of(of_x, entry("y", "[1]", "[12,8]")), 12), "\"y\" of shape [1] cannot have the bytes 12 to 8");
  refuses(file_of(of(of_x, entry("y", "[1]", "[4,8]")), 12), "\"y\" begins at byte 4, the one before it ends at 8");
  refuses(file_of(of(of_x, entry("y", "[1]", "[12,16]")), 16), "\"y\" begins at byte 12, the one before it ends at 8");
  refuses(file_of(of(entry("x", "[2]", "[4,12]"), entry("y", "[1]", "[12,16]")), 16), "\"x\" begins at byte 4");
  refuses(file_of(whole, 11), "its tensors take 12 bytes, the file has 11 after its header");
  refuses(file_of(whole, 13), "its tensors take 12 bytes, the file has 13 after its header");
  refuses(file_of(of(of_x, entry("y", "[1]", "[8]")), 12), "must have 2 data_offsets");
  // near the ends of the integers: 2^62 floats and 2^32 × 2^32 of them are 2^64 bytes and more
  for (const char* shape : {"[4611686018427387904]", "[4294967296,4294967296]", "[9223372036854775807]",
                            "[0,4611686018427387904,4611686018427387904]", "[4611686018427387905,4]"})
    refuses(file_of(of(of_x, entry("y", shape, "[8,12]")), 12), "\"y\" of shape");
  for (const char* number : {"9223372036854775808", "18446744073709551615", "18446744073709551617", "-1", "1.5", "1e1",
                             "x", "null", "+1", "\"1\""}) {
    refuses(file_of(of(of_x, entry("y", std::string("[") + number + "]", "[8,12]")), 12), "its header, at byte ");
    refuses(file_of(of(of_x, entry("y", "[1]", std::string("[8,") + number + "]")), 12), "its header, at byte ");
  }
  refuses(file_of(of(of_x, entry("y", "[1]", "[9223372036854775804,9223372036854775807]")), 12),
          "cannot have the bytes");
  // no file
  CHECK_THROWS_WITH(read_safetensors(folder / "none", tensors), contains("none: No such file"));
  CHECK_THROWS_AS(read_safetensors(folder.path.string(), tensors), InvalidSafetensors);
}

TEST_CASE("a header of more than 100 MB is not read", "[language_model]") {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  std::string bytes = file_of("", 0);
  const std::uint64_t size = 100'000'001;
  std::memcpy(bytes.data(), &size, 8);
  write_bytes(path, bytes);
  fs::resize_file(path, 200'000'000);  // a hole, which takes no room
  CHECK_THROWS_WITH(read_safetensors(path, {}), contains("should have 100000001 bytes, can have 100000000"));
}

TEST_CASE("any one byte of a file may be another, and it is read as tensors or refused", "[language_model]") {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  Numbers x = odd_numbers();
  write_safetensors(path, x.tensors(), {{"a", "b"}});
  const std::string whole = bytes_of(path);
  sympow::Random random(3);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    std::string bytes = whole;
    bytes[n] = static_cast<char>(random.integer(0, 255));
    write_bytes(path, bytes);
    Numbers read;
    try {
      (void)read_safetensors(path, read.tensors());
    } catch (const InvalidSafetensors&) {
    }
  }
}

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
    CHECK(read_safetensors(found->path, read.tensors()) == found->metadata);
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
