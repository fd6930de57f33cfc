"""One call, followed from its first opcode to the verdict: guards, or the reason to run eagerly.

An object is *plain* (it cannot change), *fresh* (the call made it: what it holds follows from the call), *given* (a
tensor or container among the arguments, which the key of the call compares) or *outer* (all else: each read is a guard,
each write that is still there at the end a reason to run eagerly). To take a fresh object for an outer one costs a
guard; the reverse would be a hole, and is never done.
"""

from __future__ import annotations

import collections
import gc
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from torchreel import _graphs
from torchreel._graphs import NULL, TensorState, gradient_of, type_lookup
from torchreel._torch.autograd import FunctionBase
from torchreel._torch.compiler import bookkeeping_of_dynamo
from torchreel._torch.tensors import storage_address, version_of
from torchreel.guards import numpy_functions, opcodes, tensors
from torchreel.guards.checks import Checks
from torchreel.guards.eager import EagerError, WriteError
from torchreel.guards.ending import Ending, changed_until
from torchreel.guards.opaque import OPAQUE
from torchreel.guards.types_known import (
    ALWAYS_TRUE,
    PLAIN,
    can_change,
    has_finalizer,
    has_nan,
    is_descriptor,
    is_heap,
    is_python_class,
    iterates_as,
    iterates_in_python,
    same_slot,
    special_of_c,
)
from torchreel.guards.writes import Write, Writes

_OWN_FILES = str(Path(__file__).parents[1]) + "/"
# Rooms of torchreel with effects that a program asks for: ranges, marks, recordings.
_UNSEEN = tuple(_OWN_FILES + name for name in ("record/", "profiler/", "memory/", "edge/"))


_VIEWS_OF_DICTS = tuple(
    type(view)
    for one in (dict[Any, Any](), collections.OrderedDict[Any, Any]())
    for view in (one.keys(), one.values(), one.items())
)


_SWAPS = "exchanges two tensors (torch.utils.swap_tensors)"
_SWAPPING = _OWN_FILES + "graphs/swapping.py"
_SWAP = inspect.unwrap(torch.utils.swap_tensors).__code__
_SET_OF_CLASSES = type_lookup(type, "__setattr__")


