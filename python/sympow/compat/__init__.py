"""Functions of other packages, with their names, arguments, layouts and states, computed by sympow.

`sympow.compat.fla`: flash-linear-attention; `sympow.compat.retention`: power retention, which both need PyTorch;
`sympow.compat.onnx`: an operator of ONNX, on numpy arrays. An argument that has no meaning here raises
`sympow.NotBuilt`, which says what to call instead.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("fla", "onnx", "retention"):
        return importlib.import_module(f"sympow.compat.{name}")
    raise AttributeError(f"module 'sympow.compat' has no attribute {name!r}")
