"""The house: which room may import which, and which may import torch."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.private_names import private_uses

SOURCE = Path(__file__).parents[1] / "src" / "torchreel"

# What each room may import of ours, besides itself, errors, the version, _collector and _units.
ALLOWED = {
    "": {"reel", "analyze", "atlas", "record", "allocator", "memory", "tape", "graphs", "edge"},
    "_cpython": set(),
    "_torch": set(),
    "reel": {"_decode"},
    "ingest": {"reel", "_decode"},
    "analyze": {"reel"},
    "allocator": {"simulator"},
    "simulator": {"reel", "ingest", "_simulator"},
    "memory": {"reel", "ingest", "record", "_core", "_torch"},
    "export": {"reel", "analyze", "program"},
    "atlas": {"reel", "analyze"},
    "web": {"reel", "analyze", "simulator", "export", "atlas"},
    "record": {"reel", "ingest", "_core", "program", "tape", "_cpython", "_torch"},
    "profiler": {"reel", "record", "analyze", "export", "_core", "_torch"},
    "edge": {"reel", "record", "export", "_core", "_lite", "_torch"},
    "program": set(),
    "guards": {"_graphs", "_cpython", "_torch"},
    "tape": {"program", "guards", "_tape", "_cpython", "_torch"},
    "graphs": {"program", "guards", "tape", "_tape", "_graphs", "_core", "_cpython", "_torch"},
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
        "atlas",
        "_core",
        "_decode",
    },
}
MAY_IMPORT_TORCH = {"_torch", "record", "memory", "profiler", "guards", "tape", "graphs", "edge"}


# Private torch and private CPython outside of `_torch` and `_cpython`. Another version means to look at these, too.
PRIVATE_ELSEWHERE = {
    "atlas/read/python/registrations.py": {"torch._custom_op"},  # a name that sources may have
    "cli/doctor.py": {"torch._C", "._nvtx"},  # asks for a part that a build may lack, and says so
    "cli/import_.py": {"torch.cuda.memory._record_memory_history"},  # a text for the user
    "cli/script.py": {"concurrent.futures.thread._shutdown", "concurrent.futures.thread._threads_queues"},
    # Documented: named tuples.
    "simulator/predict/predict.py": {"._asdict"},
    "tape/replay/fitting.py": {"._fields"},
    "tape/structure.py": {"._fields"},
    # Ours, of another file.
    "tape/capture/span.py": {"._frame", "._session", "._switch_off"},
    "tape/replay/check.py": {"._plan"},
    "tape/transform/outplace.py": {"._parts"},
    # NumPy's: the generator behind the functions of numpy.random.
    "tape/guards/surroundings/reached.py": {"._rand"},
}
# Objects of ONNX Runtime and of ExecuTorch, whose versions are others.
OTHER_PACKAGES = ("edge/formats/onnx/", "edge/formats/executorch/")


@functools.cache
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


ROOMS = sorted({room_of(path) for path in files()})


def files_of(room: str) -> list[Path]:
    return [path for path in files() if room_of(path) == room]


@pytest.mark.parametrize("room", ROOMS)
def test_imports_follow_the_data(room: str) -> None:
    if room in ("errors", "_version", "_collector", "_units"):
        allowed: set[str] = set()
    else:
        allowed = ALLOWED[room] | {room, "errors", "_version", "__version__", "_collector", "_units"}
    for path, module in ((one, name) for one in files_of(room) for name in imported(one)):
        if module == "torch" or module.startswith("torch."):
            doctor = path.name == "doctor.py" and room == "cli"
            assert room in MAY_IMPORT_TORCH or doctor, f"{path} imports torch"
        if module.startswith("torchreel."):
            assert module.split(".")[1] in allowed, f"{path} imports {module}"


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in ("_torch", "_cpython")])
def test_private_torch_and_cpython_have_one_place(room: str) -> None:
    for path in files_of(room):
        name = path.relative_to(SOURCE).as_posix()
        found = {text for _, text in private_uses(path)}
        if name.startswith(OTHER_PACKAGES):
            found = {text for text in found if not text.startswith(".")}
        assert found == PRIVATE_ELSEWHERE.get(name, set()), f"{name}: move it to src/torchreel/_torch or _cpython"


def test_the_exceptions_exist() -> None:
    assert {name for name in PRIVATE_ELSEWHERE if not (SOURCE / name).is_file()} == set()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import torch._dynamo", "torch._dynamo"),
        ("from torch._C import _get_schema", "torch._C._get_schema"),
        ("from torch.utils import _pytree as pytree", "torch.utils._pytree"),
        ("import torch\ntorch._C._get_schema()", "torch._C"),
        ("import torch\nc = torch.autograd\nc.grad_mode._x", "torch.autograd.grad_mode._x"),
        ("from torch.optim import optimizer\noptimizer._global_hooks", "torch.optim.optimizer._global_hooks"),
        ("import sys\nsys.modules.get('torch._inductor.config')", "torch._inductor.config"),
        ("def f(tensor): return tensor._cdata", "._cdata"),
        ("def f(tensor): return getattr(tensor, '_base')", "._base"),
        ("import sys\nsys._getframe()", "sys._getframe"),
        ("import _thread", "_thread"),
        ("from functools import _lru_cache_wrapper", "functools._lru_cache_wrapper"),
        ("def f(code): return code.co_code", ".co_code"),
    ],
)
def test_private_names_are_found(line: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(line)
    assert found in {text for _, text in private_uses(path)}


@pytest.mark.parametrize(
    "line",
    [
        "import torch\ntorch.ops.aten._softmax(x)",
        "import os\nos._exit(1)",
        "class A:\n    def __init__(self): self._own = 1\n    def same(self, other): return self._own == other._own",
        "'torch._C is private'",
    ],
)
def test_public_names_are_not_found(line: str, tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(line)
    assert list(private_uses(path)) == []


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
        "atlas",
        "averages",
        "current_edge_profiler",
        "current_recorder",
        "errors",
        "gpu",
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


TESTS = Path(__file__).parent
NATIVE = TESTS.parent / "native"
OF_THE_WHOLE = {"test_documented_numbers.py", "test_layering.py", "test_limits.py", "test_readme.py"}
# Whole programs through graphs, torch's own tests of its profiler, the native rooms under sanitizers: no source has
# their names.
OF_A_WHOLE_ROOM = {Path("graphs", "programs"), Path("profiler", "torch_suite"), Path("native")}
# Rooms whose tests are those of the room that uses them.
TESTED_IN = {
    "_cpython": "guards",
    "_torch": "tape",
    "allocator": "simulator",
    "base": "reel",
    "cpython": "guards",
    "decode": "reel",
    "include": "edge",
    "torch": "tape",
}


@functools.cache
def places_of_sources() -> dict[str, set[Path]]:
    """For each name of a source, the folders of `src/torchreel` and `native` that it lies in."""
    found: dict[str, set[Path]] = {}
    for root in (SOURCE, NATIVE):
        for path in root.rglob("*"):
            if path.suffix in (".py", ".cpp", ".c", ".h"):
                found.setdefault(path.stem.strip("_"), set()).add(path.relative_to(root).parent)
    return found


@functools.cache
def files_of_tests() -> list[Path]:
    return sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))


def test_tests_of_no_room_are_known() -> None:
    assert {test.name for test in files_of_tests() if test.parent == Path()} == OF_THE_WHOLE


@pytest.mark.parametrize("room", sorted({test.parts[0] for test in files_of_tests() if len(test.parts) > 1}))
def test_tests_mirror_the_sources(room: str) -> None:
    """A test lies in the folder of a room, and where a source of that room has its name, beside that source."""
    folders = {path.relative_to(root) for root in (SOURCE, NATIVE) for path in root.rglob("*") if path.is_dir()}
    for test in files_of_tests():
        if test.parts[0] != room or test.parent in OF_A_WHOLE_ROOM:
            continue
        assert test.parent in folders, f"{test}: neither src/torchreel nor native has a folder {test.parent}"
        places = places_of_sources().get(test.stem.removeprefix("test_"), set())
        own = {place for place in places if place.parts[:1] == test.parts[:1]}
        assert not own or test.parent in own, f"{test}: its source lies in {', '.join(map(str, own))}"


def test_every_room_has_tests() -> None:
    rooms = {path.name for root in (SOURCE, NATIVE) for path in root.iterdir() if path.is_dir()} - {"__pycache__"}
    tested = {test.parts[0] for test in files_of_tests()}
    assert rooms - tested == set(TESTED_IN)
    assert set(TESTED_IN.values()) <= tested


def test_every_command_has_tests() -> None:
    from torchreel.cli.main import COMMANDS

    tests = {str(test) for test in files_of_tests()}
    for name, module in COMMANDS.items():
        *folders, _ = module.split(".")[1:]
        file = "test_command.py" if module.endswith(".command") else f"test_{name.replace('-', '_')}.py"
        assert str(Path(*folders, file)) in tests, f"nothing tests the command {name}"
