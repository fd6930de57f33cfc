"""A function measured in several ways: eager, as a graph, compiled. In each turn every way has a window of calls.

Times are those of the clock on the wall, which users wait for. A shared machine is fast in one second and slow in the
next, so windows are short and interleaved, and a way's time is the median of its windows.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchreel.errors import OptionError, TorchreelError
from torchreel.graphs.bench.target import Target, sentence_of
from torchreel.graphs.call.entry import Graphed, graphed
from torchreel.graphs.tree import status

EAGER, GRAPHED, RELAXED, COMPILED = "eager", "graphed", "graphed, exact=False", "torch.compile"

# Calls until a way is fast: a graph is warmed up and recorded, a compiler compiles in the first one.
_CALLS_UNTIL_FAST = {GRAPHED: 2, RELAXED: 2, COMPILED: 1}
_WINDOW_NS = 5_000_000
_FEWEST_WINDOWS = 3


@dataclass(frozen=True)
class MeasureOptions:
    compile: bool = True
    mode: str | None = None  # of torch.compile
    relaxed: bool = False  # exact=False as well
    inference: bool = False  # all in torch.inference_mode()
    threads: int | None = None  # as many as torch chooses
    seconds: float = 2.0  # for the windows of all ways together


@dataclass(frozen=True)
class Share:
    """The ops of a replay that are of one kind and on one source line."""

    op: str
    layer: str  # of the kernels: how they are called
    line: str  # of the user's source
    calls: int
    ns: float


@dataclass(frozen=True)
class Way:
    """What came of one way to call the function."""

    name: str
    ns: float = 0.0  # of a call: the median of the windows, and their quartiles
    low_ns: float = 0.0
    high_ns: float = 0.0
    ready_ns: int = 0  # until the first fast call, more than as many eager calls take
    failed: str = ""  # why there are no times

    def pays_after(self, eager: Way) -> int | None:
        """After how many calls the time that it took to get ready has been won back; None: never."""
        if self.failed or self.ns >= eager.ns:
            return None
        return max(0, round(self.ready_ns / (eager.ns - self.ns)))


@dataclass(frozen=True)
class Measurement:
    target: str
    threads: int
    ways: list[Way]
    shares: list[Share] = field(default_factory=list)  # of a replay, by op
    not_replayed: str = ""  # why the function is not one graph, if it is not

    def way(self, name: str) -> Way | None:
        return next((way for way in self.ways if way.name == name), None)


def measure(target: Target, options: MeasureOptions, say: Callable[[str], None] = lambda text: None) -> Measurement:
    """Measure all ways. What the function prints goes to standard error; `say` is told what takes long."""
    threads = torch.get_num_threads()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.inference_mode(options.inference):
            return _measured(target, options, say)
    finally:
        torch.set_num_threads(threads)


def _measured(target: Target, options: MeasureOptions, say: Callable[[str], None]) -> Measurement:
    eager_ns = _eager(target)
    calls: dict[str, Callable[..., Any]] = {EAGER: target.function}
    ready, failed = {EAGER: 0}, {}
    for name, wrap in _wraps(options):
        say(f"{name}: getting ready ...")
        try:
            calls[name], taken = _made_ready(target, wrap, _CALLS_UNTIL_FAST[name])
        except Exception as error:  # of a compiler, or of the function itself when it is recorded: others still work
            failed[name] = str(error) if isinstance(error, TorchreelError) else sentence_of(error)
        else:
            ready[name] = max(0, taken - _CALLS_UNTIL_FAST[name] * eager_ns)
    say("measuring ...")
    times = _windows(target, calls, options.seconds)
    ways = [_way(name, times[name], ready[name]) for name in calls]
    ways += [Way(name, failed=reason) for name, reason in failed.items()]
    fast = calls.get(GRAPHED)
    shares, reason = shares_of(target, fast) if isinstance(fast, Graphed) else ([], "")
    return Measurement(target.name, torch.get_num_threads(), ways, shares, reason)


def _made_ready(
    target: Target, wrap: Callable[[Callable[..., Any]], Callable[..., Any]], calls: int
) -> tuple[Callable[..., Any], int]:
    """What to call, and the nanoseconds until it was fast."""
    began = time.perf_counter_ns()
    fast = wrap(target.function)
    for _ in range(calls):
        target.call(fast)
    taken = time.perf_counter_ns() - began
    target.call(fast)
    return fast, taken


def _eager(target: Target) -> int:
    """Nanoseconds of a warm eager call."""
    try:
        target.call(target.function)
        began = time.perf_counter_ns()
        target.call(target.function)
        return time.perf_counter_ns() - began
    except Exception as error:
        raise OptionError(f"{target.name} raised {sentence_of(error)}: it must work before it can be fast.") from None


def _wraps(options: MeasureOptions) -> Iterator[tuple[str, Callable[[Callable[..., Any]], Callable[..., Any]]]]:
    yield GRAPHED, graphed
    if options.relaxed:
        yield RELAXED, lambda function: graphed(function, exact=False)
    if options.compile:
        yield COMPILED, lambda function: torch.compile(function, mode=options.mode)


def _windows(target: Target, calls: dict[str, Callable[..., Any]], seconds: float) -> dict[str, list[float]]:
    order = random.Random(0)
    counts = {name: _count(target, call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while len(times[EAGER]) < _FEWEST_WINDOWS or time.perf_counter() < end:
        for name in order.sample(list(calls), len(calls)):
            times[name].append(_window(target, calls[name], counts[name]))
    return times


def _count(target: Target, call: Callable[..., Any]) -> int:
    """How many calls fill a window; found by trying, which warms it up as well."""
    count = 1
    while (taken := _window(target, call, count) * count) < _WINDOW_NS / 4:
        count *= 4
    return max(1, round(count * _WINDOW_NS / taken))


def _window(target: Target, call: Callable[..., Any], count: int) -> float:
    arguments, keywords = target.arguments, target.keywords or {}
    began = time.perf_counter_ns()
    for _ in range(count):
        call(*arguments, **keywords)
    return (time.perf_counter_ns() - began) / count


def _way(name: str, times: list[float], ready_ns: int) -> Way:
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return Way(name, median, low, high, ready_ns)


def shares_of(target: Target, fast: Graphed) -> tuple[list[Share], str]:
    """Where the time of a replay goes, the greatest share first; or why calls are not replayed."""
    skips = status(fast).skips
    if skips:
        return [], skips[0].reason
    if not hasattr(type(fast), "costs"):  # an engine that cannot tell its ops apart
        return [], ""
    found: dict[tuple[str, str, str], list[float]] = {}
    for cost in target.call(fast.costs):
        found.setdefault((cost.op, cost.layer, cost.line), []).append(cost.ns)
    shares = [Share(*who, len(several), sum(several)) for who, several in found.items()]
    return sorted(shares, key=lambda share: -share.ns), ""
