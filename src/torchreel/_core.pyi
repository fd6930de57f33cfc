"""The typed face of the recorder's native core. Needs torch; everything else is in torchreel.record."""

from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, Self

def start(options: dict[str, Any], name_thread: Callable[[], str]) -> None:
    """Begin the process's one recording."""

def watch_calls(python: bool, module_call: CodeType | None, name_module: Callable[[Any], int] | None) -> None:
    """Record calls of Python functions, and of modules where their call's code is given."""

def stop() -> dict[str, Any]:
    """End it; all it wrote is on disk. Gives `lost`, a count, and `error`, a text or ''."""

def abandon() -> None:
    """In a forked child: detach from the parent's recording."""

def pause() -> None: ...
def resume() -> None: ...
def recording() -> bool: ...
def flush() -> None:
    """Bring to disk what was recorded before this call."""

def dump(spool: str) -> None:
    """Write what a flight recorder holds to a new spool."""

def mark(name: str) -> None: ...
def flow(name: str, id: int, is_in: bool) -> None: ...
def define_process(text: str) -> None: ...
def define_step(number: int) -> None: ...
def define_module(id: int, parent: int, path: str, type: str) -> int:
    """Name a module (parent -1 for none); gives the id of its name."""

def define_old_block(address: int, bytes: int, category: str) -> None: ...
def forget_module(module: int) -> None: ...
def adopt_storage(storage: int) -> bool:
    """Make the free of a StorageImpl's block seen."""

def emit_ranges(to: str) -> str:
    """Emit to 'itt' or 'nvtx'; gives why not, or ''."""

def stop_emitting() -> None: ...
def counter_names() -> list[str]: ...
def counter_problem(name: str) -> str:
    """Why a hardware counter cannot be had, or ''."""

def watch_model_allocations(on: bool) -> None:
    """Record the allocs of models that want it."""

class Model:
    """A model that is recorded by itself, in a recording of models."""

    def __init__(
        self,
        id: int,
        name: int,
        shapes: bool,
        stacks: bool,
        counters: bool,
        memory: bool,
        nested: bool,
        handles: str,
        arities: Mapping[int, int],
    ) -> None: ...
    def enter(self) -> None:
        """A call of it begins on this thread."""

    def leave(self) -> None: ...
    def places(self) -> list[tuple[list[str], list[tuple[str, int, str]], list[str]]]:
        """Of TorchScript, for each debug handle from 0: modules, frames (file, line, function), their source's text."""

def lite_ops(module: Any) -> list[tuple[int, int]]:
    """Of a module of the lite interpreter: each op's debug handle, and how many inputs it is given, -1 if unknown."""

def lite_place(module: Any, handle: int) -> tuple[str, str]:
    """The hierarchy and the traceback of a debug handle, as torch tells them."""

class Range:
    def __init__(self, name: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

def start_history(
    events: bool, context: int, native_stacks: bool, max_entries: int, skipped: int, annotations: bool, clear: bool
) -> None:
    """Begin or change the history of CPU memory; `context` and the bits of `skipped` as in native/history.h."""

def stop_history() -> None:
    """End it, and forget all of it."""

def history_on() -> bool: ...
def set_memory_metadata(text: str) -> None: ...
def add_old_block(address: int, bytes: int) -> None:
    """Tell the history of a block that is older than it."""

def snapshot_pickle(torch_version: str) -> bytes:
    """The history and state of CPU memory as a pickle."""

def on_out_of_memory(callback: Callable[[int, int, int], None]) -> None:
    """Call it with the bytes asked for, allocated and available when there is no memory."""

def cache_allocations(on: bool, huge_pages: bool, thread_caches: bool, decay_ms: int) -> None: ...
def caches_allocations() -> bool: ...
def empty_cache() -> int: ...
def set_limit(bytes: int) -> None: ...
def heap_stats() -> dict[str, Any]: ...
def reset_peaks() -> None: ...

place_blocks: Any  # a capsule: how _graphs tells the allocator where the blocks of an op belong

def owns(address: int) -> bool:
    """Whether a pointer is into the caching heap."""
