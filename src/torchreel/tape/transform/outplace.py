"""`trace(..., outplace=True)`: the same program without mutation.

Not by a rename of its in-place ops, which loses what is written through views, but by torch's functionalization: the
tape is run once more above it, while a new capture records what comes out below. What had been written at the end is
copied into the user's tensors after the last op, so a replay leaves them as the function does.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import torch

from torchreel.errors import TraceError
from torchreel.program.model import (
    Binding,
    Formula,
    Generator,
    Input,
    Op,
    Program,
    Ref,
    Slot,
    Tree,
    Value,
)
from torchreel.program.query.last_uses import leaves
from torchreel.tape.capture.captured import MODEL_CLASSES, Parts, dense_bytes, schemas_of
from torchreel.tape.capture.session import Session
from torchreel.tape.tape import Tape
from torchreel.tape.transform.functional import FunctionalRun, functionalized, slots_in, whole_storage


def outplaced(tape: Tape, hashes: bool = False) -> Tape:
    """The tape without mutation, right after it was traced with hashes: its state is now what it left."""
    run = FunctionalRun(tape)
    session = Session([*run.copies.values(), *run.wholes.values()], hashes)
    try:
        with functionalized():
            _set_default_generator(tape.program)
            end = _run(run, session)
    except BaseException:
        session.end([])
        raise
    session.end([])
    _check_untouched(tape, run)
    _check_end(tape, end)
    return Tape(_Rewriting(tape, run, session, end).parts())


@dataclass
class _End:
    """What the run left, by slots of the new capture unless said otherwise."""

    counts: list[int] = field(default_factory=list)  # of the new ops, after each op of the tape
    given: dict[int, int] = field(default_factory=dict)  # old slots that no op made -> new ones
    wholes: dict[int, int] = field(default_factory=dict)  # old storages -> new slots
    written: list[tuple[int, int]] = field(default_factory=list)  # new slots of owners and of what they become
    kept: dict[int, int] = field(default_factory=dict)  # old slots of outputs and bindings -> new ones
    values: dict[int, torch.Tensor] = field(default_factory=dict)  # old slots that no op made -> what they hold


def _run(run: FunctionalRun, session: Session) -> _End:
    capture, end = session.capture, _End()
    run.begin()
    end.given = {slot: capture.find(tensor) for slot, tensor in run.copies.items()}
    end.wholes = {storage: capture.find(tensor) for storage, tensor in run.wholes.items()}
    for index in range(len(run.program.ops)):
        run.step(index)
        end.counts.append(capture.op_count)
    for slot, new in end.given.items():
        record = run.program.slots[slot]
        end.values[slot] = run.given_now(slot)
        if record.storage not in end.wholes and record.role != "constant":  # these are the same at each call
            _note_written(end, run.copies[slot], end.values[slot], new, session)
    for storage, new in end.wholes.items():
        _note_written(end, run.wholes[storage], run.whole_now(storage), new, session)
    for slot in [*_kept(run.program), *run.left]:
        if slot not in end.given and slot not in end.kept:
            end.kept[slot] = capture.find(run.now(slot))
    return end


def _note_written(end: _End, before: torch.Tensor, after: torch.Tensor, new: int, session: Session) -> None:
    if after is before or after.shape != before.shape:  # of another shape: a binding of the tape says so
        return
    value = session.capture.find(after)
    if value != new:
        end.written.append((new, value))


def _kept(program: Program) -> list[int]:
    slots = [leaf.leaf.slot for leaf in leaves(program.outputs) if isinstance(leaf.leaf, Ref)]
    return slots + [binding.value for binding in program.bindings if binding.value >= 0]


def _set_default_generator(program: Program) -> None:
    for record in program.generators:
        if record.is_default:
            torch.set_rng_state(torch.frombuffer(bytearray(record.state), dtype=torch.uint8))


def _check_untouched(tape: Tape, run: FunctionalRun) -> None:
    """An op whose schema hides that it writes would make a program that replays wrongly."""
    for slot, tensor in run.copies.items():
        record = tape.program.slots[slot]
        began = tape.start.get(record.storage)
        if began is None or record.is_number or record.layout != "strided" or slot in tape.program.constants:
            continue
        bytes_now = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        if not torch.equal(bytes_now, began):
            raise TraceError(
                f"An op wrote to {record.name} although its schema does not say so, and cannot be written without "
                "mutation: trace it without outplace=True."
            )


def _check_end(tape: Tape, end: _End) -> None:
    """The state must be left as the function left it, or the program is not the same."""
    rebound = {binding.owner for binding in tape.program.bindings if binding.kind == "data"}
    for slot, value in end.values.items():
        record = tape.program.slots[slot]
        if record.storage not in tape.start or record.role == "constant" or slot in rebound:
            continue
        if record.layout == "strided" and not value.is_quantized and not _same_bits(value, tape.tensors[slot].detach()):
            raise TraceError(
                f"{record.name} would be left with other values than the function leaves it with, if the tape were "
                "written without mutation: trace it without outplace=True."
            )


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    parts = (each.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8) for each in (a, b))
    return bool(torch.equal(*parts))


class _Rewriting:
    """A new program in the names of the old one."""

    def __init__(self, tape: Tape, run: FunctionalRun, session: Session, end: _End) -> None:
        self._tape, self._old = tape, tape.program
        self._run, self._session, self._end = run, session, end
        self._slot_of = {**end.kept, **end.given}
        self._index_of: dict[int, int] = {}  # index of an old op -> index of the new op for it

    def parts(self) -> Parts:
        capture, old_parts = self._session.capture, self._tape._parts
        decoded = capture.decode(MODEL_CLASSES)
        program = Program(
            provenance=self._old.provenance,
            slots=decoded["slots"],
            ops=decoded["ops"],
            inputs=[Input(each.name, self._slot_of[each.slot]) for each in self._old.inputs],
            arguments=self._tree(self._old.arguments),
            outputs=self._old.outputs,
            stacks=self._old.stacks,
            frames=self._old.frames,
            modules=self._old.modules,
            generators=self._old.generators,
            notes=list(self._old.notes),
        )
        tensors = self._name(program)
        self._carry_over(program)
        self._return_views(program)
        program.outputs = self._tree(self._old.outputs)
        program.bindings = self._bindings()
        program.schemas = schemas_of(program)
        results = copy.copy(old_parts.results)
        if results is not None:
            results.slots = [self._slot_of.get(slot, -1) for slot in results.slots]
        start = dict(capture.start_storages())
        capture.close()
        # What the tape keeps beside its program, such as generators and what it takes for granted, is the same.
        guards = old_parts.guards.renumbered(self._slot_of) if old_parts.guards is not None else None
        owned = frozenset(self._slot_of[slot] for slot in old_parts.owned)
        return replace(
            old_parts, program=program, tensors=tensors, start=start, results=results, guards=guards, owned=owned
        )

    def _tree(self, tree: Tree) -> Tree:
        leaf = Ref(self._slot_of[tree.leaf.slot]) if isinstance(tree.leaf, Ref) else tree.leaf
        return Tree(tree.kind, tree.type, tree.keys, [self._tree(part) for part in tree.parts], leaf, tree.text)

    def _name(self, program: Program) -> dict[int, torch.Tensor]:
        """Roles, names and the user's own tensors for the slots that no op made."""
        tensors: dict[int, torch.Tensor] = {}
        for old, new in self._end.given.items():
            was, record = self._old.slots[old], program.slots[new]
            record.role, record.name, record.number = was.role, was.name, was.number
            record.is_number, record.requires_grad = was.is_number, was.requires_grad
            tensors[new] = self._tape.tensors[old]
            if old in self._old.constants:
                program.constants[new] = self._old.constants[old]
        for storage, new in self._end.wholes.items():
            old = next(slot for slot in self._end.given if self._old.slots[slot].storage == storage)
            program.slots[new].role = "captured"
            program.slots[new].name = f"{self._old.slots[old].name}.storage"
            tensors[new] = whole_storage(self._tape.tensors[old])
        for slot, tensor, _ in self._session.capture.externals():
            if slot not in tensors:
                _name_constant(program, slot, tensor)
                tensors[slot] = tensor
        return tensors

    def _carry_over(self, program: Program) -> None:
        """Give each new op the stack, module and thread of the old op that it came from."""
        origins = self._drop_unused(program, self._origins(program))
        for index, origin in enumerate(origins):
            if origin is not None and _stands_for(program.ops[index], self._old.ops[origin]):
                self._index_of.setdefault(origin, index)
        for index, origin in enumerate(origins):
            op = program.ops[index]
            op.stack, op.module, op.thread = 0, -1, 0
            if origin is not None:
                self._describe(op, self._old.ops[origin], self._index_of.get(origin) == index)

    def _drop_unused(self, program: Program, origins: list[int | None]) -> list[int | None]:
        """Leave out views that functionalization made anew after a write, and that nobody looked at again."""
        used = {value for _, value in self._end.written} | set(self._slot_of.values())
        made = set(self._end.given.values())
        makes: list[set[int]] = []
        for op in program.ops:
            makes.append({*slots_in(op.results)} - made)
            made |= makes[-1]
        left = []
        for op, origin, makes_first in reversed(list(zip(program.ops, origins, makes, strict=True))):
            asked_for = origin is not None and _stands_for(op, self._old.ops[origin])
            if asked_for or used & makes_first:
                left.append((op, origin))
                used.update(slots_in(op.args))
        program.ops = [op for op, _ in reversed(left)]
        return [origin for _, origin in reversed(left)]

    def _origins(self, program: Program) -> list[int | None]:
        """For each new op the index of the old one; None for ops that were only needed at the end."""
        origins: list[int | None] = []
        counts = self._end.counts
        recorded = origin = 0
        for op in program.ops:
            while origin < len(counts) and counts[origin] <= recorded:
                origin += 1
            origins.append(origin if origin < len(counts) else None)
            if not (op.inserted and op.name == "aten::as_strided"):  # these are added when the capture is decoded
                recorded += 1
        return origins

    def _describe(self, op: Op, was: Op, stands_for_it: bool) -> None:
        op.stack, op.module, op.backward = was.stack, was.module, was.backward
        op.thread, op.time_ns = was.thread, was.time_ns
        op.forward = self._index_of.get(was.forward, -1)
        op.inserted = was.inserted or not stands_for_it
        op.args = [_with_generator(value, was) for value in op.args]
        if stands_for_it:
            op.guarded = was.guarded
            for index, value in enumerate(was.args[: len(op.args)]):
                op.args[index] = self._with_formulas(value, op.args[index])

    def _with_formulas(self, was: Value, now: Value) -> Value:
        if isinstance(was, Formula):
            return Formula(tuple(self._word(word) for word in was.postfix), was.value)
        if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
            return [self._with_formulas(a, b) for a, b in zip(was, now, strict=True)]  # type: ignore[misc]
        return now

    def _word(self, word: float | str) -> float | str:
        if isinstance(word, str) and word.startswith("item:"):
            return f"item:{self._index_of[int(word.removeprefix('item:'))]}"
        return word

    def _return_views(self, program: Program) -> None:
        """Return views of the user's tensor, not of the tensor that is copied into it at the end."""
        written = {owner for owner, _ in self._end.written}
        owners = {self._old.slots[old].storage: new for old, new in self._end.given.items() if new in written}
        owners |= self._end.wholes
        for old in dict.fromkeys(_kept(self._old)):
            was = self._old.slots[old]
            owner = owners.get(was.storage, -1)
            if old in self._end.given or owner < 0 or was.dtype != program.slots[owner].dtype or was.conjugate:
                continue
            base = program.slots[owner]
            view = Slot(base.storage, was.dtype, was.sizes, was.strides, was.offset, base.device, bytes=base.bytes)
            self._slot_of[old] = len(program.slots)
            program.slots.append(view)
            given: list[Value] = [Ref(owner), list(was.sizes), list(was.strides), was.offset]
            program.ops.append(Op("aten::as_strided", given, [Ref(self._slot_of[old])], inserted=True))

    def _bindings(self) -> list[Binding]:
        # What is written goes into the tensors that were there at the beginning, before any gets other data.
        bindings = [Binding("copy", owner, value) for owner, value in self._end.written]
        for was in self._old.bindings:
            value = self._slot_of[was.value] if was.value >= 0 else -1
            bindings.append(Binding(was.kind, self._slot_of[was.owner], value, was.cleared))
        return bindings


def _stands_for(op: Op, was: Op) -> bool:
    """Whether it is the old op itself, or its form without mutation."""
    return _plain(op.name) == _plain(was.name)


def _plain(name: str) -> str:
    base = name.partition(".")[0].removesuffix("_functional").removesuffix("_legit").removesuffix("_")
    return base.replace("::_native", "::native")


def _with_generator(value: Value, was: Op) -> Value:
    if not isinstance(value, Generator):
        return value
    return next((each for each in was.args if isinstance(each, Generator)), None)


def _name_constant(program: Program, slot: int, tensor: torch.Tensor) -> None:
    record = program.slots[slot]
    record.role, record.name = "constant", f"constant_{slot}"
    if record.is_number:
        record.number = tensor.item()
    elif record.layout == "strided":
        program.constants[slot] = dense_bytes(tensor)
