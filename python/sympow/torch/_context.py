"""Context parallelism: one sequence over the processes of a group."""

from __future__ import annotations

import functools
from typing import Any, Callable, TypeVar

import sympow
import torch
from sympow.torch import _INPUT_NAMES, State, _as_given, _shapes_of, _tensors_of, _views, attention
from torch import Tensor, distributed

Result = TypeVar("Result")


def context_parallel(queries: Tensor, keys: Tensor, values: Tensor, *, log_gates: Tensor | None = None,
                     theta: Tensor | None = None, beta: Tensor | None = None, lengths: Tensor | None = None,
                     channel_gates: Tensor | None = None, householder: Tensor | None = None,
                     strengths: Tensor | None = None, return_state: bool = False, layout: str = "bthd",
                     group: distributed.ProcessGroup | None = None, **options: Any) -> Tensor | tuple[Tensor, State]:
    """Rows y, [B, T_r, H, e], of this rank's part of sequences that the ranks of `group` hold one after the other.

    Every rank of the group calls this with its own T_r tokens: of queries, keys, values, gates and other parameters of a
    token. T_r may differ and may be 0. `theta` is the same on all ranks; `lengths` are of this rank's part. Arguments and
    options are otherwise those of `attention`. `group` None: all processes.

    Together the rows are those of `attention` on the whole sequence up to rounding: the row rule of docs/numerics.md.
    They are the same bit for bit whenever the number of ranks and their parts are.

    With `return_state` also the state after this rank's tokens: on the last rank the one after the sequence.

    Rows have gradients of the sum of all ranks' losses. Every rank must then call `backward`, as its gradients need those
    of later ranks. A rank's gradient in θ, or in another tensor that all ranks share, is its share: add them up.
    Gradients in θ and β round as where a state is handed from one call to the next.

        1  each rank finds S and Z of its tokens alone, and A, what its tokens make of an earlier state
        2  all ranks gather them: the state before rank r is x_r, x_{r+1} = A_r x_r + (S, Z)_r, x_0 = 0
        3  each rank computes its rows from that state

    Backward the gradients of the x_r are gathered and handed on from the last rank to the first. No rank waits for the
    work of another but in these exchanges. Cost: two calls of `attention` on T_r tokens, one of them of one query head a
    state. Memory: the states of all ranks, as float64 one of them.

    Raises on every rank what any of them would raise, before rows are computed; `InvalidArgument` also where ranks
    differ in types, options, sizes other than T_r or tensors that require gradients, and without a process group. An
    error while gradients are computed is raised on its rank alone.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        raise sympow.InvalidArgument("there is no process group: call torch.distributed.init_process_group on every rank")
    if distributed.get_rank(group) < 0:
        raise sympow.InvalidArgument(f"group is {group}, must hold this process")
    given = queries, keys, values, log_gates, theta, beta, lengths, channel_gates, householder, strengths
    tensors, said = _on_every_rank(group, functools.partial(_checked, given, layout, options))
    _check_alike(said)
    angles = None
    if theta is not None:
        total, _ = _on_every_rank(group, lambda: (_total_angles(tensors, options), None))
        angles = _Prefix.apply(group, total, None)
    (own, weights), _ = _on_every_rank(group, lambda: (_own_state(tensors, angles, options), None))
    before = _Prefix.apply(group, own, weights)
    inputs = dict(zip(_INPUT_NAMES, tensors))
    state = State(before[..., :-1], before[..., -1], angles)
    (rows, after), _ = _on_every_rank(
        group, lambda: (attention(**inputs, state=state, return_state=True, **options), None))
    rows = _as_given(rows, queries, layout, None)
    return (rows, after) if return_state else rows


def _on_every_rank(group: distributed.ProcessGroup | None,
                   run: Callable[[], tuple[Result, Any]]) -> tuple[Result, list[Any]]:
    """What `run` returns first, and of all ranks what it returns second. Raises on every rank if it does on one."""
    result, said, error = None, None, None
    try:
        result, said = run()
    except Exception as found:  # the others wait for this rank
        error = found
    kind = type(error) if isinstance(error, (sympow.SympowError, TypeError)) else RuntimeError
    all_said: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(all_said, (said, None if error is None else (kind, str(error))), group=group)
    if error is not None:
        raise error
    for rank, (_, of_rank) in enumerate(all_said):
        if of_rank is not None:
            kind, text = of_rank
            raise kind(f"rank {rank}: {text}")
    return result, [said for said, _ in all_said]


def _checked(given: tuple[Tensor | None, ...], layout: str,
             options: dict[str, Any]) -> tuple[list[Tensor | None], dict[str, str]]:
    """The tensors of a call, with tokens before heads, and what must be alike on all ranks. Raises what the library says
    of their types and shapes."""
    tensors = _tensors_of(given, None, layout, None)[0][:len(_INPUT_NAMES)]
    attention_of = sympow._attention_of(options)
    if options.get("mask", "causal") != "causal":
        raise sympow.InvalidArgument(f"mask is {options['mask']!r}, must be 'causal': a rank sees the tokens of earlier ranks alone")
    attention_of.workspace_bytes(_views(tuple(tensors)))
    of_no_sequence = {name: x if x is None or name == "theta" else x[:0] for name, x in zip(_INPUT_NAMES, tensors)}
    with torch.no_grad():
        attention(**of_no_sequence, return_state=True, **options)
    alike = {"options": repr(attention_of)}
    for name, x, as_given in zip(_INPUT_NAMES, tensors, given):
        if x is None:
            alike[name] = "None"
        else:
            shape = list(x.shape) if name in ("theta", "lengths") else [x.shape[0], "T", *x.shape[2:]]
            alike[name] = (f"{str(as_given.dtype).removeprefix('torch.')} [{', '.join(map(str, shape))}] "
                           f"with{'' if x.requires_grad and torch.is_grad_enabled() else 'out'} gradients")
    return tensors, alike


def _check_alike(said: list[dict[str, str]]) -> None:
    """Raises `InvalidArgument` on every rank where one differs from the first."""
    for rank, of_rank in enumerate(said):
        for name, x in of_rank.items():
            if x != said[0][name]:
                raise sympow.InvalidArgument(f"{name}: {said[0][name]} on rank 0 and {x} on rank {rank}, must be alike")


def _total_angles(tensors: list[Tensor | None], options: dict[str, Any]) -> Tensor:
    """Σ_t β_t θ of this rank's tokens, [B, Hs, d/2], as the library adds angles up."""
    queries, _, _, _, theta, beta, lengths, *_ = tensors
    B, T, _, d = queries.shape
    heads = sympow._state_heads(_shapes_of(tensors))
    still = queries.new_zeros(1, T, 1, d).expand(B, T, heads, d)
    beta = None if beta is None else _of_states(beta, heads, 2)
    turning = {name: sympow._attention_of(options)._given[name] for name in ("pairing", "rotary_dim")}
    _, after = attention(still, still, still[..., :1], theta=theta, beta=beta, lengths=lengths, return_state=True, power=1,
                         **turning)
    return after.angles


