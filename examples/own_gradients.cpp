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
class SigmoidGates : public KeepsKeys {  // which has the way back of what does not move keys
 public:
  explicit SigmoidGates(VectorXd x) : x_(std::move(x)) {}
  [[nodiscard]] Index length() const { return x_.size(); }
  [[nodiscard]] double log_decay(Index t) const { return std::min(x_[t], 0.) - std::log1p(std::exp(-std::abs(x_[t]))); }

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

/// Positions p_i, which are learned: queries and keys of token i turn by the angles p_i θ.
class Places {
 public:
  static constexpr KeyAction key_action = KeyAction::turn;
  Places(VectorXd theta, VectorXd p) : theta_(std::move(theta)), p_(std::move(p)) {}
  [[nodiscard]] Index length() const { return p_.size(); }
  [[nodiscard]] Index key_dimension() const { return 2 * theta_.size(); }
  [[nodiscard]] double log_decay(Index) const { return 0; }
  void check_frame(const Frame& frame, Index) const { frame.require(Frame::angles, theta_.size()); }
  [[nodiscard]] MatrixXd key_matrix(Index i, Index d) const {  // from one position to the next
    MatrixXd A = MatrixXd::Identity(d, d);
    turn(p_[i] - (i == 0 ? 0 : p_[i - 1]), A);
    return A;
  }

  template <class S>
  void to_segment_frame(Frame& frame, Segment s, Batch<S> Q, Batch<S> K, Batch<S> logits) const {
    for (Index t = 0; t < s.size; ++t) turn(p_[s.begin + t], Q.col(t)), turn(p_[s.begin + t], K.col(t));
    if (logits.size() != 0) logits = K.transpose() * Q;
    if (s.size > 0) frame.begin(Frame::angles, p_[s.end() - 1] * theta_);
  }
  template <class S>
  void apply_to_queries(Segment, Batch<S>) const {}

  struct Gradient {
    VectorXd p;  // ∂loss/∂p_i
  };
  [[nodiscard]] Gradient zero_gradient(Index tokens) const { return {VectorXd::Zero(tokens)}; }
  void add_decay_flows(Segment, const double*, Gradient&) const {}  // no gates
  template <class S>
  void to_segment_frame_vjp(Frame& frame, Segment s, SegmentVjp<S>& x, Gradient& g) const {
    if (x.d_logits.size() != 0) {  // the pairs of the segment, whose logits were K̃ᵀQ̃
      x.d_logits.template triangularView<Eigen::StrictlyLower>().setZero();  // anything stands there
      x.d_queries += x.moved_keys * x.d_logits;
      x.d_keys += x.moved_queries * x.d_logits.transpose();
    }
    for (Index t = 0; t < s.size; ++t) {
      const Index i = s.begin + t;
      g.p[i] +=
          x.unit * (moment(x.moved_queries.col(t), x.d_queries.col(t)) + moment(x.moved_keys.col(t), x.d_keys.col(t)));
      turn(-p_[i], x.d_queries.col(t)), turn(-p_[i], x.d_keys.col(t));  // the transpose of a rotation
    }
    if (s.size > 0) frame.begin(Frame::angles, p_[s.end() - 1] * theta_);
  }
  template <class S>
  void apply_to_queries_vjp(Segment, Batch<S>, Batch<S>, double, Gradient&) const {}  // apply_to_queries does nothing

 private:
  template <class X>
  void turn(double p, X&& x) const {  // x ← R(p θ) x
    using S = typename std::remove_cvref_t<X>::Scalar;
    for (Index u = 0; u < theta_.size(); ++u) {
      const S c = S(std::cos(p * theta_[u])), s = S(std::sin(p * theta_[u]));
      const auto first = x.row(2 * u).eval(), second = x.row(2 * u + 1).eval();
      x.row(2 * u) = c * first - s * second, x.row(2 * u + 1) = s * first + c * second;
    }
  }
  template <class X, class DX>
  [[nodiscard]] double moment(const X& x, const DX& dx) const {  // Σ_u θ_u ⟨dx, J_u x⟩, what x gives to its position
    double sum = 0;
    for (Index u = 0; u < theta_.size(); ++u)
      sum += theta_[u] * (double(dx[2 * u + 1]) * double(x[2 * u]) - double(dx[2 * u]) * double(x[2 * u + 1]));
    return sum;
  }

  VectorXd theta_, p_;
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

  const VectorXd theta = rope_frequencies<double>(d);
  const verify::MovingTransition placed{
      [&](Segment s, double h) { return Places(theta, (x + h * delta).segment(s.begin, s.size)); },
      [&](Segment s, const Places::Gradient& g) { return g.p.dot(delta.segment(s.begin, s.size)); }};
  const auto places = verify::adjoint_law(SymmetricPower<2>{}, placed, Q, K, V, dY, options);
  const auto two = verify::gradient_splitting_law(SymmetricPower<2>{}, placed, Q, K, V, dY, 17, options);

  bool holds = true;
  for (const auto& law : {adjoint, forms, split, flagged, places, two}) {
    std::cout << law << '\n';
    holds = holds && law.holds();
  }
  return holds ? 0 : 1;
}
