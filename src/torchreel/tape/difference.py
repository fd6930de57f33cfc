"""The first op at which two tapes part: in what ran, in shapes, or in values.

Two traces of one program with the same data must be the same: where they are not, the program is not deterministic, or
a machine computes wrongly. The file is not called diff.py because `torchreel.tape.diff` is the function.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from torchreel.errors import OptionError
from torchreel.program.file.file import read_tape
from torchreel.program.model import Digest, Op, Program, Ref, Slot, StorageOf, Value
from torchreel.program.query.distance import distance
from torchreel.program.query.source_frames import source_line
from torchreel.program.query.workspaces import is_workspace
from torchreel.program.validate import atoms

if TYPE_CHECKING:
    from torchreel.tape.tape import Tape

Comparable: TypeAlias = "Tape | str | os.PathLike[str]"
Kind = Literal["ops", "arguments", "shapes", "values"]


@dataclass(frozen=True)
class Difference:
    """Where two tapes part. `str()` of it is a sentence or two."""

    kind: Kind
    op: int  # in both tapes: all before it are the same
    names: tuple[str, str]  # of the op in each; empty where a tape has ended
    lines: tuple[str, str]  # of the source; empty where none was recorded
    what: str  # a clause
    causes: tuple[str, ...] = ()  # sentences on what was different already at the beginning

    def __str__(self) -> str:
        one, other = self.names
        subject = f"op {self.op}" + (f", {one}" if one == other else "")
        return " ".join([f"The tapes part at {subject}{self._where()}: {self.what}.", *self.causes])

    def _where(self) -> str:
        one, other = self.lines
        if one == other:
            return f" ({one})" if one else ""
        return f" ({one or 'no source line'} | {other or 'no source line'})"


class _Side:
    """One of the two: its program, and the bytes that its storages began with, where they are known."""

    def __init__(self, program: Program, data: Mapping[int, memoryview] | None) -> None:
        self.program = program
        self.data = data or {}

    def op(self, index: int) -> Op | None:
        return self.program.ops[index] if index < len(self.program.ops) else None

    def slot(self, value: Ref | StorageOf) -> Slot:
        return self.program.slots[value.slot]

    def origin(self, value: Ref) -> str:
        """What a view came from: "parameter model.0.weight"."""
        storage = self.slot(value).storage
        owners = [slot for slot in self.program.slots if slot.storage == storage and slot.role != "made"]
        return f"{owners[0].role} {owners[0].name}" if owners else f"storage {storage}"


def diff(a: Comparable, b: Comparable) -> Difference | None:
    """The first op at which two tapes part, or None. Each is a Tape or the path of one.

    Values are compared where both were traced with hashes=True.
    """
    one, other = _side(a), _side(b)
    comparison = _Comparison(one, other)
    for index in range(max(len(one.program.ops), len(other.program.ops))):
        found = comparison.at(index)
        if found is not None:
            return found
    if not comparison.compared_values and one.program.ops:
        warnings.warn(
            "Only ops, arguments and shapes were compared, because the tapes hold no digests of values: "
            "trace both with hashes=True.",
            stacklevel=2,
        )
    return None


def _side(tape: Comparable) -> _Side:
    if isinstance(tape, str | os.PathLike):
        file = read_tape(tape)
        return _Side(file.program, file.data)
    program = getattr(tape, "program", None)
    if not isinstance(program, Program):
        raise OptionError(f"Only tapes and paths of tapes can be compared, and this is a {type(tape).__name__}.")
    start = tape.start or {}
    return _Side(program, {storage: memoryview(content.numpy()) for storage, content in start.items()})


class _Comparison:
    """Two tapes read side by side. A slot of one stands for a slot of the other from where they first meet."""

    def __init__(self, one: _Side, other: _Side) -> None:
        self.one = one
        self.other = other
        self.compared_values = False
        self._partners: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def at(self, index: int) -> Difference | None:
        """How the ops at this index differ."""
        a, b = self.one.op(index), self.other.op(index)
        if a is None or b is None:
            return self._ended(index, a, b)
        if a.name != b.name:
            return self._part("ops", index, f"one calls {a.name} where the other calls {b.name}")
        for kind, compare in self._comparisons(a, b):
            what = compare()
            if what:
                return self._part(kind, index, what)
        return None

    def _comparisons(self, a: Op, b: Op) -> list[tuple[Kind, Callable[[], str]]]:
        return [
            ("shapes", lambda: self._shapes("argument", a.args, b.args)),
            ("arguments", lambda: self._values("argument", a.args, b.args)),
            ("shapes", lambda: self._shapes("result", a.results, b.results)),
            ("values", lambda: self._values("result", a.results, b.results)),
            ("values", lambda: self._digests(a.name, a.digests or [], b.digests or [])),
        ]

    def _ended(self, index: int, a: Op | None, b: Op | None) -> Difference:
        which, more = ("first", b) if a is None else ("second", a)
        name = more.name if more is not None else ""
        return self._part("ops", index, f"the {which} tape ends where the other calls {name}")

    def _part(self, kind: Kind, index: int, what: str) -> Difference:
        ops = self.one.op(index), self.other.op(index)
        return Difference(
            kind,
            index,
            (ops[0].name if ops[0] else "", ops[1].name if ops[1] else ""),
            (
                source_line(self.one.program, ops[0]) if ops[0] else "",
                source_line(self.other.program, ops[1]) if ops[1] else "",
            ),
            what,
            tuple(self._causes(index)) if kind in ("values", "arguments") else (),
        )

    def _shapes(self, noun: str, a: list[Value], b: list[Value]) -> str:
        for index, (one, other) in enumerate(zip(a, b, strict=False)):
            for x, y in zip(atoms([one]), atoms([other]), strict=False):
                if isinstance(x, Ref) and isinstance(y, Ref):
                    texts = _geometry(self.one.slot(x)), _geometry(self.other.slot(y))
                    if texts[0] != texts[1]:
                        return f"{noun} {index} is {texts[0]} in one and {texts[1]} in the other"
        return ""

    def _values(self, noun: str, a: list[Value], b: list[Value]) -> str:
        if len(a) != len(b):
            return f"it has {len(a)} {noun}s in one and {len(b)} in the other"
        for index, (one, other) in enumerate(zip(a, b, strict=True)):
            listed = isinstance(one, list), isinstance(other, list)
            xs, ys = list(atoms([one])), list(atoms([other]))
            if listed[0] != listed[1] or len(xs) != len(ys):
                return f"{noun} {index} is {_text(one)} in one and {_text(other)} in the other"
            for x, y in zip(xs, ys, strict=True):
                if isinstance(x, Ref | StorageOf) and type(x) is type(y):
                    assert isinstance(y, Ref | StorageOf)
                    what = self._tensors(f"{noun} {index}", x, y)
                    if what:
                        return what
                elif type(x) is not type(y) or repr(x) != repr(y):  # NaN is NaN, and 0.0 is not -0.0
                    return f"{noun} {index} is {_text(x)} in one and {_text(y)} in the other"
        return ""

    def _tensors(self, what: str, x: Ref | StorageOf, y: Ref | StorageOf) -> str:
        a, b = self.one.slot(x), self.other.slot(y)
        if repr(a.number) != repr(b.number):
            return f"{what} is the number {_text(a.number)} in one and {_text(b.number)} in the other"
        contents = self.one.program.constants.get(x.slot), self.other.program.constants.get(y.slot)
        if contents[0] != contents[1]:
            return f"{what} is a constant of other values"
        forward, back = self._partners
        if forward.setdefault(x.slot, y.slot) == y.slot and back.setdefault(y.slot, x.slot) == x.slot:
            return ""
        return f"{what} is another tensor{_called(a, b)}"

    def _digests(self, name: str, a: list[Digest | None], b: list[Digest | None]) -> str:
        for index, (one, other) in enumerate(zip(a, b, strict=False)):
            if one is None or other is None or is_workspace(name, index):
                continue
            self.compared_values = True
            if one.hash != other.hash:
                which = f"result {index} of {len(a)}" if len(a) > 1 else "its result"
                return f"{which} has other values: {distance(one, other)}"
        return ""

    def _causes(self, index: int) -> list[str]:
        """What was different already when the tapes began, of that which this op takes."""
        a, b = self.one.op(index), self.other.op(index)
        found = []
        for x, y in zip(atoms(a.args if a else []), atoms(b.args if b else []), strict=False):
            if isinstance(x, Ref) and isinstance(y, Ref) and self._began_apart(x, y):
                found.append(f"The {self.one.origin(x)} is not the same at the beginning of both.")
        states = [[generator.state for generator in side.program.generators] for side in (self.one, self.other)]
        if not found and states[0] != states[1]:
            found.append("Their random generators were not in the same state: call torch.manual_seed before tracing.")
        return found

    def _began_apart(self, x: Ref, y: Ref) -> bool:
        storages = self.one.slot(x).storage, self.other.slot(y).storage
        if storages[0] not in self.one.data or storages[1] not in self.other.data:
            return False
        return self.one.data[storages[0]] != self.other.data[storages[1]]


def _geometry(slot: Slot) -> str:
    where = "" if slot.device == "cpu" else f" on {slot.device}"
    layout = "" if slot.layout == "strided" else f" ({slot.layout})"
    return f"{slot.dtype}{list(slot.sizes)}{layout}{where}"


def _called(a: Slot, b: Slot) -> str:
    return f": {a.name} in one and {b.name} in the other" if a.name and b.name else ""


def _text(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
