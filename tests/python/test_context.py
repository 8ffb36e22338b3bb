"""Tests of sympow.torch.context_parallel: processes together against one, by the row rule.  python3 test_context.py"""

import functools
import math
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
    from torch import distributed, multiprocessing
except ImportError:
    print("PyTorch 2.4 or later is not installed for", sys.executable, "- context_parallel is not tested: ./dev python")
    sys.exit(77)
if not (distributed.is_available() and distributed.is_gloo_available()):
    print("PyTorch was built without gloo - context_parallel is not tested")
    sys.exit(77)
import sympow.torch
from sympow.torch import State, context_parallel
from sympow.torch.nn import ConformalSympow

B, H, D_KEY, D_VALUE, TOKENS, LATER = 2, 4, 4, 3, 40, 4  # and the tokens after these
CHUNK = 8
PARTS = {2: (23, 17), 3: (15, 11, 14)}  # tokens of the ranks
OF_TOKENS = ("queries", "keys", "values", "log_gates", "beta", "channel_gates", "householder", "strengths")


class Case:
    """One sequence: its tensors, the gradient in its rows and options."""

    def __init__(self, *given, power=2, Hk=2, Hg=2, axes=0, seed=1, parts=None, lengths=None, layout="bthd", **options):
        random = torch.Generator().manual_seed(seed)
        T = TOKENS + LATER

        def normal(*shape):
            return torch.randn(*shape, dtype=torch.float64, generator=random)

        def uniform(*shape):
            return torch.rand(*shape, dtype=torch.float64, generator=random)

        tensors = dict(queries=normal(B, T, H, D_KEY), keys=normal(B, T, Hk, D_KEY), values=normal(B, T, Hk, D_VALUE))
        turned = options.get("rotary_dim", D_KEY) // 2
        w = torch.nn.functional.normalize(normal(B, T, Hk, D_KEY), dim=3)
        made = dict(log_gates=-0.2 * uniform(B, T, Hg), channel_gates=-0.3 * uniform(B, T, Hk, D_KEY),
                    theta=normal(*[axes] * (axes > 0), turned), beta=1 + 0.3 * normal(B, T, Hk, *[axes] * (axes > 0)),
                    householder=w, strengths=2 * uniform(B, T, Hk))
        self.tensors = tensors | {name: made[name] for name in given}
        self.d_rows = normal(B, TOKENS, H, D_VALUE)
        self.options = dict(power=power, chunk=CHUNK, **options)
        self.parts, self.lengths, self.layout = parts, lengths, layout

    def part(self, begin, end, dtype):
        """Tensors of some tokens, which want gradients; Householder vectors are rounded as queries are."""
        of_queries = ("queries", "keys", "values", "householder")
        found = {}
        for name, x in self.tensors.items():
            x = x.float().to(dtype if name in of_queries else torch.float64)  # the same numbers in both types
            x = x[:, begin:end] if name in OF_TOKENS else x
            if self.layout == "bhtd" and name in OF_TOKENS:
                x = x.transpose(1, 2)
            found[name] = x.clone().requires_grad_()
        return found

    def lengths_of(self, begin, end):
        """Tokens of each sequence that lie in a part."""
        return None if self.lengths is None else (torch.tensor(self.lengths) - begin).clamp(0, end - begin)

    def d_rows_of(self, begin, end, dtype):
        return of_tokens(self, self.d_rows[:, begin:end].float().to(dtype))


