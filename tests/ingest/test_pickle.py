"""The pickle machine: every plain value of every protocol as Python reads it, everything else refused by name."""

from __future__ import annotations

import math
import os
import pickle
import pickletools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchreel import _decode

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**127), 2**127 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(VALUES, st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_plain_values_of_every_protocol(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    found = _decode.read_pickle(data)
    assert found == value
    assert repr(found) == repr(value)  # True is not 1, and 0.0 is not -0.0
    assert _decode.read_pickle(pickletools.optimize(data)) == value
    # The pickler that is written in Python chooses other opcodes.
    assert _decode.read_pickle(pickle._dumps(value, protocol)) == value  # type: ignore[attr-defined]


@given(st.binary(max_size=400), st.integers(3, 5))
@settings(max_examples=50, deadline=None)
def test_bytes(value: bytes, protocol: int) -> None:
    assert _decode.read_pickle(pickle.dumps([value, value], protocol)) == [value, value]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value",
    [math.inf, -math.inf, "x" * 300, "é" * 70_000, list(range(5000)), {str(n): n for n in range(5000)}, [()] * 4],
    ids=["inf", "-inf", "text of 300", "text of 70000", "long list", "long dictionary", "empty tuples"],
)
def test_values_at_the_limits_of_opcodes(value: Any, protocol: int, tmp_path: Path) -> None:
    data = pickle.dumps(value, protocol)
    assert _decode.read_pickle(data) == value
    (tmp_path / "x").write_bytes(data)
    with (tmp_path / "x").open("rb") as file:
        assert _decode.read_pickle(file.fileno()) == value


def test_a_file_larger_than_the_window(tmp_path: Path) -> None:
    value = [
        random.Random(0).randbytes(3_000_000),
        "é" * 2_000_000,
        [{"key": number} for number in range(300_000)],
        "end",
    ]
    for protocol in (3, 4, 5):
        (tmp_path / "x").write_bytes(pickle.dumps(value, protocol))
        with (tmp_path / "x").open("rb") as file:
            assert _decode.read_pickle(file.fileno()) == value
    (tmp_path / "x").write_bytes(pickle.dumps(value[1:], 0))
    with (tmp_path / "x").open("rb") as file:
        assert _decode.read_pickle(file.fileno()) == value[1:]


def test_nan() -> None:
    for protocol in range(6):
        assert math.isnan(_decode.read_pickle(pickle.dumps(math.nan, protocol)))  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", range(6))
def test_the_same_object_stays_the_same(protocol: int) -> None:
    frames = [{"name": "f"}]
    first, second, other = _decode.read_pickle(pickle.dumps([frames, frames, list(frames)], protocol))  # type: ignore[misc]
    assert first is second
    assert other is not first and other[0] is first[0]


def test_what_torch_pickles_in_cpp() -> None:
    # GIVEN bytes of torch::jit::Pickler, with which the C++ side of PyTorch writes snapshots
    data = (
        b"\x80\x02}(X\x08\x00\x00\x00segmentsq\x00](}(X\x07\x00\x00\x00addressq\x01\x8a\x08\x00\xc0DJT\x7f\x00\x00"
        b"X\n\x00\x00\x00total_sizeq\x02J\x00\x00 \x00X\r\x00\x00\x00is_expandableq\x03\x88"
        b"X\x0f\x00\x00\x00segment_pool_idq\x04K\x00Jp\x11\x01\x00\x86X\x06\x00\x00\x00blocksq\x05](}("
        b"X\x04\x00\x00\x00sizeq\x06J\x00\x00 \x00X\x0e\x00\x00\x00requested_sizeq\x07M,\x01"
        b"X\x01\x00\x00\x00fq\x08G?\xe0\x00\x00\x00\x00\x00\x00uq\teq\nuq\x0beq\x0cuq\r."
    )
    block = {"size": 2097152, "requested_size": 300, "f": 0.5}
    segment = {"address": 140000000000000, "total_size": 2097152, "is_expandable": True, "segment_pool_id": (0, 70000)}
    assert _decode.read_pickle(data) == {"segments": [{**segment, "blocks": [block]}]}


def test_old_texts_and_stack_opcodes() -> None:
    assert _decode.read_pickle(b"(S'abc'\nS\"d\"\nU\x02efT\x02\x00\x00\x00ghl.") == ["abc", "d", "ef", "gh"]
    assert _decode.read_pickle(b"(I01\nI00\nI-12\nL34L\nL5\nF1.5\nl.") == [True, False, -12, 34, 5, 1.5]
    assert _decode.read_pickle(b"K\x01(K\x02K\x031K\x040.") == 1
    assert _decode.read_pickle(b"K\x01(02\x86.") == (1, 1)
    assert _decode.read_pickle(b"(Va\np7\nI1\nd.") == {"a": 1}
    assert _decode.read_pickle(b"\x8b\x00\x00\x00\x00.") == 0


class Evil:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.system, ("touch executed",)


REFUSED = {
    "GLOBAL": (b"cos\nsystem\n(S'touch executed'\ntR.", "GLOBAL (os.system) at byte 0"),
    "REDUCE": (b"]]R.", "REDUCE at byte 2"),
    "STACK_GLOBAL": (pickle.dumps(Evil(), 4), "STACK_GLOBAL (posix.system) at byte 28"),
    "INST": (b"(S'touch executed'\nios\nsystem\n.", "INST (os.system) at byte 19"),
    "OBJ": (b"(]o.", "OBJ at byte 2"),
    "BUILD": (b"}}b.", "BUILD at byte 2"),
    "NEWOBJ": (b"])\x81.", "NEWOBJ at byte 2"),
    "NEWOBJ_EX": (b"])}\x92.", "NEWOBJ_EX at byte 3"),
    "EXT1": (b"\x82\x01.", "EXT1 at byte 0"),
    "EXT2": (b"\x83\x01\x00.", "EXT2 at byte 0"),
    "EXT4": (b"\x84\x01\x00\x00\x00.", "EXT4 at byte 0"),
    "PERSID": (b"P1\n.", "PERSID at byte 0"),
    "BINPERSID": (b"K\x01Q.", "BINPERSID at byte 2"),
    "sets": (pickle.dumps({"a"}, 4), "EMPTY_SET at byte 11"),
    "FROZENSET": (b"(\x91.", "FROZENSET at byte 1"),
    "ADDITEMS": (b"](\x90.", "ADDITEMS at byte 2"),
    "bytearray": (pickle.dumps(bytearray(b"a"), 5), "BYTEARRAY8 at byte 11"),
    "NEXT_BUFFER": (b"\x97.", "NEXT_BUFFER at byte 0"),
    "READONLY_BUFFER": (b"]\x98.", "READONLY_BUFFER at byte 1"),
    "a name that a terminal would obey": (b"c\x1b[31m\nx\ty\n.", "GLOBAL (?[31m.x?y) at byte 0"),
    "a key that is no text": (pickle.dumps({1: 2}, 2), "a dictionary with a key of type int at byte 9"),
    "a key that is nested": (b"})" + b"\x85" * 500 + b"Ns.", "a dictionary with a key of type tuple at byte 503"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_everything_that_is_not_plain_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, sentence = REFUSED[name]
    with pytest.raises(_decode.RefusedPickleError) as refusal:
        _decode.read_pickle(data)
    assert str(refusal.value) == sentence
    assert list(tmp_path.iterdir()) == []


IMPOSSIBLE = "a value is remembered under the impossible number"
NO_INTEGER = "is no integer of at most 128 bits, which stands"
DAMAGED = {
    "no opcode": (b"\x80\x04\xff.", "there is no pickle opcode 255, which stands at byte 2"),
    "a later protocol": (b"\x80\x06.", "pickle protocol 6 is not known, which is announced at byte 0"),
    "nothing on the stack": (b".", "too few values are on the stack at byte 0"),
    "nothing to append to": (b"K\x01a.", "too few values are on the stack at byte 2"),
    "appended to a number": (b"K\x01K\x02a.", "something other than a list is appended to at byte 4"),
    "set in a list": (b"]K\x01K\x02s.", "items are set in something other than a dictionary at byte 5"),
    "a key without a value": (b"}(Va\nu.", "a key without a value is set at byte 5"),
    "no mark": (b"]e.", "there is no mark on the stack at byte 1"),
    "below the mark": (b"](a.", "too few values are on the stack at byte 2"),
    "a memo that was not put": (b"h\x05.", "nothing was remembered under the number 5, which is asked for at byte 0"),
    "a huge memo index": (b"]r\xff\xff\xff\xff.", f"{IMPOSSIBLE} 4294967295 at byte 1"),
    "a huge memo index as text": (b"]p99999999999\n.", f"{IMPOSSIBLE} 99999999999 at byte 1"),
    "a memo index that is none": (b"]p-1\n.", "'-1' is no number of a remembered value, which stands at byte 1"),
    "200 digits": (b"L" + b"9" * 200 + b"L\n.", "a line at byte 1 is too long"),
    "40 digits": (b"L" + b"9" * 40 + b"L\n.", f"'{'9' * 40}' {NO_INTEGER} at byte 0"),
    "a long integer": (pickle.dumps(10**199, 2), "an integer of 83 bytes is too large, which is announced at byte 2"),
    "no integer": (b"I1x\n.", f"'1x' {NO_INTEGER} at byte 0"),
    "no float": (b"F1.x\n.", "'1.x' is no number, which stands at byte 0"),
    "bad UTF-8": (b"X\x02\x00\x00\x00\xff\xfe.", "a text is not in the encoding that it should have at byte 0"),
    "bad escapes": (b"V\\uzzzz\n.", "a text is not in the encoding that it should have at byte 0"),
    "quotes": (b"S'abc\n.", "a text is not plainly quoted at byte 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_pickle_is_said_to_be_none(name: str) -> None:
    data, sentence = DAMAGED[name]
    with pytest.raises(_decode.PickleError) as error:
        _decode.read_pickle(data)
    assert str(error.value) == sentence
    assert type(error.value) is _decode.PickleError


TRUNCATED = {
    "nothing": (b"", "it ends at byte 0 without a STOP"),
    "a text of 4 GiB": (b"X\xff\xff\xff\xff", "4294967295 bytes are announced at byte 0, and 0 are left"),
    "a text of 2^64": (b"\x8d" + b"\xff" * 8 + b"abc", f"{2**64 - 1} bytes are announced at byte 0, and 3 are left"),
    "bytes of 2^64": (b"\x8e" + b"\xff" * 8, f"{2**64 - 1} bytes are announced at byte 0, and 0 are left"),
    "a frame of 2^63": (b"\x95" + b"\0" * 7 + b"\x80.", f"{2**63} bytes are announced at byte 0, and 1 are left"),
    "an integer": (b"\x8a\x08abc", "it ends at byte 5, and 8 more bytes are announced at byte 2"),
    "a line": (b"I123", "it ends in the middle of a line, at byte 4"),
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_lengths_are_held_against_what_is_there(name: str) -> None:
    data, sentence = TRUNCATED[name]
    with pytest.raises(_decode.TruncatedPickleError) as error:
        _decode.read_pickle(data)
    assert str(error.value) == sentence


@pytest.mark.parametrize("protocol", range(6))
def test_cut_anywhere_it_is_truncated(protocol: int, tmp_path: Path) -> None:
    value = {"text": "é" * 300, "numbers": [1, -300, 2**31, 2**40, 2**100, 0.5], "pair": (True, None)}
    data = pickle.dumps(value, protocol)
    for length in range(len(data)):
        with pytest.raises(_decode.TruncatedPickleError):
            _decode.read_pickle(data[:length])


def test_a_list_that_holds_itself_does_no_harm() -> None:
    data = b"]q\x00h\x00a."
    (inner,) = _decode.read_pickle(data)  # type: ignore[misc]
    assert inner[0] is inner
    inner.clear()


def test_deep_nesting_is_limited_and_taken_apart_without_recursion() -> None:
    for data in (b"]" * 1_000_000 + b"a" * 999_999 + b".", b")" + b"\x85" * 1_000_000 + b"."):
        with pytest.raises(_decode.PickleError, match="there are too many containers at byte"):
            _decode.read_pickle(data)
    # As deep as so many bytes may be: made, and taken apart again.
    padded = b"]" * 300_000 + b"a" * 299_999 + b"X\x60\xe3\x16\x00" + b" " * 1_500_000 + b"0."
    assert _decode.read_pickle(padded) is not None
    assert _decode.read_pickle(b")" + b"\x85" * 300_000 + b"X\x60\xe3\x16\x00" + b" " * 1_500_000 + b"0.")


def test_other_sources_are_refused() -> None:
    for source in (None, "text", 1.5, [b"x"]):
        with pytest.raises((TypeError, RuntimeError)):
            _decode.read_pickle(source)  # type: ignore[arg-type]
    with pytest.raises(_decode.PickleError):
        _decode.read_pickle(10_000)
