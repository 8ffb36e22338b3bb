// A program in C: prefill, decode, states in a file, one training step. It is compiled here and against the installed
// package.
#include <sympow.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 2, T = 50, PROMPT = 40, H = 4, HK = 2, D = 8, E = 6 };

static float q[B * T * H * D], k[B * T * HK * D], v[B * T * HK * E], log_gates[B * T * HK], y[B * T * H * E];
static float dq[B * T * H * D], dk[B * T * HK * D], dv[B * T * HK * E], d_gates[B * T * HK], dy[B * T * H * E];
static float decoded[B * 1 * H * E];
static const double theta[D / 2] = {1, .3, .1, .03};

// Ends the program with what the library says, if a call failed.
static void check(sympow_status status) {
  if (status == SYMPOW_OK) return;
  fprintf(stderr, "sympow: status %d: %s\n", (int)status, sympow_error());
  exit(1);
}

// [B, tokens, heads, width] from a token on, of an array of T tokens in the caller's memory.
typedef struct array {
  int64_t shape[4], strides[4];
  sympow_tensor tensor;
} array;
static void view(array* a, float* data, int64_t from, int64_t tokens, int64_t heads, int64_t width) {
  const array dense = {{B, tokens, heads, width}, {T * heads * width, heads * width, width, 1}, {0}};
  *a = dense;
  a->tensor.data = data + from * heads * width;
  a->tensor.device.type = SYMPOW_CPU;
  a->tensor.dtype.code = SYMPOW_FLOAT;
  a->tensor.dtype.bits = 32;
  a->tensor.dtype.lanes = 1;
  a->tensor.ndim = 4;
  a->tensor.shape = a->shape;
  a->tensor.strides = a->strides;
}

// The same of gates, [B, tokens, heads].
static void view_gates(array* a, float* data, int64_t from, int64_t tokens) {
  view(a, data, from, tokens, HK, 1);
  a->tensor.ndim = 3;
}

// All that a call reads, from a token on.
typedef struct call {
  array queries, keys, values, gates;
  int64_t pairs;
  sympow_tensor rates;
  sympow_inputs inputs;
} call;
static void read_tokens(call* c, int64_t from, int64_t tokens) {
  const sympow_inputs inputs = SYMPOW_INPUTS_INIT;
  const sympow_tensor rates = {(void*)theta, {SYMPOW_CPU, 0}, 1, {SYMPOW_FLOAT, 64, 1}, &c->pairs, NULL, 0};
  c->inputs = inputs;
  view(&c->queries, q, from, tokens, H, D);
  view(&c->keys, k, from, tokens, HK, D);
  view(&c->values, v, from, tokens, HK, E);
  view_gates(&c->gates, log_gates, from, tokens);
  c->pairs = D / 2;
  c->rates = rates;
  c->inputs.queries = &c->queries.tensor;
  c->inputs.keys = &c->keys.tensor;
  c->inputs.values = &c->values.tensor;
  c->inputs.log_gates = &c->gates.tensor;
  c->inputs.theta = &c->rates;
}

// Numbers between -1 and 1.
static void fill(float* x, int count) {
  static unsigned state = 1;
  for (int n = 0; n < count; ++n) {
    state = state * 1664525u + 1013904223u;
    x[n] = (float)(state >> 8) / 8388608.f - 1;
  }
}

