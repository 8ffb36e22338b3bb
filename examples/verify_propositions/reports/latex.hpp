// Text in UTF-8 as LaTeX that plain pdflatex compiles.
#pragma once

#include <array>
#include <cctype>
#include <string>
#include <utility>

#include <sympow/verify/report.hpp>
#include "latex_symbols.hpp"

namespace SYMPOW_NAMESPACE::verify::detail {

/// A character and what it is in text.
inline constexpr std::pair<const char*, const char*> latex_letters[] = {{"§", "\\S "},
                                                                        {"–", "--"},
                                                                        {"—", "---"},
                                                                        {"‘", "`"},
                                                                        {"’", "'"},
                                                                        {"“", "``"},
                                                                        {"”", "''"},
                                                                        {"ä", "\\\"a"},
                                                                        {"ö", "\\\"o"},
                                                                        {"ü", "\\\"u"},
                                                                        {"Ä", "\\\"A"},
                                                                        {"Ö", "\\\"O"},
                                                                        {"Ü", "\\\"U"},
                                                                        {"ß", "\\ss{}"},
                                                                        {"é", "\\'e"},
                                                                        {"è", "\\`e"},
                                                                        {"á", "\\'a"},
                                                                        {"ó", "\\'o"},
                                                                        {"í", "\\'{\\i}"},
                                                                        {"ñ", "\\~n"},
                                                                        {"ç", "\\c{c}"},
                                                                        {"\u00a0", "~"},
                                                                        {"\\", "\\textbackslash{}"},
                                                                        {"{", "\\{"},
                                                                        {"}", "\\}"},
                                                                        {"$", "\\$"},
                                                                        {"&", "\\&"},
                                                                        {"#", "\\#"},
                                                                        {"%", "\\%"},
                                                                        {"~", "\\textasciitilde{}"},
                                                                        {"^", "\\textasciicircum{}"},
                                                                        {"_", "\\_"},
                                                                        {"<", "\\ensuremath{<}"},
                                                                        {">", "\\ensuremath{>}"},
                                                                        {"|", "\\ensuremath{|}"},
                                                                        {"\"", "{''}"},
                                                                        {"-", "{-}"},
                                                                        {"\n", " "}};

/// How many bytes the character at `n` has.
[[nodiscard]] inline std::size_t bytes_of_character(const std::string& text, std::size_t n) {
  const auto first = static_cast<unsigned char>(text[n]);
  std::size_t size = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t k = 1; k < size; ++k)
    if (n + k >= text.size() || (static_cast<unsigned char>(text[n + k]) & 0xc0) != 0x80) size = k;
  return size;
}

/// One character as LaTeX. One that no table has is shown by its number, [U+2603]; a byte that is no UTF-8 too.
[[nodiscard]] inline std::string latex_character(const std::string& character) {
  for (const auto& [symbol, command] : latex_symbols)
    if (character == symbol) return std::string("\\ensuremath{") + command + "}";
  for (const auto& [letter, command] : latex_letters)
    if (character == letter) return command;
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1 && first >= 0x20 && first < 0x7f) return character;
  unsigned code = character.size() == 1 ? first : first & (0xffu >> (character.size() + 1));
  for (std::size_t n = 1; n < character.size(); ++n)
    code = code << 6 | (static_cast<unsigned char>(character[n]) & 0x3fu);
  return print("[U+%04X]", code);
}

/// How many bytes a subscript or exponent has that begins at `n`, behind `_` or `^`: {…} or a few letters and digits;
/// 0: it is none, but an underscore in a word such as log_gamma.
[[nodiscard]] inline std::size_t script_at(const std::string& text, std::size_t n) {
  const auto word = [&](std::size_t k) {
    return k < text.size() && std::isalnum(static_cast<unsigned char>(text[k])) != 0;
  };
  std::size_t before = 0;
  while (before < n - 1 && word(n - 2 - before)) ++before;
  if (text[n - 1] == '_' && before > 1 && std::isdigit(static_cast<unsigned char>(text[n - 2])) == 0) return 0;
  if (n < text.size() && text[n] == '{') {
    int depth = 0;
    for (std::size_t k = n; k < text.size(); ++k) {
      depth += text[k] == '{' ? 1 : text[k] == '}' ? -1 : 0;
      if (depth == 0) return k - n + 1;
    }
    return 0;
  }
  std::size_t end = n;
  while (word(end)) ++end;
  if (end == n && end < text.size()) return text[n] == '(' || text[n] == ' ' ? 0 : bytes_of_character(text, n);  // x_α
  return end - n <= 3 && (end >= text.size() || text[end] != '_') ? end - n : 0;
}

/// The command for a bar, a hat or a tilde over the character before `n`; none if there is none.
[[nodiscard]] inline const char* accent_at(const std::string& text, std::size_t n) {
  if (text.compare(n, 2, "\u0304") == 0) return "\\bar";
  if (text.compare(n, 2, "\u0302") == 0) return "\\hat";
  return text.compare(n, 2, "\u0303") == 0 ? "\\tilde" : nullptr;
}

/// Text as LaTeX. x_i, x_{i-1} and x^p become subscripts and exponents; what LaTeX reads as a mark is escaped.
[[nodiscard]] inline std::string latex(const std::string& text) {
  std::string result;
  for (std::size_t n = 0; n < text.size();) {
    if ((text[n] == '_' || text[n] == '^') && n > 0) {
      if (const std::size_t size = script_at(text, n + 1); size > 0) {
        const bool braces = text[n + 1] == '{';
        const std::string script = braces ? text.substr(n + 2, size - 2) : text.substr(n + 1, size);
        result += std::string("\\ensuremath{") + text[n] + "{\\mbox{\\scriptsize " + latex(script) + "}}}";
        n += 1 + size;
        continue;
      }
    }
    const std::size_t size = bytes_of_character(text, n);
    const std::string character = text.substr(n, size);
    n += size;
    const char* const accent = accent_at(text, n);
    result += accent != nullptr
                  ? std::string("\\ensuremath{") + accent + "{\\mathrm{" + latex_character(character) + "}}}"
                  : latex_character(character);
    if (accent != nullptr) n += 2;
  }
  return result;
}

}  // namespace SYMPOW_NAMESPACE::verify::detail
