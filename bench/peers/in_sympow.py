"""The same by the package sympow, as its users call it."""

import numpy as np
import sympow

GATED = {"power": 2, "threads": 1}


def as_heads(*arrays):
    """One sequence and one head, [1, T, 1, n], where they are."""
    return [x[None, :, None] for x in arrays]


def attention(form, q, k, v, log_gates):
    """A callable that returns the outputs from the empty state."""
    call, inputs = sympow.Attention(form=form, **GATED), as_heads(q, k, v)
    y = np.empty((1, len(q), 1, v.shape[1]), np.float32)
    gates = log_gates[None, :, None]
    return lambda: call(*inputs, log_gates=gates, out=y)[0, :, 0]


def softmax(q, k, v):
    call, inputs = sympow.Attention(scores="exponential", scale=q.shape[1] ** -0.5, threads=1), as_heads(q, k, v)
    y = np.empty((1, len(q), 1, v.shape[1]), np.float32)
    return lambda: call(*inputs, out=y)[0, :, 0]


def gradients(q, k, v, log_gates, dy):
    """A callable that returns the gradients of Σ dy·y in the tokens by the chunked form, forward and backward."""
    call, (*inputs, d_rows) = sympow.Attention(form="chunked", **GATED), as_heads(q, k, v, dy)
    gates = log_gates[None, :, None]

    def run():
        call(*inputs, log_gates=gates)
        found = call.vjp(d_rows, *inputs, log_gates=gates)
        return [x[0, :, 0] for x in (found.queries, found.keys, found.values, found.log_gates)]

    return run


def decoder(prompt, tokens):
    """A callable that takes token t and returns its output, after a prompt."""
    call = sympow.Attention(form="chunked", **GATED)
    q, k, v, log_gates = prompt
    state = sympow.State(call, 1, 1, q.shape[1], v.shape[1])
    call(*as_heads(q, k, v), log_gates=log_gates[None, :, None], state=state)
    pieces = [(*as_heads(*x[:3]), x[3][None, :, None]) for x in tokens]

    def step(t):
        q, k, v, log_gates = pieces[t]
        return call.decode(q, k, v, state, log_gates=log_gates)[0, 0]

    return step
