"""Gated symmetric-power attention in PyTorch, p = 2: the papers' quadratic listing, a chunked scan, and a decoding step."""

import torch

CHUNK = 128  # of 64, 128, 256 and 512 none is faster beyond noise


def quadratic(q, k, v, log_gamma):
    total = log_gamma.cumsum(0)
    causal = torch.ones(len(q), len(q), dtype=torch.bool).tril()
    gate = (total[:, None] - total).masked_fill(~causal, -torch.inf).exp()
    scores = (q @ k.T) ** 2 * gate
    return scores @ v / scores.sum(1, keepdim=True)


def softmax(q, k, v):
    """Causal softmax attention by PyTorch's own fused kernel."""
    heads = (x[None, None] for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)[0, 0]


class Embedding:
    """x_a² and √2 x_a x_b for a < b: n × d to d (d + 1) / 2 × n. Gathering rows is faster than columns."""

    def __init__(self, d):
        self.a, self.b = torch.triu_indices(d, d)
        self.weights = torch.where(self.a == self.b, 1, 2**0.5)[:, None]

    def __call__(self, x):
        rows = x.T.contiguous()
        return rows.index_select(0, self.a).mul_(rows.index_select(0, self.b)).mul_(self.weights)


def with_ones(v):
    """Values and a column of ones, whose sum is the normaliser."""
    return torch.cat([v, torch.ones(len(v), 1)], 1)


def empty_state(d, e):
    return torch.zeros(d * (d + 1) // 2, e + 1)


def chunked(q, k, v, log_gamma):
    """The outputs and the state after the last token."""
    embed, state, y = Embedding(q.shape[1]), empty_state(q.shape[1], v.shape[1]), torch.empty_like(v)
    future = ~torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    for begin in range(0, len(q), CHUNK):
        Q, K, V, g = (x[begin : begin + CHUNK] for x in (q, k, v, log_gamma))
        V, total = with_ones(V), g.cumsum(0)
        gate = (total[:, None] - total).masked_fill(future, -torch.inf).exp()
        sums = ((Q @ K.T) ** 2 * gate) @ V + total.exp()[:, None] * (embed(Q).T @ state)
        state.mul_(total[-1].exp()).addmm_(embed(K), (total[-1] - total).exp()[:, None] * V)
        y[begin : begin + CHUNK] = sums[:, :-1] / sums[:, -1:]
    return y, state


def gradients(q, k, v, log_gamma, dy):
    """Of Σ dy·y in the arguments, the same scan without what is written in place, forward and backward. Checkpoints make it slower."""
    q, k, v, log_gamma = tokens = [x.detach().requires_grad_() for x in (q, k, v, log_gamma)]
    a, b = torch.triu_indices(q.shape[1], q.shape[1])
    weights = torch.where(a == b, 1, 2**0.5)[:, None]
    future = ~torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    state, outputs = empty_state(q.shape[1], v.shape[1]), []

    def embed(x):
        rows = x.T.contiguous()
        return rows.index_select(0, a) * rows.index_select(0, b) * weights

    for begin in range(0, len(q), CHUNK):
        Q, K, V, g = (x[begin : begin + CHUNK] for x in tokens)
        V, total = with_ones(V), g.cumsum(0)
        gate = (total[:, None] - total).masked_fill(future, -torch.inf).exp()
        sums = ((Q @ K.T) ** 2 * gate) @ V + total.exp()[:, None] * (embed(Q).T @ state)
        state = total[-1].exp() * state + embed(K) @ ((total[-1] - total).exp()[:, None] * V)
        outputs.append(sums[:, :-1] / sums[:, -1:])
    return torch.autograd.grad(torch.cat(outputs), tokens, dy)


def step(embed, state, q, k, v, log_gamma):
    """One token, 1 × d, against the transposed state, which is faster here; the state moves on in place."""
    state.addr_(with_ones(v)[0], embed(k)[:, 0], beta=float(log_gamma.exp()))
    sums = state @ embed(q)[:, 0]
    return sums[:-1] / sums[-1]
