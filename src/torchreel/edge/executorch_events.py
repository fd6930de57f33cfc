"""One run of an ExecuTorch program as backend events: kernels, delegate calls, and the delegates' own ops in these."""

from __future__ import annotations

from collections.abc import Sequence

from torchreel.edge.adapter import BackendEvent
from torchreel.edge.delegate_links import link, place_of_all
from torchreel.edge.etdump import DELEGATE_CALL, OPERATOR_CALL, Event, Run
from torchreel.edge.etrecord import Node, RecordedMethod
from torchreel.edge.pte import Instruction, Method

_BACKENDS = {
    "XnnpackBackend": "XNNPACK",
    "CoreMLBackend": "Core ML",
    "QnnBackend": "QNN",
    "OpenvinoBackend": "OpenVINO",
}
_UNKNOWN_DELEGATE = "ExecuTorch delegate"


class RunEvents:
    """The events of the runs of one method."""

    def __init__(self, method: Method | None, recorded: RecordedMethod | None) -> None:
        self._instructions = {} if method is None else method.instructions
        self._recorded = recorded or RecordedMethod({}, {})

    def of(self, run: Run) -> list[BackendEvent]:
        """In the order in which they ran, a delegate call before what is within it."""
        found: list[BackendEvent] = []
        within: list[Event] = []
        for event in run.events:
            if event.name == OPERATOR_CALL:
                # The kernel alone is the op: what is around it are the runtime's own preparations.
                found += [self._kernel(one) for one in within] or [self._kernel(event)]
                within = []
            elif event.name == DELEGATE_CALL:
                found += self._delegate(event, within, len(found))
                within = []
            else:
                within.append(event)
        return found + [self._kernel(one) for one in within]

    def _kernel(self, event: Event) -> BackendEvent:
        instruction = self._instructions.get(event.instruction, Instruction())
        nodes = self._recorded.of(event.instruction)
        handles = self._recorded.handles.get(event.instruction, ())
        name = event.name or event.delegate_id or OPERATOR_CALL
        if name == OPERATOR_CALL and instruction.operator is not None:
            name = instruction.operator
        return BackendEvent(
            name,
            "ExecuTorch",
            event.start_ns,
            event.end_ns,
            debug_handle=handles[0] if len(handles) == 1 else None,
            place=nodes[0].place if nodes else None,
            inputs=None if instruction.call is None else instruction.call.inputs,
            flops=None if instruction.call is None else instruction.call.flops(),
        )

    def _delegate(self, event: Event, within: Sequence[Event], index: int) -> list[BackendEvent]:
        instruction = self._instructions.get(event.instruction, Instruction())
        backend = _backend(instruction.delegate)
        nodes = self._recorded.of(event.instruction)
        whole = BackendEvent(DELEGATE_CALL, backend, event.start_ns, event.end_ns, place=place_of_all(nodes))
        names = [one.delegate_id or one.name or "" for one in within]
        return [
            whole,
            *(
                _delegated(one, name, backend, index, node)
                for one, name, node in zip(within, names, link(names, nodes), strict=True)
            ),
        ]


def _delegated(event: Event, name: str, backend: str, parent: int, node: Node | None) -> BackendEvent:
    call = None if node is None else node.call
    return BackendEvent(
        name,
        backend,
        event.start_ns,
        event.end_ns,
        parent=parent,
        debug_handle=None if node is None else node.handle,
        place=None if node is None else node.place,
        inputs=None if call is None else call.inputs,
        flops=None if call is None else call.flops(),
    )


def _backend(delegate: str | None) -> str:
    if delegate is None:
        return _UNKNOWN_DELEGATE
    return _BACKENDS.get(delegate, delegate.removesuffix("Backend") or _UNKNOWN_DELEGATE)
