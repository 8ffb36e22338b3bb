"""The operator LinearAttention of ONNX, opset 27, on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import sympow
from sympow import systems

__all__ = ["linear_attention"]

_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}


def _heads(name: str, x: Any, heads: int) -> np.ndarray:
    """[B, T, H D] as [B, T, H, D], of float32 or wider."""
    if not isinstance(x, np.ndarray) or isinstance(x, np.ma.MaskedArray) or x.dtype.kind != "f":
        raise TypeError(f"{name} is {sympow._kind_of(x)}, must be an array of floating numbers")
    if x.ndim != 3 or heads < 1 or x.shape[2] % heads != 0 or x.shape[2] == 0:
        raise sympow.ShapeMismatch(f"{name} is {list(x.shape)}, must be [B, T, n] with a multiple of its {heads} heads")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads)


def _check_tokens(name: str, x: np.ndarray, sizes: tuple[int, ...], widths: tuple[int, ...]) -> None:
    if x.shape[:2] != sizes[:2] or x.shape[2] not in widths:
        raise sympow.ShapeMismatch(f"{name} is {list(x.shape)}, must be {[*sizes[:2], ' or '.join(map(str, widths))]}")


def linear_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, past_state: np.ndarray | None = None,
                     decay: np.ndarray | None = None, beta: np.ndarray | None = None, *, q_num_heads: int,
                     kv_num_heads: int, update_rule: str = "gated_delta", scale: float = 0.0,
                     chunk_size: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Output [B, T, H e] and the state after it, [B, Hk, d, e], by one of four rules:

        linear         S_t = S_{t-1} + k_t v_tᵀ
        gated          S_t = exp(g_t) S_{t-1} + k_t v_tᵀ                g: decay, [B, T, Hk], or [B, T, Hk d] by channel
        delta          S_t = S_{t-1} + β_t k_t (v_t - S_{t-1}ᵀ k_t)ᵀ    β: beta, [B, T, Hk] or [B, T, 1]
        gated_delta    both, gates first
        o_t = scale S_tᵀ q_t

    Scale 0 is d^-1/2. Sums are made in float32, or in float64 if the query is; `chunk_size` changes no result but by
    rounding. Raises what `sympow.attention` raises.
    """
    gates, corrects = [*_RULES.values()][sympow._choice("update_rule", update_rule, (*_RULES,))]
    q_num_heads, kv_num_heads = sympow._number("q_num_heads", q_num_heads), sympow._number("kv_num_heads", kv_num_heads)
    for name, x, is_used in (("decay", decay, gates), ("beta", beta, corrects)):
        if (x is not None) != is_used:
            raise sympow.InvalidArgument(f"update_rule is {update_rule!r}, so {name} must {'' if is_used else 'not '}be given")
    q, k, v = (_heads(name, x, heads) for name, x, heads in (
        ("query", query, q_num_heads), ("key", key, kv_num_heads), ("value", value, kv_num_heads)))
    dtype = query.dtype
    wide = np.float64 if dtype.itemsize == 8 else np.float32
    q, k, v = (x.astype(wide, copy=False) for x in (q, k, v))
    B, T, Hk, d = k.shape
    _check_tokens("value", value, key.shape, (value.shape[2],))
    if beta is not None:
        _heads("beta", beta, 1)
        _check_tokens("beta", beta, key.shape, (Hk, 1))
    if decay is not None:
        _heads("decay", decay, Hk)
        _check_tokens("decay", decay, key.shape, (Hk, Hk * d))
    system: dict[str, Any] = systems.linear_attention()
    if corrects:
        strengths = np.broadcast_to(beta.astype(wide), (B, T, Hk))
        system = systems.delta_net(k, strengths)
        v = v * strengths[..., None]
    if gates:
        per_head = decay.shape[2] == Hk
        system["log_gates" if per_head else "channel_gates"] = (
            decay.astype(wide) if per_head else _heads("decay", decay, Hk).astype(wide))
    options = {name: system.pop(name) for name in ("scores", "power", "normalisation")}
    attention = sympow.Attention(**options, form="chunked", chunk=chunk_size, scale=scale or d ** -0.5)
    state = sympow.State(attention, B, Hk, d, v.shape[3], wide)
    if past_state is not None:
        if not isinstance(past_state, np.ndarray) or isinstance(past_state, np.ma.MaskedArray) or past_state.dtype.kind != "f":
            raise TypeError(f"past_state is {sympow._kind_of(past_state)}, must be an array of floating numbers")
        state.write(np.ascontiguousarray(past_state, wide), np.zeros((B, Hk, d), wide))
    rows = attention(q, k, v, state=state, **system)
    return (rows.reshape(*query.shape[:2], q_num_heads * v.shape[3]).astype(dtype, copy=False),
            state.read().sums.astype(dtype if past_state is None else past_state.dtype, copy=False))
