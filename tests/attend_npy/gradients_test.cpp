// The program's gradients are those of the definition, in everything that can be given.
#include <map>
#include <tuple>

#include <sympow/verify/gradient_row_rule.hpp>

#include "chain.hpp"

using namespace sympow;
using namespace sympow::test;
using namespace sympow::verify;

namespace {

using WideMatrix = Matrix<Wide>;

WideMatrix wide(const Eigen::MatrixXd& x) { return x.cast<Wide>(); }
WideMatrix one(Wide x) { return WideMatrix::Constant(1, 1, x); }

// What a gradient must be, by head or, for what all heads share, in all.
struct Expected {
  WideMatrix value, bound;
  void add(const WideMatrix& more, const WideMatrix& off_by) {
    if (value.size() == 0) value.setZero(more.rows(), more.cols()), bound = value;
    value += more, bound += off_by;
  }
};

// One run with --grad, and how far its gradients are from the definition by the gradient row rule.
class Run {
 public:
  static constexpr Index chunk = 8;

  Run(const Choice& choice, const std::string& form, std::uint64_t seed, bool is_chain, bool delta_rule)
      : choice_(choice),
        form_(form),
        is_chain_(is_chain),
        delta_rule_(delta_rule),
        chain_(choice, seed, delta_rule),
        dY(Arrays(choice, seed + 2000).V) {}

  // Rows before this token have no gradient, and the program goes on from the state before it.
  void resume_at(Index token) {
    first_ = token;
    for (std::size_t n = 0; n < dY.entries.size(); ++n)
      if (static_cast<Index>(n) / dY.width % dY.tokens < token) dY.entries[n] = 0;
  }

  // The largest difference in units of the rule.
  double worst() {
    if (is_chain_)
      with_feature_of(choice_, [&](const auto& feature) {
        for (Index b = 0; b < dY.batches; ++b)
          for (Index h = 0; h < dY.heads; ++h)
            add<DefaultNormalization>(feature, chain_.transition(b, h), b, h, chain_.values(b, h));
      });
    else
      chain_.arrays.each_call(
          [&]<class F, class N, class A>(const F& feature, N, const A& transition, Index b, Index h) {
            add<N>(feature, transition, b, h, head(chain_.arrays.V, b, h));
          });
    run();
    return worst_;
  }

 private:
  [[nodiscard]] Eigen::MatrixXd head(const Numbers& x, Index b, Index h) const {
    return x.head(b, h, 0, choice_.tokens);
  }
  [[nodiscard]] double unit() const { return chain_.arrays.unit(); }

  // The definition of a head. Rows that say nothing lose their dY, in the program's as well.
  template <class N, class F, class A>
  void add(const F& feature, const A& transition, Index b, Index h, const Eigen::MatrixXd& V) {
    const Arrays& arrays = chain_.arrays;
    GradientCall call = gradient_call<N>(feature, transition, head(arrays.Q, b, h), head(arrays.K, b, h), V,
                                         head(dY, b, h), {.scale = choice_.scale});
    const Vector<Wide> theta =
        Eigen::Map<const Eigen::VectorXd>(arrays.theta.data(), std::ssize(arrays.theta)).template cast<Wide>();
    Vector<Wide> beta = Vector<Wide>::Ones(choice_.tokens);
    if (choice_.rates) beta = wide(head(arrays.beta, b, h)).transpose();
    const WideMatrix w = wide(head(chain_.W, b, h));
    const Vector<Wide> strength = wide(head(chain_.strength, b, h)).transpose();
    const double stretch = A::key_action == KeyAction::mix ? 1 : chunk;
    GradientArithmetic arithmetic{unit(), form_ == "attention" ? std::numeric_limits<double>::infinity() : stretch};
    if constexpr (A::key_action == KeyAction::turn) {
      call.steps = rotary_steps(theta, beta);
      arithmetic.largest_angle = static_cast<double>(beta.cwiseAbs().sum() * theta.cwiseAbs().maxCoeff());
    }
    if constexpr (A::key_action == KeyAction::mix)
      for (Index t = 0; t < w.cols(); ++t)
        call.steps[static_cast<std::size_t>(t)] =
            WideMatrix::Identity(w.rows(), w.rows()) - strength[t] * w.col(t) * w.col(t).transpose();
    call = without_degenerate_rows(std::move(call), arithmetic);
    Eigen::Map<Eigen::MatrixXd>(dY.entries.data() + (b * dY.heads + h) * dY.tokens * dY.width, dY.width, dY.tokens) =
        call.dY.cast<double>();

    const GradientReference is = gradient_reference(call);
    const GradientBounds off = gradient_bounds(call, arithmetic);
    const auto of_head = [&](const std::string& name) -> Expected& { return by_head_[{name, b, h}]; };
    of_head("q").add(is.Q, off.Q);
    of_head("k").add(is.K, off.K);
    shared_["scale"].add(one(is.scale), one(off.scale));
    if (choice_.gates) of_head("log_gate").add(is.log_gamma.transpose(), off.log_gamma.transpose());
    if constexpr (A::key_action == KeyAction::turn) {
      const auto g = rotary_gradient(is, theta, beta), bounds = rotary_bounds(off, call, theta, beta);
      shared_["theta"].add(g.theta, bounds.theta);
      if (choice_.rates) of_head("beta").add(g.beta.transpose(), bounds.beta.transpose());
    }
    if constexpr (A::key_action == KeyAction::mix) {
      const auto g = householder_gradient(is, w, strength), bounds = householder_bounds(off, w, strength);
      of_head("householder").add(g.w, bounds.w);
      of_head("strength").add(g.beta.transpose(), bounds.beta.transpose());
    }
    if (!delta_rule_) return of_head("v").add(is.V, off.V);
    const WideMatrix given = wide(head(arrays.V, b, h));
    of_head("v").add(is.V * strength.asDiagonal(), off.V * strength.cwiseAbs().asDiagonal());
    of_head("strength")
        .add(is.V.cwiseProduct(given).colwise().sum(), off.V.cwiseProduct(given.cwiseAbs()).colwise().sum());
  }

