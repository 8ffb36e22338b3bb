"""Power retention (retention 1.0.7): symmetric power attention with gates."""

from __future__ import annotations

import sympow
import sympow.torch
from torch import Tensor

__all__ = ["power_retention"]


def power_retention(Q: Tensor, K: Tensor, V: Tensor, log_G: Tensor | None = None,
                    initial_state: sympow.torch.State | None = None, sum_of_keys: None = None,
                    return_final_state: bool = False, deg: int = 2, scale: float | None = None,
                    chunk_size: int | None = None, switch_over_seq_len: int | None = None,
                    original_t: None = None) -> Tensor | tuple[Tensor, sympow.torch.State]:
    """Means weighed by (scale Q·K)^deg e^{Σ log_G}; scale is d^-1/2 unless it is given.

    Q [B, T, H, d], K and V [B, T, Hk, …], log_G [B, T, Hk]. `chunk_size` of None is the attention form, else the chunked
    one. States are those of `sympow.torch.attention`, which hold S and Z: the package's are in tiles of another order.
    The package adds 1e-7 to scores and 1e-6 to denominators; nothing is added here.
    """
    if sum_of_keys is not None or original_t is not None:
        raise sympow.NotBuilt("sum_of_keys and original_t must be None: a state holds its sum of keys")
    if sympow._number("deg", deg) % 2 != 0:
        raise sympow.InvalidArgument(f"deg is {deg}, must be even")
    keeps = return_final_state or initial_state is not None
    return sympow.torch.attention(
        Q, K, V, log_gates=log_G, state=initial_state, return_state=return_final_state, power=deg,
        form="chunked" if keeps or chunk_size is not None else "attention", chunk=chunk_size or 0,
        scale=Q.shape[-1] ** -0.5 if scale is None else scale)
