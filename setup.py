"""Builds the extensions: _core, _tape and _graphs against the installed torch, the others against Python alone."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch
from setuptools import Extension, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, get_cxx_compiler, include_paths

FLAGS = ["-O3", "-g1", "-Wall", "-Wno-unused-function", "-fvisibility=hidden"]
# Headers of ours are named by their path in native/. Not by -I: then <memory> and <torch/...> could be ours, too.
QUOTED = ["-iquote", str(Path("native").resolve()), "-iquote", str(Path("src/torchreel/include").resolve())]
CXX = [*FLAGS, *QUOTED, "-std=c++20"]
TORCH_INCLUDES = include_paths()
WRAPPERS = Path("build", "wrappers")
KERNELS = Path("build", "kernels")
PRECOMPILED = Path("build", "precompiled")


def sources(*names: str) -> list[str]:
    """Whole folders of native/, and single files of those that extensions share: base, cpython, torch, edge."""
    found: list[Path] = []
    for path in (Path("native", name) for name in names):
        found += [path] if path.suffix else sorted(path.rglob("*.cpp"))
    return [str(path) for path in found]


CORE = sources(
    "record",
    "memory",
    "cpython/frames.cpp",
    "edge/lite.cpp",
    "torch/profiler_state.cpp",
    "torch/script_stack.cpp",
)
DECODE = sources("decode")
SIMULATOR = sources("simulator")
TAPE = sources("tape")
GRAPHS = sources("graphs", "cpython/dict_version.cpp", "torch/anatomy.cpp", "torch/tensor_state.cpp")


def generate(extension: Extension, generator: str, folder: Path) -> None:
    """What is generated is written where only the build looks, and anew only where it changes."""
    environment = {**os.environ, "PYTHONPATH": "src"}
    environment.pop("TORCHREEL_ALLOCATOR", None)  # it would ask for an extension that is not built yet
    if subprocess.run([sys.executable, "-m", generator, str(folder)], env=environment).returncode != 0:
        raise SystemExit(f"The sources that {generator} writes could not be generated: see above.")
    extension.sources += sorted(str(path) for path in folder.glob("*.cpp"))


def precompile(extension: Extension, compiler: list[str]) -> None:
    """Reads torch's headers once instead of once per file, some 4 s of each; without it the build goes on."""
    includes = [f"-I{path}" for path in extension.include_dirs]
    macros = [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in extension.define_macros]
    flags = extension.extra_compile_args["cxx"]
    command = [*compiler, *includes, *macros, *flags]
    # What is in it is not asked for its time again, so another torch is another path.
    header = PRECOMPILED / torch.__version__ / extension.name / "precompiled.h"
    compiled = header.with_suffix(".h.gch")
    text = f"// {' '.join(command)}\n" + Path("native", "torch", "precompiled.h").read_text()
    header.parent.mkdir(parents=True, exist_ok=True)
    if not compiled.exists() or header.read_text() != text:
        compiled.unlink(missing_ok=True)
        header.write_text(text)
        if subprocess.run([*command, "-w", "-x", "c++-header", str(header), "-o", str(compiled)]).returncode != 0:
            compiled.unlink(missing_ok=True)
            return
    # Torch's own pragmas against this warning are lost on the way.
    flags += ["-include", str(header.resolve()), "-Wno-sign-compare"]


class Build(BuildExtension):
    def build_extensions(self) -> None:
        check = [
            "cc",
            "-fsyntax-only",
            *QUOTED,
            "-I",
            sysconfig.get_path("include"),
            "native/cpython/interpreter_check.c",
        ]
        subprocess.run(check, check=True)
        for extension in self.extensions:
            if extension.name == "torchreel._tape":
                generate(extension, "torchreel.tape.codegen.generator", WRAPPERS)
            elif extension.name == "torchreel._graphs":
                generate(extension, "torchreel.graphs.codegen.kernel_generator", KERNELS)
        super().build_extensions()

    def build_extension(self, extension: Extension) -> None:
        # Here, because only now the flags are whole: a header that was made with others is not used.
        if extension.name in ("torchreel._tape", "torchreel._graphs"):
            includes = [f"-I{path}" for path in self.compiler.include_dirs]
            precompile(extension, [get_cxx_compiler(), *self.compiler.compiler_so[1:], *includes])
        super().build_extension(extension)


HEADERS = [str(path) for path in Path("native").rglob("*.h")]
EXTENSIONS = [
    CppExtension(
        "torchreel._core",
        CORE,
        extra_compile_args={"cxx": CXX},
        depends=HEADERS,
    ),
    CppExtension(
        "torchreel._tape",
        TAPE,
        # Hundreds of wrappers: a build is to take minutes, and what they call is in torch.
        extra_compile_args={"cxx": [*CXX, "-O2", "-g0"]},
        depends=HEADERS,
    ),
    CppExtension(
        "torchreel._graphs",
        GRAPHS,
        # Torch's table of kernels has a place for each of these, and its headers must be told so.
        define_macros=[("HAVE_AVX2_CPU_DEFINITION", None), ("HAVE_AVX512_CPU_DEFINITION", None)],
        extra_compile_args={"cxx": [*CXX, "-O2", "-g0"]},
        depends=HEADERS,
    ),
    *(
        Extension(
            name,
            files,
            # pybind11 is headers only, and torch carries a copy.
            include_dirs=TORCH_INCLUDES,
            extra_compile_args={"cxx": CXX},
            depends=HEADERS,
            language="c++",
        )
        for name, files in (("torchreel._decode", DECODE), ("torchreel._simulator", SIMULATOR))
    ),
    # No module of Python's, but a library: see native/edge/entry.cpp.
    Extension(
        "torchreel._edge_entry",
        ["native/edge/entry.cpp"],
        extra_compile_args={"cxx": CXX},
        extra_link_args=["-Wl,--as-needed"],
        depends=HEADERS,
        language="c++",
    ),
]

# The Makefile installs the package once, and compiles by itself whatever has changed since.
setup(
    ext_modules=[] if os.environ.get("TORCHREEL_NATIVE") == "no" else EXTENSIONS,
    cmdclass={"build_ext": Build},
)
