// Gradients of batches are those of their heads.
#include "batches.hpp"
#include "catch.hpp"
#include "problem.hpp"

using namespace sympow;
using namespace sympow::test;

namespace {

using Feature = SymmetricPower<2>;
constexpr Index H = 4, groups = 2, d = RandomBatch<double>::d, e = RandomBatch<double>::e;

// A batch, a gradient of its rows, and room for its gradients, full of numbers.
struct Backward {
  RandomBatch<double> batch;
  BatchData<double> dY, dQ, dK, dV;
  VjpWorkspaces<double> workspaces = {};

  Backward(Order order, const std::vector<Index>& lengths)
      : batch(order, lengths, H, groups, 5),
        dY(order, lengths, H, e, 0),
        dQ(order, lengths, H, d, 7),
        dK(order, lengths, groups, d, 7),
        dV(order, lengths, groups, e, 7) {
    Random random(8);
    for (double& x : dY.data) x = random.normal();
  }

  [[nodiscard]] Index B() const { return std::ssize(batch.lengths); }
  [[nodiscard]] auto transition(Index b, Index h) const {
    const auto n = static_cast<std::size_t>(b * H + h);
    return decay(batch.log_gamma[n]) * rotary(batch.theta, batch.beta[n], Pairing::interleaved);
  }
  [[nodiscard]] auto transitions() const {
    return [this](Index b, Index h) { return transition(b, h); };
  }
  // One for a group, as a state needs that its query heads share.
  [[nodiscard]] auto of_groups() const {
    return [this](Index b, Index g) { return transition(b, g * (H / groups)); };
  }
  auto run(const BatchOptions& options, OptionalRef<const Tapes<double, Feature>> tapes = {}) {
    return attend_vjp<Normalized>(Feature{}, transitions(),
                                  {.Q = batch.Q.heads(),
                                   .K = batch.K.heads(),
                                   .V = batch.V.heads(),
                                   .dY = dY.heads(),
                                   .tapes = tapes,
                                   .dQ = dQ.heads(),
                                   .dK = dK.heads(),
                                   .dV = dV.heads(),
                                   .workspaces = workspaces,
                                   .options = options});
  }
  // The rows, leaving the forward pass.
  std::vector<double> forward(Tapes<double, Feature>& tapes, const BatchOptions& options) {
    batch.attend<Normalized>(Feature{}, transitions(), options, {}, tapes);
    return batch.Y.data;
  }
  template <class States, class Adjoints>
  auto run(const States& states, Adjoints& adjoints, const BatchOptions& options, bool grouped) {
    const auto call = [&](const auto& given) {
      return attend_vjp<Normalized>(Feature{}, given,
                                    {.Q = batch.Q.heads(),
                                     .K = batch.K.heads(),
                                     .V = batch.V.heads(),
                                     .dY = dY.heads(),
                                     .states = states,
                                     .d_states = adjoints,
                                     .dQ = dQ.heads(),
                                     .dK = dK.heads(),
                                     .dV = dV.heads(),
                                     .workspaces = workspaces,
                                     .options = options});
    };
    return grouped ? call(std::function(of_groups())) : call(std::function(transitions()));
  }
};

const std::vector<Index> lengths = {30, 17, 0, 1};

// What two calls of a batch have made.
template <class Gradients>
void check_same_bits(const Backward& x, const Gradients& found, const Backward& y, const Gradients& expected) {
  CHECK(x.dQ.data == y.dQ.data);
  CHECK(x.dK.data == y.dK.data);
  CHECK(x.dV.data == y.dV.data);
  CHECK(found.scale == expected.scale);
  REQUIRE(found.transitions.size() == expected.transitions.size());
  for (std::size_t n = 0; n < found.transitions.size(); ++n) {
    CHECK(found.transitions[n].template of<Decay>().log_gamma ==
          expected.transitions[n].template of<Decay>().log_gamma);
    CHECK(found.transitions[n].template of<Rotary>().theta == expected.transitions[n].template of<Rotary>().theta);
    CHECK(found.transitions[n].template of<Rotary>().beta == expected.transitions[n].template of<Rotary>().beta);
  }
}

}  // namespace

