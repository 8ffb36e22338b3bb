// Random arrays for the program, in files.
#pragma once

#include <map>
#include <sstream>

#include "program.hpp"
#include "random.hpp"

namespace sympow::test {

/// Numbers by (batch, head, token, entry), whatever the order of the file.
struct Numbers {
  Index batches, heads, tokens, width;
  std::vector<double> entries;  // (B, H, T, n)

  [[nodiscard]] Eigen::MatrixXd head(Index b, Index h, Index begin, Index count) const {
    return Eigen::Map<const Eigen::MatrixXd>(entries.data(), width, batches * heads * tokens)
        .middleCols((b * heads + h) * tokens + begin, count);
  }

  /// Tokens begin … begin + count - 1 in the order of a file with this many axes, the last one left out on request.
  template <class Scalar>
  void save(const ProgramFolder& folder, const std::string& name, int axes, Index begin, Index count,
            bool with_last_axis = true) const {
    sympow::io::Shape shape = axes == 2   ? sympow::io::Shape{count}
                              : axes == 3 ? sympow::io::Shape{heads, count}
                                          : sympow::io::Shape{batches, count, heads};
    if (with_last_axis) shape.push_back(width);
    std::vector<Scalar> ordered;
    const auto push = [&](Index b, Index h, Index t) {
      for (Index i = 0; i < width; ++i)
        ordered.push_back(
            static_cast<Scalar>(entries[static_cast<std::size_t>(((b * heads + h) * tokens + begin + t) * width + i)]));
    };
    for (Index b = 0; b < batches; ++b)
      if (axes == 4)
        for (Index t = 0; t < count; ++t)
          for (Index h = 0; h < heads; ++h) push(b, h, t);
      else
        for (Index h = 0; h < heads; ++h)
          for (Index t = 0; t < count; ++t) push(b, h, t);
    folder.save<Scalar>(name, shape, ordered);
  }
};

/// What a file holds, by (batch, head, token, entry).
inline Numbers by_head(const sympow::io::Array& array) {
  const auto& s = array.shape;
  const auto axes = s.size();
  Numbers x{axes == 4 ? s[0] : 1, axes == 2 ? 1 : axes == 3 ? s[0] : s[2], axes == 2 ? s[0] : s[1], s.back(), {}};
  x.entries.resize(array.size());
  for (std::size_t n = 0; n < array.size(); ++n) {
    Index rest = static_cast<Index>(n);
    const Index i = rest % x.width;
    rest /= x.width;
    const Index a = axes == 4 ? rest % x.heads : rest % x.tokens;
    rest /= axes == 4 ? x.heads : x.tokens;
    const Index c = axes == 4 ? rest % x.tokens : rest % x.heads;
    const Index b = rest / (axes == 4 ? x.tokens : x.heads), h = axes == 4 ? a : c, t = axes == 4 ? c : a;
    x.entries[static_cast<std::size_t>(((b * x.heads + h) * x.tokens + t) * x.width + i)] = array[n];
  }
  return x;
}

struct Choice {
  int axes = 2;
  Index tokens = 40, d = 4, e = 3;
  std::string feature = "power";
  int power = 2;
  bool single = false, gates = false, angles = false, rates = false;
  std::string normalize = "auto";
  double scale = 1;
  Index features = 24;  // of the feature random
  std::uint64_t seed = 1;

  [[nodiscard]] std::string text() const {
    std::ostringstream out;
    out << axes << " axes, T " << tokens << ", d " << d << ", e " << e << ", " << feature << " " << power
        << (single ? ", float" : ", double") << (gates ? ", gates" : "") << (angles ? ", angles" : "")
        << (rates ? ", rates" : "") << ", normalize " << normalize << ", scale " << scale;
    return out.str();
  }
};

/// Random arrays of a choice.
class Arrays {
 public:
  Arrays(const Choice& choice, std::uint64_t seed) : choice_(choice), random_(seed) {
    batches_ = choice.axes == 4 ? 2 : 1;
    heads_ = choice.axes == 2 ? 1 : 3;
    Q = numbers(choice.d), K = numbers(choice.d), V = numbers(choice.e), log_gate = numbers(1), beta = numbers(1);
    for (double& g : log_gate.entries)
      g = rounded(-.001 - .001 * std::abs(g));  // slow: what came long before still weighs
    for (double& b : beta.entries) b = rounded(1 + std::tanh(b));
    for (Index j = 0; j < choice.d / 2; ++j) theta.push_back(rounded(2 * random_.uniform()));
  }

