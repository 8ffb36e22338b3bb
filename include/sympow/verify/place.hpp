// Where a statement stands: sources such as "A §2, A.1.1; C §4.2" taken apart.
#pragma once

#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include <sympow/verify/papers.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// A place in a paper. What a source does not say is empty.
struct Place {
  std::string paper;     ///< a letter: "A"
  std::string section;   ///< "§4.1", "A.1.2" (an appendix), or the heading where there are no numbers
  std::string equation;  ///< "(27)", "Theorem 2 (27)", "listing 2", "box": whatever is smaller than a section

  bool operator==(const Place&) const = default;
};

/// Where a statement comes from.
struct Source {
  std::vector<Place> places;  ///< the first is the one that counts; none for a statement of nobody's
  std::string note;           ///< "correction", "extension", "scope", "diagnosis": how the statement relates to them

  /// The first place, or an empty one.
  [[nodiscard]] Place first() const { return places.empty() ? Place{} : places.front(); }
};

namespace detail {

/// The pieces between separators that stand outside of parentheses.
[[nodiscard]] inline std::vector<std::string> pieces(const std::string& text, const std::string& separator) {
  std::vector<std::string> found(1);
  int depth = 0;
  for (std::size_t n = 0; n < text.size(); ++n) {
    depth += text[n] == '(' ? 1 : text[n] == ')' ? -1 : 0;
    if (depth == 0 && text.compare(n, separator.size(), separator) == 0) {
      found.emplace_back();
      n += separator.size() - 1;
    } else {
      found.back() += text[n];
    }
  }
  return found;
}

[[nodiscard]] inline bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
[[nodiscard]] inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether a text begins with the letter of a paper: "A §2", "C, introduction", "C".
[[nodiscard]] inline bool begins_with_letter(const std::string& text) {
  return !text.empty() && is_capital(text[0]) && (text.size() == 1 || text[1] == ' ' || text.compare(1, 2, ", ") == 0);
}

/// Whether a piece begins with the number of a section: "§2", "A.1.1", or the letter of an appendix alone.
[[nodiscard]] inline bool has_section_number(const std::string& piece) {
  return piece.starts_with("§") || (!piece.empty() && is_capital(piece[0]) &&
                                    (piece.size() == 1 || (piece.size() > 2 && piece[1] == '.' && is_digit(piece[2]))));
}

/// Whether a piece is a heading behind a sign: "§Introduction", but not "§2", "§F" or "§F.1".
[[nodiscard]] inline bool is_heading_with_sign(const std::string& piece) {
  constexpr std::size_t sign = sizeof("§") - 1;
  const auto is_letter = [&](std::size_t n) { return std::isalpha(static_cast<unsigned char>(piece[n])) != 0; };
  return piece.starts_with("§") && piece.size() > sign + 1 && is_letter(sign) && is_letter(sign + 1);
}

/// Whether a piece names something smaller than a section.
[[nodiscard]] inline bool names_equation(const std::string& piece, const Paper* paper) {
  for (const char* word : {"(",         "eq. ",       "Eq. ",    "equation", "Theorem",    "Lemma",  "Proposition",
                           "Corollary", "Definition", "Result",  "Remark",   "Table",      "Figure", "Algorithm",
                           "listing",   "box",        "test",    "proof",    "derivation", "step ",  "base case",
                           "display",   "after ",     "before ", "footnote"})
    if (piece.starts_with(word)) return true;
  if (paper != nullptr)
    for (const Landmark& landmark : paper->landmarks)
      if (!landmark.name.empty() && piece.starts_with(landmark.name)) return true;
  return false;
}

/// The section in which an equation stands, as far as the paper's landmarks say.
[[nodiscard]] inline std::string section_of(const std::string& equation, const Paper* paper) {
  if (paper == nullptr || equation.empty()) return {};
  for (const Landmark& landmark : paper->landmarks)
    if (!landmark.name.empty() && equation.starts_with(landmark.name)) return landmark.section;
  const std::size_t at = equation.find('(');
  const int number = at == std::string::npos ? 0 : std::atoi(equation.c_str() + at + 1);
  for (const Landmark& landmark : paper->landmarks)
    if (number > 0 && landmark.first <= number && number <= landmark.last) return landmark.section;
  return {};
}

/// Takes words in parentheses off the end of a piece, "§2 (scope)", but not the number of an equation.
[[nodiscard]] inline std::string take_note(std::string& piece) {
  const std::size_t at = piece.rfind('(');
  if (at == std::string::npos || piece.back() != ')' || is_digit(piece[at + 1])) return {};
  const std::string note = piece.substr(at + 1, piece.size() - at - 2);
  piece.erase(at > 0 && piece[at - 1] == ' ' ? at - 1 : at);
  return note;
}

/// The first place that a sentence mentions, "A A.3" of "bridge that A A.3 leaves out"; nothing where a source begins
/// with its place.
[[nodiscard]] inline std::string place_in_words(const std::string& text, const std::vector<Paper>& among) {
  if (begins_with_letter(text) || text.starts_with("(")) return {};
  for (std::size_t at = text.find(' '); at != std::string::npos; at = text.find(' ', at + 1)) {
    const std::string rest = text.substr(at + 1);
    if (rest.size() > 2 && rest[1] == ' ' && find_paper(among, rest.substr(0, 1)) != nullptr &&
        has_section_number(rest.substr(2)))
      return rest.substr(0, rest.find(' ', 2));
  }
  return {};
}

}  // namespace detail

