/// \file
/// The C interface of sympow: attention whose scores are powers of inner products, its gradients and its states.
//
//     y_i = Σ_{j ≤ i} s_ij v_j  / Σ_{j ≤ i} s_ij        s_ij = κ(scale q_i·M_ij k_j) b_ij       κ(x) = x^P or exp x
//     b_ij = γ_{j+1} ⋯ γ_i                              M_ij = R(μ_i)ᵀ R(μ_j),   μ_i = μ_{i-1} + β_i θ
//
// For each of B sequences and H query heads; query head h reads key head ⌊h Hk / H⌋. Of the transition what is given
// counts: gates γ, rates θ of rotary positions, and β of learned ones.
//
//     sympow_options options = SYMPOW_OPTIONS_INIT;
//     sympow_attention* attention = NULL;
//     if (sympow_attention_create(&options, &attention) != SYMPOW_OK) return fail(sympow_error());
//     sympow_inputs inputs = SYMPOW_INPUTS_INIT;
//     inputs.queries = &q, inputs.keys = &k, inputs.values = &v;
//     status = sympow_attend(attention, &inputs, NULL, &y, NULL, NULL);
//     sympow_attention_destroy(attention);
//
// ERRORS. Functions return SYMPOW_OK, or a status of which `sympow_error` has a sentence that names the argument, what
// it is and what it must be. All arguments are checked before anything is written; a call that was refused has touched
// nothing, and pointers that it would have set are as they were. SYMPOW_OUT_OF_MEMORY may come later: outputs are then
// undefined, and a state that was left half way says SYMPOW_INTERRUPTED_STATE until it is cleared or loaded.
//
// OWNERSHIP. Arrays are the caller's, are read and written in place and are not kept. What a `create`, `copy` or
// `merge` gives is released by `destroy`, which takes null. No handle keeps another one: each may be destroyed first.
//
// DEVICES. A call goes where its arrays are: to a CPU, or, where the library was built with CUDA, to a GPU. There all
// memory is the caller's, the workspace and that of states, too; the work is on the stream when a call returns, and
// nothing waits but `sympow_states_move`. Contents of arrays are not looked at. See "on a device" below.
//
// THREADS. An attention may be used by any number of threads at once. A workspace, states and state gradients are used
// by one call at a time, but states that calls take as const by any number. The text of an error is its thread's.
//
// VERSIONS. A program that was compiled with this header runs with any later library of the same major version, and
// below 1 of the same minor one. Structs begin with their size, set by their INIT; fields are added at the end, with a
// zero that means what was before. A library takes smaller structs of older programs, and larger ones of newer programs
// whose unknown fields are zero. Values of an enumeration keep their meaning.
#ifndef SYMPOW_H
#define SYMPOW_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SYMPOW_API __attribute__((visibility("default")))
#else
#define SYMPOW_API  ///< before a function of this header: the library shows it
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- the outcome of a call ----

/// What functions return; `sympow_error` has the sentence.
typedef int32_t sympow_status;
enum {
  SYMPOW_OK = 0,
  SYMPOW_INVALID_ARGUMENT = 1,   ///< null, misaligned, overlapping, of another type, an unknown value, a gate > 1 …
  SYMPOW_SHAPE_MISMATCH = 2,     ///< two sizes that must agree do not, or one is negative
  SYMPOW_NOT_FINITE = 3,         ///< an option, a rate, or, if `check_finite` asks for it, an entry
  SYMPOW_TOO_LARGE = 4,          ///< sizes whose product no integer holds
  SYMPOW_INTERRUPTED_STATE = 5,  ///< states that a call has left half way as memory ended
  SYMPOW_BAD_FILE = 6,           ///< of states: absent, foreign, of other sizes, damaged; or it cannot be written
  SYMPOW_OUT_OF_MEMORY = 7,
  SYMPOW_NOT_BUILT = 8,       ///< what this library was built without: a device, or a power or a form there
  SYMPOW_INTERNAL_ERROR = 9,  ///< none of these; please report it
  SYMPOW_DEVICE_ERROR = 10    ///< of the runtime of a device, which the text quotes
};

