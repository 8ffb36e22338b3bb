// A statement of the source papers as something that this machine decides.
#pragma once

#include <cmath>
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

/// One checked statement. It holds if residual ≤ bound and fails if residual > bound; one that is not a number does
/// neither, and is expected of nothing.
struct Proposition {
  std::string id;                 ///< as in docs/errata.md and docs/equations.md
  std::string statement;          ///< in a formula or a sentence
  std::string source;             ///< the paper, A to E, and the section
  Kind kind = Kind::statement;    ///< what is expected of it
  double residual = 0;            ///< size of the violation of the printed form
  double bound = 0;               ///< what rounding explains
  std::string correction;         ///< erratum: what is true instead; documentation: why nothing is computed
  double corrected_residual = 0;  ///< erratum: the same of the corrected form
  double corrected_bound = 0;     ///< erratum: what rounding explains of it
  std::string unit;  ///< what residual and bound are measured in: "row rule", "max|V|", "relative to ‖A‖"; or nothing
  std::string corrected_unit;        ///< the same of the corrected form
  std::string reason;                ///< why the bound is what it is, where somebody said so
  std::string corrected_reason;      ///< the same of the corrected form
  Decision decision = {};            ///< what was decided without rounding, where something was
  Decision corrected_decision = {};  ///< erratum: the same of the corrected form

  /// residual ≤ bound.
  [[nodiscard]] bool holds() const { return residual <= bound; }
  /// residual > bound.
  [[nodiscard]] bool fails() const { return residual > bound; }
  /// The corrected form holds.
  [[nodiscard]] bool correction_holds() const { return corrected_residual <= corrected_bound; }

  /// How it was decided; of an erratum, both forms.
  [[nodiscard]] Method method() const {
    const bool both = kind != Kind::erratum || corrected_decision.method == decision.method;
    return both ? decision.method : Method::bound;
  }

  /// Whether the machine agrees with what is expected, by its residual and by what was decided without rounding.
  [[nodiscard]] bool as_expected() const {
    const bool refuted = decision.refuted || !decision.is_made();
    switch (kind) {
      case Kind::statement:
        return holds() && !decision.refuted;
      case Kind::erratum:
        return fails() && correction_holds() && refuted && !corrected_decision.refuted;
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
  void holds(std::string id, double residual, Bound bound, std::string statement, std::string source) {
    add(Kind::statement, std::move(id), residual, std::move(bound), statement, std::move(source));
  }

  /// A printed form that must fail, residual > bound, beside a corrected one that must hold.
  void erratum(std::string id, double residual, Bound bound, std::string statement, std::string source,
               std::string correction, double corrected_residual, Bound corrected_bound) {
    Proposition& p = add(Kind::erratum, std::move(id), residual, std::move(bound), statement, std::move(source));
    p.corrected_residual = corrected_residual;
    measure(std::move(corrected_bound), correction,
            {p.correction, p.corrected_bound, p.corrected_unit, p.corrected_reason});
  }

  /// A reading or mutant that must fail, residual > bound.
  void control(std::string id, double residual, Bound bound, std::string statement, std::string source) {
    add(Kind::control, std::move(id), residual, std::move(bound), statement, std::move(source));
  }

  /// A statement that was decided without rounding, as by `decide_exactly`, and must hold.
  void holds(std::string id, Decision decision, std::string statement, std::string source) {
    decide(Kind::statement, std::move(id), std::move(decision), statement, std::move(source));
  }
  /// A reading or mutant that was decided without rounding and must be refuted.
  void control(std::string id, Decision decision, std::string statement, std::string source) {
    decide(Kind::control, std::move(id), std::move(decision), statement, std::move(source));
  }
  /// A printed form that must be refuted without rounding, beside a corrected one that must hold.
  void erratum(std::string id, Decision decision, std::string statement, std::string source, std::string correction,
               Decision corrected) {
    Proposition& p = decide(Kind::erratum, std::move(id), std::move(decision), statement, std::move(source));
    p.correction = std::move(correction);
    p.corrected_residual = corrected.size();
    p.corrected_decision = std::move(corrected);
  }

  /// Something about the papers' listings that only their own language can show.
  void documents(std::string id, std::string statement, std::string source, std::string reason) {
    Proposition& p = add(Kind::documentation, std::move(id), 0, 0, statement, std::move(source));
    p.statement = std::move(statement);
    p.correction = std::move(reason);
  }

  /// All of them so far.
  [[nodiscard]] const std::vector<Proposition>& propositions() const { return propositions_; }

 private:
  /// Where a form of a statement is kept.
  struct Form {
    std::string& text;
    double& bound;
    std::string& unit;
    std::string& reason;
  };
  static void measure(Bound bound, const std::string& text, const Form& form) {
    Measured measured = split_unit(text);
    form.text = std::move(measured.statement);
    form.bound = bound.value;
    const bool says_itself = !measured.unit.empty() || text.find("residual: ") != std::string::npos;
    form.unit = says_itself ? std::move(measured.unit) : std::move(bound.unit);
    form.reason = std::move(bound.reason);
  }
  Proposition& decide(Kind kind, std::string id, Decision decision, const std::string& statement, std::string source) {
    Proposition& p = add(kind, std::move(id), decision.size(), 0, statement, std::move(source));
    p.decision = std::move(decision);
    return p;
  }
  Proposition& add(Kind kind, std::string id, double residual, Bound bound, const std::string& statement,
                   std::string source) {
    Proposition& p = propositions_.emplace_back();
    p.kind = kind;
    p.id = std::move(id);
    p.source = std::move(source);
    p.residual = residual;
    measure(std::move(bound), statement, {p.statement, p.bound, p.unit, p.reason});
    return p;
  }

  std::vector<Proposition> propositions_;
};

/// Propositions about one subject.
struct PropositionGroup {
  const char* name;                                    ///< what they are about
  void (*decide)(Ledger& ledger, std::uint64_t seed);  ///< adds them, decided on random inputs of this seed
};

}  // namespace SYMPOW_NAMESPACE::verify
