"""The typed face of the native core of graphs. Needs torch; everything else is in torchreel.graphs."""

from collections.abc import Callable, Iterable, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

import torch

from torchreel import _tape

class NotStaticError(RuntimeError):
    """A tape cannot be run on fixed memory."""

    op: int  # of the program

class StaticProgram:
    """A tape, made ready for graphs."""

    def __init__(
        self,
        *,
        slots: list[Any],
        ops: list[Any],
        kept: _tape.Kept,
        tensors: dict[int, torch.Tensor],
        inputs: list[int],
        outputs: list[int],
        segments: list[tuple[int, list[int], list[int]]],
        bindings: list[Any],
        boundary: int,
        held_gradients: list[tuple[torch.Tensor, torch.Tensor]],
        elides: bool,
        bumps: dict[int, int],
    ) -> None: ...
    @property
    def written_inputs(self) -> list[int]: ...
    @property
    def has_guards(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    @property
    def boundaries(self) -> list[int]:
        """The steps that the segments of a backward begin with; at least one, also where there is no backward."""

    @property
    def step_ops(self) -> list[int]:
        """Of each step: its index among the ops of the program."""

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

    @property
    def has_fit(self) -> bool: ...
    def set_asked(self, asked: list[tuple[int, int]], identities: bool) -> None: ...
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
    def compute_as(self, recorded: Modes) -> bool:
        """Whether ops do the same in these modes, whoever listens, with gradients or not."""
    @property
    def threads(self) -> int: ...

class Replay:
    """A static program as its callers meet it."""

    def __init__(
        self,
        program: StaticProgram,
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
    @property
    def draws(self) -> bool: ...
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

class CacheEntry:
    """A replay with all that is asked before it may run: its key and its guards."""

    def __init__(
        self,
        signature: Signature,
        modes: Modes,
        replay: Replay,
        guards: PythonGuards | None,
        shape: Any,
        leaf: type,
        rebuild: Callable[[list[torch.Tensor], tuple[Any, ...]], Any] | None,
        number: int,
    ) -> None: ...
    verified: bool
    def set_spent(self, indices: list[int]) -> None: ...
    def set_aliases(self, aliases: list[tuple[int, str, int, bool]], in_inference: list[tuple[int, bool]]) -> None:
        """Outputs on memory of others: index, "output", "input" or "own", index or slot, whether it is a view."""

    def set_detached(self, indices: list[int]) -> None: ...
    def differentiate(
        self,
        outputs: list[int],
        owners: list[int],
        cuts: list[int],
        reads: list[int],
        frees: bool,
        again: Callable[..., Any],
    ) -> None:
        """Of the next segment of the backward."""

    @property
    def number(self) -> int: ...
    @property
    def replay(self) -> Replay: ...

class CallCache:
    """All recorded calls of a function."""

    on: bool
    verify: int
    verify_first: bool
    def __init__(self) -> None: ...
    def add(self, entry: CacheEntry) -> None: ...
    def drop(self, number: int) -> None: ...
    @property
    def last_miss(self) -> tuple[str, int, str, int]:
        """Why the last call was not replayed: a word, the number of the entry, the details, and the op."""

class CachedCall:
    """What is called: an entry of the cache is replayed, or `miss` is called with the arguments."""

    def __init__(self, cache: CallCache, miss: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def force_two_cores(on: bool) -> None:
    """For tests: ops run on two cores wherever they do not need each other, whatever the clock says."""

def mark_step_begin() -> None: ...
def pools() -> list[tuple[int, int]]:
    """Of each thread: how far its pool reaches, and how many leases there are on it."""

def trim_pools() -> int:
    """Gives back what nobody holds. Gives the number of pools in which a graph runs: they stay as they are."""

def pool() -> tuple[int, int]:
    """Of this thread: how far its graphs reach, in bytes, and how many outputs are held."""

class TensorState:
    """What Python can ask a tensor without an op: its geometry, and what autograd has noted of it."""

    REQUIRES_GRAD: int
    GRAD_FN: int
    GRAD: int
    HOOKS: int
    ACCUMULATE_HOOKS: int
    RETAINS_GRAD: int
    FORWARD_GRAD: int
    OWN_ATTRIBUTES: int
    GEOMETRY: int  # in masks only
    def __init__(self, tensor: torch.Tensor) -> None: ...
    @property
    def bits(self) -> int: ...

class PythonGuards:
    """What a recorded call read of Python's objects. Keeps nothing alive but plain values.

    Each add_...() gives the number of its check. `owner` is of add_owner() or -1, `parent` the number of a check or -1:
    one of them tells that the object which is asked is alive.
    """

    def __init__(self) -> None: ...
    def hold(self) -> bool: ...
    def hold_but_for_tensors(self) -> bool: ...
    def differences(self) -> list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
        """Path, what was there and what is: nothing, the name of a type, or that with a plain value."""

    def add_owner(self, object: object, label: str) -> int: ...
    def add_entries(
        self, owner: int, parent: int, path: str, dict: dict[Any, Any], entries: list[tuple[Any, Any]], absent: object
    ) -> int: ...
    def add_whole(self, owner: int, parent: int, path: str, container: object, entries: list[Any]) -> int: ...
    def add_length(self, owner: int, parent: int, path: str, container: object, length: int) -> int: ...
    def add_type(self, owner: int, parent: int, path: str, type: type, version: int) -> int: ...
    def add_class_attributes(self, owner: int, parent: int, path: str, type: type) -> int: ...
    def add_class(
        self, owner: int, parent: int, path: str, object: object, type: type, dict: dict[str, Any] | None
    ) -> int: ...
    def add_function(
        self, owner: int, parent: int, path: str, function: FunctionType, code: CodeType, defaults: object,
        keywords: object,
    ) -> int: ...  # fmt: skip
    def add_function_attribute(
        self, owner: int, parent: int, path: str, function: FunctionType, name: str, value: object
    ) -> int: ...
    def add_cell(self, owner: int, parent: int, path: str, cell: CellType, value: object, absent: object) -> int: ...
    def add_weakref(self, owner: int, parent: int, path: str, reference: object) -> int: ...
    def add_member(
        self, owner: int, parent: int, path: str, object: object, descriptor: object, value: object, absent: object
    ) -> int: ...
    def add_tensor(
        self, owner: int, parent: int, path: str, tensor: torch.Tensor, mask: int, was: TensorState
    ) -> int: ...
    def add_ask(self, path: str, function: Callable[..., Any], args: tuple[Any, ...], expected: object) -> int: ...
    def seal(self) -> bool:
        """After the last add_...(): whether all that was read still is so."""

    def paths(self) -> list[str]: ...
    @property
    def times_held(self) -> int: ...
    @property
    def words(self) -> int: ...

class Follower:
    """Follows the Python of one call, opcode by opcode."""

    memo: bool  # what needs no rule is not asked
    def __init__(self, rules: object, opcodes: list[int], plain: Iterable[type], own_files: str) -> None: ...
    @staticmethod
    def is_impossible() -> bool: ...
    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def make(self, object: object) -> None: ...
    def is_fresh(self, object: object) -> bool: ...
    def give(self, object: object) -> None: ...
    def is_given(self, object: object) -> bool: ...
    @property
    def generators(self) -> list[Any]:
        """That the call made, and somebody still has."""

    def let_go_of_recent(self) -> None:
        """Of tensors that the call made just now and that nobody has any more."""

    def pass_over(self, code: CodeType) -> None:
        """A function with this code, and all that it calls, is not followed."""

    def expect(self, type: type) -> None: ...
    def adopt_from(self, frame: object) -> None: ...
    def take_names(self) -> tuple[str, ...] | None: ...
    @property
    def events(self) -> int: ...
    @property
    def asked(self) -> int: ...

NULL: object  # stands for an empty slot

def peek(frame: object, back: int) -> Any:
    """An operand of the opcode that is about to run: 1 is the top of the stack."""

def local(frame: object, index: int) -> Any: ...
def function_of(frame: object) -> Any: ...
def type_lookup(type: type, name: str) -> Any: ...
def lookup_kind(type: type) -> int:
    """How attributes are found: as object does (1), that and then __getattr__ (2), or in another way (0)."""

def is_of_python(type: type) -> bool: ...
def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """tensor.grad, without telling those who watch what Python asks of tensors."""

def type_flags(type: type) -> int: ...
def type_version(type: type) -> int: ...
def instance_dict(object: object) -> dict[str, Any] | None: ...
def python_in_backward(outputs: list[torch.Tensor]) -> str:
    """What of Python the backward of these tensors would run, or nothing."""

def segments_of(
    outputs: list[torch.Tensor], leaves: list[torch.Tensor], keeps: Callable[[Any], bool]
) -> list[tuple[list[int], list[int], list[int], bool]] | str:
    """Indices of outputs, of outputs that it is cut at and of leaves, and whether it keeps tensors, of each segment.

    Or why there are none. `keeps`: whether a node keeps tensors.
    """

class CutEdges:
    """Edges of autograd's graph that lead from outputs to tensors, and that can end at leaves meanwhile."""

    def __init__(self, outputs: list[torch.Tensor], cuts: list[torch.Tensor], leaves: list[torch.Tensor]) -> None: ...
    def exchange(self) -> None:
        """Cuts them, or puts them back."""

def gradient_parts(
    outputs: list[torch.Tensor], leaves: list[torch.Tensor]
) -> list[tuple[int, list[tuple[torch.autograd.graph.Node, int]]]]:
    """Of the leaves that a backward reaches on several ways: the index of the leaf, and node and index of each part."""

class Kernel:
    """One op, bound to its tensors."""

    def run(self) -> None: ...
    @property
    def layer(self) -> str: ...

def kernel(
    name: str, args: Sequence[Any], results: Sequence[torch.Tensor | None], layer: str | None = None
) -> Kernel | None: ...
def layers(name: str) -> list[str]: ...
