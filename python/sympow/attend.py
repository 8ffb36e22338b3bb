"""Attention on files of numpy.save: the command sympow-attend, also python -m sympow attend. `USAGE` says what it does."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import secrets
import shutil
import signal
import sys
import warnings
from typing import Any, Callable, NoReturn, Sequence

import numpy as np

import sympow

USAGE = """Attention whose scores are powers of inner products, on arrays from numpy or PyTorch.

  sympow-attend --q Q.npy --k K.npy --v V.npy --out Y.npy
    [--feature power|linear|exponential|random] [--power P] [--features M] [--seed N]
    [--form auto|attention|recurrent|chunked] [--chunk C]
    [--layout bthd|bhtd] [--lengths N,N,...|L.npy]
    [--log-gate G.npy] [--theta TH.npy [--beta B.npy] [--pairing interleaved|half-split]]
    [--householder W.npy --strength ST.npy [--delta-rule]] [--scale S] [--normalize auto|sum|none]
    [--state-in FILE] [--state-out FILE] [--diagnostics D.npy] [--grad DY.npy] [--compare]

  y_i = sum_{j <= i} s_ij v_j  (/ sum_j s_ij),   s_ij = kappa(S q_i . M_ij k_j) b_ij
  b_ij = exp(G_{j+1} + ... + G_i),   M_ij turns the pair (2n, 2n+1), or (n, n + d/2), by -(B_{j+1} + ... + B_i) TH_n,
  or is the product of I - ST_t w_t w_t^T over t = i ... j+1

  --q --k --v      little-endian f4 or f8 in C order, all of one type: (T, d), (H, T, d) or (B, T, H, d). V may have another last axis;
                   K and V may have fewer heads, H_kv, whose number divides H: head h of Q reads head h / (H / H_kv)
  --out            Y, of Q's type and shape but for the last axis, which is V's
  --layout         of four axes: bthd, (B, T, H, d), the default, or bhtd, (B, H, T, d); all arrays have the same one
  --lengths        tokens of each of the B sequences, at most T, as a list or as i4 or i8 of shape (B,). What follows is padding: it
                   may hold anything, neither weighs nor decays, and is 0 in Y and D
  --feature        kappa: s^P (power, the default), s (linear), exp(s) (exponential, which has the attention form only) or an estimate
                   of exp(s) by positive orthogonal random features, FAVOR+, which has all forms (random); there S multiplies q
  --power          P of 1 ... 8, default 2
  --features       M, how many features random has; one draw for all batches and heads
  --seed           N of 0 ... 9223372036854775807 for that draw, default 1; a state continues under the M and N that it was built with
  --form           attention is O(T^2); recurrent and chunked are O(T) with a state of (e + 1) D numbers a head, where D is
                   C(d + P - 1, P), d (linear) or M (random). auto (the default): the cheapest, attention up to about 2 D tokens;
                   chunked if there is a state file to read or write
  --chunk          tokens in a chunk of the chunked form; by default the cheapest
  --log-gate       G, natural logarithms, at most 0, -inf allowed: Q's shape without the last axis, (T,), (H, T) or (B, T, H).
                   The first acts on a state that was read
  --theta          TH, (d/2,): radians that queries and keys turn by per unit of beta; mu_1 includes the first beta
  --beta           B, shaped as G; default 1
  --pairing        which entries make a pair: interleaved (the default), (2n, 2n+1), or half-split, (n, n + d/2), as most checkpoints
  --householder    W, of K's shape and type, one vector w a token, used as given: nothing is normalized. In place of --theta. No key grows
                   if 0 <= ST |w|^2 <= 2; for unit vectors save W / np.linalg.norm(W, axis=-1, keepdims=True). All forms for linear
                   and power 1 (DeltaNet, with --log-gate Gated DeltaNet); attention only for other powers and exponential (PaTH,
                   PaTH-FoX); not for random
  --strength       ST, any finite numbers, K's shape without the last axis: 0 keeps, 1 projects, 2 reflects along a unit vector
  --delta-rule     values are multiplied by ST before anything else
  --scale          S, default 1; inside the power
  --normalize      sum: rows are divided by the sum of their scores; none: they are not. auto (the default): sum for even P,
                   exponential and random, none for odd P and linear, which have scores of either sign and take no sum
  --state-in       continue the sequences that left these states, with the --scale, --theta and --pairing of then: states do not hold those
  --state-out      leave the states behind, as sympow.State.save writes them: one state for each batch and head of Q, all heads of the
                   first batch first
  --diagnostics    D, f8, of Y's shape but for the last axis, which is 3: log|denominator|, row condition number, 1 for a row without
                   information (its Y is 0) or else 0
  --grad           DY, the gradient of a loss in Y, of Y's type and shape. Leaves beside Y the gradient in all that was given of --q, --k,
                   --v, --log-gate, --theta, --beta, --householder, --strength and --scale, each of its own type and shape and by the
                   name of Y with _d and that of the option: y_dq.npy, y_dlog_gate.npy. They are 0 where there is padding. Those of
                   recurrent are made by the chunked form; a state that was read is constant, one that is left is not in the loss
  --compare        run every form that the feature has, print how far they are apart by the row rule,
                   |Y - Y'| / (4 u K max|V| (1 + sqrt n)), and exit with 1 if that is above 1 or a row holds information in one
                   form and none in another; Y is that of the chosen form. The rows in double are those of attention: T^2 d operations a head

