// What a run of propositions found, and how a line of it reads.
#pragma once

#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <sympow/core/config.hpp>
#include <sympow/verify/papers.hpp>
#include <sympow/verify/place.hpp>
#include <sympow/verify/proposition.hpp>

namespace SYMPOW_NAMESPACE::verify {

/// The name and version of the compiler.
[[nodiscard]] inline std::string compiler_name() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#elif defined(__GNUC__)
  return "GCC " __VERSION__;
#elif defined(_MSC_VER)
  return "MSVC " + std::to_string(_MSC_VER);
#else
  return "unknown";
#endif
}

/// The processor as the system names it, else its architecture.
[[nodiscard]] inline std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
#if defined(__x86_64__) || defined(_M_X64)
  return "x86-64";
#elif defined(__aarch64__) || defined(_M_ARM64)
  return "AArch64";
#else
  return "unknown";
#endif
}

/// Propositions that were decided, and what decided them.
struct Report {
  std::string program,                         ///< its name
      scalar;                                  ///< the type decided in, "double" or "float"
  std::uint64_t seed = 1;                      ///< of the random inputs
  std::vector<Paper> papers = {};              ///< what the letters of sources stand for
  std::vector<Proposition> propositions = {};  ///< those selected, in the order in which they were decided
  std::string version = library_version,       ///< of this library
      compiler = compiler_name(),              ///< that built the program
      processor = processor_name();            ///< that it ran on

  /// "double, seed 1; sympow 0.2.0, the compiler, the processor"
  [[nodiscard]] std::string setting() const {
    return scalar + ", seed " + std::to_string(seed) + "; sympow " + version + ", " + compiler + ", " + processor;
  }
};

/// What came out: holds, erratum, control or documented; unexpected if the machine does not agree with the ledger.
[[nodiscard]] inline std::string verdict(const Proposition& p) {
  constexpr std::array names = {"holds", "erratum", "control", "documented"};  // by kind
  return p.as_expected() ? names[static_cast<std::size_t>(p.kind)] : "unexpected";
}

namespace detail {

/// printf into a string.
[[nodiscard]]
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
inline std::string print(const char* format, ...) {
  std::va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  std::string text(static_cast<std::size_t>(size > 0 ? size : 0), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

/// Characters, not bytes, of a text in UTF-8; a combining mark is none.
[[nodiscard]] inline std::size_t characters(const std::string& text) {
  std::size_t count = 0;
  for (std::size_t n = 0; n < text.size(); ++n) {
    const auto byte = static_cast<unsigned char>(text[n]);
    const bool continues = (byte & 0xc0) == 0x80, is_mark = byte == 0xcc || byte == 0xcd;  // U+0300 to U+036F
    if (!continues && !is_mark) ++count;
  }
  return count;
}

/// A text and spaces behind it up to a width in characters.
[[nodiscard]] inline std::string padded(const std::string& text, std::size_t width) {
  const std::size_t size = characters(text);
  return text + std::string(size < width ? width - size : 0, ' ');
}

/// The text of each value, with a separator between them.
template <class Values, class Text = std::identity>
[[nodiscard]] std::string joined(const Values& values, const std::string& separator, const Text& text = {}) {
  std::string all;
  for (const auto& value : values) all += (&value == std::data(values) ? "" : separator) + text(value);
  return all;
}

/// A number and what there are so many of: "1 statement", "2 statements".
[[nodiscard]] inline std::string counted(int count, const char* one, const char* several) {
  return std::to_string(count) + " " + (count == 1 ? one : several);
}

}  // namespace detail

/// A residual and its bound: "3.1e-16 <= 8.9e-16".
[[nodiscard]] inline std::string comparison(double residual, double bound) {
  return detail::print("%8.1e %s %8.1e", residual + 0., residual <= bound ? "<=" : "> ", bound);
}

namespace detail {

/// "exactly 0", "exactly -2 ≠ 0", "certified": a residual without a bound.
[[nodiscard]] inline std::string decided(const Decision& decision) {
  if (!decision.refuted) return decision.method == Method::exact ? "exactly 0" : "certified";
  return name_of(decision.method) + " " + (decision.residual.size() < 9 ? decision.residual + " ≠ 0" : "not 0");
}

/// "3.1e-16 <= 8.9e-16", or how a claim was decided.
[[nodiscard]] inline std::string measured(const Claim& claim) {
  return padded(claim.decision.is_made() ? decided(claim.decision) : comparison(claim.residual, claim.bound), 22);
}
/// Its words, with the unit or with what was tried.
[[nodiscard]] inline std::string text(const Claim& claim) {
  if (!claim.decision.is_made()) return with_unit(claim.statement, claim.unit);
  return claim.statement + (claim.decision.domain.empty() ? "" : "; for " + claim.decision.domain);
}
/// Its counterexample, its floating-point residual and the reason of its bound.
[[nodiscard]] inline std::string explained(const Claim& claim) {
  const std::string margin(47, ' ');
  const auto& [statement, residual, bound, unit, reason, decision] = claim;
  std::string lines;
  if (!decision.counterexample.empty()) lines += margin + "counterexample: " + decision.counterexample + "\n";
  if (decision.is_made() && (residual != decision.size() || bound > 0))
    lines += margin + "in floating point: " + comparison(residual, bound) + (unit.empty() ? "" : ", " + unit) + "\n";
  return reason.empty() ? lines : lines + margin + "bound: " + reason + "\n";
}

}  // namespace detail

/// What the terminal shows of a proposition, one line or more: verdict, id, residual and bound or what was decided
/// without rounding, statement, source. An erratum has its corrected form below it; with `explain` counterexamples and
/// the reasons of bounds follow.
[[nodiscard]] inline std::string lines_of(const Proposition& p, bool explain) {
  using detail::padded;
  const bool computed = p.kind != Kind::documentation;
  const std::string name = verdict(p), word = name == "unexpected" ? "UNEXPECTED" : name;
  std::string text = padded(word, 12) + padded(p.id, 13) + (computed ? detail::measured(p) : std::string(22, ' ')) +
                     detail::text(p) + "  [" + p.source + "]\n";
  if (explain) text += detail::explained(p);
  if (p.kind == Kind::erratum) {
    text += padded("  true is", 25) + detail::measured(p.corrected) + detail::text(p.corrected) + "\n";
    if (explain) text += detail::explained(p.corrected);
  }
  if (!computed) text += std::string(47, ' ') + p.corrected.statement + "\n";
  return text;
}

/// The same without residuals, for `--list`.
[[nodiscard]] inline std::string list_line_of(const Proposition& p) {
  const char* kinds[] = {"statement", "erratum", "control", "documented"};
  std::string text = detail::padded(p.id, 13) + detail::padded(kinds[static_cast<int>(p.kind)], 12) + p.statement +
                     "  [" + p.source + "]\n";
  if (p.kind == Kind::erratum) text += std::string(25, ' ') + "true is: " + p.corrected.statement + "\n";
  return text;
}

}  // namespace SYMPOW_NAMESPACE::verify
