"""Whether a function clears gradients itself: nn.Module.zero_grad is no op, and leaves no other trace.

Optimizer.zero_grad announces itself as a range of the profiler, which the capture sees.
"""

from __future__ import annotations

from typing import Any

import torch

from torchreel.tape.exchange import copy_of

cleared = False


def _zero_grad(self, set_to_none=True):  # type: ignore[no-untyped-def]
    from torchreel.tape import clearing

    clearing.cleared = True
    clearing._original(self, set_to_none)


_original = copy_of(torch.nn.Module.zero_grad)
EXCHANGED: list[tuple[Any, Any]] = [(torch.nn.Module.zero_grad, _zero_grad)]
