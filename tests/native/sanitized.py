"""What is compiled with sanitizers for tests: extensions in a child Python, and programs in C++ of their own.

Both stay in build/sanitized/, and only what changed is compiled again.
"""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADDRESS = "address,undefined"
THREAD = "thread"

# What a child does first: from then on its torchreel uses the extensions that the sanitizer watches.
_LOAD = """
import importlib.util, sys
import torchreel
for name, path in {libraries!r}.items():
    spec = importlib.util.spec_from_file_location(f"torchreel.{{name}}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[f"torchreel.{{name}}"] = module
    setattr(torchreel, name, module)
"""


@functools.cache
def extensions(*names: str, sanitizers: str = ADDRESS) -> dict[str, Path]:
    """The paths of extensions that were built with the sanitizers; they are not those that torchreel loads."""
    folder = ROOT / "build" / "sanitized" / sanitizers
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "TORCHREEL_SANITIZE": sanitizers, "TORCHREEL_NATIVE": " ".join(names)}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    with (folder / "lock").open("w") as lock:  # another process of the test run may want the same
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return {name: folder / f"{name}.so" for name in names}


def run_watched(script: str, *arguments: object, libraries: dict[str, Path]) -> str:
    """What a Python script prints that uses the extensions; a finding of the sanitizer ends it, and fails the test."""
    result = subprocess.run(
        [sys.executable, "-c", _LOAD.format(libraries={name: str(path) for name, path in libraries.items()}) + script]
        + [str(argument) for argument in arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "LD_PRELOAD": _runtime("libasan.so"),
            # Python keeps memory until its end, and C++ errors are thrown before the runtime sees libstdc++.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONMALLOC": "malloc",
        },
    )
    assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-6000:]}"
    return result.stdout


def program(source: str, *parts: str, sanitizers: str, stand_ins: str = "") -> Path:
    """A program of a file in this folder and files of native/.

    `stand_ins` is a folder beside it with headers that stand for torch's; Python's own are there, too.
    """
    target = ROOT / "build" / "sanitized" / sanitizers / Path(source).stem
    sources = [Path(__file__).parent / source, *(ROOT / "native" / part for part in parts)]
    headers = [path for part in parts for path in (ROOT / "native" / part).parent.glob("*.h")]
    if target.exists() and all(path.stat().st_mtime < target.stat().st_mtime for path in (*sources, *headers)):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c++20", "-O1", "-g1", "-pthread", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    made = target.with_name(f"{target.name}.{os.getpid()}")
    flags += ["-iquote", str(ROOT / "native")]
    if stand_ins:
        flags += ["-I", str(Path(__file__).parent / stand_ins), "-isystem", sysconfig.get_path("include")]
    command = [os.environ.get("CXX", "c++"), *flags, *map(str, sources), "-o", str(made)]
    compiled = subprocess.run(command, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr
    made.replace(target)
    return target


def run(path: Path, *arguments: object) -> str:
    """What a program prints; a finding fails the test."""
    result = subprocess.run(
        [str(path), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"},
    )
    assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-6000:]}"
    return result.stdout


def _runtime(library: str) -> str:
    """The runtime must be loaded before everything else, and libstdc++ with it, or its errors cannot be caught."""
    names = [library, "libstdc++.so.6"]
    command = [os.environ.get("CXX", "c++"), "-print-file-name="]
    found = [subprocess.check_output([command[0], command[1] + name], text=True).strip() for name in names]
    return " ".join(found)
