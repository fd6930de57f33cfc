"""What a trace left, and the program that is made of it when somebody asks."""

from __future__ import annotations

import datetime
import linecache
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchreel import _tape
from torchreel._torch.dispatch import find_schema, is_wrapper_subclass
from torchreel._version import __version__
from torchreel.errors import TraceError
from torchreel.program import model
from torchreel.program.model import (
    Binding,
    Complex,
    Frame,
    Generator,
    Input,
    Module,
    Op,
    Program,
    Provenance,
    RandomState,
    Ref,
    Slot,
    Stack,
)
from torchreel.tape.capture import numbers
from torchreel.tape.capture.names import Search
from torchreel.tape.capture.optimizers.code import Count, Rate
from torchreel.tape.capture.optimizers.optimizers import write_formulas
from torchreel.tape.capture.parameter_names import ParameterNames
from torchreel.tape.capture.results import fresh, left_behind
from torchreel.tape.capture.results.effects import slots_of
from torchreel.tape.capture.results.held import Held
from torchreel.tape.capture.results.result_forms import ResultForms
from torchreel.tape.capture.results.unfinished import unfinished
from torchreel.tape.capture.session import Session
from torchreel.tape.guards.assumptions import Assumptions
from torchreel.tape.guards.tape_guards import TapeGuards
from torchreel.tape.quiet import quietly
from torchreel.tape.structure import Structure

MODEL_CLASSES = {name: getattr(model, name) for name in (
    "Ref", "StorageOf", "Complex", "Device", "Named", "Generator", "Object", "Op", "Slot", "Digest"
)}  # fmt: skip
# A larger tensor that no op made is data, even if nobody else holds it.
_LARGEST_CONSTANT = 64 * 1024


@dataclass
class Parts:
    """A program, and what it needs to be run."""

    program: Program
    tensors: dict[int, torch.Tensor]  # of every slot that no op made: state, constants, and the inputs as traced
    kept: Any  # _tape.Kept
    start: dict[int, torch.Tensor] = field(default_factory=dict)  # bytes of storages as the tape began, with hashes
    regions: list[Any] = field(default_factory=list)
    arguments: Structure | None = None
    results: Structure | None = None
    refusal: str = ""  # why it can be looked at, but not replayed in place of a call
    assumptions: Assumptions | None = None
    stale: list[str] = field(default_factory=list)  # names of what it read and nobody has any more
    left: list[str] = field(default_factory=list)  # where it left tensors of its own, other than gradients
    also: set[int] = field(default_factory=set)  # inputs that the function has by another name, too
    counts: list[Count | Rate] = field(default_factory=list)  # numbers of Python's that the tape has as tensors
    asked: list[int] | None = None  # of each input, what Python asked beside its values: see _tape.pyi
    guards: TapeGuards | None = None  # what it takes for granted of Python
    owned: frozenset[int] = frozenset()  # inputs that the function had by a name of its own before the call


