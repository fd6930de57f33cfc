"""Whether a traced function is known to do the same again: its call is followed, opcode by opcode.

What it read of Python is guarded, and compared before each replay. What it wrote to things that were there before, and
a replay can write again, is an effect; any other write makes a replay impossible. What no rule knows leaves the rest of
the call unknown: then the tape has nothing but names to go by (tape_guards.py), and says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from torchreel._cpython.interpreter import slot_names
from torchreel.errors import GuardError, first_line
from torchreel.guards.followed_call import FollowedCall
from torchreel.guards.objects import objects_in
from torchreel.guards.python_guards import PythonGuards
from torchreel.guards.writes import Write, Writes
from torchreel.tape.capture.optimizers import code as optimizer_code
from torchreel.tape.capture.optimizers.code import Count
from torchreel.tape.capture.results.effects import Effect, effects_of
from torchreel.tape.capture.results.result_forms import ResultForms
from torchreel.tape.capture.session import Session
from torchreel.tape.structure import Structure


class Proof:
    """Made before the function is called, in the session of its trace."""

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], session: Session) -> None:
        self._name = name
        self._session: Session | None = session
        self._function: Any = None  # guards are on it, and would not keep it
        self._followed: FollowedCall | None = FollowedCall(
            args,
            kwargs,
            list(objects_in((args, kwargs))),
            {},
            session.hidden(),
            session.exchanged(),
            Writes(),
            optimizer_code.stand_ins(),
        )
        session.checks = self._followed.checks
        self._guards: PythonGuards | None = None
        self._writes: list[Write] = []
        self._result: Any = None
        self._warned = False
        self._copied: set[type] = set()  # classes of what it returned
        self.cleared: list[torch.Tensor] = []  # tensors whose gradient the function clears or sets
        self.draws_alone = False  # it sets no random state
        self.refusal = ""  # why there is no replay
        self.unknown = ""  # what no rule knows, with its line

    @property
    def is_whole(self) -> bool:
        """Whether all that the function reads and writes in Python is known."""
        return self._guards is not None

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        followed, session = self._followed, self._session
        assert followed is not None and session is not None
        self._function = function
        try:
            result = self._result = followed.run(function, args, kwargs)
        except BaseException:
            followed.close()
            raise
        for count in session.counts:
            if isinstance(count, Count):
                followed.forget_entry(count.state, "step")  # the tape counts on
        try:
            followed.finish(result, True)
        except Exception as error:  # what comes after the call is ours
            followed.reason = f"leaves what cannot be looked at ({type(error).__name__}: {first_line(error)})"
        for value in (result, *(value for _, value in followed.done)):
            self._copied.update(type(one) for one in (value, *objects_in(value)))
        self._copied = {kind for kind in self._copied if not issubclass(kind, torch.Tensor)}
        for kind in self._copied:
            slot_names(kind)  # leaves a mark in the class, as copying does
        return result

    def seal(self, inputs: list[torch.Tensor]) -> None:
        """When the session has ended."""
        followed, session = self._followed, self._session
        assert followed is not None and session is not None
        why = _unseen(followed, session) if not followed.reason else ""
        if why:
            followed.reason, followed.is_write = why, True
        self.cleared = list(followed.clears.values())
        followed.seal(inputs, self._copied)
        if followed.sealed is not None:
            self._guards = PythonGuards(followed.sealed)
            self.draws_alone = not followed.sets_random_state
        elif followed.is_write:
            self.refusal = f"{self._name} {followed.reason}: a replay would not leave what a call leaves."
        else:
            self.unknown = f"{self._name} {followed.reason}"
        self._writes, self._followed, self._session = followed.done, None, None
        if not self._writes:
            self._result = None

    def effects(self, slot_of: Callable[[torch.Tensor], int], forms: ResultForms) -> list[Effect]:
        """What the function leaves, of a whole proof."""
        found: list[Effect] = []
        for put, value in self._writes:
            if value is self._result:
                found.append(Effect(put, Structure(None), (), is_result=True))
                continue
            effect = list(effects_of(put, value, slot_of, True, forms))
            if not effect:
                self.refusal = (
                    f"{self._name} leaves a {type(value).__name__} with a tensor that no op of the tape made, where a "
                    "replay could not: write into a tensor that is there before, and trace again."
                )
            found += effect
        self._writes, self._result = [], None
        return found

    def holds(self) -> bool:
        """Whether all that the function reads in Python is known, and as it was."""
        return self._guards is not None and self._guards.native.hold()

    def check(self) -> None:
        """Before a replay. Raises a GuardError that says what changed."""
        changed = self._guards.changed() if self._guards is not None else None
        if changed is not None:
            raise GuardError(f"{changed} The tape has what the function did before: trace again.")

    def warn(self) -> None:
        """At the first replay of a tape whose function is not known to do the same."""
        if self.unknown and not self._warned:
            self._warned = True
            warnings.warn(
                f"Nobody can tell whether a replay does what a call would: {self.unknown}. From there on only what "
                "names in the code lead to is compared. torchreel.trace(..., trust=True) says that you vouch for it.",
                stacklevel=4,
            )


def _unseen(followed: FollowedCall, session: Session) -> str:
    """Why the ops on the tape are not all that the call did, or nothing."""
    outside = dict(session.capture.tensors_from_outside())
    if any(session.capture.find(tensor) in {-1, *outside} for tensor in followed.histories):
        return "runs a backward through a tensor that was made before the call (it has a grad_fn)"
    used = {id(tensor) for tensor in outside.values()}
    if any(id(tensor) not in used for tensor in followed.gradients_set if not followed.is_fresh(tensor)):
        return "sets the gradient of a tensor that no op reads"
    rebound = {value for _, value in session.capture.rebound()}
    given_data = (tensor for tensor in followed.data_set if not followed.is_fresh(tensor))
    if any(session.capture.find(tensor) not in rebound for tensor in given_data):
        return "gives a tensor other data (`.data = ...`) that no op has read before"
    return ""
