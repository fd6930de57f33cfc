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

def hold_termination(hold: bool) -> None:
    """SIGTERM and SIGHUP wait, whichever thread they come to, until they are let go again."""

def abandon() -> None:
    """In a forked child: detach from the parent's recording."""

def pause() -> None: ...
def resume() -> None: ...
def recording() -> bool: ...
def thread_memory() -> dict[str, int]:
    """What is held for threads: their number, and the bytes of `chunks`, of what is `mapped` for them, of `caches`."""

def flush() -> str:
    """Bring to disk what was recorded before this call. Gives why that failed, or ''."""

def dump(spool: str) -> None:
    """Write what a flight recorder holds to a new spool."""

def mark(name: str | bytes) -> None: ...
def flow(name: str, id: int, is_in: bool) -> None: ...
def define_process(text: str) -> None: ...
def now() -> int:
    """This moment, in ticks."""

def start_tick() -> int:
    """When the recording began."""

def define_step(number: int, kind: int = 0, tick: int | None = None) -> None:
    """A step begins, now or at a tick: 0 the first one, 1 by an optimizer, 2 by hand."""

def count_optimizer_steps(first: int, begun: bool) -> None:
    """Each step of the first optimizer defines a step from now on. begun: the recording knows of the first step."""

def stop_counting_optimizer_steps() -> bool:
    """Whether the recording knows of the first step."""

def define_module(id: int, parent: int, path: str, type: str) -> int:
    """Name a module (parent -1 for none); gives the id of its name."""

def define_old_block(address: int, bytes: int, category: str) -> None: ...
def on_garbage(phase: str, info: object) -> None:
    """For gc.callbacks: a collection is a call 'Python GC'."""

def own_work(begins: bool) -> None:
    """What this thread calls in Python from now on is not recorded, or is again. May be nested."""

def show_profiler(shapes: bool) -> bool:
    """Let this thread see a profiler: torch.autograd._profiler_enabled(). False where one of torch's runs already."""

def hide_profiler() -> None: ...
def draws_backward_arrows() -> bool:
    """What torch._C._profiler._set_fwd_bwd_enabled_val set."""

def keeps_values() -> bool:
    """What torch._C._profiler._set_record_concrete_inputs_enabled_val set."""

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
    def begin_reports(self) -> None:
        """From now on reports of backends in C and C++ are taken: this thread's, and those of calls of the model."""

    def end_reports(self) -> None: ...
    def reported_events(self) -> list[tuple[int, int, int, bytes, bytes, int, int]]:
        """Start and end in microseconds, debug handle, name, backend; when it was told, in ns, and on which thread."""

    def reported_memory(self) -> list[tuple[int, int, int, int, bytes, int, int]]:
        """Address, bytes, allocated and reserved in all, device; when it was told, in ns, and on which thread."""

    def locations(self) -> list[tuple[list[str], list[tuple[str, int, str]], list[str]]]:
        """Of TorchScript, for each debug handle from 0: modules, frames (file, line, function), their source's text."""

def backend_functions() -> tuple[int, int]:
    """The addresses of what takes reports of events, and of memory."""

def forget_backend_reports() -> None:
    """In a fork: the profiles are its parent's."""

class Range:
    def __init__(self, name: str | bytes) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

def start_history(
    events: bool,
    context: int,
    native_stacks: bool,
    max_entries: int,
    skipped: int,
    annotations: bool,
    own_annotations: bool,
    regions: bool,
    forwards: bool,
    clear: bool,
) -> None:
    """Begin or change the history of CPU memory; `context` and the bits of `skipped` as in native/memory/history.h."""

def stop_history() -> None:
    """End it, and forget all of it."""

def history_on() -> bool: ...
def set_memory_metadata(text: str) -> None: ...
def memory_metadata() -> str: ...
def add_old_block(address: int, bytes: int) -> None:
    """Tell the history of a block that is older than it."""

def snapshot_pickle(torch_version: str, traces: bool = True, pool: int | None = None) -> bytes:
    """The state of CPU memory, and its history if wanted, as a pickle; of one pool's segments if it is given."""

def traceback_pickle(address: int) -> bytes:
    """The frames of the living block at an address, or None, as a pickle."""

def observe_events(callback: Callable[[str, int, int, int], None] | None) -> None:
    """Call it with the action, address, size and private pool (0: none) of each event of the history."""

def silence_events() -> None:
    """No event is told after this."""

def untold_events() -> int: ...
def on_out_of_memory(callback: Callable[[int, int, int], None]) -> None:
    """Call it with the bytes asked for, allocated and available when there is no memory."""

def cache_allocations(on: bool, huge_pages: bool, thread_caches: bool, decay_ms: int) -> None: ...
def caches_allocations() -> bool: ...
def empty_cache() -> int: ...
def set_limit(bytes: int) -> None: ...
def heap_stats() -> dict[str, Any]: ...
def tally_stats() -> dict[str, list[tuple[int, int, int, int]]]:
    """By kind, for the small pool, the large one and all: current, peak, allocated, freed."""

def private_pool_stats() -> dict[int, tuple[int, int, int, int]]:
    """The same of the reserved bytes of each private pool."""

def private_blocks() -> list[tuple[int, int]]:
    """Address and bytes of the blocks of private pools that are in use."""

def reset_peaks() -> None: ...

place_blocks: Any  # a capsule: how _graphs tells the allocator where the blocks of an op belong
private_pools: Any  # a capsule: how _graphs tells of its pools

def owns(address: int) -> bool:
    """Whether a pointer is into the caching heap."""
