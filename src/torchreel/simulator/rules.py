"""Rules: a Conf, a device and a version of torch, as the native model takes them."""

from __future__ import annotations

import re
from typing import Any

from torchreel.errors import OptionError
from torchreel.simulator.conf import Conf

ADDRESS, BLOCK, SEGMENT = range(3)
ORDERS = ("address", "block", "segment")  # which of equal free blocks is taken first
UNLIMITED = (1 << 64) - 1
MOST_BYTES = 1 << 60
MIB = 1 << 20
LEAST_BLOCK = 512
MOST_SMALL = MIB
SMALL_SEGMENT = 2 * MIB
_LEAST_OWN_SEGMENT = 10 * MIB
_LARGE_ROUNDING = 2 * MIB

NEWEST = (2, 13)


def version_of(text: str) -> tuple[int, int]:
    """Major and minor of a version of torch."""
    match = re.match(r"\s*v?(\d{1,6})\.(\d{1,6})", text)
    if match is None:
        raise OptionError(f"{text!r} is not a version of torch: write it like 2.11.")
    return int(match[1]), int(match[2])


def order_of(version: tuple[int, int]) -> int:
    """The order of equal free blocks in that version."""
    if version < (2, 12):
        return ADDRESS
    return BLOCK if version == (2, 12) else SEGMENT


def round_size(conf: Conf, requested: int) -> int:
    """Bytes of the block for a request: what the native model computes, for the few places outside of it."""
    if requested < LEAST_BLOCK:
        return LEAST_BLOCK
    log = requested.bit_length() - 1
    divisions = conf.roundup_power2_divisions[min(max(log - 20, 0), 15)]
    if divisions > 1 and requested > LEAST_BLOCK * divisions:
        step = (1 << log) >> (divisions.bit_length() - 1)
        if requested.bit_count() == 1:
            return requested
        return -(-requested // step) * step if step else 2 << log
    return -(-requested // LEAST_BLOCK) * LEAST_BLOCK


def segment_size(conf: Conf, requested: int) -> int:
    """Bytes that are taken from the device when a block for a request has to be made."""
    size = round_size(conf, requested)
    if size <= MOST_SMALL:
        return SMALL_SEGMENT
    return conf.large_segment_size if size < _LEAST_OWN_SEGMENT else -(-size // _LARGE_ROUNDING) * _LARGE_ROUNDING


def limit_of(capacity: int | None, fraction: float | None) -> int | None:
    """Bytes that a process may reserve, if it has set a fraction that means something."""
    if capacity is None or fraction is None or fraction >= 1:
        return None
    return int(fraction * capacity)


def native_rules(conf: Conf, order: int, **others: Any) -> dict[str, Any]:
    """The dict that the native model wants; `others` are limit, capacity, range_bytes and counts_ages."""
    conf.require_native()
    return {
        "max_split": UNLIMITED if conf.max_split_size is None else min(conf.max_split_size, MOST_BYTES),
        "max_non_split_rounding": min(conf.max_non_split_rounding, MOST_BYTES),
        "large_segment": min(conf.large_segment_size, MOST_BYTES),
        "gc_threshold": conf.garbage_collection_threshold,
        "counts_ages": False,
        "roundup_divisions": list(conf.roundup_power2_divisions),
        "expandable": conf.expandable_segments,
        "throw_on_oom": conf.throw_on_cudamalloc_oom,
        "releases_lock": conf.release_lock_on_cudamalloc,
        "order": order,
        "limit": None,
        "capacity": UNLIMITED,
        "range_bytes": 1 << 44,
        "address_seed": 0,
        **others,
    }
