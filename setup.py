"""Builds the extensions, as one graph of ninja: what changed is compiled, and nothing twice.

TORCHREEL_NATIVE says which: "no" for none, or names such as "_core _decode"; without it, all.
TORCHREEL_UNITY=no compiles each file by itself instead of a folder at a time: quicker after a change of one file, and
slower from nothing.
TORCHREEL_SANITIZE names sanitizers of the compiler, such as "address,undefined" or "thread": what is built with them
stays in a folder of its own, build/sanitized/NAMES, and tests/native loads it from there.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

CXX = os.environ.get("CXX", "c++")
HERE = Path(__file__).resolve().parent
UNITY = os.environ.get("TORCHREEL_UNITY") != "no"
SANITIZERS = os.environ.get("TORCHREEL_SANITIZE", "")
BUILD = Path("build", "sanitized", SANITIZERS) if SANITIZERS else Path("build", "native" if UNITY else "native-by-file")
NINJA = BUILD / "build.ninja"
FLAGS = ["-std=c++20", "-fPIC", "-fwrapv", "-DNDEBUG", "-Wall", "-Wno-unused-function", "-fvisibility=hidden"]
# Every finding ends the process. Types are not compared across libraries: ours are hidden in each.
SANITIZE = [f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=all", "-fno-sanitize=vptr"] if SANITIZERS else []
# Headers of ours are named by their path in native/. Not by -I: then <memory> and <torch/...> could be ours, too.
GENERATED = Path("build", "generated")
QUOTED = ["-iquote", "native", "-iquote", "src/torchreel/include", "-iquote", str(GENERATED)]
# A compiler cache finds what another checkout of the same sources compiled.
CACHE = {
    "CCACHE_BASEDIR": str(HERE),
    "CCACHE_NOHASHDIR": "1",
    "CCACHE_PCH_EXTSUM": "1",
    "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime",
}


@dataclass(frozen=True)
class Flags:
    """How a file is compiled. What is compiled the same way for two extensions is compiled once."""

    name: str
    optimize: tuple[str, ...]
    precompiled: str = ""
    """A header that all of the files include first, read once instead of once per file."""
    macros: tuple[str, ...] = ()


# Torch's table of kernels has an entry for each of these, and its headers must be told so.
_AVX = ("HAVE_AVX2_CPU_DEFINITION", "HAVE_AVX512_CPU_DEFINITION")
_FAST = Flags("fast", ("-O3", "-g1"))
_RECORDER = Flags("recorder", ("-O3", "-g1"), "native/record/precompiled.h")
# Hundreds of wrappers and kernels: a build is to take minutes, and what they call is in torch.
_MANY = Flags("many", ("-O2", "-g0"), "native/torch/precompiled.h", _AVX)
# Bindings only hand on: they are large, and nothing in them is worth a second of compiling.
# They have no precompiled header: with one that was made with -O2, GCC 12 gave the same object for -O1 as for -O2.
_BINDINGS = Flags("bindings", ("-O1", "-g0"), macros=_AVX)


@dataclass(frozen=True)
class Unit:
    """Files that are compiled together, as one file that includes them: a header that they share is read once."""

    name: str
    sources: tuple[Path, ...]
    flags: Flags


def folder(name: str, flags: Flags) -> Unit:
    """The files of a folder of native/ but for bindings; not those of folders in it."""
    found = sorted(Path("native", name).glob("*.cpp"))
    return Unit(name, tuple(path for path in found if not path.stem.startswith("bindings")), flags)


def together(name: str, flags: Flags, *names: str) -> Unit:
    """The files of several folders and of all folders in them, and single files, as one unit."""
    units = [unit for one in names if not one.endswith(".cpp") for unit in folders(one, flags)]
    single = files(name, flags, *(one for one in names if one.endswith(".cpp")))
    return Unit(name, tuple(path for unit in (*units, single) for path in unit.sources), flags)


def folders(name: str, flags: Flags) -> tuple[Unit, ...]:
    """A folder of native/ and all folders in it, each a unit."""
    found = {path.parent.relative_to("native") for path in Path("native", name).rglob("*.cpp")}
    units = (folder(str(path), flags) for path in sorted(found))
    return tuple(unit for unit in units if unit.sources)


def files(name: str, flags: Flags, *paths: str) -> Unit:
    """Single files of native/."""
    return Unit(name, tuple(Path("native", path) for path in paths), flags)


def bindings(*names: str) -> Unit:
    """The bindings in folders of native/."""
    found = (path for name in names for path in sorted(Path("native", name).glob("bindings*.cpp")))
    return Unit(f"{names[0]}/bindings", tuple(found), _BINDINGS)


@dataclass(frozen=True)
class Library:
    """An extension: its units, and what it links."""

    units: tuple[Unit, ...]
    torch: bool = False
    """Whether it links torch. pybind11 is headers only, and torch carries a copy: all may include it."""
    generator: str = ""
    """A module that writes more sources, into a folder; they are another unit."""

    @property
    def sources(self) -> list[str]:
        return [str(path) for unit in self.units for path in unit.sources]


# What graphs use of the tape, without the tape.
_STEPS = folder("tape/steps", _MANY)
_FRAMES = files("cpython/frames", _FAST, "cpython/frames.cpp")
# Folders whose files include much that is the same. A unit more reads the precompiled header once more, which takes as
# long as a small folder.
_GRAPHS = (
    together(
        "graphs/call",
        _MANY,
        "graphs/call",
        "graphs/guards",
        "torch/tensor_layout.cpp",
        "torch/tensor_state.cpp",
    ),
    together("graphs/kernels", _MANY, "graphs/kernels", "graphs/inductor"),
    together("graphs/run", _MANY, "graphs/plan", "graphs/run"),
)
LIBRARIES = {
    "_core": Library(
        (
            folder("record", _RECORDER),
            folder("memory", _RECORDER),
            files("torch/recorder", _RECORDER, "torch/profiler_state.cpp", "torch/script_stack.cpp"),
            _FRAMES,
            bindings("record", "memory"),
        ),
        torch=True,
    ),
    "_decode": Library((*folders("decode", _FAST), bindings("decode"))),
    "_simulator": Library((*folders("simulator", _FAST), bindings("simulator"))),
    "_lite": Library((files("edge/lite", _BINDINGS, "edge/lite.cpp"),), torch=True),
    # No module of Python's, but a library: see native/edge/entry.cpp.
    "_edge_entry": Library((files("edge/entry", _FAST, "edge/entry.cpp"),)),
    "_tape": Library(
        (
            together("tape", _MANY, "tape/capture", "tape/dispatch", "tape/replay"),
            _STEPS,
            _FRAMES,
            bindings("tape"),
        ),
        torch=True,
        generator="torchreel.tape.codegen.generator",
    ),
    "_graphs": Library(
        (
            *_GRAPHS,
            _STEPS,
            files("cpython/dict_version", _FAST, "cpython/dict_version.cpp"),
            bindings("graphs"),
        ),
        torch=True,
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
        from torch.version import __version__, git_version

        compiler_version = subprocess.run([*shlex.split(CXX), "--version"], capture_output=True, text=True).stdout
        self._versions = (sys.version, __version__, git_version, compiler_version)
        includes = [sysconfig.get_path("include"), *include_paths()]
        self._includes = [flag for path in includes for flag in ("-isystem", path)]
        self._link = [f"-L{path}" for path in library_paths()] + ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
        cache = [name for name in ("ccache",) if shutil.which(name)]
        compiler = " ".join([*cache, CXX])
        self.lines = [
            f"builddir = {BUILD}",
            "rule compile",
            f"  command = {compiler} -MMD -MF $out.d $flags -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "  description = $in",
            "rule precompile",
            f"  command = {CXX} -MMD -MF $out.d $flags -w -x c++-header $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "  description = $in",
            "rule link",
            f"  command = {shlex.join([*shlex.split(CXX), *SANITIZE])} -shared -o $out $in $libraries",
            "  description = $out",
            "rule check",
            "  command = cc -fsyntax-only $flags $in && touch $out",
            "  description = $in",
        ]
        self._made: set[str] = set()
        self._edge("check", f"{BUILD}/interpreter", ["native/cpython/interpreter_check.c"], [*QUOTED, *self._includes])

    def _edge(self, rule: str, output: str, inputs: list[str], flags: list[str], after: str = "") -> str:
        """An edge of the graph; the same one twice is one."""
        if output not in self._made:
            self._made.add(output)
            variable = "libraries" if rule == "link" else "flags"
            self.lines.append(f"build {output}: {rule} {' '.join(inputs)}{f' | {after}' if after else ''}")
            self.lines.append(f"  {variable} = {shlex.join(flags)}")
        return output

    def add(self, name: str, library: Library, generate: bool) -> str:
        """The path of the library that will be made."""
        more = Unit(f"{name}/generated", generated(name, library, generate), _MANY)
        objects = [path for unit in (*library.units, more) for path in self._objects(unit)]
        return self._edge("link", f"{BUILD}/{name}.so", objects, self._link if library.torch else [])

    def _objects(self, unit: Unit) -> list[str]:
        common = [*FLAGS, *SANITIZE, *QUOTED, *(f"-D{macro}" for macro in unit.flags.macros), *self._includes]
        flags = [*common, *(("-O1", "-g1") if SANITIZERS else unit.flags.optimize)]
        after = f"{BUILD}/interpreter"
        if unit.flags.precompiled:
            header = BUILD / unit.flags.name / "precompiled.h"
            write(header, f'#include "{Path(unit.flags.precompiled).relative_to("native")}"\n')
            after = self._edge("precompile", f"{header}.gch", [str(header)], flags, after)
            write(Path(f"{header}.gch.sum"), self._digest(unit.flags))
            # Torch's own pragmas against this warning are lost on the way.
            flags = [*flags, "-include", str(header), "-fpch-preprocess", "-Wno-sign-compare"]
        sources = unit.sources
        if UNITY and len(sources) > 1:
            whole = BUILD / unit.flags.name / f"{unit.name}.cpp"
            roots = {path: GENERATED if path.is_relative_to(GENERATED) else "native" for path in sources}
            write(whole, "".join(f'#include "{path.relative_to(root)}"\n' for path, root in roots.items()))
            sources = (whole,)
        return [self._edge("compile", self._object_of(path, unit), [str(path)], flags, after) for path in sources]

    def _digest(self, flags: Flags) -> str:
        """Of what a precompiled header is made of. Its bytes differ each time, and the compiler cache asks for this."""
        text = Path(flags.precompiled).read_text()
        return hashlib.sha256(repr((flags, text, self._versions)).encode()).hexdigest()

    def _object_of(self, path: Path, unit: Unit) -> str:
        home = BUILD / unit.flags.name
        return f"{path}.o" if path.is_relative_to(home) else f"{home / path}.o"


def write(path: Path, text: str) -> None:
    """Only where it changes: what is older than its object is not compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def generated(name: str, library: Library, generate: bool) -> tuple[Path, ...]:
    """Sources that the extension's generator writes: anew only where they change."""
    home = GENERATED / name
    if not library.generator or not generate:
        return tuple(sorted(home.glob("*.cpp")))
    environment = {**os.environ, "PYTHONPATH": "src"}
    environment.pop("TORCHREEL_ALLOCATOR", None)  # it would ask for an extension that is not built yet
    if subprocess.run([sys.executable, "-m", library.generator, str(home)], env=environment).returncode != 0:
        raise SystemExit(f"The sources that {library.generator} writes could not be generated: see above.")
    return tuple(sorted(home.glob("*.cpp")))


