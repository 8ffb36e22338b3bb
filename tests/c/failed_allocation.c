// Memory may end at any allocation: every call is made with its first request failing, then with its second, and so on
// until one comes to its end. Each says so, gives nothing away, and everything can be used again and destroyed.
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sympow.h>

// ---- requests for memory, of this program and of the libraries in it (glibc) ----

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

static int counting = 0;
static long requests = 0, failing = -1;
static int fails(void) { return counting && requests++ == failing; }

void* malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void* realloc(void* memory, size_t size) { return fails() ? NULL : __libc_realloc(memory, size); }
void* memalign(size_t alignment, size_t size) { return fails() ? NULL : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == NULL ? ENOMEM : 0;
}

// ---- a call of all that there is ----

enum { B = 2, T = 45, H = 2, D = 4, E = 3, EMBEDDED = 10 };

static float q[B * T * H * D], k[B * T * H * D], v[B * T * H * E], y[B * T * H * E], expected[B * T * H * E];
static float dq[B * T * H * D], dk[B * T * H * D], dv[B * T * H * E], dy[B * T * H * E];
static double gates[B * T * H], beta[B * T * H], theta[D / 2] = {1, .5}, sums[B * H * EMBEDDED * E];
static double of_rows[B * T * H * 3];
static float normaliser[B * H * EMBEDDED];
static int64_t of_normaliser[3] = {B, H, EMBEDDED}, of_keys[4] = {B, T, H, D}, of_values[4] = {B, T, H, E},
               of_diagnostics[4] = {B, T, H, 3}, of_gates[3] = {B, T, H}, of_theta[1] = {D / 2},
               of_sums[4] = {B, H, EMBEDDED, E};

static sympow_tensor tensor(void* data, int ndim, int64_t* shape, unsigned char bits) {
  const sympow_tensor x = {data, {SYMPOW_CPU, 0}, ndim, {SYMPOW_FLOAT, bits, 1}, shape, NULL, 0};
  return x;
}

static sympow_attention* attention = NULL;
static sympow_states *before = NULL, *states = NULL, *other = NULL;
static sympow_state_gradients* of_states = NULL;
static sympow_tensor tq, tk, tv, ty, tdq, tdk, tdv, tdy, tg, tb, tt, ts, tz, tr;
static sympow_inputs inputs = SYMPOW_INPUTS_INIT;
static sympow_gradients gradients = SYMPOW_GRADIENTS_INIT;
static const char* path = "failed_allocation_states.bin";

static void fail(const char* what) {
  counting = 0;
  fprintf(stderr, "%s at request %ld: %s\n", what, failing, sympow_error());
  exit(1);
}
static void must(sympow_status status) {
  if (status != SYMPOW_OK) fail("refused");
}

static void refresh(void) {
  sympow_states_destroy(states);
  states = NULL;
  must(sympow_states_copy(before, &states));
  sympow_state_gradients_destroy(of_states);
  of_states = NULL;
  must(sympow_state_gradients_create(before, &ts, NULL, NULL, &of_states));
  sympow_states_destroy(other);
  other = NULL;
  memset(y, 0, sizeof y);
}

static sympow_status create(void) {
  sympow_options options = SYMPOW_OPTIONS_INIT;
  options.pairing = SYMPOW_PAIRING_INTERLEAVED;
  sympow_attention* made = NULL;
  const sympow_status status = sympow_attention_create(&options, &made);
  if ((status == SYMPOW_OK) != (made != NULL)) fail("a handle");
  sympow_attention_destroy(made);
  return status;
}
static sympow_status make_workspace(void) {
  sympow_workspace* made = NULL;
  const sympow_status status = sympow_workspace_create(NULL, &made);
  sympow_workspace_destroy(made);
  return status;
}
static sympow_status make_states(void) {
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = B, shape.heads = H, shape.d = D, shape.e = E;
  return sympow_states_create(attention, &shape, before, &other);
}
static sympow_status copy(void) { return sympow_states_copy(before, &other); }
static sympow_status clear(void) { return sympow_states_clear(states); }
static sympow_status save(void) { return sympow_states_save(before, path); }
static sympow_status load(void) { return sympow_states_load(states, path); }
static sympow_status write_sums(void) { return sympow_states_write(states, &ts, &tz, NULL); }
static sympow_status make_gradients(void) {
  sympow_state_gradients* made = NULL;
  const sympow_status status = sympow_state_gradients_create(before, &ts, NULL, NULL, &made);
  sympow_state_gradients_destroy(made);
  return status;
}
static sympow_status attend(void) { return sympow_attend(attention, &inputs, NULL, &ty, NULL, NULL); }
static sympow_status attend_on(void) { return sympow_attend(attention, &inputs, states, &ty, NULL, NULL); }
static sympow_status diagnose(void) { return sympow_diagnose(attention, &inputs, states, &tr, NULL, NULL); }
// Features are drawn by the first call of an attention.
static sympow_status attend_random(void) {
  sympow_options options = SYMPOW_OPTIONS_INIT;
  options.pairing = SYMPOW_PAIRING_INTERLEAVED, options.threads = 1;
  options.scores = SYMPOW_SCORES_RANDOM, options.features = 9;
  sympow_attention* made = NULL;
  sympow_status status = sympow_attention_create(&options, &made);
  if (status == SYMPOW_OK) status = sympow_attend(made, &inputs, NULL, &ty, NULL, NULL);
  sympow_attention_destroy(made);
  return status;
}
static sympow_status decode(void) { return sympow_decode(attention, &inputs, states, &ty, NULL, NULL); }
static sympow_status take_back(void) {
  return sympow_attend_vjp(attention, &inputs, &tdy, NULL, NULL, &gradients, NULL, NULL);
}
static sympow_status take_back_on(void) {
  return sympow_attend_vjp(attention, &inputs, &tdy, before, of_states, &gradients, NULL, NULL);
}

