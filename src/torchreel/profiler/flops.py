"""FLOPs where torch.profiler has them: at aten::conv2d, not in the call it makes, and of aten::add and aten::mul.

All other ops, those of the backward pass and of attention among them, keep what the recorder counted.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel.profiler.columns import Booleans, Integers, numbers
from torchreel.reel import Reel

# One floating point operation for each element of the first argument.
_ELEMENTWISE = ("aten::add", "aten::mul")


def place_flops(reel: Reel, ops: pa.Table, names: pa.DictionaryArray, caller: Integers) -> Integers:
    """The FLOPs of each call, 0 where none are known."""
    flops = numbers(ops, "flops", 0)
    inner = np.flatnonzero(_named(names, "aten::convolution") & (caller >= 0))
    inner = inner[_named(names, "aten::conv2d")[caller[inner]]]
    np.add.at(flops, caller[inner], flops[inner])
    flops[inner] = 0
    elementwise = np.flatnonzero(_named(names, *_ELEMENTWISE) & (flops == 0))
    flops[elementwise] = _elements(reel, numbers(ops, "inputs")[elementwise])
    return flops


def _named(names: pa.DictionaryArray, *wanted: str) -> Booleans:
    is_wanted: Booleans = np.isin(names.dictionary.to_numpy(zero_copy_only=False), wanted)[names.indices.to_numpy()]
    return is_wanted


def _elements(reel: Reel, inputs: Integers) -> Integers:
    """The number of elements of the first argument in each of these lists of arguments."""
    distinct, which = np.unique(inputs, return_inverse=True)
    table = reel.table("inputs", ["id", "dims"])
    table = table.filter(pc.and_(pc.equal(table["process"], 0), pc.is_in(table["id"], pa.array(distinct, pa.int32()))))
    dims = {id: json.loads(text) for id, text in zip(table["id"].to_pylist(), table["dims"].to_pylist(), strict=True)}
    counts = [math.prod(dims[id][0]) if dims.get(id) else 0 for id in distinct.tolist()]
    return np.array(counts, np.int64)[which]
