"""The order of kernels in their streams, and which of them streams and the host waited for."""

from __future__ import annotations

import re

import numpy as np

from torchreel.analyze.gpu.model.run import DeviceRun
from torchreel.analyze.gpu.model.waits import waiting
from torchreel.reel.columns import NOTHING, Ints, ints, texts

_ALL_STREAMS = re.compile(r"DeviceSynchronize|CtxSynchronize|Free|_synchronize|__init__\.py\(\d+\): synchronize$")
_EVENT_WAIT = re.compile(r"Stream Wait Event|event_wait", re.IGNORECASE)
_APART, _RIGHT_AFTER = 1_000, 20_000  # nanoseconds
_EARLIEST = np.iinfo(np.int64).min


class StreamOrder:
    """For each kernel the one before it in its stream, or NOTHING; and the last that was launched before a moment."""

    def __init__(self, run: DeviceRun) -> None:
        kernels = run.kernels
        self.before = np.full(len(kernels), NOTHING)
        self._rows: dict[tuple[str, int], Ints] = {}
        self._launched: dict[tuple[str, int], Ints] = {}
        self._ended: dict[tuple[str, int], Ints] = {}
        asked = np.full(len(kernels), _EARLIEST)
        known = kernels.launch >= 0
        asked[known] = run.calls.start[kernels.launch[known]]
        for device, stream in np.unique(np.stack((kernels.device, kernels.stream), 1), axis=0).tolist():
            rows = np.flatnonzero((kernels.device == device) & (kernels.stream == stream))
            self.before[rows[1:]] = rows[:-1]
            key = (kernels.devices[device] if device >= 0 else "", stream)
            self._rows[key] = rows
            self._launched[key] = np.maximum.accumulate(asked[rows])
            self._ended[key] = np.maximum.accumulate(kernels.end[rows])

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def keys(self) -> list[tuple[str, int]]:
        return list(self._rows)

    def last(self, key: tuple[str, int], moments: Ints) -> Ints:
        """The last kernel of a stream that was launched before each moment, or NOTHING."""
        place = np.searchsorted(self._launched[key], moments, side="left") - 1
        return np.where(place >= 0, self._rows[key][np.maximum(place, 0)], NOTHING)

    def last_ended(self, key: tuple[str, int], moments: Ints, ends: Ints) -> Ints:
        """The last kernel of a stream that was launched before each moment and had ended by another, or NOTHING."""
        place = np.searchsorted(self._launched[key], moments, side="left") - 1
        place = np.minimum(place, np.searchsorted(self._ended[key], ends, side="right") - 1)
        return np.where(place >= 0, self._rows[key][np.maximum(place, 0)], NOTHING)

    def next(self, key: tuple[str, int], moments: Ints) -> Ints:
        """The first kernel of a stream that was launched at a moment or after it, or NOTHING."""
        place = np.searchsorted(self._launched[key], moments, side="left")
        rows = self._rows[key]
        return np.where(place < len(rows), rows[np.minimum(place, len(rows) - 1)], NOTHING)


class _Syncs:
    """The waits that a trace has, as arrays."""

    def __init__(self, run: DeviceRun) -> None:
        table = run.rows("syncs")
        kind, kinds = texts(table, "kind")
        device, devices = texts(table, "device")
        self.kind = [kinds[number] if number >= 0 else "" for number in kind]
        self.device = [devices[number] if number >= 0 else "" for number in device]
        self.stream = ints(table, "stream")
        self.on_stream = ints(table, "wait_on_stream")
        self.launch = run.calls.rows(ints(table, "launch"))
        recorded = run.calls.rows(ints(table, "wait_on_launch"))
        own = ints(table, "start_ns", 0)
        starts = np.append(run.calls.start, 0)
        self.asked = np.where(self.launch >= 0, starts[self.launch], own)
        self.recorded = np.where(recorded >= 0, starts[recorded], self.asked)

    def __len__(self) -> int:
        return len(self.kind)


