"""`torchreel.graphed`: a function whose calls are recorded once and replayed from then on."""

from __future__ import annotations

import functools
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchreel import _graphs, _tape
from torchreel._collector import collector_paused
from torchreel._cpython.interpreter import get_frame
from torchreel._torch.tensors import version_of
from torchreel.errors import GraphError, HeldOutputError, OptionError, TraceError, first_line
from torchreel.graphs.call.calls import CallKind, signature_of, with_history
from torchreel.graphs.call.costs import Cost, costs_of
from torchreel.graphs.options import (
    CaptureSizes,
    GraphOptions,
    Held,
    Inductor,
    Mutation,
    Verify,
    known_options,
    refuse_unknown,
)
from torchreel.graphs.record.derivatives import inseparable
from torchreel.graphs.record.generated_lines import NodeLines
from torchreel.graphs.record.recorded_call import RecordedCall
from torchreel.graphs.record.take import Take
from torchreel.graphs.refusal import RefusedError
from torchreel.graphs.skips import Skip, Skips
from torchreel.graphs.steps import follow_torchs_steps
from torchreel.graphs.swapping import follow_swaps
from torchreel.guards.followed_call import FollowedCall
from torchreel.guards.objects import objects_in
from torchreel.tape.structure import Structure

_MANY_SHAPES = 8  # recordings of one function that deserve a word
_TRIES = 3  # recordings of one kind of call before it is left alone
_DROPPED = 8  # recordings that are kept for backwards of earlier calls
_REMARKS = 32  # sentences that are kept for people
_GUARDS = 8  # recordings of one kind of call that differ in numbers that Python used
_WATCHED = "A debugger, coverage or a profile function of Python was active."
_FOREIGN = "A mode of Python, a transform, hooks for saved tensors or a tape was active."
_OTHER_SIZES = "Other sizes than the first ones run eagerly (skip_dynamic=True)."
_NOT_LISTED = "Its sizes are not among capture_sizes."


