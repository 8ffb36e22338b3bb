"""Tests of the package: which library it takes, and what it says of it.  python3 test_package.py"""

import contextlib
import importlib.metadata
import io
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
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
                        ignore=shutil.ignore_patterns("*.so", "*.dylib", "x86-64-*", "bin", "__pycache__"))
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

    def run(self, *arguments, **environment):
        """python -m sympow with this package."""
        clean = {name: x for name, x in os.environ.items() if not name.startswith("SYMPOW_")}
        return run(sys.executable, "-B", "-m", "sympow", *arguments,
                   env=clean | {"PYTHONPATH": str(self.folder)} | environment)


def run(*arguments, **options):
    return subprocess.run([str(x) for x in arguments], capture_output=True, text=True, **options)


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

    def test_openmp_of_the_package_where_the_system_has_none(self):
        absent = OSError("libgomp.so.1: cannot open shared object file: No such file or directory")
        with Package(levels=[]) as package, mock.patch.object(sympow, "_openmp", None):
            folder, openmp, library = package.folder / "sympow", object(), object()
            (folder / "libgomp.so.1").unlink(missing_ok=True)
            with (mock.patch.object(sympow, "__path__", [str(folder)]),
                  mock.patch("ctypes.CDLL", side_effect=[absent, absent, openmp, library, OSError("x: damaged")]) as load):
                self.refuse(OSError, "libgomp.so.1: cannot open", sympow._load, "x")
                self.assertIsNone(sympow._openmp)
                (folder / "libgomp.so.1").touch()
                self.assertIs(sympow._load("x"), library)
                self.assertIs(sympow._openmp, openmp)
                self.assertEqual([call.args[0] for call in load.mock_calls],
                                 ["x", "x", str((folder / "libgomp.so.1").resolve()), "x"])
                self.refuse(OSError, "x: damaged", sympow._load, "x")

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
        self.assertEqual((sympow.has_cuda(), bool(sympow.cuda_widths())), (config["cuda"], config["cuda"]))
        self.refuse(sympow.InvalidArgument, "dtype is 'float64', must be one of bfloat16", sympow.cuda_widths, "float64")

    def test_the_numpy_part_needs_no_pytorch(self):
        with Package() as package:
            self.assertEqual(package.says("import sympow; print('torch' in sys.modules)"), "False")


@unittest.skipUnless(sys.platform == "linux", "the programs are for Linux")
class Launcher(unittest.TestCase):
    """python -m sympow, with a program that says how it was called."""

    def setUp(self):
        self.package = Package(levels=[])
        self.addCleanup(self.package.scratch.cleanup)
        (self.package.folder / "sympow" / "bin").mkdir()
        program = self.package.folder / "sympow" / "bin" / "sympow-verify"
        program.write_text('#!/bin/sh\necho "$0" "$@"\nexit ${STATUS:-0}\n')
        program.chmod(0o755)

    def test_arguments_and_exit_status_are_the_programs(self):
        for status in (0, 1, 2, 77):
            done = self.package.run("verify", "--words", "two words", "--help", STATUS=str(status))
            self.assertEqual(done.returncode, status)
            name, *words = done.stdout.strip().split(" ")
            self.assertEqual((Path(name).name, words), ("sympow-verify", ["--words", "two", "words", "--help"]))
            self.assertEqual(done.stderr, "")

    def test_programs_that_are_not_there(self):
        shutil.rmtree(self.package.folder / "sympow" / "bin")
        done = self.package.run("verify")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "sympow: sympow-verify is not in this package: it needs Linux, and gmp.h with "
                         "libgmp.a where the package is compiled (Debian: libgmp-dev)\n")

    def test_a_processor_below_the_lowest_level(self):
        package = self.package.folder / "sympow"
        (package / "x86-64-v4").mkdir()
        (package / "x86-64-v4" / sympow._FILE).symlink_to(LIBRARY)
        source = package / "__init__.py"
        self.package.cpuinfo.write_text("flags : fpu\n")
        source.write_text(source.read_text().replace('"/proc/cpuinfo"', repr(str(self.package.cpuinfo))))
        done = self.package.run("verify")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("sympow: this processor lacks cx16, ", done.stderr)

    def test_other_commands(self):
        done = self.package.run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("usage: python -m sympow {verify,attend,config}", done.stdout)
        self.assertEqual(self.package.run("config", "--help").stdout, done.stdout)
        done = self.package.run("config", SYMPOW_C_LIBRARY=str(LIBRARY))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(str(LIBRARY), done.stdout)
        done = self.package.run("config")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no such library", done.stderr)
        for arguments in ((), ("verfy",), ("config", "--scalar")):
            done = self.package.run(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"sympow: the command is {' '.join(arguments)!r}, must be verify, attend or config; see",
                          done.stderr)


