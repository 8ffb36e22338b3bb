"""sympow in JAX: attention whose scores are powers of inner products, as a call of XLA with gradients.

    y_i = Σ_{j ≤ i} s_ij v_j / Σ_{j ≤ i} s_ij       s_ij = κ(scale q_i·M_ij k_j) b_ij       κ(x) = x^P or exp x
    b_ij = γ_{j+1} ⋯ γ_i                            M_ij = R(μ_i)ᵀ R(μ_j),   μ_i = μ_{i-1} + β_i θ

    rows = sympow.jax.attention(queries, keys, values, log_gates=gates, power=2)
    rows, state = sympow.jax.attention(queries, keys, values, log_gates=gates, power=2, return_state=True)

Arrays are [B, T, H, D] on a CPU, float32, or float64 where `jax_enable_x64` is set, all of a call alike. `jit`, `grad`,
`vjp`, `vmap`, `scan` and `checkpoint` know the call. Gradients are those of the library, bit for bit; there are no
second derivatives, and none in forward mode. `vmap` adds a mapped axis to the sequences. It is a loop where θ is
mapped, and in gradients where there is θ.

XLA calls `_attend` and `_attend_vjp` below by its foreign function interface, whose structs ctypes reads: nothing is
compiled for a version of JAX. They hold Python's lock while they read them, and not while the library computes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import math
import operator
import sys
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import jax
import numpy as np
import sympow
from jax import Array, custom_batching
from jax import numpy as jnp

__all__ = ["Diagnostics", "State", "attention", "diagnose"]

# ---- the structs of XLA's foreign function interface, xla/ffi/api/c_api.h, up to the last field that is read ----


def _sized(*fields: tuple[str, Any]) -> list[tuple[str, Any]]:
    return [("size", c_size_t), ("extension", c_void_p), *fields]


class _Buffer(ctypes.Structure):
    _fields_ = _sized(("dtype", c_int32), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64)))


class _Buffers(ctypes.Structure):
    _fields_ = _sized(("count", c_int64), ("types", c_void_p), ("items", POINTER(POINTER(_Buffer))))


class _Text(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]


class _Attributes(ctypes.Structure):
    _fields_ = _sized(("count", c_int64), ("types", c_void_p), ("names", c_void_p), ("items", POINTER(POINTER(_Text))))


class _Version(ctypes.Structure):
    _fields_ = _sized(("major", ctypes.c_int), ("minor", ctypes.c_int))


class _Error(ctypes.Structure):
    _fields_ = _sized(("message", c_char_p), ("code", c_int32))


class _Api(ctypes.Structure):
    _fields_ = _sized(("version", _Version), ("internal", c_void_p),
                      ("create_error", ctypes.CFUNCTYPE(c_void_p, POINTER(_Error))))


class _Metadata(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("version", _Version)]


class _MetadataExtension(ctypes.Structure):
    """The extension of a call that only asks for metadata, the one that there is."""

    _fields_ = [("size", c_size_t), ("type", c_int32), ("next", c_void_p), ("metadata", POINTER(_Metadata))]


class _CallFrame(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("extension", POINTER(_MetadataExtension)), ("api", POINTER(_Api)),
                ("context", c_void_p), ("stage", c_int32), ("arguments", _Buffers), ("results", _Buffers),
                ("attributes", _Attributes)]


_TYPES = {11: (2, 32), 12: (2, 64), 4: (0, 32), 5: (0, 64)}  # code and bits of float32, float64, int32, int64
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED = 3, 8


def _views(buffers: _Buffers) -> list[sympow.Tensor]:
    """Arrays of XLA where they are."""
    found = []
    for n in range(buffers.count):
        x = buffers.items[n].contents
        found.append(sympow.Tensor(x.data, 1, 0, x.rank, *_TYPES[x.dtype], 1, x.dims, None, 0))
    return found


@contextlib.contextmanager
def _default_float_environment() -> Iterator[None]:
    """Keeps subnormal numbers, which XLA's threads flush to zero: results are then those of other callers."""
    if sys.platform != "linux":
        yield
        return
    library, environment = sympow._lib(), ctypes.create_string_buffer(64)
    library.fegetenv(environment)
    library.fesetenv(c_void_p(-1))  # FE_DFL_ENV
    try:
        yield
    finally:
        library.fesetenv(environment)


