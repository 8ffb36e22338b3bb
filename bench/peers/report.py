"""The results as JSON, as a table in markdown and as two plots."""

import datetime
import itertools
import json
import math
import os
import subprocess
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

BEGIN, END = "<!-- begin: written by bench/peers/run.py -->", "<!-- end: written by bench/peers/run.py -->"
COLOURS = {"JAX": "#009E73", "PyTorch": "#D55E00", "sympow": "#0072B2"}  # apart for those who see no red and green
MARKERS = {"JAX": "s", "PyTorch": "^", "sympow": "o"}
SOFTMAX_BARS = {"x86-64-v3": 1.2, "x86-64-v4": 1.15}  # times as fast as PyTorch's kernel, at the length that is judged
QUADRATIC = {"JAX": "JAX quadratic", "PyTorch": "PyTorch quadratic", "sympow": "sympow attention"}


def processor():
    entries = (line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    of = {name.strip(): value.strip() for name, value in entries}
    zen = {("AuthenticAMD", "25"): "Zen 3 or 4", ("AuthenticAMD", "26"): "Zen 5"}
    wide = "AVX-512" if "avx512f" in of.get("flags", "") else ""
    parts = of.get("model name"), zen.get((of.get("vendor_id"), of.get("cpu family"))), f"{os.cpu_count()} cores", wide
    return ", ".join(part for part in parts if part)


def crossover(tokens, library):
    """T from which on the chunked form is faster than the quadratic one, between measured lengths on a logarithmic scale."""
    quadratic, chunked = QUADRATIC[library], f"{library} chunked"
    measured = [(T, of["seconds"]) for T, of in tokens.items() if quadratic in of["seconds"]]
    advantages = [(T, math.log(seconds[quadratic] / seconds[chunked])) for T, seconds in measured]
    for (T, before), (U, after) in itertools.pairwise(advantages):
        if before < 0 <= after:
            return T * (U / T) ** (before / (before - after))
    return None


def softmax_bar(results, of):
    """What is asked of a length of softmax attention, and whether it holds; nothing where PyTorch runs another kind of code."""
    asked = SOFTMAX_BARS.get(results["instructions"]["sympow"])
    if of["T"] != results["judged_of_softmax"] or asked is None:
        return ""
    if not results["instructions"]["same"]:
        return f"at least {asked}: not judged"
    ratio = of["seconds"]["PyTorch"] / of["seconds"]["sympow"]
    return f"at least {asked}: " + ("pass" if ratio >= asked else "**short**")


def crossing(tokens, library):
    T = crossover(tokens, library)
    return f"{library} T = {float(f'{T:.2g}'):.0f}" if T else f"{library} not among these lengths"


def table(results):
    tokens = results["tokens"]
    forms = list(dict.fromkeys(name for of in tokens.values() for name in [*of["seconds"], *of["left_out"]]))
    forms.sort(key=[*QUADRATIC.values(), *(f"{name} chunked" for name in QUADRATIC), "sympow recurrent"].index)
    errors = {name: max(of["errors"].get(name, 0) for of in tokens.values()) for name in forms}

    def cell(of, name, T):
        return f"{1e6 * of['seconds'][name] / T:.2f}" if name in of["seconds"] else f"({of['left_out'][name]})"

    decode = results["decode"]
    lines = [
        f"Measured on {results['date']}: {results['processor']}; one thread, float, d = e = {results['d']}. "
        + ", ".join(f"{name} {version}" for name, version in results["versions"].items() if name != "numpy")
        + f", the package, whose library is for {results['instructions']['sympow']}; "
        f"PyTorch uses its kernels for {results['instructions']['PyTorch']}"
        + ("." if results["instructions"]["same"] else ": **not the same kind of code**."),
        "",
        "Microseconds a token, over T tokens:",
        "",
        "| T | " + " | ".join(forms) + " |",
        "|---:|" + "---:|" * len(forms),
        *(f"| {T} | " + " | ".join(cell(of, name, T) for name in forms) + " |" for T, of in tokens.items()),
        "| error by the row rule | " + " | ".join(f"{errors[name]:.2g}" for name in forms) + " |",
        "",
        "(memory): the T × T tables do not fit; (time): a call would take more than a minute. From where chunks are faster than the "
        "quadratic form: " + ", ".join(crossing(tokens, library) for library in QUADRATIC) + ".",
        "",
        "Causal softmax attention without gates, sympow's `Exponential` beside PyTorch's `scaled_dot_product_attention`:",
        "",
        "| T | PyTorch | sympow | sympow is faster by | |",
        "|---:|---:|---:|---:|---|",
        *(
            f"| {of['T']} | " + " | ".join(f"{1e6 * s / of['T']:.2f}" for s in of["seconds"].values())
            + f" | {of['seconds']['PyTorch'] / of['seconds']['sympow']:.2f} | {softmax_bar(results, of)} |"
            for of in results["softmax"]
        ),
        "| error by the row rule | "
        + " | ".join(f"{max(of['errors'][name] for of in results['softmax']):.2g}" for name in ("PyTorch", "sympow"))
        + " | | |",
        "",
        "Gradients of queries, keys, values and gates, forward and backward by the chunked scans, microseconds a token:",
        "",
        "| T | JAX | PyTorch | sympow | sympow is faster than the faster of both by |",
        "|---:|---:|---:|---:|---:|",
        *(
            f"| {of['T']} | " + " | ".join(f"{1e6 * s / of['T']:.2f}" for s in of["seconds"].values())
            + f" | {min(of['seconds'][name] for name in ('JAX', 'PyTorch')) / of['seconds']['sympow']:.2f} |"
            for of in results["gradients"]
        ),
        "| largest error beside the largest entry | "
        + " | ".join(f"{max((of['errors'][name] for of in results['gradients']), default=0):.2g}" for name in QUADRATIC)
        + " | |",
        "",
        f"Decoding, one token against a state after {results['prefill']} tokens, called from Python:",
        "",
        "| | " + " | ".join(decode["seconds"]) + " |",
        "|---|" + "---:|" * len(decode["seconds"]),
        "| microseconds a token | " + " | ".join(f"{1e6 * s:.1f}" for s in decode["seconds"].values()) + " |",
        "| error by the row rule | " + " | ".join(f"{error:.2g}" for error in decode["errors"].values()) + " |",
    ]
    return "\n".join(lines) + "\n"


def plot_tokens(results, path):
    figure, axes = plt.subplots(figsize=(6.5, 4.5))
    tokens = results["tokens"]
    for name in next(iter(tokens.values()))["seconds"]:
        library, form = name.split()
        points = [(T, 1e6 * of["seconds"][name] / T) for T, of in tokens.items() if name in of["seconds"]]
        style = {"chunked": "-", "recurrent": ":"}.get(form, "--")
        axes.loglog(*zip(*points), style, color=COLOURS[library], marker=MARKERS[library], markersize=5, label=name)
    softmax = [(of["T"], 1e6 * of["seconds"]["PyTorch"] / of["T"]) for of in results["softmax"]]
    axes.loglog(*zip(*softmax), "-.", color="black", marker="x", label="PyTorch SDPA, softmax without gates")
    for library in QUADRATIC:
        T = crossover(tokens, library)
        if T:
            axes.axvline(T, color=COLOURS[library], linewidth=0.7, alpha=0.6)
    axes.set_xticks(list(tokens), [f"{T}" for T in tokens])
    axes.minorticks_off()
    axes.set_title(f"Forward pass, p = 2, d = e = {results['d']}, one head, float, one thread\n{results['processor']}", fontsize=10)
    axes.set(xlabel="tokens T; vertical lines: from here on a library's chunks are faster", ylabel="microseconds per token")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def plot_decoding(results, path):
    figure, axes = plt.subplots(figsize=(7, 1.8))
    decode = {name: 1e6 * s for name, s in results["decode"]["seconds"].items()}
    bars = axes.barh(list(decode), list(decode.values()), color=[COLOURS[name] for name in decode])
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_title(f"One decoded token, p = 2, d = e = {results['d']}, one head, one thread; PyTorch eager", fontsize=10)
    axes.set(xlabel=f"microseconds per token, after {results['prefill']} tokens, called from Python")
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def has_markers(page):
    text = page.read_text()
    return text.count(BEGIN) == text.count(END) == 1


def write(results, out, page):
    plt.rcParams |= {"svg.hashsalt": "sympow", "svg.fonttype": "none"}
    version = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    results |= {"date": f"{datetime.date.today()}", "processor": processor(), "sympow": version.stdout.strip()}
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1, default=float) + "\n")
    text = table(results)
    (out / "table.md").write_text(text)
    for folder in [out, page.parent] if page else [out]:
        plot_tokens(results, folder / "peers_tokens.svg")
        plot_decoding(results, folder / "peers_decode.svg")
    if page:
        before, rest = page.read_text().split(BEGIN)
        page.write_text(before + BEGIN + "\n" + text + END + rest.split(END)[1])
