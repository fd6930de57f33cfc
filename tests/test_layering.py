"""The house: which room may import which, and which may import torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "torchreel"

# What each room may import of ours, besides itself, errors and the version.
ALLOWED = {
    "": {"reel", "analyze", "record", "allocator", "memory", "tape", "graphs", "edge"},
    "reel": {"_decode"},
    "ingest": {"reel", "_decode"},
    "analyze": {"reel"},
    "allocator": {"simulator"},
    "simulator": {"reel", "ingest", "_simulator"},
    "memory": {"reel", "ingest", "record", "_core"},
    "export": {"reel", "analyze", "program"},
    "web": {"reel", "analyze"},
    "record": {"reel", "_core", "program", "tape"},
    "profiler": {"reel", "record", "analyze", "export", "_core"},
    "edge": {"reel", "record", "export", "_core", "_lite"},
    "program": set(),
    "guards": {"_graphs"},
    "tape": {"program", "guards", "_tape"},
    "graphs": {"program", "guards", "tape", "_tape", "_graphs", "_core"},
    "__main__": {"cli"},
    "cli": {
        "reel",
        "ingest",
        "record",
        "memory",
        "simulator",
        "analyze",
        "export",
        "program",
        "tape",
        "graphs",
        "edge",
        "web",
        "_core",
        "_decode",
    },
}
MAY_IMPORT_TORCH = {"record", "memory", "profiler", "guards", "tape", "graphs", "edge"}


def files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if "start_up" not in path.parts)


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py") if first != "__init__.py" else ""


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path} imports relatively"
            if node.module == "torchreel":
                yield from (f"torchreel.{alias.name}" for alias in node.names)
            else:
                yield node.module


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_follow_the_data(path: Path) -> None:
    room = room_of(path)
    if room in ("errors", "_version"):
        allowed: set[str] = set()
    else:
        allowed = ALLOWED[room] | {room, "errors", "_version", "__version__"}
    for module in imported(path):
        if module == "torch" or module.startswith("torch."):
            doctor = path.name == "doctor.py" and room == "cli"
            assert room in MAY_IMPORT_TORCH or doctor, f"{path} imports torch"
        if module.startswith("torchreel."):
            assert module.split(".")[1] in allowed, f"{path} imports {module}"


def test_public_names() -> None:
    import torchreel

    assert sorted(torchreel.__all__) == [
        "EdgeProfiler",
        "RecordOptions",
        "Recorder",
        "Reel",
        "Tape",
        "__version__",
        "allocator",
        "averages",
        "current_edge_profiler",
        "current_recorder",
        "errors",
        "graphed",
        "graphs",
        "load",
        "load_tape",
        "mark",
        "mark_step_begin",
        "memory",
        "range",
        "record",
        "schedule",
        "step",
        "tape",
        "trace",
        "tracing",
    ]
    for name in torchreel.__all__:
        assert getattr(torchreel, name) is not None


def test_importing_torchreel_does_not_import_torch() -> None:
    script = "import sys, torchreel, torchreel.export, torchreel.cli.main; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_tests_mirror_the_sources() -> None:
    tests = Path(__file__).parent
    covered = {path.stem.removeprefix("test_") for path in tests.rglob("test_*.py")}
    rooms = {path.parent.name for path in tests.rglob("test_*.py")}
    for room in ("reel", "record", "analyze", "export", "cli"):
        assert room in rooms, f"nothing tests {room}"
    for command in (SOURCE / "cli").glob("*.py"):
        if command.stem in ("record", "report", "sql", "export", "doctor"):
            assert command.stem in covered, f"nothing tests the command {command.stem}"
