"""The server's process does not import pandas."""

from __future__ import annotations

from tests.alone import run_alone

PROGRAM = """
import sys
from torchreel.web.without_pandas import leave_out_pandas
import pyarrow as pa
leave_out_pandas()
assert pa.array([1, None, 3]).to_pylist() == [1, None, 3]
assert pa.schema([("x", pa.int64())]).empty_table().num_rows == 0
assert "pandas" not in sys.modules
try:
    import pandas
except ModuleNotFoundError:
    print("absent")
"""


def test_arrays_are_made_without_it() -> None:
    assert "absent" in run_alone(PROGRAM)
