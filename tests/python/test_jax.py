"""Tests of sympow.jax: bits, derivatives, JAX's transformations, and mistakes.  python3 test_jax.py"""

import ctypes
import functools
import itertools
import platform
import subprocess
import sys
import threading
import unittest
from unittest import mock

try:
    import jax
    from jax import numpy as jnp
    from jax.test_util import check_grads
except ImportError:
    print("JAX 0.5 or later is not installed for", sys.executable, "- its calls are not tested: ./dev python")
    sys.exit(77)
import numpy as np
import sympow.jax
import sympow.systems
from sympow.jax import State

jax.config.update("jax_enable_x64", True)

# Pairs of neighbors turn, unless a test says otherwise.
rows_of = functools.partial(sympow.attention, pairing="interleaved")
vjp_of = functools.partial(sympow.vjp, pairing="interleaved")
attention_of = functools.partial(sympow.Attention, pairing="interleaved")
attention = functools.partial(sympow.jax.attention, pairing="interleaved")


class Batch:
    """Random arguments of a call."""

    def __init__(self, dtype=np.float64, B=2, T=9, H=4, Hk=2, Hg=2, d=4, e=3, power=2, seed=1):
        self.random = np.random.default_rng(seed)
        self.q, self.k, self.v = (self.normal(B, T, heads, n, dtype=dtype) for heads, n in ((H, d), (Hk, d), (Hk, e)))
        self.log_gates = jnp.asarray(-0.3 * self.random.random((B, T, Hg)))
        self.theta, self.beta = self.normal(d // 2), 1 + 0.1 * self.normal(B, T, Hg)
        self.channel_gates = jnp.asarray(-0.3 * self.random.random((B, T, Hg, d)))
        self.w = self.normal(B, T, Hg, d, dtype=dtype)
        self.dy = self.normal(B, T, H, e, dtype=dtype)
        _, self.state = attention(self.q, self.k, self.v, **self.turning(), power=power, return_state=True)

    def normal(self, *shape, dtype=np.float64):
        return jnp.asarray(self.random.standard_normal(shape).astype(dtype))

    def turning(self):
        return dict(log_gates=self.log_gates, theta=self.theta, beta=self.beta)

    def parameters(self):
        """Those of every kind of call, each with its options."""
        strengths = 1 + 0.1 * self.beta
        return ((self.turning(), dict(power=2)), (self.turning(), dict(scores="exponential")),
                (dict(channel_gates=self.channel_gates, log_gates=self.log_gates), dict(power=2)),
                (dict(householder=self.w, strengths=strengths), dict(power=1, normalisation="unnormalised")),
                (dict(householder=self.w, log_gates=self.log_gates), dict(scores="exponential")),
                (dict(householder=self.w, strengths=strengths, channel_gates=self.channel_gates),
                 dict(power=1, normalisation="unnormalised")),
                (dict(theta=self.normal(2, self.theta.size), beta=self.normal(*self.beta.shape, 2)), dict(power=3)))


def arrays_of(x):
    return jax.tree.map(np.asarray, x)


def gradients_of(batch, given, **options):
    """In queries, keys, values and what is given, and the rows."""
    def call(q, k, v, given):
        return attention(q, k, v, **given, **options)

    rows, back = jax.vjp(call, batch.q, batch.k, batch.v, given)
    [*found, of_given] = back(batch.dy.astype(rows.dtype))
    return rows, [*found, *(of_given[name] for name in given)]  # whose names jax has sorted


class Test(unittest.TestCase):
    def equal(self, found, wanted):
        """The same types and bits, of one array or of a tree of them."""
        found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
        self.assertEqual(len(found), len(wanted))
        for a, b in zip(found, wanted):
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
            self.assertTrue(np.array_equal(a, b))

    def close(self, found, wanted, roundings=1e7):
        """Of other orders of sums; derivatives are checked elsewhere, half of all digits are enough."""
        found, wanted = jax.tree.leaves(found), jax.tree.leaves(wanted)
        self.assertEqual(len(found), len(wanted))
        for a, b in zip(found, wanted):
            self.assertLessEqual(np.abs(a - b).max(), roundings * np.finfo(b.dtype).eps * np.abs(b).max())


class Bits(Test):
    """Rows and gradients are those that the library gives numpy arrays: those of the C++ calls, as tests/c shows."""

    def test_calls(self):
        for dtype, power, [form, Hg] in itertools.product(
                (np.float32, np.float64), (1, 2, 3, 4),
                (("automatic", 2), ("attention", 4), ("recurrent", 2), ("chunked", 4))):
            with self.subTest(dtype=dtype, power=power, form=form, Hg=Hg):
                batch, options = Batch(dtype, T=40, Hg=Hg), dict(power=power, form=form, chunk=8, scale=0.5)
                rows, found = gradients_of(batch, batch.turning(), **options)
                arrays, given = arrays_of((batch.q, batch.k, batch.v)), arrays_of(batch.turning())
                self.equal(rows, rows_of(*arrays, **given, **options))
                of = vjp_of(np.asarray(batch.dy), *arrays, **given, **options)
                self.equal(found, [of.queries, of.keys, of.values, of.log_gates, of.theta, of.beta])

    def test_parameters_of_every_kind(self):
        for dtype in (np.float32, np.float64):
            batch = Batch(dtype)
            for given, options in batch.parameters():
                with self.subTest(given=list(given), options=options, dtype=dtype):
                    rows, found = gradients_of(batch, given, **options)
                    arrays, of_numpy = arrays_of((batch.q, batch.k, batch.v)), arrays_of(given)
                    self.equal(rows, rows_of(*arrays, **of_numpy, **options))
                    of = vjp_of(np.asarray(batch.dy), *arrays, **of_numpy, **options)
                    self.equal(found, [of.queries, of.keys, of.values, *(getattr(of, name) for name in given)])

    def test_states(self):
        for dtype, power, turns in itertools.product((np.float32, np.float64), (2, 3), (True, False)):
            with self.subTest(dtype=dtype, power=power, turns=turns):
                batch = Batch(dtype, T=40, power=power)
                given = batch.turning() if turns else dict(log_gates=batch.log_gates)
                before = batch.state if turns else State(*batch.state[:2])

                def call(q, k, v, given, before):
                    return attention(q, k, v, **given, state=before, return_state=True, power=power)

                [rows, after], back = jax.vjp(call, batch.q, batch.k, batch.v, given, before)
                d_after = State(*(batch.normal(*x.shape, dtype=x.dtype) for x in after))
                found = back((batch.dy, d_after))

                of_numpy = attention_of(power=power)
                state = sympow.State(of_numpy, 2, 2, 4, 3, dtype)
                state.write(*arrays_of(before))
                start, arrays, of_given = state.copy(), arrays_of((batch.q, batch.k, batch.v)), arrays_of(given)
                self.equal(rows, of_numpy(*arrays, **of_given, state=state))
                self.equal(after, State(*state.read()))
                d_state = sympow.Sums(*arrays_of(d_after[:2]), np.asarray(d_after.angles) if turns else None)
                of = of_numpy.vjp(np.asarray(batch.dy), *arrays, **of_given, state=start, d_state=d_state)
                self.equal(found, [of.queries, of.keys, of.values,
                                   {name: getattr(of, name) for name in given}, State(*of.state)])

    def test_padding(self):
        batch, lengths = Batch(), jnp.asarray([9, 4], np.int32)
        rows, back = jax.vjp(lambda *x: attention(*x, lengths=lengths), batch.q, batch.k, batch.v)
        arrays = arrays_of((batch.q, batch.k, batch.v))
        self.equal(rows, rows_of(*arrays, lengths=np.asarray(lengths)))
        self.equal(back(batch.dy), vjp_of(np.asarray(batch.dy), *arrays, lengths=np.asarray(lengths))[:3])
        batch = Batch(B=100)
        lengths, given = jnp.arange(100) % 10, dict(householder=batch.w, strengths=batch.beta)
        rows, found = gradients_of(batch, given, lengths=lengths, scores="exponential")
        of = vjp_of(*arrays_of((batch.dy, batch.q, batch.k, batch.v)), **arrays_of(given), lengths=np.asarray(lengths),
                    scores="exponential")
        self.equal(found, [of.queries, of.keys, of.values, of.householder, of.strengths])
        jitted = jax.jit(jax.grad(lambda q, lengths: attention(q, batch.k, batch.v, lengths=lengths).sum()))
        wanted = vjp_of(np.ones(rows.shape), *arrays_of((batch.q, batch.k, batch.v)), lengths=np.asarray(lengths))
        self.equal(jitted(batch.q, lengths), wanted.queries)

    def test_zeros_are_the_state_before_the_first_token(self):
        batch = Batch()
        empty = jax.tree.map(jnp.zeros_like, batch.state)
        wanted = attention(batch.q, batch.k, batch.v, **batch.turning(), return_state=True)
        self.equal(attention(batch.q, batch.k, batch.v, **batch.turning(), return_state=True, state=empty), wanted)

    def test_arrays_of_numpy_and_options_of_numpy(self):
        batch = Batch()
        wanted = attention(batch.q, batch.k, batch.v, power=3, scale=0.5)
        arrays = arrays_of((batch.q, batch.k, batch.v))
        self.equal(attention(*arrays, power=np.int64(3), scale=np.float64(0.5)), wanted)

    def test_heads_before_tokens(self):
        batch = Batch()
        for given, options in batch.parameters()[::2]:
            wanted, of_wanted = gradients_of(batch, given, **options)
            by_heads = {name: x if name == "theta" else x.swapaxes(1, 2) for name, x in given.items()}
            other = Batch()
            other.q, other.k, other.v, other.dy = (x.swapaxes(1, 2) for x in (batch.q, batch.k, batch.v, batch.dy))
            rows, found = gradients_of(other, by_heads, layout="bhtd", **options)
            self.equal(rows.swapaxes(1, 2), wanted)
            names = ["q", "k", "v", *given]
            self.equal([x if name == "theta" else x.swapaxes(1, 2) for name, x in zip(names, found)], of_wanted)
        given = dict(theta=batch.theta, state=batch.state, return_state=True)
        wanted, of_wanted = attention(batch.q, batch.k, batch.v, **given)
        rows, found = attention(other.q, other.k, other.v, **given, layout="bhtd")
        self.equal((rows.swapaxes(1, 2), found), (wanted, of_wanted))

    def test_part_of_the_channels_turns(self):
        batch = Batch()
        given, options = dict(theta=batch.theta[:1]), dict(rotary_dim=2, pairing="half_split")
        _, state = attention(batch.q[:, :4], batch.k[:, :4], batch.v[:, :4], **given, **options, return_state=True)
        self.assertEqual(state.angles.shape, (2, 2, 1))
        rows = attention(batch.q[:, 4:], batch.k[:, 4:], batch.v[:, 4:], **given, **options, state=state)
        wanted = attention(batch.q, batch.k, batch.v, **given, **options)
        self.equal(wanted, rows_of(*arrays_of((batch.q, batch.k, batch.v)), **arrays_of(given), **options))
        self.close(rows, wanted[:, 4:])

    def test_the_arithmetic_of_other_calls_stays(self):
        if platform.machine() != "x86_64" or sys.platform != "linux":
            self.skipTest("its register is that of x86-64")
        library, flushes, before = sympow._lib(), ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
        library.fegetenv(flushes), library.fegetenv(before)
        flushes[28:32] = (int.from_bytes(flushes[28:32], "little") | 0x8040).to_bytes(4, "little")
        smallest = np.array([2.0**-149], np.float32)
        try:
            library.fesetenv(flushes)
            with sympow.jax._default_float_environment():
                self.assertEqual(np.sum(smallest + smallest), np.float32(2.0**-148))
            self.assertEqual(np.sum(smallest + smallest).tobytes(), bytes(4))
        finally:
            library.fesetenv(before)

    def test_subnormal_numbers(self):
        for dtype, smallest in ((np.float32, 2.0**-149), (np.float64, 2.0**-1074)):
            batch = Batch(dtype, T=40)
            values = jnp.asarray(np.round(8 * np.asarray(batch.v)) * dtype(smallest))
            rows = attention(batch.q, batch.k, values)
            self.assertGreater(np.abs(np.asarray(rows)).max(), 0)
            self.equal(rows, rows_of(*arrays_of((batch.q, batch.k, values))))

    def test_arrays_in_calls_on_numpys(self):
        batch = Batch()
        given = [jnp.asarray(x) for x in (batch.q, batch.k, batch.v)]
        self.assertTrue(np.array_equal(sympow.attention(*given), sympow.attention(*map(np.asarray, given))))

    def test_functions_of_others(self):
        batch = Batch(np.float32, d=4, e=4)
        for mask in ("causal", "full"):
            rows = attention(batch.q, batch.k, batch.v, scores="exponential", scale=4**-0.5, mask=mask)
            self.close(rows, jax.nn.dot_product_attention(batch.q, batch.k, batch.v, is_causal=mask == "causal"), 100)
        systems = sympow.systems
        for of in (lambda q, k, v, w, beta, gates: systems.retnet(q, systems.retnet_gamma(4)),
                   lambda q, k, v, w, beta, gates: systems.delta_net(w, beta),
                   lambda q, k, v, w, beta, gates: systems.path_fox(w, beta, gates, gate_scale=0.5)):
            arguments = batch.q, batch.k, batch.v, batch.w, batch.beta, batch.log_gates
            rows = jax.jit(lambda *x: attention(*x[:3], **of(*x)))(*arguments)
            arguments = arrays_of(arguments)
            self.equal(rows, rows_of(*arguments[:3], **of(*arguments)))

    def test_sizes_of_nothing(self):
        self.addCleanup(jax.config.update, "jax_enable_x64", True)
        for wide, [B, T, d, e] in itertools.product((True, False), (
                (0, 3, 2, 2), (2, 0, 2, 2), (2, 3, 1, 2), (2, 3, 2, 0))):
            jax.config.update("jax_enable_x64", wide)
            q, v = jnp.ones((B, T, 1, d)), jnp.ones((B, T, 1, e))
            rows, state = attention(q, q, v, return_state=True)
            self.equal(rows, rows_of(*arrays_of((q, q, v))))
            self.assertEqual(state.angles.shape, (B, 1, d // 2))
            gradient = jax.grad(lambda q: attention(q, q, v, state=state, return_state=True)[0].sum())(q)
            self.assertEqual((gradient.shape, gradient.dtype), (q.shape, q.dtype))

    def test_without_float64(self):
        self.addCleanup(jax.config.update, "jax_enable_x64", True)
        jax.config.update("jax_enable_x64", False)
        batch = Batch(np.float32, T=40)
        parts = [x[:, part] for part in (slice(0, 20), slice(20, 40))
                 for x in (batch.q, batch.k, batch.v, batch.beta)]

        def call(q, k, v, beta, q2, k2, v2, beta2, theta):
            first, state = attention(q, k, v, beta=beta, theta=theta, return_state=True)
            rows, after = attention(q2, k2, v2, beta=beta2, theta=theta, state=state, return_state=True)
            return jnp.concatenate([first, rows], 1), after

        [rows, after], back = jax.vjp(call, *parts, batch.theta)
        found = back((batch.dy, jax.tree.map(jnp.ones_like, after)))
        self.assertEqual({x.dtype for x in jax.tree.leaves((rows, after, found))}, {np.dtype(np.float32)})
        jax.config.update("jax_enable_x64", True)
        [wanted, _], back = jax.vjp(call, *(x.astype(np.float64) for x in (*parts, batch.theta)))
        of_wanted = back((batch.dy.astype(np.float64), jax.tree.map(lambda x: jnp.ones(x.shape, np.float64), after)))
        self.close((rows, found), jax.tree.map(lambda x: x.astype(np.float32), (wanted, of_wanted)), 1e4)


class Derivatives(Test):
    """Beside differences of rows, in double."""

    def check(self, call, *arguments):
        check_grads(call, arguments, order=1, modes=["rev"], atol=1e-5, rtol=1e-5)

    def check_state(self, batch, **options):
        def call(q, k, v, log_gates, theta, beta, before):
            return attention(q, k, v, log_gates=log_gates, theta=theta, beta=beta, state=before, return_state=True,
                             chunk=4, **options)

        self.check(call, batch.q, batch.k, batch.v, *batch.turning().values(), batch.state)

    def test_all_arrays_and_states(self):
        self.check_state(Batch(B=1, T=5, H=2, Hk=1, Hg=1))

    def test_odd_powers(self):
        self.check_state(Batch(B=1, T=5, H=2, Hk=1, Hg=1, power=3), power=3)

    def test_parameters_of_every_kind(self):
        for Hg in (1, 2):
            batch = Batch(B=1, T=5, H=2, Hk=1, Hg=Hg)
            for given, options in batch.parameters():
                self.check(lambda q, k, v, given: attention(q, k, v, **given, **options), batch.q, batch.k, batch.v,
                           given)

    def test_second_derivatives_and_forward_mode_are_refused(self):
        batch = Batch()

        def loss(q):
            return attention(q, batch.k, batch.v).sum()

        with self.assertRaisesRegex(ValueError, "cannot be differentiated"):
            jax.grad(lambda q: jax.grad(loss)(q).sum())(batch.q)
        with self.assertRaisesRegex(TypeError, "forward-mode"):
            jax.jvp(loss, (batch.q,), (batch.q,))


class Scores(Test):
    """Random features and powers above 4, and diagnostics: bits of the library, and derivatives."""

    options = dict(scores="random", features=6, seed=3)

    def test_derivatives_of_all_arrays_and_states(self):
        for options in self.options, dict(power=5):
            batch = Batch(B=1, T=5, H=2, Hk=1, Hg=1)
            _, state = attention(batch.q, batch.k, batch.v, **batch.turning(), **options, return_state=True)

            def call(q, k, v, given, before):
                return attention(q, k, v, **given, state=before, return_state=True, chunk=4, **options)

            check_grads(call, (batch.q, batch.k, batch.v, batch.turning(), state), order=1, modes=["rev"], atol=1e-5,
                        rtol=1e-5)

    def test_bits(self):
        batch = Batch(np.float32)
        arrays, given = arrays_of((batch.q, batch.k, batch.v)), arrays_of(batch.turning())
        for options in self.options, dict(power=8):
            rows, state = attention(batch.q, batch.k, batch.v, **batch.turning(), **options, return_state=True)
            of_numpy = attention_of(**options)
            start = sympow.State(of_numpy, 2, 2, 4, 3)
            self.equal(rows, of_numpy(*arrays, **given, state=start))
            self.equal(state.sums, start.read().sums)

    def test_diagnostics(self):
        batch = Batch()
        arrays, given = arrays_of((batch.q, batch.k, batch.v)), arrays_of(batch.turning())
        diagnose = functools.partial(sympow.jax.diagnose, pairing="interleaved")
        for options in self.options, dict(power=2), dict(power=2, form="chunked"):
            found = diagnose(batch.q, batch.k, batch.v, **batch.turning(), **options)
            self.equal(found, sympow.diagnose(*arrays, **given, pairing="interleaved", **options))
        self.equal(jax.jit(diagnose)(batch.q, batch.k, batch.v), diagnose(batch.q, batch.k, batch.v))
        mapped = jax.vmap(diagnose)(*(jnp.stack([x, 2 * x]) for x in (batch.q, batch.k, batch.v)))
        self.equal(jax.tree.map(lambda x: x[1], mapped), diagnose(2 * batch.q, 2 * batch.k, 2 * batch.v))
        turned = diagnose(*(x.swapaxes(1, 2) for x in (batch.q, batch.k, batch.v)), layout="bhtd")
        self.equal(jax.tree.map(lambda x: x.swapaxes(1, 2), turned), diagnose(batch.q, batch.k, batch.v))
        after = diagnose(batch.q, batch.k, batch.v, **batch.turning(), state=batch.state)
        self.assertTrue(bool((after.log_sum > diagnose(batch.q, batch.k, batch.v, **batch.turning()).log_sum).all()))
        slope = jax.grad(lambda q: diagnose(q, batch.k, batch.v).log_sum.sum())(batch.q)
        self.assertTrue(bool((slope == 0).all()))
        with self.assertRaisesRegex(sympow.ShapeMismatch, "keys: shape"):
            diagnose(batch.q, batch.k[:, 1:], batch.v)


class Transformations(Test):
    def test_jit(self):
        batch = Batch()

        def loss(q, k, v, given, before):
            rows, after = attention(2 * q, k, v, **given, state=before, return_state=True)
            return (rows ** 2).sum() + sum(jnp.sin(x).sum() for x in after)

        call = jax.value_and_grad(loss, argnums=range(5))
        arguments = batch.q, batch.k, batch.v, batch.turning(), batch.state
        self.close(jax.jit(call)(*arguments), call(*arguments), 100)  # sums in another order
        rows = jax.jit(lambda *x: attention(*x, **batch.turning()))(batch.q, batch.k, batch.v)
        self.equal(rows, attention(batch.q, batch.k, batch.v, **batch.turning()))

    def test_scan_over_chunks(self):
        batch = Batch(T=40)

        def whole(q, k, v, log_gates, theta):
            return attention(q, k, v, log_gates=log_gates, theta=theta, return_state=True)

        def in_chunks(q, k, v, log_gates, theta):
            chunks = [x.reshape(2, 4, 10, *x.shape[2:]).swapaxes(0, 1) for x in (q, k, v, log_gates)]
            state = jax.tree.map(jnp.zeros_like, batch.state)

            def step(state, chunk):
                q, k, v, log_gates = chunk
                rows, state = attention(q, k, v, log_gates=log_gates, theta=theta, state=state, return_state=True)
                return state, rows

            state, rows = jax.lax.scan(step, state, chunks)
            return rows.swapaxes(0, 1).reshape(batch.dy.shape), state

        arguments = batch.q, batch.k, batch.v, batch.log_gates, batch.theta
        results, gradients = [], []
        for call in (whole, in_chunks, jax.jit(in_chunks)):
            result, back = jax.vjp(call, *arguments)
            results.append(result)
            gradients.append(back((batch.dy, jax.tree.map(jnp.ones_like, batch.state))))
        for n in (1, 2):
            self.close((results[n], gradients[n]), (results[0], gradients[0]))

    def test_vmap(self):
        batch = Batch()
        for n, [given, options] in enumerate(batch.parameters()):
            def call(q, k, v, given):
                return attention(q, k, v, **given, **options)

            many = jax.tree.map(lambda x: jnp.stack([x, x / 2, x / 4]), (batch.q, batch.k, batch.v, given))
            for mapped in ((None, 0, None, None), (None, None, None, 0), (0, 0, 0, 0))[n % 2:n % 2 + 2]:
                with self.subTest(given=list(given), options=options, mapped=mapped):
                    one = [x if axis is None else y
                           for axis, x, y in zip(mapped, (batch.q, batch.k, batch.v, given), many)]

                    def at(n):
                        return [x if axis is None else jax.tree.map(lambda x: x[n], x) for axis, x in zip(mapped, one)]

                    def gradient(*arguments):
                        return jax.grad(lambda x: (call(*x) * batch.dy).sum())(arguments)

                    for f in (call, gradient):
                        wanted = jax.tree.map(lambda *x: jnp.stack(x), *(f(*at(n)) for n in range(3)))
                        self.equal(jax.vmap(f, mapped)(*one), wanted)

    def test_vmap_of_states_lengths_and_other_axes(self):
        batch, lengths = Batch(), jnp.asarray([[9, 4], [0, 9], [2, 2]])

        def call(q, state, lengths):
            return attention(q, batch.k, batch.v, theta=batch.theta, state=state, lengths=lengths, return_state=True)

        many = jnp.stack([batch.q, batch.q / 2, batch.q / 4])
        states = jax.tree.map(lambda x: jnp.stack([x, x / 2, x / 4], 1), batch.state)
        wanted = [call(many[n], jax.tree.map(lambda x: x[:, n], states), lengths[n]) for n in range(3)]
        wanted = jax.tree.map(lambda *x: jnp.stack(x), *wanted)
        mapped = jax.vmap(call, (0, 1, 0))
        self.equal(mapped(many, states, lengths), wanted)
        self.equal(jax.jit(mapped)(many, states, lengths), wanted)
        twice = jax.vmap(jax.vmap(call, (0, None, None)), (None, 1, 0))(many, states, lengths)
        self.equal(jax.tree.map(lambda x: jnp.stack([x[n, n] for n in range(3)]), twice), wanted)
        rows, _ = jax.vmap(call, (0, None, None))(many[:0], batch.state, lengths[0])
        self.assertEqual(rows.shape, (0, *batch.dy.shape))

    def test_gradients_of_what_is_not_mapped_are_sums(self):
        batch = Batch()
        many = jnp.stack([batch.q, batch.q / 2])

        def loss(k, theta):
            return sum((attention(q, k, batch.v, theta=theta) ** 2).sum() for q in many)

        def mapped(k, theta):
            return (jax.vmap(lambda q: attention(q, k, batch.v, theta=theta))(many) ** 2).sum()

        self.close(*(jax.grad(f, (0, 1))(batch.k, batch.theta) for f in (mapped, loss)), 100)

    def test_checkpoint(self):
        batch = Batch()

        def loss(q):
            return (attention(q, batch.k, batch.v, **batch.turning()) ** 2).sum()

        self.equal(jax.grad(jax.checkpoint(loss))(batch.q), jax.grad(loss)(batch.q))

    def test_export(self):
        """A program that is kept holds options as text."""
        from jax import export

        batch = Batch()
        call = jax.jit(lambda *x: attention(*x, power=3, form="chunked"))
        checks = [export.DisabledSafetyCheck.custom_call("sympow_attend")]
        kept = export.export(call, disabled_checks=checks)(batch.q, batch.k, batch.v)
        sympow.jax._call_of.cache_clear()
        self.equal(kept.call(batch.q, batch.k, batch.v), call(batch.q, batch.k, batch.v))


class Processes(Test):
    def test_threads_call_at_once(self):
        call, batches, found = jax.jit(lambda *x: attention(*x)), [Batch(T=200, seed=seed) for seed in range(4)], {}

        def run(n):
            for _ in range(5):
                found[n] = call(batches[n].q, batches[n].k, batches[n].v).block_until_ready()

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for n, batch in enumerate(batches):
            self.equal(found[n], rows_of(*arrays_of((batch.q, batch.k, batch.v))))

    def test_several_devices(self):
        code = ("import os; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=4'\n"
                "import jax, numpy as np, sympow.jax\n"
                "q = np.random.default_rng(1).standard_normal((4, 2, 300, 2, 8)).astype(np.float32)\n"
                "rows = jax.pmap(lambda q: sympow.jax.attention(q, q, q))(q)\n"
                "print(all(np.array_equal(y, sympow.attention(x, x, x)) for x, y in zip(q, rows)))")
        self.assertEqual(self.says(code), "True")

    def test_a_program_ends_while_a_call_runs(self):
        code = ("import jax, sympow.jax\n"
                "q = jax.numpy.ones((4, 5000, 4, 16))\n"
                "rows = jax.jit(lambda q: sympow.jax.attention(q, q, q))(q)\n"
                "print('left')")
        self.assertEqual(self.says(code), "left")

    def says(self, code):
        done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()


class Mistakes(Test):
    def refuse(self, error, words, *arguments, **given):
        for call in (attention, jax.jit(lambda arguments, given: attention(*arguments, **given))):
            with self.assertRaisesRegex(error, words):
                jax.block_until_ready(call(*arguments, **given) if call is attention else call(arguments, given))

    def refuse_words(self, error, words, *arguments, **given):
        with self.assertRaisesRegex(error, words):
            attention(*arguments, **given)

    def test_shapes_and_types(self):
        batch = Batch()
        q, k, v = batch.q, batch.k, batch.v
        S, Z, angles = batch.state
        self.refuse(sympow.ShapeMismatch, r"^keys: shape\[3\] is 3, must be 4", q, k[..., :3], v)
        self.refuse(sympow.ShapeMismatch, "^queries: ndim is 3, must be 4", q[0], k, v)
        self.refuse(sympow.ShapeMismatch, "^keys: ndim is 0, must be 4", q, jnp.ones(()), v)
        self.refuse(sympow.ShapeMismatch, r"^keys: shape\[0\] is 1, must be 2", q, k[:1], v)
        self.refuse(sympow.ShapeMismatch, r"^lengths: shape\[0\] is 3, must be 2", q, k, v, lengths=jnp.ones(3, int))
        self.refuse(sympow.ShapeMismatch, "^lengths: ndim is 2, must be 1", q, k, v, lengths=jnp.ones((2, 1), int))
        self.refuse(sympow.InvalidArgument, "^keys is of float32, must be of float64", q, k.astype(np.float32), v)
        self.refuse(sympow.InvalidArgument, "^queries is of bfloat16, must be of float32", q.astype(jnp.bfloat16), k, v)
        self.refuse(sympow.InvalidArgument, "^queries is of int64, must be of float32 or float64", q.astype(int), k, v)
        self.refuse(sympow.ShapeMismatch, r"^theta: shape\[0\] is 1, must be 2", q, k, v, theta=batch.theta[:1])
        self.refuse(sympow.InvalidArgument, "^beta is given, but no theta", q, k, v, beta=batch.beta)
        self.refuse(sympow.ShapeMismatch, r"^sums: shape\[3\] is 2, must be 3", q, k, v, state=State(S[..., :2], Z))
        self.refuse(sympow.ShapeMismatch, r"^sums: shape\[0\] is 1, must be 2", q, k, v, state=State(S[:1], Z))
        self.refuse(sympow.ShapeMismatch, r"^normaliser: shape\[0\] is 1, must be 2", q, k, v, state=State(S, Z[:1]))
        self.refuse(sympow.ShapeMismatch, "^sums: ndim is 0, must be 4", q, k, v, state=State(jnp.ones(()), Z))
        self.refuse(sympow.ShapeMismatch, "^heads of states is 3, must be 2", q, k, v,
                    state=State(S.repeat(2, 1)[:, :3], Z.repeat(2, 1)[:, :3]))
        self.refuse(sympow.InvalidArgument, "^angles is of int32, must be of", q, k, v,
                    state=State(S, Z, angles.astype(np.int32)))
        self.refuse(sympow.InvalidArgument, "^normaliser is None", q, k, v, state=State(S, None))
        self.refuse(sympow.InvalidArgument, "^sums is None", q, k, v, state=State(None, Z))

    def test_options(self):
        batch = Batch()
        q, k, v = batch.q, batch.k, batch.v
        self.refuse_words(sympow.InvalidArgument, "form is 'chunk', must be one of", q, k, v, form="chunk")
        self.refuse_words(sympow.InvalidArgument, "layout is 'tbhd', must be one of", q, k, v, layout="tbhd")
        self.refuse_words(sympow.InvalidArgument, "power is 9", q, k, v, power=9)
        self.refuse_words(TypeError, "there is no argument gates; options are", q, k, v, gates=q)
        self.refuse_words(sympow.InvalidArgument, "no states", q, k, v, scores="exponential", return_state=True)
        self.refuse_words(sympow.InvalidArgument, "attention form has no states", q, k, v, form="attention",
                          return_state=True)
        with self.assertRaisesRegex(sympow.InvalidArgument, "scale is traced, and would have no gradient"):
            jax.grad(lambda scale: attention(q, k, v, scale=scale).sum())(0.5)

    def test_numbers(self):
        batch = Batch()
        q, k, v = batch.q, batch.k, batch.v
        S, Z, _ = batch.state
        errors = ValueError, jax.errors.JaxRuntimeError
        self.refuse(errors, "log_gates of token 0 is", q, k, v, log_gates=-batch.log_gates)
        self.refuse(errors, r"lengths\[1\] is 14, must lie in 0", q, k, v, lengths=jnp.asarray([9, 14]))
        self.refuse(errors, "sums: entry .* is inf, must be finite", q, k, v, state=State(S / 0, Z))
        self.refuse(errors, "was built under a rotation", q, k, v, state=batch.state)
        with self.assertRaisesRegex(errors, "log_gates of token 0 is"):
            jax.block_until_ready(jax.vmap(lambda g: attention(q, k, v, log_gates=g))(-batch.log_gates[None]))
        attention(q, k, v).block_until_ready()  # nothing is left behind

    def test_what_are_no_arrays(self):
        batch = Batch()
        q, k, v = batch.q, batch.k, batch.v
        self.refuse_words(TypeError, "keys is a list, must be an array", q, [1], v)
        self.refuse_words(TypeError, "queries is a NoneType, must be an array", None, k, v)
        self.refuse_words(TypeError, "log_gates is a float, must be an array", q, k, v, log_gates=-0.1)
        self.refuse_words(TypeError, "normaliser is a float, must be an array", q, k, v,
                          state=State(batch.state[0], 1.0))
        self.refuse_words(TypeError, "state is an? .*, must be a sympow.jax.State", q, k, v, state=q)

    def test_any_exception_is_an_error_of_jax(self):
        batch = Batch()
        for error, words in ((MemoryError("all"), "RESOURCE_EXHAUSTED: MemoryError: all"),
                             (sympow.OutOfMemory("memory ended"), "RESOURCE_EXHAUSTED: memory ended"),
                             (KeyError("x"), "INVALID_ARGUMENT: KeyError: 'x'")):
            with (mock.patch.object(sympow.Attention, "vjp_tensors", side_effect=error),
                  self.assertRaisesRegex((ValueError, jax.errors.JaxRuntimeError), words)):
                jax.grad(lambda q: attention(q, batch.k, batch.v).sum())(batch.q).block_until_ready()

    def test_other_devices(self):
        """What is registered for a GPU says so, wherever it runs."""
        for gpu in ("CUDA", "ROCM"):
            handler = sympow.jax._HANDLERS["sympow_attend", gpu]
            jax.ffi.register_ffi_target(f"test_{gpu}", jax.ffi.pycapsule(handler), platform="cpu")
            text = sympow.jax._Call(attention_of(), ("queries",), False).text()
            call = jax.ffi.ffi_call(f"test_{gpu}", jax.ShapeDtypeStruct((1,), np.float32))
            with self.assertRaisesRegex((ValueError, jax.errors.JaxRuntimeError), "arrays are on a GPU, must be on a"):
                call(jnp.ones(1), call=text).block_until_ready()


if __name__ == "__main__":
    sympow.version()
    unittest.main()
