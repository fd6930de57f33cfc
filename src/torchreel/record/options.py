"""What to record: one frozen value, the same for the Python face, the command line and child processes."""

from __future__ import annotations

import dataclasses
import difflib
import signal
from dataclasses import dataclass
from typing import Any

from torchreel.errors import OptionError, UnavailableError
from torchreel.reel.sizes import parse_size as parse_size

SMALLEST_RING = 2**20


@dataclass(frozen=True)
class RecordOptions:
    """Everything is off until it is asked for: a plain recording holds ops, times and threads."""

    shapes: bool = False
    """Sizes, strides and dtypes of tensors, and the values of other arguments."""
    memory: bool = False
    """Every alloc and free of CPU tensors."""
    stacks: bool = False
    """The Python stack of every op and alloc."""
    source: bool = True
    """With stacks: the text of the program's own Python files, beside the hash of every file that a stack names."""
    modules: bool = False
    """The nn.Module in which each op ran."""
    flops: bool = False
    """Floating point operations, by torch.utils.flop_counter's formulas. Needs and switches on shapes."""
    python: bool = False
    """Calls of Python functions, as ops of kind python."""
    gpu: bool = False
    """What devices do: kernels, copies, waits, from Kineto; with memory, the history of CUDA's allocator too."""
    counters: tuple[str, ...] = ()
    """Hardware counters per op: cycles, instructions, cache-misses ..."""
    tape: int | None = None
    """The step, counted from 0, whose tape is put into the reel, each of its ops joined with its row in ops."""
    ring: str | int | None = None
    """Keep only the last of it, in this much memory, until it is dumped: a flight recorder."""
    dump_signal: int | None = signal.SIGUSR2
    """The signal on which a flight recorder dumps; None for none."""
    emit: str | None = None
    """Emit each op as a range of 'itt' or 'nvtx' too."""
    allocator: str | None = None
    """'caching' for torchreel's caching allocator of CPU tensors, 'system' for torch's own; None: leave it as it is."""
    children: bool = True
    """Record child processes too, each as a process of its own."""
    optimizer_steps: bool = True
    """Count a step at each step of the program's first optimizer, unless Recorder.step is called."""

    def __post_init__(self) -> None:
        if self.flops and not self.shapes:
            object.__setattr__(self, "shapes", True)
        object.__setattr__(self, "counters", tuple(self.counters))
        if self.ring is not None and self.ring_bytes < SMALLEST_RING:
            raise OptionError(f"A ring of {self.ring!r} is too small to hold anything: give it at least 1MiB.")
        if self.tape is not None and (type(self.tape) is not int or self.tape < 0):
            raise OptionError(f"tape={self.tape!r} is not a step: give its number, counted from 0.")
        if self.tape is not None and self.ring is not None:
            raise OptionError("A flight recorder has no place for a tape: leave out tape or ring.")
        if self.gpu and self.ring is not None:
            raise OptionError("A flight recorder has no place for what devices do: leave out gpu or ring.")
        if self.allocator not in (None, "system", "caching"):
            raise OptionError(f"allocator={self.allocator!r} is not known: it is 'caching' or 'system'.")
        if self.emit not in (None, "itt", "nvtx"):
            raise OptionError(f"emit={self.emit!r} is not known: it is 'itt' or 'nvtx'.")

    @classmethod
    def everything(cls, **others: Any) -> RecordOptions:
        """All that costs little: what `torchreel record --all` asks for."""
        return cls(shapes=True, memory=True, stacks=True, modules=True, flops=True, **others)

    @classmethod
    def from_words(cls, given: dict[str, Any]) -> RecordOptions:
        """The options by their names, as a caller wrote them."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
                raise OptionError(f"There is no option {name!r} of a recording: {hint}")
        return cls(**given)

    @property
    def ring_bytes(self) -> int:
        return 0 if self.ring is None else parse_size(self.ring)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RecordOptions:
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def check_machine(self) -> None:
        """Raise UnavailableError, before anything is begun, if this machine cannot do what is asked."""
        from torchreel import _core

        for counter in self.counters:
            if counter not in _core.counter_names():
                raise OptionError(
                    f"There is no hardware counter {counter!r}: there are {', '.join(_core.counter_names())}."
                )
            problem = _core.counter_problem(counter)
            if problem:
                raise UnavailableError(
                    f"The hardware counter {counter!r} cannot be had: {problem}. Record without it, "
                    "or see 'torchreel doctor'."
                )
        if len(self.counters) > 8:
            raise OptionError(f"{len(self.counters)} hardware counters are too many at once: ask for at most 8.")
        if self.gpu:
            from torchreel.record.device_activity import check_devices

            check_devices()
