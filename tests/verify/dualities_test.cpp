// Linear systems and their duals: all of the table holds, and a dual that is none is found out.
#include <algorithm>
#include <string>
#include <vector>

#include <sympow/sympow.hpp>
#include "catch.hpp"
#include "propositions/dualities.hpp"

using namespace sympow;
using verify::Duality;

// The program verify_propositions has compiled it, and the tests link with that.
extern template std::vector<sympow::verify::Duality> sympow::verify::dualities<double>(std::uint64_t);
extern template std::vector<sympow::verify::Duality> sympow::verify::dualities<float>(std::uint64_t);

TEST_CASE("every linear system and its softmax dual hold, in all forms and both types", "[verify]") {
  const std::vector<std::string> expected = {"linear attention/NoPE",
                                             "RetNet/ALiBi",
                                             "Mamba-2/FoX",
                                             "GLA/FoX by channel",
                                             "complex gate/RoPE",
                                             "DeltaNet/PaTH",
                                             "Gated DeltaNet/PaTH-FoX",
                                             "sympow/NoPE",
                                             "gated sympow/FoX",
                                             "conformal-sympow/FoX, learned RoPE"};
  for (const std::uint64_t seed : {1u, 2u, 3u})
    for (const auto& table : {verify::dualities<double>(seed), verify::dualities<float>(seed)}) {
      std::vector<std::string> names;
      for (const Duality& row : table) {
        names.push_back(row.names.system + "/" + row.names.dual);
        const auto& [attention, recurrent, chunked, functions] = row.residual;
        CAPTURE(seed, names.back(), attention, recurrent, chunked, functions, row.softmax);
        CHECK(row.holds());
        CHECK(row.forms == "all three");
        for (const verify::Residual& form : {attention, recurrent, chunked, row.softmax})
          CHECK(form.residual > 0);  // compared
      }
      CHECK(names == expected);
    }
}

TEST_CASE("a softmax with another transition is no dual", "[verify]") {
  constexpr Index d = 8, e = 5, T = 40;
  Random random(7);
  const Matrix<double> Q = random.matrix(d, T), K = systems::unit_columns(random.matrix(d, T)), V = random.matrix(e, T);
  const auto holds = [&](const auto& system, const auto& dual) {
    const Duality row = verify::duality({"system", "", "dual", ""}, system, dual, Q, K, V, V);
    CHECK(row.residual.worst().holds());  // whatever the dual is
    return row.holds();
  };
  const auto retnet = systems::retnet(.9);
  CHECK(holds(retnet, systems::alibi(-std::log(.9))));
  CHECK(holds(retnet, systems::fox(Eigen::VectorXd::Constant(T, std::log(.9)))));
  CHECK(!holds(retnet, systems::alibi(-std::log(.9) * (1 + 1e-9))));
  CHECK(!holds(retnet, systems::nope()));
}

TEST_CASE("a duality with a residual beyond rounding does not hold", "[verify]") {
  Duality row;
  CHECK(row.holds());
  for (verify::Residual* form : {&row.residual.attention, &row.residual.recurrent, &row.residual.chunked, &row.softmax})
    for (const double wrong : {1.01, std::numeric_limits<double>::infinity()}) {
      form->residual = wrong;
      CHECK(!row.holds());
      form->residual = 1;
      CHECK(row.holds());
    }
}
