"""sweep: the settings that are worth trying, tried, the best first."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from torchreel.errors import OptionError
from torchreel.ingest import open_source
from torchreel.reel import Reel
from torchreel.reel.sizes import parse_size
from torchreel.simulator.conf import Conf, parse
from torchreel.simulator.request_trace import RequestTrace, RequestTraces
from torchreel.simulator.rules import NEWEST, version_of
from torchreel.simulator.simulate import Simulation, simulate
from torchreel.simulator.source import Source, request_traces
from torchreel.simulator.sweep.candidates import SIZING, Requests, neutral, pairs, singles
from torchreel.simulator.sweep.trials import Trial, Trials, ranked, trial

if TYPE_CHECKING:
    import pyarrow as pa

_GRAIN = 2 << 20  # segments are multiples of this, so a capacity between two of them is as good as the lower one

Progress = Callable[[int, int], None]
Result = TypeVar("Result")


def sweep(
    source: Source,
    capacity: int | str | None = None,
    fraction: float | None = None,
    torch_version: str | None = None,
    device: str | None = None,
    conf: str | Conf | None = None,
) -> pa.Table:
    """Try the settings of PYTORCH_CUDA_ALLOC_CONF that can matter to a run: a row for each, the best first.

    `source`, `capacity`, `fraction` and `torch_version` are those of `simulate`. `conf` is the setting to compare
    with: None is the recorded one. The devices of a run are added up, unless `device` names one.
    """
    if isinstance(source, str | os.PathLike):
        with open_source(source) as reel:
            return sweep(reel, capacity, fraction, torch_version, device, conf)
    windows = isinstance(source, Reel) and made_on_windows(source)
    found = only(request_traces(source), device)
    return try_settings(found, capacity, fraction, torch_version, conf, windows).table()


def try_settings(
    found: RequestTraces,
    capacity: int | str | None = None,
    fraction: float | None = None,
    torch_version: str | None = None,
    conf: str | Conf | None = None,
    windows: bool = False,
    progress: Progress | None = None,
) -> Trials:
    """What `sweep` gives as a table, with what advice needs beside it; `progress` is told how many are done."""
    current = parse(conf) if isinstance(conf, str) else conf or next(iter(found.devices.values())).conf
    room = None if capacity is None else parse_size(capacity)
    run = _Run(found, current, room, fraction, torch_version, progress)
    requests = replace(run.requests(), windows=windows)
    run.try_all(singles(current, requests))
    run.try_all(pairs(current, run.best_of_each(), requests))
    trials = ranked(run.trials)
    needed = max(one.peak_requested for one in run.simulated(current, None).devices.values())
    smallest = None if room is None else run.smallest(trials)
    return Trials(trials, room, needed, smallest)


def only(found: RequestTraces, device: str | None) -> RequestTraces:
    """The request traces of one device, or of all."""
    if device is None:
        return found
    if device not in found.devices:
        raise OptionError(f"There is no device {device!r} in this recording: it has {', '.join(found.devices)}.")
    return RequestTraces({device: found.devices[device]})


def made_on_windows(reel: Reel) -> bool:
    """Whether the paths of the recorded source are those of Windows."""
    files = reel.table("frames", ["file"])["file"].unique().to_pylist()
    return any(re.match(r"[A-Za-z]:[\\/]", file) for file in files if file)


@dataclass
class _Run:
    """One run, and the trials made of it so far."""

    request_traces: RequestTraces
    current: Conf
    capacity: int | None
    fraction: float | None
    torch_version: str | None
    progress: Progress | None

    def __post_init__(self) -> None:
        self.current.require_native()
        self.trials: list[Trial] = []

    def requests(self) -> Requests:
        every = list(self.request_traces.devices.values())
        sizes = np.unique(np.concatenate([trace.sizes for trace in every])) if every else np.zeros(0, np.int64)
        given = self.fraction if self.fraction is not None else self.current.per_process_memory_fraction
        return Requests(
            sizes=tuple(sizes.tolist()),
            has_fraction=any(self._is_limited(trace, given) for trace in every),
            version=min(self._version(trace) for trace in every),
        )

    def _is_limited(self, trace: RequestTrace, given: float | None) -> bool:
        fraction = trace.fraction if given is None else given
        return fraction is not None and fraction < 1 and (self.capacity or trace.total) is not None

    def _version(self, trace: RequestTrace) -> tuple[int, int]:
        return version_of(self.torch_version) if self.torch_version else trace.torch_version or NEWEST

    def simulated(self, conf: Conf, capacity: int | None) -> Simulation:
        return simulate(self.request_traces, conf, capacity, self.torch_version, self.fraction)

    def try_all(self, confs: Iterable[Conf]) -> None:
        """Try what was not tried yet."""
        known = {trial.conf for trial in self.trials}
        new = [conf for conf in confs if conf not in known]
        total = len(self.trials) + len(new)
        for simulation, conf in zip(self._at_once(self._limited, new), new, strict=True):
            self.trials.append(trial(conf, conf == self.current, simulation.devices.values()))
            if self.progress is not None:
                self.progress(len(self.trials), total)

    def _at_once(self, work: Callable[[Conf], Result], confs: Sequence[Conf]) -> Iterator[Result]:
        """Do the work for each. The model lets go of Python's lock, so threads use all processors."""
        threads = ThreadPoolExecutor(max_workers=os.cpu_count())
        try:
            yield from threads.map(work, confs)
        finally:
            threads.shutdown(cancel_futures=True)  # after Ctrl-C, only those that run are waited for

    def _limited(self, conf: Conf) -> Simulation:
        return self.simulated(conf, self.capacity)

    def best_of_each(self) -> list[Conf]:
        """The value of each option that did best alone."""
        base = neutral(self.current)
        best = []
        for name in SIZING:
            changed = [one for one in self.trials if _alone(one.conf, base, name)]
            if changed:
                best.append(ranked(changed)[0].conf)
        return best

    def smallest(self, trials: Sequence[Trial]) -> tuple[Conf, int]:
        """The setting that needs the smallest device, and how small.

        The least at which nothing fails is found by halving; settings that fail on a device smaller than the best so
        far are not looked into. A run may fail with more memory than one on which it fits: that is not asked.
        """
        best = (self.current, self._never_full(self.current))
        left = [one.conf for one in sorted(trials, key=lambda trial: (not trial.current, len(trial.text)))]
        while left:
            smaller = best[1] - 1
            left = [conf for conf, fits in zip(left, self._at_once(self._fitting(smaller), left), strict=True) if fits]
            if left:
                best = (left[0], self._least(left.pop(0), smaller))
        return best[0], best[1] * _GRAIN

    def _never_full(self, conf: Conf) -> int:
        return max(one.peak_reserved for one in self.simulated(conf, None).devices.values()) // _GRAIN + 1

    def _least(self, conf: Conf, high: int) -> int:
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(conf, middle) else (middle, high)
        return high

    def _fitting(self, grains: int) -> Callable[[Conf], bool]:
        return lambda conf: self._fits(conf, grains)

    def _fits(self, conf: Conf, grains: int) -> bool:
        if grains <= 0:
            return False
        return not any(one.ooms for one in self.simulated(conf, grains * _GRAIN).devices.values())


def _alone(conf: Conf, base: Conf, name: str) -> bool:
    """Whether the conf differs from the base in this option, and in no other; unsplit rounding follows the segments."""
    if getattr(conf, name) == getattr(base, name):
        return False
    same = {other: getattr(base, other) for other in (name, "max_non_split_rounding")}
    return replace(conf, **same) == base
