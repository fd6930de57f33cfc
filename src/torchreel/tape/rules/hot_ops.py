"""The hot set: the ops that real models use, for which the build compiles wrappers. The list is hot_ops.txt beside."""

from __future__ import annotations

import functools
from pathlib import Path

FILE = Path(__file__).with_name("hot_ops.txt")


def header(programs: int, torch_version: str, share: float) -> str:
    """The lines that say where the list came from."""
    return (
        f"# The ops that at least two of {programs} programs call below autograd, {share:.1%} of all calls, under\n"
        f"# torch {torch_version}: training and inference of transformers, convnets and recurrent nets, of every\n"
        "# layer, loss and optimizer of torch. Counted and written by `python -m benchmarks.hot --write`.\n"
    )


@functools.cache
def hot_ops() -> frozenset[str]:
    """Their full names: "aten::add.Tensor"."""
    lines = (line.strip() for line in FILE.read_text().splitlines())
    return frozenset(line for line in lines if line and not line.startswith("#"))
