// Random and adversarial rows in float.
#include "random_rows.hpp"

using namespace sympow::test;

TEST_CASE("fifty thousand random and adversarial rows keep the rule in float", "[laws]") {
  check_rows<float>(50000, 1);
}

TEST_CASE("as many random rows as asked for keep the rule in float", "[laws][.long]") { check_rows_asked_for<float>(); }