Exit status: 0 done, 1 the forms disagree, 2 bad input, output that cannot be written, too little memory or rows that are not numbers,
with one line that says what; then no output file is left behind.
"""

_INPUTS = {"--q": "queries", "--k": "keys", "--v": "values", "--log-gate": "log_gates", "--theta": "theta", "--beta": "beta",
           "--householder": "householder", "--strength": "strengths"}  # the arguments of a call
_CHOICES = {"--feature": ("power", "linear", "exponential", "random"),
            "--form": ("auto", "attention", "recurrent", "chunked"), "--normalize": ("auto", "sum", "none"),
            "--layout": ("bthd", "bhtd"), "--pairing": ("interleaved", "half-split")}  # the first is the default
_LARGEST = 2**63 - 1
_NUMBERS = {"--power": (1, 8, 2), "--features": (1, _LARGEST, 0), "--seed": (0, _LARGEST, 1), "--chunk": (1, _LARGEST, 0)}
_FILES = ("--out", "--diagnostics", "--state-out")  # that are written
_WITH_VALUE = {*_INPUTS, *_CHOICES, *_NUMBERS, *_FILES, "--lengths", "--scale", "--state-in", "--grad"}
_FLAGS = {"--compare", "--delta-rule"}
_NEEDS = {"--beta": "--theta", "--pairing": "--theta", "--strength": "--householder", "--householder": "--strength",
          "--delta-rule": "--strength"}


class BadInput(Exception):
    """An option, a file or an array that the program cannot work with; its text names it and the values."""


def fail(text: str) -> NoReturn:
    raise BadInput(text)


def _counted(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"


def _refuse_any(bad: np.ndarray, text: Callable[[tuple[int, ...]], str]) -> None:
    """Fails with the place of the first bad entry, if there is one."""
    for place in np.argwhere(bad)[:1]:
        fail(text(tuple(map(int, place))))


def _whole_number(option: str, value: str, least: int, most: int) -> int:
    if not re.fullmatch("-?[0-9]{1,20}", value) or not least <= int(value) <= most:
        fail(f"{option} is {value}, must be a whole number of {least} {'or more' if most == _LARGEST else f'to {most}'}")
    return int(value)


class Options(dict[str, str]):
    """The options of a command line, which go with each other. Raises `BadInput`."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        rest = iter(words)
        for option in rest:
            if option not in _WITH_VALUE | _FLAGS:
                fail(f"unknown option {option}; see sympow-attend --help")
            if option in self:
                fail(f"{option} is given twice")
            self[option] = value = "" if option in _FLAGS else next(rest, "")
            if option in _WITH_VALUE and (not value or value.startswith("--")):
                fail(f"{option} needs a value" + (f", but is followed by '{value}'" if value else ""))
        for option, names in _CHOICES.items():
            if self.get(option, names[0]) not in names:
                fail(f"{option} is {self[option]}, must be {', '.join(names[:-1])} or {names[-1]}")
        self.feature, self.form, self.normalize, self.layout, self.pairing = (
            self.get(option, names[0]) for option, names in _CHOICES.items())
        self.power, self.features, self.seed, self.chunk = (
            _whole_number(option, self[option], least, most) if option in self else default
            for option, (least, most, default) in _NUMBERS.items())
        scale = self.get("--scale", "1")
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", scale) or math.isinf(float(scale)):
            fail(f"--scale is {scale}, must be a finite number")
        self.scale, self.power = float(scale), 1 if self.feature == "linear" else self.power
        self.is_nonnegative = self.feature in ("exponential", "random") or self.power % 2 == 0
        self.divides = self.is_nonnegative if self.normalize == "auto" else self.normalize == "sum"
        self.has_state = self.feature != "exponential" and ("--householder" not in self or self.power == 1)
        for option in ("--q", "--k", "--v", "--out", *(["--features"] if self.feature == "random" else [])):
            if option not in self:
                fail(f"{option} is missing; see sympow-attend --help")
        for option, needed in _NEEDS.items():
            if option in self and needed not in self:
                fail(f"{self.text(option)} needs {needed}")
        feature = f"--feature {self.feature}" if "--feature" in self else "the default --feature power"
        power = self.text("--power") if "--power" in self else feature
        of_state = ["--state-in", "--state-out", *(["--form"] if self.form in ("recurrent", "chunked") else [])]
        for is_refused, options, other in (
                ("--theta" in self, ["--householder"], "--theta: one transition acts on keys"),
                (self.feature == "random", ["--householder"], feature),
                (self.feature != "power", ["--power"], feature),
                (self.feature != "random", ["--features", "--seed"], feature),
                (self.normalize == "sum" and not self.is_nonnegative, ["--normalize"],
                 f"{power}: scores of either sign give no distribution"),
                (self.feature == "exponential", of_state, f"{feature}, which has no state; its form is attention"),
                (not self.has_state, of_state, f"--householder and --power {self.power}: such a chain has no state, but those of "
                                               "--feature linear and --power 1 have one"),
                (self.form == "attention", of_state, "--form attention, which has no state")):
            for option in options:
                if is_refused and option in self:
                    fail(f"{self.text(option)} does not go with {other}")

    def text(self, option: str) -> str:
        """As it was given: "--q q.npy"."""
        return f"{option} {self[option]}".rstrip()


