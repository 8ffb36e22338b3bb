"""The programs of this package.  python -m sympow {verify,attend,config}; the first two also as sympow-verify, sympow-attend"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import sympow
import sympow.attend

_USAGE = """usage: python -m sympow {verify,attend,config} [OPTIONS]

verify  decides every statement of the papers and prints a table of them; also the command sympow-verify
attend  attention on files of numpy.save; also the command sympow-attend
config  says which library is in use

verify --help and attend --help list their options.
exit status: 0 success, 1 a statement or a comparison fails, 2 wrong arguments, or the program is not in this package
"""
_NEEDS = "Linux, and gmp.h with libgmp.a where the package is compiled (Debian: libgmp-dev)"


def _refuse(text: str) -> NoReturn:
    print(f"sympow: {text}", file=sys.stderr)
    sys.exit(2)


def _run_verify(arguments: list[str]) -> NoReturn:
    """Becomes the program sympow-verify, so signals and the exit status are its own."""
    program = Path(__file__).resolve().parent / "bin" / "sympow-verify"
    if not program.is_file():
        _refuse(f"sympow-verify is not in this package: it needs {_NEEDS}")
    try:
        sympow._choose_level()  # the program is compiled for the lowest level
    except sympow.SympowError as error:
        _refuse(str(error))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits that
        signal.signal(number, signal.SIG_DFL)
    os.execv(program, ["sympow-verify", *arguments])


def _run_attend(arguments: list[str]) -> NoReturn:
    """Runs sympow-attend. SIGINT ends it at once, in a call of the library, too."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may be any bytes
    sys.exit(sympow.attend.main(arguments))


def verify() -> NoReturn:
    """The command sympow-verify."""
    _run_verify(sys.argv[1:])


def attend() -> NoReturn:
    """The command sympow-attend."""
    _run_attend(sys.argv[1:])


def main() -> None:
    """The command python -m sympow."""
    command, *options = sys.argv[1:] or [""]
    if command == "verify":
        _run_verify(options)
    if command == "attend":
        _run_attend(options)
    if command in ("-h", "--help") or (command == "config" and options in (["-h"], ["--help"])):
        print(_USAGE, end="")
    elif command == "config" and not options:
        try:
            sympow.show_config()
        except sympow.SympowError as error:
            _refuse(str(error))
    else:
        _refuse(f"the command is {' '.join(sys.argv[1:])!r}, must be verify, attend or config; see python -m sympow --help")


if __name__ == "__main__":
    main()