class Captured:
    """The end of a trace, before its program is put together."""

    def __init__(
        self,
        session: Session,
        given: Structure,
        results: Structure,
        result_slots: list[int],
        function: str,
        roots: Callable[[], dict[str, Any]],
        guards: TapeGuards | None = None,
        parameters: Callable[[], ParameterNames] = ParameterNames,
    ) -> None:
        if guards is not None:  # at once: what it looks at may change
            forms = ResultForms(session.capture, given.tensors)
            forms.note(results, result_slots)
            guards.end(session, forms)
        self.guards = guards
        self._session = session
        self._capture = session.capture
        self._given, self._results, self._result_slots = given, results, result_slots
        self._own_leaf = self._returns_leaf_with_gradient()
        given.tensors, results.tensors = [], []  # the tape holds what it needs of them
        results.slots = result_slots
        self._function = function
        self._roots = roots
        self._parameters = parameters
        self._made = time.time()
        self._asked = list(self._capture.asked_inputs)
        owned = given.like.owned if given.like is not None else ()
        self._owned = frozenset(self._capture.input_slots[index] for index in owned)
        self._gradients = self._capture.gradients()
        self._rebound = self._capture.rebound()
        self._left: list[left_behind.Left] = []
        self._also: set[int] = set()
        self.assumptions = Assumptions(session.steps, self._capture.modules(), session.scheduled)

    def look_around(self, there: set[int], before: tuple[int, ...]) -> None:
        """Right after the call of a function: whether somebody holds what it made, besides those who are known.

        `there` and `before` are of the moment before the call: ids of tensors, and held.collections().
        """
        if self.guards is None or self.guards.refusal or (self.guards.proof is not None and self.guards.proof.is_whole):
            return
        known = {*self._result_slots, *slots_of(self.guards.effects())}
        known.update(slot for pairs in (self._gradients, self._rebound) for pair in pairs for slot in pair)
        with quietly():
            found = Held(self._capture, known, there | self._states_of_optimizers(), before)
        self.guards.effects().extend(found.effects)
        self.guards.refusal = found.refusal

    def _states_of_optimizers(self) -> set[int]:
        """Ids of tensors that steps of optimizers left in their states, which a replay has by itself."""
        optimizers = filter(None, (step.optimizer() for step in self._session.steps))
        states = (state for optimizer in optimizers for state in optimizer.state.values() if isinstance(state, dict))
        return {id(value) for state in states for value in state.values() if isinstance(value, torch.Tensor)}

    def parts(self, lines: bool = True) -> Parts:
        """Put the program together; without `lines` of the source, which take long to read, and are found later."""
        with quietly():
            return self._parts(lines)

    def _parts(self, lines: bool) -> Parts:
        decoded = self._capture.decode(MODEL_CLASSES)
        self._check(decoded)
        records = [decoded["ops"][index] if index >= 0 else None for index in decoded["indices"]]
        program = Program(
            provenance=self._provenance(),
            slots=decoded["slots"],
            ops=decoded["ops"],
            inputs=[],
            arguments=self._given.tree(list(self._capture.input_slots)),
            outputs=self._results.tree(self._result_slots),
        )
        tensors, alone = self._name(program)
        _write_stacks(program, lines)
        self._write_generators(program, tensors)
        self._write_bindings(program)
        for op in program.ops:
            if op.backward and op.module < 0 and op.forward >= 0:
                op.module = program.ops[op.forward].module
        program.objects = self._capture.objects()
        start = dict(self._capture.start_storages())
        program.schemas = schemas_of(program)
        refusal = self._refusal(program, tensors, alone, start)
        numbers.write(program, records, self._session.uses)
        for rate in self._session.counts:
            reads = records[rate.record] if isinstance(rate, Rate) else None
            if isinstance(rate, Rate) and reads is not None:
                rate.is_free = not reads.guarded
        write_formulas(program, self._session.steps, tensors)
        kept = self._capture.kept()
        self._capture.close()
        regions, given, results = self._session.regions, self._given, self._results
        left = [named.name for named, _ in self._left if named.role != "gradient"]
        return Parts(
            program,
            tensors,
            kept,
            start,
            regions,
            given,
            results,
            refusal,
            self.assumptions,
            self._stale,
            left,
            self._also,
            self._session.counts,
            self._asked,
            self.guards,
            self._owned,
        )

    def _refusal(
        self, program: Program, tensors: dict[int, torch.Tensor], alone: set[int], start: dict[int, torch.Tensor]
    ) -> str:
        """Why there can be no replay, or nothing. `alone` are tensors that no op made and that only the tape has."""
        stale = alone - fresh.announced(program)
        self._stale = sorted(program.slots[slot].name for slot in stale)
        refusal = left_behind.refusal(program, tensors, self._left, stale)
        refusal = refusal or (self.guards.refusal if self.guards is not None else "")
        refusal = refusal or unfinished(self._results)
        if self._own_leaf:
            refusal = refusal or (
                "The function returns a leaf that it made, with the gradient that it got, and a replay would return it "
                "without: return its gradient instead, and trace again."
            )
        alone_drawn = self.guards is not None and self.guards.proof is not None and self.guards.proof.draws_alone
        if alone_drawn and any(op.name == model.SET_RNG and _is_default(program, op) for op in program.ops):
            refusal = refusal or (
                "The function draws random numbers without an op that the tape knows (in an op of your own, for "
                "example), and a replay would draw the same ones again: draw them outside of it, and pass them."
            )
        constants = {slot for slot in alone if program.slots[slot].role in ("constant", "captured")}
        refusal = refusal or fresh.renew(program, tensors, constants, start, self._left_slots(program))
        if refusal:
            program.notes.append(refusal)
        return refusal

    def _returns_leaf_with_gradient(self) -> bool:
        known = {slot for slot, _ in self._capture.tensors_from_outside()} | set(self._capture.input_slots)
        pairs = zip(self._results.tensors, self._result_slots, strict=False)
        leaves = [one for one, slot in pairs if slot not in known and one.is_leaf and one.requires_grad]
        return any(one.grad is not None for one in leaves)

    def _left_slots(self, program: Program) -> set[int]:
        """Slots of all that somebody has after a call, besides its results."""
        effects = self.guards.effects() if self.guards is not None else []
        return {*slots_of(effects), *(each.value for each in program.bindings if each.value >= 0)}

    def _check(self, decoded: dict[str, Any]) -> None:
        problem = decoded["alias_problem"]
        if problem is not None:
            slot = decoded["slots"][problem]
            raise TraceError(
                f"An op read a tensor of {slot.dtype} {list(slot.sizes)} as another type than any op made it: such a "
                "view without an op cannot be replayed. Use x.view(dtype) instead."
            )

    def _provenance(self) -> Provenance:
        made = datetime.datetime.fromtimestamp(self._made, datetime.UTC).isoformat(timespec="seconds")
        machine = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
        return Provenance(__version__, str(torch.__version__), platform.python_version(), machine, made, self._function)

    def _name(self, program: Program) -> tuple[dict[int, torch.Tensor], set[int]]:
        """Give every slot that no op made its role and name; gives their tensors, and those that only the tape has."""
        modules = self._capture.modules()
        optimizers = [step.optimizer() for step in self._session.steps]
        search = Search(self._roots(), modules, [each for each in optimizers if each is not None])
        program.modules = [
            Module(search.modules.get(id(module), type(module).__name__), type(module).__name__) for module in modules
        ]
        tensors: dict[int, torch.Tensor] = {}
        alone: set[int] = set()
        for slot, tensor, is_alone in self._capture.externals():
            if is_alone or fresh.is_held_by_tape_alone(tensor):
                alone.add(slot)
            tensors[slot] = tensor
        self._name_inputs(program)
        for count in self._session.counts:
            record = program.slots[self._capture.find(count.tensor)]
            record.role, record.name = "optimizer", count.name
        announced = fresh.announced(program)
        self._name_found(program, search, tensors, announced)
        if self.guards is not None:
            self._name_gradients(program)
        alone = {slot for slot in alone | (announced & tensors.keys()) if not program.slots[slot].name}
        _name_rest(program, tensors, alone)
        return tensors, {slot for slot in alone if not program.slots[slot].is_number}

    def _name_inputs(self, program: Program) -> None:
        names, parameters = self._given.tensor_names(), self._parameters()
        used: set[str] = {path for kind, _, path in (name.partition(".") for name in names) if kind == "1"}
        for name, slot in zip(names, self._capture.input_slots, strict=True):
            kind, _, path = name.partition(".")
            text = path
            if kind != "1":
                text = parameters.of(path)
                text = text if text and text not in used else f"input_{path.replace('.', '_')}"
            used.add(text)
            program.inputs.append(Input(text, slot))
            if program.slots[slot].role != "input":
                program.slots[slot].role, program.slots[slot].name = "input", text

    def _name_gradients(self, program: Program) -> None:
        """Name the gradients that tensors had when the tape began."""
        for leaf in self.guards.leaves.all if self.guards is not None else ():
            for slot in leaf.gradients:
                record = program.slots[slot]
                if not record.name:
                    owner = program.slots[leaf.slot].name or f"tensor_{leaf.slot}"
                    record.role, record.name = (
                        "gradient",
                        f"{owner}.grad" if slot == leaf.gradients[0] else f"{owner}.grad_{slot}",
                    )

    def _name_found(
        self, program: Program, search: Search, tensors: dict[int, torch.Tensor], announced: set[int]
    ) -> None:
        used = {slot.name for slot in program.slots if slot.name}
        objects = {id(tensor): slot for slot, tensor in tensors.items()}
        for named in search.tensors():
            if is_wrapper_subclass(named.tensor):
                continue
            slot = self._capture.find(named.tensor)
            if slot < 0:  # it may have got other sizes since the tape was made
                slot = objects.get(id(named.tensor), -1)
            if slot >= 0 and (slot not in tensors or slot in announced):
                self._left.append((named, slot))
                continue
            if slot >= 0 and program.slots[slot].role == "input":
                self._also.add(slot)
            if slot < 0 or program.slots[slot].name or named.name in used:
                continue
            record = program.slots[slot]
            record.role, record.name = named.role, named.name
            record.requires_grad = named.tensor.requires_grad
            used.add(named.name)
            tensors[slot] = named.tensor  # the object itself, so that later changes of it are seen

    def _write_generators(self, program: Program, tensors: dict[int, torch.Tensor]) -> None:
        for index, (device, is_default, made_inside, state) in enumerate(self._capture.generators()):
            inside = made_inside and not is_default
            program.generators.append(RandomState(device, is_default, inside, state))
            if not inside:
                continue
            slot = _add_constant(program, tensors, torch.frombuffer(bytearray(state), dtype=torch.uint8))
            first = next((i for i, op in enumerate(program.ops) if Generator(index) in op.args), None)
            if first is not None:
                fresh.insert(program, first, Op(model.SET_RNG, [Generator(index), Ref(slot)], [], inserted=True))

    def _write_bindings(self, program: Program) -> None:
        if self.guards is not None:
            program.bindings += self.guards.leaves.bindings(self._gradients)
        else:
            program.bindings += (Binding("grad", *pair, self._session.cleared) for pair in self._gradients)
        for owner, value in self._rebound:
            if value < 0 or program.slots[value].role != "made":
                name = program.slots[owner].name
                raise TraceError(
                    f"{name} was given the data of a tensor that no op of the tape made, so a replay could not do the "
                    "same: copy the values into it with copy_() instead."
                )
            program.bindings.append(Binding("data", owner, value))


