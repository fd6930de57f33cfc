"""Work of ours on tensors, which is no part of what the user runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Ops within are seen by no mode and no tape, and give plain tensors, whatever the caller has switched on."""
    tape = torch._C.DispatchKeySet(torch._C._parse_dispatch_key("Fake"))
    with (
        torch._C.DisableTorchFunction(),
        _disable_current_modes(),
        torch._C._ExcludeDispatchKeyGuard(tape),
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        yield


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Ops of this thread are seen by no profiler and no recorder."""
    torch._C._autograd._enable_record_function(False)
    try:
        yield
    finally:
        torch._C._autograd._enable_record_function(True)
