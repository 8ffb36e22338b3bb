// A layer goes on from a file with the bits that it would have gone on with.
#include "catch.hpp"
#include "layers.hpp"

#include <sympow/layer/layer_state_file.hpp>

#include <sstream>

using namespace sympow;
using namespace sympow::test;

namespace {

const LayerShape shape{.d_model = d_model, .heads = 4, .key_heads = 2, .d = 4, .e = 6};

// f(name, layer) of one with sums, one whose states have products of reflections, and one without states.
template <class Function>
void with_kinds(const Function& f) {
  const Eigen::VectorXd theta = rotary_frequencies<double>(shape.d, 40);
  f("conformal-sympow",
    AttentionLayer(shape, SymmetricPower<2>{}, ForgetGate(1) * LearnedRotary(theta, Pairing::interleaved)));
  f("Gated DeltaNet", AttentionLayer(shape, Linear{}, ForgetGate(1) * DeltaRule{}, {.normalizes_rows = true}));
  f("FoX", AttentionLayer(shape, Exponential{}, LearnedRotary(theta, Pairing::interleaved) * ForgetGate(0)));
}

template <class Layer>
Eigen::MatrixXd next(const RandomLayer<Layer>& x, LayerState<double, Layer>& state, Index n) {
  LayerPass<double> pass;
  Eigen::MatrixXd X(d_model, sequences * n), Y(d_model, sequences * n);
  for (Index b = 0; b < sequences; ++b) X.middleCols(b * n, n) = x.X.middleCols(b * tokens + state.tokens(), n);
  step(x.layer, x.weights, X, state, pass, Y);
  return Y;
}

template <class State>
std::string file_of(const State& state) {
  std::ostringstream out;
  save(state, out);
  return out.str();
}
template <class State>
void read(State& state, const std::string& file) {
  std::istringstream in(file);
  load(state, in);
}

}  // namespace

TEST_CASE("a layer goes on from a file, with the same bits", "[layer]") {
  with_kinds([](const char* name, const auto& layer) {
    CAPTURE(name);
    using Layer = std::remove_cvref_t<decltype(layer)>;
    const RandomLayer<Layer> x(layer);
    for (const Index before : {0, 1, 9}) {
      CAPTURE(before);
      LayerState<double, Layer> state(layer, sequences), loaded(layer, sequences);
      (void)next(x, state, before);
      (void)next(x, loaded, 3);  // what is loaded takes the place of what was there
      std::istringstream in(file_of(state) + "the rest");
      load(loaded, in);
      CHECK(loaded.tokens() == before);
      CHECK(file_of(loaded) == file_of(state));
      for (const Index n : {1, 7}) CHECK(next(x, loaded, n) == next(x, state, n));
      std::string rest;
      std::getline(in, rest);
      CHECK(rest == "the rest");  // several layers fit into one file
    }
  });
}

TEST_CASE("the file of a layer that is cut, damaged or another's leaves its state as it was", "[layer]") {
  with_kinds([](const char* name, const auto& layer) {
    CAPTURE(name);
    using Layer = std::remove_cvref_t<decltype(layer)>;
    const RandomLayer<Layer> x(layer);
    LayerState<double, Layer> state(layer, sequences), of_other(layer, sequences);
    (void)next(x, state, 2);
    (void)next(x, of_other, 5);
    const std::string file = file_of(state), before = file_of(of_other);
    const auto refuses = [&](const std::string& bytes) {
      CHECK_THROWS_AS(read(of_other, bytes), InvalidStateFile);
      CHECK(file_of(of_other) == before);
    };
    for (std::size_t n = 0; n < file.size(); n += n < 100 ? 1 : 37) {
      CAPTURE(n);
      refuses(file.substr(0, n));
      for (const int bit : {0, 3, 7}) {
        std::string bytes = file;
        bytes[n] = static_cast<char>(bytes[n] ^ (1 << bit));
        refuses(bytes);
      }
    }
    const LayerState<double, Layer> one(layer);
    CHECK_THROWS_WITH(read(of_other, file_of(one)), contains("number of sequences is 1, must be 2"));
    const LayerState<float, Layer> narrow(layer, sequences);
    CHECK_THROWS_WITH(read(of_other, file_of(narrow)), contains("bytes of a scalar is 4, must be 8"));
    with_kinds([&](const char* other_name, const auto& other) {
      using Other = std::remove_cvref_t<decltype(other)>;
      const LayerState<double, Other> others(other, sequences);
      if constexpr (!std::same_as<Layer, Other>) {
        CAPTURE(other_name);
        refuses(file_of(others));
      }
    });
    CHECK_NOTHROW(read(of_other, file));
    CHECK(of_other.tokens() == 2);
  });
}
