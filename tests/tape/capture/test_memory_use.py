"""Tracing changes neither the ops that a program runs nor, but for its own records, the memory that it takes."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import torchreel
from tests.alone import run_python
from tests.tape.training import NETWORKS, make_run


def profiled(call: Callable[[], object]) -> list[str]:
    """The ops that ran, on all levels, as torch's own profiler saw them."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        call()
    events = recorded.profiler.kineto_results.events()
    ops = [event for event in events if event.name().startswith("aten::") or "Backward" in event.name()]
    return [event.name() for event in sorted(ops, key=lambda event: (event.start_ns(), -event.duration_ns()))]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_the_same_ops_with_and_without(network: str, optimizer: Any) -> None:
    run = make_run(network, optimizer)
    for batch in run.batches[:3]:
        run.step(*batch)
    plain = profiled(lambda: run.step(*run.batches[3]))
    traced = profiled(lambda: torchreel.trace(run.step, *run.batches[4]))
    assert len(plain) > 30 and sorted(traced) == sorted(plain)


def test_gradients_are_stolen_and_not_copied() -> None:
    run = make_run()
    run.step(*run.batches[0])
    tape = torchreel.trace(run.step, *run.batches[1])
    names = [op.name for op in tape.program.ops if op.backward]
    assert not [name for name in names if "copy" in name or "clone" in name or "new_empty" in name]


def test_what_the_program_frees_is_freed() -> None:
    freed = []

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        storage = weakref.ref(y)
        z = y.sin()
        del y
        freed.append(storage() is None)
        return z

    torchreel.trace(function, torch.ones(100))
    assert freed == [True]


PEAK = """
import json, sys, torch, torchreel
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(8)])
optimizer = torch.optim.Adam(model.parameters())

def step(x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()

x = torch.randn(512, 256)
for _ in range(3):
    step(x)
"""


def peaks(script: str) -> dict[str, int]:
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


BYTES = """
from torch.profiler import profile, ProfilerActivity

def peak(call):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    total = highest = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            total += event.nbytes()
            highest = max(highest, total)
    return highest

plain = peak(lambda: step(x))
tapes = []
traced = peak(lambda: tapes.append(torchreel.trace(step, x)))
print(json.dumps({"plain": plain, "traced": traced, "ops": len(tapes[0])}))
"""

RESIDENT = """
import os

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

grown = []
for _ in range(12):
    before = resident()
    for _ in range(4):
        torchreel.trace(step, x)
    grown.append(resident() - before)
print(json.dumps({"grown": grown}))
"""


def test_tensors_take_no_more_memory_at_the_peak() -> None:
    """All that is allocated through torch, at its highest."""
    found = peaks(PEAK + BYTES)
    assert found["ops"] > 100 and found["plain"] > 1_000_000
    assert found["traced"] <= found["plain"] * 1.02


def test_a_tape_that_is_dropped_leaves_nothing() -> None:
    """A leak grows with every tape; imports, and pages that the allocator keeps or takes again, do not."""
    grown = sorted(peaks(PEAK + RESIDENT)["grown"])
    assert grown[len(grown) // 2] < 2**20
