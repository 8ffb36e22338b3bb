// A layer without its types does what it does with them.
#include "catch.hpp"
#include "layers.hpp"

#include <sympow/layer/any_layer.hpp>

#include <sstream>

using namespace sympow;
using namespace sympow::test;

namespace {

const LayerShape shape{.d_model = d_model, .heads = 4, .key_heads = 2, .d = 4, .e = 6};
const Eigen::VectorXd theta = rotary_frequencies<double>(shape.d, 40);

// f(layer, the same without its types) of one with states, and one without.
template <class Function>
void with_both(const Function& f) {
  const AttentionLayer conformal(shape, SymmetricPower<2>{},
                                 ForgetGate(1) * LearnedRotary(theta, Pairing::interleaved));
  const AttentionLayer fox(shape, Exponential{}, LearnedRotary(theta, Pairing::interleaved) * ForgetGate(0));
  AnyLayer<double> any = fox;
  f(fox, any);
  any = conformal;
  f(conformal, any);
}

bool same(const LayerWeights<double>& v, const LayerWeights<double>& w) {
  return v.in == w.in && v.out == w.out && v.recipe == w.recipe;
}

}  // namespace

TEST_CASE("any layer gives the bits of the layer that it was made of", "[layer]") {
  with_both([](const auto& layer, const AnyLayer<double>& any) {
    using Layer = std::remove_cvref_t<decltype(layer)>;
    const RandomLayer<Layer> x(layer);
    CHECK(any.size() == layer.size());
    Random random(3), again(3);
    CHECK(same(any.initial([&] { return random.normal(); }, .1, .2),
               layer.template initial<double>([&] { return again.normal(); }, .1, .2)));

    LayerPass<double> pass, of_any;
    const Eigen::MatrixXd Y = x.outputs(pass);
    Eigen::MatrixXd Z(Y.rows(), Y.cols()), dX = Z, dX_of_any = Z;
    apply(any, x.weights, x.X, sequences, of_any, Z);
    CHECK(Z == Y);
    LayerWeights<double> g = layer.template zeros<double>(), g_of_any = any.template zeros<double>();
    LayerVjpWorkspace<double> work;
    apply_vjp(layer, x.weights, x.X, sequences, pass, x.dY, g, dX, work);
    apply_vjp(any, x.weights, x.X, sequences, of_any, x.dY, g_of_any, dX_of_any, work);
    CHECK(dX == dX_of_any);
    CHECK(same(g, g_of_any));

    LayerState<double, Layer> state(layer);
    AnyLayerState<double> state_of_any(any), copy = state_of_any;
    const auto agree = [&](AnyLayerState<double>& of_any_layer, Index n) {
      const Eigen::MatrixXd X = x.X.middleCols(state.tokens(), n);
      Eigen::MatrixXd y(d_model, n), z = y;
      step(layer, x.weights, X, state, pass, y);
      step(any, x.weights, X, of_any_layer, of_any, z);
      return y == z && state.tokens() == of_any_layer.tokens();
    };
    CHECK(agree(state_of_any, 5));
    CHECK(copy.tokens() == 0);  // copies are values
    std::stringstream file, of_layer;
    save(state_of_any, file);
    save(state, of_layer);
    CHECK(file.str() == of_layer.str());
    load(copy, file);
    CHECK(agree(copy, 3));
  });
}

TEST_CASE("any layer refuses the state of another one", "[layer]") {
  const AnyLayer<double> fox = AttentionLayer(shape, Exponential{},
                                              LearnedRotary(theta, Pairing::interleaved) * ForgetGate(0)),
                         sympow = AttentionLayer(shape, SymmetricPower<2>{},
                                                 ForgetGate(1) * LearnedRotary(theta, Pairing::interleaved));
  AnyLayerState<double> state(fox);
  LayerPass<double> pass;
  Eigen::MatrixXd Y(d_model, 2);
  CHECK_THROWS_WITH(step(sympow, sympow.zeros<double>(), Eigen::MatrixXd::Zero(d_model, 2), state, pass, Y),
                    contains("the state is that of another layer"));
  CHECK(state.tokens() == 0);
  std::stringstream file;
  save(state, file);
  AnyLayerState<double> other(sympow);
  CHECK_THROWS_AS(load(other, file), InvalidStateFile);
}
