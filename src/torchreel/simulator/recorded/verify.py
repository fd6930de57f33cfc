"""verify: a recorded history, run again by the simulator, and held against what was recorded.

The requests, the frees and the addresses of new segments are given; which block each request gets, which segments are
made and released, and when, must come out by itself.
"""

from __future__ import annotations

import heapq
import os
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from torchreel import _simulator
from torchreel.errors import OptionError
from torchreel.ingest import open_source
from torchreel.reel import Reel
from torchreel.reel.allocator_history.actions import ACTIONS, SEGMENT_ALLOC, SEGMENT_MAP
from torchreel.reel.columns import Ints
from torchreel.simulator.recorded.recorded_history import ACTION, POOL, UNKNOWN, RecordedHistory, recorded_histories
from torchreel.simulator.recorded.start import Start, rebuild
from torchreel.simulator.rules import ADDRESS, BLOCK, ORDERS, SEGMENT, native_rules, order_of, version_of
from torchreel.simulator.source import named

# A start that is learned from its own history is run again as often, at most.
_MOST_LESSONS = 8


@dataclass(frozen=True)
class Score:
    matched: int
    total: int

    @property
    def complete(self) -> bool:
        return self.matched == self.total


@dataclass(frozen=True)
class Mismatch:
    """Where the simulated run and the recorded one parted for the first time."""

    event: int
    """The event's id in the reel."""
    recorded: str
    simulated: str

    def __str__(self) -> str:
        return f"event {self.event}: recorded was {self.recorded}, simulated was {self.simulated}"


@dataclass(frozen=True)
class DeviceVerification:
    device: str
    history: str
    """complete: it begins with an empty allocator; mid-run: the start was rebuilt; none: there are no events."""
    allocs: Score
    segment_events: Score
    recorded_peak: int
    simulated_peak: int
    order: str
    """Which of equal free blocks was taken first: by address (torch <= 2.11), block (2.12) or segment (>= 2.13)."""
    torch: str
    """The version of torch, or those between which the file was written."""
    notes: tuple[str, ...] = ()
    mismatch: Mismatch | None = None

    @property
    def ok(self) -> bool:
        same = self.allocs.complete and self.segment_events.complete and self.mismatch is None
        return same and self.recorded_peak == self.simulated_peak

    def to_json(self) -> dict[str, Any]:
        return {
            "allocs": asdict(self.allocs),
            "segment_events": asdict(self.segment_events),
            "peak_reserved": {"recorded": self.recorded_peak, "simulated": self.simulated_peak},
            "history": self.history,
            "order": self.order,
            "torch": self.torch,
            "notes": list(self.notes),
            "mismatch": None if self.mismatch is None else asdict(self.mismatch),
        }


@dataclass(frozen=True)
class Verification:
    devices: dict[str, DeviceVerification]

    @property
    def ok(self) -> bool:
        """Whether all that was recorded came out, on every device."""
        return all(device.ok for device in self.devices.values())

    def to_json(self) -> dict[str, Any]:
        return {name: device.to_json() for name, device in self.devices.items()}


def verify(source: str | os.PathLike[str] | Reel) -> Verification:
    """Run the recorded histories of a snapshot or a reel again, and say what came out as recorded."""
    if isinstance(source, Reel):
        return Verification(_verified(source))
    with open_source(source) as reel:
        return Verification(_verified(reel))


def _verified(reel: Reel) -> dict[str, DeviceVerification]:
    found = [one for one in recorded_histories(reel) if one.device != "cpu" and (len(one.events) or one.segments)]
    if not found:
        raise OptionError(
            f"{reel.path} holds nothing of a CUDA allocator that could be verified: give a memory snapshot that "
            "torch.cuda.memory._dump_snapshot wrote."
        )
    return {name: verify_history(history) for name, history in named(found)}


def verify_history(history: RecordedHistory) -> DeviceVerification:
    """Verify one device. Where a file leaves the version of torch open, the one that fits best is taken."""
    starts = _starts(history)
    attempts = []
    for order, (start, events) in product(_orders(history), starts):
        attempt = _Attempt(history, start, events, order)
        attempt.run()
        attempts.append(attempt)
        if attempt.perfect:
            break
    best = max(attempts, key=lambda attempt: attempt.score)
    return _described(history, best, len({attempt.order for attempt in attempts}))


def _starts(history: RecordedHistory) -> list[tuple[Start, Ints]]:
    """The starts, each with its events, that a history may have had.

    Before torch 2.12 events do not name their pool, and the end tells that of a segment only if it is there then. Of
    one that is not, the pool is found out on the way; but it may also be the default one throughout, as private pools
    seldom give memory back.
    """
    start, events = rebuild(history)
    unknown = np.isin(events[:, ACTION], (SEGMENT_ALLOC, SEGMENT_MAP)) & (events[:, POOL] == UNKNOWN)
    if not unknown.any():
        return [(start, events)]
    events_of_default = events.copy()
    events_of_default[unknown, POOL] = 0
    return [(start, events), rebuild(replace(history, events=events_of_default))]


def _orders(history: RecordedHistory) -> list[int]:
    """The orders of free blocks that may have ruled, the most likely first."""
    if history.torch_version is not None:
        first = order_of(version_of(history.torch_version))
        return [first, *(order for order in (SEGMENT, BLOCK, ADDRESS) if order != first)]
    if history.dated[1] < (2, 12):
        return [ADDRESS]
    return [SEGMENT, BLOCK, ADDRESS] if history.dated[0] >= (2, 12) else [ADDRESS, SEGMENT, BLOCK]


