"""Operators of flash-linear-attention (0.6.0): linear attention, RetNet, Mamba-2, GLA, DeltaNet, KDA, FoX, PaTH.

Tensors are [B, T, H, K] and [B, T, H, V]; states [N, H, K, V], with `state_v_first` [N, H, V, K]; `cu_seqlens` [N + 1]
packs N sequences into a batch of one. Queries and keys of the gated delta rule and of KDA may have H heads where values,
gates and β have HV, a multiple. `scale` is K^-1/2 unless it is given. All have gradients, also in states; float32,
bfloat16, float16, on a CPU also float64. GLA, DeltaNet, KDA and PaTH run on a CPU alone.

What only says how fla computes is not looked at: `chunk_size`, `cu_seqlens_cpu`, `chunk_indices`, `disable_recompute`,
`safe_gate`.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any, Callable

import sympow
import sympow.torch
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["chunk_delta_rule", "chunk_gated_delta_rule", "chunk_gla", "chunk_kda", "chunk_linear_attn", "chunk_retention",
           "chunk_simple_gla", "fused_recurrent_delta_rule", "fused_recurrent_gated_delta_rule", "fused_recurrent_gla",
           "fused_recurrent_kda", "fused_recurrent_linear_attn", "fused_recurrent_retention", "fused_recurrent_simple_gla",
           "parallel_forgetting_attn", "parallel_path_attention", "parallel_path_attn",
           "parallel_retention", "parallel_simple_gla"]


def _refuse(name: str, given: Any, why: str) -> None:
    if given:
        raise sympow.NotBuilt(f"{name} is {given!r}, {why}")


def _check_shape(name: str, x: Tensor | None, axes: str, *shape: int) -> None:
    if x is not None and not isinstance(x, Tensor):
        raise TypeError(f"{name} is {sympow._kind_of(x)}, must be a tensor")
    if x is not None and tuple(x.shape) != shape:
        raise sympow.ShapeMismatch(f"{name}: shape is {list(x.shape)}, must be {list(shape)} of [{axes}]")


def _scale(q: Tensor) -> float:
    return q.shape[-1] ** -0.5 if q.shape[-1] > 0 else 1.0


def _linear(q: Tensor, k: Tensor, v: Tensor, scale: float | None, initial_state: Tensor | None, output_final_state: bool,
            cu_seqlens: Tensor | None, form: str, *, v_first: bool = False, reverse: bool = False,
            **of_tokens: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """o_t = scale S_tᵀ q_t,  S_t = e^{g_t} S_{t-1} + k_t v_tᵀ, with channel gates or Householder vectors as given."""
    if reverse:  # from the last token to the first, and from the last sequence
        tensors = [None if x is None else x.flip(1) for x in (q, k, v)]
        of_tokens = {name: None if x is None else x.flip(1) for name, x in of_tokens.items()}
        bounds = None if cu_seqlens is None else q.shape[1] - cu_seqlens.flip(0)
        sequences = [] if cu_seqlens is None else [0]
        before = None if initial_state is None else initial_state.flip(sequences)
        rows, last = _linear(*tensors, scale, before, output_final_state, bounds, form, v_first=v_first, **of_tokens)
        return rows.flip(1), None if last is None else last.flip(sequences)
    state = None
    if initial_state is not None:
        if q.dim() == k.dim() == v.dim() == 4:
            sequences, sizes = q.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1, (k.shape[3], v.shape[3])
            _check_shape("initial_state", initial_state, "N, H, V, K" if v_first else "N, H, K, V", sequences, k.shape[2],
                         *(sizes[::-1] if v_first else sizes))
        if v_first:
            initial_state = initial_state.transpose(-1, -2).contiguous()
        state = sympow.torch.State(initial_state, initial_state.new_zeros(initial_state.shape[:3]))  # sums read no Z
    found = sympow.torch.attention(
        q, k, v, state=state, return_state=output_final_state, cu_seqlens=cu_seqlens, power=1, form=form,
        normalisation="unnormalised", scale=_scale(q) if scale is None else scale, **of_tokens)
    if not output_final_state:
        return found, None
    return found[0], found[1].sums.transpose(-1, -2).contiguous() if v_first else found[1].sums


def chunk_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, g_gamma: Tensor | None = None,
                     scale: float | None = None, initial_state: Tensor | None = None,
                     output_final_state: bool = False, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                     cu_seqlens_cpu: Tensor | None = None, *, form: str = "chunked", reverse: bool = False,
                     **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Log gates g, [B, T, H], or one for each head, g_gamma, [H]: Mamba-2, RetNet. Returns o and the final state."""
    if g is not None and g_gamma is not None:
        raise sympow.InvalidArgument("g and g_gamma are given, must be one of them")
    if g_gamma is not None:
        _check_shape("g_gamma", g_gamma, "H", q.shape[2])
        g = g_gamma.expand(*q.shape[:2], -1)
    return _linear(q, k, v, scale, initial_state, output_final_state, cu_seqlens, form, v_first=state_v_first, reverse=reverse,
                   log_gates=g)


