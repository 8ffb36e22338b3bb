// The bytes that a model is trained on, and those that it never sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <sympow/core/checked_file.hpp>
#include <sympow/core/checks.hpp>
#include <sympow/core/random.hpp>

#include "../text_tokens.hpp"

namespace language_model {

using sympow::Index, sympow::checksum;

/// The random numbers of a place in a run. They follow from these numbers alone, on every machine, so that a run goes
/// on without a saved source of them.
inline sympow::Random random_of(std::initializer_list<std::uint64_t> numbers) {
  return sympow::Random(checksum(std::as_bytes(std::span(numbers.begin(), numbers.size()))));
}

inline std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Documents of one side of a corpus.
struct Documents {
  std::string name;  ///< for messages
  std::deque<std::string> texts;

  /// The n-th window of a step, uniform over all places where `length` bytes lie in one document; which it is depends
  /// on these four numbers alone. Throws `InvalidArgument` if every document is shorter. Cost: O(documents).
  [[nodiscard]] std::span<const std::uint8_t> window(std::uint64_t seed, Index step, Index n, Index length) const {
    const auto places = [&](const std::string& text) { return std::max<Index>(std::ssize(text) - length + 1, 0); };
    Index all = 0, longest = 0;
    for (const std::string& text : texts) {
      all += places(text);
      longest = std::max(longest, std::ssize(text));
    }
    if (all == 0)
      sympow::detail::raise<sympow::InvalidArgument>(name, ": the longest of ", texts.size(), " documents has ",
                                                     longest, " bytes, a window needs ", length);
    Index place =
        random_of({seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(n)}).integer(0, all - 1);
    auto text = texts.begin();
    for (; place >= places(*text); ++text) place -= places(*text);
    return bytes_of(*text).subspan(static_cast<std::size_t>(place), static_cast<std::size_t>(length));
  }
};

/// The files that a path means: itself, or all in the folder, sorted by the bytes of their names. Throws
/// `InvalidArgument`.
inline std::vector<std::string> files_of(const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::is_regular_file(path)) return {path};
  if (!fs::is_directory(path))
    sympow::detail::raise<sympow::InvalidArgument>(path, ": there is no such file or folder");
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

  /// Throws `InvalidArgument`.
  explicit Corpus(const std::string& path) : training{path + ", training", {}}, held_out{path + ", held out", {}} {
    const std::vector<std::string> files = files_of(path);
    std::deque<std::string> texts;
    std::unordered_set<std::string_view> different;
    for (const std::string& file : files) {
      const std::string& text = texts.emplace_back(text_tokens::read(file));
      if (text.empty() || !different.insert(text).second) texts.pop_back();
    }
    if (texts.empty())
      sympow::detail::raise<sympow::InvalidArgument>(path, ": there are no bytes in its ", files.size(), " files");
    if (texts.size() == 1) {
      const std::size_t tenth = texts[0].size() / 10;
      held_out.texts.push_back(texts[0].substr(texts[0].size() - tenth));
      texts[0].resize(texts[0].size() - tenth);
      training.texts = std::move(texts);
      return;
    }
    std::vector<std::uint64_t> sums;
    for (const std::string& text : texts) sums.push_back(checksum(std::as_bytes(std::span(text))));
    const auto [lowest, highest] = std::ranges::minmax_element(sums);
    for (auto sum = sums.begin(); sum != sums.end(); ++sum) {
      const bool is_held_out = sum == lowest || (sum != highest && *sum < UINT64_MAX / 20);
      (is_held_out ? held_out : training)
          .texts.push_back(std::move(texts[static_cast<std::size_t>(sum - sums.begin())]));
    }
  }
};

}  // namespace language_model
