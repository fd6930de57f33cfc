"""The names of calls as torch.profiler's tables show them."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from torchreel._torch.profiler import shown_name
from torchreel.profiler.columns import numbers
from torchreel.reel import Reel


def shown_names(reel: Reel, ops: pa.Table) -> pa.DictionaryArray:
    """The name of each op, each distinct one once in the dictionary."""
    encoded = ops["name"].cast(pa.string()).combine_chunks().dictionary_encode()
    code = encoded.indices.to_numpy().astype(np.int64)
    kind = ops["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    python_codes = set(code[kind == "python"].tolist())
    texts = [
        python_name(name) if number in python_codes else shown_name(name, with_wildcard=True)
        for number, name in enumerate(encoded.dictionary.to_pylist())
    ]
    modules = module_names(reel)
    is_module = kind == "module"
    code[is_module] = len(texts) + numbers(ops, "module")[is_module]
    texts += [modules.get(id, "nn.Module") for id in range(max(modules, default=-1) + 1)]
    # Different names may be shown as one: ProfilerStep#1 and ProfilerStep#2 are both ProfilerStep*.
    distinct: dict[str, int] = {}
    merged = np.array([distinct.setdefault(text, len(distinct)) for text in texts], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(merged[code]), pa.array(list(distinct), pa.string()))


def module_names(reel: Reel) -> dict[int, str]:
    """Modules of one class are told apart by a number."""
    modules = reel.table("modules", ["id", "class"])
    modules = modules.filter(pc.equal(modules["process"], 0)).sort_by("id")
    counts: dict[str, int] = {}
    names = {}
    for id, class_name in zip(modules["id"].to_pylist(), modules["class"].to_pylist(), strict=True):
        names[id] = f"nn.Module: {class_name}_{counts.get(class_name, 0)}"
        counts[class_name] = counts.get(class_name, 0) + 1
    return names


def module_number(name: str) -> int:
    """The number by which modules of one class are told apart, from the name of a call; -1 where it has none."""
    number = name.rpartition("_")[2]
    return int(number) if number.isdigit() else -1


def python_name(name: str) -> str:
    """The name of a Python function, path(line): function, as torch.profiler has it: without a directory that is on
    sys.path, and without the class or function in which it is defined."""
    location, separator, function = without_directory(name).rpartition("): ")
    return f"{location}{separator}{function.rpartition('.')[2]}"


def without_directory(name: str) -> str:
    """The name of a Python function, path(line): name, without a directory that is on sys.path."""
    for directory in sorted(filter(None, sys.path), key=len, reverse=True):
        if name.startswith(f"{directory}/"):
            return name[len(directory) + 1 :]
    return name
