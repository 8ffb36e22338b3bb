// All propositions by group: which there are, that each comes out as expected, that bounds and sources say why, and
// that every identity over the rational numbers is one of a proposition and comes out as that is expected.
#include <algorithm>
#include <iterator>
#include <map>

#include <sympow/verify/papers.hpp>
#include <sympow/verify/place.hpp>
#include <sympow/verify/proposition.hpp>
#include <sympow/verify/report_table.hpp>
#include "exact_decisions.hpp"
#include "propositions/groups.hpp"

#include "catch.hpp"
#include "propositions.hpp"

using namespace sympow;

namespace {

struct Group {
  std::string name;
  std::uint64_t last_seed;  // of long tests, from 1 on
  test::ExpectedIds ids;
};

const std::vector<Group> expected = {
    {"kernels and tensor products", 300, {.statements = "K1.p1 K1.p2 K1.p3 K1.p4 K1.p6 K2 K3 K4 K5 R1 R2 R3 R4 R5"}},
    {"recurrences and gates",
     300,
     {.statements = "F1.p2 F1.p4 F2 F3 F4 F5 P3.p2 P3.p4 P1.p2 P1S.p2 P1.p4 P1S.p4 P1g P1b", .errata = "G1"}},
    {"rotations",
     300,
     {.statements = "T1 T1n T2 T3 T4 T5.fix T6.fix T7 T8 T9 L1 L2.fix L3.fix.p2 L3.fix.p4 L3s",
      .errata = "T5 T6 L2 L3.p2 L3.p4",
      .controls = "L1f L1g"}},
    {"conformal-sympow",
     300,
     {.statements = "C1.fix.p2 C1.fix.p4 C3.p2 C3s.fix.p2 C3.p3 C3s.fix.p3 C4",
      .errata = "C1.p2 C2.p2 C1.p4 C2.p4",
      .controls = "C3s.p2 C3r.p2 C3t.p2 C3s.p3 C3r.p3 C3t.p3"}},
    {"the induced map",
     300,
     {.statements = "P2a P2b P2c P2d P2e P2f P2g P2h P2i P2j.fix P2l P2n",
      .errata = "P2j P2j'",
      .controls = "P2k P2m"}},
    {"positional biases", 300, {.statements = "AL1 AL4 AL5 AL6", .controls = "AL2 AL3"}},
    {"distributions", 300, {.statements = "D7 D1 D2", .errata = "D3 D4", .controls = "D5 D6"}},
    {"symmetric tensors",
     300,
     {.statements = "S1.fix S2 S3 S4 S5 S6 S7 S8 S9 S10.p1 S10.p2 S10.p3 S10.p4 S10.p5 S10.p6 S12 S13.fix S15",
      .errata = "S1 S11 S13 S14"}},
    {"listings",
     300,
     {.statements = "X1.fix X2a X2a.fix X2f X3.fix X4 X5 X5m X6",
      .errata = "X2d",
      .controls = "X1z X2a64 X2b.0.001 X2b.1e-06 X2c X2e X2g X6w",
      .documentation = "X0 X1 X3 X4t X5z"}},
    {"tables",
     0,
     {.statements = "N.tp2 N.sy2 N.sv2 N.tp4 N.sy4 N.tp6 N.tpf6 N.sy6 N.sv6 N.tp8 N.sy8 N.sv8 N.sv4.fix N.lt.small "
                    "N.ltr.small N.lt.medium N.lt.large N.lt.xl N.ltr.xl N.ov1 N.ov2 N.80",
      .errata = "N.tpf2 N.tpf4 N.sv4 N.tpf8 N.ltr.medium N.ltr.large N.w.medium N.ov3",
      .controls = "N.mib.tp2 N.mib.sy2 N.mib.tp4 N.mib.sy4 N.mib.sy6 N.mib.sy8",
      .documentation = "N.ov4"}},
    {"softmax attention",
     100,
     {.statements = "3.A1 3.A2 3.A3b.fix 3.A5 3.A6", .errata = "3.A3 3.A4", .controls = "3.A1s 3.A2m"}},
    {"forget gates",
     100,
     {.statements = "3.L1 3.L2 3.G1 3.M1 3.M2 3.M4", .errata = "3.G2 3.G3 3.G4 3.M3", .controls = "3.L2r 3.G4d 3.G4c"}},
    {"gates that are biases",
     100,
     {.statements = "3.D1 3.D2 3.D2c 3.D3v.fix 3.D3m 3.D3M 3.D3w.fix",
      .errata = "3.D2s 3.D2t 3.D3x 3.D3y 3.D3b 3.D3t",
      .controls = "3.D3g 3.D3u",
      .documentation = "3.C0 3.D2n 3.D3v 3.D3n 3.D3w 3.D3w1"}},
    {"a complex gate and RoPE",
     100,
     {.statements = "3.D4 3.D4cb.fix 3.D4r 3.D4k 3.D4i 3.D4y 3.D4l 3.D4z",
      .errata = "3.D4p 3.D4c 3.D4x 3.D4b 3.D4o 3.D4m"}},
    {"Householder chains",
     100,
     {.statements = "3.D5h 3.D5 3.D5v 3.D5n 3.D5g 3.D5l.fix 3.D5t 3.D6 3.D6e 3.D6c.fix",
      .errata = "3.D5a 3.D5e 3.D5H 3.D5o 3.D6b 3.D6t",
      .controls = "3.D5r 3.D5w 3.D5u 3.D5s",
      .documentation = "3.D5c 3.D5l 3.D6c"}},
    {"planes of commuting generators",
     30,
     {.statements = "J.1 J.2 J.3 J.4 J.5 J.6 J.7 J.8 J.9 J.10 J.11 J.12 J.13 J.14 J.15 J.16 J.17 J.18 J.null J.newton "
                    "J.guard J.near J.norm 4.1 4.3 4.3o 4.4 4.5 4.7 4.8 4.9 4.9u",
      .errata = "4.3m 4.4p 4.5n 4.8b 4.8r",
      .controls = "J.guard0 J.schur J.unnorm J.sign J.tol+ J.tol0 J.eigh J.noncomm"}},
    {"structured rotations",
     30,
     {.statements = "4.10 4.11 4.11s 4.12 4.13 4.12a 4.12b 4.12c 4.12d 4.12e", .controls = "4.12m"}},
    {"Cayley transforms and post-rotations",
     30,
     {.statements = "4.15 4.18 4.18i 4.18e 4.14 4.14i 4.14q 4.19 4.19s 4.19t 4.24 4.23 4.23i 4.23r 4.23s",
      .errata = "4.16 4.17",
      .controls = "4.14n 4.19f 4.19g 4.23m"}},
    {"generators that nearly commute",
     30,
     {.statements = "4.27c 4.27d 4.27e 4.27f 4.26", .errata = "4.27a 4.27b 4.26a 4.26b"}},
    {"commutators and perturbations",
     30,
     {.statements = "4.29 4.29o 4.30 4.31 4.31a 4.32 4.32s", .errata = "4.29r 4.33", .controls = "4.33o"}},
    {"random features",
     30,
     {.statements = "4.P3 4.P4 4.P5 4.P6 4.P6n 4.P7 4.P8 4.P11 4.P11p",
      .errata = "4.P1 4.P2 4.P9",
      .controls = "4.P6m 4.P10"}},
    {"derivatives of formulas",
     300,
     {.statements = "grad.V.p2 grad.V.p3 grad.V.p4 grad.V.p8 grad.V.count grad.V.euler grad.V.norm grad.L.p2 grad.L.p3 "
                    "grad.L.p4 grad.L.count.p2 grad.L.count.p3 grad.L.count.p4 grad.O1 grad.O2 grad.O4"}},
    {"gradients of gates and angles",
     300,
     {.statements = "grad.F1 grad.F2 grad.F3 grad.F4 grad.F6 grad.F7 grad.F9 grad.F12 grad.O3",
      .controls = "grad.F5 grad.F8 grad.F10 grad.F11"}},
    {"gradients through states",
     300,
     {.statements =
          "grad.B.gates grad.B.channels grad.B.rotary grad.B.householder grad.S1 grad.S3 grad.S4 grad.S5 grad.O5",
      .controls = "grad.S2 grad.X1 grad.X2 grad.X3 grad.X4 grad.X5 grad.X6 grad.X7 grad.X8 grad.X9 grad.X10"}},
    {"gradients of zeros",
     300,
     {.statements = "grad.G1 grad.G1.deep grad.G2 grad.G2.deep grad.G5 grad.G7 grad.G8",
      .controls = "grad.G4 grad.G6 grad.G9 grad.H9"}},
    {"gradients of every form and score",
     100,
     {.statements = "grad.A.sums grad.A.squares grad.A.chains grad.A.positions grad.A.p8 grad.A.exponential "
                    "grad.A.features grad.D grad.B.sums grad.B.squares grad.B.positions grad.B.p8 grad.B.features "
                    "grad.C.p1 grad.C.p2 grad.C.p8 grad.W.p1 grad.W.p2 grad.W.p8 grad.H0 grad.H1 grad.H2 grad.H4 "
                    "grad.H5 grad.H1.bits grad.H2.bits grad.H4.bits grad.H5.bits grad.H16.bits",
      .controls = "grad.H16"}},
    {"gradients at the ends of the type",
     100,
     {.statements = "grad.E1 grad.E2 grad.E3 grad.E4 grad.E5 grad.E6 grad.E7 grad.F7.long grad.F9.long grad.F11.long",
      .controls = "grad.E1.plain grad.E2.plain grad.E4.plain"}}};

/// All groups, of the papers and of gradients.
template <class Scalar>
std::vector<verify::PropositionGroup> all_groups() {
  auto groups = verify::proposition_groups<Scalar>();
  std::ranges::copy(verify::gradient_groups<Scalar>(), std::back_inserter(groups));
  return groups;
}

/// Whether a bound needs no reason or has one.
bool is_explained(double bound, const std::string& unit, const std::string& reason) {
  return !(unit == "row rule" && bound > 1) || !reason.empty();
}

/// Requires that every bound above 1 in units of the row rule has a reason, and that every source can be read.
void require_reasons(const verify::Proposition& p) {
  CAPTURE(p.id, p.bound, p.corrected.bound, p.statement, p.corrected.statement, p.source);
  REQUIRE(is_explained(p.bound, p.unit, p.reason));
  REQUIRE(is_explained(p.corrected.bound, p.corrected.unit, p.corrected.reason));
  // A source names a paper and a section, or that it is an extension or a diagnosis.
  const verify::Source source = verify::parse_source(p.source);
  if (source.places.empty()) REQUIRE((source.note == "extension" || source.note == "diagnosis"));
  for (const verify::Place& place : source.places) {
    REQUIRE(verify::find_paper(verify::papers(), place.paper) != nullptr);
    REQUIRE((!place.section.empty() || p.source.size() == 1));
  }
}

using Propositions = std::map<std::string, verify::Proposition>;

/// Decides every group in a type with the seeds 1, 2, … up to `last(group)`; returns what the last ones found.
template <class Scalar, class Last>
Propositions require_groups(const Last& last) {
  const auto groups = all_groups<Scalar>();
  REQUIRE(groups.size() == expected.size());
  Propositions found;
  int explained = 0;
  for (std::size_t n = 0; n < groups.size(); ++n) {
    CAPTURE(groups[n].name);
    REQUIRE(groups[n].name == expected[n].name);
    for (std::uint64_t seed = 1; seed <= last(expected[n]); ++seed)
      for (const auto& p : test::require_propositions(groups[n].decide, seed, expected[n].ids)) {
        require_reasons(p);
        found[p.id] = p;
        explained += seed == 1 && (!p.reason.empty() || !p.corrected.reason.empty());
      }
  }
  REQUIRE(explained > 30);
  return found;
}

/// Decides every identity once from each seed, by 20 draws.
void require_identities(Propositions known, std::initializer_list<std::uint64_t> seeds) {
  const std::vector<verify::ExactDecision> all = exact_decisions();
  verify::Counts counts;
  for (const verify::ExactDecision& one : all) {
    CAPTURE(one.id);
    REQUIRE(known.count(one.id) == 1);
    verify::Proposition& p = known[one.id];
    REQUIRE(!p.decision.is_made());  // none twice
    REQUIRE((p.kind == verify::Kind::erratum) == static_cast<bool>(one.corrected));
    for (const std::uint64_t seed : seeds) {
      p.decision = one.statement(seed);
      if (one.corrected) p.corrected.decision = one.corrected(seed);
      CAPTURE(seed, p.decision.counterexample, p.corrected.decision.counterexample);
      REQUIRE(p.as_expected());
      REQUIRE(p.decision.refuted == (p.kind != verify::Kind::statement));
      REQUIRE(p.decision.integers <= 6);
      REQUIRE((p.decision.residual == "0") == (p.kind == verify::Kind::statement));
      // At least two sizes and 20 seeds, or a statement about one case.
      const std::string& domain = p.kind == verify::Kind::erratum ? p.corrected.decision.domain : p.decision.domain;
      REQUIRE((p.kind == verify::Kind::control || domain.find("seeds") != std::string::npos ||
               domain.find("no other inputs") != std::string::npos));
    }
    counts.add(p);
  }
  REQUIRE(counts.unexpected() == 0);
  REQUIRE(counts.decided[0] + counts.decided[1] == static_cast<int>(all.size()));
  REQUIRE((all.empty() || counts.decided[1] > 0));
}

}  // namespace

TEST_CASE("the propositions come out as expected in both types, and identities exactly", "[verify]") {
  REQUIRE(!is_explained(2, "row rule", ""));
  const auto once = [](const Group&) { return 1u; };
  require_identities(require_groups<double>(once), {1});
  require_groups<float>(once);
}

TEST_CASE("neither depends on the seed", "[verify][.long]") {
  const auto often = [](const Group& group) { return group.last_seed; };
  require_identities(require_groups<double>([](const Group&) { return 1u; }), {2, 3, 4});
  require_groups<double>(often);
  require_groups<float>(often);
}
