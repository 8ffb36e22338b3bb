// A report as JSON.
#pragma once

#include <cmath>
#include <string>

#include <sympow/verify/report_table.hpp>

namespace SYMPOW_NAMESPACE::verify {
namespace detail {

/// A string of JSON: quotes, backslashes and control characters are escaped, the rest is UTF-8 as it stands.
[[nodiscard]] inline std::string json(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += std::string("\\") + c;
    else if (static_cast<unsigned char>(c) < 0x20)
      result += print("\\u%04x", static_cast<unsigned>(c));
    else
      result += c;
  }
  return result + '"';
}

/// A number of JSON, which has no infinity and no NaN: they become null.
[[nodiscard]] inline std::string json(double x) { return std::isfinite(x) ? print("%.17g", x) : "null"; }

[[nodiscard]] inline std::string json(const Place& place) {
  return "\"paper\": " + json(place.paper) + ", \"section\": " + json(place.section) +
         ", \"equation\": " + json(place.equation);
}

}  // namespace detail

/// One proposition as an object. `paper`, `section` and `equation` are those of its first place; `places` has all of
/// them. Numbers, units, reasons and what was decided without rounding come twice, for the statement and, with
/// corrected_ before them, for its correction; null where there is nothing to measure.
[[nodiscard]] inline std::string json_object(const Proposition& p) {
  using detail::json;
  const Source source = parse_source(p.source);
  std::string text = "{\"id\": " + json(p.id) + ", " + json(source.first()) + ", \"source\": " + json(p.source) +
                     ", \"note\": " + json(source.note) + ", \"places\": [";
  for (std::size_t n = 0; n < source.places.size(); ++n) text += (n == 0 ? "{" : ", {") + json(source.places[n]) + "}";
  const auto form = [](const std::string& prefix, bool computed, const Claim& claim) {
    const auto& [statement, residual, bound, unit, reason, decision] = claim;
    const auto field = [&](const char* name, const std::string& value) {
      return ", \"" + prefix + name + "\": " + value;
    };
    const auto measured = [&](const std::string& value) { return computed ? value : "null"; };
    return field("residual", measured(json(residual))) + field("bound", measured(json(bound))) +
           field("unit", measured(json(unit.empty() ? "absolute" : unit))) + field("reason", json(reason)) +
           field("decided", measured(json(name_of(decision.method)))) +
           field("exact_residual", decision.is_made() ? json(decision.residual) : "null") +
           field("domain", json(decision.domain)) + field("counterexample", json(decision.counterexample));
  };
  return text + "],\n   \"verdict\": " + json(verdict(p)) + ", \"statement\": " + json(p.statement) +
         form("", p.kind != Kind::documentation, p) + ",\n   \"correction\": " + json(p.corrected.statement) +
         form("corrected_", p.kind == Kind::erratum, p.corrected) + "}";
}

/// The whole report as an object: what decided it, the papers, the counts by verdict and method, `propositions`.
[[nodiscard]] inline std::string json_report(const Report& report) {
  using detail::json;
  std::string text = "{\"program\": " + json(report.program) + ", \"version\": " + json(report.version) +
                     ", \"scalar\": " + json(report.scalar) + ", \"seed\": " + std::to_string(report.seed) +
                     ",\n \"compiler\": " + json(report.compiler) + ", \"processor\": " + json(report.processor) +
                     ",\n \"papers\": [";
  const char* separator = "\n";
  for (const Paper& paper : report.papers) {
    text += separator + std::string("  {\"letter\": ") + json(paper.letter) + ", \"title\": " + json(paper.title) +
            ", \"authors\": " + json(paper.authors) + ", \"year\": " + json(paper.year) +
            ", \"venue\": " + json(paper.venue) + ", \"link\": " + json(paper.link) + "}";
    separator = ",\n";
  }
  text += "],\n \"counts\": {";
  const Counts counts(report.propositions);
  for (std::size_t n = 0; n < Counts::names.size(); ++n)
    text += (n == 0 ? "" : ", ") + json(Counts::names[n]) + ": " + std::to_string(counts.of[n]);
  text += "},\n \"methods\": " + json(methods_line(counts)) + ",\n \"propositions\": [";
  separator = "\n  ";
  for (const Proposition& p : report.propositions) {
    text += separator + json_object(p);
    separator = ",\n  ";
  }
  return text + "\n]}\n";
}

}  // namespace SYMPOW_NAMESPACE::verify
