"""Tests of sympow-attend: what it writes, and what every bad file and option is told.  python3 test_attend.py"""

import contextlib
import io
import itertools
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

try:
    import numpy as np
except ImportError:
    print("numpy is not installed for", sys.executable, "- sympow-attend is not tested")
    sys.exit(77)
import sympow
import sympow.attend

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NAMES = {option[2:]: name for option, name in sympow.attend._INPUTS.items()}
AXES = {2: "(T, d)", 3: "(H, T, d)", 4: "(B, T, H, d)"}


class Folder(unittest.TestCase):
    """A folder in which the program runs."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(scratch.name)
        for number in SIGNALS:
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def run_program(self, words):
        """The exit status, and what it prints and says."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = sympow.attend.main(words.split() if isinstance(words, str) else words)
        return status, out.getvalue(), err.getvalue()

    def succeed(self, words):
        status, out, err = self.run_program(words)
        self.assertEqual((status, err), (0, ""), words)
        return out

    def refuse(self, words, *reasons):
        """Requires status 2, one line with these reasons, and no file that was not there or is another one."""
        before = contents()
        status, out, err = self.run_program(words)
        self.assertEqual((status, out), (2, ""), (words, err))
        self.assertRegex(err, r"\Asympow-attend: [^\n]*\n\Z")
        for reason in reasons:
            self.assertIn(reason, err)
        self.assertEqual(contents(), before)

    def start(self, words, before="", **options):
        """The program in a process of its own, after some code."""
        code = ("import os, resource, signal, sys\nfor name in ('SIGTERM', 'SIGHUP'): signal.signal(getattr(signal, name), signal.SIG_DFL)\n"
                f"signal.signal(signal.SIGINT, signal.default_int_handler)\nimport sympow.__main__\n{before}\nsympow.__main__.attend()")
        return subprocess.Popen([sys.executable, "-c", code, *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, **options)

    def finish(self, *arguments, **options):
        """The exit status of such a process, and what it prints and says."""
        with self.start(*arguments, **options) as process:
            return process.wait(), process.stdout.read(), process.stderr.read()


def contents():
    """Files by their names."""
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


class Tokens:
    """Random arrays by option, [B, T, heads, n], that are saved in a layout."""

    def __init__(self, axes=4, T=40, d=4, e=3, Hk=None, dtype=np.float64, seed=1, turns=False, chain=False, gates=False):
        self.axes, self.dtype, numbers = axes, dtype, np.random.default_rng(seed)
        B, H = 2 if axes == 4 else 1, 1 if axes == 2 else 4
        Hk = Hk or H

        def normal(*shape):
            return numbers.standard_normal((B, T, *shape)).astype(dtype)

        self.arrays = {"q": normal(H, d), "k": normal(Hk, d), "v": normal(Hk, e)}
        if gates:
            self.arrays["log-gate"] = -0.01 * abs(normal(H)).astype(float)
        if turns:
            self.arrays |= {"theta": numbers.random(d // 2), "beta": 1 + 0.1 * normal(H)}
        if chain:
            w = normal(Hk, d)
            self.arrays |= {"householder": w / np.linalg.norm(w, axis=-1, keepdims=True), "strength": 2 * abs(np.tanh(normal(Hk)))}
        self.dy = normal(H, e)

    def save(self, layout="bthd", span=slice(None), sequences=slice(None)):
        """The words that name the files."""
        for name, x in (self.arrays | {"dy": self.dy}).items():
            if name != "theta":
                x = x[sequences, span].swapaxes(1, 2) if layout == "bhtd" or self.axes < 4 else x[sequences, span]
                x = x[(0,) * (4 - self.axes)].copy()
            np.save(name, x)
        return " ".join(f"--{name} {name}.npy" for name in self.arrays) + (" --layout bhtd" if layout == "bhtd" else "")

    def load(self, name, layout="bthd"):
        x = np.load(name)[(None,) * (4 - self.axes)]
        return x.swapaxes(1, 2) if layout == "bhtd" or self.axes < 4 else x

    def call(self, function, *before, **options):
        arrays = {NAMES[name]: x for name, x in self.arrays.items()}
        return function(*before, **{"pairing": "interleaved"} | arrays | options)


class Rows(Folder):
    def test_rows_are_those_of_the_package(self):
        """In every layout and type; test_numpy.py compares these with the definition."""
        for axes, dtype, (words, options), more in itertools.product(AXES, (np.float32, np.float64), (
                ("", {}), ("--power 3", dict(power=3)), ("--power 8 --normalize none", dict(power=8, normalisation="unnormalised")),
                ("--chunk 9 --form chunked", dict(chunk=9, form="chunked")), ("--normalize sum", {}),
                ("--feature linear --form recurrent", dict(power=1, form="recurrent")),
                ("--feature exponential", dict(scores="exponential")), ("--form attention", dict(form="attention")),
                ("--form chunked --pairing half-split --scale .5", dict(form="chunked", pairing="half_split", scale=0.5)),
                ("--feature random --features 24", dict(scores="random", features=24)),
                ("--feature random --features 24 --seed 5", dict(scores="random", features=24, seed=5))),
                ({}, dict(turns=True, gates=True), dict(chain=True))):
            if "turns" not in more and "pairing" in words or "chain" in more and re.search("random|power|chunked", words):
                continue  # they do not go with each other
            tokens = Tokens(axes, Hk=2 if axes > 2 else None, dtype=dtype, **more)
            out = self.succeed(f"{tokens.save()} {words} --out y.npy --diagnostics d.npy")
            self.assertIn(f"\nQ is {AXES[axes]} = {np.load('q.npy').shape}, K {np.load('k.npy').shape}, V", out)
            np.testing.assert_array_equal(tokens.load("y.npy"), tokens.call(sympow.attention, **options))
            np.testing.assert_array_equal(tokens.load("d.npy"), np.stack(tokens.call(sympow.diagnose, **options), axis=-1))
            self.assertEqual((np.load("y.npy").dtype, np.load("d.npy").dtype), (dtype, np.float64))

    def test_rows_and_gradients_are_those_of_the_formula(self):
        """Of sums Y = (S q·k)^P v. A sum of T terms of d + P + 2 roundings each is off by n u Σ|terms| at most."""
        tokens, P, scale = Tokens(2), 3, 0.5
        self.succeed(f"{tokens.save()} --power {P} --form attention --grad dy.npy --out y.npy --scale {scale}")
        q, k, v = (tokens.arrays[name][0, :, 0] for name in "qkv")
        dy, T, d = tokens.dy[0, :, 0], 40, 4

        def formula(q, k, v, dy, s):
            slopes = np.tril(dy @ v.T) * P * s**(P - 1)
            return (np.tril(s**P) @ v, scale * slopes @ k, scale * slopes.T @ q, np.tril(s**P).T @ dy, (slopes * (s / scale)).sum())

        wanted = formula(q, k, v, dy, scale * q @ k.T)
        sizes = formula(*map(abs, (q, k, v, dy)), scale * np.outer(np.linalg.norm(q, axis=1), np.linalg.norm(k, axis=1)))
        for name, x, size in zip(("", "_dq", "_dk", "_dv", "_dscale"), wanted, sizes):
            n = T * (T if name == "_dscale" else 1) + P * (d + 2)
            self.assertLessEqual((abs(np.load(f"y{name}.npy") - x) / size).max(), n * 2.0**-53, name)

    def test_the_automatic_form(self):
        words = Tokens(2).save() + " --out y.npy"
        self.assertIn("automatic form", self.succeed(words))
        self.assertIn("chunked form", self.succeed(words + " --state-out s"))
        self.assertIn("attention form", self.succeed(words + " --feature exponential"))


class Forms(Folder):
    def test_forms_are_compared_on_request(self):
        for feature, axes, dtype in itertools.product(("power", "linear", "exponential", "random"), AXES, (np.float32, np.float64)):
            tokens = Tokens(axes, T=70, dtype=dtype, gates=True, turns=axes == 4)
            words = f"{tokens.save()} --feature {feature}" + (" --features 24" if feature == "random" else "")
            out = self.succeed(words + " --out y.npy --compare")
            self.assertIn("the forms agree", out)
            self.assertEqual("attention   gives the rows in double" in out, dtype == np.float64)
            self.assertEqual("recurrent" in out, feature != "exponential")
            self.succeed(words + " --out alone.npy")
            self.assertEqual(Path("y.npy").read_bytes(), Path("alone.npy").read_bytes())

    def test_forms_that_disagree_end_with_status_1_and_y_is_written(self):
        """q k to the eighth, whose roundings all point one way: no arithmetic in float keeps 4 u here."""
        for name, x in (("q", 1.0048837661743164), ("k", 1.0488295555114746), ("v", 1)):
            np.save(name, np.full((3, 1), x, np.float32))
        words = "--q q.npy --k k.npy --v v.npy --out y.npy --normalize none --compare --power "
        status, out, _ = self.run_program(words + "8")
        self.assertEqual((status, "DISAGREE" in out, os.path.exists("y.npy")), (1, True, True))
        self.succeed(words + "2")

    def test_a_row_that_says_something_in_one_form_alone_is_a_difference(self):
        """Queries at nearly a right angle to every key: a state sees noise for their scores."""
        np.save("q", np.array([[1e-4, 1], [1, 1]] * 50, np.float32))
        np.save("k", np.array([[1, 0]] * 100, np.float32))
        status, out, _ = self.run_program("--q q.npy --k k.npy --v k.npy --out y.npy --compare")
        self.assertEqual((status, "DISAGREE" in out), (1, True))
        self.assertRegex(out, r"(?m)^\d+ of 100 rows with information in one form and none in another$")

    def test_rows_that_are_not_compared(self):
        tokens = Tokens(2, T=5, turns=True, gates=True)
        tokens.arrays["k"][0, 0] = 0  # the first row sees no other key
        out = self.succeed(tokens.save() + " --out y.npy --diagnostics d.npy --compare")
        self.assertIn("1 of 5 rows without information, not compared", out)
        self.assertTrue((np.load("d.npy")[:, 2] == [1, 0, 0, 0, 0]).all() and (np.load("y.npy")[0] == 0).all())
        tokens = Tokens(2, T=5, dtype=np.float32)
        tokens.arrays["v"] *= np.float32(1e-36)
        words = tokens.save() + " --out y.npy --compare"
        self.assertIn("5 of 5 rows beyond the range", self.succeed(words))
        with mock.patch.object(sympow.Attention, "__call__", lambda *_, **inputs: np.full((1, 5, 1, 3), np.inf)):
            self.assertIn("DISAGREE", self.run_program(words)[1])  # means are finite
        tokens.arrays["v"] *= 0
        self.assertNotIn("rows", self.succeed(tokens.save() + " --out y.npy --compare").replace("the rows in", ""))

    def test_a_wrong_number_is_a_difference(self):
        """An error in row 7, in units of 4 u K max|V|: a state in chunks allows 1.5, one whose keys move on 2.5, none 8."""
        for more, (status, units) in itertools.product(({}, {"chain": True}, {"turns": True, "gates": True}), ((0, 1.5), (0, 2.5), (1, 8))):
            status = 1 if units == 2.5 and not more else status  # keys that move on token by token are more updates
            tokens = Tokens(3, **more)
            said = tokens.call(sympow.diagnose, power=1)
            bound = (said.condition * np.exp(said.log_sum))[0, 7, 1] * abs(tokens.arrays["v"][0, :, 1]).max()

            def wrong(attention, call=sympow.Attention.__call__, **inputs):
                y = call(attention, **inputs)
                y[0, 7, 1, 2] += units * 4 * 2.0**-53 * bound if attention._given["form"] == "chunked" else 0
                return y

            with mock.patch.object(sympow.Attention, "__call__", wrong):
                out = self.run_program(f"{tokens.save()} --feature linear --out y.npy --compare")
            self.assertEqual(out[0], status, (more, out))


class Gradients(Folder):
    def test_names_types_and_bits_are_those_of_the_package(self):
        for (axes, layout), form, dtype in itertools.product(
                ((3, "bthd"), (4, "bthd"), (4, "bhtd")), ("attention", "chunked"), (np.float32, np.float64)):
            tokens = Tokens(axes, Hk=2, turns=True, gates=True, dtype=dtype)
            out = self.succeed(f"{tokens.save(layout)} --form {form} --grad dy.npy --out y.npy --scale .5")
            names = {name.replace("-", "_"): NAMES[name] for name in tokens.arrays}
            self.assertIn(f"\ngradients in {', '.join(f'y_d{name}.npy' for name in [*names, 'scale'])}\n", out)
            wanted = tokens.call(sympow.vjp, tokens.dy, scale=0.5, form=form)
            for name, argument in names.items():
                found = np.load(f"y_d{name}.npy") if name == "theta" else tokens.load(f"y_d{name}.npy", layout)
                np.testing.assert_array_equal(found, getattr(wanted, argument))
                self.assertEqual(found.dtype, getattr(wanted, argument).dtype)
                self.assertIn(b"'fortran_order': False", Path(f"y_d{name}.npy").read_bytes())
            self.assertEqual((np.load("y_dscale.npy").shape, float(np.load("y_dscale.npy"))), ((), wanted.scale))

    def test_the_delta_rule_multiplies_values_by_strengths(self):
        for form, dtype in itertools.product(("attention", "chunked"), (np.float32, np.float64)):
            tokens = Tokens(T=5, chain=True, gates=True, dtype=dtype, Hk=2)
            words = f" --feature linear --form {form} --grad dy.npy --out "
            self.succeed(tokens.save() + words + "y.npy --delta-rule")
            v, strengths = tokens.arrays["v"], tokens.arrays["strength"][..., None]
            tokens.arrays["v"] = v * strengths
            self.succeed(tokens.save() + words + "plain.npy")
            for name in ("", "_dq", "_dk", "_dhouseholder", "_dlog_gate"):
                self.assertEqual(Path(f"y{name}.npy").read_bytes(), Path(f"plain{name}.npy").read_bytes())
            dv, d_strength = tokens.load("plain_dv.npy"), tokens.load("plain_dstrength.npy")
            np.testing.assert_array_equal(tokens.load("y_dv.npy"), dv * strengths)
            terms = v.astype(float) * dv
            bound = 3 * np.finfo(dtype).eps * (abs(d_strength) + abs(terms).sum(3))  # of two sums and a conversion
            self.assertTrue((abs(tokens.load("y_dstrength.npy") - (d_strength + terms.sum(3))) <= bound).all())

    def test_no_tokens(self):
        os.mkdir("out")
        for form in ("attention", "chunked", "auto"):
            words = Tokens(T=0, turns=True, gates=True).save() + f" --form {form} --scale 1 --grad dy.npy --out out/y --compare"
            self.refuse(words.replace("out/", "nowhere/"), "--out nowhere/y: cannot be written, there is no folder ")
            self.succeed(words)
            self.assertEqual(np.load("out/y_dk").shape, (2, 0, 4, 4))
            np.testing.assert_array_equal(np.load("out/y_dtheta"), np.zeros(2))


class Layouts(Folder):
    def outputs(self, tokens, layout, chain, more, **part):
        words = tokens.save(layout, **part) + " --out y.npy --diagnostics d.npy --grad dy.npy " + more
        out = self.succeed(words + (" --feature linear --delta-rule" if chain else ""))
        self.assertIn(f"Q is ({'B, H, T' if layout == 'bhtd' else 'B, T, H'}, d) = (", out)
        names = ["y", "d", *(f"y_d{name.replace('-', '_')}" for name in tokens.arrays)]
        return {name: np.load("y_dtheta.npy") if name == "y_dtheta" else tokens.load(f"{name}.npy", layout) for name in names}

    def test_both_orders_of_four_axes_hold_the_same_heads(self):
        for chain, more in itertools.product((False, True), ("--form attention", "--form chunked --state-out s", "--compare")):
            tokens = Tokens(Hk=2, gates=True, turns=not chain, chain=chain)
            first, second = (self.outputs(tokens, layout, chain, more) for layout in ("bthd", "bhtd"))
            for name, x in first.items():
                np.testing.assert_array_equal(x, second[name], name)

    def test_padding_may_hold_anything_and_is_zero_in_the_rows(self):
        for chain, layout, (form, lengths) in itertools.product(
                (False, True), ("bthd", "bhtd"), (("attention", "40,17"), ("recurrent", "n.npy"))):
            np.save("n", np.array([40, 17], np.int32))
            tokens = Tokens(Hk=2, gates=True, turns=not chain, chain=chain)
            parts = [self.outputs(tokens, layout, chain, f"--form {form}", sequences=slice(b, b + 1), span=slice(n))
                     for b, n in ((0, 40), (1, 17))]
            for name, x in (tokens.arrays | {"dy": tokens.dy}).items():
                if name != "theta":
                    x[1, 17:] = np.nan
            found = self.outputs(tokens, layout, chain, f"--form {form} --lengths {lengths} --compare")
            for name, x in found.items():
                if name != "y_dtheta":  # a sum over all sequences
                    np.testing.assert_array_equal(x[0], parts[0][name][0], name)
                    np.testing.assert_array_equal(x[1, :17], parts[1][name][0], name)
                    self.assertTrue((x[1, 17:] == 0).all(), name)

    def test_layouts_lengths_and_pairings_that_do_not_fit(self):
        plain = Tokens(3, T=5).save() + " --out y.npy "
        np.save("n", np.array([-1]))
        fixed = "--layout does not go with --q q.npy of shape (4, 5, 4): it is the order of four axes"
        for more, reason in {
                "--layout bthd": fixed, "--layout bhtd": fixed, "--layout thd": "--layout is thd, must be bthd or bhtd",
                "--pairing half-split": "--pairing half-split needs --theta",
                "--pairing halves": "--pairing is halves, must be interleaved or half-split",
                "--lengths 5,5": "--lengths 5,5: lengths are of shape (2,), must be (1,), one for each sequence",
                "--lengths 6": "--lengths 6: length 0 is 6, must be 0 to T = 5",
                "--lengths 5,": "--lengths 5, is , must be a whole number of 0 or more",
                "--lengths -3": "--lengths -3: there is no such file", "--lengths n.npy": "--lengths n.npy: length 0 is -1, must be 0",
                "--lengths q.npy": "--lengths q.npy: entries are of type '<f8', must be '<i4' or '<i8'"}.items():
            self.refuse(plain + more, reason)
        np.save("k", np.ones((3, 5, 4)))
        self.refuse(plain, "--k k.npy: shape is (3, 5, 4), must be (4, 5, 4), that of --q q.npy, or with fewer heads, whose number "
                    "divides H = 4")
        np.save("k", np.ones((2, 5, 4)))
        self.refuse(plain, "--v v.npy: shape is (4, 5, 3), must be (2, 5, 3), that of --k up to the last axis")


class States(Folder):
    def pieces(self, tokens, lengths, forms, words, resumes=True):
        begin, rows = 0, []
        for n, length in enumerate(lengths):
            self.succeed(tokens.save(span=slice(begin, begin + length)) + f" --out y.npy --state-out s --form {forms[n]} {words}"
                         + (" --state-in s" if n > 0 and resumes else ""))  # the same file as it leaves behind
            rows.append(tokens.load("y.npy"))
            begin += length
        return np.concatenate(rows, axis=1)

    def test_a_sequence_in_pieces_is_the_whole_sequence_unless_the_state_is_dropped(self):
        for seed, (axes, (power, dtype)) in enumerate(itertools.product(AXES, itertools.product((1, 2, 3, 4), (np.float32, np.float64)))):
            tokens = Tokens(axes, T=110, dtype=dtype, seed=seed, gates=True, turns=axes != 2)
            turns = 1 if axes == 2 else 1 + power * abs(tokens.arrays["beta"].cumsum(1)).max() * tokens.arrays["theta"].max()
            wanted, said = (tokens.call(x, power=power, form="attention") for x in (sympow.attention, sympow.diagnose))
            bounds = said.condition * (1 if power % 2 == 0 else np.exp(said.log_sum)) * abs(tokens.arrays["v"]).max()
            bounds = bounds[..., None] * 4 * np.finfo(dtype).eps / 2 * turns * (1 + np.sqrt(110))
            for lengths, forms in (((50, 60), ("recurrent", "chunked")),
                                   ((1, 0, 64, 20, 25), ("chunked", "recurrent", "auto", "chunked", "recurrent"))):
                rows = self.pieces(tokens, lengths, forms, f"--power {power}")
                self.assertLessEqual((abs(rows - wanted) / bounds).max(), 1)
            dropped = self.pieces(tokens, (50, 60), ("chunked",) * 2, f"--power {power}", resumes=False)
            self.assertGreater((abs(dropped - wanted) / bounds).max(), 10)

    def test_gradients_and_diagnostics_after_a_state_are_those_of_the_package(self):
        tokens, attention = Tokens(T=60, gates=True), sympow.Attention(form="chunked")
        state, other = (sympow.State(attention, 2, 4, 4, 3, np.float64) for _ in range(2))
        first, now = ({NAMES[name]: x[:, part] for name, x in tokens.arrays.items()} for part in (slice(30), slice(30, 60)))
        attention(**first, state=state)
        state.save("s")
        wanted, said = attention.vjp(tokens.dy[:, 30:], **now, state=state), attention.diagnose(**now, state=state)
        self.succeed(tokens.save(span=slice(30, 60))
                     + " --state-in s --state-out after --form chunked --out y.npy --grad dy.npy --diagnostics d.npy")
        other.load("after")
        for name, x in (("y_dk", wanted.keys), ("d", np.stack(said, axis=-1)), ("y", attention(**now, state=state))):
            np.testing.assert_array_equal(np.load(f"{name}.npy"), x)
        np.testing.assert_array_equal(other.read().sums, state.read().sums)
        self.assertEqual(other.tokens(1, 3), 60)

    def test_resumed_forms_are_compared(self):
        for dtype, power in itertools.product((np.float32, np.float64), (2, 3)):
            tokens = Tokens(T=100, dtype=dtype, gates=True, turns=True)
            tokens.arrays["v"][:, 50:] *= 2.0**-20  # rows have the size of earlier values
            self.succeed(tokens.save(span=slice(0, 50)) + f" --power {power} --out y.npy --state-out s")
            out = self.succeed(tokens.save(span=slice(50, 100)) + f" --power {power} --out y.npy --state-in s --compare")
            self.assertRegex(out, r"\nrecurrent and chunked from --state-in\nlargest .*: the forms agree\n")

    def test_states_of_other_arrays_are_refused(self):
        good = Tokens(3, turns=True).save() + " --out y.npy"
        self.succeed(good + " --state-out s")
        states = Path("s").read_bytes()

        def refuse(reason, words=good, content=states):
            Path("s").write_bytes(content)
            self.refuse(words + " --state-in s --diagnostics d.npy --state-out left", "sympow-attend: --state-in s: ", reason)

        place = len(states) // 2 + 99
        for reason, content in (("state 3: state file: it ends inside of its body", states[:-1]),
                                ("goes on after 4 states", states + b"x"), ("state 0: state file: this is not one", b""),
                                ("state 2: state file: the checksum does not match",
                                 states[:place] + bytes([states[place] ^ 1]) + states[place + 1:]),
                                ("state 0: state file: this is not one", Path("q.npy").read_bytes())):
            refuse(reason, content=content)
        for reason, arrays, more in (
                ("goes on after 1 state, one a sequence and head", dict(axes=2, turns=True), ""),
                ("holds 4 states, must hold 8, one a sequence and head", dict(axes=4, turns=True), ""),
                ("sequence 0, head 0: the state was built under a rotation of 2 angles", dict(axes=3), ""),
                ("bytes of a scalar is 8, must be 4", dict(axes=3, dtype=np.float32, turns=True), ""),
                ("key dimension d is 4, must be 6", dict(axes=3, d=6, turns=True), ""),
                ("value dimension e is 3, must be 2", dict(axes=3, e=2, turns=True), ""),
                ("degree P is 2, must be 3", dict(axes=3, turns=True), " --power 3"),
                ("fingerprint of the feature map", dict(axes=3, turns=True), " --feature random --features 10")):
            refuse(reason, Tokens(**arrays).save() + more + " --out y.npy")
        Path("s").write_bytes(states)
        self.succeed(Tokens(3, turns=True).save() + " --state-in s --out y.npy")
        words = Tokens(3).save() + " --out y.npy --feature random --features 10 --seed "
        self.succeed(words + "3 --state-out s")
        self.refuse(words + "4 --state-in s", "--state-in s: state 0: state file: fingerprint")


class BadInput(Folder):
    def setUp(self):
        super().setUp()
        self.inputs = Tokens(T=5, turns=True, gates=True).save()
        Path("y.npy").write_text("as it was")  # and so it stays

    def refuse_file(self, option, name, *reasons):
        """Refuses the good words with a file in the place of that of an option."""
        words = re.sub(f"{option} \\S+", f"{option} {name}", self.inputs + " --grad dy.npy")
        self.refuse(words + " --out y.npy --diagnostics d.npy --state-out s", *reasons)

    def test_options(self):
        plain = "--q q.npy --k k.npy --v v.npy"
        most = plain + " --out y.npy "
        self.refuse([], "--q is missing; see sympow-attend --help")
        self.refuse(plain, "--out is missing")
        self.refuse(most + "--scale --compare", "--scale needs a value, but is followed by '--compare'")
        self.refuse(most.split() + ["--scale", ""], "--scale needs a value")
        self.refuse(most.split() + ["--scale", "1 "], "--scale is 1 , must be a finite number")
        for more, reason in {
                "--frobnicate": "unknown option --frobnicate", "extra": "unknown option extra",
                "--power=2": "unknown option --power=2", "--pow 2": "unknown option --pow", "--power": "--power needs a value",
                "--compare --compare": "--compare is given twice", "--q q.npy": "--q is given twice",
                "--feature cosine": "--feature is cosine, must be power, linear, exponential or random",
                "--form fast": "--form is fast, must be auto, attention, recurrent or chunked",
                "--normalize yes": "--normalize is yes, must be auto, sum or none",
                "--power 3 --normalize sum": "--normalize sum does not go with --power 3",
                "--feature linear --normalize sum": "--normalize sum does not go with --feature linear",
                "--feature linear --power 2": "--power 2 does not go with --feature linear",
                "--feature random": "--features is missing",
                "--features 8": "--features 8 does not go with the default --feature power",
                "--feature linear --seed 8": "--seed 8 does not go with --feature linear",
                "--feature random --features 8 --power 2": "--power 2 does not go with --feature random",
                "--feature random --features 8 --form attention --state-out s": "--state-out s does not go with --form attention",
                "--beta beta.npy": "--beta beta.npy needs --theta", "--delta-rule": "--delta-rule needs --strength",
                "--householder q.npy": "--householder q.npy needs --strength", "--strength q.npy": "--strength q.npy needs --householder",
                "--form attention --state-in s": "--state-in s does not go with --form attention"}.items():
            self.refuse(most + more, reason)
        chain = most + "--householder q.npy --strength beta.npy "
        for more in ("--theta theta.npy", "--feature random --features 8"):
            self.refuse(chain + more, f"--householder q.npy does not go with {more.split()[0]}")
        for more in ("--form recurrent", "--form chunked", "--state-in s", "--state-out s"):
            self.refuse(most + "--feature exponential " + more, f"{more} does not go with --feature exponential, which has no state")
            self.refuse(chain + more, f"{more} does not go with --householder and --power 2")
        self.succeed(chain + "--feature linear --state-out s")
        for option, allowed, bad in (
                ("--power", "1 to 8", "0 9 -2 2.5 two 99999999999999999999 2x ٣"),
                ("--scale", "", "nan inf 1e999 one 1,5 0x10 1_0"), ("--chunk", "1 or more", "0 -1 64k 1e3 99999999999999999999"),
                ("--feature random --features", "1 or more", "0 -3 many 2.5 9223372036854775808"),
                ("--feature random --features 8 --seed", "0 or more", "-1 x 1.5 9223372036854775808")):
            for value in bad.split():
                self.refuse(f"{most}{option} {value}", f"{option.split()[-1]} is {value}, must be a "
                            + (f"whole number of {allowed}" if allowed else "finite number"))

    def test_files(self):
        good = Path("q.npy").read_bytes()
        os.mkdir("folder.npy")
        os.mkfifo("pipe.npy")
        foreign, size = "is not an npy file", "shape (2, 5, 4, 4) of f8 takes 1280 bytes, the file has "
        for name, (content, reason) in {
                "gone": (None, "there is no such file"), "folder": (None, "is not a regular file"),
                "pipe": (None, "is not a regular file"), "foreign": (b"not an array", foreign), "zip": (b"PK\3\4 a zip", foreign),
                "nothing": (b"", foreign), "version": (good[:6] + b"\4" + good[7:], foreign), "short": (good[:9], foreign),
                "cut": (good[:-8], size + "1272 after its header"), "longer": (good + b"12345678", size + "1288"),
                "big": (good.replace(b"<f8", b">f8"), "entries are of type '>f8', must be '<f4' or '<f8'"),
                "half": (good.replace(b"<f8", b"<f2"), "entries are of type '<f2'"), "object": (good.replace(b"<f8", b"|O "), ""),
                "whole": (good.replace(b"<f8", b"<i8"), "entries are of type '<i8'"), "negative": (good.replace(b"(2, 5", b"(-2,-5"), ""),
                "fortran": (good.replace(b"False, ", b"True,  "), "is in Fortran order, must be in C order")}.items():
            if content is not None:
                Path(f"{name}.npy").write_bytes(content)
            for option in ("--q", "--k", "--v", "--log-gate", "--theta", "--beta", "--grad"):
                self.refuse_file(option, f"{name}.npy", f"sympow-attend: {option} {name}.npy: {reason}")
        for name in ("gone", "folder.npy"):
            self.refuse(f"{self.inputs} --out y.npy --state-in {name}", f"--state-in {name}: ")

    def test_shapes_and_types_that_disagree(self):
        for name, shape in dict(transposed=(2, 4, 5, 4), longer=(2, 6, 4, 4), wider=(2, 5, 4, 6), three=(10, 4, 4), one=(160,), none=(),
                                five=(1, 2, 5, 4, 4), empty=(2, 5, 4, 0), two=(2, 5), odd=(2, 5, 4, 3), angles=(3,)).items():
            np.save(name, np.full(shape, 0.5))
        np.save("single", np.full((2, 5, 4, 4), 0.5, np.float32))
        for option, name, reason in (
                ("--k", "single", "is of type f4, must be f8 as --q q.npy is"), ("--k", "transposed", "shape is (2, 4, 5, 4), must be "
                 "(2, 5, 4, 4), that of --q q.npy"), ("--k", "wider", "shape is (2, 5, 4, 6), must be (2, 5, 4, 4)"),
                ("--v", "longer", "shape is (2, 6, 4, 4), must be (2, 5, 4, 4)"), ("--v", "three", "shape is (10, 4, 4), must be ("),
                ("--q", "one", "shape is (160,), must be (T, d), (H, T, d) or (B, T, H, d)"), ("--q", "five", "shape is (1, 2, 5"),
                ("--q", "none", "shape is (), must be"), ("--theta", "angles", "shape is (3,), must be (2,), half of the last axis"),
                ("--log-gate", "two", "shape is (2, 5), must be (2, 5, 4), one number for each token and head of --q"),
                ("--beta", "two", "shape is (2, 5), must be (2, 5, 4)"), ("--theta", "two", "shape is (2, 5), must be (2,)"),
                ("--k", "none", "shape is (), must be"), ("--v", "none", "shape is (), must be")):
            self.refuse_file(option, f"{name}.npy", f"{option} {name}.npy: {reason}")
        plain = "--out y.npy --q q.npy --k k.npy --v v.npy "
        for q, v, reason in (("empty", "v", "its last axis is 0"), ("q", "empty", "its last axis is 4 and that of --v 0, must be at least"),
                             ("odd", "v", "its last axis is 3 and that of --v 3, must be at least 1, and that of --q even")):
            self.refuse(f"--q {q}.npy --k {q}.npy --v {v}.npy --theta theta.npy --out y.npy", f"--q {q}.npy: {reason}")
        self.refuse(plain + "--grad single.npy", "--grad single.npy: shape is (2, 5, 4, 4), must be (2, 5, 4, 3), that of Y")
        np.save("single", np.full((2, 5, 4, 3), 0.5, np.float32))
        self.refuse(plain + "--grad single.npy", "--grad single.npy: is of type f4, must be f8 as --q q.npy is")
        for chain, reason in (("--householder odd.npy --strength beta.npy", "odd.npy: shape is (2, 5, 4, 3), must be (2, 5, 4, 4)"),
                              ("--householder q.npy --strength q.npy", "q.npy: shape is (2, 5, 4, 4), must be (2, 5, 4), one number")):
            self.refuse(f"{plain}--feature linear {chain}", reason)

    def test_entries_that_are_not_finite_and_gates_that_are_not(self):
        for name, place in {"q": (1, 1, 0, 1), "k": (1, 4, 3, 3), "v": (1, 4, 2, 2), "beta": (0, 0, 0), "theta": (1,),
                            "dy": (0, 3, 2, 1), "log-gate": (1, 0, 2)}.items():
            x, is_gate, option = np.load(f"{name}.npy"), name == "log-gate", "--grad" if name == "dy" else f"--{name}"
            for value in (1e-9, 1.0, np.inf, np.nan) if is_gate else (np.inf, -np.inf, np.nan):
                bad = x.copy()
                bad[place] = value
                np.save("bad", bad)
                self.refuse_file(option, "bad.npy", f"{option} bad.npy: entry {place} is {value:g}, must be "
                                 + ("a logarithm of at most 0" if is_gate else "finite"))
        np.save("theta", np.array([1e308, 1]))
        np.save("beta", np.full((2, 5, 4), 1e308))
        self.refuse(self.inputs + " --out y.npy", "--theta theta.npy: its largest rate times the largest of --beta beta.npy is no")

    def test_numbers_that_leave_the_range(self):
        words = Tokens(T=5).save() + " --out y.npy --diagnostics d.npy "
        self.refuse(words + "--feature random --features 24 --scale 1e308", "--scale is 1e+308: row (0, 0, 0) of Y is not a number "
                    "though the input is finite, its scores leave the range of f8")
        np.save("st", np.where(np.arange(40) == 22, 1e308, 0.5).reshape(2, 5, 4))
        np.save("v", np.full((2, 5, 4, 3), 10.0))
        words += "--feature linear --householder q.npy --strength st.npy "
        self.refuse(words + "--delta-rule", "--strength st.npy: times entry (1, 0, 2, 0) of --v v.npy is beyond the range of f8")
        np.save("st", np.full((2, 5, 4), 3.0))
        self.assertIn(f"\n{(3 * np.square(np.load('q.npy')).sum(-1) > 2).sum()} of 40 steps of the chain can", self.succeed(words))

    def test_states_that_do_not_fit_memory(self):
        np.save("x", np.full((2, 128), 0.5, np.float32))
        words = "--q x.npy --k x.npy --v x.npy --out y.npy --power 8 "
        for more in ("--form chunked", "--form recurrent", "--compare", "--state-out s"):
            self.refuse(words + more, "there is not enough memory for these arrays")
        self.succeed(words)  # attention needs no state

    def test_no_library(self):
        status, out, err = self.finish(self.inputs + " --out y.npy", env=os.environ | {"SYMPOW_C_LIBRARY": "/nothing"})
        wanted = "sympow-attend: /nothing of SYMPOW_C_LIBRARY: there is no such library; sympow.use(path) names one\n"
        self.assertEqual((status, out, err), (2, "", wanted))

    def test_the_usage_names_every_option(self):
        for words in ("--help", "-h", "--q q.npy --help"):
            self.assertEqual(set(re.findall("(?m)^ {2,}(--[a-z -]+?) {2,}", self.succeed(words))) - {"--q --k --v"},
                             (sympow.attend._WITH_VALUE | sympow.attend._FLAGS) - {"--q", "--k", "--v"})


class Outputs(Folder):
    def setUp(self):
        super().setUp()
        self.inputs = Tokens(T=400).save()

    def test_outputs_that_cannot_be_written(self):
        os.mkdir("folder")
        os.symlink("/dev/null", "device")
        os.symlink("loop", "loop")
        os.symlink("nowhere/y.npy", "astray")
        os.mkfifo("pipe")
        for option in ("--out", "--diagnostics", "--state-out"):
            words = self.inputs + ("" if option == "--out" else " --out y.npy")
            for path, reason in {"nowhere/x": "there is no folder", "folder": "it is a directory", "device": "it is not a regular file",
                    "pipe": "it is not a regular file", "new/": "it names no file", "q.npy/x": "there is no folder", "folder/": "",
                    "loop": "its links do not end", "astray": "there is no folder", "/dev/stdout": "", "/proc/self/fd/1": ""}.items():
                self.refuse(f"{words} {option} {path}", f"{option} {path}: cannot be written, {reason}")
        same = "cannot be written, it is the same file as --out y.npy"
        self.refuse(self.inputs + " --out y.npy --diagnostics y.npy", "--diagnostics y.npy: " + same)
        self.refuse(self.inputs + " --out y.npy --state-out folder/../y.npy", "--state-out folder/../y.npy: " + same)
        os.mkdir("y_dk.npy")
        self.refuse(self.inputs + " --out y.npy --grad dy.npy", "gradient of --k y_dk.npy: cannot be written, it is a directory")
        with mock.patch("os.access", lambda folder, mode: False):
            self.refuse(self.inputs + " --out folder/y", "/folder takes no files")

    def test_an_output_may_replace_an_input_and_what_a_link_points_to(self):
        self.succeed(self.inputs + " --out y.npy")
        wanted = Path("y.npy").read_bytes()
        self.assertEqual(os.stat("y.npy").st_mode, os.stat("q.npy").st_mode)
        os.mkdir("elsewhere")
        os.symlink("elsewhere/first", "link")
        os.symlink("second", "elsewhere/first")
        for _ in range(2):  # the second time it is there
            self.succeed(self.inputs + " --out link")
            self.assertTrue(os.path.islink("link") and os.path.islink("elsewhere/first"))
            self.assertEqual(Path("elsewhere/second").read_bytes(), wanted)
            Path("elsewhere/second").write_text("something else")
            os.chmod("elsewhere/second", 0o640)
        self.succeed(self.inputs + " --out q.npy --state-out link")
        self.assertEqual(Path("q.npy").read_bytes(), wanted)
        self.assertEqual(os.stat("elsewhere/second").st_mode & 0o777, 0o640)

    def test_a_file_that_cannot_be_finished_leaves_none(self):
        words = self.inputs + " --grad dy.npy --diagnostics d.npy --state-out s --out y.npy"
        for name, of, n in (("numpy.save", np.save, 3), ("sympow.State.save", sympow.State.save, 0), ("os.replace", os.replace, 4)):
            calls = itertools.count()

            def fails(*arguments):
                if next(calls) == n:
                    raise OSError(28, "No space left on device")
                of(*arguments)

            with mock.patch(name, fails):
                before = contents()
                status, _, err = self.run_program(words)
            self.assertRegex(err, r"\Asympow-attend: \S[^\n]*: cannot be written to its end, [^\n]*No space left on device\n\Z")
            self.assertEqual((status, contents()), (2, before))

    def test_limits_of_the_process_are_errors(self):
        before, limit = contents(), "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"
        for more in ("", " --state-out s --diagnostics d.npy"):
            status, out, err = self.finish(self.inputs + " --out y.npy" + more, limit)
            self.assertRegex(err, r"\A[^\n]* cannot be written to its end[^\n]*\n\Z")
            self.assertEqual((status, out, contents()), (2, "", before))
        np.save("x", np.ones((4000000, 2)))
        limit = ("sympow.version()\nused = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
                 "resource.setrlimit(resource.RLIMIT_AS, (used + 100000000,) * 2)")
        status, out, err = self.finish("--q x.npy --k x.npy --v x.npy --form chunked --out y.npy", limit)
        self.assertEqual((status, out, err), (2, "", "sympow-attend: there is not enough memory for these arrays\n"))
        self.assertEqual(set(contents()) - set(before), {"x.npy"})

    def test_what_cannot_be_printed_is_an_error_and_leaves_no_file(self):
        before, full = contents(), [">/dev/full"] if os.path.exists("/dev/full") else []
        for words, elsewhere in itertools.product((self.inputs + " --out y.npy", "--help"), (">&-", "<&- >&- 2>&-", *full)):
            done = subprocess.run(f"'{sys.executable}' -m sympow attend {words} {elsewhere}", shell=True, capture_output=True, text=True)
            complaint = "" if "2>" in elsewhere else "sympow-attend: standard output: cannot be written to its end\n"
            self.assertEqual((done.returncode, done.stderr, contents()), (2, complaint, before), elsewhere)
        done = subprocess.run(f"'{sys.executable}' -m sympow attend 2>&-", shell=True, capture_output=True)
        self.assertEqual((done.returncode, done.stdout), (2, b""))

    def test_a_path_may_be_any_bytes(self):
        words = [os.fsencode(word) for word in self.inputs.split()] + [b"--grad", b"dy.npy", b"--out", b"\xff\ny.npy"]
        done = subprocess.run([sys.executable, "-m", "sympow", "attend", *words], capture_output=True)
        self.assertEqual((done.returncode, done.stderr, os.path.exists(b"\xff\ny_dq.npy")), (0, b"", True))
        self.refuse(self.inputs.split() + ["--out", "a\nb/y.npy"], "a?b")

    def test_a_signal_ends_the_program_and_leaves_no_partial_file(self):
        np.save("x", np.full((60000, 2), 0.5, np.float32))
        before = contents()
        for number in SIGNALS:
            process = self.start("--q x.npy --k x.npy --v x.npy --feature exponential --out y.npy",
                                 "sympow.Attention.__call__ = lambda *x, of=sympow.Attention.__call__, **y: "
                                 "(print('ready', flush=True), of(*x, **y))[1]")
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(number)
            self.assertEqual((process.communicate()[1], process.returncode, contents()), ("", -number, before))
        words = self.inputs + " --grad dy.npy --out y.npy --state-out s"
        between = "of = os.replace\nos.replace = lambda *x: (os.kill(os.getpid(), signal.SIGTERM), of(*x))"
        self.assertEqual(self.finish(words, between)[0], -signal.SIGTERM)  # a signal between two files: all of them are there
        self.assertEqual(set(contents()) - set(before), {"y.npy", "y_dq.npy", "y_dk.npy", "y_dv.npy", "s"})
        ignored = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"  # as nohup does with SIGHUP
        self.assertEqual(self.finish(words, ignored + between)[0], 0)


class Fuzz(Folder):
    def test_damaged_files(self):
        """Each ends in an array or in one clear line, before more memory is taken than the file is long."""
        words = (b" \n ( ) { } , ' \" : 0 7 -1 4294967296 9223372036854775807 99999999999999999999 'descr' 'shape' True False '<f4' "
                 b"'<f8' '>f8' '|O' (3,4) [('a','<f4')] \x93NUMPY\1\0 \xff\xff\xff\x7f ((((((((((((((((( 1L True,").split(b" ")
        files, numbers, ends = [], random.Random(20240601), {True: 0, False: 0, None: 0}
        for shape, dtype, version in itertools.product(((3, 4), (2, 3, 2, 2), (0, 5)), ("<f4", "<f8"), ((1, 0), (2, 0), (3, 0))):
            with open("x.npy", "wb") as file:
                np.lib.format.write_array(file, np.ones(shape, dtype), version)
            files.append(Path("x.npy").read_bytes())
            np.testing.assert_array_equal(sympow.attend.read_npy("x", "x.npy", (dtype,)), np.ones(shape, dtype))
        fromfile, sizes = np.fromfile, []
        with mock.patch.object(np, "fromfile", lambda file, dtype, n: sizes.append(n * dtype.itemsize) or fromfile(file, dtype, n)):
            for turn in range(10000):
                content = bytearray(numbers.choice(files))
                for _ in range(numbers.randint(1, 4)):
                    at = min(numbers.randrange(100 if numbers.random() < 0.5 else len(content) + 1), len(content))
                    new = numbers.choice((b"", numbers.choice(words), numbers.randbytes(1), numbers.randbytes(8)))
                    content[at:at + numbers.choice((0, 1, len(new), 16))] = new
                    if numbers.random() < 0.1:
                        del content[numbers.randrange(len(content) + 1):]
                Path("x.npy").write_bytes(content)
                try:
                    ends[sympow.attend.read_npy("--q x.npy", "x.npy", ("<f4", "<f8")).nbytes < len(content)] += 1
                except sympow.attend.BadInput as error:
                    ends[None] += 1
                    self.assertTrue(str(error).startswith("--q x.npy: "), turn)
                self.assertLess(max(sizes, default=0), 3000)  # no file is longer
        self.assertTrue(ends[False] == 0 and ends[True] > 100 and ends[None] > 2500, ends)

    def test_random_options(self):
        inputs, numbers, statuses = Tokens(T=5, turns=True, gates=True).save(), random.Random(3), []
        more = ("--feature power|--feature linear|--feature exponential|--feature random|--features 8|--power 3|--seed 2|--form recurrent|"
                "--form chunked|--form attention|--chunk 2|--lengths 5,2|--lengths 2|--layout bhtd|--scale 2|--scale -1e300|--normalize sum|"
                "--normalize none|--state-in s|--state-out s|--diagnostics d.npy|--grad dy.npy|--compare|--delta-rule|"
                "--householder q.npy --strength beta.npy|--pairing half-split|--theta theta.npy|--beta beta.npy|--power 9|--q").split("|")
        for _ in range(400):
            words = " ".join([numbers.choice((inputs, inputs[:29])), "--out y.npy", *numbers.sample(more, numbers.randint(0, 5))])
            before = contents()
            status, _, err = self.run_program(words)
            statuses.append(status)
            if status == 2:
                self.assertEqual((err.count("\n"), contents()), (1, before), words)
            else:
                self.assertEqual((err, np.load("y.npy").shape), ("", (2, 5, 4, 3)), words)
        self.assertTrue(60 < statuses.count(0) < 340, statuses.count(0))


if __name__ == "__main__":
    unittest.main()
