// The forms of gated SymmetricPower<2> in float behind a C interface, for ctypes: one head, T × d row by row as numpy
// has it.
#include <sympow/sympow.hpp>

#include <sympow/attention/gradients.hpp>

#include <cmath>

using namespace sympow;

namespace {

using Feature = SymmetricPower<2>;
using Tokens = Eigen::Map<const Matrix<float>>;

/// A state and the scratch memory that goes with it.
struct Sequence {
  Index d, e;
  State<float, Feature> state{d, e};
  VjpWorkspace<float> workspace{};
  Tape<float, Feature> tape{};
  Gradients<float, Decay> gradients{};
};

struct Call {
  Tokens Q, K, V;
  Decay gates;
  Eigen::Map<Matrix<float>> Y;

  Call(const Sequence& sequence, Index T, const float* q, const float* k, const float* v, const float* log_gamma,
       float* y)
      : Q(q, sequence.d, T),
        K(k, sequence.d, T),
        V(v, sequence.e, T),
        gates(decay(Eigen::Map<const Eigen::VectorXf>(log_gamma, T))),
        Y(y, sequence.e, T) {}
};

}  // namespace

extern "C" {

/// For which instructions it was compiled, as names of the library carry them.
const char* sympow_instructions() noexcept {
#define SYMPOW_PEERS_WORD(x) #x
#define SYMPOW_PEERS_EXPAND(x) SYMPOW_PEERS_WORD(x)
  return SYMPOW_PEERS_EXPAND(SYMPOW_INSTRUCTIONS);
}

Sequence* sympow_open(long d, long e) noexcept { return new Sequence{.d = d, .e = e}; }
void sympow_close(Sequence* sequence) noexcept { delete sequence; }

/// Forgets all tokens.
void sympow_empty(Sequence* sequence) noexcept { sequence->state = State<float, Feature>(sequence->d, sequence->e); }

void sympow_attention(Sequence* sequence, long T, const float* q, const float* k, const float* v,
                      const float* log_gamma, float* y) noexcept {
  const Call call(*sequence, T, q, k, v, log_gamma, y);
  attention(Feature{}, call.gates, call.Q, call.K, call.V, call.Y, sequence->workspace);
}

/// Softmax attention, of which only the shapes and the scratch memory of the sequence are used.
void sympow_softmax(Sequence* sequence, long T, const float* q, const float* k, const float* v, float* y) noexcept {
  const Tokens Q(q, sequence->d, T), K(k, sequence->d, T), V(v, sequence->e, T);
  Eigen::Map<Matrix<float>> Y(y, sequence->e, T);
  attention(Exponential{}, Stationary{}, Q, K, V, Y, sequence->workspace,
            {.scale = 1 / std::sqrt(static_cast<double>(sequence->d))});
}

void sympow_chunked(Sequence* sequence, long T, const float* q, const float* k, const float* v, const float* log_gamma,
                    float* y) noexcept {
  const Call call(*sequence, T, q, k, v, log_gamma, y);
  chunked(Feature{}, call.gates, call.Q, call.K, call.V, sequence->state, call.Y, sequence->workspace);
}

/// Outputs, and the gradients of Σ dy·y in queries, keys, values and log gates.
void sympow_gradients(Sequence* sequence, long T, const float* q, const float* k, const float* v,
                      const float* log_gamma, const float* dy, float* y, float* dq, float* dk, float* dv,
                      float* d_log_gamma) noexcept {
  const Call call(*sequence, T, q, k, v, log_gamma, y);
  StateGradient<float, Feature> adjoint(sequence->d, sequence->e);
  Gradients<float, Decay>& gradients = sequence->gradients;
  chunked(Feature{}, call.gates, call.Q, call.K, call.V, sequence->state, {call.Y, sequence->tape},
          sequence->workspace);
  gradients = chunked_vjp(Feature{}, call.gates,
                          {.Q = call.Q,
                           .K = call.K,
                           .V = call.V,
                           .dY = Tokens(dy, sequence->e, T),
                           .tape = sequence->tape,
                           .d_state = adjoint,
                           .reuse = gradients,
                           .workspace = sequence->workspace});
  Eigen::Map<Matrix<float>>(dq, sequence->d, T) = gradients.Q;
  Eigen::Map<Matrix<float>>(dk, sequence->d, T) = gradients.K;
  Eigen::Map<Matrix<float>>(dv, sequence->e, T) = gradients.V;
  Eigen::Map<Eigen::VectorXf>(d_log_gamma, T) = gradients.transition.log_gamma.cast<float>();
}

void sympow_recurrent(Sequence* sequence, long T, const float* q, const float* k, const float* v,
                      const float* log_gamma, float* y) noexcept {
  const Call call(*sequence, T, q, k, v, log_gamma, y);
  recurrent(Feature{}, call.gates, call.Q, call.K, call.V, sequence->state, call.Y, sequence->workspace);
}
}
