"""A program run once more under torch's functionalization, which turns every write into a new tensor.

It runs on copies of what the tape began with, so nothing of the user's changes, and every number that left for Python
and every size comes out as it was recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torchreel import _tape
from torchreel._torch import dispatch, functionalization
from torchreel.errors import TraceError, first_line
from torchreel.program import model
from torchreel.program.model import Op, Program, Ref, Value
from torchreel.program.query.last_uses import last_uses
from torchreel.program.query.source_frames import source_line
from torchreel.program.schema import arguments
from torchreel.tape.capture.results.effects import slots_of
from torchreel.tape.replay.stored import StoredTensors
from torchreel.tape.tape import Tape

# Ops that write to their arguments although their schemas do not say so -> the same with schemas that do.
_SAYING_SO = {"aten::native_batch_norm": "aten::_native_batch_norm_legit"}
# Ops that functionalization should know and fails at: they have lists that may be empty, or no kernel for shapes alone.
_BY_HAND = "aten::_fused_"


class FunctionalRun:
    """Every slot's tensor, wrapped, from the beginning of a tape to its end."""

    def __init__(self, tape: Tape) -> None:
        self.program = tape.program
        self.copies = _copies(tape)  # of each slot that no op made
        self.wholes = _wholes(self.program, self.copies)  # of storages that are written through several slots
        self._values: dict[int, torch.Tensor] = {}
        self._generators = [_generator(record) for record in self.program.generators]
        self.left = slots_of(tape.effects)  # slots of what is left in Python
        self._last = last_uses(self.program)
        self._last.update(dict.fromkeys(self.left, len(self.program.ops)))

    def begin(self) -> None:
        """Wrap what no op made."""
        wholes = {storage: _wrapped(whole) for storage, whole in self.wholes.items()}
        for slot, copy in self.copies.items():
            record = self.program.slots[slot]
            if record.is_number:
                self._values[slot] = copy
            elif record.storage in wholes:
                whole = wholes[record.storage]
                if copy.dtype != whole.dtype:
                    whole = torch.ops.aten.view.dtype(whole, copy.dtype)
                self._values[slot] = torch.ops.aten.as_strided(whole, record.sizes, record.strides, record.offset)
            else:
                self._values[slot] = _wrapped(copy)
        self._given = dict(self._values)
        self._wholes = wholes

    def step(self, index: int) -> None:
        """Run one op of the program."""
        op = self.program.ops[index]
        try:
            self._take(op.results, self._call(op))
        except TraceError:
            raise
        except Exception as error:
            raise self._refusal(index, first_line(error)) from None
        for slot in {*slots_in(op.args), *slots_in(op.results)}:
            if self._last[slot] == index:
                self._values.pop(slot, None)

    def now(self, slot: int) -> torch.Tensor:
        """What a slot holds, unwrapped."""
        return _unwrapped(self._values[slot])

    def given_now(self, slot: int) -> torch.Tensor:
        """What a slot that no op made holds, unwrapped."""
        return _unwrapped(self._given[slot])

    def whole_now(self, storage: int) -> torch.Tensor:
        return _unwrapped(self._wholes[storage])

    def _call(self, op: Op) -> Any:
        base, _, overload = op.name.partition(".")
        if _writes_unsaid(op):
            base = _SAYING_SO[base]
        if base.startswith(_BY_HAND) and base.endswith("_"):
            return self._call_by_hand(op, base.removesuffix("_"), overload)
        if self._draws_in_another_order(op):
            return self._draw(op)
        if base == "aten::as_strided" and isinstance(op.args[0], Ref):
            whole = self._wholes.get(self.program.slots[op.args[0].slot].storage)
            if whole is not None and whole.dtype == self._values[op.args[0].slot].dtype:
                # It counts from the beginning of the storage, and functionalization knows no view of a view by it.
                return torch.ops.aten.as_strided(whole, *op.args[1:])
        return self._call_named(op, base, overload)

    def _call_by_hand(self, op: Op, base: str, overload: str) -> None:
        """The op without mutation gives new tensors for what it would have written, in the order of its arguments."""
        written = [
            value
            for argument, value in zip(arguments(self.program.schemas[op.name]), op.args, strict=True)
            if argument.written
        ]
        for olds, news in zip(written, self._call_named(op, base, overload), strict=True):
            for old, new in zip(slots_in([olds]), news, strict=True):
                functionalization.replace(self._values[old], _unwrapped(new))

    def _draws_in_another_order(self, op: Op) -> bool:
        """Random numbers are drawn in the order of memory, and the op without mutation may give another layout."""
        first = arguments(self.program.schemas[op.name])[:1]
        if not first or not first[0].written or not isinstance(op.args[0], Ref):
            return False
        base, _, overload = op.name.partition(".")
        space, _, name = base.partition("::")
        function = getattr(getattr(getattr(torch.ops, space), name), overload or "default")
        return torch.Tag.nondeterministic_seeded in function.tags and not self._values[op.args[0].slot].is_contiguous()

    def _draw(self, op: Op) -> torch.Tensor:
        """Into a new tensor of the same layout: the one write that is left, and nobody has seen what it writes to."""
        assert isinstance(op.args[0], Ref)
        target = self._values[op.args[0].slot]
        before = _unwrapped(target)
        with dispatch.exclude_keys(dispatch.DispatchKeySet(dispatch.DispatchKey.Functionalize)):
            fresh = torch.ops.aten.empty_strided(before.shape, before.stride(), dtype=before.dtype)
            wrapped, self._values[op.args[0].slot] = target, fresh
            try:
                self._call_named(op, *op.name.partition(".")[::2])
            finally:
                self._values[op.args[0].slot] = wrapped
        functionalization.replace(target, fresh)
        return target

    def _call_named(self, op: Op, base: str, overload: str) -> Any:
        space, _, name = base.partition("::")
        function = getattr(getattr(getattr(torch.ops, space), name), overload or "default")
        placed, named = [], {}
        for argument, value in zip(dispatch.schema_of(function).arguments, op.args, strict=True):
            given = self._value(op, value, isinstance(argument.type, torch.TensorType))
            if argument.kwarg_only:
                named[argument.name] = given
            else:
                placed.append(given)
        return function(*placed, **named)

    def _value(self, op: Op, value: Value, is_tensor: bool) -> Any:
        match value:
            case model.Ref(slot):
                return self._values[slot]
            case list():
                return [self._value(op, part, is_tensor) for part in value]
            case model.Complex(real, imag):
                return complex(real, imag)
            case model.Device(name):
                return torch.device(name)
            case model.Named(_, name):
                return getattr(torch, name)
            case model.Generator(index):
                return self._generators[index]
            case model.Formula(_, number):
                return _tape.wrapped_number(number) if is_tensor else number
            case model.Object() | model.StorageOf():
                raise RuntimeError("it takes a whole storage, or a value that is neither tensor nor plain data")
        return value

    def _take(self, results: list[Value], gave: Any) -> None:
        values = gave if len(results) > 1 else [gave]
        for result, value in zip(results, values or [], strict=False):
            if isinstance(result, Ref):
                self._values[result.slot] = value
            elif isinstance(result, list):
                self._take_list(result, value)

    def _take_list(self, results: list[Any], values: Any) -> None:
        for result, value in zip(results, values, strict=False):
            if isinstance(result, Ref):
                self._values[result.slot] = value

    def _refusal(self, index: int, reason: str) -> TraceError:
        op = self.program.ops[index]
        line = source_line(self.program, op)
        return TraceError(
            f"{op.name} (op {index}{f', {line}' if line else ''}) cannot be written without mutation: "
            f"{reason.rstrip('.')}. Trace it without outplace=True."
        )


