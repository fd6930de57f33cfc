"""Tapes that were changed by somebody: replaying them gives a result or a sentence, and never ends the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def outcome(directory: Path, rounds: int, seed: int) -> list[int]:
    """How many tapes were replayed, and how many refused, in a process of their own."""
    command = [sys.executable, "-m", "tests.tape.replay.hostile_replays", str(directory), str(rounds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(number) for number in done.stdout.split()]


def test_a_sample(tmp_path: Path) -> None:
    replayed, refused = outcome(tmp_path, 80, 1)
    assert replayed > 5 and refused > 20


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 5))
def test_many(tmp_path: Path, seed: int) -> None:
    replayed, _ = outcome(tmp_path, 2000, seed)
    assert replayed > 200
