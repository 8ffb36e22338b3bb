"""Tests of sympow.torch with tensors on a GPU.  python3 test_on_device.py

Where SYMPOW_CUDA_ON_HOST is set the library has a stand-in for the runtime of CUDA, whose memory is the host's: tensors
of PyTorch's on a CPU then pass for such on a GPU.
"""

import contextlib
import functools
import os
import sys
import unittest
from unittest import mock

try:
    import numpy  # which sympow needs
    import torch
except ImportError as error:
    print(error, "for", sys.executable, "- the operators for PyTorch are not tested: ./dev python")
    sys.exit(77)
import sympow.torch
from sympow.torch import State

attention = functools.partial(sympow.torch.attention, pairing="interleaved")  # unless a test says otherwise

ON_HOST = "SYMPOW_CUDA_ON_HOST" in os.environ
if not ON_HOST and not torch.cuda.is_available():
    print("PyTorch has no GPU of CUDA here: its operators are not tested there")
    sys.exit(77)
UNIT_ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
B, T, H, HK, D, P = 2, 70, 4, 2, 16, 2
M = D * (D + 1) // 2


@contextlib.contextmanager
def on_gpu():
    """Tensors in here are on a GPU."""
    if not ON_HOST:
        yield
        return
    with mock.patch.object(sympow.torch, "_place_of", lambda x: (2, 0)), \
            mock.patch.object(sympow.torch, "_is_on_gpu", lambda x: True), \
            mock.patch.object(sympow.torch, "_key_of", lambda tensors: None), \
            mock.patch.object(sympow.torch, "_stream_at", lambda x: None), \
            mock.patch.object(sympow, "StateOnDevice", StateOnHost):
        yield


class StateOnHost(sympow.StateOnDevice):
    """One that begins with zeros: the stand-in clears no memory but its own."""

    def __init__(self, attention, batch, heads, *sizes):
        super().__init__(attention, batch, heads, *sizes)
        zeros = [torch.zeros(shape) for shape in ((batch, heads, M, D), (batch, heads, M))]
        self.write_tensors([*(sympow.torch._view("zeros", x) for x in zeros), None])


class Batch:
    """Random arguments of a call on a GPU, and the same numbers in double."""

    def __init__(self, dtype, seed=1, **given):
        random = torch.Generator().manual_seed(seed)
        arguments = [torch.randn(B, T, heads, D, generator=random).to(dtype) for heads in (H, HK, HK, H)]
        self.near = [x.double().requires_grad_() for x in arguments]
        *self.inputs, self.dy = (x.to("cpu" if ON_HOST else "cuda") for x in arguments)
        for x in self.inputs:
            x.requires_grad_()
        self.near_gates = (-0.2 * torch.rand(B, T, HK, generator=random)).double()
        self.gates = self.near_gates.to(self.dy.device).requires_grad_()
        self.options = dict(power=P, form="chunked", chunk=64) | given


