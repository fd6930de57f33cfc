"""A child process that loads and replays tapes whose values were changed at random."""

from __future__ import annotations

import random
import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec

from tests.program.file.test_file import STRANGE, places
from tests.tape.steps import inputs, training_step
from torchreel.errors import TorchreelError
from torchreel.program.file.file import read_tape, write_tape
from torchreel.program.file.packing import decode
from torchreel.program.model import FORMAT
from torchreel.tape.capture.trace import trace
from torchreel.tape.replay.load import load_tape


def changed(content: bytes, chance: random.Random) -> bytes:
    """The program with one or two values changed, most of them by little."""
    plain: dict[str, Any] = msgspec.msgpack.decode(content, strict=False)
    for _ in range(chance.choice((1, 1, 2))):
        found = places(plain[chance.choice(("ops", "slots", "bindings", "outputs", "generators", "inputs"))])
        if not found:
            continue
        container, key = chance.choice(found)
        value, kind = container[key], chance.randrange(4)
        if type(value) is int and kind:
            container[key] = value + chance.choice((-1, 1, 2, 5, 100))
        elif kind == 1 and isinstance(container, list):
            container.append(value)
        elif kind == 2 and isinstance(container, list):
            del container[key]
        else:
            container[key] = chance.choice(STRANGE)
    return msgspec.msgpack.encode(plain)


def main(directory: Path, rounds: int, seed: int) -> None:
    """Prints how many were replayed and how many refused; anything but a sentence ends the process."""
    _, step = training_step(dropout=0.5)
    path = directory / "step.tape"
    trace(step, *inputs(), hashes=True).save(path)
    file = read_tape(path)
    assert file.data is not None
    data = {storage: bytes(content) for storage, content in file.data.items()}
    content = msgspec.msgpack.encode(file.program)
    replayed = refused = 0
    for number in range(rounds):
        try:
            program = decode(path, changed(content, random.Random(seed * rounds + number)), FORMAT)
            write_tape(path, program, data)
            load_tape(path).replay(*inputs())
            replayed += 1
        except TorchreelError as error:
            assert str(error)
            refused += 1
    print(replayed, refused)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
