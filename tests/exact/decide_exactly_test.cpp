// What decides a statement: the draws, the case that refutes it, and what is said of both.
#include <sympow/verify/decide_exactly.hpp>
#include <sympow/verify/program.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "catch.hpp"
#include "reports/report_files.hpp"

using namespace sympow;
using namespace sympow::verify;

TEST_CASE("an identity is decided for its sizes and seeds", "[exact]") {
  int evaluated = 0;
  const Decision decision = decide_exactly([&](auto& x) {
    const Index d = x.size("d", {2, 5}), T = x.size("T", {3, 4});
    const auto a = x.matrix("A", d, T);
    const auto b = x.vector("b", T);
    evaluated += x.difference() ? 0 : 1;
    x.equal(a * b + a * b, Rational(2) * a * b);
  });
  REQUIRE((decision.is_made() && decision.method == Method::exact && !decision.refuted));
  REQUIRE(decision.residual == "0");
  REQUIRE(decision.size() == 0);
  REQUIRE(decision.domain == "(d, T) = (2, 3), (5, 4); 20 seeds each");
  REQUIRE(evaluated == 2 * 2 * 20);  // a sparse case beside every general one
}

TEST_CASE("a false identity gets the smallest case", "[exact]") {
  const auto binomial = [](auto& x) {
    const Index d = x.size("d", {3, 4});
    const auto a = x.vector("a", d), b = x.vector("b", d);
    const auto unused = x.number("c");
    x.equal((a + b).squaredNorm() + unused, a.squaredNorm() + b.squaredNorm() + unused, "‖a + b‖²:");
  };
  const Decision decision = decide_exactly(binomial);
  REQUIRE(decision.refuted);
  REQUIRE(decision.counterexample == "d = 1, a = 1, b = 1, other inputs 0: ‖a + b‖²: 4 and not 2");
  REQUIRE(decision.residual == "2");
  REQUIRE(decision.integers == 2);
  REQUIRE(decision.size() == 2);
}

TEST_CASE("what is false at one point only is found among small numbers", "[exact]") {
  const Decision decision = decide_exactly([](auto& x) {
    const auto q = x.vector("q", 2), k = x.vector("k", 2);
    x.require(q.squaredNorm().sign() > 0 && k.squaredNorm().sign() > 0);
    x.is(q.dot(k).sign() != 0, "q·k ≠ 0:");
  });
  REQUIRE(decision.refuted);
  REQUIRE(decision.integers == 2);
}

TEST_CASE("large numbers, fractions, inequalities and integers", "[exact]") {
  const Decision large = decide_exactly([](auto& x) { x.at_most(x.number("a"), Rational(40), "a ≤ 40:"); });
  REQUIRE(large.refuted);
  REQUIRE(large.size() > 0);
  const Decision integer = decide_exactly([](auto& x) { x.is(x.integer("n", 2, 7) < 5, "n < 5:"); });
  REQUIRE(integer.counterexample == "n = 5: n < 5: 0 and not 1");
  const Decision whole = decide_exactly([](auto& x) {
    const auto a = x.number("a");
    x.equal(a * Rational(3), a + a);
  });
  REQUIRE(whole.counterexample == "a = 1: 3 and not 2");
  const Decision none = decide_exactly([](auto& x) { x.equal(Rational(1, 3) * Rational(3), Rational(1)); });
  REQUIRE(none.domain == "no other inputs");
  REQUIRE_THROWS_AS(decide_exactly([](auto& x) { x.require(x.number("a") > Rational(1000)); }), InvalidArgument);
  const Decision divided = decide_exactly([](auto& x) {  // no case of it is a division by 0
    const auto a = x.number("a");
    x.equal(a / a, Rational(1));
  });
  REQUIRE(!divided.refuted);
}