def _handler(run: Callable[[_Call, list[sympow.Tensor], list[sympow.Tensor]], None]) -> Any:
    """`run(call, arguments, results)` as a function of C that XLA calls; exceptions become errors of jax."""

    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        if frame.extension:  # XLA checks the version: major ones move fields, minor ones only add some
            version = frame.extension.contents.metadata.contents.version
            version.major, version.minor = 0, frame.api.contents.version.minor if frame.api else 1
            return None
        api = frame.api.contents
        try:
            text = frame.attributes.items[0].contents
            call = _call_of(ctypes.string_at(text.data, text.length))
            with _default_float_environment():
                run(call, _views(frame.arguments), _views(frame.results))
            return None
        except BaseException as error:  # which XLA must not see
            message = str(error) if isinstance(error, sympow.SympowError) else f"{type(error).__name__}: {error}"
            code = _RESOURCE_EXHAUSTED if isinstance(error, MemoryError) else _INVALID_ARGUMENT
            return api.create_error(_Error(ctypes.sizeof(_Error), None, message.encode(errors="replace"), code))

    return ctypes.CFUNCTYPE(c_void_p, POINTER(_CallFrame))(handle)


# ---- what XLA calls ----


class State(NamedTuple):
    """What later tokens need of earlier ones, for B sequences and Hs heads, as arrays: a pytree.

    sums:        S = Σ_j b_Tj v_j φ(k_j)ᵀ, [B, Hs, D, e], of the queries' type; D is `Attention.feature_dimension(d)`
    normaliser:  Z = Σ_j b_Tj φ(k_j)ᵀ, [B, Hs, D], of the queries' type
    angles:      μ, [B, Hs, d/2] or [B, Hs, rotary_dim/2], float64 with `jax_enable_x64`, else float32; None: 0

    Hs is Hk, whose query heads share a state, or H. Zeros are the state before the first token.
    """

    sums: Array
    normaliser: Array
    angles: Array | None = None


_INPUT_NAMES = sympow._INPUT_NAMES
_NAMES = (*_INPUT_NAMES, *State._fields)
_THETA, _LENGTHS = _NAMES.index("theta"), _NAMES.index("lengths")
_Arrays = tuple[Array | None, ...]  # of these names


class _Call(NamedTuple):
    """What XLA keeps of a call besides its arrays, as text: a compiled program may outlive this process in a cache."""

    attention: sympow.Attention
    given: tuple[str, ...]  # names of the arrays
    keeps_state: bool

    def text(self) -> str:
        return json.dumps([self.attention._given, *self[1:]], default=operator.methodcaller("item"))


@functools.lru_cache(maxsize=256)
def _call_of(text: bytes) -> _Call:
    options, given, keeps_state = json.loads(text)
    return _Call(sympow.Attention(**options), tuple(given), keeps_state)


def _in_float64(x: sympow.Tensor | None) -> sympow.Tensor | None:
    """Angles or diagnostics as the library has them, a copy of those that are float32."""
    if x is None or (x.code, x.bits) != (2, 32):
        return x
    copy = _array_of(x).astype(np.float64)
    view = sympow._view("copy", copy)
    view.owner = copy
    return view


def _array_of(x: sympow.Tensor) -> np.ndarray:
    """Of float32, where it is."""
    shape = x.shape[:x.ndim]
    return np.ctypeslib.as_array((ctypes.c_float * math.prod(shape)).from_address(x.data or 0)).reshape(shape)


def _state_of(call: _Call, views: dict[str, sympow.Tensor]) -> sympow.State | None:
    """A state for a call, where it has one."""
    before = [views.get(name) for name in State._fields]
    if not call.keeps_state and before == [None] * 3:
        return None
    shapes = {name: x.shape[:x.ndim] for name, x in views.items()}
    (B, _, _, d), e = shapes["queries"], shapes["values"][3]
    state = sympow.State(call.attention, B, sympow._state_heads(shapes), d, e, f"float{views['queries'].bits}")
    if before != [None] * 3:
        state.write_tensors([*before[:2], _in_float64(before[2])])
    return state


def _attend(call: _Call, arguments: list[sympow.Tensor], results: list[sympow.Tensor]) -> None:
    """Rows, and what is in the state after the last token where it is kept."""
    views = dict(zip(call.given, arguments))
    state = _state_of(call, views)
    call.attention.attend_tensors({name: views.get(name) for name in _INPUT_NAMES}, results[0], state)
    if call.keeps_state:
        angles = _in_float64(results[3])
        state.read_tensors([*results[1:3], angles])
        if angles is not results[3]:
            _array_of(results[3])[...] = angles.owner


