"""Checks every form of every library, then takes times, the libraries in turns."""

import sys
import time

import definition
import in_jax
import in_sympow
import in_torch
import jax
import jax.numpy as jnp
import numpy as np
import sympow
import torch

D = E = 64
PREFILL, DECODED = 4096, 256
SYMPOW_CHUNK = 64  # what the library chooses
LONGEST = 60  # seconds that one call may take
SHORTEST_OF_GRADIENTS = 4096
JUDGED_OF_SOFTMAX = 8192  # the length of the bar


def sequence(T):
    """q, k, v and log gates of about -.001, whose windows are a thousand tokens."""
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((T, n), dtype=np.float32) for n in (D, D, E))
    return q, k, v, (-0.002 * random.random(T)).astype(np.float32)


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def seconds(call):
    """Of the processor: all is on one core, where what others do does not count."""
    start = time.process_time()
    call()
    return time.process_time() - start


def check(name, rows, y, tokens_per_update):
    ratio = rows.ratio(y, tokens_per_update)
    if not ratio <= 1:
        sys.exit(f"{name} breaks the row rule by {ratio:.2g}: nothing was timed")
    return ratio


def in_turns(calls, rounds=200, at_least=3, enough=5):
    """The best seconds of each call: they take turns, and leave after some rounds when they have had enough seconds."""
    times = {name: [] for name in calls}
    for turn in range(rounds):
        for name, call in calls.items():
            if turn < at_least or sum(times[name]) < enough:
                times[name].append(seconds(call))
    return {name: min(taken) for name, taken in times.items()}


def memory():
    """Bytes that are free."""
    lines = open("/proc/meminfo").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


def forms(tokens):
    """Name: a callable that returns the outputs of all tokens, and the tokens of an update of its state."""
    in_arrays, in_tensors = [jnp.asarray(x) for x in tokens], [torch.from_numpy(x) for x in tokens]
    never = np.inf
    return {
        "JAX quadratic": (lambda: in_jax.quadratic(*in_arrays).block_until_ready(), never),
        "PyTorch quadratic": (lambda: in_torch.quadratic(*in_tensors), never),
        "sympow attention": (in_sympow.attention("attention", *tokens), never),
        "JAX chunked": (lambda: in_jax.chunked(*in_arrays)[0].block_until_ready(), in_jax.CHUNK),
        "PyTorch chunked": (lambda: in_torch.chunked(*in_tensors)[0], in_torch.CHUNK),
        "sympow chunked": (in_sympow.attention("chunked", *tokens), SYMPOW_CHUNK),
        "sympow recurrent": (in_sympow.attention("recurrent", *tokens), 1),
    }


def some_rows(T):
    return sorted({*np.random.default_rng(2).integers(0, T, 48), *range(16), T - 1})


def over_tokens(T, before):
    """Seconds of each form over T tokens, and its error; a reason in place of what does not fit."""
    tokens = sequence(T)
    rows = definition.power_rows(*tokens, some_rows(T))
    calls, errors, left_out = {}, {}, {}
    for name, (call, tokens_per_update) in forms(tokens).items():
        is_listing, is_quadratic = "quadratic" in name, "quadratic" in name or "attention" in name
        earlier, shorter = before.get(name, (0, T))
        if is_listing and 4 * 4 * T * T > memory():
            left_out[name] = "memory"
        elif earlier is None or earlier * (T / shorter) ** (2 if is_quadratic else 1) > LONGEST:
            left_out[name] = "time"
        else:
            say(f"T = {T}: {name}")
            errors[name] = check(name, rows, call(), tokens_per_update)
            calls[name] = call
    say(f"T = {T}: times")
    best = in_turns(calls)
    before.update({name: (best.get(name), T) for name in [*best, *left_out]})
    return {"seconds": best, "errors": errors, "left_out": left_out}


def softmax(T, before):
    """Seconds of causal softmax attention over T tokens, without gates, and its error; nothing where a call would take too long."""
    q, k, v, _ = sequence(T)
    if before and before["seconds"]["PyTorch"] * (T / before["T"]) ** 2 > LONGEST:
        return None
    say(f"T = {T}: softmax attention")
    rows = definition.softmax_rows(q, k, v, some_rows(T))
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    calls = {"PyTorch": lambda: in_torch.softmax(*tensors), "sympow": in_sympow.softmax(q, k, v)}
    errors = {name: check(f"softmax attention in {name}", rows, call(), np.inf) for name, call in calls.items()}
    return {"T": T, "seconds": in_turns(calls), "errors": errors}


