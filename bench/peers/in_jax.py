"""Gated symmetric-power attention in JAX, p = 2: the papers' quadratic listing, a chunked scan, and a decoding step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

CHUNK = 128  # of 64, 128, 256 and 512 none is faster beyond noise


@jax.jit
def quadratic(q, k, v, log_gamma):
    total = jnp.cumsum(log_gamma)
    causal = jnp.tril(jnp.ones((len(q), len(q)), bool))
    gate = jnp.exp(jnp.where(causal, total[:, None] - total, -jnp.inf))
    scores = (q @ k.T) ** 2 * gate
    return scores @ v / scores.sum(1, keepdims=True)


def embed(x):
    """x_a² and √2 x_a x_b for a < b: n × d to d (d + 1) / 2 × n. Gathering rows is faster than columns."""
    a, b = np.triu_indices(x.shape[1])
    weights = np.where(a == b, 1, np.sqrt(2)).astype(np.float32)
    return x.T[a] * x.T[b] * weights[:, None]


def with_ones(v):
    """Values and a column of ones, whose sum is the normaliser."""
    return jnp.concatenate([v, jnp.ones((len(v), 1), v.dtype)], 1)


def empty_state(d, e):
    return jnp.zeros((d * (d + 1) // 2, e + 1), jnp.float32)


def chunk(state, tokens):
    """The state after a chunk, and its outputs."""
    q, k, v, log_gamma = tokens
    causal = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))
    total = jnp.cumsum(log_gamma)
    gate = jnp.exp(jnp.where(causal, total[:, None] - total, -jnp.inf))
    sums = ((q @ k.T) ** 2 * gate) @ v + jnp.exp(total)[:, None] * (embed(q).T @ state)
    state = jnp.exp(total[-1]) * state + embed(k) @ (jnp.exp(total[-1] - total)[:, None] * v)
    return state, sums[:, :-1] / sums[:, -1:]


def scan(chunk, q, k, v, log_gamma):
    """The outputs and the state after the last token."""
    chunks = [x.reshape(-1, CHUNK, *x.shape[1:]) for x in (q, k, with_ones(v), log_gamma)]
    state, y = jax.lax.scan(chunk, empty_state(q.shape[1], v.shape[1]), chunks)
    return y.reshape(v.shape), state


chunked = jax.jit(functools.partial(scan, chunk))


@jax.jit
def gradients(q, k, v, log_gamma, dy):
    """Of Σ dy·y in the arguments, forward and backward. What a chunk computes is computed again, which is faster than keeping it."""
    _, back = jax.vjp(lambda *tokens: scan(jax.checkpoint(chunk), *tokens)[0], q, k, v, log_gamma)
    return back(dy)


@functools.partial(jax.jit, donate_argnums=0)
def step(state, q, k, v, log_gamma):
    """One token, 1 × d, against the transposed state, which is faster here: the state after it and its output."""
    state = jnp.exp(log_gamma) * state + with_ones(v).T * embed(k).T
    sums = state @ embed(q)[:, 0]
    return state, sums[:-1] / sums[-1]
