"""The definition in float64, row by row, and the row rule of docs/numerics.md."""

import numpy as np

UNIT = 2.0**-24


class Rows:
    """Some rows of causal attention, normalised, and what the row rule needs of them.

    scores(i) gives, over the keys that row i sees, the scores, what rounding can make of them in units of u, and the gates.
    """

    def __init__(self, v, rows, scores):
        self.rows, self.largest = np.array(rows), np.abs(v).max()
        self.y, self.condition, self.window = [], [], []
        for i in rows:
            s, size, gate = scores(i)
            self.y.append(s @ v[: i + 1].astype(np.float64) / s.sum())
            self.condition.append(size.sum() / s.sum())
            self.window.append(gate.sum())

    def ratio(self, y, tokens_per_update):
        """max |ΔY_i| / (4 u K_i max|V| (1 + √n_i)): at most 1 is rounding. n_i counts the updates of the state."""
        difference = np.abs(np.asarray(y, np.float64)[self.rows] - self.y).max(1)
        updates = np.array(self.window) / tokens_per_update
        allowed = 4 * UNIT * np.array(self.condition) * self.largest * (1 + np.sqrt(updates))
        return float((difference / allowed).max())


def power_rows(q, k, v, log_gamma, rows):
    """Rows of gated scores (q·k)²."""
    q, k = (x.astype(np.float64) for x in (q, k))
    total = np.cumsum(log_gamma, dtype=np.float64)
    lengths = np.linalg.norm(k, axis=1)

    def scores(i):
        gate = np.exp(total[i] - total[: i + 1])
        return gate * (k[: i + 1] @ q[i]) ** 2, gate * (lengths[: i + 1] * np.linalg.norm(q[i])) ** 2, gate

    return Rows(v, rows, scores)


def softmax_rows(q, k, v, rows):
    """Rows of scores exp(q·k / √d)."""
    q, k = (x.astype(np.float64) for x in (q / np.sqrt(q.shape[1]), k))
    lengths = np.linalg.norm(k, axis=1)

    def scores(i):
        logits = k[: i + 1] @ q[i]
        s = np.exp(logits - logits.max())
        return s, s * (1 + lengths[: i + 1] * np.linalg.norm(q[i])), np.ones(i + 1)

    return Rows(v, rows, scores)
