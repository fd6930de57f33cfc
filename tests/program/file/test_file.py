"""The file of a tape: what was written comes back; what is damaged or hostile is refused with a sentence."""

from __future__ import annotations

import os
import random
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.program.small import small_data, small_program
from torchreel.errors import (
    CorruptTapeError,
    NewerTapeError,
    NotATapeError,
    OptionError,
    TapeError,
    TruncatedTapeError,
)
from torchreel.program.file import header, migrate, packing
from torchreel.program.file.file import read_tape, write_tape
from torchreel.program.model import FORMAT, Device, Formula, Frame, Named, Program, Ref, Tree

KEPT = Path(__file__).parent / "data"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "step.tape"


@pytest.fixture
def tape(path: Path) -> Path:
    write_tape(path, small_program(), small_data())
    return path


def write_raw(path: Path, content: bytes, codec: int = 0, unpacked: int = -1, **fields: int) -> None:
    """A file whose checksums are right, whatever it holds."""
    size = header.HEADER_BYTES + len(content)
    numbers = {"flags": 0, "file_bytes": size, "storages": 0, "entries_sum": 0, **fields}
    sums = zlib.crc32(content)
    start = header.Header(
        FORMAT,
        codec,
        numbers["flags"],
        len(content),
        len(content) if unpacked < 0 else unpacked,
        numbers["file_bytes"],
        numbers["storages"],
        sums,
        numbers["entries_sum"],
    )
    path.write_bytes(header.pack_header(start) + content)


def test_what_was_written_comes_back(tape: Path) -> None:
    read = read_tape(tape)
    assert read.program == small_program()
    assert read.format == FORMAT
    assert read.data is not None
    assert {storage: bytes(content) for storage, content in read.data.items()} == small_data()


def test_without_data_the_program_and_its_constants_are_there(path: Path) -> None:
    write_tape(path, small_program())
    read = read_tape(path)
    assert read.program == small_program()
    assert read.data is None


def test_no_data_is_not_data_of_nothing(path: Path) -> None:
    write_tape(path, small_program(), {})
    data = read_tape(path).data
    assert data is not None and len(data) == 0


def test_data_can_be_mapped_at_multiples_of_64(tape: Path) -> None:
    content = tape.read_bytes()
    for wanted in small_data().values():
        assert content.index(wanted) % 64 == 0


def test_large_storages(path: Path) -> None:
    data = {0: random.Random(1).randbytes(5_000_000), 1: bytes(100)}
    write_tape(path, small_program(), data)
    read = read_tape(path).data
    assert read is not None and {storage: bytes(content) for storage, content in read.items()} == data


def test_the_data_may_outlive_the_name(tape: Path) -> None:
    data = read_tape(tape).data
    tape.unlink()
    assert data is not None and bytes(data[1]) == small_data()[1]


def test_a_write_that_fails_leaves_the_older_file(tape: Path) -> None:
    before = tape.read_bytes()
    program = small_program()
    program.outputs = Tree("leaf", leaf=2**70)
    with pytest.raises(TapeError, match=r"cannot be saved as .*step.tape .*too large\.$"):
        write_tape(tape, program)
    assert tape.read_bytes() == before
    assert [entry.name for entry in tape.parent.iterdir()] == ["step.tape"]


def test_numbers_and_texts_of_classes_of_their_own(path: Path) -> None:
    class Version(str):
        pass

    program = small_program()
    program.provenance.torch = Version("2.13.0")
    program.outputs = Tree("leaf", leaf=[np.float64(0.5), IntEnum("E", "A").A])
    write_tape(path, program)
    read = read_tape(path).program
    assert type(read.provenance.torch) is str and read.provenance.torch == "2.13.0"
    assert read.outputs.leaf == [0.5, 1]


def test_a_value_that_is_not_plain(path: Path) -> None:
    program = small_program()
    program.outputs = Tree("leaf", leaf=[1j])  # type: ignore[list-item]
    with pytest.raises(TapeError, match=r"\(a complex has no place in a file\): .* is no plain value\.$"):
        write_tape(path, program)


def test_a_program_that_makes_no_sense_is_not_written(path: Path) -> None:
    program = small_program()
    program.ops[0].args = [Ref(99), Ref(1)]
    with pytest.raises(TapeError, match="op 0 names slot 99 of 7"):
        write_tape(path, program)
    assert not path.exists()


@pytest.mark.parametrize("name", ["no/where.tape", ".", "x\0y"])
def test_places_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError):
        write_tape(tmp_path / name, small_program())


