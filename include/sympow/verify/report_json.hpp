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
  using detail::json, detail::joined;
  const Source source = parse_source(p.source);
  std::string text = "{\"id\": " + json(p.id) + ", " + json(source.first()) + ", \"source\": " + json(p.source) +
                     ", \"note\": " + json(source.note) + ", \"places\": [" +
                     joined(source.places, ", ", [](const Place& place) { return "{" + json(place) + "}"; });
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
  using detail::json, detail::joined;
  const Counts counts(report.propositions);
  const auto paper = [](const Paper& of) {
    return "  {\"letter\": " + json(of.letter) + ", \"title\": " + json(of.title) +
           ", \"authors\": " + json(of.authors) + ", \"year\": " + json(of.year) + ", \"venue\": " + json(of.venue) +
           ", \"link\": " + json(of.link) + "}";
  };
  const auto count = [&](const char* const& name) {
    return json(name) + ": " + std::to_string(counts.of[static_cast<std::size_t>(&name - Counts::names.data())]);
  };
  return "{\"program\": " + json(report.program) + ", \"version\": " + json(report.version) +
         ", \"scalar\": " + json(report.scalar) + ", \"seed\": " + std::to_string(report.seed) +
         ",\n \"compiler\": " + json(report.compiler) + ", \"processor\": " + json(report.processor) +
         ",\n \"papers\": [" + (report.papers.empty() ? "" : "\n") + joined(report.papers, ",\n", paper) +
         "],\n \"counts\": {" + joined(Counts::names, ", ", count) + "},\n \"methods\": " + json(methods_line(counts)) +
         ",\n \"propositions\": [\n  " + joined(report.propositions, ",\n  ", json_object) + "\n]}\n";
}

}  // namespace SYMPOW_NAMESPACE::verify
