"""What torch itself makes of option strings: a program that takes a JSON list of them and prints what torch read.

The parser that all accelerators share is in every torch. Its settings have no Python face, so they are read where they
lie, in the order in which c10/core/AllocatorConfig.h declares them.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any


class Settings(ctypes.Structure):
    _fields_ = [
        ("large_segment_size", ctypes.c_uint64),
        ("max_split_size", ctypes.c_uint64),
        ("max_non_split_rounding", ctypes.c_uint64),
        ("divisions_begin", ctypes.c_void_p),
        ("divisions_end", ctypes.c_void_p),
        ("divisions_capacity", ctypes.c_void_p),
        ("garbage_collection_threshold", ctypes.c_double),
        ("expandable_segments", ctypes.c_bool),
    ]


def main() -> None:
    import torch

    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    instance = library._ZN3c1016CachingAllocator26AcceleratorAllocatorConfig8instanceEv
    instance.restype = ctypes.c_void_p
    settings = Settings.from_address(instance())
    json.dump([outcome(torch, settings, text) for text in json.load(sys.stdin)], sys.stdout)


def outcome(torch: Any, settings: Settings, text: str) -> dict[str, Any] | str:
    """The settings, or the first line of the error."""
    # These two outlive a string that does not name them.
    torch._C._accelerator_setAllocatorSettings("large_segment_size_mb:20,expandable_segments:False")
    try:
        torch._C._accelerator_setAllocatorSettings(text)
    except Exception as error:
        return str(error).splitlines()[0]
    count = (settings.divisions_end - settings.divisions_begin) // 8
    return {
        "large_segment_size": settings.large_segment_size,
        "max_split_size": settings.max_split_size,
        "max_non_split_rounding": settings.max_non_split_rounding,
        "roundup_power2_divisions": list((ctypes.c_uint64 * count).from_address(settings.divisions_begin)),
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
    }


if __name__ == "__main__":
    main()