def test_names_of_files_that_are_no_text(path: Path) -> None:
    program = small_program()
    program.frames[0] = Frame("caf\udce9.py", 1, "f")
    write_tape(path, program)
    assert read_tape(path).program.frames[0].file == "caf\\udce9.py"
    assert read_tape(path).program.constants == program.constants


def test_a_program_that_packs_too_well_is_stored_as_it_is(path: Path) -> None:
    program = small_program()
    program.notes = ["x" * 100_000_000]
    write_tape(path, program)
    assert path.stat().st_size > 100_000_000
    assert read_tape(path).program == program


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not a tape (it is empty): name a file that tape.save() wrote."),
        (b"PK\x03\x04", "is not a tape (it does not begin as one): name a file that tape.save() wrote."),
        (b"torchreel tape\nx", "is not a tape (it does not begin as one): name a file that tape.save() wrote."),
    ],
)
def test_other_files(path: Path, content: bytes, sentence: str) -> None:
    path.write_bytes(content)
    with pytest.raises(NotATapeError) as caught:
        read_tape(path)
    assert str(caught.value) == f"{path} {sentence}"


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "", "nowhere", "nowhere/x", "x\0y"):
        with pytest.raises(NotATapeError) as caught:
            read_tape(tmp_path / name)
        assert str(caught.value).endswith(".")


def test_every_truncation(tape: Path) -> None:
    content = tape.read_bytes()
    for size in range(1, len(content)):
        tape.write_bytes(content[:size])
        with pytest.raises(TruncatedTapeError) as caught:
            read_tape(tape)
        assert str(caught.value) == (
            f"{tape} ends after {size} bytes, before it is complete: copy it again from where it was made."
        )


def test_every_flipped_bit_is_found(tape: Path) -> None:
    content = tape.read_bytes()
    gaps = 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        tape.write_bytes(changed)
        try:
            read = read_tape(tape)
            assert read.data is not None
            gaps += all(bytes(read.data[storage]) == content for storage, content in small_data().items())
        except (CorruptTapeError, NotATapeError, NewerTapeError):
            pass
    assert gaps < 2 * 64  # the zeros between storages mean nothing


def test_a_newer_format_is_refused(tape: Path) -> None:
    content = bytearray(tape.read_bytes())
    content[16:20] = struct.pack("<I", FORMAT + 1)
    tape.write_bytes(content)
    with pytest.raises(NewerTapeError) as caught:
        read_tape(tape)
    assert str(caught.value) == (
        f"{tape} has format version {FORMAT + 1} and this torchreel reads up to {FORMAT}: "
        "upgrade with 'pip install --upgrade torchreel'."
    )


def test_every_format_that_there_was_is_read() -> None:
    kept = sorted(KEPT.glob("v*.tape"))
    assert [path.name for path in kept] == [f"v{version}.tape" for version in range(1, FORMAT + 1)]
    for path in kept:
        assert read_tape(path).program == small_program()


def test_every_older_format_has_a_migration() -> None:
    assert set(migrate.MIGRATIONS) == set(range(1, FORMAT))


