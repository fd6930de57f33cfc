"""A file is tried: loaded, and run on the inputs that it will run on, where nothing of ours can be hurt by it."""

from __future__ import annotations

import atexit
import builtins
import hashlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from torchreel import errors
from torchreel.edge.formats.adapter import Deployed
from torchreel.edge.trial.archive import check_archive
from torchreel.edge.trial.child import Child, DiedError, TooLongError
from torchreel.edge.trial.kinds import kind_of, namespaces
from torchreel.errors import EdgeError

_LOAD_SECONDS = 120
_RUN_SECONDS = 120
_BYTES_PER_SECOND = 10_000_000
# Their whole content is in one file, so that its digest says whether it is the one that was tried.
_SINGLE_FILES = (".pt", ".pth", ".ts", ".ptl", ".pt2")
_MEANINGS = {
    signal.SIGSEGV: "it touched memory that it has not",
    signal.SIGBUS: "it touched memory that is not there",
    signal.SIGABRT: "it gave up by itself",
    signal.SIGFPE: "it divided by zero",
    signal.SIGILL: "it has instructions that this processor lacks",
    signal.SIGKILL: "somebody ended it, perhaps because memory ran out",
}
_REMEDY = (
    "It is damaged, or was written by another release: copy it again, or save it again. check=False (--no-check) loads "
    "it all the same, and may end this process."
)

_lock = threading.Lock()
_child: Child | None = None
_tried: dict[str, list[str]] = {}
"""By digest, files that were loaded well, with the kinds of inputs that they ran on."""


def _forget() -> None:
    """In a fork: the process is its parent's."""
    global _lock, _child
    _lock, _child = threading.Lock(), None


def _close() -> None:
    global _child
    child, _child = _child, None
    if child is not None:
        child.close()


os.register_at_fork(after_in_child=_forget)
atexit.register(_close)


def try_file(path: Path) -> list[str]:
    """Load the file in a process of its own, and give the kinds of inputs that it ran on; EdgeError if that fails."""
    check_archive(path)
    digest = _digest(path)
    if digest is not None and digest in _tried:
        return _tried[digest]
    seconds = _LOAD_SECONDS + path.stat().st_size // _BYTES_PER_SECOND
    answer = _ask(path, {"load": str(path.absolute())}, seconds, "loads")
    if "error" in answer:
        _raise(answer)
        return []
    if digest is not None:
        _tried[digest] = answer["tried"]
    tried: list[str] = answer["tried"]
    return tried


def tried_before_it_runs(path: Path, deployed: Deployed, tried: Sequence[str]) -> Deployed:
    """The model, each kind of inputs of which is first run in the process of its own."""
    known = set(tried)

    def run(tensors: Sequence[Any]) -> Any:
        if kind_of(tensors) not in known:
            _try_run(path, tensors)
            known.add(kind_of(tensors))
        return deployed.run(tensors)

    return replace(deployed, run=run)


def _try_run(path: Path, tensors: Sequence[Any]) -> None:
    with tempfile.NamedTemporaryFile(prefix="torchreel-trial-", suffix=".tensors") as file:
        torch.save([tensor.detach().cpu() for tensor in tensors], file)
        file.flush()
        answer = _ask(path, {"run": str(path.absolute()), "tensors": file.name}, _RUN_SECONDS, "runs")
    if "error" in answer:
        _raise(answer)


def _ask(path: Path, request: dict[str, Any], seconds: float, does: str) -> dict[str, Any]:
    global _child
    with _lock:
        try:
            if _child is None:
                _child = Child()
            return _child.ask({**request, "threads": torch.get_num_threads()}, seconds)
        except DiedError as death:
            _close()
            raise EdgeError(f"{path} crashes what {does} it: {_how(death)}. {_REMEDY}") from None
        except TooLongError:
            _close()
            raise EdgeError(
                f"{path} did not come back: the process of its own that {does} it was ended after {seconds:.0f} "
                f"seconds. {_REMEDY}"
            ) from None
        except BaseException:
            _close()
            raise


def _how(death: DiedError) -> str:
    if death.code < 0:
        number = signal.Signals(-death.code)
        meaning = _MEANINGS.get(number, "a signal ended it")
        return f"a process of its own died of {number.name} ({meaning})"
    said = f", saying: {death.said}" if death.said else ""
    return f"a process of its own ended with exit code {death.code}{said}"


def _raise(answer: dict[str, Any]) -> None:
    """What was raised there, here; unless it is about ops that only this process has, which has to try for itself."""
    message = answer["error"]
    ours = namespaces() - set(answer["namespaces"])
    if any(f"{name}::" in message or f"{name}." in message for name in ours):
        return
    kind = getattr(errors, answer["class"], None) or getattr(builtins, answer["class"], None)
    raise (_as_class(kind))(message)


def _as_class(kind: Any) -> Callable[[str], BaseException]:
    """Errors that a text is enough for."""
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, (OSError, UnicodeError)):
        return kind
    return RuntimeError


def _digest(path: Path) -> str | None:
    if path.suffix.lower() not in _SINGLE_FILES:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
