// The model's gradient, its memory and its training.
#include "catch.hpp"
#include "distance.hpp"
#include "optimizer.hpp"

using namespace language_model;
using sympow::test::unit;

namespace {

const std::vector<const char*> settings = {"softmax", "sympow", "gated",    "conformal",
                                           "gla",     "mamba2", "deltanet", "path_fox"};

Config small(const std::string& setting) {
  return {.setting = setting, .layers = 2, .d_model = 12, .heads = 2, .key_heads = 2, .d = 6, .gate_bias = 2};
}

std::vector<std::uint8_t> text_of(std::size_t size, std::uint64_t seed) {
  sympow::Random random(seed);
  std::vector<std::uint8_t> text(size);
  for (auto& byte : text) byte = static_cast<std::uint8_t>(random.integer(97, 110));
  return text;
}

}  // namespace

TEST_CASE("the gradient of the model is its derivative, in every setting", "[language_model]") {
  for (const char* setting : settings)
    for (const bool tied : {false, true}) {
      CAPTURE(setting, tied);
      Config config = small(setting);
      config.tied = tied;
      const Model<double> model(config);
      Weights<double> w = model.initial(3);
      sympow::Random random(5);
      for (auto& [name, x] : w.all()) x += .2 * random.matrix(x.rows(), x.cols());  // far from where nothing has begun
      const auto text = text_of(24, 7);
      Pass<double> pass;
      Weights<double> gradients = w.zeros();
      const double loss = model.train(w, text, .5, gradients, pass);
      CHECK(loss == model.evaluate(w, text, pass));
      const auto of_weights = gradients.all();
      std::size_t n = 0;
      for (auto& [name, numbers] : w.all()) {
        Batch<double>& x = numbers;
        const Eigen::MatrixXd before = x, direction = random.matrix(x.rows(), x.cols());
        // Central differences of two widths: one step of Richardson's takes more away than it leaves.
        constexpr double h = 0x1p-15;
        const auto difference = [&](double width) {
          x = before + width * direction;
          const double up = model.evaluate(w, text, pass);
          x = before - width * direction;
          const double down = model.evaluate(w, text, pass);
          x = before;
          return .5 * (up - down) / (2 * width);
        };
        const double wide = difference(h), narrow = difference(h / 2), slope = narrow + (narrow - wide) / 3;
        const double error = std::abs(narrow - wide) / 3 + 0x1p10 * unit<double> * loss / h;
        const double found = of_weights[n++].numbers.cwiseProduct(direction).sum();
        INFO(name << ": derivative " << slope << " ± " << error << ", by the gradient " << found);
        CHECK(error < 1e-3 * (1e-3 + std::abs(slope)));
        CHECK(std::abs(found - slope) <= error);
      }
    }
}

TEST_CASE("a model reads a text in pieces as it reads it at once", "[language_model]") {
  for (const char* setting : settings) {
    CAPTURE(setting);
    const Model<double> model(small(setting));
    Weights<double> w = model.initial(3);
    sympow::Random random(5);
    for (auto& [name, x] : w.all()) x += .2 * random.matrix(x.rows(), x.cols());
    const auto text = text_of(40, 7);
    Pass<double> pass;
    auto at_once = model.memory(), in_pieces = model.memory();
    const Eigen::MatrixXd whole = model.read(w, text, at_once, pass);
    // Heads are compared by the row rule in tests/layer. Here a wrong memory would change all digits, rounding few of
    // them: less than half.
    const double allowed = std::sqrt(unit<double>) * whole.cwiseAbs().maxCoeff();
    for (std::size_t from = 0, n = 1; from < text.size(); from += n, n = n % 7 + 1) {
      n = std::min(n, text.size() - from);
      const Eigen::MatrixXd part = model.read(w, std::span(text).subspan(from, n), in_pieces, pass);
      const double distance =
          (part - whole.middleCols(static_cast<Index>(from), static_cast<Index>(n))).cwiseAbs().maxCoeff();
      CHECK(distance <= allowed);
    }
  }
}

TEST_CASE("training is the same bit for bit for any number of threads, and the loss falls", "[language_model]") {
  Config config = small("conformal");
  const Model<float> model(config);
  const auto text = text_of(400, 8);
  const auto weights_after = [&](int threads, double& first, double& last) {
    Training<float> training(model, {.rate = 1e-2}, 1);
    for (Index step = 0; step < 25; ++step) {
      std::vector<std::span<const std::uint8_t>> texts;
      for (std::size_t n = 0; n < 11; ++n) texts.push_back(std::span(text).subspan(n * 20, 31));
      const auto report = training.step(texts, threads);
      (step == 0 ? first : last) = report.loss;
    }
    std::vector<Eigen::MatrixXf> all;
    for (const auto& [name, x] : training.all()) all.emplace_back(x);
    return all;
  };
  double first = 0, last = 0;
  const auto of_one = weights_after(1, first, last);
  CHECK(last < .6 * first);
  CHECK(of_one == weights_after(3, first, last));
}

TEST_CASE("a loss that is no number is not learned from", "[language_model]") {
  const Model<float> model(small("softmax"));
  Training<float> training(model, {}, 1);
  const auto text = text_of(20, 8);
  const auto embedding = [&](float value) {
    for (auto& [name, x] : training.all())
      if (name == "embedding") x(0, text[3]) = value;
  };
  embedding(std::numeric_limits<float>::infinity());
  CHECK_THROWS_AS(training.step({text}, 1), sympow::NotFinite);
  CHECK(training.steps() == 0);
  embedding(0);
  CHECK(std::isfinite(training.step({text}, 1).loss));
  CHECK(training.steps() == 1);
}