def test_older_formats_are_migrated(tape: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def _next(plain: migrate.Plain) -> migrate.Plain:
        return {**plain, "notes": [*plain["notes"], "migrated"]}

    monkeypatch.setattr(packing, "FORMAT", FORMAT + 1)
    monkeypatch.setitem(migrate.MIGRATIONS, FORMAT, _next)
    read = read_tape(tape)
    assert read.format == FORMAT
    assert read.program.notes == ["Nothing to note.", "migrated"]
    assert read.program.ops == small_program().ops


def test_a_small_file_takes_little_memory(path: Path) -> None:
    packed = packing.pa.Codec("zstd").compress(bytes(1 << 30), asbytes=True)
    assert len(packed) < 100_000
    write_raw(path, packed, codec=1, unpacked=1 << 30)
    with pytest.raises(CorruptTapeError, match="packed in an unknown way"):
        read_tape(path)
    write_raw(path, b"\x81\xa3ops\xdd\xff\xff\xff\xff")  # a list of 2^32 ops
    with pytest.raises(CorruptTapeError, match="cannot be read"):
        read_tape(path)
    write_raw(path, b"x", storages=2**32 - 1)
    with pytest.raises(CorruptTapeError, match="a part of 137438953440 bytes"):
        read_tape(path)


def test_nesting_without_end(path: Path) -> None:
    for piece in (b"\x91" * 100_000, b"\x81\xa7outputs" + b"\x94\xa4leaf\xa0\x90\x91" * 100_000):
        write_raw(path, piece)
        with pytest.raises(CorruptTapeError):
            read_tape(path)


Change = Callable[[Program], object]
NONSENSE: dict[str, tuple[Change, str]] = {
    "dtype": (lambda p: setattr(p.slots[0], "dtype", "float31"), "slot 0 has the dtype 'float31'"),
    "negative": (lambda p: setattr(p.slots[0], "sizes", (-1, 3)), "slot 0 has a negative size"),
    "huge": (lambda p: setattr(p.slots[3], "sizes", (2**40, 2**40)), "slot 3 is larger than any memory"),
    "strides": (lambda p: setattr(p.slots[0], "strides", (1,)), "slot 0 has 2 sizes and 1 strides"),
    "beyond": (lambda p: setattr(p.slots[1], "offset", 1), "slot 1 ends at byte 40 of a storage that has 36"),
    "dimensions": (lambda p: setattr(p.slots[0], "sizes", (1,) * 65), "slot 0 has 65 dimensions"),
    "slot": (lambda p: setattr(p.ops[6], "args", [[Ref(7)]]), "op 6 names slot 7 of 7"),
    "negative slot": (lambda p: setattr(p.ops[0], "args", [Ref(-1)]), "op 0 names slot -1 of 7"),
    "result": (lambda p: setattr(p.ops[0], "results", [Ref(9)]), "op 0 names slot 9 of 7"),
    "order": (lambda p: p.ops.reverse(), "op 0 reads slot 3, which no op before it has made"),
    "generator": (lambda p: p.generators.clear(), "op 7 names generator 0 of 0"),
    "object": (lambda p: p.objects.clear(), "op 6 names object 0 of 0"),
    "stack": (lambda p: setattr(p.ops[0], "stack", 3), "op 0 has the stack 3 of 3"),
    "stacks": (lambda p: p.stacks.clear(), "it has no empty stack"),
    "loop of stacks": (lambda p: p.stacks.__setitem__(1, p.stacks[2]), "stack 1 has the caller 1"),
    "frame": (lambda p: p.frames.pop(), "stack 2 has the frame 1 of 1"),
    "module": (lambda p: setattr(p.ops[1], "module", 1), "op 1 has the module 1 of 1"),
    "forward": (lambda p: setattr(p.ops[1], "forward", 9), "op 1 belongs to the forward op 9 of 9"),
    "name": (lambda p: setattr(p.ops[1], "name", "relu"), "op 1 has the name 'relu'"),
    "formula": (lambda p: p.ops[5].args.append(Formula((1.0, "sub"), 0)), "does not add up at 'sub'"),
    "word": (lambda p: p.ops[5].args.append(Formula((1.0, "exec"), 0)), "does not add up at 'exec'"),
    "deep": (lambda p: p.ops[5].args.append(Formula((1.0,) * 17, 0)), "a formula of more than 15 numbers at a time"),
    "storage": (lambda p: setattr(p.slots[3], "storage", 2**32), "slot 3 is of storage 4294967296, and there are not"),
    "code": (lambda p: setattr(p.ops[1], "name", "aten::relu(x)\nexit"), "op 1 has the name 'aten::relu(x)\\nexit'"),
    "named": (lambda p: p.ops[1].args.append(Named("dtype", "int8)")), "op 1 has the value 'int8)'"),
    "device": (lambda p: p.ops[1].args.append(Device("cpu\n")), "op 1 has the value 'cpu\\n'"),
    "slot's device": (lambda p: setattr(p.slots[0], "device", ""), "slot 0 is on the device ''"),
    "layout": (lambda p: setattr(p.slots[0], "layout", "x y"), "with the layout 'x y'"),
    "no number": (lambda p: p.ops[5].args.append(Formula((), 0)), "a formula that leaves 0 numbers"),
    "later item": (lambda p: p.ops[5].args.append(Formula(("item:5",), 0)), "of op '5', which does not come before it"),
    "no item": (lambda p: p.ops[5].args.append(Formula(("item:0",), 0)), "a number of op 0, which returns none"),
    "item": (lambda p: p.ops[5].args.append(Formula(("item:-1",), 0)), "of op '-1', which does not come before it"),
    "output": (lambda p: setattr(p, "outputs", Tree("leaf", leaf=Ref(7))), "an output names slot 7 of 7"),
    "argument": (lambda p: setattr(p, "arguments", Tree("leaf", leaf=Ref(7))), "an argument names slot 7 of 7"),
    "dict": (lambda p: p.outputs.keys.append("x"), "a dict of 3 keys has 2 values"),
    "input": (lambda p: setattr(p.inputs[0], "slot", 7), "the input 'x' names slot 7 of 7"),
    "made input": (lambda p: setattr(p.inputs[0], "slot", 3), "the input 'x' is a slot that an op makes"),
    "binding": (lambda p: setattr(p.bindings[0], "owner", -1), "a binding names slot -1 of 7"),
    "unmade": (lambda p: p.ops.clear(), "a binding names slot 3, which no op has made"),
    "constant": (lambda p: p.constants.__setitem__(6, b"x"), "the constant in slot 6 has 1 bytes where 16 are needed"),
    "constant of none": (lambda p: p.constants.__setitem__(7, b""), "a constant names slot 7 of 7"),
}


@pytest.mark.parametrize(("change", "clause"), NONSENSE.values(), ids=NONSENSE)
def test_what_makes_no_sense_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, clause: str
) -> None:
    program = small_program()
    change(program)
    with monkeypatch.context() as patch:
        patch.setattr("torchreel.program.file.file.check", lambda *_: None)
        write_tape(path, program, small_data())
    with pytest.raises(CorruptTapeError) as caught:
        read_tape(path)
    sentence = str(caught.value)
    assert clause in sentence
    assert sentence.startswith(f"{path} is damaged (") and sentence.endswith("): restore it from a copy, or make the "
                                                                            "tape again.")  # fmt: skip