TEST_CASE("a ledger holds exact decisions beside bounds", "[exact]") {
  const auto zero = [](auto& x) { x.equal(x.number("a"), Rational(0)); };
  const auto same = [](auto& x) {
    const auto a = x.number("a");
    x.equal(a, a);
  };
  Ledger ledger;
  ledger.holds("E1", decide_exactly(same), "a = a", "F §1");
  ledger.erratum("E2", decide_exactly(zero), "a = 0", "F §1", "a = a", decide_exactly(same));
  ledger.control("E3", decide_exactly(zero), "a = 0", "F §1");
  ledger.holds("E4", 1e-16, 1e-15, "in double", "F §1");
  ledger.holds("E5", decide_exactly(zero), "a = 0", "F §1");
  ledger.control("E6", decide_exactly(same), "a = a", "F §1");
  ledger.erratum("E7", decide_exactly(zero), "a = 0", "F §1", "a = 0", decide_exactly(zero));
  Report report{"mine", "double"};
  report.propositions = ledger.propositions();
  const auto at = [&](std::size_t n) { return verdict(report.propositions[n]); };
  REQUIRE((at(0) == "holds" && at(1) == "erratum" && at(2) == "control" && at(3) == "holds"));
  REQUIRE((at(4) == "unexpected" && at(5) == "unexpected" && at(6) == "unexpected"));
  REQUIRE(lines_of(report.propositions[0], true) ==
          "holds       E1           exactly 0             a = a; for 20 seeds  [F §1]\n");
  REQUIRE(lines_of(report.propositions[1], true) ==
          "erratum     E2           exactly 1 ≠ 0         a = 0  [F §1]\n"
          "                                               counterexample: a = 1: 1 and not 0\n"
          "  true is                exactly 0             a = a; for 20 seeds\n");
  REQUIRE_THAT(summary(report), test::contains("\n6 decided exactly, 0 certified, 1 within bounds\n"));
  REQUIRE_THAT(text_table(report), test::contains("total     exactly   certified   in bounds\n"));
  REQUIRE_THAT(markdown_report(report), test::contains("| total | exactly | certified | in bounds |\n"));
  REQUIRE_THAT(markdown_report(report), test::contains("counterexample: a = 1: 1 and not 0"));
  REQUIRE_THAT(latex_report(report), test::contains("& total & exactly & certified & in bounds"));
  REQUIRE_THAT(json_report(report), test::contains("\"methods\": \"6 decided exactly, 0 certified, 1 within bounds\""));
  REQUIRE_THAT(json_report(report), test::contains("\"decided\": \"exactly\", \"exact_residual\": \"1\", \"domain\": "
                                                   "\"\", \"counterexample\": \"a = 1: 1 and not 0\""));
  REQUIRE_THAT(figure_report(report), test::contains("decided exactly</text>"));
}

TEST_CASE("numbers between two rational ones certify", "[exact]") {
  const exact::Enclosure e = exact::exponential(Rational(1)), c = exact::cosine(Rational(2)),
                         s = exact::sine(Rational(2));
  REQUIRE((e.low < e.high && e.low.to_double() == 2.718281828459045 && e.width() < Rational(1, 1000000000000000000)));
  REQUIRE((c * c + s * s).meets(Rational(1)));
  REQUIRE(!(c * c).meets(Rational(1)));
  REQUIRE((exact::exponential(Rational(-3)) * exact::exponential(Rational(3))).meets(Rational(1)));
  REQUIRE((Rational(2) < e.low && e.high < Rational(3)));
  REQUIRE_THROWS_AS(exact::cosine(Rational(21)), InvalidArgument);
  const exact::Enclosure pi = exact::pi(), third = pi * Rational(1, 3);
  REQUIRE(
      (pi.low < pi.high && pi.low.to_double() == 3.141592653589793 && pi.width() < Rational(1, 1000000000000000000)));
  REQUIRE((exact::cosine(third).meets(Rational(1, 2)) && !exact::cosine(third).meets(Rational(5000001, 10000000))));
  REQUIRE((exact::sine(pi).meets(Rational(0)) && !exact::sine(pi).meets(Rational(1, 1000000000))));
  const exact::Enclosure from_1_to_e = exact::exponential(exact::Enclosure(0, 1));
  REQUIRE((from_1_to_e.meets(e) && from_1_to_e.meets(Rational(1)) && !from_1_to_e.meets(Rational(3))));
  for (const Rational& x : {Rational(0), Rational(2), Rational(1, 1000000000), Rational(100000000000000)}) {
    const exact::Enclosure root = exact::root(x);
    REQUIRE(((root * root).meets(x) && root.width() <= Rational(1, 1000000000000) * root.high));
  }
  REQUIRE_THROWS_AS(exact::root(Rational(-1)), InvalidArgument);

  const auto law = [](bool fault) {
    return [fault](auto& x) {
      const Rational a(x.integer("a", -3, 3)), b(x.integer("b", -3, 3));
      x.meet(exact::exponential(a + b), exact::exponential(a) * exact::exponential(fault ? -b : b));
    };
  };
  const Decision right = decide_exactly(law(false)), wrong = decide_exactly(law(true));
  REQUIRE((right.method == Method::certified && !right.refuted));
  REQUIRE((wrong.method == Method::certified && wrong.refuted));
  REQUIRE(wrong.counterexample == "b = 1, other inputs 0: 1359141/500000 and not 367879/1000000");
  const auto near = [](auto& x) {  // sides that are shown alike
    const Rational a(x.integer("a", -3, 3));
    x.meet(exact::exponential(a), exact::exponential(a) + exact::Enclosure(Rational(1, 1000000000)));
  };
  REQUIRE(decide_exactly(near).refuted);
}

TEST_CASE("inequalities of real numbers are certified", "[exact]") {
  const auto below = [](Index bound) {
    return
        [bound](auto& x) { x.at_most(exact::exponential(Rational(x.integer("a", -3, 3))), Rational(bound), "e^a:"); };
  };
  const Decision right = decide_exactly(below(21)), wrong = decide_exactly(below(7));
  REQUIRE((right.method == Method::certified && !right.refuted));
  REQUIRE((wrong.method == Method::certified && wrong.refuted));
  REQUIRE(wrong.counterexample == "a = 2: e^a: 115454/15625 and not 7");
  REQUIRE_THROWS_AS(decide_exactly([](auto& x) {  // the ends say nothing
                      static_cast<void>(x.number("a"));
                      x.at_most(exact::Enclosure(0, 2), exact::Enclosure(1, 3));
                    }),
                    InvalidArgument);
}

