"""Work of ours on tensors, which is no part of what the user runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from torchreel._torch import dispatch
from torchreel._torch.autograd import enable_record_function


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Ops within are seen by no mode and no tape, and give plain tensors, whatever the caller has switched on."""
    with (
        dispatch.disable_torch_function(),
        dispatch.disable_dispatch_modes(),
        dispatch.exclude_keys(dispatch.TAPE_KEYS),
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        yield


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Ops of this thread are seen by no profiler and no recorder."""
    enable_record_function(False)
    try:
        yield
    finally:
        enable_record_function(True)
