#!/usr/bin/env python3
"""Puts the picture of duality_gallery into an SVG with names above its columns and beside its rows.

    duality_gallery LICENSE && python3 examples/label_gallery.py duality_gallery.pgm docs/duality_gallery.svg
"""

import base64
import struct
import sys
import zlib
from pathlib import Path

COLUMNS = [("linear attention", "NoPE"), ("RetNet", "ALiBi"), ("Mamba-2", "FoX"), ("complex gate", "RoPE"),
           ("DeltaNet", "PaTH"), ("Gated DeltaNet", "PaTH-FoX")]
WIDTH, LEFT, TOP = 830, 74, 64


def read_pgm(path):
    kind, width, height, white, samples = Path(path).read_bytes().split(maxsplit=4)
    if kind != b"P5" or white != b"255":
        raise SystemExit(f"{path} is no picture of duality_gallery")
    return int(width), int(height), samples


def png(width, height, samples):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + samples[y * width:(y + 1) * width] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def main(source, target):
    width, height, samples = read_pgm(source)
    shown = WIDTH - LEFT - 10, (WIDTH - LEFT - 10) * height / width
    bottom = TOP + shown[1]
    step = shown[0] / len(COLUMNS)
    svg = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {bottom + 66:.0f}' font-family='sans-serif' "
           f"font-size='12'>", "<rect width='100%' height='100%' fill='white'/>",
           "<text x='10' y='24' font-size='15' font-weight='bold'>Scores of six linear systems and of their softmax duals, "
           "96 bytes of a text</text>",
           f"<image x='{LEFT}' y='{TOP}' width='{shown[0]}' height='{shown[1]:.1f}' style='image-rendering:pixelated' "
           f"href='data:image/png;base64,{base64.b64encode(png(width, height, samples)).decode()}'/>"]
    for n, (linear, softmax) in enumerate(COLUMNS):
        x = LEFT + step * (n + .5)
        svg += [f"<text x='{x:.0f}' y='{TOP - 8}' text-anchor='middle'>{linear}</text>",
                f"<text x='{x:.0f}' y='{bottom + 18:.0f}' text-anchor='middle'>{softmax}</text>"]
    for n, name in enumerate(("linear", "softmax")):
        svg.append(f"<text x='{LEFT - 8}' y='{TOP + shown[1] * (n + .5) / 2:.0f}' text-anchor='end'>{name}</text>")
    svg += [f"<text x='{LEFT}' y='{bottom + 58:.0f}'>Row: query token, downward. Column: key token, to the right.</text>",
            "<defs><linearGradient id='shades'><stop offset='0' stop-color='black'/><stop offset='1' stop-color='white'/>"
            "</linearGradient></defs>",
            f"<rect x='{LEFT + 56}' y='{bottom + 28:.0f}' width='120' height='12' fill='url(#shades)' stroke='#888'/>",
            f"<text x='{LEFT + 50}' y='{bottom + 38:.0f}' text-anchor='end'>negative</text>",
            f"<text x='{LEFT + 182}' y='{bottom + 38:.0f}'>large, beside the row's largest; gray: 0, and all later tokens</text>"]
    Path(target).write_text("\n".join([*svg, "</svg>"]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
