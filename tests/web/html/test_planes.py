from __future__ import annotations

import gzip
import random

import numpy as np

from torchreel.web.html.planes import Planes, nullable, zigzag


def read(planes: Planes, length: int) -> dict[str, list[int]]:
    """What viewer/src/file/planes.ts does."""
    data, at, found = gzip.decompress(planes.compressed()), 0, {}
    for name, width in planes.columns:
        values = [0] * length
        for plane in range(width):
            values = [old + (data[at + i] << 8 * plane) for i, old in enumerate(values)]
            at += length
        found[name] = values
    assert at == len(data)
    return found


def test_what_goes_in_comes_out() -> None:
    generator = random.Random(3)
    for length in (0, 1, 2, 100):
        columns = {
            f"{bits}": [generator.randrange(1 << bits) if bits else 0 for _ in range(length)]
            for bits in (0, 1, 8, 9, 16, 31, 40, 53)
        }
        planes = Planes.of({name: np.array(values, np.int64) for name, values in columns.items()})
        assert read(planes, length) == columns


def test_a_column_is_as_wide_as_its_largest_number() -> None:
    planes = Planes.of({str(most): np.array([0, most], np.int64) for most in (0, 1, 255, 256, 65_535, 65_536, 1 << 40)})
    assert [width for _, width in planes.columns] == [0, 1, 1, 2, 2, 3, 6]


def test_signs_and_nothing() -> None:
    values = np.array([0, -1, 1, -2, 2, -(1 << 40), 1 << 40], np.int64)
    assert zigzag(values)[:5].tolist() == [0, 1, 2, 3, 4]
    packed = zigzag(values)
    assert [value // 2 if value % 2 == 0 else -(value + 1) // 2 for value in packed.tolist()] == values.tolist()
    valid = np.array([True, False] * 3 + [True])
    assert (nullable(values, valid) == 0).tolist() == (~valid).tolist()
    assert (nullable(values, valid)[valid] - 1).tolist() == packed[valid].tolist()


def test_the_same_columns_are_the_same_bytes() -> None:
    columns = {"a": np.arange(1000, dtype=np.int64)}
    assert Planes.of(columns).compressed() == Planes.of(columns).compressed()
