"""The code of torch's optimizers whose numbers a tape follows: a step counts on, with the learning rate of now.

The rate is an input of the tape: a tensor that is set to what the group of the optimizer has, before each replay, and
read where the optimizer's step begins. What the optimizer computes with it in Python becomes formulas.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from torchreel._torch.modules import SPARSE_ADAM, STEP_FUNCTIONS
from torchreel.tape.capture import numbers
from torchreel.tape.capture.optimizers.group_settings import changed_setting
from torchreel.tape.quiet import quietly, unobserved

if TYPE_CHECKING:
    from torchreel.tape.capture.session import Session

_sparse, _ = SPARSE_ADAM


@dataclass
class Count:
    """A step count that SparseAdam keeps as a number of Python: the tape has it as a tensor, which is set and read."""

    name: str
    state: dict[str, Any]  # of a parameter, in the optimizer
    tensor: torch.Tensor

    def give(self) -> None:
        """Write it to the tape's tensor, before a replay."""
        self.tensor.fill_(self.state["step"])

    def take(self) -> None:
        """Read it from the tape's tensor, after a replay."""
        self.state["step"] = int(self.tensor.item())


@dataclass
class Rate:
    """The learning rate of a group: the tape reads the one of now from a tensor."""

    name: str
    group: dict[str, Any]  # of the optimizer
    tensor: torch.Tensor
    record: int  # of the op that reads it
    value: float  # when the tape was made
    is_free: bool = False  # all that was computed from it is on the tape as a formula

    def give(self) -> None:
        """Write it to the tape's tensor, before a replay."""
        now = self.group.get("lr")
        same = type(now) is float and (self.is_free or now.hex() == self.value.hex())
        if not same:
            raise changed_setting("lr", self.value, now)
        self.tensor.fill_(now)

    def take(self) -> None:
        """Nothing: a step does not change it."""


# The session that follows these functions. They are made once: a session only exchanges them.
_session: Session | None = None


def follow(session: Session) -> Callable[[], None]:
    """Follow their numbers while the session lasts. Gives what ends it."""
    global _session
    _session = session
    for module, name, _, followed in _EXCHANGED:
        setattr(module, name, followed)
    return _end


def stand_ins() -> list[tuple[Any, Any]]:
    """Our functions, each with the one of torch that it stands for meanwhile."""
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
        with numbers.Following(_session.capture, _session.uses, _session.escaped):
            rate = _rate(_session, args[0] if args else kwargs.get("params"), kwargs.get("lr"))
            return function(*args, **kwargs if rate is None else {**kwargs, "lr": rate})

    return call


def _rate(session: Session, params: Any, lr: Any) -> Any:
    """The learning rate as a Number; None where it is none of a group, or no plain number."""
    step = session.steps[-1] if session.steps else None
    optimizer = None if step is None else step.optimizer()
    if step is None or optimizer is None or type(lr) is not float or not params:
        return None
    group_index = step.group_of(params[0])
    if group_index is None or group_index not in step.free_rates:
        return None
    group = optimizer.param_groups[group_index]
    made_of_it = isinstance(optimizer, torch.optim.ASGD) and step.begins(group_index)
    if made_of_it or group.get("lr") is not lr:
        return None
    with unobserved():  # the program has no such ops
        with quietly():
            tensor = torch.full((), lr, dtype=torch.float64)
        rate = tensor.item()
    known = sum(isinstance(count, Rate) for count in session.counts)
    name = f"{type(optimizer).__name__}.lr.{known}"
    session.counts.append(Rate(name, group, tensor, session.capture.op_count - 1, lr))
    step.settings[group_index].let_change("lr")
    session.forget_read(group, "lr")
    return rate


def _followed_sparse(function: Any) -> Any:
    @functools.wraps(function)
    def call(params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, state_steps: Any, **kwargs: Any) -> Any:
        session = _session
        optimizer = session.steps[-1].optimizer() if session is not None and session.steps else None
        if session is None or optimizer is None:
            return function(params, grads, exp_avgs, exp_avg_sqs, state_steps, **kwargs)
        counts = [_count(session, optimizer.state[param]) for param in params]
        plain = _sparse.math
        _sparse.math = types.SimpleNamespace(sqrt=numbers.square_root)
        try:
            with numbers.Following(session.capture, session.uses, session.escaped):
                steps = [count.tensor.add_(1).item() for count in counts]
                return function(params, grads, exp_avgs, exp_avg_sqs, steps, **kwargs)
        finally:
            _sparse.math = plain

    return call


def _count(session: Session, state: dict[str, Any]) -> Count:
    for known in session.counts:
        if isinstance(known, Count) and known.state is state:
            return known
    with quietly():
        before = torch.full((), float(state["step"]) - 1, dtype=torch.float64)
    made = Count(f"SparseAdam.count.{len(session.counts)}", state, before)
    session.counts.append(made)
    return made


_EXCHANGED = [
    *(
        (module, name, function, _followed(function))
        for module, name in STEP_FUNCTIONS
        for function in [getattr(module, name)]
    ),
    (*SPARSE_ADAM, _sparse.sparse_adam, _followed_sparse(_sparse.sparse_adam)),
]
