// Gradients of a batch on any number of threads: the same bits.
#include "batches.hpp"
#include "catch.hpp"

#include <sympow/attention/batch_vjp.hpp>

using namespace sympow;
using namespace sympow::test;

TEST_CASE("gradients of a batch are the same bit for bit on any number of threads", "[threads]") {
  constexpr Index H = 4, groups = 2, d = RandomBatch<float>::d, e = RandomBatch<float>::e;
  const std::vector<Index> lengths = {40, 0, 130, 1, 63};
  RandomBatch<float> batch(Order::bthd, lengths, H, groups, 1);
  BatchData<float> dY(Order::bthd, lengths, H, e, 0);
  Random random(8);
  for (float& x : dY.data) x = static_cast<float>(random.normal());
  const auto of_groups = [&](Index b, Index g) { return batch.transition(b, g * (H / groups)); };
  using Feature = SymmetricPower<2>;
  struct Result {
    std::vector<float> Q, K, V;
    std::vector<Eigen::VectorXd> gates;
    std::vector<Matrix<float>> states;
    double scale = 0;
  };
  for (const Form form : {Form::attention, Form::chunked})
    for (const bool with_states : {false, true}) {
      if (with_states && form == Form::attention) continue;
      const auto run = [&](int threads) {
        BatchData<float> dQ(Order::bthd, lengths, H, d, 7), dK(Order::bthd, lengths, groups, d, 7),
            dV(Order::bthd, lengths, groups, e, 7);
        VjpWorkspaces<float> workspaces;
        const BatchOptions options{.form = form, .threads = threads, .head = {.chunk = 8}};
        Result result;
        const auto keep = [&](const auto& g) {
          for (const auto& one : g.transitions) result.gates.push_back(one.left().log_gamma);
          result.scale = g.scale;
        };
        const auto q = batch.Q.heads(), k = batch.K.heads(), v = batch.V.heads(), dy = dY.heads(), to_q = dQ.heads(),
                   to_k = dK.heads(), to_v = dV.heads();
        if (with_states) {  // a group shares one
          const std::vector<State<float, Feature>> states(lengths.size() * groups, State<float, Feature>(d, e));
          std::vector<StateGradient<float, Feature>> adjoints(lengths.size() * groups,
                                                              StateGradient<float, Feature>(d, e));
          keep(attend_vjp(Feature{}, of_groups,
                          {.Q = q,
                           .K = k,
                           .V = v,
                           .dY = dy,
                           .states = states,
                           .d_states = adjoints,
                           .dQ = to_q,
                           .dK = to_k,
                           .dV = to_v,
                           .workspaces = workspaces,
                           .options = options}));
          for (const auto& one : adjoints) result.states.push_back(one.values());
        } else {
          keep(attend_vjp(Feature{}, batch.transitions(),
                          {.Q = q,
                           .K = k,
                           .V = v,
                           .dY = dy,
                           .dQ = to_q,
                           .dK = to_k,
                           .dV = to_v,
                           .workspaces = workspaces,
                           .options = options}));
        }
        result.Q = dQ.data, result.K = dK.data, result.V = dV.data;
        return result;
      };
      const Result expected = run(1);
      for (const int threads : {2, 3, 5}) {
        CAPTURE(static_cast<int>(form), with_states, threads);
        const Result found = run(threads);
        REQUIRE(found.Q == expected.Q);
        REQUIRE(found.K == expected.K);
        REQUIRE(found.V == expected.V);
        REQUIRE(found.gates == expected.gates);
        REQUIRE(found.states == expected.states);
        REQUIRE(found.scale == expected.scale);
      }
    }
}
