// Where a statement stands: sources such as "A §2, eq. (3); C §4.2" taken apart.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include <sympow/core/config.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A place in a paper. What a source does not say is empty.
struct Place {
  std::string paper;     ///< a letter: "A"
  std::string section;   ///< "§4.1", "§A.1.2" (an appendix), or the heading where there are no numbers: "introduction"
  std::string equation;  ///< "Theorem 2, eq. (27)", "listing", "box": whatever is smaller than a section

  bool operator==(const Place&) const = default;
};

/// Where a statement comes from.
struct Source {
  std::vector<Place> places;  ///< the first is the one that counts; none for a statement of nobody's
  std::string note;           ///< "correction", "extension", "premise": how the statement relates to the first

  /// The first place, or an empty one.
  [[nodiscard]] Place first() const { return places.empty() ? Place{} : places.front(); }
};

namespace detail {

/// "A §2, eq. (3)" taken apart. A heading loses its sign: "§introduction" is "introduction", "§2" and "§A.1" stay.
[[nodiscard]] inline Place parse_place(const std::string& text) {
  constexpr std::size_t sign = sizeof("§") - 1;
  Place place{text.substr(0, 1), {}, {}};
  std::string rest = text.substr(std::min(text.find_first_not_of(", ", 1), text.size()));
  if (rest.starts_with("§")) {
    const auto is_letter = [&](std::size_t n) {
      return n < rest.size() && std::isalpha(static_cast<unsigned char>(rest[n])) != 0;
    };
    const std::size_t first = is_letter(sign) && is_letter(sign + 1) ? sign : 0,
                      end = std::min(rest.find(", "), rest.size());
    place.section = rest.substr(first, end - first);
    rest.erase(0, end + 2);
  }
  place.equation = std::move(rest);
  return place;
}

}  // namespace detail

/// Takes a source apart.
///
///     source := "(" note ")" | place {"; " place}     place := [note " of "] letter [" §" section] [", " equation]
[[nodiscard]] inline Source parse_source(const std::string& text) {
  if (text.starts_with("(")) return {{}, text.substr(1, text.size() - 2)};
  Source source;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 2) {
    end = std::min(text.find("; ", begin), text.size());
    std::string part = text.substr(begin, end - begin);
    if (const std::size_t at = part.find(" of "); at != std::string::npos && at == part.find(' ')) {
      if (begin == 0) source.note = part.substr(0, at);
      part.erase(0, at + 4);
    }
    source.places.push_back(detail::parse_place(part));
  }
  return source;
}

}  // namespace SYMPOW_NAMESPACE::verify
