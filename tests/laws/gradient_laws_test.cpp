// The laws of gradients hold for what is right, and find adjoints that are not: by the name of the function, or of the
// form and the gradient.
#include <memory>

#include <sympow/verify/gradient_laws.hpp>

#include "../gradient/problem.hpp"
#include "catch.hpp"

using namespace sympow;
using namespace sympow::test;
using namespace sympow::verify;
using Eigen::MatrixXd, Eigen::VectorXd;

namespace {

constexpr Index d = 4, e = 3, T = 40;

// A sequence, and directions of its parameters.
struct Sequence {
  Random random{11};
  Problem<double> x{random, d, e, T, .1};
  VectorXd d_gates = x.parameters.log_gamma.cwiseProduct(random.vector(T)), d_beta = random.vector(T),
           d_theta = random.vector(d / 2), d_strengths = random.vector(T);
  MatrixXd d_channels = x.parameters.log_a.cwiseProduct(random.matrix(d, T)), d_w = random.matrix(d, T),
           d_positions = random.matrix(2, T), d_frequencies = random.matrix(2, d / 2);

  [[nodiscard]] VectorXd gates(Segment s, double h) const {
    return (x.parameters.log_gamma + h * d_gates).segment(s.begin, s.size);
  }
  [[nodiscard]] double along_gates(Segment s, const VectorXd& g) const {
    return g.dot(d_gates.segment(s.begin, s.size));
  }
  // Rotary or one that is derived from it, A(θ, β, pairing).
  template <class A = Rotary>
  [[nodiscard]] auto turning() const {
    return MovingTransition{[this](Segment s, double h) {
                              const auto& p = x.parameters;
                              return A(p.theta + h * d_theta, (p.beta + h * d_beta).segment(s.begin, s.size),
                                       Pairing::interleaved);
                            },
                            [this](Segment s, const auto& g) {
                              return g.theta.dot(d_theta) + g.beta.dot(d_beta.segment(s.begin, s.size));
                            }};
  }
  template <class A = Decay>
  [[nodiscard]] auto gated() const {
    return MovingTransition{[this](Segment s, double h) { return A(gates(s, h)); },
                            [this](Segment s, const auto& g) { return along_gates(s, g.log_gamma); }};
  }
  // Both, one times the other.
  [[nodiscard]] auto conformal() const {
    return MovingTransition{[this](Segment s, double h) { return decay(gates(s, h)) * turning().at(s, h); },
                            [this](Segment s, const auto& g) {
                              return along_gates(s, g.left().log_gamma) + turning().along(s, g.right());
                            }};
  }
  template <class A = ChannelDecay<double>>
  [[nodiscard]] auto channels() const {
    return MovingTransition{[this](Segment s, double h) {
                              return A((x.parameters.log_a + h * d_channels).middleCols(s.begin, s.size).eval());
                            },
                            [this](Segment s, const auto& g) {
                              return g.log_a.cwiseProduct(d_channels.middleCols(s.begin, s.size)).sum();
                            }};
  }
  template <class A = Householder<double>>
  [[nodiscard]] auto mixing() const {
    return MovingTransition{[this](Segment s, double h) {
                              const auto& p = x.parameters;
                              return A(Householder<double>((p.w + h * d_w).middleCols(s.begin, s.size),
                                                           (p.strengths + h * d_strengths).segment(s.begin, s.size)));
                            },
                            [this](Segment s, const auto& g) {
                              return g.w.cwiseProduct(d_w.middleCols(s.begin, s.size)).sum() +
                                     g.beta.dot(d_strengths.segment(s.begin, s.size));
                            }};
  }
  [[nodiscard]] auto gated_mixing() const {
    return MovingTransition{[this](Segment s, double h) { return channels().at(s, h) * mixing().at(s, h); },
                            [this](Segment s, const auto& g) {
                              return channels().along(s, g.template of<ChannelDecay<double>>()) +
                                     mixing().along(s, g.template of<Householder<double>>());
                            }};
  }
  [[nodiscard]] auto placed() const {
    return MovingTransition{[this](Segment s, double h) {
                              const MatrixXd frequencies = x.parameters.frequencies + h * d_frequencies;
                              return structured_rotary(
                                  CommutingGenerators<double>::from_frequencies(frequencies),
                                  (x.parameters.positions + h * d_positions).middleCols(s.begin, s.size).eval());
                            },
                            [this](Segment s, const auto& g) {
                              return g.positions.cwiseProduct(d_positions.middleCols(s.begin, s.size)).sum() +
                                     g.frequencies.cwiseProduct(d_frequencies).sum();
                            }};
  }
  [[nodiscard]] static auto still() {
    return MovingTransition{[](Segment, double) { return stationary(); }, [](Segment, const auto&) { return 0.; }};
  }

