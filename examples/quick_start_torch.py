"""sympow in PyTorch: a call with gradients, a state, and tokens one at a time."""

import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    print("PyTorch is not installed for", sys.executable, "- pip install '.[torch]' brings it")
    sys.exit(77)

import torch
import sympow.torch

B, T, H, d = 2, 1024, 4, 32
q, k, v = (torch.randn(B, T, H, d, requires_grad=True) for _ in range(3))
log_gates = torch.nn.functional.logsigmoid(torch.randn(B, T, H) + 6)

# In place of softmax attention: causal, in linear time. The rows have gradients.
rows, state = sympow.torch.attention(q, k, v, log_gates=log_gates, power=2, return_state=True)
rows.square().sum().backward()

# The next token, against a state that stays in the library: it costs as much as the first one.
live = sympow.torch.state_of(state, q, k, v, power=2)
q1, k1, v1 = (torch.randn(B, 1, H, d) for _ in range(3))
row = sympow.torch.decode(q1, k1, v1, live, log_gates=log_gates[:, -1:])

print("rows", tuple(rows.shape), "next", tuple(row.shape), "gradient of the keys", float(k.grad.norm()))
assert torch.isfinite(rows).all() and torch.isfinite(row).all() and float(k.grad.norm()) > 0
