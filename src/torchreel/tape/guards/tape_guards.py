"""All that a tape takes for granted of Python, from the moment before the function was called."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from torchreel._torch.autograd import accumulate_hooks, backward_hooks
from torchreel._torch.modules import GLOBAL_MODULE_HOOKS, GLOBAL_STEP_POST_HOOKS, GLOBAL_STEP_PRE_HOOKS
from torchreel.errors import GuardError
from torchreel.tape.capture import python_hooks
from torchreel.tape.capture.results.effects import Effect
from torchreel.tape.capture.results.result_forms import ResultForms
from torchreel.tape.capture.session import Session
from torchreel.tape.guards.leaves import External, Leaves
from torchreel.tape.guards.module_guards import ModuleGuards
from torchreel.tape.guards.optimizer_guards import OptimizerGuards
from torchreel.tape.guards.proof import Proof
from torchreel.tape.guards.questions import Questions
from torchreel.tape.guards.surroundings.surroundings import Surroundings

_OPTIMIZER_HOOKS = (GLOBAL_STEP_PRE_HOOKS, GLOBAL_STEP_POST_HOOKS)


class TapeGuards:
    """Made before the function is called; `end` after it; `check` before each replay."""

    def __init__(self, surroundings: Surroundings | None, inputs: Iterable[torch.Tensor]) -> None:
        """A block has no `surroundings`: its guards are on modules that were called and optimizers that stepped."""
        self._surroundings = surroundings
        self._dtype = torch.get_default_dtype()
        self._module_hooks = _hooks_in(GLOBAL_MODULE_HOOKS)
        self._optimizer_hooks = _hooks_in(_OPTIMIZER_HOOKS)
        self._steps = False
        named = surroundings.modules if surroundings is not None else []
        self._modules = [ModuleGuards(name, module) for name, module in named if _is_python(module)]
        given = list(inputs)
        self._questions = Questions(surroundings.names if surroundings is not None else (), given)
        self.leaves = Leaves([*given, *self._leaves()])
        self._optimizers: list[OptimizerGuards] = []
        self._flags: list[tuple[torch.Tensor, bool, tuple[Any, ...]]] = []
        self._unused: list[tuple[torch.Tensor, bool]] = []
        self._effects: list[Effect] = []
        self._without_gradients = _WithoutGradients(())
        self.refusal = ""
        self.proof: Proof | None = None  # of a function that was followed

    def end(self, session: Session, forms: ResultForms) -> None:
        """When the session has ended."""
        externals = session.capture.tensors_from_outside()
        used = {id(tensor) for _, tensor in externals}
        names: dict[int, str] = {}
        if self._surroundings is not None:
            self._note_unused(session.capture.gradients_read, used)
            given = {slot for slot, tensor in externals} - set(session.capture.input_slots)
            self.refusal = self._surroundings.end(
                lambda tensor: id(tensor) in used, lambda tensor: _slot_of(session.capture, tensor, given)
            )
            self._effects = self._surroundings.effects
            if self.proof is not None and self.proof.is_whole:
                self._effects = self.proof.effects(session.capture.find, forms)
            if self.proof is not None:
                self.refusal = self.refusal or self.proof.refusal
            names = {id(optimizer): name for name, optimizer in self._surroundings.optimizers()}
            for module in self._modules:
                self.refusal = module.end(lambda tensor: id(tensor) in used) or self.refusal
        known = {guarded.module for guarded in self._modules}
        self._modules += [
            ModuleGuards(type(module).__name__, module)
            for module in session.capture.modules()
            if id(module) not in known and _is_python(module)  # no name leads to it
        ]
        self._steps = bool(session.steps)
        self.refusal = self.refusal or _optimizer_refusal(session)
        asks = self._surroundings is not None and "_version" in self._surroundings.names
        if asks and session.capture.version_read:
            self.refusal = self.refusal or (
                "The function asked for the _version of a tensor, which is another number at each call: do not ask "
                "for it in what is traced."
            )
        for step in session.steps:
            optimizer = step.optimizer()
            if optimizer is not None:
                name = names.get(id(optimizer), type(optimizer).__name__)
                self._optimizers.append(OptimizerGuards(name, optimizer))
        self._without_gradients = _WithoutGradients(self._without_ops(session, used))
        self._flags = [(tensor, tensor.requires_grad, _hooks_of(tensor)) for tensor in self._used_leaves(externals)]
        self.leaves.end(externals, python_hooks.first_cleared, session.capture)

    def effects(self) -> list[Effect]:
        """What the function left in Python."""
        return self._effects

    def renumbered(self, slots: dict[int, int]) -> TapeGuards:
        """The same for a program with other numbers for its slots."""
        other = copy.copy(self)
        other.leaves = self.leaves.renumbered(slots)
        other._effects = [replace(each, slots=tuple(slots[slot] for slot in each.slots)) for each in self._effects]
        return other

    def _note_unused(self, read: set[int], used: set[int]) -> None:
        """Tensors whose gradient Python looked at, though no op has them: whether they have one."""
        for _, tensor in self._tensors() if not read <= used else ():
            if id(tensor) in read and id(tensor) not in used:
                self._unused.append((tensor, tensor.grad is not None))

    def _without_ops(self, session: Session, used: set[int]) -> Iterator[torch.Tensor]:
        """Tensors that no op has, whose gradients the function clears, or that an optimizer held which took a step."""
        if self.proof is not None:
            yield from (tensor for tensor in self.proof.cleared if id(tensor) not in used)
        cleared = {*session.capture.gradients_set, *python_hooks.first_cleared}
        for _, tensor in self._tensors() if not cleared <= used else ():
            if id(tensor) in cleared and id(tensor) not in used:
                yield tensor
        for step in session.steps:
            for group in getattr(step.optimizer(), "param_groups", ()):
                yield from (tensor for tensor in group["params"] if id(tensor) not in used)

    def _leaves(self) -> Iterator[torch.Tensor]:
        for _, tensor in self._tensors():
            yield tensor
        for _, optimizer in self._surroundings.optimizers() if self._surroundings is not None else ():
            for group in optimizer.param_groups:
                yield from group["params"]

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for guarded in self._modules:
            yield from guarded.tensors()
        if self._surroundings is not None:
            yield from self._surroundings.tensors()

    def tensors(self) -> Iterator[torch.Tensor]:
        """The guarded tensors that have names."""
        return (tensor for _, tensor in self._tensors())

    def _used_leaves(self, externals: list[External]) -> list[torch.Tensor]:
        """Leaves that somebody else holds as well: a tensor that only the tape holds must not be held here."""
        if self._surroundings is None:
            return [tensor for _, tensor in externals if type(tensor) is torch.nn.Parameter]
        used = {id(tensor) for _, tensor in externals}
        return [tensor for _, tensor in self._tensors() if id(tensor) in used]

    def _name(self, tensor: torch.Tensor) -> str:
        return next((name for name, other in self._tensors() if other is tensor), "A parameter")

    def check(self) -> None:
        """Raises a GuardError that says what is not as it was."""
        if torch.get_default_dtype() is not self._dtype:
            raise GuardError(
                f"The default dtype was {self._dtype} when the tape was made, and is {torch.get_default_dtype()} now: "
                "trace again."
            )
        stepped_otherwise = self._steps and _hooks_in(_OPTIMIZER_HOOKS) != self._optimizer_hooks
        if stepped_otherwise or _hooks_in(GLOBAL_MODULE_HOOKS) != self._module_hooks:
            raise GuardError(
                "A hook for all modules or all optimizers has been added or removed since the tape was made, and a "
                "replay calls no hooks: trace again."
            )
        for guarded in self._modules:
            guarded.check()
        if self._surroundings is not None and (self.proof is None or not self.proof.holds()):
            self._surroundings.check()
        for optimizer in self._optimizers:
            optimizer.check()
        self._without_gradients.check(self._name)
        self._check_flags()
        if self.proof is not None:
            self.proof.check()

    def check_inputs(self, names: list[str], inputs: list[torch.Tensor]) -> None:
        """Raises a GuardError if the function would hear another answer to what it asks of its inputs."""
        self._questions.check(names, inputs)

    def _check_flags(self) -> None:
        for tensor, had in self._unused:
            if had is not (tensor.grad is not None):
                was, now = ("had a", "has none") if had else ("had no", "has one")
                raise GuardError(
                    f"{self._name(tensor)} {was} gradient when the tape was made, and {now} now, and the function "
                    "looked at it: trace again."
                )
        for tensor, requires_grad, hooks in self._flags:
            if tensor.requires_grad is not requires_grad:
                was, now = ("required", "does not") if requires_grad else ("did not require", "does")
                raise GuardError(
                    f"{self._name(tensor)} {was} a gradient when the tape was made, and {now} now: trace again."
                )
            if _hooks_of(tensor) != hooks:
                raise GuardError(
                    f"A hook of {self._name(tensor)} has been added or removed since the tape was made, and a replay "
                    "calls no hooks: trace again."
                )


def _is_python(module: torch.nn.Module) -> bool:
    """A scripted module is an object of C++, and its call is not followed."""
    return not isinstance(module, torch.jit.ScriptModule)


def _slot_of(capture: Any, tensor: torch.Tensor, state: set[int]) -> int:
    """The slot of a tensor that an op made or that is an input; else -1."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return -1
    slot = int(capture.find(tensor))
    return -1 if slot in state else slot


