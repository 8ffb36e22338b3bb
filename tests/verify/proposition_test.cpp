// Verdicts, also where a residual is not a number.
#include <limits>

#include <sympow/verify/proposition.hpp>
#include <sympow/verify/propositions/largest.hpp>

#include "catch.hpp"

using namespace sympow;
using verify::Kind, verify::Ledger;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

/// The verdict on the only proposition that `add` puts into a ledger.
template <class Add>
bool as_expected(const Add& add) {
  Ledger ledger;
  add(ledger);
  REQUIRE(ledger.propositions().size() == 1);
  return ledger.propositions().front().as_expected();
}

}  // namespace

TEST_CASE("a statement is expected to have a residual within its bound", "[verify]") {
  const auto verdict = [](double residual) {
    return as_expected([=](Ledger& ledger) { ledger.holds("", residual, 1, "", ""); });
  };
  REQUIRE(verdict(0));
  REQUIRE(verdict(1));
  REQUIRE(!verdict(1.5));
  REQUIRE(!verdict(infinity));
  REQUIRE(!verdict(not_a_number));
}

TEST_CASE("a control is expected to exceed its bound by a number", "[verify]") {
  const auto verdict = [](double residual) {
    return as_expected([=](Ledger& ledger) { ledger.control("", residual, 1, "", ""); });
  };
  REQUIRE(!verdict(0));
  REQUIRE(!verdict(1));
  REQUIRE(verdict(1.5));
  REQUIRE(verdict(infinity));
  REQUIRE(!verdict(not_a_number));
}

TEST_CASE("an erratum is expected to fail as printed and to hold as corrected", "[verify]") {
  const auto verdict = [](double printed, double corrected) {
    return as_expected([=](Ledger& ledger) { ledger.erratum("", printed, 1, "", "", "", corrected, 1); });
  };
  REQUIRE(verdict(2, 0));
  REQUIRE(!verdict(0, 0));
  REQUIRE(!verdict(2, 2));
  REQUIRE(!verdict(not_a_number, 0));
  REQUIRE(!verdict(2, not_a_number));
}

TEST_CASE("documentation is always as expected", "[verify]") {
  REQUIRE(as_expected([](Ledger& ledger) { ledger.documents("", "", "", ""); }));
}

TEST_CASE("the largest residual is kept, and one that is not a number stays", "[verify]") {
  verify::detail::Largest largest;
  REQUIRE(largest.value() == 0);
  for (const double residual : {1.0, 3.0, 2.0}) largest.add(residual);
  REQUIRE(largest.value() == 3);
  largest.add(not_a_number);
  largest.add(infinity);
  REQUIRE(std::isnan(largest.value()));
}

TEST_CASE("residuals of matrices are the largest over the entries, infinite for different shapes", "[verify]") {
  const Matrix<float> a{{1, 2}, {3, 4}}, b{{1, 1}, {3, 8}};
  verify::detail::Largest scaled, relative, shapes;
  scaled.add(a, b, 2);
  REQUIRE(scaled.value() == 2);
  relative.add_relative(a, b);
  REQUIRE(relative.value() == 1);
  relative.add_relative<float>(Matrix<float>::Zero(1, 1), Matrix<float>::Zero(1, 1));
  REQUIRE(relative.value() == 1);
  shapes.add<float>(a, b.leftCols(1));
  REQUIRE(shapes.value() == infinity);
}
