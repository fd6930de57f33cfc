"""The typed face of the native core of graphs. Needs torch; everything else is in torchreel.graphs."""

from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

import torch

from torchreel import _tape

class NotStaticError(RuntimeError):
    """A tape cannot be run on fixed memory."""

    op: int  # of the program

class Recording:
    """What a tape says, made ready for graphs."""

    def __init__(
        self,
        *,
        slots: list[Any],
        ops: list[Any],
        kept: _tape.Kept,
        tensors: dict[int, torch.Tensor],
        inputs: list[int],
        outputs: list[int],
        gradients: list[int],
        derivatives: list[int],
        bindings: list[Any],
        boundary: int,
        held_gradients: list[tuple[torch.Tensor, torch.Tensor]],
        elides: bool,
    ) -> None: ...
    @property
    def written_inputs(self) -> list[int]: ...
    @property
    def has_guards(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    @property
    def boundary(self) -> int:
        """The step that a backward begins with."""

    @property
    def step_ops(self) -> list[int]:
        """Of each step: its place among the ops of the program."""

    def life(self, storage: int) -> tuple[bool, int, bool]:
        """Whether a step makes it, the last step that uses it, and whether the caller gets it."""

class Signature:
    """How a function was called."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    @property
    def is_plain(self) -> bool:
        """Whether its arguments are tensors, plain values and plain containers of them."""

    @property
    def tensors(self) -> int: ...
    def set_fit(self, fit: Callable[..., list[torch.Tensor] | None], tensors: list[torch.Tensor]) -> None:
        """Else: what gives the tensors of a call, or None for another one."""

    def matches(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool: ...
    def is_alike(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call has the same structure, whatever the shapes."""

    def forget_example(self) -> None: ...

class Modes:
    """What is switched on around a call."""

    @staticmethod
    def now() -> Modes: ...
    def are_foreign(self) -> bool: ...
    @property
    def grad(self) -> bool: ...
    @property
    def inference(self) -> bool: ...
    @property
    def threads(self) -> int: ...

class Route:
    """A recording as its callers meet it."""

    def __init__(
        self,
        recording: Recording,
        name: str,
        held: str,
        branches: int,
        exact: bool,
        over: str,
        fixed: Sequence[bool],
        cores: int,
    ) -> None: ...
    @property
    def hits(self) -> int: ...
    def make_first(self, given: list[torch.Tensor]) -> None: ...
    def lower(
        self,
        library: str,
        entry: str,
        pointers: list[tuple[int, int, int]],
        scratch: list[int],
        clusters: list[tuple[int, int, list[int], list[int], list[int]]],
    ) -> None:
        """A kernel for clusters: (begin, end, slots, outputs, inputs that are written) each."""

    def lowered_all(self, always: bool) -> None:
        """From the next call on they are tried, and used if they are faster, or always if they are right."""

    def clusters(self) -> list[tuple[int, int, str, str, float, float]]:
        """Steps, state, why it was dropped, nanoseconds of the exact kernels and of the generated one."""

    def graphs(self) -> list[dict[str, Any]]: ...
    def kernels(self) -> list[list[tuple[int, str]]]: ...
    def timed_run(self, given: list[torch.Tensor]) -> list[tuple[int, str, float]]:
        """Op, layer and nanoseconds of each kernel of a forward."""

class Way:
    """A route with all that is asked before it is run."""

    def __init__(
        self,
        signature: Signature,
        modes: Modes,
        route: Route,
        watch: Watch | None,
        shape: Any,
        place: type,
        rebuild: Callable[[list[torch.Tensor], tuple[Any, ...]], Any] | None,
        number: int,
    ) -> None: ...
    def differentiate(
        self, outputs: list[int], owners: list[int], reads: list[int], again: Callable[..., Any]
    ) -> None: ...
    @property
    def number(self) -> int: ...
    @property
    def route(self) -> Route: ...

class Ways:
    """All that a function can be replayed by."""

    on: bool
    verify: int
    def __init__(self) -> None: ...
    def add(self, way: Way) -> None: ...
    def drop(self, number: int) -> None: ...
    @property
    def missed(self) -> tuple[str, int, str, int]:
        """Why the last call was not replayed: a word, the way, the details, and the op."""

class Entry:
    """What is called: a way is taken, or `miss` is called with the arguments."""

    def __init__(self, ways: Ways, miss: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def force_two_cores(on: bool) -> None:
    """For tests: ops run on two cores wherever they do not need each other, whatever the clock says."""

def mark_step_begin() -> None: ...
def pool() -> tuple[int, int]:
    """Of this thread: how far its graphs reach, in bytes, and how many outputs are held."""

class Watch:
    """What Python's side of a recorded function was. Runs no code of users, keeps nothing of theirs alive."""

    def __init__(self) -> None: ...
    def same(self) -> bool: ...
    def differences(self) -> list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
        """Path, what was there and what is: nothing, the name of a type, or that with a plain value."""

    def clear(self) -> None: ...
    def add_owner(self, object: object, label: str, mortal: bool) -> int: ...
    def add_names(self, owner: int, dict: dict[str, Any], names: list[str]) -> None: ...
    def add_instance(self, owner: int, object: object, names: list[str]) -> None: ...
    def add_class(self, owner: int, type: type, names: list[str]) -> None: ...
    def add_function(self, owner: int, function: FunctionType) -> None: ...
    def add_cell(self, owner: int, cell: CellType, path: str) -> None: ...
    def add_member(self, owner: int, object: object, descriptor: object, name: str) -> bool: ...
    def paths(self) -> list[str]: ...
    @property
    def too_long(self) -> list[str]: ...
    @property
    def times_same(self) -> int: ...
    @property
    def words(self) -> int: ...

class WatchCalls:
    """Which functions of Python run on this thread, from start() to stop()."""

    def __init__(self, foreign: list[str], library: str, call: CodeType, init: CodeType) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def functions(self) -> list[tuple[CodeType, dict[str, Any], list[FunctionType], list[Any]]]: ...
    def modules(self) -> list[torch.nn.Module]: ...
    def born(self) -> list[torch.nn.Module]: ...

def instance_dict(object: object) -> dict[str, Any] | None: ...

class Kernel:
    """One op, bound to its tensors."""

    def run(self) -> None: ...
    @property
    def layer(self) -> str: ...

def kernel(
    name: str, args: Sequence[Any], results: Sequence[torch.Tensor | None], layer: str | None = None
) -> Kernel | None: ...
def layers(name: str) -> list[str]: ...
