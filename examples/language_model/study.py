#!/usr/bin/env python3
"""Trains and reads every model of study.toml, for so many minutes; goes on where it stopped.

    study.py PROGRAM --data FOLDER --minutes 180 [--jobs 2] [--work build/study] [--results docs/study]

Several runs at a time, a thread each. Checkpoints lie in --work. What a finished run says goes to three tables in
--results, after which it is not made again:

    runs.csv        the held-out loss at the training context, and that of the last tenth of training
    curves.csv      the training loss, means of forty steps
    positions.csv   the held-out loss by position, means of half octaves
"""
import argparse
import csv
import itertools
import math
import os
import pathlib
import signal
import subprocess
import sys
import time
import tomllib

KEYS = ["setting", "power", "d", "gate_bias", "context", "seed"]
TABLES = {
    "runs": ["steps", "bytes", "weights", "state_bytes", "training_loss", "held_out_loss"],
    "curves": ["step", "loss"],
    "positions": ["from", "to", "loss"],
}


def runs_of(study):
    """Every run, as its options."""
    for model in study["models"]:
        words = f"{study['options']} {model['options']}".split()
        for seed, context, setting in itertools.product(model["seeds"], model["contexts"], model["settings"]):
            yield {
                "--gate_bias": "6.9",
                **dict(zip(words[::2], words[1::2])),
                "--setting": setting,
                "--power": str(model["power"]),
                "--context": str(context),
                "--batch": str(study["bytes_of_step"] // context),
                "--steps": str(study["steps"]),
                "--seed": str(seed),
            }


def key_of(run):
    return tuple(run["--" + name] for name in KEYS)


def finished(results):
    with open(results / "runs.csv", newline="") as table:
        return {tuple(row[name] for name in KEYS) for row in csv.DictReader(table)}


def state_bytes(run):
    """Of all heads and layers: D (d + 1) floats of a power; softmax keeps the keys and values of a context."""
    d, layers, heads = (int(run[name]) for name in ("--d", "--layers", "--heads"))
    if run["--setting"] == "softmax":
        return 4 * layers * heads * 2 * d * int(run["--context"])
    return 4 * layers * heads * math.comb(d + int(run["--power"]) - 1, int(run["--power"])) * (d + 1)


def mean(numbers):
    return sum(numbers) / len(numbers)


def rows_of(run, folder, weights):
    """What a finished run adds to the tables."""
    with open(folder / "loss.csv", newline="") as table:
        of_step = {int(row["step"]): float(row["loss"]) for row in csv.DictReader(table)}
    losses = [of_step[step] for step in sorted(of_step)]
    with open(folder / "positions.csv", newline="") as table:
        read = [float(row["loss"]) for row in csv.DictReader(table)]
    ends = sorted({min(len(read), math.ceil(2 ** (n / 2))) for n in range(2 * len(read).bit_length())})
    context = int(run["--context"])
    return {
        "runs": [[run["--steps"], len(losses) * context * int(run["--batch"]), weights, state_bytes(run),
                  f"{mean(losses[-(len(losses) // 10):]):.5f}", f"{mean(read[:context]):.5f}"]],
        "curves": [[min(n + 40, len(losses)), f"{mean(losses[n:n + 40]):.5f}"] for n in range(0, len(losses), 40)],
        "positions": [[begin, end, f"{mean(read[begin:end]):.5f}"] for begin, end in zip([0, *ends], ends)],
    }


def append(results, name, rows):
    """Adds rows to a table and returns when they are on the disk."""
    with open(results / f"{name}.csv", "a", newline="") as table:
        csv.writer(table, lineterminator="\n").writerows(rows)
        table.flush()
        os.fsync(table.fileno())


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).parent
    words.add_argument("program")
    words.add_argument("--data", required=True)
    words.add_argument("--minutes", type=float, default=180)
    words.add_argument("--jobs", type=int, default=os.cpu_count())
    words.add_argument("--study", type=pathlib.Path, default=here / "study.toml")
    words.add_argument("--work", type=pathlib.Path, default=here / "../../build/study")
    words.add_argument("--results", type=pathlib.Path, default=here / "../../docs/study")
    given = words.parse_args()
    study = tomllib.loads(given.study.read_text())
    given.results.mkdir(parents=True, exist_ok=True)
    for name, columns in TABLES.items():
        if not (given.results / f"{name}.csv").exists():
            append(given.results, name, [KEYS + columns])

    runs = list(runs_of(study))
    done = finished(given.results)
    left = [run for run in runs if key_of(run) not in done]
    begin, running = time.monotonic(), []

    def start(run, command):
        folder = given.work / "_".join(key_of(run))
        folder.mkdir(parents=True, exist_ok=True)
        if command == "train":
            options = {**run, "--data": given.data}
        else:
            length = min(8 * int(run["--context"]), study["longest_read"])
            options = {"--length": str(length), "--windows": str(study["bytes_read"] // length),
                       "--csv": str(folder / "positions.csv")}
        options |= {"--out": str(folder), "--threads": "1"}
        with open(folder / f"{command}.txt", "w") as said:
            process = subprocess.Popen([given.program, command, *itertools.chain(*options.items())], stdout=said,
                                       stderr=subprocess.STDOUT)
        running.append((run, command, folder, process))

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("study: ended by a signal"))  # and runs with it, below
    try:
        while left or running:
            while left and len(running) < given.jobs:
                start(left.pop(0), "train")
            time.sleep(.2)
            for entry in [entry for entry in running if entry[3].poll() is not None]:
                run, command, folder, process = entry
                running.remove(entry)
                said = (folder / f"{command}.txt").read_text()
                if process.returncode != 0:
                    sys.exit(f"study: {command} of {' '.join(key_of(run))}: {said.splitlines()[-1]}")
                if command == "train":
                    (folder / "weights").write_text(said.split(" weights")[0].split()[-1])
                    start(run, "evaluate")
                    continue
                tables = rows_of(run, folder, (folder / "weights").read_text())
                for name in ("curves", "positions", "runs"):  # a run is finished when runs.csv has it
                    append(given.results, name, [[*key_of(run), *row] for row in tables[name]])
                done.add(key_of(run))
                minutes = (time.monotonic() - begin) / 60
                print(f"{len(done)} of {len(runs)} runs, {minutes:.0f} min: {' '.join(key_of(run))}: "
                      f"held-out loss {tables['runs'][0][-1]}", flush=True)
            if time.monotonic() - begin > 60 * given.minutes:
                print(f"study: {given.minutes:g} minutes are over, {len(runs) - len(done)} runs are left", flush=True)
                return
    finally:
        for _, _, _, process in running:
            process.kill()  # it goes on from its checkpoint
            process.wait()


main()
