// A feature map of one's own, in all three forms, which are compiled once and checked against the definition.
#include <iostream>

#include <sympow/attention/compiled_forms.hpp>
#include <sympow/sympow.hpp>
#include <sympow/verify/laws.hpp>

using namespace sympow;

/// φ(x) = elu(x) + 1, by entry.
struct EluPlusOne {
  static constexpr Score score = Score::embedded;             // the score of a pair is φ(q)·φ(k), whatever that is
  static constexpr bool nonnegative = true;                   // no score is negative: rows are normalised
  static constexpr bool nonnegative_entries = true;           // nor is an entry of φ: nothing cancels
  [[nodiscard]] Index dimension(Index d) const { return d; }  // D
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {  // D × n from d × n
    y = (x.array() > 0).select(x.array() + 1, x.array().min(0).exp());
  }
};

// In a larger program the first line stands in a header of yours, the second in one source file.
SYMPOW_EXTERN_FORMS(double, EluPlusOne)
SYMPOW_INSTANTIATE_FORMS(double, EluPlusOne)

int main() {
  using Eigen::MatrixXd;
  const MatrixXd Q = MatrixXd::Random(8, 200), K = MatrixXd::Random(8, 200), V = MatrixXd::Random(4, 200);
  const verify::Residual law = verify::three_forms_law(EluPlusOne{}, constant_decay(.95), Q, K, V);
  std::cout << "the forms are " << law.residual << " of the row rule apart\n";
  return law.holds() ? 0 : 1;
}
