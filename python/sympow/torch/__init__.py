"""sympow in PyTorch: attention whose scores are powers of inner products, as operators with gradients.

    y_i = Σ_{j ≤ i} s_ij v_j / Σ_{j ≤ i} s_ij       s_ij = κ(scale q_i·M_ij k_j) b_ij       κ(x) = x^P or exp x
    b_ij = γ_{j+1} ⋯ γ_i                            M_ij = R(μ_i)ᵀ R(μ_j),   μ_i = μ_{i-1} + β_i θ

    rows = sympow.torch.attention(queries, keys, values, log_gates=gates, power=2)
    rows, state = sympow.torch.attention(queries, keys, values, log_gates=gates, power=2, return_state=True)

Tensors are [B, T, H, D], as PyTorch's layers make them, all of a call alike: of float32, float64, bfloat16 or float16 on
a CPU; on a GPU, where the library was built with CUDA, of bfloat16, float16 or float32, and then on PyTorch's stream and
in its memory. On a CPU bfloat16 and float16 are computed in float32, rows and gradients come back as they are.
They are read where they are: transposed, sliced and expanded ones need no copy, but entries of a token must be
contiguous.

To decode token by token, keep a `sympow.State`, which stays in the library:

    state = sympow.torch.state_of(state, queries, keys, values, power=2)
    row = sympow.torch.decode(query, key, value, state, log_gates=gate)

`context_parallel` is `attention` on a sequence that the processes of a `torch.distributed` group share.

`torch.ops.sympow.attend` and its gradient `torch.ops.sympow.attend_vjp` are custom operators of PyTorch, so that
autograd, `torch.compile`, `torch.export`, `vmap` and, on a CPU, autocast, to float32, know them. Gradients are those of
the library, bit for bit; it has no second derivatives.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from typing import Any, Callable, Iterable, NamedTuple, Sequence

import sympow
import torch
from torch import Tensor, library
from torch.autograd import forward_ad
from torch.nn import Parameter

__all__ = ["Diagnostics", "State", "attention", "context_parallel", "copy_slots", "decode", "diagnose", "drop",
           "scaled_dot_product_attention", "state_of"]

_INPUTS = ("Tensor queries, Tensor keys, Tensor values, Tensor? log_gates, Tensor? theta, Tensor? beta, "
           "Tensor? lengths, Tensor? channel_gates, Tensor? householder, Tensor? strengths, "
           "Tensor? sums, Tensor? normaliser, Tensor? angles")
_OPTIONS = ("str scores, int power, str normalisation, str form, str mask, str? pairing, bool check_finite, int offset, "
            "int chunk, int checkpoint, int tail, float scale, int rotary_dim, int features, int seed, "
            "int window")
_OPTION_NAMES = [option.split()[1] for option in _OPTIONS.split(", ")]
_TENSOR_NAMES = [x.split()[1] for x in _INPUTS.split(", ")]
_TENSORS, _LENGTHS, _ANGLES = len(_TENSOR_NAMES), _TENSOR_NAMES.index("lengths"), _TENSOR_NAMES.index("angles")
_INPUT_NAMES = _TENSOR_NAMES[:-3]  # all but the state's
_IN_STATE = slice(len(_INPUT_NAMES), _TENSORS)
_OF_TOKENS = [n for n, name in enumerate(_INPUT_NAMES) if name not in ("theta", "lengths")]

# ---- tensors as the library sees them ----

_COMMON = {torch.float32: (2, 32), torch.float64: (2, 64), torch.int32: (0, 32), torch.int64: (0, 64)}
_TYPES = {1: _COMMON, 2: _COMMON | {torch.bfloat16: (4, 16), torch.float16: (2, 16), torch.uint8: (1, 8)}}
_HALVES = torch.bfloat16, torch.float16
_OF_QUERIES = "queries", "keys", "values", "householder"  # of one type
_FLOATING = {1: "torch.float32 or torch.float64 on a CPU", 2: "torch.bfloat16, torch.float16 or torch.float32 on a GPU"}


def _place_of(x: Tensor) -> tuple[int, int] | None:
    """The device of a tensor as DLPack numbers it, None: another one."""
    return {"cpu": (1, 0), "cuda": (2, x.device.index)}.get(x.device.type)


def _is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _stream_at(x: Tensor) -> int:
    """The address of PyTorch's stream on a tensor's GPU."""
    return torch.cuda.current_stream(x.device).cuda_stream


def _view(name: str, x: Tensor | None) -> sympow.Tensor | None:
    """A tensor where it is, which the view keeps. Raises `InvalidArgument` for what a `sympow_tensor` cannot say."""
    if x is None:
        return None
    if x.layout != torch.strided or x.is_neg():
        raise sympow.InvalidArgument(f"{name} is {x.layout}, must be dense, and not a view with another sign")
    place = _place_of(x)
    if place is None:
        raise sympow.NotBuilt(f"{name} is on the device {x.device}, must be on a CPU or a GPU of CUDA")
    types = _TYPES[place[0]]
    if x.dtype not in types:
        allowed = "torch.int32 or torch.int64" if name == "lengths" else _FLOATING[place[0]]
        if place == (1, 0) and name in _OF_QUERIES:
            allowed = "torch.float32, torch.float64, torch.bfloat16 or torch.float16 on a CPU"
        raise sympow.InvalidArgument(f"{name} is of {x.dtype}, must be of {allowed}")
    view = sympow.Tensor.of(x.data_ptr(), *types[x.dtype], x.shape, x.stride(), place)
    view.owner = x
    return view


_idle = torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.ADInplaceOrView)  # the dispatcher's keys of a thread in no mode or transformation
_IDLE = _idle.raw_repr() if hasattr(_idle, "raw_repr") else None  # None: PyTorch does not say
_keys_of_thread = torch._C._dispatch_tls_local_include_set


def _key_of(tensors: Sequence[Tensor | None]) -> tuple[list[Any], list[int]] | None:
    """What a call on plain tensors on a CPU depends on, and their addresses, for `run_kept`; None: one is elsewhere, of
    another layout, a view with another sign, without memory, or stands for others."""
    key: list[Any] = []
    addresses = []
    try:
        for x in tensors:
            if x is None:
                key.append(None)
            elif (type(x) is Tensor or type(x) is Parameter) and x.is_cpu and not x.is_neg() and (address := x.data_ptr()):
                key += x.shape, x.stride(), x.dtype
                addresses.append(address)
            else:
                return None
    except RuntimeError:  # of a tensor of tensors, or of one that is not dense
        return None
    return key, addresses


def _recorded(tensors: Sequence[Tensor | None]) -> str | None:
    """The name of a tensor that requires a gradient where they are recorded."""
    if torch.is_grad_enabled():
        for name, x in zip(_TENSOR_NAMES, tensors):
            if x is not None and x.requires_grad:
                return name
    return None


def _needs_operator(tensors: Sequence[Tensor | None]) -> bool:
    """Whether PyTorch's dispatcher does more with these tensors than to record gradients and to call the library: it
    traces, maps, casts or is overridden, or a tensor is not plain. Else it is left out: it takes longer than a token."""
    return (_IDLE is None or _keys_of_thread().raw_repr() | _IDLE != _IDLE or torch.is_autocast_enabled("cpu")
            or torch.overrides.has_torch_function(tensors) or not all(map(_is_plain, tensors)))


def _is_plain(x: Tensor | None) -> bool:
    try:
        return x is None or ((type(x) is Tensor or type(x) is Parameter) and (x.is_cpu or x.is_cuda) and not x.is_neg()
                             and x.data_ptr() != 0)
    except RuntimeError:  # of a tensor of tensors, or of one that is not dense
        return False


def _is_half(queries: Tensor) -> bool:
    """Whether a call on a CPU is of halves, for which the library computes in float32."""
    return queries.dtype in _HALVES and not _is_on_gpu(queries)


def _narrowed(rows: Tensor, queries: Tensor) -> Tensor:
    """Rows of the queries' type, under autocast of float32."""
    return rows.to(queries.dtype) if _is_half(queries) and not torch.is_autocast_enabled("cpu") else rows


