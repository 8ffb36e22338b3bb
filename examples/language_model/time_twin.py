"""Bytes a second of steps of training: the program's beside those of its twin in PyTorch, on the same cores, in turns.

    python3 time_twin.py LANGUAGE_MODEL TEXT [--setting softmax] [--context 1024] [--batch 8] [--threads 1] [--rounds 5]

and all options of the model, by the program's names.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import twin
import torch


def program_seconds(program: str, text: Path, c: twin.Config, context: int, batch: int, threads: int) -> float:
    """Of the program's second step of training."""
    with tempfile.TemporaryDirectory() as out:
        options = {**vars(c), "tied": int(c.tied), "cosine": int(c.cosine), "steps": 2, "context": context,
                   "batch": batch, "threads": threads, "data": text, "out": out}
        subprocess.run([program, "train", *(str(x) for name in options for x in ("--" + name, options[name]))],
                       check=True, stderr=subprocess.DEVNULL)
        first, second = (float(row.split(",")[-1]) for row in (Path(out) / "loss.csv").read_text().splitlines()[1:])
        return second - first


def take_times(program: str, text: Path, c: twin.Config, context: int, batch: int, threads: int, rounds: int) -> None:
    """One step of the program and one of the twin in turns."""
    torch.set_num_threads(threads)
    training = twin.Training(twin.Twin(c), c)
    data = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8).long()
    training.step(data[None, :65])
    ratios = []
    for _ in range(rounds):
        of_program = program_seconds(program, text, c, context, batch, threads)
        texts = torch.stack([data[n:n + context + 1] for n in torch.randint(len(data) - context, (batch,))])
        start = time.perf_counter()
        training.step(texts)
        of_twin = time.perf_counter() - start
        ratios.append(of_twin / of_program)
        tokens = batch * context
        print(f"{tokens / of_program:8.0f} bytes/s, twin {tokens / of_twin:8.0f}: {ratios[-1]:.2f} times")
    print(f"{c.setting}, p = {c.power}, context {context}, batch {batch}, threads {threads}: median "
          f"{statistics.median(ratios):.2f} times as fast as the twin, {min(ratios):.2f} … {max(ratios):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("text", type=Path)
    given = {**vars(twin.Config()), "context": 1024, "batch": 8, "threads": 1, "rounds": 5}
    for name, default in given.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    chosen = parser.parse_args()
    c = twin.Config(**{name: getattr(chosen, name) for name in vars(twin.Config())})
    take_times(chosen.program, chosen.text, c, chosen.context, chosen.batch, chosen.threads, chosen.rounds)


if __name__ == "__main__":
    main()