def _attend_vjp(call: _Call, arguments: list[sympow.Tensor], results: list[sympow.Tensor]) -> None:
    """The gradients in the arrays of a call but its lengths, from those in its results, the first of the arguments."""
    after = 4 if call.keeps_state else 1
    [d_rows, *d_state], views = arguments[:after], dict(zip(call.given, arguments[after:]))
    gradients = dict(zip((name for name in call.given if name != "lengths"), results))
    state = _state_of(call, views)
    if call.keeps_state:
        d_state[2] = _in_float64(d_state[2]) if "theta" in views else None  # where nothing turns there are none
    d_before = [gradients.pop(name, None) for name in State._fields]
    angles = _in_float64(d_before[2])
    call.attention.vjp_tensors(d_rows, {name: views.get(name) for name in _INPUT_NAMES}, gradients, state,
                               d_state or None, None if state is None else [*d_before[:2], angles])
    if angles is not d_before[2]:
        _array_of(d_before[2])[...] = angles.owner


def _diagnose(call: _Call, arguments: list[sympow.Tensor], results: list[sympow.Tensor]) -> None:
    """What is known of rows, three numbers each."""
    views, found = dict(zip(call.given, arguments)), _in_float64(results[0])
    call.attention.diagnose_tensors({name: views.get(name) for name in _INPUT_NAMES}, found, _state_of(call, views))
    if found is not results[0]:
        _array_of(results[0])[...] = found.owner


def _refuse(*_: Any) -> None:
    raise sympow.NotBuilt("arrays are on a GPU, must be on a CPU: jax.device_put(x, jax.devices('cpu')[0])")


_HANDLERS = {(f"sympow{run.__name__}", platform): _handler(run if platform == "cpu" else _refuse)
             for run in (_attend, _attend_vjp, _diagnose) for platform in ("cpu", "CUDA", "ROCM")}  # kept, as XLA does not
for (_target, _platform), _function in _HANDLERS.items():
    jax.ffi.register_ffi_target(_target, jax.ffi.pycapsule(_function), platform=_platform)

# ---- what JAX traces ----


def _check(call: _Call, arrays: _Arrays) -> None:
    """Raises what the library says of arrays of these types and shapes: of inputs as they are, with lengths of 0, and
    of all in a call on no sequence, which computes nothing."""
    zero, views = c_int64(), {}
    for name, x in zip(_NAMES, arrays):
        if x is not None:
            views[name] = sympow.Tensor.of(ctypes.addressof(zero), *sympow._type_of(name, np.dtype(x.dtype)), x.shape,
                                           [0] if name == "lengths" else None)
    inputs = {name: views.get(name) for name in _INPUT_NAMES}
    call.attention.workspace_bytes(inputs)
    B = arrays[0].shape[0]
    for name, x in views.items():
        if name in State._fields and x.ndim > 0 and x.shape[0] != B:
            raise sympow.ShapeMismatch(f"{name}: shape[0] is {x.shape[0]}, must be {B} (sequences of the queries)")
        if name != "theta" and x.ndim > 0:
            x.shape[0] = 0
    rows = sympow.Tensor.of(0, *sympow._TYPES[arrays[0].dtype], [0, *arrays[0].shape[1:3], arrays[2].shape[3]], None)
    call.attention.attend_tensors(inputs, rows, _state_of(call, views))


def _result_types(call: _Call, arrays: _Arrays) -> list[jax.ShapeDtypeStruct]:
    """Of rows, and of sums, normaliser and angles where they are kept."""
    (B, T, H, d), e, dtype = arrays[0].shape, arrays[2].shape[3], arrays[0].dtype
    types = [jax.ShapeDtypeStruct((B, T, H, e), dtype)]
    if call.keeps_state:
        of = B, sympow._state_heads({name: x.shape for name, x in zip(_NAMES, arrays) if x is not None})
        D, turned = call.attention.feature_dimension(d), (call.attention._given["rotary_dim"] or d) // 2
        types += [jax.ShapeDtypeStruct((*of, D, e), dtype), jax.ShapeDtypeStruct((*of, D), dtype),
                  jax.ShapeDtypeStruct((*of, turned), jax.dtypes.canonicalize_dtype(np.float64))]
    return types


