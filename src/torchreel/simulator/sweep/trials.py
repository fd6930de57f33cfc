"""Trial: what one setting would have done for a run; Trials: all that were tried, the best first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchreel.simulator.conf import Conf

if TYPE_CHECKING:
    import pyarrow as pa

    from torchreel.simulator.simulate import DeviceSimulation

_LEAST_SHARE = 0.01
_LEAST_BYTES = 20 << 20  # one large segment: less than that may be an accident of the addresses


@dataclass(frozen=True)
class Trial:
    """One setting, over all devices of the run together. Sizes are bytes."""

    conf: Conf
    current: bool  # the setting of the recorded run, or the one that was asked about
    peak_reserved: int
    peak_allocated: int
    allocated_at_peak: int  # when reserved was at its peak
    retries: int  # times that all cached memory was given back, and the device waited for
    ooms: int  # requests that could not be met
    device_calls: int  # cudaMalloc, cudaFree, maps and unmaps

    @property
    def fits(self) -> bool:
        return self.ooms == 0

    @property
    def fragmentation(self) -> float:
        """The part of the reserved memory that held no tensor when most was reserved."""
        return 1 - self.allocated_at_peak / self.peak_reserved if self.peak_reserved else 0.0

    @property
    def text(self) -> str:
        return str(self.conf)


def trial(conf: Conf, current: bool, devices: Iterable[DeviceSimulation]) -> Trial:
    """The devices' simulations under one setting, added up."""
    devices = list(devices)
    return Trial(
        conf=conf,
        current=current,
        peak_reserved=sum(device.peak_reserved for device in devices),
        peak_allocated=sum(device.peak_allocated for device in devices),
        allocated_at_peak=sum(device.allocated_at_peak for device in devices),
        retries=sum(device.retries for device in devices),
        ooms=sum(device.ooms for device in devices),
        device_calls=sum(
            device.stats.get("num_device_alloc", 0) + device.stats.get("num_device_free", 0) for device in devices
        ),
    )


@dataclass(frozen=True)
class Trials:
    """A sweep's outcome."""

    trials: tuple[Trial, ...]  # those that fit first, then by peak reserved, then by retries
    capacity: int | None  # bytes of the device, if a limit was given
    needed: int  # the most bytes of tensors that were alive at once on one device, whatever the setting
    smallest: tuple[Conf, int] | None = None  # with a capacity: the setting that needs least, and how little

    @property
    def current(self) -> Trial:
        return next(trial for trial in self.trials if trial.current)

    @property
    def best(self) -> Trial:
        """The simplest setting of those that are as good as the best of all."""
        first = self.trials[0]
        limit = first.peak_reserved + least_gain(first.peak_reserved)
        good = [trial for trial in self.trials if trial.fits == first.fits and trial.peak_reserved < limit]
        return min(
            good, key=lambda trial: (not trial.current, len(_options(trial.text)), trial.peak_reserved, trial.text)
        )

    @property
    def telling(self) -> tuple[Trial, ...]:
        """Without settings that do the same as a simpler one, or as another value of the same options."""
        seen: dict[tuple[int, ...], list[set[str]]] = {}
        kept = set()
        for trial in sorted(self.trials, key=lambda trial: (not trial.current, *_simplicity(trial))):
            outcome = (trial.peak_reserved, trial.peak_allocated, trial.retries, trial.ooms, trial.device_calls)
            names = {option.partition(":")[0] for option in _options(trial.text)}
            others = seen.setdefault(outcome, [])
            if trial.current or not trial.text or not any(one <= names for one in others):
                kept.add(trial)
            others.append(names)
        return tuple(trial for trial in self.trials if trial in kept)

    @property
    def gain(self) -> int:
        """Bytes that the best setting reserves less than the current one."""
        return self.current.peak_reserved - self.best.peak_reserved

    def table(self) -> pa.Table:
        """One row per setting, as `torchreel.allocator.sweep` gives them."""
        import pyarrow as pa

        base = self.current.peak_reserved
        rows = [
            {
                "conf": trial.text,
                "current": trial.current,
                "fits": trial.fits,
                "peak_reserved": trial.peak_reserved,
                "gain": base - trial.peak_reserved,
                "peak_allocated": trial.peak_allocated,
                "fragmentation": trial.fragmentation,
                "retries": trial.retries,
                "ooms": trial.ooms,
                "device_calls": trial.device_calls,
            }
            for trial in self.trials
        ]
        return pa.Table.from_pylist(rows)


def _options(text: str) -> list[str]:
    """The options of an option string; commas within brackets do not part them."""
    return re.split(r",(?![^\[]*\])", text) if text else []


def _simplicity(trial: Trial) -> tuple[int, int, str]:
    return len(_options(trial.text)), len(trial.text), trial.text


def least_gain(peak: int) -> int:
    """What a setting must save to be worth its name: 1 %, and no less than a large segment."""
    return max(_LEAST_BYTES, round(peak * _LEAST_SHARE))


def ranked(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """The best first; of equals, that which asks least of the device and of the reader."""
    return tuple(
        sorted(
            trials,
            key=lambda trial: (trial.ooms, trial.peak_reserved, trial.retries, trial.device_calls, len(trial.text)),
        )
    )