int main(int count, char** arguments) {
  const char* const path = count > 1 ? arguments[1] : "sympow_states.bin";
  fill(q, B * T * H * D), fill(k, B * T * HK * D), fill(v, B * T * HK * E), fill(dy, B * T * H * E);
  fill(log_gates, B * T * HK);
  for (int n = 0; n < B * T * HK; ++n) log_gates[n] = .05f * (log_gates[n] - 1);

  // An attention is made once, and used by any number of threads.
  sympow_options options = SYMPOW_OPTIONS_INIT;
  options.power = 2;
  options.pairing = SYMPOW_PAIRING_INTERLEAVED;  // of rotary, as the model was trained
  sympow_attention* attention = NULL;
  check(sympow_attention_create(&options, &attention));
  sympow_workspace* workspace = NULL;  // of this thread
  check(sympow_workspace_create(NULL, &workspace));

  // All tokens at once.
  call all;
  array rows;
  read_tokens(&all, 0, T);
  view(&rows, y, 0, T, H, E);
  check(sympow_attend(attention, &all.inputs, NULL, &rows.tensor, workspace, NULL));

  // The prompt, then token by token. Query heads of a key head have the same gates, and share a state.
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = B;
  shape.heads = HK;
  shape.d = D;
  shape.e = E;
  sympow_states* states = NULL;
  check(sympow_states_create(attention, &shape, NULL, &states));
  call part;
  array part_rows;
  static float prompt_rows[B * T * H * E];
  read_tokens(&part, 0, PROMPT);
  view(&part_rows, prompt_rows, 0, PROMPT, H, E);
  check(sympow_attend(attention, &part.inputs, states, &part_rows.tensor, workspace, NULL));
  check(sympow_states_save(states, path));

  // Another day.
  check(sympow_states_clear(states));
  check(sympow_states_load(states, path));
  remove(path);
  double largest = 0;
  for (int t = PROMPT; t < T; ++t) {
    array new_row;
    read_tokens(&part, t, 1);
    view(&new_row, decoded, 0, 1, H, E);
    new_row.tensor.strides = NULL;  // dense
    check(sympow_decode(attention, &part.inputs, states, &new_row.tensor, workspace, NULL));
    for (int b = 0; b < B; ++b)
      for (int n = 0; n < H * E; ++n)
        largest = fmax(largest, fabs((double)decoded[b * H * E + n] - (double)y[(b * T + t) * H * E + n]));
  }
  int64_t tokens = 0;
  check(sympow_states_tokens(states, B - 1, HK - 1, &tokens));

  // A training step: gradients of a loss from dy = ∂loss/∂y.
  sympow_gradients gradients = SYMPOW_GRADIENTS_INIT;
  array of_q, of_k, of_v, of_gates, of_y;
  view(&of_q, dq, 0, T, H, D), view(&of_k, dk, 0, T, HK, D), view(&of_v, dv, 0, T, HK, E);
  view_gates(&of_gates, d_gates, 0, T), view(&of_y, dy, 0, T, H, E);
  gradients.queries = &of_q.tensor;
  gradients.keys = &of_k.tensor;
  gradients.values = &of_v.tensor;
  gradients.log_gates = &of_gates.tensor;
  check(sympow_attend_vjp(attention, &all.inputs, &of_y.tensor, NULL, NULL, &gradients, workspace, NULL));

  // Rows are linear in values: Σ dy·y = Σ dv·v.
  double by_rows = 0, by_values = 0;
  for (int n = 0; n < B * T * H * E; ++n) by_rows += (double)dy[n] * (double)y[n];
  for (int n = 0; n < B * T * HK * E; ++n) by_values += (double)dv[n] * (double)v[n];

  // A mistake is a status and a sentence.
  all.queries.shape[3] = D - 1;
  const sympow_status refused = sympow_attend(attention, &all.inputs, NULL, &rows.tensor, workspace, NULL);
  printf("status %d: %s\n", (int)refused, sympow_error());

  sympow_states_destroy(states);
  sympow_workspace_destroy(workspace);
  sympow_attention_destroy(attention);
  printf("sympow %d: rows of decoding differ by %.1e, gradients by %.1e\n", (int)sympow_version(), largest,
         fabs(by_rows - by_values));
  const int is_right = largest < 1e-4 && tokens == T && fabs(by_rows - by_values) < 1e-3;
  return is_right && refused == SYMPOW_SHAPE_MISMATCH ? 0 : 1;
}
