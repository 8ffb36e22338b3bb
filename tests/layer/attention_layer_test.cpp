// A layer is projections around a call, however its tokens come.
#include "catch.hpp"
#include "distance.hpp"
#include "layers.hpp"

#include <sympow/verify/direct.hpp>
#include <sympow/verify/row_rule.hpp>

using namespace sympow;
using namespace sympow::test;

namespace {

// Numbers of few bits, so that sums of their products are exact in any order.
Eigen::MatrixXd few_bits(Random& random, Index rows, Index columns) {
  Eigen::MatrixXd x(rows, columns);
  for (double& entry : x.reshaped()) entry = static_cast<double>(random.integer(-8, 8)) / 16;
  return x;
}

// Every head of a layer by itself, as the formula says: f(b, h, A, q, k, v, y).
template <class Layer, class Scalar, class Function>
void with_heads(const RandomLayer<Layer, Scalar>& x, const LayerPass<Scalar>& pass, const Function& f) {
  const LayerShape& n = x.layer.shape();
  const auto columns = sympow::detail::columns_of<const Scalar>(pass.projected, sequences);
  const sympow::detail::LayerHeads<const Scalar> heads(x.layer, columns, x.layer.first_key());
  for (Index b = 0; b < sequences; ++b)
    for (Index h = 0; h < n.heads; ++h) {
      const Index g = h / (n.heads / n.key_heads);
      const HeadTokens<Scalar> of_head = heads.tokens(x.weights, b, g);
      Matrix<Scalar> K = of_head.keys, V = of_head.values;
      if constexpr (Layer::writes) {
        const auto written = sympow::detail::written_heads<const Scalar>(x.layer, pass.written, sequences);
        K = written.first.head(b, g), V = written.second.head(b, g);
      }
      f(x.layer.recipe().transition(of_head), Matrix<Scalar>(columns.heads(0, n.heads, n.d).head(b, h)), K, V,
        Matrix<Scalar>(pass.rows.block(h * n.e, b * tokens, n.e, tokens)), b, h);
    }
}

}  // namespace

TEST_CASE("a layer is the call of every head between two projections", "[layer]") {
  const Eigen::VectorXd theta = rotary_frequencies<double>(4, 40);
  const AttentionLayer layer(LayerShape{.d_model = d_model, .heads = 4, .key_heads = 2, .d = 4, .e = 6},
                             SymmetricPower<2>{}, ForgetGate(1) * LearnedRotary(theta, Pairing::interleaved),
                             {.attention = {.form = Form::attention}});
  RandomLayer x(layer);
  Random random(4);
  layer.for_each(x.weights, [&](const char*, auto&& w) { w = few_bits(random, w.rows(), w.cols()); });
  x.X = few_bits(random, d_model, sequences * tokens);
  LayerPass<double> pass;
  const Eigen::MatrixXd Y = x.outputs(pass);

  std::vector<Eigen::MatrixXd> W;
  layer.for_each(x.weights, [&](const char*, const auto& w) { W.emplace_back(w); });
  Eigen::MatrixXd expected = Eigen::MatrixXd::Zero(Y.rows(), Y.cols()), size = expected;
  for (Index b = 0; b < sequences; ++b)
    for (Index h = 0; h < 4; ++h) {
      const auto tokens_of = [&](const Eigen::MatrixXd& w, Index first, Index rows) {
        return Eigen::MatrixXd(w.middleRows(first, rows) * x.X.middleCols(b * tokens, tokens));
      };
      const Index g = h / 2;
      const Eigen::MatrixXd z = tokens_of(W[3], 2 * g, 2);
      const double bias = x.weights.recipe(0, g);
      Eigen::VectorXd log_gamma(tokens), beta(tokens);
      for (Index t = 0; t < tokens; ++t) {
        log_gamma[t] = -std::log1p(std::exp(-(z(0, t) + bias)));
        beta[t] = 1 + std::tanh(z(1, t));
      }
      const Eigen::MatrixXd rows =
          attention(SymmetricPower<2>{}, decay(log_gamma) * rotary(theta, beta, Pairing::interleaved),
                    tokens_of(W[0], 4 * h, 4), tokens_of(W[1], 4 * g, 4), tokens_of(W[2], 6 * g, 6), {.scale = .5});
      // A log gate may be off by 4 roundings, a weight by those of all tokens, and a mean by twice as much of a value.
      const double weight = 4 * tokens * unit<double>;
      CHECK(distance(pass.rows.block(6 * h, b * tokens, 6, tokens), rows) <=
            2 * weight * tokens_of(W[2], 6 * g, 6).cwiseAbs().maxCoeff());
      const auto block = [&](Eigen::MatrixXd& of) { return of.middleCols(b * tokens, tokens); };
      block(expected) += W[4].middleCols(6 * h, 6) * pass.rows.block(6 * h, b * tokens, 6, tokens);
      block(size) += W[4].middleCols(6 * h, 6).cwiseAbs() * pass.rows.block(6 * h, b * tokens, 6, tokens).cwiseAbs();
    }
  CHECK(((Y - expected).cwiseAbs().array() <= 2 * 25 * unit<double> * size.array()).all());
}

