"""What ExecuTorch's runtime measured: an ETDump, the flatbuffer that it writes, as runs and their events.

A run is one execution of a method. Its events come in the order in which they ended: a kernel before the operator
call around it, a delegate's own ops before the delegate call.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchreel.edge.formats.executorch.flatbuffer import Buffer, FlatbufferError, Table
from torchreel.errors import EdgeError

EXECUTE = "Method::execute"
OPERATOR_CALL = "OPERATOR_CALL"
DELEGATE_CALL = "DELEGATE_CALL"

# An ETDump is written with its size in front.
_START = 4


@dataclass(frozen=True)
class Event:
    """One thing that took time."""

    name: str | None
    """None for the events of a delegate, which have a delegate_id instead."""
    instruction: int
    """Its number in the method, or -1."""
    delegate_id: str | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Run:
    """One execution of a method."""

    events: tuple[Event, ...]
    start_ns: int
    end_ns: int


def read_runs(data: bytes) -> list[Run]:
    """The executions of an ETDump, in their order. What is measured of loading is left out."""
    try:
        root = Buffer(data).root(b"ED00", _START)
        found = [[_event(one) for one in _profiled(run)] for run in root.tables(1)]
    except FlatbufferError as error:
        raise EdgeError(f"ExecuTorch's measurements cannot be read: {error}.") from error
    return [run for events in found if (run := _run(events)) is not None]


def _profiled(run: Table) -> list[Table]:
    entries = (event.table(0) for event in run.tables(3))
    return [entry for entry in entries if entry is not None]


def _event(table: Table) -> Event:
    number = table.integer(3, "i", -1)
    return Event(
        name=table.text(0),
        instruction=table.integer(2, "i", -1),
        delegate_id=table.text(4) or (str(number) if number >= 0 else None),
        start_ns=table.integer(6, "Q"),
        end_ns=table.integer(7, "Q"),
    )


def _run(events: list[Event]) -> Run | None:
    """None for what was not the execution of a method."""
    whole = next((event for event in events if event.name == EXECUTE), None)
    if whole is None:
        return None
    return Run(tuple(event for event in events if event is not whole), whole.start_ns, whole.end_ns)
