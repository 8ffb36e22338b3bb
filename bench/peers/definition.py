"""The definition in float64, row by row, and the row rule of docs/numerics.md; gradients, and the row rule of theirs."""

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


class Gradients:
    """Gradients of Σ dy·y by the definition, gated scores (q·k)², in the last tokens: only rows among these have a part in them.

    For each of q, k, v and log_gamma the gradient and what the row rule of gradients (gradient_row_rule.hpp) allows for n = 0.
    """

    def __init__(self, q, k, v, log_gamma, dy, last=1024, block=64):
        self.last = min(last, len(q))
        first, T = len(q) - self.last, len(q)
        total = np.cumsum(log_gamma, dtype=np.float64)
        largest, lengths = np.abs(v).max(), np.linalg.norm(k.astype(np.float64), axis=1)
        k, v = k.astype(np.float64), v.astype(np.float64)
        self.values = {name: np.zeros((T, x.shape[1])) for name, x in {"q": q, "k": k, "v": v}.items()}
        self.allowed = {name: np.zeros((T, 1)) for name in self.values}
        flows, allowed_flows, self.window = np.zeros(T), np.zeros(T), 0
        for begin in range(first, T, block):
            rows = slice(begin, min(begin + block, T))
            Q, dY = q[rows].astype(np.float64), dy[rows].astype(np.float64)
            i, j = np.arange(T)[rows, None], np.arange(T)
            gate = np.exp(np.where(j <= i, total[rows, None] - total, -np.inf))
            x, length = Q @ k.T, np.linalg.norm(Q, axis=1)[:, None]
            s, size = gate * x**2, gate * (length * lengths) ** 2
            den = s.sum(1, keepdims=True)
            y = s @ v / den
            D = (dY @ v.T - (dY * y).sum(1, keepdims=True)) / den
            dx = 2 * gate * x * D
            self.values["q"][rows] = dx @ k
            self.values["k"] += dx.T @ Q
            self.values["v"] += (s / den).T @ dY
            K = size.sum(1, keepdims=True) / den
            h = np.abs(dY).sum(1, keepdims=True) * (largest + np.abs(y).max(1, keepdims=True))
            weight = h * (size + K * gate * np.abs(x) * length * lengths) / den
            self.allowed["q"][rows] = 2 * weight.sum(1, keepdims=True) / length
            self.allowed["k"][:, 0] += 2 * weight.sum(0) / lengths
            self.allowed["v"][:, 0] += (np.abs(dY).max(1, keepdims=True) * (size + K * s) / den).sum(0)
            for flow, couplings in ((flows, s * D), (allowed_flows, weight)):  # Σ over j < t ≤ i
                before = np.cumsum(couplings, axis=1)
                from_t = np.zeros_like(before)
                from_t[:, 1:] = np.where(j[1:] <= i, before[:, :-1], 0)
                flow += from_t.sum(0)
            self.window = max(self.window, gate.sum(1).max())
        self.values["log_gamma"], self.allowed["log_gamma"] = flows, allowed_flows

    def ratio(self, name, gradient, tokens_per_update):
        """max |Δ| over what is allowed: at most 1 is rounding."""
        allowed = (6 + 2) * UNIT * (1 + np.sqrt(self.window / tokens_per_update)) * self.allowed[name][-self.last :]
        return float((self.difference(name, gradient) / np.maximum(allowed, 1e-300)).max())

    def error(self, name, gradient):
        """max |Δ| beside the largest entry: the rule is for the worst of all inputs, and says little of one formula for another."""
        return float(self.difference(name, gradient).max() / np.abs(self.values[name][-self.last :]).max())

    def difference(self, name, gradient):
        return np.abs(np.asarray(gradient, np.float64) - self.values[name])[-self.last :]
