"""sympow for Conan 2, out of the checkout around this folder. Eigen is that of the system."""
import pathlib
import re
import shutil

from conan import ConanFile
from conan.tools.cmake import CMake
from conan.tools.files import load


class Sympow(ConanFile):
    name = "sympow"
    license = "MIT"
    description = "Attention whose scores are powers of inner products, on Eigen"
    settings = "os", "arch", "compiler", "build_type"
    options = {"c": [True, False]}  # also the shared library of sympow.h
    default_options = {"c": False}
    generators = "CMakeToolchain"

    @property
    def checkout(self):
        return pathlib.Path(self.recipe_folder).resolve().parents[1]

    def set_version(self):
        self.version = re.search(r"project\(sympow VERSION ([0-9.]+)", load(self, self.checkout / "CMakeLists.txt"))[1]

    def export_sources(self):  # what CMake installs
        to = pathlib.Path(self.export_sources_folder)
        for folder in "include", "docs":
            shutil.copytree(self.checkout / folder, to / folder)
        for file in "CMakeLists.txt", "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff":
            shutil.copy(self.checkout / file, to)

    def package_id(self):
        if not self.info.options.c:  # headers are for every compiler
            self.info.clear()

    def build(self):
        cmake = CMake(self)
        cmake.configure(variables={f"SYMPOW_{name}": "OFF" for name in ("BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_BENCH", "CUDA")})
        if self.options.c:
            cmake.build(target="sympow_c")

    def package(self):
        cmake = CMake(self)
        cmake.install(component="Unspecified")  # the headers
        if self.options.c:
            cmake.install(component="c")

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # find_package reads the library's own files
        self.cpp_info.builddirs = ["lib/cmake/sympow"]
        self.cpp_info.bindirs = []
        if self.options.c:
            self.cpp_info.libs = ["sympow_c"]
        else:
            self.cpp_info.libdirs = []
