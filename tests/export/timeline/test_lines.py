from __future__ import annotations

import pyarrow as pa

from torchreel.export.timeline.lines import TEXT, bytes_of, joined, microseconds


def test_microseconds_are_exact() -> None:
    times = [0, 1, 999, 1000, 3_922_584_161_956_318, 7_889_237_999_999_999]
    texts = joined(microseconds(pa.array(times)))
    assert texts.to_pylist() == ["0.000", "0.001", "0.999", "1.000", "3922584161956.318", "7889237999999.999"]


def test_a_null_part_is_left_out_or_drops_the_row() -> None:
    parts = ["a", pa.array(["x", None], TEXT), "b"]
    assert joined(parts).to_pylist() == ["axb", "ab"]
    assert joined(parts, optional=True).to_pylist() == ["axb", None]


def test_the_bytes_of_a_slice_of_lines_are_its_own() -> None:
    lines = joined([pa.array(["one", "two", "three"], TEXT), "\n"])
    assert bytes(bytes_of(lines)) == b"one\ntwo\nthree\n"
    assert bytes(bytes_of(lines.slice(1, 1))) == b"two\n"
