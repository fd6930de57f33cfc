"""What does a replay cost besides its ops, with 10 inputs and 100 parameters?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.graphs_variants import GRAPHED, Failed, Ready, ready
from benchmarks.graphs_windows import interleaved
from benchmarks.graphs_workloads import Program, Workload
from benchmarks.result import Goal, Result, Spread, number
from benchmarks.rounds import in_words

INPUTS, PARAMETERS = 10, 100
ROUNDS = 20
WINDOWS = 5
GOAL = Goal(1.5)

WIDE, NARROW = "wide", "narrow"


class Wide(nn.Module):
    """One op, which reads everything that the module was given."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = nn.ParameterList(torch.randn(1) for _ in range(PARAMETERS))

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat([*inputs, *self.numbers])


class Narrow(nn.Module):
    """The same op on as many tensors, which are but two."""

    def __init__(self) -> None:
        super().__init__()
        self.number = nn.Parameter(torch.randn(1))

    def forward(self, given: Tensor) -> Tensor:
        return torch.cat([given] * INPUTS + [self.number] * PARAMETERS)


def _wide() -> Program:
    torch.manual_seed(0)
    return Program(Wide(), tuple(torch.randn(1) for _ in range(INPUTS)))


def _narrow() -> Program:
    torch.manual_seed(0)
    return Program(Narrow(), (torch.randn(1),))


def measure(quick: bool) -> list[Result]:
    torch.set_num_threads(1)
    what = f"{INPUTS} inputs, {PARAMETERS} parameters: a replay without its ops"
    made = {name: ready(GRAPHED, Workload(make)) for name, make in ((WIDE, _wide), (NARROW, _narrow))}
    works = {name: one for name, one in made.items() if isinstance(one, Ready)}
    for one in made.values():
        if isinstance(one, Failed):
            return [Result(what, None, GOAL, "µs", one.reason)]
    rounds, windows = (2, 2) if quick else (ROUNDS, WINDOWS)
    times = interleaved(works, rounds=rounds, windows=windows)
    if not hasattr(type(works[WIDE].call), "costs"):
        return [Result(what, None, GOAL, "µs", "the engine does not tell what each op costs")]
    ops = _ops_ns(works[WIDE])
    whole = Spread.of([value / 1e3 for value in times[WIDE]])
    rest = Spread.of([(value - ops) / 1e3 for value in times[WIDE]])
    more = Spread.of([(wide - narrow) / 1e3 for wide, narrow in zip(times[WIDE], times[NARROW], strict=True)])
    return [
        Result(what, rest, GOAL, "µs", f"{in_words(whole, 'µs')}, of which its op takes {number(ops / 1e3)}"),
        Result("the same op on 1 input and 1 parameter: less by", more, unit="µs"),
    ]


def _ops_ns(one: Ready) -> float:
    with torch.inference_mode():
        costs = one.call.costs(*one.inputs)  # type: ignore[attr-defined]
    return float(sum(cost.ns for cost in costs))
