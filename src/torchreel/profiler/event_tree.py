"""The calls of a cycle in the form of Kineto's results, as far as torch's own tools read them.

`torch.profiler._pattern_matcher` and `torch.profiler._utils.BasicEvaluation` read `experimental_event_tree()` and
`events()`. Both are made of Python objects over the calls of our own; a tool that asks for more than they have is told
so by an AttributeError that names it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

from torchreel._torch import profiler as torch_profiler
from torchreel._torch.profiler import EventType
from torchreel.profiler.columns import numbers
from torchreel.profiler.details import CallDetails
from torchreel.profiler.events import function_events
from torchreel.profiler.names import python_name

_DTYPES = {
    "unsigned char": torch.uint8,
    "signed char": torch.int8,
    "short int": torch.int16,
    "int": torch.int32,
    "long int": torch.int64,
    "c10::Half": torch.float16,
    "float": torch.float32,
    "double": torch.float64,
    "c10::complex<float>": torch.complex64,
    "c10::complex<double>": torch.complex128,
    "bool": torch.bool,
    "c10::BFloat16": torch.bfloat16,
}
# Ops that Python's operators and brackets call. For CPython that is no call of a C function, and torch's tree has none
# around them.
_OF_OPERATORS = frozenset(
    f"aten::{name}"
    for name in (
        *("select", "slice", "index", "index_put_", "lift_fresh", "unsqueeze", "alias", "fill_", "copy_", "item"),
        *("add", "sub", "mul", "div", "floor_divide", "remainder", "matmul", "neg", "bitwise_not", "is_nonzero"),
        *("add_", "sub_", "mul_", "div_", "floor_divide_", "remainder_", "eq", "ne", "lt", "le", "gt", "ge"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__"),
        *("__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"),
    )
)
# Correlation ids are unique over all profiles of the process.
_next_correlation_id = itertools.count(1)


class KinetoResults:
    """What torch.autograd.profiler.profile has as `kineto_results`."""

    def __init__(self, calls: pa.Table, details: CallDetails) -> None:
        self._calls = calls
        self._details = details

    def trace_start_ns(self) -> int:
        """The moment from which the times of events are counted."""
        return self._details.start_ns

    def events(self) -> list[KinetoEvent]:
        """Every call, without its parent and children."""
        return self._events

    def experimental_event_tree(self) -> list[ProfilerEvent]:
        """The calls that are within no other, each with those within it."""
        return self._tree

    @cached_property
    def _function_events(self) -> list[FunctionEvent]:
        return function_events(self._calls, self._details)

    @cached_property
    def _events(self) -> list[KinetoEvent]:
        starts = numbers(self._calls, "start_ns").tolist()
        durations = numbers(self._calls, "dur_ns").tolist()
        rows = zip(self._function_events, starts, durations, strict=True)
        return [KinetoEvent(event, start, duration, next(_next_correlation_id)) for event, start, duration in rows]

    @cached_property
    def _tree(self) -> list[ProfilerEvent]:
        parents = numbers(self._calls, "parent").tolist()
        kinds = self._calls["kind"].cast(pa.string()).to_pylist()
        stacks = numbers(self._calls, "stack").tolist()
        nodes = [
            ProfilerEvent(event, kind, self._details.stack(stack))
            for event, kind, stack in zip(self._events, kinds, stacks, strict=True)
        ]
        roots: list[ProfilerEvent] = []
        for node, parent in zip(nodes, parents, strict=True):
            outer = nodes[parent] if parent >= 0 else None
            if _by_name(node, outer):
                outer = _put(_builtin_call(node), outer, roots)
            _put(node, outer, roots)
        return roots


def _put(node: ProfilerEvent, outer: ProfilerEvent | None, roots: list[ProfilerEvent]) -> ProfilerEvent:
    node.parent = outer
    (roots if outer is None else outer.children).append(node)
    return node


def _by_name(node: ProfilerEvent, outer: ProfilerEvent | None) -> bool:
    """Whether Python called an op by a function of a name, as far as can be known from the op."""
    of_python = outer is None or outer.kind in ("python", "module", "range")
    return of_python and node.kind == "op" and bool(node.stack) and node.name not in _OF_OPERATORS


def _builtin_call(node: ProfilerEvent) -> ProfilerEvent:
    """The function written in C by which Python called an op: torch's tree has it around the op, and tools find the
    line of the call in it. All that is known of it is the op and its stack."""
    event = KinetoEvent(
        node.event.function_event, node.start_time_ns, node.duration_time_ns, next(_next_correlation_id)
    )
    call = ProfilerEvent(event, "builtin", node.stack)
    call.name = f"<built-in function around {node.name}>"
    return call


class KinetoEvent:
    """One call; torch has methods where one would expect attributes."""

    def __init__(self, event: FunctionEvent, start_ns: int, duration_ns: int, correlation_id: int) -> None:
        self.function_event = event
        self._start_ns = start_ns
        self._duration_ns = duration_ns
        self._correlation_id = correlation_id

    def name(self) -> str:
        return str(self.function_event.name)

    def overload_name(self) -> str:
        return str(self.function_event.overload_name)

    def activity_type(self) -> str | None:
        activity: str | None = self.function_event.activity_type
        return activity

    def correlation_id(self) -> int:
        return self._correlation_id

    def linked_correlation_id(self) -> int:
        return 0

    def device_type(self) -> DeviceType:
        return DeviceType.CPU

    def device_index(self) -> int:
        return int(self.function_event.device_index)

    def start_ns(self) -> int:
        return self._start_ns

    def end_ns(self) -> int:
        return self._start_ns + self._duration_ns

    def duration_ns(self) -> int:
        return self._duration_ns

    def start_thread_id(self) -> int:
        return int(self.function_event.thread)

    def sequence_nr(self) -> int:
        return int(self.function_event.sequence_nr)

    def fwd_thread_id(self) -> int:
        return int(self.function_event.fwd_thread)

    def scope(self) -> int:
        return int(self.function_event.scope)

    def shapes(self) -> list[Any]:
        return list(self.function_event.input_shapes)

    def stack(self) -> list[str]:
        return list(self.function_event.stack)

    def is_async(self) -> bool:
        return bool(self.function_event.is_async)

    def is_user_annotation(self) -> bool:
        return bool(self.function_event.is_user_annotation)

    def is_python_function(self) -> bool:
        return bool(self.function_event.is_python_function)

    def nbytes(self) -> int:
        return int(self.function_event.cpu_memory_usage)


class ProfilerEvent:
    """One call in the tree."""

    def __init__(self, event: KinetoEvent, kind: str, stack: list[str]) -> None:
        self.parent: ProfilerEvent | None = None
        self.children: list[ProfilerEvent] = []
        self.id = event.correlation_id()
        self.correlation_id = self.id
        self.name = event.name()
        self.overload_name = event.overload_name()
        self.start_time_ns = event.start_ns()
        self.end_time_ns = event.end_ns()
        self.duration_time_ns = event.duration_ns()
        self.start_tid = event.start_thread_id()
        self.kind = kind
        self.stack = stack
        self.event = event

    @property
    def tag(self) -> EventType:
        if self.kind == "builtin":
            return EventType.PyCCall
        if self.kind in ("python", "module"):
            return EventType.PyCall
        return EventType.Allocation if self.kind == "memory" else EventType.TorchOp

    @cached_property
    def extra_fields(self) -> Any:
        if self.tag == EventType.PyCCall:
            return PyCCallFields(_frame(python_name(self.stack[0])))
        if self.tag == EventType.PyCall:
            return PyCallFields(*_locations(self))
        if self.tag == EventType.Allocation:
            return AllocationFields(self.event.nbytes())
        return TorchOpFields(self.event.function_event)

    @property
    def typed(self) -> tuple[EventType, Any]:
        return self.tag, self.extra_fields

    def __repr__(self) -> str:
        return f"<{self.name}>"


@dataclass(frozen=True)
class TensorMetadata:
    """A tensor among the inputs of a call."""

    sizes: list[int]
    strides: list[int]
    dtype: torch.dtype | None
    layout: torch.layout = torch.strided


class TorchOpFields:
    """What torch has as _ExtraFields_TorchOp; it says to be one, because torch's tools ask for that."""

    def __init__(self, event: FunctionEvent) -> None:
        self.name = event.name
        self.sequence_number = event.sequence_nr
        self.scope = event.scope
        self.allow_tf32_cublas = bool(torch.backends.cuda.matmul.allow_tf32)
        columns = (event.input_dtypes, event.structured_input_shapes, event.structured_input_strides)
        self.inputs = [
            _input(dtype, sizes, strides, value)
            for dtype, sizes, strides, value in zip(*columns, event.concrete_inputs, strict=True)
        ]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return torch_profiler.OpFields