/// What the last call on this thread that returned a status said: one sentence in UTF-8, but for the bytes of a path,
/// empty after SYMPOW_OK. One of more than 1023 bytes has " ... " in the place of its middle. It stays until the next
/// such call on this thread.
SYMPOW_API const char* sympow_error(void);

/// Of the library that runs: 10000 major + 100 minor + patch. SYMPOW_C_VERSION is that of this header.
#define SYMPOW_C_VERSION 200
/// The version of the library that runs, likewise.
SYMPOW_API int32_t sympow_version(void);

// ---- arrays ----

/// As DLPack numbers them. A library that was built without CUDA says SYMPOW_NOT_BUILT of its arrays.
enum { SYMPOW_CPU = 1, SYMPOW_CUDA = 2 };
enum { SYMPOW_INT = 0, SYMPOW_UINT = 1, SYMPOW_FLOAT = 2, SYMPOW_BFLOAT = 4 };

/// Where an array lies.
typedef struct sympow_device {
  int32_t type;  ///< SYMPOW_CPU or SYMPOW_CUDA, all arrays of a call alike
  int32_t id;    ///< of a GPU, as its runtime counts them
} sympow_device;

/// What an entry of an array is.
typedef struct sympow_dtype {
  uint8_t code;    ///< SYMPOW_INT, SYMPOW_FLOAT …
  uint8_t bits;    ///< of an entry
  uint16_t lanes;  ///< 1
} sympow_dtype;

/// An array in memory of the caller. It has the layout of DLPack's DLTensor, whose pointer can be given as it is, and
/// is the one struct without a size.
///
///     entry (i, j, …) of an array lies at data + byte_offset + bytes of an entry (i strides[0] + j strides[1] + …)
///
/// Queries, keys, values, rows and their gradients are [B, T, H, D], float32 or float64, all of a call alike. Entries
/// of a token are contiguous, strides[3] = 1; strides of tokens are at least D, those of heads and sequences at least
/// 0: so they may stand as [B, H, T, D] as well, or side by side in one array, and inputs may be broadcast over heads
/// and sequences. Other arrays have any strides from 0 on. Of outputs no two entries share memory, nor with an input or
/// another output. Strides of dimensions of size 1, and of an array without entries, do not matter. Data are aligned to
/// their entries; null only where there are no entries.
///
/// On a device they are float16 (16 bits of SYMPOW_FLOAT), bfloat16 or float32; log gates and β float32, θ float64,
/// lengths int32, both dense. Data and strides of queries, keys, values, rows and their gradients are multiples of 16
/// bytes, θ is aligned to 16.
typedef struct sympow_tensor {
  void* data;            ///< in memory of the device
  sympow_device device;  ///< where it lies
  int32_t ndim;          ///< number of dimensions
  sympow_dtype dtype;    ///< of its entries
  int64_t* shape;        ///< ndim sizes, at least 0; not written
  int64_t* strides;      ///< ndim of them, in entries; null: dense in C order; not written
  uint64_t byte_offset;  ///< from data to the first entry
} sympow_tensor;

// ---- what is computed ----

