"""Two layers of gated attention with learned rotary positions learn to repeat what they have read.

    python3 two_layers.py [--steps 100] [--time]

Sequences are random tokens and then the same tokens again, which a model can say in advance only by finding where it
has seen the last ones. Then the model repeats a sequence token by token, from the states of its layers. --time takes
the seconds of forward and backward beside the listing in PyTorch of bench/peers.
"""

import argparse
import sys
import time
from pathlib import Path

try:
    import torch
except ImportError:
    print("PyTorch is not installed for", sys.executable, "- ./dev python installs it")
    sys.exit(77)

import sympow.torch
from torch import nn
from torch.nn import functional

TOKENS, HALF, WIDTH, HEADS = 16, 16, 64, 4
OPTIONS = dict(power=2, pairing="interleaved")


class Attention(nn.Module):
    """Gated symmetric-power attention with rotary positions whose rates are learned."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, d = heads, width // heads
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate = nn.Linear(width, heads)
        nn.init.constant_(self.gate.bias, 6)  # forgets little at first
        self.theta = nn.Parameter(0.1 ** (torch.arange(d // 2) / (d // 2)))

    def forward(self, x: torch.Tensor, states: dict[nn.Module, sympow.State] | None = None) -> torch.Tensor:
        q, k, v = self.project(x).unflatten(2, (3, self.heads, -1)).unbind(2)  # side by side, read where they are
        gates = functional.logsigmoid(self.gate(x))
        if states is None:
            rows = sympow.torch.attention(q, k, v, log_gates=gates, theta=self.theta, **OPTIONS)
        else:  # the next tokens after those that the state has seen
            if self not in states:
                states[self] = sympow.torch.state_of(None, q, k, v, **OPTIONS)
            rows = sympow.torch.decode(q, k, v, states[self], log_gates=gates, theta=self.theta)
        return self.out(rows.flatten(2))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.layers = nn.ModuleList(Attention(WIDTH, HEADS) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, tokens: torch.Tensor, states: dict[nn.Module, sympow.State] | None = None) -> torch.Tensor:
        x = self.embed(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x), states)
        return self.out(x)


def train(steps: int, say: bool = True) -> tuple[Model, list[float]]:
    """A model, and the loss of every step in tokens that are repeated; the same numbers whenever it runs."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, losses = Model(), []
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(steps):
        once = torch.randint(TOKENS, (32, HALF))
        tokens = torch.cat([once, once], 1)
        said = model(tokens[:, :-1])[:, HALF - 1:]
        loss = functional.cross_entropy(said.flatten(0, 1), tokens[:, HALF:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if say and (step % 50 == 0 or step == steps - 1):
            print(f"step {step:4}: loss {losses[-1]:.3f}")
    return model, losses


@torch.no_grad()
def continuation(model: Model, tokens: torch.Tensor, count: int) -> torch.Tensor:
    """The most likely next tokens, [B, count], after tokens [B, T]: each costs as much as the first."""
    states: dict[nn.Module, sympow.State] = {}
    found = []
    for _ in range(count):
        tokens = model(tokens, states)[:, -1:].argmax(2)
        found.append(tokens)
    return torch.cat(found, 1)


def take_times() -> None:
    """Forward and backward of one head of float32, on one thread: a call and the chunked listing of bench/peers."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "peers"))
    import in_torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    for T in (1024, 4096, 16384):
        q, k, v, dy = (torch.randn(T, 64) for _ in range(4))
        log_gates = -0.002 * torch.rand(T)

        def by_operator() -> list[torch.Tensor]:
            given = [x[None, :, None].requires_grad_() for x in (q, k, v)] + [log_gates[None, :, None].requires_grad_()]
            rows = sympow.torch.attention(*given[:3], log_gates=given[3])
            return [x.flatten(0, 2) for x in torch.autograd.grad(rows, given, dy[None, :, None])]

        def by_listing() -> list[torch.Tensor]:
            return in_torch.gradients(q, k, v, log_gates, dy)

        best = {}
        for call in (by_operator, by_listing):
            taken = []
            for _ in range(5):
                start = time.process_time()
                call()
                taken.append(time.process_time() - start)
            best[call] = min(taken)
        apart = max((a.reshape(b.shape) - b).abs().max() / b.abs().max() for a, b in zip(by_operator(), by_listing()))
        print(f"T = {T:5}: sympow {1e3 * best[by_operator]:7.2f} ms, PyTorch {1e3 * best[by_listing]:7.2f} ms, "
              f"{best[by_listing] / best[by_operator]:.1f} times as fast; gradients differ by {apart:.1g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--time", action="store_true")
    chosen = parser.parse_args()
    if chosen.time:
        take_times()
    else:
        model, _ = train(chosen.steps)
        once = torch.randint(TOKENS, (1, HALF))
        print("read:    ", *once[0].tolist())
        repeated = continuation(model, torch.cat([once, once[:, :1]], 1), HALF - 1)
        print("repeated:", *once[0, :1].tolist(), *repeated[0].tolist())


if __name__ == "__main__":
    main()
