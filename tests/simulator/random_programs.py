"""Programs and settings at random: what hypothesis draws, and a seeded generator for longer ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from torchreel.simulator.conf import Conf
from torchreel.simulator.rules import native_rules

MIB = 1 << 20
Event = tuple[str, int, int, int, int]  # action, handle, size, stream, pool
Step = tuple[str, int, int, int, int]  # action, size, stream, pool, which one

KINDS = (
    ["alloc"] * 12 + ["free"] * 8 + ["free_requested"] * 2 + ["free_completed"] * 2 + ["empty_cache", "release_pool"]
)


@dataclass(frozen=True)
class Setting:
    """What a program runs with."""

    conf: Conf
    order: int
    capacity: int | None
    limit: int | None
    flags: dict[int, set[str]]

    @property
    def collects_garbage(self) -> bool:
        return self.limit is not None and self.conf.garbage_collection_threshold > 0

    def rules(self) -> dict[str, Any]:
        rules = native_rules(
            self.conf,
            self.order,
            limit=self.limit,
            counts_ages=self.collects_garbage,
        )
        if self.capacity is not None:
            rules["capacity"] = self.capacity
            # More than PyTorch takes: no file holds the size, and only a range that is almost full shows it.
            rules["range_bytes"] = 2 * self.capacity
        return rules


def sizes() -> st.SearchStrategy[int]:
    """Small and large requests, and those at the edges between the rules."""
    edges = [1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 19 * MIB, 20 * MIB, 21 * MIB]
    return st.one_of(
        st.integers(1, MIB),
        st.integers(MIB, 12 * MIB),
        st.integers(10 * MIB, 60 * MIB),
        st.sampled_from(edges),
        st.sampled_from([n * MIB // 2 for n in range(2, 60)]),
    )


def steps() -> st.SearchStrategy[list[Step]]:
    step = st.tuples(
        st.sampled_from(KINDS),
        sizes(),
        st.sampled_from([0, 0, 0, 7, 9]),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.integers(0),
    )
    return st.lists(step, max_size=120)


def confs() -> st.SearchStrategy[Conf]:
    limits = st.sampled_from([None, None, 20 * MIB, 24 * MIB, 40 * MIB])
    return st.builds(
        Conf,
        max_split_size=limits,
        max_non_split_rounding=st.sampled_from([0, 0, 32 * MIB]),
        garbage_collection_threshold=st.sampled_from([0.0, 0.0, 0.3, 0.6]),
        roundup_power2_divisions=st.sampled_from([(0,) * 16, (0,) * 16, (4,) * 16, (1, 2, 4, 8) * 4]),
        expandable_segments=st.booleans(),
        large_segment_size=st.sampled_from([20 * MIB, 20 * MIB, 20 * MIB, 12 * MIB]),
        throw_on_cudamalloc_oom=st.sampled_from([False, False, False, True]),
    )


def settings() -> st.SearchStrategy[Setting]:
    flag = st.sets(st.sampled_from(["no_split", "use_on_oom", "capturing", "own_device"]), max_size=2)
    return st.builds(
        Setting,
        conf=confs(),
        order=st.integers(0, 2),
        capacity=st.sampled_from([None, 64 * MIB, 150 * MIB, 400 * MIB]),
        limit=st.sampled_from([None, None, 100 * MIB, 200 * MIB]),
        flags=st.fixed_dictionaries({1: flag, 2: flag}),
    )


def program(steps: list[Step]) -> list[Event]:
    """The steps with the blocks that they concern: a free is one of a block that lives."""
    events: list[Event] = []
    live: list[int] = []
    pending: list[int] = []
    released: set[int] = set()
    for action, size, stream, pool, pick in steps:
        if action == "alloc":
            if pool in released:
                pool = 0
            live.append(len(events))
            events.append(("alloc", len(events), size, stream, pool))
        elif action == "free" and live:
            events.append(("free", live.pop(pick % len(live)), 0, 0, 0))
        elif action == "free_requested" and live:
            handle = live.pop(pick % len(live))
            pending.append(handle)
            events.append(("free_requested", handle, 0, 0, 0))
        elif action == "free_completed" and pending:
            events.append(("free_completed", pending.pop(pick % len(pending)), 0, 0, 0))
        elif action == "empty_cache":
            events.append(("empty_cache", 0, 0, 0, 0))
        elif action == "release_pool" and pool:
            released.add(pool)
            events.append(("release_pool", 0, 0, 0, pool))
    return events


def long_steps(seed: int, count: int) -> list[Step]:
    """Steps as a training loop makes them: sizes come again and again, and most blocks die young."""
    draw = random.Random(seed)
    streams = draw.choice([[0], [0], [0, 7], [0, 7, 9]])
    pools = draw.choice([[0], [0], [0, 0, 1], [0, 0, 1, 2]])
    kinds = [kind for kind in KINDS if not (kind == "release_pool" and draw.random() < 0.5)]
    if draw.random() < 0.5:
        kinds = [kind for kind in kinds if kind not in ("free_requested", "free_completed")]
    usual = [_size(draw) for _ in range(draw.randint(3, 30))]
    steps = []
    for _ in range(count):
        kind = draw.choice(kinds)
        if kind in ("empty_cache", "release_pool") and draw.random() < 0.9:
            kind = "alloc"
        size = draw.choice(usual) if draw.random() < 0.8 else _size(draw)
        steps.append((kind, size, draw.choice(streams), draw.choice(pools), draw.randrange(1 << 30)))
    return steps


def _size(draw: random.Random) -> int:
    kind = draw.random()
    if kind < 0.4:
        return draw.randint(1, MIB)
    if kind < 0.7:
        return draw.randint(MIB + 1, 10 * MIB)
    if kind < 0.85:
        return draw.randrange(1, 40) * MIB
    return draw.randint(10 * MIB, 60 * MIB)


def long_setting(seed: int) -> Setting:
    draw = random.Random(seed)
    conf = Conf(
        max_split_size=draw.choice([None, None, None, 20 * MIB, 32 * MIB]),
        garbage_collection_threshold=draw.choice([0.0, 0.0, 0.0, 0.4, 0.7]),
        roundup_power2_divisions=draw.choice([(0,) * 16, (0,) * 16, (4,) * 16]),
        expandable_segments=draw.random() < 0.4,
    )
    flags = {pool: {"capturing"} if draw.random() < 0.5 else set() for pool in (1, 2)}
    return Setting(
        conf,
        order=draw.randrange(3),
        capacity=draw.choice([None, 200 * MIB, 500 * MIB, 1000 * MIB]),
        limit=draw.choice([None, None, 300 * MIB]),
        flags=flags,
    )


def knowable(setting: Setting, steps: list[Step]) -> list[Step]:
    """Without what hardly any file tells: before torch 2.12 events do not name their pool.

    That of a segment is known only if it is there at the end, so no private pool gives memory back here. Where blocks
    are too large to be split one does so for its own requests when the device is full, so there is none then.
    """
    if setting.order > 0:
        return steps
    steps = [step for step in steps if step[0] != "release_pool"]
    may_be_full = setting.capacity is not None or setting.limit is not None
    if setting.conf.max_split_size is not None and may_be_full and not setting.conf.expandable_segments:
        return [(action, size, stream, 0, pick) for action, size, stream, _, pick in steps]
    return steps
