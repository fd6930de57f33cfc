"""The adapter of a session of ONNX Runtime: its own profile, each node linked to the line that it was exported from.

A session can be profiled only if that was asked for when it was made. While it is watched its calls are therefore run
by a second session, a twin of the same model, options and providers, which takes memory and the time to make it. The
first call of `run` or `run_with_ort_values` is made twice, once before it is measured, so that what is measured is a
warm session, as the user's own is. A profile that the user asked for is left alone; it lacks the calls in between. A
session that `load` made measures itself from its beginning, and needs no twin the first time. `run_async` is not seen.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torchreel.edge.formats.adapter import Adapter, BackendEvent, Calls, Deployed, Undo
from torchreel.edge.formats.onnx.events import Model, backend_events
from torchreel.edge.formats.onnx.graph import Graph, can_read, read_graph
from torchreel.edge.formats.onnx.links import Links
from torchreel.edge.formats.onnx.loading import load_measuring
from torchreel.edge.formats.onnx.locations import NodeLocations, is_noted
from torchreel.edge.formats.onnx.nesting import Call, spans_of_calls
from torchreel.edge.formats.onnx.profile import read_profile
from torchreel.edge.formats.onnx.session import Measurement, twin
from torchreel.errors import EdgeError, MissingPackageError

# Sessions that measure themselves, until that has been used up.
_MEASURING: WeakKeyDictionary[Any, Measurement] = WeakKeyDictionary()
# Those of the calls that may be made once more without anybody noticing: their results are new each time.
_REPEATABLE = ("run", "run_with_ort_values")
_CALLS = (*_REPEATABLE, "run_with_iobinding", "run_with_ortvaluevector")

_NO_PLACES = (
    "The model's file does not say which modules and source lines its nodes come from: "
    "export it with torch.onnx.export(..., dynamo=True)."
)
_NO_PACKAGE = (
    "The modules and source lines of an ONNX model's nodes are read by the package onnx, which is not installed: "
    "install it with `pip install onnx`."
)
_NOT_OPTIMISED = (
    "The graph that ONNX Runtime made of the model could not be had, because the model is large or cannot be written: "
    "nodes that were fused or put in may lack their modules, source lines and FLOPs."
)


def adapts(module: Any) -> bool:
    """Nobody has a session without having imported the package."""
    package = sys.modules.get("onnxruntime")
    return package is not None and isinstance(module, package.InferenceSession)


def load(path: Path) -> Deployed:
    """The model of a file, in a session that measures itself, on the CPU."""
    deployed, measurement = load_measuring(path)
    _MEASURING[deployed.module] = measurement
    return deployed


class OnnxRuntime(Adapter):
    """One session of ONNX Runtime."""

    format = "ONNX Runtime"

    def __init__(self, session: Any) -> None:
        self.name = _name(session)
        self._session = session
        self._measuring: Any = None
        self._measurement: Measurement | None = None
        self._profile: Path | None = None
        self._calls: list[Call] = []
        self._lock = threading.Lock()
        self._events: list[list[BackendEvent]] = []

    def check(self, locations: bool) -> None:
        """Raise EdgeError if locations are wanted and the model's file has none, or cannot be read."""
        if not locations:
            return
        if not can_read():
            raise MissingPackageError(_NO_PACKAGE)
        if not self._has_locations():
            raise EdgeError(_NO_PLACES)

    @property
    def runnable(self) -> Any:
        return self._session

    def watch(self, calls: Calls) -> Undo:
        """From now on each call of the session is told, and measured by ONNX Runtime itself."""
        self._start()
        original = {name: vars(self._session)[name] for name in _CALLS if name in vars(self._session)}
        for name in _CALLS:
            setattr(self._session, name, self._told(name, calls))

        def undo() -> None:
            for name in _CALLS:
                vars(self._session).pop(name, None)
            vars(self._session).update(original)
            self._stop()

        return undo

    def events(self) -> list[list[BackendEvent]]:
        """What ONNX Runtime measured, once the watch has ended: one list for each call."""
        if self._profile is not None and self._measurement is not None:
            model = self._model(self._measurement)
            spans, whole = read_profile(self._profile, self._measurement.origin_ns)
            if not whole:
                self.remark = "The profile of ONNX Runtime was full before the last call: profile fewer calls at once."
            found = spans_of_calls(spans, self._calls)
            self._events = [
                backend_events(one, call.thread, model) for one, call in zip(found, self._calls, strict=True)
            ]
            self._measurement.directory.cleanup()
            self._profile = self._measurement = None
        return self._events

    def _start(self) -> None:
        measurement = _MEASURING.pop(self._session, None)
        if measurement is not None:
            self._measuring, self._measurement = self._session, measurement
        else:
            self._measuring, self._measurement = twin(self._session)
            # A value that belongs to the session may be given to its twin: their memory is of the same kind.
            owner = "_validate_ortvalue_ownership"
            vars(self._measuring)[owner] = getattr(self._session, owner, None)
        self._calls, self._events, self._profile = [], [], None

    def _stop(self) -> None:
        measuring, self._measuring = self._measuring, None
        if measuring is None:
            return
        self._events = [[] for _ in self._calls]
        written = measuring.end_profiling()
        if written:
            self._profile = Path(written)
        else:
            self.remark = "ONNX Runtime wrote no profile: its profiling was ended while the session was watched."

    def _told(self, name: str, calls: Calls) -> Callable[..., Any]:
        assert self._measurement is not None
        clock = self._measurement.clock
        run = self._run(name)
        is_cold = self._measuring is not self._session and name in _REPEATABLE

        def told(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_cold
            if is_cold:
                is_cold = False
                # What is wrong with it is raised by the call itself.
                with contextlib.suppress(Exception):
                    run(*args, **kwargs)
            with self._lock:
                calls.enter()
                call = Call(threading.get_native_id(), clock())
                self._calls.append(call)
            try:
                return run(*args, **kwargs)
            finally:
                call.end_ns = clock()
                calls.leave()

        return told

    def _run(self, name: str) -> Callable[..., Any]:
        if name == "run_with_iobinding" and self._measuring is not self._session:
            return self._run_bound
        run: Callable[..., Any] = getattr(self._measuring, name)
        return run

    def _run_bound(self, iobinding: Any, run_options: Any = None) -> None:
        """A binding belongs to the session that made it, and ONNX Runtime's Python says so; its core does not mind."""
        if getattr(iobinding, "_session", self._session._sess) is not self._session._sess:
            raise ValueError("IOBinding must be used with the session that created it.")
        self._measuring._sess.run_with_iobinding(iobinding._iobinding, run_options)

    @functools.cached_property
    def _graph(self) -> Graph | None:
        """The graph of the model's file."""
        path = getattr(self._session, "_model_path", None)
        source = Path(path) if path else getattr(self._session, "_model_bytes", None)
        return None if source is None else read_graph(source)

    def _has_locations(self) -> bool:
        return self._graph is not None and any(map(is_noted, self._graph.nodes))

    def _model(self, measurement: Measurement) -> Model | None:
        if not self._has_locations():
            self.remark = _NO_PLACES if can_read() else _NO_PACKAGE
        if self._graph is None:
            return None
        optimised = measurement.optimised
        is_written = optimised is not None and optimised.is_file()
        executed = read_graph(optimised) if is_written and optimised is not None else None
        if executed is None:
            self.remark = self.remark or _NOT_OPTIMISED
        return Model(Links(self._graph, executed), NodeLocations(self._graph))


def _name(session: Any) -> str:
    path = getattr(session, "_model_path", None)
    return Path(path).stem if path else session.get_modelmeta().graph_name