def _widened(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Halves as float32. Raises `InvalidArgument` unless keys, values and Householder vectors are of the queries' type,
    which under autocast they need not be."""
    for name in _OF_QUERIES[1:]:
        x = tensors[_TENSOR_NAMES.index(name)]
        if x is not None and x.dtype != tensors[0].dtype and not torch.is_autocast_enabled("cpu"):
            raise sympow.InvalidArgument(f"{name} is of {x.dtype}, must be of {tensors[0].dtype}, as the queries")
    return [x.float() if x is not None and x.dtype in _HALVES else x for x in tensors]


def _views(tensors: tuple[Tensor | None, ...]) -> dict[str, sympow.Tensor | None]:
    """Of all inputs but the state's."""
    return {name: _view(name, x) for name, x in zip(_INPUT_NAMES, tensors)}


def _on_stream(attention: sympow.Attention, queries: Tensor, inputs: dict[str, sympow.Tensor | None],
               call: str) -> dict[str, Any]:
    """Where a call works: on a GPU in memory that PyTorch hands on to what comes next on its stream."""
    if not _is_on_gpu(queries):
        return {}
    return dict(memory=_new_memory(queries, attention.workspace_bytes(inputs, call)), stream=_stream_at(queries))


def _new_memory(like: Tensor, size: int) -> sympow.Tensor:
    aligned = 256
    memory = like.new_empty(size + aligned - 1, dtype=torch.uint8)
    return _view("memory", memory[-memory.data_ptr() % aligned:])


def _state_views(sums: Tensor | None, normaliser: Tensor | None, angles: Tensor | None) -> list[sympow.Tensor | None]:
    return [_view(name, x) for name, x in zip(State._fields, (sums, normaliser, angles))]


@functools.lru_cache(maxsize=64, typed=True)  # 2 and 2.0 are not the same power
def _cached_attention(threads: int, *options: Any) -> sympow.Attention:
    return sympow.Attention(threads=threads, **dict(zip(_OPTION_NAMES, options)))


def _attention(options: tuple[Any, ...]) -> sympow.Attention:
    """That of these options, for the threads of PyTorch. Raises what `sympow.Attention` does."""
    threads = torch.get_num_threads()
    try:
        return _cached_attention(threads, *options)
    except TypeError:  # such as an array in the place of a number
        return sympow.Attention(threads=threads, **dict(zip(_OPTION_NAMES, options)))


# ---- sizes ----

_STATE_TYPES = {torch.float32: "float32", torch.float64: "float64"}


def _rows_shape(queries: Tensor, values: Tensor) -> tuple[int, ...]:
    """Of rows; inputs of which there are none will be refused."""
    q, v = queries.shape, values.shape
    return (q[0], q[1], q[2], v[3]) if len(q) == len(v) == 4 else (0, 0, 0, 0)


def _shapes_of(tensors: Iterable[Tensor | None]) -> dict[str, torch.Size]:
    """Of the tensors that are given."""
    return {name: x.shape for name, x in zip(_TENSOR_NAMES, tensors) if x is not None}


def _state_shapes(tensors: Sequence[Tensor | None], given: dict[str, Any]) -> list[tuple[int, ...]]:
    """Of sums, normaliser and angles, under the options that are given."""
    queries, values = tensors[0], tensors[2]
    d, D = queries.shape[3], 1
    for i in range(given["power"]):
        D = D * (d + i)
    D = D // math.factorial(given["power"])
    if given["scores"] == "random":
        D = given["features"]
    of = (queries.shape[0], sympow._state_heads(_shapes_of(tensors)))
    return [(*of, D, values.shape[3]), (*of, D), (*of, (given["rotary_dim"] or d) // 2)]


def _new_state(queries: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    dtype = torch.float32 if _is_on_gpu(queries) else queries.dtype
    types = dtype, dtype, torch.float64
    return [queries.new_empty(shape, dtype=dtype) for shape, dtype in zip(shapes, types)]


def _state_of(attention: sympow.Attention, tensors: tuple[Tensor | None, ...],
              keeps_state: bool) -> sympow.State | None:
    """A state for a call, where it has one."""
    sums, normaliser, angles = given = tensors[_IN_STATE]
    if not keeps_state and sums is None and normaliser is None and angles is None:
        return None
    queries, keys, values = tensors[:3]
    on_gpu = _is_on_gpu(queries)
    if not queries.dim() == keys.dim() == values.dim() == 4 or not (on_gpu or queries.dtype in _STATE_TYPES):
        return None  # the call will be refused
    sizes = queries.shape[0], sympow._state_heads(_shapes_of(tensors))
    if on_gpu:
        state = sympow.StateOnDevice(attention, *sizes, keys.shape[2], queries.shape[3], values.shape[3],
                                     _view("queries", queries), functools.partial(_new_memory, queries),
                                     _stream_at(queries))
    else:
        state = sympow.State(attention, *sizes, queries.shape[3], values.shape[3], _STATE_TYPES[queries.dtype])
    if any(x is not None for x in given):
        state.write_tensors(_state_views(*given))
    return state


# ---- the operators ----


def _run(call: str, attention: sympow.Attention, tensors: Sequence[Tensor | None],
         plain: tuple[list[Any], list[int]] | None, state: sympow.State | None) -> Tensor:
    """Rows of `sympow_attend` or `sympow_decode`; `plain` is the `_key_of` these tensors."""
    inputs = tensors[:len(_INPUT_NAMES)]
    if plain is None:
        views, rows = _views(inputs), _new_rows(tensors)
        kind = "decode" if call == "sympow_decode" else "attend" if state is None else "prefill"
        attention.attend_tensors(views, _view("rows", rows), state, call=call,
                                 **_on_stream(attention, inputs[0], views, kind))
    else:
        key, addresses = plain  # of states, too, behind those of the inputs
        q, v = key[0], key[6]  # shapes
        rows = tensors[0].new_empty(*((q[0], q[1], q[2], v[3]) if len(q) == len(v) == 4 else (0, 0, 0, 0)))
        attention.run_kept(call, key, [rows.data_ptr(), *addresses], state,
                           lambda: (_views(inputs), _view("rows", rows)))
    return rows


def _rows_and_state(attention: sympow.Attention, tensors: Sequence[Tensor | None],
                    plain: tuple[list[Any], list[int]] | None, keeps_state: bool) -> tuple[Tensor, list[Tensor]]:
    """Rows, and what is in the state after the last token if it is to be kept."""
    state = _state_of(attention, tensors, keeps_state)
    rows = _run("sympow_attend", attention, tensors, plain, state)
    if not keeps_state:
        return rows, []
    after = _new_state(tensors[0], _state_shapes(tensors, attention._given))
    state.read_tensors(_state_views(*after))
    return rows, after


@library.custom_op("sympow::attend", mutates_args=(),
                   schema=f"({_INPUTS}, bool keeps_state, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)")
def _attend(*arguments: Any) -> tuple[Tensor, ...]:
    """Rows, and what is in the state after the last token, empty unless it is to be kept."""
    tensors, keeps_state, options = arguments[:_TENSORS], arguments[_TENSORS], arguments[_TENSORS + 1:]
    rows, after = _rows_and_state(_attention(options), tensors, _key_of(tensors), keeps_state)
    return rows, *(after or (rows.new_empty(0) for _ in State._fields))


@_attend.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    tensors = arguments[:_TENSORS]
    queries, rows = tensors[0], _new_rows(tensors)
    if not arguments[_TENSORS]:
        return rows, *(queries.new_empty(0) for _ in State._fields)
    return rows, *_new_state(queries, _state_shapes(tensors, dict(zip(_OPTION_NAMES, arguments[_TENSORS + 1:]))))


@library.custom_op("sympow::diagnose", mutates_args=(), schema=f"({_INPUTS}, {_OPTIONS}) -> Tensor")
def _diagnose(*arguments: Any) -> Tensor:
    """What is known of rows, three numbers each."""
    tensors, options = arguments[:_TENSORS], arguments[_TENSORS:]
    attention, found = _attention(options), _new_diagnostics(tensors)
    attention.diagnose_tensors(_views(tensors), _view("diagnostics", found), _state_of(attention, tensors, False))
    return found


@_diagnose.register_fake
def _(*arguments: Any) -> Tensor:
    return _new_diagnostics(arguments[:_TENSORS])


def _new_diagnostics(tensors: tuple[Tensor | None, ...]) -> Tensor:
    return tensors[0].new_empty((*tensors[0].shape[:3], 3), dtype=torch.float64)


def _gradients(d_rows: Tensor, d_sums: Tensor | None, d_normaliser: Tensor | None, d_angles: Tensor | None,
               *arguments: Any) -> tuple[Tensor, ...]:
    """The gradients in the tensors of a call but its lengths; empty where there is no such tensor."""
    tensors, options = arguments[:_TENSORS], arguments[_TENSORS:]
    queries, results = tensors[0], _new_gradients(tensors)
    attention, inputs = _attention(options), _views(tensors)
    state = _state_of(attention, tensors, d_sums is not None)
    d_state, before = None if d_sums is None else (d_sums, d_normaliser, d_angles), results[-3:]
    if state is not None and _is_on_gpu(queries):
        before = d_state = _written_gradients(results, tensors, d_state)
    of_inputs = {name: None if x is None else _view(name, result) for name, x, result in zip(
        _INPUT_NAMES[:_LENGTHS] + _INPUT_NAMES[_LENGTHS + 1:], tensors[:_LENGTHS] + tensors[_LENGTHS + 1:], results)}
    of_state = [None if x is None else _view(name, result)
                for name, x, result in zip(State._fields, tensors[_IN_STATE], before)]
    if d_rows.stride(3) != 1 or d_rows.stride(1) < d_rows.shape[3]:
        d_rows = d_rows.contiguous()  # one number for many, as sums give it
    call = "attend_vjp" if state is None else "prefill_vjp"
    attention.vjp_tensors(_view("d_rows", d_rows), inputs, of_inputs, state,
                          None if d_state is None else _state_views(*d_state),
                          None if isinstance(state, sympow.StateOnDevice) else of_state,
                          **_on_stream(attention, queries, inputs, call))
    return results


_attend_vjp = library.custom_op(
    "sympow::attend_vjp", _gradients, mutates_args=(),
    schema=f"(Tensor d_rows, Tensor? d_sums, Tensor? d_normaliser, Tensor? d_angles, {_INPUTS}, {_OPTIONS}) -> "
           f"({', '.join(['Tensor'] * (_TENSORS - 1))})")


def _written_gradients(results: tuple[Tensor, ...], tensors: tuple[Tensor | None, ...],
                       d_state: tuple[Tensor | None, ...] | None) -> tuple[Tensor | None, ...]:
    """On a GPU: the gradients in the state after the last token, where those in the state before the first will be."""
    written = []
    for n, dtype in enumerate((torch.float32, torch.float32, torch.float64)):
        result, after = results[n - 3], None if d_state is None else d_state[n]
        if tensors[_IN_STATE][n] is None:
            result = None if after is None else torch.empty_like(after, dtype=dtype,
                                                                 memory_format=torch.contiguous_format)
        written.append(result if result is None else result.zero_() if after is None else result.copy_(after))
    turns = tensors[4] is not None and d_state is not None and d_state[2] is not None
    return *written[:2], written[2] if turns else None  # where nothing turns, angles pass


@_attend_vjp.register_fake
def _(d_rows: Tensor, d_sums: Tensor | None, d_normaliser: Tensor | None, d_angles: Tensor | None,
      *arguments: Any) -> tuple[Tensor, ...]:
    return _new_gradients(arguments[:_TENSORS])


def _no_second_derivatives(ctx: Any, *cotangents: Tensor) -> Any:
    raise sympow.NotBuilt("there are no second derivatives: take differences of gradients, or call without create_graph")


_attend_vjp.register_autograd(_no_second_derivatives)


def _new_rows(tensors: tuple[Tensor | None, ...]) -> Tensor:
    return _memory(tensors[0], _rows_shape(tensors[0], tensors[2]), tensors)


def _new_gradients(tensors: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    queries = tensors[0]
    return tuple(queries.new_empty(0) if x is None else _memory(x, x.shape, tensors)
                 for n, x in enumerate(tensors) if n != _LENGTHS)


def _memory(like: Tensor, shape: tuple[int, ...], tensors: tuple[Tensor | None, ...]) -> Tensor:
    """For what a call writes: a GPU leaves out padding, whose rows and gradients are 0."""
    pads = tensors[_LENGTHS] is not None and _is_on_gpu(tensors[0])
    return like.new_zeros(*shape) if pads else like.new_empty(*shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:_TENSORS])
    ctx.keeps_state, ctx.options = inputs[_TENSORS], inputs[_TENSORS + 1:]
    ctx.turns = any(ctx.needs_input_grad[n] for n in (4, 5, _ANGLES))  # what angles are made of
    if ctx.keeps_state and not ctx.turns:
        ctx.mark_non_differentiable(output[3])


def _backward(ctx: Any, d_rows: Tensor, *d_state: Tensor) -> tuple[Any, ...]:
    tensors = ctx.saved_tensors
    of_state = list(d_state) if ctx.keeps_state else [None] * 3
    on_gpu = _is_on_gpu(tensors[0])
    if not ctx.turns if on_gpu else tensors[4] is None:  # nobody asks, or nothing turns
        of_state[2] = None
    elif on_gpu and not ctx.keeps_state and ctx.needs_input_grad[_ANGLES]:  # a GPU has those in angles where it is given some
        of_state = [torch.zeros_like(x) for x in tensors[_IN_STATE]]
    given = d_rows, *of_state, *tensors
    is_direct = not torch.is_grad_enabled() and not _needs_operator(given)  # enabled: of second derivatives
    results = list((_gradients if is_direct else torch.ops.sympow.attend_vjp)(*given, *ctx.options))
    results.insert(_LENGTHS, None)
    return (*(None if x is None else result for x, result in zip(tensors, results)), None, *([None] * len(ctx.options)))


_attend.register_autograd(_backward, setup_context=_setup_context)


class _Attend(torch.autograd.Function):
    """The operator with its gradients, without the dispatcher. Its last argument is the `Attention` of the options."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        *given, attention = arguments
        tensors, keeps_state = given[:_TENSORS], given[_TENSORS]
        rows, after = _rows_and_state(attention, tensors, _key_of(tensors), keeps_state)
        _setup_context(ctx, given, (rows, *after))
        return rows, *after

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        return *_backward(ctx, *gradients), None


def _register_vmap(operator: Any, cotangents: int, loops: Callable[[Tensor | None, int | None], bool]) -> None:
    """Makes an operator's mapped dimension one of sequences. `cotangents` are the tensors before those of a call. θ has
    no sequences: the operator is called in a loop where `loops(theta, dimension)` says so."""
    tensors = cotangents + _TENSORS
    theta = cotangents + _TENSOR_NAMES.index("theta")

    def rule(info: Any, dimensions: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        mapped = [x if dimension is None else x.movedim(dimension, 0)
                  for x, dimension in zip(arguments, dimensions[:tensors])]
        options = arguments[tensors:]
        if loops(arguments[theta], dimensions[theta]):
            results = [operator(*(x if dimension is None else x[n] for x, dimension in zip(mapped, dimensions)), *options)
                       for n in range(info.batch_size)]
            return (torch.stack(results), 0) if isinstance(results[0], Tensor) else (
                tuple(map(torch.stack, zip(*results))), (0,) * len(results[0]))
        B = mapped[cotangents].shape[0 if dimensions[cotangents] is None else 1]
        folded = [x if x is None or n == theta else
                  (x.expand(info.batch_size, *x.shape) if dimension is None else x).flatten(0, 1)
                  for n, (x, dimension) in enumerate(zip(mapped, dimensions))]
        results = operator(*folded, *options)

        def unfolded(x: Tensor) -> tuple[Tensor, int | None]:
            return (x, None) if x.dim() == 1 and x.numel() == 0 else (x.unflatten(0, (info.batch_size, B)), 0)

        return unfolded(results) if isinstance(results, Tensor) else tuple(zip(*map(unfolded, results)))

    if hasattr(operator, "register_vmap"):  # PyTorch 2.5; before, vmap is a loop
        operator.register_vmap(rule)


_register_vmap(_attend, 0, lambda theta, dimension: dimension is not None)
_register_vmap(_diagnose, 0, lambda theta, dimension: dimension is not None)
_register_vmap(_attend_vjp, 4, lambda theta, dimension: theta is not None)  # whose gradient is one sum
_attend.register_autocast("cpu", torch.float32)

# ---- what users call ----


def _check_tensors(tensors: Sequence[Tensor | None]) -> None:
    """Raises `TypeError` for what is no tensor, and `NotBuilt` for tangents, which no operator would carry on."""
    for n, x in enumerate(tensors):
        if (x is not None or n < 3) and not isinstance(x, Tensor):  # queries, keys and values must be there
            raise TypeError(f"{_TENSOR_NAMES[n]} is {sympow._kind_of(x)}, must be a tensor")
    if forward_ad._current_level >= 0:
        for name, x in zip(_TENSOR_NAMES, tensors):
            if x is not None and forward_ad.unpack_dual(x).tangent is not None:
                raise sympow.NotBuilt(f"{name} has a tangent, and there are no derivatives in forward mode")


def _check_transformations(tensors: Sequence[Tensor | None]) -> None:
    """Raises `NotBuilt` for tensors of `torch.func.grad` and what is made of it; `vmap` may be around them."""
    functions = torch._C._functorch
    if not torch.is_grad_enabled() or functions.peek_interpreter_stack() is None:
        return
    for name, x in zip(_TENSOR_NAMES, tensors):
        while x is not None and functions.is_functorch_wrapped_tensor(x):
            if functions.is_gradtrackingtensor(x):
                raise sympow.NotBuilt(f"{name} is a tensor of torch.func.grad, vjp, jacrev or hessian, which do not know this "
                                      "operator: call torch.autograd.grad or backward, or sympow.jax under jax.grad")
            x = functions.get_unwrapped(x)


def _parameters_on_gpu(*parameters: Tensor | None) -> list[Tensor | None]:
    """Log gates, θ, β and lengths as a GPU reads them."""
    types = torch.float32, torch.float64, torch.float32, torch.int32
    return [None if x is None else x.to(dtype).contiguous() for x, dtype in zip(parameters, types)]


def _state_on_gpu(state: State) -> State:
    """A state as a GPU reads it."""
    types = torch.float32, torch.float32, torch.float64
    return State(*(None if x is None else x.to(dtype).contiguous() for x, dtype in zip(state, types)))


class State(NamedTuple):
    """What later tokens need of earlier ones, for B sequences and Hs heads, as tensors.

    sums:        S = Σ_j b_Tj v_j φ(k_j)ᵀ, [B, Hs, D, e], of the queries' type; D is `Attention.feature_dimension(d)`
    normaliser:  Z = Σ_j b_Tj φ(k_j)ᵀ, [B, Hs, D], of the queries' type; both float32 on a GPU and of halves
    angles:      μ, [B, Hs, d/2] or [B, Hs, rotary_dim/2], float64; None: 0

    Hs is Hk, whose query heads share a state, or H. Zeros are the state before the first token.
    """

    sums: Tensor
    normaliser: Tensor
    angles: Tensor | None = None


def attention(queries: Tensor, keys: Tensor, values: Tensor, *, log_gates: Tensor | None = None,
              theta: Tensor | None = None, beta: Tensor | None = None, lengths: Tensor | None = None,
              cu_seqlens: Tensor | None = None, channel_gates: Tensor | None = None, householder: Tensor | None = None,
              strengths: Tensor | None = None, state: State | None = None, return_state: bool = False,
              scores: str = "power", power: int = 2,
              normalisation: str = "default", form: str = "automatic", mask: str = "causal",
              pairing: str | None = None, check_finite: bool = False, offset: int = 0, chunk: int = 0,
              checkpoint: int = 0, tail: int = -1, scale: float = 1.0, rotary_dim: int = 0, features: int = 0,
              seed: int = 1, window: int = 0, layout: str = "bthd") -> Tensor | tuple[Tensor, State]:
    """Rows y, [B, T, H, e], and with `return_state` the state after the last token; all of it has gradients.

    queries       [B, T, H, d], float32, bfloat16, float16, or on a CPU float64
    keys          [B, T, Hk, d], of the queries' type; query head h reads key head ⌊h Hk / H⌋
    values        [B, T, Hk, e], of the queries' type
    log_gates     [B, T, Hk] or [B, T, H]: log γ ≤ 0, as logsigmoid makes them, under exponential scores of any sign; float32 or
                  float64, as other parameters; of the queries' type, too, if that is bfloat16 or float16
    theta         [d/2], or [rotary_dim/2]: rates of rotary positions, radians per token; of n axes [n, d/2]
    beta          [B, T, Hk] or [B, T, H], only with theta; None: all 1; of n axes [B, T, Hk, n] or [B, T, H, n], what each
                  coordinate of positions grows by
    lengths       [B], int32 or int64: tokens of every sequence, the rest is padding
    cu_seqlens    [N + 1], 0 … T: N sequences one after the other in a batch of one, whose states are N; copies them
    channel_gates [B, T, Hk, d] or [B, T, H, d]: log a ≤ 0 of every channel of a key, as in GLA; not with theta
    householder   [B, T, Hk, d] or [B, T, H, d], of the queries' type: w of A = I - β w wᵀ, as in DeltaNet and PaTH;
                  behind channel gates A = diag(a) (I - β w wᵀ); not with theta, and with a state for power 1 alone
    strengths     [B, T, Hk] or [B, T, H], of the heads of householder: that β; None: all 1
    state         what came before; None: nothing
    layout        "bhtd": all of these are [B, H, T, d], gates [B, H, T]

    The other options are those of `sympow.Attention`; `torch.set_num_threads` says on how many threads. A state as tensors is
    copied at either end of a call: to decode token by token, `decode` is faster.

    On a GPU gates and β are read as float32, theta as float64, lengths as int32 and a state as float32, whatever they
    are, and a state comes as float32; powers and sizes are those that the library has there, see `sympow_attend` in
    sympow.h.

    Odd powers give sums, even ones weighted means, see `normalisation`. Raises what `sympow.Attention` and its calls do:
    `sympow.SympowError`, whose text names the argument, what it is and what it must be, or `TypeError`. Under
    `torch.compile` an option of another type is PyTorch's RuntimeError.
    """
    tensors, sizes = _tensors_of((queries, keys, values, log_gates, theta, beta, lengths, channel_gates, householder,
                                  strengths), state, layout, cu_seqlens)
    if isinstance(scale, Tensor) and scale.requires_grad:
        raise sympow.InvalidArgument("scale requires a gradient, and would have none: multiply the queries by it")
    options = (scores, power, normalisation, form, mask, pairing, check_finite, offset, chunk, checkpoint, tail, scale,
               rotary_dim, features, seed, window)
    # Under a compiler the operator refuses other types, in PyTorch's words, and takes True for 1.
    attention_of = None if torch.compiler.is_compiling() else _attention(options)
    needs_operator = attention_of is None or _needs_operator(tensors)
    if needs_operator:
        if attention_of is not None:
            _check_transformations(tensors)
        for name, x in zip(_TENSOR_NAMES, tensors):  # the operator would take all for such
            if x is not None and x.device.type == "meta" != queries.device.type:
                raise sympow.NotBuilt(f"{name} is on the device meta, must be on that of the queries, {queries.device}")
    try:
        if needs_operator:
            rows, *after = torch.ops.sympow.attend(*tensors, return_state, *options)
        elif _recorded(tensors):
            rows, *after = _Attend.apply(*tensors, return_state, *options, attention_of)
        else:
            rows, after = _rows_and_state(attention_of, tensors, _key_of(tensors), return_state)
    except (sympow.ShapeMismatch, sympow.InvalidArgument) as error:
        raise sympow._in_layout(layout, error) from None
    rows = _as_given(rows, queries, layout, sizes)
    return (rows, State(*after)) if return_state else rows


class Diagnostics(NamedTuple):
    """`sympow.Diagnostics` as tensors, each [B, T, H]."""

    log_sum: Tensor
    condition: Tensor
    is_degenerate: Tensor


def diagnose(queries: Tensor, keys: Tensor, values: Tensor, *, log_gates: Tensor | None = None,
             theta: Tensor | None = None, beta: Tensor | None = None, lengths: Tensor | None = None,
             cu_seqlens: Tensor | None = None, channel_gates: Tensor | None = None, householder: Tensor | None = None,
             strengths: Tensor | None = None, state: State | None = None, layout: str = "bthd",
             **options: Any) -> Diagnostics:
    """What is known of the rows of `attention` with the same arguments, at the cost of that call: float64, and whether
    a row is degenerate. There are no gradients. On a CPU. Raises what `attention` does."""
    tensors, sizes = _tensors_of((queries, keys, values, log_gates, theta, beta, lengths, channel_gates, householder,
                                  strengths), state, layout, cu_seqlens)
    given = sympow._attention_of(options)._given
    try:
        with torch.no_grad():
            found = torch.ops.sympow.diagnose(*tensors, *(given[name] for name in _OPTION_NAMES))
    except (sympow.ShapeMismatch, sympow.InvalidArgument) as error:
        raise sympow._in_layout(layout, error) from None
    log_sum, condition, is_degenerate = _as_given(found, found, layout, sizes).unbind(3)
    return Diagnostics(log_sum, condition, is_degenerate != 0)


def _tensors_of(inputs: tuple[Tensor | None, ...], state: State | None, layout: str,
                cu_seqlens: Tensor | None) -> tuple[list[Tensor | None], list[int] | None]:
    """What an operator takes of a user's tensors, and the sizes of sequences that lie one after the other."""
    if state is not None and not isinstance(state, (tuple, list)):
        raise TypeError(f"state is {sympow._kind_of(state)}, must be a sympow.torch.State")
    before = (None,) * 3 if state is None else State(*state)
    tensors, sizes = [*inputs, *before], None
    _check_tensors(tensors)
    queries = tensors[0]
    if _is_half(queries):
        tensors = _widened(tensors)
    sympow._check_layout(layout, queries)
    if inputs[3] is not None and inputs[3].numel() >= 16 and inputs[3].is_cpu and not (
            torch.compiler.is_compiling() or torch.jit.is_tracing()):
        with contextlib.suppress(RuntimeError, TypeError):  # of what is traced or mapped
            sympow._check_gates(layout, inputs[3].detach().numpy(), 2)
    tensors = _tokens_first(layout, tensors)
    if cu_seqlens is not None:
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise sympow.NotBuilt("cu_seqlens is given under vmap, which it cannot: pad the sequences and give lengths")
        sizes = _sizes_of(cu_seqlens, tensors[0], tensors[_LENGTHS])
        for n in _OF_TOKENS:
            tensors[n] = _apart(_TENSOR_NAMES[n], tensors[n], sizes)
        tensors[_LENGTHS] = torch.tensor(sizes, device=queries.device)
    if _is_on_gpu(queries):
        tensors[3:_LENGTHS + 1] = _parameters_on_gpu(*tensors[3:_LENGTHS + 1])
        tensors[_IN_STATE] = _state_on_gpu(State(*before))
    return tensors, sizes


def _tokens_first(layout: str, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Tensors of a user's layout as an operator takes them. Raises `InvalidArgument` for another layout."""
    sympow._choice("layout", layout, sympow._LAYOUTS)
    if layout == "bthd":
        return [*tensors]
    return [x if x is None or n not in _OF_TOKENS or x.dim() < 3 else x.transpose(1, 2) for n, x in enumerate(tensors)]


def _as_given(rows: Tensor, queries: Tensor, layout: str, sizes: list[int] | None) -> Tensor:
    """Rows in the type and the layout of the user's tensors."""
    rows = _narrowed(rows, queries)
    if sizes is not None:
        rows = torch.cat([x[:size] for x, size in zip(rows, sizes)]).unsqueeze(0)
    return rows.transpose(1, 2) if layout == "bhtd" else rows


def _sizes_of(cu_seqlens: Tensor, queries: Tensor, lengths: Tensor | None) -> list[int]:
    """Tokens of the sequences that lie one after the other in a batch of one."""
    if not isinstance(cu_seqlens, Tensor):
        raise TypeError(f"cu_seqlens is {sympow._kind_of(cu_seqlens)}, must be a tensor")
    if cu_seqlens.dim() != 1 or cu_seqlens.dtype not in (torch.int32, torch.int64) or len(cu_seqlens) < 2:
        raise sympow.InvalidArgument(f"cu_seqlens is {cu_seqlens.tolist()} of {cu_seqlens.dtype}, must be N + 1 numbers of "
                                     "torch.int32 or torch.int64, N ≥ 1")
    bounds = cu_seqlens.tolist()
    if lengths is not None:
        raise sympow.InvalidArgument("lengths and cu_seqlens are given, must be one of them")
    if queries.shape[0] != 1 or not bounds or bounds[0] != 0 or bounds[-1] != queries.shape[1] or bounds != sorted(bounds):
        raise sympow.InvalidArgument(f"cu_seqlens is {bounds}, must rise from 0 to the {queries.shape[1]} tokens of a "
                                     f"batch of one; it is one of {queries.shape[0]}")
    return [end - begin for begin, end in zip(bounds, bounds[1:])]


def _apart(name: str, x: Tensor | None, sizes: list[int]) -> Tensor | None:
    """Sequences that lie one after the other as a batch, padded."""
    if x is None:
        return None
    if x.shape[1] != sum(sizes):
        raise sympow.ShapeMismatch(f"{name}: shape[1] is {x.shape[1]}, must be {sum(sizes)}, the last of cu_seqlens")
    return torch.nn.utils.rnn.pad_sequence(torch.split(x[0], sizes), batch_first=True)


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False, **options: Any) -> Tensor:
    """In the place of `torch.nn.functional.scaled_dot_product_attention`, of its layout [B, H, T, d] and its scale d^-1/2.

    By default the same softmax attention; `scores="power", power=2`, `log_gates`, `theta` and other options of `attention`
    make others of it, whose gates and β are [B, H, T]. Without B, [H, T, d], it is one sequence. Raises `NotBuilt` for a
    mask and for dropout.
    """
    if query.dim() == key.dim() == value.dim() == 3:
        of_one = (x.unsqueeze(0) for x in (query, key, value))
        return scaled_dot_product_attention(*of_one, attn_mask, dropout_p, is_causal, scale, enable_gqa, **options).squeeze(0)
    for name, x in dict(query=query, key=key, value=value).items():
        if x.dim() != 4:
            raise sympow.ShapeMismatch(f"{name}: ndim is {x.dim()}, must be 4 of [B, H, T, d], or 3 of all without B")
    if attn_mask is not None or dropout_p != 0:
        raise sympow.NotBuilt("attn_mask must be None and dropout_p 0: there are causal and full masks, and lengths")
    if not enable_gqa and query.shape[1:2] != key.shape[1:2]:
        raise sympow.ShapeMismatch(f"key: shape[1] is {key.shape[1]}, must be {query.shape[1]}, the heads of query, "
                                   "without enable_gqa")
    of_call = dict(scores="exponential", mask="causal" if is_causal else "full",
                   scale=query.shape[-1] ** -0.5 if scale is None else scale, layout="bhtd") | options
    return attention(query, key, value, **of_call)


def state_of(state: State | None, queries: Tensor, keys: Tensor, values: Tensor, *, log_gates: Tensor | None = None,
             theta: Tensor | None = None, beta: Tensor | None = None, channel_gates: Tensor | None = None,
             householder: Tensor | None = None, strengths: Tensor | None = None, layout: str = "bthd",
             **options: Any) -> sympow.State:
    """A state in the library for `decode`: it begins with what is in these tensors; None: at the first token.

    Queries, keys and values are any of the model, whose sizes, type and device it has. Gates and other parameters need
    only be given where they are those of the query heads. Options and layout are those of `attention`. On a GPU it is a
    `sympow.StateOnDevice` in PyTorch's memory.

    Raises what `sympow.State` and its `write` do, and `NotFinite`.
    """
    if state is not None and not isinstance(state, (tuple, list)):
        raise TypeError(f"state is {sympow._kind_of(state)}, must be a sympow.torch.State")
    before = State(None, None) if state is None else State(*state)
    tensors = queries, keys, values, log_gates, theta, beta, None, channel_gates, householder, strengths, *before
    _check_tensors(tensors)
    queries, keys, values, *_ = tensors = _tokens_first(layout, tensors)
    if _is_on_gpu(queries):
        before = _state_on_gpu(before)
    elif _is_half(queries):
        queries, keys, values, *_ = tensors = _widened(tensors)
    attention = sympow._attention_of({"threads": torch.get_num_threads(), **options})
    of_library = _state_of(attention, (*tensors[:len(_INPUT_NAMES)], *before), True)
    if of_library is None:
        raise sympow.InvalidArgument(f"queries are of {queries.dtype} and shape {list(queries.shape)}, must be "
                                     "[B, T, H, d] of torch.float32, torch.float64, torch.bfloat16 or torch.float16, as keys "
                                     "and values")
    return of_library


def decode(queries: Tensor, keys: Tensor, values: Tensor, state: sympow.State, *, log_gates: Tensor | None = None,
           theta: Tensor | None = None, beta: Tensor | None = None, lengths: Tensor | None = None,
           channel_gates: Tensor | None = None, householder: Tensor | None = None, strengths: Tensor | None = None,
           slots: Tensor | None = None, faults: Tensor | None = None, layout: str = "bthd") -> Tensor:
    """Rows y, [B, T, H, e], of a few new tokens, T of them, against a state of `state_of`, which they move on.

    Tensors and layout are those of `attention`, the options those of the state. Rows are those of the recurrent form,
    whatever the form is. There are no gradients.

    `slots`, on a GPU, [B] of torch.int32: sequence b is sequence slots[b] of the state; if that is negative, b is
    inactive, and its rows are not written. Those that are not negative differ. `faults`, [B] of torch.int32, become 1
    where slots[b] is beyond the state, which leaves b out, else 0. Nothing waits for the GPU.

    Raises what `attention` does, and `InvalidArgument` for a tensor that requires a gradient where they are recorded.
    """
    given = queries, keys, values, log_gates, theta, beta, lengths, channel_gates, householder, strengths
    plain = None if forward_ad._current_level >= 0 or queries is None or keys is None or values is None else _key_of(given)
    if plain is None:  # what follows is true of plain tensors
        _check_tensors(given)
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise sympow.NotBuilt("decode is called under vmap or torch.func, which it cannot: its state has the sequences")
    if layout != "bthd":
        try:
            rows = decode(*(given := _tokens_first(layout, given))[:3], state, slots=slots, faults=faults,
                          **dict(zip(_INPUT_NAMES[3:], given[3:])))
        except (sympow.ShapeMismatch, sympow.InvalidArgument) as error:
            raise sympow._in_layout(layout, error) from None
        return rows.transpose(1, 2)
    if recorded := _recorded(given):
        raise sympow.InvalidArgument(f"{recorded} requires a gradient, and decode gives none: call it in torch.no_grad(), "
                                     "or call attention")
    if isinstance(state, sympow.StateOnDevice):
        return _decode_on_device(given, state, slots, faults)
    if slots is not None or faults is not None:
        raise sympow.NotBuilt("slots and faults are of states on a GPU; on a CPU there are State.take and State.assign")
    sympow._check_state("state", state)
    if not _is_half(queries):
        return _run("sympow_decode", state.attention, given, plain, state)
    given = _widened(given)
    return _narrowed(_run("sympow_decode", state.attention, given, _key_of(given), state), queries)


def drop(state: sympow.StateOnDevice, tokens: Tensor, *, slots: Tensor | None = None,
         faults: Tensor | None = None) -> None:
    """The newest tokens[b] of each sequence, [B] of torch.int32, leave a state on a GPU: drafts that were rejected.

    Those of the last `decode` can be dropped, older ones until they are folded into S. `slots` and `faults` are those of
    `decode`; faults become 2 where there are too few, and the sequence stays as it is.
    """
    state.drop_tensors(_view("tokens", tokens), _slots(slots, faults), _stream_at(tokens))


def copy_slots(state: sympow.StateOnDevice, slots: Tensor, other: sympow.StateOnDevice, other_slots: Tensor, *,
               faults: Tensor | None = None) -> None:
    """Sequence slots[b] of a state on a GPU becomes sequence other_slots[b] of another one, or of the same.

    It becomes empty if other_slots[b] is negative, and nothing is done if slots[b] is. Both are [B] of torch.int32. No
    sequence is written twice, or read by one b and written by another. For beams, prefixes and new requests.
    """
    state.copy_slots_tensors(_slots(slots, faults), other, _slots(other_slots, None), _stream_at(slots))


def _slots(indices: Tensor | None, faults: Tensor | None) -> dict[str, sympow.Tensor | None]:
    return dict(indices=_view("slots", indices), faults=_view("faults", faults))


def _decode_on_device(given: tuple[Tensor | None, ...], state: sympow.StateOnDevice, slots: Tensor | None,
                      faults: Tensor | None) -> Tensor:
    """The same on a GPU."""
    queries, keys, values, *parameters = given
    of_tokens = _parameters_on_gpu(*parameters[:4])
    inputs = _views((queries, keys, values, *of_tokens, *parameters[4:]))
    rows = queries.new_empty(_rows_shape(queries, values))
    has_slots = slots is not None or faults is not None
    state.attention.attend_tensors(inputs, _view("rows", rows), state,
                                   call="sympow_decode_slots" if has_slots else "sympow_decode",
                                   slots=_slots(slots, faults) if has_slots else None,
                                   **_on_stream(state.attention, queries, inputs, "decode"))
    return rows


def __getattr__(name: str) -> Any:
    if name == "nn":
        return importlib.import_module("sympow.torch.nn")
    raise AttributeError(f"module 'sympow.torch' has no attribute {name!r}")


from sympow.torch._context import context_parallel  # noqa: E402  which needs what is above
