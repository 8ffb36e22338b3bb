"""Tests of the package: which library it takes, and what it says of it.  python3 test_package.py"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

try:
    import numpy  # which sympow needs
except ImportError:
    print("numpy is not installed for", sys.executable, "- the package is not tested")
    sys.exit(77)
import sympow

V2, V3, V4 = (flags.split() for flags in sympow._LEVELS.values())
LEVELS = list(sympow._LEVELS)
PACKAGE = Path(sympow.__file__).parent
LIBRARY = Path(sympow.show_config("dicts")["library"])


class Package:
    """A copy of the package with libraries of these levels; a processor with these flags, None: nothing says them."""

    def __init__(self, flags=None, levels=LEVELS):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name)
        self.cpuinfo = self.folder / "cpuinfo"
        if flags is not None:
            self.cpuinfo.write_text(f"processor\t: 0\nflags\t\t: fpu {' '.join(flags)}\nbugs\t\t:\n")
        shutil.copytree(PACKAGE, self.folder / "sympow",
                        ignore=shutil.ignore_patterns("*.so", "*.dylib", "x86-64-*", "__pycache__"))
        for level in levels:
            (self.folder / "sympow" / level).mkdir()
            (self.folder / "sympow" / level / sympow._FILE).symlink_to(LIBRARY)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.scratch.cleanup()

    def chosen(self, **environment):
        """The level that `use` takes; None: the package has no levels."""
        with (mock.patch.object(sympow, "_CPUINFO", self.cpuinfo), mock.patch.dict(os.environ, environment),
              mock.patch.object(sympow, "__path__", [str(self.folder / "sympow")])):
            level, file = sympow._choose_level() or (None, None)
        if level is not None:
            assert file == self.folder / "sympow" / level / sympow._FILE
        return level

    def says(self, code, **environment):
        """The last line of what another program with the package prints."""
        clean = {name: x for name, x in os.environ.items() if not name.startswith("SYMPOW_")}
        code = f"import sys; sys.path.insert(0, {str(self.folder)!r}); sys.dont_write_bytecode = True\n" + code
        done = subprocess.run([sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True)
        return (done.stdout + done.stderr).strip().split("\n")[-1]


class Levels(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        os.environ.pop("SYMPOW_PROCESSOR", None)

    def refuse(self, kind, text, package, **environment):
        with self.assertRaisesRegex(kind, text):
            package.chosen(**environment)

    def test_the_best_that_the_processor_has_is_taken(self):
        for flags, levels, wanted in ((V2, LEVELS, 0), (V2 + V3, LEVELS, 1), (V2 + V3 + V4, LEVELS, 2),
                                      (V2 + V3 + V4, LEVELS[:2], 1), (V2 + V3[1:] + V4, LEVELS, 0),
                                      (V2 + V3 + V4[:-1], LEVELS, 1), (None, LEVELS, 0)):
            with self.subTest(flags=flags, levels=levels), Package(flags, levels) as package:
                self.assertEqual(package.chosen(), LEVELS[wanted])
        with Package(V2, []) as package:
            self.assertIsNone(package.chosen())

    def test_a_level_that_is_named(self):
        with Package(V2 + V3) as package:
            self.assertEqual(package.chosen(SYMPOW_PROCESSOR="x86-64-v2"), "x86-64-v2")
            self.refuse(sympow.InvalidArgument, "SYMPOW_PROCESSOR is 'haswell', must be one of x86-64-v2, x86-64-v3, "
                        "x86-64-v4", package, SYMPOW_PROCESSOR="haswell")
            self.refuse(sympow.InvalidArgument, "SYMPOW_PROCESSOR is x86-64-v4, but this processor lacks "
                        + ", ".join(V4), package, SYMPOW_PROCESSOR="x86-64-v4")
        with Package(V2 + V3, LEVELS[:1]) as package:
            self.refuse(sympow.LibraryNotFound, "SYMPOW_PROCESSOR is x86-64-v3, but .*sympow has only x86-64-v2",
                        package, SYMPOW_PROCESSOR="x86-64-v3")
        with Package(V2 + V3, []) as package:
            self.refuse(sympow.LibraryNotFound, "sympow has no libraries of levels", package,
                        SYMPOW_PROCESSOR="x86-64-v3")

    def test_a_processor_below_all_levels(self):
        with Package(V2[1:]) as package:
            self.refuse(sympow.LibraryNotFound, f"this processor lacks {V2[0]} of x86-64-v2, the lowest", package)

    def test_this_processor(self):
        """The loader of glibc finds the same levels."""
        loader = Path("/lib64/ld-linux-x86-64.so.2")
        said = subprocess.run([loader, "--help"], capture_output=True, text=True).stdout if loader.exists() else ""
        if "x86-64-v2" not in said:
            self.skipTest("there is no loader that says levels")
        self.assertEqual([level for level in LEVELS if not sympow._missing_flags(level)],
                         sorted(re.findall(r"(x86-64-v\d) \(supported", said)))


class Libraries(unittest.TestCase):
    def refuse(self, kind, text, call, *arguments):
        with self.assertRaisesRegex(kind, text):
            call(*arguments)

    def test_libraries(self):
        library, report = str(LIBRARY), "import sympow; print(sympow.show_config('dicts')['library'])"
        with Package(levels=[]) as package:
            self.assertIn(f"{sympow._FILE} of this package, and SYMPOW_C_LIBRARY is not set: there is no such",
                          package.says(report))
            os.symlink(library, package.folder / "sympow" / sympow._FILE)
            self.assertEqual(package.says(report), str(LIBRARY.resolve()))
        with Package() as package:
            self.assertEqual(package.says(report, SYMPOW_C_LIBRARY=library), str(LIBRARY.resolve()))
            self.assertEqual(package.says(f"import sympow; sympow.use({library!r})\n" + report, SYMPOW_C_LIBRARY="x"),
                             str(LIBRARY.resolve()))
            self.assertIn("LibraryNotFound: x of SYMPOW_C_LIBRARY: there is no such",
                          package.says(report, SYMPOW_C_LIBRARY="x"))
            self.assertIn("not a library of sympow", package.says(report, SYMPOW_C_LIBRARY=__file__))
            later = ("import ctypes, types\nctypes.CDLL = lambda name: types.SimpleNamespace(sympow_error=0, "
                     "sympow_version=lambda: 10000)\n")
            self.assertIn("has the version 10000, must be 0.2", package.says(later + report, SYMPOW_C_LIBRARY=library))
            self.assertIn("InvalidArgument: SYMPOW_PROCESSOR is 'i386'", package.says(report, SYMPOW_PROCESSOR="i386"))
        self.refuse(sympow.LibraryNotFound, "/nothing: there is no such library", sympow.use, "/nothing")
        self.refuse(sympow.InvalidArgument, "is in use", sympow.use, __file__)
        sympow.use(library)

    def test_show_config(self):
        config, text = sympow.show_config("dicts"), io.StringIO()
        self.assertEqual(config["version"], sympow.__version__)
        self.assertEqual(Path(config["library"]), LIBRARY)
        self.assertIn(config["processor"], [None, *config["processors"]])
        with contextlib.redirect_stdout(text):
            self.assertIsNone(sympow.show_config())
        for name, x in config.items():
            words = ", ".join(x) if isinstance(x, list) else str(x)
            self.assertRegex(text.getvalue(), rf"(?m)^{name}: +{re.escape(words)}$")
        self.refuse(sympow.InvalidArgument, "mode is 'yaml', must be one of stdout, dicts", sympow.show_config, "yaml")

    def test_the_numpy_part_needs_no_pytorch(self):
        with Package() as package:
            self.assertEqual(package.says("import sympow; print('torch' in sys.modules)"), "False")


if __name__ == "__main__":
    unittest.main()