TEST_CASE("a difference stays, whatever is left out behind it", "[exact]") {
  const auto left_out = [](auto& x) {
    const Rational a = x.number("a");
    x.equal(a, Rational(0));
    x.require(a == Rational(0));
  };
  const auto divided = [](auto& x) {
    const Rational a = x.number("a");
    x.equal(a, Rational(0));
    x.equal(a / Rational(0), a);
  };
  REQUIRE(decide_exactly(left_out).refuted);
  REQUIRE(decide_exactly(divided).refuted);
}

TEST_CASE("what compares nothing holds nothing", "[exact]") {
  const auto refuses = [](const ExactStatement& statement, const std::string& words) {
    REQUIRE_THROWS_WITH(decide_exactly(statement), test::contains(words));
  };
  refuses([](auto&) {}, "the statement compares nothing");
  refuses([](auto& x) { static_cast<void>(x.number("a")); }, "the statement compares nothing");
  refuses([](auto& x) { return x.number("a") == x.number("b"); }, "the statement compares nothing");
  refuses([](auto& x) { x.equal(x.vector("q", 0), x.vector("k", 0)); }, "the statement compares nothing");
  refuses([](auto& x) { x.is(x.number("a") / Rational(0) == Rational(1)); }, "Rational: division by 0");
  refuses([](auto& x) { static_cast<void>(x.size("d", {})); }, "size d must have values");
  refuses([](auto& x) { static_cast<void>(x.vector("q", -1)); }, "q is -1 x 1");
  REQUIRE_THROWS_WITH(decide_exactly([](auto& x) { x.is(true); }, 1, 0), test::contains("seeds is 0"));
}

TEST_CASE("inputs and counterexamples are of the range that was asked for", "[exact]") {
  REQUIRE(!decide_exactly([](auto& x) { x.is(x.integer("i", -3, -1) < 0); }).refuted);
  const Decision found = decide_exactly([](auto& x) { x.is(x.integer("i", 0, x.integer("n", 1, 6)) < 3); });
  REQUIRE(found.counterexample == "n = 3, i = 3: 0 and not 1");
  const Decision none = decide_exactly([](auto& x) { x.is(x.integer("i", 1, x.size("T", {2, 3}) - 1) > 1); });
  REQUIRE(none.refuted);
  REQUIRE(decide_exactly([](auto& x) { x.is(x.number("a") < Rational(0)); }).counterexample ==
          "all inputs 0: 0 and not 1");
}

TEST_CASE("a program decides exactly on request only", "[exact]") {
  const auto groups = [] {
    return std::vector<PropositionGroup>{{"one", [](Ledger& ledger, std::uint64_t) {
                                            ledger.holds("E1", 0, 1, "a = a", "F §1");
                                            ledger.control("E2", 2, 1, "a = 0", "F §1");
                                          }}};
  };
  const auto decisions = [] {
    const auto seed = [](std::uint64_t n) {
      return decide_exactly([](auto& x) { x.at_most(x.number("a"), Rational(99)); }, n);
    };
    return std::vector<ExactDecision>{{"E1", seed}, {"E2", seed}};
  };
  const auto run = [&](std::vector<const char*> arguments, bool can) {
    arguments.insert(arguments.begin(), "mine");
    std::FILE *out = std::tmpfile(), *errors = std::tmpfile();
    const Program program{"mine", "Decides mine.", groups, nullptr, {}, {}, can ? +decisions : nullptr};
    const int status = run_program(static_cast<int>(arguments.size()), arguments.data(), program, out, errors);
    std::string text;
    for (std::FILE* file : {out, errors}) {
      std::rewind(file);
      for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
      std::fclose(file);
    }
    return std::to_string(status) + " " + text;
  };
  REQUIRE_THAT(run({}, true), test::contains("holds       E1            0.0e+00 <=  1.0e+00  a = a"));
  REQUIRE_THAT(run({"--exact", "--filter", "E1"}, true), test::contains("holds       E1           exactly 0  "));
  const std::string unexpected = run({"--exact"}, true);  // the control was not refuted
  REQUIRE(unexpected.starts_with("1 "));
  REQUIRE_THAT(unexpected, test::contains("UNEXPECTED  E2           exactly 0  "));
  REQUIRE_THAT(run({"--help"}, true), test::contains("--exact "));
  REQUIRE_THAT(run({"--exact"}, false), test::contains("--exact: this program decides nothing exactly"));
  REQUIRE(run({"--exact"}, false).starts_with("2 "));
  REQUIRE(run({"--exact", "--list"}, true).starts_with("2 "));
}