TEST_CASE("gradients of a batch are those of its heads, added up in order over a group", "[gradient]") {
  for (const Order order : {Order::bthd, Order::bhtd, Order::packed})
    for (const Form form : {Form::attention, Form::chunked}) {
      CAPTURE(static_cast<int>(order), static_cast<int>(form));
      Backward x(order, lengths);
      const BatchOptions options{.form = form, .threads = 1, .head = {.scale = .7, .chunk = 8}};
      const auto gradients = x.run(options);
      REQUIRE(std::ssize(gradients.transitions) == x.B() * H);
      double scale = 0;
      for (Index b = 0; b < x.B(); ++b)
        for (Index g = 0; g < groups; ++g) {
          const auto K = x.batch.K.heads().head(b, g), V = x.batch.V.heads().head(b, g);
          Eigen::MatrixXd dK = Eigen::MatrixXd::Zero(d, K.cols()), dV = Eigen::MatrixXd::Zero(e, K.cols());
          for (Index h = g * 2; h < g * 2 + 2; ++h) {
            const auto Q = x.batch.Q.heads().head(b, h), dY = x.dY.heads().head(b, h);
            const auto A = x.transition(b, h);
            const auto one = form == Form::attention
                                 ? attention_vjp<Normalized>(
                                       Feature{}, A, {.Q = Q, .K = K, .V = V, .dY = dY, .options = options.head})
                                 : chunked_vjp<Normalized>(Feature{}, A,
                                                           {.Q = Q, .K = K, .V = V, .dY = dY, .options = options.head});
            const auto& found = gradients.transitions[static_cast<std::size_t>(b * H + h)];
            CHECK(x.dQ.heads().head(b, h) == one.Q);
            CHECK(found.template of<Decay>().log_gamma == one.template of<Decay>().log_gamma);
            CHECK(found.template of<Rotary>().theta == one.template of<Rotary>().theta);
            CHECK(found.template of<Rotary>().beta == one.template of<Rotary>().beta);
            CHECK(x.dQ.heads().padding(b, h).isZero(0));
            dK += one.K, dV += one.V, scale += one.scale;
          }
          // The second head's are added chunk by chunk to the first's: two roundings an entry, of one size.
          const auto near = [](const auto& a, const auto& y) {
            return (a - y).size() == 0 || (a - y).cwiseAbs().maxCoeff() <= 16 * 0x1p-53 * y.cwiseAbs().maxCoeff();
          };
          CHECK(near(x.dK.heads().head(b, g), dK));
          CHECK(near(x.dV.heads().head(b, g), dV));
          CHECK(x.dK.heads().padding(b, g).isZero(0));
          CHECK(x.dV.heads().padding(b, g).isZero(0));
        }
      CHECK(gradients.scale == scale);
    }
}

TEST_CASE("gradients of a batch have the same bits for any number of threads", "[gradient]") {
  for (const Form form : {Form::attention, Form::chunked}) {
    Backward one(Order::bthd, lengths);
    const auto expected = one.run({.form = form, .threads = 1, .head = {.chunk = 8}});
    for (const int threads : {2, 4}) {
      Backward many(Order::bthd, lengths);
      const auto found = many.run({.form = form, .threads = threads, .head = {.chunk = 8}});
      check_same_bits(many, found, one, expected);
    }
  }
}

TEST_CASE("gradients of a batch from what its forward pass has left have the same bits", "[gradient]") {
  Tapes<double, Feature> tapes;  // used again and again
  const std::vector<Index> longer = {90, 50, 0, 1};
  for (const Order order : {Order::bthd, Order::packed})
    for (const Form form : {Form::attention, Form::chunked, Form::recurrent, Form::automatic}) {
      CAPTURE(static_cast<int>(order), static_cast<int>(form));
      const BatchOptions options{.form = form, .threads = 2, .head = {.scale = .7, .chunk = 40}};  // longer than a tail
      Backward x(order, longer), with_tapes(order, longer);
      const auto rows = x.forward(tapes, options);
      REQUIRE(std::ssize(tapes) == x.B() * H);
      x.batch.attend<Normalized>(Feature{}, x.transitions(), options);
      CHECK(x.batch.Y.data == rows);
      const auto expected = x.run(options), found = with_tapes.run(options, tapes);
      check_same_bits(with_tapes, found, x, expected);
    }
}

TEST_CASE("gradients of a batch take from a forward pass only what their form needs", "[gradient]") {
  // What another batch has left in each form shows whether it is read: by its own form it must be, by others not.
  for (const Form left : {Form::attention, Form::chunked, Form::recurrent})
    for (const Form form : {Form::attention, Form::chunked}) {
      CAPTURE(static_cast<int>(left), static_cast<int>(form));
      Backward x(Order::bthd, lengths), other(Order::bthd, lengths), with_tapes(Order::bthd, lengths);
      for (double& v : other.batch.V.data) v *= 2;
      Tapes<double, Feature> tapes;
      static_cast<void>(other.forward(tapes, {.form = left, .threads = 1, .head = {.chunk = 8}}));
      const BatchOptions options{.form = form, .threads = 1, .head = {.chunk = 8}};
      x.run(options), with_tapes.run(options, tapes);
      CHECK((with_tapes.dQ.data == x.dQ.data) == (left != form));
    }
}

