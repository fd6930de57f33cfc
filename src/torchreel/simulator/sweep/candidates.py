"""The settings of the allocator that are worth trying on a run, by the sizes of its requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torchreel.simulator.conf import Conf, parse
from torchreel.simulator.option_string import LARGE_SEGMENT_SIZE, MIB

# The options that decide how much is reserved; a candidate has the current value of every other option.
SIZING = (
    "max_split_size",
    "max_non_split_rounding",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
    "large_segment_size",
)
_MOST_SPLITS = 8
# One division rounds nothing: PyTorch begins to round at two.
_ROUNDINGS = ("2", "4", "8", "[256:1,512:2,1024:4,>:8]", "[64:2,256:4,>:8]")
_THRESHOLDS = (0.6, 0.8, 0.9)
_LARGE_SEGMENTS_MB = (12, 16, 32, 64)
_UNSPLIT_ROUNDINGS_MB = (64, 256, 1024)


@dataclass(frozen=True)
class Requests:
    """What of a run decides which settings can matter."""

    sizes: tuple[int, ...]  # distinct sizes in bytes
    has_fraction: bool  # whether the process may use only a part of the device: garbage is collected only then
    version: tuple[int, int]  # of torch: what it does not know cannot be advised
    windows: bool = False  # where segments cannot expand


def neutral(current: Conf) -> Conf:
    """The current settings with PyTorch's defaults for what decides the sizes."""
    default = Conf()
    return replace(current, **{name: getattr(default, name) for name in SIZING})


def singles(current: Conf, requests: Requests) -> list[Conf]:
    """The current setting, PyTorch's default, and each option alone with the values that can matter."""
    base = neutral(current)
    confs = [current, base]
    if requests.version >= (2, 1) and not requests.windows:
        confs.append(replace(base, expandable_segments=True))
    confs += [replace(base, max_split_size=size) for size in split_sizes(requests.sizes)]
    confs += [replace(base, roundup_power2_divisions=_roundup(text)) for text in _ROUNDINGS]
    if requests.has_fraction:
        confs += [replace(base, garbage_collection_threshold=threshold) for threshold in _THRESHOLDS]
    if requests.version >= (2, 13):
        confs += [_large_segments(base, size * MIB) for size in _LARGE_SEGMENTS_MB]
    return _distinct(confs)


def pairs(current: Conf, best: Sequence[Conf], requests: Requests) -> list[Conf]:
    """Pairs of options, of the value of each that did best alone."""
    base = neutral(current)
    changes = [_changes(base, conf) for conf in best]
    confs = [replace(base, **{**one, **other}) for one, other in itertools.combinations(changes, 2)]
    confs = [conf for conf in confs if _sensible(conf)]
    for conf in best:
        if conf.max_split_size is not None and requests.version >= (2, 6):
            confs += [replace(conf, max_non_split_rounding=size * MIB) for size in _UNSPLIT_ROUNDINGS_MB]
    return _distinct(confs)


def split_sizes(sizes: Iterable[int]) -> list[int]:
    """Values of max_split_size that divide the run's large requests: no others can matter.

    Powers of two, and the sizes just above those of the run, spread over their range.
    """
    large = sorted({-(-size // MIB) * MIB for size in sizes if size >= LARGE_SEGMENT_SIZE})
    if not large:
        return []
    doublings = [(1 << i) * MIB for i in range(5, 40) if (1 << i) * MIB <= large[-1]]
    own = _spread([size + MIB for size in large[:-1]], max(2, _MOST_SPLITS - 1 - len(doublings)))
    return sorted({LARGE_SEGMENT_SIZE, *_spread(doublings, _MOST_SPLITS - 3), *own})


def _spread(values: list[int], most: int) -> list[int]:
    """At most that many of the values, evenly chosen, with the first and the last."""
    if len(values) <= most:
        return values
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def _roundup(text: str) -> tuple[int, ...]:
    return parse(f"roundup_power2_divisions:{text}").roundup_power2_divisions


def _large_segments(base: Conf, size: int) -> Conf:
    return replace(base, large_segment_size=size, max_non_split_rounding=size)


def _changes(base: Conf, conf: Conf) -> dict[str, Any]:
    names = (field.name for field in fields(Conf))
    return {name: getattr(conf, name) for name in names if getattr(conf, name) != getattr(base, name)}


def _sensible(conf: Conf) -> bool:
    """Expandable segments are split whatever their size, and garbage collection passes over them."""
    if conf.expandable_segments and (conf.max_split_size is not None or conf.garbage_collection_threshold):
        return False
    return conf.max_split_size is None or conf.max_split_size >= conf.large_segment_size


def _distinct(confs: Iterable[Conf]) -> list[Conf]:
    return list(dict.fromkeys(confs))
