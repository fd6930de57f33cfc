"""The command line in this process, and small reels for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.synthetic import Process, call, write_reel
from torchreel.cli.main import main

FRAMES = (("/src/model.py", 5, "Net.forward"), ("/src/train.py", 10, "main"))


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def torchreel(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command line: torchreel("report", "run.reel")."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is the current one, so that outputs hold no paths of this machine."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def reel(directory: Path) -> Path:
    """run.reel: a step of a small model, with everything recorded."""
    addmm = call(
        "aten::addmm", 30_000, inputs="[[4], [2, 3], [3, 4]]", module="Net.fc", stack=FRAMES, flops=48_000, bytes=64
    )
    linear = call("aten::linear", 10_000, addmm, inputs="[[2, 3], [4, 3]]", module="Net.fc", stack=FRAMES)
    fc = call("nn.Module: Linear", 1_000, linear, kind="module", module="Net.fc")
    relu = call("aten::relu", 7_000, inputs="[[2, 4]]", module="Net", stack=FRAMES, bytes=32)
    net = call("nn.Module: Net", 2_000, fc, relu, kind="module", module="Net")
    backward = call(
        "AddmmBackward0", 6_000, call("aten::mm", 50_000, module="Net.fc"), kind="backward", module="Net.fc"
    )
    process = Process({"MainThread": [call("step", 5_000, net, kind="range", step=0)], "pt_autograd_0": [backward]})
    process.allocs = [("alloc", 64), ("alloc", 32), ("free", 64)]
    return write_reel(directory / "run.reel", process).relative_to(directory)


@pytest.fixture
def plain_reel(directory: Path) -> Path:
    """plain.reel: two ops and nothing else."""
    calls = [call("aten::add", 3_000), call("aten::mul", 1_000)]
    return write_reel(directory / "plain.reel", Process({"main": calls})).relative_to(directory)
