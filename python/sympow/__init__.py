"""sympow on numpy arrays: attention whose scores are powers of inner products, its gradients and its states.

    y_i = Σ_{j ≤ i} s_ij v_j / Σ_{j ≤ i} s_ij       s_ij = κ(scale q_i·M_ij k_j) b_ij       κ(x) = x^P or exp x
    b_ij = γ_{j+1} ⋯ γ_i                            M_ij = R(μ_i)ᵀ R(μ_j),   μ_i = μ_{i-1} + β_i θ

    rows = sympow.attention(queries, keys, values, log_gates=gates, power=2)                  # one call
    attention = sympow.Attention(power=2, form="chunked")                                     # for many
    state = sympow.State(attention, batch, heads, d, e)
    rows = attention(queries, keys, values, state=state)                                      # a prompt
    row = attention.decode(query, key, value, state)                                          # a token
    attention.absorb(keys, values, state)                                                     # tokens without rows

Arrays are [B, T, H, D], float32 or float64, all of a call alike. They are read and written where they are: transposed,
sliced and broadcast views need no copy, but the entries of a token must be contiguous, and strides not negative. Inputs
may be arrays of other packages on a CPU, by DLPack.

The package calls the library libsympow_c.so by ctypes. It has one for each level of x86-64 and takes the best that the
processor supports. The environment variable SYMPOW_PROCESSOR names another level, such as x86-64-v2; SYMPOW_C_LIBRARY
or `use` names the file of another library. `show_config` says which one is in use.
`sympow.torch` has the same for PyTorch, `sympow.jax` for JAX.

Every error is a `SympowError` with the library's sentence, which names the argument, what it is and what it must be;
or a `TypeError` for what is no array, integer or state at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import inspect
import itertools
import math
import operator
import os
import re
import sys
import tempfile
import threading
import warnings
import weakref
from ctypes import (POINTER, addressof, byref, c_char, c_double, c_int32, c_int64, c_size_t, c_uint8, c_uint16,
                    c_uint64, c_void_p)
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

__version__ = "0.2.0"
__all__ = ["Attention", "Diagnostics", "Gradients", "State", "Sums", "attention", "cuda_widths", "diagnose", "has_cuda",
           "rope_frequencies", "rotation_planes", "show_config", "use", "version", "vjp", "yarn_scale",
           "SympowError", "InvalidArgument", "ShapeMismatch", "NotFinite", "TooLarge", "InterruptedState", "BadFile",
           "OutOfMemory", "NotBuilt", "DeviceError", "InternalError", "LibraryNotFound"]


def __getattr__(name: str) -> Any:
    """Modules of the package, which are imported when they are first asked for."""
    if name in ("compat", "jax", "systems", "torch"):
        return importlib.import_module(f"sympow.{name}")
    raise AttributeError(f"module 'sympow' has no attribute {name!r}")


# ---- errors ----


class SympowError(Exception):
    """What every error of this module is; its text is a sentence."""


class InvalidArgument(SympowError, ValueError):
    """A value, type or layout that no call takes."""


class ShapeMismatch(SympowError, ValueError):
    """Two sizes that must agree do not."""


class NotFinite(SympowError, ValueError):
    """A number that must be finite is not."""


class TooLarge(SympowError, OverflowError):
    """Sizes whose product no integer holds."""


class InterruptedState(SympowError, RuntimeError):
    """A state that a call has left half way as memory ended: clear it or load another into it."""


class BadFile(SympowError, OSError):
    """A file of states that is absent, foreign, of other sizes or damaged, or cannot be written."""


class OutOfMemory(SympowError, MemoryError):
    """Memory ended."""


class NotBuilt(SympowError, NotImplementedError):
    """A device or a power that the library was built without."""


class DeviceError(SympowError, RuntimeError):
    """What the runtime of a GPU says."""


class InternalError(SympowError, RuntimeError):
    """None of these; please report it."""


class LibraryNotFound(SympowError, ImportError):
    """There is no library, none for this processor, or it is one of another version."""


_ERRORS = {1: InvalidArgument, 2: ShapeMismatch, 3: NotFinite, 4: TooLarge, 5: InterruptedState, 6: BadFile,
           7: OutOfMemory, 8: NotBuilt, 10: DeviceError}

_BAD_FILE = next(status for status, error in _ERRORS.items() if error is BadFile)
_MATRICES = {"Q": "queries", "K": "keys", "V": "values", "dY": "d_rows"}
_TYPE_NAMES = {(0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (2, 16): "float16", (2, 32): "float32",
               (2, 64): "float64", (4, 16): "bfloat16"}  # by code and bits
_WORDS: list[tuple[str, Any]] = [  # of C and C++, and those of a caller of Python
    (r"\b(?:inputs|options|gradients|shape)->", ""),
    (r"^rows\b(?! of)", "out"),
    (r"^shape: the type ", "dtype: the type "),
    (r"\b(Q|K|V|dY)\((\d+), (\d+)\)", lambda x: f"{_MATRICES[x[1]]} at token {x[3]}, channel {x[2]}"),
    (r": the type has code (\d+), (\d+) bits and 1 lanes, must be ",
     lambda x: f" is of {_TYPE_NAMES.get((int(x[1]), int(x[2])), 'another type')}, must be of "),
    (r"\bSYMPOW_(?:SCORES_|PAIRING_|FORM_|MASK_|NORMALISATION_)?(SIGNED(?=_)|[A-Z_]+)(?:_NORMALISED)?\b",
     lambda x: f'"{x[1].lower()}"'),
    (r"\bpairing is not said\b", "pairing is None"),
    (r"\bnull\b", "None"),
    (r"\bthe transition's log gate of token ", "log_gates of token "),
    (r"\bchannel_decay: the log gate of channel ", "channel_gates of channel "),
    (r"\bhouseholder: at token (\d+), beta is (\S+) and w has", r"strengths at token \1 is \2 and householder has"),
    (r"\brotary: (theta|beta) at", r"\1 at"),
    (r"\b(\d+) columns of K\b", r"\1 keys"),
    (r"\bsympow_states_save\b", "State.save"),
]

# ---- the structs of sympow.h ----


_SIZES = [c_int64 * n for n in range(8)]  # a type that is made takes longer than what it holds


class Tensor(ctypes.Structure):
    """`sympow_tensor`: an array of the caller as DLPack describes it."""

    _fields_ = [("data", c_void_p), ("device", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]

    @classmethod
    def of(cls, data: int, code: int, bits: int, shape: Sequence[int], strides: Sequence[int] | None,
           device: tuple[int, int] = (1, 0)) -> Tensor:
        """An array at an address; code is 0 of integers, 2 of floating numbers, 4 of bfloat16. Strides count entries;
        None: one row after the other."""
        dimensions = len(shape)
        sizes = _SIZES[dimensions] if dimensions < len(_SIZES) else c_int64 * dimensions
        return cls(data, *device, dimensions, code, bits, 1, sizes(*shape), None if strides is None else sizes(*strides), 0)


class _Sized(ctypes.Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **fields)


def _pointers(*names: str) -> list[tuple[str, Any]]:
    return [("size", c_size_t)] + [(name, POINTER(Tensor)) for name in names]


class _Options(_Sized):
    _fields_ = [("size", c_size_t), *((name, c_int32) for name in (
        "scores", "power", "normalisation", "form", "mask", "pairing", "threads", "check_finite")), *(
            (name, c_int64) for name in ("offset", "chunk", "checkpoint", "tail")), ("scale", c_double),
                *((name, c_int64) for name in ("rotary_dim", "features", "seed", "window"))]


_INPUT_NAMES = ("queries", "keys", "values", "log_gates", "theta", "beta", "lengths", "channel_gates", "householder",
                "strengths")


class _Inputs(_Sized):
    _fields_ = _pointers(*_INPUT_NAMES)


class _Gradients(_Sized):
    _fields_ = _pointers("queries", "keys", "values", "log_gates", "theta", "beta", "scale", "channel_gates",
                         "householder", "strengths")


class _Slots(_Sized):
    _fields_ = _pointers("indices", "faults")


class _StateShape(_Sized):
    _fields_ = [("size", c_size_t), ("batch", c_int64), ("heads", c_int64), ("d", c_int64), ("e", c_int64),
                ("device", c_int32), ("device_id", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("reserved", c_int32), ("memory", POINTER(Tensor)), ("key_heads", c_int64)]


def _struct_of(kind: type[_Sized], tensors: dict[str, Tensor | None]) -> _Sized:
    struct = kind()
    for name, x in tensors.items():
        if x is not None:
            setattr(struct, name, ctypes.pointer(x))
    return struct


# ---- the library ----

_OPENMP = "libgomp.so.1"  # of GCC, which the library needs
_FILE = "libsympow_c.dylib" if sys.platform == "darwin" else "libsympow_c.so"
_VARIABLE, _LEVEL_VARIABLE = "SYMPOW_C_LIBRARY", "SYMPOW_PROCESSOR"
_CPUINFO = Path("/proc/cpuinfo")
_LEVELS = {  # of x86-64, and the flags of /proc/cpuinfo that each needs besides those of the level before it
    "x86-64-v2": "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave",
    "x86-64-v4": "avx512bw avx512cd avx512dq avx512f avx512vl",
}
_library: ctypes.CDLL | None = None
_openmp: ctypes.CDLL | None = None  # that of this package; None: the system's
_level: str | None = None  # of the library in use; None: it was named, or there is only one


def _built_levels() -> dict[str, Path]:
    """The libraries of this package by their level, lowest first; none where there is one for all processors."""
    files = {level: Path(folder, level, _FILE) for level in _LEVELS for folder in __path__}
    return {level: file for level, file in files.items() if file.is_file()}


def _missing_flags(level: str) -> list[str]:
    """What the processor lacks of a level. Where nothing says what it has, everything above the lowest level."""
    try:
        text = _CPUINFO.read_text(errors="replace")
    except OSError:
        text = ""
    line = next((line for line in text.splitlines() if line.startswith("flags")), "flags: " + _LEVELS["x86-64-v2"])
    found, levels = set(line.partition(":")[2].split()), list(_LEVELS)
    needed = " ".join(_LEVELS[x] for x in levels[:levels.index(level) + 1])
    return [flag for flag in needed.split() if flag not in found]


def _choose_level() -> tuple[str, Path] | None:
    """The best level of this package that the processor supports, or the one that SYMPOW_PROCESSOR names; None: there
    are no levels. Raises `InvalidArgument`, `LibraryNotFound`."""
    built, name = _built_levels(), os.environ.get(_LEVEL_VARIABLE)
    if name is not None:
        if name not in _LEVELS:
            raise InvalidArgument(f"{_LEVEL_VARIABLE} is {name!r}, must be one of {', '.join(_LEVELS)}")
        if name not in built:
            raise LibraryNotFound(f"{_LEVEL_VARIABLE} is {name}, but {Path(__file__).parent} has "
                                  f"{'only ' + ', '.join(built) if built else 'no libraries of levels'}")
        if missing := _missing_flags(name):
            raise InvalidArgument(f"{_LEVEL_VARIABLE} is {name}, but this processor lacks {', '.join(missing)}")
        return name, built[name]
    for level in reversed(built):
        if not _missing_flags(level):
            return level, built[level]
    if built:
        lowest = next(iter(built))
        raise LibraryNotFound(f"this processor lacks {', '.join(_missing_flags(lowest))} of {lowest}, the lowest level "
                              f"of this package; build another libsympow_c and set {_VARIABLE}")
    return None


def _load(name: str) -> ctypes.CDLL:
    """The library of this name, with the OpenMP of this package where the system has none. Raises `OSError`."""
    global _openmp
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        found = next((file for folder in __path__ if (file := Path(folder, _OPENMP)).is_file()), None)
        if found is None or _OPENMP not in str(error):
            raise
    _openmp = ctypes.CDLL(str(found.resolve()))  # now the loader has one of this name
    return ctypes.CDLL(name)


def use(path: str | os.PathLike[str] | None = None) -> None:
    """Chooses the library; without a path the one that SYMPOW_C_LIBRARY names, else the best of this package.

    Another function that is called first does so by itself. Raises `LibraryNotFound`, and `InvalidArgument` if another
    one is in use or SYMPOW_PROCESSOR is no level of this processor.
    """
    global _library, _level
    level = None
    if path is not None:
        source, found = "", Path(path)
    elif _VARIABLE in os.environ:
        source, found = f" of {_VARIABLE}", Path(os.environ[_VARIABLE])
    elif chosen := _choose_level():
        source, (level, found) = "", chosen
    else:
        source, found = f" of this package, and {_VARIABLE} is not set", Path(__file__).resolve().parent / _FILE
        found = next((file for folder in __path__ if (file := Path(folder, _FILE)).is_file()), found)
    if not found.is_file():
        raise LibraryNotFound(f"{found}{source}: there is no such library; sympow.use(path) names one")
    name = str(found.resolve())
    if _library is not None:
        if _library._name != name:
            raise InvalidArgument(f"path is {found}, but {_library._name} is in use; choose before the first call")
        return
    try:
        library = _load(name)
        said, number = library.sympow_error, library.sympow_version()
    except (OSError, AttributeError) as error:
        raise LibraryNotFound(f"{found}{source}: not a library of sympow: {error}") from error
    if number // 100 != 2:
        raise LibraryNotFound(f"{found}{source} has the version {number}, must be 0.2: 200 to 299")
    said.restype = ctypes.c_char_p
    for kind in ("attention", "workspace", "states", "state_gradients"):
        getattr(library, f"sympow_{kind}_destroy").argtypes = [c_void_p]
    _library, _level = library, level


def _lib() -> ctypes.CDLL:
    if _library is None:
        use()
    return _library


def version() -> tuple[int, int, int]:
    """Of the library: major, minor and patch."""
    number = _lib().sympow_version()
    return number // 10000, number // 100 % 100, number % 100


def has_cuda() -> bool:
    """Whether the library takes arrays on a GPU: it was built with CUDA."""
    on_gpu, workspace = Tensor.of(0, 1, 8, [0], [1], (2, 0)), c_void_p()
    not_built = next(status for status, error in _ERRORS.items() if error is NotBuilt)
    is_built = _lib().sympow_workspace_create(byref(on_gpu), byref(workspace)) != not_built
    if workspace:
        _lib().sympow_workspace_destroy(workspace)
    return is_built


def cuda_widths(dtype: str = "bfloat16") -> dict[int, list[int]]:
    """The numbers d of a query for which the library has kernels, by power, for arrays of this type on a GPU; {} without
    CUDA. Raises `InvalidArgument` for another type than bfloat16, float16 and float32."""
    names = {_TYPE_NAMES[of]: of for of in ((4, 16), (2, 16), (2, 32))}
    _choice("dtype", dtype, tuple(names))
    widths: dict[int, list[int]] = {}
    for power, d in itertools.product(range(1, 9), (16, 32, 64, 128)) if has_cuda() else ():
        x = Tensor.of(256, *names[dtype], (1, 1, 1, d), None, (2, 0))  # an address that is aligned
        with contextlib.suppress(NotBuilt):
            _cached_attention(power=power).workspace_bytes(dict(queries=x, keys=x, values=x))
            widths.setdefault(power, []).append(d)
    return widths


def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """What is in use: "stdout" prints it, "dicts" returns it.

    version      of the library
    library      its file
    processor    its level of x86-64; None: it was named, or there is one for all processors
    processors   the levels of this package that the processor supports
    openmp       whether calls run on several threads
    cuda         whether it takes arrays on a GPU
    """
    _choice("mode", mode, ("stdout", "dicts"))
    library = _lib()
    config = dict(version=".".join(map(str, version())), library=library._name, processor=_level,
                  processors=[level for level in _built_levels() if not _missing_flags(level)],
                  openmp=hasattr(library, "omp_get_max_threads"), cuda=has_cuda())
    if mode == "dicts":
        return config
    for name, x in config.items():
        print(f"{name + ':':12}", ", ".join(x) if isinstance(x, list) else x)
    return None


def _check(status: int) -> None:
    if status != 0:
        text = _lib().sympow_error().decode(errors="replace")  # a path may be any bytes
        if status != _BAD_FILE:  # which begins with a path
            for pattern, words in _WORDS:
                text = re.sub(pattern, words, text)
        raise _ERRORS.get(status, InternalError)(text)


class _LostLock:
    """In the place of a lock that another thread held when this process was forked off: nobody gives it back."""

    def __enter__(self) -> None:
        raise InterruptedState("a call was using this object when the process was forked off; make another one, or fork "
                               "between calls")

    def __exit__(self, *error: Any) -> None:
        pass


_handles: weakref.WeakSet[_Handle] = weakref.WeakSet()


def _before_fork() -> None:
    """Loads the library, which sees that a process is a child only where its parent had loaded it: a child has none of
    the threads that OpenMP counts on."""
    with contextlib.suppress(SympowError):
        _lib()


def _after_fork() -> None:
    for handle in list(_handles):
        if isinstance(handle.lock, _LostLock):
            continue
        if handle.lock.acquire(blocking=False):
            handle.lock.release()
        else:
            handle.lock = _LostLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


class _Handle:
    """What a `create` of the library gives, destroyed with this object. A lock lets one thread at a time use it, whose
    handlers of signals run between calls."""

    def __init__(self, kind: str, create: str, *arguments: Any) -> None:
        self.pointer, self.lock = c_void_p(), threading.RLock()
        self.kept: _KeptCall | None = None  # of states, the last one
        self._destroy = getattr(_lib(), f"sympow_{kind}_destroy")
        _check(getattr(_lib(), f"sympow_{create}")(*arguments, byref(self.pointer)))
        _handles.add(self)

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._destroy(self.pointer)


_own = threading.local()


def _workspace(memory: Tensor | None) -> _Handle:
    """That of a call on a device, in the caller's memory; None: the scratch memory of this thread."""
    if memory is not None:
        return _Handle("workspace", "workspace_create", byref(memory))
    try:
        return _own.workspace
    except AttributeError:
        _own.workspace = _Handle("workspace", "workspace_create", None)
        return _own.workspace


