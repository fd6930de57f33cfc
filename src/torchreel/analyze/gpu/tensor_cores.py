"""How much of the time of kernels went to those that use tensor cores, by their names.

A name says it with the shape of the matrix instruction (884, 1688, 16816), with hmma, xmma, gmma, tensorop or nvjet,
and on AMD with mfma or MI16x16x16. A kernel that uses them and does not say so is not counted.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from torchreel.analyze.gpu.activities import COPY, SET, Activities

_SAYS_SO = re.compile(r"(?<!\d)(884|1688|16816)(?!\d)|hmma|xmma|gmma|tensorop|nvjet|mfma|_MI\d+x\d+x\d+", re.IGNORECASE)

SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("device", pa.string()),
        ("kernel_ns", pa.int64()),
        ("tensor_core_ns", pa.int64()),
        ("percent", pa.float64()),
    ]
)


def tensor_cores(found: Activities) -> pa.Table:
    """A row per process and device that ran kernels; copies and sets are no kernels."""
    says_so = np.array([_SAYS_SO.search(name) is not None for name in found.words.names], bool)
    rows = []
    for process, device, own in found.take(~np.isin(found.kind, (COPY, SET))).by_device():
        time, used = int(own.dur.sum()), int(own.dur[says_so[own.name]].sum())
        percent = 100 * used / time if time else None
        rows.append(
            {"process": process, "device": device, "kernel_ns": time, "tensor_core_ns": used, "percent": percent}
        )
    return pa.Table.from_pylist(rows, SCHEMA)
