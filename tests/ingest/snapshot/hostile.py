"""Files that somebody made to do harm, or that are something else: their bytes, and a word of the answer."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from tests.ingest.snapshot.small import small_snapshot


class Evil:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.system, ("touch executed",)


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    return file.getvalue()


def _laughs(segments: int = 200_000, blocks: int = 200_000) -> bytes:
    """Each segment is the same object, and so is each of its blocks: forty billion blocks in less than a megabyte."""
    block = b"}(" + _text("size") + b"K\x01" + _text("state") + _text("inactive") + b"uq\x01"
    many = b"](" + block + b"h\x01" * blocks + b"e"
    segment = b"}(" + _text("address") + b"K\x01" + _text("total_size") + b"K\x01" + _text("blocks") + many + b"uq\x02"
    return b"\x80\x02}(" + _text("segments") + b"](" + segment + b"h\x02" * segments + b"eu."


def _nested_settings() -> bytes:
    """Lists that hold the one before them ten times: 10^40 values."""
    lists = b"](" + b"K\x01" * 10 + b"eq\x000"
    for number in range(40):
        lists += b"](" + (b"h" + bytes([number])) * 10 + b"eq" + bytes([number + 1]) + b"0"
    settings = _text("allocator_settings") + b"}" + _text("x") + b"h\x28s"
    return b"\x80\x02" + lists + b"}(" + _text("segments") + b"]" + settings + b"u."


def _long_forward_frames() -> bytes:
    line = _text("x" * 1_000_000) + b"q\x00"
    event = b"}(" + _text("action") + _text("alloc") + _text("addr") + b"K\x01" + _text("size") + b"K\x01"
    event += _text("forward_frames") + b"](" + line + b"h\x00" * 100_000 + b"eu"
    return b"\x80\x02}(" + _text("device_traces") + b"](](" + event + b"eeu."


def _long_settings() -> bytes:
    items = b"".join(_text(f"key {number}") + b"h\x00" for number in range(20_000))
    settings = _text("segments") + b"]" + _text("allocator_settings") + b"}(" + items + b"u"
    return b"\x80\x02" + _text("x" * 1_000_000) + b"q\x000}(" + settings + b"u."


def _long_texts() -> bytes:
    """A hundred long texts, each of them the metadata of three hundred events."""
    texts = b"".join(_text(f"{n}" + "x" * 50_000) + b"q" + bytes([n + 1]) + b"0" for n in range(100))
    head = _text("user_metadata") + b"q\x000" + texts
    event = b"}(" + _text("action") + _text("alloc") + _text("addr") + b"K\x01" + _text("size") + b"K\x01h\x00h%cu"
    events = b"".join(event % (1 + number % 100) for number in range(30_000))
    return b"\x80\x02" + head + b"}(" + _text("device_traces") + b"](](" + events + b"eeu."


def _small(**content: Any) -> bytes:
    return pickle.dumps({**small_snapshot(), **content})


def _cyclic() -> bytes:
    events: list[Any] = []
    events.append(events)
    return _small(device_traces=[events])


def _cyclic_frames() -> bytes:
    frames: list[Any] = []
    frames.append(frames)
    return _small(device_traces=[[{"action": "alloc", "addr": 1, "size": 1, "frames": frames}]])


def _cyclic_settings() -> bytes:
    settings: dict[str, Any] = {}
    settings["settings"] = settings
    return _small(allocator_settings=settings)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "GLOBAL and REDUCE": (b"cos\nsystem\n(S'touch executed'\ntR.", "neither a pickle nor JSON"),
    "GLOBAL after PROTO": (b"\x80\x02cos\nsystem\n" + _text("touch executed") + b"\x85R.", "GLOBAL (os.system)"),
    "STACK_GLOBAL": (pickle.dumps({"segments": [Evil()]}, 4), "STACK_GLOBAL (posix.system)"),
    "an object": (pickle.dumps(Exception("x")), "STACK_GLOBAL (builtins.Exception)"),
    "EXT": (b"\x80\x02\x82\x01.", "EXT1 at byte 2"),
    "a persistent id": (b"\x80\x02K\x01Q.", "BINPERSID at byte 4"),
    "a persistent id as text": (b"\x80\x02P1\n.", "PERSID at byte 2"),
    "a text of 4 GiB": (b"\x80\x02X\xff\xff\xff\xffabc", "4294967295 bytes are announced"),
    "bytes of 2^63": (b"\x80\x04\x8e\0\0\0\0\0\0\0\x80abc", "9223372036854775808 bytes are announced"),
    "a frame of 2^64": (b"\x80\x04\x95" + b"\xff" * 8 + b"abc", "18446744073709551615 bytes are announced"),
    "a huge memo index": (b"\x80\x02]r\xff\xff\xff\xff.", "impossible number 4294967295"),
    "nested lists": (b"\x80\x02" + b"]" * 1_000_000 + b"a" * 999_999 + b".", "too many containers"),
    "nested tuples": (b"\x80\x02)" + b"\x85" * 1_000_000 + b".", "too many containers"),
    "a million marks": (b"\x80\x02" + b"(" * 1_000_000 + b".", "too few values are on the stack"),
    "a million numbers": (b"\x80\x02" + b"K\x01" * 1_000_000 + b".", "it is 1"),
    "a billion laughs": (_laughs(), "there are more than 1"),
    "settings without end": (_nested_settings(), "not the value of a setting"),
    "long forward frames": (_long_forward_frames(), "characters of forward_frames"),
    "long settings": (_long_settings(), "values and lines of settings"),
    "long texts": (_long_texts(), "characters of text in one column"),
    "a list of itself": (b"\x80\x02]q\x00h\x00a.", "a list of other things than segments"),
    "events of themselves": (_cyclic(), "device_traces[0][0] is a list, not a dictionary"),
    "frames of themselves": (_cyclic_frames(), "device_traces[0][0].frames[0] is a list, not a dictionary"),
    "settings of themselves": (_cyclic_settings(), "not the value of a setting"),
    "200 digits": (pickle.dumps({"segments": [10**199]}, 2), "an integer of 83 bytes is too large"),
    "a wrong protocol": (b"\x80\x09" + pickle.dumps([])[2:], "pickle protocol 9 is not known"),
    "bad UTF-8": (b"\x80\x02X\x02\x00\x00\x00\xff\xfe.", "not in the encoding"),
    "an empty file": (b"", "is empty"),
    "zeros": (b"\0" * 1000, "neither a pickle nor JSON"),
    "text": (b"Hello, world\n", "neither a pickle nor JSON"),
    "gzip": (gzip.compress(pickle.dumps(small_snapshot())), "compressed with gzip"),
    "a zip of torch.save": (_zip(), "a zip archive, as torch.save writes them"),
    "torch.save of old": (pickle.dumps(0x1950A86A20F9469CFC6C, 2), "it is 119547037146038801333356"),
    "a list of numbers": (pickle.dumps([1, 2, 3]), "a list of other things than segments"),
    "a state_dict": (pickle.dumps({"layer.weight": [0.5], "layer.bias": [0.1]}), "the keys 'layer.weight', 'layer"),
    "JSON of something else": (b'{"things": []}', "neither a trace of torch.profiler nor a memory snapshot"),
    "JSON without its end": (json.dumps(small_snapshot()).encode()[:-10], "JSON without its end"),
    "JSON that is none": (b"{segments: []}", "not valid JSON"),
    "JSON nested deep": (b"[" * 1_000_000, "nested too deep"),
    "JSON objects nested deep": (b'{"a":' * 1_000_000, "nested too deep"),
    "JSON numbers": (b'{"segments": [{"address": ' + b"9" * 100_000 + b"}]}", "Integer value out of range"),
    "JSON with bad UTF-8": (b'{"segments\xff": []}', "not valid JSON"),
    "JSON with half a surrogate pair": (b'{"\\ud800": []}', "not valid JSON"),
    "blanks": (b" " * 1000, "JSON without its end"),
}  # fmt: skip
