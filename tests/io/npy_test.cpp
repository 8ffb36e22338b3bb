// The reader and the writer of .npy files.
#include <sstream>

#include <sympow/io/npy.hpp>

#include "catch.hpp"
#include "files.hpp"

using namespace sympow::io;

namespace {

// A file of format `major`.0 with this header, padded as numpy does, and these bytes after it.
std::string file(const std::string& header, const std::string& data, int major = 1) {
  std::string padded = header;
  const std::size_t before = major == 1 ? 10 : 12;
  padded.append(63 - (before + padded.size()) % 64, ' ');
  padded += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  for (std::size_t n = 0, size = padded.size(); n < before - 8; ++n, size /= 256)
    bytes += static_cast<char>(size % 256);
  return bytes + padded + data;
}

template <class Scalar>
std::string data(const std::vector<Scalar>& entries) {
  return {reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(Scalar)};
}

Array parse(const std::string& bytes) {
  std::istringstream in(bytes);
  return read_npy(in, bytes.size(), "X.npy");
}

}  // namespace

TEST_CASE("what is written is read, with entries at a multiple of 64 bytes", "[io]") {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{6}, Shape{2, 3}, Shape{1, 3, 2, 1}, Shape{3, 0, 2}}) {
    const std::size_t size = shape.empty() ? 1 : entries_of(shape, 8).value();
    std::vector<double> entries(size);
    for (std::size_t n = 0; n < size; ++n) entries[n] = 1.5 * static_cast<double>(n);
    std::ostringstream out;
    write_npy(out, shape, entries);
    CAPTURE(text(shape));
    REQUIRE((out.str().size() - 8 * size) % 64 == 0);
    const Array array = parse(out.str());
    REQUIRE(array.shape == shape);
    REQUIRE(array.holds<double>());
    REQUIRE(std::get<std::vector<double>>(array.entries) == entries);
  }
  std::ostringstream out;
  write_npy(out, {2}, std::vector<float>{1.25f, -3});
  REQUIRE(out.str().find("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }") == 10);
  REQUIRE(std::get<std::vector<float>>(parse(out.str()).entries) == std::vector<float>{1.25f, -3});
}

TEST_CASE("headers of every version and of other writers are read", "[io]") {
  const std::string entries = data<float>({1, 2, 3, 4, 5, 6});
  for (const int major : {1, 2, 3})
    for (const char* header : {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                               "{'shape':(2,3),'fortran_order':False,'descr':'<f4'}",
                               "{ \"descr\" : \"<f4\",\n \"shape\" : ( 2 , 3 , ) , 'fortran_order': False }  "}) {
      CAPTURE(major, header);
      const Array array = parse(file(header, entries, major));
      REQUIRE(array.shape == Shape{2, 3});
      REQUIRE(array[5] == 6);
    }
}

TEST_CASE("arrays of Julia with one axis, and sizes that Python 2 has written, are read", "[io]") {
  const std::string entries = data<float>({1, 2, 3, 4, 5, 6});
  const auto read = [&](const std::string& order, const std::string& shape) {
    return parse(file("{'descr': '<f4', 'fortran_order': " + order + ", 'shape': " + shape + ", }", entries));
  };
  for (const auto& [text, shape] : std::vector<std::pair<std::string, Shape>>{
           {"(6,)", {6}}, {"(1, 6)", {1, 6}}, {"(6, 1)", {6, 1}}, {"(1, 6, 1)", {1, 6, 1}}}) {
    CAPTURE(text);
    const Array array = read("True", text);
    REQUIRE(array.shape == shape);
    REQUIRE(array[5] == 6);
  }
  REQUIRE_THROWS_WITH(read("True", "(2, 3)"), sympow::test::contains("is in Fortran order, must be in C order"));
  for (const char* shape : {"(2L, 3L)", "(2L,3)", "(2, 3L, )"}) {
    CAPTURE(shape);
    REQUIRE(read("False", shape).shape == Shape{2, 3});
  }
}

