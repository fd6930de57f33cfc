"""`python -m benchmarks.hot [--write]`: count the ops of real models, and write the list that the generator reads."""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.hot import layers, methods, networks, optimizers, pretrained
from benchmarks.hot.training import Named, Program
from torchreel.tape.rules.hot_ops import FILE, header

LEAST_PROGRAMS = 2  # what one program alone uses is not worth the time to compile it


class Count(TorchDispatchMode):
    """Counts the calls that reach the level at which the tape records."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func.name()] += 1
        return func(*args, **(kwargs or {}))


def calls(program: Program) -> Counter[str]:
    """How often a program calls each op."""
    torch.manual_seed(0)
    with Count() as count:
        program()
    return count.calls


def programs() -> Named:
    """Every program by its name; each builds what it needs when it is called."""
    for family in (pretrained, networks, optimizers, layers, methods):
        yield from family.programs()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hot", description="Count the ops of real models.")
    parser.add_argument("--write", action="store_true", help="write the list that the generator reads")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # of the programs, which are none of our business
    counted = {name: calls(program) for name, program in programs()}
    seen = sum(counted.values(), Counter[str]())
    users = Counter(name for found in counted.values() for name in found)
    ops = sorted(name for name in seen if name.startswith("aten::"))
    hot = [name for name in ops if users[name] >= LEAST_PROGRAMS]
    for name in ops:
        print(f"{users[name]:4d} programs {seen[name]:8,d} calls  {name}")
    share = sum(seen[name] for name in hot) / seen.total()
    print(
        f"{len(counted)} programs, {len(ops)} ops of ATen, {seen.total():,} calls; "
        f"the {len(hot)} ops of the hot set are {share:.1%} of them."
    )
    if options.write:
        FILE.write_text(header(len(counted), torch.__version__, share) + "".join(f"{name}\n" for name in hot))


if __name__ == "__main__":
    main()
