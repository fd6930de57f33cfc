"""Damages a spool in ways that a seed chooses, and reads it. No torch: a sanitizer may watch."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from torchreel.errors import ReelError
from torchreel.reel import spool


def damage(whole: Path, part: Path, seed: int) -> None:
    chance = random.Random(seed)
    shutil.copytree(whole, part)
    for file in ("events", "definitions"):
        path = part / "spool" / file
        content = bytearray(path.read_bytes())
        for _ in range(chance.choice([0, 1, 3, 30])):
            at = chance.randrange(len(content))
            content[at] = chance.choice([0, 255, chance.randrange(256)])
        path.write_bytes(content[: chance.choice([len(content), chance.randrange(len(content))])])


def read_damaged(whole: Path, tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        print("seed", seed, flush=True)
        part = tmp_path / "damaged"
        damage(whole, part, seed)
        try:
            for table in spool.read(part).values():
                table.validate(full=True)
        except ReelError as error:
            assert str(error).endswith(".")
        shutil.rmtree(part)
