#!/usr/bin/env python3
"""sympow beside what a user would pick on a CPU: JAX and PyTorch.

    python3 bench/peers/run.py [--out build/peers] [--tokens 256 1024 4096 16384 65536] [--page docs/performance.md]

One head of gated symmetric-power attention, p = 2, d = e = 64, normalised rows, float, one core, all in one process:
the papers' quadratic listing and a chunked scan in each library, sympow's three forms, and decoding, one token
against a state; softmax attention beside PyTorch's; and gradients, the scans forward and backward. Every result is
checked against the definition in float64 by the row rule before anything is timed.

Writes results.json, table.md and two plots to --out. --page replaces the table of a page between its markers and puts the plots beside it.
The first run makes a virtual environment in build/peers/venv from requirements.txt (PyTorch's wheel is large: 6 GB with all it brings).
It installs the package there, too, as `pip install .` does; SYMPOW_C_LIBRARY names a library in place of the package's.
"""

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "peers"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BUILD)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024, 4096, 16384, 65536])
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    if any(T < 128 or T % 128 for T in chosen.tokens):
        parser.error("--tokens must be multiples of 128, the chunk of the scans in JAX and PyTorch")
    if chosen.page and not chosen.page.is_file():
        parser.error(f"--page {chosen.page}: there is no such page")
    return chosen


def enter_environment():
    """Goes on inside of the virtual environment, made anew when the requirements have changed."""
    home, wanted = BUILD / "venv", HERE / "requirements.txt"
    if Path(sys.prefix) == home:
        return
    installed = home / wanted.name
    if not installed.exists() or installed.read_text() != wanted.read_text():
        print("installing", ", ".join(wanted.read_text().split()), "into", home, flush=True)
        venv.create(home, clear=True, with_pip=True)
        subprocess.run([home / "bin/pip", "install", "--quiet", "--requirement", wanted], check=True)
        shutil.copy(wanted, installed)
    python = home / "bin/python"
    os.execv(python, [python, __file__, *sys.argv[1:]])


def install_package():
    """The package of this checkout, as pip compiles it, when something of it has changed."""
    stamp, parts = BUILD / "installed", ["include", "python", "CMakeLists.txt", "pyproject.toml"]
    files = (path for part in parts for path in [ROOT / part, *(ROOT / part).rglob("*.*")])
    newest = max(path.stat().st_mtime for path in files if "__pycache__" not in path.parts)
    if "SYMPOW_C_LIBRARY" in os.environ:
        sys.path.insert(0, str(ROOT / "python"))
    elif not stamp.exists() or stamp.stat().st_mtime < newest:
        print("compiling the package, which takes 20 minutes of a processor's time", flush=True)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", ROOT], check=True)
        stamp.touch()


def main():
    chosen = arguments()
    enter_environment()
    install_package()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core for all, before a library counts them
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import measure
    import report

    if chosen.page and not report.has_markers(chosen.page):
        sys.exit(f"{chosen.page} has no place for the table: it must hold {report.BEGIN} and {report.END}, once each")
    results = measure.everything(chosen.tokens)
    report.write(results, chosen.out, chosen.page)
    print((chosen.out / "table.md").read_text(), end="")


if __name__ == "__main__":
    main()