  template <class Normalization = DefaultNormalization, class F, class Moving>
  [[nodiscard]] Residual adjoint(const F& feature, const Moving& moving, const Options& options = {.chunk = 8}) const {
    return adjoint_law<Normalization>(feature, moving, x.Q, x.K, x.V, x.dY, options);
  }
  template <class Normalization = DefaultNormalization, class F, class Moving>
  [[nodiscard]] Residual forms(const F& feature, const Moving& moving) const {
    return gradient_forms_law<Normalization>(feature, moving, x.Q, x.K, x.V, x.dY, {.chunk = 8});
  }
  template <class Normalization = DefaultNormalization, class F, class Moving>
  [[nodiscard]] Residual split(const F& feature, const Moving& moving, Index at = 17) const {
    return gradient_splitting_law<Normalization>(feature, moving, x.Q, x.K, x.V, x.dY, at, {.chunk = 8});
  }
  template <class Normalization = DefaultNormalization, class F, class Moving>
  [[nodiscard]] Residual flagged(const F& feature, const Moving& moving) const {
    return flagged_rows_law<Normalization>(feature, moving, x.Q, x.K, x.V, x.dY, {.chunk = 8});
  }
};

void require_holds(const Residual& found) {
  INFO(found);
  CHECK(found.holds());
}
// Wrong by far, in what is named.
void require_finds(const Residual& found, const std::string& form) {
  INFO(found);
  CHECK(found.residual > 1e3);
  CHECK(found.form == form);
}

template <class Normalization = DefaultNormalization, class F, class Moving>
void check_all(const Sequence& x, const F& feature, const Moving& moving) {
  require_holds(x.adjoint<Normalization>(feature, moving));
  require_holds(x.forms<Normalization>(feature, moving));
  if constexpr (has_state_forms<F, std::remove_cvref_t<decltype(moving.at({}, 0.))>>)
    for (const Index at : {Index(0), Index(17), T}) require_holds(x.split<Normalization>(feature, moving, at));
}

}  // namespace

TEST_CASE("the laws of gradients hold for every kind of transition", "[gradient]") {
  const Sequence x;
  check_all(x, SymmetricPower<2>{}, x.still());
  check_all(x, SymmetricPower<2>{}, x.gated());
  check_all(x, SymmetricPower<2>{}, x.conformal());
  check_all(x, SymmetricPower<2>{}, x.placed());
  check_all(x, SymmetricPower<3>{}, x.channels());
  check_all(x, Linear{}, x.mixing());
  check_all(x, Linear{}, x.gated_mixing());
  check_all(x, Exponential{}, x.conformal());
  check_all(x, Exponential{}, x.mixing());
  check_all(x, Exponential{}, x.gated_mixing());
  check_all(x, SymmetricPower<3>{}, x.gated_mixing());
}

TEST_CASE("the laws of gradients hold for maps of one's own", "[gradient]") {
  const Sequence x;
  check_all(x, Squares{}, x.conformal());
  check_all(x, ClosedSquares{}, x.conformal());
  check_all<Unnormalized>(x, HyperbolicRandomFeatures(d, 12), x.gated());
}

TEST_CASE("the laws of gradients hold in float, and under a mask", "[gradient]") {
  const Sequence x;
  const Matrix<float> Q = x.x.Q.cast<float>(), K = x.x.K.cast<float>(), V = x.x.V.cast<float>(),
                      dY = x.x.dY.cast<float>();
  require_holds(adjoint_law(SymmetricPower<2>{}, x.conformal(), Q, K, V, dY, {.chunk = 8}));
  require_holds(gradient_forms_law(SymmetricPower<4>{}, x.channels(), Q, K, V, dY, {.chunk = 8}));
  require_holds(gradient_splitting_law(Linear{}, x.conformal(), Q, K, V, dY, 17, {.chunk = 8}));
  require_holds(adjoint_law(SymmetricPower<2>{}, x.conformal(), x.x.Q.leftCols(30), x.x.K, x.x.V, x.x.dY.leftCols(30),
                            {.mask = causal(10)}));
  CHECK_THROWS_AS(x.split(Linear{}, x.still(), T + 1), InvalidArgument);
}

TEST_CASE("what the loss says of flagged rows changes no bit", "[gradient]") {
  Sequence x;
  for (const Index row : {0, 4, 20, 39}) x.x.Q.col(row).setZero();
  require_holds(x.flagged(SymmetricPower<2>{}, x.conformal()));
  require_holds(x.adjoint(SymmetricPower<2>{}, x.conformal()));
  require_holds(x.flagged<SignedNormalized>(Linear{}, x.mixing()));
}

