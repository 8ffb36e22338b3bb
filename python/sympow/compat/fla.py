"""Operators of flash-linear-attention (0.6.0): linear attention, RetNet, Mamba-2, GLA, DeltaNet, KDA, FoX, PaTH.

Tensors are [B, T, H, K] and [B, T, H, V]; states [N, H, K, V]; `cu_seqlens` [N + 1] packs N sequences into a batch of one.
`scale` is K^-1/2 unless it is given. All have gradients, also in states; float32, bfloat16, float16, on a CPU also
float64. GLA, DeltaNet, KDA and PaTH run on a CPU alone.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

import sympow
import sympow.torch
import torch
from torch import Tensor

__all__ = ["chunk_delta_rule", "chunk_gated_delta_rule", "chunk_gla", "chunk_kda", "chunk_linear_attn", "chunk_retention",
           "chunk_simple_gla", "fused_recurrent_delta_rule", "fused_recurrent_gated_delta_rule", "fused_recurrent_gla",
           "fused_recurrent_kda", "fused_recurrent_linear_attn", "fused_recurrent_retention", "fused_recurrent_simple_gla",
           "parallel_forgetting_attn", "parallel_path_attention", "parallel_retention", "parallel_simple_gla"]


def _refuse(name: str, given: Any, why: str) -> None:
    if given:
        raise sympow.NotBuilt(f"{name} is {given!r}, {why}")


def _linear(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, scale: float | None, initial_state: Tensor | None,
            output_final_state: bool, cu_seqlens: Tensor | None, form: str,
            **parameters: Tensor) -> tuple[Tensor, Tensor | None]:
    """o_t = scale S_tᵀ q_t,  S_t = e^{g_t} S_{t-1} + k_t v_tᵀ, with channel gates or Householder vectors as given."""
    state = None
    if initial_state is not None:  # Z is not read by sums
        state = sympow.torch.State(initial_state, initial_state.new_zeros(initial_state.shape[:3]))
    found = sympow.torch.attention(
        q, k, v, log_gates=g, state=state, return_state=output_final_state, cu_seqlens=cu_seqlens, power=1, form=form,
        normalisation="unnormalised", scale=q.shape[-1] ** -0.5 if scale is None else scale, **parameters)
    return (found[0], found[1].sums) if output_final_state else (found, None)


def chunk_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, g_gamma: Tensor | None = None,
                     scale: float | None = None, initial_state: Tensor | None = None,
                     output_final_state: bool = False, state_v_first: bool = False, cu_seqlens: Tensor | None = None,
                     cu_seqlens_cpu: Tensor | None = None, *, form: str = "chunked",
                     **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Log gates g, [B, T, H], or one for each head, g_gamma, [H]: Mamba-2, RetNet. Returns o and the final state."""
    if g is not None and g_gamma is not None:
        raise sympow.InvalidArgument("g and g_gamma are given, must be one of them")
    if g_gamma is not None:
        g = g_gamma.expand(*q.shape[:2], -1)
    swap = (lambda x: x if x is None else x.transpose(-1, -2).contiguous()) if state_v_first else (lambda x: x)
    rows, last = _linear(q, k, v, g, scale, swap(initial_state), output_final_state, cu_seqlens, form)
    return rows, swap(last)


def fused_recurrent_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None,
                               g_gamma: Tensor | None = None, scale: float | None = None,
                               initial_state: Tensor | None = None, output_final_state: bool = False,
                               reverse: bool = False, cu_seqlens: Tensor | None = None,
                               **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form."""
    _refuse("reverse", reverse, "must be False: flip the tokens of all arguments, and of the result")
    return chunk_simple_gla(q, k, v, g, g_gamma, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens,
                            form="recurrent")


def parallel_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, scale: float | None = None,
                        output_attentions: bool = False, cu_seqlens: Tensor | None = None,
                        **kwargs: Any) -> tuple[Tensor, None]:
    """The same in the order of the keys; attentions are not returned."""
    _refuse("output_attentions", output_attentions, "must be False: no form keeps them")
    return chunk_simple_gla(q, k, v, g, None, scale, cu_seqlens=cu_seqlens)[0], None


def _retention_gates(q: Tensor) -> Tensor:
    heads = torch.arange(q.shape[2], dtype=torch.float64, device=q.device)
    return torch.log1p(-(2.0 ** (-5.0 - heads))).to(torch.float32)


def chunk_retention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, initial_state: Tensor | None = None,
                    output_final_state: bool = False, cu_seqlens: Tensor | None = None,
                    **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """RetNet: γ = 1 - 2^(-5-h)."""
    return chunk_simple_gla(q, k, v, None, _retention_gates(q), scale, initial_state, output_final_state,
                            cu_seqlens=cu_seqlens)


def fused_recurrent_retention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None,
                              initial_state: Tensor | None = None, output_final_state: bool = False,
                              reverse: bool = False, cu_seqlens: Tensor | None = None,
                              **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form."""
    return fused_recurrent_simple_gla(q, k, v, None, _retention_gates(q), scale, initial_state, output_final_state,
                                      reverse, cu_seqlens)


def parallel_retention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, output_attentions: bool = False,
                       cu_seqlens: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, None]:
    """The same; attentions are not returned."""
    _refuse("output_attentions", output_attentions, "must be False: no form keeps them")
    return chunk_retention(q, k, v, scale, cu_seqlens=cu_seqlens)[0], None


def chunk_linear_attn(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None,
                      initial_state: Tensor | None = None, output_final_state: bool = False, normalize: bool = True,
                      cu_seqlens: Tensor | None = None, *, form: str = "chunked") -> tuple[Tensor, Tensor | None]:
    """Linear attention, for normalize=False; fla divides by q·Σk + 1e-10 otherwise, which is no mean here."""
    _refuse("normalize", normalize, "must be False: sympow.torch.attention(…, power=1, normalisation=\"signed\") divides "
            "by Σ q·k, without fla's 1e-10")
    return _linear(q, k, v, None, scale, initial_state, output_final_state, cu_seqlens, form)