TEST_CASE("heads of a layer are what its options say, by the row rule", "[layer]") {
  with_layers([](const char* name, const auto& layer) {
    CAPTURE(name);
    using Layer = std::remove_cvref_t<decltype(layer)>;
    using F = typename Layer::Feature;
    RandomLayer<Layer> x(layer);
    LayerPass<double> pass;
    (void)x.outputs(pass);
    with_heads(x, pass,
               [&](const auto& A, const auto& Q, const auto& K, const auto& V, Eigen::MatrixXd rows, Index b, Index h) {
                 CAPTURE(b, h);
                 const Options options{.scale = layer.batch_options().head.scale};
                 CHECK(options.scale == 1 / std::sqrt(4.));
                 Eigen::MatrixXd alone = attention(F{}, A, Q, K, V, options);
                 if (layer.normalizes_rows())
                   for (Index t = 0; t < tokens; ++t) {
                     const double length = std::sqrt(alone.col(t).squaredNorm() / 6 + 1e-5);
                     CHECK(pass.lengths(h, b * tokens + t) == Approx(length).epsilon(1e-9));
                     rows.col(t) *= pass.lengths(h, b * tokens + t);
                   }
                 CHECK(verify::row_rule<DefaultNormalization, F>(verify::direct_attention(F{}, A, Q, K, V, options),
                                                                 rows, alone, unit<double>, 64) <= 1);
               });
  });
}

TEST_CASE("a layer goes on from its state, by one token or many", "[layer]") {
  with_layers([](const char* name, const auto& layer) {
    CAPTURE(name);
    using Layer = std::remove_cvref_t<decltype(layer)>;
    using F = typename Layer::Feature;
    RandomLayer<Layer> x(layer);
    LayerPass<double> pass, of_step;
    (void)x.outputs(pass);
    LayerState<double, Layer> state(layer, sequences);
    Eigen::MatrixXd rows(pass.rows.rows(), pass.rows.cols());
    for (const Index n : {1, 1, 7, 0, 3, 1, 6}) {
      Eigen::MatrixXd X(d_model, sequences * n), Y(d_model, sequences * n);
      for (Index b = 0; b < sequences; ++b) X.middleCols(b * n, n) = x.X.middleCols(b * tokens + state.tokens(), n);
      const Index before = state.tokens();
      step(layer, x.weights, X, state, of_step, Y);
      CHECK(state.tokens() == before + n);
      CHECK(Y == x.weights.out * of_step.rows);
      if (layer.normalizes_rows())
        for (Index t = 0; t < X.cols(); ++t)
          of_step.rows.col(t).reshaped(6, 4).array().rowwise() *= of_step.lengths.col(t).transpose().array();
      for (Index b = 0; b < sequences; ++b) rows.middleCols(b * tokens + before, n) = of_step.rows.middleCols(b * n, n);
    }
    REQUIRE(state.tokens() == tokens);
    with_heads(
        x, pass,
        [&](const auto& A, const auto& Q, const auto& K, const auto& V, Eigen::MatrixXd whole, Index b, Index h) {
          CAPTURE(b, h);
          if (layer.normalizes_rows())
            whole.array().rowwise() *= pass.lengths.row(h).segment(b * tokens, tokens).array();
          CHECK(verify::row_rule<DefaultNormalization, F>(
                    verify::direct_attention(F{}, A, Q, K, V, {.scale = layer.batch_options().head.scale}),
                    rows.block(h * 6, b * tokens, 6, tokens), whole, unit<double>) <= 1);
        });
  });
}

