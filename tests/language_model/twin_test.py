"""The model and its twin in PyTorch compute the same: twin_test.py PARITY_NUMBERS LANGUAGE_MODEL

Logits, losses, all gradients and the weights after ten steps of AdamW, in double, by tensors. How far apart two right
programs may be is not a number of this file, it is measured. Errors of rounding are linear in the unit roundoff u, to
first order. So a program in double is off by as much as it is in float, times 2⁻²⁹, but for the signs of roundings. Its
error in float is seen: it has its own numbers in double to compare with. With ρ² the mean over 8 draws of the squared
error in float, of both programs together, a tensor of a right program has

    |double - double of the twin| ≤ 32 · 2⁻²⁹ ρ,

by lengths of tensors: the left side over 2⁻²⁹ ρ is at worst Student's t of 8 degrees of freedom (a tensor of one
number), which exceeds 32 once in 10⁹; here some thousands of tensors are compared. Every draw has weights and texts of
its own, so that roundings differ.

A step of AdamW divides gradients by their own size, and so weights after ten steps have no condition that could be
told in advance: 8 runs of the twin find it, in double, whose gradients are disturbed by 2¹⁰ · 2⁻²⁹ times the entries'
own ρ, by the same in all steps of a run: roundings of steps are alike, as their weights are (2¹⁰, so that roundings of
these runs do not count, and no gradient changes its sign). The weights may be 32 · 2⁻¹⁰ times as far apart as these
runs are from the one that is not disturbed, and 32 roundings, which the ten updates themselves make.
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "language_model"))
import twin  # which ends with 77 where PyTorch is not installed
import twin_checkpoints

try:
    import numpy as np
except ImportError:
    print("numpy is not installed for", sys.executable, "- the twin is not compared with the program: ./dev python")
    sys.exit(77)
import torch

NUMBERS, PROGRAM = sys.argv.pop(1), sys.argv.pop(1)
DRAWS, STEPS, BATCH, FACTOR, TO_DOUBLE, DISTURBED = 8, 10, 2, 32, 2.0**-29, 2.0**10
LETTERS = torch.arange(97, 109)  # all of which are in every text: weights of others stay where they are

SMALL = dict(layers=2, d_model=16, heads=4, key_heads=4, d=4, longest=64.0, gate_bias=2.0, steps=STEPS, rate=1e-2,
             warmup=3, cosine=True, decay=0.5, clip=1.5)
CASES = [dict(setting="softmax", tied=True, key_heads=2), dict(setting="sympow"),
         dict(setting="sympow", power=4, tied=True, key_heads=1), dict(setting="gated", tied=True),
         dict(setting="gated", power=4, key_heads=2), dict(setting="conformal", power=4, d=6, tied=True),
         dict(setting="conformal", context=180, key_heads=1)]  # longer than a block of the twin and of the program



def flat(tensors):
    """One after the other; zeros for the gradient of a weight without entries."""
    return torch.cat([x.detach().double().flatten() for x in tensors])


class Case:
    """A small model, its draws of weights and its texts, in a folder that the program has read."""

    def __init__(self, context=48, **changes):
        self.c = twin.Config(**{**SMALL, **changes})
        self.random = torch.Generator().manual_seed(7)
        rounds = context // len(LETTERS) + 1
        self.texts = torch.stack([LETTERS[torch.cat([torch.randperm(len(LETTERS), generator=self.random) for _ in
                                                     range(rounds)])] for _ in range(STEPS * BATCH)])
        self.texts = self.texts[:, :context + 1].view(STEPS, BATCH, context + 1)
        torch.manual_seed(8)
        self.model = twin.Twin(self.c)
        first = {name: x.detach() + 0.2 * torch.randn(x.shape, generator=self.random)
                 for name, x in self.model.named_parameters()}
        self.draws = [{name: (x * (1 + 2.0**-20 * torch.randn(x.shape, generator=self.random))).float()
                       for name, x in first.items()} for _ in range(DRAWS)]
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder)
            for n, weights in enumerate(self.draws):
                twin_checkpoints.save(self.folder / f"{n}.safetensors", weights, {})
            (self.folder / "texts").write_bytes(bytes(self.texts.flatten().tolist()))
            options = {**vars(self.c), "tied": int(self.c.tied), "cosine": int(self.c.cosine), "context": context,
                       "batch": BATCH}
            subprocess.run([NUMBERS, folder, *(str(x) for name, value in options.items()
                                               for x in (f"--{name}", value))], check=True)
            self.found = {file.stem: torch.from_numpy(np.fromfile(file)) for file in self.folder.glob("*.f8")}
            self.again = twin_checkpoints.load(self.folder / "again.safetensors")[0]
        weights = dict(self.model.named_parameters())
        self.weights = {name: weights[name] for name in self.again}  # in the program's order

    def start(self, dtype, draw):
        """The model with weights of a draw."""
        self.model.to(dtype)
        self.model.load_state_dict(self.draws[draw], strict=False)
        return self.model

    def numbers(self, dtype, draw):
        """What a pass makes of a draw: named lists of tensors."""
        twin.ANGLES = dtype
        model = self.start(dtype, draw)
        model.zero_grad()
        texts = self.texts[draw]
        logits = model(texts[:, :-1])
        losses = twin.losses(logits, texts[:, 1:])
        losses.mean().backward()
        twin.ANGLES = torch.float64
        gradients = flat(torch.zeros_like(w) if w.grad is None else w.grad for w in self.weights.values())
        return {"logits": flat([logits]), "losses": flat([losses]), "gradients": gradients}

    def tensors(self, what, numbers):
        """The parts of `numbers` that are compared, by name."""
        if what in ("logits", "losses"):
            return {what: numbers}
        sizes = [w.numel() for w in self.weights.values()]
        return {f"{what} of {name}": x for name, x in zip(self.weights, numbers.split(sizes))}

    def apart(self, what, found, wanted, spread):
        """Names of tensors that are farther apart than 32 times their spread, and the largest ratio of all."""
        parts = [self.tensors(what, x).items() for x in (found - wanted, spread)]
        ratios = {name: float(x.norm() / y.norm()) if x.any() else 0.0 for (name, x), (_, y) in zip(*parts)}
        return {name: ratio for name, ratio in ratios.items() if not ratio <= FACTOR}, max(ratios.values())

    def compare(self):
        """What is apart, by name, and the largest ratio of each kind."""
        wrong, largest, spread = {}, {}, {}
        for what in ("logits", "losses", "gradients"):
            spread[what] = 0
        ours = [{torch.float32: self.numbers(torch.float32, n), torch.float64: self.numbers(torch.float64, n)}
                for n in range(DRAWS)]
        for what in spread:
            for n, of in enumerate(ours):
                theirs = (self.found[f"{n}.{t}.{what}"] for t in ("float", "double"))
                for in_float, in_double in ((of[torch.float32][what], of[torch.float64][what]), theirs):
                    spread[what] = spread[what] + (in_float - in_double).square() / DRAWS
            spread[what] = TO_DOUBLE * spread[what].sqrt()
            for n, of in enumerate(ours):
                more, ratio = self.apart(what, self.found[f"{n}.double.{what}"], of[torch.float64][what], spread[what])
                wrong.update(more)
                largest[what] = max(largest.get(what, 0), ratio)

        losses, after = self.train(None)
        runs = [self.train(DISTURBED * spread["gradients"])[1] for _ in range(DRAWS)]
        of_runs = sum((run - after).square() for run in runs).div(DRAWS).sqrt() / DISTURBED
        more, largest["weights"] = self.apart("weights", self.found["after"], after, of_runs + 2.0**-53 * after.abs())
        wrong.update(more)
        return wrong, largest

    def train(self, spread):
        """The losses of ten steps from draw 0 on, whose gradients are disturbed, and the weights after them."""
        model = self.start(torch.float64, 0)
        training, hooks = twin.Training(model, self.c), []
        if spread is not None:
            for w, of in zip(self.weights.values(), self.tensors("", spread).values()):
                error = of.view(w.shape) * torch.randn(w.shape, generator=self.random, dtype=of.dtype)
                hooks.append(w.register_hook(lambda g, error=error: g + error))
        losses = [training.step(texts) for texts in self.texts]
        for hook in hooks:
            hook.remove()
        return losses, flat(self.weights.values())


class Parity(unittest.TestCase):
    def test_numbers(self):
        for changes in CASES:
            with self.subTest(**changes):
                case = Case(**changes)
                wrong, largest = case.compare()
                print(changes, {what: f"{ratio:.2g}" for what, ratio in largest.items()})
                self.assertEqual(wrong, {})
                for name, x in case.draws[0].items():
                    self.assertTrue(torch.equal(case.again[name], x), name)

    def test_program_goes_on_from_the_twin(self):
        """The likeliest bytes after some, by the program and by the twin, of a checkpoint that the twin has written."""
        c = twin.Config(**{**SMALL, "setting": "conformal", "tied": True})
        torch.manual_seed(9)
        training = twin.Training(twin.Twin(c), c)
        text = bytes(range(97, 107)) * 5
        numbers = torch.tensor([list(text)])
        for _ in range(STEPS):
            training.step(numbers)
        with tempfile.TemporaryDirectory() as folder:
            twin_checkpoints.checkpoint(training, folder)
            model = twin_checkpoints.trained(f"{folder}/step-{STEPS:08}.safetensors")
            said = subprocess.run([PROGRAM, "generate", "--out", folder, "--prompt", text.decode(), "--bytes", "8",
                                   "--temperature", "0"], check=True, capture_output=True)
        self.assertEqual(said.stderr, b"")
        for _ in range(8):
            numbers = torch.cat([numbers, model(numbers)[:, -1:].argmax(-1)], 1)
        self.assertEqual(said.stdout, bytes(numbers[0].tolist()) + b"\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
