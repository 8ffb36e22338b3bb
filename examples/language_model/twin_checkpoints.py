"""Checkpoints of language_model for its twin, which are read and written: safetensors files of floats.

    python3 twin_checkpoints.py CHECKPOINT TEXT [BYTES]      the mean loss of the twin on the beginning of a text
"""

import json
import struct
import sys
from pathlib import Path

from twin import Config, Training, Twin, losses  # which ends with 77 where PyTorch is not installed
import torch
from torch import Tensor


def load(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file of floats, by name, and its metadata."""
    data = bytearray(Path(path).read_bytes())
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    metadata = header.pop("__metadata__", {})
    numbers = torch.frombuffer(data[end:] or bytearray(4), dtype=torch.float32)
    return {name: numbers[x["data_offsets"][0] // 4:x["data_offsets"][1] // 4].view(x["shape"])
            for name, x in header.items()}, metadata


def save(path: str | Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Writes a safetensors file of floats, with the checksum that the program's checkpoints have."""
    numbers = [x.detach().float().contiguous().numpy().tobytes() for x in tensors.values()]
    entries, end = {}, 0
    for (name, x), data in zip(tensors.items(), numbers):
        entries[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [end, end := end + len(data)]}

    def header(metadata: dict[str, str]) -> bytes:
        text = json.dumps({"__metadata__": dict(sorted(metadata.items())), **entries}, separators=(",", ":")).encode()
        return text + b" " * (-len(text) % 8)

    total = 0
    for data in (header(metadata), *numbers):
        for word in (len(data), *struct.unpack(f"<{-(-len(data) // 8)}Q", data + bytes(-len(data) % 8))):
            total = (total ^ word) * 0x9E3779B97F4A7C15 % 2**64
            total ^= total >> 32
    head = header({**metadata, "checksum": str(total)})
    Path(path).write_bytes(len(head).to_bytes(8, "little") + head + b"".join(numbers))


def checkpoint(training: Training, folder: str | Path) -> None:
    """Writes what the program evaluates, generates from and goes on with."""
    weights = dict(training.model.named_parameters())
    tensors = dict(weights)
    for of, name in (("adam_m.", "exp_avg"), ("adam_v.", "exp_avg_sq")):
        tensors |= {of + of_w: training.adam.state[w].get(name, w) for of_w, w in weights.items()}
    metadata = {name: str(int(x) if isinstance(x, bool) else x) for name, x in vars(training.c).items()}
    save(Path(folder) / f"step-{training.steps:08}.safetensors", tensors, {**metadata, "step": str(training.steps)})


def trained(path: str | Path) -> Twin:
    """The model of a checkpoint."""
    weights, metadata = load(path)
    kinds = {name: type(value) for name, value in vars(Config()).items()}
    model = Twin(Config(**{name: kinds[name](int(x) if kinds[name] is bool else x)
                           for name, x in metadata.items() if name in kinds}))
    model.load_state_dict({name: x for name, x in weights.items() if not name.startswith("adam")}, strict=False)
    return model


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    data = torch.frombuffer(bytearray(Path(sys.argv[2]).read_bytes()), dtype=torch.uint8).long()
    data = data[None, :1 + int(sys.argv[3] if len(sys.argv) > 3 else 1024)]
    with torch.no_grad():
        loss = losses(trained(sys.argv[1])(data[:, :-1]), data[:, 1:]).mean()
    print(f"mean loss of {data.shape[1] - 1} bytes: {loss:.4f}")
