"""What the categories of events mean, those of all ages: the category decides, not the number of the process."""

from __future__ import annotations

import functools
import re

# Calls of the host, and their kinds in the table ops.
HOST = {
    "cpu_op": "op",
    "Operator": "op",
    "user_annotation": "range",
    "python_function": "python",
    "cuda_runtime": "runtime",
    "Runtime": "runtime",
    "hip_runtime": "runtime",
    "mtia_runtime": "runtime",
    "xpu_runtime": "runtime",
    "hpu_op": "runtime",
    "glow_runtime": "runtime",
    "privateuse1_runtime": "runtime",
    "cuda_driver": "driver",
    "xpu_driver": "driver",
    "privateuse1_driver": "driver",
    "overhead": "overhead",
}
# Activities of devices; what is computation or communication, names and arguments tell.
DEVICE = {
    "kernel": "compute",
    "Kernel": "compute",
    "gpu_memcpy": "copy",
    "Memcpy": "copy",
    "gpu_memset": "set",
    "Memset": "set",
    "mtia_ccp_events": "other",
    "mtia_insight": "other",
    "cuda_event": "other",
}
SYNCS = {"cuda_sync", "xpu_sync"}
RANGES = {"gpu_user_annotation"}
COUNTERS = {"cuda_profiler_range", "xpu_scope_profiler"}
SPANS = {"Trace"}
# Arrows that are there to be drawn: the numbers in the arguments say the same.
KNOWN_ARROWS = {"async", "async_gpu", "async_cpu_to_gpu", "ac2g"}
BACKWARD_ARROW = "fwdbwd"

# Calls around a launch; the others have no calls inside.
LEAVES = ("runtime", "driver", "overhead")

_COMMUNICATION = re.compile(
    r"nccl|rccl|hccl|oneccl|nvshmem|cross_device_reduce|(?:one|two)[-_]?shot.*all[-_]?reduce|"
    r"all[-_]?reduce.*(?:one|two)[-_]?shot|multimem.*all[-_]?reduce|all[-_]?reduce.*multimem",
    re.IGNORECASE,
)
# How ROCm writes copies and fills that kernels do.
_COPY = re.compile(r"__amd_rocclr_copyBuffer|MEMORY_COPY_")
_SET = re.compile(r"__amd_rocclr_fillBuffer")


@functools.lru_cache(maxsize=100_000)
def kernel_kind(name: str) -> str:
    """Whether a kernel of this name computes, communicates, copies or sets."""
    if _COMMUNICATION.search(name):
        return "communication"
    if _COPY.match(name):
        return "copy"
    return "set" if _SET.match(name) else "compute"


def api_of(category: str) -> str | None:
    """The API of a device whose events have this category, if that says it."""
    for prefix in ("mtia", "xpu", "hpu"):
        if category.startswith(prefix):
            return prefix
    return None