def _kind_of(x: Any) -> str:
    """A type for errors, with its article, and its module if that is one of ours."""
    of = type(x)
    name = f"{of.__module__}.{of.__name__}" if of.__module__.startswith("sympow") else of.__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def _check_state(name: str, x: State) -> None:
    if not isinstance(x, State):
        made = ": sympow.torch.state_of makes one of it" if type(x).__module__ == "sympow.torch" else ""
        raise TypeError(f"{name} is {_kind_of(x)}, must be a sympow.State{made}")


class _KeptCall:
    """A call on a CPU with structs that are kept from one to the next: only addresses change."""

    def __init__(self, call: str, attention: Attention, key: list[Any], states: c_void_p | None,
                 inputs: dict[str, Tensor | None], rows: Tensor) -> None:
        self.of, self._inputs = (call, attention, key), _struct_of(_Inputs, inputs)
        self._tensors = [x for x in (rows, *inputs.values()) if x is not None]
        for x in self._tensors:
            x.owner = None  # a call brings its own
        self._arguments = attention._handle.pointer, byref(self._inputs), states, byref(rows)
        self._call = getattr(_lib(), call)

    def __call__(self, addresses: Iterable[int]) -> None:
        for tensor, address in zip(self._tensors, addresses):
            tensor.data = address
        if status := self._call(*self._arguments, _workspace(None).pointer, None):
            _check(status)


