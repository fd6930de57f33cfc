"""Ready-made events of another process or runtime, with their own times, as a part of a reel that is being recorded.

They become a process of the reel, `<process>-events-1`, whose calls are ranges: whatever reads a reel shows them. The
part is written at once and appears whole.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchreel.errors import OptionError, RecorderError
from torchreel.reel.tables import OPS, PROCESSES, THREADS
from torchreel.reel.write import write_process

_NEEDED = ("name", "start_ns", "end_ns")
_COLUMNS = (*_NEEDED, "thread", "category")
_EARLIEST = 10**18  # September 2001: what lies before was not counted in nanoseconds, or not from the epoch
_LATEST = 1 << 62


def add_events(directory: Path | None, events: Any, process: str | None = None, pid: int | None = None) -> int:
    """Write events beside the part of the process that records; returns how many. See Recorder.add_events."""
    if directory is None:
        raise RecorderError("A flight recorder has no reel that events could be added to: record without ring=...")
    rows = _rows(events)
    if not rows:
        return 0
    ops, threads = _tables(rows)
    hidden = _make(directory)
    try:
        write_process(hidden, {"ops": ops, "threads": threads, "processes": _process(rows, hidden, process, pid)})
        hidden.rename(hidden.with_name(hidden.name[1:]))
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return len(rows)


def parts_of(directory: Path) -> list[Path]:
    """What was added so far beside the part of the process that records."""
    return sorted(directory.parent.glob(f"{directory.name}-events-*"))


def _make(directory: Path) -> Path:
    """A new directory that no reader sees yet, under a name that nobody else has."""
    number = 1
    while True:
        name = f"{directory.name}-events-{number}"
        hidden = directory.with_name(f".{name}")
        try:
            hidden.mkdir()
        except FileExistsError:
            number += 1
            continue
        if not directory.with_name(name).exists():
            return hidden
        hidden.rmdir()
        number += 1


def _rows(events: Any) -> list[dict[str, Any]]:
    """The events as rows that make sense, in the order in which they began."""
    if isinstance(events, (pa.Table, pa.RecordBatch)):
        events = events.to_pylist()
    elif hasattr(events, "__arrow_c_stream__"):
        events = pa.table(events).to_pylist()
    if isinstance(events, (str, bytes, Mapping)) or not isinstance(events, Iterable):
        raise OptionError(
            f"Events are a table or a list of rows with {', '.join(_NEEDED)}, and not {type(events).__name__}."
        )
    rows = [_checked(number, row) for number, row in enumerate(events)]
    rows.sort(key=lambda row: (row["start_ns"], -row["end_ns"]))
    return rows


def _checked(number: int, row: Any) -> dict[str, Any]:
    where = f"Event {number}"
    if not isinstance(row, Mapping):
        raise OptionError(f"{where} is {type(row).__name__}: give a dict with {', '.join(_NEEDED)}.")
    unknown = [str(key) for key in row if key not in _COLUMNS]
    if unknown:
        raise OptionError(f"{where} has {unknown[0]!r}, which is not kept: an event has {', '.join(_COLUMNS)}.")
    missing = [key for key in _NEEDED if row.get(key) is None]
    if missing:
        raise OptionError(f"{where} has no {missing[0]}: it needs {', '.join(_NEEDED)}.")
    times = {key: _time(where, key, row[key]) for key in ("start_ns", "end_ns")}
    if times["end_ns"] < times["start_ns"]:
        raise OptionError(f"{where} ends at {times['end_ns']}, before it begins at {times['start_ns']}.")
    category = row.get("category")
    return {
        "name": _text(row["name"]),
        "thread": _text("" if row.get("thread") is None else row["thread"]),
        "category": None if category is None else _text(category),
        **times,
    }


def _time(where: str, key: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionError(f"{where} has {value!r} for {key}: give nanoseconds since the epoch, as an integer.")
    time = int(value)
    if not _EARLIEST <= time <= _LATEST:
        raise OptionError(
            f"{where} has {time} for {key}, which is no time of our days: "
            "give nanoseconds since the epoch, as time.time_ns() does."
        )
    return time


def _text(value: Any) -> str:
    return str(value).encode("utf-8", "backslashreplace").decode()


def _tables(rows: list[dict[str, Any]]) -> tuple[pa.Table, pa.Table]:
    threads: dict[str, int] = {}
    ops = []
    open_calls: dict[str, list[dict[str, Any]]] = {}
    for number, row in enumerate(rows):
        thread = row["thread"]
        op = {
            "id": number,
            "thread": threads.setdefault(thread, len(threads)),
            "name": row["name"],
            "overload": "",
            "kind": "range",
            "start_ns": row["start_ns"],
            "dur_ns": row["end_ns"] - row["start_ns"],
            "open": False,
            "backend": row["category"],
        }
        _nest(op, open_calls.setdefault(thread, []))
        ops.append(op)
    known = [{"id": id, "os_id": _number(name), "name": name or None} for name, id in threads.items()]
    return pa.Table.from_pylist(ops, schema=OPS.schema), pa.Table.from_pylist(known, schema=THREADS.schema)


def _nest(op: dict[str, Any], around: list[dict[str, Any]]) -> None:
    """Place a call among those that are open on its thread. One that outlasts the call around it is asynchronous."""
    end = op["start_ns"] + op["dur_ns"]
    while around and around[-1]["start_ns"] + around[-1]["dur_ns"] <= op["start_ns"]:
        around.pop()
    parent = around[-1] if around else None
    op["depth"] = len(around)
    op["parent"] = None if parent is None else parent["id"]
    op["async"] = parent is not None and end > parent["start_ns"] + parent["dur_ns"]
    op["self_ns"] = 0 if op["async"] else op["dur_ns"]
    if op["async"]:
        return
    if parent is not None:
        parent["self_ns"] -= op["dur_ns"]
    around.append(op)


def _number(thread: str) -> int | None:
    return int(thread) if thread.isascii() and thread.isdigit() and len(thread) < 18 else None


def _process(rows: list[dict[str, Any]], hidden: Path, process: str | None, pid: int | None) -> pa.Table:
    row = {
        "name": hidden.name[1:],
        "pid": os.getpid() if pid is None else pid,
        "parent_pid": os.getpid() if pid is not None else None,
        "host": socket.gethostname(),
        "command": _text(process) if process else "events",
        "clock": "given with the events",
        "start_ns": rows[0]["start_ns"],
        "end_ns": max(row["end_ns"] for row in rows),
        "complete": True,
        "lost_events": 0,
    }
    return pa.Table.from_pylist([row], schema=PROCESSES.schema)
