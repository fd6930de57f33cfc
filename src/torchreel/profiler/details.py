"""What the ids in calls stand for, in the form in which torch.profiler gives it."""

from __future__ import annotations

import ast
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torchreel._torch.profiler import is_shown_frame
from torchreel.export.texts import Details
from torchreel.reel import Reel


@dataclass(frozen=True)
class Arguments:
    """A list of arguments; each field has one item per argument."""

    shapes: list[Any]  # [] for a list of tensors
    dims: list[Any]
    strides: list[Any]
    dtypes: list[Any]
    values: list[Any]  # of what is no tensor, else None
    keywords: dict[str, Any]


_NO_ARGUMENTS = Arguments([], [], [], [], [], {})


class CallDetails:
    """The details of the calls of one reel; each distinct one is worked out once."""

    def __init__(self, reel: Reel, keeps_values: bool = True) -> None:
        details = Details(reel, 0, values=keeps_values)
        threads = [row for row in reel.table("threads").to_pylist() if row["process"] == 0]
        self.torch_thread = {row["id"]: row["torch_id"] or 0 for row in threads}
        self.os_thread = {row["id"]: row["os_id"] or 0 for row in threads}
        # A cycle in which nothing happened has left nothing, not even its process.
        process = next(iter(reel.process_rows()), {"pid": os.getpid(), "start_ns": 0})
        self.pid: int = process["pid"]
        self.start_ns: int = process["start_ns"]
        self.stack = lru_cache(None)(lambda id: _stack(details, id))
        self.arguments = lru_cache(None)(lambda id: _arguments(details, id))
        self.module = lru_cache(None)(lambda id: details.module(id) or "")


def _stack(details: Details, id: int) -> list[str]:
    """The frames of a stack, the innermost first."""
    return [entry for entry in details.frames(id) if is_shown_frame(entry)]


def _arguments(details: Details, id: int) -> Arguments:
    texts = details.inputs(id)
    if not texts:
        return _NO_ARGUMENTS
    dims, strides, dtypes, scalars = (
        json.loads(texts[name]) for name in ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")
    )
    shapes = [[] if dtype == "TensorList" else sizes for sizes, dtype in zip(dims, dtypes, strict=True)]
    keywords = {name: _uniform(value) for name, value in details.keywords(id).items()}
    return Arguments(shapes, dims, strides, dtypes, [_value(text) for text in scalars], keywords)


def _uniform(value: Any) -> Any:
    """The value; None for a list of different things, of which torch.profiler keeps nothing."""
    return None if isinstance(value, list) and len({type(item) for item in value}) > 1 else value


def _value(text: str) -> Any:
    if text in ("inf", "-inf", "nan"):
        return float(text)
    try:
        return ast.literal_eval(text) if text else None
    except (ValueError, SyntaxError):
        return text