def read_npy(name: str, path: str, types: Sequence[str]) -> np.ndarray:
    """The array in a file, of one of two types. Raises `BadInput`, before more memory is taken than the file is long."""
    if not os.path.isfile(path):
        fail(f"{name}: {'is not a regular file' if os.path.exists(path) else 'there is no such file'}")
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            of = np.lib.format
            is_first = of.read_magic(file) == (1, 0)  # the headers of 2.0 and 3.0 differ in names of records alone
            shape, is_fortran, dtype = (of.read_array_header_1_0 if is_first else of.read_array_header_2_0)(file)
            if dtype.str not in types:
                fail(f"{name}: entries are of type '{dtype.str}', must be '{types[0]}' or '{types[1]}'; see numpy's astype")
            if is_fortran and sum(n != 1 for n in shape) > 1:
                fail(f"{name}: is in Fortran order, must be in C order; numpy's ascontiguousarray converts it")
            needed, found = math.prod(shape) * dtype.itemsize, os.fstat(file.fileno()).st_size - file.tell()
            if needed != found:
                fail(f"{name}: shape {shape} of {dtype.str[1:]} takes {needed} bytes, the file has {found} after its header")
            return np.fromfile(file, dtype, math.prod(shape)).reshape(tuple(map(int, shape)))
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # numpy parses the header as Python, which has many errors
        fail(f"{name}: is not an npy file that can be read: {error}")