@contextlib.contextmanager
def functionalized() -> Iterator[None]:
    """Calls of torch.ops go straight to functionalization; random numbers that are drawn are given back at the end."""
    with contextlib.ExitStack() as switches:
        switches.enter_context(torch.random.fork_rng(devices=[]))
        switches.enter_context(torch.no_grad())
        switches.enter_context(dispatch.disable_autocast())
        switches.enter_context(dispatch.below_autograd())
        functionalization.enable(reapply_views=True)
        switches.callback(functionalization.disable)
        yield


def written_storages(program: Program) -> set[int]:
    """The storages that ops write to."""
    written: set[int] = set()
    for op in program.ops:
        if _writes_unsaid(op):
            values = op.args[3:5]
        else:
            schema = arguments(program.schemas.get(op.name, ""))
            values = [value for argument, value in zip(schema, op.args, strict=False) if argument.written]
        written.update(program.slots[slot].storage for slot in slots_in(values))
    return written


def _writes_unsaid(op: Op) -> bool:
    return op.name in _SAYING_SO and op.args[3] is not None and op.args[5] is True


def _copies(tape: Tape) -> dict[int, torch.Tensor]:
    program = tape.program
    began = {storage: memoryview(content.numpy()) for storage, content in tape.start.items()}
    stored = StoredTensors(program, began)
    copies: dict[int, torch.Tensor] = {}
    for slot, tensor in tape.tensors.items():
        if program.slots[slot].is_number:
            copies[slot] = tensor
            continue
        copy = stored.tensor(slot)
        copies[slot] = (tensor.detach().clone() if copy is None else copy).detach()
    return copies


