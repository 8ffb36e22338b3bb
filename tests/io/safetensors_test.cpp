// Safetensors files: what is written is read, what others wrote, and bytes that lie.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <sympow/core/random.hpp>

#include "catch.hpp"
#include "files.hpp"
#include "tensors.hpp"

using namespace sympow::io;
using namespace sympow::test;

namespace {

/// A file of this header and so many zeros.
std::string file_of(const std::string& header, std::size_t data) {
  const std::uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data, '\0');
}

}  // namespace

TEST_CASE("tensors come back from a file bit for bit", "[io]") {
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

  const Safetensors file = read_safetensors(path);
  CHECK(file.metadata == metadata);
  REQUIRE(file.tensors.size() == 3);
  CHECK(file.tensors[0].name == "a.weight");
  CHECK(file.tensors[0].shape == Shape{1, 3});
  CHECK(same_bits(file.tensors[0].numbers, written.a));
  CHECK(file.tensors[1].numbers.empty());
  CHECK(same_bits(file.tensors[2].numbers, written.c));
}

TEST_CASE("what cannot be written leaves the file that was there", "[io]") {
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
  CHECK_THROWS_AS(write_safetensors(folder / "no folder/x", std::vector<Tensor>{}), CannotWrite);
}

// from safetensors.torch import save; import torch
// print(save({"weight": torch.tensor([[1., 2.], [-3., .5]]), "bias": torch.tensor([4.])}, {"format": "pt"}))
TEST_CASE("a file that PyTorch's library wrote is read", "[io]") {
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

TEST_CASE("escapes of names and metadata are characters", "[io]") {
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

TEST_CASE("bytes that lie are refused, with the file's name and what is wrong", "[io]") {
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

TEST_CASE("a header of more than 100 MB is not read", "[io]") {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  std::string bytes = file_of("", 0);
  const std::uint64_t size = 100'000'001;
  std::memcpy(bytes.data(), &size, 8);
  write_bytes(path, bytes);
  fs::resize_file(path, 200'000'000);  // a hole, which takes no room
  CHECK_THROWS_WITH(read_safetensors(path, {}), contains("should have 100000001 bytes, can have 100000000"));
}

TEST_CASE("any one byte of a file may be another, and it is read as tensors or refused", "[io]") {
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
