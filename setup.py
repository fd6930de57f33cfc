"""Builds the extensions, as one graph of ninja: what changed is compiled, and nothing twice.

TORCHREEL_NATIVE says which: "no" for none, or names such as "_core _decode"; without it, all.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
BUILD = Path("build", "native")
FLAGS = ["-std=c++20", "-fPIC", "-fwrapv", "-DNDEBUG", "-Wall", "-Wno-unused-function", "-fvisibility=hidden"]
# Headers of ours are named by their path in native/. Not by -I: then <memory> and <torch/...> could be ours, too.
QUOTED = ["-iquote", "native", "-iquote", "src/torchreel/include"]
# A compiler cache finds what another checkout of the same sources compiled.
CACHE = {
    "CCACHE_BASEDIR": str(HERE),
    "CCACHE_NOHASHDIR": "1",
    "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime",
}


def sources(*names: str) -> list[str]:
    """Whole folders of native/, and single files of those that extensions share: base, cpython, torch, edge."""
    found: list[Path] = []
    for path in (Path("native", name) for name in names):
        found += [path] if path.suffix else sorted(path.rglob("*.cpp"))
    return [str(path) for path in found]


@dataclass(frozen=True)
class Library:
    """An extension: its sources, and how they are compiled."""

    sources: list[str]
    optimize: list[str] = field(default_factory=lambda: ["-O3", "-g1"])
    torch: bool = False
    """Whether it links torch. pybind11 is headers only, and torch carries a copy: all may include it."""
    precompiled: str = ""
    """A header that all of its files include first, read once instead of once per file."""
    macros: tuple[str, ...] = ()
    generator: str = ""
    """A module that writes more sources into a folder."""


# Hundreds of wrappers and kernels: a build is to take minutes, and what they call is in torch.
_MANY = ["-O2", "-g0"]
# Bindings only hand on: they are large, and nothing in them is worth a second of compiling.
_BINDINGS = ["-O1", "-g0"]
LIBRARIES = {
    "_core": Library(
        sources("record", "memory", "cpython/frames.cpp", "torch/profiler_state.cpp", "torch/script_stack.cpp"),
        torch=True,
        precompiled="native/record/precompiled.h",
    ),
    "_decode": Library(sources("decode")),
    "_simulator": Library(sources("simulator")),
    "_lite": Library(sources("edge/lite.cpp"), _MANY, torch=True),
    # No module of Python's, but a library: see native/edge/entry.cpp.
    "_edge_entry": Library(sources("edge/entry.cpp")),
    "_tape": Library(
        sources("tape"),
        _MANY,
        torch=True,
        precompiled="native/torch/precompiled.h",
        generator="torchreel.tape.codegen.generator",
    ),
    "_graphs": Library(
        sources("graphs", "cpython/dict_version.cpp", "torch/tensor_layout.cpp", "torch/tensor_state.cpp"),
        _MANY,
        torch=True,
        precompiled="native/torch/precompiled.h",
        # Torch's table of kernels has a place for each of these, and its headers must be told so.
        macros=("HAVE_AVX2_CPU_DEFINITION", "HAVE_AVX512_CPU_DEFINITION"),
        generator="torchreel.graphs.codegen.kernel_generator",
    ),
}


def wanted() -> list[str]:
    named = os.environ.get("TORCHREEL_NATIVE", "").replace(",", " ").split()
    if named == ["no"]:
        return []
    unknown = set(named) - set(LIBRARIES)
    if unknown:
        raise SystemExit(f"There is no extension {' '.join(sorted(unknown))}: there are {' '.join(LIBRARIES)}.")
    return named or list(LIBRARIES)


class Graph:
    """The text of build.ninja."""

    def __init__(self) -> None:
        # Here, so that the package can be installed without its extensions where there is no torch.
        from torch.utils.cpp_extension import include_paths, library_paths

        includes = [sysconfig.get_path("include"), *include_paths()]
        self._includes = [flag for path in includes for flag in ("-isystem", path)]
        self._link = [f"-L{path}" for path in library_paths()] + ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
        cache = [name for name in ("ccache",) if shutil.which(name)]
        compiler = shlex.join([*cache, os.environ.get("CXX", "c++")])
        self.lines = [
            f"builddir = {BUILD}",
            "rule compile",
            f"  command = {compiler} -MMD -MF $out.d $flags -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "  description = $in",
            "rule precompile",
            f"  command = {os.environ.get('CXX', 'c++')} -MMD -MF $out.d $flags -w -x c++-header $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "  description = $in",
            "rule link",
            f"  command = {os.environ.get('CXX', 'c++')} -shared -o $out $in $libraries",
            "  description = $out",
            "rule check",
            "  command = cc -fsyntax-only $flags $in && touch $out",
            "  description = $in",
        ]
        self._edge("check", f"{BUILD}/interpreter", ["native/cpython/interpreter_check.c"], [*QUOTED, *self._includes])

    def _edge(self, rule: str, output: str, inputs: list[str], flags: list[str], after: str = "") -> str:
        variable = "libraries" if rule == "link" else "flags"
        self.lines.append(f"build {output}: {rule} {' '.join(inputs)}{f' | {after}' if after else ''}")
        self.lines.append(f"  {variable} = {shlex.join(flags)}")
        return output

    def add(self, name: str, library: Library, generate: bool) -> str:
        """The path of the library that will be made."""
        common = [*FLAGS, *QUOTED, *(f"-D{macro}" for macro in library.macros), *self._includes]
        flags = [*common, *library.optimize]
        folder = f"{BUILD}/{name}"
        after = f"{BUILD}/interpreter"
        if library.precompiled:
            header = Path(folder, "precompiled.h")
            header.parent.mkdir(parents=True, exist_ok=True)
            include = f'#include "{Path(library.precompiled).relative_to("native")}"\n'
            if not header.exists() or header.read_text() != include:
                header.write_text(include)
            after = self._edge("precompile", f"{header}.gch", [str(header)], flags, after)
            # Torch's own pragmas against this warning are lost on the way.
            flags = [*flags, "-include", str(header), "-fpch-preprocess", "-Wno-sign-compare"]
        objects = [
            # Those with other flags cannot use what was precompiled.
            self._edge("compile", f"{folder}/{source}.o", [source], [*common, *_BINDINGS])
            if Path(source).stem.startswith("bindings")
            else self._edge("compile", f"{folder}/{source}.o", [source], flags, after)
            for source in [*library.sources, *generated(name, library, generate)]
        ]
        return self._edge("link", f"{folder}.so", objects, self._link if library.torch else [])


def generated(name: str, library: Library, generate: bool) -> list[str]:
    """Sources that the extension's generator writes: anew only where they change."""
    folder = Path("build", "generated", name)
    if not library.generator or not generate:
        return sorted(str(path) for path in folder.glob("*.cpp"))
    environment = {**os.environ, "PYTHONPATH": "src"}
    environment.pop("TORCHREEL_ALLOCATOR", None)  # it would ask for an extension that is not built yet
    if subprocess.run([sys.executable, "-m", library.generator, str(folder)], env=environment).returncode != 0:
        raise SystemExit(f"The sources that {library.generator} writes could not be generated: see above.")
    return sorted(str(path) for path in folder.glob("*.cpp"))


class Build(build_ext):
    def build_extensions(self) -> None:
        graph = Graph()
        names = [extension.name.rpartition(".")[2] for extension in self.extensions]
        # All of them, also those that are not wanted now: ninja forgets what is not in its file.
        libraries = {name: graph.add(name, library, name in names) for name, library in LIBRARIES.items()}
        file = BUILD / "build.ninja"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(graph.lines) + "\n")
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 2))
        command = [sys.executable, "-m", "ninja", "-f", str(file), "-j", jobs, *(libraries[name] for name in names)]
        if subprocess.run(command, env={**CACHE, **os.environ}).returncode != 0:
            raise SystemExit("The extensions could not be compiled: see above.")
        for extension, name in zip(self.extensions, names, strict=True):
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(libraries[name], target)


# The Makefile installs the package once, and compiles by itself whatever has changed since.
setup(
    ext_modules=[Extension(f"torchreel.{name}", LIBRARIES[name].sources) for name in wanted()],
    cmdclass={"build_ext": Build},
)