def fused_recurrent_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None,
                               g_gamma: Tensor | None = None, scale: float | None = None,
                               initial_state: Tensor | None = None, output_final_state: bool = False,
                               reverse: bool = False, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                               **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form; `reverse`: from the last token to the first."""
    return chunk_simple_gla(q, k, v, g, g_gamma, scale, initial_state, output_final_state, state_v_first, cu_seqlens,
                            form="recurrent", reverse=reverse)


def parallel_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, scale: float | None = None,
                        output_attentions: bool = False, cu_seqlens: Tensor | None = None,
                        cu_seqlens_cpu: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, None]:
    """The same without states; attentions are not returned."""
    _refuse("output_attentions", output_attentions, "must be False: no form keeps them")
    return chunk_simple_gla(q, k, v, g, None, scale, cu_seqlens=cu_seqlens)[0], None


def _retention_gates(q: Tensor) -> Tensor:
    heads = torch.arange(q.shape[2], dtype=torch.float64, device=q.device)
    return torch.log1p(-(2.0 ** (-5.0 - heads))).to(torch.promote_types(q.dtype, torch.float32))


def chunk_retention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
                    output_final_state: bool = False, cu_seqlens: Tensor | None = None,
                    **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """RetNet: γ = 1 - 2^(-5-h)."""
    return chunk_simple_gla(q, k, v, None, _retention_gates(q), scale, initial_state, output_final_state,
                            cu_seqlens=cu_seqlens)


def fused_recurrent_retention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None,
                              initial_state: Tensor | None = None, output_final_state: bool = False,
                              reverse: bool = False, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                              **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form; `reverse`: from the last token to the first."""
    return fused_recurrent_simple_gla(q, k, v, None, _retention_gates(q), scale, initial_state, output_final_state,
                                      reverse, state_v_first, cu_seqlens)


def parallel_retention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, output_attentions: bool = False,
                       cu_seqlens: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, None]:
    """The same without states; attentions are not returned."""
    _refuse("output_attentions", output_attentions, "must be False: no form keeps them")
    return chunk_retention(q, k, v, scale, cu_seqlens=cu_seqlens)[0], None


