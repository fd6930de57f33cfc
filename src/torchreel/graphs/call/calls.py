"""A kind of call: arguments of one structure and one shape, in one mode. What happened to such calls so far."""

from __future__ import annotations

from typing import Any

import torch

from torchreel import _graphs
from torchreel.graphs.record.derivatives import Pattern
from torchreel.graphs.record.object_arguments import fit_objects
from torchreel.graphs.record.recorded_call import RecordedCall
from torchreel.guards.python_guards import PythonGuards
from torchreel.tape.structure import Structure

_SENTENCES = 32  # that are kept for people
_TWICE = "Its backward is differentiated again (create_graph=True), which a graph cannot be."
_OFTEN = 8  # changes or failed guards, with hardly a replay between them, before the kind is given up


def with_history(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    if not torch.is_grad_enabled():
        return []
    return [one for one in Structure((args, kwargs)).tensors if one.grad_fn is not None and one.requires_grad]


def signature_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _graphs.Signature:
    signature = _graphs.Signature(args, kwargs)
    fit_objects(signature, Structure((args, kwargs)))
    signature.forget_example()
    return signature


class CallKind:
    def __init__(self, modes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.modes = modes
        self.signature = signature_of(args, kwargs)
        self.text = str(self.signature)
        self.reason = ""  # why calls of this kind run eagerly, for good
        self.skipped = 0  # calls that ran eagerly for it
        self.history: dict[str, int] = {}  # why recordings were made anew, in sentences, and how often
        self.pattern: Pattern | None = None
        self.after: PythonGuards | None = None  # of the recording before
        self.probe: _graphs.PythonGuards | None = None
        self._calls = 0
        self._refusals = 0.0
        self._changes = 0
        self._guards = 0
        self._patterns = 0
        self.numbers: set[int] = set()  # of its recordings
        self.inputs_move = False  # those that looked like the function's own tensors are others at each call
        self._skip_once = ""
        self._kept = 0
        self.failing = ""  # what a replay failed at, where eager perhaps does not

    def is_of(self, modes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return bool(self.modes == modes) and bool(self.signature.matches(args, kwargs))

    def is_alike(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return bool(self.signature.is_alike(args, kwargs))

    def tell(self, why: str) -> None:
        """Note something for people."""
        if why in self.history or len(self.history) < _SENTENCES:
            self.history[why] = self.history.get(why, 0) + 1

    def is_warm(self, wanted: int) -> bool:
        self._calls += 1
        return self._calls > wanted

    def is_probed(self) -> bool:
        """Whether the function is known to do with an input that has a history what it does with any other.

        A recording puts a leaf in the place of such an input. Python must not be able to tell.
        """
        return self.probe is not None and self.probe.hold_but_for_tensors()

    def learn(self, result: Any) -> None:
        """See how gradients come to the outputs, if any do, to record the same backward."""
        tensors = Structure(result).tensors  # also without gradients: copying a result leaves a mark in its class, once
        if not torch.is_grad_enabled():
            return
        outputs = [tensor for tensor in tensors if tensor.requires_grad]
        if not outputs or any(tensor.grad_fn is None for tensor in outputs):
            return
        found: list[Any] = [None] * len(outputs)

        def seen(index: int, gradient: torch.Tensor | None) -> None:
            if torch.is_grad_enabled():
                self.give_up(_TWICE)
            if gradient is None or gradient.layout != torch.strided:
                return
            found[index] = (tuple(gradient.shape), gradient.stride())
            self.pattern = tuple(found)

        for index, tensor in enumerate(outputs):  # at the node: the tensor is the caller's
            number = tensor.output_nr
            tensor.grad_fn.register_prehook(lambda given, index=index, number=number: seen(index, given[number]))

    def learn_gradients(
        self, gradients: list[torch.Tensor | None], indices: list[int], count: int, create_graph: bool
    ) -> bool:
        """A backward came that is not the recorded one; gives whether it shall be recorded.

        Of the `count` outputs that have a gradient, it was given those of `indices`.
        """
        if create_graph:
            self.give_up(_TWICE)
            return False
        if any(one is None for one in gradients) or self._patterns >= _OFTEN:
            return False
        known = list(self.pattern or ())[:count]
        found = [*known, *[None] * (count - len(known))]
        for index, one in zip(indices, gradients, strict=True):
            found[index] = None if one is None else (tuple(one.shape), one.stride())
        if tuple(found) == self.pattern:
            return False
        self._patterns += 1
        self.pattern = tuple(found)
        self.tell("Gradients came with other strides than recorded: it is recorded anew.")
        return True

    def changed(self, why: str) -> None:
        self.tell(why)
        self._changes += 1
        if self._changes > 8 * _OFTEN:
            self.give_up(f"It was recorded {self._changes} times, each time because something changed. {why}")

    def guarded(self, what: str, hits: int) -> None:
        self.tell(f"Python used a number that is another one now: {what}.")
        self._guards += 1
        if self._guards > _OFTEN and hits < self._guards:
            self.give_up(
                f"Python uses a number that is another one at each call: {what}. Return the tensor instead, "
                "or keep the part that branches on it outside."
            )

    def refused(self, why: str, tries: int, passing: bool = False) -> None:
        self._refusals += 1 / _OFTEN**2 if passing else 1
        if self._refusals >= tries:
            self.give_up(why)
        self.skipped += not passing
        self.tell(why)

    def recorded(self, recording: RecordedCall) -> None:
        self.numbers.add(recording.number)

    def let_go(self) -> None:
        """Refer to no tensors any more."""
        self.probe = self.after = None

    def skip_once(self, why: str) -> None:
        """The call that is on its way runs eagerly."""
        self.tell(why)
        self._skip_once = why

    def kept(self, what: str) -> None:
        """An op holds on to memory of the pool, now or at each call."""
        self._kept += 1
        if self._kept > _OFTEN:
            self.give_up(f"{what}: tag the op with torch.Tag.cudagraph_unsafe, or have it keep a copy.")
        self.skip_once(f"{what}: such a call ran eagerly.")

    def skipped_for(self) -> str:
        """Why this one call runs eagerly, or nothing."""
        why, self._skip_once = self._skip_once, ""
        return why

    def give_up(self, why: str) -> None:
        self.reason = why
