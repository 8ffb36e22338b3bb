"""Tests of sympow.torch: bits, derivatives, PyTorch's own checks, and mistakes.  python3 test_torch.py"""

import functools
import itertools
import os
import shutil
import sys
import unittest
import weakref
from unittest import mock

try:
    import torch
    from torch import library
except ImportError:
    print("PyTorch 2.4 or later is not installed for", sys.executable, "- its operators are not tested: ./dev python")
    sys.exit(77)
try:
    import numpy as np
except ImportError:
    print("numpy is not installed for", sys.executable, "- the operators for PyTorch are not tested")
    sys.exit(77)
import sympow.torch
import two_layers
from sympow.torch import State

# Pairs of neighbors turn, unless a test says otherwise.
rows_of = functools.partial(sympow.attention, pairing="interleaved")
vjp_of = functools.partial(sympow.vjp, pairing="interleaved")
attention_of = functools.partial(sympow.Attention, pairing="interleaved")
attention = functools.partial(sympow.torch.attention, pairing="interleaved")

DEFAULTS = ("power", 2, "default", "automatic", "causal", "interleaved", False, 0, 0, 0, -1, 1.0, 0, 0, 1, 0)  # of the operator


class Batch:
    """Random arguments of a call, which want gradients."""

    def __init__(self, dtype=torch.float64, B=2, T=9, H=4, Hk=2, Hg=2, d=4, e=3, power=2, seed=1):
        self.random = torch.Generator().manual_seed(seed)
        self.q, self.k, self.v = (self.normal(B, T, heads, n, dtype=dtype) for heads, n in ((H, d), (Hk, d), (Hk, e)))
        self.log_gates = (-0.3 * torch.rand(B, T, Hg, dtype=torch.float64, generator=self.random)).requires_grad_()
        self.theta, self.beta = self.normal(d // 2), (1 + 0.1 * self.normal(B, T, Hg)).detach().requires_grad_()
        self.dy = self.normal(B, T, H, e, dtype=dtype).detach()
        with torch.no_grad():  # a state that there can be, after such tokens
            before = attention(self.q, self.k, self.v, **self.turning(), power=power, return_state=True)[1]
        self.state = State(*(x.requires_grad_() for x in before))

    def normal(self, *shape, dtype=torch.float64):
        return torch.randn(*shape, dtype=dtype, generator=self.random).requires_grad_()

    def turning(self):
        return dict(log_gates=self.log_gates, theta=self.theta, beta=self.beta)

    def tensors(self):
        return self.q, self.k, self.v, self.log_gates, self.theta, self.beta


def array(x):
    return None if x is None else x.detach().numpy()


class Bits(unittest.TestCase):
    """Rows and gradients are those that the library gives numpy arrays: those of the C++ calls, as tests/c shows."""

    def equal(self, tensor, numbers):
        self.assertEqual(tensor.dtype, torch.from_numpy(numbers).dtype)
        self.assertTrue(np.array_equal(array(tensor), numbers))

    def test_calls(self):
        for dtype, power, form, Hg in itertools.product((torch.float32, torch.float64), (1, 2, 3, 4),
                                                        ("automatic", "attention", "recurrent", "chunked"), (2, 4)):
            with self.subTest(dtype=dtype, power=power, form=form, Hg=Hg):
                batch, options = Batch(dtype, T=40, Hg=Hg), dict(power=power, form=form, chunk=8, scale=0.5)
                rows = attention(batch.q, batch.k, batch.v, **batch.turning(), **options)
                self.assertEqual(rows.shape, batch.dy.shape)
                found = torch.autograd.grad(rows, batch.tensors(), batch.dy)
                arrays, given = [array(x) for x in (batch.q, batch.k, batch.v)], {
                    name: array(x) for name, x in batch.turning().items()}
                self.equal(rows, rows_of(*arrays, **given, **options))
                for a, b in zip(found, vjp_of(array(batch.dy), *arrays, **given, **options)):
                    self.equal(a, b)

    def test_states(self):
        for dtype, power, turns in itertools.product((torch.float32, torch.float64), (2, 3), (True, False)):
            with self.subTest(dtype=dtype, power=power, turns=turns):
                batch = Batch(dtype, T=40, power=power)
                given = batch.turning() if turns else dict(log_gates=batch.log_gates)
                before = batch.state if turns else batch.state[:2]
                rows, after = attention(batch.q, batch.k, batch.v, **given, state=State(*before), return_state=True,
                                        power=power)
                d_after = [batch.normal(*x.shape, dtype=x.dtype).detach() for x in after[:len(before)]]
                wanted_of = (batch.q, batch.k, batch.v, *given.values(), *before)
                found = torch.autograd.grad((rows, *after[:len(before)]), wanted_of, (batch.dy, *d_after))

                of_numpy = attention_of(power=power)
                state = sympow.State(of_numpy, 2, 2, 4, 3, array(rows).dtype)
                state.write(*map(array, before))
                start, arrays = state.copy(), [array(x) for x in (batch.q, batch.k, batch.v)]
                arrays_given = {name: array(x) for name, x in given.items()}
                self.equal(rows, of_numpy(*arrays, **arrays_given, state=state))
                for a, b in zip(after, state.read()):
                    self.equal(a, b)
                d_state = sympow.Sums(*map(array, d_after), *([] if turns else [None]))
                of = of_numpy.vjp(array(batch.dy), *arrays, **arrays_given, state=start, d_state=d_state)
                wanted = [of.queries, of.keys, of.values, of.log_gates, of.theta, of.beta, *of.state]
                for a, b in zip(found, [x for x in wanted if x is not None], strict=True):
                    self.equal(a, b)

    def test_padding_and_one_number_for_all_gradients(self):
        batch, lengths = Batch(), torch.tensor([9, 4])
        rows = attention(batch.q, batch.k, batch.v, lengths=lengths)
        self.assertTrue(bool((rows[1, 4:] == 0).all()))
        found = torch.autograd.grad(rows.sum(), (batch.q, batch.k, batch.v))  # the gradient in rows has strides of 0
        arrays = [array(x) for x in (batch.q, batch.k, batch.v)]
        for a, b in zip(found, vjp_of(np.ones(rows.shape), *arrays, lengths=array(lengths))):
            self.equal(a, b)

    def test_zeros_are_the_state_before_the_first_token(self):
        batch = Batch()
        empty = State(*(torch.zeros_like(x) for x in batch.state))
        wanted, after = attention(batch.q, batch.k, batch.v, **batch.turning(), return_state=True)
        rows, again = attention(batch.q, batch.k, batch.v, **batch.turning(), return_state=True, state=empty)
        self.assertTrue(torch.equal(rows, wanted))
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(after, again)))

    def test_tensors_are_read_where_they_are(self):
        beside = torch.randn(2, 9, 4 * 4 + 2 * 4 + 2 * 3)  # what one product of a layer makes
        parts = beside.split((16, 8, 6), 2)
        q, k, v = (x.unflatten(2, (heads, -1)) for x, heads in zip(parts, (4, 2, 2)))
        for x in (q, k, v):
            self.assertEqual(sympow.torch._view("x", x).data, x.data_ptr())
            self.assertEqual(list(sympow.torch._view("x", x).strides[:4]), list(x.stride()))
        self.assertTrue(torch.equal(attention(q, k, v), attention(*(x.contiguous() for x in (q, k, v)))))
        by_heads = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        self.assertTrue(torch.equal(attention(*by_heads), attention(q, k, v)))
        one_head = [x[:, :, :1].expand(x.shape) for x in (k, v)]
        self.assertTrue(torch.equal(attention(q, *one_head), attention(q, *(x.contiguous() for x in one_head))))