  // Runs the program, and measures what it leaves.
  void run() {
    const ProgramFolder folder;
    const Index last = choice_.tokens - first_;
    std::string from;
    if (first_ > 0) {
      const Finished before =
          folder.run(save(folder, 0, first_) + " --out before.npy --state-out state --form " + form_);
      REQUIRE(before.status == 0);
      from = " --state-in state";
    }
    const std::string words = save(folder, first_, last);
    if (choice_.single)
      dY.save<float>(folder, "dy.npy", choice_.axes, first_, last);
    else
      dY.save<double>(folder, "dy.npy", choice_.axes, first_, last);
    const Finished finished =
        folder.run(words + from + " --out y.npy --grad dy.npy --chunk " + std::to_string(chunk) + " --form " + form_);
    CAPTURE(finished.out);
    REQUIRE(finished.err == "");
    REQUIRE(finished.status == 0);
    const std::map<std::string, std::string> files = {
        {"log_gate", "g"}, {"theta", "th"}, {"beta", "b"}, {"strength", "st"}, {"householder", "w"}};
    std::set<std::string> names;
    const auto read = [&](const std::string& name) {
      REQUIRE_THAT(finished.out, contains("y_d" + name + ".npy"));
      sympow::io::Array found = folder.read("y_d" + name + ".npy");
      if (name != "scale") {
        const sympow::io::Array of = folder.read((files.contains(name) ? files.at(name) : name) + ".npy");
        REQUIRE(found.shape == of.shape);
        REQUIRE(found.holds<float>() == of.holds<float>());
      }
      names.insert("y_d" + name + ".npy");
      return found;
    };
    for (const auto& [where, expected] : by_head_) {
      const auto& [name, b, h] = where;
      sympow::io::Array found = read(name);
      if (name != "q" && name != "k" && name != "v" && name != "householder") found.shape.push_back(1);
      const auto later = [&](const WideMatrix& x) { return WideMatrix(x.rightCols(last)); };
      measure(name, wide(by_head(found).head(b, h, 0, last)), later(expected.value), later(expected.bound));
    }
    for (const auto& [name, expected] : shared_) {
      const sympow::io::Array found = read(name);
      REQUIRE(found.shape == (name == "scale" ? sympow::io::Shape{} : sympow::io::Shape{choice_.d / 2}));
      if (first_ > 0) continue;  // what the state was made by has a part in them
      WideMatrix x(expected.value.rows(), 1);
      for (Index n = 0; n < x.size(); ++n) x(n, 0) = found[static_cast<std::size_t>(n)];
      measure(name, x, expected.value, expected.bound);
    }
    for (const std::string& name : folder.names())
      if (name.starts_with("y_d")) REQUIRE(names.contains(name));
  }

  [[nodiscard]] std::string save(const ProgramFolder& folder, Index begin, Index count) const {
    return is_chain_ ? chain_.save(folder, begin, count) : chain_.arrays.save(folder, begin, count);
  }

  // What is in a file was rounded to its type, and what the delta rule multiplies once more.
  void measure(const std::string& name, const WideMatrix& found, const WideMatrix& expected, const WideMatrix& bound) {
    const Residual residual =
        worst_entry("d" + name, found, expected, bound + 2 * static_cast<Wide>(unit()) * expected.cwiseAbs());
    UNSCOPED_INFO(residual.form << " " << residual.residual << " token " << residual.row);
    worst_ = std::max(worst_, residual.residual);
  }