@contextlib.contextmanager
def _locked(**states: State | None) -> Iterator[list[c_void_p | None]]:
    """The states by these names, which no other thread's call uses; locks are taken in one order."""
    for name, x in states.items():
        if x is not None:
            _check_state(name, x)
    handles = [None if x is None else x._handle for x in states.values()]
    locks = [handle.lock for handle in sorted({x for x in handles if x is not None}, key=id)]
    first, second = (locks + 2 * [contextlib.nullcontext()])[:2]
    with first, second:  # which a KeyboardInterrupt leaves, whenever it comes
        yield [None if x is None else x.pointer for x in handles]


# ---- numpy arrays as they are ----

_TYPES = {np.dtype(name): of for of, name in _TYPE_NAMES.items() if name in ("float32", "float64", "int32", "int64")}


def _type_of(name: str, x: np.dtype) -> tuple[int, int]:
    """Code and bits of a type. Raises `InvalidArgument` for one that the library never reads."""
    if x not in _TYPES:  # bytes in another order are another type
        allowed = "int32 or int64" if name == "lengths" else "float32 or float64"
        raise InvalidArgument(f"{name} is of {x}, must be of {allowed}")
    return _TYPES[x]


def _array(name: str, x: Any) -> Any:
    """An array of another package where it is, by DLPack; what is none as it is. Raises `InvalidArgument`."""
    if x is None or isinstance(x, np.ndarray) or not hasattr(type(x), "__dlpack__"):
        return x
    try:
        array = np.from_dlpack(x)
    except Exception as error:  # of another package
        raise InvalidArgument(f"{name} is {_kind_of(x)} that numpy cannot read where it is: {error}") from error
    if array.flags.owndata and array.size > 0:
        raise InvalidArgument(f"{name} is {_kind_of(x)} without memory")
    return array


