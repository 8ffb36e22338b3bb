// sympow on a GPU from C: the program owns memory and streams. On one stream a prompt is read and tokens are decoded,
// on another one a training step is made, both at once.
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sympow.h>

enum { B = 2, T = 96, PROMPT = 80, H = 2, HK = 1, D = 16, E = 16 };

static void check(sympow_status status) {
  if (status == SYMPOW_OK) return;
  if (status == SYMPOW_NOT_BUILT) {
    printf("This library cannot do that: %s\n", sympow_error());
    exit(0);
  }
  fprintf(stderr, "sympow: status %d: %s\n", (int)status, sympow_error());
  exit(1);
}
static void check_cuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  exit(1);
}

// ---- numbers ----

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_bf16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

// Between `low` and 1.
static float number(float low) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return low + (1 - low) * (float)(state >> 8) / 16777216.f;
}

// ---- arrays on the device ----

// [B, T, heads, width] of bf16, or log gates, [B, T, heads] of float.
typedef struct array {
  int64_t shape[4], strides[4];
  sympow_tensor tensor;
  size_t count;
} array;

static void* allocate(size_t bytes) {
  void* memory = NULL;
  check_cuda(cudaMalloc(&memory, bytes));
  return memory;
}

static array make(int64_t heads, int64_t width) {
  const int is_gates = width == 1;
  array a = {{B, T, heads, width}, {T * heads * width, heads * width, width, 1}, {0}, (size_t)(B * T * heads * width)};
  a.tensor.data = allocate(a.count * (is_gates ? sizeof(float) : sizeof(uint16_t)));
  a.tensor.device.type = SYMPOW_CUDA;
  a.tensor.ndim = is_gates ? 3 : 4;
  a.tensor.dtype.code = is_gates ? SYMPOW_FLOAT : SYMPOW_BFLOAT;
  a.tensor.dtype.bits = is_gates ? 32 : 16;
  a.tensor.dtype.lanes = 1;
  return a;
}
// What a call takes of it: `tokens` from a token on.
static const sympow_tensor* part(array* a, int64_t from, int64_t tokens) {
  a->shape[1] = tokens;
  a->tensor.shape = a->shape;
  a->tensor.strides = a->strides;
  a->tensor.byte_offset = (uint64_t)(from * a->strides[1]) * (a->tensor.dtype.bits / 8);
  return &a->tensor;
}

static void to_device(array* a, const float* numbers, cudaStream_t stream) {
  uint16_t* const bits = malloc(a->count * sizeof *bits);
  if (bits == NULL) exit(1);
  for (size_t n = 0; n < a->count; ++n) bits[n] = to_bf16(numbers[n]);
  check_cuda(cudaMemcpyAsync(a->tensor.data, bits, a->count * sizeof *bits, cudaMemcpyHostToDevice, stream));
  check_cuda(cudaStreamSynchronize(stream));
  free(bits);
}
static void from_device(const array* a, float* numbers, cudaStream_t stream) {
  uint16_t* const bits = malloc(a->count * sizeof *bits);
  if (bits == NULL) exit(1);
  check_cuda(cudaMemcpyAsync(bits, a->tensor.data, a->count * sizeof *bits, cudaMemcpyDeviceToHost, stream));
  check_cuda(cudaStreamSynchronize(stream));
  for (size_t n = 0; n < a->count; ++n) numbers[n] = from_bf16(bits[n]);
  free(bits);
}

// Bytes of the device, as a workspace and states take them.
typedef struct memory {
  int64_t bytes;
  sympow_tensor tensor;
} memory;
static void allocate_memory(memory* m, size_t bytes) {
  const sympow_tensor tensor = {allocate(bytes), {SYMPOW_CUDA, 0}, 1, {SYMPOW_UINT, 8, 1}, &m->bytes, NULL, 0};
  m->bytes = (int64_t)bytes;
  m->tensor = tensor;
}

// ---- a sequence of tokens, and what is on the device for it ----

