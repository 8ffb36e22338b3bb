// Rows of every form, compiled from the headers alone, against the definition.
#include "forms.hpp"
#include "catch.hpp"
#include "sequences.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

template <class Scalar, int P>
void check_power() {
  std::uint64_t seed = 0;
  for (const Gates gates : all_gates)
    for (const Turning turning : {Turning::none, Turning::rotary, Turning::channels}) {
      Random random(++seed);
      const auto lengths = gates == Gates::slow ? Lengths::ordinary : Lengths::mixed;
      const Tokens tokens = sequence(random, 4, 3, 140, gates, lengths, turning);
      const auto verdicts = judge_forms<Scalar, SymmetricPower<P>>(tokens, 16);
      for (std::size_t form = 0; form < verdicts.size(); ++form) {
        CAPTURE(P, sizeof(Scalar), static_cast<int>(gates), static_cast<int>(turning), seed, form_names[form],
                verdicts[form].row, verdicts[form].flagged);
        CHECK(verdicts[form].worst <= 1);
      }
    }
}

}  // namespace

TEST_CASE("every form gives the rows of the definition", "[smoke]") {
  check_power<float, 2>();
  check_power<double, 3>();
}
