"""The programs of this package.  python -m sympow {verify,attend,config}; the first two also as sympow-verify, sympow-attend

A program takes the place of Python's process, so signals and its exit status are those of the program.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import sympow

_USAGE = """usage: python -m sympow {verify,attend,config} [OPTIONS]

verify  decides every statement of the papers and prints a table of them; also the command sympow-verify
attend  attention on files of numpy.save; also the command sympow-attend
config  says which library is in use

verify --help and attend --help list their options.
exit status: 0 success, 1 a statement or a comparison fails, 2 wrong arguments, or the program is not in this package
"""
_PROGRAMS = Path(__file__).resolve().parent / "bin"
_NEEDS = {"sympow-verify": "Linux, and gmpxx.h with libgmp.a where the package is compiled (Debian: libgmp-dev)",
          "sympow-attend": "Linux"}


def _refuse(text: str) -> NoReturn:
    print(f"sympow: {text}", file=sys.stderr)
    sys.exit(2)


def _with_library(program: Path) -> dict[str, str]:
    """The environment in which the loader takes the library that `sympow.use` chooses for a program."""
    sympow.use()
    paths = []
    for library in filter(None, (sympow._openmp, sympow._library)):
        paths.append("$ORIGIN/" + os.path.relpath(library._name, program.parent))  # no name of a folder around the package
        if set(paths[-1]) & set(" :"):
            raise sympow.InvalidArgument(f"SYMPOW_C_LIBRARY is {library._name}, must have no space and no colon for "
                                         f"{program.name}")
    preloaded = filter(None, (os.environ.get("LD_PRELOAD"), *paths))
    return os.environ | {"LD_PRELOAD": ":".join(preloaded)}


def _run(name: str, arguments: list[str]) -> NoReturn:
    """Becomes a program of this package."""
    program = _PROGRAMS / name
    if not program.is_file():
        _refuse(f"{name} is not in this package: it needs {_NEEDS[name]}")
    try:
        sympow._choose_level()  # the program is compiled for the lowest level
        environment = _with_library(program) if name == "sympow-attend" else os.environ
    except sympow.SympowError as error:
        _refuse(str(error))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits that
        signal.signal(number, signal.SIG_DFL)
    os.execve(program, [name, *arguments], environment)


def verify() -> NoReturn:
    """The command sympow-verify."""
    _run("sympow-verify", sys.argv[1:])


def attend() -> NoReturn:
    """The command sympow-attend."""
    _run("sympow-attend", sys.argv[1:])


def main() -> None:
    """The command python -m sympow."""
    command, *options = sys.argv[1:] or [""]
    if command in ("verify", "attend"):
        _run(f"sympow-{command}", options)
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
