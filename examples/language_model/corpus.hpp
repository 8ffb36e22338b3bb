// The bytes that a model is trained on, and those that it never sees.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <sympow/core/checks.hpp>
#include <sympow/core/random.hpp>

#include "../text_tokens.hpp"
#include "checksum.hpp"

namespace language_model {

using sympow::Index;

/// A corpus that cannot be read, or is too short.
struct InvalidCorpus : sympow::InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// Documents, one after the other.
struct Documents {
  std::string name;                     ///< for messages
  std::string bytes;                    ///< of all of them
  std::vector<Index> boundaries = {0};  ///< document n is at boundaries[n] … boundaries[n + 1] - 1

  void append(std::string_view document) {
    bytes += document;
    boundaries.push_back(std::ssize(bytes));
  }
  [[nodiscard]] Index size() const { return std::ssize(boundaries) - 1; }

  /// Where the n-th window of a step begins, uniform over all places where `length` bytes lie in one document. It
  /// depends on these four numbers alone, on every machine, so that a run goes on without a saved position. Throws
  /// `InvalidCorpus` if every document is shorter. Cost: O(documents).
  [[nodiscard]] Index window(std::uint64_t seed, Index step, Index n, Index length) const {
    const auto extent = [&](std::size_t k) { return boundaries[k + 1] - boundaries[k]; };
    const auto places = [&](std::size_t k) { return std::max<Index>(extent(k) - length + 1, 0); };
    Index all = 0, longest = 0;
    for (std::size_t k = 0; k + 1 < boundaries.size(); ++k) {
      all += places(k);
      longest = std::max(longest, extent(k));
    }
    if (all == 0)
      sympow::detail::raise<InvalidCorpus>(name, ": the longest of ", size(), " documents has ", longest,
                                           " bytes, a window needs ", length);
    const std::array<std::uint64_t, 3> numbers = {seed, static_cast<std::uint64_t>(step),
                                                  static_cast<std::uint64_t>(n)};
    Index place = sympow::Random(checksum(std::as_bytes(std::span(numbers)))).integer(0, all - 1);
    std::size_t k = 0;
    for (; place >= places(k); ++k) place -= places(k);
    return boundaries[k] + place;
  }
};

/// The files that a path means: itself, or all in the folder, sorted by the bytes of their names. Throws
/// `InvalidCorpus`.
inline std::vector<std::string> files_of(const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::is_regular_file(path)) return {path};
  if (!fs::is_directory(path)) sympow::detail::raise<InvalidCorpus>(path, ": there is no such file or folder");
  std::vector<std::string> files;
  for (const auto& file : fs::recursive_directory_iterator(path))
    if (file.is_regular_file()) files.push_back(file.path().generic_string());
  std::ranges::sort(files);
  return files;
}

/// Every file is a document; of equal ones the first is taken. About one in 20 is held out, at least one of two: those
/// whose checksums lie in the lowest twentieth, and the lowest of all. So a document stays on its side when others
/// come, wherever it lies. Of a single document the last tenth is held out.
struct Corpus {
  Documents training, held_out;

  /// Throws `InvalidCorpus`. Holds the bytes twice while it reads.
  explicit Corpus(const std::string& path) : training{path + ", training", {}}, held_out{path + ", held out", {}} {
    const std::vector<std::string> files = files_of(path);
    std::deque<std::string> documents;
    std::unordered_set<std::string_view> different;
    for (const std::string& file : files) {
      const std::string& document = documents.emplace_back(text_tokens::read(file));
      if (document.empty() || !different.insert(document).second) documents.pop_back();
    }
    if (documents.empty())
      sympow::detail::raise<InvalidCorpus>(path, ": there are no bytes in its ", files.size(), " files");
    if (documents.size() == 1) {
      const std::string_view document = documents[0];
      const std::size_t tenth = document.size() / 10;
      training.append(document.substr(0, document.size() - tenth));
      held_out.append(document.substr(document.size() - tenth));
      return;
    }
    std::vector<std::uint64_t> sums;
    for (const std::string& document : documents) sums.push_back(checksum(std::as_bytes(std::span(document))));
    const auto [lowest, highest] = std::ranges::minmax_element(sums);
    for (auto sum = sums.begin(); sum != sums.end(); ++sum) {
      const bool is_held_out = sum == lowest || (sum != highest && *sum < UINT64_MAX / 20);
      (is_held_out ? held_out : training).append(documents[static_cast<std::size_t>(sum - sums.begin())]);
    }
  }
};

}  // namespace language_model