typedef struct job {
  array queries, keys, values, gates, rows;
  cudaStream_t stream;
  memory scratch;
  sympow_workspace* workspace;
  float q[B * T * H * D], k[B * T * HK * D], v[B * T * HK * E], y[B * T * H * E];
} job;

static sympow_inputs inputs(job* x, int64_t from, int64_t tokens) {
  sympow_inputs in = SYMPOW_INPUTS_INIT;
  in.queries = part(&x->queries, from, tokens);
  in.keys = part(&x->keys, from, tokens);
  in.values = part(&x->values, from, tokens);
  in.log_gates = part(&x->gates, from, tokens);
  return in;
}

static void begin(job* x) {
  float gates[B * T * HK];
  x->queries = make(H, D), x->keys = make(HK, D), x->values = make(HK, E), x->gates = make(HK, 1), x->rows = make(H, E);
  for (int n = 0; n < B * T * H * D; ++n) x->q[n] = number(0);
  for (int n = 0; n < B * T * HK * D; ++n) x->k[n] = number(0);
  for (int n = 0; n < B * T * HK * E; ++n) x->v[n] = number(-1);
  for (int n = 0; n < B * T * HK; ++n) gates[n] = -.05f * number(0);
  check_cuda(cudaStreamCreateWithFlags(&x->stream, cudaStreamNonBlocking));
  to_device(&x->queries, x->q, x->stream), to_device(&x->keys, x->k, x->stream), to_device(&x->values, x->v, x->stream);
  check_cuda(cudaMemcpyAsync(x->gates.tensor.data, gates, sizeof gates, cudaMemcpyHostToDevice, x->stream));
  check_cuda(cudaStreamSynchronize(x->stream));
}

// One workspace for all calls of a stream, which come one after the other.
static void make_workspace(job* x, const sympow_attention* attention, const int32_t* calls, const int64_t* tokens,
                           int count) {
  size_t most = 0;
  for (int n = 0; n < count; ++n) {
    const sympow_inputs in = inputs(x, 0, tokens[n]);
    size_t bytes = 0;
    check(sympow_workspace_bytes(attention, &in, calls[n], &bytes));
    most = bytes > most ? bytes : most;
  }
  allocate_memory(&x->scratch, most);
  check(sympow_workspace_create(&x->scratch.tensor, &x->workspace));
}

static void end(job* x) {
  sympow_workspace_destroy(x->workspace);
  const array* const arrays[] = {&x->queries, &x->keys, &x->values, &x->gates, &x->rows};
  for (int n = 0; n < 5; ++n) check_cuda(cudaFree(arrays[n]->tensor.data));
  check_cuda(cudaFree(x->scratch.tensor.data));
  check_cuda(cudaStreamDestroy(x->stream));
}

// ½ Σ y²: a loss whose gradient in the rows is y.
static double loss(const job* x) {
  double sum = 0;
  for (int n = 0; n < B * T * H * E; ++n) sum += .5 * x->y[n] * x->y[n];
  return sum;
}

static job served, trained;

