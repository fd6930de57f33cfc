"""Methods of torch that do more while a function is traced: what they do in Python leaves no op on the tape.

- Optimizer.zero_grad and nn.Module.zero_grad: which tensors have their gradients cleared, and when. `p.grad = None` by
  hand is not seen.
- Tensor.__reduce_ex__ and Tensor.__dlpack__: tensors whose bytes leave torch, pickled or handed to another library.
  What comes back is a constant to the tape, so a replay must find the same bytes going out.
- Schedulers of the learning rate: whether one takes a step.

The code of these methods is exchanged, not the methods: what Python has cached of a class stays valid, and so does what
others imported. The exchanged code runs with the globals of torch, so each function here imports this module.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch.optim import lr_scheduler

from torchreel._torch.modules import update_learning_rate

cleared = False  # whether gradients were cleared
# Tensors by id, each with the number of ops that the capture had when its gradient was first cleared.
first_cleared: dict[int, int] = {}
scheduled = False  # whether a scheduler took a step
capture: Any = None  # the one that goes on


def begin() -> None:
    """Forget what an earlier trace has seen."""
    global cleared, first_cleared, scheduled
    cleared = scheduled = False
    first_cleared = {}


# Gradients


def _module_zero_grad(self, set_to_none=True):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import python_hooks

    python_hooks.note_cleared(self.parameters(), set_to_none)
    python_hooks.ORIGINALS["_module_zero_grad"](self, set_to_none)


def _optimizer_zero_grad(self, set_to_none=True):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import python_hooks

    python_hooks.note_cleared((p for group in self.param_groups for p in group["params"]), set_to_none)
    python_hooks.ORIGINALS["_optimizer_zero_grad"](self, set_to_none)


def note_cleared(parameters: Any, set_to_none: bool) -> None:
    """Setting a gradient to zero is an op, which needs a gradient to be there: only None is noted."""
    global cleared
    cleared = True
    if not set_to_none or capture is None:
        return
    count = capture.op_count
    for parameter in parameters:
        first_cleared.setdefault(id(parameter), count)


# Bytes


def _reduce(self, proto):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import python_hooks

    python_hooks.note_bytes(self)
    return python_hooks.ORIGINALS["_reduce"](self, proto)


def _dlpack(self, *, stream=-1, max_version=None, dl_device=None, copy=None):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import python_hooks

    python_hooks.note_bytes(self)
    original = python_hooks.ORIGINALS["_dlpack"]
    return original(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)


def note_bytes(tensor: torch.Tensor) -> None:
    """Call a method that the tape watches: numpy() or tolist()."""
    if tensor.layout != torch.strided or not tensor.is_cpu or tensor.is_nested or tensor.is_quantized:
        return
    plain = tensor.detach().resolve_conj().resolve_neg()
    try:
        plain.numpy()
    except TypeError:  # a dtype that NumPy does not have
        plain.tolist()


# Schedulers of the learning rate


def _update_learning_rate(self, epoch=None):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import python_hooks

    python_hooks.scheduled = True
    python_hooks.ORIGINALS["_update_learning_rate"](self, epoch)


def _step_on_plateau(self, metrics, epoch=None):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import python_hooks

    python_hooks.scheduled = True
    python_hooks.ORIGINALS["_step_on_plateau"](self, metrics, epoch)


def _step_with_restarts(self, epoch=None):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import python_hooks

    python_hooks.scheduled = True
    python_hooks.ORIGINALS["_step_with_restarts"](self, epoch)


# The exchange of code


def _copy_of(function: Any) -> Any:
    """The function as it is, to be called by the code that stands in its place."""
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


# Each a method of torch, and one of ours with the same parameters and no closure.
_EXCHANGED: list[tuple[Any, Any]] = [
    (torch.Tensor.__reduce_ex__, _reduce),
    (torch.Tensor.__dlpack__, _dlpack),
    (torch.nn.Module.zero_grad, _module_zero_grad),
    (torch.optim.Optimizer.zero_grad.__wrapped__, _optimizer_zero_grad),
    (update_learning_rate, _update_learning_rate),  # all other schedulers come to this one
    (lr_scheduler.ReduceLROnPlateau.step, _step_on_plateau),
    (lr_scheduler.CosineAnnealingWarmRestarts.step, _step_with_restarts),
]
ORIGINALS = {ours.__name__: _copy_of(theirs) for theirs, ours in _EXCHANGED}
_CODES = [(theirs, ours.__code__, theirs.__code__) for theirs, ours in _EXCHANGED]


def switch(on: bool) -> None:
    for function, ours, theirs in _CODES:
        function.__code__ = ours if on else theirs


def exchanged_codes() -> dict[Any, types.CodeType]:
    """The methods whose code is exchanged, and their own code."""
    return {function: theirs for function, _, theirs in _CODES}