def event_waits(run: DeviceRun, streams: StreamOrder) -> tuple[Ints, Ints, bool]:
    """Kernels, and those of other streams that waited for them; whether the trace has waits at all."""
    syncs = _Syncs(run)
    awaited, waiters = [], []
    known = set(streams.keys)
    for number, kind in enumerate(syncs.kind):
        here = (syncs.device[number], int(syncs.stream[number]))
        there = (syncs.device[number], int(syncs.on_stream[number]))
        if _EVENT_WAIT.search(kind) and here in known and there in known and here != there:
            first = int(streams.last(there, syncs.recorded[number : number + 1])[0])
            second = int(streams.next(here, syncs.asked[number : number + 1])[0])
            if first >= 0 and second >= 0:
                awaited.append(first)
                waiters.append(second)
    return np.array(awaited, np.int64), np.array(waiters, np.int64), len(syncs) > 0


def guessed_waits(run: DeviceRun, streams: StreamOrder, launch: int, stream: int) -> tuple[Ints, Ints]:
    """Kernels, and those of other streams that seem to have waited for them, where the trace has no waits.

    Such a kernel was launched, and the one before it in its stream had ended, the usual lags ago; and it began right
    after a kernel of another stream of its device had ended.
    """
    kernels = run.kernels
    known = kernels.launch >= 0
    ready = np.full(len(kernels), _EARLIEST)
    ready[known] = run.calls.start[kernels.launch[known]] + launch
    behind = streams.before >= 0
    ready[behind] = np.maximum(ready[behind], kernels.end[streams.before[behind]] + stream)
    best = np.full(len(kernels), NOTHING)
    for key in streams.keys:
        found = streams.last_ended(key, np.full(len(kernels), np.iinfo(np.int64).max), kernels.start)
        same = np.array([name == key[0] for name in kernels.devices] + [False], bool)[kernels.device]
        fits = same & (kernels.stream != key[1]) & (found >= 0)
        best = np.where(fits & ((best < 0) | (kernels.end[found] > kernels.end[best])), found, best)
    ended = kernels.end[best]
    waited = (best >= 0) & (behind | known) & (ended > ready + _APART) & (kernels.start - ended <= _RIGHT_AFTER)
    return best[waited], np.flatnonzero(waited)


def host_waits(run: DeviceRun, streams: StreamOrder) -> tuple[Ints, Ints]:
    """Kernels, and the calls of the host that waited for them: of each call and stream the last.

    Where the trace does not say for which stream a call waited, it is the one whose kernel ended last before the call.
    """
    calls, kernels = run.calls, run.kernels
    waits = np.flatnonzero(waiting(run))
    own = np.flatnonzero(np.isin(kernels.launch, waits))
    others = waits[~np.isin(waits, kernels.launch)]
    moments, allowed = _allowed(run, streams, others)
    candidates = np.full((len(streams), len(others)), NOTHING)
    for number, key in enumerate(streams.keys):
        # What waits for all has waited for what had ended: the clocks of host and device differ by microseconds.
        all_of_it = streams.last_ended(key, moments, calls.end[others])
        last = np.where(allowed[number] == _YES, all_of_it, streams.last(key, moments))
        candidates[number] = np.where(allowed[number] != _NO, last, NOTHING)
    ends = np.where(candidates >= 0, kernels.end[candidates], _EARLIEST)
    ends = np.where(ends <= calls.end[others], ends, _EARLIEST)
    best = ends == ends.max(axis=0, initial=_EARLIEST)
    keep = (ends > _EARLIEST) & ((allowed == _YES) | best)
    stream, column = np.nonzero(keep)
    return np.concatenate((own, candidates[stream, column])), np.concatenate((kernels.launch[own], others[column]))


_NO, _PERHAPS, _YES = range(3)


def _allowed(run: DeviceRun, streams: StreamOrder, waits: Ints) -> tuple[Ints, Ints]:
    """Up to when kernels were launched that each call waited for, and of which streams."""
    calls = run.calls
    moments = calls.start[waits].copy()
    allowed = np.full((len(streams), len(waits)), _PERHAPS)
    allowed[:, calls.named(_ALL_STREAMS.search)[waits]] = _YES
    place = {int(row): number for number, row in enumerate(waits)}
    syncs = _Syncs(run)
    for number in range(len(syncs)):
        column = place.get(int(syncs.launch[number]))
        if column is None or _EVENT_WAIT.search(syncs.kind[number]):
            continue
        stream = int(syncs.on_stream[number]) if syncs.on_stream[number] >= 0 else int(syncs.stream[number])
        moments[column] = syncs.recorded[number]
        allowed[:, column] = [
            _YES if key[0] == syncs.device[number] and stream in (key[1], NOTHING) else _NO for key in streams.keys
        ]
    return moments, allowed