def chunk_linear_attn(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None,
                      initial_state: Any = None, output_final_state: bool = False, normalize: bool = True,
                      cu_seqlens: Tensor | None = None, *, form: str = "chunked",
                      reverse: bool = False) -> tuple[Tensor, Any]:
    """Linear attention; with `normalize` divided by scale q·Σk + 1e-10, and states are (S, Z) with Z [N, 1, H, K]."""
    if not normalize:
        return _linear(q, k, v, scale, initial_state, output_final_state, cu_seqlens, form, reverse=reverse)
    before, sums = initial_state if isinstance(initial_state, tuple) else (initial_state, None)
    if before is not None:  # Z is what S has of values 1
        ones = before.new_zeros(*before.shape[:3], 1) if sums is None else sums.transpose(1, 2).transpose(2, 3).to(before.dtype)
        before = torch.cat([before, ones], 3)
    rows, last = _linear(q, k, torch.cat([v, torch.ones_like(v[..., :1])], 3), scale, before, output_final_state, cu_seqlens,
                         form, reverse=reverse)
    return (rows[..., :-1] / (rows[..., -1:] + 1e-10),
            None if last is None else (last[..., :-1], last[..., -1].unsqueeze(1)))


def fused_recurrent_linear_attn(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None,
                                initial_state: Any = None, output_final_state: bool = False, reverse: bool = False,
                                normalize: bool = False, cu_seqlens: Tensor | None = None) -> tuple[Tensor, Any]:
    """The same by the recurrent form; `reverse`: from the last token to the first."""
    return chunk_linear_attn(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens,
                             form="recurrent", reverse=reverse)


def chunk_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float | None = None,
              initial_state: Tensor | None = None, output_final_state: bool = False, state_v_first: bool = False,
              cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, *, form: str = "chunked",
              reverse: bool = False, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """GLA: S_t = diag(e^{g_t}) S_{t-1} + k_t v_tᵀ with log gates g, [B, T, H, K]."""
    return _linear(q, k, v, scale, initial_state, output_final_state, cu_seqlens, form, v_first=state_v_first, reverse=reverse,
                   channel_gates=g)


