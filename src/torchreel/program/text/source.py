"""A program as Python text that runs without the code that it was recorded from.

What it needs is torch: `run(inputs, state)` takes the inputs in the order of Program.inputs and the state as a dict by
name, does what the function did, op by op, and returns what it returned. See docs/tape-python.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchreel.program.model import (
    GET_RNG,
    NEW_SEED,
    OPAQUE,
    SEED,
    SEEN,
    SET_RNG,
    STATE_ROLES,
    Binding,
    Formula,
    Generator,
    Object,
    Op,
    Program,
    Ref,
    Slot,
    Tree,
    Value,
)
from torchreel.program.query.last_uses import gradients_to_be_none, last_uses, leaves, spoken_of
from torchreel.program.scalar_types import DTYPE_NUMBERS
from torchreel.program.text import constant as constant_text
from torchreel.program.text import helpers as source_helpers
from torchreel.program.text.call import CallText, TextNames, is_sized_by_values
from torchreel.program.text.comments import Comments
from torchreel.program.text.layout import wrapped
from torchreel.program.text.literals import plain, quoted, word
from torchreel.program.text.naming import Names, base_name, slot_names, slots_in
from torchreel.program.text.provenance import provenance


def python_source(program: Program) -> str:
    """The program as the text of a Python file."""
    return _Writer(program).text()


class _Writer:
    def __init__(self, program: Program) -> None:
        self._program = program
        spaces = sorted({op.name.partition("::")[0] for op in program.ops} - {"torchreel"})
        self._spaces = {space: word(space) for space in spaces if Names(source_helpers.NAMES).unique(space) == space}
        self._names = Names([*source_helpers.NAMES, *spaces])
        self._slots = slot_names(program, self._names)
        self._numbers = {position: self._names.unique("item") for position in _items(program)}
        self._generators = {index: self._names.unique("generator") for index in _drawn_from(program)}
        self._call = CallText(program, TextNames(self._slots, self._numbers, self._generators, self._spaces))
        self._last = last_uses(program)
        self._comments = Comments(program)
        self._bound: set[int] = set()  # made slots and constants that have a name in the text by now
        self._helpers = self._call.helpers
        self._helpers.add("below_autograd")

    def text(self) -> str:
        body = [*self._given(), *self._ops(), *self._ends()]
        parameters = ["inputs", "state", *(["objects"] if self._program.objects else [])]
        lines = [
            *provenance(self._program),
            *source_helpers.imports(self._helpers),
            "",
            *(f"{name} = torch.ops.{space}" for space, name in self._spaces.items()),
            *source_helpers.definitions(self._helpers),
            "",
            "",
            "@below_autograd",
            f"def run({', '.join(parameters)}):",
            *(f"    {line}" if line else "" for line in body),
        ]
        return "\n".join(lines) + "\n"

    def _given(self) -> Iterator[str]:
        """What comes from outside gets its name."""
        names = [self._slots[entry.slot] for entry in self._program.inputs]
        if names:
            yield from wrapped("(", names if len(names) > 1 else [f"{names[0]},"], ") = inputs")
        for index, slot in enumerate(self._program.slots):
            if index in self._last and self._is_state(index, slot):
                yield f"{self._slots[index]} = state[{quoted(slot.name)}]"
        for index, name in self._generators.items():
            yield f"{name} = {self._generator(index)}"
        owners = [self._owner(slot) for slot in gradients_to_be_none(self._program)]
        if owners:
            yield from wrapped(f"{self._helper('without_gradients')}(", owners, ")")

    def _is_state(self, index: int, slot: Slot) -> bool:
        if slot.role == "constant":  # one without bytes cannot be written down
            return not slot.is_number and index not in self._program.constants
        return slot.role in STATE_ROLES

    def _generator(self, index: int) -> str:
        state = self._program.generators[index]
        if not state.is_default:
            return (
                f"{self._helper('generator_in')}({quoted(state.device)}, {quoted(constant_text.packed(state.state))})"
            )
        kind, _, number = state.device.partition(":")
        if kind == "cpu":
            return "torch.default_generator"
        return f"torch.{word(kind)}.default_generators[{int(number) if number.isdecimal() else 0}]"

    def _ops(self) -> Iterator[str]:
        dying: dict[int, list[int]] = {}
        for slot, position in self._last.items():
            dying.setdefault(position, []).append(slot)
        for position, op in enumerate(self._program.ops):
            yield from self._comments.above(op)
            for slot in dict.fromkeys(spoken_of(op)):
                if self._call.names(op, slot):
                    yield from self._constant(slot)
            *lines, last = self._op(position, op)
            gone = [self._slots[slot] for slot in dying.get(position, ()) if slot in self._bound]
            yield from lines
            yield last + (f"; del {', '.join(gone)}" if gone else "")

    def _constant(self, index: int) -> Iterator[str]:
        """The line that makes a constant, where it is first needed."""
        slot = self._program.slots[index]
        if slot.role != "constant" or index in self._bound:
            return
        if slot.is_number and slot.number is not None:
            text = f"number_of({plain(slot.number)})"
        elif index in self._program.constants:
            text = constant_text.expression(slot, self._program.constants[index])
        else:
            return
        self._helpers.add(text.partition("(")[0])
        self._bound.add(index)
        yield f"{self._slots[index]} = {text}"

    def _op(self, position: int, op: Op) -> Iterator[str]:
        if op.name in (SEEN, SET_RNG, OPAQUE):
            yield self._own_op(op)
            return
        if op.name in (GET_RNG, SEED, NEW_SEED):
            yield self._asked(position, op)
            return
        call, arguments = f"{self._call.function(op.name)}(", self._call.arguments(op)
        recorded = _number(op)
        if recorded is not None and len(op.results) == 1:
            name = self._numbers.get(position)
            head, tail = (f"{name} = ", "") if name else ("", "")
            if op.guarded:
                head, tail = f"{head}{self._helper('check')}(", f", {self._call.value(recorded)}, {self._where(op)})"
            yield from wrapped(head + call, arguments, ")" + tail)
            return
        if not self._is_awaited(position, op):
            yield from wrapped(call, arguments, ")")
            return
        checks = list(self._size_checks(op))
        yield from wrapped(f"{self._targets(op, checks)} = {call}", arguments, ")")
        yield from checks

    def _size_checks(self, op: Op) -> Iterator[str]:
        """Lines that compare the sizes of results, where these depend on values."""
        if not is_sized_by_values(self._program, op):
            return
        for slot in slots_in(op.results):
            if self._program.slots[slot].layout == "strided":
                sizes = list(self._program.slots[slot].sizes)
                yield f"{self._helper('same_size')}({self._slots[slot]}, {sizes}, {self._where(op)})"

    def _is_awaited(self, position: int, op: Op) -> bool:
        """Whether anything in the text speaks of a result: else it needs no name."""
        written = self._call.written_slots(op)
        later = any(self._last[slot] > position for slot in slots_in(op.results) if slot not in written)
        return later or (op.guarded and _number(op) is not None)

    def _targets(self, op: Op, checks: list[str]) -> str:
        """What stands before the `=`. Numbers among the results are compared in `checks`, lines that follow."""
        parts = [self._target(op, value, checks) for value in op.results]
        if len(parts) > 1:
            return ", ".join(parts)
        return parts[0].removeprefix("(").removesuffix(")") if isinstance(op.results[0], list) else parts[0]

    def _target(self, op: Op, value: Value, checks: list[str]) -> str:
        if isinstance(value, list):
            parts = [self._target(op, part, checks) for part in value]
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        if isinstance(value, Ref):
            if self._program.slots[value.slot].role in ("made", "constant"):
                self._bound.add(value.slot)
            return self._slots[value.slot]
        if value is None:
            return "_"
        name = self._names.unique(f"{base_name(op)}_number")
        if op.guarded:
            checks.append(f"{self._helper('check')}({name}, {self._call.value(value)}, {self._where(op)})")
        return name

    def _own_op(self, op: Op) -> str:
        """Ops that torch does not have."""
        arguments = [self._call.value(value) for value in op.args]
        if op.name == SET_RNG:
            return f"{arguments[0]}.set_state({', '.join(arguments[1:])})"
        if op.name == SEEN and isinstance(op.args[0], Ref):
            dtype = DTYPE_NUMBERS[self._program.slots[op.args[0].slot].dtype]
            digest = self._call.value(op.results[0])
            return f"{self._helper('seen')}({arguments[0]}, {dtype}, {digest}, {self._where(op)})"
        objects = self._program.objects
        what = objects[op.args[0].index] if isinstance(op.args[0], Object) else f"region {arguments[0]}"
        return f"{self._helper('opaque')}({quoted(what)}, {self._where(op)})"

    def _asked(self, position: int, op: Op) -> str:
        """What Python asked a generator for."""
        generator = self._call.value(op.args[0])
        if op.name == GET_RNG:
            call = f"{generator}.get_state()"
            return f"{self._targets(op, [])} = {call}" if self._is_awaited(position, op) else call
        call = f"{generator}.{'seed' if op.name == NEW_SEED else 'initial_seed'}()"
        signed = f"({call} + 2**63) % 2**64 - 2**63"  # a tape has all integers with a sign
        return f"{self._helper('check')}({signed}, {self._call.value(op.results[0])}, {self._where(op)})"

    def _where(self, op: Op) -> str:
        return quoted(self._comments.where(op) or op.name)

    def _helper(self, name: str) -> str:
        self._helpers.add(name)
        return name

    def _ends(self) -> Iterator[str]:
        """What the function left behind, and what it returned."""
        yield ""
        for slot in slots_in(leaf.leaf for leaf in leaves(self._program.outputs)):
            yield from self._constant(slot)
        for binding in self._program.bindings:
            if binding.value >= 0:
                yield from self._constant(binding.value)
            yield self._binding(binding)
        yield f"return {self._tree(self._program.outputs)}"

    def _binding(self, binding: Binding) -> str:
        value = self._slots[binding.value] if binding.value >= 0 else "None"
        owner = self._owner(binding.owner)
        return f"{owner}.copy_({value})" if binding.kind == "copy" else f"{owner}.{word(binding.kind)} = {value}"

    def _owner(self, index: int) -> str:
        """The very object that was given: an op may have given its name to another tensor of the same memory."""
        for position, entry in enumerate(self._program.inputs):
            if entry.slot == index:
                return f"inputs[{position}]"
        slot = self._program.slots[index]
        return f"state[{quoted(slot.name)}]" if self._is_state(index, slot) else self._slots[index]

    def _tree(self, tree: Tree) -> str:
        if tree.kind == "leaf":
            return self._call.value(tree.leaf)
        parts = [self._tree(part) for part in tree.parts]
        if tree.kind == "dict":
            pairs = zip(tree.keys, parts, strict=True)
            return "{" + ", ".join(f"{quoted(key)}: {part}" for key, part in pairs) + "}"
        if tree.kind == "list":
            return f"[{', '.join(parts)}]"
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _drawn_from(program: Program) -> list[int]:
    """The generators that ops are given by name."""
    given = {value.index for op in program.ops for value in op.args if isinstance(value, Generator)}
    return sorted(given)


def _items(program: Program) -> list[int]:
    """The ops whose numbers are spoken of in formulas."""
    values = [value for op in program.ops for value in op.args] + [leaf.leaf for leaf in leaves(program.outputs)]
    flat = [part for value in values for part in (value if isinstance(value, list) else [value])]
    words = [part for value in flat if isinstance(value, Formula) for part in value.postfix]
    named = {part for part in words if isinstance(part, str)}
    return [
        position for position, op in enumerate(program.ops) if f"item:{position}" in named and _number(op) is not None
    ]


def _number(op: Op) -> Value:
    """The number that an op gave to Python, if it did."""
    numbers = [value for value in op.results if not isinstance(value, Ref | list) and value is not None]
    return numbers[0] if numbers else None
