"""Damage to the files of models, by a seed: as a disk, a network or somebody who means harm would do it."""

from __future__ import annotations

import io
import random
import zipfile


def damaged(data: bytes, seed: int) -> bytes:
    """The file with some bytes changed, lost, swapped or doubled. What carries checksums will tell."""
    chance = random.Random(seed)
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 30))):
        at = chance.randrange(len(changed))
        kind = chance.randrange(6)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at] = chance.choice((0, 255, chance.randrange(256)))
        elif kind == 2:
            _swap(changed, chance)
        elif kind == 3 and len(changed) > 100:
            del changed[at : at + chance.choice((1, 4, 64))]
        elif kind == 4:
            changed[at:at] = changed[at : at + chance.choice((1, 4, 64))]
        elif chance.random() < 0.3:
            del changed[max(at, 1) :]
        else:
            changed[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff\xff\xff\x7f"))
    return bytes(changed)


def _swap(data: bytearray, chance: random.Random) -> None:
    """Two sections change places."""
    size = chance.choice((4, 64, 1024))
    one, other = chance.randrange(len(data)), chance.randrange(len(data))
    if abs(one - other) >= size and max(one, other) + size <= len(data):
        data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def forged(data: bytes, seed: int, wanted: str = "") -> bytes:
    """A zip archive in which a file of it, with this in its name, is damaged, and has the right checksum again."""
    chance = random.Random(seed)
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as copy:
        names = [name for name in source.namelist() if wanted in name and source.read(name)]
        victim = chance.choice(names)
        for name in source.namelist():
            content = source.read(name)
            copy.writestr(name, _few_bytes(content, chance) if name == victim else content)
    return target.getvalue()


def _few_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(changed))
        changed[at] = chance.choice((changed[at] ^ (1 << chance.randrange(8)), chance.randrange(256), 0, 255))
    return bytes(changed)
