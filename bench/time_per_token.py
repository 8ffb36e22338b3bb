#!/usr/bin/env python3
"""Draws docs/time_per_token.svg from the tables of docs/performance.md: time per token against length, CPU and GPU.

    python3 bench/time_per_token.py
"""

import math
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, PANEL, GAP = 830, 400, 62, 74, 62, 318, 72
STYLES = {"sympow": ("#0072B2", "", 3), "softmax": ("#D55E00", "7 4", 2), "softmax 2": ("#CC79A7", "2 4", 2),
          "scan": ("#555555", "10 3 2 3", 2)}  # told apart without color by their dashes, and by the words beside them


def table(page, *heads):
    """Rows of the first table whose heads begin with these, as dictionaries by head."""
    lines = page.splitlines()
    for n, line in enumerate(lines):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:len(heads)] == list(heads):
            rows = []
            for row in lines[n + 2:]:
                if not row.startswith("|"):
                    return rows
                rows.append(dict(zip(cells, (cell.strip() for cell in row.strip("|").split("|")))))
            return rows
    raise SystemExit(f"docs/performance.md has no table {heads}")


def number(cell):
    return float(cell.replace(",", "")) if re.fullmatch(r"[\d.,]+", cell) else None


def series(rows, heads, scale=lambda T: 1):
    """Points (T, the least of these columns) of every row with a length and one of the numbers."""
    points = []
    for row in rows:
        T, found = number(row["T"]), [x for x in (number(row[head]) for head in heads) if x is not None]
        if T and found:
            points.append((T, min(found) * scale(T)))
    return points


def panel(left, title, lengths, low, high, curves):
    bottom = HEIGHT - BOTTOM
    x = lambda T: left + PANEL * math.log(T / lengths[0]) / math.log(lengths[-1] / lengths[0])
    y = lambda t: bottom - (bottom - TOP) * math.log(t / low) / math.log(high / low)
    svg = [f"<text x='{left}' y='{TOP - 14}' font-weight='bold'>{title}</text>"]
    for T in lengths:
        svg += [f"<path d='M{x(T):.1f} {TOP}V{bottom}' stroke='#dddddd'/>",
                f"<text x='{x(T):.1f}' y='{bottom + 18}' text-anchor='middle'>{T:,}</text>"]
    for power in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1):
        svg += [f"<path d='M{left} {y(10.0 ** power):.1f}h{PANEL}' stroke='#dddddd'/>",
                f"<text x='{left - 7}' y='{y(10.0 ** power) + 4:.1f}' text-anchor='end'>{10.0 ** power:g}</text>"]
    svg.append(f"<text x='{left + PANEL / 2}' y='{bottom + 42}' text-anchor='middle'>tokens T</text>")
    for name, style, points, (at, dx, dy, anchor) in curves:
        color, dash, width = STYLES[style]
        path = "M" + "L".join(f"{x(T):.1f} {y(t):.1f}" for T, t in points)
        svg.append(f"<path d='{path}' fill='none' stroke='{color}' stroke-width='{width}' stroke-dasharray='{dash}'/>")
        svg += [f"<circle cx='{x(T):.1f}' cy='{y(t):.1f}' r='3.5' fill='{color}'/>" for T, t in points]
        T, t = points[at]
        svg.append(f"<text x='{x(T) + dx:.1f}' y='{y(t) + dy:.1f}' text-anchor='{anchor}' fill='{color}'>{name}</text>")
    return svg


def main():
    page = (DOCS / "performance.md").read_text()
    forms, softmax = table(page, "T", "JAX quadratic"), table(page, "T", "PyTorch", "sympow")
    gpu = table(page, "T", "sympow", "form, chunk")
    per_token = lambda T: 1e3 / T  # of milliseconds for T tokens
    svg = [f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}' viewBox='0 0 {WIDTH} {HEIGHT}' "
           "font-family='sans-serif' font-size='13'>", "<rect width='100%' height='100%' fill='white'/>",
           f"<text x='{LEFT}' y='26' font-size='16' font-weight='bold'>Forward pass: microseconds per token, "
           "p = 2, d = e = 64</text>",
           f"<text transform='translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)' text-anchor='middle'>µs per token"
           "</text>"]
    svg += panel(LEFT, "CPU: one core (EPYC, AVX-512), float, 1 head", [256, 1024, 4096, 16384, 65536], 0.3, 200, [
        ("PyTorch SDPA (softmax)", "softmax", series(softmax, ["PyTorch"]), (3, -12, -6, "end")),
        ("PyTorch, chunked scan", "scan", series(forms, ["PyTorch chunked"]), (0, 4, -10, "start")),
        ("sympow", "sympow", series(forms, ["sympow attention", "sympow chunked"]), (4, 0, 22, "end"))])
    svg += panel(LEFT + PANEL + GAP, "GPU: one H100, bf16, 8 heads", [1024, 4096, 16384, 65536], 0.008, 1, [
        ("FlashAttention-2 (softmax)", "softmax 2", series(gpu, ["softmax, FlashAttention-2"], per_token),
         (5, -10, -6, "end")),
        ("cuDNN (softmax)", "softmax", series(gpu, ["softmax, cuDNN"], per_token), (4, 12, 12, "start")),
        ("sympow", "sympow", series(gpu, ["sympow"], per_token), (6, 0, 22, "end"))])
    (DOCS / "time_per_token.svg").write_text("\n".join([*svg, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
