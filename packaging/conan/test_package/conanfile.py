"""Builds and runs the program of tests/package with the package."""
import pathlib

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        self.folders.root = "../../.."
        self.folders.source = "tests/package"
        self.folders.build = self.folders.generators = "build/conan"

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # no file beside the sources
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(cli_args=["--fresh"])  # and not the package of the last run
        cmake.build()

    def test(self):
        self.run(str(pathlib.Path(self.build_folder) / "consumer"), env="conanrun")