enum {
  SYMPOW_SCORES_POWER = 0,        ///< κ(x) = x^P
  SYMPOW_SCORES_EXPONENTIAL = 1,  ///< κ(x) = exp x: softmax, without states
  /// φ(scale q)·φ(M k), φ(x) = exp(W x - |x|²/2) / √D, in the place of κ: exp in the mean over W, so an estimate of
  /// softmax that has states. Rows of W are those of orthogonal blocks, see sympow::PositiveRandomFeatures.
  SYMPOW_SCORES_RANDOM = 2
};
enum {
  SYMPOW_NORMALISATION_DEFAULT = 0,  ///< normalised where no score is negative: even powers and exp
  SYMPOW_NORMALISED = 1,             ///< rows divided by the sum of their scores; where none is negative
  SYMPOW_UNNORMALISED = 2,           ///< rows as they are
  SYMPOW_SIGNED_NORMALISED = 3       ///< divided by sums of scores of either sign, which can vanish: odd powers
};
enum {
  SYMPOW_FORM_AUTOMATIC = 0,  ///< for each head the one that the cost model expects to be the fastest
  SYMPOW_FORM_ATTENTION = 1,  ///< every query with every key that it sees, T² (d + e) operations a head; no states
  SYMPOW_FORM_RECURRENT = 2,  ///< token by token, 4 T D (e + 1) operations
  SYMPOW_FORM_CHUNKED = 3     ///< attention inside chunks, the state between them: T (4 D (e + 1) + c (d + e))
};
enum { SYMPOW_MASK_CAUSAL = 0, SYMPOW_MASK_FULL = 1 };  ///< query i sees the keys j ≤ i + offset, or all
/// Which channels turn together. A checkpoint does not say which it was trained with, and the wrong one gives wrong
/// rows without an error: there is no default.
enum {
  SYMPOW_PAIRING_INTERLEAVED = 0,  ///< 2j and 2j+1: the RoFormer paper, GPT-J
  SYMPOW_PAIRING_HALF_SPLIT = 1    ///< j and j+d/2: LLaMA, GPT-NeoX, most checkpoints
};

/// What an attention computes, and how.
typedef struct sympow_options {
  size_t size;            ///< set by SYMPOW_OPTIONS_INIT, with all that is named in brackets
  int32_t scores;         ///< [SYMPOW_SCORES_POWER]
  int32_t power;          ///< P [2], 1 … 8; looked at for powers alone
  int32_t normalisation;  ///< [SYMPOW_NORMALISATION_DEFAULT]
  int32_t form;           ///< [SYMPOW_FORM_AUTOMATIC]
  int32_t mask;           ///< [SYMPOW_MASK_CAUSAL]
  int32_t pairing;        ///< of rotary [-1: not said, refused where θ is given]
  int32_t threads;        ///< at most so many, where built with OpenMP [0: all]; results do not depend on it
  int32_t check_finite;   ///< 1: refuse queries, keys and values that are not finite [0: let them go where they go]
  int64_t offset;         ///< tokens from the first key to the first query [0], of the attention form
  int64_t chunk;          ///< tokens of a chunk [0: by the cost model]
  int64_t checkpoint;  ///< gradients keep a state every so many chunks [0: as many as fit 128 MiB]; one value for all
  int64_t tail;        ///< tokens that a state holds as they are, at least 0 [-1: 32, of random features 0]
  double scale;        ///< multiplies q·k, inside the power [1]
  int64_t rotary_dim;  ///< channels that rotary turns, the first ones of a head, paired among themselves [0: all d]
  int64_t features;    ///< D, random features [0]: at least 1 with SYMPOW_SCORES_RANDOM, else 0
  int64_t seed;        ///< of their W, at least 0 [1]: equal seeds give equal W on every machine, up to rounding
  int64_t window;      ///< tokens up to its own that a query sees [0: all], of the attention form and the causal mask
} sympow_options;
#define SYMPOW_OPTIONS_INIT {sizeof(sympow_options), 0, 2, 0, 0, 0, -1, 0, 0, 0, 0, 0, -1, 1.0, 0, 0, 1, 0}

/// Feature map, normalisation, form and mask, checked: immutable. Random features are drawn by the first call with keys
/// of a d, 8 D d² operations, and kept: 8 D d bytes.
typedef struct sympow_attention sympow_attention;
/// Checks the options and keeps what they say.
SYMPOW_API sympow_status sympow_attention_create(const sympow_options* options, sympow_attention** attention);
SYMPOW_API void sympow_attention_destroy(sympow_attention* attention);

/// D, the numbers of an embedded key in R^d: C(d + P - 1, P), or the random features. Exponential scores have none.
SYMPOW_API sympow_status sympow_feature_dimension(const sympow_attention* attention, int64_t d, int64_t* dimension);