class Derivatives(unittest.TestCase):
    """Beside differences of rows, in double."""

    def check(self, batch, state, **options):
        def call(*tensors):
            before = State(*tensors[6:]) if state else None
            rows, after = attention(*tensors[:3], log_gates=tensors[3], theta=tensors[4], beta=tensors[5], state=before,
                                    return_state=True, chunk=4, **options)
            return rows, *after

        self.assertTrue(torch.autograd.gradcheck(call, (*batch.tensors(), *(batch.state if state else ()))))

    def test_all_tensors_and_states(self):
        self.check(Batch(B=1, T=5, H=2, Hk=1, Hg=1), True)

    def test_odd_powers(self):
        self.check(Batch(B=1, T=5, H=2, Hk=1, Hg=1, power=3), True, power=3)

    def test_gates_of_query_heads_from_nothing(self):
        self.check(Batch(B=1, T=5, H=2, Hk=1, Hg=2), False, pairing="half_split", scale=0.7)

    def test_heads_before_tokens(self):
        batch = Batch()
        q, k, v, log_gates, beta = (x.transpose(1, 2).contiguous() for x in (
            batch.q, batch.k, batch.v, batch.log_gates, batch.beta))
        rows, state = attention(q, k, v, log_gates=log_gates, beta=beta, theta=batch.theta, layout="bhtd", return_state=True)
        wanted, after = attention(batch.q, batch.k, batch.v, **batch.turning(), return_state=True)
        self.assertTrue(torch.equal(rows.transpose(1, 2), wanted))
        self.assertTrue(torch.equal(state.sums, after.sums))
        grads = [torch.autograd.grad((y * batch.dy).sum(), (batch.q, batch.log_gates), retain_graph=True)
                 for y in (rows.transpose(1, 2), wanted)]
        for a, b in zip(*grads):
            self.assertTrue(torch.equal(a, b))

    def test_rotary_of_two_axes(self):
        batch = Batch(B=1, T=5, H=2, Hk=1, Hg=1)
        theta, beta = batch.normal(2, 2), batch.normal(1, 5, 1, 2)
        self.assertTrue(torch.autograd.gradcheck(
            lambda *x: attention(*x[:3], theta=x[3], beta=x[4]), (batch.q, batch.k, batch.v, theta, beta)))

    def test_softmax(self):
        batch = Batch(B=1, T=5, H=2, Hk=1, Hg=1)
        self.assertTrue(torch.autograd.gradcheck(
            lambda *x: attention(*x[:3], log_gates=x[3], theta=x[4], beta=x[5], scores="exponential"), batch.tensors()))

    def test_a_state_hands_gradients_on(self):
        batch = Batch(T=30)
        first, last, q, k, v, gates = slice(0, 13), slice(13, 30), batch.q, batch.k, batch.v, batch.log_gates
        rows, state = attention(q[:, first], k[:, first], v[:, first], log_gates=gates[:, first], return_state=True)
        rest = attention(q[:, last], k[:, last], v[:, last], log_gates=gates[:, last], state=state)
        found = torch.autograd.grad((rows, rest), (q, k, v, gates), (batch.dy[:, first], batch.dy[:, last]))
        whole = attention(q, k, v, log_gates=gates)
        wanted = torch.autograd.grad(whole, (q, k, v, gates), batch.dy)
        for a, b in zip((*found, torch.cat([rows, rest], 1)), (*wanted, whole)):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7)  # half of all digits: gradcheck has seen the rest

    def test_second_derivatives_are_refused(self):
        batch = Batch()
        [dq] = torch.autograd.grad(attention(batch.q, batch.k, batch.v).sum(), batch.q, create_graph=True)
        with self.assertRaisesRegex(sympow.NotBuilt, "there are no second derivatives: take differences of gradients"):
            torch.autograd.grad(dq.sum(), batch.q)

    def test_gradients_of_torch_func_are_refused(self):
        q, k, v = (x.detach() for x in (Batch().q, Batch().k, Batch().v))

        def total(x):
            return attention(x, k, v).sum()

        for transformed in (torch.func.grad(total), lambda x: torch.func.vjp(total, x), torch.func.jacrev(total),
                            torch.func.hessian(total), lambda x: torch.func.vmap(torch.func.grad(total))(x[None]),
                            torch.func.grad(lambda x: torch.func.vmap(total)(x[None]).sum())):
            with self.assertRaisesRegex(sympow.NotBuilt, "queries is a tensor of torch.func.grad, .* call torch.autograd.grad"):
                transformed(q)


