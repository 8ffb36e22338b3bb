# The C interface from Python, with nothing but ctypes: the bits of a call are those of its parts, and mistakes are
# statuses with a text.  python3 ctypes_test.py libsympow_c.so
import ctypes
import random
import sys
from ctypes import POINTER, byref, c_double, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p

lib = ctypes.CDLL(sys.argv[1])
lib.sympow_error.restype = ctypes.c_char_p


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", c_int32), ("id", c_int32), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("offset", c_uint64)]


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t)] + [(name, c_int32) for name in (
        "scores", "power", "normalisation", "form", "mask", "pairing", "threads", "check_finite")] + [
            (name, c_int64) for name in ("offset", "chunk", "checkpoint", "tail")] + [("scale", c_double)] + [
                (name, c_int64) for name in ("rotary_dim", "features", "seed", "window")]


class Inputs(ctypes.Structure):
    _fields_ = [("size", c_size_t)] + [(name, POINTER(Tensor)) for name in (
        "queries", "keys", "values", "log_gates", "theta", "beta", "lengths", "channel_gates", "householder",
        "strengths")]


class StateShape(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("batch", c_int64), ("heads", c_int64), ("d", c_int64), ("e", c_int64),
                ("device", c_int32), ("id", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("reserved", c_int32), ("memory", POINTER(Tensor)), ("key_heads", c_int64)]


def tensor(numbers, *shape, start=0):
    """A view of shape [B, T, ...] on an array, from token `start` on; the array has as many tokens as it has numbers."""
    dims = (c_int64 * len(shape))(*shape)
    of_token = 1
    for n in shape[2:]:
        of_token *= n
    strides = [len(numbers) // shape[0], of_token]
    for n in shape[2:]:
        of_token //= n
        strides.append(of_token)
    strides = (c_int64 * len(shape))(*strides)
    bits = 8 * ctypes.sizeof(numbers._type_)
    view = Tensor(ctypes.addressof(numbers), 1, 0, len(shape), 2, bits, 1, dims, strides, start * strides[1] * bits // 8)
    view.keep = (numbers, dims, strides)
    return view


def check(status):
    if status != 0:
        sys.exit("status %d: %s" % (status, lib.sympow_error().decode()))


B, T, H, d, e = 2, 12, 2, 4, 3
random.seed(1)


def numbers(count, of=c_float):
    return (of * count)(*(random.uniform(-1, 1) for _ in range(count)))


q, k, v = numbers(B * T * H * d), numbers(B * T * H * d), numbers(B * T * H * e)
gates = (c_double * (B * T * H))(*(-abs(random.gauss(0, .1)) for _ in range(B * T * H)))
y, part = numbers(B * T * H * e), numbers(B * T * H * e)


def inputs(first, count):
    x = Inputs(size=ctypes.sizeof(Inputs))
    views = tensor(q, B, count, H, d, start=first), tensor(k, B, count, H, d, start=first), tensor(
        v, B, count, H, e, start=first), tensor(gates, B, count, H, start=first)
    x.queries, x.keys, x.values, x.log_gates = map(ctypes.pointer, views)
    x.keep = views
    return x


assert lib.sympow_version() == 200
attention, states, workspace = c_void_p(), c_void_p(), c_void_p()
check(lib.sympow_attention_create(byref(Options(size=ctypes.sizeof(Options), power=2, form=2, tail=-1, scale=1)),
                                  byref(attention)))
check(lib.sympow_workspace_create(None, byref(workspace)))
shape = StateShape(ctypes.sizeof(StateShape), B, H, d, e, 1, 0, 2, 32, 1, 0)
check(lib.sympow_states_create(attention, byref(shape), None, byref(states)))

rows = tensor(y, B, T, H, e)
check(lib.sympow_attend(attention, byref(inputs(0, T)), states, byref(rows), workspace, None))
check(lib.sympow_states_clear(states))
for t in range(T):
    row = tensor(part, B, 1, H, e, start=t)
    check(lib.sympow_decode(attention, byref(inputs(t, 1)), states, byref(row), workspace, None))
assert bytes(part) == bytes(y), "token by token differs from all tokens"

rows.bits = 64
assert lib.sympow_attend(attention, byref(inputs(0, T)), states, byref(rows), workspace, None) == 1
assert b"rows is of float64, must be of float32" in lib.sympow_error(), lib.sympow_error()
for end, handle in ((lib.sympow_states_destroy, states), (lib.sympow_workspace_destroy, workspace),
                    (lib.sympow_attention_destroy, attention)):
    end(handle)
print("the C interface from Python: well")
