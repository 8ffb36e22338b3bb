// Kernels without any one of their barriers, waits, predicates or indices, in several instantiations.
#pragma once

#include <map>
#include <regex>
#include <string>

#include "catch.hpp"
#include "forward.hpp"

namespace sympow::test {

/// Mutations, and whether one of the instantiations so far found each out.
using Found = std::map<std::string, bool>;

/// What no instantiation found out, a line each.
inline std::string survivors(const Found& found) {
  std::string text;
  for (const auto& [mutation, is_found] : found)
    if (!is_found) text += mutation + "\n";
  return std::regex_replace(text, std::regex(":[0-9]+"), "");  // lines move
}

/// Every mutation of a kernel, but those that were found out before: run(options, report) is the bits of its results.
template <class Run>
void mutate(Found& found, const Run& run) {
  host::Report report;
  const auto bits_of = [&](const host::Mutation& mutation) -> std::string {
    const std::string all = run(host::Options{host::Schedule::forward, 0, host::MmaSum::hopper, mutation}, report);
    return report.clean() ? all : "";
  };
  const std::string right = bits_of({});
  INFO(report.text());
  REQUIRE(right != "");
  for (const host::Mutation& mutation : host::mutations(report)) {
    bool& is_found = found[host::text(mutation)];
    is_found = is_found || bits_of(mutation) != right;
  }
}

}  // namespace sympow::test
