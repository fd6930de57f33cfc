"""`torchreel replay`: what it prints, and its exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import Outcome
from tests.tape.steps import inputs, training_step
from torchreel.program.file.file import read_tape, write_tape
from torchreel.tape.capture.trace import trace

Torchreel = Callable[..., Outcome]

TIME = r"[\d.]+(?:us|ms|s)"


@pytest.fixture
def tape(directory: Path) -> Path:
    """step.tape, with digests."""
    _, step = training_step(dropout=0.5)
    trace(step, *inputs(), hashes=True).save("step.tape")
    return Path("step.tape")


def test_times(torchreel: Torchreel, tape: Path) -> None:
    outcome = torchreel("replay", "step.tape", "--repeat", "3")
    ops = len(read_tape(tape).program.ops)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0].startswith(f"step.tape: {ops} ops of ")
    assert re.fullmatch(r"Memory: [\d.]+ \w+ of state and inputs, at most [\d.]+ \w+ more at a time\.", lines[1])
    assert re.fullmatch(rf"Replayed 3 times: {TIME} each \(the median; from {TIME} to {TIME}\)\.", lines[2])
    assert lines[3:] == ["", "Next: torchreel replay step.tape --check    does it compute what was recorded?"]


def test_once(torchreel: Torchreel, tape: Path) -> None:
    outcome = torchreel("replay", "step.tape")
    assert re.search(rf"^Replayed 1 time: {TIME}\.$", outcome.out, re.MULTILINE)


def test_check(torchreel: Torchreel, tape: Path) -> None:
    outcome = torchreel("replay", "step.tape", "--check", "--repeat", "3")
    assert (outcome.code, outcome.err) == (0, "")
    assert re.fullmatch(
        r"Replayed 3 times\. All \d+ outputs of \d+ ops are bit for bit those that were recorded\.",
        outcome.out.splitlines()[2],
    )


def test_a_check_that_fails(torchreel: Torchreel, tape: Path) -> None:
    file = read_tape(tape)
    assert file.data is not None
    data = {storage: bytes(content) for storage, content in file.data.items()}
    slot = next(slot for slot in file.program.slots if slot.sizes == (3, 8) and slot.role == "parameter")
    was = data[slot.storage]
    data[slot.storage] = was[:2] + bytes([was[2] ^ 64]) + was[3:]
    write_tape(tape, file.program, data)
    outcome = torchreel("replay", "step.tape", "--check")
    assert (outcome.code, outcome.err) == (1, "")
    assert re.fullmatch(
        r"Op \d+, aten::addmm \(steps\.py:\d+ in .*step: .*\), is the first that differs from what was recorded: .*\.",
        outcome.out.splitlines()[2],
    )
    outcome = torchreel("replay", "step.tape", "--check", "--repeat", "2")
    assert outcome.out.splitlines()[2].startswith("Replay 1 of 2 is not what was recorded. Op ")


def test_check_without_digests(torchreel: Torchreel, directory: Path) -> None:
    trace(lambda x: x + 1, torch.ones(2)).save("plain.tape")
    outcome = torchreel("replay", "plain.tape", "--check")
    assert outcome.code == 1
    assert outcome.err == (
        "Error: This tape holds no digests to compare with: make one that does with "
        "torchreel.trace(function, ..., hashes=True).\n"
    )
    assert torchreel("replay", "plain.tape").code == 0


def test_without_data(torchreel: Torchreel, directory: Path) -> None:
    _, step = training_step()
    trace(step, *inputs()).save("plain.tape", data=False)
    outcome = torchreel("replay", "plain.tape")
    assert outcome.code == 1
    assert outcome.err == (
        "Error: plain.tape was saved without its data, so there is nothing to replay it on: save it with "
        "tape.save(path).\n"
    )


@pytest.mark.parametrize(
    "arguments", [("nowhere",), (".",), ("step.tape", "--repeat", "0"), ("step.tape", "--repeat", "x")]
)
def test_nonsense(torchreel: Torchreel, tape: Path, arguments: tuple[str, ...]) -> None:
    outcome = torchreel("replay", *arguments)
    assert outcome.code in (1, 2)
    assert "Traceback" not in outcome.err and outcome.err