/// Scratch memory. On a CPU it grows until it has seen the largest call; a call without one makes its own; `memory` is
/// null. On a device every call needs one, and `memory` is the caller's: one dimension of any type, aligned to 256
/// bytes, of bytes that `sympow_workspace_bytes` says. It must stay there until the stream has done what was put on it.
typedef struct sympow_workspace sympow_workspace;
/// `memory` null: for a CPU.
SYMPOW_API sympow_status sympow_workspace_create(const sympow_tensor* memory, sympow_workspace** workspace);
SYMPOW_API void sympow_workspace_destroy(sympow_workspace* workspace);

// ---- calls ----

/// T_q queries and T_k keys, as many unless the mask has an offset or is full. Hg is Hk or H: parameters of a key head
/// are those of all its query heads. Null: there is none of it. A token turns by β θ, of n axes by Σ_a β_a θ_a: β_a is
/// what coordinate a of positions grows by, as in images and M-RoPE (on a CPU). Gates go with everything. Channel gates
/// and Householder vectors together are A = diag(a) (I - β w wᵀ), gates first; θ, which does not commute with them,
/// goes with neither, and random features go only with θ. With Householder vectors only power 1 has states.
typedef struct sympow_inputs {
  size_t size;                     ///< set by SYMPOW_INPUTS_INIT
  const sympow_tensor* queries;    ///< [B, T_q, H, d]
  const sympow_tensor* keys;       ///< [B, T_k, Hk, d]; Hk divides H
  const sympow_tensor* values;     ///< [B, T_k, Hk, e]
  const sympow_tensor* log_gates;  ///< [B, T, Hg]: log γ ≤ 0, -∞ allowed; float32 or float64, as θ and β
  const sympow_tensor* theta;      ///< [d/2], or [rotary_dim/2]: rates of rotary, radians per token; of n axes [n, d/2]
  const sympow_tensor* beta;       ///< [B, T, Hg], only with θ; null: all 1; of n axes [B, T, Hg, n], and not null
  const sympow_tensor* lengths;    ///< [B] of int32 or int64: tokens of every sequence, the rest is padding; null: T
  const sympow_tensor* channel_gates;  ///< [B, T, Hg, d]: log a ≤ 0 of every channel of a key, as in GLA; as log_gates
  const sympow_tensor* householder;    ///< [B, T, Hg, d]: w of A = I - β w wᵀ, as in DeltaNet and PaTH; as the queries
  const sympow_tensor* strengths;      ///< [B, T, Hg]: that β, only with Householder vectors; null: all 1
} sympow_inputs;
#define SYMPOW_INPUTS_INIT {sizeof(sympow_inputs), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

/// PREFILL is `sympow_attend` with states, PREFILL_VJP `sympow_attend_vjp` with them.
enum {
  SYMPOW_CALL_ATTEND = 0,
  SYMPOW_CALL_ATTEND_VJP = 1,
  SYMPOW_CALL_DECODE = 2,
  SYMPOW_CALL_PREFILL = 3,
  SYMPOW_CALL_PREFILL_VJP = 4
};

/// The bytes of memory that a call with these inputs needs in its workspace. 0 on a CPU, where a workspace grows.
SYMPOW_API sympow_status sympow_workspace_bytes(const sympow_attention* attention, const sympow_inputs* inputs,
                                                int32_t call, size_t* bytes);

/// States of B sequences and Hs heads, H of them or Hk: see `sympow_states_create`.
typedef struct sympow_states sympow_states;
/// Gradients of a loss in states: see `sympow_state_gradients_create`.
typedef struct sympow_state_gradients sympow_state_gradients;