TEST_CASE("a forward pass of another batch is refused", "[gradient]") {
  Backward x(Order::bthd, {30, 17}), fewer(Order::bthd, {30}), shorter(Order::bthd, {30, 16});
  Tapes<double, Feature> tapes;
  const auto refuses = [&](Form form, Backward& of, const BatchOptions& options, const std::string& text) {
    CAPTURE(text);
    static_cast<void>(of.forward(tapes, {.form = form, .threads = 1}));
    const auto before = x.dQ.data;
    REQUIRE_THROWS_WITH(x.run(options, tapes), contains(text));
    CHECK(x.dQ.data == before);
  };
  REQUIRE_THROWS_WITH(x.run({}, tapes), contains("number of tapes is 0, must be 8"));
  for (const Form form : {Form::attention, Form::chunked}) {
    refuses(form, fewer, {.form = form}, "number of tapes is 4, must be 8");
    refuses(form, shorter, {.form = form}, "sequence 1, head 0: ");
  }
  refuses(Form::attention, x, {.form = Form::attention, .head = {.scale = 2}}, "the options have 2");
}

TEST_CASE("gradients of the states of a batch, one a query head or one a key head", "[gradient]") {
  for (const bool grouped : {false, true}) {
    CAPTURE(grouped);
    Backward x(Order::bthd, {30, 17});
    const Index count = x.B() * (grouped ? groups : H), shared = grouped ? H / groups : 1;
    Random random(9);
    std::vector<State<double, Feature>> states;
    std::vector<StateGradient<double, Feature>> adjoints;
    const Eigen::VectorXd log_gamma = Eigen::VectorXd::Constant(9, -.1);
    for (Index n = 0; n < count; ++n) {
      states.emplace_back(d, e);
      static_cast<void>(chunked(Feature{}, decay(log_gamma) * rotary(x.batch.theta, Pairing::interleaved),
                                random.matrix(d, 9), random.matrix(d, 9), random.matrix(e, 9), states.back()));
      adjoints.emplace_back(Feature{}, d, random.matrix(e, 10), random.vector(10));
    }
    const auto final_adjoints = adjoints;
    const BatchOptions options{.threads = 1, .head = {.chunk = 8}};
    const auto gradients = x.run(states, adjoints, options, grouped);
    REQUIRE(std::ssize(gradients.transitions) == count);
    for (Index b = 0; b < x.B(); ++b)
      for (Index h = 0; h < H; ++h) {
        if (h % shared != 0) continue;
        const Index g = h / (H / groups);
        const auto n = static_cast<std::size_t>((b * H + h) / shared);
        Eigen::MatrixXd dS = Eigen::MatrixXd::Zero(e, 10);
        Eigen::VectorXd d_frame = Eigen::VectorXd::Zero(d / 2), d_log_gamma = 0 * x.batch.log_gamma[0];
        d_log_gamma = Eigen::VectorXd::Zero(x.batch.lengths[static_cast<std::size_t>(b)]);
        for (Index k = h; k < h + shared;
             ++k) {  // the last state is that of the first head, so its loss is counted once
          StateGradient<double, Feature> adjoint(Feature{}, d, e);
          if (k == h) adjoint = final_adjoints[n];
          const auto one = chunked_vjp<Normalized>(Feature{}, x.transition(b, grouped ? g * 2 : h),
                                                   {.Q = x.batch.Q.heads().head(b, k),
                                                    .K = x.batch.K.heads().head(b, g),
                                                    .V = x.batch.V.heads().head(b, g),
                                                    .dY = x.dY.heads().head(b, k),
                                                    .state = states[n],
                                                    .d_state = adjoint,
                                                    .options = options.head});
          CHECK(x.dQ.heads().head(b, k) == one.Q);
          dS += adjoint.values(), d_frame += adjoint.frame(), d_log_gamma += one.template of<Decay>().log_gamma;
        }
        const double u = 0x1p-53;
        CHECK((adjoints[n].values() - dS).cwiseAbs().maxCoeff() <= 8 * u * dS.cwiseAbs().maxCoeff());
        CHECK((adjoints[n].frame() - d_frame).cwiseAbs().maxCoeff() <= 8 * u * d_frame.cwiseAbs().maxCoeff());
        CHECK((gradients.transitions[n].template of<Decay>().log_gamma - d_log_gamma).cwiseAbs().maxCoeff() <=
              64 * u * d_log_gamma.cwiseAbs().maxCoeff());
      }
  }
}

