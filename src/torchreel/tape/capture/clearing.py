"""Which tensors have their gradients cleared by a function, and when: setting `.grad` to None is no op.

Optimizer.zero_grad and nn.Module.zero_grad are seen; `p.grad = None` by hand is not.
"""

from __future__ import annotations

from typing import Any

import torch

from torchreel.tape.capture.exchange import copy_of

cleared = False
capture: Any = None
# Tensors by id, each with the number of records that the capture had when it was first cleared.
first: dict[int, int] = {}


def _zero_grad(self, set_to_none=True):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import clearing

    clearing.note(self.parameters(), set_to_none)
    clearing._originals[0](self, set_to_none)


def _optimizer_zero_grad(self, set_to_none=True):  # type: ignore[no-untyped-def]
    from torchreel.tape.capture import clearing

    clearing.note((p for group in self.param_groups for p in group["params"]), set_to_none)
    clearing._originals[1](self, set_to_none)


def note(parameters: Any, set_to_none: bool) -> None:
    """To zero is not to None: that is an op, which needs a gradient to be there."""
    global cleared
    cleared = True
    if not set_to_none or capture is None:
        return
    count = capture.op_count
    for parameter in parameters:
        first.setdefault(id(parameter), count)


_methods: list[Any] = [torch.nn.Module.zero_grad, torch.optim.Optimizer.zero_grad.__wrapped__]
_originals = [copy_of(method) for method in _methods]
EXCHANGED: list[tuple[Any, Any]] = list(zip(_methods, (_zero_grad, _optimizer_zero_grad), strict=True))