class FollowedCall:
    """Made before the call. After `run()`, `reason` is why it cannot be replayed, or nothing."""

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        objects: list[Any],
        originals: dict[int, torch.Tensor],
        hidden: dict[int, str],
        codes: dict[Any, Any],
        writes: Writes | None = None,
        stand_ins: Sequence[tuple[types.FunctionType, Any]] = (),
    ) -> None:
        """`writes` notes writes to objects that were made before the call, for a replay that does them again.

        `stand_ins` are functions that read only their arguments, each with the function that it stands for.
        """
        self.reason = ""
        self.is_write = False  # whether the reason is a write that outlives the call
        self.writes = writes
        self.done: list[Write] = []  # with `writes`, when the call has ended
        self.sealed: _graphs.PythonGuards | None = None
        self.questions: list[tuple[int, int]] = []  # to the tensors among the arguments: see _questions_to
        self._originals = originals  # by the id of a leaf that stands for a tensor with a history
        self.checks = Checks()
        self.checks.hidden = hidden
        self.checks.met = self._meet
        self._codes = codes  # functions whose code is exchanged while a tape is made, and their own code
        self.native = _graphs.Follower(self, list(opcodes.RULES), PLAIN, _OWN_FILES)
        for code in (*bookkeeping_of_dynamo(), *(function.__code__ for function, _ in stand_ins)):
            self.native.pass_over(code)
        self.checks.stand_ins = {id(function): original for function, original in stand_ins}
        self._collects = False  # garbage, when the call has ended
        self.frame: Any = None
        self.states: dict[int, TensorState] = {}  # of tensors of others, when they were first seen
        self.required: list[tuple[torch.Tensor, bool]] = []  # a gradient, when they were first seen
        self._versions: dict[int, tuple[torch.Tensor, int]] = {}  # when they were first seen
        self.asked: dict[int, tuple[torch.Tensor, int]] = {}  # tensors and what they were asked, as a mask
        self.also: list[torch.Tensor] = []  # arguments that the function has by itself as well
        self.identities = False  # which of the tensors among the arguments are one was asked
        self.generators: list[torch.Generator] = []  # that ops were given
        self.shared_arrays: list[numpy.ndarray[Any, Any]] = []  # on whose memory tensors lie, too
        self.arrays_are_stale = False  # an op ran since
        self.cleared: list[torch.Tensor] = []  # whose gradient was set to None
        self.clears: dict[int, torch.Tensor] = {}  # the same, and those that had none to clear, by id
        self.histories: list[torch.Tensor] = []  # that a backward may go through, and that ops of others may have made
        self.gradients_set: list[torch.Tensor] = []  # tensors that were given a gradient
        self.data_set: list[torch.Tensor] = []  # and those that were given other data
        self.sets_random_state = False
        self.hooked = False  # a tensor with hooks takes part
        self.written: dict[tuple[int, Any], tuple[Any, Any, Any, str]] = {}
        self.classes_set: dict[tuple[int, str], tuple[type, str, Any, str]] = {}
        self.variables_set: dict[int, tuple[Any, Any]] = {}
        self.handled: BaseException | None = None  # the exception that the caller handles
        self.looking: dict[int, int] = {}  # frame -> instruction that calls C code, which looks into its arguments
        self.readers: dict[types.CodeType, Callable[[FollowedCall, Any], object]] = {}  # of what a function hands back
        self.modes = _graphs.Modes.now()
        self._arguments = [*args, *kwargs.values()]
        for value in self._arguments:
            self._give(value)
        for one in objects:  # that are compared by what they hold
            self.native.give(one)
            for tensor in tensors.tensors_held(one):
                self.native.give(tensor)
                self.see(tensor)

    def is_top_argument(self, value: Any) -> bool:
        return any(one is value for one in self._arguments)

    def _give(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self.native.give(value)
            self.see(value)
        elif type(value) in (list, dict, tuple):
            if type(value) is not tuple:
                self.native.give(value)
            for item in value.values() if type(value) is dict else value:
                self._give(item)

    def run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.handled = sys.exception()
        if _graphs.Follower.is_impossible():
            self.reason = "cannot be followed: a trace function is set (by a debugger or by coverage), or another call"
            return function(*args, **kwargs)
        try:
            from torchreel.guards.calls import invoke

            invoke(self, function, list(args), kwargs)
        except EagerError as error:
            self.reason = str(error)
            return function(*args, **kwargs)
        # What garbage has to say when it goes is no part of the call: finalizers, and callbacks of the collector.
        self._collects = gc.isenabled()
        gc.disable()
        try:
            return self.native.run(function, args, kwargs)
        finally:
            self._collect()

    def _collect(self) -> None:
        if self._collects:
            self._collects = False
            gc.enable()

    # What an object is

    def is_fresh(self, value: Any) -> bool:
        return bool(self.native.is_fresh(value))

    def is_given(self, value: Any) -> bool:
        return bool(self.native.is_given(value))

    def is_outer(self, value: Any) -> bool:
        return type(value) not in PLAIN and not self.is_fresh(value) and not self.is_given(value)

    def make(self, value: Any) -> None:
        """The call made this object."""
        if has_finalizer(value):
            raise EagerError(f"makes a {type(value).__name__}, which has a finalizer")
        self.native.make(value)

    def see(self, tensor: torch.Tensor) -> None:
        """Note the state of a tensor that the call did not make, before ops of the call change it."""
        if id(tensor) not in self.states and not self.is_fresh(tensor):
            self.states[id(tensor)] = state = TensorState(self._originals.get(id(tensor), tensor))
            self.asked.setdefault(id(tensor), (tensor, 0))
            if self.writes is not None:
                return
            self.required.append((tensor, bool(state.bits & TensorState.REQUIRES_GRAD)))
            self._note_version(tensor)
            gradient = gradient_of(tensor)
            if gradient is not None:
                self._note_version(gradient)

    def _note_version(self, tensor: torch.Tensor) -> None:
        if not tensor.is_inference():
            self._versions.setdefault(id(tensor), (tensor, version_of(tensor)))

    def own_tensors(self) -> list[torch.Tensor]:
        """Tensors that were there before the call, and are no arguments."""
        return [tensor for tensor, _ in self.asked.values() if not self.is_given(tensor)]

    def bumps(self) -> dict[int, int]:
        """How often the version of each tensor of others was counted up, by the id of the tensor."""
        return {number: version_of(tensor) - version for number, (tensor, version) in self._versions.items()}

    # Questions to Python's objects

    def guard_entry(self, holder: dict[Any, Any], key: Any, value: Any, path: str = "") -> None:
        if self.is_fresh(holder) or self.is_given(holder) or (id(holder), key) in self.written:
            return
        if self.writes is not None and isinstance(value, torch.Tensor) and _asks_for_a_buffer(self.frame):
            return
        self.checks.entry(holder, key, value, path)
        if self.is_given(value):
            self.note_also(value)

    def _meet(self, value: Any) -> None:
        if self.is_given(value):
            self.note_also(value)

    def note_also(self, value: Any) -> None:
        """An argument is also reached in another way: the two must be one at each call."""
        if not isinstance(value, torch.Tensor):
            raise EagerError(f"finds one of its arguments in {self.checks.path_of(value)} as well")
        self.also.append(value)

    def guard_type(self, kind: type) -> int:
        """What its class has, by name; -1 where that cannot change."""
        if self.is_fresh(kind) or not can_change(kind):
            return -1
        odd = special_of_c(kind)
        if odd:
            raise EagerError(f"uses the class {kind.__qualname__}, whose {odd} is a function of C")
        return self.checks.type_of(kind)

    def guard_class(self, value: Any) -> None:
        """The class of an object, and what the class has."""
        if not isinstance(value, type) and is_heap(type(value)) and self.is_outer(value):
            if isinstance(value, torch.Tensor):
                self.checks.class_of(value, None)
            else:
                self.checks.class_of(value, _graphs.instance_dict(value))  # both can be set
        self.guard_type(type(value))

    def guard_whole(self, value: Any) -> None:
        """All that a container holds, in its order."""
        if type(value) in PLAIN or self.is_fresh(value):
            return
        if self.is_given(value):
            self.guard_type(type(value))
            return
        self._check_hidden(value)
        if any(isinstance(value, base) and iterates_as(value, base) for base in (list, dict, set, frozenset)):
            self.checks.whole(value)
        elif isinstance(value, tuple) and iterates_as(value, tuple):
            pass  # what leads to it knows its items
        elif is_python_class(type(value)) and iterates_in_python(value):
            if isinstance(value, (list, dict, set, frozenset)):
                self.checks.whole(value)  # C code may pass by __iter__, which is followed
        else:
            raise EagerError(f"reads the contents of a {type(value).__name__} that was made before the call")
        self.guard_class(value)

    def _check_hidden(self, value: Any) -> None:
        """Refuse to read a dict to which a recording adds an entry. Only torch's optimizers read past that entry."""
        if id(value) in self.checks.hidden and self.frame.f_globals.get("__name__") != "torch.optim.optimizer":
            raise EagerError("looks into what torchreel changes while it records")

    def guard_true(self, value: Any) -> None:
        """bool(value)"""
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return tensors.read_number(self, value)
        if kind in PLAIN or self.is_fresh(value):
            return None
        if self.is_given(value):
            self.guard_type(kind)
            return None
        self._check_hidden(value)
        if isinstance(value, (list, dict, set, frozenset, tuple)) and _has_length_of_base(value):
            if not isinstance(value, tuple):
                self.checks.length(value)
        elif not is_python_class(kind) and kind not in ALWAYS_TRUE and kind not in OPAQUE:
            raise EagerError(f"asks whether a {kind.__name__} is true")
        self.guard_class(value)  # __bool__ and __len__ of Python are followed
        return None

    def deep(self, value: Any, depth: int = 0) -> None:
        """The value is looked at as a whole, to the bottom: for == and arithmetic, and as an argument of C code."""
        kind = type(value)
        if depth and has_nan(value):
            raise EagerError("looks into a container that has a NaN, which is equal to itself there")
        if isinstance(value, (list, dict, set, tuple, frozenset)):
            if depth > 6:
                raise EagerError("looks into containers of more than six levels")
            self.guard_whole(value)
            for item in list(value.values()) if isinstance(value, dict) else list(value):
                self.deep(item, depth + 1)
        elif kind in PLAIN or isinstance(value, (torch.Tensor, type, types.FunctionType, types.BuiltinFunctionType)):
            if kind is slice:
                self.deep((value.start, value.stop, value.step), depth + 1)
        elif is_python_class(kind):
            if self.is_given(value):
                self.refuse_identity(value)
            self.guard_class(value)
        elif kind in _VIEWS_OF_DICTS and self.is_fresh(value):
            for item in value:
                self.deep(item, depth + 1)
        elif numpy_functions.is_known(self, value):
            if isinstance(value, numpy.ndarray):
                self.shared_arrays.append(value)
        elif kind is torch.Generator:
            self.note_generator(value)
        elif kind not in OPAQUE:
            raise EagerError(f"computes with a {kind.__module__}.{kind.__name__}")

    def note_generator(self, generator: torch.Generator) -> None:
        """An op draws from it."""
        if not self.is_fresh(generator) and all(one is not generator for one in self.generators):
            self.generators.append(generator)

    def needs_identity(self, value: Any, other: Any) -> None:
        """A tensor or container of the arguments is looked up by identity: another call has another one."""
        if self.is_given(value) and self.is_outer(other):
            raise EagerError("compares an argument with, or looks it up in, what was made before the call")

    def refuse_identity(self, value: Any) -> None:
        """An object among the arguments is compared or hashed: where its class leaves that to identity, it may differ.

        Another call may have another object in its place, which holds the same.
        """
        if same_slot(value, object, "__eq__") or same_slot(value, object, "__hash__"):
            raise EagerError("compares one of its arguments by identity, or uses it as a key")

    def check_key(self, key: Any) -> None:
        """A set or dict of the call gets or looks up a key."""
        if has_nan(key):
            raise EagerError("looks up a NaN, which is found by identity")
        for part in key if isinstance(key, tuple) else (key,):
            if self.is_given(part) and not isinstance(part, torch.Tensor):  # Tensor.__hash__ is Python, and followed
                raise EagerError("compares one of its arguments by identity, or uses it as a key")

    def compare_identity(self, tensor: torch.Tensor, other: Any) -> None:
        """`tensor is other`: of an argument, the answer may be another one in another call."""
        if not self.is_given(tensor) or self.is_fresh(other):
            return
        if not self.is_given(other) or any(one is tensor or one is other for one in self.also):
            raise EagerError("asks whether an argument is a tensor that was made before the call")
        self.identities = True

    def frame_function(self, frame: Any) -> Any:
        return _graphs.function_of(frame)

    # Writes

    def store(self, holder: dict[Any, Any], key: Any) -> None:
        """An entry of a dict is about to be set: for `writes`, or if the old value is back when the call ends."""
        if self.is_fresh(holder):
            return
        if self.is_given(holder):
            raise WriteError("writes to one of its arguments")
        if (id(holder), key) not in self.written:
            before = dict.get(holder, key, NULL)
            if self.writes is None:
                self.guard_entry(holder, key, before)
            self.written[id(holder), key] = (holder, key, before, self.line())

    def forget_entry(self, holder: dict[Any, Any], key: Any) -> None:
        """Somebody else knows what is read and written there."""
        self.written.pop((id(holder), key), None)
        self.checks.forget_entry(holder, key)

    def is_of_others(self, tensor: torch.Tensor) -> bool:
        """Whether it lies in the memory of a tensor that was made before the call."""
        return _lies(tensor)[0] in {_lies(one)[0] for one, _ in self.asked.values()}

    def set_data(self, tensor: torch.Tensor, new: torch.Tensor) -> None:
        """tensor.data = new: a tape does it again if ops of the call made the data."""
        others = {_lies(one)[0] for one, _ in self.asked.values() if one is not tensor}
        if self.is_fresh(new) and _lies(new) == _lies(tensor) and _lies(new)[0] not in others:
            return  # tensor.data -= ...
        if not self.is_fresh(new) or self.is_of_others(new):
            raise WriteError("gives a tensor the data of another one (`.data = ...`)")
        self.data_set.append(tensor)

    def store_of_class(self, kind: type, name: str) -> None:
        """An attribute of a class is about to be set. Allowed if the old value is back when the call ends."""
        if is_descriptor(vars(kind).get(name)) or type_lookup(type(kind), "__setattr__") is not _SET_OF_CLASSES:
            raise WriteError(f"sets {kind.__qualname__}.{name}")
        self.guard_type(kind)
        self.classes_set.setdefault((id(kind), name), (kind, name, vars(kind).get(name, NULL), self.line()))

    def use_variable(self, what: str, variable: Any) -> None:
        """A variable of contextvars. It may be set if it is as it was when the call ends."""
        before = variable.get(NULL)
        if id(variable) not in self.variables_set:
            self.checks.ask(f"{variable.name}.get()", type(variable).get, (variable, NULL), before)
            if what != "get":
                self.variables_set[id(variable)] = (variable, before)

    # What the native follower calls

    def op(self, frame: Any, opcode: int, argument: int) -> Callable[[Any], object] | None:
        self.frame = frame
        try:
            return opcodes.RULES[opcode](self, frame, argument)
        except EagerError as error:
            self._refuse(error, frame)
        except Exception as error:  # a rule that fails is a rule that does not know
            self.refuse(f"meets a rule that fails ({type(error).__name__}: {error})", frame)
        return None

    def result(self, told: Callable[[Any], object], value: Any) -> None:
        try:
            told(value)
        except EagerError as error:
            self._refuse(error, self.frame)
        except Exception as error:
            self.refuse(f"meets a rule that fails ({type(error).__name__}: {error})", self.frame)

    def enter_own(self, frame: Any) -> None:
        """Python of torchreel's own runs, which is not followed."""
        if frame.f_code.co_name == "swap" and frame.f_code.co_filename == _SWAPPING:
            self._refuse(WriteError(_SWAPS), frame.f_back)
        if not frame.f_code.co_filename.startswith(_UNSEEN):
            return
        self.refuse("calls torchreel itself, whose effects a replay would not have", frame.f_back)

    def enter(self, function: Any, frame: Any) -> None:
        """A function that was made before the call runs."""
        self.frame = frame
        if type(function) is not types.FunctionType:
            return
        try:
            if frame.f_code is _SWAP:
                raise WriteError(_SWAPS)
            self.checks.function(function, self._codes.get(function, function.__code__))
            if function.__kwdefaults__:
                self.guard_whole(function.__kwdefaults__)
        except EagerError as error:
            self._refuse(error, frame)

    def adopt(self, value: Any) -> None:
        """What autograd hands to a hook or to a function of Python, it made just now."""
        for one in value if type(value) is tuple else (value,):
            if isinstance(one, torch.Tensor):
                if id(one) not in self.states:
                    self.native.make(one)
            elif isinstance(one, FunctionBase):
                self.native.make(one)

    def _refuse(self, error: EagerError, frame: Any) -> None:
        self.is_write = self.is_write or (isinstance(error, WriteError) and not self.reason)
        self.refuse(str(error), frame)

    def refuse(self, why: str, frame: Any) -> None:
        if not self.reason:
            self.frame = frame or self.frame
            self.reason = f"{why} ({self.line()})"
        self.frame = None  # its variables are to go when they do without us
        self.native.stop()
        self._collect()

    def line(self) -> str:
        frame = self.frame
        return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "at its call"

    # The end

    def finish(self, result: Any, has_backward: bool) -> None:
        """Look at what the call leaves: sets `reason` if a replay would not leave the same."""
        if self.reason:
            why = changed_until(self)
            if why:
                self.reason, self.is_write = why, True
            return
        ending = Ending(self)
        self.reason = ending.why_not_left(result)
        self.is_write = bool(self.reason)
        self.reason = self.reason or ending.why_not_returned(result)
        self.is_write = self.is_write or (bool(self.done) and "in two places" in self.reason)
        if self.writes is None and not self.reason and self.hooked and not has_backward and _requires_grad(result):
            self.reason = "uses a tensor that has hooks, and its backward is not part of the call"

    def has_history(self, tensor: torch.Tensor) -> bool:
        """An argument that ops of others made, and for which a leaf stands while the call is recorded."""
        return self.is_given(tensor) and bool(self.states[id(tensor)].bits & TensorState.GRAD_FN)

    def note_histories(self, roots: Any) -> None:
        """A backward is run: note tensors with a history that no op of this call is known to have made."""
        found = [tensor for tensor, _ in self.asked.values() if self.states[id(tensor)].bits & TensorState.GRAD_FN]
        found += [tensor for tensor in tensors.tensors_in(roots) if tensor.grad_fn is not None]
        self.histories += [tensor for tensor in found if not self.is_fresh(tensor)]

    def arguments_have_history(self) -> bool:
        return any(self.has_history(tensor) for tensor, _ in list(self.asked.values()) if self.is_given(tensor))

    def seal(self, arguments: list[torch.Tensor], copied: Iterable[type] = ()) -> None:
        """Write the guards: `sealed`, or else `reason` is set. Lets go of everything that the call made.

        `copied` are classes of objects that were copied since, which leaves a mark in them.
        """
        try:
            for kind in filter(is_python_class, copied):
                self.checks.renew_types(kind)
            if not self.reason:
                self.sealed = self._guards()
                self.questions = self._questions_to(arguments)
        except EagerError as error:
            self.reason, self.is_write = str(error), isinstance(error, WriteError)
        finally:
            self.close()

    def close(self) -> None:
        self.native.close()
        self.checks = Checks()
        self.frame = None
        self.states, self.asked, self.written, self.variables_set, self.classes_set = {}, {}, {}, {}, {}
        self.readers, self.looking, self.shared_arrays, self._versions = {}, {}, [], {}
        self.required, self._arguments, self.clears, self.histories = [], [], {}, []
        self.gradients_set, self.data_set = [], []

    def _guards(self) -> _graphs.PythonGuards:
        """Raises EagerError if a guard cannot be written, or does not hold: then the call changes what it reads."""
        outer = [
            (tensor, mask, self.states[id(tensor)])
            for tensor, mask in self.asked.values()
            if mask and not self.is_given(tensor)
        ]
        native = self.checks.write(outer)
        if not native.seal():
            differences = native.differences()
            path = differences[0][0] if differences else "something"
            raise WriteError(f"changes what it reads in Python, and a replay would not: {path}")
        return native

    def _questions_to(self, arguments: list[torch.Tensor]) -> list[tuple[int, int]]:
        """What each tensor among the arguments was asked, as a mask, and what it answered when the call began."""
        return [
            (self.asked[id(tensor)][1], self.states[id(tensor)].bits) if id(tensor) in self.asked else (0, 0)
            for tensor in arguments
        ]


def _asks_for_a_buffer(frame: Any) -> bool:
    """Whether register_buffer() asks if there is one of that name, and not which."""
    if frame is None or frame.f_code is not torch.nn.Module.__getattr__.__code__ or frame.f_back is None:
        return False
    return frame.f_back.f_code is torch.nn.Module.register_buffer.__code__


def _lies(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return (id(tensor),)
    return storage_address(tensor.untyped_storage()), tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _has_length_of_base(value: Any) -> bool:
    return _graphs.type_lookup(type(value), "__bool__") is NULL and not isinstance(
        _graphs.type_lookup(type(value), "__len__"), types.FunctionType
    )


def _requires_grad(result: Any) -> bool:
    return any(tensor.requires_grad for tensor in tensors.tensors_in(result))
