"""A layer of PyTorch: docs/layer.md describes it, and the same layer in C++."""

from __future__ import annotations

import math
from typing import Any

import sympow.torch
import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ConformalSympow"]

_LOGITS = {"conformal": 2, "gated": 1, "sympow": 0, "softmax": 0}  # z of a token and key head


class ConformalSympow(nn.Module):
    """Symmetric-power attention of tokens x, [B, T, d_model], with gates and rotations that are learned.

        q, k, v, z = W_in x,   log γ = log σ(z_1 + b),   β = 1 + tanh z_2,   θ_j = 2π longest^{-2j/d}
        layer(x) = W_out [y_1; …; y_H]

    setting    "conformal": gates and rotations; "gated": β = 1; "sympow": γ = β = 1; "softmax": so, exponential scores
    heads      of the queries
    key_heads  of keys and values, each for heads / key_heads of the queries; None: as many
    d          numbers of a query, key or value; None: d_model / heads
    power      P, not looked at for softmax; odd ones give sums, which grow with the number of tokens
    gate_bias  what b begins with
    longest    tokens after which the slowest pair of a key has turned once

    Raises `InvalidArgument` for another setting, and `ShapeMismatch` for sizes that do not fit.
    """

    def __init__(self, d_model: int, heads: int, *, key_heads: int | None = None, d: int | None = None, power: int = 2,
                 setting: str = "conformal", gate_bias: float = 6.9, longest: float = 65536.0) -> None:
        super().__init__()
        if setting not in _LOGITS:
            raise sympow.InvalidArgument(f"setting is {setting!r}, must be one of {', '.join(_LOGITS)}")
        if d is None and d_model % heads != 0:
            raise sympow.ShapeMismatch(f"d_model is {d_model}, must be a multiple of the {heads} heads, or d be given")
        self.setting, self.heads, self.key_heads = setting, heads, key_heads or heads
        self.d, logits = d or d_model // heads, _LOGITS[setting]
        if heads % self.key_heads != 0 or self.d % 2 != 0:
            raise sympow.ShapeMismatch(f"heads is {heads} and d is {self.d}, must be a multiple of the "
                                       f"{self.key_heads} key_heads and even")
        self._sizes = [heads * self.d, self.key_heads * self.d, self.key_heads * self.d, self.key_heads * logits]
        self.project = nn.Linear(d_model, sum(self._sizes), bias=False)
        self.out = nn.Linear(heads * self.d, d_model, bias=False)
        self.gate_bias = nn.Parameter(torch.full((self.key_heads,), gate_bias)) if logits > 0 else None
        self._theta = 2 * math.pi * longest ** -(2 * torch.arange(self.d // 2, dtype=torch.float64, device="cpu") / self.d)
        self._options: dict[str, Any] = dict(scores="exponential" if setting == "softmax" else "power", power=power,
                                             pairing="interleaved", scale=self.d ** -0.5)

    def _heads(self, x: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Queries, keys and values, and what is made of the rest of a token in float64: sums of many need it."""
        if x.dim() != 3:
            raise sympow.ShapeMismatch(f"x: shape is {list(x.shape)}, must be [B, T, d_model]")
        *rows, z = self.project(x).split(self._sizes, -1)
        given = {"theta": self._theta.to(x.device)}
        if self.gate_bias is not None:
            z = z.unflatten(-1, (self.key_heads, -1)).double()
            given["log_gates"] = functional.logsigmoid(z[..., 0] + self.gate_bias)
            if self.setting == "conformal":
                given["beta"] = 1 + z[..., 1].tanh()
        return [part.unflatten(-1, (-1, self.d)) for part in rows], given

    def forward(self, x: Tensor) -> Tensor:
        """All tokens at once, [B, T, d_model]."""
        heads, given = self._heads(x)
        return self.out(sympow.torch.attention(*heads, **given, **self._options).flatten(2))

    @torch.no_grad()
    def step(self, x: Tensor, state: sympow.State | None = None) -> tuple[Tensor, sympow.State]:
        """The next tokens, one or a few, after those that the state has seen, None: none; and the state, moved on.

        There are no gradients. Raises `InvalidArgument` for softmax, which has no state.
        """
        heads, given = self._heads(x)
        if state is None:
            state = sympow.torch.state_of(None, *heads, **self._options)
        return self.out(sympow.torch.decode(*heads, state, **given).flatten(2)), state