CASES = {
    "gates of keys": Case("log_gates"),
    "gates of queries": Case("log_gates", Hg=4),
    "channel gates": Case("log_gates", "channel_gates"),
    "channel gates of a cube": Case("channel_gates", power=3),
    "rotary": Case("log_gates", "theta", "beta", pairing="half_split"),
    "rotary of some channels": Case("theta", pairing="interleaved", rotary_dim=2, Hk=4),
    "rotary of axes, gates of queries": Case("log_gates", "theta", "beta", pairing="interleaved", axes=2, Hg=4),
    "a cube that turns": Case("theta", "beta", power=3, pairing="interleaved"),
    "chains": Case("householder", "strengths", power=1, Hk=4),
    "chains with gates": Case("log_gates", "householder", "strengths", power=1),
    "chains with channel gates": Case("channel_gates", "householder", "strengths", power=1),
    "a fourth power, normalised": Case("log_gates", power=4),
    "squares, not normalised": Case("log_gates", normalisation="unnormalised", scale=0.7),
    "token by token": Case("log_gates", form="recurrent"),
    "a rank without tokens": Case("log_gates", "theta", pairing="interleaved", parts={2: (0, 40), 3: (22, 0, 18)}),
    "padding": Case("log_gates", "theta", "beta", pairing="interleaved", lengths=(40, 18)),
    "heads before tokens": Case("log_gates", "channel_gates", layout="bhtd"),
    "random features": Case("log_gates", scores="random", features=6),
}
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def bounds_of(parts):
    ends = [sum(parts[:n + 1]) for n in range(len(parts))]
    return list(zip([0, *ends[:-1]], ends))


def run_part(case, begin, end, dtype, call):
    """Rows, gradients by name and what else the call gives, of some tokens."""
    tensors, d_rows = case.part(begin, end, dtype), case.d_rows_of(begin, end, dtype)
    rows, state = call(**tensors, lengths=case.lengths_of(begin, end), return_state=True, layout=case.layout, **case.options)
    gradients = torch.autograd.grad(rows, list(tensors.values()), d_rows)
    return dict(rows=rows.detach(), gradients=dict(zip(tensors, gradients)), state=[x.detach() for x in state])


def same_bits(a, b):
    pairs = zip([a["rows"], *a["gradients"].values(), *a["state"]], [b["rows"], *b["gradients"].values(), *b["state"]])
    return all(torch.equal(x, y) for x, y in pairs)


def mistakes(rank):
    """Calls that some rank makes wrong, by name."""
    case = CASES["rotary"]
    tensors = case.part(rank * 10, rank * 10 + 10, torch.float64)
    small = {name: x[..., :2] if name in ("queries", "keys") else x[:1] if name == "theta" else x
             for name, x in tensors.items()}
    single = case.part(rank * 10, rank * 10 + 10, torch.float32)
    positive = tensors | {"log_gates": -tensors["log_gates"]}
    constant = tensors | {"keys": tensors["keys"].detach()}
    wide = tensors | {"values": tensors["values"][:, :5]}
    first = rank == 0

    def call(given, **changed):
        return functools.partial(context_parallel, **given, **(case.options | changed))

    return {
        "d": call(tensors if first else small),
        "power": call(tensors, power=2 if first else 4),
        "type": call(tensors if first else single),
        "gradients": call(tensors if first else constant),
        "gates": call(tensors if first else positive),
        "tokens": call(tensors if first else wide),
        "no tensor": call(tensors | ({} if first else {"keys": [1]})),
        "an option": call(tensors, **({} if first else dict(powers=2))),
        "form": call(tensors, form="attention"),
        "scores": call(tensors, scores="exponential"),
        "state": call(tensors, state=None),
        "mask": call(tensors, mask="full"),
    }


def example(rank, world):
    """The one of docs/python.md, and whether all ranks have the same gradient in θ."""
    case = CASES["rotary"]
    q, k, v, log_gates, theta = list(case.part(*bounds_of(PARTS[world])[rank], torch.float64).values())[:5]
    rows = context_parallel(q, k, v, log_gates=log_gates, theta=theta, pairing="half_split", power=2)
    loss = rows.square().sum()  # of this rank's tokens
    loss.backward()
    distributed.all_reduce(theta.grad)  # of a tensor that all ranks share: the sum of their gradients
    return dict(rows=rows.detach(), theta=theta.grad)


def layer_and_tokens():
    """A layer, and six sequences."""
    torch.manual_seed(1)
    return ConformalSympow(8, 4, key_heads=2, d=4, gate_bias=1.5).double(), torch.randn(6, 7, 8, dtype=torch.float64)


