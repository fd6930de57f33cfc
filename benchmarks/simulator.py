"""How many events a second does the simulator take, against the same rules in plain Python?"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from benchmarks.plain_allocator import Event, PlainAllocator
from benchmarks.result import Goal, Result, Spread
from torchreel.allocator import simulate
from torchreel.reel.allocator_history.actions import ALLOC, FREE
from torchreel.simulator.conf import Conf
from torchreel.simulator.request_trace import Columns, RequestTrace, RequestTraces
from torchreel.simulator.rules import native_rules

EVENTS = 1_000_000
PLAIN_EVENTS = 100_000  # plain Python takes ten times as long for these as the simulator for all
ROUNDS = 7
QUICK_ROUNDS = 2
LIVING = 2_000
ORDER = 2  # that of torch 2.13


def measure(quick: bool) -> list[Result]:
    events = program(EVENTS)
    programs = _programs(events)
    ours, plain = [], []
    for _ in range(QUICK_ROUNDS if quick else ROUNDS):
        ours.append(_cpu_seconds(lambda: simulate(programs, conf="")) / EVENTS)
        plain.append(_cpu_seconds(lambda: _plain(events[:PLAIN_EVENTS])) / PLAIN_EVENTS)
    per_second = Spread.of([1 / seconds for seconds in ours])
    times = Spread.of([theirs / mine for mine, theirs in zip(ours, plain, strict=True)])
    return [
        Result("events per second of CPU time", per_second, Goal(1e6, at_least=True)),
        Result("times as many as plain Python", times, Goal(10, at_least=True)),
        Result("events per second in plain Python", Spread.of([1 / seconds for seconds in plain])),
    ]


def program(count: int) -> list[Event]:
    """Allocs and frees in turn, of sizes as a training step has them, with a few thousand blocks alive."""
    draw = random.Random(0)
    sizes = [512, 4 << 10, 64 << 10, 400 << 10, 1 << 20, 3 << 20, 8 << 20, 25 << 20]
    living: list[int] = []
    events: list[Event] = []
    for handle in range(1, count + 1):
        if living and (len(living) > LIVING or draw.random() < 0.49):
            at = draw.randrange(len(living))
            living[at], living[-1] = living[-1], living[at]
            events.append(("free", living.pop(), 0, 0, 0))
        else:
            living.append(handle)
            events.append(("alloc", handle, draw.choice(sizes) + draw.randrange(8) * 512, 0, 0))
    return events


def _programs(events: list[Event]) -> RequestTraces:
    columns = Columns()
    for place, (action, handle, size, stream, pool) in enumerate(events):
        columns.add(ALLOC if action == "alloc" else FREE, handle, size, stream, pool, place)
    return RequestTraces({"cuda:0": RequestTrace("cuda:0", **columns.arrays())})


def _plain(events: list[Event]) -> None:
    PlainAllocator(native_rules(Conf(), ORDER)).run(events)


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
