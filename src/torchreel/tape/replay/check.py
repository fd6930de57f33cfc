"""Whether a replay computes, bit for bit, what was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchreel.errors import ReplayError
from torchreel.program.model import Digest, Op, Program
from torchreel.program.query.distance import distance
from torchreel.program.query.source_frames import source_line
from torchreel.program.query.workspaces import is_workspace

if TYPE_CHECKING:
    from torchreel.tape.tape import Tape


@dataclass(frozen=True)
class Mismatch:
    """The first op whose output is not what was recorded."""

    op: int
    name: str
    line: str  # of the source; empty where none was recorded
    what: str  # how far it is off, as a clause

    def __str__(self) -> str:
        where = f" ({self.line})" if self.line else ""
        return f"Op {self.op}, {self.name}{where}, is the first that differs from what was recorded: {self.what}."


@dataclass(frozen=True)
class CheckResult:
    ops: int  # of the tape
    tensors: int  # that were compared
    mismatch: Mismatch | None

    @property
    def ok(self) -> bool:
        return self.mismatch is None

    def __str__(self) -> str:
        if self.mismatch is not None:
            return str(self.mismatch)
        return f"All {self.tensors:,} outputs of {self.ops:,} ops are bit for bit those that were recorded."


def check(tape: Tape) -> CheckResult:
    """Put state and random generators back to where the tape began, replay, and compare every op's output.

    The state is left as this replay leaves it.
    """
    if all(op.digests is None for op in tape.program.ops) and not all(
        _is_view(tape.program, op) for op in tape.program.ops
    ):
        raise ReplayError(
            "This tape holds no digests to compare with: make one that does with "
            "torchreel.trace(function, ..., hashes=True)."
        )
    tape.restore()
    try:
        _, digests = tape.run(tape.example_inputs(), digests=True)
    except ReplayError:
        # A wrong value stops the replay where Python used it: what counts is the op that it came from.
        result = compare(tape.program, _digests_so_far(tape))
        if result.ok:
            raise
        return result
    return compare(tape.program, digests)


def _is_view(program: Program, op: Op) -> bool:
    """Whether an op makes no values, so that it never has digests."""
    returns = program.schemas.get(op.name, "").rpartition("->")[2]
    return "Tensor(" in returns and "!" not in returns


def _digests_so_far(tape: Tape) -> list[list[Digest | None] | None]:
    found = tape._plan.digests()
    rows = [found.get(output) for output in range(len(tape.program.ops))]
    return [row and [digest and Digest(*digest) for digest in row] for row in rows]


def compare(program: Program, digests: list[list[Digest | None] | None]) -> CheckResult:
    """The digests of a replay against those of the program."""
    tensors = 0
    for index, (op, now) in enumerate(zip(program.ops, digests, strict=True)):
        for output, (was, new) in enumerate(zip(op.digests or [], now or [], strict=False)):
            if was is None or new is None or is_workspace(op.name, output):
                continue
            tensors += 1
            if was.hash != new.hash:
                return CheckResult(len(program.ops), tensors, _mismatch(program, index, output, was, new))
    return CheckResult(len(program.ops), tensors, None)


def _mismatch(program: Program, index: int, output: int, was: Digest, new: Digest) -> Mismatch:
    op = program.ops[index]
    which = f"of output {output}, " if len(op.digests or []) > 1 else ""
    return Mismatch(index, op.name, source_line(program, op), which + distance(was, new, ("recorded", "now")))