// Each failure of a call; `files` may call a stream without memory one that cannot be read or written.
static void each_failure(const char* name, sympow_status (*call)(void), int files) {
  for (long n = 0;; ++n) {
    refresh();
    failing = n, requests = 0, counting = 1;
    const sympow_status status = call();
    counting = 0;
    if (status == SYMPOW_OK && requests <= n) {
      if (n == 0) fail("no request was counted");
      printf("%s: %ld requests\n", name, n);
      failing = -1;
      return;
    }
    if (status != SYMPOW_OK && status != SYMPOW_OUT_OF_MEMORY && !(files && status == SYMPOW_BAD_FILE)) fail(name);
    if (other != NULL && status != SYMPOW_OK) fail("a handle");
    // A state is whole, or says that it is not until it is emptied.
    int64_t tokens = 0;
    for (int i = 0; i < B * H; ++i)
      if (sympow_states_tokens(states, i / H, i % H, &tokens) == SYMPOW_INTERRUPTED_STATE)
        must(sympow_states_clear(states));
    refresh();
    must(attend_on());
    if (memcmp(y, expected, sizeof y) != 0) fail("other rows");
  }
}

int main(void) {
  for (int n = 0; n < B * T * H * D; ++n) q[n] = (float)sin(n), k[n] = (float)sin(3. * n);
  for (int n = 0; n < B * T * H * E; ++n) v[n] = (float)cos(n), dy[n] = (float)cos(2. * n);
  for (int n = 0; n < B * T * H; ++n) gates[n] = -.01 * (n % 7), beta[n] = 1 + .1 * (n % 3);
  tq = tensor(q, 4, of_keys, 32), tk = tensor(k, 4, of_keys, 32), tv = tensor(v, 4, of_values, 32);
  ty = tensor(y, 4, of_values, 32), tdy = tensor(dy, 4, of_values, 32), tdv = tensor(dv, 4, of_values, 32);
  tdq = tensor(dq, 4, of_keys, 32), tdk = tensor(dk, 4, of_keys, 32), tt = tensor(theta, 1, of_theta, 64);
  tg = tensor(gates, 3, of_gates, 64), tb = tensor(beta, 3, of_gates, 64), ts = tensor(sums, 4, of_sums, 32);
  tz = tensor(normaliser, 3, of_normaliser, 32), tr = tensor(of_rows, 4, of_diagnostics, 64);
  inputs.queries = &tq, inputs.keys = &tk, inputs.values = &tv, inputs.log_gates = &tg;
  inputs.theta = &tt, inputs.beta = &tb;
  gradients.queries = &tdq, gradients.keys = &tdk, gradients.values = &tdv;

  sympow_options options = SYMPOW_OPTIONS_INIT;
  options.pairing = SYMPOW_PAIRING_INTERLEAVED;
  options.chunk = 8, options.form = SYMPOW_FORM_CHUNKED, options.threads = 1;
  must(sympow_attention_create(&options, &attention));
  sympow_state_shape shape = SYMPOW_STATE_SHAPE_INIT;
  shape.batch = B, shape.heads = H, shape.d = D, shape.e = E;
  must(sympow_states_create(attention, &shape, NULL, &before));
  must(sympow_attend(attention, &inputs, before, &ty, NULL, NULL));
  refresh();
  must(attend_on());
  memcpy(expected, y, sizeof y);
  must(save());

  each_failure("sympow_attention_create", create, 0);
  each_failure("sympow_workspace_create", make_workspace, 0);
  each_failure("sympow_states_create", make_states, 0);
  each_failure("sympow_states_copy", copy, 0);
  each_failure("sympow_states_clear", clear, 0);
  each_failure("sympow_states_save", save, 1);
  each_failure("sympow_states_load", load, 1);
  each_failure("sympow_states_write", write_sums, 0);
  each_failure("sympow_state_gradients_create", make_gradients, 0);
  each_failure("sympow_attend", attend, 0);
  each_failure("sympow_attend with states", attend_on, 0);
  each_failure("sympow_attend by random features", attend_random, 0);
  each_failure("sympow_diagnose with states", diagnose, 0);
  each_failure("sympow_decode", decode, 0);
  each_failure("sympow_attend_vjp", take_back, 0);
  each_failure("sympow_attend_vjp with states", take_back_on, 0);

  // The states of a merge: those on the right begin where the others end.
  sympow_states* right = NULL;
  must(sympow_states_create(attention, &shape, before, &right));
  must(sympow_attend(attention, &inputs, right, &ty, NULL, NULL));
  for (long n = 0;; ++n) {
    sympow_states* merged = NULL;
    failing = n, requests = 0, counting = 1;
    const sympow_status status = sympow_states_merge(before, right, &merged);
    counting = 0;
    sympow_states_destroy(merged);
    if (status == SYMPOW_OK && requests <= n) break;
    if (status != SYMPOW_OUT_OF_MEMORY) fail("sympow_states_merge");
  }
  remove(path);
  sympow_states_destroy(right);
  sympow_states_destroy(before);
  sympow_states_destroy(states);
  sympow_states_destroy(other);
  sympow_state_gradients_destroy(of_states);
  sympow_attention_destroy(attention);
  return 0;
}
