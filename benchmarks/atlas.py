"""What does an atlas cost, beside ctags and Doxygen on the same trees?

CPU seconds of whole processes with their children, user and system. The Python tree is that of the torch that is
installed; the C++ tree are its headers. Rounds are interleaved, and ratios are taken within a round. Bytecode is kept
from one process to the next, as an installed package has it.
"""

from __future__ import annotations

import importlib.util
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.result import Goal, Result, Spread

ROUNDS = 3
HEADERS = 240  # that Doxygen is given: it takes minutes for all


@dataclass
class Cost:
    """Of a process and its children."""

    cpu_s: float
    wall_s: float
    peak_bytes: int


def measure(quick: bool) -> list[Result]:
    missing = [tool for tool in ("ctags", "doxygen") if shutil.which(tool) is None]
    if missing:
        return [Result("an atlas", None, detail=f"there is no {' and no '.join(missing)}")]
    (torch,) = importlib.util.find_spec("torch").submodule_search_locations  # type: ignore[union-attr, misc]
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        python = _python_tree(Path(torch), folder / "python", 60 if quick else None)
        headers = _header_tree(Path(torch) / "include", folder / "headers", 30 if quick else HEADERS)
        _warm_up(folder)
        rounds = [_round(folder, python, headers) for _ in range(1 if quick else ROUNDS)]
    return _results(rounds, folder_bytes=_megabytes_of(rounds))


def _python_tree(torch: Path, target: Path, most: int | None) -> Path:
    """The Python files of torch alone: headers and libraries are no part of this question."""
    files = sorted(torch.rglob("*.py"))
    for path in files[:most]:
        copy = target / "torch" / path.relative_to(torch)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return target / "torch"


def _header_tree(include: Path, target: Path, most: int) -> Path:
    files = sorted(path for name in ("ATen", "c10", "torch") for path in (include / name).rglob("*.h"))
    for path in random.Random(0).sample(files, min(most, len(files))):
        copy = target / path.relative_to(include)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return target


def _warm_up(folder: Path) -> None:
    """Let what is kept from one process to the next be made."""
    tree = folder / "small"
    tree.mkdir()
    (tree / "a.py").write_text("import b\n")
    (tree / "b.h").write_text("int b;\n")
    for _ in range(2):
        _atlas(tree, folder / "small-site")
        (tree / "a.py").write_text("import c\n")


def _round(folder: Path, python: Path, headers: Path) -> dict[str, Cost]:
    site, cpp_site = folder / "site", folder / "cpp-site"
    for old in (site, cpp_site):
        shutil.rmtree(old, ignore_errors=True)
    found = {
        "ctags python": _ctags(python, "python", True),
        "bare ctags python": _ctags(python, "python", False),
        "python": _atlas(python, site),
        "ctags c++": _ctags(headers, "c++", True),
        "bare ctags c++": _ctags(headers, "c++", False),
        "c++": _atlas(headers, cpp_site),
        "doxygen": _doxygen(folder, headers),
        "c++ structure": _structure(headers),
        "second": _second(python, site),
    }
    found["ctags python"].peak_bytes = sum(path.stat().st_size for path in python.rglob("*.py"))
    return found


def _second(python: Path, site: Path) -> Cost:
    """A run after one changed file."""
    path = next(one for one in sorted(python.rglob("*.py")) if one.stat().st_size > 20_000)
    text = path.read_text()
    path.write_text(text + "\n\ndef added_for_a_second_run() -> None:\n    pass\n")
    try:
        return _atlas(python, site)
    finally:
        path.write_text(text)


def _atlas(tree: Path, site: Path) -> Cost:
    command = [sys.executable, "-m", "torchreel", "atlas", "-o", str(site), "--source", f"tree={tree}"]
    return _run(command, site.parent / "kept")


