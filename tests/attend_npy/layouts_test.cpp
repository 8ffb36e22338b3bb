// Orders of four axes, and sequences of unequal lengths.
#include <limits>
#include <map>

#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

constexpr Index B = 2, T = 40, d = 4, e = 3;

// Random numbers for `heads` heads; gates where they have one number a token.
Numbers numbers(Random& random, Index heads, Index width) {
  Numbers x{B, heads, T, width, {}};
  for (Index n = 0; n < B * heads * T * width; ++n)
    x.entries.push_back(width == 1 ? -.01 * std::abs(random.normal()) : random.normal());
  return x;
}

void save(const ProgramFolder& folder, const std::string& name, const Numbers& x, bool heads_first) {
  if (!heads_first) return x.save<double>(folder, name, 4, 0, x.tokens, x.width > 1);
  sympow::io::Shape shape = {x.batches, x.heads, x.tokens};
  if (x.width > 1) shape.push_back(x.width);
  folder.save<double>(name, shape, x.entries);
}

// Tokens under a chain or under gates and rotations, in a folder of their own.
struct Tokens {
  Numbers Q, K, V, log_gate, W, dY;

  Tokens(std::uint64_t seed, Index H, Index H_kv) {
    Random random(seed);
    Q = numbers(random, H, d), K = numbers(random, H_kv, d), V = numbers(random, H_kv, e);
    log_gate = numbers(random, H, 1), W = numbers(random, H_kv, d), dY = numbers(random, H, e);
    for (Index n = 0; n < B * H_kv * T; ++n) {
      Eigen::Map<Eigen::VectorXd> w(W.entries.data() + n * d, d);
      w.normalize();
    }
  }

  // The first tokens of one sequence.
  [[nodiscard]] Tokens part(Index b, Index count) const {
    Tokens one = *this;
    for (Numbers* x : {&one.Q, &one.K, &one.V, &one.log_gate, &one.W, &one.dY}) {
      std::vector<double> entries;
      for (Index h = 0; h < x->heads; ++h) {
        const auto first = x->entries.begin() + (b * x->heads + h) * T * x->width;
        entries.insert(entries.end(), first, first + count * x->width);
      }
      *x = {1, x->heads, count, x->width, std::move(entries)};
    }
    return one;
  }

  // Y, the diagnostics and the gradients by (batch, head, token, entry), of a run with `more` words.
  [[nodiscard]] std::map<std::string, std::vector<double>> run(bool chain, bool heads_first,
                                                               const std::string& more) const {
    const ProgramFolder folder;
    save(folder, "q.npy", Q, heads_first), save(folder, "k.npy", K, heads_first), save(folder, "v.npy", V, heads_first);
    save(folder, "g.npy", log_gate, heads_first), save(folder, "w.npy", W, heads_first);
    save(folder, "dy.npy", dY, heads_first);
    Numbers strength = W;  // one number a token, in (-1, 1)
    strength.width = 1;
    strength.entries.clear();
    for (std::size_t n = 0; n < W.entries.size(); n += d) strength.entries.push_back(1 + W.entries[n]);
    save(folder, "st.npy", strength, heads_first);
    folder.save<double>("th.npy", {d / 2}, {.3, .05});
    const Finished finished = folder.run(
        "--q q.npy --k k.npy --v v.npy --log-gate g.npy --out y.npy --diagnostics d.npy --grad dy.npy " + more +
        (chain ? " --feature linear --householder w.npy --strength st.npy --delta-rule" : " --theta th.npy") +
        (heads_first ? " --layout bhtd" : ""));
    CAPTURE(more, finished.err);
    REQUIRE(finished.status == 0);
    REQUIRE_THAT(finished.out, contains(heads_first ? "Q is (B, H, T, d) = (" : "Q is (B, T, H, d) = ("));
    std::map<std::string, std::vector<double>> found;
    for (const std::string name : {"y", "d", "y_dq", "y_dk", "y_dv", "y_dlog_gate",
                                   chain ? "y_dhouseholder" : "y_dtheta", chain ? "y_dstrength" : "y_dtheta"}) {
      sympow::io::Array array = folder.read(name + ".npy");
      if (array.shape.size() == 3) array.shape.push_back(1);
      const bool in_order = heads_first || array.shape.size() < 4;
      found[name] = in_order ? std::get<std::vector<double>>(array.entries) : by_head(array).entries;
    }
    return found;
  }
};

