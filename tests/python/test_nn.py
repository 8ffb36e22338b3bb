"""Tests of sympow.torch.nn: the layer's numbers, its gradients and its steps.  python3 test_nn.py"""

import copy
import os
import pickle
import sys
import unittest
from pathlib import Path

try:
    import numpy  # which sympow needs
    import torch
    from torch.utils.checkpoint import checkpoint
except ImportError as error:
    print(error, "for", sys.executable, "- the layers for PyTorch are not tested: ./dev python")
    sys.exit(77)
import sympow.torch.nn
from sympow.torch.nn import ConformalSympow

TWIN = Path(os.environ.get("SYMPOW_SOURCE_DIR", "")) / "examples" / "language_model"
SETTINGS = ("conformal", "gated", "sympow", "softmax")


def layer(setting, key_heads=2, **more):
    torch.manual_seed(1)
    made = ConformalSympow(8, 4, key_heads=key_heads, d=4, setting=setting, gate_bias=1.5, **more).double()
    return made, torch.randn(2, 7, 8, dtype=torch.float64)


class Layers(unittest.TestCase):
    def test_numbers_are_those_of_the_model_in_plain_pytorch(self):
        """Of examples/language_model/twin.py, which tests compare with the layer in C++."""
        if "SYMPOW_SOURCE_DIR" not in os.environ:
            self.skipTest("the sources are not at hand")
        sys.path.insert(0, str(TWIN))
        import twin
        for setting in SETTINGS:
            with self.subTest(setting=setting):
                of_library, x = layer(setting)
                of_twin = twin.Attention(twin.Config(setting=setting, d_model=8, heads=4, key_heads=2, d=4,
                                                     gate_bias=1.5)).double()
                with torch.no_grad():
                    of_twin.W_in.copy_(of_library.project.weight.T)
                    of_twin.W_out.copy_(of_library.out.weight.T)
                rows, wanted = of_library(x), of_twin(x)
                self.assertLess((rows - wanted).abs().max(), 1e-12 * wanted.abs().max())
                rows.square().sum().backward()
                wanted.square().sum().backward()
                pairs = [(of_library.project.weight, of_twin.W_in.grad.T),
                         (of_library.out.weight, of_twin.W_out.grad.T)]
                if of_library.gate_bias is not None:
                    pairs.append((of_library.gate_bias, of_twin.recipe.grad[:, 0]))
                for parameter, gradient in pairs:
                    self.assertLess((parameter.grad - gradient).abs().max(), 1e-11 * gradient.abs().max())

    def test_gradients(self):
        for setting in SETTINGS:
            with self.subTest(setting=setting):
                made, x = layer(setting, power=2)
                names, weights = zip(*made.named_parameters())

                def call(x, *weights):
                    return torch.func.functional_call(made, dict(zip(names, weights)), (x,))

                self.assertTrue(torch.autograd.gradcheck(call, (x.requires_grad_(), *weights)))

    def test_steps_are_the_layer(self):
        for setting, key_heads in ((s, n) for s in SETTINGS[:3] for n in (None, 1)):
            with self.subTest(setting=setting, key_heads=key_heads):
                made, x = layer(setting, key_heads)
                state, rows = None, []
                for piece in x.split((3, 1, 1, 2), 1):
                    row, state = made.step(piece, state)
                    rows.append(row)
                wanted = made(x)
                self.assertLess((torch.cat(rows, 1) - wanted).abs().max(), 1e-12 * wanted.abs().max())
                self.assertFalse(rows[0].requires_grad)

    def test_float32_and_a_checkpoint(self):
        made, x = layer("conformal")
        other = ConformalSympow(8, 4, key_heads=2, d=4)
        other.load_state_dict(made.state_dict())
        wanted = made(x)
        self.assertLess((other(x.float()) - wanted).abs().max(), 1e-5 * wanted.abs().max())

    def test_activation_checkpoints(self):
        """Forward passes that are made again give the same gradients."""
        made, x = layer("conformal")
        wanted = torch.autograd.grad(made(x).square().sum(), list(made.parameters()))
        for use_reentrant in (False, True):
            made.zero_grad()
            checkpoint(made, x.clone().requires_grad_(), use_reentrant=use_reentrant).square().sum().backward()
            for parameter, gradient in zip(made.parameters(), wanted):
                self.assertTrue(torch.equal(parameter.grad, gradient))

    def test_bfloat16(self):
        made, x = layer("conformal")
        half, wanted = copy.deepcopy(made).bfloat16(), made(x)
        found = half(x.bfloat16())
        found.sum().backward()
        self.assertEqual(found.dtype, torch.bfloat16)
        self.assertLess((found - wanted).abs().max(), 0.05 * wanted.abs().max())
        self.assertEqual(half.step(x[:, :1].bfloat16())[0].dtype, torch.bfloat16)

    def test_states_of_steps_are_pickled(self):
        made, x = layer("gated")
        _, state = made.step(x[:, :3])
        again = pickle.loads(pickle.dumps(state))
        self.assertTrue(torch.equal(made.step(x[:, 3:4], again)[0], made.step(x[:, 3:4], state)[0]))

    def test_mistakes(self):
        for kind, words, arguments, given in (
                (sympow.InvalidArgument, "setting is 'rwkv', must be one of conformal", (8, 4), dict(setting="rwkv")),
                (sympow.ShapeMismatch, "d_model is 9, must be a multiple of the 4 heads", (9, 4), {}),
                (sympow.ShapeMismatch, "heads is 4 and d is 2, must be a multiple of the 3 key_heads", (8, 4),
                 dict(key_heads=3)),
                (sympow.ShapeMismatch, "d is 3, must be", (8, 4), dict(d=3))):
            with self.assertRaisesRegex(kind, words):
                ConformalSympow(*arguments, **given)
        made, x = layer("softmax")
        with self.assertRaises(sympow.InvalidArgument):
            made.step(x)
        with self.assertRaisesRegex(sympow.ShapeMismatch, r"x: shape is \[\d+, \d+\], must be \[B, T, d_model\]"):
            made(x[0])

    def test_a_layer_that_was_made_without_memory(self):
        with torch.device("meta"):
            made = ConformalSympow(8, 4)
        made.to_empty(device="cpu")
        made.load_state_dict(ConformalSympow(8, 4).state_dict())
        self.assertEqual(made(torch.ones(1, 3, 8)).shape, (1, 3, 8))


if __name__ == "__main__":
    sympow.version()
    unittest.main()
