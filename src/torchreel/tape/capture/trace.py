"""`torchreel.trace` and `torchreel.tracing`: run a function once, and have it as a tape."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

import torch

from torchreel._cpython.interpreter import get_frame
from torchreel.errors import TraceError
from torchreel.tape.capture.captured import Captured
from torchreel.tape.capture.names import reachable, visible
from torchreel.tape.capture.parameter_names import ParameterNames, parameters_of
from torchreel.tape.capture.results import held
from torchreel.tape.capture.session import Session
from torchreel.tape.guards.proof import Proof
from torchreel.tape.guards.surroundings.surroundings import Surroundings
from torchreel.tape.guards.tape_guards import TapeGuards
from torchreel.tape.replay.memory import inputs_with_names
from torchreel.tape.structure import Like, Structure
from torchreel.tape.tape import Tape


def trace(
    function: Callable[..., Any],
    *args: Any,
    outplace: bool = False,
    hashes: bool = False,
    trust: bool = False,
    **kwargs: Any,
) -> Tape:
    """Call the function, and give every op that it ran as a tape. What the call does, it does.

    With `outplace` the tape has the same program without mutation; with `hashes` it also knows the values of every
    op's output, for `torchreel replay --check` and for torchreel.tape.diff, at the cost of a copy of the state. With
    `trust` you vouch that the function does the same again: what it does in Python is not followed.
    """
    given = Structure((args, kwargs))
    given.like = Like(args, kwargs, _knows_order(function))
    given.like.note_gradients(given.tensors)
    guards = TapeGuards(Surroundings(function, (args, kwargs)), given.tensors)
    given.like.owned = inputs_with_names(given.tensors, guards.tensors())
    there, before = set(map(id, guards.tensors())), held.collections()
    session = Session(given.tensors, hashes or outplace, follows_numbers=True)
    session.is_function = True
    try:
        proof = None if trust else Proof(described(function), args, kwargs, session)
        result = function(*args, **kwargs) if proof is None else proof.run(function, args, kwargs)
        results = Structure(result)
        del result
        if results.contains_itself:
            raise TraceError(
                "The function returns a list, a tuple or a dict that contains itself, which cannot be built again at a "
                "replay: return its parts."
            )
    except BaseException:
        session.end([])
        raise
    slots = session.end(results.tensors)
    if proof is not None:
        proof.seal(given.tensors)
        guards.proof = proof
    given.like.note_turned(given.tensors)
    captured = Captured(
        session, given, results, slots, described(function), lambda: reachable(function), guards,
        lambda: ParameterNames(function),
    )  # fmt: skip
    captured.look_around(there, before)
    tape = Tape(captured)
    if outplace:
        from torchreel.tape.transform.outplace import outplaced

        return outplaced(tape, hashes)
    return tape


def _knows_order(function: Any) -> bool:
    """Whether it can tell in which order arguments were named: it takes all names in a dict, or nobody knows."""
    parameters = parameters_of(function)
    return parameters is None or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


class Tracing:
    """A `with` block whose ops become a tape."""

    def __init__(self, inputs: tuple[Any, ...], hashes: bool) -> None:
        self._inputs = inputs
        self._hashes = hashes
        self._session: Session | None = None
        self._tape = Tape(None)

    def __enter__(self) -> Tape:
        if self._session is not None:
            raise TraceError("This block has been traced: call torchreel.tracing() anew for another.")
        self._frame: FrameType | None = get_frame(1)
        self._given = Structure((self._inputs, {}))
        self._guards = TapeGuards(None, self._given.tensors)
        self._session = Session(self._given.tensors, self._hashes, follows_numbers=True)
        return self._tape

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._session is not None
        frame, self._frame = self._frame, None
        assert frame is not None
        self._session.end([])
        if error is None:
            scope = visible(frame)
            code = frame.f_code
            where = f"a block in {code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
            self._tape.fill(Captured(self._session, self._given, Structure(None), [], where, scope, self._guards))


def tracing(*inputs: Any, hashes: bool = False) -> Tracing:
    """A `with` block that becomes a tape: `with torchreel.tracing(x, y) as tape:`.

    The tensors that are given here are the tape's inputs, which replay takes anew; all others that the block uses are
    its state. The tape can be used when the block has ended.
    """
    return Tracing(inputs, hashes)


def described(function: Any) -> str:
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", type(function).__name__)
    if isinstance(function, torch.nn.Module):
        function = (
            getattr(type(function), "forward", None) if not isinstance(function, torch.jit.ScriptModule) else None
        )
    code = getattr(function, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else str(name)
