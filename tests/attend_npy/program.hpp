// The program attend_npy as a user has it: files in a folder of their own, a command, its exit status and what it
// prints.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <sympow/core/concepts.hpp>
#include <sympow/io/npy.hpp>

#include "catch.hpp"

namespace sympow::test {

namespace fs = std::filesystem;

inline std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct Finished {
  int status;  // as the shell has it: 128 and more is a signal
  std::string out, err;
};

/// A folder that is gone with this object.
class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() /
              ("attend_npy_test_" + std::to_string(getpid()) + "_" + std::to_string(counter()++))) {
    fs::create_directory(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  [[nodiscard]] fs::path operator/(const std::string& name) const { return path_ / name; }

  [[nodiscard]] std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(path_)) found.insert(entry.path().filename().string());
    return found;
  }

  template <class Scalar>
  void save(const std::string& name, const sympow::io::Shape& shape, const std::vector<Scalar>& entries) const {
    std::ofstream out(path_ / name, std::ios::binary);
    sympow::io::write_npy(out, shape, entries);
  }

  [[nodiscard]] sympow::io::Array read(const std::string& name) const {
    return sympow::io::read_npy("", (path_ / name).string());
  }

  /// Runs the program here. Words are separated by spaces; commands of the shell may come before it, and its output may
  /// go elsewhere.
  [[nodiscard]] Finished run(const std::string& words, const std::string& before = "",
                             const std::string& elsewhere = "") const {
    const fs::path printed = path_.string() + ".out", complaint = path_.string() + ".err";
    const int result = std::system(("cd '" + path_.string() + "' && " + before + "'" SYMPOW_ATTEND_NPY "' " + words +
                                    " >'" + printed.string() + "' 2>'" + complaint.string() + "' " + elsewhere)
                                       .c_str());
    Finished finished{WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result), bytes_of(printed),
                      bytes_of(complaint)};
    fs::remove(printed);
    fs::remove(complaint);
    return finished;
  }

 private:
  static int& counter() {
    static int next = 0;
    return next;
  }
  fs::path path_;
};

}  // namespace sympow::test
