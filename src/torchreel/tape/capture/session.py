"""What is switched on while a function is traced, and switched off again whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from torchreel import _tape
from torchreel._torch.dispatch import TAPE_KEY, fake_tensor_mode, higher_order_ops
from torchreel._torch.modules import GLOBAL_STEP_PRE_HOOKS, MODULE_CALL, step_pre_hooks
from torchreel.errors import TraceError
from torchreel.guards.checks import Checks
from torchreel.tape.capture import compiled, python_hooks, threads
from torchreel.tape.capture.numbers import Use
from torchreel.tape.capture.optimizers import code as optimizer_code
from torchreel.tape.capture.optimizers.code import Count, Rate
from torchreel.tape.capture.optimizers.optimizers import StepTaken

_one_at_a_time = threading.Lock()
_prepared = 0
_HOOK = "torchreel"
_SWITCHES = (_tape.watch_escapes, python_hooks.switch, threads.follow)


class Session:
    """One trace, from its start to its end."""

    def __init__(self, inputs: list[torch.Tensor], hashes: bool, follows_numbers: bool = False) -> None:
        self.steps: list[StepTaken] = []
        self.uses: list[Use] = []
        self.checks: Checks | None = None  # guards on what the function reads, if its call is followed
        self.is_function = False  # False for a block, whose reads in Python are not known
        self.escaped: set[int] = set()  # records of numbers that Python used where none is followed
        self.counts: list[Count | Rate] = []
        self.cleared = False
        self.scheduled = False
        self.regions: list[Any] = []
        _check(inputs)
        if not _one_at_a_time.acquire(blocking=False):
            raise TraceError("A tape is being made already, and there is one at a time: end that one first.")
        self._undo: list[Callable[[], object]] = [_one_at_a_time.release]
        try:
            self._switch_on()
            self.capture = _tape.Capture(inputs, hashes)
            python_hooks.capture = self.capture
            if follows_numbers:
                self._undo.append(optimizer_code.follow(self))
        except BaseException:
            self._switch_off()
            raise

    def _switch_on(self) -> None:
        _prepare()
        python_hooks.begin()
        self._undo.append(_unwatch)
        for switch in _SWITCHES:
            switch(True)
        # As register_optimizer_step_pre_hook() does, without what it makes for each hook.
        GLOBAL_STEP_PRE_HOOKS[_HOOK] = self._on_step
        self._undo.append(_unhook)
        self._undo.append(compiled.watch(self.regions))

    def end(self, results: list[torch.Tensor]) -> list[int]:
        """Stop, and give the slots of the results."""
        try:
            slots: list[int] = self.capture.end(results)
        finally:
            self._switch_off()
        self.cleared = python_hooks.cleared
        python_hooks.capture = None
        self.scheduled = python_hooks.scheduled
        return slots

    def hidden(self) -> dict[int, str]:
        """Dicts of torch in which a trace has an entry of its own: id -> key."""
        return {id(GLOBAL_STEP_PRE_HOOKS): _HOOK}

    def exchanged(self) -> dict[Any, Any]:
        """Functions of torch whose code is exchanged during a trace, and their own code."""
        return python_hooks.exchanged_codes()

    def _switch_off(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _on_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        step = StepTaken(optimizer)
        # A closure, or a hook, may read the learning rate itself.
        is_alone = not args[1:] and kwargs.get("closure") is None and not step_pre_hooks(optimizer)
        if self.is_function and step.is_torchs and is_alone and list(GLOBAL_STEP_PRE_HOOKS) == [_HOOK]:
            step.free_rates = {
                index for index, group in enumerate(optimizer.param_groups) if not self._was_read(group, "lr")
            }
        self.steps.append(step)

    def _was_read(self, holder: dict[str, Any], key: str) -> bool:
        return self.checks is not None and self.checks.has_entry(holder, key)

    def forget_read(self, holder: dict[str, Any], key: str) -> None:
        """The tape itself knows what was read there since the optimizer's step began."""
        if self.checks is not None:
            self.checks.forget_entry(holder, key)


def _unwatch() -> None:
    for switch in _SWITCHES:
        switch(False)


def _unhook() -> None:
    del GLOBAL_STEP_PRE_HOOKS[_HOOK]


def _check(inputs: list[torch.Tensor]) -> None:
    if fake_tensor_mode() is not None or any(type(tensor).__name__ == "FakeTensor" for tensor in inputs):
        raise TraceError(
            "Fake tensors have no values, so there is nothing to replay: trace with real tensors, outside of "
            "FakeTensorMode and of torch.export."
        )
    if torch.compiler.is_compiling():
        raise TraceError(
            "A tape cannot be made inside of torch.compile: trace the function that calls the compiled one."
        )


def _prepare() -> None:
    """Once, and again when there are new ones: higher order operators let the tape see the ops within them."""
    global _prepared
    if _prepared == len(higher_order_ops):
        return
    if _prepared == 0:
        _tape.set_module_call(MODULE_CALL)
        torch.get_device_module("cuda")  # fork_rng() does at its first use, which would leave a mark in torch's cache
    for operator in higher_order_ops.values():
        operator.fallthrough(TAPE_KEY)
    _prepared = len(higher_order_ops)
