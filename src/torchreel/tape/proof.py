"""Whether a traced function is known to do the same again: its call is followed, opcode by opcode.

What it read of Python is guarded, and compared before each replay. What it wrote to things that were there before, and
a replay can write again, is an effect; any other write makes a replay impossible. What no rule knows leaves the rest of
the call unknown: then the tape has nothing but names to go by (watch.py), and says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from torchreel.errors import GuardError, first_line
from torchreel.guards.followed_call import FollowedCall
from torchreel.guards.objects import objects_in
from torchreel.guards.python_guards import PythonGuards
from torchreel.guards.writes import Write, Writes
from torchreel.tape import optimizer_code
from torchreel.tape.effects import Effect, effects_of
from torchreel.tape.session import Session


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
        self._guards: PythonGuards | None = None
        self._writes: list[Write] = []
        self._warned = False
        self._copied: set[type] = set()  # classes of what it returned
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
            result = followed.run(function, args, kwargs)
        except BaseException:
            followed.close()
            raise
        self._copied = {type(one) for one in (result, *objects_in(result))}
        for count in session.counts:
            followed.forget_entry(count.state, "step")  # the tape counts on
        try:
            followed.finish(result, True)
        except Exception as error:  # what comes after the call is ours
            followed.reason = f"leaves what cannot be looked at ({type(error).__name__}: {first_line(error)})"
        return result

    def seal(self, inputs: list[torch.Tensor]) -> None:
        """When the session has ended."""
        followed, session = self._followed, self._session
        assert followed is not None and session is not None
        if not followed.reason and _has_others(followed.histories, session):
            followed.reason = "runs a backward through a tensor that was made before the call (it has a grad_fn)"
            followed.is_write = True
        followed.seal(inputs, self._copied)
        if followed.sealed is not None:
            self._guards = PythonGuards(followed.sealed)
        elif followed.is_write:
            self.refusal = f"{self._name} {followed.reason}: a replay would not leave what a call leaves."
        else:
            self.unknown = f"{self._name} {followed.reason}"
        self._writes, self._followed, self._session = followed.done, None, None

    def effects(self, slot_of: Callable[[torch.Tensor], int]) -> list[Effect]:
        """What the function leaves, of a whole proof."""
        found: list[Effect] = []
        for put, value in self._writes:
            effect = list(effects_of(put, value, slot_of, is_known=True))
            if not effect:
                self.refusal = (
                    f"{self._name} leaves a {type(value).__name__} with a tensor that no op of the tape made, where a "
                    "replay could not: write into a tensor that is there before, and trace again."
                )
            found += effect
        self._writes = []
        return found

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


def _has_others(tensors: list[torch.Tensor], session: Session) -> bool:
    """Whether there is one that no op of the tape made."""
    outside = {-1, *(slot for slot, _ in session.capture.tensors_from_outside())}
    return any(session.capture.find(tensor) in outside for tensor in tensors)