def _is_default(program: Program, op: Op) -> bool:
    """Whether it sets the state of the default generator."""
    given = op.args[0]
    return isinstance(given, Generator) and program.generators[given.index].is_default


def _add_constant(program: Program, tensors: dict[int, torch.Tensor], tensor: torch.Tensor) -> int:
    slot = len(program.slots)
    storage = 1 + max((other.storage for other in program.slots), default=-1)
    program.slots.append(
        Slot(storage, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.stride(), role="constant",
             name=f"constant_{slot}", bytes=tensor.nbytes)
    )  # fmt: skip
    program.constants[slot] = dense_bytes(tensor)
    tensors[slot] = tensor
    return slot


def dense_bytes(tensor: torch.Tensor) -> bytes:
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return dense.view(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""


def _name_rest(program: Program, tensors: dict[int, torch.Tensor], alone: set[int]) -> None:
    """Numbers and other constants; tensors that nothing leads to; further views of those that have a name."""
    named = {program.slots[slot].storage: program.slots[slot] for slot in tensors if program.slots[slot].name}
    for slot, tensor in tensors.items():
        record = program.slots[slot]
        if record.name:
            continue
        if record.is_number:
            value = tensor.item()
            record.number = Complex(value.real, value.imag) if isinstance(value, complex) else value
            record.role, record.name = "constant", f"constant_{slot}"
        elif record.storage in named:
            owner = named[record.storage]
            record.role, record.name = owner.role, f"{owner.name}.view_{slot}"
            if owner.role == "input":
                record.role = "captured"
        elif slot in alone and record.layout == "strided" and record.bytes <= _LARGEST_CONSTANT and tensor.is_cpu:
            record.role, record.name = "constant", f"constant_{slot}"
            program.constants[slot] = dense_bytes(tensor)
        else:
            record.role, record.name = "captured", f"captured_{slot}"


def _write_stacks(program: Program, lines: bool) -> None:
    """Keep only the stacks that the ops have, and renumber them."""
    rows, frames = _tape.stacks(), _tape.frames()
    stacks: dict[int, int] = {0: 0}
    numbers: dict[int, int] = {}

    def stack_of(old: int) -> int:
        chain = []
        while old not in stacks:
            chain.append(old)
            old = rows[old][0]
        for each in reversed(chain):
            parent, frame = rows[each]
            if frame not in numbers:
                file, line, function = frames[frame]
                numbers[frame] = len(program.frames)
                text = linecache.getline(file, line).strip() if lines else ""
                program.frames.append(Frame(file, line, function, text))
            stacks[each] = len(program.stacks)
            program.stacks.append(Stack(stacks[parent], numbers[frame]))
        return stacks[chain[0]] if chain else stacks[old]

    for op in program.ops:
        op.stack = stack_of(op.stack)


def schemas_of(program: Program) -> dict[str, str]:
    schemas = {}
    for name in {op.name for op in program.ops}:
        base, _, overload = name.partition(".")
        schemas[name] = str(find_schema(base, overload))
    return schemas