class _Attempt:
    """One order of free blocks, tried: strictly, and then with what the history tells of its start."""

    def __init__(self, history: RecordedHistory, start: Start, events: Ints, order: int) -> None:
        self.history = history
        self.events = events
        self.order = order
        self.start = start
        self.ranks: list[int] = []
        self.slack: dict[int, int] = {}
        self.range_bytes = start.range_bytes
        self.result: dict[str, Any] = {}
        self.learned = False

    @property
    def score(self) -> tuple[bool, int]:
        """The better, the greater: whether nothing differs, and how much came out right."""
        right = sum(self.result[key]["matched"] - self.result[key]["extra"] for key in ("allocs", "segment_events"))
        return self.perfect, right

    @property
    def perfect(self) -> bool:
        return self.result["mismatch"] is None

    def run(self) -> None:
        self.result = self._run(learns=False)
        best, score = self.result, self.score
        for _ in range(_MOST_LESSONS):
            if self.perfect or not self._learn(self._run(learns=True)):
                break
            self.result = self._run(learns=False)
            if self.score > score:
                best, score = self.result, self.score
                self.learned = True
        self.result = best

    def _run(self, learns: bool) -> dict[str, Any]:
        conf = self.history.conf
        rules = native_rules(conf, self.order, counts_ages=conf.garbage_collection_threshold > 0)
        if self.range_bytes:
            rules["range_bytes"] = self.range_bytes
        segments, blocks, mapped = self._start().rows()
        flags = self.start.flags
        return _simulator.run_recorded(rules, flags, self.events, segments, blocks, mapped, self.ranks, learns)

    def _start(self) -> Start:
        """The rebuilt start with what was learned of it."""
        blocks = [
            replace(block, size=block.size + self.slack[block.address], room=block.room - self.slack[block.address])
            if block.address in self.slack
            else block
            for block in self.start.blocks
        ]
        segments = self.start.segments
        if self.range_bytes:
            segments = [
                replace(one, size=min(one.size, -(-self.range_bytes // one.page) * one.page)) if one.page else one
                for one in segments
            ]
        return replace(self.start, blocks=blocks, segments=segments)

    def _learn(self, lesson: dict[str, Any]) -> bool:
        """Whether there was anything to learn."""
        before = (self.ranks, dict(self.slack), self.range_bytes)
        if lesson["ties"]:
            names = dict(enumerate(range(lesson["old_counters"])))
            if self.ranks:
                names = {rank: old for old, rank in enumerate(self.ranks)}
            ties = [(names[first], names[second]) for first, second in lesson["ties"]]
            self.ranks = sorted_ranks(lesson["old_counters"], ties)
        for address, bytes_ in lesson["slack"].items():
            self.slack[address] = self.slack.get(address, 0) + bytes_
        if lesson["range_bytes"] is not None:
            self.range_bytes = min(self.range_bytes or lesson["range_bytes"], lesson["range_bytes"])
        return before != (self.ranks, self.slack, self.range_bytes)


def sorted_ranks(count: int, ties: list[tuple[int, int]]) -> list[int]:
    """Places for `count` things such that the first of each pair comes before the second; else as they are numbered.

    Pairs that contradict others are given up, those of the least number first.
    """
    after: dict[int, set[int]] = {}
    waiting = [0] * count
    for first, second in set(ties):
        if second not in after.setdefault(first, set()):
            after[first].add(second)
            waiting[second] += 1
    ready = [one for one in range(count) if not waiting[one]]
    heapq.heapify(ready)
    ranks = [-1] * count
    circle = 0
    for index in range(count):
        if not ready:
            while ranks[circle] >= 0:
                circle += 1
            ready = [circle]
        one = heapq.heappop(ready)
        ranks[one] = index
        for other in after.get(one, ()):
            waiting[other] -= 1
            if not waiting[other] and ranks[other] < 0:
                heapq.heappush(ready, other)
    return ranks


def _described(history: RecordedHistory, attempt: _Attempt, orders: int) -> DeviceVerification:
    result = attempt.result
    notes = []
    kind = "none" if not history.has_events else "complete" if attempt.start.is_empty else "mid-run"
    if orders > 1 and attempt.perfect:
        notes.append(f"the version of torch is inferred: of {orders} orders of free blocks only this one fits")
    if attempt.learned:
        notes.append("what the history tells of the blocks that are older than it is inferred from itself")
    return DeviceVerification(
        device=history.device,
        history=kind,
        allocs=_score(result["allocs"]),
        segment_events=_score(result["segment_events"]),
        recorded_peak=history.peak_reserved(),
        simulated_peak=result["peak_reserved"],
        order=ORDERS[attempt.order],
        torch=history.torch_version or "-".join(f"{a}.{b}" for a, b in dict.fromkeys(history.dated)),
        notes=tuple(notes),
        mismatch=_mismatch(history, result["mismatch"]),
    )


def _score(score: dict[str, int]) -> Score:
    """What was done though nobody recorded it counts against what was done right."""
    return Score(max(score["matched"] - score["extra"], 0), score["total"])


def _mismatch(history: RecordedHistory, found: tuple[int, ...] | None) -> Mismatch | None:
    if found is None:
        return None
    event, *both = found
    recorded, simulated = _phrase(*both[:3]), _phrase(*both[3:])
    at = int(history.ids[min(event, len(history.ids) - 1)]) if len(history.ids) else 0
    return Mismatch(at, recorded, simulated)


def _phrase(action: int, address: int, size: int) -> str:
    name = ACTIONS[action]
    if name == "other":
        return "nothing"
    where = f" at {address:#x}" if address else ""
    return f"{name} of {size} bytes{where}"
