"""Columns from plain values."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa

from torchreel.atlas import arrays
from torchreel.atlas.texts import Texts


def test_texts() -> None:
    assert arrays.texts(["a", None, "", "ü"]).to_pylist() == ["a", None, "", "ü"]
    assert arrays.texts([]).type == pa.string()
    parts = [Texts.of(["ab", ""]), Texts.of([]), Texts.of(["中", "c"])]
    assert arrays.joined_texts(parts).to_pylist() == ["ab", "", "中", "c"]
    assert arrays.joined_texts([]).to_pylist() == []


def test_numbers() -> None:
    found = arrays.integers([1, None, -3], pa.int32())
    assert (found.type, found.to_pylist()) == (pa.int32(), [1, None, -3])
    assert arrays.numbers(np.array([1, 2, 3])[::2]).to_pylist() == [1, 3]
    assert arrays.booleans(np.array([True, False] * 5)).to_pylist() == [True, False] * 5
    for made in (found, arrays.texts(["x", None]), arrays.booleans(np.array([True]))):
        made.validate(full=True)


def test_a_table_without_rows() -> None:
    schema = pa.schema([("a", pa.dictionary(pa.int32(), pa.string())), ("b", pa.int64())])
    assert arrays.empty_table(schema).equals(schema.empty_table())


def test_pandas_is_not_imported() -> None:
    code = (
        "import sys\nfrom torchreel.atlas import arrays\nimport pyarrow as pa\n"
        "pa.table({'a': arrays.texts(['x', None]), 'b': arrays.integers([1, 2], pa.int64())})\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