class Scores(unittest.TestCase):
    """Random features and powers above 4, and diagnostics: bits of the library, and derivatives."""

    options = dict(scores="random", features=6, seed=3)

    def test_derivatives_of_all_tensors_and_states(self):
        for options in self.options, dict(power=5):
            batch = Batch(B=1, T=5, H=2, Hk=1, Hg=1)
            with torch.no_grad():
                _, state = attention(batch.q, batch.k, batch.v, **batch.turning(), **options, return_state=True)
            state = [x.requires_grad_() for x in state]

            def call(*x):
                rows, after = attention(*x[:3], log_gates=x[3], theta=x[4], beta=x[5], state=State(*x[6:]),
                                        return_state=True, chunk=4, **options)
                return rows, *after

            self.assertTrue(torch.autograd.gradcheck(call, (*batch.tensors(), *state)))

    def test_bits(self):
        batch = Batch(torch.float32)
        arrays, given = [array(x) for x in batch.tensors()[:3]], {name: array(x) for name, x in batch.turning().items()}
        for options in self.options, dict(power=8):
            rows, state = attention(batch.q, batch.k, batch.v, **batch.turning(), **options, return_state=True)
            of_numpy = attention_of(**options)
            start = sympow.State(of_numpy, 2, 2, 4, 3)
            self.assertTrue(np.array_equal(array(rows), of_numpy(*arrays, **given, state=start)))
            self.assertTrue(np.array_equal(array(state.sums), start.read().sums))
            with torch.no_grad():
                decoding = sympow.torch.state_of(state, *batch.tensors()[:3], pairing="interleaved", **options)
                row = sympow.torch.decode(*(x[:, :1] for x in batch.tensors()[:3]), decoding, theta=batch.theta)
            self.assertTrue(bool(row.isfinite().all()))

    def test_diagnostics(self):
        batch = Batch(torch.float32)
        arrays, given = [array(x) for x in batch.tensors()[:3]], {name: array(x) for name, x in batch.turning().items()}
        for options in self.options, dict(power=2), dict(power=2, form="chunked"):
            found = sympow.torch.diagnose(batch.q, batch.k, batch.v, **batch.turning(), pairing="interleaved", **options)
            wanted = sympow.diagnose(*arrays, **given, pairing="interleaved", **options)
            self.assertFalse(found.condition.requires_grad)
            for a, b in zip(found, wanted, strict=True):
                self.assertTrue(np.array_equal(array(a), b))
        for a, b in zip(found, sympow.torch.diagnose(
                *(x.transpose(1, 2) for x in batch.tensors()[:3]), log_gates=batch.log_gates.transpose(1, 2),
                theta=batch.theta, beta=batch.beta.transpose(1, 2), layout="bhtd", pairing="interleaved", **options)):
            self.assertTrue(torch.equal(a, b.transpose(1, 2)))
        with torch.no_grad():
            _, state = attention(batch.q, batch.k, batch.v, return_state=True)
        after = sympow.torch.diagnose(batch.q, batch.k, batch.v, state=state)
        self.assertTrue(bool((after.log_sum > sympow.torch.diagnose(batch.q, batch.k, batch.v).log_sum).all()))
        one = [x[:1].detach() for x in batch.tensors()[:3]]
        packed = sympow.torch.diagnose(*one, cu_seqlens=torch.tensor([0, 4, 9]))
        alone = sympow.torch.diagnose(*(x[:, 4:] for x in one))
        self.assertTrue(torch.equal(packed.condition[:, 4:], alone.condition))
        self.assertRaisesRegex(TypeError, "there is no argument scales", sympow.torch.diagnose, *one, scales=2)


