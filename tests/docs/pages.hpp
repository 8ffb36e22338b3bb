// Files of this repository as lines.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace pages {

using Lines = std::vector<std::string>;

inline std::filesystem::path root() { return SYMPOW_SOURCE_DIR; }

inline Lines lines_of(std::istream& in) {
  Lines lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The lines of a file, none if there is no such file. The name is relative to the root of the repository.
inline Lines read(const std::filesystem::path& name) {
  std::ifstream in(root() / name);
  return lines_of(in);
}

/// The files below a folder whose names end with one of the extensions.
inline std::vector<std::filesystem::path> files(const std::filesystem::path& folder, const std::string& extension) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root() / folder))
    if (entry.path().extension() == extension) found.push_back(std::filesystem::relative(entry.path(), root()));
  return found;
}

/// README.md and the other pages.
inline std::vector<std::filesystem::path> all() {
  std::vector<std::filesystem::path> found = files("docs", ".md");
  for (const char* name : {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"})
    if (std::filesystem::exists(root() / name)) found.emplace_back(name);
  return found;
}

}  // namespace pages