def write_graph(names: list[str]) -> dict[str, str]:
    """Writes build.ninja, and gives the path of each library. These have their sources generated first."""
    graph = Graph()
    # All of them, also those that are not wanted now: ninja forgets what is not in its file.
    libraries = {name: graph.add(name, library, name in names) for name, library in LIBRARIES.items()}
    NINJA.parent.mkdir(parents=True, exist_ok=True)
    NINJA.write_text("\n".join(graph.lines) + "\n")
    return libraries


class WriteGraph(Command):
    """Writes build.ninja and compiles nothing."""

    user_options: ClassVar[list[str]] = []

    def initialize_options(self) -> None: ...

    def finalize_options(self) -> None: ...

    def run(self) -> None:
        write_graph(list(LIBRARIES))


class Build(build_ext):
    def build_extensions(self) -> None:
        names = [extension.name.rpartition(".")[2] for extension in self.extensions]
        libraries = write_graph(names)
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 2))
        command = [sys.executable, "-m", "ninja", "-f", str(NINJA), "-j", jobs, *(libraries[name] for name in names)]
        if subprocess.run(command, env={**CACHE, **os.environ}).returncode != 0:
            raise SystemExit("The extensions could not be compiled: see above.")
        if SANITIZERS:
            return
        for extension, name in zip(self.extensions, names, strict=True):
            target = Path(self.get_ext_fullpath(extension.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            # A process that has the library loaded keeps the old one: writing over that would end it.
            new = target.with_suffix(".new")
            shutil.copyfile(libraries[name], new)
            new.replace(target)


class Wheel(bdist_wheel):
    """A wheel holds the viewer's page: node is needed where the wheel is made, not where it is installed."""

    def run(self) -> None:
        if not (HERE / "src/torchreel/web/page/page.js").is_file():
            (HERE / "src/torchreel/web/page").mkdir(exist_ok=True)
            for command in (["install", "--silent", "--no-fund", "--no-audit"], ["run", "--silent", "build"]):
                if subprocess.run(
                    ["./npm", *command], cwd=HERE / "viewer", env={**os.environ, "PYTHON": sys.executable}
                ).returncode:
                    raise SystemExit("The viewer's page could not be built: see above.")
        super().run()


# The Makefile installs the package once, and compiles by itself whatever has changed since.
setup(
    ext_modules=[Extension(f"torchreel.{name}", LIBRARIES[name].sources) for name in wanted()],
    cmdclass={"build_ext": Build, "write_graph": WriteGraph, "bdist_wheel": Wheel},
)