class Operators(unittest.TestCase):
    def test_opcheck(self):
        batch, none = Batch(), [None] * 3
        attend = torch.ops.sympow.attend.default
        for arguments in ((*batch.tensors(), None, *none, *batch.state, True),
                          (*batch.tensors()[:3], *none, None, *none, *none, False)):
            library.opcheck(attend, (*arguments, *DEFAULTS))
        quick = ("test_schema", "test_autograd_registration", "test_faketensor")
        gates, w = -torch.rand_like(batch.k), torch.rand_like(batch.k)
        for arguments in ((*batch.tensors()[:4], None, None, torch.tensor([3, 9]), *none, *none, True),
                          (*batch.tensors()[:3], *none, None, gates, None, None, *batch.state[:2], None, False),
                          (*batch.tensors()[:3], *none, None, None, w, w[..., 0], *none, False)):
            library.opcheck(attend, (*arguments, *DEFAULTS), test_utils=quick)
        tensors = [x.detach() for x in (*batch.tensors(), *batch.state)]
        arguments = *tensors[:6], None, *none, *tensors[6:]
        library.opcheck(torch.ops.sympow.diagnose.default, (*arguments, *DEFAULTS))
        for of_state in (tensors[6:], none):
            library.opcheck(torch.ops.sympow.attend_vjp.default, (batch.dy, *of_state, *arguments, *DEFAULTS),
                            test_utils=quick)

    def test_compile(self):
        def loss(q, k, v, log_gates, theta, beta, *state):
            rows, after = attention(2 * q, k, v, log_gates=log_gates, theta=theta, beta=beta, state=State(*state),
                                    return_state=True)
            return (rows**2).sum() + sum(x.sin().sum() for x in after)

        for backend, roundings in (("aot_eager", 0), ("inductor", 100)):  # the latter adds up in an order of its own
            if backend == "inductor" and not shutil.which(os.environ.get("CXX", "g++")):
                continue  # it compiles C++
            compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend=backend)
            for T in (9, 14):
                batch = Batch(T=T)
                tensors = *batch.tensors(), *batch.state
                wanted, found = loss(*tensors), compiled(*tensors)
                pairs = [(found, wanted), *zip(*(torch.autograd.grad(x, tensors) for x in (found, wanted)))]
                for a, b in pairs:
                    self.assertLessEqual((a - b).abs().max().item(), roundings * 2.0**-53 * b.abs().max().item())

    def test_autocast_gives_float32(self):
        layer, x = two_layers.Attention(16, 2), torch.randn(2, 5, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            projected = layer.project(x).unflatten(2, (3, 2, -1)).unbind(2)
            rows = attention(*projected, theta=layer.theta)
            self.assertEqual((projected[0].dtype, rows.dtype), (torch.bfloat16, torch.float32))
            layer(x).sum().backward()
        wanted = attention(*(part.float() for part in projected), theta=layer.theta)
        self.assertTrue(torch.equal(rows, wanted))
        q, k, v = (part.detach() for part in projected)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for mixed in ((q.float(), k, v), (q, k.float(), v.float()), (q, k, v.float())):
                self.assertTrue(torch.equal(attention(*mixed, theta=layer.theta.detach()), wanted))
        self.assertGreater(layer.theta.grad.abs().max().item(), 0)

    def test_programs_have_the_operator(self):
        q, k, v = (x.detach() for x in Batch().tensors()[:3])

        class Layer(torch.nn.Module):
            def forward(self, q, k, v):
                return attention(q, k, v)

        graphs = []

        def keep(graph, inputs):
            graphs.append(graph)
            return graph.forward

        with torch.no_grad():
            torch.compile(Layer(), backend=keep, fullgraph=True)(q, k, v)
            for strict in (False, True):
                graphs.append(torch.export.export(Layer(), (q, k, v), strict=strict).graph_module)
            for given in (dict(tracing_mode="real"), dict(tracing_mode="fake"), dict(tracing_mode="symbolic"),
                          dict(pre_dispatch=True)):
                graphs.append(torch.fx.experimental.proxy_tensor.make_fx(Layer(), **given)(q, k, v))
            traced = torch.jit.trace(Layer(), (q, k, v))
        for graph in graphs:
            self.assertIn("sympow.attend", str(graph.graph))
        self.assertIn("sympow::attend", str(traced.graph))

    def test_export(self):
        model, tokens = two_layers.Model(), torch.randint(two_layers.TOKENS, (2, 12))
        exported = torch.export.export(model, (tokens,)).module()
        self.assertTrue(torch.equal(exported(tokens), model(tokens)))

    def test_two_layers_learn(self):
        model, losses = two_layers.train(60, say=False)
        self.assertLess(losses[-1], losses[0] / 4)
        self.assertEqual(losses[:3], two_layers.train(3, say=False)[1])
        tokens = torch.randint(two_layers.TOKENS, (2, 12))
        with torch.no_grad():
            states, pieces = {}, []
            for piece in tokens.split((7, 1, 3, 1), 1):
                pieces.append(model(piece, states))
            wanted = model(tokens)
        self.assertLess((torch.cat(pieces, 1) - wanted).abs().max(), 2e-5 * wanted.abs().max())
        found = two_layers.continuation(model, tokens, 3)
        self.assertTrue(torch.equal(found[:, 0], wanted[:, -1].argmax(1)))


class WithoutOperators(unittest.TestCase):
    """Calls skip PyTorch's dispatcher where the operator would do nothing but run its kernel and record gradients: no
    autocast, no mode. Rows, gradients and errors are those of the operator. All other calls go through the dispatcher."""

    def setUp(self):
        attend = torch.ops.sympow.attend

        def counted(*arguments):
            self.count += 1
            return attend(*arguments)

        counted.default = attend.default  # which PyTorch looks up here
        patch = mock.patch.object(torch.ops.sympow, "attend", counted)
        patch.start()
        self.addCleanup(patch.stop)
        self.q, self.k, self.v = (x.detach() for x in Batch(torch.float32).tensors()[:3])

    def uses_operator(self, *tensors, call=attention):
        self.count = 0
        call(*tensors)
        return self.count > 0

    def outcome(self, *arguments, **given):
        """Results or the error of a call, and whether it went without the operator."""
        self.count = 0
        try:
            found = attention(*arguments, **given)
            results = [found] if isinstance(found, torch.Tensor) else [found[0], *found[1]]
            said = [(x.dtype, x.shape, x.stride(), x.requires_grad, x.detach().numpy().tobytes()) for x in results]
        except (sympow.SympowError, TypeError, RuntimeError) as error:
            said = type(error), str(error)
        return said, self.count == 0

    def compare(self, *arguments, **given):
        """With and without the operator."""
        found, is_direct = self.outcome(*arguments, **given)
        with mock.patch.object(sympow.torch, "_needs_operator", lambda tensors: True):
            wanted, is_direct_there = self.outcome(*arguments, **given)
        self.assertEqual(found, wanted)
        self.assertFalse(is_direct_there and isinstance(wanted, list))
        return is_direct

    def test_rows_and_states(self):
        for dtype, form in itertools.product((torch.float32, torch.float64), ("automatic", "recurrent", "chunked")):
            batch = Batch(dtype)
            q, k, v, log_gates, theta, beta = (x.detach() for x in batch.tensors())
            turning = dict(log_gates=log_gates, theta=torch.nn.Parameter(theta), beta=beta, form=form)
            gates, w = -torch.rand_like(k), torch.rand_like(k)
            given = [turning, dict(lengths=torch.tensor([9, 4])), dict(turning, return_state=True),
                     dict(turning, state=State(*(x.detach() for x in batch.state)), return_state=True),
                     dict(channel_gates=gates), dict(householder=w, strengths=w[..., 0].contiguous(), power=1),
                     dict(channel_gates=gates, householder=w, power=1)]
            with torch.no_grad():
                for options in given:
                    with self.subTest(dtype=dtype, **options):
                        self.assertTrue(self.compare(q, k, v, **options))
                turned = [x.transpose(1, 2) for x in (q, k, v)]
                self.assertTrue(self.compare(*turned, log_gates=log_gates.transpose(1, 2), layout="bhtd", form=form))
                self.assertTrue(self.compare(q[:1], k[:1], v[:1], cu_seqlens=torch.tensor([0, 4, 9]), form=form))
                self.assertTrue(self.compare(q, k, v, form=form))
                by_heads = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
                self.assertTrue(self.compare(*by_heads, form=form))
                self.assertTrue(self.compare(q, *(x[:, :, :1].expand(x.shape) for x in (k, v)), form=form))
                self.compare(q[:0], k[:0], v[:0], form=form)

    def test_errors(self):
        q, k, v = self.q, self.k, self.v
        for arguments in ((q.half(), k, v), (q.bfloat16(), k.bfloat16(), v.bfloat16()), (q, k, v.half()), (q.long(), k, v),
                          (q, k[..., :3], v), (q[0], k, v), (q, k, v[0]), (q, k, v.transpose(2, 3).contiguous().transpose(2, 3)),
                          (q + 0j, k, v), (q.to_sparse(), k, v), (q, k.to_sparse(), v), (q, None, v), (q, [1], v)):
            self.compare(q, k, v)  # whose structs are kept
            self.compare(*arguments)
        for options in (dict(power=9), dict(power=2.0), dict(scale="1"), dict(chunk=[8]), dict(form="chunk"),
                        dict(return_state=True, form="attention"), dict(return_state=True, scores="exponential"),
                        dict(log_gates=torch.ones(2, 9, 2)), dict(theta=torch.ones(2), pairing=None)):
            self.compare(q, k, v, **options)
            self.compare(q, k, v)  # and goes on

    def gradients(self, needs_operator, *arguments, **given):
        """Of what a call gives, in all that requires them, and how often operators ran."""
        ran = 0

        def counted(*tensors, of=torch.ops.sympow.attend_vjp):
            nonlocal ran
            ran += 1
            return of(*tensors)

        self.count = 0
        with mock.patch.object(sympow.torch, "_needs_operator", needs_operator), \
                mock.patch.object(torch.ops.sympow, "attend_vjp", counted):
            found = attention(*arguments, **given)
            results = [found] if isinstance(found, torch.Tensor) else [found[0], *found[1]]
            results = [x for x in results if x.requires_grad]
            wanting = [x for x in (*arguments, *given.values(), *(given.get("state") or ()))
                       if isinstance(x, torch.Tensor) and x.requires_grad]
            of_results = [torch.linspace(-1, 2, x.numel(), dtype=x.dtype).reshape(x.shape) for x in results]
            return torch.autograd.grad(results, wanting, of_results), self.count + ran

    def test_gradients_that_are_recorded(self):
        of_dispatcher = sympow.torch._needs_operator
        for dtype, form in itertools.product((torch.float32, torch.float64), ("automatic", "chunked")):
            batch = Batch(dtype)
            q, k, v, log_gates, theta, beta = batch.tensors()
            turning = dict(log_gates=log_gates, theta=theta, beta=beta, form=form)
            w = torch.rand_like(k).requires_grad_()
            for options in (dict(form=form), turning, dict(turning, lengths=torch.tensor([9, 4])),
                            dict(turning, return_state=True, state=State(*batch.state)),
                            dict(householder=w, strengths=w[..., 0].detach().requires_grad_(), power=1)):
                with self.subTest(dtype=dtype, **options):
                    direct, ran = self.gradients(of_dispatcher, q, k, v, **options)
                    self.assertEqual(ran, 0)
                    wanted, ran = self.gradients(lambda tensors: True, q, k, v, **options)
                    self.assertEqual(ran, 2)
                    for x, y in zip(direct, wanted):
                        self.assertEqual((x.dtype, x.stride()), (y.dtype, y.stride()))
                        self.assertTrue(torch.equal(x, y))
        q, k, v = self.q, self.k, self.v
        wants = v.clone().requires_grad_()
        self.assertTrue(attention(q, k, wants).requires_grad)
        for off in (torch.no_grad(), torch.inference_mode()):
            with off:
                self.assertFalse(self.uses_operator(q, k, wants))
                made = q * 1
                self.assertFalse(self.uses_operator(made, k, v))
                self.assertEqual(attention(made, k, v).is_inference(), torch.is_inference_mode_enabled())
        first, = torch.autograd.grad(attention(q, k, wants).square().sum(), wants, create_graph=True)
        with self.assertRaisesRegex(sympow.NotBuilt, "there are no second derivatives"):
            torch.autograd.grad(first.sum(), wants)

    def test_modes_and_transformations(self):
        q, k, v = self.q, self.k, self.v

        class Passes(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), given=None):
                return function(*arguments, **(given or {}))

        class Overrides(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), given=None):
                return function(*arguments, **(given or {}))

        for mode in (Passes(), Overrides(), torch.autocast("cpu", dtype=torch.bfloat16),
                     torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)):
            with mode, torch.no_grad():
                self.assertTrue(self.uses_operator(q, k, v), mode)
            self.assertFalse(self.uses_operator(q, k, v))
        with torch.no_grad():
            many = torch.stack([q, 2 * q])
            self.assertTrue(self.uses_operator(many, call=torch.vmap(lambda x: attention(x, k, v))))
            self.assertTrue(self.uses_operator(many, call=torch.vmap(lambda x: x + attention(q, k, v).sum())))
            self.assertTrue(self.uses_operator(q, k, v, call=torch.func.functionalize(attention)))

    def test_tensors_that_are_not_plain(self):
        q, k, v = self.q, self.k, self.v

        class Named(torch.Tensor):
            pass

        class Wrapped(torch.Tensor):
            @staticmethod
            def __new__(cls, x):
                made = torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)
                made.inside = x
                return made

            @classmethod
            def __torch_dispatch__(cls, function, types, arguments=(), given=None):
                return function(*(x.inside if isinstance(x, cls) else x for x in arguments), **(given or {}))

        class Watching(Wrapped):  # which has the memory that it stands for
            __torch_function__ = torch._C._disabled_torch_function_impl

            @staticmethod
            def __new__(cls, x):
                made = torch.Tensor._make_subclass(cls, x)
                made.inside = x
                return made

        escaped = []
        torch.func.grad(lambda x: (escaped.append(x), x.sum())[1])(q)
        with torch.no_grad():
            wanted = attention(q, k, v)
            for x in (q.as_subclass(Named), Wrapped(q), Watching(q), torch._neg_view(-q), escaped[0], torch._to_functional_tensor(q)):
                self.assertTrue(self.uses_operator(x, k, v), type(x))
                self.assertFalse(self.uses_operator(q, k, v))
                if not torch._is_functional_tensor(x):
                    self.assertTrue(torch.equal(attention(x, k, v), wanted))
            self.assertIsNone(sympow.torch._key_of([torch._efficientzerotensor(q.shape)]))
            fake = torch._subclasses.FakeTensorMode().from_tensor(q)
            self.assertTrue(self.uses_operator(fake, fake, fake))
            self.assertTrue(self.uses_operator(*(x.to("meta") for x in (q, k, v))))