TEST_CASE("what is no array of this program is refused with a reason", "[io]") {
  const std::string entries = data<float>({1, 2, 3, 4, 5, 6});
  const auto header = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  };
  const std::string good = file(header("'<f4'", "False", "(2, 3)"), entries);
  REQUIRE_NOTHROW(parse(good));
  const auto replaced = [&](std::size_t place, char byte) {
    std::string bytes = good;
    bytes[place] = byte;
    return bytes;
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is not an npy file, it has 0 bytes"},
      {"\x93NUMPY", "is not an npy file, it has 6 bytes"},
      {"PK\3\4 a zip file", "is not an npy file"},
      {good.substr(0, 9), "ends inside of its npy header"},
      {good.substr(0, 60), "more than the file"},
      {good.substr(0, good.size() - 1), "takes 24 bytes, the file has 23 after its header"},
      {good + "x", "takes 24 bytes, the file has 25 after its header"},
      {replaced(6, 4), "version 4.0, must be 1.0, 2.0 or 3.0"},
      {replaced(7, 1), "version 1.1, must be"},
      {replaced(9, 127), "bytes, more than the file"},
      {file(header("'<f2'", "False", "(2, 3)"), entries), "entries are of type '<f2', must be '<f4' or '<f8'"},
      {file(header("'<i8'", "False", "(3,)"), entries), "entries are of type '<i8'"},
      {file(header("'>f4'", "False", "(2, 3)"), entries), "is big-endian ('>f4'), must be little-endian"},
      {file(header("'|f4'", "False", "(2, 3)"), entries), "entries are of type '|f4'"},
      {file(header("[('a', '<f4')]", "False", "(2, 3)"), entries), "entries are records"},
      {file(header("'<f4'", "True", "(2, 3)"), entries), "is in Fortran order, must be in C order"},
      {file(header("'<f4'", "0", "(2, 3)"), entries), "must say True or False"},
      {file(header("'<f4'", "False", "(2, 4)"), entries), "shape (2, 4) of f4 takes 32 bytes, the file has 24"},
      {file(header("'<f4'", "False", "(6)"), entries), "(n,) must have a comma"},
      {file(header("'<f4'", "False", "(-2, -3)"), entries), "not a tuple of sizes"},
      {file(header("'<f4'", "False", "(2.0, 3)"), entries), "lacks a ')' before '.0, 3), }"},
      {file(header("'<f4'", "False", "(2LL, 3)"), entries), "lacks a ')' before 'L, 3)"},
      {file(header("'<f4'", "False", "(L, 3)"), entries), "not a tuple of sizes"},
      {file(header("'<f4'", "False", "[2, 3]"), entries), "lacks a '('"},
      {file(header("'<f4'", "False", "(2, 3"), entries), "not a tuple of sizes"},
      {file(header("'<f4'", "False", "(99999999999999999999,)"), entries), "sizes that fit 64 bits"},
      {file(header("'<f4'", "False", "(4294967296, 4294967296)"), entries), "cannot be counted in 64 bits"},
      {file(header("'<f4'", "False", "(0, 4294967296, 4294967296)"), ""), "cannot be counted in 64 bits"},
      {file(header("'<f4'", "False", "(4611686018427387904, 3)"), entries), "cannot be counted in 64 bits"},
      {file("{'descr': '<f4', 'fortran_order': False}", entries), "must have the keys"},
      {file("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", entries),
       "repeated key 'descr'"},
      {file("{'descr': '<f4', 'x': False, 'shape': (2, 3)}", entries), "unknown or repeated key 'x'"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x", entries), "goes on after the dictionary"},
      {file("{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3)}", entries), "lacks a '}' before 'fortran_orde'"},
      {file("{'descr", entries), "string without an end"},
      {file("", entries), "lacks a '{' at its end"},
  };
  for (const auto& [bytes, reason] : cases) {
    CAPTURE(bytes.substr(0, 100), reason);
    REQUIRE_THROWS_AS(parse(bytes), InvalidNpy);
    REQUIRE_THROWS_WITH(parse(bytes), Catch::StartsWith("X.npy: ") && sympow::test::contains(reason));
  }
}

TEST_CASE("whole numbers of four and eight bytes with one axis", "[io]") {
  const std::string path = (std::filesystem::temp_directory_path() / "sympow_whole_numbers.npy").string();
  const auto read = [&](const std::string& type, const std::string& shape, const std::string& entries) {
    std::ofstream(path, std::ios::binary)
        << file("{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }", entries);
    return read_whole_numbers("--n", path);
  };
  REQUIRE(read("<i4", "(3,)", data<std::int32_t>({7, -1, 0})) == std::vector<std::int64_t>{7, -1, 0});
  REQUIRE(read("<i8", "(2,)", data<std::int64_t>({1LL << 40, -2})) == std::vector<std::int64_t>{1LL << 40, -2});
  using sympow::test::contains;
  REQUIRE_THROWS_WITH(read("<i8", "(2, 1)", data<std::int64_t>({1, 2})),
                      contains("shape is (2, 1), must have one axis"));
  REQUIRE_THROWS_WITH(read("<f8", "(1,)", data<double>({1})), contains("are of type '<f8', must be '<i4' or '<i8'"));
  REQUIRE_THROWS_WITH(read("<i8", "(2,)", data<std::int64_t>({1})), contains("of i8 takes 16 bytes, the file has 8"));
  std::filesystem::remove(path);
}

TEST_CASE("a file that is larger than memory is refused before memory is asked for", "[io]") {
  const sympow::test::Folder folder;
  const std::string path = folder / "large.npy",
                    header = file("{'descr': '<f4', 'fortran_order': False, 'shape': (274877906944,), }", "");
  sympow::test::write_bytes(path, header);
  std::filesystem::resize_file(path, header.size() + (std::uintmax_t{1} << 40));  // a hole, which takes no room
  REQUIRE_THROWS_AS(read_npy("--q", path), InvalidNpy);
  REQUIRE_THROWS_WITH(read_npy("--q", path), sympow::test::contains("takes 1099511627776 bytes, this machine has "));
}

TEST_CASE("places of entries in C order", "[io]") {
  REQUIRE(position({2, 3, 4}, 0) == "(0, 0, 0)");
  REQUIRE(position({2, 3, 4}, 23) == "(1, 2, 3)");
  REQUIRE(position({2, 3, 4}, 13) == "(1, 0, 1)");
  REQUIRE(position({7}, 5) == "(5,)");
  REQUIRE(text({}) == "()");
}