def gradients(T):
    """Seconds of forward and backward over T tokens by the chunked scans, and the largest error of each beside the largest entry."""
    tokens, dy = sequence(T), np.random.default_rng(3).standard_normal((T, E), dtype=np.float32)
    say(f"T = {T}: gradients")
    wanted = definition.Gradients(*tokens, dy)
    in_arrays, in_tensors = [jnp.asarray(x) for x in (*tokens, dy)], [torch.from_numpy(x) for x in (*tokens, dy)]
    calls = {
        "JAX": lambda: jax.block_until_ready(in_jax.gradients(*in_arrays)),
        "PyTorch": lambda: in_torch.gradients(*in_tensors),
        "sympow": in_sympow.gradients(*tokens, dy),
    }
    chunks, errors = {"JAX": in_jax.CHUNK, "PyTorch": in_torch.CHUNK, "sympow": SYMPOW_CHUNK}, {}
    for name, call in calls.items():
        found = dict(zip(("q", "k", "v", "log_gamma"), call()))
        ratio = max(wanted.ratio(of, found[of], chunks[name]) for of in found)
        errors[name] = max(wanted.error(of, found[of]) for of in found)
        if not (ratio <= 1 and errors[name] <= 2.0**-12):  # the row rule, and half of all digits
            sys.exit(f"gradients of {name} are {ratio:.2g} row rules and {errors[name]:.2g} off: nothing was timed")
    return {"T": T, "seconds": in_turns(calls), "errors": errors}


def decoders(tokens):
    """Name: a callable that takes token t and returns its output; all have seen the first tokens."""
    prefill = [x[:PREFILL] for x in tokens]
    columns = [x if x.ndim == 2 else x[:, None] for x in tokens]
    pieces = [[x[t : t + 1] for x in columns] for t in range(PREFILL, PREFILL + DECODED)]
    in_arrays, in_tensors = [[jnp.asarray(x) for x in p] for p in pieces], [
        [torch.from_numpy(x) for x in p] for p in pieces
    ]

    in_jax_state = in_jax.chunked(*map(jnp.asarray, prefill))[1].T.copy()
    in_torch_state = in_torch.chunked(*map(torch.from_numpy, prefill))[1].T.contiguous()
    embed = in_torch.Embedding(D)

    def in_jax_step(t):
        nonlocal in_jax_state
        in_jax_state, y = in_jax.step(in_jax_state, *in_arrays[t])
        return y.block_until_ready()

    return {
        "JAX": in_jax_step,
        "PyTorch": lambda t: in_torch.step(embed, in_torch_state, *in_tensors[t]),
        "sympow": in_sympow.decoder(prefill, [[*p[:3], p[3][:, 0]] for p in pieces]),
    }


def decoding():
    """Seconds a token of each, after a prefill."""
    tokens = sequence(PREFILL + DECODED)
    rows = definition.power_rows(*tokens, range(PREFILL, PREFILL + DECODED, 8))
    calls, errors = {}, {}
    for name, step in decoders(tokens).items():
        say(f"decoding: {name}")
        y = np.zeros((PREFILL + DECODED, E))
        for t in range(DECODED):
            y[PREFILL + t] = step(t)
        errors[name] = check(f"decoding in {name}", rows, y, 1)
        calls[name] = lambda step=step: [step(t) for t in range(DECODED)]
    say("decoding: times")
    return {"seconds": {name: best / DECODED for name, best in in_turns(calls).items()}, "errors": errors}


SAME_INSTRUCTIONS = {"x86-64-v2": "DEFAULT", "x86-64-v3": "AVX2", "x86-64-v4": "AVX512"}


def instructions():
    """Which of their kernels both take, sympow's by its level of x86-64; a warning where these are not of one kind."""
    own, theirs = sympow.show_config("dicts")["processor"], torch.backends.cpu.get_cpu_capability()
    say(f"instructions: sympow {own}, PyTorch {theirs}")
    if SAME_INSTRUCTIONS.get(own) != theirs:
        say("warning: sympow and PyTorch use different instructions: their times are not of the same kind of code")
    return {"sympow": own, "PyTorch": theirs, "same": SAME_INSTRUCTIONS.get(own) == theirs}


def everything(lengths):
    torch.set_num_threads(1)
    used = instructions()
    of_gradients = [gradients(T) for T in sorted(set(lengths)) if T >= SHORTEST_OF_GRADIENTS]
    with torch.inference_mode():
        return forward(lengths) | {"gradients": of_gradients, "instructions": used}


def forward(lengths):
    before = {}
    versions = {"JAX": jax.__version__, "PyTorch": torch.__version__, "numpy": np.__version__, "sympow": sympow.__version__}
    over = {T: over_tokens(T, before) for T in sorted(set(lengths))}
    of_softmax = []
    for T in sorted({*lengths, JUDGED_OF_SOFTMAX}):
        if measured := softmax(T, of_softmax[-1] if of_softmax else None):
            of_softmax.append(measured)
    return {
        "d": D,
        "e": E,
        "threads": 1,
        "versions": versions,
        "tokens": over,
        "softmax": of_softmax,
        "judged_of_softmax": JUDGED_OF_SOFTMAX,
        "prefill": PREFILL,
        "decode": decoding(),
    }
