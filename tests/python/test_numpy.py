"""Tests of sympow: what calls give, and what every wrong argument is told.  python3 test_numpy.py"""

import copy
import functools
import inspect
import itertools
import math
import os
import pickle
import pydoc
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("numpy is not installed for", sys.executable, "- the numpy module is not tested")
    sys.exit(77)
import sympow
import sympow.systems

# Pairs of neighbors turn, unless a test says otherwise.
rows_of = functools.partial(sympow.attention, pairing="interleaved")
vjp_of = functools.partial(sympow.vjp, pairing="interleaved")
attention_of = functools.partial(sympow.Attention, pairing="interleaved")

EPS = {np.float32: 2.0**-24, np.float64: 2.0**-53}


class Batch:
    """Random arguments of a call."""

    def __init__(self, dtype=np.float64, B=2, T=40, H=4, Hk=2, Hg=2, d=6, e=5, seed=1):
        random = np.random.default_rng(seed)
        self.dtype, self.sizes = dtype, (B, T, H, Hk, d, e)
        self.q, self.k, self.v, self.dy = (random.standard_normal((B, T, heads, n)).astype(dtype)
                                           for heads, n in ((H, d), (Hk, d), (Hk, e), (H, e)))
        self.log_gates = -0.1 * random.random((B, T, Hg))
        self.theta, self.beta = random.standard_normal(d // 2), 1 + 0.1 * random.standard_normal((B, T, Hg))

    def turning(self):
        return dict(log_gates=self.log_gates, theta=self.theta, beta=self.beta)

    def tokens(self, begin, end):
        """The arguments of some tokens."""
        part = slice(begin, end)
        return (self.q[:, part], self.k[:, part], self.v[:, part]), dict(
            log_gates=self.log_gates[:, part], theta=self.theta, beta=self.beta[:, part])

    def state(self, attention, heads=None, **more):
        B, _, _, Hk, d, e = self.sizes
        return sympow.State(attention, B, heads or Hk, d, e, self.dtype, **more)


def rotated(x, angles, pairing="interleaved"):
    """[T, d] by [T, d/2]."""
    y, half = np.empty_like(x), x.shape[1] // 2
    a, b = (slice(0, None, 2), slice(1, None, 2)) if pairing == "interleaved" else (slice(0, half), slice(half, None))
    y[:, a] = x[:, a] * np.cos(angles) - x[:, b] * np.sin(angles)
    y[:, b] = x[:, a] * np.sin(angles) + x[:, b] * np.cos(angles)
    return y


def definition(batch, power, normalised, scale=1.0, pairing="interleaved"):
    """Rows by the formula in float64, and what one unit of rounding may change: the row rule without its 4 u √n."""
    B, T, H, Hk, _, e = batch.sizes
    rows, bounds = np.empty((B, T, H, e)), np.empty((B, T, H, 1))
    for b, h in itertools.product(range(B), range(H)):
        g = h * Hk // H
        gates, angles = batch.log_gates[b, :, g].cumsum(), np.outer(batch.beta[b, :, g].cumsum(), batch.theta)
        q, k, v = batch.q[b, :, h].astype(float), batch.k[b, :, g].astype(float), batch.v[b, :, g].astype(float)
        forget = np.tril(np.exp(np.minimum(gates[:, None] - gates, 0)))
        scores = (scale * rotated(q, angles, pairing) @ rotated(k, angles, pairing).T) ** power * forget
        lengths = abs(scale) * np.outer(np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1))
        sums = scores.sum(1, keepdims=True) if normalised else 1
        rows[b, :, h] = scores @ v / sums
        bounds[b, :, h] = (lengths**power * forget).sum(1, keepdims=True) / np.abs(sums) * np.abs(v).max()
    return rows, bounds


