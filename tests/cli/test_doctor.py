"""`torchreel doctor`: a line for each thing, and an exit code for recording."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.cli.conftest import Outcome
from torchreel.cli import doctor
from torchreel.cli.doctor import Finding

Torchreel = Callable[..., Outcome]

GOOD = Finding("torch", True, "2.13.0", "install it", needed=True)
MISSING = Finding("NVTX", False, "this torch has no NVTX", "install a torch built with CUDA")
BAD = Finding("native recorder", False, "it cannot be imported (no such file)", "build it", needed=True)


def test_lines(torchreel: Torchreel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LOOKS", (lambda: [GOOD, MISSING],))
    assert torchreel("doctor") == Outcome(
        0,
        "ok            torch  2.13.0\n"
        "not available NVTX   this torch has no NVTX: install a torch built with CUDA\n"
        "\n"
        "Recording can work here. Next: torchreel record --all SCRIPT\n",
        "",
    )


def test_exit_code_when_recording_cannot_work(torchreel: Torchreel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LOOKS", (lambda: [GOOD, BAD],))
    outcome = torchreel("doctor")
    assert outcome.code == 1
    assert "not available native recorder  it cannot be imported (no such file): build it\n" in outcome.out
    assert outcome.out.endswith(
        "Recording cannot work here until what is needed for it is available; reels can be opened.\n"
    )
    assert json.loads(torchreel("doctor", "--format", "json").out)["can_record"] is False


def test_json_of_this_machine(torchreel: Torchreel) -> None:
    outcome = torchreel("doctor", "--format", "json")
    result = json.loads(outcome.out)
    assert outcome.code == (0 if result["can_record"] else 1)
    assert [finding["name"] for finding in result["findings"]] == [
        *("Python", "torch", "native recorder", "native decoder", "steady clock", "hardware counters", "ITT", "NVTX"),
        *("disk space", "processors", "shared memory"),
    ]
    assert set(result["findings"][0]) == {"name", "available", "detail", "advice", "needed"}


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3 << 20, total=64 << 20))
    (disk,) = doctor._disk()
    (shared,) = doctor._shared_memory()
    assert (disk.available, disk.detail) == (False, "3.00 MiB free in the current directory")
    assert (shared.available, shared.detail) == (False, "/dev/shm holds 64.00 MiB")
    problem = doctor._version("torchreel.nonesuch")[1]
    assert problem == "it cannot be imported (No module named 'torchreel.nonesuch')"
