// A statement of the source papers as something that this machine decides.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <sympow/core/config.hpp>
#include <sympow/verify/bound.hpp>
#include <sympow/verify/decision.hpp>

/// Laws, propositions of the source papers and the direct evaluation that all forms are measured against.
namespace SYMPOW_NAMESPACE::verify {

/// Unit roundoff u of a type: 2⁻²⁴ for float, 2⁻⁵³ for double.
template <class Scalar>
inline constexpr double unit_roundoff = static_cast<double>(std::numeric_limits<Scalar>::epsilon()) / 2;

/// What is expected of a statement.
enum class Kind {
  statement,     ///< holds as printed (or is our own correction or extension of it)
  erratum,       ///< false or misprinted as printed; a corrected form holds
  control,       ///< a reading, extension or mutant that nobody printed and that must fail, to show that the check can
  documentation  ///< about the listings' own language; nothing for this library to compute
};

/// A form of a statement and what was found of it. It holds if residual ≤ bound and fails if residual > bound; where
/// the residual is not a number it does neither.
struct Claim {
  std::string statement;    ///< in a formula or a sentence
  double residual = 0;      ///< size of the violation
  double bound = 0;         ///< what rounding explains
  std::string unit = {};    ///< what both are measured in: "row rule", "max|V|", "relative to ‖A‖"; or nothing
  std::string reason = {};  ///< why the bound is what it is, where somebody said so
  Decision decision = {};   ///< what was decided without rounding, where something was

  /// residual ≤ bound.
  [[nodiscard]] bool holds() const { return residual <= bound; }
  /// residual > bound.
  [[nodiscard]] bool fails() const { return residual > bound; }
};

/// One checked statement, as printed.
struct Proposition : Claim {
  std::string id;               ///< as in docs/errata.md and docs/equations.md
  std::string source;           ///< the paper, A to E, and the section
  Kind kind = Kind::statement;  ///< what is expected of it
  Claim corrected = {};         ///< erratum: what is true instead; documentation: why nothing is computed

  /// How it was decided; of an erratum, both forms.
  [[nodiscard]] Method method() const {
    const bool both = kind != Kind::erratum || corrected.decision.method == decision.method;
    return both ? decision.method : Method::bound;
  }

  /// Whether the machine agrees with what is expected, by its residual and by what was decided without rounding.
  [[nodiscard]] bool as_expected() const {
    const bool refuted = decision.refuted || !decision.is_made();
    switch (kind) {
      case Kind::statement:
        return holds() && !decision.refuted;
      case Kind::erratum:
        return fails() && corrected.holds() && refuted && !corrected.decision.refuted;
      case Kind::control:
        return fails() && refuted;
      case Kind::documentation:
        return true;
    }
    return false;
  }
};

/// Collects propositions in the order in which they are decided.
///
/// The unit is what stands at the end of the statement (`split_unit`); a statement that says neither it nor
/// "residual: …" has the bound's.
class Ledger {
 public:
  /// A statement that must hold: residual ≤ bound.
  void holds(std::string id, double residual, Bound bound, const std::string& statement, std::string source) {
    add(Kind::statement, std::move(id), std::move(source), claim(statement, residual, std::move(bound)));
  }

  /// A printed form that must fail, residual > bound, beside a corrected one that must hold.
  void erratum(std::string id, double residual, Bound bound, const std::string& statement, std::string source,
               const std::string& correction, double corrected_residual, Bound corrected_bound) {
    add(Kind::erratum, std::move(id), std::move(source), claim(statement, residual, std::move(bound)),
        claim(correction, corrected_residual, std::move(corrected_bound)));
  }

  /// A reading or mutant that must fail, residual > bound.
  void control(std::string id, double residual, Bound bound, const std::string& statement, std::string source) {
    add(Kind::control, std::move(id), std::move(source), claim(statement, residual, std::move(bound)));
  }

  /// A statement that was decided without rounding, as by `decide_exactly`, and must hold.
  void holds(std::string id, Decision decision, const std::string& statement, std::string source) {
    add(Kind::statement, std::move(id), std::move(source), claim(statement, std::move(decision)));
  }
  /// A reading or mutant that was decided without rounding and must be refuted.
  void control(std::string id, Decision decision, const std::string& statement, std::string source) {
    add(Kind::control, std::move(id), std::move(source), claim(statement, std::move(decision)));
  }
  /// A printed form that must be refuted without rounding, beside a corrected one that must hold.
  void erratum(std::string id, Decision decision, const std::string& statement, std::string source,
               const std::string& correction, Decision corrected) {
    add(Kind::erratum, std::move(id), std::move(source), claim(statement, std::move(decision)),
        claim(correction, std::move(corrected)));
  }

  /// Something about the papers' listings that only their own language can show.
  void documents(std::string id, std::string statement, std::string source, std::string reason) {
    add(Kind::documentation, std::move(id), std::move(source), {.statement = std::move(statement)},
        {.statement = std::move(reason)});
  }

  /// All of them so far.
  [[nodiscard]] const std::vector<Proposition>& propositions() const { return propositions_; }

 private:
  static Claim claim(const std::string& text, double residual, Bound bound) {
    Measured measured = split_unit(text);
    const bool says_itself = !measured.unit.empty() || text.find("residual: ") != std::string::npos;
    return {std::move(measured.statement), residual, bound.value, std::move(says_itself ? measured.unit : bound.unit),
            std::move(bound.reason)};
  }
  static Claim claim(const std::string& text, Decision decision) {
    return {.statement = text, .residual = decision.size(), .decision = std::move(decision)};
  }
  void add(Kind kind, std::string id, std::string source, Claim printed, Claim corrected = {}) {
    propositions_.push_back({std::move(printed), std::move(id), std::move(source), kind, std::move(corrected)});
  }

  std::vector<Proposition> propositions_;
};

/// Propositions about one subject.
struct PropositionGroup {
  const char* name;                                    ///< what they are about
  void (*decide)(Ledger& ledger, std::uint64_t seed);  ///< adds them, decided on random inputs of this seed
};

}  // namespace SYMPOW_NAMESPACE::verify
