"""How much memory does a replayed call need, against an eager one?

By the system's account of the process, which sees what every allocator took: torch's, and the pool of the graphs. The
programs have tensors of megabytes, and malloc is told to give all such back at once.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks import child
from benchmarks.result import Goal, Result, Spread, number

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.graphs_workloads import Program

ROUNDS = 3
# Else malloc raises it by itself, and keeps what was freed.
PLAIN_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "131072", "MKL_DISABLE_FAST_MM": "1"}
CALLS = 4  # to warm up, to record, and to replay: what is measured after them is a replay
EAGER, GRAPHED = "eager", "graphed"
GOAL = Goal(1.05)


def measure(quick: bool) -> list[Result]:
    os.environ.update(PLAIN_MALLOC)  # of the interpreters that are started from here
    results = []
    for name in PROGRAMS:
        runs = {
            way: [child.call(__name__, name, way) for _ in range(1 if quick else ROUNDS)] for way in (EAGER, GRAPHED)
        }
        results += _results(name, runs[EAGER], runs[GRAPHED])
        if quick:
            break
    return results


def _results(name: str, eager: list[dict[str, Any]], graphed: list[dict[str, Any]]) -> list[Result]:
    what = f"{name}: peak memory without static inputs, ratio"
    for run in graphed:
        if run["failed"]:
            return [Result(what, None, GOAL, detail=run["failed"])]
    pairs = list(zip(graphed, eager, strict=True))
    peaks = Spread.of([(mine["peak"] - mine["inputs"]) / other["peak"] for mine, other in pairs])
    recording = Spread.of([(mine["recording"] - mine["inputs"]) / other["recording"] for mine, other in pairs])
    return [
        Result(what, peaks, GOAL, detail=_detail("peak", graphed, eager)),
        Result(f"{name}: the same while it is recorded", recording, detail=_detail("recording", graphed, eager)),
    ]


def _detail(field: str, graphed: list[dict[str, Any]], eager: list[dict[str, Any]]) -> str:
    mine, other = (Spread.of([run[field] / 1e6 for run in runs]).median for runs in (graphed, eager))
    state, inputs = (eager[0][part] / 1e6 for part in ("state", "inputs"))
    return f"{number(mine)} against {number(other)} MB: parameters take {number(state)} of it, inputs {number(inputs)}"


def _mlp() -> Program:
    """Six layers of 512 units, 4,096 samples: 8 MB for each activation."""
    from torch import nn, randn

    from benchmarks.graphs_workloads import Program

    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(512, 512), nn.ReLU())))
    return Program(model.eval(), (randn(4096, 512),))


def _convnet() -> Program:
    """Three layers of 16 channels, 32 pictures: 8 MB for each activation."""
    from torch import nn, randn

    from benchmarks.graphs_workloads import Program

    layers: list[nn.Module] = []
    for inputs in (3, 16, 16):
        layers += [nn.Conv2d(inputs, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return Program(model.eval(), (randn(32, 3, 64, 64),))


def _training_step() -> Program:
    """Four layers of 512 units, 4,096 samples, forward, backward and SGD."""
    import torch
    from torch import nn, randn

    from benchmarks.graphs_workloads import Program

    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.ReLU())))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(seen: Tensor, wanted: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(seen), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Program(step, (randn(4096, 512), randn(4096, 512)), inference=False, state=list(model.parameters()))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "MLP": _mlp,
    "convnet": _convnet,
    "training step of an MLP": _training_step,
}


def _main(name: str, way: str) -> None:
    import torch

    torch.set_num_threads(1)
    torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(3, 3, 3, 3))  # what is loaded once in a process
    torch.randn(64, 64) @ torch.randn(64, 64)
    _load_graphs()
    before = _resident()
    program = PROGRAMS[name]()
    try:
        with torch.inference_mode(program.inference):
            answer = _peaks(program, way, before)
    except Exception as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    inputs = sum(tensor.nbytes for tensor in program.inputs)
    parameters = program.state or list(program.function.parameters())  # type: ignore[attr-defined]
    answer |= {"inputs": inputs, "state": sum(tensor.nbytes for tensor in parameters)}
    print(json.dumps(answer))


def _load_graphs() -> None:
    """The code of graphs is loaded once in a process, whatever is recorded, so it counts for neither way."""
    import torch

    import torchreel

    small = torchreel.graphed(torch.nn.Linear(4, 4))
    for _ in range(CALLS):
        small(torch.randn(2, 4)).sum().backward()


def _peaks(program: Program, way: str, before: int) -> dict[str, Any]:
    call = program.function
    if way == GRAPHED:
        import torchreel

        call = torchreel.graphed(call)
    child.forget_peak()
    for _ in range(CALLS):
        call(*program.inputs)
    recording = child.peak_bytes() - before
    _resident()
    child.forget_peak()
    for _ in range(CALLS):
        call(*program.inputs)
    return {"recording": recording, "peak": child.peak_bytes() - before, "failed": ""}


def _resident() -> int:
    """What the process holds when malloc has given back what it can."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return child.resident_bytes()


if __name__ == "__main__":
    _main(*sys.argv[1:])
