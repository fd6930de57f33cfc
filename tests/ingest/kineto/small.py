"""Small traces, written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torchreel.ingest import import_traces
from torchreel.ingest.kineto.trace import Trace
from torchreel.reel import Reel, load

PID = 500
Event = dict[str, Any]


def slice_of(category: str | None, name: str, ts: Any, dur: Any, pid: Any = PID, tid: Any = PID, **args: Any) -> Event:
    event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return {**event, "args": {key.replace("_", " "): args[key] for key in args}}


def op(name: str, ts: Any, dur: Any, tid: int = PID, **args: Any) -> Event:
    return slice_of("cpu_op", name, ts, dur, tid=tid, **args)


def launch(ts: Any, dur: Any, correlation: int, tid: int = PID, name: str = "cudaLaunchKernel", **args: Any) -> Event:
    return slice_of("cuda_runtime", name, ts, dur, tid=tid, correlation=correlation, **args)


def kernel(name: str, ts: Any, dur: Any, correlation: int, stream: int = 7, device: int = 0, **args: Any) -> Event:
    more = {"device": device, "stream": stream, "correlation": correlation, **args}
    return slice_of("kernel", name, ts, dur, pid=device, tid=stream, **more)


def python(name: str, ts: Any, dur: Any, id: int, parent: int | None, tid: int = PID) -> Event:
    return slice_of("python_function", name, ts, dur, tid=tid, Python_id=id, Python_parent_id=parent)


def arrow(phase: str, id: int, ts: Any, tid: int = PID, category: str = "fwdbwd") -> Event:
    return {"ph": phase, "id": id, "pid": PID, "tid": tid, "ts": ts, "cat": category, "name": category}


def instant(name: str, ts: Any, tid: int = PID, **args: Any) -> Event:
    named = {key.replace("_", " "): value for key, value in args.items()}
    return {"ph": "i", "s": "t", "name": name, "pid": PID, "tid": tid, "ts": ts, "args": named}


def meta(name: str, value: Any, pid: Any = PID, tid: Any = 0) -> Event:
    key = {"process_labels": "labels"}.get(name, "name")
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": {key: value}}


def read(directory: Path, *events: Event, name: str = "trace.json", **top: Any) -> tuple[Reel, Trace]:
    """The reel of these events, and what the import says of them."""
    path = directory / name
    path.write_text(json.dumps({"schemaVersion": 1, **top, "traceEvents": events}))
    return read_text(path)


def read_text(path: Path) -> tuple[Reel, Trace]:
    output = path.with_name("small.reel")
    (trace,) = import_traces([path], output, replace=True)
    return load(output), trace


def reel_of(directory: Path, *events: Event, **top: Any) -> Reel:
    return read(directory, *events, **top)[0]


def rows(reel: Reel, query: str) -> list[tuple[Any, ...]]:
    """The answer to a statement of SQL."""
    return list(zip(*(column.to_pylist() for column in reel.sql(query).columns), strict=True))