def data_parallel(rank, world):
    """The gradients of a layer whose sequences lie on all ranks: DistributedDataParallel gives their mean."""
    made, x = layer_and_tokens()
    shared = torch.nn.parallel.DistributedDataParallel(made)
    shared(x[rank::world]).square().sum().backward()
    return [parameter.grad for parameter in made.parameters()]


def work(rank, world, folder):
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    try:
        found = {}
        for name, case in CASES.items():
            begin, end = bounds_of((case.parts or PARTS)[world])[rank]
            for type_name, dtype in DTYPES.items():
                results = []
                for threads in (1, 2):
                    torch.set_num_threads(threads)
                    results.append(run_part(case, begin, end, dtype, context_parallel))
                found[name, type_name] = results[0] | {"repeats": same_bits(*results)}
        said = {}
        for name, call in mistakes(rank).items():
            try:
                call()
                said[name] = "nothing", ""
            except Exception as error:
                said[name] = type(error).__name__, str(error)
        group = distributed.new_group([0])
        case = CASES["gates of keys"]
        alone = functools.partial(context_parallel, group=group)
        if rank == 0:
            alone_gives = same_bits(run_part(case, 0, TOKENS, torch.float64, alone),
                                    run_part(case, 0, TOKENS, torch.float64, sympow.torch.attention))
            said["a group of one"] = "bits", str(alone_gives)
        else:
            with unittest.TestCase().assertRaisesRegex(sympow.InvalidArgument, "must hold this process"):
                run_part(case, 0, TOKENS, torch.float64, alone)
        found["example"] = example(rank, world)
        found["data parallel"] = data_parallel(rank, world)
        torch.save((found, said), f"{folder}/{rank}")
    finally:
        distributed.destroy_process_group()


