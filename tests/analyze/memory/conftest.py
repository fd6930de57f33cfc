"""Recordings of programs whose memory is known, made once, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import torchreel
from torchreel.analyze.memory.model.device import DeviceMemory, device_memories


@dataclass(frozen=True)
class Programs:
    """The reels of tests/analyze/memory/programs.py, and what PyTorch said of their tensors."""

    directory: Path
    truths: dict[str, dict[str, int]]

    def memory(self, name: str) -> DeviceMemory:
        """The memory of the recorded process itself."""
        found = device_memories(torchreel.load(self.directory / f"{name}.reel"))
        return next(memory for memory in found if memory.history.process == 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "programs" in getattr(item, "fixturenames", ()) and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.programs)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    directory = tmp_path_factory.mktemp("programs")
    result = subprocess.run(
        [sys.executable, "-m", "tests.analyze.memory.programs", str(directory)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert result.returncode == 0, result.stderr
    return Programs(directory, json.loads((directory / "truths.json").read_text()))
