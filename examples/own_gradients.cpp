// Gradients through a feature map and a transition of one's own, and the laws that find them right.
#include <cmath>
#include <iostream>
#include <utility>

#include <sympow/sympow.hpp>
#include <sympow/verify/gradient_laws.hpp>

using namespace sympow;
using Eigen::MatrixXd, Eigen::VectorXd;

/// φ(x) = elu(x) + 1, by entry, with φ'(x) = min(φ(x), 1).
struct EluPlusOne {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true, nonnegative_entries = true;
  [[nodiscard]] Index dimension(Index d) const { return d; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    y = (x.array() > 0).select(x.array() + 1, x.array().min(0).exp());
  }
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X&, const Y& y, const DY& dy, DX&& dx) const {  // dx.col(t) = Dφ(x_t)ᵀ dy.col(t), y = φ(x)
    for (Index t = 0; t < y.cols(); ++t)
      for (Index i = 0; i < y.rows(); ++i) dx(i, t) = y(i, t) < 1 ? y(i, t) * dy(i, t) : dy(i, t);
  }
};

/// Gates γ_t = σ(x_t), with gradients in x.
class SigmoidGates : public LeavesKeys {  // which has the way back of what does not move keys
 public:
  explicit SigmoidGates(VectorXd x) : x_(std::move(x)) {}
  [[nodiscard]] Index length() const { return x_.size(); }
  [[nodiscard]] double log_decay(Index t) const { return -std::log1p(std::exp(-x_[t])); }

  struct Gradient {
    VectorXd x;  // ∂loss/∂x_t
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const { return {VectorXd::Zero(tokens)}; }
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const {  // flows: ∂loss/∂log γ of these tokens
    for (Index i = 0; i < s.size; ++i) g.x[s.begin + i] += flows[i] / (1 + std::exp(x_[s.begin + i]));
  }

 private:
  VectorXd x_;
};

int main() {
  const Index d = 8, e = 4, T = 40;
  const MatrixXd Q = MatrixXd::Random(d, T), K = MatrixXd::Random(d, T), V = MatrixXd::Random(e, T),
                 dY = MatrixXd::Random(e, T);
  const VectorXd x = 3 + VectorXd::Random(T).array(), delta = VectorXd::Random(T);

  // The gates of some tokens at x + h δ, and Σ g δ of their gradient g.
  const verify::MovingTransition moving{
      [&](Segment s, double h) { return SigmoidGates((x + h * delta).segment(s.begin, s.size)); },
      [&](Segment s, const SigmoidGates::Gradient& g) { return g.x.dot(delta.segment(s.begin, s.size)); }};
  const Options options{.chunk = 8};  // several states on the way
  const auto adjoint = verify::adjoint_law(EluPlusOne{}, moving, Q, K, V, dY, options);
  const auto forms = verify::gradient_forms_law(EluPlusOne{}, moving, Q, K, V, dY, options);
  const auto split = verify::gradient_splitting_law(EluPlusOne{}, moving, Q, K, V, dY, 17, options);
  const auto flagged = verify::flagged_rows_law(EluPlusOne{}, moving, Q, K, V, dY, options);

  for (const auto& law : {adjoint, forms, split, flagged}) std::cout << law << '\n';
  return adjoint.holds() && forms.holds() && split.holds() && flagged.holds() ? 0 : 1;
}