/// Rows Y, [B, T_q, H, e], of all heads of a batch; 0 where Q is padding.
///
/// With states the call goes on from them and leaves them after its last tokens; without, null, nothing came before. Hs
/// = Hk states are shared by the query heads of a key head, whose gates and β then are those of a key head too.
/// `stream` is of a device; null on a CPU. Results are the same bit for bit for any number of threads. Cost: see the
/// forms. Allocates β, θ and channel gates in double, Householder vectors as they are, some 200 bytes a head, without
/// states those of the state forms, and what the workspace grows by.
///
/// `rows` null, with states on a CPU: these alone move on, to the same bits, at half the cost. Queries are not
/// looked at then; null, there are as many heads as of the keys.
///
/// On a device: powers and sizes that sympow::cuda was compiled for, see docs/cuda.md, the forms automatic, attention
/// and chunked, the causal mask without an offset, β of key heads, no channel gates and no Householder vectors,
/// `check_finite` 0; the rest is SYMPOW_NOT_BUILT. Rows of padding are not written. Allocates no memory there.
SYMPOW_API sympow_status sympow_attend(const sympow_attention* attention, const sympow_inputs* inputs,
                                       sympow_states* states, const sympow_tensor* rows, sympow_workspace* workspace,
                                       void* stream);

/// The same by the recurrent form, whatever the options say: for a few new tokens against states, which must be given.
/// Cost: S and Z are read once a token; on a device once for up to 64 new tokens of every sequence, more are refused,
/// as are lengths. They go to a tail, which folds into S and Z when it has no room for more.
SYMPOW_API sympow_status sympow_decode(const sympow_attention* attention, const sympow_inputs* inputs,
                                       sympow_states* states, const sympow_tensor* rows, sympow_workspace* workspace,
                                       void* stream);

/// Which of the states each sequence of a call has, on a device: for servers, where sequences come, go and change
/// places between calls.
typedef struct sympow_slots {
  size_t size;  ///< set by SYMPOW_SLOTS_INIT
  /// [B] of int32: sequence b of the call has the states of sequence indices[b]; if that is negative, b is inactive:
  /// nothing of it is read, its rows and states stay as they are. Those that are not negative differ. Null: 0, 1, ….
  const sympow_tensor* indices;
  /// [B] of int32, written: 0 of a sequence that was computed or is inactive, 1 if its index is beyond the states, 2 if
  /// more tokens are dropped than are in its tail; it is left out. Null: not wanted.
  const sympow_tensor* faults;
} sympow_slots;
#define SYMPOW_SLOTS_INIT {sizeof(sympow_slots), NULL, NULL}

/// `sympow_decode` of B sequences, at most as many as there are states, each with the states that `slots` says, on a
/// device. The counts of tails lie there: full tails fold by themselves, also in a captured graph. A row has the same
/// bits whatever else is in the call.
SYMPOW_API sympow_status sympow_decode_slots(const sympow_attention* attention, const sympow_inputs* inputs,
                                             sympow_states* states, const sympow_slots* slots,
                                             const sympow_tensor* rows, sympow_workspace* workspace, void* stream);

/// What is known of the rows that `sympow_attend` gives for the same inputs and states, which stay as they are:
/// `diagnostics` are [B, T_q, H, 3] of float64, three numbers a row, 0 where Q is padding,
///
///     log |Σ_j s_ij|                                          -∞ where the row sees nothing
///     Σ_j b_ij (|scale| |q_i| |M_ij k_j|)^P / |Σ_j s_ij|      how much a row magnifies rounding: its condition number
///     1 where the row has nothing to divide by and is 0       else 0
///
/// In the condition number a pair of exponential scores weighs e^s (1 + |scale| |q| |k|), of random features
/// |φ(scale q)| |φ(k)|; with channel gates it is an upper bound. Cost: that of `sympow_attend`, and a copy of a state
/// for each query head. On a CPU.
SYMPOW_API sympow_status sympow_diagnose(const sympow_attention* attention, const sympow_inputs* inputs,
                                         const sympow_states* states, const sympow_tensor* diagnostics,
                                         sympow_workspace* workspace, void* stream);

