"""The model of language_model in plain PyTorch, written to be read: a twin to compare numbers and times with.

Settings are softmax, sympow, gated and conformal. Weights have the names and shapes that they have in checkpoints, see
twin_checkpoints.py; numbers of a token are rows here.
"""

import math
import sys
from types import SimpleNamespace

try:
    import torch
except ImportError:
    print("PyTorch is not installed for", sys.executable, "- ./dev python installs it")
    sys.exit(77)
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

ANGLES = torch.float64  # and gates: long sums need it


class Config(SimpleNamespace):
    """Settings of the program by its names, of the model and of its training; those not given are as there."""

    def __init__(self, **given) -> None:
        super().__init__(**{**dict(
            setting="conformal", power=2, layers=4, d_model=256, heads=8, key_heads=0, d=32, tied=False,
            longest=65536.0, gate_bias=6.9, steps=1000, rate=6e-4, warmup=0, cosine=False, decay=0.1,
            clip=1.0), **given})


def power_rows(q: Tensor, k: Tensor, v: Tensor, total: Tensor | None, power: int) -> Tensor:
    """y_i = Σ_{j≤i} s_ij v_j / Σ_{j≤i} s_ij,  s_ij = (q_i·k_j)^p γ_{j+1} … γ_i, of the last tokens; total: log γ's"""
    n, before = q.shape[-2], k.shape[-2] - q.shape[-2]
    s = (q @ k.mT).square()  # a scale would cancel
    s = s.square() if power == 4 else s
    if total is None:
        s = s.tril(before)
    else:
        future = torch.ones(n, before + n, dtype=torch.bool).triu(before + 1)
        s = s * (total[..., before:, None] - total[..., None, :]).masked_fill(future, -math.inf).exp()
    return s @ v / s.sum(-1, keepdim=True)


def power_attention(q: Tensor, k: Tensor, v: Tensor, log_gates: Tensor | None, power: int, block: int = 128) -> Tensor:
    """Of blocks of queries, which do not ask what comes after them: less than half of the work and of the memory."""
    total, length = None if log_gates is None else log_gates.cumsum(-1).to(q.dtype), q.shape[-2]
    rows = []
    for end in range(block, length + block, block):
        seen = (k[..., :end, :], v[..., :end, :], None if total is None else total[..., :end])
        of_block = (q[..., end - block:end, :], *seen, power)
        # What long texts leave for the way back has no room: it is made again there.
        rows.append(power_rows(*of_block) if length <= 2048 else checkpoint(power_rows, *of_block, use_reentrant=False))
    return torch.cat(rows, -2)


def weight(rows: int, columns: int, deviation: float = 0.02) -> nn.Parameter:
    return nn.Parameter(deviation * torch.randn(rows, columns))


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(1, width)), nn.Parameter(torch.zeros(1, width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.gain[0], self.bias[0], eps=1e-5)


class Attention(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c, n, logits = c, c.key_heads or c.heads, {"gated": 1, "conformal": 2}.get(c.setting, 0)
        self.heads, self.sizes = (c.heads, n, n, n), (c.d, c.d, c.d, logits)  # of q, k, v, z
        self.W_in = weight(c.d_model, sum(h * size for h, size in zip(self.heads, self.sizes)))
        self.W_out = weight(c.heads * c.d, c.d_model, 0.02 / math.sqrt(2 * c.layers))
        self.recipe = nn.Parameter(torch.full((n, min(1, logits)), c.gate_bias))
        self.theta = 2 * math.pi * c.longest ** -(2 * torch.arange(c.d // 2, dtype=ANGLES) / c.d)

    def forward(self, x: Tensor) -> Tensor:
        c, tokens, group = self.c, x.shape[1], self.heads[0] // self.heads[1]
        parts = (x @ self.W_in).split([h * size for h, size in zip(self.heads, self.sizes)], -1)
        q, *of_keys = (a.unflatten(-1, shape).transpose(1, 2) for a, *shape in zip(parts, self.heads, self.sizes))
        k, v, z = (a.repeat_interleave(group, 1) for a in of_keys)
        z = z.to(ANGLES)

        beta = 1 + z[..., 1].tanh() if c.setting == "conformal" else torch.ones(tokens, dtype=ANGLES)
        mu = beta.cumsum(-1)[..., None] * self.theta.to(ANGLES)
        turns = torch.polar(torch.ones_like(mu), mu).to(x.dtype.to_complex())
        q, k = (torch.view_as_real(torch.view_as_complex(a.unflatten(-1, (-1, 2))) * turns).flatten(-2) for a in (q, k))

        if c.setting == "softmax":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            gated = z.shape[-1] > 0
            log_gates = F.logsigmoid(z[..., 0] + self.recipe.repeat_interleave(group, 0)) if gated else None
            y = power_attention(q, k, v, log_gates, c.power)
        return y.transpose(1, 2).flatten(2) @ self.W_out


class Block(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        n = c.d_model
        self.before_attention, self.attention, self.before_mlp = Norm(n), Attention(c), Norm(n)
        self.up, self.down = weight(n, 4 * n), weight(4 * n, n, 0.02 / math.sqrt(2 * c.layers))
        self.up_bias, self.down_bias = nn.Parameter(torch.zeros(1, 4 * n)), nn.Parameter(torch.zeros(1, n))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + F.gelu(self.before_mlp(x) @ self.up + self.up_bias, approximate="tanh") @ self.down + self.down_bias


class Twin(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.embedding, self.after_embedding = weight(256, c.d_model), Norm(c.d_model)
        self.blocks = nn.Sequential(*(Block(c) for _ in range(c.layers)))
        self.last, self.head = Norm(c.d_model), self.embedding if c.tied else weight(256, c.d_model)

    def forward(self, text: Tensor) -> Tensor:
        """Logits of the next bytes, texts × tokens × 256."""
        return self.last(self.blocks(self.after_embedding(self.embedding[text]))) @ self.head.mT


def losses(logits: Tensor, following: Tensor) -> Tensor:
    """-log of the probability of every byte that follows, texts × tokens."""
    return F.cross_entropy(logits.mT, following, reduction="none")


class Training:
    """AdamW as PyTorch has it; gains, biases and what recipes learn do not decay."""

    def __init__(self, model: Twin, c: Config) -> None:
        self.model, self.c, self.steps, groups = model, c, 0, ([], [])
        for name, w in model.named_parameters():
            groups[name.endswith(("gain", "bias", "recipe"))].append(w)
        self.adam = torch.optim.AdamW([{"params": groups[0], "weight_decay": c.decay},
                                       {"params": groups[1], "weight_decay": 0}], betas=(0.9, 0.95), eps=1e-8)

    def rate(self) -> float:
        c = self.c
        if self.steps < c.warmup:
            return c.rate * (self.steps + 1) / c.warmup
        part = min(1, (self.steps - c.warmup) / max(1, c.steps - c.warmup))
        return c.rate * (0.55 + 0.45 * math.cos(math.pi * part)) if c.cosine else c.rate

    def step(self, texts: Tensor) -> float:
        self.adam.zero_grad()
        loss = losses(self.model(texts[:, :-1]), texts[:, 1:]).mean()
        loss.backward()
        gradients = [w.grad for w in self.model.parameters() if w.grad is not None]  # of those that have entries
        # Not clip_grad_norm_, which adds 1e-6 to the length.
        length = torch.stack([g.square().sum() for g in gradients]).sum().sqrt().item()
        torch._foreach_mul_(gradients, min(1, self.c.clip / length))
        for group in self.adam.param_groups:
            group["lr"] = self.rate()
        self.adam.step()
        self.steps += 1
        return loss.item()
