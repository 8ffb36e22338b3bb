// Which propositions a reader wants to see.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <sympow/verify/report.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// Conditions on a proposition: all kinds of them must be met, each by any one of its values. No value, no condition.
struct Selection {
  std::vector<std::string> ids = {};       ///< the id begins with it, in either case (ASCII)
  std::vector<std::string> words = {};     ///< the statement or its correction contains it, in either case (ASCII)
  std::vector<std::string> papers = {};    ///< one of its places is in the paper of this letter
  std::vector<std::string> verdicts = {};  ///< what `verdict` says of it

  /// Whether a proposition meets them.
  [[nodiscard]] bool operator()(const Proposition& p) const {
    const std::string id = lower(p.id), text = lower(p.statement + "\n" + p.corrected.statement);
    const Source source = parse_source(p.source);
    return any(ids, [&](const std::string& start) { return id.starts_with(lower(start)); }) &&
           any(words, [&](const std::string& word) { return text.find(lower(word)) != std::string::npos; }) &&
           any(papers,
               [&](const std::string& letter) {
                 return std::any_of(source.places.begin(), source.places.end(),
                                    [&](const Place& place) { return place.paper == letter; });
               }) &&
           any(verdicts, [&](const std::string& name) { return verdict(p) == name; });
  }

 private:
  template <class Matches>
  [[nodiscard]] static bool any(const std::vector<std::string>& values, const Matches& matches) {
    return values.empty() || std::any_of(values.begin(), values.end(), matches);
  }
  [[nodiscard]] static std::string lower(std::string text) {
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
  }
};

}  // namespace SYMPOW_NAMESPACE::verify
