"""What a program allocates on a GPU and not on the CPU: by name, as two sizes between which it lies, at its place.

The rules were found by comparing programs, allocation by allocation, on both; that of foreach optimizers is PyTorch's
own word (docs/prediction.md). What neither shows is a sentence in `unknown_in` instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchreel.simulator.predict.cpu_run import CpuRun, Op

MIB = 1 << 20

# Two pools of 4 MiB and eight of 16 KiB; Hopper, and Blackwell since torch 2.12, have eight of 4 MiB.
CUBLAS_WORKSPACE = (2 * 4 * MIB + 8 * 16 * 1024, 8 * 4 * MIB)
CUBLASLT_WORKSPACE = MIB
CUBLASLT_SHARES_SINCE = (2, 8)  # from this torch on, cuBLASLt works in cuBLAS's workspace

# Multiprocessors of the smallest and the largest GPU that is thought of.
PROCESSORS = (20, 160)

MATRIX_PRODUCTS = (
    *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addbmm"),
    *("aten::mv", "aten::addmv", "aten::dot", "aten::vdot", "aten::_addmm_activation"),
)

OPTIMIZERS = (
    *("Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW"),
    *("ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
)


@dataclass(frozen=True)
class GpuOnly:
    """Memory that only a GPU needs: the most that is held at once, at least and at most, in bytes.

    Below zero, it is memory that only the CPU needs.
    """

    name: str
    low: int
    high: int
    why: str


@dataclass(frozen=True)
class Addition:
    """Allocs that a GPU adds before an event of the CPU's: they stay, or are freed at once."""

    index: int
    pieces: tuple[tuple[int, int], ...]  # the smallest and the largest size of each
    stays: bool = False

    @property
    def low(self) -> int:
        return sum(low for low, _ in self.pieces)

    @property
    def high(self) -> int:
        return sum(high for _, high in self.pieces)


@dataclass(frozen=True)
class Rule:
    """Additions of one name, and why they are made."""

    name: str
    why: str
    additions: tuple[Addition, ...]

    def item(self) -> GpuOnly:
        """What stays adds up; of what is freed at once, the largest counts."""
        stay = [addition for addition in self.additions if addition.stays]
        pass_by = [addition for addition in self.additions if not addition.stays]
        low = sum(addition.low for addition in stay) + max((addition.low for addition in pass_by), default=0)
        high = sum(addition.high for addition in stay) + max((addition.high for addition in pass_by), default=0)
        return GpuOnly(self.name, low, high, self.why)


def rules(run: CpuRun, torch_version: tuple[int, int]) -> list[Rule]:
    """All rules that apply to a run."""
    every = [
        _cublas_workspaces(run),
        _cublaslt_workspaces(run, torch_version),
        _reductions(run),
        _index_sorts(run),
        _foreach_optimizers(run),
    ]
    return [rule for rule in every if any(addition.high for addition in rule.additions)]


def _cublas_workspaces(run: CpuRun) -> Rule:
    """One for each thread that multiplies matrices. Backward passes run on a thread of their own, on a GPU."""
    first: dict[object, Op] = {}
    for op in run.calls(MATRIX_PRODUCTS):
        first.setdefault("backward" if run.in_backward(op) else op.thread, op)
    additions = tuple(Addition(run.after(op), (CUBLAS_WORKSPACE,), stays=True) for op in first.values())
    count = len(additions)
    why = (
        f"cuBLAS keeps a workspace for each thread that multiplies matrices, here {count}: 8.125 MiB each, "
        "or 32 MiB on Hopper and Blackwell, unless CUBLAS_WORKSPACE_CONFIG sets another size"
    )
    return Rule("cuBLAS workspaces", why, additions)


def _cublaslt_workspaces(run: CpuRun, torch_version: tuple[int, int]) -> Rule:
    additions: tuple[Addition, ...] = ()
    if torch_version < CUBLASLT_SHARES_SINCE:
        piece = (0, CUBLASLT_WORKSPACE)
        additions = tuple(Addition(run.after(op), (piece,)) for op in run.calls(("aten::addmm",)))
    why = f"before torch 2.8, a linear layer with a bias takes {CUBLASLT_WORKSPACE >> 20} MiB for the time of its call"
    return Rule("cuBLASLt workspace", why, additions)


def _reductions(run: CpuRun) -> Rule:
    additions = []
    for op in run.calls(("aten::sum", "aten::mean")):
        shape = _column_reduction(op)
        if shape is not None:
            low, high = (reduction_buffer(*shape, processors) for processors in PROCESSORS)
            additions.append(Addition(run.after(op), ((min(low, high), max(low, high)),)))
    why = "a sum over many rows, such as the gradient of a bias or a norm, is made in parts by many blocks of threads"
    return Rule("reduction buffers", why, tuple(additions))


