"""A session of ONNX Runtime that measures itself, and where it writes what it measured.

A profile can be asked for when a session is made, and at no other time. So a session is made for it: of the same model
and options as the user's, or, from the command line, the only one.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchreel.errors import EdgeError, MissingPackageError

# As severe as what ends the process: all else that goes wrong is raised, and need not be written to stderr too.
_FATAL = 4
# The graph that a session made of a model is had by letting it write a model, weights and all: not for large ones.
_LARGEST_WRITTEN = 1 << 30
# Where in its own source ONNX Runtime found the error.
_SOURCE = re.compile(r"(Error: )?\S+\.(cc|h):\d+ \S+ ")


@dataclass(frozen=True)
class Measurement:
    """Where a session writes its profile, and the clock of its times. Nothing of it outlives this object."""

    directory: tempfile.TemporaryDirectory[str]
    optimised: Path | None
    """The model as the session runs it, if it was written."""
    origin_ns: int
    clock: Callable[[], int]


def runtime() -> Any:
    """The package onnxruntime."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingPackageError(
            "An ONNX model is run by the package onnxruntime, which is not installed: "
            "install it with `pip install onnxruntime`."
        )
    return importlib.import_module("onnxruntime")


def measuring_session(
    source: str | bytes, options: Any, providers: Sequence[tuple[str, dict[str, str]]] | None
) -> tuple[Any, Measurement]:
    """A new session that profiles itself into a directory of its own."""
    directory = tempfile.TemporaryDirectory(prefix="torchreel-onnx-", ignore_cleanup_errors=True)
    optimised = Path(directory.name) / "optimised.onnx" if _size(source) <= _LARGEST_WRITTEN else None
    try:
        session = _session(source, options, providers, Path(directory.name), optimised)
    except Exception:
        if optimised is None:
            raise
        # Writing the optimised model may fail where the session itself would not: no room, a node that cannot be saved.
        optimised = None
        session = _session(source, options, providers, Path(directory.name), None)
    origin = session.get_profiling_start_time_ns()
    return session, Measurement(directory, optimised, origin, _clock(origin))


def _session(
    source: str | bytes,
    options: Any,
    providers: Sequence[tuple[str, dict[str, str]]] | None,
    directory: Path,
    optimised: Path | None,
) -> Any:
    changes = {
        "enable_profiling": True,
        "profile_file_prefix": str(directory / "profile"),
        "optimized_model_filepath": "" if optimised is None else str(optimised),
        "log_severity_level": _FATAL,
    }
    with _changed(options, changes):
        return runtime().InferenceSession(source, options, providers=providers, enable_fallback=0)


@contextlib.contextmanager
def _changed(options: Any, changes: dict[str, Any]) -> Iterator[None]:
    """Options cannot be copied, so the user's own are changed for the moment in which a session reads them."""
    before = {name: getattr(options, name) for name in changes}
    for name, value in changes.items():
        setattr(options, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(options, name, value)


def _size(source: str | bytes) -> int:
    """The size of the model, with that of the weights beside it under the same name."""
    if isinstance(source, bytes):
        return len(source)
    path = Path(source)
    files = [path, path.with_name(path.name + ".data"), path.with_name(path.name + "_data")]
    return sum(file.stat().st_size for file in files if file.is_file())


def _clock(origin_ns: int) -> Callable[[], int]:
    """The clock of a profile's origin. It depends on the system."""
    candidates = (time.time_ns, time.monotonic_ns)
    return min(candidates, key=lambda clock: abs(clock() - origin_ns))


def twin(session: Any) -> tuple[Any, Measurement]:
    """A session of the same model, options and providers, that measures itself."""
    source = getattr(session, "_model_path", None) or getattr(session, "_model_bytes", None)
    if source is None:
        raise EdgeError(
            "This session of ONNX Runtime does not say which model it was made of, so it cannot be profiled: "
            "make it with onnxruntime.InferenceSession(path)."
        )
    options = getattr(session, "_sess_options_initial", None)
    given = session.get_provider_options()
    providers: list[tuple[str, dict[str, str]]] | None = [
        (name, given.get(name, {})) for name in session.get_providers()
    ]
    if options is None:
        options = runtime().SessionOptions()
    elif getattr(options, "has_providers", bool)():
        providers = None
    try:
        return measuring_session(source, options, providers)
    except Exception as error:
        raise EdgeError(
            "This session of ONNX Runtime cannot be profiled, because a second one, which measures itself, could not "
            f"be made of its model: {sentence(error)} Keep the model where the session was made from."
        ) from error


def sentence(error: Exception) -> str:
    """What ONNX Runtime says, in one line, without its numbers and names of errors, ending in a full stop."""
    text = _SOURCE.sub("", " ".join(str(error).split()))
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    return text if text.endswith(".") else text + "."
