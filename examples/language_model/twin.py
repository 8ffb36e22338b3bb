"""The model of language_model in plain PyTorch, written to be read: a twin to compare numbers and times with.

    python3 twin.py CHECKPOINT TEXT [BYTES]      the mean loss of a checkpoint's model on the beginning of a text

Settings are softmax, sympow, gated and conformal. Names and shapes of weights are those of checkpoints, which are read
and written; numbers of a token are rows here.
"""

import json
import math
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

try:
    import torch
except ImportError:
    print("PyTorch is not installed for", sys.executable, "- ./dev python installs it")
    sys.exit(77)
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

ANGLES = torch.float64  # and gates: long sums need it


@dataclass
class Config:
    """Settings of the program by its names, of the model and of its training."""

    setting: str = "conformal"
    power: int = 2
    layers: int = 4
    d_model: int = 256
    heads: int = 8
    key_heads: int = 0
    d: int = 32
    tied: bool = False
    longest: float = 65536.0
    gate_bias: float = 6.9
    steps: int = 1000
    rate: float = 6e-4
    warmup: int = 0
    cosine: bool = False
    decay: float = 0.1
    clip: float = 1.0


def power_rows(q: Tensor, k: Tensor, v: Tensor, total: Tensor | None, power: int) -> Tensor:
    """y_i = Σ_{j≤i} s_ij v_j / Σ_{j≤i} s_ij,  s_ij = (q_i·k_j)^p γ_{j+1} … γ_i, of the last tokens; total is of log γ"""
    n, before = q.shape[-2], k.shape[-2] - q.shape[-2]
    s = q @ k.mT  # a scale would cancel
    while power > 1:
        s, power = s.square(), power // 2
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