TEST_CASE("mistaken calls of gradients are refused, and say what is wrong with what", "[gradient]") {
  Random random(1);
  const Eigen::MatrixXd Q = random.matrix(d, 9), K = random.matrix(d, 9), V = random.matrix(e, 9);
  const auto A = stationary();
  const auto refuse = [&](const Eigen::MatrixXd& dY, const Options& options, const std::string& text) {
    CAPTURE(text);
    REQUIRE_THROWS_WITH(attention_vjp(Feature{}, A, {.Q = Q, .K = K, .V = V, .dY = dY, .options = options}),
                        contains(text));
    REQUIRE_THROWS_WITH(chunked_vjp(Feature{}, A, {.Q = Q, .K = K, .V = V, .dY = dY, .options = options}),
                        contains(text));
  };
  refuse(random.matrix(e + 1, 9), {}, "rows of dY");
  refuse(random.matrix(e, 8), {}, "columns of dY");
  refuse(V, {.checkpoint = -1}, "checkpoint is -1");
  REQUIRE_THROWS_WITH(chunked_vjp(Feature{}, A, {.Q = Q, .K = K, .V = V, .dY = V, .options = {.mask = full(2)}}),
                      contains("the offset 2"));
  REQUIRE_THROWS_AS(attention_vjp(Feature{}, A, {.Q = Q, .K = K, .V = V, .dY = random.matrix(e, 8)}), ShapeMismatch);
  REQUIRE_THROWS_AS(attention_vjp(Feature{}, A, {.Q = Q, .K = K, .V = V, .dY = V, .options = {.checkpoint = -1}}),
                    InvalidArgument);

  const State<double, Feature> state(d, e);
  StateGradient<double, Feature> wide(d + 1, e), tall(d, e + 1);
  REQUIRE_THROWS_WITH(chunked_vjp(Feature{}, A, {.Q = Q, .K = K, .V = V, .dY = V, .state = state, .d_state = wide}),
                      contains("key dimension of the state's gradient"));
  REQUIRE_THROWS_WITH(chunked_vjp(Feature{}, A, {.Q = Q, .K = K, .V = V, .dY = V, .state = state, .d_state = tall}),
                      contains("value dimension of the state's gradient"));
  using Gradient = StateGradient<double, Feature>;
  REQUIRE_THROWS_WITH(Gradient(Feature{}, d, Eigen::MatrixXd(e, 9), Eigen::VectorXd(10)), contains("columns of dS"));
  REQUIRE_THROWS_WITH(Gradient(Feature{}, d, Eigen::MatrixXd(e, 10), Eigen::VectorXd(9)), contains("entries of dZ"));
  Eigen::MatrixXd infinite = Eigen::MatrixXd::Zero(e, 10);
  infinite(1, 2) = std::numeric_limits<double>::infinity();
  REQUIRE_THROWS_AS(Gradient(Feature{}, d, infinite, Eigen::VectorXd::Zero(10)), NotFinite);
  REQUIRE_THROWS_WITH(
      Gradient(Feature{}, d, Eigen::MatrixXd::Zero(e, 10), Eigen::VectorXd::Zero(10), Eigen::VectorXd::Ones(3)),
      contains("are 3, must be 2 at most"));

  Backward x(Order::bthd, {30, 17});
  std::vector<State<double, Feature>> states(8, state);
  std::vector<StateGradient<double, Feature>> adjoints(7, Gradient(d, e));
  REQUIRE_THROWS_WITH(x.run(states, adjoints, {}, false), contains("number of states' gradients is 7"));
  adjoints.resize(8, Gradient(d, e));
  REQUIRE_THROWS_WITH(x.run(states, adjoints, {.form = Form::attention}, false),
                      contains("the attention form has no states"));
  auto twice = std::views::iota(std::size_t{0}, std::size_t{8}) |
               std::views::transform([&](std::size_t n) -> auto& { return adjoints[n == 6 ? 2 : n]; });
  REQUIRE_THROWS_WITH(x.run(states, twice, {}, false),
                      contains("gradients of states: number 6 is the same object as number 2"));
  states.resize(5, state);
  REQUIRE_THROWS_WITH(x.run(states, adjoints, {}, false), contains("number of states is 5"));
  BatchData<double> few(Order::bthd, {30, 17}, H - 1, d, 0);
  x.dQ = few;
  REQUIRE_THROWS_WITH(x.run({}), contains("number of heads of dQ"));
  REQUIRE_THROWS_AS(x.run({}), ShapeMismatch);
}