@unittest.skipIf("SYMPOW_C_LIBRARY" in os.environ, "the programs are in an installed package")
@unittest.skipUnless(sys.platform == "linux", "the programs are for Linux")
class Programs(unittest.TestCase):
    """The programs of the installed package."""

    def module(self, *arguments, **environment):
        return run(sys.executable, "-m", "sympow", *arguments, env=os.environ | environment)

    def script(self, name, *arguments, **environment):
        return run(Path(sysconfig.get_path("scripts"), name), *arguments, env=os.environ | environment)

    def test_verify_prints_the_table(self):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = self.module("verify")
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 5)  # seconds, on an idle core
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"(?m)^paper +section +holds +errata +controls +documented +total$")
        self.assertIn("369 statements in double: ", done.stdout)
        self.assertTrue(done.stdout.rstrip().endswith("0 unexpected"))

    def test_verify_decides_exactly(self):
        done = self.script("sympow-verify", "--exact", "--filter", "F1.p4")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"(?m)^holds +F1\.p4 +exactly 0 ")

    def test_verify_refuses(self):
        done = self.script("sympow-verify", "--filter", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertTrue(done.stderr.rstrip().split("\n")[-1].startswith("sympow-verify: no statement fits"))
        self.assertIn("usage: sympow-verify [OPTIONS]", self.module("verify", "--help").stdout)

    def test_a_reader_that_leaves_ends_verify(self):
        """As it ends every program: Python's way with SIGPIPE is not passed on."""
        with subprocess.Popen([sys.executable, "-m", "sympow", "verify", "--list"], stdout=subprocess.PIPE) as program:
            program.stdout.close()
            self.assertEqual(program.wait(), -signal.SIGPIPE)

    def test_attend_has_the_bits_of_the_library_in_use(self):
        random = numpy.random.default_rng(1)
        with tempfile.TemporaryDirectory() as folder:
            for name in "QKV":
                numpy.save(f"{folder}/{name}", random.standard_normal((2, 100, 4, 16), numpy.float32))
            numpy.save(f"{folder}/G", -random.random((2, 100, 4)))
            code = ("import numpy as np, sympow; q, k, v, g = map(np.load, ('Q.npy', 'K.npy', 'V.npy', 'G.npy')); "
                    "np.save('Y', sympow.attention(q, k, v, log_gates=g, power=2, form='recurrent'))")
            rows = {}
            for level in sympow.show_config("dicts")["processors"]:
                environment = os.environ | {"SYMPOW_PROCESSOR": level}
                for program in (self.module, "attend"), (self.script, "sympow-attend"):
                    done = program[0](program[1], *f"--q {folder}/Q.npy --k {folder}/K.npy --v {folder}/V.npy --log-gate "
                                      f"{folder}/G.npy --out {folder}/R.npy --form recurrent".split(),
                                      SYMPOW_PROCESSOR=level)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn("power 2, 8 heads of 100 tokens", done.stdout)
                    run(sys.executable, "-c", code, cwd=folder, env=environment, check=True)
                    rows[level] = numpy.load(f"{folder}/R.npy")
                    numpy.testing.assert_array_equal(rows[level], numpy.load(f"{folder}/Y.npy"))
            if len(rows) > 1:  # or the test could not tell the libraries apart
                self.assertFalse(numpy.array_equal(rows["x86-64-v2"], rows["x86-64-v3"]))

    def test_attend_refuses(self):
        done = self.script("sympow-attend")
        self.assertEqual((done.returncode, done.stderr),
                         (2, "sympow-attend: --q is missing; see sympow-attend --help\n"))
        self.assertIn("  sympow-attend --q Q.npy", self.module("attend", "--help").stdout)

    def test_libraries_of_others(self):
        """GMP is in the program, OpenMP beside the library, and their licenses are with the package."""
        self.assertNotIn(b"libgmp.so", (PACKAGE / "bin" / "sympow-verify").read_bytes())
        if b"libgomp.so.1" in LIBRARY.read_bytes():
            self.assertTrue((PACKAGE / "libgomp.so.1").is_file())
        files = [str(file) for file in importlib.metadata.files("sympow-attention")]
        for name in ("THIRD_PARTY.txt", "LGPL-3.0.txt", "GPL-3.0.txt"):
            self.assertTrue([file for file in files if ".dist-info/" in file and file.endswith(name)], name)


if __name__ == "__main__":
    unittest.main()