class Rows(unittest.TestCase):
    def check_row_rule(self, rows, batch, power, **options):
        wanted, bounds = definition(batch, power, power % 2 == 0, **options)
        turns = 1 + power * np.abs(batch.beta.cumsum(1)).max() * np.abs(batch.theta).max()
        most = 4 * EPS[batch.dtype] * turns * (1 + np.sqrt(batch.sizes[1]))
        self.assertLessEqual((np.abs(rows - wanted) / bounds).max(), most)

    def test_every_form_power_and_type_gives_the_definition(self):
        for dtype, power, form in itertools.product((np.float32, np.float64), range(1, 9),
                                                    ("automatic", "attention", "recurrent", "chunked")):
            with self.subTest(dtype=dtype, power=power, form=form):
                batch = Batch(dtype)
                rows = rows_of(batch.q, batch.k, batch.v, **batch.turning(), power=power, form=form, scale=0.5)
                self.assertEqual((rows.dtype, rows.shape), (dtype, batch.dy.shape))
                self.check_row_rule(rows, batch, power, scale=0.5)

    def test_pairs_of_halves_turn(self):
        batch = Batch()
        rows = rows_of(batch.q, batch.k, batch.v, **batch.turning(), pairing="half_split")
        self.check_row_rule(rows, batch, 2, pairing="half_split")

    def test_a_window_hides_older_keys(self):
        batch = Batch()
        rows = rows_of(batch.q, batch.k, batch.v, scores="exponential", window=3)
        keys, values = (x.repeat(2, axis=2) for x in (batch.k, batch.v))
        tokens = np.arange(batch.q.shape[1])
        ages = tokens[:, None] - tokens[None, :]
        scores = np.exp(np.einsum("bihd,bjhd->bhij", batch.q, keys)) * ((0 <= ages) & (ages < 3))
        wanted = np.einsum("bhij,bjhe->bihe", scores / scores.sum(-1, keepdims=True), values)
        np.testing.assert_allclose(rows, wanted, rtol=1e-12, atol=1e-12)
        with self.assertRaisesRegex(sympow.InvalidArgument, "does not go with a state"):
            rows_of(batch.q, batch.k, batch.v, window=3, form="chunked")

    def test_exponential_scores_are_softmax(self):
        batch = Batch()
        rows = rows_of(batch.q, batch.k, batch.v, scores="exponential", mask="full")
        keys, values = (x.repeat(2, axis=2) for x in (batch.k, batch.v))
        scores = np.exp(np.einsum("bihd,bjhd->bhij", batch.q, keys))
        wanted = np.einsum("bhij,bjhe->bihe", scores / scores.sum(-1, keepdims=True), values)
        lengths = np.linalg.norm(batch.q, axis=3).max() * np.linalg.norm(keys, axis=3).max()
        self.assertLessEqual(np.abs(rows - wanted).max(), 8 * 2.0**-53 * (1 + lengths) * np.abs(values).max())

    def test_views_of_any_strides_give_the_bits_of_dense_arrays(self):
        batch = Batch(np.float32)
        B, T, H, Hk, d, e = batch.sizes
        dense = rows_of(batch.q, batch.k, batch.v, **batch.turning())
        beside = np.zeros((B, T, H * d + Hk * (d + e)), np.float32)  # what one product of a layer makes
        q = beside[..., :H * d].reshape(B, T, H, d)
        k = beside[..., H * d:][..., :Hk * d].reshape(B, T, Hk, d)
        v = beside[..., (H + Hk) * d:].reshape(B, T, Hk, e)
        for view, x in ((q, batch.q), (k, batch.k), (v, batch.v)):
            self.assertTrue(np.shares_memory(view, beside))
            view[...] = x
        by_heads = np.ascontiguousarray(batch.log_gates.transpose(2, 0, 1)).transpose(1, 2, 0)
        every_third = np.zeros(3 * (d // 2))[::3]
        every_third[...] = batch.theta
        out = np.full((B, H, T, e), 7, np.float32).transpose(0, 2, 1, 3)
        given = dict(log_gates=by_heads, theta=every_third, beta=batch.beta)
        self.assertIs(rows_of(q, k, v, **given, out=out), out)
        self.assertTrue(np.array_equal(out, dense))
        of_dense = vjp_of(batch.dy, batch.q, batch.k, batch.v, **batch.turning())
        dy = np.ascontiguousarray(batch.dy.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
        for a, b in zip(vjp_of(dy, q, k, v, **given), of_dense):
            self.assertTrue(np.array_equal(a, b))

        one_head = np.broadcast_to(batch.k[:, :, :1], batch.k.shape)  # read-only, and stride 0
        rows = rows_of(batch.q, one_head, batch.v)
        self.assertTrue(np.array_equal(rows, rows_of(batch.q, one_head.copy(), batch.v)))

    def test_arrays_of_other_packages_are_read_by_dlpack(self):
        class Lent:
            def __init__(self, x):
                self.x, self.shape = x, x.shape

            def __dlpack__(self, **options):
                if self.x is None:
                    raise BufferError("it is mine")
                return self.x.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.x.__dlpack_device__()

        x = Batch()
        given, lent = (x.q, x.k, x.v), [Lent(y) for y in (x.q, x.k, x.v)]
        turned = [Lent(y.swapaxes(1, 2)) for y in given]
        rows = sympow.attention(*given, log_gates=x.log_gates)
        self.assertTrue(np.array_equal(sympow.attention(*lent, log_gates=Lent(x.log_gates)), rows))
        self.assertTrue(np.array_equal(sympow.attention(*turned, log_gates=x.log_gates.swapaxes(1, 2), layout="bhtd"),
                                       rows.swapaxes(1, 2)))
        self.assertTrue(np.array_equal(sympow.diagnose(*lent).condition, sympow.diagnose(*given).condition))
        self.assertTrue(np.array_equal(sympow.vjp(Lent(x.dy), *lent).keys, sympow.vjp(x.dy, *given).keys))
        lent[1].x = None
        with self.assertRaisesRegex(sympow.InvalidArgument, "keys is a Lent that numpy cannot read .* it is mine"):
            sympow.attention(*lent)

    def test_padding_is_not_read(self):
        batch = Batch()
        lengths = np.array([40, 7], np.int32)
        rows = rows_of(batch.q, batch.k, batch.v, lengths=lengths)
        alone = rows_of(batch.q[1:, :7], batch.k[1:, :7], batch.v[1:, :7])
        self.assertTrue(np.array_equal(rows[1:, :7], alone))
        self.assertTrue(np.all(rows[1, 7:] == 0))

    def test_sequences_of_their_own_lengths_whose_queries_stand_behind_their_keys(self):
        rng = np.random.default_rng(4)
        B, T, H, d, offset, lengths = 3, 7, 2, 4, 2, np.array([7, 4, 0])
        q, k, v, dy = (rng.standard_normal((B, T, H, d)) for _ in range(4))
        gates = -np.abs(rng.standard_normal((B, T + offset, H)))
        for scores in ("power", "exponential"):
            of_call = dict(form="attention", offset=offset, scores=scores)
            rows = sympow.attention(q, k, v, log_gates=gates, lengths=lengths, **of_call)
            given = sympow.Attention(**of_call).vjp(dy, q, k, v, log_gates=gates, lengths=lengths)
            for b, n in enumerate(lengths[:2]):
                one = [x[b:b + 1, :n] for x in (q, k, v)]
                own = gates[b:b + 1, :n + offset]
                self.assertTrue(np.array_equal(rows[b, :n], sympow.attention(*one, log_gates=own, **of_call)[0]))
                alone = sympow.Attention(**of_call).vjp(dy[b:b + 1, :n], *one, log_gates=own)
                self.assertTrue(np.array_equal(given.keys[b, :n], alone.keys[0]))
                self.assertTrue(np.array_equal(given.log_gates[b, :n + offset], alone.log_gates[0]))

    def test_channel_gates_and_householder_vectors(self):
        rng = np.random.default_rng(7)
        B, T, H, Hk, d, e = 2, 40, 4, 2, 6, 5
        q, dy = rng.standard_normal((B, T, H, d)), rng.standard_normal((B, T, H, e))
        k, v = rng.standard_normal((B, T, Hk, d)), rng.standard_normal((B, T, Hk, e))
        w = rng.standard_normal((B, T, Hk, d))
        w /= np.linalg.norm(w, axis=3, keepdims=True)
        gates = dict(log_gates=-0.1 * rng.random((B, T, Hk)))
        of_channels = gates | dict(channel_gates=-0.2 * rng.random((B, T, Hk, d)))
        of_vectors = gates | dict(householder=w, strengths=2 * rng.random((B, T, Hk)))
        of_both = of_channels | of_vectors

        def matrices(parameters, b, h):  # e^log_gate diag(a) (I - β w wᵀ)
            for t in range(T):
                A = np.diag(np.exp(parameters["channel_gates"][b, t, h])) if "channel_gates" in parameters else np.eye(d)
                if "householder" in parameters:
                    A = A @ (np.eye(d) - parameters["strengths"][b, t, h] * np.outer(w[b, t, h], w[b, t, h]))
                yield A, np.exp(parameters["log_gates"][b, t, h])

        for parameters, power, scores in ((of_channels, 1, "power"), (of_channels, 2, "power"), (of_vectors, 1, "power"),
                                          (of_channels, 2, "exponential"), (of_vectors, 2, "exponential"),
                                          (of_both, 1, "power"), (of_both, 3, "power"), (of_both, 2, "exponential")):
            options = dict(power=power, scores=scores, normalisation="unnormalised", scale=0.5)
            wanted = np.zeros_like(dy)
            for b, h in np.ndindex(B, H):
                moved, gate = np.zeros((0, d)), np.zeros(0)
                for t, (A, g) in enumerate(matrices(parameters, b, h * Hk // H)):
                    moved = np.vstack([moved @ A, k[b, t, h * Hk // H]])
                    gate = np.append(gate * g, 1)
                    x = 0.5 * moved @ q[b, t, h]
                    wanted[b, t, h] = (gate * (np.exp(x) if scores == "exponential" else x ** power)) @ v[b, :t + 1, h * Hk // H]
            has_states = scores == "power" and (power == 1 or "householder" not in parameters)
            for form in ("attention",) if not has_states else ("attention", "recurrent", "chunked"):
                with self.subTest(parameters=list(parameters), power=power, scores=scores, form=form):
                    rows = sympow.attention(q, k, v, **parameters, **options, form=form)
                    self.assertLessEqual(np.abs(rows - wanted).max(), 1e-12 * np.abs(wanted).max())
                    each = {name: x.repeat(2, axis=2) for name, x in parameters.items()}  # for every query head
                    shared = sympow.vjp(dy, q, k, v, **parameters, **options, form=form)
                    apart = sympow.vjp(dy, q, k, v, **each, **options, form=form)
                    for name in parameters:
                        x, y = getattr(shared, name), getattr(apart, name)
                        self.assertEqual(x.shape, parameters[name].shape)
                        sums = y[:, :, ::2] + y[:, :, 1::2]
                        self.assertLessEqual(np.abs(x - sums).max(), 1e-12 * np.abs(sums).max())
            lengths, part = np.array([T, 7]), {name: x[1:, :7] for name, x in parameters.items()}
            rows = sympow.attention(q, k, v, **parameters, **options, lengths=lengths)
            alone = sympow.attention(q[1:, :7], k[1:, :7], v[1:, :7], **part, **options, form="attention")
            self.assertLessEqual(np.abs(rows[1:, :7] - alone).max(), 1e-12 * np.abs(alone).max())
            self.assertTrue(np.all(sympow.vjp(dy, q, k, v, **parameters, **options, lengths=lengths).log_gates[1, 7:] == 0))
            if has_states:  # states go on
                attention = sympow.Attention(**options)
                state, rows = sympow.State(attention, B, Hk, d, e, np.float64), []
                for begin, end in ((0, 13), (13, 14), (14, T)):
                    some = slice(begin, end)
                    rows.append(attention(q[:, some], k[:, some], v[:, some], state=state,
                                          **{name: x[:, some] for name, x in parameters.items()}))
                self.assertLessEqual(np.abs(np.concatenate(rows, 1) - wanted).max(), 1e-12 * np.abs(wanted).max())
        for given, words in ((of_channels | dict(theta=np.ones(3)), "theta and channel_gates are given, must be one of them"),
                             (of_vectors | dict(theta=np.ones(3)), "theta and householder are given, must be one of them"),
                             (dict(strengths=of_vectors["strengths"]), "strengths is given, but no householder"),
                             (dict(channel_gates=-of_channels["channel_gates"]), "sequence 0, .*channel_gates of channel 0"),
                             (dict(householder=w.astype(np.float32)), "householder is of float32, must be of float64"),
                             (dict(channel_gates=w[..., :5] * 0), r"channel_gates: shape\[3\] is 5, must be 6"),
                             (of_vectors | dict(form="recurrent"), "have states for power 1 alone"),
                             (dict(householder=w * np.nan), "sequence 0")):
            for call in (functools.partial(sympow.attention, q, k, v), functools.partial(sympow.vjp, dy, q, k, v)):
                with self.assertRaisesRegex(sympow.SympowError, words):
                    call(**given)

    def test_no_tokens_and_no_sequences(self):
        for B, T in ((0, 3), (2, 0)):
            q, v = np.empty((B, T, 2, 4)), np.empty((B, T, 2, 3))
            self.assertEqual(rows_of(q, q, v).shape, (B, T, 2, 3))
            self.assertEqual(vjp_of(v, q, q, v).queries.shape, q.shape)

    def test_a_process_that_was_forked_off_calls(self):
        code = """if True:
            import os, signal, numpy as np, sympow
            x = np.random.default_rng(1).standard_normal((4, 40, 4, 4))
            rows = sympow.attention(x, x, x, threads=4)
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                os._exit(not np.array_equal(sympow.attention(x, x, x, threads=4), rows))
            print("child:", os.waitpid(child, 0)[1])"""
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True,
                              env=os.environ | {"SYMPOW_C_LIBRARY": sympow._library._name,
                                                "PYTHONPATH": str(Path(sympow.__file__).parents[1])})
        self.assertEqual(done.stdout, "child: 0\n", done.stderr)

    def test_a_child_makes_the_first_call_where_its_parent_has_used_openmp(self):
        code = """if True:
            import ctypes, os, signal, numpy as np, sympow
            try:  # as PyTorch does
                body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda x: None)
                ctypes.CDLL("libgomp.so.1").GOMP_parallel(body, None, 4, 0)
            except OSError:
                pass
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                x = np.random.default_rng(1).standard_normal((4, 40, 4, 4))
                os._exit(sympow.attention(x, x, x, threads=4).shape != x.shape)
            print("child:", os.waitpid(child, 0)[1])"""
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True,
                              env=os.environ | {"SYMPOW_C_LIBRARY": sympow._library._name,
                                                "PYTHONPATH": str(Path(sympow.__file__).parents[1])})
        self.assertEqual(done.stdout, "child: 0\n", done.stderr)

    @unittest.skipUnless(hasattr(signal, "setitimer"), "there are no timers")
    def test_a_handler_of_signals_calls(self):
        """The structs that a call keeps are not those of a call that interrupts it, nor are the locks of states."""
        batch, wrong = Batch(np.float32, T=5, H=2, Hk=2, d=4, e=4), 0
        attention, calls, others = sympow.Attention(), [], 2 * batch.q
        wanted = attention(batch.q, batch.k, batch.v)
        state, steps = sympow.State(attention, 2, 2, 4, 4), 0

        def handler(*_):
            calls.append(attention(others, batch.k, batch.v).sum())
            attention.decode(others[:, :1], batch.k[:, :1], batch.v[:, :1], state)
            if len(calls) < 500:
                signal.setitimer(signal.ITIMER_REAL, 2e-4)  # not before this one ends

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 2e-4)
        try:
            while len(calls) < 500:
                out = np.zeros_like(wanted)  # not memory that holds rows of the call before
                wrong += not np.array_equal(attention(batch.q, batch.k, batch.v, out=out), wanted)
                attention.decode(batch.q[:, :1], batch.k[:, :1], batch.v[:, :1], state)
                steps += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertEqual((wrong, state.tokens()), (0, steps + len(calls)))

    @unittest.skipUnless(hasattr(signal, "setitimer"), "there are no timers")
    def test_an_interrupt_leaves_no_lock(self):
        state, free = sympow.State(sympow.Attention(), 1, 1, 2, 2), []

        def handler(*_):
            raise KeyboardInterrupt

        def try_lock():
            free.append(state._handle.lock.acquire(blocking=False))
            if free[-1]:
                state._handle.lock.release()

        before = signal.signal(signal.SIGALRM, handler)
        try:
            for n in range(300):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 + n * 1e-7, .02)  # again, as Python ignores one in a destructor
                    while True:
                        state.tokens()
                        state.merge(state)
                except KeyboardInterrupt:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                thread = threading.Thread(target=try_lock)
                thread.start()
                thread.join()
                self.assertTrue(free[-1], f"interrupt {n}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_threads_of_python_share_an_attention(self):
        batch, attention = Batch(np.float32, T=200), attention_of(threads=1)
        wanted, found = attention(batch.q, batch.k, batch.v), []
        threads = [threading.Thread(target=lambda: found.extend(
            attention(batch.q, batch.k, batch.v) for _ in range(5))) for _ in range(4)]
        for step in (threading.Thread.start, threading.Thread.join):
            for thread in threads:
                step(thread)
        self.assertEqual(len(found), 20)
        self.assertTrue(all(np.array_equal(rows, wanted) for rows in found))


class GradientsOfCalls(unittest.TestCase):
    """Laws that gradients of ⟨dy, y⟩ have where rows are not normalised: y is of degree P in q, in k and in the scale,
    linear in v and S; gates and angles come as differences of sums."""

    def check(self, found, wanted, absolute, batch, power=2):
        """Both sides are sums of products of |dy| and what the row rule bounds: a query with a sum or a sum with a key,
        forwards and backwards, so four times the rule."""
        turns = 1 + power * np.abs(batch.beta.cumsum(1)).max() * np.abs(batch.theta).max()
        most = 4 * 4 * 2.0**-53 * turns * (1 + np.sqrt(batch.sizes[1])) * absolute.sum()
        self.assertLessEqual(abs(found - wanted), most)
        self.assertGreater(abs(wanted), 1e3 * most)

    def test_laws_of_degree(self):
        for power, form in itertools.product((1, 2, 3, 4, 6, 7), ("attention", "recurrent", "chunked")):
            with self.subTest(power=power, form=form):
                batch = Batch(Hg=4)
                options = dict(power=power, form=form, normalisation="unnormalised", scale=0.5)
                y = rows_of(batch.q, batch.k, batch.v, **batch.turning(), **options)
                of = vjp_of(batch.dy, batch.q, batch.k, batch.v, **batch.turning(), **options)
                loss = (batch.dy * y).sum()
                absolute = np.abs(batch.dy) * definition(batch_with_key_heads(batch), power, False, 0.5)[1]
                self.check((batch.q * of.queries).sum(), power * loss, power * absolute, batch, power)
                self.check((batch.k * of.keys).sum(), power * loss, power * absolute, batch, power)
                self.check((batch.v * of.values).sum(), loss, absolute, batch, power)
                self.check(0.5 * of.scale, power * loss, power * absolute, batch, power)
                self.check((batch.beta * of.beta).sum(), (batch.theta * of.theta).sum(),
                           power * absolute * np.abs(batch.theta).max() * np.abs(batch.beta.cumsum(1)).max(), batch,
                           power)
                # k_j meets gates e^-G_j: of head h alone, as those of query heads are given here.
                G = batch.log_gates.cumsum(1)
                by_query = (G * (batch.q * of.queries).sum(3)).sum() / power
                alone = [vjp_of(np.where(np.arange(4)[:, None] == h, batch.dy, 0), batch.q, batch.k, batch.v,
                                    **batch.turning(), **options).keys for h in range(4)]
                by_key = sum((G[:, :, h] * (batch.k[:, :, h // 2] * alone[h][:, :, h // 2]).sum(2)).sum()
                             for h in range(4)) / power
                self.check((batch.log_gates * of.log_gates).sum(), by_query - by_key, np.abs(G).max() * absolute,
                           batch, power)

    def test_states_take_gradients_along(self):
        batch, cut = Batch(), 25
        attention = attention_of(normalisation="unnormalised", chunk=8)
        state = batch.state(attention)
        first, first_given = batch.tokens(0, cut)
        last, last_given = batch.tokens(cut, None)
        attention(*first, **first_given, state=state)
        before = state.copy()
        rows = attention(*last, **last_given, state=state)
        of_last = attention.vjp(batch.dy[:, cut:], *last, **last_given, state=before)
        of_first = attention.vjp(np.zeros_like(batch.dy[:, :cut]), *first, **first_given, state=batch.state(attention),
                                 d_state=of_last.state)
        whole_dy = batch.dy.copy()
        whole_dy[:, :cut] = 0
        whole = attention.vjp(whole_dy, batch.q, batch.k, batch.v, **batch.turning())
        sums = before.read()
        loss = (batch.dy[:, cut:] * rows).sum()
        absolute = np.abs(whole_dy) * definition(batch, 2, False)[1]
        self.check((sums.sums * of_last.state.sums).sum() + (last[2] * of_last.values).sum(), loss, absolute, batch)
        for name, x in dict(keys=batch.k, values=batch.v, log_gates=batch.log_gates, beta=batch.beta).items():
            parts = np.concatenate([getattr(of_first, name), getattr(of_last, name)], axis=1)
            with self.subTest(name=name):
                angles = np.abs(batch.theta).max() * np.abs(batch.beta.cumsum(1)).max()
                self.check((x * parts).sum(), (x * getattr(whole, name)).sum(), 2 * absolute * angles, batch)
                self.assertGreater(np.abs(getattr(of_first, name)).max(), 1e-3)

    def test_nothing_is_returned_for_what_was_not_given(self):
        batch = Batch(np.float32)
        of = vjp_of(batch.dy, batch.q, batch.k, batch.v)
        self.assertEqual([of.log_gates, of.theta, of.beta, of.state], [None] * 4)
        self.assertEqual((of.queries.dtype, of.queries.shape), (np.float32, batch.q.shape))
        gates = batch.log_gates.astype(np.float32)
        self.assertEqual(vjp_of(batch.dy, batch.q, batch.k, batch.v, log_gates=gates).log_gates.dtype, np.float32)


def difference(f, x, dx, step=1e-5):
    """Along dx, by central differences of fourth order."""
    at = [f(x + n * step * dx) for n in (-2, -1, 1, 2)]
    return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step)


class RandomFeatures(unittest.TestCase):
    """Beside φ(x) = exp(W x - |x|²/2) / √D in numpy, with the library's W, which states of one key show."""

    features = 17

    def projections(self, d):
        """W, [D, d]: ln √D φ(k) = W k - |k|²/2 at the unit vectors k."""
        attention = sympow.Attention(scores="random", features=self.features, seed=3)
        state, k = sympow.State(attention, d, 1, d, 1, np.float64), np.eye(d)[:, None, None]
        attention(k, k, np.ones((d, 1, 1, 1)), state=state)
        return (np.log(state.read().normaliser[:, 0] * math.sqrt(self.features)) + 0.5).T

    def rows(self, W, q, k, v, gates, scale):
        phi = [np.exp(x @ W.T - (x * x).sum(-1, keepdims=True) / 2) for x in (scale * q, k)]
        G = gates.cumsum(0)
        scores = phi[0] @ phi[1].T / len(W) * np.tril(np.exp(np.minimum(G[:, None] - G, 0)))
        return scores @ v / scores.sum(1, keepdims=True)

    def options(self, form):
        return dict(scores="random", features=self.features, seed=3, form=form, chunk=8, scale=0.5)

    def test_rows_and_gradients_of_every_form(self):
        batch = Batch()
        W = self.projections(6)
        for n in range(0, self.features, 6):  # orthogonal blocks
            products = W[n:n + 6] @ W[n:n + 6].T
            self.assertLessEqual(np.abs(products - np.diag(np.diag(products))).max(), 1e-13 * products.max())
        for form in "automatic", "attention", "recurrent", "chunked":
            given = dict(log_gates=batch.log_gates, **self.options(form))
            rows = sympow.attention(batch.q, batch.k, batch.v, **given)
            of = sympow.vjp(batch.dy, batch.q, batch.k, batch.v, **given)
            for b, h in itertools.product(range(2), range(4)):
                one = [batch.q[b, :, h], batch.k[b, :, h // 2], batch.v[b, :, h // 2], batch.log_gates[b, :, h // 2], 0.5]
                wanted = self.rows(W, *one)
                self.assertLessEqual(np.abs(rows[b, :, h] - wanted).max(), 1e-11 * np.abs(batch.v).max())
            def loss(q, k, v, gates, scale):
                return sum((batch.dy[b, :, h] * self.rows(
                    W, q[b, :, h], k[b, :, h // 2], v[b, :, h // 2], gates[b, :, h // 2], scale)).sum()
                           for b, h in itertools.product(range(2), range(4)))

            random, arguments = np.random.default_rng(5), [batch.q, batch.k, batch.v, batch.log_gates, np.array(0.5)]
            for n, found in enumerate((of.queries, of.keys, of.values, of.log_gates, np.array(of.scale))):
                with self.subTest(form=form, n=n):
                    dx = random.standard_normal(found.shape)
                    wanted = difference(lambda x: loss(*arguments[:n], x, *arguments[n + 1:]), arguments[n], dx)
                    self.assertLessEqual(abs((found * dx).sum() - wanted), 1e-8 * np.abs(found * dx).sum())

    def test_states_go_on_and_hand_gradients_on(self):
        batch, cut = Batch(), 25
        attention = sympow.Attention(**self.options("chunked"))
        parts = [batch.tokens(0, cut)[0], batch.tokens(cut, None)[0]]
        whole = attention(batch.q, batch.k, batch.v)
        state = batch.state(attention)
        attention(*parts[0], state=state)
        before, sums = state.copy(), state.read()
        self.assertEqual(sums.sums.shape, (2, 2, self.features, 5))
        self.assertEqual(attention.feature_dimension(6), self.features)
        rows = attention(*parts[1], state=state)
        self.assertLessEqual(np.abs(rows - whole[:, cut:]).max(), 1e-12)
        with tempfile.TemporaryDirectory() as folder:
            before.save(Path(folder, "states"))
            again = batch.state(attention)
            again.load(Path(folder, "states"))
            self.assertTrue(np.array_equal(attention(*parts[1], state=again), rows))
            other = sympow.Attention(scores="random", features=self.features, seed=4)
            self.assertRaisesRegex(sympow.BadFile, "fingerprint", batch.state(other).load, Path(folder, "states"))
            self.assertRaisesRegex(sympow.InvalidArgument, "17 random features of seed 3", other, *parts[1], state=again)
        of = attention.vjp(batch.dy[:, cut:], *parts[1], state=before)

        def loss(sums, normaliser):
            start = batch.state(attention)
            start.write(sums, normaliser)
            return (batch.dy[:, cut:] * attention(*parts[1], state=start)).sum()

        random = np.random.default_rng(6)
        for n in range(2):
            dx = random.standard_normal(sums[n].shape)
            wanted = difference(lambda x: loss(*sums[:n], x, *sums[n + 1:2]), sums[n], dx)
            found = of.state[n] * dx
            self.assertLessEqual(abs(found.sum() - wanted), 1e-8 * np.abs(found).sum())

    def test_many_features_estimate_softmax(self):
        batch = Batch()
        q, k = 0.3 * batch.q, 0.3 * batch.k
        wanted = sympow.attention(q, k, batch.v, scores="exponential", mask="full")
        errors = [np.abs(sympow.attention(q, k, batch.v, scores="random", features=n, mask="full") - wanted).max()
                  for n in (64, 16384)]
        self.assertLess(errors[1], 0.05)
        self.assertLess(errors[1], errors[0] / 4)

    def test_keys_of_any_length_end(self):
        batch = Batch(np.float32)
        batch.k[0, 3] = 1e19
        with np.errstate(all="ignore"):
            of = vjp_of(batch.dy, batch.q, batch.k, batch.v, **batch.turning(), **self.options("chunked"))
        self.assertTrue(np.isfinite(of.queries).all())


class OfRows(unittest.TestCase):
    """Diagnostics beside their formulas."""

    def wanted(self, batch, power, scale):
        """Σ s, Σ |q|^P |k|^P b, [B, T, H] each."""
        (B, T, H, Hk, _, _), sums = batch.sizes, []
        for b, h in itertools.product(range(B), range(H)):
            g = h * Hk // H
            G, angles = batch.log_gates[b, :, g].cumsum(), np.outer(batch.beta[b, :, g].cumsum(), batch.theta)
            q, k = rotated(batch.q[b, :, h], angles), rotated(batch.k[b, :, g], angles)
            forget = np.tril(np.exp(np.minimum(G[:, None] - G, 0)))
            lengths = scale * np.outer(np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1))
            logits = scale * q @ k.T
            if power == 0:
                sums.append(((np.exp(logits) * forget).sum(1), (np.exp(logits) * (1 + lengths) * forget).sum(1)))
            else:
                sums.append(((logits**power * forget).sum(1), (lengths**power * forget).sum(1)))
        return np.array(sums).reshape(B, H, 2, T).transpose(2, 0, 3, 1)

    def test_every_form_and_power(self):
        batch = Batch()
        for power, form in itertools.product((0, 1, 2, 3, 6), ("attention", "recurrent", "chunked")):
            if power == 0 and form != "attention":
                continue
            with self.subTest(power=power, form=form):
                scores = dict(scores="exponential") if power == 0 else dict(power=power)
                given = dict(pairing="interleaved", scale=0.5, chunk=8, form=form, **scores)
                found = sympow.diagnose(batch.q, batch.k, batch.v, **batch.turning(), **given)
                sums, weights = self.wanted(batch, power, 0.5)
                tolerance = 1e-12 * weights / np.abs(sums)
                self.assertTrue((np.abs(found.log_sum - np.log(np.abs(sums))) <= tolerance).all())
                self.assertTrue((np.abs(found.condition * np.abs(sums) / weights - 1) <= tolerance).all())
                self.assertFalse(found.is_degenerate.any())
                heads_first = {name: np.swapaxes(x, 1, 2) for name, x in dict(
                    queries=batch.q, keys=batch.k, values=batch.v, log_gates=batch.log_gates, beta=batch.beta).items()}
                turned = sympow.diagnose(**heads_first, theta=batch.theta, layout="bhtd", **given)
                self.assertTrue(np.array_equal(np.swapaxes(turned.condition, 1, 2), found.condition))

    def test_states_padding_and_rows_without_weight(self):
        batch, cut = Batch(), 25
        attention = attention_of(form="chunked")
        state = batch.state(attention)
        [first, first_given], [last, last_given] = batch.tokens(0, cut), batch.tokens(cut, None)
        attention(*first, **first_given, state=state)
        before = state.read()
        found = attention.diagnose(*last, **last_given, state=state)
        for a, b in zip(before, state.read()):
            self.assertTrue(np.array_equal(a, b))
        whole = attention.diagnose(batch.q, batch.k, batch.v, **batch.turning())
        self.assertLessEqual(np.abs(found.condition / whole.condition[:, cut:] - 1).max(), 1e-9)
        batch.q[1, 2, 3] = 0
        found = attention.diagnose(batch.q, batch.k, batch.v, lengths=np.array([40, 5]))
        self.assertEqual(found.is_degenerate.sum(), 1)
        self.assertEqual((found.is_degenerate[1, 2, 3], found.log_sum[1, 2, 3]), (True, -math.inf))
        self.assertTrue((np.array([x[1, 5:] for x in found]) == 0).all())


def batch_with_key_heads(batch):
    """The batch whose key heads are those of the queries, as gates of query heads are."""
    B, T, H, Hk, d, e = batch.sizes
    other = copy.copy(batch)
    other.sizes, other.k, other.v = (B, T, H, H, d, e), batch.k.repeat(H // Hk, 2), batch.v.repeat(H // Hk, 2)
    return other


class States(unittest.TestCase):
    def setUp(self):
        self.batch, self.attention = Batch(np.float32), attention_of(form="recurrent")
        self.rows = self.attention(self.batch.q, self.batch.k, self.batch.v, **self.batch.turning())

    def advance(self, state, begin, end, call=None):
        tokens, given = self.batch.tokens(begin, end)
        return (call or self.attention)(*tokens, state=state, **given)

    def test_a_call_is_its_parts(self):
        state = self.batch.state(self.attention)
        self.assertEqual(state.tokens(), 0)
        found = [self.advance(state, 0, 30)]
        branch, also = state.copy(), copy.deepcopy(state)
        for t in range(30, 40):
            found.append(self.advance(state, t, t + 1, self.attention.decode))
        self.assertTrue(np.array_equal(np.concatenate(found, 1), self.rows))
        self.assertEqual((state.tokens(1, 1), branch.tokens(), also.tokens()), (40, 30, 30))
        for other in (branch, also, copy.copy(branch)):
            self.assertTrue(np.array_equal(self.advance(other, 30, 40), self.rows[:, 30:]))
        state.clear()
        self.assertTrue(np.array_equal(self.advance(state, 0, 40), self.rows))

    def test_tokens_are_absorbed_as_a_call_with_rows_leaves_them(self):
        long = np.random.default_rng(2).standard_normal((3, 1, 16000, 1, 32)).astype(np.float32)  # cut for threads
        for dtype, form in itertools.product((np.float32, np.float64), ("automatic", "recurrent", "chunked")):
            batch = Batch(dtype)
            gates = -0.1 * np.abs(batch.k)
            w = batch.k / np.linalg.norm(batch.k, axis=3, keepdims=True)
            for power, given in ((2, batch.turning()), (3, dict(channel_gates=gates)), (1, dict(householder=w)),
                                 (2, dict(lengths=np.array([40, 17])))):
                with self.subTest(dtype=dtype, form=form, power=power, given=list(given)):
                    attention = attention_of(form=form, power=power)
                    self.check_absorbed(attention, batch.state(attention), (batch.q, batch.k, batch.v), given)
        attention = sympow.Attention(form="chunked")
        self.check_absorbed(attention, sympow.State(attention, 1, 1, 32, 32), tuple(long), {})

    def check_absorbed(self, attention, state, tokens, given):
        """From an empty state and from one that goes on."""
        absorbing = state.copy()
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                attention(*tokens, state=state, **given)
                attention.absorb(*tokens[1:], absorbing, **given)
                files = [Path(folder, name) for name in "ab"]
                state.save(files[0])
                absorbing.save(files[1])
                self.assertEqual(*(file.read_bytes() for file in files))

    def test_mistakes_of_absorbed_tokens(self):
        state, (_, k, v) = self.batch.state(self.attention), self.batch.tokens(0, 40)[0]
        for error, words, arguments in (
                (TypeError, "state is a NoneType, must be a sympow.State", (k, v, None)),
                (TypeError, "keys is a list, must be a numpy array", ([1], v, state)),
                (sympow.ShapeMismatch, r"values: shape\[1\] is 39, must be 40", (k, v[:, 1:], state)),
                (sympow.ShapeMismatch, "heads of states is 2, must be 1", (k[:, :, :1], v[:, :, :1], state)),
                (sympow.InvalidArgument, "keys is None", (None, v, state))):
            with self.assertRaisesRegex(error, words):
                self.attention.absorb(*arguments)
        self.assertEqual(state.tokens(), 0)
        with self.assertRaisesRegex(sympow.InvalidArgument, "^out is None"):
            self.attention.attend_tensors({name: sympow._view(name, x) for name, x in zip(
                ("queries", "keys", "values"), (self.batch.q, k, v))}, None)

    def test_sums_are_read_rounded_and_kept(self):
        state, rounds = (self.batch.state(self.attention) for _ in range(2))
        rounds.read_as_bf16()
        for begin, end in ((0, 33), (33, 40)):
            rows, rounded = self.advance(state, begin, end), self.advance(rounds, begin, end)
        self.assertFalse(np.array_equal(rows, rounded))
        self.assertLess(np.abs(rows - rounded).max(), 2**-7 * np.abs(rows).max())
        self.assertTrue(np.array_equal(state.read().sums, rounds.read().sums))

    def test_a_pickled_state_reads_as_it_did(self):
        state = self.batch.state(self.attention)
        self.advance(state, 0, 40)
        state.read_as_bf16()
        again, exact = pickle.loads(pickle.dumps(state)), pickle.loads(pickle.dumps(state))
        exact.read_as_bf16(False)
        rows = self.advance(state, 0, 1)
        self.assertTrue(np.array_equal(self.advance(again, 0, 1), rows))
        self.assertFalse(np.array_equal(self.advance(exact, 0, 1), rows))

    def test_merged_and_taken_states_read_as_their_pickles(self):
        left = self.batch.state(self.attention)
        self.advance(left, 0, 40)
        right = self.batch.state(self.attention, after=left)
        self.advance(right, 0, 40)  # more than a tail holds
        right.read_as_bf16()
        for state in (left.merge(right), right.take([1, 0])):
            again = pickle.loads(pickle.dumps(state))
            exact = state.copy()
            exact.read_as_bf16(False)
            rows = self.advance(state, 0, 1)
            self.assertTrue(np.array_equal(self.advance(again, 0, 1), rows))
            self.assertFalse(np.array_equal(self.advance(exact, 0, 1), rows))

    def test_sequences_of_states_are_assigned_and_taken(self):
        state = self.batch.state(self.attention)
        self.advance(state, 0, 35)
        swapped, alone = state.take([1, 0]), state.take([1])
        self.assertEqual(swapped.tokens(1), 35)
        for x, order in ((swapped, [1, 0]), (alone, [1])):
            for found, of in zip(x.read(), state.read()):
                self.assertTrue(np.array_equal(found, of[order]))
        swapped.assign(0, swapped, 1)  # a beam that two go on from
        swapped.assign(1, state, 1)
        self.assertTrue(np.array_equal(self.advance(swapped, 35, 40), self.rows[:, 35:]))

    def test_sums_beyond_the_type_are_not_read_as_zeros(self):
        attention = attention_of(power=4)
        for key, words in ((1e-12, "numbers up to 2\\^-1[0-9]+.*, which float32 cannot hold"), (1e12, "cannot hold")):
            state = sympow.State(attention, 1, 1, 2, 1)
            attention(*(np.full((1, 3, 1, n), key if n == 2 else 1, np.float32) for n in (2, 2, 1)), state=state)
            with self.assertRaisesRegex(sympow.NotFinite, words):
                state.read()

    def test_states_of_query_heads(self):
        state = self.batch.state(self.attention, heads=4)
        self.assertTrue(np.array_equal(self.advance(state, 0, 40), self.rows))
        self.assertEqual(state.read().sums.shape, (2, 4, 21, 5))

    def test_decode_is_recurrent_whatever_the_form(self):
        chunked = attention_of(form="chunked")
        state = self.batch.state(chunked)
        self.assertTrue(np.array_equal(self.advance(state, 0, 40, chunked.decode), self.rows))

    def test_read_gives_the_sums_and_write_takes_them(self):
        for power, dtype in itertools.product((1, 2, 3, 4), (np.float32, np.float64)):
            with self.subTest(power=power, dtype=dtype):
                batch = Batch(dtype)
                attention = attention_of(power=power)
                state = batch.state(attention)
                tokens, given = batch.tokens(0, 30)
                attention(*tokens, state=state, **given)
                sums = state.read()
                other = batch.state(attention)
                other.write(*sums)
                for a, b in zip(other.read(), sums):
                    self.assertTrue(np.array_equal(a, b))
                strided = batch.state(attention)
                strided.write(*(np.repeat(x, 2, x.ndim - 1)[..., ::2] for x in sums))  # numbers apart in memory
                for a, b in zip(strided.read(), sums):
                    self.assertTrue(np.array_equal(a, b))
                tokens, given = batch.tokens(30, 40)
                rows, again = (attention(*tokens, state=x, **given) for x in (state, other))
                _, bounds = definition(batch, power, power % 2 == 0)
                turns = 1 + power * np.abs(batch.beta.cumsum(1)).max() * np.abs(batch.theta).max()
                most = 2 * 4 * EPS[dtype] * turns * (1 + np.sqrt(40))  # each is as far from the definition
                self.assertLessEqual((np.abs(rows - again) / bounds[:, 30:]).max(), most)

        # Where one token is all: S = v φ(k)ᵀ.
        attention, k, v = attention_of(power=2), np.array([[[[2.0, 3.0]]]]), np.array([[[[5.0]]]])
        state = sympow.State(attention, 1, 1, 2, 1, np.float64)
        attention(k, k, v, state=state)
        self.assertTrue(np.allclose(state.read().normaliser, [4, 6 * 2**0.5, 9], rtol=2.0**-51, atol=0))
        self.assertTrue(np.allclose(state.read().sums[0, 0, :, 0], [20, 30 * 2**0.5, 45], rtol=2.0**-51, atol=0))
        state.write(np.zeros((1, 1, 3, 1)), np.zeros((1, 1, 3)))
        self.assertEqual(state.tokens(), 0)
        self.assertEqual(attention(k, k, v, state=state)[0, 0, 0, 0], 5)  # it was empty

    def test_merge(self):
        left = self.batch.state(self.attention)
        self.advance(left, 0, 25)
        right = self.batch.state(self.attention, after=left)
        self.advance(right, 25, 40)
        merged = left.merge(right)
        del left, right
        self.assertEqual(merged.tokens(), 40)
        whole = self.batch.state(self.attention)
        self.advance(whole, 0, 40)
        sizes = np.abs(whole.read().normaliser).max()
        self.assertLessEqual(np.abs(merged.read().normaliser - whole.read().normaliser).max(), 40 * 2.0**-23 * sizes)

    def test_files(self):
        state, other = self.batch.state(self.attention), self.batch.state(self.attention)
        self.advance(state, 0, 30)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ein Zuständchen.state"
            state.save(path)
            other.load(str(path))
            self.assertTrue(np.array_equal(self.advance(other, 30, 40), self.rows[:, 30:]))
            path.write_bytes(path.read_bytes()[:-1])
            with self.assertRaisesRegex(sympow.BadFile, "ends inside of"):
                state.load(path)
            self.assertTrue(np.array_equal(self.advance(state, 30, 40), self.rows[:, 30:]))  # as it was
            with self.assertRaisesRegex(OSError, "cannot be read"):
                state.load(Path(folder) / "nothing")
            with self.assertRaises(sympow.BadFile):
                state.save(Path(folder) / "no folder" / "x")

    def test_one_state_in_many_threads_is_used_by_one_at_a_time(self):
        state = self.batch.state(self.attention)
        threads = [threading.Thread(target=lambda: [self.advance(state, 0, 40) for _ in range(5)]) for _ in range(4)]
        for step in (threading.Thread.start, threading.Thread.join):
            for thread in threads:
                step(thread)
        self.assertEqual(state.tokens(), 20 * 40)

    def test_handles_outlive_what_made_them(self):
        state = self.batch.state(attention_of(form="recurrent"))
        self.assertTrue(np.array_equal(self.advance(state, 0, 40), self.rows))
        for again in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state)):
            self.assertEqual(again.tokens(1, 1), 40)
            self.assertTrue(np.array_equal(self.advance(again, 0, 40), self.advance(state.copy(), 0, 40)))
        self.assertIn("2 sequences and 2 heads, d = 6, e = 5, float32, sympow.Attention(", repr(state))
        for again in (pickle.loads(pickle.dumps(self.attention)), copy.deepcopy(self.attention)):
            self.assertTrue(np.array_equal(again(self.batch.q, self.batch.k, self.batch.v, **self.batch.turning()),
                                           self.rows))
            self.assertIn("form='recurrent'", repr(again))

    def test_frequencies_are_those_of_cpp(self):
        for given, expected in (
                (dict(scaling="ntk", factor=4), [1, 0.06299605249474366, 0.00396850262992050, 0.00025]),
                (dict(scaling="yarn", factor=4, length=2048), [1, 0.1, 0.00625, 0.00025]),
                (dict(base=500, scaling="linear", factor=2), [0.5, 0.105737126344056, 0.0223606797749979, 0.00472870804501588])):
            self.assertTrue(np.allclose(sympow.rope_frequencies(8, **given), expected, rtol=1e-13, atol=0))
        self.assertAlmostEqual(sympow.yarn_scale(4), 1.2964769927807063, 14)
        for given, words in ((dict(d=7), "d is 7"), (dict(d=2, scaling="ntk"), "above 2"), (dict(d=4, base=0), "base is 0"),
                             (dict(d=4, scaling="yarn", factor=2), "length is 0"), (dict(d=4, scaling="x"), "scaling is 'x'")):
            with self.assertRaisesRegex(sympow.InvalidArgument, words):
                sympow.rope_frequencies(**given)

    def test_rotary_of_the_first_channels_leaves_the_others(self):
        x = Batch(d=6)
        for pairing in ("interleaved", "half_split"):
            attention = sympow.Attention(power=2, pairing=pairing, rotary_dim=4)
            given = dict(log_gates=x.log_gates, theta=x.theta[:2], beta=x.beta)
            turned, plain = Batch(d=6), dict(log_gates=x.log_gates)
            for b, h in itertools.product(range(2), range(4)):
                angles = np.outer(x.beta[b, :, h // 2].cumsum(), x.theta[:2])
                turned.q[b, :, h, :4] = rotated(x.q[b, :, h, :4], angles, pairing)
                if h % 2 == 0:
                    turned.k[b, :, h // 2, :4] = rotated(x.k[b, :, h // 2, :4], angles, pairing)
            expected = sympow.attention(turned.q, turned.k, turned.v, power=2, **plain)
            np.testing.assert_allclose(attention(x.q, x.k, x.v, **given), expected, rtol=1e-9, atol=1e-11)
            state = x.state(attention)
            np.testing.assert_allclose(attention(x.q, x.k, x.v, state=state, **given), expected, rtol=1e-9, atol=1e-11)
            self.assertEqual(state.read().angles.shape, (2, 2, 2))
            other = x.state(attention)
            other.write(*state.read())
            self.assertEqual(attention.vjp(x.dy, x.q, x.k, x.v, state=other, **given).state.angles.shape, (2, 2, 2))

    def test_systems_of_the_literature(self):
        x, s = Batch(H=2, Hk=2, T=20), sympow.systems
        B, T, H, _, d, e = x.sizes
        k = x.k / np.linalg.norm(x.k, axis=-1, keepdims=True)
        beta, g, channels = 1 / (1 + np.exp(-x.beta)), x.log_gates, -0.2 * np.abs(x.k)
        gamma, slopes, theta, eye = s.retnet_gamma(2), s.alibi_slopes(2), x.theta, np.eye(d)
        delta = eye - beta[..., None, None] * k[..., :, None] * k[..., None, :]

        def turn(angles):  # R as a row vector is multiplied by its transpose
            return np.stack([rotated(eye, np.broadcast_to(a, (d, d // 2))).T for a in angles.reshape(-1, d // 2)])

        fixed = np.broadcast_to(turn(theta[None])[0], (B, T, H, d, d))
        learned = turn(x.beta[..., None] * theta).reshape(B, T, H, d, d)
        still = np.broadcast_to(eye, (B, T, H, d, d))
        by_channel = np.exp(channels)[..., None] * eye

        def rows(A, log_gates, score, divides, values):
            """Of y_i = Σ_j κ(k_jᵀ A_{j+1} … A_i q_i, Σ log γ) v_j, with all products made."""
            y = np.empty((B, T, H, e))
            for b, i, h in itertools.product(range(B), range(T), range(H)):
                q, weights, decay = x.q[b, i, h], np.empty(i + 1), 0.0
                for j in range(i, -1, -1):
                    weights[j] = score(k[b, j, h] @ q, decay)
                    q, decay = A[b, j, h] @ q, decay + (0 if log_gates is None else log_gates[b, j, h])
                y[b, i, h] = weights @ values[b, :i + 1, h] / (weights.sum() if divides else 1)
            return y

        linear, square, softmax = lambda s, g: s * np.exp(g), lambda s, g: s**2 * np.exp(g), lambda s, g: np.exp(s + g)
        per_head = np.broadcast_to(np.log(gamma), (B, T, H))
        v, of_delta = x.v, beta[..., None] * x.v
        cases = [
            (s.linear_attention(), s.nope(), still, None, v), (s.retnet(x.q, gamma), None, still, per_head, v),
            (s.retnet(x.q, 0.9), s.alibi(x.q, -math.log(0.9)), still, np.full((B, T, H), math.log(0.9)), v),
            (s.mamba2(g), s.fox(g), still, g, v), (s.gla(channels), s.dual(s.gla(channels)), by_channel, None, v),
            (s.complex_gate(theta, "interleaved"), s.rope(theta, "interleaved"), fixed, None, v),
            (s.delta_net(k, beta), s.path(k, beta), delta, None, of_delta),
            (s.gated_delta_net(k, beta, g), s.path_fox(k, beta, g), delta, g, of_delta),
            (s.kimi_delta_attention(k, beta, channels), s.dual(s.kimi_delta_attention(k, beta, channels)), by_channel @ delta,
             None, of_delta),
            (None, s.path_fox(k, beta, g, 0.5), delta, 0.5 * g, v),
            (None, s.alibi(x.q, slopes), still, np.broadcast_to(-slopes, (B, T, H)), v)]
        powers = [(s.sympow_attention(), still, None), (s.gated_sympow(g), still, g),
                  (s.conformal_sympow(g, theta, x.beta, "interleaved"), learned, g)]
        for n, (system, of_softmax, A, log_gates, values) in enumerate(cases):
            if system is not None:
                wanted = rows(A, log_gates, linear, False, values)
                np.testing.assert_allclose(sympow.attention(x.q, k, values, **system), wanted, rtol=1e-9, atol=1e-12)
                recurrent = sympow.attention(x.q, k, values, **system, form="recurrent")
                np.testing.assert_allclose(recurrent, wanted, rtol=1e-9, atol=1e-11, err_msg=str(n))
            if of_softmax is not None:
                np.testing.assert_allclose(sympow.attention(x.q, k, x.v, **of_softmax), rows(A, log_gates, softmax, True, x.v),
                                           rtol=1e-9, atol=1e-12, err_msg=str(n))
        for system, A, log_gates in powers:
            np.testing.assert_allclose(sympow.attention(x.q, k, v, **system), rows(A, log_gates, square, True, v),
                                       rtol=1e-8, atol=1e-10)
        self.assertTrue(np.allclose(s.alibi_slopes(12)[[0, 7, 8, 11]], [2**-1, 2**-8, 2**-0.5, 2**-3.5]))
        for given, words in ((lambda: s.retnet(x.q, [0.5] * 3), r"shape \[3\], must be \[\] or \[2\]"),
                             (lambda: s.retnet(x.q, 1.5), "must be at most 0"), (lambda: s.alibi(x.q, -1), "must be at most 0"),
                             (lambda: s.path_fox(k, beta, g, 0), "gate_scale is 0"), (lambda: s.alibi_slopes(0), "heads is 0")):
            with self.assertRaisesRegex(sympow.InvalidArgument, words):
                given()

    def test_heads_before_tokens(self):
        x, options = Batch(), dict(pairing="interleaved", layout="bhtd")
        exchanged = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in (x.q, x.k, x.v, x.log_gates, x.beta, x.dy)]
        q, k, v, log_gates, beta, dy = exchanged
        given = dict(log_gates=log_gates, beta=beta, theta=x.theta)
        expected = rows_of(x.q, x.k, x.v, **x.turning())
        self.assertTrue(np.array_equal(sympow.attention(q, k, v, **given, **options), expected.swapaxes(1, 2)))
        out = np.empty((*q.shape[:3], 5))
        self.assertIs(sympow.attention(q, k, v, **given, **options, out=out), out)
        self.assertTrue(np.array_equal(out, expected.swapaxes(1, 2)))
        of, wanted = sympow.vjp(dy, q, k, v, **given, **options), vjp_of(x.dy, x.q, x.k, x.v, **x.turning())
        for name in ("queries", "keys", "values", "log_gates", "beta"):
            self.assertTrue(np.array_equal(getattr(of, name), getattr(wanted, name).swapaxes(1, 2)), name)
        self.assertTrue(np.array_equal(of.theta, wanted.theta))
        many = np.zeros((1, 8, 200, 2))
        with self.assertWarnsRegex(UserWarning, r"taken for 8 tokens of 200 heads: the layout is 'bthd'"):
            sympow.attention(many, many, many)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sympow.attention(many, many, many, layout="bhtd")
            sympow.attention(many[:, :1], many[:, :1], many[:, :1])
        with self.assertRaisesRegex(sympow.InvalidArgument, "layout is 'hbtd', must be one of bthd, bhtd"):
            sympow.attention(q, k, v, layout="hbtd")

    def test_structured_rotations(self):
        """exp(Σ_a x_a S_a) of commuting skew matrices is rotary of turned channels."""
        x, random = Batch(d=6, T=20), np.random.default_rng(5)
        basis, _ = np.linalg.qr(random.standard_normal((6, 6)))
        rates = np.array([[0.7, -0.2, 0.0], [0.1, 0.1, 0.0]])  # a plane of two equal rates, and one that nothing turns
        S = np.zeros((2, 6, 6))
        S[:, 1::2, ::2], S[:, ::2, 1::2] = (sign * np.eye(3) * rates[:, None] for sign in (1, -1))
        S = basis @ S @ basis.T
        positions = random.standard_normal((20, 2))
        values, vectors = np.linalg.eigh(1j * np.einsum("ta,aij->tij", positions, S))
        R = (vectors * np.exp(-1j * values)[:, None]) @ vectors.conj().swapaxes(1, 2)
        self.assertLess(np.abs(R.imag).max(), 1e-12)
        turned_q, turned_k = (np.einsum("tij,bthj->bthi", R.real, one) for one in (x.q, x.k))
        wanted = sympow.attention(turned_q, turned_k, x.v, power=2)
        U, theta = sympow.rotation_planes(S)
        beta = np.broadcast_to(np.diff(positions, axis=0, prepend=0)[None, :, None], (2, 20, 2, 2))
        found = rows_of(x.q @ U, x.k @ U, x.v, theta=theta, beta=np.ascontiguousarray(beta), power=2)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
        skew = S[:1] + 1e-3 * np.eye(6)
        crossed = np.stack([S[0], np.kron(np.array([[0, 1], [-1, 0]]), np.diag([1.0, 2, 3]))])
        for error, given, words in ((sympow.ShapeMismatch, S[0], r"\[6, 6\], must be"), (sympow.ShapeMismatch, S[:, :5, :5], "even"),
                                    (sympow.InvalidArgument, skew, "generator 0 is not skew"), (sympow.NotFinite, S * np.nan, "finite"),
                                    (sympow.InvalidArgument, crossed, "generators 0 and 1 do not commute")):
            with self.assertRaisesRegex(error, words):
                sympow.rotation_planes(given)

    def test_gates_that_are_sums_are_warned_of(self):
        x = Batch(T=40)
        summed = x.log_gates.cumsum(1)
        for layout, give in (("bthd", lambda y: y), ("bhtd", lambda y: y.swapaxes(1, 2))):
            of = [give(y) for y in (x.q, x.k, x.v)]
            with self.assertWarnsRegex(UserWarning, "log γ of each token alone"):
                sympow.attention(*of, log_gates=give(summed), layout=layout)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for gates in (x.log_gates, np.full_like(summed, -0.1), summed[:, ::-1].copy()):
                    sympow.attention(*of, log_gates=give(gates), layout=layout)
                sympow.attention(*(y[:, :15] for y in (x.q, x.k, x.v)), log_gates=summed[:, :15])

    def test_rotary_of_several_axes_is_m_rope(self):
        x, sections = Batch(d=8), (2, 1, 1)
        theta = sympow.rope_frequencies(8, 50, sections=sections)
        self.assertTrue(np.array_equal(theta.sum(0), sympow.rope_frequencies(8, 50)))
        self.assertTrue(np.array_equal((theta != 0).sum(1), sections))
        grid = np.indices((2, 4, 5)).reshape(3, 40).T  # an image after an image
        positions = np.stack([grid, grid[:, ::-1] * 2 - 3])[:, :, None].repeat(2, 2).astype(float)
        beta, dy = np.diff(positions, axis=1, prepend=0), x.dy
        for pairing in ("interleaved", "half_split"):
            turned = Batch(d=8)
            for b, h in itertools.product(range(2), range(4)):
                angles = positions[b, :, h // 2] @ theta
                turned.q[b, :, h] = rotated(x.q[b, :, h], angles, pairing)
                if h % 2 == 0:
                    turned.k[b, :, h // 2] = rotated(x.k[b, :, h // 2], angles, pairing)
            expected = sympow.attention(turned.q, turned.k, turned.v, log_gates=x.log_gates)
            attention = sympow.Attention(pairing=pairing)
            call = functools.partial(attention, x.q, x.k, x.v, log_gates=x.log_gates)
            np.testing.assert_allclose(call(theta=theta, beta=beta), expected, rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(call(theta=theta, beta=beta, state=x.state(attention)), expected, rtol=1e-9, atol=1e-11)
            of = attention.vjp(dy, x.q, x.k, x.v, log_gates=x.log_gates, theta=theta, beta=beta)
            random, step = np.random.default_rng(3), 1e-6
            for name, at in dict(theta=theta, beta=beta).items():
                way = random.standard_normal(at.shape)
                up, down = (call(**(dict(theta=theta, beta=beta) | {name: at + h * way})) for h in (step, -step))
                slope = (dy * (up - down)).sum() / (2 * step)
                self.assertAlmostEqual((getattr(of, name) * way).sum() / slope, 1, 5)
        for given, words in ((dict(theta=theta), "theta has 3 axes, must have one at least, and beta"),
                             (dict(theta=theta, beta=beta[..., :2]), r"beta: shape\[3\] is 2, must be 3 \(axes of theta"),
                             (dict(theta=theta, beta=x.beta), "beta: ndim is 3, must be 4"),
                             (dict(theta=theta[:, :3], beta=beta), r"theta: shape\[1\] is 3, must be 4"),
                             (dict(theta=theta[:0], beta=beta[..., :0]), "theta has 0 axes")):
            for way in (functools.partial(rows_of, x.q, x.k, x.v), functools.partial(vjp_of, dy, x.q, x.k, x.v)):
                with self.assertRaisesRegex(sympow.SympowError, words):
                    way(**given)
        with self.assertRaisesRegex(sympow.InvalidArgument, "must sum to the 4 pairs"):
            sympow.rope_frequencies(8, sections=(2, 3))

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_a_child_does_not_wait_for_a_state_that_was_in_use(self):
        x = Batch()
        state, free = (x.state(attention_of(power=2)) for _ in range(2))
        held, done = threading.Event(), threading.Event()

        def hold():  # as a call does
            with state._handle.lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            try:
                state.tokens()
            except sympow.InterruptedState:
                if child := os.fork():  # whose own child knows it, too
                    os._exit(os.waitpid(child, 0)[1] != 0)
                try:
                    state.tokens()
                except sympow.InterruptedState:
                    os._exit(0 if free.tokens() == 0 and len(rows_of(x.q, x.k, x.v)) == 2 else 2)
            os._exit(1)
        done.set()
        thread.join()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(state.tokens(), 0)


class Mistakes(unittest.TestCase):
    """Each is told what it is, and has written nothing."""

    def refuse(self, error, words, call, *arguments, **given):
        with self.assertRaisesRegex(error, words) as caught:
            call(*arguments, **given)
        self.assertTrue(isinstance(caught.exception, (sympow.SympowError, TypeError)))

    def test_options(self):
        make = sympow.Attention
        for given, error, words in (
                (dict(power=0), sympow.InvalidArgument, "power is 0, must lie in 1 … 8"),
                (dict(power=9), sympow.InvalidArgument, "power is 9, must lie in 1 … 8"),
                (dict(scores="random"), ValueError, "features is 0, must be at least 1"),
                (dict(features=9), ValueError, 'features is 9, must be 0 unless scores is "random"$'),
                (dict(scores="random", features=9, seed=-1), ValueError, "seed is -1, must be at least 0"),
                (dict(scores="random", features=9, seed=1.0), TypeError, "seed is 1.0, must be an integer"),
                (dict(power=2**32 + 2), sympow.TooLarge, "power is 4294967298, no integer of 32 bits"),
                (dict(power="2"), TypeError, "power is '2', must be an integer"),
                (dict(power=2.0), TypeError, "power is 2.0, must be an integer"),
                (dict(power=None), TypeError, "power is None"),
                (dict(scores="softmax"), ValueError, "scores is 'softmax', must be one of power, exponential, random"),
                (dict(form="chunk"), ValueError, "form is 'chunk', must be one of automatic, attention, recurrent"),
                (dict(form=3), ValueError, "form is 3, must be one of"),
                (dict(mask=True), ValueError, "mask is True, must be one of causal, full"),
                (dict(pairing="half"), ValueError, "must be one of interleaved, half_split"),
                (dict(normalisation="l2"), ValueError, "must be one of default, normalised, unnormalised, signed"),
                (dict(normalisation="normalised", power=3), ValueError, 'normalisation is "normalised", but odd powers .*: '
                                                                         '"unnormalised", or "signed" if signed weights'),
                (dict(normalisation="signed"), ValueError, 'is "signed", but no score is negative: "normalised"$'),
                (dict(threads=-1), ValueError, "threads is -1, must be at least 0"),
                (dict(chunk=-1), ValueError, "chunk is -1"),
                (dict(checkpoint=-1), ValueError, "checkpoint is -1"),
                (dict(tail=-2), ValueError, "tail is -2, must be at least -1"),
                (dict(offset=2**70), OverflowError, "offset is 1180591620717411303424, no integer of 64 bits"),
                (dict(scale=float("nan")), sympow.NotFinite, "scale is nan, must be finite"),
                (dict(scale="1"), TypeError, ""),
                (dict(windows=3), TypeError, "windows")):
            with self.subTest(**given):
                self.refuse(error, words, make, **given)
        self.refuse(TypeError, "positional", make, 2)
        self.refuse(ValueError, "have no embedding", make(scores="exponential").feature_dimension, 4)
        self.refuse(sympow.TooLarge, "", make(power=4).feature_dimension, 2**40)
        self.assertEqual(make(power=4).feature_dimension(16), 3876)

    def test_arrays(self):
        def reversed_tokens(x):
            return x[:, ::-1]

        def unaligned(x):
            return np.ndarray(x.shape, x.dtype, bytes(x.nbytes + 1), offset=1)

        def packed(x):
            return np.zeros(x.shape, np.dtype([("value", np.float32), ("flag", np.int8)]))["value"]

        batch = Batch(np.float32)
        good = dict(queries=batch.q, keys=batch.k, values=batch.v, **batch.turning())
        changes = [
            ("queries", list, TypeError, "queries is a list, must be a numpy array"),
            ("keys", lambda x: None, ValueError, "keys is None"),
            ("values", np.ma.masked_invalid, ValueError, "values is a masked array, whose mask no call sees"),
            ("keys", lambda x: x.astype(np.float64), ValueError, "keys is of float64, must be of float32"),
            ("queries", lambda x: x.astype(np.float16), ValueError, "queries is of float16, must be of float32 or"),
            ("queries", lambda x: x.astype(np.int64), ValueError, "queries is of int64, must be of float32 or float64"),
            ("values", lambda x: x.astype(complex), ValueError, "values is of complex128, must be of float32"),
            ("values", lambda x: x.astype(object), ValueError, "values is of object, must be of float32"),
            ("queries", lambda x: x.astype(">f4"), ValueError, "queries is of >f4, must be of float32"),
            ("queries", lambda x: x[0], sympow.ShapeMismatch, "queries: ndim is 3, must be 4 of"),
            ("values", lambda x: x[0], sympow.ShapeMismatch, "values: ndim is 3, must be 4 of"),
            ("keys", lambda x: x[:1], sympow.ShapeMismatch, r"keys: shape\[0\] is 1, must be 2"),
            ("queries", lambda x: x[:, 1:], sympow.ShapeMismatch, r"keys: shape\[1\] is 40, must be 39"),
            ("keys", lambda x: x[:, 1:], sympow.ShapeMismatch, r"keys: shape\[1\] is 39, must be 40"),
            ("keys", lambda x: x.repeat(2, 2)[:, :, :3], sympow.ShapeMismatch, r"must be 3|multiple of the 3"),
            ("keys", lambda x: x[..., :4], sympow.ShapeMismatch, r"shape\[3\] is 4, must be 6 \(numbers of a query\)"),
            ("values", lambda x: x[:, :, :1], sympow.ShapeMismatch, r"values: shape\[2\] is 1, must be 2"),
            ("queries", reversed_tokens, ValueError, r"queries: strides\[1\] is -24, must not be negative"),
            ("values", lambda x: x[..., ::2], ValueError, r"values: strides\[3\] is 2, must be 1"),
            ("values", np.asfortranarray, ValueError, r"values: strides\[3\] is 160, must be 1"),
            ("keys", lambda x: np.broadcast_to(x[:, :1], x.shape), ValueError, r"strides\[1\] is 0, must be at least"),
            ("keys", unaligned, ValueError, "keys: data are not aligned to 4 bytes"),
            ("keys", packed, ValueError, r"keys: strides\[2\] is 30 bytes, must be a multiple of the 4 of an entry"),
            ("log_gates", np.abs, ValueError, "^sequence 0, head 0: log_gates of token 0 is 0.* must be"),
            ("log_gates", lambda x: x[..., 0], sympow.ShapeMismatch, "log_gates: ndim is 2, must be 3"),
            ("log_gates", lambda x: x[:, :4], sympow.ShapeMismatch, r"log_gates: shape\[1\] is 4, must be 40"),
            ("log_gates", lambda x: x.repeat(3, 2)[..., :3], sympow.ShapeMismatch, r"shape\[2\] is 3, must be 2"),
            ("theta", lambda x: x[:1], sympow.ShapeMismatch, r"theta: shape\[0\] is 1, must be 3"),
            ("theta", lambda x: x * np.inf, sympow.NotFinite, "theta|rate"),
            ("theta", lambda x: None, ValueError, "beta is given, but no theta"),
            ("beta", lambda x: x.astype(int), ValueError, "beta is of int64, must be of float32 or float64$"),
            ("beta", lambda x: x[:, :4], sympow.ShapeMismatch, r"beta: shape\[1\] is 4, must be 40"),
            ("lengths", lambda x: np.array([1]), sympow.ShapeMismatch, r"lengths: shape\[0\] is 1, must be 2"),
            ("lengths", lambda x: np.array([1, 41]), ValueError, "41"),
            ("lengths", lambda x: np.array([1, -1]), ValueError, "-1"),
            ("lengths", lambda x: np.array([1.0, 2.0]), ValueError, "lengths is of float64, must be of int32 or int64$"),
            ("out", lambda x: np.zeros((2, 40, 4, 4), np.float32), sympow.ShapeMismatch, r"out: shape\[3\] is 4"),
            ("out", lambda x: np.zeros((2, 40, 4, 5)), ValueError, "out is of float64, must be of float32"),
            ("out", lambda x: np.broadcast_to(np.float32(0), (2, 40, 4, 5)), ValueError, "out is read-only"),
            ("out", lambda x: batch.q[..., :5], ValueError, "^out .*queries"),
            ("state", lambda x: "state", TypeError, "state is a str, must be a sympow.State"),
        ]
        for name, change, error, words in changes:
            with self.subTest(name=name, words=words):
                out = np.full(batch.dy.shape, 7, np.float32)
                given = dict(good, out=out)
                given[name] = change(given.get(name))
                arguments = [given.pop(x) for x in ("queries", "keys", "values")]
                self.refuse(error, words, rows_of, *arguments, **given)
                self.assertTrue(np.all(out == 7))
                if name not in ("out", "state"):
                    given.pop("out")
                    self.refuse(error, words, vjp_of, batch.dy, *arguments, **given)
        odd = np.ones((1, 2, 1, 3))
        self.refuse(ValueError, "must be even: theta turns pairs", rows_of, odd, odd, odd, theta=np.ones(1))
        nan = np.full((1, 2, 1, 3), np.nan)
        for n, name in enumerate(("queries", "keys", "values")):
            given = [odd, odd, odd]
            given[n] = odd.copy()
            given[n][0, 1, 0, 2] = np.nan
            self.refuse(sympow.NotFinite, f"^sequence 0, head 0: {name} at token 1, channel 2 is nan, must be finite",
                        sympow.attention, *given, check_finite=True)
        self.refuse(ValueError, "^sequence 0, head 0: channel_gates of channel 0 at token 0 is 1, must be", sympow.attention,
                    odd, odd, odd, channel_gates=odd)
        self.refuse(sympow.NotFinite, "^sequence 0, head 0: strengths at token 0 is 1 and householder has the length nan",
                    sympow.attention, odd, odd, odd, householder=nan, power=1)
        even = np.ones((1, 2, 1, 2))
        self.refuse(sympow.NotFinite, "^sequence 0, head 0: theta at position 0 is inf", rows_of, even, even, even, theta=np.full(1, np.inf))
        self.refuse(ValueError, '^pairing is None, must be "interleaved" or "half_split" where theta is given', sympow.attention,
                    even, even, even, theta=np.ones(1))
        self.assertTrue(np.isnan(rows_of(odd, nan, odd)).all())
        self.refuse(ValueError, "d_state is given, but no state", sympow.vjp, odd, odd, odd, odd,
                    d_state=sympow.Sums(odd, odd, None))
        self.refuse(sympow.ShapeMismatch, r"d_rows: shape\[3\] is 1, must be 3", sympow.vjp, odd[..., :1], odd, odd,
                    odd)
        self.refuse(TypeError, "d_rows is an int", sympow.vjp, 1, odd, odd, odd)
        self.refuse(ValueError, "d_rows is None", sympow.vjp, None, odd, odd, odd)

    def test_states(self):
        batch, attention = Batch(np.float32), attention_of()
        B, _, _, Hk, d, e = batch.sizes
        make = sympow.State
        self.refuse(TypeError, "attention is an int, must be a sympow.Attention", make, 2, B, Hk, d, e)
        self.refuse(sympow.ShapeMismatch, "batch is -1", make, attention, -1, Hk, d, e)
        self.refuse(sympow.TooLarge, "", make, attention, 2**62, 2**62, d, e)
        self.refuse(TypeError, "heads is 2.5, must be an integer", make, attention, B, 2.5, d, e)
        self.refuse(ValueError, "dtype is of float16, must be of float32", make, attention, B, Hk, d, e, np.float16)
        self.refuse(ValueError, "dtype is of >f8, must be of float32", make, attention, B, Hk, d, e, ">f8")
        self.refuse(ValueError, "dtype is of int64, must be of float32 or float64", make, attention, B, Hk, d, e, int)
        self.refuse(TypeError, "no type", make, attention, B, Hk, d, e, "no type")
        self.refuse(ValueError, "no states", make, attention_of(scores="exponential"), B, Hk, d, e)
        self.refuse(TypeError, "after is a str", make, attention, B, Hk, d, e, after="x")
        state = batch.state(attention)
        self.refuse(sympow.ShapeMismatch, "shape: e is 1, must be 5, that of after", make, attention, B, Hk, d, 1,
                    after=state)
        self.refuse(TypeError, "right is a list, must be a sympow.State", state.merge, [])
        self.refuse(sympow.ShapeMismatch, "right: B is 1, must be 2", state.merge, make(attention, 1, Hk, d, e))
        self.refuse(ValueError, "sequence is 2, must be at least 0 and below 2", state.tokens, 2)
        self.refuse(ValueError, "from_sequence is 3, must be at least 0 and below 2", state.assign, 0, state, 3)
        self.refuse(ValueError, "from_sequence is -1", state.take, [0, -1])
        self.refuse(TypeError, "other is an int, must be a sympow.State", state.assign, 0, 1, 0)
        self.refuse(sympow.ShapeMismatch, "from: d is 2, must be", state.assign, 0, make(attention, B, Hk, 2, e), 0)
        self.refuse(TypeError, "head is 'a', must be an integer", state.tokens, 0, "a")
        self.refuse(TypeError, "", state.save, 3.5)
        for use in (state.save, state.load):
            self.refuse(ValueError, "must not hold a null character", use, "state\0s")
            self.refuse(sympow.BadFile, "nothing", use, b"/nothing/\xff")
        for d_state in (tuple(state.read()[:2]), state.read()[0], ()):
            self.refuse(TypeError, "d_state is a .*, must be a sympow.Sums", attention.vjp, batch.dy, batch.q, batch.k,
                        batch.v, state=state, d_state=d_state)
        arguments = batch.q, batch.k, batch.v
        self.refuse(TypeError, "state is a NoneType, must be a sympow.State", attention.decode, *arguments, None)
        self.refuse(ValueError, "states are of power 2 and float32, must be of power 3", sympow.attention, *arguments,
                    state=state, power=3)
        self.refuse(ValueError, "attention form has no states", sympow.attention, *arguments, state=state,
                    form="attention")
        self.refuse(sympow.ShapeMismatch, r"log_gates: shape\[2\] is 4, must be 2 \(heads of the states", attention,
                    *arguments, log_gates=batch.log_gates.repeat(2, 2), state=state)
        attention(*arguments, theta=batch.theta, state=state)
        self.refuse(ValueError, "was built under a rotation", attention, *arguments, state=state)
        sums = state.read()
        self.refuse(sympow.ShapeMismatch, r"sums: shape\[3\] is 4, must be 5", state.write, sums.sums[..., :4],
                    *sums[1:])
        self.refuse(ValueError, "normaliser is of float64, must be of float32", state.write, sums.sums,
                    sums.normaliser.astype(float))
        self.refuse(ValueError, "normaliser is None", state.write, sums.sums, None)
        for n, name in enumerate(sums._fields):
            spoilt = [x.copy() for x in sums]
            spoilt[n][(1,) * (spoilt[n].ndim - 1) + (2,)] = np.nan
            self.refuse(sympow.NotFinite, rf"{name}: entry \(1, 1(, 1)?, 2\) is nan, must be finite", state.write,
                        *spoilt)
        for a, b in zip(state.read(), sums):
            self.assertTrue(np.array_equal(a, b))

    def test_everything_is_explained(self):
        self.assertIn("[B, T, H, d], float32 or float64", pydoc.render_doc(sympow))
        for name in sympow.__all__:
            thing = getattr(sympow, name)
            self.assertTrue(thing.__doc__, name)
            members = inspect.getmembers(thing, inspect.isfunction) if inspect.isclass(thing) else []
            for member, function in members:
                if not member.startswith("_"):
                    self.assertTrue(function.__doc__, f"{name}.{member}")

    def test_options_by_name(self):
        x = Batch()
        with self.assertRaisesRegex(TypeError, "there is no argument gates; options are check_finite, checkpoint"):
            sympow.attention(x.q, x.k, x.v, gates=x.log_gates)
        with self.assertRaisesRegex(TypeError, "power is 2.0, must be an integer"):
            sympow.attention(x.q, x.k, x.v, power=2.0)
        sympow.attention(x.q, x.k, x.v, power=2)
        with self.assertRaisesRegex(TypeError, "power is 2.0, must be an integer"):  # whatever was called before
            sympow.attention(x.q, x.k, x.v, power=2.0)
        with self.assertRaisesRegex(TypeError, r"power is array\(\[2\]\), must be an integer"):
            sympow.attention(x.q, x.k, x.v, power=np.array([2]))
        for given, text in ((dict(rotary_dim=3), "rotary_dim is 3, must be even"),
                            (dict(rotary_dim=8), "rotary_dim is 8, must be at most 6")):
            with self.assertRaisesRegex(sympow.SympowError, "^" + text):
                rows_of(x.q, x.k, x.v, theta=x.theta, **given)


if __name__ == "__main__":
    sympow.version()
    unittest.main()
