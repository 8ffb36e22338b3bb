// Gradients of a layer are derivatives.
#include <sympow/layer/attention_layer_vjp.hpp>

#include "catch.hpp"
#include "distance.hpp"
#include "layers.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

// ∂f/∂t at 0 of f(t), by differences of two widths, and how far it may be off: what is left of their error after one
// step of Richardson's is below what the step took away, and values of f are off by some roundings of `size`.
struct Slope {
  double value, error;

  template <class Function>
  Slope(const Function& f, double size) {
    constexpr double h = 0x1p-14;
    const auto difference = [&](double width) { return (f(width) - f(-width)) / (2 * width); };
    const double wide = difference(h), narrow = difference(h / 2);
    value = narrow + (narrow - wide) / 3;
    error = std::abs(narrow - wide) / 3 + 0x1p10 * unit<double> * size / h;
  }
};

// Whether its attention has another form than the quadratic one.
template <class F, class R, class N>
constexpr bool has_states(const AttentionLayer<F, R, N>& layer) {
  using A = decltype(layer.recipe().transition(std::declval<HeadTokens<double>>()));
  return has_state_forms<F, A>;
}

}  // namespace

TEST_CASE("gradients of a layer are its derivatives", "[layer]") {
  with_layers([](const char* name, const auto& given) {
    for (const Form form : {Form::attention, Form::chunked}) {
      if (form == Form::chunked && !has_states(given)) continue;
      CAPTURE(name, static_cast<int>(form));
      const AttentionLayer layer(given.shape(), given.feature(), given.recipe(),
                                 {.normalizes_rows = given.normalizes_rows(),
                                  .attention = {.form = form, .threads = 1, .head = {.chunk = 7}}});
      RandomLayer x(layer);
      LayerPass<double> pass, other;
      const Eigen::MatrixXd Y = x.outputs(pass);
      const double size = Y.cwiseProduct(x.dY).cwiseAbs().sum();
      auto gradients = layer.template zeros<double>();
      Eigen::MatrixXd dX(x.X.rows(), x.X.cols());
      LayerVjpWorkspace<double> work;
      apply_vjp(x.layer, x.weights, x.X, sequences, pass, x.dY, gradients, dX, work);

      Random random(9);
      const auto along = [&](const char* what, auto&& of, const auto& gradient) {
        if (of.size() == 0) return;
        CAPTURE(what);
        const Eigen::MatrixXd before = of, direction = random.matrix(of.rows(), of.cols());
        const Slope slope(
            [&](double t) {
              of = before + t * direction;
              const double loss = x.outputs(other).cwiseProduct(x.dY).sum();
              of = before;
              return loss;
            },
            size);
        INFO("derivative " << slope.value << " ± " << slope.error << ", by the gradient "
                           << gradient.cwiseProduct(direction).sum());
        CHECK(slope.error < 1e-3 * (1e-3 + std::abs(slope.value)));
        CHECK(std::abs(gradient.cwiseProduct(direction).sum() - slope.value) <= slope.error);
      };
      std::vector<Eigen::MatrixXd> of_weights;
      layer.for_each(gradients, [&](const char*, const auto& g) { of_weights.emplace_back(g); });
      std::size_t n = 0;
      layer.for_each(x.weights, [&](const char* what, auto&& w) { along(what, w, of_weights[n++]); });
      along("X", x.X, dX);
    }
  });
}

TEST_CASE("gradients of a layer are made from a pass of its own", "[layer]") {
  const LayerShape shape{.d_model = d_model, .heads = 2, .d = 4, .e = 4};
  const RandomLayer x(AttentionLayer(shape, SymmetricPower<2>{}, Fixed(stationary())));
  const RandomLayer other(AttentionLayer(shape, Exponential{}, Fixed(stationary())));
  auto gradients = x.layer.zeros<double>();
  Eigen::MatrixXd dX(x.X.rows(), x.X.cols());
  LayerVjpWorkspace<double> work;
  LayerPass<double> pass;
  static_cast<void>(other.outputs(pass));
  REQUIRE_THROWS_AS(apply_vjp(x.layer, x.weights, x.X, sequences, pass, x.dY, gradients, dX, work), InvalidArgument);
  CHECK(gradients.in.isZero(0));
  static_cast<void>(x.outputs(pass));
  apply_vjp(x.layer, x.weights, x.X, sequences, pass, x.dY, gradients, dX, work);
  CHECK(!gradients.in.isZero(0));
}
