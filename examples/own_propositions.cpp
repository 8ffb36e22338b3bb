// Statements of your own, decided, printed and written as verify_propositions does it.
//
//     own_propositions [--scalar float|double] [--seed N] [--explain] [--json FILE] [--help]
//
// A group is a function that adds statements to a ledger: each has an id, a residual, a bound that rounding explains,
// words, and the place that it is about. An identity of rational functions may be decided without a bound, where GMP
// was found. A second paper, F, stands beside the library's own, A to E.
#include <sympow/exact/matrices.hpp>
#include <sympow/sympow.hpp>
#include <sympow/verify/decide_exactly.hpp>
#include <sympow/verify/program.hpp>

#include <sympow/core/random.hpp>

using namespace sympow;
using verify::Ledger, verify::PropositionGroup;

namespace {

/// What does not turn stays, and a rotation does not commute with a decay by channel.
template <class Scalar>
void partial_rotations(Ledger& ledger, std::uint64_t seed) {
  constexpr Index d = 8, steps = 100;
  Random random(seed);
  Vector<double> theta = rotary_frequencies<double>(d, 4096);
  theta.tail(d / 4).setZero();
  const BlockRotation<Scalar> R(theta);
  const Vector<Scalar> q = random.vector<Scalar>(d), k = random.vector<Scalar>(d);
  const Vector<Scalar> turned = R.pow(steps) * k, slowed = q.cwiseAbs().asDiagonal() * (R * k),
                       early = R * (q.cwiseAbs().asDiagonal() * k);
  const double u = verify::unit_roundoff<Scalar>, size = static_cast<double>(q.norm() * k.norm());

  const double kept = static_cast<double>((turned - k).tail(d / 2).norm()) / static_cast<double>(k.norm());
  ledger.holds("O1", kept, {u, "a turn by the angle 0 is exact"},
               "θ_n = 0 for n > d/4: half of R^i k is k, relative to ‖k‖", "F §2, eq. (3)");

  const double apart = static_cast<double>((slowed - early).norm()) / size;
  const double error = std::abs(static_cast<double>(q.dot(turned) - (R.pow(-steps) * q).dot(k))) / size;
  ledger.erratum("O2", apart, 1e-3, "diag(a) R k = R diag(a) k, relative to ‖q‖‖k‖", "F §2",
                 "qᵀ (R^i k) = (R^{-i} q)ᵀ k, relative to ‖q‖‖k‖", error,
                 {4 * d * u, "two turned vectors and two inner products of d terms"});
}

#ifdef SYMPOW_HAS_RATIONAL
/// The same over the rational numbers: a statement draws its inputs by name and says what must be equal.
void exact_statements(Ledger& ledger, std::uint64_t seed) {
  const auto commuting = [](auto& x) {
    const Index n = x.size("d/2", {1, 3});
    const auto a = x.vector("a", 2 * n), q = x.vector("q", 2 * n);
    const auto R = exact::rotation(x.vector("tan θ/2", n));  // by the angles 2 arctan t: its entries are rational
    x.equal(a.asDiagonal() * (R * q), R * (a.asDiagonal() * q));
  };
  const auto relative = [](auto& x) {
    const Index n = x.size("d/2", {1, 3}), i = x.integer("i", 0, 6);
    const auto q = x.vector("q", 2 * n), k = x.vector("k", 2 * n);
    const auto R = exact::rotation(x.vector("tan θ/2", n));
    x.equal(q.dot(exact::power(R, i) * k), (exact::power(exact::inverse(R), i) * q).dot(k));
  };
  ledger.erratum("O3", verify::decide_exactly(commuting, seed), "diag(a) R q = R diag(a) q", "F §2",
                 "qᵀ (R^i k) = (R^{-i} q)ᵀ k", verify::decide_exactly(relative, seed));
}
#endif

template <class Scalar>
std::vector<PropositionGroup> groups() {
  std::vector<PropositionGroup> all = {{"partial rotations", partial_rotations<Scalar>}};
#ifdef SYMPOW_HAS_RATIONAL
  all.push_back({"the same exactly", exact_statements});
#endif
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<verify::Paper> papers = verify::papers();
  papers.push_back({"F", "Rotating half of a head", "A. Researcher", "2026", "draft", ""});
  return verify::run_program(argc, argv,
                             {"own_propositions", "Decides statements about rotations of half of a head.",
                              groups<double>, groups<float>, papers});
}