def test_data_of_a_storage_that_is_not_there(path: Path) -> None:
    with pytest.raises(TapeError, match="it has data of storage 2, which nothing of the program came from"):
        write_tape(path, small_program(), {2: b""})


STRANGE: list[Any] = [
    *(None, True, 0, -1, 1, 7, 2**31, 2**61, 2**63 - 1, 2**64 - 1, -(2**63), 0.5, float("nan"), float("inf")),
    *("", "x", "leaf", "made", "float64", "item:3", "sub", "x" * 5000, b"", b"x", [], [[]], [1], ["x"], {}, {"x": 1}),
    *({"type": "ref", "slot": 3}, {"type": "ref", "slot": 99}, {"type": "storage", "slot": -1}, {"type": "none"}),
    *({"type": "formula", "postfix": ["neg"], "value": 0}, {"type": "generator", "index": 0}, [{}] * 300),
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container in a value, with each key of it."""
    found = []
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        found.append((value, key))
        if isinstance(item, dict | list):
            found += places(item)
    return found


def strange(chance: random.Random) -> bytes:
    """The small program with some values replaced, removed or doubled."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(small_program()), strict=False)
    for _ in range(chance.choice((1, 1, 2, 5))):
        container, key = chance.choice(places(plain))
        kind = chance.randrange(4)
        if kind == 0 and isinstance(container, dict):
            del container[key]
        elif kind == 1 and isinstance(container, list):
            container.append(container[key])
        else:
            container[key] = chance.choice(STRANGE)
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(plain), strict=False)  # no two places share a value
    return msgspec.msgpack.encode(plain)


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        place = chance.randrange(len(changed))
        kind = chance.randrange(4)
        if kind == 0:
            changed[place] = chance.randrange(256)
        elif kind == 1:
            changed[place] = chance.choice(b"\x00\x7f\x80\x90\xc0\xc4\xc6\xcb\xcf\xd3\xdb\xdd\xdf\xff")
        elif kind == 2:
            del changed[place : place + chance.choice((1, 4, 50))]
        else:
            changed[place:place] = changed[:place][-chance.choice((1, 4, 50)) :]
        if not changed:
            return b""
    return bytes(changed)


def accepted(path: Path) -> bool:
    """Whether the file is still a tape; fails if reading it does anything but refuse it with a sentence."""
    try:
        read_tape(path)
    except TapeError as error:
        assert str(error).endswith(".")
        assert "\n" not in str(error)
        assert len(str(error)) < 700
        return False
    return True


def fuzz(path: Path, rounds: int, seed: int) -> int:
    chance = random.Random(seed)
    write_tape(path, small_program(), small_data())
    whole = path.read_bytes()
    program = msgspec.msgpack.encode(small_program())
    count = 0
    for number in range(rounds):
        if number % 4 == 0:
            path.write_bytes(mutated(whole, chance))
        else:
            write_raw(path, strange(chance) if number % 2 else mutated(program, chance))
        count += accepted(path)
    return count


def test_fuzz_a_sample(path: Path) -> None:
    assert 0 < fuzz(path, 1000, 1) < 1000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_fuzz_many(path: Path, seed: int) -> None:
    assert fuzz(path, 10_000, 100 + seed) > 0
