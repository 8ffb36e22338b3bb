#!/usr/bin/env python3
"""What nvcc makes of every kernel: registers, shared memory and instructions by kind, held against a table.

    python3 cuda/check/kernels.py --architecture 90a --sources build/cuda/cuda/generated [--only GLOB] [--nvcc nvcc] [--write]

Compiles the launches that CMake wrote into --sources, and cuda/src/library/kernels.cu, to machine code. A register in
memory, a wgmma that ptxas serialises (its notes C7500 to C7599) or any other warning is a failure. The rest is compared
with the table cuda/check/kernels_sm_ARCHITECTURE.txt, where that is of the same compiler; --write makes it anew. --only
"*_2_64" compiles the launches of power 2 and 64 channels, and those that all have in common; --write leaves the other
rows of the table as they are then.

Of the kernels for Hopper the table cuda/check/loops_sm_90a.txt has the instructions of a warp in a turn of their loops
with products: a tile of a state, what an octet of channels takes beside its tiles, and a tile of pairs, with both
branches; of Update 64 tokens, for four tiles and for the normaliser. More than there is a failure.

Instructions are counted where nvdisasm is found (in the CUDA toolkit, or `pip install nvidia-cuda-nvdisasm`), as they
stand in the code, not as often as they run. Shared memory and blocks a multiprocessor are the kernel's own constants.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CUDA = HERE.parent

# Columns of the table, by the names of instructions. Tensor cores: one HGMMA is of 64 rows, one HMMA of 16.
KINDS = {
    "hgmma": ("HGMMA",),
    "hmma": ("HMMA",),
    "ldsm": ("LDSM",),
    "lds": ("LDS",),
    "sts": ("STS",),
    "ldg": ("LDG", "LDGSTS"),
    "stg": ("STG",),
    "shfl": ("SHFL",),
    "mufu": ("MUFU",),
    "fp64": ("DADD", "DMUL", "DFMA", "DSETP", "F2F.F64", "F2F.F32.F64", "F2I.F64", "I2F.F64"),
    "bar": ("BAR", "WARPSYNC"),
}
COLUMNS = ["registers", "shared", "blocks", "instructions", *KINDS]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", required=True, help="80, 90a, 120, …")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--only", default="*", help="names of launches")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--cxx", default=os.environ.get("CXX", "c++"), help="for the kernels' constants")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def run(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(word) for word in command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def short(mangled):
    """Update<bf16, 2, 64> of the entry that launches it."""
    name = run(["c++filt", mangled]).strip()
    name = re.sub(r"\(sympow::cuda::block::Products\)1", "block::Products::fast", name)
    name = re.sub(r", \(sympow::cuda::block::Products\)0", "", name)
    name = name.replace(", false>", ">")  # without gradients of angles
    name = re.sub(r"(hopper::(?:Update|QueryGradients)<[^<>]*, \d+), 1>", r"\1>", name)  # with one tile of value channels
    name = re.sub(r"sympow::cuda::(block::(?!P))?", "", name).replace("> >", ">>")
    return re.fullmatch(r"void entry<(.*)>\(.*\)", name)[1]


def constants(sources, includes, cxx, scratch):
    """Shared bytes and blocks a multiprocessor of the kernels that these sources launch."""
    headers, kernels = [], []
    for source in sources:
        text = source.read_text()
        headers += [name.removeprefix("../") for name in re.findall(r'#include "(.*)"', text) if "launch" not in name]
        kernels += re.findall(r"^SYMPOW_CUDA_LAUNCH\((.*)\)", text, re.MULTILINE)
    lines = "".join(
        f'  std::printf("{kernel}: %d %d\\n", {kernel}::shared_bytes, {kernel}::blocks_per_multiprocessor);\n'
        for kernel in kernels)
    program = scratch / "constants.cpp"
    program.write_text("#include <cstdio>\n" + "".join(f'#include "{name}"\n' for name in dict.fromkeys(headers)) +
                       "using namespace sympow::cuda;\nusing block::bf16, block::fp16;\nint main() {\n" + lines + "}\n")
    run([cxx, "-std=c++20", *includes, program, "-o", scratch / "constants"])
    return {name: [int(number) for number in numbers.split()]
            for name, numbers in (line.split(": ") for line in run([scratch / "constants"]).splitlines())}


def compile_all(source, architecture, nvcc, includes, scratch):
    """Registers of each kernel, and the machine code."""
    cubin = scratch / (source.stem + ".cubin")
    log = run([nvcc, "-std=c++20", "-O3", f"-arch=sm_{architecture}", "-Werror", "all-warnings", "-Xptxas",
               "-v,-warn-spills", *includes, "-cubin", "-o", cubin, source])
    wrong = [line for line in log.splitlines() if re.search(r"C75\d\d|[1-9]\d* bytes spill|warning", line)]
    if wrong:
        sys.exit(f"{source.name}, sm_{architecture}:\n" + "\n".join(wrong))
    found = re.findall(r"entry function '(\S+)'.*?Used (\d+) registers", log, re.DOTALL)
    return cubin, {short(name): int(count) for name, count in found}


def count(cubin, nvdisasm):
    """Instructions of each kernel, by kind."""
    counts, kernel = {}, None
    for line in run([nvdisasm, "--print-code", cubin]).splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            kernel = counts.setdefault(short(section[1]), dict.fromkeys(["instructions", *KINDS], 0))
        elif kernel and (code := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)", line)):
            kernel["instructions"] += 1
            for kind, names in KINDS.items():
                if any(code[1] == name or code[1].startswith(name + ".") for name in names):
                    kernel[kind] += 1
    return counts


LOOPS = ["tile", "octet", "pairs", "stage", "normaliser"]  # the last two of Update, the others of gradients


def loops(cubin, nvdisasm):
    """Of each kernel for Hopper the lengths of its loops that hold an HGMMA."""
    kernels, name = {}, None
    for line in run([nvdisasm, "--print-code", cubin]).splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            name = short(section[1])
            kernels[name] = ([], {})
        elif name and (label := re.match(r"(\.L_x_\d+):", line)):
            kernels[name][1][label[1]] = len(kernels[name][0])
        elif name and (code := re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;", line)):
            kernels[name][0].append(code[1])
    found = {}
    for name, (code, labels) in kernels.items():
        if not name.startswith("hopper::"):
            continue
        ranges = set()
        for end, line in enumerate(code):
            jump = re.search(r"BRA.*?(\.L_x_\d+)", line)
            if jump and labels.get(jump[1], end + 1) <= end:
                ranges.add((labels[jump[1]], end + 1))
        ranges = sorted(r for r in ranges if any("HGMMA" in line for line in code[r[0]:r[1]]))
        lengths = dict.fromkeys(LOOPS, "-")
        found[name] = lengths
        if "Update<" in name:
            of = {}  # the shortest loop of so many products
            for a, b in sorted(ranges, key=lambda r: r[0] - r[1]):
                of[sum("HGMMA" in line for line in code[a:b])] = b - a
            lengths |= {"stage": str(of[16]), "normaliser": str(of[4])}
            continue
        octet = next(a for a in ranges if any(a[0] < b[0] and b[1] <= a[1] for b in ranges) and a[1] - a[0] < 1000)
        tile = next(b for b in ranges if octet[0] < b[0] and b[1] <= octet[1])
        pairs = min((b for b in ranges if b[0] >= octet[1]), key=lambda b: b[1] - b[0])
        size = [b - a for a, b in (tile, octet, pairs)]
        lengths |= dict(zip(LOOPS, map(str, (size[0], size[1] - size[0], size[2]))))
    return found


def compare_loops(found, path, first, write):
    """The loops of kernels against their table: none may be longer."""
    of, expected = read(path) if path.is_file() else (first, {})
    if write:
        path.write_text(table_of(expected | found, first, LOOPS))
        return
    if of != first:
        return
    worse = [f"{name} {loop}: {expected[name][loop]} -> {lengths[loop]}" for name, lengths in sorted(found.items())
             for loop in LOOPS if lengths[loop] != "-" and int(lengths[loop]) > int(expected[name][loop])]
    if worse:
        sys.exit("more instructions a turn:\n" + "\n".join(worse))


def table_of(rows, first, columns=COLUMNS):
    wide = max(len(name) for name in rows) + 2
    width = [max(len(column), *(len(row[column]) for row in rows.values())) + 2 for column in columns]
    lines = [first, "kernel".ljust(wide) + "".join(c.rjust(w) for c, w in zip(columns, width))]
    lines += [name.ljust(wide) + "".join(rows[name][c].rjust(w) for c, w in zip(columns, width)) for name in sorted(rows)]
    return "\n".join(lines) + "\n"


def read(path):
    first, head, *lines = path.read_text().splitlines()
    columns = head.split()[1:]
    rows = {}
    for line in lines:
        *name, numbers = re.fullmatch(r"(.*?)((?:\s+\S+){%d})" % len(columns), line).groups()
        rows[name[0].strip()] = dict(zip(columns, numbers.split()))
    return first, rows


def main():
    chosen = arguments()
    nvdisasm = shutil.which("nvdisasm") or shutil.which("nvdisasm", path=str(Path(chosen.nvcc).resolve().parent))
    if chosen.write and not nvdisasm:
        sys.exit("nvdisasm is not found: pip install nvidia-cuda-nvdisasm")
    launches = sorted(chosen.sources.glob(f"{chosen.only}.cu"))
    if not launches:
        sys.exit(f"{chosen.sources} has no {chosen.only}.cu")
    sources = [*launches, CUDA / "src/library/kernels.cu"]
    includes = ["-I", CUDA / "src", "-I", CUDA / "include", "-I", chosen.sources]
    release = re.search(r"release ([\d.]+), (V\S+)", run([chosen.nvcc, "--version"]))[2]
    first = f"nvcc {release}, sm_{chosen.architecture}; bytes of shared memory, blocks a multiprocessor, instructions in the code"
    rows, turns = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        shared = constants(sources, includes, chosen.cxx, scratch)
        for source in sources:
            cubin, registers = compile_all(source, chosen.architecture, chosen.nvcc, includes, scratch)
            counts = count(cubin, nvdisasm) if nvdisasm else {}
            if nvdisasm and chosen.architecture == "90a":
                turns |= loops(cubin, nvdisasm)
            for name, number in registers.items():
                row = dict.fromkeys(COLUMNS, "?") | {key: str(n) for key, n in counts.get(name, {}).items()}
                rows[name] = row | {"registers": str(number), "shared": str(shared[name][0]), "blocks": str(shared[name][1])}
            print(f"{source.name}: {len(registers)} kernels, no register in memory", flush=True)
    if turns:
        compare_loops(turns, HERE / "loops_sm_90a.txt", first.split(";")[0] + "; instructions of a warp in a turn of a loop", chosen.write)
    path = HERE / f"kernels_sm_{chosen.architecture}.txt"
    if chosen.write:
        of, others = read(path) if chosen.only != "*" else (first, {})
        if of != first:
            sys.exit(f"{path.name} is of {of.split(',')[0]}, this is nvcc {release}: --write all of it, without --only")
        path.write_text(table_of(others | rows, first))
        return
    if not path.is_file():
        sys.exit(f"{path} is missing: make it with --write")
    of, expected = read(path)
    if of != first:
        print(f"not compared: the table is of {of.split(',')[0]}, this is nvcc {release}")
        return
    differ = [name for name in sorted(rows.keys() & expected.keys())
              if any(rows[name][c] not in (expected[name][c], "?") for c in COLUMNS)]
    missing = sorted(expected.keys() - rows.keys()) if chosen.only == "*" else []
    new = sorted(rows.keys() - expected.keys())
    for name in differ:
        print(name, *(f"{c} {expected[name][c]} -> {rows[name][c]}" for c in COLUMNS if rows[name][c] not in (expected[name][c], "?")))
    if differ or new or missing:
        print("not there any more:", missing, "new:", new)
        sys.exit(f"{path.name} is not what the compiler makes: run this with --write, and look at the difference")
    print(f"{len(rows)} kernels are as {path.name} says" + ("" if nvdisasm else "; instructions not counted, nvdisasm is not found"))


if __name__ == "__main__":
    main()