def _wholes(program: Program, copies: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """One tensor for each storage that several slots share and ops write: the slots become views of it."""
    written = written_storages(program)
    reached_by_offset = {
        program.slots[op.args[0].slot].storage
        for op in program.ops
        if op.name.startswith("aten::as_strided") and isinstance(op.args[0], Ref)
    }
    groups: dict[int, list[int]] = {}
    for slot in copies:
        groups.setdefault(program.slots[slot].storage, []).append(slot)
    wholes = {}
    for storage, slots in groups.items():
        first = copies[slots[0]]
        if storage not in written or first.layout != torch.strided:
            continue
        if len(slots) > 1 or (storage in reached_by_offset and not _is_whole(first)):
            _check_state_only(program, slots)
            wholes[storage] = whole_storage(first)
    return wholes


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """All of the storage under a tensor, as one row."""
    storage = tensor.detach().untyped_storage()
    return torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (storage.nbytes() // tensor.element_size(),))


def _is_whole(tensor: torch.Tensor) -> bool:
    all_bytes = int(tensor.untyped_storage().nbytes())
    return bool(tensor.storage_offset() == 0 and tensor.is_contiguous() and tensor.nbytes == all_bytes)


def _check_state_only(program: Program, slots: list[int]) -> None:
    """The whole of an input's storage is not given at a replay: it may lie elsewhere in another one then."""
    given = {each.slot for each in program.inputs}
    if not given & set(slots):
        return
    first, last = program.slots[slots[0]].name, program.slots[slots[-1]].name
    other = f"as {last}" if len(slots) > 1 else "by its place in memory, with as_strided()"
    raise TraceError(
        f"{first} is an input whose memory the function also reaches {other}, and writes to: that cannot be written "
        "without mutation. Give it a clone(), or trace it without outplace=True."
    )


def _generator(record: model.RandomState) -> torch.Generator:
    if record.is_default:
        return torch.default_generator
    generator = torch.Generator(record.device)
    generator.set_state(torch.frombuffer(bytearray(record.state), dtype=torch.uint8))
    return generator


def _wrapped(tensor: torch.Tensor) -> torch.Tensor:
    return functionalization.wrap(tensor) if tensor.layout == torch.strided else tensor


def _unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    return functionalization.unwrap(tensor) if functionalization.is_wrapped(tensor) else tensor


def slots_in(values: list[Value]) -> Iterator[int]:
    """The slots among arguments or results."""
    for value in values:
        if isinstance(value, Ref | model.StorageOf):
            yield value.slot
        elif isinstance(value, list):
            yield from slots_in(value)  # type: ignore[arg-type]