  /// Files of the tokens begin … begin + count - 1, and the words that name them.
  [[nodiscard]] std::string save(const ProgramFolder& folder, Index begin, Index count) const {
    return choice_.single ? save_as<float>(folder, begin, count) : save_as<double>(folder, begin, count);
  }
  [[nodiscard]] std::string save(const ProgramFolder& folder) const { return save(folder, 0, choice_.tokens); }

  Numbers Q{}, K{}, V{}, log_gate{}, beta{};
  std::vector<double> theta;

 private:
  // A number that the file holds exactly.
  [[nodiscard]] double rounded(double x) const {
    return choice_.single ? static_cast<double>(static_cast<float>(x)) : x;
  }

  Numbers numbers(Index width) {
    Numbers x{batches_, heads_, choice_.tokens, width, {}};
    x.entries.resize(static_cast<std::size_t>(batches_ * heads_ * choice_.tokens * width));
    for (double& entry : x.entries) entry = rounded(random_.normal());
    return x;
  }

  template <class Scalar>
  std::string save_as(const ProgramFolder& folder, Index begin, Index count) const {
    Q.save<Scalar>(folder, "q.npy", choice_.axes, begin, count);
    K.save<Scalar>(folder, "k.npy", choice_.axes, begin, count);
    V.save<Scalar>(folder, "v.npy", choice_.axes, begin, count);
    std::ostringstream words;
    words << "--q q.npy --k k.npy --v v.npy --feature " << choice_.feature << " --normalize " << choice_.normalize
          << " --scale " << choice_.scale;
    if (choice_.feature == "power") words << " --power " << choice_.power;
    if (choice_.feature == "random") {
      words << " --features " << choice_.features;
      if (choice_.seed != 1) words << " --seed " << choice_.seed;
    }
    if (choice_.gates) {
      log_gate.save<float>(folder, "g.npy", choice_.axes, begin, count,
                           false);  // of another type than Q where that is double
      if (!choice_.single) log_gate.save<double>(folder, "g.npy", choice_.axes, begin, count, false);
      words << " --log-gate g.npy";
    }
    if (choice_.angles) {
      folder.save<double>("th.npy", {choice_.d / 2}, theta);  // double whatever Q is
      words << " --theta th.npy";
    }
    if (choice_.rates) {
      beta.save<double>(folder, "b.npy", choice_.axes, begin, count, false);
      words << " --beta b.npy";
    }
    return words.str();
  }

  Choice choice_;
  Random random_;
  Index batches_ = 1, heads_ = 1;
};

/// The largest difference of two arrays.
inline double distance(const Numbers& a, const Numbers& b) {
  double worst = 0;
  for (std::size_t n = 0; n < a.entries.size(); ++n) worst = std::max(worst, std::abs(a.entries[n] - b.entries[n]));
  return worst;
}

/// Runs the tokens in pieces, each continuing the states of the one before; returns the rows of all.
template <class A>
Numbers run_in_pieces(const ProgramFolder& folder, const A& arrays, const Choice& choice,
                      const std::vector<Index>& pieces, const std::vector<std::string>& forms, bool forget = false,
                      const std::string& more = "") {
  Numbers all{};
  Index begin = 0;
  for (std::size_t n = 0; n < pieces.size(); ++n) {
    std::string words = arrays.save(folder, begin, pieces[n]) + " --out y.npy --state-out states --form " +
                        forms[n % forms.size()] + more;
    if (n > 0 && !forget) words += " --state-in states";  // the same file as it leaves behind
    const Finished finished = folder.run(words);
    CAPTURE(words, finished.err);
    REQUIRE(finished.status == 0);
    const Numbers Y = by_head(folder.read("y.npy"));
    if (n == 0) {
      all = {Y.batches, Y.heads, choice.tokens, Y.width, {}};
      all.entries.resize(static_cast<std::size_t>(Y.batches * Y.heads * choice.tokens * Y.width));
    }
    for (Index head = 0; head < Y.batches * Y.heads; ++head)
      for (Index x = 0; x < pieces[n] * Y.width; ++x)
        all.entries[static_cast<std::size_t>((head * choice.tokens + begin) * Y.width + x)] =
            Y.entries[static_cast<std::size_t>(head * pieces[n] * Y.width + x)];
    begin += pieces[n];
  }
  return all;
}

}  // namespace sympow::test