class Halves(unittest.TestCase):
    """bfloat16 and float16 on a CPU: the calls of float32, whose rows and gradients are rounded."""

    def test_rows_states_and_gradients(self):
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype):
                batch = Batch(torch.float32)
                halves = [x.detach().to(dtype).requires_grad_() for x in batch.tensors()]
                wide = [x.detach().float().requires_grad_() for x in halves]
                found, wanted = ([*attention(*of[:3], log_gates=of[3], theta=of[4], beta=of[5], return_state=True)]
                                 for of in (halves, wide))
                self.assertEqual((found[0].dtype, found[1].sums.dtype), (dtype, torch.float32))
                self.assertTrue(torch.equal(found[0], wanted[0].to(dtype)))
                self.assertTrue(all(map(torch.equal, found[1], wanted[1])))
                d_rows = batch.dy.to(dtype)
                for x, y in zip(torch.autograd.grad(found[0], halves, d_rows),
                                torch.autograd.grad(wanted[0], wide, d_rows.float())):
                    self.assertTrue(torch.equal(x, y.to(dtype)))
                compiled = torch.compile(lambda *x: attention(*x, pairing=None), backend="aot_eager")
                with torch.no_grad():
                    self.assertTrue(torch.equal(compiled(*halves[:3]), attention(*halves[:3])))
                    self.assertTrue(torch.equal(sympow.torch.scaled_dot_product_attention(*[x[:, :, :2] for x in halves[:3]]),
                                                sympow.torch.scaled_dot_product_attention(
                                                    *[x[:, :, :2] for x in wide[:3]]).to(dtype)))

    @torch.no_grad()
    def test_decoding(self):
        batch = Batch(torch.float32, T=6)
        halves = [x.bfloat16() for x in (batch.q, batch.k, batch.v)]
        state, same = (sympow.torch.state_of(None, *x, form="recurrent") for x in (halves, [x.float() for x in halves]))
        for t in range(6):
            token = [x[:, t:t + 1] for x in halves]
            row = sympow.torch.decode(*token, state, log_gates=batch.log_gates[:, t:t + 1])
            wanted = sympow.torch.decode(*(x.float() for x in token), same, log_gates=batch.log_gates[:, t:t + 1])
            self.assertTrue(torch.equal(row, wanted.bfloat16()))
        self.assertEqual((state.dtype, state.tokens()), (np.float32, 6))

    @torch.no_grad()
    def test_decoding_under_autocast(self):
        """Rows are float32, as those of `attention` are."""
        batch = Batch(torch.float32, T=3)
        halves = [x.bfloat16() for x in (batch.q, batch.k, batch.v)]
        wanted = attention(*(x.float() for x in halves), form="recurrent")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            state = sympow.torch.state_of(None, *halves, form="recurrent")
            self.assertTrue(torch.equal(sympow.torch.decode(*halves, state), wanted))
            self.assertEqual(sympow.torch.diagnose(*halves).condition.dtype, torch.float64)

    def test_tensors_without_memory_are_refused(self):
        x = torch.randn(1, 4, 2, 4)
        for given in (dict(log_gates=torch.full((1, 4, 2), -1.0, device="meta")), dict(householder=x.to("meta"))):
            with self.assertRaisesRegex(sympow.NotBuilt, f"{next(iter(given))} is on the device meta"):
                attention(x, x, x, **given)
        with self.assertRaisesRegex(sympow.InvalidArgument, "values is a Tensor without memory"):
            sympow.attention(*[x.numpy()] * 2, torch._efficientzerotensor(x.shape))

    def test_tensors_in_calls_on_arrays(self):
        batch = Batch()
        given = [x.detach() for x in (batch.q, batch.k, batch.v)]
        self.assertTrue(np.array_equal(sympow.attention(*given), attention(*given).numpy()))
        with self.assertRaisesRegex(sympow.InvalidArgument, "queries is a Tensor that numpy cannot read where it is"):
            sympow.attention(batch.q, *given[1:])


