"""The definition in float64, row by row, and the row rule of docs/numerics.md."""

import numpy as np

UNIT = 2.0**-24


class Rows:
    """Some rows of gated attention with scores (q·k)², normalised, and what the row rule needs of them."""

    def __init__(self, q, k, v, log_gamma, rows):
        q, k, v = (x.astype(np.float64) for x in (q, k, v))
        total = np.cumsum(log_gamma, dtype=np.float64)
        lengths, self.rows, self.largest = np.linalg.norm(k, axis=1), np.array(rows), np.abs(v).max()
        self.y, self.condition, self.window = [], [], []
        for i in rows:
            seen = slice(0, i + 1)
            gate = np.exp(total[i] - total[seen])
            scores = gate * (k[seen] @ q[i]) ** 2
            self.y.append(scores @ v[seen] / scores.sum())
            self.condition.append(gate @ (lengths[seen] * np.linalg.norm(q[i])) ** 2 / scores.sum())
            self.window.append(gate.sum())

    def ratio(self, y, tokens_per_update):
        """max |ΔY_i| / (4 u K_i max|V| (1 + √n_i)): at most 1 is rounding. n_i counts the updates of the state."""
        difference = np.abs(np.asarray(y, np.float64)[self.rows] - self.y).max(1)
        updates = np.array(self.window) / tokens_per_update
        allowed = 4 * UNIT * np.array(self.condition) * self.largest * (1 + np.sqrt(updates))
        return float((difference / allowed).max())