TEST_CASE("what a layer refuses", "[layer]") {
  const LayerShape shape{.d_model = 6, .heads = 4, .key_heads = 2, .d = 4, .e = 3};
  const auto says = [](const auto& call, const std::string& words) {
    CHECK_THROWS_MATCHES(call(), ShapeMismatch, Catch::Predicate<ShapeMismatch>([&](const ShapeMismatch& error) {
                           return std::string(error.what()).find(words) != std::string::npos;
                         }));
  };
  const auto make = [&](LayerShape of) { return AttentionLayer(of, Linear{}, ForgetGate{}); };
  LayerShape wrong = shape;
  wrong.key_heads = 3;
  says([&] { (void)make(wrong); }, "key_heads is 3, must divide heads, which is 4");
  wrong = shape, wrong.d = 0;
  says([&] { (void)make(wrong); }, "d is 0");
  says([] { (void)Fixed(decay(Eigen::VectorXd::Zero(5))); }, "for 5 tokens");
  CHECK_THROWS_AS(ChannelGate(0), InvalidArgument);
  CHECK_THROWS_AS(ChannelGate(std::nan("")), InvalidArgument);

  const auto layer = make(shape);
  const auto weights = layer.zeros<float>();
  const Eigen::MatrixXf X = Eigen::MatrixXf::Zero(6, 8);
  Eigen::MatrixXf Y(6, 8);
  LayerPass<float> pass;
  const auto applied = [&](const LayerWeights<float>& w, const Eigen::MatrixXf& x, Index of, Eigen::MatrixXf& y) {
    return [&, of] { apply(layer, w, x, of, pass, y); };
  };
  Eigen::MatrixXf narrow(6, 7);
  says(applied(weights, Eigen::MatrixXf::Zero(5, 8), 2, Y), "rows of X");
  says(applied(weights, X, 3, Y), "columns of X are 8, must be a multiple of the 3 sequences");
  says(applied(weights, X, 0, Y), "sequences is 0");
  says(applied(weights, X, 2, narrow), "columns of Y");
  LayerWeights<float> other = weights;
  other.recipe.resize(0, 2);
  says(applied(other, X, 2, Y), "recipe is 0 × 2, must be 1 × 2");
  CHECK_NOTHROW(applied(weights, X, 2, Y)());

  const AttentionLayer of_two(shape, Linear{}, Fixed(std::vector{constant_decay(.5)}));
  CHECK_NOTHROW(apply(of_two, of_two.zeros<float>(), X, 2, pass, Y));  // one serves all heads
  const LayerShape four{.d_model = 6, .heads = 4, .d = 4, .e = 3};
  const AttentionLayer too_few(four, Linear{}, Fixed(std::vector{constant_decay(.5), constant_decay(.6)}));
  says([&] { apply(too_few, too_few.zeros<float>(), X, 2, pass, Y); }, "there are 2 transitions, none for key head 2");
}

TEST_CASE("a gate adds a weight a number of the token and a bias, a rotation rate the weights alone", "[layer]") {
  const LayerShape shape{.d_model = 768, .heads = 12, .d = 64, .e = 64};
  const Eigen::VectorXd theta = rotary_frequencies<double>(64, 65536);
  const auto count = [&](const auto& recipe) { return AttentionLayer(shape, SymmetricPower<2>{}, recipe).size(); };
  const Index plain = count(Fixed(rotary(theta, Pairing::interleaved)));
  CHECK(plain == 4 * 768 * 768);
  CHECK(count(ForgetGate{} * Fixed(rotary(theta, Pairing::interleaved))) == plain + 12 * (768 + 1));
  CHECK(count(ForgetGate{} * LearnedRotary(theta, Pairing::interleaved)) == plain + 12 * (2 * 768 + 1));
}
