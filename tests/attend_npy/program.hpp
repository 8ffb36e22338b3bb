// The program attend_npy as a user has it: files in a folder of their own, a command, its exit status and what it
// prints.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <sympow/core/concepts.hpp>
#include <sympow/io/npy.hpp>

#include "catch.hpp"
#include "files.hpp"

namespace sympow::test {

struct Finished {
  int status;  // as the shell has it: 128 and more is a signal
  std::string out, err;
};

/// A folder in which the program runs, gone with this object.
class ProgramFolder : public Folder {
 public:
  template <class Scalar>
  void save(const std::string& name, const sympow::io::Shape& shape, const std::vector<Scalar>& entries) const {
    std::ofstream out(path / name, std::ios::binary);
    sympow::io::write_npy(out, shape, entries);
  }

  [[nodiscard]] sympow::io::Array read(const std::string& name) const {
    return sympow::io::read_npy("", (path / name).string());
  }

  /// Runs the program here. Words are separated by spaces; commands of the shell may come before it, and its output may
  /// go elsewhere.
  [[nodiscard]] Finished run(const std::string& words, const std::string& before = "",
                             const std::string& elsewhere = "") const {
    const fs::path printed = path.string() + ".out", complaint = path.string() + ".err";
    const int result = std::system(("cd '" + path.string() + "' && " + before + "'" SYMPOW_ATTEND_NPY "' " + words +
                                    " >'" + printed.string() + "' 2>'" + complaint.string() + "' " + elsewhere)
                                       .c_str());
    Finished finished{WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result), bytes_of(printed),
                      bytes_of(complaint)};
    fs::remove(printed);
    fs::remove(complaint);
    return finished;
  }
};

}  // namespace sympow::test