/// Takes a source apart.
///
///     source := [word " of "] places {"; " places} [" (" note ")"]       places := [letter " "] piece {", " piece}
///
/// A letter holds until the next one. A piece is a section, something smaller, or both: "§2", "Theorem 2 (27)", "§2
/// eq. (3)". A section begins a new place; what is smaller belongs to the place before it. Where no section is given,
/// the paper's landmarks say it.
[[nodiscard]] inline Source parse_source(std::string text, const std::vector<Paper>& among = papers()) {
  Source source;
  if (const std::size_t at = text.find(" of "); at != std::string::npos && text.find(' ') == at) {
    source.note = text.substr(0, at);
    text.erase(0, at + 4);
  }
  if (const std::string place = detail::place_in_words(text, among); !place.empty()) {
    source.note = text;
    text = place;
  }
  std::string letter;
  for (std::string& chunk : detail::pieces(text, "; ")) {
    if (detail::begins_with_letter(chunk)) {
      letter = chunk[0];
      chunk.erase(0, chunk.starts_with(letter + ", ") ? 3 : 2);
      if (chunk.empty()) source.places.push_back({letter, {}, {}});
    }
    const Paper* paper = find_paper(among, letter);
    bool is_new = true;
    for (std::string piece : detail::pieces(chunk, ", ")) {
      if (std::string note = detail::take_note(piece); !note.empty() && source.note.empty()) source.note = note;
      if (piece.empty()) continue;
      Place place{letter, {}, {}};
      if (detail::is_heading_with_sign(piece)) {
        place.section = piece.substr(sizeof("§") - 1);
      } else if (detail::has_section_number(piece)) {
        const std::size_t space = piece.find(' ');
        place.section = piece.substr(0, space);
        if (space != std::string::npos) place.equation = piece.substr(space + 1);
      } else if (detail::names_equation(piece, paper)) {
        if (!is_new) {
          std::string& equation = source.places.back().equation;
          equation += (equation.empty() ? "" : ", ") + piece;
          continue;
        }
        place.equation = piece;
      } else {
        place.section = piece;
      }
      source.places.push_back(std::move(place));
      is_new = false;
    }
  }
  for (Place& place : source.places)
    if (place.section.empty()) place.section = detail::section_of(place.equation, find_paper(among, place.paper));
  return source;
}

}  // namespace SYMPOW_NAMESPACE::verify