Finished run_refused(const ProgramFolder& folder, const std::string& words) {
  const auto before = folder.names();
  const Finished finished = folder.run(words + " --out y.npy");
  CAPTURE(words, finished.err);
  REQUIRE(finished.status == 2);
  REQUIRE(folder.names() == before);
  return finished;
}

}  // namespace

TEST_CASE("both orders of four axes hold the same heads", "[attend_npy]") {
  const Tokens tokens(1, 3, 3);
  for (const bool chain : {false, true})
    for (const std::string more : {"--form attention", "--form chunked --state-out s", "--compare"})
      REQUIRE(tokens.run(chain, true, more) == tokens.run(chain, false, more));
}

TEST_CASE("padding may hold anything and is zero in the rows", "[attend_npy]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Index length = 17;  // of the second sequence
  for (const bool chain : {false, true})
    for (const bool heads_first : {false, true})
      for (const bool from_file : {false, true}) {
        const Tokens whole(3, 2, 1);
        Tokens padded = whole;
        for (Numbers* x : {&padded.Q, &padded.K, &padded.V, &padded.log_gate, &padded.W, &padded.dY})
          for (Index h = 0; h < x->heads; ++h)
            std::fill_n(x->entries.begin() + ((x->heads + h) * T + length) * x->width, (T - length) * x->width, nan);
        const ProgramFolder folder;
        write_bytes(folder / "n.npy", std::string("\x93NUMPY\1\0\x46\0", 10) +
                                          "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }            \n" +
                                          std::string("\50\0\0\0\0\0\0\0\21\0\0\0\0\0\0\0", 16));
        const std::string form = from_file ? "--form recurrent" : "--form attention";
        const auto found =
            padded.run(chain, heads_first, form + " --lengths " + (from_file ? folder / "n.npy" : "40,17"));
        const auto first = whole.part(0, T).run(chain, heads_first, form),
                   second = whole.part(1, length).run(chain, heads_first, form);
        for (const auto& [name, y] : found) {
          if (name == "y_dtheta") continue;  // a sum over all heads
          CAPTURE(name);
          const Index heads =
              std::set<std::string>{"y_dk", "y_dv", "y_dhouseholder", "y_dstrength"}.contains(name) ? 1 : 2;
          const Index width = std::ssize(y) / (B * heads * T);
          std::vector<double> expected = first.at(name);
          const std::vector<double>& last = second.at(name);
          for (Index h = 0; h < heads; ++h) {
            expected.insert(expected.end(), last.begin() + h * length * width, last.begin() + (h + 1) * length * width);
            expected.resize(expected.size() + static_cast<std::size_t>((T - length) * width));
          }
          REQUIRE(y == expected);
        }
      }
}

TEST_CASE("layouts, lengths, groups and pairings that do not fit the arrays", "[attend_npy]") {
  const ProgramFolder folder;
  const std::string three = Arrays({.axes = 3, .tokens = 5}, 1).save(folder), plain = "--q q.npy --k k.npy --v v.npy";
  const auto says = [&](const std::string& more, const std::string& reason) {
    REQUIRE_THAT(run_refused(folder, plain + more).err, contains(reason));
  };
  for (const std::string layout : {"bthd", "bhtd"})
    says(" --layout " + layout, "--layout does not go with --q q.npy of shape (3, 5, 4): it is the order of four axes");
  says(" --layout thd", "--layout is thd, must be bthd or bhtd");
  says(" --pairing half-split", "--pairing half-split needs --theta");
  says(" --pairing halves", "--pairing is halves, must be interleaved or half-split");
  says(" --lengths 5,5", "--lengths 5,5: 2 lengths are given, must be 1, one for each sequence");
  says(" --lengths 6", "--lengths 6: length 0 is 6, must be 0 to T = 5");
  says(" --lengths 5,", "--lengths 5, is , must be a whole number of 0 or more");
  says(" --lengths -3", "--lengths -3: there is no such file");
  says(" --lengths q.npy", "--lengths q.npy: entries are of type '<f8', must be '<i4' or '<i8'");
  folder.save<double>("k.npy", {2, 5, 4}, std::vector<double>(40, 1));
  says("",
       "--k k.npy: shape is (2, 5, 4), must be (3, 5, 4), that of --q q.npy, or with fewer heads, whose number "
       "divides H = 3");
  folder.save<double>("k.npy", {1, 5, 4}, std::vector<double>(20, 1));
  says("", "--v v.npy: shape is (3, 5, 3), must be (1, 5, 3), that of --k k.npy up to the last axis");
}