def _own_state(tensors: list[Tensor | None], angles: Tensor | None,
               options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """S and Z beside each other, [B, Hs, D, e + 1], of this rank's tokens alone; and what these make of a state before
    them: factors of its rows, [B, Hs, D, 1], or under Householder chains a matrix, [B, Hs, D, D]."""
    inputs = dict(zip(_INPUT_NAMES, tensors))
    queries, values = tensors[0], tensors[2]
    heads, e = sympow._state_heads(_shapes_of(tensors)), values.shape[3]
    D = sympow._attention_of(options).feature_dimension(queries.shape[3])
    of = queries.shape[0], heads, D
    inputs["queries"] = queries.detach()[:, :, ::queries.shape[2] // heads]  # their rows are not looked at
    sums, normaliser = queries.new_zeros(*of, e), queries.new_zeros(of)
    if inputs["householder"] is not None:  # more values, which start with the identity and add nothing
        sums = torch.cat([sums, torch.eye(D, dtype=sums.dtype, device=sums.device).expand(*of, D)], 3)
        inputs["values"] = torch.cat([values, values.new_zeros(*values.shape[:3], D)], 3)
    _, after = attention(**inputs, state=State(sums, normaliser, angles), return_state=True, **options)
    own = torch.cat([after.sums[..., :e], after.normaliser.unsqueeze(3)], 3)
    return own, after.sums[..., e:] if inputs["householder"] is not None else _decay(tensors, of, options)


def _decay(tensors: list[Tensor | None], of: tuple[int, int, int], options: dict[str, Any]) -> Tensor:
    """What gates leave of each row of a state before this rank's tokens, [B, Hs, D, 1] of float64."""
    inputs = dict(zip(_INPUT_NAMES, tensors))
    queries, lengths = inputs["queries"], inputs["lengths"]

    def total(x: Tensor) -> Tensor:
        if lengths is not None:
            is_padding = torch.arange(x.shape[1], device=x.device) >= lengths.unsqueeze(1)
            x = x.masked_fill(is_padding.reshape(*is_padding.shape, *[1] * (x.dim() - 2)), 0)
        return _of_states(x.double().sum(1), of[1], 1)

    log_weights = queries.new_zeros(of, dtype=torch.float64)
    if inputs["log_gates"] is not None:
        log_weights = log_weights + total(inputs["log_gates"]).unsqueeze(2)
    if inputs["channel_gates"] is not None:  # of the monomial k_i1 ⋯ k_iP
        channels = torch.arange(queries.shape[3], device=queries.device)
        power = sympow._attention_of(options)._given["power"]
        monomials = torch.combinations(channels, power, with_replacement=True)
        log_weights = log_weights + total(inputs["channel_gates"])[..., monomials].sum(3)
    return log_weights.exp().unsqueeze(3)


def _of_states(x: Tensor, heads: int, axis: int) -> Tensor:
    """Parameters of heads as those of states, of which there are as many or more."""
    return x.repeat_interleave(heads // x.shape[axis], axis)


class _Prefix(torch.autograd.Function):
    """x_r of x_{r+1} = A_r x_r + own_r, x_0 = 0, on rank r, which gives own_r and A_r: factors of rows or a matrix; None: 1.

    With h_r = ∂loss/∂x_{r+1}: h_{r-1} = ∂loss/∂x_r + A_rᵀ h_r, ∂loss/∂own_r = h_r, ∂loss/∂A_r = h_r x_rᵀ. All of it in float64.
    """

    @staticmethod
    def forward(ctx: Any, group: distributed.ProcessGroup | None, own: Tensor, weights: Tensor | None) -> Tensor:
        rank = distributed.get_rank(group)
        all_own = _gathered(own, group)
        all_weights = [None] * len(all_own) if weights is None else _gathered(weights, group)
        x = torch.zeros_like(own, dtype=torch.float64)
        for own_s, weights_s in zip(all_own[:rank], all_weights):
            x = _moved(weights_s, x) + own_s
        ctx.group, ctx.has_weights = group, weights is not None
        if weights is not None:
            ctx.save_for_backward(x, *all_weights[rank:])
        return x.to(own.dtype)

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> tuple[Tensor | None, ...]:
        rank = distributed.get_rank(ctx.group)
        all_dx = _gathered(dx, ctx.group)
        x, *later = ctx.saved_tensors if ctx.has_weights else [None] * (len(all_dx) - rank + 1)
        h = torch.zeros_like(dx, dtype=torch.float64)
        for dx_s, weights_s in zip(all_dx[:rank:-1], reversed(later)):
            h = dx_s + _moved(None if weights_s is None else weights_s.mT if _is_matrix(weights_s) else weights_s, h)
        d_weights = None
        if ctx.has_weights:
            d_weights = (h @ x.mT if _is_matrix(later[0]) else (h * x).sum(3, keepdim=True)).to(later[0].dtype)
        return None, h.to(dx.dtype), d_weights


def _is_matrix(weights: Tensor) -> bool:
    return weights.shape[-1] != 1


def _moved(weights: Tensor | None, x: Tensor) -> Tensor:
    """A x."""
    return x if weights is None else weights.double() @ x if _is_matrix(weights) else weights * x


def _gathered(x: Tensor, group: distributed.ProcessGroup | None) -> list[Tensor]:
    """Those of all ranks."""
    x = x.contiguous()
    found = [torch.empty_like(x) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(found, x, group=group)
    return found
