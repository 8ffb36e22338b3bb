// Programs that the library is called from: threads that round in another way or trap, or have a small stack, and a
// child of a process that has used OpenMP by itself. Before any call of the library in this process, so that it
// remembers none.
#define _POSIX_C_SOURCE 200809L
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sympow.h>

enum { B = 2, T = 70, H = 2, D = 24, rows = B * T * H };  // φ of powers 2 and 3 has more than 256 entries

static enum { ROTARY, CHANNELS, HOUSEHOLDER, TRANSITIONS } transition;  // of every call
static double queries[rows * D], keys[rows * D], values[rows * D], gates[rows], theta[D / 2], of_channels[rows * D];

typedef struct {
  double y[rows * D], queries[rows * D], keys[rows * D], values[rows * D], gates[rows], of_channels[rows * D];
} results;

static sympow_tensor tensor(double* data, int32_t ndim, int64_t* shape) {
  sympow_tensor x = {0};
  x.data = data, x.ndim = ndim, x.shape = shape;
  x.device.type = SYMPOW_CPU, x.dtype.code = SYMPOW_FLOAT, x.dtype.bits = 64, x.dtype.lanes = 1;
  return x;
}

// Rows and their gradients.
static sympow_status call(const sympow_options* options, results* to) {
  int64_t vectors[4] = {B, T, H, D}, numbers[3] = {B, T, H}, rates[1] = {D / 2};
  sympow_tensor q = tensor(queries, 4, vectors), k = tensor(keys, 4, vectors), v = tensor(values, 4, vectors),
                g = tensor(gates, 3, numbers), r = tensor(theta, 1, rates), y = tensor(to->y, 4, vectors),
                dq = tensor(to->queries, 4, vectors), dk = tensor(to->keys, 4, vectors),
                dv = tensor(to->values, 4, vectors), dg = tensor(to->gates, 3, numbers),
                c = tensor(of_channels, 4, vectors), dc = tensor(to->of_channels, 4, vectors);
  sympow_inputs inputs = SYMPOW_INPUTS_INIT;
  inputs.queries = &q, inputs.keys = &k, inputs.values = &v, inputs.log_gates = &g;
  sympow_gradients gradients = SYMPOW_GRADIENTS_INIT;
  gradients.queries = &dq, gradients.keys = &dk, gradients.values = &dv, gradients.log_gates = &dg;
  if (transition == ROTARY) inputs.theta = &r;
  if (transition == CHANNELS) inputs.channel_gates = &c, gradients.channel_gates = &dc;
  if (transition == HOUSEHOLDER) inputs.householder = &c, gradients.householder = &dc;
  sympow_attention* attention = NULL;
  sympow_status status = sympow_attention_create(options, &attention);
  if (status == SYMPOW_OK) status = sympow_attend(attention, &inputs, NULL, &y, NULL, NULL);
  if (status == SYMPOW_OK) status = sympow_attend_vjp(attention, &inputs, &y, NULL, NULL, &gradients, NULL, NULL);
  if (status != SYMPOW_OK) fprintf(stderr, "%s\n", sympow_error());
  sympow_attention_destroy(attention);
  return status;
}

// The child of a process whose threads have run calls the library on two threads, and ends.
static int check_fork(void) {
  double sum = 0;
#pragma omp parallel for num_threads(2) reduction(+ : sum)
  for (int i = 0; i < 1000; ++i) sum += i;
  static results to;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // one that waits for threads that are not there is killed
    sympow_options options = SYMPOW_OPTIONS_INIT;
    options.pairing = SYMPOW_PAIRING_INTERLEAVED, options.threads = 2;
    _exit(call(&options, &to) == SYMPOW_OK && sum > 0 ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fprintf(stderr, "a child of a process that has used OpenMP: status %d\n", status);
    return 1;
  }
  return 0;
}