def fused_recurrent_linear_attn(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None,
                                initial_state: Tensor | None = None, output_final_state: bool = False,
                                normalize: bool = True,
                                cu_seqlens: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form."""
    return chunk_linear_attn(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens,
                             form="recurrent")


def chunk_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float | None = None,
              initial_state: Tensor | None = None, output_final_state: bool = False,
              cu_seqlens: Tensor | None = None, *, form: str = "chunked", **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """GLA: S_t = diag(e^{g_t}) S_{t-1} + k_t v_tᵀ with log gates g, [B, T, H, K]."""
    return _linear(q, k, v, None, scale, initial_state, output_final_state, cu_seqlens, form, channel_gates=g)


def fused_recurrent_gla(q: Tensor, k: Tensor, v: Tensor, gk: Tensor | None = None, gv: Tensor | None = None,
                        scale: float | None = None, initial_state: Tensor | None = None,
                        output_final_state: bool = False, reverse: bool = False, cu_seqlens: Tensor | None = None,
                        **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form, with gates of keys."""
    _refuse("gv", gv is not None, "must be None: there are no gates of values")
    _refuse("reverse", reverse, "must be False: flip the tokens of all arguments, and of the result")
    given = {} if gk is None else {"channel_gates": gk}
    return _linear(q, k, v, None, scale, initial_state, output_final_state, cu_seqlens, "recurrent", **given)


def _delta(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor, scale: float | None,
           initial_state: Tensor | None, output_final_state: bool, unit: bool, cu_seqlens: Tensor | None, form: str,
           **gates: Tensor) -> tuple[Tensor, Tensor | None]:
    """The delta rule behind gates, with unit queries and keys if they are to be made so."""
    if unit:
        q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    return _linear(q, k, v * beta.unsqueeze(-1), g, scale, initial_state, output_final_state, cu_seqlens, form,
                   householder=k, strengths=beta, **gates)


def chunk_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor, scale: float | None = None,
                           initial_state: Tensor | None = None, output_final_state: bool = False,
                           use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None, *,
                           form: str = "chunked", **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Gated DeltaNet: S_t = e^{g_t} (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ, with g and β [B, T, H]."""
    return _delta(q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens, form)


def fused_recurrent_gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor,
                                     scale: float | None = None, initial_state: Tensor | None = None,
                                     output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
                                     cu_seqlens: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form."""
    return chunk_gated_delta_rule(q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
                                  cu_seqlens, form="recurrent")


def chunk_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float | None = None,
                     initial_state: Tensor | None = None, output_final_state: bool = False,
                     use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None,
                     **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """DeltaNet: the same without gates."""
    return chunk_gated_delta_rule(q, k, v, None, beta, scale, initial_state, output_final_state,
                                  use_qk_l2norm_in_kernel, cu_seqlens)


def fused_recurrent_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float | None = None,
                               initial_state: Tensor | None = None, output_final_state: bool = False,
                               use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None,
                               **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form."""
    return fused_recurrent_gated_delta_rule(q, k, v, None, beta, scale, initial_state, output_final_state,
                                            use_qk_l2norm_in_kernel, cu_seqlens)


def chunk_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None,
              initial_state: Tensor | None = None, output_final_state: bool = False,
              use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None, *, form: str = "chunked",
              **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Kimi Delta Attention: S_t = (I - β_t k_t k_tᵀ) diag(e^{g_t}) S_{t-1} + β_t k_t v_tᵀ, with g [B, T, H, K]."""
    return _delta(q, k, v, None, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens,
                  form, channel_gates=g)


def fused_recurrent_kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor | None = None,
                        dt_bias: Tensor | None = None, scale: float | None = None,
                        initial_state: Tensor | None = None, output_final_state: bool = False,
                        use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Tensor | None = None,
                        **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """The same by the recurrent form."""
    if A_log is not None or dt_bias is not None:
        raise sympow.NotBuilt("A_log and dt_bias must be None: g are the log gates")
    return chunk_kda(q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens,
                     form="recurrent")


def parallel_path_attention(q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor, g: Tensor | None = None,
                            scale: float | None = None, cu_seqlens: Tensor | None = None,
                            use_cache: bool = False) -> tuple[Tensor, None]:
    """PaTH: softmax attention whose keys go through the I - β_t w_t w_tᵀ of later tokens; w is [B, T, H, K]."""
    _refuse("use_cache", use_cache, "must be False: keys are not kept")
    return sympow.torch.attention(q, k, v, log_gates=g, householder=w, strengths=beta, scores="exponential",
                                  form="attention", cu_seqlens=cu_seqlens,
                                  scale=q.shape[-1] ** -0.5 if scale is None else scale), None


def parallel_forgetting_attn(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float | None = None,
                             window_size: int | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
    """FoX, softmax attention with log gates g, [B, T, HQ] or [B, T, H], over the last `window_size` tokens or all."""
    return sympow.torch.attention(q, k, v, log_gates=g, scores="exponential", form="attention", cu_seqlens=cu_seqlens,
                                  window=0 if window_size is None else window_size, scale=q.shape[-1] ** -0.5 if scale is None else scale)


def _refuses_others(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same where arguments that have no meaning here are None or False."""
    known = frozenset(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        for name, x in named.items():
            if name not in known and x is not None and x is not False:
                raise sympow.NotBuilt(f"{name} is given, which has no meaning here")
        return function(*arguments, **named)

    return call


for _name in __all__:
    globals()[_name] = _refuses_others(globals()[_name])
