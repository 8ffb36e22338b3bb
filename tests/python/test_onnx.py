"""The node tests of ONNX's LinearAttention, as the package onnx brings them, on `sympow.compat.onnx`."""
import inspect
import sys
import unittest

try:
    import numpy as np
    from onnx.backend.test.case.node import linear_attention as published
except ImportError:
    print("onnx 1.23 is not installed for", sys.executable, "- its operator is not tested: ./dev python")
    sys.exit(77)

import sympow
from sympow.compat.onnx import linear_attention


def node_tests():
    """name, the node's attributes, its inputs by name and its outputs."""
    found = []

    def keep(node, inputs, outputs, name, **_):
        given = iter(inputs)
        found.append((name, {x.name: x.s.decode() if x.s else x.f or x.i for x in node.attribute},
                      {field: next(given) for field in node.input if field}, outputs))

    before, published.expect = published.expect, keep
    try:
        for export, run in inspect.getmembers(published.LinearAttention, inspect.isfunction):
            if export.startswith("export_"):
                np.random.seed(1)
                run()
    finally:
        published.expect = before
    return found


class LinearAttention(unittest.TestCase):
    def test_nodes(self):
        """The tolerances are those of onnx: rtol 1e-3, atol 1e-7; ours are tighter."""
        self.assertEqual(len(node_tests()), 14)
        for name, attributes, inputs, outputs in node_tests():
            with self.subTest(name):
                found = linear_attention(**inputs, **attributes)
                for x, expected in zip(found, outputs):
                    self.assertEqual((x.shape, x.dtype), (expected.shape, expected.dtype))
                    rtol, atol = (1e-3, 1e-3) if x.dtype == np.float16 else (1e-5, 1e-6)
                    np.testing.assert_allclose(x, expected, rtol, atol)

    def test_no_tokens(self):
        for shape in ((2, 0, 8), (0, 3, 8)):
            x, gates = np.ones(shape, np.float32), np.ones((*shape[:2], 2), np.float32)
            for rule, given in (("linear", {}), ("gated_delta", dict(decay=-gates, beta=gates))):
                output, state = linear_attention(x, x, x, **given, update_rule=rule, q_num_heads=2, kv_num_heads=2)
                self.assertEqual((output.shape, state.shape), (shape, (shape[0], 2, 4, 4)))
                self.assertFalse(state.any())

    def test_mistakes(self):
        x = np.ones((1, 2, 8), np.float32)
        delta = dict(update_rule="delta", q_num_heads=2, kv_num_heads=2)
        for arguments, beta, words in (((x, x, x[:, :1]), x[..., :2], "value is "), ((x, x, x), x[:, :1, :2], "beta is "),
                                       ((x, x, x), x[..., :3], r"beta is \[1, 2, 3\], must be \[1, 2, '2 or 1'\]")):
            with self.assertRaisesRegex(sympow.ShapeMismatch, words):
                linear_attention(*arguments, beta=beta, **delta)
        with self.assertRaisesRegex(TypeError, "key is a list"):
            linear_attention(x, [1], x, **delta, beta=x[..., :2])
        sizes = dict(q_num_heads=2, kv_num_heads=2)
        for given, words in ((dict(update_rule="other"), "update_rule is 'other', must be one of linear, gated"),
                             (dict(update_rule="gated"), "decay must be given"),
                             (dict(update_rule="linear", beta=x), "beta must not be given"),
                             (dict(update_rule="linear", kv_num_heads=3), r"key is \[1, 2, 8\], must be")):
            with self.assertRaisesRegex(sympow.InvalidArgument if "key" not in words else sympow.ShapeMismatch, words):
                linear_attention(x, x, x, **(sizes | given))


if __name__ == "__main__":
    unittest.main()