namespace {

// Wrong derivatives of φ(x) = [1, √2 x, x ⊗ x].
struct WrongSign : Squares {
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, const Y& y, const DY& dy, DX&& dx) const {
    Squares::embed_vjp(x, y, dy, dx);
    dx = (-dx).eval();
  }
};
// (x ⊗ x)_ij by its first factor alone.
struct OneFactor : Squares {
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, const Y&, const DY& dy, DX&& dx) const {
    const Index n = x.rows();
    for (Index t = 0; t < x.cols(); ++t)
      for (Index i = 0; i < n; ++i) {
        dx(i, t) = std::numbers::sqrt2 * dy(1 + i, t);
        for (Index j = 0; j < n; ++j) dx(i, t) += 2 * dy(1 + n + i * n + j, t) * x(j, t);
      }
  }
};
// φ(x) = x ⊗ x, and a derivative that is another one in every call.
struct Wavering {
  static constexpr Score score = Score::embedded;
  static constexpr bool nonnegative = true;
  double step;
  std::shared_ptr<double> moved = std::make_shared<double>(0);
  [[nodiscard]] Index dimension(Index n) const { return n * n; }
  template <class X, class Y>
  void embed(const X& x, Y&& y) const {
    for (Index t = 0; t < x.cols(); ++t)
      for (Index i = 0; i < x.rows(); ++i)
        for (Index j = 0; j < x.rows(); ++j) y(i * x.rows() + j, t) = x(i, t) * x(j, t);
  }
  template <class X, class Y, class DY, class DX>
  void embed_vjp(const X& x, const Y&, const DY& dy, DX&& dx) const {
    const Index n = x.rows();
    *moved += step;
    for (Index t = 0; t < x.cols(); ++t)
      for (Index i = 0; i < n; ++i) {
        dx(i, t) = *moved;
        for (Index j = 0; j < n; ++j) dx(i, t) += (dy(i * n + j, t) + dy(j * n + i, t)) * x(j, t);
      }
  }
};

// Transitions with a wrong way back.
struct TurnsOn : Rotary {  // queries and keys by R in the place of Rᵀ
  using Rotary::Rotary;
  template <class S>
  void to_segment_frame_vjp(Frame& frame, Segment s, SegmentVjp<S>& x, Gradient& g) const {
    Frame start = frame;
    Rotary::to_segment_frame_vjp<S>(frame, s, x, g);
    for (int twice = 0; twice < 2; ++twice) {
      Frame again = start;
      Rotary::to_segment_frame<S>(again, s, x.d_queries, x.d_keys, no_logits<S>());
    }
  }
};
struct OppositeAngles : Rotary {
  using Rotary::Rotary;
  template <class S>
  void to_segment_frame_vjp(Frame& frame, Segment s, SegmentVjp<S>& x, Gradient& g) const {
    Gradient own = zero_gradient(length());
    Rotary::to_segment_frame_vjp<S>(frame, s, x, own);
    g.theta -= own.theta, g.beta -= own.beta;
  }
};
struct NothingThrough : Rotary {  // what flows through a whole chunk is left out
  using Rotary::Rotary;
  template <class S>
  void to_segment_frame_vjp(Frame& frame, Segment s, SegmentVjp<S>& x, Gradient& g) const {
    x.through = nullptr;
    Rotary::to_segment_frame_vjp<S>(frame, s, x, g);
  }
};
struct GatesOfPairs : Decay {  // d log γ_t with the pairs of token t itself, as running sums are easily off by one
  using Decay::Decay;
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const {
    for (Index i = 0; i < s.size; ++i) g.log_gamma[s.begin + i] += flows[std::min(i + 1, s.size - 1)];
  }
};
struct FirstGateIsNone : Decay {  // right without a state
  using Decay::Decay;
  void add_decay_flows(Segment s, const double* flows, Gradient& g) const {
    Decay::add_decay_flows(s, flows, g);
    if (s.begin == 0 && s.size > 0) g.log_gamma[0] = 0;
  }
};
struct TransposedChain : Householder<double> {  // dX of A_a … A_b X by A_a … A_b itself
  using Householder::Householder;
  explicit TransposedChain(const Householder& chain) : Householder(chain) {}
  template <class S>
  void apply_to_queries_vjp(Segment s, Batch<S> X, Batch<S> dX, double unit, Gradient& g) const {
    Matrix<S> other = dX;
    Householder::apply_to_queries_vjp<S>(s, X, dX, unit, g);
    Householder::apply_to_queries<S>(s, other);
    dX = other;
  }
};
struct ChainWithoutState : Householder<double> {  // what reaches w through a state is left out
  explicit ChainWithoutState(const Householder& chain) : Householder(chain) {}
  template <class S>
  void to_segment_frame_vjp(Frame& frame, Segment s, SegmentVjp<S>& x, Gradient& g) const {
    SegmentVjp<S> without{.moved_queries = x.moved_queries,
                          .moved_keys = x.moved_keys,
                          .d_queries = x.d_queries,
                          .d_keys = x.d_keys,
                          .d_logits = x.d_logits,
                          .queries = x.queries,
                          .keys = x.keys,
                          .unit = x.unit};
    Householder::to_segment_frame_vjp<S>(frame, s, without, g);
  }
};
struct KeysOfChannels : ChannelDecay<double> {  // keys as if no gate had brought them to the segment's end
  using ChannelDecay::ChannelDecay;
  template <class S>
  void to_segment_frame_vjp(Frame& frame, Segment s, SegmentVjp<S>& x, Gradient& g) const {
    const Matrix<S> d_keys = x.d_keys;
    x.d_keys.setZero();
    ChannelDecay::to_segment_frame_vjp<S>(frame, s, x, g);
    x.d_keys += d_keys;
  }
};
struct SeesLater : Decay {  // gradients of logits of pairs j > i, which may be anything
  using Decay::Decay;
  template <class S>
  void to_segment_frame_vjp(Frame&, Segment, SegmentVjp<S>& x, Gradient&) const {
    if (x.d_logits.size() == 0) return;
    x.d_queries += x.moved_keys * x.d_logits;
    x.d_keys += x.moved_queries * x.d_logits.transpose();
  }
};

}  // namespace