// The same bits in every rounding mode, which is what it was after each call.
static int check_rounding(sympow_options options) {
  const int modes[3] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  static results expected, found;
  if (call(&options, &expected) != SYMPOW_OK) return 1;
  for (int n = 0; n < 3; ++n) {
    memset(&found, 0, sizeof found);
    fesetround(modes[n]);
    const sympow_status status = call(&options, &found);
    const int mode = fegetround();
    fesetround(FE_TONEAREST);
    if (status == SYMPOW_OK && mode == modes[n] && memcmp(&found, &expected, sizeof found) == 0) continue;
    fprintf(stderr, "mode %d, left as %d, scores %d, power %d, form %d, transition %d: other bits\n", modes[n], mode,
            options.scores, options.power, options.form, transition);
    return 1;
  }
  return 0;
}

// Finite input raises no flag that a program may have turned into a trap.
static int check_flags(sympow_options options) {
#ifdef FLAGS_MAY_RISE
  (void)options;
  return 0;
#else
  static results to;
  options.threads = 1;  // the flags of this thread are looked at
  feclearexcept(FE_ALL_EXCEPT);
  const sympow_status status = call(&options, &to);
  const int flags = fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
  if (status == SYMPOW_OK && flags == 0) return 0;
  fprintf(stderr, "scores %d, power %d, form %d, transition %d: floating-point flags %d\n", options.scores,
          options.power, options.form, transition, flags);
  return 1;
#endif
}

static void* call_there(void* argument) {
  static results to;
  return call(argument, &to) == SYMPOW_OK ? argument : NULL;
}
// A stack of 64 KiB is enough for calls without Householder vectors, 96 KiB for all, in code for SSE2. One that is not
// enough ends the program.
static int check_stack(sympow_options options) {
#ifdef SANITIZED  // frames are larger then
  (void)options, (void)call_there;
  return 0;
#else
  pthread_attr_t attributes;
  pthread_t thread;
  void* done = NULL;
  const size_t kib = transition == HOUSEHOLDER ? 96 : 64;
  options.threads = 1;
  if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstacksize(&attributes, kib * 1024) != 0 ||
      pthread_create(&thread, &attributes, call_there, &options) != 0 || pthread_join(thread, &done) != 0 ||
      done == NULL) {
    fprintf(stderr, "transition %d: a thread with a stack of %zu KiB\n", transition, kib);
    return 1;
  }
  return 0;
#endif
}

int main(void) {
  for (int i = 0; i < rows * D; ++i) queries[i] = sin(i), keys[i] = sin(2.1 * i), values[i] = cos(1.3 * i);
  memset(queries + 5 * H * D, 0, H * D * sizeof *queries);  // a query and a key of zeros, and the first token of both
  memset(keys + 9 * H * D, 0, H * D * sizeof *keys);
  memset(queries, 0, H * D * sizeof *queries);
  memset(keys, 0, H * D * sizeof *keys);
  for (int i = 0; i < rows; ++i) gates[i] = -.05 * (1 + sin(i));
  for (int i = 0; i < D / 2; ++i) theta[i] = pow(.1, i);
  for (int i = 0; i < rows * D; ++i) of_channels[i] = -.02 * (1 + sin(i));
  int failed = check_fork();
  for (transition = ROTARY; transition < TRANSITIONS; ++transition)
    for (int scores = SYMPOW_SCORES_POWER; scores <= SYMPOW_SCORES_RANDOM; ++scores)
      for (int power = 1; power <= (scores == SYMPOW_SCORES_POWER ? 3 : 1); ++power)
        for (int form = SYMPOW_FORM_ATTENTION; form <= SYMPOW_FORM_CHUNKED; ++form) {
          const int has_states = scores != SYMPOW_SCORES_EXPONENTIAL && (transition != HOUSEHOLDER || power == 1);
          if ((form != SYMPOW_FORM_ATTENTION && !has_states) ||
              (scores == SYMPOW_SCORES_RANDOM && transition != ROTARY))
            continue;
          sympow_options options = SYMPOW_OPTIONS_INIT;
          options.scores = scores, options.power = power, options.form = form, options.threads = 2;
          options.pairing = SYMPOW_PAIRING_INTERLEAVED, options.features = scores == SYMPOW_SCORES_RANDOM ? 9 : 0;
          failed |= check_rounding(options) | check_flags(options) | check_stack(options);
        }
  return failed;
}