int main(void) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    printf("There is no GPU here: nothing was computed.\n");
    return 0;
  }

  // An attention is made once, and used by both streams.
  sympow_options options = SYMPOW_OPTIONS_INIT;
  sympow_attention* attention = NULL;
  check(sympow_attention_create(&options, &attention));
  begin(&served);
  begin(&trained);
  const int32_t of_serving[] = {SYMPOW_CALL_PREFILL, SYMPOW_CALL_DECODE, SYMPOW_CALL_ATTEND};
  const int32_t of_training[] = {SYMPOW_CALL_ATTEND, SYMPOW_CALL_ATTEND_VJP};
  make_workspace(&served, attention, of_serving, (const int64_t[]){PROMPT, 1, T}, 3);
  make_workspace(&trained, attention, of_training, (const int64_t[]){T, T}, 2);

  // States lie in memory of the program.
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = B, shape.heads = HK, shape.d = D, shape.e = E;
  shape.device.type = SYMPOW_CUDA;
  shape.dtype = served.queries.tensor.dtype;
  size_t bytes = 0;
  memory of_states;
  sympow_states* states = NULL;
  check(sympow_states_bytes(attention, &shape, &bytes));
  allocate_memory(&of_states, bytes);
  shape.memory = &of_states.tensor;
  check(sympow_states_create(attention, &shape, NULL, &states));

  // The prompt, and the forward pass of the training step: nothing waits.
  sympow_inputs in = inputs(&served, 0, PROMPT);
  check(sympow_attend(attention, &in, states, part(&served.rows, 0, PROMPT), served.workspace, served.stream));
  const sympow_inputs all = inputs(&trained, 0, T);
  check(sympow_attend(attention, &all, NULL, part(&trained.rows, 0, T), trained.workspace, trained.stream));

  // Token by token, while the gradients come on the other stream.
  for (int64_t t = PROMPT; t < T; ++t) {
    in = inputs(&served, t, 1);
    check(sympow_decode(attention, &in, states, part(&served.rows, t, 1), served.workspace, served.stream));
  }
  from_device(&trained.rows, trained.y, trained.stream);
  const double before = loss(&trained);
  array of_rows = make(H, E), of_queries = make(H, D), of_keys = make(HK, D), of_values = make(HK, E);
  array of_gates = make(HK, 1);
  to_device(&of_rows, trained.y, trained.stream);
  sympow_gradients gradients = SYMPOW_GRADIENTS_INIT;
  gradients.queries = part(&of_queries, 0, T);
  gradients.keys = part(&of_keys, 0, T);
  gradients.values = part(&of_values, 0, T);
  gradients.log_gates = part(&of_gates, 0, T);
  check(sympow_attend_vjp(attention, &all, part(&of_rows, 0, T), NULL, NULL, &gradients, trained.workspace,
                          trained.stream));

  // A step against the gradients.
  static float of[B * T * H * D];
  const struct {
    array *to, *gradient;
    float* numbers;
  } moved[] = {{&trained.queries, &of_queries, trained.q},
               {&trained.keys, &of_keys, trained.k},
               {&trained.values, &of_values, trained.v}};
  for (int n = 0; n < 3; ++n) {
    from_device(moved[n].gradient, of, trained.stream);
    for (size_t i = 0; i < moved[n].to->count; ++i) moved[n].numbers[i] -= .1f * of[i];
    to_device(moved[n].to, moved[n].numbers, trained.stream);
  }
  check(sympow_attend(attention, &all, NULL, &trained.rows.tensor, trained.workspace, trained.stream));
  from_device(&trained.rows, trained.y, trained.stream);
  const double after = loss(&trained);

  // Rows that were decoded, and those of all tokens at once. Each is rounded to bf16 2 P + 1 times, κ is
  // about 2 where entries of queries and keys are positive, values are below 1.
  from_device(&served.rows, served.y, served.stream);
  static float decoded[B * T * H * E];
  memcpy(decoded, served.y, sizeof decoded);
  in = inputs(&served, 0, T);
  check(sympow_attend(attention, &in, NULL, part(&served.rows, 0, T), served.workspace, served.stream));
  from_device(&served.rows, served.y, served.stream);
  const double bound = 2 * 5 * 0x1p-8 * 2;
  double largest = 0;
  for (int n = 0; n < B * T * H * E; ++n) {
    const double apart = decoded[n] > served.y[n] ? decoded[n] - served.y[n] : served.y[n] - decoded[n];
    if (!(apart <= largest)) largest = apart;
  }
  int64_t tokens = 0;
  check(sympow_states_tokens(states, B - 1, 0, &tokens));

  printf("rows of decoding differ by %.1e, at most %.1e; the loss was %.3f and is %.3f\n", largest, bound, before,
         after);
  sympow_states_destroy(states);
  check_cuda(cudaFree(of_states.tensor.data));
  const array* const arrays[] = {&of_rows, &of_queries, &of_keys, &of_values, &of_gates};
  for (int n = 0; n < 5; ++n) check_cuda(cudaFree(arrays[n]->tensor.data));
  end(&served), end(&trained);
  sympow_attention_destroy(attention);
  return largest <= bound && after < before && tokens == T ? 0 : 1;
}