TEST_CASE("the adjoint law finds a wrong derivative of an embedding by its name", "[gradient]") {
  const Sequence x;
  require_finds(x.adjoint(WrongSign{}, x.gated()), "embed_vjp");
  require_finds(x.adjoint(OneFactor{}, x.gated()), "embed_vjp");  // which symmetric dφ of the forms do not show
  require_finds(feature_vjp_residual(WrongSign{}, x.x.Q), "embed_vjp");
}

TEST_CASE("the adjoint law finds a transition that moves vectors back by another matrix", "[gradient]") {
  const Sequence x;
  const Residual turns = x.adjoint(SymmetricPower<2>{}, x.turning<TurnsOn>());
  INFO(turns);
  CHECK(turns.residual > 1e3);
  CHECK(turns.form.starts_with("to_segment_frame_vjp of "));
  require_finds(x.adjoint(Linear{}, x.mixing<TransposedChain>()), "apply_to_queries_vjp");
  require_finds(x.adjoint(Linear{}, x.channels<KeysOfChannels>()), "to_segment_frame_vjp of keys");
  require_finds(x.adjoint(SymmetricPower<2>{}, x.gated<SeesLater>()), "to_segment_frame_vjp of queries");
}

TEST_CASE("the adjoint law finds wrong gradients of a transition's parameters", "[gradient]") {
  const Sequence x;
  require_finds(x.adjoint(SymmetricPower<2>{}, x.turning<OppositeAngles>()), "attention_vjp, the transition");
  require_finds(x.adjoint(SymmetricPower<2>{}, x.gated<GatesOfPairs>()), "attention_vjp, the transition");
}

TEST_CASE("equality of forms finds what one of them leaves out", "[gradient]") {
  const Sequence x;
  require_finds(x.forms(Linear{}, x.turning<NothingThrough>()), "chunked_vjp, the transition");
  require_finds(x.forms(Linear{}, x.mixing<ChainWithoutState>()), "chunked_vjp, the transition");
  require_finds(x.adjoint(Linear{}, x.mixing<ChainWithoutState>()), "chunked_vjp, the transition");
}

TEST_CASE("splitting finds a gradient that is right only where nothing came before", "[gradient]") {
  const Sequence x;
  require_holds(x.adjoint(SymmetricPower<2>{}, x.gated<FirstGateIsNone>()));
  require_holds(x.forms(SymmetricPower<2>{}, x.gated<FirstGateIsNone>()));
  require_finds(x.split(SymmetricPower<2>{}, x.gated<FirstGateIsNone>()), "two calls, the transition");
}

TEST_CASE("flagged rows find gradients that differ from call to call", "[gradient]") {
  Sequence x;
  for (const Index row : {4, 20}) x.x.Q.col(row).setZero();
  require_holds(x.flagged(Wavering{0}, x.gated()));
  const Residual found = x.flagged(Wavering{1}, x.gated());
  INFO(found);
  CHECK(found.residual >= d);
  CHECK(found.form.starts_with("attention_vjp, d"));
}
