// A batch of sequences of unequal lengths through grouped heads: all their tokens at once, then one more each.
#include <sympow/sympow.hpp>

#include <cstdio>
#include <vector>

using namespace sympow;

int main() {
  const Index B = 3, T = 200, H = 8, H_kv = 2, d = 32, e = 32;
  const std::vector<Index> lengths = {200, 57, 0};  // the third sequence has yet to begin

  // What a model has in memory: [B, T, H, d] and [B, T, H_kv, d] in float, padded to T tokens; log gates [B, H, T].
  Random random(1);
  std::vector<float> q(B * T * H * d), k(B * T * H_kv * d), v(B * T * H_kv * e), y(B * T * H * e);
  for (auto* x : {&q, &k, &v})
    for (float& entry : *x) entry = static_cast<float>(random.normal());
  const Matrix<float> log_gates = -.01f * random.matrix<float>(T, B * H).cwiseAbs();
  const Eigen::VectorXd theta = rotary_frequencies<double>(d, 4096);

  // Views of the heads in place: nothing is copied.
  const auto Q = Heads<float>::bthd(q.data(), B, T, H, d, lengths);
  const auto K = Heads<float>::bthd(k.data(), B, T, H_kv, d, lengths);
  const auto V = Heads<float>::bthd(v.data(), B, T, H_kv, e, lengths);
  const auto Y = Heads<float>::bthd(y.data(), B, T, H, e, lengths);

  // One state for every sequence and query head; gates of their own for each.
  const SymmetricPower<2> feature;
  std::vector<State<float, SymmetricPower<2>>> states(B * H, State<float, SymmetricPower<2>>(d, e));
  const auto gates = [&](Index b, Index h) {
    return decay(log_gates.col(b * H + h).head(Q.length(b))) * rotary(theta, Pairing::interleaved);
  };
  Workspaces<float> workspaces;  // one per thread; keep them
  attend(feature, gates, {.Q = Q, .K = K, .V = V, .states = states, .Y = Y, .workspaces = workspaces});

  // The next token of every sequence, [B, 1, H, d], against the states.
  std::vector<float> q1(B * H * d, .5f), k1(B * H_kv * d, .25f), v1(B * H_kv * e, 1.f), y1(B * H * e);
  const auto next = Heads<float>::bthd(y1.data(), B, 1, H, e);
  attend(feature, constant_decay(.99) * rotary(theta, Pairing::interleaved),
         {.Q = Heads<float>::bthd(q1.data(), B, 1, H, d),
          .K = Heads<float>::bthd(k1.data(), B, 1, H_kv, d),
          .V = Heads<float>::bthd(v1.data(), B, 1, H_kv, e),
          .states = states,
          .Y = next,
          .workspaces = workspaces});

  for (Index b = 0; b < B; ++b)
    std::printf("sequence %td of %td tokens: the output that follows begins with %.3f\n", b, Q.length(b),
                static_cast<double>(next.head(b, 0)(0, 0)));
  return states.front().tokens() == 201 && states.back().tokens() == 1 ? 0 : 1;
}
