"""Named systems of the literature, as arguments of a call.

    rows = sympow.attention(q, k, beta[..., None] * v, **sympow.systems.gated_delta_net(k, beta, log_gates), scale=d**-0.5)

Each function returns keywords of `sympow.attention`, `sympow.vjp`, `sympow.Attention` and their likes in
`sympow.torch` and `sympow.jax`, for arrays of numpy, PyTorch or JAX; names and arguments are those of C++
(docs/dualities.md). A linear system and its dual share a transition A_i:

    S_i = S_{i-1} A_i + v_i φ(k_i)ᵀ,  y_i = S_i φ(q_i)    and    y_i = Σ_j p_ij v_j,  p_ij ∝ exp(k_jᵀ A_{j+1} … A_i q_i)

Log gates are natural logarithms, [B, T, H] or [B, T, Hk]. The scale is 1 unless it is given: peers have d^-1/2.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np

from . import InvalidArgument


def _linear(**parameters: Any) -> dict[str, Any]:
    return dict(scores="power", power=1, normalisation="unnormalised", **parameters)


def _softmax(**parameters: Any) -> dict[str, Any]:
    return dict(scores="exponential", **parameters)


def dual(system: dict[str, Any]) -> dict[str, Any]:
    """The softmax dual of a linear system: the same transition, scores exp(q·k), rows that are means."""
    return _softmax(**{name: x for name, x in system.items() if name not in ("scores", "power", "normalisation")})


def _numbers(name: str, x: Any) -> np.ndarray:
    if getattr(x, "requires_grad", False):
        raise InvalidArgument(f"{name} requires a gradient, and would have none: give log gates to mamba2 or fox")
    return np.asarray(x, np.float64)


def _of_heads(queries: Any, log_gates: Any) -> Any:
    """[B, T, H] of one gate per head, or one for all."""
    gates, shape = np.asarray(log_gates, np.float64), tuple(queries.shape[:3])
    if gates.shape not in ((), shape[2:]):
        raise InvalidArgument(f"one number per head is of shape {list(gates.shape)}, must be [] or {list(shape[2:])}")
    if not (gates <= 0).all():
        raise InvalidArgument(f"log gates of heads are {gates}, must be at most 0")
    if hasattr(queries, "new_tensor"):  # of PyTorch
        return queries.new_tensor(gates.tolist(), dtype=sys.modules["torch"].float64).expand(shape)
    return np.broadcast_to(gates, shape)


# ---- linear systems, and powers ----


def linear_attention() -> dict[str, Any]:
    """S_i = S_{i-1} + v_i k_iᵀ. Dual: `nope`. fla: `linear_attn`. Source: Transformers are RNNs (2020)."""
    return _linear()


def retnet(queries: Any, gamma: Any) -> dict[str, Any]:
    """S_i = γ S_{i-1} + v_i k_iᵀ; γ a number, or one per head, as `retnet_gamma`. Dual: `alibi` with slope -log γ. fla:
    `retention`, whose layer also rotates: add theta and pairing. Source: Retentive Network (2023)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return _linear(log_gates=_of_heads(queries, np.log(_numbers("gamma", gamma))))


def mamba2(log_gates: Any) -> dict[str, Any]:
    """S_i = γ_i S_{i-1} + Δ_i x_i B_iᵀ, read with C_i: queries C, keys B, values Δ x, log γ = -e^{A_log} Δ, Δ =
    softplus(dt + dt_bias), scale 1. Dual: `fox`. fla: `simple_gla`. Source: Transformers are SSMs (2024)."""
    return _linear(log_gates=log_gates)


def gla(channel_gates: Any) -> dict[str, Any]:
    """S_i = S_{i-1} diag(a_i) + v_i k_iᵀ; log a [B, T, Hg, d], as logsigmoid(x) / 16. Dual: `dual(gla(…))`. fla: `gla`,
    gate `gk`. Source: Gated Linear Attention (2023)."""
    return _linear(channel_gates=channel_gates)


def complex_gate(theta: Any, pairing: str) -> dict[str, Any]:
    """S_i = S_{i-1} R(θ) + v_i k_iᵀ. Dual: `rope`. Source: On the Legacy of Linear Transformers in Positional
    Embeddings, §4."""
    return _linear(theta=theta, pairing=pairing)


def delta_net(keys: Any, beta: Any) -> dict[str, Any]:
    """S_i = S_{i-1} (I - β_i k_i k_iᵀ) + β_i v_i k_iᵀ: give unit keys here and to the call, and values β v. Dual: `path`
    with w = k. fla: `delta_rule`. Source: Parallelizing Linear Transformers with the Delta Rule (2024)."""
    return _linear(householder=keys, strengths=beta)


