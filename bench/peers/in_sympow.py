"""The same by sympow, through the C functions of sympow_forms.cpp."""

import ctypes

import numpy as np


def instructions(library):
    """For which instructions the library was compiled."""
    name = ctypes.CDLL(library).sympow_instructions
    name.restype = ctypes.c_char_p
    return name().decode()


class Sequence:
    """A state of sympow's and its scratch memory."""

    def __init__(self, library, d, e):
        self.forms, self.e = ctypes.CDLL(library), e
        self.forms.sympow_open.restype = ctypes.c_void_p
        self.handle = ctypes.c_void_p(self.forms.sympow_open(ctypes.c_long(d), ctypes.c_long(e)))

    def __del__(self):
        self.forms.sympow_close(self.handle)

    def empty(self):
        self.forms.sympow_empty(self.handle)

    def form(self, name, tokens, y):
        """A callable that runs a form on arrays that stay where they are."""
        function = getattr(self.forms, f"sympow_{name}")
        arguments = [ctypes.c_long(len(y))] + [ctypes.c_void_p(x.ctypes.data) for x in (*tokens, y)]
        return lambda: function(self.handle, *arguments)

    def from_start(self, name, tokens):
        """The same from the empty state; the callable returns its outputs."""
        y = np.empty((len(tokens[0]), self.e), np.float32)
        run = self.form(name, tokens, y)

        def call():
            self.empty()
            run()
            return y

        return call

    def gradients(self, tokens, dy):
        """A callable that returns the gradients of Σ dy·y in the tokens, of the chunked form from the empty state, forward and backward."""
        of_tokens, y = [np.empty_like(x) for x in tokens], np.empty_like(dy)
        arrays = (*tokens, dy, y, *of_tokens)

        def call():
            self.empty()
            addresses = [ctypes.c_void_p(x.ctypes.data) for x in arrays]
            self.forms.sympow_gradients(self.handle, ctypes.c_long(len(y)), *addresses)
            return of_tokens

        return call