def fused_recurrent_gla(q: Tensor, k: Tensor, v: Tensor, gk: Tensor | None = None, gv: Tensor | None = None,
                        scale: float | None = None, initial_state: Tensor | None = None,
                        output_final_state: bool = False, reverse: bool = False, state_v_first: bool = False,
                        cu_seqlens: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form, with gates of keys; `reverse`: from the last token to the first."""
    _refuse("gv", gv is not None, "must be None: there are no gates of values")
    return chunk_gla(q, k, v, gk, scale, initial_state, output_final_state, state_v_first, cu_seqlens, form="recurrent",
                     reverse=reverse)


def _unit(x: Tensor) -> Tensor:
    """x / √(|x|² + 10⁻⁶), at least in float32: squares of halves overflow."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.rsqrt((wide * wide).sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _delta(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None, scale: float | None,
           initial_state: Tensor | None, output_final_state: bool, cu_seqlens: Tensor | None, form: str, *, v_first: bool = False,
           unit: bool = False, sigmoid: bool = False, twice: bool = False, activates: bool = False, A_log: Tensor | None = None,
           dt_bias: Tensor | None = None, lower_bound: float | None = None) -> tuple[Tensor, Tensor | None]:
    """S_t = (I - β_t k_t k_tᵀ) e^{g_t} S_{t-1} + β_t k_t v_tᵀ behind gates of heads, [B, T, HV], or channels, [B, T, HV, K].

    unit       queries and keys are divided by their norms
    sigmoid    β is σ of what is given, `twice` that
    activates  g is what a layer gives: gates are -e^A softplus(g + b), or with a lower bound that times σ(e^A (g + b))
    """
    if q.dim() == v.dim() == 4 and v.shape[2] != q.shape[2]:
        if v.shape[2] % q.shape[2] != 0:
            raise sympow.ShapeMismatch(f"v: shape[2] is {v.shape[2]}, must be a multiple of {q.shape[2]}, the heads of q and k")
        q, k = (x.repeat_interleave(v.shape[2] // q.shape[2], 2) for x in (q, k))
    _check_shape("g", g, "B, T, HV, K" if g is not None and g.dim() == 4 else "B, T, HV", *v.shape[:3],
                 *(k.shape[3:] if g is not None and g.dim() == 4 else ()))
    _check_shape("beta", beta, "B, T, HV", *v.shape[:3])
    if unit:
        q, k = _unit(q), _unit(k)
    if beta is None:
        beta = torch.ones_like(v[..., 0])
    elif sigmoid:
        beta = beta.to(torch.promote_types(beta.dtype, torch.float32)).sigmoid() * (2 if twice else 1)
    if activates:
        if g is None or (A_log is None and lower_bound is None):
            raise sympow.InvalidArgument(f"{'g' if g is None else 'A_log'} is None, must be given with use_gate_in_kernel")
        g = g.to(torch.promote_types(g.dtype, torch.float32))
        if dt_bias is not None:
            g = g + dt_bias.reshape(g.shape[2:])
        strength = 1.0 if A_log is None else A_log.exp().reshape(-1, *(1 for _ in g.shape[3:]))
        g = -strength * functional.softplus(g) if lower_bound is None else lower_bound * (strength * g).sigmoid()
    elif A_log is not None or dt_bias is not None:
        raise sympow.InvalidArgument("A_log and dt_bias are given, must be None without use_gate_in_kernel")
    gates = {"log_gates" if g is None or g.dim() == 3 else "channel_gates": g}
    return _linear(q, k, (v * beta.unsqueeze(-1)).to(v.dtype), scale, initial_state, output_final_state, cu_seqlens, form, v_first=v_first,
                   householder=k, strengths=beta, **gates)


def chunk_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None, scale: float | None = None,
                           initial_state: Tensor | None = None, output_final_state: bool = False,
                           use_qk_l2norm_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False,
                           allow_neg_eigval: bool = False, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                           cu_seqlens_cpu: Tensor | None = None, chunk_indices: Tensor | None = None, *,
                           use_gate_in_kernel: bool = False, A_log: Tensor | None = None, dt_bias: Tensor | None = None,
                           form: str = "chunked", **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Gated DeltaNet: S_t = e^{g_t} (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ, with g and β [B, T, HV]."""
    return _delta(q, k, v, g, beta, scale, initial_state, output_final_state, cu_seqlens, form, v_first=state_v_first,
                  unit=use_qk_l2norm_in_kernel, sigmoid=use_beta_sigmoid_in_kernel, twice=allow_neg_eigval,
                  activates=use_gate_in_kernel, A_log=A_log, dt_bias=dt_bias)


def fused_recurrent_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, gk: Tensor | None = None,
                                     gv: Tensor | None = None, beta: Tensor | None = None, scale: float | None = None,
                                     initial_state: Tensor | None = None, output_final_state: bool = False,
                                     use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
                                     A_log: Tensor | None = None, dt_bias: Tensor | None = None,
                                     use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
                                     state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                                     **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form, with log gates gk of channels, [B, T, HV, K], in the place of g."""
    _refuse("gv", gv is not None, "must be None: there are no gates of values")
    if g is not None and gk is not None:
        raise sympow.NotBuilt("g and gk are given, must be one of them: add g to all channels of gk")
    return _delta(q, k, v, g if gk is None else gk, beta, scale, initial_state, output_final_state, cu_seqlens, "recurrent",
                  v_first=state_v_first, unit=use_qk_l2norm_in_kernel, sigmoid=use_beta_sigmoid_in_kernel,
                  twice=allow_neg_eigval, activates=use_gate_in_kernel, A_log=A_log, dt_bias=dt_bias)


def chunk_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float | None = None,
                     initial_state: Tensor | None = None, output_final_state: bool = False,
                     use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None,
                     cu_seqlens_cpu: Tensor | None = None, *, form: str = "chunked",
                     **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """DeltaNet: the same without gates."""
    return _delta(q, k, v, None, beta, scale, initial_state, output_final_state, cu_seqlens, form, unit=use_qk_l2norm_in_kernel)


def fused_recurrent_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None = None, scale: float | None = None,
                               initial_state: Tensor | None = None, output_final_state: bool = False,
                               use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None,
                               **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form."""
    return chunk_delta_rule(q, k, v, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens,
                            form="recurrent")


def chunk_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None,
              initial_state: Tensor | None = None, output_final_state: bool = False,
              use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
              use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False, safe_gate: bool = False,
              lower_bound: float | None = None, disable_recompute: bool = False, return_intermediate_states: bool = False,
              state_v_first: bool = False, cu_seqlens: Tensor | None = None, cu_seqlens_cpu: Tensor | None = None, *,
              A_log: Tensor | None = None, dt_bias: Tensor | None = None, form: str = "chunked",
              **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Kimi Delta Attention: S_t = (I - β_t k_t k_tᵀ) diag(e^{g_t}) S_{t-1} + β_t k_t v_tᵀ, with g [B, T, HV, K]."""
    _refuse("return_intermediate_states", return_intermediate_states, "must be False: no form keeps them")
    return _delta(q, k, v, g, beta, scale, initial_state, output_final_state, cu_seqlens, form, v_first=state_v_first,
                  unit=use_qk_l2norm_in_kernel, sigmoid=use_beta_sigmoid_in_kernel, twice=allow_neg_eigval,
                  activates=use_gate_in_kernel, A_log=A_log, dt_bias=dt_bias, lower_bound=lower_bound)


def fused_recurrent_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor | None = None,
                        dt_bias: Tensor | None = None, scale: float | None = None,
                        initial_state: Tensor | None = None, output_final_state: bool = False,
                        use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
                        use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
                        lower_bound: float | None = None, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                        **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form."""
    return chunk_kda(q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, use_gate_in_kernel,
                     use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound=lower_bound, state_v_first=state_v_first,
                     cu_seqlens=cu_seqlens, A_log=A_log, dt_bias=dt_bias, form="recurrent")


def parallel_path_attention(q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor, g: Tensor | None = None,
                            scale: float | None = None, cu_seqlens: Tensor | None = None,
                            use_cache: bool = False) -> tuple[Tensor, None]:
    """PaTH: softmax attention whose keys go through the I - β_t w_t w_tᵀ of later tokens; w is [B, T, H, K].

    Logits are scale (q·k + Σ g): the log gates g, [B, T, HQ], are scaled, as there."""
    _refuse("use_cache", use_cache, "must be False: keys are not kept")
    scale = _scale(q) if scale is None else scale
    return sympow.torch.attention(q, k, v, log_gates=None if g is None else scale * g, householder=w, strengths=beta,
                                  scores="exponential", form="attention", cu_seqlens=cu_seqlens, scale=scale), None


parallel_path_attn = parallel_path_attention


def parallel_forgetting_attn(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float | None = None,
                             window_size: int | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
    """FoX, softmax attention with log gates g, [B, T, HQ] or [B, T, H], over the last `window_size` tokens or all."""
    return sympow.torch.attention(q, k, v, log_gates=g, scores="exponential", form="attention", cu_seqlens=cu_seqlens,
                                  window=0 if window_size is None else window_size, scale=_scale(q) if scale is None else scale)


def _refuses_others(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same where arguments that have no meaning here are None or False; a deprecated one has its new name."""
    known = frozenset(inspect.signature(function).parameters) | {"chunk_size"}

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if "transpose_state_layout" in named:
            if named.get("state_v_first"):
                raise sympow.InvalidArgument("state_v_first and its old name, transpose_state_layout, are given, must be one of them")
            warnings.warn("transpose_state_layout is deprecated, must be state_v_first", DeprecationWarning, stacklevel=2)
            named["state_v_first"] = named.pop("transpose_state_layout")
        for name, x in named.items():
            if name not in known and x is not None and x is not False:
                raise sympow.NotBuilt(f"{name} is given, which has no meaning here")
        return function(*arguments, **named)

    return call


for _name in __all__:
    globals()[_name] = _refuses_others(globals()[_name])