def _users_level() -> int:
    """For a warning: how many calls up the program's own line is, from the function that calls this one."""
    frame, level = get_frame(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("torchreel", "torch"):
        frame, level = frame.f_back, level + 1
    return level


class Graphed(_graphs.CachedCall):
    """What `torchreel.graphed` returns: called like the function itself, and with its attributes.

    `fixed` is for a function that somebody else guards, such as a graph of torch.compile: what Python reads is not
    guarded then, and for each tensor among the arguments it is said whether it will stay in its place. `lines` are
    those of the program, for a function that was generated.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: GraphOptions,
        fixed: Sequence[bool] | None = None,
        lines: NodeLines | None = None,
    ) -> None:
        self._cache = _graphs.CallCache()
        self._options = options
        self._verify(True)
        super().__init__(self._cache, self._miss)
        if not isinstance(function, torch.nn.Module):
            functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = function
        self._fixed = fixed
        self._lines = lines or {}
        self._kinds: list[CallKind] = []
        self._recordings: dict[int, RecordedCall] = {}
        self._dropped: dict[int, RecordedCall] = {}  # which backwards of earlier calls may ask for
        self._eager = 0
        self._dropped_hits = 0
        self._warned: set[str] = set()
        self._skips = Skips()
        self.remarks: dict[str, int] = {}  # why calls were not tried at all, and how often
        follow_swaps(self)
        follow_torchs_steps()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name not in ("__name__", "__qualname__", "__module__", "_modules"):
            raise AttributeError(name)
        return getattr(object.__getattribute__(self, "__wrapped__"), name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Above a method, it is one."""
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_anew, (self.__wrapped__, self._options)

    def __repr__(self) -> str:
        return f"<graphed {self._name}: {len(self._recordings)} recordings>"

    @property
    def _name(self) -> str:
        function = self.__wrapped__
        return getattr(function, "__qualname__", type(function).__name__)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._eager += 1
        return self.__wrapped__(*args, **kwargs)

    def _miss(self, *args: Any, **kwargs: Any) -> Any:
        """A call that no graph can take, now or at all."""
        why, number, detail, op = self._cache.last_miss
        if torch.compiler.is_compiling() or _tape.is_recording():
            return self._run(args, kwargs)  # a part of something else
        if why in ("off", "foreign"):
            return self._run_outside(why, args, kwargs)
        if why == "verify":
            return self._verified(number, args, kwargs)
        try:
            kind = self._kind(args, kwargs)
        except Exception as error:
            reason = f"Its arguments cannot be compared ({type(error).__name__}: {first_line(error)})."
            self._remark(reason)
            self._say("", reason)
            return self._run(args, kwargs)
        if kind is None:
            return self._run(args, kwargs)
        if number:
            self._note(kind, why, number, detail, op)
        if kind.reason:
            self._drop_all(kind)
            kind.skipped += 1
            self._say(kind.text, kind.reason)
            return self._run(args, kwargs)
        if skip := kind.skipped_for():
            self._say(kind.text, skip)
            return self._run(args, kwargs)
        if kind.failing:
            self._say(kind.text, kind.failing)
            result = self._run(args, kwargs)
            kind.give_up(kind.failing)
            return result
        if self._follows and with_history(args, kwargs) and not kind.is_probed():
            kind.is_warm(self._options.warm_up)
            return self._probe(kind, args, kwargs)
        if not kind.is_warm(self._options.warm_up):
            result = self._run(args, kwargs)
            self._learn(kind, result)
            return result
        return self._record(kind, args, kwargs)

    def _run_outside(self, why: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call at a time at which no graph runs."""
        if self._fixed is not None and not self._kinds:
            return self._run(args, kwargs)  # Dynamo runs a function once when it has compiled it
        watched = sys.gettrace() is not None or sys.getprofile() is not None
        reason = _FOREIGN if why == "foreign" else _WATCHED if watched else ""
        if reason:
            self._remark(f"{reason[:-1]}: such a call ran eagerly.")
            self._say("", reason)
        return self._run(args, kwargs)

    def _say(self, call: str, why: str) -> None:
        """A call runs eagerly, or did: that is logged, or an error."""
        if self._skips.is_logged(why) and not self._options.or_error:
            return
        self._skips.log(self._name, call, why)
        if self._options.or_error:
            end = "" if why.endswith(".") else "."
            of = f"{self._name} ({call})" if call else self._name
            raise GraphError(f"There is no graph for a call of {of}, and or_error=True was asked for: {why}{end}")

    def _learn(self, kind: CallKind, result: Any) -> None:
        try:
            kind.learn(result)
        except Exception as error:  # of a result that torch itself has no history of, for example
            kind.give_up(f"{self._name} returns what cannot be recorded ({type(error).__name__}: {first_line(error)})")

    def _remark(self, why: str) -> None:
        """Note why calls were not tried at all."""
        if why in self.remarks or len(self.remarks) < _REMARKS:
            self.remarks[why] = self.remarks.get(why, 0) + 1

    @property
    def _follows(self) -> bool:
        return self._fixed is None and not self._options.trust

    def _probe(self, kind: CallKind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run eagerly, and follow the call: see CallKind.is_probed."""
        self._eager += 1
        versions = [(one, version_of(one)) for one in with_history(args, kwargs)]
        followed = FollowedCall(args, kwargs, list(objects_in((args, kwargs))), {}, {}, {})
        try:
            result = followed.run(self.__wrapped__, args, kwargs)
        except BaseException:
            followed.close()
            raise
        if any(version_of(one) != version for one, version in versions):
            kind.give_up(f"{self._name} writes to an argument that has a history (grad_fn)")
        try:
            followed.finish(result, False)
            why = inseparable(Structure(result, unique=True).tensors, [one for one, _ in versions])
            followed.reason = followed.reason or why
            if why:
                kind.give_up(f"{self._name} {why}")
        except Exception as error:
            followed.reason = f"cannot be recorded: {type(error).__name__}: {first_line(error)}"
        followed.seal([])
        if followed.reason:
            kind.refused(f"{self._name} {followed.reason}", _TRIES)
        kind.probe = followed.sealed
        self._learn(kind, result)
        return result

    def _kind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKind | None:
        """Which of the kinds of calls it is; a new one, or None if there are too many."""
        modes = _graphs.Modes.now()
        for kind in self._kinds:
            if kind.is_of(modes, args, kwargs):
                return kind
        if self._is_beyond(modes, args, kwargs):
            return None
        kind = CallKind(modes, args, kwargs)
        self._kinds.append(kind)
        if len(self._kinds) > _MANY_SHAPES:
            self._warn_of_shapes()
        return kind

    def _is_beyond(self, modes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call of a new kind is none that shall be recorded: it is counted then."""
        limit = self._options.limit
        if self._options.skip_dynamic and self._has_shapes(modes, args, kwargs):
            why, wanted = _OTHER_SIZES, False
        elif not self._options.captures(self._sizes(args, kwargs)):
            why, wanted = _NOT_LISTED, False
        elif len(self._kinds) >= limit:
            why, wanted = f"There are recordings of {limit} kinds of calls, and may be no more (limit={limit}).", True
        else:
            return False
        call = self._skips.count(args, kwargs, lambda: str(signature_of(args, kwargs)), why)
        if wanted:
            if "shapes" not in self._warned:
                self._warn_of_shapes()
            self._say(call, why)
        else:
            self._skips.log(self._name, call, why)
        return True

    def _has_shapes(self, modes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call of the same structure, with other sizes, is known.

        In a graph of torch.compile, sizes are numbers among the arguments, and nothing else differs.
        """
        alike = [kind for kind in self._kinds if kind.modes == modes]
        return any(self._fixed is not None or kind.is_alike(args, kwargs) for kind in alike)

    def _sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        """What capture_sizes lists: those of the first tensor, or in a graph of torch.compile the sizes that vary."""
        if self._options.capture_sizes is None:
            return ()
        if self._fixed is not None:
            return tuple(one for one in args if type(one) is int)
        tensors = Structure((args, kwargs)).tensors
        return tuple(tensors[0].shape) if tensors else ()

    def _warn_of_shapes(self) -> None:
        self._warn(
            "shapes",
            f"{self._name} has been called in {len(self._kinds)} ways (shapes, values that are no tensors, modes), and "
            f"each needs a recording; there are at most {self._options.limit}, and calls beyond run eagerly. Pad to "
            "few shapes (pad_to=), or record only the first (skip_dynamic=True). torchreel.graphs.status() lists them.",
        )

    def _warn(self, about: str, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(text, stacklevel=_users_level())

    def _note(self, kind: CallKind, why: str, number: int, detail: str, op: int) -> None:
        """What kept a recording from being replayed decides what is done about it."""
        recording = self._recordings.get(number)
        if recording is None:
            return
        if why == "held":
            if self._options.held == "error":
                raise self._held_error(recording)
            kind.skip_once("More calls wait for their backward than there are graphs: such a call ran eagerly.")
            return
        if why == "kept":
            line = recording.line(op)
            where = f"{recording.op_name(op)}{f' ({line})' if line else ''}"
            kind.kept(f"{where} keeps a tensor that it was given, which a replay would overwrite")
        elif why == "shared":
            kind.skip_once("Two tensors that it uses have one gradient tensor: such a call ran eagerly.")
        elif why in ("changed", "moved"):
            guards = recording.guards
            change = "A tensor that it uses has been given other memory."
            if why == "changed" and guards is not None:
                change = guards.changed() or "Something that the function reads has changed."
            self._drop(recording)
            kind.changed(change)
            kind.inputs_move = kind.inputs_move or (why == "moved" and bool(recording.parts.also))
            if guards is not None and guards.volatile:
                kind.give_up(change)
            kind.after = guards
        elif why == "guard":
            line = recording.line(op)
            where = f"{recording.op_name(op)}{f' ({line})' if line else ''}"
            kind.guarded(f"{where} {detail}", recording.entry.replay.hits)
        elif why == "failed":
            line = recording.line(op)
            kind.failing = f"{recording.op_name(op)}{f' ({line})' if line else ''} fails on fixed memory."
        elif why == "aliased":
            kind.give_up("An input shares memory with a tensor that the function writes.")

    def _record(self, kind: CallKind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(kind.numbers & self._recordings.keys()) >= _GUARDS:
            why = "Numbers that Python used had more values than there may be recordings: such a call ran eagerly."
            kind.tell(why)
            self._say(kind.text, why)
            return self._run(args, kwargs)
        try:
            take = Take(self.__wrapped__, args, kwargs, self._follows, self._lines)
            take.begin()
        except TraceError:  # another thread makes a tape at this moment
            kind.tell("Another thread made a tape at that moment: such a call ran eagerly.")
            return self._run(args, kwargs)
        except Exception as error:
            self._refuse(kind, f"cannot be recorded: {type(error).__name__}: {first_line(error)}")
            return self._run(args, kwargs)
        result = take.run(args, kwargs, kind.pattern)
        try:
            again = _Again(self, kind)
            with collector_paused():
                recording = take.recording(self._options, again, kind.after, self._fixed, kind.inputs_move)
        except RefusedError as refusal:
            self._eager += 1
            self._refuse(kind, str(refusal), refusal.passing)
            return result
        except Exception as error:  # the call has run: what fails now is ours
            self._eager += 1
            self._refuse(kind, f"cannot be made a graph: {type(error).__name__}: {first_line(error)}")
            return result
        again.number = recording.number
        kind.recorded(recording)
        self._recordings[recording.number] = recording
        self._cache.add(recording.entry)
        return result

    def forget(self) -> None:
        """Have no recordings any more, as if it had never been called. Backwards of earlier calls still run."""
        for recording in list(self._recordings.values()):
            self._cache.drop(recording.number)
            self._dropped_hits += recording.entry.replay.hits
        self._recordings.clear()
        self._dropped.clear()
        self._kinds.clear()
        self._skips.clear()
        self._warned.clear()
        self.remarks.clear()

    @property
    def is_compiled(self) -> bool:
        """Whether it is a part of what torch.compile made."""
        return self._fixed is not None

    def _refuse(self, kind: CallKind, why: str, passing: bool = False) -> None:
        """No recording comes of this call."""
        reason = f"{self._name} {why}"
        kind.refused(reason, _TRIES, passing)
        if not passing:
            self._say(kind.text, reason)

    def _drop_all(self, kind: CallKind) -> None:
        for number in kind.numbers & self._recordings.keys():
            self._drop(self._recordings[number])

    def _drop(self, recording: RecordedCall) -> None:
        self._cache.drop(recording.number)
        self._dropped_hits += recording.entry.replay.hits
        del self._recordings[recording.number]
        self._dropped[recording.number] = recording
        while len(self._dropped) > _DROPPED:
            del self._dropped[next(iter(self._dropped))]

    def let_go(self, *tensors: torch.Tensor) -> None:
        """Refer to these no longer: recordings that use them are gone."""
        for recording in [*self._recordings.values(), *self._dropped.values()]:
            if not any(one is tensor for one in recording.parts.tensors.values() for tensor in tensors):
                continue
            if recording.number in self._recordings:
                self._drop(recording)
            self._dropped.pop(recording.number, None)
        for kind in self._kinds:
            kind.let_go()

    def another_backward(
        self,
        number: int,
        kind: CallKind,
        call: tuple[Any, ...],
        gradients: list[Any],
        create_graph: bool,
        other_modes: bool,
        index: int,
        cuts: list[torch.Tensor],
    ) -> list[torch.Tensor | None]:
        """The derivatives of an earlier call, for a backward other than the recorded one."""
        from torchreel.graphs.call.recompute import derivatives_of

        recording = self._recordings.get(number) or self._dropped.get(number)
        if recording is None:
            raise GraphError(
                f"A backward of {self._name} is not the recorded one, and its recording is gone, as the function was "
                "recorded anew many times since, or torchreel.graphs.reset() was called: run the backward before that."
            )
        if create_graph:
            self._warn(
                "twice",
                f"A backward of {self._name} is differentiated again (create_graph=True), after its calls have been "
                "replayed: the last bits of these second derivatives may differ from eager's. From now on it runs "
                "eagerly.",
            )
        if other_modes:
            kind.give_up("Its backward runs in other modes of torch (autocast, threads ...) than its forward.")
        assert recording.derivatives is not None
        segment = recording.derivatives.segments[index]
        count = sum(len(one.indices) for one in recording.derivatives.segments)
        if kind.learn_gradients(gradients, segment.indices, count, create_graph) and number in self._recordings:
            self._drop(recording)
        return derivatives_of(self.__wrapped__, recording, call, gradients, create_graph, segment, cuts)

    def _verified(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from torchreel.graphs.call.verify import verified

        recording = self._recordings.get(number) or self.recording_for(args, kwargs)
        return verified(self, recording, args, kwargs)

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._name

    @property
    def exact(self) -> bool:
        """Whether it gives eager's bits."""
        return self._options.exact

    def recording_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecordedCall | None:
        """The one that such a call would replay, or None."""
        modes = _graphs.Modes.now()
        for kind in self._kinds:
            if kind.is_of(modes, args, kwargs):
                found = [one for one in self._recordings.values() if one.number in kind.numbers]
                return found[-1] if found else None
        return None

    def costs(self, *args: Any, **kwargs: Any) -> list[Cost]:
        """Where the time of such a call goes, op by op."""
        return costs_of(self.recording_for(args, kwargs), args, kwargs)

    def recordings(self) -> list[RecordedCall]:
        return list(self._recordings.values())

    def kinds(self) -> list[CallKind]:
        return list(self._kinds)

    def skips(self) -> list[Skip]:
        """Calls of kinds that are not recorded, as was asked for."""
        return self._skips.all()

    def replays(self) -> int:
        return self._dropped_hits + sum(int(one.entry.replay.hits) for one in self._recordings.values())

    def eager_calls(self) -> int:
        return self._eager

    def unverified(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that is not checked."""
        self._verify(False)
        try:
            return self(*args, **kwargs)
        finally:
            self._verify(True)

    def _verify(self, on: bool) -> None:
        wanted = self._options.verify
        self._cache.verify_first = on and wanted == "first"
        self._cache.verify = 0 if not on or wanted == "first" else wanted

    def pattern_of(self, recording: RecordedCall) -> Any:
        """How gradients come to its outputs."""
        return next((kind.pattern for kind in self._kinds if recording.number in kind.numbers), None)

    def is_sound(self, recording: RecordedCall) -> None:
        """Its replay was compared with eager, and was equal."""
        recording.entry.verified = True

    def retire(self, recording: RecordedCall, why: str) -> None:
        """Its replay is not what eager gives: never run it again."""
        for kind in self._kinds:
            if recording.number in kind.numbers:
                kind.give_up(why)
                self._drop_all(kind)

    def _held_error(self, recording: RecordedCall) -> HeldOutputError:
        return HeldOutputError(
            f"An output of {self._name} from an earlier call is still held, and this call would overwrite it "
            f"({recording.output_line()}). Keep a copy of it with clone(), let go of it, say that the step is over "
            "with torchreel.mark_step_begin(), or use held='branch' or held='copy'."
        )


def _made_anew(function: Callable[..., Any], options: GraphOptions) -> Graphed:
    """A copy: it records for itself."""
    return Graphed(function, options)


class _Again:
    """Runs the function again, for a backward other than the recorded one."""

    def __init__(self, graphed: Graphed, kind: CallKind) -> None:
        self._graphed = weakref.ref(graphed)
        self._kind = kind
        self.number = 0  # of the recording

    def __call__(self, *rest: Any) -> list[torch.Tensor | None]:
        alive = self._graphed()
        if alive is None:
            raise GraphError(
                "The graphed function of this backward is gone, and the backward is not the recorded one: keep the "
                "function until its backwards are done."
            )
        return alive.another_backward(self.number, self._kind, *rest)


def graphed(
    function: Callable[..., Any] | None = None,
    *,
    exact: bool = True,
    held: Held = "branch",
    mutation: Mutation = "write_back",
    limit: int = 64,
    warm_up: int = 1,
    pad_to: Mapping[int, int | Sequence[int]] | None = None,
    skip_dynamic: bool = False,
    inductor: Inductor = False,
    cores: int = 1,
    verify: Verify = "first",
    trust: bool = False,
    or_error: bool = False,
    capture_sizes: CaptureSizes | None = None,
    **unknown: Any,
) -> Any:
    """A function or module that is recorded at its second call and replayed from its third on: same call, same results.

    Can also stand above a function, as a decorator. See docs/graphs.md for what the options do. `pad_to` is right only
    for functions that treat positions along the padded dimension independently, or mask those beyond the end.
    """
    refuse_unknown("graphed()", unknown, known_options())
    options = GraphOptions(
        exact=exact, held=held, mutation=mutation, limit=limit, warm_up=warm_up,
        pad_to={} if pad_to is None else pad_to, skip_dynamic=skip_dynamic, inductor=inductor, cores=cores,
        verify=verify, trust=trust, or_error=or_error, capture_sizes=capture_sizes,
    )  # fmt: skip
    if function is None:
        return lambda one: graphed(one, **vars(options))
    if isinstance(function, Graphed):
        function = function.__wrapped__
    if not callable(function):
        raise OptionError(f"graphed() was given {function!r}: give a function or a module.")
    if options.pad_to:
        from torchreel.graphs.call.padding import Padded

        return Padded(function, options)
    return Graphed(function, options)