def _mappable(call: Callable[[list[Array], _Arrays], list[Array]], loops: Callable[[_Arrays, _Arrays], bool]) -> Any:
    """A call that `vmap` knows: an axis that it maps becomes more sequences, or the call is in a loop where
    `loops(arrays, is_mapped)` says so."""
    call = custom_batching.custom_vmap(call)

    @call.def_vmap
    def _(size: int, is_mapped: Any, cotangents: list[Array], arrays: _Arrays) -> Any:
        theta, given = arrays[_THETA], (cotangents, arrays)
        given = jax.tree.map(lambda x, mapped: x if mapped else jnp.broadcast_to(x, (size, *x.shape)), given,
                             tuple(is_mapped))
        if loops(arrays, is_mapped[1]):
            results = jax.lax.map(lambda x: call(*x), given)
        else:
            B = given[1][0].shape[1]
            cotangents, arrays = jax.tree.map(lambda x: x.reshape(size * x.shape[1], *x.shape[2:]), given)
            results = call(cotangents, (*arrays[:_THETA], theta, *arrays[_THETA + 1:]))
            results = [x.reshape(size, B, *x.shape[1:]) for x in results]
        return results, [True] * len(results)

    return call


@functools.lru_cache(maxsize=64)
def _function(attention: sympow.Attention, keeps_state: bool, layout: str) -> Callable[[_Arrays], list[Array]]:
    """The call with these options, compiled: rows, and sums, normaliser and angles where they are kept."""

    def call_of(arrays: _Arrays) -> _Call:
        return _Call(attention, tuple(name for name, x in zip(_NAMES, arrays) if x is not None), keeps_state)

    def attend(_: list[Array], arrays: _Arrays) -> list[Array]:
        call, given = call_of(arrays), [x for x in arrays if x is not None]
        return jax.ffi.ffi_call("sympow_attend", _result_types(call, arrays))(*given, call=call.text())

    def attend_vjp(cotangents: list[Array], arrays: _Arrays) -> list[Array]:
        call, given = call_of(arrays), [x for x in arrays if x is not None]
        types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in given if x is not arrays[_LENGTHS]]
        return jax.ffi.ffi_call("sympow_attend_vjp", types)(*cotangents, *given, call=call.text())

    attend = _mappable(attend, _maps_theta)
    attend_vjp = _mappable(attend_vjp, lambda arrays, _: arrays[_THETA] is not None)  # whose gradient is one sum

    @jax.custom_vjp
    def rows_and_state(arrays: _Arrays) -> list[Array]:
        _check(call_of(arrays), arrays)
        return attend([], arrays)

    def backward(arrays: _Arrays, cotangents: list[Array]) -> tuple[_Arrays]:
        results = iter(attend_vjp(cotangents, arrays))
        return tuple(None if x is None or n == _LENGTHS else next(results) for n, x in enumerate(arrays)),

    rows_and_state.defvjp(lambda arrays: (rows_and_state(arrays), arrays), backward)

    def run(arrays: _Arrays) -> list[Array]:
        if layout == "bthd":
            return rows_and_state(arrays)
        rows, *state = rows_and_state(_tokens_first(layout, arrays))
        return [rows.swapaxes(1, 2), *state]

    return jax.jit(run)


def _tokens_first(layout: str, arrays: _Arrays) -> _Arrays:
    """Axes of tokens and heads in the order of the library."""
    if layout == "bthd":
        return arrays
    return tuple(x if x is None or n == _THETA or n >= len(_INPUT_NAMES) or x.ndim < 3 else x.swapaxes(1, 2)
                 for n, x in enumerate(arrays))


def _maps_theta(arrays: _Arrays, is_mapped: _Arrays) -> bool:
    return arrays[_THETA] is not None and is_mapped[_THETA]


@functools.lru_cache(maxsize=64)
def _diagnosis(attention: sympow.Attention) -> Callable[[_Arrays], Array]:
    """What is known of the rows of a call with these options, compiled: three numbers each."""

    def run(_: list[Array], arrays: _Arrays) -> list[Array]:
        call = _Call(attention, tuple(name for name, x in zip(_NAMES, arrays) if x is not None), False)
        shape = jax.ShapeDtypeStruct((*arrays[0].shape[:3], 3), jax.dtypes.canonicalize_dtype(np.float64))
        return jax.ffi.ffi_call("sympow_diagnose", [shape])(*(x for x in arrays if x is not None), call=call.text())

    run = _mappable(run, _maps_theta)

    def checked(arrays: _Arrays) -> Array:
        _check(_Call(attention, (), False), arrays)
        return run([], arrays)[0]

    return jax.jit(checked)


# ---- what users call ----