class Attention(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c, self.key_heads = c, c.key_heads or c.heads
        self.logits = {"gated": 1, "conformal": 2}.get(c.setting, 0)  # of a token and key head
        width, n = c.d_model, self.key_heads
        for name, size in (("W_Q", c.heads * c.d), ("W_K", n * c.d), ("W_V", n * c.d), ("W_Z", n * self.logits)):
            self.register_parameter(name, nn.Parameter(0.02 * torch.randn(width, size)))
        self.W_O = nn.Parameter(0.02 / math.sqrt(2 * c.layers) * torch.randn(c.heads * c.d, width))
        self.recipe = nn.Parameter(torch.full((n, min(1, self.logits)), c.gate_bias))
        self.theta = 2 * math.pi * c.longest ** -(2 * torch.arange(c.d // 2, dtype=ANGLES) / c.d)

    def forward(self, x: Tensor) -> Tensor:
        c, (texts, tokens, _) = self.c, x.shape
        q = (x @ self.W_Q).view(texts, tokens, c.heads, c.d).transpose(1, 2)
        k, v, z = ((x @ W).view(texts, tokens, self.key_heads, n).transpose(1, 2).repeat_interleave(
            c.heads // self.key_heads, 1) for W, n in ((self.W_K, c.d), (self.W_V, c.d), (self.W_Z, self.logits)))
        z = z.to(ANGLES)

        beta = 1 + z[..., 1].tanh() if c.setting == "conformal" else torch.ones(tokens, dtype=ANGLES)
        mu = beta.cumsum(-1)[..., None] * self.theta.to(ANGLES)
        turns = torch.polar(torch.ones_like(mu), mu).to(x.dtype.to_complex())
        q, k = (torch.view_as_real(torch.view_as_complex(a.unflatten(-1, (-1, 2))) * turns).flatten(-2) for a in (q, k))

        if c.setting == "softmax":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            log_gates = F.logsigmoid(z[..., 0] + self.recipe.repeat_interleave(c.heads // self.key_heads, 0)) \
                if self.logits else None
            y = power_attention(q, k, v, log_gates, c.power)
        return y.transpose(1, 2).flatten(2) @ self.W_O


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(1, width)), nn.Parameter(torch.zeros(1, width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.gain[0], self.bias[0], eps=1e-5)


class Block(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        width = c.d_model
        self.before_attention, self.attention, self.before_mlp = Norm(width), Attention(c), Norm(width)
        self.up = nn.Parameter(0.02 * torch.randn(width, 4 * width))
        self.up_bias = nn.Parameter(torch.zeros(1, 4 * width))
        self.down = nn.Parameter(0.02 / math.sqrt(2 * c.layers) * torch.randn(4 * width, width))
        self.down_bias = nn.Parameter(torch.zeros(1, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + F.gelu(self.before_mlp(x) @ self.up + self.up_bias, approximate="tanh") @ self.down + self.down_bias


class Twin(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.embedding = nn.Parameter(0.02 * torch.randn(256, c.d_model))
        self.after_embedding = Norm(c.d_model)
        self.blocks = nn.Sequential(*(Block(c) for _ in range(c.layers)))
        self.last = Norm(c.d_model)
        self.head = self.embedding if c.tied else nn.Parameter(0.02 * torch.randn(256, c.d_model))

    def forward(self, text: Tensor) -> Tensor:
        """Logits of the next bytes, texts × tokens × 256."""
        return self.last(self.blocks(self.after_embedding(self.embedding[text]))) @ self.head.mT


def losses(logits: Tensor, following: Tensor) -> Tensor:
    """-log of the probability of every byte that follows, texts × tokens."""
    return F.cross_entropy(logits.mT, following, reduction="none")


class Training:
    """AdamW as PyTorch has it; gains, biases and what recipes learn do not decay."""

    def __init__(self, model: Twin, c: Config) -> None:
        self.model, self.c, self.steps = model, c, 0
        groups = ([], [])
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


    def checkpoint(self, folder: str | Path) -> None:
        """Writes what the program evaluates, generates from and goes on with."""
        tensors = dict(self.model.named_parameters())
        for of, name in (("adam_m.", "exp_avg"), ("adam_v.", "exp_avg_sq")):
            tensors |= {of + of_w: self.adam.state[w].get(name, w) for of_w, w in self.model.named_parameters()}
        metadata = {name: str(int(x) if isinstance(x, bool) else x) for name, x in vars(self.c).items()}
        save(Path(folder) / f"step-{self.steps:08}.safetensors", tensors, {**metadata, "step": str(self.steps)})


def load(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file of floats, by name, and its metadata."""
    data = bytearray(Path(path).read_bytes())
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    metadata = header.pop("__metadata__", {})
    numbers = torch.frombuffer(data[end:] or bytearray(4), dtype=torch.float32)
    return {name: numbers[x["data_offsets"][0] // 4:x["data_offsets"][1] // 4].view(x["shape"])
            for name, x in header.items()}, metadata


def save(path: str | Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Writes a safetensors file of floats, with the checksum that the program's checkpoints have."""
    numbers = [x.detach().float().contiguous().numpy().tobytes() for x in tensors.values()]
    entries, end = {}, 0
    for (name, x), data in zip(tensors.items(), numbers):
        entries[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [end, end + len(data)]}
        end += len(data)

    def header(metadata: dict[str, str]) -> bytes:
        text = json.dumps({"__metadata__": dict(sorted(metadata.items())), **entries}, separators=(",", ":")).encode()
        return text + b" " * (-len(text) % 8)

    total = 0
    for data in (header(metadata), *numbers):
        for word in (len(data), *struct.unpack(f"<{-(-len(data) // 8)}Q", data + bytes(-len(data) % 8))):
            total = (total ^ word) * 0x9E3779B97F4A7C15 % 2**64
            total ^= total >> 32
    head = header({**metadata, "checksum": str(total)})
    Path(path).write_bytes(len(head).to_bytes(8, "little") + head + b"".join(numbers))


def trained(path: str | Path) -> Twin:
    """The model of a checkpoint."""
    weights, metadata = load(path)
    kinds = {name: type(value) for name, value in vars(Config()).items()}
    model = Twin(Config(**{name: kinds[name](int(x) if kinds[name] is bool else x)
                           for name, x in metadata.items() if name in kinds}))
    model.load_state_dict({name: x for name, x in weights.items() if not name.startswith("adam")}, strict=False)
    return model


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    data = torch.frombuffer(bytearray(Path(sys.argv[2]).read_bytes()), dtype=torch.uint8).long()
    data = data[None, :1 + int(sys.argv[3] if len(sys.argv) > 3 else 1024)]
    with torch.no_grad():
        loss = losses(trained(sys.argv[1])(data[:, :-1]), data[:, 1:]).mean()
    print(f"mean loss of {data.shape[1] - 1} bytes: {loss:.4f}")
