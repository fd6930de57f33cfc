"""What an adapter is: one kind of deployed model, how its calls are seen, and what is known of its ops.

An adapter is small: it hooks the model's calls, says where a debug handle stands in the user's program, and hands over
what the model's own runtime measured. What becomes of that is the same for all of them, and is done elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from torchreel.errors import EdgeError


@dataclass(frozen=True)
class Frame:
    """A line of source."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Location:
    """Where an op stands in the program that the model was made from."""

    modules: tuple[tuple[str, str], ...] = ()
    """Path within the model and class, the outermost first: ("", "Net"), ("features.0", "Conv2d")."""
    frames: tuple[Frame, ...] = ()
    """The innermost first."""


@dataclass(frozen=True)
class TensorType:
    """What is known of a tensor that an op was given."""

    sizes: tuple[int, ...]
    dtype: str
    """As torch names it without its prefix: float32."""


@dataclass(frozen=True)
class BackendEvent:
    """One op as the model's own runtime measured it."""

    name: str
    """As the runtime names it: Conv, native_call_add.out."""
    backend: str
    """ONNX Runtime CPU, ExecuTorch portable, XNNPACK ..."""
    start_ns: int
    """On the runtime's own clock."""
    end_ns: int
    parent: int | None = None
    """The event within which it lies: its index in the same list."""
    debug_handle: int | None = None
    location: Location | None = None
    inputs: tuple[TensorType, ...] | None = None
    flops: int | None = None
    thread: int = 0
    """0 is the thread of the call; others are the runtime's own."""


class Calls(Protocol):
    """The calls of a model while it is profiled: told by the adapter when one begins and ends, on its thread."""

    def enter(self) -> None: ...

    def leave(self) -> None: ...

    def script_locations(self) -> list[tuple[list[str], list[tuple[str, int, str]], list[str]]]:
        """Where TorchScript's interpreter was, by debug handle: modules, frames as file, line and function, and the
        text of the source around each frame."""


Undo = Callable[[], None]


class Adapter:
    """One kind of deployed model."""

    format: str
    """As its users call it: TorchScript, ONNX Runtime."""
    name: str
    """The model's name: its class, its graph's name or its file's."""
    handles: str = ""
    """How its ops say where they stand, besides their Python stack: "lite", "torchscript", or not at all."""
    arities: Mapping[int, int] = MappingProxyType({})
    """How many inputs an op has, by debug handle, where its runtime shows more values than these."""
    called_from_python: bool = False
    """Whether Python calls each op, so that its stack and its nn.Module are Python's."""
    remark: str | None = None
    """What could not be known of the model, and why."""

    def check(self, locations: bool) -> None:
        """Raise EdgeError, before anything is begun, if locations are wanted and the model has none.

        Here they are missing where there is a remark; an adapter whose remarks may say less than that overrides it.
        """
        if locations and self.remark is not None:
            raise EdgeError(self.remark)

    @property
    def runnable(self) -> Any:
        """What is called to run the model."""
        raise NotImplementedError

    def watch(self, calls: Calls) -> Undo:
        """From now on each call of the model is told. Gives what ends that."""
        raise NotImplementedError

    def locations(self, handles: Sequence[int]) -> dict[int, Location]:
        """The locations of these debug handles, as far as they are known."""
        return {}

    def locations_of_backend(self, handles: Sequence[int]) -> dict[int, Location]:
        """Where the debug handles stand that a backend of the model was given, if the model's file numbers its ops."""
        return {}

    def location_of_line(self, file: str, line: int) -> Location | None:
        """Where a line stands that Python ran, if it is of code that was generated for the model."""
        return None

    def location_of_kernel(self, name: str, nth: int) -> Location | None:
        """Where the nth op of this name in a call stands, from 0, if that is how the model knows its ops."""
        return None

    def events(self) -> list[list[BackendEvent]]:
        """What the model's own runtime measured since watch(): one list for each call, in their order."""
        return []


@dataclass(frozen=True)
class InputSpec:
    """One input, as a model's file declares it."""

    name: str
    sizes: tuple[int | None, ...] | None
    """None stands for a size that may vary; None for all, if the file does not say."""
    dtype: str | None


@dataclass(frozen=True)
class Deployed:
    """A model, loaded from its file, ready to run."""

    module: Any
    """What EdgeProfiler takes."""
    run: Callable[[Sequence[Any]], Any]
    """Calls the model once on a list of torch tensors, one for each input."""
    inputs: tuple[InputSpec, ...] | None = None
    """What the file says of its inputs, if it does."""