class Decoding(unittest.TestCase):
    """Rows of `decode` are those of the recurrent form, bit for bit."""

    OPTIONS = dict(pairing="interleaved", form="recurrent", scale=0.5)

    def setUp(self):
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, True)

    def piece(self, batch, begin, end):
        part = slice(begin, end)
        return (batch.q[:, part], batch.k[:, part], batch.v[:, part]), dict(
            log_gates=batch.log_gates[:, part], theta=batch.theta, beta=batch.beta[:, part])

    def test_tokens_after_a_prompt(self):
        for dtype, power in itertools.product((torch.float32, torch.float64), (1, 2, 3, 4)):
            with self.subTest(dtype=dtype, power=power):
                batch, options = Batch(dtype, T=40), dict(self.OPTIONS, power=power)
                tokens, given = self.piece(batch, 0, 30)
                _, prompt = attention(*tokens, **given, **options, return_state=True)
                tokens, given = self.piece(batch, 30, 40)
                wanted, after = attention(*tokens, **given, **options, state=prompt, return_state=True)
                state, rows = sympow.torch.state_of(prompt, *tokens, **options), []
                for begin, end in ((30, 31), (31, 32), (32, 36), (36, 37), (37, 40)):
                    tokens, given = self.piece(batch, begin, end)
                    rows.append(sympow.torch.decode(*tokens, state, **given))
                    if end == 32:
                        branch = state.copy()
                self.assertTrue(torch.equal(torch.cat(rows, 1), wanted))
                for a, b in zip(after, state.read()):
                    self.assertTrue(np.array_equal(a, b))
                tokens, given = self.piece(batch, 32, 40)
                self.assertTrue(torch.equal(sympow.torch.decode(*tokens, branch, **given), wanted[:, 2:]))

    def test_from_the_first_token_in_any_layout(self):
        batch = Batch(torch.float32, T=12, Hk=4, Hg=4)
        q, k = batch.q, batch.k
        wanted = attention(q, k, q, **self.OPTIONS)
        state, beside = sympow.torch.state_of(None, q, k, q, **self.OPTIONS), torch.cat([q, k], 2)
        for t in range(12):
            of_q, of_k = (q[:, t:t + 1], k[:, t:t + 1]) if t % 2 else beside[:, t:t + 1].chunk(2, 2)
            self.assertTrue(torch.equal(sympow.torch.decode(of_q, of_k, of_q, state), wanted[:, t:t + 1]))
        self.assertEqual((state.tokens(), state.dtype), (12, np.float32))

    def test_heads_before_tokens_and_padding(self):
        batch = Batch(torch.float32)
        tokens, given = self.piece(batch, 0, 9)
        lengths = torch.tensor([9, 4])
        turned, parameters = [x.transpose(1, 2) for x in tokens], {
            name: x if name == "theta" else x.transpose(1, 2) for name, x in given.items()}
        state = sympow.torch.state_of(None, *turned, **parameters, layout="bhtd", **self.OPTIONS)
        rows = sympow.torch.decode(*turned, state, **parameters, lengths=lengths, layout="bhtd")
        self.assertTrue(torch.equal(rows.transpose(1, 2), attention(*tokens, **given, lengths=lengths, **self.OPTIONS)))
        self.assertEqual((state.tokens(0), state.tokens(1)), (9, 4))
        with self.assertRaisesRegex(sympow.ShapeMismatch, r"keys: shape\[2\] is 5, must be 9"):
            sympow.torch.decode(turned[0], turned[1][:, :, :5], turned[2][:, :, :5], state, layout="bhtd")
        with self.assertRaisesRegex(sympow.ShapeMismatch, r"keys: shape\[2\] is 5, must be 9"):
            attention(turned[0], turned[1][:, :, :5], turned[2][:, :, :5], layout="bhtd")
        with self.assertRaisesRegex(TypeError, "there is no argument powers; options are"):
            sympow.torch.state_of(None, *tokens, powers=2)

    def test_gates_of_query_heads(self):
        batch = Batch(torch.float32, Hg=4)
        wanted = attention(batch.q, batch.k, batch.v, **batch.turning(), **self.OPTIONS)
        tokens, given = self.piece(batch, 0, 9)
        state = sympow.torch.state_of(None, *tokens, log_gates=given["log_gates"], **self.OPTIONS)
        self.assertTrue(torch.equal(sympow.torch.decode(*tokens, state, **given), wanted))

    def test_a_state_keeps_no_tensor(self):
        batch = Batch()
        tokens, _ = self.piece(batch, 0, 1)
        keys = tokens[1].clone()
        state = sympow.torch.state_of(None, *tokens)
        sympow.torch.decode(tokens[0], keys, tokens[2], state)
        gone = weakref.ref(keys)
        del keys
        self.assertIsNone(gone())

    def test_mistakes(self):
        batch = Batch()
        tokens, given = self.piece(batch, 0, 1)
        state = sympow.torch.state_of(None, *tokens, **self.OPTIONS)

        def refuse(error, words, *arguments, **more):
            with self.assertRaisesRegex(error, words):
                sympow.torch.decode(*arguments, **more)

        for _ in range(2):  # before and after a call
            with torch.enable_grad():
                refuse(sympow.InvalidArgument, "queries requires a gradient, and decode gives none", *tokens, state)
                refuse(sympow.InvalidArgument, "theta requires a gradient", *(x.detach() for x in tokens), state,
                       theta=batch.theta)
            refuse(TypeError, "keys is a ndarray, must be a tensor", tokens[0], tokens[1].numpy(), tokens[2], state)
            refuse(TypeError, "queries is a NoneType, must be a tensor", None, *tokens[1:], state)
            refuse(TypeError, "values is a NoneType, must be a tensor", *tokens[:2], None, state)
            refuse(TypeError, "state is a sympow.torch.State, must be a sympow.State: sympow.torch.state_of makes one", *tokens, batch.state)
            refuse(sympow.InvalidArgument, "queries is of torch.int16", tokens[0].short(), *tokens[1:], state)
            refuse(sympow.InvalidArgument, "keys is of torch.float64, must be of torch.float16, as the queries", tokens[0].half(),
                   *tokens[1:], state)
            refuse(sympow.InvalidArgument, "keys is of float32, must be of float64", tokens[0], tokens[1].float(),
                   tokens[2], state)
            refuse(sympow.ShapeMismatch, "d of states is 4, must be 2", tokens[0][..., :2], tokens[1][..., :2],
                   tokens[2], state)
            refuse(sympow.ShapeMismatch, "ndim is 3, must be 4", tokens[0][0], *tokens[1:], state)
            sympow.torch.decode(*tokens, state, **given)
        self.assertEqual(state.tokens(), 2)

        for words, arguments in (("queries are of torch.int16", [x.short() for x in tokens]),
                                 (r"shape \[1, 4, 4\], must be", [x[0] for x in tokens])):
            with self.assertRaisesRegex(sympow.InvalidArgument, words):
                sympow.torch.state_of(None, *arguments)
        with self.assertRaisesRegex(TypeError, "state is a Tensor, must be a sympow.torch.State"):
            sympow.torch.state_of(batch.state[0], *tokens)


