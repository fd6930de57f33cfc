"""Where two tapes part: programs by hand, and real ones that are not deterministic."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.program.small import small_data, small_program
from tests.tape.steps import inputs, training_step
from torchreel.errors import NotATapeError, OptionError
from torchreel.program.file.file import write_tape
from torchreel.program.model import Digest, Frame, Op, Program, RandomState, Ref
from torchreel.tape.capture.trace import trace
from torchreel.tape.difference import Difference, diff
from torchreel.tape.tape import Tape

Change = Callable[[Program], object]


def files(tmp_path: Path, change: Change, data: dict[int, bytes] | None = None) -> tuple[Path, Path]:
    """The small program, and the same with a change."""
    changed = small_program()
    change(changed)
    write_tape(tmp_path / "a.tape", small_program(), small_data())
    write_tape(tmp_path / "b.tape", changed, data if data is not None else small_data())
    return tmp_path / "a.tape", tmp_path / "b.tape"


MODEL = "model.py:9 in Net.forward: return x @ self.w"
TRAIN = "train.py:3 in step: y = model(x)"

DIFFERENCES: dict[str, tuple[Change, Difference]] = {
    "another op": (
        lambda p: setattr(p.ops[1], "name", "aten::gelu"),
        Difference(
            "ops",
            1,
            ("aten::relu", "aten::gelu"),
            (MODEL, MODEL),
            "one calls aten::relu where the other calls aten::gelu",
        ),
    ),
    "a shorter tape": (
        lambda p: p.ops.pop(),
        Difference(
            "ops",
            8,
            ("aten::set_.source_Storage", ""),
            ("", ""),
            "the second tape ends where the other calls aten::set_.source_Storage",
        ),
    ),
    "a longer tape": (
        lambda p: p.ops.append(Op("aten::neg", [Ref(3)], [Ref(3)], 1)),
        Difference("ops", 9, ("", "aten::neg"), ("", TRAIN), "the first tape ends where the other calls aten::neg"),
    ),
    "a number": (
        lambda p: p.ops[4].args.__setitem__(2, 1),
        Difference(
            "arguments",
            4,
            ("aten::select.int",) * 2,
            (TRAIN, TRAIN),
            "argument 2 is 2 in one and 1 in the other",
        ),
    ),
    "zeros of two signs": (
        lambda p: p.ops[7].args.__setitem__(1, -0.0),
        Difference("arguments", 7, ("aten::uniform_",) * 2, ("", ""), "argument 1 is 0.0 in one and -0.0 in the other"),
    ),
    "a shape": (
        lambda p: (setattr(p.slots[4], "sizes", (3, 2)), setattr(p.slots[4], "strides", (2, 1))),
        Difference(
            "shapes",
            1,
            ("aten::relu",) * 2,
            (MODEL, MODEL),
            "result 0 is float32[2, 3] in one and float32[3, 2] in the other",
        ),
    ),
    "another tensor": (
        lambda p: p.ops[2].args.__setitem__(0, Ref(3)),
        Difference("arguments", 2, ("aten::sum",) * 2, (TRAIN, TRAIN), "argument 0 is another tensor"),
    ),
    "a number that left": (
        lambda p: p.ops[3].results.__setitem__(0, 3.75),
        Difference("values", 3, ("aten::item",) * 2, (TRAIN, TRAIN), "result 0 is 3.5 in one and 3.75 in the other"),
    ),
    "values": (
        lambda p: setattr(p.ops[1], "digests", [Digest(5, 1.5, (0.0, 1.25))]),
        Difference(
            "values",
            1,
            ("aten::relu",) * 2,
            (MODEL, MODEL),
            "its result has other values: its norm is the same (1.5), "
            "and 1 of 2 sampled values differ, by up to 0.25 (1 in one and 1.25 in the other)",
        ),
    ),
    "a line that moved": (
        lambda p: (
            p.frames.__setitem__(1, Frame("model.py", 10, "Net.forward")),
            setattr(p.ops[0], "name", "aten::bmm"),
        ),
        Difference(
            "ops",
            0,
            ("aten::mm", "aten::bmm"),
            (MODEL, "model.py:10 in Net.forward"),
            "one calls aten::mm where the other calls aten::bmm",
        ),
    ),
}


@pytest.mark.parametrize(("change", "difference"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_where_they_part(tmp_path: Path, change: Change, difference: Difference) -> None:
    assert diff(*files(tmp_path, change)) == difference


def test_sentences(tmp_path: Path) -> None:
    found = [
        str(diff(*files(tmp_path, DIFFERENCES[name][0]))) for name in ("another op", "a number", "a line that moved")
    ]
    assert found == [
        f"The tapes part at op 1 ({MODEL}): one calls aten::relu where the other calls aten::gelu.",
        f"The tapes part at op 4, aten::select.int ({TRAIN}): argument 2 is 2 in one and 1 in the other.",
        f"The tapes part at op 0 ({MODEL} | model.py:10 in Net.forward): one calls aten::mm where the other calls "
        "aten::bmm.",
    ]


def test_what_does_not_matter(tmp_path: Path) -> None:
    def change(program: Program) -> None:
        for op in program.ops:
            op.time_ns += 7
            op.thread += 1
            op.stack = 0
        program.provenance.made = "later"
        program.notes = []
        program.ops[8].digests = [Digest(1, 1.0, ())]  # one side has none

    assert diff(*files(tmp_path, change)) is None


def test_what_was_different_at_the_beginning_is_named(tmp_path: Path) -> None:
    data = small_data()
    data[1] = bytes([data[1][0] ^ 1]) + data[1][1:]
    one, other = files(tmp_path, lambda p: setattr(p.ops[0], "digests", [Digest(5, 1.5, (0.0, 1.0))]), data)
    difference = diff(one, other)
    assert difference is not None
    assert difference.causes == ("The parameter w is not the same at the beginning of both.",)
    assert str(difference).endswith("the same. The parameter w is not the same at the beginning of both.")


def test_generators_that_were_in_another_state(tmp_path: Path) -> None:
    def change(program: Program) -> None:
        program.generators[0] = RandomState("cpu", True, False, bytes(64))
        program.ops[2].digests = [Digest(5, 1.5, ())]

    difference = diff(*files(tmp_path, change))
    assert difference is not None
    assert difference.causes == (
        "Their random generators were not in the same state: call torch.manual_seed before tracing.",
    )


def test_without_digests_it_says_what_was_compared(tmp_path: Path) -> None:
    def change(program: Program) -> None:
        for op in program.ops:
            op.digests = None

    with pytest.warns(
        UserWarning, match=r"^Only ops, arguments and shapes were compared.* trace both with hashes=True\.$"
    ):
        assert diff(*files(tmp_path, change)) is None


def test_a_tape_does_not_differ_from_itself(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert diff(*files(tmp_path, lambda p: None)) is None


def test_what_is_no_tape(tmp_path: Path) -> None:
    with pytest.raises(NotATapeError):
        diff(tmp_path / "nowhere", tmp_path / "nowhere")
    with pytest.raises(OptionError, match=r"^Only tapes and paths of tapes can be compared, and this is a int\.$"):
        diff(1, 2)  # type: ignore[arg-type]


def two_traces(dropout: float, seeds: tuple[int, int] = (5, 5)) -> list[Tape]:
    """The same step of the same model twice, each with the generator seeded just before."""
    tapes = []
    for seed in seeds:
        _, step = training_step(dropout=dropout)
        torch.manual_seed(seed)
        tapes.append(trace(step, *inputs(), hashes=True))
    return tapes


def test_two_traces_of_a_program_are_the_same(tmp_path: Path) -> None:
    a, b = two_traces(dropout=0.5)
    assert diff(a, b) is None
    a.save(tmp_path / "a.tape")
    assert diff(tmp_path / "a.tape", b) is None


def test_dropout_that_was_not_seeded_is_found() -> None:
    difference = diff(*two_traces(dropout=0.5, seeds=(5, 6)))
    assert difference is not None and difference.kind == "values"
    assert difference.names == ("aten::bernoulli_.float", "aten::bernoulli_.float")
    assert difference.lines[0] == difference.lines[1]
    assert difference.lines[0].endswith("cross_entropy(model(x), y)")
    assert str(difference).endswith(
        "Their random generators were not in the same state: call torch.manual_seed before tracing."
    )


def test_a_flipped_bit_in_a_parameter_is_found_and_named() -> None:
    _, step = training_step()
    one = trace(step, *inputs(), hashes=True)
    model, step = training_step()
    weight = model.get_parameter("4.weight")
    weight.detach().view(torch.int32)[1, 2] ^= 1 << 20
    difference = diff(one, trace(step, *inputs(), hashes=True))
    assert difference is not None
    assert (difference.kind, difference.names) == ("values", ("aten::addmm", "aten::addmm"))
    assert difference.causes == ("The parameter model.4.weight is not the same at the beginning of both.",)


def test_a_branch_that_went_another_way() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x.relu() if x.sum() > 0 else x.exp()

    difference = diff(trace(step, torch.ones(3), hashes=True), trace(step, -torch.ones(3), hashes=True))
    assert difference is not None and difference.names == ("aten::sum", "aten::sum")
    assert difference.causes == ("The input x is not the same at the beginning of both.",)


def test_another_shape() -> None:
    tapes = [trace(torch.relu, torch.ones(size), hashes=True) for size in (3, 4)]
    assert str(diff(*tapes)).endswith(": argument 0 is float32[3] in one and float32[4] in the other.")
