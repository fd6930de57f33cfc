"""Conf: the settings of the CUDA caching allocator, as PYTORCH_CUDA_ALLOC_CONF gives them or a snapshot holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchreel.errors import OptionError
from torchreel.simulator.option_string import INTERVALS, LARGE_SEGMENT_SIZE, MIB, read

_NO_ROUNDING = (0,) * INTERVALS


@dataclass(frozen=True)
class Conf:
    """The settings of one allocator. Sizes are bytes; the defaults are PyTorch's."""

    max_split_size: int | None = None  # larger blocks are never split; None: any block is
    max_non_split_rounding: int = 0  # how much larger an unsplit block may be than the request; 0: a large segment
    garbage_collection_threshold: float = 0.0  # part of the limit above which old cached blocks are freed; 0: never
    roundup_power2_divisions: tuple[int, ...] = _NO_ROUNDING  # for sizes from 1 MiB, 2 MiB ... 32 GiB on; 0: none
    expandable_segments: bool = False
    large_segment_size: int = LARGE_SEGMENT_SIZE
    per_process_memory_fraction: float | None = None
    throw_on_cudamalloc_oom: bool = False
    release_lock_on_cudamalloc: bool = False
    graph_capture_record_stream_reuse: bool = False
    backend: str = "native"
    pinned: tuple[tuple[str, str], ...] = ()  # the options of pinned host memory, as given: no device's memory

    def __post_init__(self) -> None:
        if not self.max_non_split_rounding:
            object.__setattr__(self, "max_non_split_rounding", self.large_segment_size)

    @staticmethod
    def from_settings(settings: Mapping[str, Any]) -> Conf:
        """The settings of a snapshot's `allocator_settings`, or of a reel's table of that content.

        The option string knows more (max_non_split_rounding_mb), the parsed values know better: a platform without
        expandable segments ignores that option. What a file should not hold counts as not held.
        """
        fields: dict[str, Any] = {}
        text = settings.get("PYTORCH_CUDA_ALLOC_CONF")
        if isinstance(text, str):
            try:
                fields = read(text, skip_unknown=True)
            except OptionError:  # another version's grammar: the parsed values have to do
                fields = {}
        return Conf(**{**fields, **_parsed(settings)})

    def require_native(self) -> None:
        """An OptionError unless these are settings of the allocator that is simulated here."""
        if self.backend != "native":
            raise OptionError(
                f"backend:{self.backend} cannot be simulated: the driver's own allocator, whose rules are not known, "
                "decides there what is reserved. Leave the backend out, or give backend:native."
            )

    def __str__(self) -> str:
        """The shortest option string with this meaning; empty for PyTorch's defaults."""
        default = Conf()
        options = []
        if self.expandable_segments:
            options.append("expandable_segments:True")
        if self.large_segment_size != LARGE_SEGMENT_SIZE:
            options.append(f"large_segment_size_mb:{self.large_segment_size // MIB}")
        if self.max_split_size is not None:
            options.append(f"max_split_size_mb:{self.max_split_size // MIB}")
        if self.max_non_split_rounding != self.large_segment_size:
            options.append(f"max_non_split_rounding_mb:{self.max_non_split_rounding // MIB}")
        if self.garbage_collection_threshold:
            options.append(f"garbage_collection_threshold:{self.garbage_collection_threshold!r}")
        if any(self.roundup_power2_divisions):
            options.append(f"roundup_power2_divisions:{_divisions_text(self.roundup_power2_divisions)}")
        if self.per_process_memory_fraction is not None:
            options.append(f"per_process_memory_fraction:{self.per_process_memory_fraction!r}")
        for name in ("throw_on_cudamalloc_oom", "release_lock_on_cudamalloc", "graph_capture_record_stream_reuse"):
            if getattr(self, name) != getattr(default, name):
                options.append(f"{name}:{getattr(self, name)}")
        if self.backend != default.backend:
            options.append(f"backend:{self.backend}")
        options.extend(f"{name}:{value}" for name, value in self.pinned)
        return ",".join(options)


def parse(text: str) -> Conf:
    """The settings that an option string stands for; an OptionError names the option, its value and what is allowed."""
    return Conf(**read(text))


def _parsed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a snapshot holds as values."""
    fields: dict[str, Any] = {}
    size = settings.get("max_split_size")
    if isinstance(size, int) and not isinstance(size, bool):
        fields["max_split_size"] = size if MIB <= size < 1 << 62 else None
    threshold = settings.get("garbage_collection_threshold")
    if isinstance(threshold, float) and 0 <= threshold < 1:
        fields["garbage_collection_threshold"] = threshold
    divisions = settings.get("roundup_power2_divisions")
    if isinstance(divisions, Mapping):
        fields["roundup_power2_divisions"] = tuple(_division(divisions.get(str(1 << i))) for i in range(INTERVALS))
    for name in ("expandable_segments", "release_lock_on_cudamalloc", "graph_capture_record_stream_reuse"):
        if isinstance(settings.get(name), bool):
            fields[name] = settings[name]
    return fields


def _division(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < 1 << 63 and value.bit_count() == 1 else 0


def _divisions_text(table: tuple[int, ...]) -> str:
    if len(set(table)) == 1:
        return str(table[0])
    first = next(i for i in range(INTERVALS) if table[i + 1] != table[0])  # the first pair rules all sizes below it
    rest = next(i for i in reversed(range(INTERVALS)) if table[i] != table[-1])  # `>` rules all sizes above this one
    if not table[-1] or (rest == INTERVALS - 2 and not table[rest]):
        rest = INTERVALS - 1  # no `>`: what no pair names is 0
    pairs = [f"{1 << first}:{table[first]}" if table[first] else "1:0"]
    pairs += [f"{1 << i}:{table[i]}" for i in range(first + 1, rest + 1) if table[i] or i == rest < INTERVALS - 1]
    if rest < INTERVALS - 1:
        if rest == first and not table[first]:
            pairs = [f"{1 << first}:0"] if first else []
        pairs.append(f">:{table[-1]}")
    return f"[{','.join(pairs)}]"