class Mistakes(unittest.TestCase):
    def refuse(self, error, words, *arguments, **given):
        with self.assertRaisesRegex(error, words):
            attention(*arguments, **given)

    def test_arguments(self):
        batch = Batch()
        q, k, v = batch.q, batch.k, batch.v
        S, Z, angles = batch.state
        self.refuse(sympow.ShapeMismatch, r"keys: shape\[3\] is 3, must be 4", q, k[..., :3], v)
        self.refuse(sympow.ShapeMismatch, "queries: ndim is 3, must be 4", q[0], k, v)
        self.refuse(sympow.ShapeMismatch, "values: ndim is 3, must be 4", q, k, v[0], return_state=True)
        self.refuse(sympow.InvalidArgument, "keys is of float32, must be of float64", q, k.float(), v)
        self.refuse(sympow.InvalidArgument, "values is of torch.float64, must be of torch.float16", q.half(), k.half(), v)
        self.refuse(sympow.InvalidArgument, "queries is of torch.int16, must be of torch.float32", q.short(), k, v,
                    return_state=True)
        self.refuse(sympow.InvalidArgument, "log_gates is of torch.bfloat16, must be of torch.float32 or torch.float64 on a "
                                            "CPU$", q, k, v, log_gates=batch.log_gates.bfloat16())
        self.refuse(sympow.InvalidArgument, "lengths is of torch.uint8, must be of torch.int32 or torch.int64$", q, k, v,
                    lengths=torch.ones(2, dtype=torch.uint8))
        for options, words in ((dict(power=2.0), "power is 2.0, must be an integer"),
                               (dict(power=True), "power is True, must be an integer"),
                               (dict(chunk="8"), "chunk is '8', must be an integer"),
                               (dict(scale="1"), "scale is '1', must be a number")):
            self.refuse(TypeError, words, q, k, v, **options)
        self.refuse(sympow.InvalidArgument, "pairing is None, must be \"interleaved\" or \"half_split\" where theta is given",
                    q, k, v, theta=batch.theta, pairing=None)
        self.refuse(sympow.InvalidArgument, "queries is of int64, must be of float32 or float64", q.long(), k, v)
        self.refuse(sympow.InvalidArgument, "queries is of torch.complex128", q + 0j, k, v)
        self.refuse(sympow.InvalidArgument, r"values: strides\[3\] is", q, k, v.transpose(2, 3).contiguous()
                    .transpose(2, 3))
        self.refuse(sympow.InvalidArgument, "gate", q, k, v, log_gates=-batch.log_gates)
        self.refuse(sympow.ShapeMismatch, r"theta: shape\[0\] is 1, must be 2", q, k, v, theta=batch.theta[:1])
        self.refuse(sympow.InvalidArgument, "beta is given, but no theta", q, k, v, beta=batch.beta)
        self.refuse(sympow.InvalidArgument, "form is 'chunk', must be one of", q, k, v, form="chunk")
        self.refuse(sympow.InvalidArgument, "power is 9", q, k, v, power=9)
        self.refuse(sympow.InvalidArgument, "no states", q, k, v, scores="exponential", return_state=True)
        self.refuse(sympow.InvalidArgument, "attention form has no states", q, k, v, form="attention",
                    return_state=True)
        self.refuse(sympow.ShapeMismatch, r"sums: shape\[3\] is 2, must be 3", q, k, v, state=State(S[..., :2], Z))
        self.refuse(sympow.InvalidArgument, "normaliser is None", q, k, v, state=State(S, None))
        self.refuse(sympow.InvalidArgument, "sums is None", q, k, v, state=State(None, Z))
        self.refuse(sympow.ShapeMismatch, "heads of states is 3, must be 2", q, k, v,
                    state=State(S.repeat(1, 2, 1, 1)[:, :3], Z.repeat(1, 2, 1)[:, :3]))
        self.refuse(sympow.InvalidArgument, "was built under a rotation", q, k, v, state=batch.state)
        self.refuse(sympow.NotFinite, "sums: entry", q, k, v, state=State(S / 0, Z))
        self.refuse(TypeError, "keys is a list, must be a tensor", q, [1], v)
        self.refuse(TypeError, "queries is a NoneType, must be a tensor", None, k, v)
        self.refuse(TypeError, "keys is a NoneType, must be a tensor", q, None, v)
        self.refuse(TypeError, "queries is a ndarray, must be a tensor", array(q), k, v)
        self.refuse(TypeError, "log_gates is a float, must be a tensor", q, k, v, log_gates=-0.1)
        self.refuse(TypeError, "normaliser is a float, must be a tensor", q, k, v, state=State(S, 1.0))
        self.refuse(TypeError, "state is a Tensor, must be a sympow.torch.State", q, k, v, state=S)
        self.refuse(sympow.InvalidArgument, "scale requires a gradient", q, k, v,
                    scale=torch.tensor(0.5, requires_grad=True))
        with torch.no_grad():
            before = attention(q, k, v, return_state=True)[1]
            self.assertTrue(torch.equal(attention(q, k, v, state=before), attention(q, k, v, state=before[:2])))

    def test_transforms(self):
        batch = Batch()
        with self.assertRaises(RuntimeError):
            torch.func.grad(lambda q: attention(q, batch.k, batch.v).sum())(batch.q.detach())

    def test_vmap_adds_sequences(self):
        """The bits of a loop, in one call; θ has no sequences and makes it a loop."""
        N, batch = 3, Batch()
        made = [Batch(seed=seed) for seed in range(N)]
        one = {name: x.detach() for name, x in zip("q k v log_gates theta beta".split(), batch.tensors())}
        many = {name: torch.stack([x.tensors()[n].detach() for x in made]) for n, name in enumerate(one)}
        states = State(*(torch.stack(x).detach() for x in zip(*(x.state for x in made))))

        def call(q, k, v, log_gates, theta, beta, state):
            rows, after = attention(q, k, v, log_gates=log_gates, theta=theta, beta=beta, state=state, return_state=True)
            known = sympow.torch.diagnose(q, k, v, log_gates=log_gates, theta=theta, beta=beta, pairing="interleaved")
            return rows, *after, known.condition

        calls = []
        with mock.patch.object(sympow.Attention, "run_kept", autospec=True, side_effect=sympow.Attention.run_kept) as run:
            for mapped, dimension, expected in (("q k v log_gates beta", 0, 1), ("q", 0, 1), ("k beta", 2, 1), ("q theta", 0, N)):
                given = [many[name] if name in mapped.split() else x for name, x in one.items()]
                wanted = [torch.stack(x) for x in zip(*(
                    call(*(x[n] if name in mapped.split() else x for name, x in zip(one, given)), State(*(x[n] for x in states)))
                    for n in range(N)))]
                given = [x.movedim(0, dimension) if name in mapped.split() else x for name, x in zip(one, given)]
                where = [dimension if name in mapped.split() else None for name in one]
                run.reset_mock()
                found = torch.vmap(call, (*where, 0))(*given, states)
                calls.append((run.call_count, expected))
                for a, b in zip(found, wanted, strict=True):
                    self.assertTrue(torch.equal(a, b))
        if hasattr(sympow.torch._attend, "register_vmap"):
            for found, expected in calls:
                self.assertEqual(found, expected)

    def test_gradients_under_vmap(self):
        """Gradients of mapped calls, and many gradients of one call, are those of a loop."""
        batch, N = Batch(), 3
        many = torch.stack([Batch(seed=seed).q.detach() for seed in range(N)]).requires_grad_()
        for turning in (dict(log_gates=batch.log_gates), batch.turning()):
            wanted_of = (many, batch.k, batch.v, *turning.values())
            call = functools.partial(attention, **turning)
            rows = torch.vmap(lambda q: call(q, batch.k, batch.v))(many)
            dy = torch.stack([batch.normal(*batch.dy.shape).detach() for _ in range(N)])
            found = torch.autograd.grad(rows, wanted_of, dy)
            one_by_one = torch.autograd.grad(torch.stack([call(q, batch.k, batch.v) for q in many]), wanted_of, dy)
            self.assertTrue(torch.equal(found[0], one_by_one[0]))
            for a, b in zip(found[1:], one_by_one[1:]):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)  # sums over the calls, in another order
            row, of_one = call(batch.q, batch.k, batch.v), (batch.q, batch.k, batch.v, *turning.values())
            one_by_one = [torch.autograd.grad(row, of_one, x, retain_graph=True) for x in dy]
            for found in (torch.vmap(lambda x: torch.autograd.grad(row, of_one, x, retain_graph=True))(dy),
                          torch.autograd.grad(row, of_one, dy, is_grads_batched=True, retain_graph=True)):
                for a, b in zip(found, zip(*one_by_one)):
                    self.assertTrue(torch.equal(a, torch.stack(b)))

    def test_forward_mode(self):
        batch = Batch()
        with self.assertRaisesRegex(sympow.NotBuilt, "keys has a tangent"):
            torch.func.jvp(lambda k: attention(batch.q, k, batch.v), (batch.k,), (batch.k,))
        with torch.autograd.forward_ad.dual_level():
            attention(batch.q, batch.k, batch.v)
            dual = torch.autograd.forward_ad.make_dual(batch.state[0], batch.state[0])
            self.refuse(sympow.NotBuilt, "sums has a tangent", batch.q, batch.k, batch.v,
                        state=State(dual, *batch.state[1:]))

    def test_devices(self):
        meta = torch.empty(1, 2, 3, 4, device="meta")
        with self.assertRaisesRegex(sympow.NotBuilt, "queries is on the device meta, must be on a CPU"):
            sympow.torch._view("queries", meta)
        x = torch.ones(1, 2, 3, 4)
        far = sympow.Tensor.of(x.data_ptr(), 2, 32, x.shape, x.stride(), (2, 0))
        with self.assertRaises((sympow.NotBuilt, sympow.InvalidArgument)):  # by a library without CUDA, and with it
            attention_of().attend_tensors(dict(queries=far, keys=far, values=far), far)


if __name__ == "__main__":
    sympow.version()
    unittest.main()
