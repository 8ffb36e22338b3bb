// What docs/study.md shows of the study's tables.
#pragma once

#include "../plot.hpp"

#include <sympow/core/checks.hpp>

#include <map>
#include <set>

namespace language_model {

/// A table whose first row has the names of its columns.
class Table {
 public:
  /// Throws `InvalidArgument` if it cannot be read, or if a row is too short.
  explicit Table(const std::string& path) : path_(path) {
    std::ifstream in(path);
    std::string line;
    while (std::getline(in, line)) {
      std::vector<std::string> words;
      std::istringstream row(line);
      for (std::string word; std::getline(row, word, ',');) words.push_back(word);
      if (!rows_.empty() && words.size() != rows_[0].size()) refuse(" has a row of another length: " + line);
      rows_.push_back(words);
    }
    if (rows_.empty()) refuse(" cannot be read, or is empty");
  }

  /// f(row) of every row in which the named columns have these words.
  template <class F>
  void for_each(const std::map<std::string, std::string>& where, const F& f) const {
    for (std::size_t n = 1; n < rows_.size(); ++n)
      if (std::ranges::all_of(where, [&](const auto& column) { return word(n, column.first) == column.second; }))
        f([&, n](const std::string& column) { return word(n, column); });
  }

 private:
  [[nodiscard]] const std::string& word(std::size_t row, const std::string& column) const {
    const auto at = std::ranges::find(rows_[0], column);
    if (at == rows_[0].end()) refuse(" has no column " + column);
    return rows_[row][static_cast<std::size_t>(at - rows_[0].begin())];
  }
  [[noreturn]] void refuse(const std::string& why) const { sympow::detail::raise<sympow::InvalidArgument>(path_, why); }

  std::string path_;
  std::vector<std::vector<std::string>> rows_;
};

/// The four settings of the study, and their colours.
inline const std::map<std::string, std::string> colour_of = {
    {"softmax", "#888888"}, {"sympow", "#b2182b"}, {"gated", "#2166ac"}, {"conformal", "#1b7837"}};

/// Means over seeds: at each x, of the y of all rows.
class Means {
 public:
  void add(double x, double y) {
    auto& [sum, count] = at_[x];
    sum += y, ++count;
  }
  [[nodiscard]] plot::Points points() const {
    plot::Points points;
    for (const auto& [x, of] : at_) points.emplace_back(x, of.first / of.second);
    return points;
  }

 private:
  std::map<double, std::pair<double, int>> at_;
};

/// Draws relative_loss.svg, positions.svg and curves.svg into the folder of the tables. Throws `InvalidArgument`.
inline void draw_study(const std::string& folder) {
  const Table runs(folder + "/runs.csv"), positions(folder + "/positions.csv"), curves(folder + "/curves.csv");
  const auto of = [](const std::string& setting, const std::string& power) {
    return std::map<std::string, std::string>{{"setting", setting}, {"power", power}, {"gate_bias", "6.9"}};
  };
  const auto number = [](const auto& row, const char* column) { return std::stod(row(column)); };
  const auto draw = [&](const std::string& name, const std::string& title, const auto& fill) {
    std::string content;
    for (const auto& [power, left] : {std::pair{"2", 60.}, {"4", 450.}}) content += fill(std::string(power), left);
    double x = 60;
    for (const auto& [setting, colour] : colour_of) {
      content += plot::legend(x, 385, "h24", "stroke-width='3' stroke='" + colour + "'", setting);
      x += 120;
    }
    const std::string path = folder + "/" + name;
    if (!plot::write("language_model", path, 410, title, content))
      sympow::detail::raise<sympow::InvalidArgument>(path, " cannot be written");
  };
  const auto head = [](const std::string& power) { return "p = " + power + (power == "2" ? ", d = 32" : ", d = 16"); };
  double longest = 0;  // training context
  runs.for_each({}, [&](const auto& row) { longest = std::max(longest, number(row, "context")); });

  draw("relative_loss.svg", "Held-out loss against that of softmax, in per cent, by training context",
       [&](const std::string& power, double left) {
         std::map<std::string, double> softmax;  // by context and seed
         runs.for_each(of("softmax", power), [&](const auto& row) {
           softmax[row("context") + "/" + row("seed")] = number(row, "held_out_loss");
         });
         plot::Panel panel(head(power), {64, longest, 2, plot::power_of_two, 2}, "training context, bytes",
                           {-20, 25, 5, plot::plain, 0}, left);
         for (const auto& [setting, colour] : colour_of) {
           Means means;
           plot::Points all;
           runs.for_each(of(setting, power), [&](const auto& row) {
             const auto beside = softmax.find(row("context") + "/" + row("seed"));
             if (beside == softmax.end()) return;
             all.emplace_back(number(row, "context"), 100 * (number(row, "held_out_loss") / beside->second - 1));
             means.add(all.back().first, all.back().second);
           });
           panel.curve(means.points(), colour);
           panel.dots(all, colour);
         }
         return panel.svg();
       });

  // f(panel, setting, colour) of the runs with the longest context.
  const auto of_longest = [&](const Table& table, const plot::Axis& x, const char* name_of_x, const plot::Axis& y,
                              const char* column) {
    return [=, &table, &of, &number, &head](const std::string& power, double left) {
      plot::Panel panel(head(power), x, name_of_x, y, left);
      for (const auto& [setting, colour] : colour_of) {
        auto where = of(setting, power);
        where["context"] = plot::plain(longest);
        Means means;
        table.for_each(where, [&](const auto& row) { means.add(number(row, column), number(row, "loss")); });
        panel.curve(means.points(), colour);
      }
      return panel.svg();
    };
  };
  const plot::Axis loss{1.5, 4, .5, plot::plain, 0};
  const std::string longest_context = plot::plain(longest);
  draw("curves.svg", "Loss in training with context " + longest_context + ", nats a byte",
       of_longest(curves, {0, 1000, 200, plot::plain, 0}, "step", loss, "step"));
  draw("positions.svg", "Held-out loss by position, trained with context " + longest_context + ", nats a byte",
       of_longest(positions, {1, 16384, 2, plot::power_of_two, 2}, "bytes read before it", loss, "from"));
}

}  // namespace language_model