def _column_reduction(op: Op) -> tuple[int, int] | None:
    """Rows and columns, if it reduces rows: the dimension whose elements lie side by side is kept."""
    if len(op.dims) < 2 or len(op.scalars) < 2 or not op.strides:
        return None
    dims, strides, reduced = op.dims[0], op.strides[0], _integers(op.scalars[1])
    if not (_are_integers(dims) and _are_integers(strides) and dims and len(dims) == len(strides)):
        return None
    if reduced is None or not all(-len(dims) <= index < len(dims) for index in reduced):
        return None
    reduced_dims = {index % len(dims) for index in reduced} or set(range(len(dims)))
    fastest = min((d for d in range(len(dims)) if dims[d] > 1), key=lambda d: strides[d], default=None)
    if fastest is None or fastest in reduced_dims:
        return None
    rows = math.prod(dims[d] for d in reduced_dims)
    return rows, math.prod(dims) // rows if rows else 0


def _integers(text: object) -> list[int] | None:
    """The numbers of a list that was recorded as text."""
    try:
        return [int(part) for part in str(text).strip("[]").split(",") if part.strip()]
    except ValueError:
        return None


def _are_integers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def reduction_buffer(rows: int, columns: int, processors: int) -> int:
    """Bytes in which the blocks of a CUDA reduction of rows leave what they have, for the last one to add up.

    How a reduction is divided is fixed by its shape, but for the number of blocks that run at once.
    """
    if not rows or not columns:
        return 0
    vector = math.gcd(columns, 4)
    threads = 512 // vector
    across, down = min(_power(columns // vector), threads), min(_power(rows), threads)
    width = min(across, 32)
    height = min(down, threads // width)
    width = min(across, threads // height)
    values = -(-rows // height)
    if values < 256:
        return 0
    grid = -(-columns // (vector * width))
    at_once = processors * (2048 // (width * height))
    if grid > at_once:
        return 0
    blocks = max(min(-(-at_once // grid), -(-values // 16)), -(-values // 256))
    return 4 * columns * blocks * width * vector if blocks > 1 else 0


def _power(number: int) -> int:
    """The largest power of two that is not above a number."""
    return 1 << (number.bit_length() - 1)


def _index_sorts(run: CpuRun) -> Rule:
    """Four lists of 8 bytes per index, as the gradient of an indexed table shows them."""
    additions = []
    for op in run.calls(("aten::_index_put_impl_", "aten::embedding_dense_backward")):
        if op.name == "aten::embedding_dense_backward":
            indices = op.dims[1:2]
        else:
            accumulates = op.scalars[3:4] == ["True"]
            indices = op.dims[1] if accumulates and len(op.dims) > 1 else []
        count = max((math.prod(dims) for dims in indices if _are_integers(dims)), default=0)
        additions.append(Addition(run.after(op), ((8 * count, 8 * count),) * 4))
    why = "a gradient that is added to rows of a table sorts the indices first"
    return Rule("sorted indices", why, tuple(additions))


def _foreach_optimizers(run: CpuRun) -> Rule:
    """On the CPU torch's optimizers go from parameter to parameter; on a GPU their default takes all at once."""
    counts = run.counts()
    additions = []
    if not any(name.startswith(("aten::_foreach_", "aten::_fused_")) for name in counts):
        for name in OPTIMIZERS:
            for start, end in run.ranges(f"Optimizer.step#{name}.step"):
                additions.append(_all_at_once(run, start, end))
    why = "torch's optimizers take all parameters at once on a GPU (foreach), with a temporary for each of them"
    return Rule("foreach optimizer", why, tuple(additions))


def _all_at_once(run: CpuRun, start: int, end: int) -> Addition:
    """The temporaries of one op over all parameters: of the op that makes most of them."""
    first, last = (int(run.times.searchsorted(time)) for time in (start, end))
    sizes: dict[str, list[int]] = {}
    names = run.names_of_ops
    freed = {int(run.blocks[event]) for event in range(first, last) if not run.made[event]}
    for event in range(first, last):
        op = run.ops[event]
        if run.made[event] and op is not None and int(run.blocks[event]) in freed:
            name = names[op][0] if op in names else ""
            sizes.setdefault(name, []).append(run.sizes[event] or 0)
    return Addition(last, tuple((0, size) for size in max(sizes.values(), key=sum, default=[])))
