"""The code of torch's optimizers whose numbers a tape follows, so that a replayed step counts on.

Adam and AdamW are not among them: what they compute is found on the tape itself, in optimizers.py, for nothing.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import _adafactor, _functional, adagrad, adamax, asgd, nadam, radam

from torchreel.tape import numbers
from torchreel.tape.quiet import quietly

if TYPE_CHECKING:
    from torchreel.tape.session import Session

# Each takes one step of a group, for all of its parameters. They compute with their numbers in Python's own arithmetic,
# which a Number follows, and with nothing else; SparseAdam also calls math.sqrt.
_FUNCTIONS: list[tuple[Any, str]] = [
    (_adafactor, "adafactor"),
    (adagrad, "adagrad"),
    (adamax, "adamax"),
    (asgd, "asgd"),
    (nadam, "nadam"),
    (radam, "radam"),
]
_SPARSE_ADAM = (_functional, "sparse_adam")


@dataclass
class Count:
    """A step count that SparseAdam keeps as a number of Python: the tape has it as a tensor, which is set and read."""

    name: str
    state: dict[str, Any]  # of a parameter, in the optimizer
    tensor: torch.Tensor

    def give(self) -> None:
        """To the tape, before a replay."""
        self.tensor.fill_(self.state["step"])

    def take(self) -> None:
        """From the tape, after it."""
        self.state["step"] = int(self.tensor.item())


# The session whose capture they are followed for. They are made once: a session only puts them into their places.
_session: Session | None = None


def follow(session: Session) -> Callable[[], None]:
    """Follow their numbers while the session lasts. Gives what ends it."""
    global _session
    _session = session
    for module, name, _, followed in _EXCHANGED:
        setattr(module, name, followed)
    return _end


def stand_ins() -> list[tuple[Any, Any]]:
    """The functions that are in the places of others meanwhile, and those."""
    return [(followed, original) for _, _, original, followed in _EXCHANGED]


def _end() -> None:
    global _session
    _session = None
    for module, name, original, _ in _EXCHANGED:
        setattr(module, name, original)


def _followed(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        unknown = torch.compiler.is_compiling() or kwargs.get("capturable") or kwargs.get("differentiable")
        if _session is None or unknown:
            return function(*args, **kwargs)
        with numbers.Following(_session.capture, _session.uses):
            return function(*args, **kwargs)

    return call


def _followed_sparse(function: Any) -> Any:
    @functools.wraps(function)
    def call(params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, state_steps: Any, **kwargs: Any) -> Any:
        session = _session
        optimizer = session.steps[-1].optimizer() if session is not None and session.steps else None
        if session is None or optimizer is None:
            return function(params, grads, exp_avgs, exp_avg_sqs, state_steps, **kwargs)
        counts = [_count(session, optimizer.state[param]) for param in params]
        plain = _functional.math
        _functional.math = types.SimpleNamespace(sqrt=numbers.square_root)
        try:
            with numbers.Following(session.capture, session.uses):
                steps = [count.tensor.add_(1).item() for count in counts]
                return function(params, grads, exp_avgs, exp_avg_sqs, steps, **kwargs)
        finally:
            _functional.math = plain

    return call


def _count(session: Session, state: dict[str, Any]) -> Count:
    for known in session.counts:
        if known.state is state:
            return known
    with quietly():
        before = torch.full((), float(state["step"]) - 1, dtype=torch.float64)
    session.counts.append(Count(f"SparseAdam.count.{len(session.counts)}", state, before))
    return session.counts[-1]


_EXCHANGED = [
    *(
        (module, name, function, _followed(function))
        for module, name in _FUNCTIONS
        for function in [getattr(module, name)]
    ),
    (*_SPARSE_ADAM, _functional.sparse_adam, _followed_sparse(_functional.sparse_adam)),
]