def _ctags(tree: Path, language: str, full: bool) -> Cost:
    """Its tags into a file; `full` with all that an atlas has of them, too: every kind, ends, signatures and scopes."""
    name = {"python": "Python", "c++": "C++"}[language]
    more = ["--fields=+neKS", "--extras=+q", f"--kinds-{name}=*"] if full else []
    tags = tree.parent / f"{tree.name}.tags"
    return _run(["ctags", "-R", "-f", str(tags), f"--languages={name}", "--langmap=C++:+.h", *more, str(tree)])


def _structure(tree: Path) -> Cost:
    """The reader of C++ alone, in one process."""
    code = (
        "import sys, pathlib\n"
        "from torchreel.atlas.read import parse\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).rglob('*.h')):\n"
        "    parse(path.read_text(errors='replace'), 'c++')\n"
    )
    return _run([sys.executable, "-c", code, str(tree)], tree.parent / "kept")


def _doxygen(folder: Path, tree: Path) -> Cost:
    settings = folder / "Doxyfile"
    settings.write_text(
        f"INPUT={tree}\nRECURSIVE=YES\nOUTPUT_DIRECTORY={folder / 'doxygen'}\nEXTRACT_ALL=YES\nSOURCE_BROWSER=YES\n"
        "GENERATE_LATEX=NO\nQUIET=YES\nWARNINGS=NO\nWARN_IF_DOC_ERROR=NO\nHAVE_DOT=NO\n"
    )
    return _run(["doxygen", str(settings)])


def _run(command: list[str], kept: Path | None = None) -> Cost:
    """`kept` is where Python keeps its bytecode, and torchreel what it made once."""
    environment = dict(os.environ)
    if kept is not None:
        environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(kept), "XDG_CACHE_HOME": str(kept)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.perf_counter() - start, peak)


def _resident(pid: int) -> int:
    """Bytes of a process and its children that are in memory, what they share counted once each."""
    total = 0
    pending = [pid]
    while pending:
        one = pending.pop()
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            pending += [int(child) for child in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
        except (OSError, IndexError):
            continue
    return total


def _megabytes_of(rounds: list[dict[str, Cost]]) -> float:
    return rounds[0]["ctags python"].peak_bytes / 1e6


def _results(rounds: list[dict[str, Cost]], folder_bytes: float) -> list[Result]:
    def ratio(what: str, beside: str) -> Spread:
        return Spread.of([one[what].cpu_s / one[beside].cpu_s for one in rounds])

    def seconds(*names: str) -> str:
        return ", ".join(f"{name} {Spread.of([one[name].cpu_s for one in rounds]).median:.2f} s" for name in names)

    wall = Spread.of([one["python"].cpu_s / one["python"].wall_s for one in rounds]).median
    peak = Spread.of([max(one["python"].peak_bytes, one["c++"].peak_bytes) / 1e6 for one in rounds])
    python = f"site of torch's Python ({folder_bytes:.0f} MB)"
    return [
        Result(
            f"{python} / ctags with all kinds and fields, CPU",
            ratio("python", "ctags python"),
            Goal(40),
            detail=f"{seconds('python', 'ctags python')}; {wall:.1f} cores used",
        ),
        Result(
            f"{python} / ctags as it comes, CPU",
            ratio("python", "bare ctags python"),
            Goal(40),
            detail=seconds("bare ctags python"),
        ),
        Result(
            "C++ structure / ctags with all kinds and fields, CPU",
            ratio("c++ structure", "ctags c++"),
            Goal(8),
            detail=seconds("c++ structure", "ctags c++"),
        ),
        Result(
            "C++ structure / ctags as it comes, CPU",
            ratio("c++ structure", "bare ctags c++"),
            Goal(8),
            detail=seconds("bare ctags c++"),
        ),
        Result("whole C++ site / Doxygen, CPU", ratio("c++", "doxygen"), Goal(1), detail=seconds("c++", "doxygen")),
        Result(
            "second run after one changed file / first, CPU",
            ratio("second", "python"),
            Goal(0.03),
            detail=seconds("second"),
        ),
        Result("memory of all processes", peak, Goal(1000), "MB"),
    ]
