"""One run of an ExecuTorch program as backend events: kernels, delegate calls, and the delegates' own ops in these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchreel.edge.formats.adapter import BackendEvent, Location, TensorType
from torchreel.edge.formats.executorch.delegate_links import DelegateCall, link, location_of_all
from torchreel.edge.formats.executorch.etdump import DELEGATE_CALL, OPERATOR_CALL, Event, Run
from torchreel.edge.formats.executorch.etrecord import Node, RecordedMethod
from torchreel.edge.formats.executorch.op_call import OpCall
from torchreel.edge.formats.executorch.pte import Instruction, Method

_BACKENDS = {
    "XnnpackBackend": "XNNPACK",
    "CoreMLBackend": "Core ML",
    "QnnBackend": "QNN",
    "OpenvinoBackend": "OpenVINO",
}
_UNKNOWN_DELEGATE = "ExecuTorch delegate"


@dataclass(frozen=True)
class _Known:
    """What is known of an op besides its times: the same in each run."""

    debug_handle: int | None = None
    location: Location | None = None
    inputs: tuple[TensorType, ...] | None = None
    flops: int | None = None


@dataclass(frozen=True)
class _Step:
    """An operator call or a delegate call, and the events within it."""

    event: Event
    within: tuple[Event, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.delegate_id or one.name or "" for one in self.within)


class RunEvents:
    """The events of the runs of one method."""

    def __init__(self, method: Method | None, recorded: RecordedMethod | None) -> None:
        self._instructions = {} if method is None else method.instructions
        self._recorded = recorded or RecordedMethod({}, {})
        self._kernels: dict[int, _Known] = {}
        self._delegates: dict[tuple[tuple[int, tuple[str, ...]], ...], list[list[_Known]]] = {}

    def of(self, run: Run) -> list[BackendEvent]:
        """In the order in which they ran, a delegate's call before the events inside of it."""
        steps = list(_steps(run))
        known = iter(self._known_of_delegates([step for step in steps if step.event.name == DELEGATE_CALL]))
        found: list[BackendEvent] = []
        for step in steps:
            if step.event.name == DELEGATE_CALL:
                found += self._delegate(step, next(known), len(found))
            else:
                # The kernel alone is the op: what is around it are the runtime's own preparations.
                found += [self._kernel(event) for event in step.within or (step.event,)]
        return found

    def _kernel(self, event: Event) -> BackendEvent:
        name = event.name or event.delegate_id or OPERATOR_CALL
        if name == OPERATOR_CALL:
            name = self._instruction(event).operator or name
        if event.instruction not in self._kernels:
            self._kernels[event.instruction] = self._known_of_kernel(event)
        return _backend_event(event, name, "ExecuTorch", None, self._kernels[event.instruction])

    def _known_of_kernel(self, event: Event) -> _Known:
        nodes = self._recorded.of(event.instruction)
        handles = self._recorded.handles.get(event.instruction, ())
        location = nodes[0].location if nodes else None
        return _known(handles[0] if len(handles) == 1 else None, location, self._instruction(event).call)

    def _delegate(self, step: _Step, known: Sequence[_Known], index: int) -> list[BackendEvent]:
        backend = _backend(self._instruction(step.event).delegate)
        whole = _backend_event(step.event, DELEGATE_CALL, backend, None, known[0])
        within = zip(step.within, step.names, known[1:], strict=True)
        return [whole, *(_backend_event(event, name, backend, index, one) for event, name, one in within)]

    def _known_of_delegates(self, steps: Sequence[_Step]) -> list[list[_Known]]:
        """What is known of each call of a delegate and of its ops. Equal runs share it."""
        key = tuple((step.event.instruction, step.names) for step in steps)
        if key not in self._delegates:
            calls = [DelegateCall(names, tuple(self._recorded.of(instruction))) for instruction, names in key]
            self._delegates[key] = [_known_of_call(call, nodes) for call, nodes in zip(calls, link(calls), strict=True)]
        return self._delegates[key]

    def _instruction(self, event: Event) -> Instruction:
        return self._instructions.get(event.instruction, Instruction())


def _steps(run: Run) -> Iterator[_Step]:
    """Events come when they end: what is within a call before the call itself."""
    within: list[Event] = []
    for event in run.events:
        if event.name in (OPERATOR_CALL, DELEGATE_CALL):
            yield _Step(event, tuple(within))
            within = []
        else:
            within.append(event)
    yield from (_Step(event, ()) for event in within)


def _known_of_call(call: DelegateCall, nodes: Sequence[Node | None]) -> list[_Known]:
    """An op that is not known stands where all of them do."""
    whole = _Known(location=location_of_all(call.nodes))
    return [whole, *(whole if node is None else _known(node.handle, node.location, node.call) for node in nodes)]


def _known(handle: int | None, location: Location | None, call: OpCall | None) -> _Known:
    if call is None:
        return _Known(handle, location)
    return _Known(handle, location, call.inputs, call.flops())


def _backend_event(event: Event, name: str, backend: str, parent: int | None, known: _Known) -> BackendEvent:
    return BackendEvent(
        name,
        backend,
        event.start_ns,
        event.end_ns,
        parent=parent,
        debug_handle=known.debug_handle,
        location=known.location,
        inputs=known.inputs,
        flops=known.flops,
    )


def _backend(delegate: str | None) -> str:
    if delegate is None:
        return _UNKNOWN_DELEGATE
    return _BACKENDS.get(delegate, delegate.removesuffix("Backend") or _UNKNOWN_DELEGATE)