class OnDevice(unittest.TestCase):
    def within_rule(self, dtype, rows, given):
        """(6 + P) u of the absolute weights, see docs/kernels.md."""
        q, k, v, _ = given.near
        wanted = attention(q, k, v, log_gates=given.near_gates, power=P)
        bound = (6 + P) * UNIT_ROUNDOFF[dtype] * attention(q, k, v.abs(), log_gates=given.near_gates, power=P)
        self.assertEqual(rows.dtype, dtype)
        self.assertTrue(bool(((rows.cpu().double() - wanted).abs() <= bound).all()))

    def test_rows(self):
        for dtype in UNIT_ROUNDOFF:
            for form in ("chunked", "attention", "automatic"):
                with self.subTest(dtype=dtype, form=form):
                    batch = Batch(dtype, form=form)
                    if form != "chunked":
                        del batch.options["chunk"]
                    with on_gpu():
                        rows = attention(*batch.inputs, log_gates=batch.gates, **batch.options)
                    self.within_rule(dtype, rows, batch)

    def test_gradients_are_those_of_the_library(self):
        names = sympow.torch._INPUT_NAMES[:6]
        for dtype, turns in ((torch.bfloat16, False), (torch.bfloat16, True), (torch.float16, True)):
            with self.subTest(dtype=dtype, turns=turns), on_gpu():
                batch = Batch(dtype)
                theta = torch.logspace(0, -2, D // 2, device=batch.dy.device) if turns else None
                beta = torch.ones(B, T, HK, dtype=torch.float64, device=batch.dy.device) if turns else None
                given = dict(zip(names, (*batch.inputs, batch.gates, theta, beta)))
                tensors = [x.requires_grad_() for x in given.values() if x is not None]
                q, k, v, *_ = given.values()
                rows = attention(q, k, v, log_gates=batch.gates, theta=theta, beta=beta, **batch.options)
                found = torch.autograd.grad(rows, tensors, batch.dy)
                given |= {name: None if given[name] is None else given[name].to(dtype).detach()
                          for name, dtype in zip(names[3:], (torch.float32, torch.float64, torch.float32))}
                wanted = {name: None if x is None else torch.empty_like(x) for name, x in given.items()}
                view, results = ({name: sympow.torch._view(name, x) for name, x in all_of.items()}
                                 for all_of in (given, wanted))
                direct = sympow.Attention(pairing="interleaved", **batch.options)
                direct.vjp_tensors(sympow.torch._view("d_rows", batch.dy), view, results,
                                   **sympow.torch._on_stream(direct, q, view, "attend_vjp"))
                for x, y, z in zip(found, (x for x in wanted.values() if x is not None), tensors):
                    self.assertEqual(x.dtype, z.dtype)
                    self.assertTrue(torch.equal(x, y.to(x.dtype)))
                    self.assertGreater(x.abs().max().item(), 0)

    def near(self, dtype, x, y):
        """(6 + P) u of the largest, where all weights are of one sign or random."""
        off = (x.detach().cpu().double() - y.detach().cpu().double()).abs().max().item()
        self.assertLessEqual(off, (6 + P) * UNIT_ROUNDOFF[dtype] * y.abs().max().item())

    def parts(self, batch, theta, cut=64):
        """A call cut in two, the state going from one to the other, with all that it makes and takes of gradients."""
        q, k, v = batch.inputs
        first, second = ([x[:, part] for x in (q, k, v, batch.gates)] for part in (slice(cut), slice(cut, None)))
        rows, state = attention(*first[:3], log_gates=first[3], theta=theta, return_state=True, **batch.options)
        later, last = attention(*second[:3], log_gates=second[3], theta=theta, state=state, return_state=True,
                                **batch.options)
        return torch.cat([rows, later], 1), state, last

    def test_states(self):
        """A cut changes rows and gradients, in the last state, too, by no more than their rounding, and rows are those of
        the definition."""
        for dtype, turns in ((torch.bfloat16, False), (torch.float16, True)):
            with self.subTest(dtype=dtype, turns=turns), on_gpu():
                batch = Batch(dtype)
                theta = torch.logspace(0, -2, D // 2, device=batch.dy.device) if turns else None
                given = (*batch.inputs, batch.gates)
                rows, state, last = self.parts(batch, theta)
                whole, whole_last = attention(*batch.inputs, log_gates=batch.gates, theta=theta, return_state=True,
                                              **batch.options)
                self.assertEqual(last.sums.dtype, torch.float32)
                self.assertEqual(last.sums.shape, (B, HK, M, D))
                self.assertFalse(last.angles.requires_grad)
                random = torch.Generator().manual_seed(3)
                d_last = [torch.randn(x.shape, generator=random).to(x.device) for x in last[:2]]
                found = torch.autograd.grad([rows, *last[:2]], given, [batch.dy, *d_last])
                wanted = torch.autograd.grad([whole, *whole_last[:2]], given, [batch.dy, *d_last])
                for x, y in zip((rows, *last, *found), (whole, *whole_last, *wanted)):
                    self.near(dtype, x, y)
            if not turns:
                self.within_rule(dtype, rows, batch)

    def test_decoding(self):
        """Tokens after a prompt, against a state in the library."""
        for dtype in UNIT_ROUNDOFF:
            with self.subTest(dtype=dtype), on_gpu(), torch.no_grad():
                batch, rows = Batch(dtype), []
                for part in (slice(64), *(slice(t, t + 1) for t in range(64, T))):
                    tokens, gates = [x[:, part] for x in batch.inputs], batch.gates[:, part]
                    if not rows:
                        of_prompt, state = attention(*tokens, log_gates=gates, return_state=True, **batch.options)
                        rows.append(of_prompt)
                        state = sympow.torch.state_of(state, *tokens, pairing="interleaved", **batch.options)
                        self.assertIsInstance(state, sympow.StateOnDevice)
                    else:
                        rows.append(sympow.torch.decode(*tokens, state, log_gates=gates))
            self.within_rule(dtype, torch.cat(rows, 1), batch)

    def test_slots(self):
        """Sequences in slots, drafts dropped, a fork and an empty slot: the bits of a state in order."""
        batch = Batch(torch.bfloat16)
        device = batch.dy.device
        q, k, v = (x.detach() for x in batch.inputs)
        gates = batch.gates.detach().float()
        options = dict(power=P, pairing="interleaved")
        integers = lambda *x: torch.tensor(x, dtype=torch.int32, device=device)
        with on_gpu(), torch.no_grad():
            pool_of = lambda n: sympow.torch.state_of(None, *(x.new_zeros(n, *x.shape[1:]) for x in (q, k, v)), **options)
            pool, other = pool_of(4), pool_of(4)
            faults = integers(9, 9)

            def step(state, slots, t, count, **given):
                part = slice(t, t + count)
                return sympow.torch.decode(q[:, part], k[:, part], v[:, part], state, log_gates=gates[:, part],
                                           slots=slots, **given)

            for t in range(0, 12, 3):  # of three tokens one is rejected, and comes again
                rows = step(pool, integers(3, 1), t, 3, faults=faults)
                self.assertEqual(faults.tolist(), [0, 0])
                sympow.torch.drop(pool, integers(1, 1), slots=integers(3, 1), faults=faults)
                self.assertEqual(faults.tolist(), [0, 0])
                rows = step(pool, integers(3, 1), t + 2, 1)
                wanted = step(other, integers(0, 1), t, 2)
                wanted = step(other, integers(0, 1), t + 2, 1)
                self.assertTrue(torch.equal(rows, wanted))
            sympow.torch.copy_slots(pool, integers(0, 2), pool, integers(3, -1))
            forked = step(pool, integers(0, 1), 12, 1)
            self.assertTrue(torch.equal(forked, step(other, integers(0, 1), 12, 1)))
            empty = step(pool, integers(2, -1), 0, 1)[0]
            self.assertTrue(torch.equal(empty, step(other, integers(3, -1), 0, 1)[0]))
            step(pool, integers(4, -1), 0, 1, faults=faults)
            self.assertEqual(faults.tolist(), [1, 0])
            sympow.torch.drop(pool, integers(64, 64), slots=integers(1, -1), faults=faults)
            self.assertEqual(faults.tolist(), [2, 0])
            with self.assertRaises(sympow.ShapeMismatch):
                step(pool, integers(1), 0, 1)

    def test_gradients_in_a_state(self):
        """Those in S and Z are those of the definition, in double on a CPU."""
        batch = Batch(torch.float16)
        *near, _ = batch.near
        with torch.no_grad():
            _, before = attention(*near, log_gates=batch.near_gates, power=P, return_state=True)
        near_state = [x.requires_grad_() for x in before[:2]]
        state = [x.detach().float().to(batch.dy.device).requires_grad_() for x in near_state]
        wanted, after = attention(*near, log_gates=batch.near_gates, power=P, state=State(*near_state),
                                  return_state=True)
        d_after = [0.01 * torch.ones_like(x) for x in after[:2]]
        of_near = torch.autograd.grad([wanted, *after[:2]], near_state, [batch.near[3], *d_after])
        with on_gpu():
            rows, last = attention(*batch.inputs, log_gates=batch.gates, state=State(*state), return_state=True,
                                   **batch.options)
            found = torch.autograd.grad([rows, *last[:2]], state,
                                        [batch.dy, *(x.float().to(rows.device) for x in d_after)])
            of_rows = torch.autograd.grad(attention(*batch.inputs, log_gates=batch.gates, state=State(*state),
                                                    **batch.options), state, batch.dy)
        for x, y in zip((rows, *last[:2], *found), (wanted, *after[:2], *of_near)):
            self.near(torch.float16, x, y)
        self.assertTrue(all(bool(x.any()) for x in of_rows))

    def test_loss_of_a_state(self):
        """That sees angles, too: gradients in everything that has turned are those of a CPU in double."""
        batch = Batch(torch.float16)
        random = torch.Generator().manual_seed(5)
        beta = 1 + torch.rand(B, T, HK, generator=random)
        theta = torch.logspace(-2, -3, D // 2, dtype=torch.float64)
        d_last = [torch.rand(shape, generator=random) for shape in ((B, HK, M, D), (B, HK, M), (B, HK, D // 2))]

        def gradients(q, k, v, gates, dtype):
            device = q.device
            turns = [x.detach().to(device, dtype).requires_grad_() for x in (theta, beta)]
            first, second = slice(30), slice(30, None)
            call = lambda part, state: attention(q[:, part], k[:, part], v[:, part], log_gates=gates[:, part],
                                                 theta=turns[0], beta=turns[1][:, part], state=state,
                                                 return_state=True, power=P)
            _, middle = call(first, None)
            _, last = call(second, State(*middle))
            seen = [x.to(device, y.dtype) * (500 if y is last.angles else 1) for x, y in zip(d_last, last)]
            return torch.autograd.grad(list(last), [*turns, middle.angles, v], seen)

        wanted = gradients(*batch.near[:3], batch.near_gates, torch.float64)
        with on_gpu():
            found = gradients(*batch.inputs, batch.gates, torch.float32)
        for x, y in zip(found, wanted):
            self.near(torch.float16, x, y)

    def test_padding_is_0(self):
        batch, lengths = Batch(torch.bfloat16), torch.tensor([T, 33])
        with on_gpu():
            rows = attention(*batch.inputs, log_gates=batch.gates, lengths=lengths.to(batch.dy.device), **batch.options)
            found = torch.autograd.grad(rows, (*batch.inputs, batch.gates), batch.dy)
        for x in (rows, *found):
            self.assertFalse(bool(x[1, 33:].any()))
            self.assertTrue(bool(x[1, 1:33].any()))

    def test_mistakes(self):
        batch = Batch(torch.bfloat16)
        q, k, v = batch.inputs
        with on_gpu():
            zeros = [torch.zeros(shape, device=q.device) for shape in ((B, HK, M, D), (B, HK, M), (B, HK, D // 2))]
            with self.assertRaisesRegex(sympow.ShapeMismatch, "sums: shape.2. is 135, must be 136"):
                attention(q, k, v, state=State(zeros[0][:, :, 1:], zeros[1]))
            with self.assertRaisesRegex(sympow.ShapeMismatch, "heads is 1, must be a multiple of key_heads, 2"):
                attention(q, k, v, state=State(zeros[0][:, :1], zeros[1][:, :1]))
            with self.assertRaisesRegex(sympow.InvalidArgument, 'form is "attention", which'):
                attention(q, k, v, return_state=True, form="attention")
            with self.assertRaisesRegex(sympow.InvalidArgument, "queries is of float64, must be of"):
                attention(q.double(), k.double(), v.double())
            with self.assertRaises(sympow.NotBuilt):
                attention(q, k, v, scores="exponential")


if __name__ == "__main__":
    sympow.version()
    unittest.main()
