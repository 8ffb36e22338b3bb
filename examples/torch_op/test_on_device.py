"""Tests of sympow_torch.py with tensors on a GPU.  python3 test_on_device.py

Where SYMPOW_CUDA_ON_HOST is set the library has a stand-in for the runtime of CUDA, whose memory is the host's: tensors
of PyTorch's on a CPU then pass for such on a GPU.
"""

import contextlib
import os
import sys
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "numpy_module")]
try:
    import numpy  # of which sympow.py is
    import torch
except ImportError as error:
    print(error, "for", sys.executable, "- the operators for PyTorch are not tested: ./dev python")
    sys.exit(77)
import sympow
import sympow_torch
from sympow_torch import State, attention

ON_HOST = "SYMPOW_CUDA_ON_HOST" in os.environ
if not ON_HOST and not torch.cuda.is_available():
    print("PyTorch has no GPU of CUDA here: its operators are not tested there")
    sys.exit(77)
UNIT_ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
B, T, H, HK, D, P = 2, 70, 4, 2, 16, 2


@contextlib.contextmanager
def on_gpu():
    """Tensors in here are on a GPU."""
    if not ON_HOST:
        yield
        return
    with mock.patch.object(sympow_torch, "_place_of", lambda x: (2, 0)), \
            mock.patch.object(sympow_torch, "_stream_at", lambda x: None):
        yield


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
        """(6 + P) u of the absolute weights, see docs/cuda.md."""
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
        names = sympow_torch._INPUT_NAMES[:6]
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
                view, results = ({name: sympow_torch._view(name, x) for name, x in all_of.items()}
                                 for all_of in (given, wanted))
                direct = sympow.Attention(**batch.options)
                direct.vjp_tensors(sympow_torch._view("d_rows", batch.dy), view, results,
                                   **sympow_torch._on_stream(direct, q, view, "attend_vjp"))
                for x, y, z in zip(found, (x for x in wanted.values() if x is not None), tensors):
                    self.assertEqual(x.dtype, z.dtype)
                    self.assertTrue(torch.equal(x, y.to(x.dtype)))
                    self.assertGreater(x.abs().max().item(), 0)

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
            with self.assertRaisesRegex(sympow.NotBuilt, "state or return_state is given"):
                attention(q, k, v, return_state=True)
            with self.assertRaisesRegex(sympow.NotBuilt, "state or return_state is given"):
                attention(q, k, v, state=State(torch.zeros(1), torch.zeros(1)))
            with self.assertRaisesRegex(sympow.InvalidArgument, "inputs->queries: the type has code 2, 64 bits"):
                attention(q.double(), k.double(), v.double())
            with self.assertRaises(sympow.NotBuilt):
                attention(q, k, v, scores="exponential")


if __name__ == "__main__":
    sympow.version()
    unittest.main()
