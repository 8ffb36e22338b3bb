// Every link from page to page leads to a file, and its anchor to a heading there.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "catch.hpp"
#include "pages.hpp"

namespace {

namespace fs = std::filesystem;
using pages::Lines;

/// Lines outside of blocks of code, without pieces of code.
Lines prose_of(const Lines& page) {
  Lines prose;
  bool is_code = false;
  for (const std::string& line : page) {
    if (line.starts_with("```")) is_code = !is_code;
    prose.push_back(is_code ? "" : line);
  }
  return prose;
}

/// The anchor that GitHub gives a heading: lower case, no punctuation, hyphens for spaces. Letters beyond ASCII stay.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : std::regex_replace(heading, std::regex(R"(\]\([^)]*\))"), "")) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 || std::isalnum(byte) || c == '_' || c == '-') anchor += static_cast<char>(std::tolower(byte));
    if (c == ' ') anchor += '-';
  }
  return anchor;
}

std::set<std::string> anchors_of(const Lines& page) {
  std::set<std::string> anchors;
  std::map<std::string, int> seen;
  for (const std::string& line : prose_of(page)) {
    const std::size_t level = line.find_first_not_of('#');
    if (level == 0 || level == std::string::npos || line[level] != ' ') continue;
    const std::string anchor = anchor_of(line.substr(level + 1));
    const int n = seen[anchor]++;
    anchors.insert(n == 0 ? anchor : anchor + "-" + std::to_string(n));
  }
  return anchors;
}

/// One sentence for each link of a page that leads nowhere. `read` maps a file to its lines; `exists` says if it is.
template <class Read, class Exists>
Lines complaints(const fs::path& name, Read read, Exists exists) {
  Lines found;
  const Lines prose = prose_of(read(name));
  const std::regex link(R"(\]\(([^)\s]+)\)|src="([^"]+)\")");
  for (std::size_t i = 0; i < prose.size(); ++i) {
    const std::string line = std::regex_replace(prose[i], std::regex("`[^`]*`"), "`");
    for (std::sregex_iterator match(line.begin(), line.end(), link), end; match != end; ++match) {
      const std::string target = (*match)[1].matched ? match->str(1) : match->str(2);
      if (target.find("://") != std::string::npos || target.starts_with("mailto:")) continue;
      const std::size_t hash = target.find('#');
      const std::string file = target.substr(0, hash);
      const fs::path page = file.empty() ? name : (name.parent_path() / file).lexically_normal();
      const std::string where = name.string() + ", line " + std::to_string(i + 1) + ": " + target;
      if (!exists(page))
        found.push_back(where + " does not exist");
      else if (hash != std::string::npos && !anchors_of(read(page)).contains(target.substr(hash + 1)))
        found.push_back(where + " names no heading");
    }
  }
  return found;
}

}  // namespace

TEST_CASE("links between pages lead to files and headings", "[docs]") {
  const auto exists = [](const fs::path& file) { return fs::exists(pages::root() / file); };
  for (const fs::path& page : pages::all()) CHECK(complaints(page, pages::read, exists) == Lines{});
}

TEST_CASE("the check of links tells a true one from a wrong one", "[docs]") {
  const auto read = [](const fs::path& name) {
    return name == "docs/b.md"
               ? Lines{"# A page", "## The `form`, and φ (x)", "## Twice", "## Twice", "```", "# no", "```"}
               : Lines{};
  };
  const auto count = [&](const std::string& line) {
    const auto page = [&](const fs::path& name) { return name == "docs/a.md" ? Lines{line} : read(name); };
    return complaints("docs/a.md", page,
                      [](const fs::path& file) { return file == "docs/a.md" || file == "docs/b.md"; })
        .size();
  };
  CHECK(count("[b](b.md), [head](b.md#the-form-and-φ-x), [second](../docs/b.md#twice-1), [far](https://x.y/z#w)") == 0);
  CHECK(count("a lambda `[&](Index b)` is code") == 0);
  CHECK(count("[gone](c.md)") == 1);
  CHECK(count("![picture](c.svg)") == 1);
  CHECK(count("[b](b.md#gone)") == 1);
  CHECK(count("[b](b.md#no)") == 1);
  CHECK(count("[own](#gone)") == 1);
}