def _input(dtype: str, sizes: Any, strides: Any, value: Any) -> Any:
    if dtype in ("", "Scalar", "ScalarList"):
        return value
    if dtype == "TensorList":
        return [TensorMetadata(*both, dtype=None) for both in zip(sizes, strides, strict=True)]
    return TensorMetadata(sizes, strides, _DTYPES.get(dtype))


@dataclass(frozen=True)
class PyFrameState:
    """A line of Python source."""

    file_name: str
    line_number: int
    function_name: str


@dataclass
class PyCallFields:
    """What torch has as _ExtraFields_PyCall."""

    callsite: PyFrameState
    caller: PyFrameState
    module: None = field(default=None)
    optimizer: None = field(default=None)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return torch_profiler.PythonCallFields


@dataclass
class PyCCallFields:
    """What torch has as _ExtraFields_PyCCall."""

    caller: PyFrameState

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return torch_profiler.CCallFields


@dataclass
class AllocationFields:
    """What torch has as _ExtraFields_Allocation."""

    alloc_size: int

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return torch_profiler.AllocationFields


_NOWHERE = PyFrameState("", 0, "")


def _locations(node: ProfilerEvent) -> tuple[PyFrameState, PyFrameState]:
    """Where a Python call is defined, and the line that made it.

    That line is known from the stack of an op within the call. Where there is none, the caller's own first line stands
    for it.
    """
    own = _frame(node.name)
    frames = [_frame(python_name(entry)) for entry in _stack_within(node)]
    for inner, outer in itertools.pairwise(frames):
        if (inner.file_name, inner.function_name) == (own.file_name, own.function_name):
            return own, outer
    outer_call = node.parent
    while outer_call is not None and outer_call.tag != EventType.PyCall:
        outer_call = outer_call.parent
    return own, _frame(outer_call.name) if outer_call is not None else _NOWHERE


def _stack_within(node: ProfilerEvent) -> list[str]:
    """The stack of the first op within a call."""
    waiting = list(reversed(node.children))
    while waiting:
        child = waiting.pop()
        if child.stack:
            return child.stack
        waiting.extend(reversed(child.children))
    return []


def _frame(text: str) -> PyFrameState:
    """What torch writes as `path(line): function`."""
    path, _, rest = text.rpartition("(")
    line, _, function = rest.partition("): ")
    if not path or not line.isdigit():
        return PyFrameState(text, 0, text)
    return PyFrameState(path, int(line), function)