  Choice choice_;
  std::string form_;
  bool is_chain_, delta_rule_;
  Chain chain_;
  Numbers dY;
  Index first_ = 0;
  std::map<std::tuple<std::string, Index, Index>, Expected> by_head_;
  std::map<std::string, Expected> shared_;
  double worst_ = 0;
};

void check(const Choice& choice, const std::string& form, std::uint64_t seed) {
  CAPTURE(choice.text(), form, seed);
  REQUIRE(Run(choice, form, seed, false, false).worst() <= 1);
}
void check_chain(const Choice& choice, const std::string& form, std::uint64_t seed, bool delta_rule) {
  CAPTURE(choice.text(), form, seed, delta_rule);
  REQUIRE(Run(choice, form, seed, true, delta_rule).worst() <= 1);
}

}  // namespace

TEST_CASE("gradients of every feature in every form over every kind of shape", "[attend_npy]") {
  Random random(1);
  const std::vector<std::pair<std::string, int>> features = {{"power", 1},  {"power", 2},       {"power", 3},
                                                             {"power", 4},  {"power", 5},       {"power", 8},
                                                             {"linear", 1}, {"exponential", 0}, {"random", 0}};
  std::uint64_t seed = 0;
  for (const auto& [feature, power] : features)
    for (const std::string form : {"attention", "recurrent", "chunked"})
      for (const int axes : {2, 3, 4}) {
        if (feature == "exponential" && form != "attention") continue;
        Choice choice{.axes = axes, .tokens = random.integer(1, 22), .feature = feature, .power = power};
        choice.single = random.integer(0, 1) == 1;
        choice.gates = random.integer(0, 1) == 1;
        choice.angles = random.integer(0, 2) > 0;
        choice.rates = choice.angles && random.integer(0, 2) > 0;
        choice.normalize = power < 6 && random.integer(0, 2) == 0 ? "none" : "auto";
        choice.scale = random.integer(0, 1) == 1 ? -.5 : 1;
        check(choice, form, ++seed);
      }
}

TEST_CASE("gradients of chains, of their strengths, and through the delta rule", "[attend_npy]") {
  std::uint64_t seed = 0;
  for (const std::string feature : {"linear", "exponential", "power"})
    for (const std::string form : {"attention", "recurrent", "chunked"})
      for (const bool single : {false, true})
        for (const bool delta_rule : {false, true}) {
          if (feature != "linear" && form != "attention") continue;
          ++seed;
          check_chain({.axes = 2 + static_cast<int>(seed % 3),
                       .tokens = 20,
                       .feature = feature,
                       .power = feature == "power" ? 3 : 2,
                       .single = single,
                       .gates = seed % 2 == 0,
                       .scale = .5},
                      form, seed, delta_rule);
        }
}

TEST_CASE("gradients of tokens that follow a state", "[attend_npy]") {
  for (const std::string form : {"recurrent", "chunked"}) {
    CAPTURE(form);
    Run turned({.axes = 4, .tokens = 22, .gates = true, .angles = true, .rates = true}, form, 1, false, false);
    turned.resume_at(9);
    REQUIRE(turned.worst() <= 1);
    Run mixed({.axes = 3, .tokens = 22, .feature = "linear", .gates = true}, form, 2, true, true);
    mixed.resume_at(9);
    REQUIRE(mixed.worst() <= 1);
  }
}

TEST_CASE("gradients of no tokens, and those that nobody asked for", "[attend_npy]") {
  for (const std::string form : {"attention", "chunked"}) {
    const ProgramFolder folder;
    const std::string words = Arrays({.axes = 4, .tokens = 0, .gates = true, .angles = true}, 1).save(folder);
    folder.save<double>("dy.npy", {2, 0, 3, 3}, {});
    REQUIRE(folder.run(words + " --out out/y --form " + form + " --grad dy.npy").status == 2);
    fs::create_directory(folder / "out");
    REQUIRE(folder.run(words + " --out out/y --form " + form).status == 0);
    REQUIRE(!fs::exists(folder / "out/y_dq"));
    const Finished finished = folder.run(words + " --out out/y --form " + form + " --grad dy.npy");
    CAPTURE(finished.err);
    REQUIRE(finished.status == 0);
    REQUIRE_THAT(finished.out,
                 contains("gradients in out/y_dq, out/y_dk, out/y_dv, out/y_dlog_gate, out/y_dtheta, out/y_dscale\n"));
    REQUIRE(std::get<std::vector<double>>(folder.read("out/y_dtheta").entries) == std::vector<double>{0, 0});
    REQUIRE(folder.read("out/y_dk").shape == sympow::io::Shape{2, 0, 3, 4});
  }
}