def _view(name: str, x: np.ndarray | None, is_output: bool = False) -> Tensor | None:
    """An array where it is. Raises `TypeError`, and `InvalidArgument` for what a `Tensor` cannot say."""
    if x is None:
        return None
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name} is {_kind_of(x)}, must be a numpy array{'' if is_output else ' or have __dlpack__'}")
    if isinstance(x, np.ma.MaskedArray):
        raise InvalidArgument(f"{name} is a masked array, whose mask no call sees; must be a plain one")
    code, bits = _type_of(name, x.dtype)
    flags, strides = x.flags, None
    if not flags.c_contiguous:
        for axis, (size, stride) in enumerate(zip(x.shape, x.strides)):
            if size > 1 and stride % x.itemsize != 0:
                raise InvalidArgument(f"{name}: strides[{axis}] is {stride} bytes, must be a multiple of the "
                                      f"{x.itemsize} of an entry")
        strides = [stride // x.itemsize for stride in x.strides]
    if is_output and not flags.writeable:
        raise InvalidArgument(f"{name} is read-only, must be writeable")
    return Tensor.of(x.ctypes.data, code, bits, x.shape, strides)


def _address_of(x: np.ndarray) -> int:
    """Of the first entry of an array that has a `_view`."""
    try:
        return addressof(c_char.from_buffer(x))
    except (TypeError, ValueError, BufferError):  # read-only, with gaps or empty
        return x.ctypes.data  # which takes longer


def _path(path: str | os.PathLike[str]) -> bytes:
    """The name of a file, which ends at no zero inside."""
    name = os.fsencode(path)
    if 0 in name:
        raise InvalidArgument(f"path is {path!r}, must not hold a null character")
    return name


def _number(name: str, x: Any, bits: int = 64) -> int:
    """An integer that a field holds."""
    try:
        if isinstance(x, bool):
            raise TypeError
        number = operator.index(x)
    except TypeError:
        raise TypeError(f"{name} is {x!r}, must be an integer") from None
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise TooLarge(f"{name} is {number}, no integer of {bits} bits holds it")
    return number


def _real(name: str, x: Any) -> float:
    try:
        return math.ldexp(x, 0)  # float(x) takes strings
    except OverflowError:
        raise TooLarge(f"{name} is {x!r}, no number of 64 bits holds it") from None
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {x!r}, must be a number") from None


def _choice(name: str, x: Any, names: tuple[Any, ...]) -> int:
    """The place of a name."""
    try:
        return names.index(x)
    except ValueError:
        raise InvalidArgument(f"{name} is {x!r}, must be one of {', '.join(map(str, names))}") from None


def _rows_like(queries: Any, values: Any) -> np.ndarray:
    """Memory for rows; inputs of which none can be made will be refused."""
    if isinstance(queries, np.ndarray) and isinstance(values, np.ndarray) and queries.ndim == values.ndim == 4:
        return np.empty(queries.shape[:3] + values.shape[3:], queries.dtype)
    return np.empty((0, 0, 0, 0), np.float32)


# ---- what is computed ----


class Sums(NamedTuple):
    """What is in states, or gradients in it, as arrays.

    sums:        S = Σ_j b_Tj v_j φ(k_j)ᵀ, [B, Hs, D, e], of the states' type
    normaliser:  Z = Σ_j b_Tj φ(k_j)ᵀ, [B, Hs, D], of the states' type
    angles:      μ, [B, Hs, d/2] or [B, Hs, rotary_dim/2], float64; None: nothing turns
    """

    sums: np.ndarray
    normaliser: np.ndarray
    angles: np.ndarray | None


class Gradients(NamedTuple):
    """∂loss/∂x of what a call was given, each of the shape of x; None where x was not given."""

    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    log_gates: np.ndarray | None
    theta: np.ndarray | None
    beta: np.ndarray | None
    scale: float
    state: Sums | None
    channel_gates: np.ndarray | None = None
    householder: np.ndarray | None = None
    strengths: np.ndarray | None = None


class Diagnostics(NamedTuple):
    """What is known of the rows of a call, each [B, T, H]; 0 where a query is padding.

    log_sum        log |Σ_j s_ij|, -∞ where the row sees nothing
    condition      Σ_j b_ij (|scale| ‖q_i‖ ‖M_ij k_j‖)^P / |Σ_j s_ij|: how much the row magnifies rounding. For exponential
                   scores a pair weighs e^s (1 + |scale| ‖q‖ ‖k‖), for random ones ‖φ(scale q)‖ ‖φ(k)‖; with channel
                   gates it is an upper bound
    is_degenerate  whether the row has nothing to divide by and is 0
    """

    log_sum: np.ndarray
    condition: np.ndarray
    is_degenerate: np.ndarray


class Attention:
    """An attention: its options, checked. Immutable; any number of threads may call it at once.

    scores         "power": κ(x) = x^P; "exponential": exp x, softmax, without states; "random": random features, whose
                   scores are exp x in the mean: an estimate of softmax that has states
    power          P, 1 … 8; looked at for powers alone; odd ones give sums, see normalisation
    normalisation  "default": normalised where no score is negative, so for even powers and exponential scores;
                   "normalised", "unnormalised", or "signed" of odd powers, whose sums can vanish
    form           "automatic": the one that should be the fastest; "attention": every query with every key, no states;
                   "recurrent": token by token; "chunked": attention inside chunks, the state between them
    mask           "causal": query i sees the keys j ≤ i + offset; "full": all
    pairing        "interleaved": channels 2j and 2j + 1 turn by θ_j; "half_split": j and j + d/2, as in LLaMA and most
                   checkpoints. Must be said where there is θ: the wrong one gives wrong rows without an error
    threads        at most so many [0: all]; results do not depend on it
    check_finite   whether queries, keys and values that are not finite are refused
    offset         tokens from the first key to the first query, of the attention form
    chunk          tokens of a chunk [0: chosen]
    checkpoint     gradients keep a state every so many chunks [0: chosen]; one value for all
    tail           tokens that a state holds as they are, at least 0 [-1: 32, of random features 0]
    scale          multiplies q·k, inside the power
    rotary_dim     channels that θ turns, the first ones of a head, paired among themselves [0: all]
    features       D, random features, for random scores alone
    seed           of their projections, at least 0: equal seeds give equal features
    window         tokens up to its own that a query sees [0: all], of the attention form and the causal mask

    Raises `InvalidArgument`, `NotFinite`, `NotBuilt`, `LibraryNotFound`, `TypeError`.
    """

    def __init__(self, *, scores: str = "power", power: int = 2, normalisation: str = "default",
                 form: str = "automatic", mask: str = "causal", pairing: str | None = None, threads: int = 0,
                 check_finite: bool = False, offset: int = 0, chunk: int = 0, checkpoint: int = 0, tail: int = -1,
                 scale: float = 1.0, rotary_dim: int = 0, features: int = 0, seed: int = 1,
                 window: int = 0) -> None:
        self._given = {name: x for name, x in locals().items() if name != "self"}
        options = _Options(
            scores=_choice("scores", scores, ("power", "exponential", "random")),
            power=_number("power", power, 32),
            normalisation=_choice("normalisation", normalisation, ("default", "normalised", "unnormalised", "signed")),
            form=_choice("form", form, ("automatic", "attention", "recurrent", "chunked")),
            mask=_choice("mask", mask, ("causal", "full")),
            pairing=-1 if pairing is None else _choice("pairing", pairing, ("interleaved", "half_split")),
            threads=_number("threads", threads, 32),
            check_finite=_choice("check_finite", check_finite, (False, True)),
            offset=_number("offset", offset),
            chunk=_number("chunk", chunk),
            checkpoint=_number("checkpoint", checkpoint),
            tail=_number("tail", tail),
            scale=_real("scale", scale),
            rotary_dim=_number("rotary_dim", rotary_dim),
            features=_number("features", features),
            seed=_number("seed", seed),
            window=_number("window", window))
        self._handle = _Handle("attention", "attention_create", byref(options))

    def __repr__(self) -> str:
        return f"sympow.Attention({', '.join(f'{name}={x!r}' for name, x in self._given.items())})"

    def __reduce__(self) -> Any:
        return functools.partial(Attention, **self._given), ()

    def feature_dimension(self, d: int) -> int:
        """D, the numbers of an embedded key in R^d: C(d + P - 1, P), or the random features. `InvalidArgument` for
        exponential scores."""
        dimension = c_int64()
        _check(_lib().sympow_feature_dimension(self._handle.pointer, c_int64(_number("d", d)), byref(dimension)))
        return dimension.value

    def __call__(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, *,
                 log_gates: np.ndarray | None = None, theta: np.ndarray | None = None, beta: np.ndarray | None = None,
                 lengths: np.ndarray | None = None, channel_gates: np.ndarray | None = None,
                 householder: np.ndarray | None = None, strengths: np.ndarray | None = None,
                 state: State | None = None, out: np.ndarray | None = None) -> np.ndarray:
        """Rows y, [B, T, H, e]; 0 where a query is padding.

        queries        [B, T, H, d], float32 or float64
        keys           [B, T, Hk, d], of the queries' type; query head h reads key head ⌊h Hk / H⌋
        values         [B, T, Hk, e], of the queries' type
        log_gates      [B, T, Hk] or [B, T, H]: log γ ≤ 0, -∞ allowed, under exponential scores of any sign; float32 or
                       float64, as other parameters
        theta          [d/2], or [rotary_dim/2]: rates of rotary positions, radians per token; of n axes [n, d/2]
        beta           [B, T, Hk] or [B, T, H], only with theta; None: all 1; of n axes [B, T, Hk, n] or [B, T, H, n], what
                       each coordinate of positions grows by: np.diff(positions, axis=1, prepend=0)
        lengths        [B], int32 or int64: tokens of every sequence, the rest is padding
        channel_gates  [B, T, Hk, d] or [B, T, H, d]: log a ≤ 0 of every channel of a key, as in GLA; not with theta
        householder    [B, T, Hk, d] or [B, T, H, d], of the queries' type: w of A = I - β w wᵀ, as in DeltaNet and PaTH;
                       behind channel gates A = diag(a) (I - β w wᵀ); not with theta, and with a state for power 1 alone
        strengths      [B, T, Hk] or [B, T, H], of the heads of householder: that β; None: all 1
        state          the call goes on from it and leaves it after its last tokens; None: nothing came before
        out            where the rows go; None: a new array

        Raises `InvalidArgument`, `ShapeMismatch`, `NotFinite`, `TooLarge`, `NotBuilt`, `InterruptedState`,
        `OutOfMemory`, `TypeError`: all but `OutOfMemory` before anything is written.
        """
        return self._run("sympow_attend", (queries, keys, values, log_gates, theta, beta, lengths, channel_gates,
                                           householder, strengths), state, out)

    def decode(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, state: State, *,
               log_gates: np.ndarray | None = None, theta: np.ndarray | None = None, beta: np.ndarray | None = None,
               lengths: np.ndarray | None = None, channel_gates: np.ndarray | None = None,
               householder: np.ndarray | None = None, strengths: np.ndarray | None = None,
               out: np.ndarray | None = None) -> np.ndarray:
        """The same for a few new tokens, T of them, against a state: by the recurrent form, whatever the form is."""
        _check_state("state", state)
        return self._run("sympow_decode", (queries, keys, values, log_gates, theta, beta, lengths, channel_gates,
                                           householder, strengths), state, out)

    def absorb(self, keys: np.ndarray, values: np.ndarray, state: State, *, log_gates: np.ndarray | None = None,
               theta: np.ndarray | None = None, beta: np.ndarray | None = None, lengths: np.ndarray | None = None,
               channel_gates: np.ndarray | None = None, householder: np.ndarray | None = None,
               strengths: np.ndarray | None = None) -> None:
        """Leaves a state where a call with these tokens does, to the bit, at half its cost: without rows. Heads
        of the state are those of the keys."""
        _check_state("state", state)
        inputs = dict(keys=keys, values=values, log_gates=log_gates, theta=theta, beta=beta, lengths=lengths,
                      channel_gates=channel_gates, householder=householder, strengths=strengths)
        self.attend_tensors({name: _view(name, _array(name, x)) for name, x in inputs.items()}, None, state)

    def diagnose(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, *,
                 log_gates: np.ndarray | None = None, theta: np.ndarray | None = None, beta: np.ndarray | None = None,
                 lengths: np.ndarray | None = None, channel_gates: np.ndarray | None = None,
                 householder: np.ndarray | None = None, strengths: np.ndarray | None = None,
                 state: State | None = None) -> Diagnostics:
        """What is known of the rows that a call with these arguments gives. `state` is the one before the call, and is
        not changed. Costs as much as the call, which raises the same errors."""
        inputs = dict(queries=queries, keys=keys, values=values, log_gates=log_gates, theta=theta, beta=beta,
                      lengths=lengths, channel_gates=channel_gates, householder=householder, strengths=strengths)
        inputs = {name: _array(name, x) for name, x in inputs.items()}
        views = {name: _view(name, x) for name, x in inputs.items()}
        if queries is None:
            raise TypeError(f"queries is {_kind_of(queries)}, must be a numpy array or have __dlpack__")
        found = np.empty((*queries.shape[:3], 3))
        self.diagnose_tensors(views, _view("diagnostics", found), state)
        return Diagnostics(found[..., 0], found[..., 1], found[..., 2] != 0)

    def _run(self, call: str, inputs: tuple[np.ndarray | None, ...], state: State | None,
             out: np.ndarray | None) -> np.ndarray:
        """A call on arrays, those of `_INPUT_NAMES`."""
        rows = _rows_like(inputs[0], inputs[2]) if out is None else out
        key: list[Any] = []
        arrays = []
        for x in (rows, *inputs):
            if x is None:
                key.append(None)
            elif isinstance(x, np.ndarray):
                key += type(x), x.shape, x.strides, x.dtype
                arrays.append(x)
            elif x is not rows and hasattr(type(x), "__dlpack__"):
                return self._run(call, tuple(map(_array, _INPUT_NAMES, inputs)), state, out)
            else:
                key.append(False)  # which has no view
        key.append(isinstance(rows, np.ndarray) and rows.flags.writeable)
        self.run_kept(call, key, map(_address_of, arrays), state, lambda: (
            {name: _view(name, x) for name, x in zip(_INPUT_NAMES, inputs)}, _view("out", rows, True)))
        return rows

    def vjp(self, d_rows: np.ndarray, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, *,
            log_gates: np.ndarray | None = None, theta: np.ndarray | None = None, beta: np.ndarray | None = None,
            lengths: np.ndarray | None = None, channel_gates: np.ndarray | None = None,
            householder: np.ndarray | None = None, strengths: np.ndarray | None = None, state: State | None = None,
            d_state: Sums | None = None) -> Gradients:
        """The gradients of a loss in the arguments of a call, from d_rows = ∂loss/∂y, [B, T, H, e].

        state    the one *before* the first token; it is not changed: give a copy that was made before the call
        d_state  the gradients in the state after the last token; None: the loss does not see it

        `Gradients.state` are those in `state`. Errors are those of a call.
        """
        if d_state is not None and state is None:
            raise InvalidArgument("d_state is given, but no state")
        if d_state is not None and (not isinstance(d_state, tuple) or len(d_state) != len(Sums._fields)):
            raise TypeError(f"d_state is {_kind_of(d_state)}, must be a sympow.Sums")
        inputs = dict(queries=queries, keys=keys, values=values, log_gates=log_gates, theta=theta, beta=beta,
                      lengths=lengths, channel_gates=channel_gates, householder=householder, strengths=strengths)
        inputs = {name: _array(name, x) for name, x in inputs.items()}
        views = {name: _view(name, x) for name, x in inputs.items()}
        del inputs["lengths"]
        results = {name: None if x is None else np.empty(x.shape, x.dtype) for name, x in inputs.items()}
        scale = np.empty((), np.float64)
        of_state = None
        if state is not None:
            of_state = state._new_sums(theta is not None)
        self.vjp_tensors(
            _view("d_rows", _array("d_rows", d_rows)), views,
            {name: _view(name, x) for name, x in (results | {"scale": scale}).items()}, state,
            None if d_state is None else [_view(f"d_state.{name}", _array(name, x)) for name, x in zip(Sums._fields, d_state)],
            None if of_state is None else [_view(name, x) for name, x in zip(Sums._fields, of_state)])
        return Gradients(**results, scale=float(scale), state=of_state)

    # The calls of the library, on arrays of any origin. On a device `memory` is that of the workspace, and `stream` the
    # address of its stream, None: the default one.

    def workspace_bytes(self, inputs: dict[str, Tensor | None], call: str = "attend") -> int:
        """The bytes of memory that a call needs in its workspace, "prefill" being "attend" with a state; 0 on a CPU."""
        kind = _choice("call", call, ("attend", "attend_vjp", "decode", "prefill", "prefill_vjp"))
        size = c_size_t()
        _check(_lib().sympow_workspace_bytes(self._handle.pointer, byref(_struct_of(_Inputs, inputs)), c_int32(kind),
                                             byref(size)))
        return size.value

    def run_kept(self, call: str, key: list[Any], addresses: Iterable[int], state: State | None,
                 views: Callable[[], tuple[dict[str, Tensor | None], Tensor]]) -> None:
        """`sympow_attend` or `sympow_decode` on a CPU. `views()` gives inputs and rows; it is called again only where
        `key` is another than in the last call with this state, or of this thread without one: equal keys are for arrays
        that differ in nothing but `addresses`, those of the rows and of the inputs that are given. Addresses are asked
        for after `views()`, which may refuse the arrays."""
        if state is None:
            self._run_kept(_own, call, key, addresses, None, views)
            return
        _check_state("state", state)
        with state._handle.lock:
            self._run_kept(state._handle, call, key, addresses, state._handle.pointer, views)

    def _run_kept(self, keeper: Any, call: str, key: list[Any], addresses: Iterable[int], states: c_void_p | None,
                  views: Callable[[], tuple[dict[str, Tensor | None], Tensor]]) -> None:
        kept, keeper.kept = getattr(keeper, "kept", None), None  # a handler of signals that calls makes its own
        if kept is None or kept.of != (call, self, key):
            kept = _KeptCall(call, self, key, states, *views())
        kept(addresses)
        keeper.kept = kept

    def attend_tensors(self, inputs: dict[str, Tensor | None], rows: Tensor | None, state: State | None = None, *,
                       call: str = "sympow_attend", memory: Tensor | None = None, stream: int | None = None,
                       slots: dict[str, Tensor | None] | None = None) -> None:
        """The same on views, with nothing kept; on a device too. `slots`: indices and faults of `sympow_decode_slots`."""
        arguments = self._handle.pointer, byref(_struct_of(_Inputs, inputs))
        workspace = _workspace(memory)  # which the call must not outlive
        to = *_references([rows]), workspace.pointer, c_void_p(stream)
        if state is None:
            _check(getattr(_lib(), call)(*arguments, None, *to))
        else:
            with _locked(state=state) as [of_state]:
                of_slots = () if slots is None else (byref(_struct_of(_Slots, slots)),)
                _check(getattr(_lib(), call)(*arguments, of_state, *of_slots, *to))

    def diagnose_tensors(self, inputs: dict[str, Tensor | None], diagnostics: Tensor, state: State | None = None) -> None:
        """`sympow_diagnose` on views; diagnostics are [B, T, H, 3] of float64."""
        with _locked(state=state) as [of_state]:
            _check(_lib().sympow_diagnose(self._handle.pointer, byref(_struct_of(_Inputs, inputs)), of_state,
                                          byref(diagnostics), _workspace(None).pointer, None))

    def vjp_tensors(self, d_rows: Tensor, inputs: dict[str, Tensor | None], gradients: dict[str, Tensor | None],
                    state: State | None = None, d_state: Sequence[Tensor | None] | None = None,
                    d_state_before: Sequence[Tensor | None] | None = None, *, memory: Tensor | None = None,
                    stream: int | None = None) -> None:
        """`sympow_attend_vjp` on views; `d_state` and `d_state_before` are sums, normaliser and angles. On a device
        `d_state` is written, and `d_state_before` is None."""
        workspace = _workspace(memory)
        with _locked(state=state) as [before]:
            adjoint = None
            if before is not None and (d_state is not None or not isinstance(state, StateOnDevice)):
                adjoint = _Handle("state_gradients", "state_gradients_create", before,
                                  *_references(d_state or (None, None, None)))
            _check(_lib().sympow_attend_vjp(
                self._handle.pointer, byref(_struct_of(_Inputs, inputs)), *_references([d_rows]), before,
                None if adjoint is None else adjoint.pointer, byref(_struct_of(_Gradients, gradients)),
                workspace.pointer, c_void_p(stream)))
            if adjoint is not None and d_state_before is not None:
                _check(_lib().sympow_state_gradients_read(adjoint.pointer, *_references(d_state_before)))


def _references(tensors: Sequence[Tensor | None]) -> list[Any]:
    return [None if x is None else byref(x) for x in tensors]


class State:
    """What later tokens need of earlier ones, for B sequences and Hs heads: a value, which calls move on.

    `batch` sequences; `heads`, those of the queries or those of the keys, whose query heads then share a state; keys in
    R^d, values in R^e; `dtype` that of queries, keys and values. Empty; it begins where the state `after` ends, or at
    the first token. B Hs (D (e + 1) + tail (d + e)) numbers. One call at a time uses a state; a second one waits.

    Raises `InvalidArgument` for exponential scores, `ShapeMismatch`, `TooLarge`, `OutOfMemory`, `TypeError`.
    """

    def __init__(self, attention: Attention, batch: int, heads: int, d: int, e: int,
                 dtype: Any = np.float32, *, after: State | None = None) -> None:
        if not isinstance(attention, Attention):
            raise TypeError(f"attention is {_kind_of(attention)}, must be a sympow.Attention")
        self.attention, self.dtype = attention, np.dtype(dtype)
        self.batch, self.heads, self.d, self.e = (
            _number(name, x) for name, x in dict(batch=batch, heads=heads, d=d, e=e).items())
        self._reads_as_bf16 = False
        code, bits = _type_of("dtype", self.dtype)
        shape = _StateShape(batch=self.batch, heads=self.heads, d=self.d, e=self.e, device=1, code=code, bits=bits,
                            lanes=1)
        with _locked(after=after) as [of_after]:
            self._handle = _Handle("states", "states_create", attention._handle.pointer, byref(shape), of_after)

    def __repr__(self) -> str:
        return (f"<sympow.State of {self.batch} sequences and {self.heads} heads, d = {self.d}, e = {self.e}, "
                f"{self.dtype}, {self.attention!r}>")

    def _like(self, handle: _Handle) -> State:
        other = object.__new__(State)
        other.__dict__.update(self.__dict__, _handle=handle)
        return other

    def _new_sums(self, turns: bool) -> Sums:
        """Memory for what is in it."""
        D, of = self.attention.feature_dimension(self.d), (self.batch, self.heads)
        return Sums(np.empty((*of, D, self.e), self.dtype), np.empty((*of, D), self.dtype),
                    np.empty((*of, (self.attention._given["rotary_dim"] or self.d) // 2), np.float64) if turns else None)

    def copy(self) -> State:
        """Another one in the same place of the sequence."""
        with _locked(state=self):
            return self._like(_Handle("states", "states_copy", self._handle.pointer))

    __copy__ = copy

    def assign(self, sequence: int, other: State, other_sequence: int) -> None:
        """One sequence, with all its heads, becomes that of another state, which has the same sizes but for `batch`.

        Raises `InvalidArgument` for a sequence that there is not, `ShapeMismatch` for other sizes, types and powers.
        """
        with _locked(state=self, other=other) as [own, of_other]:
            _check(_lib().sympow_states_assign(own, c_int64(_number("sequence", sequence)), of_other,
                                               c_int64(_number("other_sequence", other_sequence))))

    def take(self, sequences: Sequence[int]) -> State:
        """Another one that has these of its sequences, in this order: beams, or requests that go on."""
        some = State(self.attention, len(sequences), self.heads, self.d, self.e, self.dtype)
        for n, sequence in enumerate(sequences):
            some.assign(n, self, sequence)
        if self._reads_as_bf16:
            some.read_as_bf16()
        return some

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        return self.copy()

    def __reduce__(self) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            self.save(path := Path(folder, "state"))
            return _state_of_file, (self.attention, self.batch, self.heads, self.d, self.e, self.dtype,
                                    self._reads_as_bf16, path.read_bytes())

    def clear(self) -> None:
        """Empties it: it begins at the first token."""
        with _locked(state=self):
            _check(_lib().sympow_states_clear(self._handle.pointer))

    def read_as_bf16(self, rounds: bool = True) -> None:
        """Whether S is read rounded to the upper half of its bits, float32 to bf16: half the bytes of a decoded token."""
        with _locked(state=self):
            _check(_lib().sympow_states_read_as_bf16(self._handle.pointer, ctypes.c_int32(bool(rounds))))
        self._reads_as_bf16 = bool(rounds)

    def merge(self, right: State) -> State:
        """The state after this one's tokens and then those of `right`, which was made `after` this one.

        Raises `ShapeMismatch` for other sizes, types and powers, `InvalidArgument` if `right` was made elsewhere.
        """
        with _locked(left=self, right=right) as of_both:
            merged = self._like(_Handle("states", "states_merge", *of_both))
        merged._reads_as_bf16 = right._reads_as_bf16
        return merged

    def tokens(self, sequence: int = 0, head: int = 0) -> int:
        """The tokens that it has seen. Raises `InvalidArgument` for a sequence or a head that it does not have."""
        tokens = c_int64()
        with _locked(state=self):
            _check(_lib().sympow_states_tokens(self._handle.pointer, c_int64(_number("sequence", sequence)),
                                               c_int64(_number("head", head)), byref(tokens)))
        return tokens.value

    def read(self) -> Sums:
        """What is in it, as arrays. Rows of S are monomials k_i1 ⋯ k_iP, i1 ≤ … ≤ iP, in lexicographic order, times the
        root of their multiplicity."""
        sums = self._new_sums(True)
        self.read_tensors([_view(name, x) for name, x in zip(Sums._fields, sums)])
        return sums

    def write(self, sums: np.ndarray, normaliser: np.ndarray, angles: np.ndarray | None = None) -> None:
        """It begins with these from now on, angles of None with 0. Raises `ShapeMismatch`, `NotFinite`."""
        arrays = zip(Sums._fields, (sums, normaliser, angles))
        self.write_tensors([_view(name, _array(name, x)) for name, x in arrays])

    def read_tensors(self, tensors: Sequence[Tensor | None]) -> None:
        """`sympow_states_read` into views of sums, normaliser and angles."""
        with _locked(state=self):
            _check(_lib().sympow_states_read(self._handle.pointer, *_references(tensors)))

    def write_tensors(self, tensors: Sequence[Tensor | None]) -> None:
        """`sympow_states_write` from views of sums, normaliser and angles."""
        with _locked(state=self):
            _check(_lib().sympow_states_write(self._handle.pointer, *_references(tensors)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Into a file, which `sympow-attend` reads as well. Raises `BadFile`."""
        with _locked(state=self):
            _check(_lib().sympow_states_save(self._handle.pointer, _path(path)))

    def load(self, path: str | os.PathLike[str]) -> None:
        """From a file of as many states, one a sequence and head, of the same d, e, type, power and tail. Raises `BadFile`, and is then as it was."""
        with _locked(state=self):
            _check(_lib().sympow_states_load(self._handle.pointer, _path(path)))


def _state_of_file(attention: Attention, batch: int, heads: int, d: int, e: int, dtype: np.dtype, reads_as_bf16: bool,
                   file: bytes) -> State:
    """A state that was pickled."""
    state = State(attention, batch, heads, d, e, dtype)
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder, "state")).write_bytes(file)
        state.load(path)
    state.read_as_bf16(reads_as_bf16)
    return state


class StateOnDevice(State):
    """A `State` in memory of a device for calls on views of arrays there, whose device and type `like` has.

    `new_memory(bytes)` gives a view of memory, which it keeps. `key_heads`: those of the keys. `write_tensors` and
    `read_tensors` work on `stream`, with sums and normaliser of float32.
    """

    def __init__(self, attention: Attention, batch: int, heads: int, key_heads: int, d: int, e: int, like: Tensor,
                 new_memory: Callable[[int], Tensor], stream: int | None) -> None:
        self.attention, self.batch, self.heads, self.d, self.e = attention, batch, heads, d, e
        self.dtype, self._stream = f"(code {like.code}, {like.bits} bits)", c_void_p(stream)
        shape, size = _StateShape(batch=batch, heads=heads, d=d, e=e, device=like.device, device_id=like.device_id,
                                  code=like.code, bits=like.bits, lanes=1, key_heads=key_heads), c_size_t()
        _check(_lib().sympow_states_bytes(attention._handle.pointer, byref(shape), byref(size)))
        self._memory = new_memory(size.value)
        shape.memory = ctypes.pointer(self._memory)
        self._handle = _Handle("states", "states_create", attention._handle.pointer, byref(shape), None)

    def __reduce__(self) -> Any:
        raise TypeError("a State on a GPU cannot be pickled; a state of tensors can")

    def read_tensors(self, tensors: Sequence[Tensor | None]) -> None:
        """`sympow_states_to_arrays`, of a state that has decoded nothing."""
        with _locked(state=self):
            _check(_lib().sympow_states_to_arrays(self._handle.pointer, *_references(tensors), None, self._stream))

    def write_tensors(self, tensors: Sequence[Tensor | None]) -> None:
        """`sympow_states_of_arrays`."""
        with _locked(state=self):
            _check(_lib().sympow_states_of_arrays(self._handle.pointer, *_references(tensors), self._stream))

    def drop_tensors(self, tokens: Tensor, slots: dict[str, Tensor | None], stream: int | None) -> None:
        """`sympow_states_drop`, with indices and faults."""
        with _locked(state=self):
            _check(_lib().sympow_states_drop(self._handle.pointer, byref(tokens), byref(_struct_of(_Slots, slots)),
                                             c_void_p(stream)))

    def copy_slots_tensors(self, slots: dict[str, Tensor | None], other: StateOnDevice,
                           other_slots: dict[str, Tensor | None], stream: int | None) -> None:
        """`sympow_states_copy_slots`, with indices and faults."""
        with _locked(state=self, other=other) as [own, of_other]:
            _check(_lib().sympow_states_copy_slots(own, byref(_struct_of(_Slots, slots)), of_other,
                                                   byref(_struct_of(_Slots, other_slots)), c_void_p(stream)))


def _state_heads(shapes: Mapping[str, Sequence[int]]) -> int:
    """Heads of states: as given, else those of the keys, unless gates or other parameters are those of the queries."""
    if "sums" in shapes:
        return shapes["sums"][1] if len(shapes["sums"]) > 1 else 0
    parameters = [shapes[name] for name in _INPUT_NAMES[3:] if name in shapes]
    own = any(len(shape) > 2 and shape[2] != shapes["keys"][2] for shape in parameters)
    return shapes["queries" if own else "keys"][2]


_OPTION_NAMES = frozenset(inspect.signature(Attention).parameters)


@functools.lru_cache(maxsize=64, typed=True)  # 2 and 2.0 are not the same power
def _cached_attention(**options: Any) -> Attention:
    return Attention(**options)


def _attention_of(options: dict[str, Any]) -> Attention:
    """That of these options. Raises `TypeError` for one that there is not."""
    for name in options:
        if name not in _OPTION_NAMES:
            raise TypeError(f"there is no argument {name}; options are {', '.join(sorted(_OPTION_NAMES))}")
    try:
        return _cached_attention(**options)
    except TypeError:  # such as an array in the place of a number
        return Attention(**options)


_LAYOUTS = ("bthd", "bhtd")


def _check_layout(layout: str, queries: Any) -> None:
    """Refuses another layout, and warns of heads in the place of tokens."""
    _choice("layout", layout, _LAYOUTS)
    shape = getattr(queries, "shape", ())
    if len(shape) != 4:
        return
    tokens, heads = (shape[1], shape[2]) if layout == "bthd" else (shape[2], shape[1])
    if 1 < tokens < heads and heads > 128:
        warnings.warn(f"queries are {list(shape)}, taken for {tokens} tokens of {heads} heads: the layout is {layout!r}",
                      stacklevel=3)


def _check_gates(layout: str, log_gates: Any, callers: int = 1) -> None:
    """Warns of log gates that seem to be sums over the tokens before already, as other packages have them inside."""
    if not isinstance(log_gates, np.ndarray) or log_gates.ndim != 3 or log_gates.size == 0:
        return
    one = log_gates[0, :, 0] if layout == "bthd" else log_gates[0, 0]
    if one.size >= 16 and (one[1:] < one[:-1]).all():
        warnings.warn("log_gates fall from every token to the next, as sums over tokens do: they are log γ of each token "
                      "alone", stacklevel=2 + callers)


def _exchanged(layout: str, name: str, x: Any) -> Any:
    """Axes of tokens and heads exchanged, for or after a call that has tokens first."""
    if layout == "bthd":
        return x
    x = _array(name, x)
    return np.swapaxes(x, 1, 2) if isinstance(x, np.ndarray) and x.ndim > 2 else x


def _in_layout(layout: str, error: SympowError) -> SympowError:
    """An error of a call that has tokens first, which names the axes that the caller has."""
    text = str(error)
    if layout != "bthd" and not text.startswith("theta"):
        text = re.sub(r"(shape|strides)\[([12])\]", lambda axis: f"{axis[1]}[{3 - int(axis[2])}]", text)
    return type(error)(text)


def attention(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, *, log_gates: np.ndarray | None = None,
              theta: np.ndarray | None = None, beta: np.ndarray | None = None, lengths: np.ndarray | None = None,
              channel_gates: np.ndarray | None = None, householder: np.ndarray | None = None,
              strengths: np.ndarray | None = None, state: State | None = None, out: np.ndarray | None = None,
              layout: str = "bthd", **options: Any) -> np.ndarray:
    """Rows y, [B, T, H, e], of queries [B, T, H, d], keys [B, T, Hk, d] and values [B, T, Hk, e].

    `options` are those of `Attention`: power, form, normalisation, scale …; arguments and errors those of its calls. With
    `layout="bhtd"` all of them are [B, H, T, d], gates [B, H, T]; rows are then a view, unless `out` is given.
    """
    _check_layout(layout, queries)
    _check_gates(layout, log_gates)
    given = dict(queries=queries, keys=keys, values=values, log_gates=log_gates, beta=beta, channel_gates=channel_gates,
                 householder=householder, strengths=strengths, out=out)
    try:
        rows = _attention_of(options)(**{name: _exchanged(layout, name, x) for name, x in given.items()}, theta=theta,
                                      lengths=lengths, state=state)
    except (ShapeMismatch, InvalidArgument) as error:
        raise _in_layout(layout, error) from None
    return _exchanged(layout, "rows", rows) if out is None else out


def diagnose(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, *, log_gates: np.ndarray | None = None,
             theta: np.ndarray | None = None, beta: np.ndarray | None = None, lengths: np.ndarray | None = None,
             channel_gates: np.ndarray | None = None, householder: np.ndarray | None = None,
             strengths: np.ndarray | None = None, state: State | None = None, layout: str = "bthd",
             **options: Any) -> Diagnostics:
    """What is known of the rows of `attention` with the same arguments: see `Attention.diagnose`."""
    _check_layout(layout, queries)
    _check_gates(layout, log_gates)
    given = dict(queries=queries, keys=keys, values=values, log_gates=log_gates, beta=beta, channel_gates=channel_gates,
                 householder=householder, strengths=strengths)
    try:
        found = _attention_of(options).diagnose(**{name: _exchanged(layout, name, x) for name, x in given.items()},
                                                theta=theta, lengths=lengths, state=state)
    except (ShapeMismatch, InvalidArgument) as error:
        raise _in_layout(layout, error) from None
    return Diagnostics(*(_exchanged(layout, "rows", x) for x in found))


def vjp(d_rows: np.ndarray, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, *,
        log_gates: np.ndarray | None = None, theta: np.ndarray | None = None, beta: np.ndarray | None = None,
        lengths: np.ndarray | None = None, channel_gates: np.ndarray | None = None,
        householder: np.ndarray | None = None, strengths: np.ndarray | None = None, state: State | None = None,
        d_state: Sums | None = None, layout: str = "bthd", **options: Any) -> Gradients:
    """The gradients of a loss in the arguments of `attention`, from d_rows = ∂loss/∂y: see `Attention.vjp`."""
    _check_layout(layout, queries)
    _check_gates(layout, log_gates)
    given = dict(queries=queries, keys=keys, values=values, log_gates=log_gates, beta=beta, channel_gates=channel_gates,
                 householder=householder, strengths=strengths)
    try:
        of = _attention_of(options).vjp(
            _exchanged(layout, "d_rows", d_rows), **{name: _exchanged(layout, name, x) for name, x in given.items()},
            theta=theta, lengths=lengths, state=state, d_state=d_state)
    except (ShapeMismatch, InvalidArgument) as error:
        raise _in_layout(layout, error) from None
    return of._replace(**{name: _exchanged(layout, name, getattr(of, name)) for name in given})


# ---- rotary frequencies ----

def rope_frequencies(d: int, base: float = 10000.0, *, scaling: str = "none", factor: float = 1.0,
                     length: float = 0.0, fast: float = 32.0, slow: float = 1.0,
                     sections: Sequence[int] | None = None) -> np.ndarray:
    """θ of rotary positions, d/2 radians per token: base^(-2i/d), scaled for contexts `factor` times as long.

    "linear": θ / factor. "ntk": a base that is factor^(d/(d-2)) times as large. "yarn": pairs with more than `fast` turns
    in the original `length` tokens stay, those with fewer than `slow` are divided by `factor`, those between in part;
    multiply `scale` by `yarn_scale(factor)`. With `sections` [n, d/2]: axis a of positions turns the next sections[a]
    pairs and no others (M-RoPE; `mrope_section` of Qwen2-VL). Raises `InvalidArgument`.
    """
    if sections is not None:
        theta = rope_frequencies(d, base, scaling=scaling, factor=factor, length=length, fast=fast, slow=slow)
        sizes = [_number("sections", size) for size in sections]
        if sum(sizes) != theta.size or min(sizes, default=0) < 0:
            raise InvalidArgument(f"sections are {sizes}, must sum to the {theta.size} pairs of d, none of them negative")
        return theta * (np.repeat(np.arange(len(sizes)), sizes) == np.arange(len(sizes))[:, None])
    _choice("scaling", scaling, ("none", "linear", "ntk", "yarn"))
    d = _number("d", d)
    if d < 2 or d % 2 != 0 or (scaling == "ntk" and d == 2):
        raise InvalidArgument(f"d is {d}, must be even and {'above' if scaling == 'ntk' else 'at least'} 2")
    given = dict(base=base, factor=factor, **(dict(length=length, fast=fast, slow=slow) if scaling == "yarn" else {}))
    for name, x in given.items():
        if not 0 < _real(name, x) < math.inf:
            raise InvalidArgument(f"{name} is {x}, must be positive and finite")
    if scaling == "ntk":
        base = base * factor ** (d / (d - 2))
    theta = float(base) ** (-np.arange(0, d, 2) / d)
    if scaling == "linear":
        return theta / factor
    if scaling != "yarn":
        return theta

    def pair_of(turns: float) -> float:
        return d * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))

    low, high = max(math.floor(pair_of(fast)), 0), min(math.ceil(pair_of(slow)), d - 1)
    share = np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1)
    return theta * ((1 - share) + share / factor)


def rotation_planes(generators: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The planes that commuting skew matrices turn: R(x) = exp(Σ_a x_a S_a) = U R(Σ_a x_a θ_a) Uᵀ, generators [n, d, d].

    Returns U, [d, d], orthogonal, and θ, [n, d/2], of interleaved pairs: the structured rotation by positions is rotary of
    turned channels, of `queries @ U` and `keys @ U`, with `theta=θ` and `pairing="interleaved"`. Positions that grow by 1
    have no β; others have β as `rope_frequencies` says. Cost: O(n² d³). Raises `ShapeMismatch` for an odd d, `NotFinite`, and
    `InvalidArgument` for generators that are not skew or do not commute, beyond 1e-8 of the largest entry of each, of float32 1e-5.
    """
    try:
        given = np.asarray(_array("generators", generators))
        S, most = np.array(given, np.float64), 1e-5 if given.dtype == np.float32 else 1e-8
    except (OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidArgument(f"generators are no array of numbers: {error}") from error
    if S.ndim != 3 or S.shape[1] != S.shape[2] or S.shape[1] % 2 != 0 or S.size == 0:
        raise ShapeMismatch(f"generators are {list(S.shape)}, must be [n, d, d] with an even d")
    if not np.isfinite(S).all():
        raise NotFinite("generators are not finite")
    sizes, d = np.abs(S).max((1, 2)), S.shape[1]
    S = S / np.where(sizes > 0, sizes, 1)[:, None, None]
    for a, b in itertools.combinations_with_replacement(range(len(S)), 2):
        if a == b and np.abs(S[a] + S[a].T).max() > most:
            raise InvalidArgument(f"generator {a} is not skew: an entry of S + Sᵀ is {np.abs(S[a] + S[a].T).max():.3g} of the "
                                  "largest of S, must be 0")
        if np.abs(S[a] @ S[b] - S[b] @ S[a]).max() > most:
            raise InvalidArgument(f"generators {a} and {b} do not commute")
    random, basis = np.random.default_rng(0), np.empty((0, d))
    mixed = np.einsum("a,aij->ij", random.standard_normal(len(S)), S)  # tells all planes apart that any of them does
    _, vectors = np.linalg.eigh(1j * mixed)
    for v in vectors.T[::-1]:  # the eigenvector of iS to λ ≥ 0 spans its plane by its two parts
        for x in (v.real, -v.imag):
            x = x - basis.T @ (basis @ x)
            x = x - basis.T @ (basis @ x)
            if len(basis) < d and (length := np.linalg.norm(x)) > 1e-6:
                basis = np.vstack([basis, x / length])
    turned, first = basis @ S @ basis.T, np.arange(0, d, 2)
    theta = turned[:, first + 1, first].copy()
    turned[:, first + 1, first] -= theta
    turned[:, first, first + 1] += theta
    if np.abs(turned).max() > most:
        raise InvalidArgument(f"planes of the generators are too near each other: {np.abs(turned).max():.3g} is left over")
    with np.errstate(over="ignore"):
        theta = theta * sizes[:, None]
    if not np.isfinite(theta).all():
        raise NotFinite("rates of the generators are beyond the largest number")
    return basis.T, theta


def yarn_scale(factor: float) -> float:
    """What YaRN multiplies logits by: (0.1 ln factor + 1)^2 for a factor above 1."""
    return (0.1 * math.log(factor) + 1) ** 2 if _real("factor", factor) > 1 else 1.0
