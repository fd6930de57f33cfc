"""Snapshots with bytes and values changed at random: tables come out, or a sentence; never anything else."""

from __future__ import annotations

import copy
import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.in_child import in_child
from tests.ingest.snapshot.small import small_snapshot
from tests.snapshots import SNAPSHOTS
from torchreel.errors import SnapshotError
from torchreel.export import export
from torchreel.ingest import open_source, read_snapshot

# Bytes that mean much to a pickle: opcodes, and lengths at their limits.
TELLING = b"\x80\x94\x8c\x8a\x8b\x95(.)]}0123KMJXGNQRabcdehilopqrstu\x81\x85\x86\x87\x88\x93\x00\x01\x7f\xff"


def seeds() -> list[bytes]:
    """Our own snapshot in every protocol and in JSON, and the smallest of the real ones."""
    own = [pickle.dumps(small_snapshot(), protocol) for protocol in range(6)]
    small = [path.read_bytes() for path in SNAPSHOTS if path.stat().st_size < 30_000]
    return [*own, json.dumps(small_snapshot()).encode(), *small]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The data with a few changes of the kinds that find faults in readers."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(changed))
        kind = chance.randrange(6)
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            changed[at] = chance.choice(TELLING)
        elif kind == 2:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 3:
            del changed[at : at + chance.choice((1, 2, 8, 100))]
        elif kind == 4:
            start = chance.randrange(len(changed))
            changed[at:at] = changed[start : start + chance.choice((1, 4, 50))]
        else:
            changed[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f"))
        if not changed:
            return b""
    return bytes(changed)


STRANGE: list[Any] = [
    *(None, True, 0, -1, 1, 2**31, 2**61, 2**63 - 1, 2**63, 2**64, 2**127, -(2**63), 0.5, float("nan"), float("inf")),
    *("", "x", "alloc", "inactive", "\ud800", "x" * 5000, b"", b"x", [], [[]], [1], ["x"], (), (1, 2), {}, {"x": 1}),
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a value, with a key of it."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        yield value, key
        if isinstance(item, dict | list):
            yield from places(item)


def strange(chance: random.Random) -> dict[str, Any]:
    """Our own snapshot with some values replaced, removed or doubled."""
    snapshot = small_snapshot()
    for _ in range(chance.choice((1, 1, 2, 5))):
        container, key = chance.choice(list(places(snapshot)))
        kind = chance.randrange(4)
        if kind == 0 and isinstance(container, dict):
            del container[key]
        elif kind == 1 and isinstance(container, list):
            container.append(container[key])
        else:
            container[key] = copy.deepcopy(chance.choice(STRANGE))
    return snapshot


def check(path: Path) -> bool:
    """Whether the file is still a snapshot; fails if reading it does anything but refuse it with a sentence."""
    try:
        read_snapshot(path)
    except SnapshotError as error:
        assert str(error).endswith(".")
        assert "\n" not in str(error)
        assert len(str(error)) < 700
        return False
    return True


def fuzz(path: Path, rounds: int, seed: int) -> int:
    chance = random.Random(seed)
    starts = seeds()
    accepted = 0
    for number in range(rounds):
        if number % 2:
            path.write_bytes(mutated(chance.choice(starts), chance))
        else:
            path.write_bytes(pickle.dumps(strange(chance), chance.randrange(3, 6)))
        accepted += check(path)
    return accepted


def test_a_sample(tmp_path: Path) -> None:
    accepted = in_child(fuzz, tmp_path / "x", 1000, 1)
    assert 0 < accepted < 1000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_many(tmp_path: Path, seed: int) -> None:
    assert in_child(fuzz, tmp_path / "x", 4000, 100 + seed) > 0


def ask_and_export(directory: Path, count: int, seed: int) -> int:
    chance = random.Random(seed)
    done = 0
    while done < count:
        (directory / "x").write_bytes(pickle.dumps(strange(chance), 4))
        if not check(directory / "x"):
            continue
        with open_source(directory / "x") as reel:
            reel.sql("SELECT max(total) FROM allocs")
            export(reel, directory / "y", "snapshot")
            export(reel, directory / "z.json", "snapshot")
        assert check(directory / "y")
        assert check(directory / "z.json")
        done += 1
    return done


def test_what_is_accepted_can_be_asked_and_exported(tmp_path: Path) -> None:
    assert in_child(ask_and_export, tmp_path, 8, 2) == 8
