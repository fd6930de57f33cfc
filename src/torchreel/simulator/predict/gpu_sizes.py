"""What a program allocates on the CPU in another size than on a GPU: the recorded events, with their sizes there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchreel.simulator.predict.gpu_only import GpuOnly

if TYPE_CHECKING:
    from torchreel.simulator.predict.cpu_run import CpuRun, Op

# What CUDA's autocast computes in float32 and the CPU's in the type that it finds.
FLOAT32_ON_CUDA = frozenset(
    f"aten::{name}"
    for name in (
        *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "pow", "reciprocal"),
        *("rsqrt", "sinh", "tan", "softplus", "native_layer_norm", "_softmax", "_log_softmax", "sum", "prod"),
        *("cumsum", "cumprod", "logsumexp", "linalg_vector_norm"),
    )
)
HALF = frozenset(("c10::BFloat16", "c10::Half"))
ITEM = {"double": 8, "float": 4, "c10::BFloat16": 2, "c10::Half": 2}


@dataclass(frozen=True)
class Resizing:
    """Events whose blocks have other sizes on a GPU, at least and at most, and why."""

    name: str
    why: str
    sizes: dict[int, tuple[int, int]]

    def item(self, run: CpuRun) -> GpuOnly:
        """The largest difference that was held at once."""
        low, high = (self._largest(run, end) for end in (0, 1))
        return GpuOnly(self.name, low, high, self.why)

    def _largest(self, run: CpuRun, end: int) -> int:
        differences = {
            int(run.blocks[event]): sizes[end] - (run.sizes[event] or 0) for event, sizes in self.sizes.items()
        }
        held = largest = 0
        for event, block in enumerate(run.blocks.tolist()):
            if block in differences:
                held += differences[block] if run.made[event] else -differences[block]
                largest = max(largest, held, key=abs)
        return largest


def resizings(run: CpuRun) -> list[Resizing]:
    """All that apply to a run."""
    return [resizing for resizing in (_autocast(run), _dropout(run)) if resizing.sizes]


def _autocast(run: CpuRun) -> Resizing:
    """It cannot be seen whether the program runs under autocast: if it does, these have twice the size on a GPU."""
    sizes = {}
    for event, op in enumerate(run.ops):
        size = run.sizes[event]
        if run.made[event] and size and op is not None and op in run.names_of_ops:
            name, dtypes = run.names_of_ops[op]
            if name in FLOAT32_ON_CUDA and dtypes and dtypes[0] in HALF:
                sizes[event] = (size, 2 * size)
    why = (
        f"{len(sizes)} results of exp, pow, sum and others are in half precision, which CUDA's autocast computes in "
        "float32 and the CPU's does not; what is computed from them may grow too"
    )
    return Resizing("float32 under autocast", why, sizes)


def _dropout(run: CpuRun) -> Resizing:
    sizes = {}
    for op in run.calls(("aten::dropout",)):
        elements, size = _elements_and_bytes(op)
        first, last = (int(run.times.searchsorted(time)) for time in (op.start_ns, op.end_ns))
        mask = next((event for event in range(first, last) if run.made[event] and run.sizes[event] == size), None)
        if elements and mask is not None:
            sizes[mask] = (elements, elements)
    why = "a GPU keeps a byte per element to know what was dropped, the CPU a number"
    return Resizing("dropout masks", why, sizes)


def _elements_and_bytes(op: Op) -> tuple[int, int]:
    """Of the first argument; 0, where it is not known."""
    dims = op.dims[0] if op.dims else None
    if not isinstance(dims, list) or not all(type(size) is int for size in dims) or not op.dtypes:
        return 0, 0
    elements = math.prod(dims)
    return elements, elements * ITEM.get(op.dtypes[0], 0)