def gated_delta_net(keys: Any, beta: Any, log_gates: Any) -> dict[str, Any]:
    """S_i = γ_i S_{i-1} (I - β_i k_i k_iᵀ) + β_i v_i k_iᵀ, otherwise as `delta_net`. Dual: `path_fox` with w = k. fla:
    `gated_delta_rule`. Source: Gated Delta Networks (2024)."""
    return _linear(householder=keys, strengths=beta, log_gates=log_gates)


def kimi_delta_attention(keys: Any, beta: Any, channel_gates: Any) -> dict[str, Any]:
    """S_i = S_{i-1} diag(a_i) (I - β_i k_i k_iᵀ) + β_i v_i k_iᵀ, otherwise as `delta_net`; log a [B, T, Hg, d]. Dual:
    `dual(kimi_delta_attention(…))`. fla: `kda`, gate `g`. Source: Kimi Linear (2025)."""
    return _linear(householder=keys, strengths=beta, channel_gates=channel_gates)


def sympow_attention(power: int = 2) -> dict[str, Any]:
    """S_i = S_{i-1} + v_i φ(k_i)ᵀ, scores (q·k)^P, rows that are means. retention: `power_retention`. Source: Symmetric
    Power Transformers."""
    return dict(scores="power", power=power)


def gated_sympow(log_gates: Any, power: int = 2) -> dict[str, Any]:
    """S_i = γ_i S_{i-1} + v_i φ(k_i)ᵀ. retention: `power_retention`, `log_G`. Source: Conformal Transformations, §3.1."""
    return dict(scores="power", power=power, log_gates=log_gates)


def conformal_sympow(log_gates: Any, theta: Any, beta: Any, pairing: str, power: int = 2) -> dict[str, Any]:
    """S_i = γ_i S_{i-1} Symᴾ(R(β_i θ)) + v_i φ(k_i)ᵀ: gates and learned rotations. Source: Conformal Transformations,
    §3.3."""
    return dict(scores="power", power=power, log_gates=log_gates, theta=theta, beta=beta, pairing=pairing)


# ---- softmax attention with a positional embedding ----


def nope() -> dict[str, Any]:
    """Logits q·k. Dual of `linear_attention`. Source: NoPE (2023)."""
    return _softmax()


def alibi(queries: Any, slopes: Any) -> dict[str, Any]:
    """Logits q·k - m (i - j), m ≥ 0 a number, or one per head, as `alibi_slopes`. Dual of `retnet` with γ = e^-m. Source:
    ALiBi (2021)."""
    return _softmax(log_gates=_of_heads(queries, -_numbers("slopes", slopes)))


def fox(log_gates: Any) -> dict[str, Any]:
    """Logits q·k + Σ_{s=j+1..i} log γ_s, log γ = logsigmoid(x). Dual of `mamba2`. fla: `forgetting_attn`. Source:
    Forgetting Transformer (2025)."""
    return _softmax(log_gates=log_gates)


def rope(theta: Any, pairing: str) -> dict[str, Any]:
    """Logits (R(iθ) q)·(R(jθ) k), θ = `sympow.rope_frequencies(d)`. Dual of `complex_gate`. Source: RoFormer (2021)."""
    return _softmax(theta=theta, pairing=pairing)


def path(w: Any, beta: Any) -> dict[str, Any]:
    """Logits k_jᵀ A_{j+1} … A_i q_i, A = I - β w wᵀ, w of unit length, β in (0, 2). Dual of `delta_net` with w = k. fla:
    `path_attn`. Source: PaTH Attention (2025)."""
    return _softmax(householder=w, strengths=beta)


def path_fox(w: Any, beta: Any, log_gates: Any, gate_scale: float = 1.0) -> dict[str, Any]:
    """Logits scale · k_jᵀ A_{j+1} … A_i q_i + gate_scale Σ_{s=j+1..i} log γ_s; fla's `path_attn` has the scale of the
    call in both. Dual of `gated_delta_net`. Source: PaTH Attention (2025)."""
    if not 0 < gate_scale < np.inf:
        raise InvalidArgument(f"gate_scale is {gate_scale}, must be positive and finite")
    return _softmax(householder=w, strengths=beta, log_gates=gate_scale * log_gates)


# ---- numbers per head ----


def retnet_gamma(heads: int) -> np.ndarray:
    """γ = 1 - 2^{-5-h} of RetNet's heads h = 0, 1, …"""
    return 1 - np.exp2(-5.0 - np.arange(heads))


def alibi_slopes(heads: int) -> np.ndarray:
    """ALiBi's slopes as published: the geometric sequence from 2^{-8/n} if the number n of heads is a power of two. Else
    that of the next smaller power, then every second slope of the next larger one."""
    if heads < 1:
        raise InvalidArgument(f"heads is {heads}, must be at least 1")
    n = 2 ** (operator.index(heads).bit_length() - 1)
    slopes = [2 ** (-8 * (h + 1) / n) for h in range(n)] + [2 ** (-4 * (2 * h + 1) / n) for h in range(heads - n)]
    return np.array(slopes)