class Problem:
    """The arrays of a run, checked, with the sizes B, T, H, d and e. Raises `BadInput`."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.files = {option: read_npy(options.text(option), options[option], ("<f4", "<f8"))
                      for option in (*_INPUTS, "--grad") if option in options}
        q, k, v = (self.files[option] for option in ("--q", "--k", "--v"))
        Q, self.axes, self.dtype, self.type = options.text("--q"), q.ndim, q.dtype, q.dtype.str[1:]
        if not 2 <= q.ndim <= 4:
            fail(f"{Q}: shape is {q.shape}, must be (T, d), (H, T, d) or (B, T, H, d)")
        if q.ndim != 4 and "--layout" in options:
            fail(f"--layout does not go with {Q} of shape {q.shape}: it is the order of four axes")
        self.heads_first = q.ndim < 4 or options.layout == "bhtd"
        self.B, self.T, self.H, self.d = self.view("--q").shape
        Hk = self.view("--k").shape[2] if k.ndim == q.ndim > 2 else self.H
        Hk = Hk if Hk > 0 and self.H % Hk == 0 else self.H
        self.e, self.group = v.shape[-1] if v.ndim == q.ndim else self.d, self.H // max(Hk, 1)
        if min(self.d, self.e) == 0 or "--theta" in options and self.d % 2 != 0:
            fail(f"{Q}: its last axis is {self.d} and that of --v {self.e}, must be at least 1, and that of --q even with --theta")
        heads = f", or with fewer heads, whose number divides H = {self.H}" if q.ndim > 2 else ""
        of_queries, of_keys = "one number for each token and head of --q", "one number for each token and head of --k"
        for option, of_token, why in (
                ("--k", (Hk, self.d), f"that of {Q}{heads}"), ("--v", (Hk, self.e), "that of --k up to the last axis"),
                ("--log-gate", (self.H,), of_queries), ("--beta", (self.H,), of_queries),
                ("--householder", (Hk, self.d), "that of --k"), ("--strength", (Hk,), of_keys),
                ("--grad", (self.H, self.e), "that of Y"), ("--theta", None, "half of the last axis of --q")):
            shape = (self.d // 2,) if of_token is None else self.in_file(np.broadcast_to(0, (self.B, self.T, *of_token))).shape
            if (x := self.files.get(option)) is not None and x.shape != shape:
                fail(f"{options.text(option)}: shape is {x.shape}, must be {shape}, {why}")
            if x is not None and len(of_token or ()) == 2 and x.dtype != q.dtype:
                fail(f"{options.text(option)}: is of type {x.dtype.str[1:]}, must be {self.type} as {Q} is")
        self.lengths = None
        if "--lengths" in options:
            given, name = options["--lengths"], options.text("--lengths")
            if re.fullmatch("[0-9,]+", given):
                self.lengths = np.array([_whole_number(name, number, 0, _LARGEST) for number in given.split(",")])
            else:
                self.lengths = read_npy(name, given, ("<i4", "<i8")).astype(np.int64)
            if self.lengths.shape != (self.B,):
                fail(f"{name}: lengths are of shape {self.lengths.shape}, must be {(self.B,)}, one for each sequence")
            _refuse_any((self.lengths < 0) | (self.lengths > self.T),
                        lambda at: f"{name}: length {at[0]} is {self.lengths[at]}, must be 0 to T = {self.T}")
        self.is_padding = np.arange(self.T) >= (np.full(self.B, self.T) if self.lengths is None else self.lengths)[:, None]
        for option, x in self.files.items():  # padding may hold anything
            good = x <= 0 if option == "--log-gate" else np.isfinite(x)
            if option != "--theta":
                good |= self.in_file(self.is_padding[(..., *(None,) * (x.ndim - self.axes + 2))])
            needed = "a logarithm of at most 0" if option == "--log-gate" else "finite"
            _refuse_any(~good, lambda at: f"{options.text(option)}: entry {at} is {x[at]:g}, must be {needed}")
        if "--beta" in options and not math.isfinite(abs(self.files["--theta"]).max(initial=0).astype(float) * abs(
                np.where(self.is_padding[..., None], 0, self.view("--beta"))).max(initial=0)):
            fail(f"{options.text('--theta')}: its largest rate times the largest of {options.text('--beta')} is no finite angle")

    def view(self, option: str) -> np.ndarray | None:
        """An array as calls take it, [B, T, heads, n] or [B, T, heads]; None where there is none."""
        x = self.files.get(option)
        if x is None or option == "--theta":
            return x
        x = x[(None,) * (4 - self.axes)]
        return x.swapaxes(1, 2) if self.heads_first else x

    def in_file(self, x: np.ndarray) -> np.ndarray:
        """An array of a call in the order of files."""
        return (x.swapaxes(1, 2) if self.heads_first else x)[(0,) * (4 - self.axes)]


def target_of(name: str, path: str, others: dict[str, str]) -> str:
    """Where a file is to be written, beside the names of others by their places. Follows links. Raises `BadInput`."""
    target = os.path.realpath(path) + ("" if os.path.basename(path) else "/")
    folder, is_open = os.path.dirname(target), os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    for is_refused, reason in (
            (os.path.isdir(target), "it is a directory"), (target.endswith("/"), "it names no file"),
            (os.path.islink(target), "its links do not end"),
            (is_open or os.path.exists(target) and not os.path.isfile(target), "it is not a regular file"),
            (not os.path.isdir(folder), f"there is no folder {folder}"),
            (not os.access(folder, os.W_OK), f"the folder {folder} takes no files"),
            (target in others, f"it is the same file as {others.get(target)}")):
        if is_refused:
            fail(f"{name}: cannot be written, {reason}")
    return target


def _print(text: str) -> None:
    try:
        if sys.stdout is None:  # it was closed before the program began
            raise OSError
        print(text, end="", flush=True)
    except OSError:
        fail("standard output: cannot be written to its end")


def write_all(contents: dict[str, np.ndarray | sympow.State], names: dict[str, str], text: str) -> None:
    """Writes files with these contents and names, and prints the text, or leaves none of the files and raises `BadInput`. A file
    keeps the mode of the one that it replaces. Signals that end the program do so afterwards."""
    caught, made, suffix = [], [], f".partial-{secrets.token_hex(4)}"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: caught.append(number))
    try:
        for target, content in contents.items():
            made.append(target + suffix)
            with open(target + suffix, "xb") as file:
                if os.path.exists(target):
                    shutil.copymode(target, target + suffix)
                if isinstance(content, np.ndarray):
                    np.save(file, np.asarray(content, order="C"))
            if isinstance(content, sympow.State):
                content.save(target + suffix)
        _print(text)
        for n, target in enumerate(contents):
            os.replace(target + suffix, target)
            made[n] = target
    except BaseException as error:
        for path in made:
            with contextlib.suppress(OSError):
                os.remove(path)
        if isinstance(error, OSError):  # as a `BadFile` is
            fail(f"{names[target]}: cannot be written to its end, {error}")
        raise
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def compare(problem: Problem, inputs: dict[str, Any], steps: np.ndarray, settings: dict[str, Any],
            start: sympow.State | None) -> tuple[list[str], bool]:
    """Says how far the forms are apart by the row rule, |Y - Y'| / (4 u K max|V| (1 + √n)), and whether they agree. `steps` are
    β |w|² of a chain. The measure is the attention form in double; from a state, the recurrent form."""
    def run(form: str, inputs: dict[str, Any]) -> tuple[np.ndarray, sympow.Diagnostics]:
        of_form, state = sympow.Attention(form=form, **settings), None if start is None else start.copy()
        said = of_form.diagnose(**inputs, state=state)
        return of_form(**inputs, state=state), said

    before = start and np.array([[float(start.tokens(b, h)) for h in range(problem.H)] for b in range(problem.B)])  # tokens
    options, info, is_row = problem.options, np.finfo(problem.dtype), ~problem.is_padding[..., None]
    unit, least, most = float(info.eps) / 2, 2 * float(info.tiny), float(info.max)
    forms = {"attention": math.inf} if before is None else {}  # and the tokens of each between updates of its state
    if options.has_state:
        forms |= {"chunked": options.chunk or min(48, max(problem.T, 1)), "recurrent": 1}  # the library takes at least 48
    if "--theta" in options or "--householder" in options:  # keys move on token by token
        forms = dict.fromkeys(forms, 1)
    sides = {form: run(form, inputs) for form in forms}
    rows, said = sides["attention" if before is None else "recurrent"]
    if before is None and problem.type == "f4":
        rows, said = run("attention", {name: x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x
                                       for name, x in inputs.items()})
    denominator = np.exp(said.log_sum)
    condition = said.condition if options.divides else np.exp(np.log(said.condition) + said.log_sum)
    # Weights are those of keys as given, before a chain makes them longer.
    growth = np.cumprod(np.maximum(1, abs(1 - steps)), axis=1)
    condition = condition * (growth.repeat(problem.group, axis=2) if "--householder" in options else 1)
    gates = np.ones(condition.shape) if inputs["log_gates"] is None else np.exp(inputs["log_gates"].astype(float))
    window, last = np.empty_like(condition), 0 if before is None else before
    for t in range(problem.T):
        window[:, t] = last = 1 + gates[:, t] * last
    sizes = np.where(is_row[..., None], abs(inputs["values"]), 0).max(axis=3).astype(float)
    largest = sizes.max(axis=1, initial=0, keepdims=True).repeat(problem.group, axis=2)
    if before is not None:  # |Y_i| is at most K_i max|V|, earlier values included
        bound = abs(rows).max(axis=3) / condition
        bound[~(np.isfinite(bound) & is_row & (before > 0)[:, None])] = 0
        largest = np.maximum(largest, bound.max(axis=1, initial=0, keepdims=True))

    def is_degenerate(unit: float) -> np.ndarray:
        return (denominator == 0) | (condition * (16 * unit) >= 1)

    # Rows that every form must see alike: those that say something, and not just barely, in the range of the type.
    flags, size = np.sum([of.is_degenerate for _, of in sides.values()], axis=0), condition * largest
    fits = (least <= size) & (size <= most) & (largest >= 1024 * least) & np.isfinite(rows).all(axis=3)
    fits |= (size == 0) & (rows == 0).all(axis=3)
    in_some = is_row & (0 < flags) & (flags < len(sides)) & ~(is_degenerate(2 * unit) & ~is_degenerate(unit / 2))
    without = is_row & ~in_some & is_degenerate(2 * unit) & options.divides
    beyond = is_row & ~in_some & ~without & ~fits
    kept = is_row & ~(in_some | without | beyond)

    def ratio(a: np.ndarray, b: np.ndarray, tokens: float) -> float:
        """That of the worst row. Fast gates cut chunks into pieces of at least 8 tokens, in double up to four to a window."""
        pieces = np.minimum(window / 8, 4 if problem.type == "f8" else 2 / 27) if 1 < tokens < math.inf else 0
        allowed = 4 * unit * (1 + np.sqrt(np.maximum(window / tokens, pieces))) * condition * largest
        difference = abs(a.astype(float) - b).max(axis=3)
        ratios = np.where(difference == 0, 0, np.nan_to_num(difference / allowed, nan=math.inf, posinf=math.inf))
        return float(ratios[kept].max(initial=0))

    from_double = {form: ratio(sides[form][0], rows, tokens) for form, tokens in forms.items() if before is None}
    between = [ratio(sides[a][0], sides[b][0], min(forms[a], forms[b])) for a, b in itertools.combinations(forms, 2)]
    is_finite = all(np.isfinite(y[~problem.is_padding]).all() for y, _ in sides.values())
    worst = max([*from_double.values(), *between, math.inf if options.divides and not is_finite else 0])
    agree = worst <= 1 and not in_some.any()
    lines = ["recurrent and chunked from --state-in"] if before is not None else []
    lines += ["attention   gives the rows in double" if form == "attention" and problem.type == "f8" else
              f"{form:10} {x:8.3f} from the rows in double" for form, x in from_double.items()]
    lines.append(f"largest    {worst:8.3f} by the row rule: the forms {'agree' if agree else 'DISAGREE'}")
    lines += [f"{found.sum()} of {_counted(problem.H * is_row.sum(), 'row')} {text}" for found, text in (
        (in_some, "with information in one form and none in another"), (without, "without information, not compared"),
        (beyond, "beyond the range of the type, not compared")) if found.any()]
    return lines, agree


def _gradients(problem: Problem, found: dict[str, Any], inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """The gradient in every array that was given and in --scale, by option, as in files. Raises `BadInput` for NaN."""
    options, dv = problem.options, found["values"]
    if "--delta-rule" in options:  # values are β v: dβ has v·dV besides, and dv = β dV
        of_pairs = np.where(problem.is_padding[..., None, None], 0, problem.view("--v").astype(float) * dv)
        found["strengths"] += of_pairs.sum(axis=3).astype(found["strengths"].dtype)
        strengths = np.where(problem.is_padding[..., None], 0, inputs["strengths"])
        found["values"] = dv * strengths.astype(problem.dtype)[..., None]
    gradients = {option: found[name] if option == "--theta" else problem.in_file(found[name])
                 for option, name in _INPUTS.items() if option in options}
    if "--scale" in options:
        gradients["--scale"] = np.array(found["scale"])
    for option, x in gradients.items():
        _refuse_any(np.isnan(x), lambda at: f"the gradient of {options.text(option)}: entry {at} is not a number though the input "
                    f"is finite, what it is made of leaves the range of {problem.type}")
    return gradients


def _run(options: Options) -> int:
    problem, targets, names, contents = Problem(options), {}, {}, {}
    stem, extension = os.path.splitext(options["--out"])
    gradients = {option: f"{stem}_d{option[2:].replace('-', '_')}{extension}"
                 for option in (*_INPUTS, "--scale") if option in options and "--grad" in options}
    for option, path in *((x, options[x]) for x in _FILES if x in options), *((f"gradient of {x}", gradients[x]) for x in gradients):
        targets[option] = target_of(f"{option} {path}", path, names)
        names[targets[option]] = f"{option} {path}"
    inputs: dict[str, Any] = {name: problem.view(option) for option, name in _INPUTS.items()} | {"lengths": problem.lengths}
    if "--delta-rule" in options:
        inputs["values"] = inputs["values"] * inputs["strengths"].astype(problem.dtype)[..., None]
        bad = problem.in_file(~(np.isfinite(inputs["values"]) | problem.is_padding[..., None, None]))
        _refuse_any(bad, lambda at: f"{options.text('--strength')}: times entry {at} of {options.text('--v')} is beyond the range "
                    f"of {problem.type}")
    steps, growth = np.zeros((problem.B, problem.T, 1)), ""  # β |w|² of every token and head of keys
    if "--householder" in options:
        steps = inputs["strengths"] * np.square(inputs["householder"].astype(float)).sum(axis=3)
    is_growing = ~((0 <= steps) & (steps <= 2 + 16 * float(np.finfo(problem.dtype).eps)) | problem.is_padding[..., None])
    if is_growing.any():
        growth = (f"{np.sum(is_growing)} of {_counted(steps[~problem.is_padding].size, 'step')} of the chain can make keys grow: ST "
                  "|w|^2 is not in [0, 2]; it is with W / np.linalg.norm(W, axis=-1, keepdims=True) and np.clip(ST, 0, 2)")
    form = "attention" if not options.has_state else options.form.replace("auto", "automatic")
    settings = dict(scores=options.feature.replace("linear", "power"), power=options.power, chunk=options.chunk, threads=1,
                    normalisation="normalised" if options.divides else "unnormalised", scale=options.scale,
                    pairing=options.pairing.replace("-", "_"), features=options.features, seed=options.seed)
    attention, state, lines, agree = sympow.Attention(form=form, **settings), None, [], True
    if "--state-in" in options or "--state-out" in options:
        form = "chunked" if form == "automatic" else form  # which the library then takes
        state = sympow.State(attention, problem.B, problem.H, problem.d, problem.e, problem.dtype)
    if "--state-in" in options:
        state.load(options["--state-in"])
    if "--compare" in options:
        lines, agree = compare(problem, inputs, steps, settings, state if "--state-in" in options else None)
    if "--grad" in options:
        found = attention.vjp(problem.view("--grad"), **inputs, state=state)._asdict()
        contents |= {targets[f"gradient of {option}"]: x for option, x in _gradients(problem, found, inputs).items()}
    beyond = sum(int(np.isinf(x).sum()) for x in contents.values())
    if "--diagnostics" in options:
        said = attention.diagnose(**inputs, state=state)
        contents[targets["--diagnostics"]] = problem.in_file(np.stack(said, axis=-1).astype(np.float64))
    y = attention(**inputs, state=state)
    contents[targets["--out"]] = problem.in_file(y)
    if "--state-out" in options:
        contents[targets["--state-out"]] = state
    _refuse_any(problem.in_file(np.isnan(y).all(axis=3)), lambda at: f"--scale is {options.scale:g}: row {at} of Y is not a number "
                f"though the input is finite, its scores leave the range of {problem.type}{growth and '; ' + growth}")
    of = {"power": f" {options.power}", "random": f" {options.features}"}.get(options.feature, "")
    axes = ("(T, d)", "(H, T, d)", "(B, H, T, d)" if problem.heads_first else "(B, T, H, d)")[problem.axes - 2]
    q, k, v = (problem.files[option].shape for option in ("--q", "--k", "--v"))
    longest, outside = "" if problem.lengths is None else max(problem.lengths, default=0), np.sum(~np.isfinite(y))
    lines = [f"{options.feature}{of}, {_counted(problem.B * problem.H, 'head')} of {_counted(problem.T, 'token')}, d = {problem.d}, "
             f"e = {problem.e}, {'float' if problem.type == 'f4' else 'double'}, {form} form", f"Q is {axes} = {q}, K {k}, V {v}",
             f"the longest sequence has {_counted(longest, 'token')}, the rest is padding" if longest != "" else "",
             "gradients in " + ", ".join(gradients.values()) if gradients else "", growth,
             f"{outside} of {y.size} entries of Y beyond the range of the type" if outside else "",
             f"{_counted(beyond, 'infinite number')} in gradients" if beyond else "", *lines]
    write_all(contents, names, "".join(line + "\n" for line in lines if line))
    return 0 if agree else 1


def main(argv: Sequence[str]) -> int:
    """Runs the program on the words of a command line; returns its exit status."""
    try:
        if "--help" in argv or "-h" in argv:
            _print(USAGE)
            return 0
        options = Options(argv)
        with np.errstate(all="ignore"):
            return _run(options)
    except MemoryError:
        text = "there is not enough memory for these arrays"
    except sympow.BadFile as error:
        text = f"--state-in {error}"
    except (BadInput, sympow.SympowError) as error:
        of_state = not isinstance(error, BadInput) and "--state-in" in options and "state" in str(error)
        text = f"{options.text('--state-in')}: {error}" if of_state else str(error)
    if sys.stderr is not None:
        print("sympow-attend:", re.sub(r"[\x00-\x1f\x7f]", "?", text), file=sys.stderr)
    return 2
