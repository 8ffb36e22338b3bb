"""sympow in JAX: a compiled gradient, and a state that `scan` carries."""

import sys

try:
    import jax
except ImportError:
    print("JAX is not installed for", sys.executable, "- pip install '.[jax]' brings it")
    sys.exit(77)

import sympow.jax

B, T, H, d = 2, 1024, 4, 32
keys = jax.random.split(jax.random.key(1), 4)
q, k, v = (jax.random.normal(key, (B, T, H, d)) for key in keys[:3])
log_gates = jax.nn.log_sigmoid(jax.random.normal(keys[3], (B, T, H)) + 6)


# In place of softmax attention: causal, in linear time. The rows have gradients in all arrays.
def loss(q, k, v, log_gates):
    rows = sympow.jax.attention(q, k, v, log_gates=log_gates, power=2)
    return (rows ** 2).sum()


gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(q, k, v, log_gates)


# A state is a pytree, which `scan` carries from each 128 tokens to the next.
def step(state, chunk):
    q, k, v, log_gates = chunk
    rows, state = sympow.jax.attention(q, k, v, log_gates=log_gates, power=2, state=state, return_state=True)
    return state, rows


chunks = [x.reshape(B, 8, 128, *x.shape[2:]).swapaxes(0, 1) for x in (q, k, v, log_gates)]
_, state = sympow.jax.attention(q[:, :0], k[:, :0], v[:, :0], power=2, return_state=True)  # before the first token
state, rows = jax.lax.scan(step, state, chunks)

whole = sympow.jax.attention(q, k, v, log_gates=log_gates, power=2)
error = abs(rows.swapaxes(0, 1).reshape(whole.shape) - whole).max()
norms = [float((x ** 2).sum() ** 0.5) for x in gradients]
print("rows", rows.shape, "state", state.sums.shape, "difference from one call", float(error), "gradients", norms)
assert error < 1e-4 and all(0 < x < float("inf") for x in norms)