/// Where gradients of a loss go: written, not added to. Each has the shape of what it is of, those of parameters either
/// type. Null: not wanted, but for the first three.
typedef struct sympow_gradients {
  size_t size;                         ///< set by SYMPOW_GRADIENTS_INIT
  const sympow_tensor* queries;        ///< dQ, 0 where padding
  const sympow_tensor* keys;           ///< dK: sums over the query heads of a key head, in their order
  const sympow_tensor* values;         ///< dV: the same sums
  const sympow_tensor* log_gates;      ///< ∂loss/∂log γ: the same sums; 0 where γ = 0 and where padding
  const sympow_tensor* theta;          ///< sums over sequences and heads, in order
  const sympow_tensor* beta;           ///< as log_gates
  const sympow_tensor* scale;          ///< [] or [1]: a sum over sequences and heads
  const sympow_tensor* channel_gates;  ///< as log_gates
  const sympow_tensor* householder;    ///< ∂loss/∂w: the same sums; 0 where padding
  const sympow_tensor* strengths;      ///< ∂loss/∂β of Householder vectors: the same sums
} sympow_gradients;
#define SYMPOW_GRADIENTS_INIT {sizeof(sympow_gradients), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

/// The gradients of `sympow_attend` with the same inputs, from d_rows = ∂loss/∂Y, [B, T_q, H, e].
///
/// `states` are those before the first token: copy them before a call moves them on. `state_gradients` are the
/// gradients in the states after the last token, and become those in `states`; null, the loss does not see the states
/// after. Both are null where the call had none. The recurrent form is taken back by chunks. Cost: two to three times
/// that of `sympow_attend`. Allocates as it does, and the gradients of parameters in double.
///
/// On a device: the gradient of the scale is float64. States have no tokens in a tail: those that `sympow_attend` or
/// `move` has left have none. Of normalised rows it needs rows and their denominators, for the scale of others rows,
/// and so computes them again: the cost of one `sympow_attend` more, and of the workspace what rows take.
SYMPOW_API sympow_status sympow_attend_vjp(const sympow_attention* attention, const sympow_inputs* inputs,
                                           const sympow_tensor* d_rows, const sympow_states* states,
                                           sympow_state_gradients* state_gradients, const sympow_gradients* gradients,
                                           sympow_workspace* workspace, void* stream);

// ---- states ----

/// The sizes of states.
typedef struct sympow_state_shape {
  size_t size;                  ///< set by SYMPOW_STATE_SHAPE_INIT, with SYMPOW_CPU and float32
  int64_t batch;                ///< B
  int64_t heads;                ///< Hs
  int64_t d;                    ///< numbers a key
  int64_t e;                    ///< numbers a value
  sympow_device device;         ///< where they lie
  sympow_dtype dtype;           ///< of queries, keys and values
  int32_t reserved;             ///< 0
  const sympow_tensor* memory;  ///< on a device: the caller's, of bytes that `sympow_states_bytes` says; on a CPU null
  int64_t key_heads;            ///< on a device: Hk [0: Hs]
} sympow_state_shape;
#define SYMPOW_STATE_SHAPE_INIT \
  {sizeof(sympow_state_shape), 0, 0, 0, 0, {SYMPOW_CPU, 0}, {SYMPOW_FLOAT, 32, 1}, 0, NULL, 0}

/// What later tokens need of earlier ones, for every sequence and head:
///
///     S = Σ_j b_Tj v_j φ(k_j)ᵀ      Z = Σ_j b_Tj φ(k_j)ᵀ      φ(q)·φ(k) = (q·k)^P
///
/// and the last tokens as they are. Empty states, which begin where `after` ends, null: at the first token. States that
/// are to be merged to the right of others must begin after these. Bytes: B Hs (D (e + 1) + tail (d + e)) numbers.
///
/// On a device they lie in `memory`, as that of a workspace, which is theirs until they are destroyed; `after` is null.
/// Hs = Hk, or H where gates are those of query heads. S and Z are float32; the tail has room for 64 tokens, or 128
/// where `options.tail` is above 64; θ is the same in all calls until they are cleared. Calls that take states there
/// are `sympow_attend` and its gradients, `decode`, `decode_slots`, `drop`, `copy_slots`, `clear`, `tokens`, `move`,
/// `of_arrays` and `to_arrays`; for others they are moved to states on a CPU and back.
SYMPOW_API sympow_status sympow_states_create(const sympow_attention* attention, const sympow_state_shape* shape,
                                              const sympow_states* after, sympow_states** states);