def _hooks_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    own = backward_hooks(tensor)
    after = accumulate_hooks(tensor)
    return (*(own or {}).values(), *(after or {}).values()) if own or after else ()


def _hooks_in(tables: Iterable[dict[Any, Any]]) -> list[tuple[int, ...]]:
    return [tuple(id(hook) for key, hook in hooks.items() if key != "torchreel") for hooks in tables]


def _optimizer_refusal(session: Session) -> str:
    for step in session.steps:
        changed = step.changed_numbers()
        if changed:
            return (
                f"The optimizer {changed[0]} keeps {changed[1]!r} as a number of Python, which a step changed from "
                f"{changed[2]!r} to {changed[3]!r} and a replay would not: keep it in a tensor, and trace again."
            )
    return ""


class _WithoutGradients:
    """Tensors that no op reads and that had no gradient, but that the function clears or its optimizers hold."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._tensors = list({id(tensor): tensor for tensor in tensors if tensor.grad is None}.values())

    def check(self, name: Callable[[torch.Tensor], str]) -> None:
        """Raises a GuardError if one has a gradient now."""
        for tensor in self._tensors:
            if tensor.is_leaf and tensor.grad is not None:
                raise GuardError(
                    f"{name(tensor)} has a gradient now, and no op of the tape reads that tensor, but the "
                    "function would clear the gradient, or its optimizer take a step by it: set it to None, or trace "
                    "again."
                )