def attention(queries: Array, keys: Array, values: Array, *, log_gates: Array | None = None, theta: Array | None = None,
              beta: Array | None = None, lengths: Array | None = None, channel_gates: Array | None = None,
              householder: Array | None = None, strengths: Array | None = None, state: State | None = None,
              return_state: bool = False, layout: str = "bthd", **options: Any) -> Array | tuple[Array, State]:
    """Rows y, [B, T, H, e], and with `return_state` the state after the last token; all of it has gradients.

    queries       [B, T, H, d], float32 or float64
    keys          [B, T, Hk, d], of the queries' type; query head h reads key head ⌊h Hk / H⌋
    values        [B, T, Hk, e], of the queries' type
    log_gates     [B, T, Hk] or [B, T, H]: log γ ≤ 0, as log_sigmoid makes them; float32 or float64, as other parameters
    theta         [d/2], or [rotary_dim/2]: rates of rotary positions, radians per token; of n axes [n, d/2]
    beta          [B, T, Hk] or [B, T, H], only with theta; None: all 1; of n axes [B, T, Hk, n] or [B, T, H, n], what
                  each coordinate of positions grows by
    lengths       [B], int32 or int64: tokens of every sequence, the rest is padding
    channel_gates [B, T, Hk, d] or [B, T, H, d]: log a ≤ 0 of every channel of a key, as in GLA; not with theta
    householder   [B, T, Hk, d] or [B, T, H, d], of the queries' type: w of A = I - β w wᵀ, as in DeltaNet and PaTH;
                  behind channel gates A = diag(a) (I - β w wᵀ); not with theta, and with a state for power 1 alone
    strengths     [B, T, Hk] or [B, T, H], of the heads of householder: that β; None: all 1
    state         what came before; None: nothing
    layout        "bhtd": all of these are [B, H, T, d], gates [B, H, T]

    Options are those of `sympow.Attention`, numbers and words and never traced: power, form, normalisation, scale … A
    state is copied at either end of a call.

    Raises `sympow.SympowError` for options, types and shapes, when the call is traced. What is wrong with numbers in
    arrays, such as gates above 1, the library says when XLA runs it: in a `ValueError` or a
    `jax.errors.JaxRuntimeError`, whichever jax makes of it.
    """
    arrays = _arrays_of((queries, keys, values, log_gates, theta, beta, lengths, channel_gates, householder, strengths),
                        state, layout, options)
    try:
        rows, *after = _function(sympow._attention_of(options), bool(return_state), layout)(arrays)
    except (sympow.ShapeMismatch, sympow.InvalidArgument) as error:
        raise sympow._in_layout(layout, error) from None
    return (rows, State(*after)) if return_state else rows


class Diagnostics(NamedTuple):
    """`sympow.Diagnostics` as arrays of JAX, each [B, T, H]: a pytree."""

    log_sum: Array
    condition: Array
    is_degenerate: Array


def diagnose(queries: Array, keys: Array, values: Array, *, log_gates: Array | None = None, theta: Array | None = None,
             beta: Array | None = None, lengths: Array | None = None, channel_gates: Array | None = None,
             householder: Array | None = None, strengths: Array | None = None, state: State | None = None,
             layout: str = "bthd", **options: Any) -> Diagnostics:
    """What is known of the rows of `attention` with the same arguments, at the cost of that call: of float64 with
    `jax_enable_x64`, else float32, and whether a row is degenerate. There are no gradients: they are 0. Raises what
    `attention` does."""
    arrays = _arrays_of((queries, keys, values, log_gates, theta, beta, lengths, channel_gates, householder, strengths),
                        state, layout, options)
    try:
        found = _diagnosis(sympow._attention_of(options))(jax.lax.stop_gradient(_tokens_first(layout, arrays)))
    except (sympow.ShapeMismatch, sympow.InvalidArgument) as error:
        raise sympow._in_layout(layout, error) from None
    log_sum, condition, is_degenerate = jnp.moveaxis(found.swapaxes(1, 2) if layout == "bhtd" else found, 3, 0)
    return Diagnostics(log_sum, condition, is_degenerate != 0)


def _arrays_of(inputs: _Arrays, state: State | None, layout: str, options: dict[str, Any]) -> _Arrays:
    """The arrays of a call, by `_NAMES`."""
    if state is not None and not isinstance(state, (tuple, list)):
        raise TypeError(f"state is {sympow._kind_of(state)}, must be a sympow.jax.State")
    arrays = *inputs, *(State(None, None) if state is None else State(*state))
    for n, x in enumerate(arrays):
        if not isinstance(x, (Array, np.ndarray)) and (x is not None or n < 3):
            raise TypeError(f"{_NAMES[n]} is {sympow._kind_of(x)}, must be an array")
    if isinstance(options.get("scale"), jax.core.Tracer):
        raise sympow.InvalidArgument("scale is traced, and would have no gradient: multiply the queries by it")
    sympow._check_layout(layout, inputs[0])
    return arrays