SYMPOW_API void sympow_states_destroy(sympow_states* states);
/// The bytes of memory that states of these sizes need: 0 on a CPU. `shape->memory` is not looked at.
SYMPOW_API sympow_status sympow_states_bytes(const sympow_attention* attention, const sympow_state_shape* shape,
                                             size_t* bytes);
/// Makes `to` what `from` is, one of both on a CPU and one on a device, of the same power, B, Hs, d and e; what `to`
/// was is lost. Numbers are rounded to float32 once. The tail of a device is folded first, by a workspace of a
/// decoding; null where there are no tokens in it. `tokens`, [B] on a CPU, int32 or int64, are those that sequences
/// have seen, null: those that were counted, which calls with lengths on a device are not. Gates that a device has seen
/// are not kept: states that come from there merge to the left of others. Waits for the stream.
SYMPOW_API sympow_status sympow_states_move(sympow_states* from, sympow_states* to, const sympow_tensor* tokens,
                                            sympow_workspace* workspace, void* stream);
/// States of their own that are equal to these. On a CPU.
SYMPOW_API sympow_status sympow_states_copy(const sympow_states* states, sympow_states** copy);
/// Sequence `sequence` of `states` becomes what sequence `from_sequence` of `from` is, with all its heads, to the bit;
/// what it was is lost. For beams and for slots of a server. Both on a CPU and alike but for B; `from` may be `states`.
SYMPOW_API sympow_status sympow_states_assign(sympow_states* states, int64_t sequence, const sympow_states* from,
                                              int64_t from_sequence);
/// The newest tokens[b], [B] of int32 on the device, of sequence b leave its tail, as if they had never been decoded:
/// drafts that were rejected. Those of the last call are in the tail, those that were folded no more; a sequence that
/// has too few has a fault and stays as it is. On a device.
SYMPOW_API sympow_status sympow_states_drop(sympow_states* states, const sympow_tensor* tokens,
                                            const sympow_slots* slots, void* stream);
/// States slots->indices[b] become, to the bit, what states from_slots->indices[b] of `from` are, tails too, or empty
/// if that is negative. No states are written twice, or read by one b and written by another. For beams, prefixes that
/// are kept, prompts on their way to a slot, and slots that begin anew. Both on a device and alike but for B; `from`
/// may be `states`. Faults go to `slots`. Of both, indices must be given.
SYMPOW_API sympow_status sympow_states_copy_slots(sympow_states* states, const sympow_slots* slots, sympow_states* from,
                                                  const sympow_slots* from_slots, void* stream);
/// Empties them: they begin at the first token.
SYMPOW_API sympow_status sympow_states_clear(sympow_states* states);
/// Whether queries read S rounded to the upper half of its bits, of float32 to bf16, from now on [0]: a decoded token
/// moves half the bytes, and rows are off by 2^-8 of what they add up. S itself stays as it is. On a CPU.
SYMPOW_API sympow_status sympow_states_read_as_bf16(sympow_states* states, int32_t rounds);
/// The states after `left`'s tokens and then `right`'s, which were created after `left`. Cost: two copies and more.
SYMPOW_API sympow_status sympow_states_merge(const sympow_states* left, const sympow_states* right,
                                             sympow_states** merged);

/// The tokens that a state has seen. On a device calls with lengths or slots are not counted, and it is refused after
/// one.
SYMPOW_API sympow_status sympow_states_tokens(const sympow_states* states, int64_t sequence, int64_t head,
                                              int64_t* tokens);
