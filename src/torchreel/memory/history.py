"""The history of memory: every alloc and free from now on, with the stacks that made them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence

import torch

from torchreel import _core
from torchreel.errors import OptionError
from torchreel.record.old_blocks import living_blocks

# The actions of torch 2.13's history, in the order of native/history.h, and those that only CUDA has.
_ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "snapshot", "oom")
_CUDA_ACTIONS = ("segment_map", "segment_unmap")
_CONTEXTS = (None, "state", "alloc", "all")

OutOfMemoryCallback = Callable[[str, int, int, int], object]
_oom_callbacks: list[OutOfMemoryCallback] = []
_calling_back = threading.local()


def record_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "python",
    max_entries: int = sys.maxsize,
    clear_history: bool = False,
    annotations: bool = True,
    skip_actions: Sequence[str] = (),
) -> None:
    """Keep a history of memory for snapshots: of CPU tensors, and of CUDA's where there is CUDA.

    enabled        "all": every event; "state": only the stacks of what is alive; None: stop, and forget all of it
    context        stacks of what: None, "state" (living blocks), "alloc" (allocs too) or "all" (frees too)
    stacks         "python", or "all" for C++ frames before the Python ones, which costs a few microseconds each
    max_entries    the most events that are kept: the oldest are overwritten, counted, and said to be lost
    clear_history  forget what was kept before
    annotations    keep the beginnings and ends of ranges (torchreel.range, record_function) of all threads
    skip_actions   events not to keep: alloc, free_requested, free_completed, segment_alloc, segment_free,
                   segment_map, segment_unmap, snapshot, oom
    """
    if isinstance(enabled, bool):
        enabled = "all" if enabled else None
    if enabled not in (None, "state", "all"):
        raise OptionError(f"enabled={enabled!r} is not known: it is 'all', 'state' or None.")
    if context not in _CONTEXTS:
        raise OptionError(f"context={context!r} is not known: it is 'all', 'alloc', 'state' or None.")
    if stacks not in ("python", "all"):
        raise OptionError(f"stacks={stacks!r} is not known: it is 'python' or 'all'.")
    if isinstance(max_entries, bool) or not isinstance(max_entries, int) or max_entries < 1:
        raise OptionError(f"max_entries={max_entries!r} is not a number of events: give at least 1.")
    if isinstance(skip_actions, str):
        raise OptionError(f"skip_actions={skip_actions!r} is a text: give a list of actions, like [{skip_actions!r}].")
    if not isinstance(skip_actions, Iterable):
        raise OptionError(f"skip_actions={skip_actions!r} is not a list of actions.")
    for action in skip_actions:
        if action not in _ACTIONS and action not in _CUDA_ACTIONS:
            known = ", ".join((*_ACTIONS, *_CUDA_ACTIONS))
            raise OptionError(f"skip_actions has {action!r}, which is not an action: they are {known}.")
    if torch.cuda.is_available():
        torch.cuda.memory._record_memory_history(
            enabled,
            context,
            stacks,
            max_entries,
            clear_history=clear_history,
            global_record_annotations=annotations,
            skip_actions=list(skip_actions) or None,
        )
    if enabled is None:
        _core.stop_history()
        return
    skipped = sum(1 << index for index, action in enumerate(_ACTIONS) if action in skip_actions)
    was_on = _core.history_on()
    most = min(max_entries, sys.maxsize)
    _core.start_history(
        enabled == "all", _CONTEXTS.index(context), stacks == "all", most, skipped, annotations, clear_history
    )
    if not was_on or clear_history:
        for address, size, _category in living_blocks():
            _core.add_old_block(address, size)


def set_metadata(text: str) -> None:
    """A text that is kept with every later event of this thread; "" for none."""
    if not isinstance(text, str):
        raise OptionError(f"set_metadata takes a text, not {type(text).__name__}.")
    if not text.isascii():
        text = text.encode(errors="replace").decode()  # halves of surrogate pairs are in no file
    _core.set_memory_metadata(text)
    if torch.cuda.is_available():
        torch.cuda.memory._set_memory_metadata(text)


def on_out_of_memory(callback: OutOfMemoryCallback) -> None:
    """Call `callback(device, asked, allocated, free)`, in bytes, when there is no memory, before the error.

    It is a good place for dump(). What it raises is printed, and does not replace the error.
    """
    if not callable(callback):
        raise OptionError(f"on_out_of_memory takes a function of (device, asked, allocated, free), not {callback!r}.")
    if not _oom_callbacks:
        _core.on_out_of_memory(_call_back)
    _oom_callbacks.append(callback)
    if torch.cuda.is_available():
        torch._C._cuda_attach_out_of_memory_observer(
            lambda device, asked, allocated, free: callback(f"cuda:{device}", asked, allocated, free)
        )


def _call_back(asked: int, allocated: int, free: int) -> None:
    if getattr(_calling_back, "now", False):
        return  # a callback that finds no memory itself
    _calling_back.now = True
    try:
        for callback in list(_oom_callbacks):
            try:
                callback("cpu", asked, allocated, free)
            except Exception:
                sys.excepthook(*sys.exc_info())
    finally:
        _calling_back.now = False
