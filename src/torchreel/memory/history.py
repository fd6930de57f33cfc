"""The history of memory: every alloc and free from now on, with the stacks that made them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from torchreel import _core
from torchreel._torch import memory as cuda_memory
from torchreel.errors import OptionError
from torchreel.record.old_blocks import living_blocks

# The actions of torch 2.13's history, in the order of native/memory/history.h.
_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "snapshot",
    "oom",
    "segment_map",
    "segment_unmap",
)
_CONTEXTS = (None, "state", "alloc", "all")

OutOfMemoryCallback = Callable[[str, int, int, int], object]
_oom_callbacks: list[OutOfMemoryCallback] = []
_calling_back = threading.local()


def record_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "python",
    max_entries: int = sys.maxsize,
    device: torch.device | str | int | None = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool | None = None,
    skip_actions: Sequence[str] | None = None,
    *,
    annotations: bool = True,
    forward_frames: bool = False,
) -> None:
    """Keep a history of memory for snapshots: of CPU tensors, and of CUDA's where there is CUDA.

    enabled          "all": every event; "state": only the stacks of what is alive; None: stop, and forget all of it
    context          stacks of what: None, "state" (living blocks), "alloc" (allocs too) or "all" (frees too)
    stacks           "python", or "all" for C++ frames before the Python ones, which costs a few microseconds each
    max_entries      the most events that are kept: the oldest are overwritten, counted, and said to be lost
    device           taken as torch takes it: the history is always of all devices
    clear_history    forget what was kept before
    compile_context  keep the compiled region that an event is in. Torch calls an observer for each op then
    global_record_annotations  False: keep the ranges of the calling thread alone; True, or nothing: of all threads
    skip_actions     events not to keep: alloc, free_requested, free_completed, segment_alloc, segment_free,
                     segment_map, segment_unmap, snapshot, oom
    annotations      keep the beginnings and ends of ranges (torchreel.range, record_function)
    forward_frames   keep the lines of the forward call with what its backward allocates, without anomaly detection.
                     Each differentiable call has its stack walked then
    """
    options = _Options(
        enabled=("all" if enabled else None) if isinstance(enabled, bool) else enabled,
        context=context,
        stacks=stacks,
        max_entries=max_entries,
        clear=clear_history,
        regions=compile_context,
        all_annotations=global_record_annotations,
        skipped=[] if skip_actions is None else skip_actions,
        annotations=annotations,
        forwards=forward_frames,
    )
    _check_device(device)
    options.check()
    if torch.cuda.is_available():
        options.start_cuda()
    options.start_cpu()


@dataclass(frozen=True)
class _Options:
    """The arguments of record_history()."""

    enabled: str | None
    context: str | None
    stacks: str
    max_entries: int
    clear: bool
    regions: bool
    all_annotations: bool | None
    skipped: Sequence[str]
    annotations: bool
    forwards: bool

    def check(self) -> None:
        _check_choices(self.enabled, self.context, self.stacks)
        _check_switches(
            clear_history=self.clear,
            compile_context=self.regions,
            global_record_annotations=True if self.all_annotations is None else self.all_annotations,
            annotations=self.annotations,
            forward_frames=self.forwards,
        )
        if isinstance(self.max_entries, bool) or not isinstance(self.max_entries, int) or self.max_entries < 1:
            raise OptionError(f"max_entries={self.max_entries!r} is not a number of events: give at least 1.")
        _check_actions(self.skipped)
        if self.forwards and (self.context not in ("alloc", "all") or self.enabled == "state"):
            raise OptionError(
                f"forward_frames=True needs events with stacks: enabled='all' and context='alloc' or 'all', not "
                f"enabled={self.enabled!r} and context={self.context!r}."
            )

    def start_cuda(self) -> None:
        cuda_memory.record_history(
            self.enabled,
            self.context,
            self.stacks,
            self.max_entries,
            clear_history=self.clear,
            compile_context=self.regions,
            global_record_annotations=self.annotations and self.all_annotations is not False,
            skip_actions=list(self.skipped) or None,
        )

    def start_cpu(self) -> None:
        if self.enabled is None:
            _core.stop_history()
            return
        was_on = _core.history_on()
        _core.start_history(
            events=self.enabled == "all",
            context=_CONTEXTS.index(self.context),
            native_stacks=self.stacks == "all",
            max_entries=min(self.max_entries, sys.maxsize),
            skipped=sum(1 << index for index, action in enumerate(_ACTIONS) if action in self.skipped),
            annotations=self.annotations,
            own_annotations=self.all_annotations is False,
            regions=self.regions,
            forwards=self.forwards,
            clear=self.clear,
        )
        if not was_on or self.clear:
            for address, size, _category in living_blocks():
                _core.add_old_block(address, size)


def _check_choices(enabled: str | None, context: str | None, stacks: str) -> None:
    if enabled not in (None, "state", "all"):
        raise OptionError(f"enabled={enabled!r} is not known: it is 'all', 'state' or None.")
    if context not in _CONTEXTS:
        raise OptionError(f"context={context!r} is not known: it is 'all', 'alloc', 'state' or None.")
    if stacks not in ("python", "all"):
        raise OptionError(f"stacks={stacks!r} is not known: it is 'python' or 'all'.")


def _check_device(device: torch.device | str | int | None) -> None:
    """Refuse what is no device. The device itself changes nothing."""
    if device is None or (isinstance(device, int) and not isinstance(device, bool)):
        return
    try:
        torch.device(device)
    except (RuntimeError, TypeError):
        raise OptionError(
            f"device={device!r} is not a device. Leave it out: the history is always of all devices."
        ) from None


def _check_switches(**switches: object) -> None:
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise OptionError(f"{name}={value!r} is neither True nor False.")


def _check_actions(actions: Sequence[str]) -> None:
    if isinstance(actions, str):
        raise OptionError(f"skip_actions={actions!r} is a text: give a list of actions, like [{actions!r}].")
    if not isinstance(actions, Iterable):
        raise OptionError(f"skip_actions={actions!r} is not a list of actions.")
    for action in actions:
        if action not in _ACTIONS:
            raise OptionError(f"skip_actions has {action!r}, which is not an action: they are {', '.join(_ACTIONS)}.")


def get_metadata() -> str:
    """The text that set_metadata() has set in this thread; "" if none."""
    return _core.memory_metadata()


def set_metadata(text: str) -> None:
    """A text that is kept with every later event of this thread; "" for none."""
    if not isinstance(text, str):
        raise OptionError(f"set_metadata takes a text, not {type(text).__name__}.")
    if not text.isascii():
        text = text.encode(errors="replace").decode()  # halves of surrogate pairs are in no file
    _core.set_memory_metadata(text)
    if torch.cuda.is_available():
        cuda_memory.set_metadata(text)


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
        cuda_memory.on_out_of_memory(
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