/// S, [B, Hs, D, e], Z, [B, Hs, D], both of the states' type, and the angles μ, [B, Hs, d/2] of float64, or
/// [B, Hs, rotary_dim/2], 0 where nothing has turned; null: not wanted. Rows of S are monomials k_{i1} ⋯ k_{iP},
/// i1 ≤ … ≤ iP, in lexicographic order, times the root of their multiplicity. Refused where the type cannot hold the
/// largest of them, at either end. Cost: two copies.
SYMPOW_API sympow_status sympow_states_read(const sympow_states* states, const sympow_tensor* sums,
                                            const sympow_tensor* normaliser, const sympow_tensor* angles);
/// The other way: states begin with S, Z and the angles μ, null: 0, all of them finite. For states that are parameters,
/// were computed or came from elsewhere. They have seen no token; rows that go on from them agree to rounding with
/// those that go on from the states that were read. Gradients in states are those in S, Z and μ.
SYMPOW_API sympow_status sympow_states_write(sympow_states* states, const sympow_tensor* sums,
                                             const sympow_tensor* normaliser, const sympow_tensor* angles);

/// The same of states on a device, with arrays there: float32, angles float64, dense, aligned to 16 bytes. `to_arrays`
/// folds the tail first, by a workspace of a decoding; null where there are no tokens in it. Entries are not looked at
/// and are rounded once; states of a key head turn by the angles of the first of them. Nothing waits, and the arrays
/// must stay until the stream has done what was put on it.
SYMPOW_API sympow_status sympow_states_to_arrays(sympow_states* states, const sympow_tensor* sums,
                                                 const sympow_tensor* normaliser, const sympow_tensor* angles,
                                                 sympow_workspace* workspace, void* stream);
/// As `sympow_states_write`.
SYMPOW_API sympow_status sympow_states_of_arrays(sympow_states* states, const sympow_tensor* sums,
                                                 const sympow_tensor* normaliser, const sympow_tensor* angles,
                                                 void* stream);

/// Files: the states of `sympow/attention/state_file.hpp` one after the other, b Hs + h, as sympow-attend writes them.
/// `load` takes as many states, B Hs of them, of the same d, e, type, power and tail, and leaves them as they were if
/// it fails.
SYMPOW_API sympow_status sympow_states_save(const sympow_states* states, const char* path);
/// The other way.
SYMPOW_API sympow_status sympow_states_load(sympow_states* states, const char* path);

/// ∂loss/∂S, [B, Hs, D, e], ∂loss/∂Z, [B, Hs, D], of the type of the states, and ∂loss/∂μ, [B, Hs, d/2] of float64,
/// only for calls with θ: for states of the sizes of `like`. Null: zeros.
///
/// On a device the arrays are the memory of the gradients, as those of `sympow_states_to_arrays`: they are kept, a call
/// reads them on its stream and writes them, and `read` is refused. S and Z must be given. Null angles are not zeros
/// there: they say that the loss sees states through rows alone, in this call and all later ones. Then ∂loss/∂μ follows
/// from the others, for rows change with S and μ only by what one turns more than the other. If a loss sees S, Z or μ
/// itself anywhere in a chain of calls, all of them need angles, zeros to begin with. Of the states of a key head the
/// first has all of ∂loss/∂μ before the call, the others 0.
SYMPOW_API sympow_status sympow_state_gradients_create(const sympow_states* like, const sympow_tensor* sums,
                                                       const sympow_tensor* normaliser, const sympow_tensor* angles,
                                                       sympow_state_gradients** state_gradients);
SYMPOW_API void sympow_state_gradients_destroy(sympow_state_gradients* state_gradients);
/// ∂loss/∂S, ∂loss/∂Z and ∂loss/∂μ as they are now; null: not wanted. On a CPU.
SYMPOW_API sympow_status sympow_state_gradients_read(const sympow_state_gradients* state_gradients,
                                                     const sympow_tensor* sums, const sympow_tensor* normaliser,
                                                     const sympow_tensor* angles);

#ifdef __cplusplus
}
#endif

#endif
