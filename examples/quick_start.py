"""All tokens at once, a prompt and then token by token, and gradients, on numpy arrays."""

import sys

try:
    import numpy as np
except ImportError:
    print("numpy is not installed for", sys.executable)
    sys.exit(77)

import sympow

random = np.random.default_rng(1)
B, T, H, Hk, d, e = 2, 100, 4, 2, 16, 8
q, k, v = (random.standard_normal((B, T, heads, n), np.float32) for heads, n in ((H, d), (Hk, d), (Hk, e)))
log_gates = -0.01 * random.random((B, T, Hk))
theta = sympow.rope_frequencies(d)  # rotary positions; scaling="yarn", factor=4, length=8192 of a longer context

# All tokens at once.
rows = sympow.attention(q, k, v, log_gates=log_gates, theta=theta, pairing="half_split", power=2,
                        form="recurrent")

# A prompt and then token by token, against states that the query heads of a key head share.
attention = sympow.Attention(power=2, form="recurrent", pairing="half_split")  # or "chunked": faster, other roundings
state = sympow.State(attention, B, Hk, d, e)
prompt = slice(0, 90)
first_rows = attention(q[:, prompt], k[:, prompt], v[:, prompt], log_gates=log_gates[:, prompt], theta=theta,
                       state=state)
assert np.array_equal(first_rows, rows[:, prompt])  # bit for bit
branch = state.copy()  # where another continuation may begin
for t in range(90, T):
    token = slice(t, t + 1)
    row = attention.decode(q[:, token], k[:, token], v[:, token], state, log_gates=log_gates[:, token], theta=theta)
    assert np.array_equal(row, rows[:, token])
assert state.tokens() == T and branch.tokens() == 90

# Gradients: of Σ rows² in all that the call was given.
gradients = sympow.vjp(2 * rows, q, k, v, log_gates=log_gates, theta=theta, pairing="half_split", power=2)
print("∂loss/∂θ =", gradients.theta.round(3))

# Mistakes are exceptions, which say what is wrong.
try:
    attention(q, k[..., :8], v)
except sympow.ShapeMismatch as error:
    print(error)  # keys: shape[3] is 8, must be 16 (numbers of a query)
