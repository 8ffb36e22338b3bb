// The figures of docs/study.md, drawn from the study's tables into their folder:  study_plot docs/study
#include "plot.hpp"

#include <sympow/core/checks.hpp>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Row = std::map<std::string, std::string>;

/// The rows of a table whose first row has the names of its columns. Throws `InvalidArgument` if it cannot be read, if
/// a row has another length, or if one of these columns is not there.
std::vector<Row> read_table(const std::string& path, const std::vector<std::string>& wanted) {
  const auto refuse = [&](const std::string& why) { sympow::detail::raise<sympow::InvalidArgument>(path, why); };
  std::ifstream in(path);
  std::vector<std::string> names, words;
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line); words.clear()) {
    std::istringstream row(line);
    for (std::string word; std::getline(row, word, ',');) words.push_back(word);
    if (names.empty()) {
      names = words;
      continue;
    }
    if (words.size() != names.size()) refuse(" has a row of another length: " + line);
    rows.emplace_back();
    for (std::size_t n = 0; n < names.size(); ++n) rows.back()[names[n]] = words[n];
  }
  if (names.empty()) refuse(" cannot be read, or is empty");
  for (const std::string& name : wanted)
    if (std::ranges::find(names, name) == names.end()) refuse(" has no column " + name);
  return rows;
}

/// The four settings of the study, their colors and dashes.
const std::map<std::string, std::pair<std::string, std::string>> look_of = {
    {"softmax", {plot::gray, "stroke-dasharray='8 4'"}},
    {"sympow", {plot::vermillion, "stroke-dasharray='2 3'"}},
    {"gated", {plot::blue, ""}},
    {"conformal", {plot::green, "stroke-dasharray='10 3 2 3'"}}};

/// A column of a table on an axis.
struct Scale {
  std::string column, name;
  plot::Axis axis;
};

/// A panel for each power with a curve for each setting, the mean over seeds; of y, or of the per cent by which y is
/// above that of softmax, then with dots for all seeds. Throws `InvalidArgument` if the file cannot be written.
void draw(const std::string& path, const std::string& title, const std::vector<Row>& rows, const Scale& x,
          const Scale& y, bool is_beside_softmax, double mark = 0) {
  std::string content;
  for (const auto& [power, left] : {std::pair{"2", 60.}, {"4", 450.}}) {
    std::map<std::string, std::map<double, std::map<std::string, double>>> found;  // y of a setting, an x, and a seed
    for (const Row& row : rows)
      if (row.at("power") == power)
        found[row.at("setting")][std::stod(row.at(x.column))][row.at("seed")] = std::stod(row.at(y.column));
    plot::Panel panel(std::string("p = ") + power + (*power == '2' ? ", d = 32" : ", d = 16"), x.axis, x.name, y.axis,
                      y.name, left);
    if (mark > 0) {
      panel.curve({{mark, y.axis.first}, {mark, y.axis.last}}, "black", "stroke-dasharray='1 4'");
      panel.label(mark, y.axis.last, -92, 14, "training context");
    }
    for (const auto& [setting, look] : look_of) {
      const auto& [colour, dashes] = look;
      plot::Points means, all;
      for (const auto& [at, of_seeds] : found[setting]) {
        double sum = 0, count = 0;
        for (auto [seed, value] : of_seeds) {
          if (is_beside_softmax) {
            const auto& softmax = found["softmax"][at];
            if (!softmax.contains(seed)) continue;
            value = 100 * (value / softmax.at(seed) - 1);
          }
          all.emplace_back(at, value);
          sum += value, ++count;
        }
        if (count > 0) means.emplace_back(at, sum / count);
      }
      panel.curve(means, colour, dashes);
      if (is_beside_softmax) panel.dots(all, colour);
    }
    content += panel.svg();
  }
  double left = 60;
  for (const auto& [setting, look] : look_of) {
    content += plot::legend(left, 385, "h24", "stroke-width='3' stroke='" + look.first + "' " + look.second, setting);
    left += 120;
  }
  if (!plot::write("study_plot", path, 410, title, content))
    sympow::detail::raise<sympow::InvalidArgument>(path, " cannot be written");
}

/// Draws relative_loss.svg, positions.svg and curves.svg into the folder of the tables. Throws `InvalidArgument`.
void draw_study(const std::string& folder) {
  const auto rows_of = [&](const std::string& table, const std::string& x, const std::string& y) {
    auto rows = read_table(folder + table, {"setting", "power", "gate_bias", "context", "seed", x, y});
    std::erase_if(rows, [](const Row& row) { return row.at("gate_bias") != "6.9"; });
    return rows;
  };
  const std::vector<Row> runs = rows_of("/runs.csv", "context", "held_out_loss");
  std::vector<Row> curves = rows_of("/curves.csv", "step", "loss"),
                   positions = rows_of("/positions.csv", "from", "loss");
  double longest = 0;  // training context
  for (const Row& row : runs) longest = std::max(longest, std::stod(row.at("context")));
  const std::string context = plot::plain(longest);
  for (auto* rows : {&curves, &positions})
    std::erase_if(*rows, [&](const Row& row) { return row.at("context") != context; });
  std::erase_if(positions, [](const Row& row) { return std::stod(row.at("from")) < 8; });  // a few bytes each

  const Scale loss{"loss", "nats per byte", {1.5, 4, .5, plot::plain, 0}};
  draw(folder + "/relative_loss.svg",
       "Held-out loss beside softmax; a dot is a seed (p = 4 and contexts 64 and 4096: one seed)", runs,
       {"context", "training context, bytes", {64, longest, 2, plot::power_of_two, 2}},
       {"held_out_loss", "above softmax, per cent", {-20, 25, 5, plot::plain, 0}}, true);
  draw(folder + "/curves.svg", "Loss in training with context " + context + ", every step its own text; first seed",
       curves, {"step", "step", {0, 1000, 200, plot::plain, 0}}, loss, false);
  draw(folder + "/positions.svg", "Held-out loss by position, trained with context " + context + "; first seed",
       positions, {"from", "bytes read before it", {8, 16384, 2, plot::power_of_two, 2}}, loss, false, longest);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "study_plot: must have one argument, the folder of the tables\n";
    return 2;
  }
  try {
    draw_study(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "study_plot: " << error.what() << '\n';
    return 2;
  }
}
