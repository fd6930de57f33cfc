"""What do the generated wrappers save, op by op, against the boxed fallback?"""

from __future__ import annotations

import contextlib
import functools
import gc
import time
from collections.abc import Callable

import torch

import torchreel
from benchmarks.result import Result, Spread
from benchmarks.rounds import Pair, added, in_words, interleave
from torchreel import _tape

WARM_UP = 500
OPS = 2_000
FOREACH_OPS = 200  # each is ten
WINDOWS = 8
ROUNDS = 20

PLAIN, WRAPPERS, FALLBACK = "plain", "wrappers", "fallback"


def _calls() -> dict[str, tuple[Callable[[], object], int]]:
    """An op on tensors of 4 elements, and how many of it make a window."""
    a, b = torch.ones(4), torch.zeros(4)
    learned = torch.ones(4, requires_grad=True)
    several, others = [torch.ones(4) for _ in range(10)], [torch.zeros(4) for _ in range(10)]
    return {
        "add": (functools.partial(torch.add, a, b), OPS),
        "add with grad": (functools.partial(torch.add, learned, b), OPS),
        "add_": (functools.partial(a.add_, b), OPS),
        "view": (functools.partial(a.view, 2, 2), OPS),
        "empty": (functools.partial(torch.empty, 4), OPS),
        "_foreach_add_ of 10": (functools.partial(torch._foreach_add_, several, others), FOREACH_OPS),
    }


def _window(call: Callable[[], object], count: int, way: str) -> float:
    """CPU nanoseconds of one op, of the thread that calls it; to begin and to end the tape lies outside."""
    if way != PLAIN:
        _tape.use_wrappers(way == WRAPPERS)
    gc.collect()
    with contextlib.nullcontext() if way == PLAIN else torchreel.tracing():
        for index in range(WARM_UP + count):
            if index == WARM_UP:
                start = time.thread_time_ns()
            call()
        return (time.thread_time_ns() - start) / count


def measure(quick: bool) -> list[Result]:
    torch.set_num_threads(1)
    calls = _calls()
    gc.collect()
    gc.freeze()
    gc.disable()
    rounds, windows = (2, 2) if quick else (ROUNDS, WINDOWS)
    results = []
    for name, (call, count) in calls.items():
        window = functools.partial(_window, call, count)
        pairs = interleave(window, PLAIN, [[WRAPPERS, FALLBACK]], lambda _: 0, rounds=rounds, windows=windows)
        results.append(_result(name, pairs[WRAPPERS], pairs[FALLBACK]))
    return results


def _result(name: str, wrappers: list[Pair], fallback: list[Pair]) -> Result:
    both = zip(wrappers, fallback, strict=True)
    saved = Spread.of([other.added - mine.added for mine, other in both])
    plain = Spread.of([pair.bare for pair in wrappers])
    detail = (
        f"{in_words(added(wrappers), 'ns')} against {in_words(added(fallback), 'ns')}, added to {in_words(plain, 'ns')}"
    )
    return Result(f"{name}: saved by its wrapper", saved, unit="ns", detail=detail)
