"""Whether a replay computes what was recorded, and the first op that does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.tape.steps import bits, inputs, training_step
from torchreel.errors import ReplayError
from torchreel.program.model import Digest
from torchreel.tape.capture.trace import trace
from torchreel.tape.replay.check import check
from torchreel.tape.replay.load import load_tape


def test_a_replay_is_bit_for_bit_the_same(tmp_path: Path) -> None:
    _, step = training_step(dropout=0.5)
    tape = trace(step, *inputs(), hashes=True)
    tape.save(tmp_path / "step.tape")
    loaded = load_tape(tmp_path / "step.tape")
    for checked in (tape, loaded, loaded):
        result = check(checked)
        assert result.ok, str(result)
        assert result.ops == len(tape.program.ops)
        assert result.tensors > 20
        assert str(result) == (
            f"All {result.tensors} outputs of {result.ops} ops are bit for bit those that were recorded."
        )


def test_the_saved_state_is_that_of_the_beginning(tmp_path: Path) -> None:
    model, step = training_step()
    before = [bits(parameter) for parameter in model.parameters()]
    tape = trace(step, *inputs(), hashes=True)
    tape.save(tmp_path / "step.tape")
    state = [bits(tensor) for tensor in load_tape(tmp_path / "step.tape").state.values()]
    assert all(content in state for content in before)


def test_the_first_op_that_differs_is_named() -> None:
    _, step = training_step()
    tape = trace(step, *inputs(), hashes=True)
    index = next(place for place, op in enumerate(tape.program.ops) if op.name == "aten::relu")
    op = tape.program.ops[index]
    assert op.digests is not None and op.digests[0] is not None
    was = op.digests[0]
    op.digests = [Digest(was.hash ^ 1, was.norm, was.samples)]
    mismatch = check(tape).mismatch
    assert mismatch is not None
    assert (mismatch.op, mismatch.name) == (index, "aten::relu")
    assert "steps.py" in mismatch.line and "model(x)" in mismatch.line
    assert str(mismatch) == (
        f"Op {index}, aten::relu ({mismatch.line}), is the first that differs from what was recorded: "
        f"its norm is the same ({was.norm:.6g}), and 8 sampled values are the same."
    )


def test_a_flipped_bit_in_a_parameter_is_found_where_it_is_first_used() -> None:
    _, step = training_step()
    tape = trace(step, *inputs(), hashes=True)
    name = next(name for name, tensor in tape.state.items() if tensor.shape == (3, 8))
    slot = next(slot for slot in tape.program.slots if slot.name == name)
    assert tape.start is not None
    tape.start[slot.storage][2] ^= 64
    mismatch = check(tape).mismatch
    assert mismatch is not None and mismatch.name == "aten::addmm"
    assert "sampled values differ" in mismatch.what


def test_a_guard_does_not_hide_the_op_before_it() -> None:
    weight = torch.ones(4)

    def step(x: torch.Tensor) -> float:
        return (x * weight).exp().sum().item()

    tape = trace(step, torch.ones(4), hashes=True)
    slot = next(slot for slot in tape.program.slots if slot.role not in ("made", "input", "constant"))
    assert tape.start is not None
    tape.start[slot.storage][2] ^= 64
    mismatch = check(tape).mismatch
    assert mismatch is not None and mismatch.name == "aten::mul.Tensor"


def test_a_tape_without_digests_says_how_to_make_one() -> None:
    tape = trace(lambda x: x + 1, torch.ones(2))
    with pytest.raises(ReplayError) as caught:
        check(tape)
    assert str(caught.value) == (
        "This tape holds no digests to compare with: make one that does with "
        "torchreel.trace(function, ..., hashes=True)."
    )
