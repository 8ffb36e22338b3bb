#include "print_dualities.hpp"

#include <algorithm>
#include <cstdio>
#include "propositions/dualities.hpp"

// Compiled in files of their own, as the propositions are.
extern template std::vector<sympow::verify::Duality> sympow::verify::dualities<double>(std::uint64_t);
extern template std::vector<sympow::verify::Duality> sympow::verify::dualities<float>(std::uint64_t);

using namespace sympow::verify;

namespace {

/// Prints a word and spaces up to a width, counted in characters and not in bytes.
void print(const std::string& word, std::ptrdiff_t width) {
  const auto characters = std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xc0) != 0x80; });
  std::printf("%s%*s", word.c_str(), static_cast<int>(std::max<std::ptrdiff_t>(width - characters, 0)), "");
}

void print(const DualityNames& names, const std::string& forms) {
  print(names.system, 18);
  print(names.recurrence, 34);
  print(names.dual, 19);
  print(names.transition, 35);
  print(forms, 10);
}

}  // namespace

bool print_dualities(const std::string& scalar, std::uint64_t seed) {
  const std::vector<Duality> table = scalar == "float" ? dualities<float>(seed) : dualities<double>(seed);
  print({"linear system", "recurrence: S becomes", "softmax dual", "transition of both"}, "forms");
  std::printf("%11s%11s%11s%11s\n", "attention", "recurrent", "chunked", "dual");
  for (const Duality& row : table) {
    print(row.names, row.forms);
    std::printf("%11.3f%11.3f%11.3f%11.3f%s\n", row.residual.attention.residual, row.residual.recurrent.residual,
                row.residual.chunked.residual, row.softmax.residual, row.holds() ? "" : "  BROKEN");
  }
  const auto broken = std::count_if(table.begin(), table.end(), [](const Duality& row) { return !row.holds(); });
  std::printf(
      "\nIn %s, seed %llu. The worst row in units of the row rule, up to 1 is rounding: the attention form from the "
      "definition evaluated in double,\n"
      "the recurrent and the chunked form from the attention form, the dual's attention from its definition in double "
      "by the linear system's\n"
      "own transition. A dual has the attention form. %zu dualities, %td broken\n",
      scalar.c_str(), static_cast<unsigned long long>(seed), table.size(), broken);
  return broken == 0;
}
