// Every block of C++ or C in README.md and docs/*.md is a piece of a program that the tests build, and so is every
// other one that names a program.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "pages.hpp"

namespace {

namespace fs = std::filesystem;
using pages::Lines;

bool is_blank(const std::string& line) { return line.find_first_not_of(' ') == std::string::npos; }

/// The lines without the indentation that all of them share; blank lines become empty.
Lines dedent(Lines lines) {
  std::size_t common = std::string::npos;
  for (const std::string& line : lines) common = std::min(common, line.find_first_not_of(' '));
  for (std::string& line : lines) line = is_blank(line) ? "" : line.substr(common);
  return lines;
}

bool occurs(const Lines& block, const Lines& program) {
  const Lines wanted = dedent(block);
  for (auto first = program.begin(); program.end() - first >= std::ssize(block); ++first)
    if (dedent({first, first + std::ssize(block)}) == wanted) return true;
  return false;
}

/// One sentence for each block of code that names no program, or whose text is not in the program that it names.
/// `read` maps a file's name to its lines, none if there is no such file.
template <class Read>
std::vector<std::string> complaints(const Lines& page, Read read) {
  const std::string before = "<!-- from ", after = " -->";
  std::vector<std::string> found;
  for (std::size_t i = 0; i < page.size(); ++i) {
    const std::string where = "line " + std::to_string(i + 1) + ": ";
    const std::string comment = i > 0 ? page[i - 1] : "";
    const bool is_named = page[i].starts_with("```") && comment.starts_with(before);
    if (!is_named && page[i] != "```cpp" && page[i] != "```c") continue;
    const Lines block(page.begin() + std::ptrdiff_t(i) + 1,
                      std::find(page.begin() + std::ptrdiff_t(i) + 1, page.end(), "```"));
    if (!comment.starts_with(before) || !comment.ends_with(after)) {
      found.push_back(where + "no comment <!-- from FILE --> directly before the block");
      continue;
    }
    const std::string name = comment.substr(before.size(), comment.size() - before.size() - after.size());
    if (block.empty() || !occurs(block, read(name))) found.push_back(where + "the block is not in " + name);
  }
  return found;
}

Lines parse(const std::string& text) {
  std::istringstream in(text);
  return pages::lines_of(in);
}

}  // namespace

TEST_CASE("code in the documentation comes from programs that are built", "[docs]") {
  for (const fs::path& page : pages::all()) {
    CAPTURE(page);
    REQUIRE(complaints(pages::read(page), pages::read) == Lines{});
  }
}

TEST_CASE("the check of code blocks tells a true block from an altered one", "[docs]") {
  const auto read = [](const std::string& name) {
    return name == "tour.cpp" ? parse("int main() {\n  int a = 1;\n\n  if (a)\n    return 2;\n}\n") : Lines{};
  };
  const auto count = [&](const std::string& page) { return complaints(parse(page), read).size(); };

  CHECK(count("text\n<!-- from tour.cpp -->\n```cpp\nint a = 1;\n\nif (a)\n  return 2;\n```\n") == 0);
  CHECK(count("<!-- from tour.cpp -->\n```cpp\nint main() {\n  int a = 1;\n```\n```sh\n./dev test\n```\n") == 0);

  CHECK(count("<!-- from tour.cpp -->\n```c\nint a = 1;\n```\n") == 0);

  CHECK(count("```cpp\nint a = 1;\n```\n") == 1);
  CHECK(count("```c\nint a = 1;\n```\n") == 1);
  CHECK(count("<!-- from tour.cpp -->\n```python\na = 1\n```\n") == 1);
  CHECK(count("<!-- from tour.cpp -->\n\n```cpp\nint a = 1;\n```\n") == 1);
  CHECK(count("<!-- from tour.cpp -->\n```cpp\nint a = 2;\n```\n") == 1);
  CHECK(count("<!-- from tour.cpp -->\n```cpp\nint a = 1;\nif (a)\n```\n") == 1);
  CHECK(count("<!-- from tour.cpp -->\n```cpp\nif (a)\nreturn 2;\n```\n") == 1);
  CHECK(count("<!-- from tour.cpp -->\n```cpp\n```\n") == 1);
  CHECK(count("<!-- from gone.cpp -->\n```cpp\nint a = 1;\n```\n```cpp\nint a;\n```\n") == 2);
}