@functools.lru_cache
def of_ranks(world):
    """What every rank has found."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (world, folder), world)
        return [torch.load(Path(folder, str(rank))) for rank in range(world)]


@functools.lru_cache
def of_one(name, type_name):
    """The same of one process."""
    return run_part(CASES[name], 0, TOKENS, DTYPES[type_name], sympow.torch.attention)


# ---- the row rule of docs/numerics.md, and that of gradients, for powers ----


def updates(case, parts):
    """√n of a row, at most: a state is updated once a chunk and once a rank; under chains once a token."""
    return math.sqrt(TOKENS if "householder" in case.tensors or case.options.get("form") == "recurrent" else
                     TOKENS / CHUNK + len(parts))


def allowed_in_rows(case, parts, unit, begin, end, state=None):
    """4 u K_i max|V| (1 + √n) of each row of some tokens, [B, T, H, 1]; A_i in the place of K_i of sums. They go on from
    a state, or from the first token."""
    first = 0 if state is None else begin
    tensors = {name: x.detach() for name, x in case.part(first, end, torch.float64).items()}
    options = {name: x for name, x in case.options.items() if name != "form"}
    lengths = case.lengths_of(first, end) if state is None else None
    of = sympow.torch.diagnose(**tensors, lengths=lengths, state=state, layout=case.layout, **options)
    size = of.condition * (of.log_sum.exp() if is_sum(case) else 1)
    allowed = 4 * unit * size * case.tensors["values"].abs().max() * (1 + updates(case, parts))
    return of_tokens(case, allowed)[:, begin - first:].nan_to_num(0).unsqueeze(3)


def of_tokens(case, x):
    """[B, T, H, …]."""
    return x.transpose(1, 2) if case.layout == "bhtd" else x


def is_sum(case):
    return case.options["power"] % 2 == 1 or case.options.get("normalisation") == "unnormalised"


def bounds_of_gradients(case, parts, unit):
    """The bounds of `sympow::verify::gradient_bounds`, by name, for entries of tokens."""
    T, P, scale = TOKENS, case.options["power"], case.options.get("scale", 1.0)
    x = {name: y.detach().double() for name, y in case.part(0, T, torch.float64).items()}
    heads = {name: of_tokens(case, y) for name, y in x.items() if name in OF_TOKENS}
    found = {name: torch.zeros_like(x[name]) for name in x}
    rates = x.get("theta")
    largest_values = x["values"].abs().max().item()
    seen = torch.ones(T, T, dtype=torch.bool).tril()  # row i, key j
    for b in range(B):
        length = T if case.lengths is None else case.lengths[b]
        inside = torch.arange(T) < length
        for h in range(H):
            of = {name: y[b, :, h * y.shape[2] // H] for name, y in heads.items()}
            q, k, dy = of["queries"], of["keys"], case.d_rows[b, :, h].abs() * inside.unsqueeze(1)
            mask = seen & inside & inside.unsqueeze(1)
            log_gates = of.get("log_gates", torch.zeros(T, dtype=torch.float64)).cumsum(0)
            weight = (log_gates.unsqueeze(1) - log_gates).exp() * mask
            logits, slow = logits_of(q, k, of, rates, case)
            size_q, size_k = abs(scale) * q.norm(dim=1), k.norm(dim=1)
            lengths = size_q.unsqueeze(1) * size_k * slow
            logits = scale * logits
            m, scores = weight * lengths ** P, weight * logits ** P
            den, again, of_rows = torch.ones(T, dtype=torch.float64), torch.zeros(T, dtype=torch.float64), 0.0
            if not is_sum(case):
                den = scores.sum(1).where(inside, torch.ones(()))
                again = m.sum(1) / den
                of_rows = (scores @ of["values"] / den.unsqueeze(1)).abs().amax(1)
            row = dy.sum(1) * (largest_values + of_rows)
            slope = (row / den).unsqueeze(1) * weight * slow * (
                lengths ** (P - 1) + again.unsqueeze(1) * logits.abs() ** (P - 1))
            coupling = slope * size_q.unsqueeze(1) * size_k
            between = flows(coupling)  # Σ of pairs j < t ≤ i
            frame = sum(P * between[end] for _, end in bounds_of(parts) if end < T)  # angles of states, which those have
            window = max(weight.sum(0).max().item(), weight.sum(1).max().item())
            rounds = 1.0 if "householder" in case.tensors else CHUNK
            total = (6 + P) * unit * (1 + math.sqrt(window / rounds + len(parts)))
            if rates is not None and unit < 1e-10:
                total += (6 + P) * unit * math.pi  # of angles, which are reduced
            by_name = dict(
                queries=abs(scale) * P * (slope * size_k).sum(1), keys=P * (slope * size_q.unsqueeze(1)).sum(0),
                values=((dy.amax(1) / den).unsqueeze(1) * (m + again.unsqueeze(1) * scores.abs())).sum(0),
                log_gates=between, channel_gates=P * between)
            if "householder" in of:
                w = of["householder"].norm(dim=1)
                by_name["householder"] = 2 * of["strengths"].abs() * w * between
                by_name["strengths"] = w * w * between
            if rates is not None:
                axes = rates.reshape(-1, rates.shape[-1])
                beta = of.get("beta", torch.ones(T, dtype=torch.float64)).reshape(T, -1)
                turned = beta.cumsum(0)
                apart = (turned.unsqueeze(1) - turned).abs()  # i, j, axis
                by_theta = (P * coupling.unsqueeze(2) * apart).sum((0, 1)) + frame * beta.abs().sum(0)
                found["theta"] += total * by_theta.reshape(-1, 1).expand(axes.shape).reshape(rates.shape)
                if "beta" in of:
                    by_beta = axes.abs().amax(1) * (P * between + frame).unsqueeze(1)
                    by_name["beta"] = by_beta.reshape(of["beta"].shape)
            for name, y in by_name.items():
                if name in found:
                    to = of_tokens(case, found[name])
                    to = to[b, :, h * to.shape[2] // H]
                    to += total * (y if y.dim() == to.dim() else y.unsqueeze(1))
    return found


def flows(pairs):
    """Σ_{j < t ≤ i} of pairs, [T, T] by i and j, for each t."""
    sums = pairs.flip(0).cumsum(0).flip(0).cumsum(1)
    return torch.cat([sums.new_zeros(1), sums.diagonal(-1)])


def logits_of(q, k, of, rates, case):
    """q_i·M_ij k_j, [T, T], and what the slowest channel leaves of a key; by the definition."""
    T, slow = len(q), torch.ones(len(q), len(q), dtype=torch.float64)
    if rates is not None:
        axes = rates.reshape(-1, rates.shape[-1])
        angles = (of.get("beta", torch.ones(T, dtype=torch.float64)).reshape(T, -1) @ axes).cumsum(0)
        q, k = (turned(x, angles, case.options["pairing"]) for x in (q, k))
    if "channel_gates" in of and "householder" not in of:
        gates = of["channel_gates"].cumsum(0)
        decays = (gates.unsqueeze(1) - gates).clamp(max=0).exp()
        return torch.einsum("ic,jc,ijc->ij", q, k, decays), decays.amax(2)
    if "householder" not in of:
        return q @ k.T, slow
    moved, logits = torch.zeros_like(k), []
    for i in range(T):
        w = of["householder"][i]
        if "channel_gates" in of:
            moved = moved * of["channel_gates"][i].exp()
        moved = moved - of["strengths"][i] * (moved @ w).unsqueeze(1) * w
        moved[i] = k[i]
        logits.append(moved @ q[i])
    return torch.stack(logits), slow


def turned(x, angles, pairing):
    """R(angles) x: the first channels turn in pairs."""
    n = angles.shape[1]
    first, second = (slice(0, n), slice(n, 2 * n)) if pairing == "half_split" else (slice(0, 2 * n, 2), slice(1, 2 * n, 2))
    y = x.clone()
    y[:, first] = angles.cos() * x[:, first] - angles.sin() * x[:, second]
    y[:, second] = angles.sin() * x[:, first] + angles.cos() * x[:, second]
    return y


class Together(unittest.TestCase):
    """Processes that share sequences, against one process in float64."""

    def each(self):
        for world, (name, case), type_name in ((w, c, t) for w in PARTS for c in CASES.items() for t in DTYPES):
            unit = 2.0 ** (-24 if type_name == "float32" else -53)
            parts = (case.parts or PARTS)[world]
            yield (self.subTest(world=world, case=name, dtype=type_name), name, case, parts,
                   [found[name, type_name] for found, _ in of_ranks(world)], unit)

    def within(self, found, wanted, allowed, name):
        self.assertEqual(found.shape, wanted.shape)
        apart = (found.double() - wanted).abs()
        worst = (apart / allowed.expand(apart.shape))[apart > 0].amax() if bool((apart > 0).any()) else 0
        self.assertLessEqual(float(worst), 1, name)

    def test_rows(self):
        for subtest, name, case, parts, ranks, unit in self.each():
            with subtest:
                rows = torch.cat([of_tokens(case, x["rows"]) for x in ranks], 1)
                wanted = of_tokens(case, of_one(name, "float64")["rows"])
                self.assertGreater(wanted.abs().amax().item(), 0)
                self.within(rows, wanted, allowed_in_rows(case, parts, unit, 0, TOKENS), "rows")

    def test_gradients(self):
        for subtest, name, case, parts, ranks, unit in self.each():
            if case.options.get("scores") == "random":
                continue
            with subtest:
                allowed, of_all = bounds_of_gradients(case, parts, unit), of_one(name, "float64")["gradients"]
                for of, wanted in of_all.items():
                    by_rank = [x["gradients"][of] for x in ranks]
                    found = sum(by_rank) if of == "theta" else torch.cat(by_rank, 2 if case.layout == "bhtd" else 1)
                    self.assertGreater(wanted.abs().amax().item(), 0)
                    self.within(found, wanted, allowed[of], of)

    def test_the_last_state_goes_on(self):
        begin, end = TOKENS, TOKENS + LATER
        for subtest, name, case, parts, ranks, unit in self.each():
            with subtest:
                def rows_after(state, dtype):
                    tensors = {name: x.detach() for name, x in case.part(begin, end, dtype).items()}
                    return of_tokens(case, sympow.torch.attention(**tensors, state=state, layout=case.layout, **case.options))

                found, of_whole = (State(*x["state"][:3 if "theta" in case.tensors else 2])
                                   for x in (ranks[-1], of_one(name, "float64")))
                allowed = allowed_in_rows(case, parts, unit, begin, end, None if case.lengths is None else of_whole)
                self.within(rows_after(found, found.sums.dtype), rows_after(of_whole, torch.float64), allowed, "rows")

    def test_example(self):
        q, k, v, log_gates, theta = list(CASES["rotary"].part(0, TOKENS, torch.float64).values())[:5]
        wanted = sympow.torch.attention(q, k, v, log_gates=log_gates, theta=theta, pairing="half_split", power=2)
        wanted.square().sum().backward()
        for world in PARTS:
            ranks = [found["example"] for found, _ in of_ranks(world)]
            torch.testing.assert_close(torch.cat([x["rows"] for x in ranks], 1), wanted, rtol=1e-7, atol=1e-7)
            for x in ranks:  # half of all digits: test_gradients has seen the rest
                torch.testing.assert_close(x["theta"], theta.grad, rtol=1e-7, atol=1e-7)

    def test_data_parallel(self):
        made, x = layer_and_tokens()
        made(x).square().sum().backward()
        for world in PARTS:
            for found, _ in of_ranks(world):
                for parameter, gradient in zip(made.parameters(), found["data parallel"]):
                    torch.testing.assert_close(world * gradient, parameter.grad, rtol=1e-12, atol=1e-12)

    def test_bits_repeat(self):
        for subtest, _, _, _, ranks, _ in self.each():
            with subtest:
                self.assertTrue(all(x["repeats"] for x in ranks))


class Mistakes(unittest.TestCase):
    """Every rank says what is wrong, and goes on."""

    WORDS = {  # on rank 0 and on rank 1
        "d": ("InvalidArgument", r"queries: float64 \[2, T, 4, 4\] with gradients on rank 0 and float64 \[2, T, 4, 2\] with "
                                 "gradients on rank 1, must be alike"),
        "power": ("InvalidArgument", "options: .*power=2,.* on rank 0 and .*power=4,.* on rank 1, must be alike"),
        "type": ("InvalidArgument", r"queries: float64 .* on rank 0 and float32 .* on rank 1, must be alike"),
        "gradients": ("InvalidArgument", "keys: .* with gradients on rank 0 and .* without gradients on rank 1"),
        "gates": ("InvalidArgument", r"^(rank 1: )?sequence 0, head 0: log_gates of token 0 is .*, must be at most 0"),
        "tokens": ("ShapeMismatch", r"^(rank 1: )?values: shape\[1\] is 5, must be 10"),
        "no tensor": ("TypeError", "^(rank 1: )?keys is a list, must be a tensor"),
        "an option": ("TypeError", "^(rank 1: )?there is no argument powers"),
        "form": ("InvalidArgument", "^options: the attention form has no states"),
        "scores": ("InvalidArgument", "^exponential scores have no embedding"),
        "state": ("TypeError", "^there is no argument state"),
        "mask": ("InvalidArgument", "^mask is 'full', must be 'causal': a rank sees"),
    }

    def test_every_rank_says_so(self):
        for world in PARTS:
            for rank, (_, said) in enumerate(of_ranks(world)):
                for name, (kind, words) in self.WORDS.items():
                    with self.subTest(world=world, rank=rank, mistake=name):
                        self.assertEqual(said[name][0], kind, said[name])
                        self.assertRegex(said[name][1], words)

    def test_a_group_of_one_is_one_process(self):
        self.assertEqual(of_ranks(2)[0][1]["a group of one"], ("bits", "True"))

    def test_no_process_group(self):
        x = torch.ones(1, 2, 1, 2)
        with self.assertRaisesRegex(sympow.InvalidArgument, "there is no process group: call torch.distributed"):
            context_parallel(x, x, x)


if __name__ == "__main__":
    sympow.version()
    unittest.main()
