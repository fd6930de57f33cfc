"""Where ops of a profile stand: in which module, and at which line of the zoo's own source."""

from __future__ import annotations

from typing import Any

import torch

import torchreel
from tests.edge.formats import zoo
from tests.edge.formats.zoo import Entry
from tests.record.rows import rows
from torchreel import EdgeProfiler

# Ops that each format calls by the same name.
COMPARED = (
    *("aten::conv2d", "aten::batch_norm", "aten::linear", "aten::mean", "aten::layer_norm", "aten::embedding"),
    *("aten::gelu", "aten::scaled_dot_product_attention", "aten::lstm", "aten::transpose", "aten::add"),
)

_PLACES = """
    with lines as (
        select s.id as stack, list((f.file, f.line, f.function) order by s.position) as frames
        from (select id, unnest(frames) as frame, generate_subscripts(frames, 1) as position from stacks) s
        join frames f on s.frame = f.id group by s.id)
    select o.name, o.kind, m.path, m.class, l.frames, p.kind as within
    from ops o left join ops p on o.parent = p.id left join modules m on o.module = m.id
    left join lines l on o.stack = l.stack
    where o.parent is not null order by o.start_ns, o.id"""


def locations(reel: torchreel.Reel) -> list[tuple[str, str, list[int]]]:
    """Name, module and lines of the zoo's source, the innermost first, of the ops that are compared and in no other."""
    found = []
    for row in rows(reel, _PLACES):
        if row["name"] in COMPARED and row["within"] in ("module", "torchscript"):
            found.append((row["name"], row["path"], lines(row["frames"])))
    return found


def lines(frames: list[Any] | None) -> list[int]:
    return [line for file, line, _ in map(_values, frames or []) if file == zoo.__file__]


def _values(frame: Any) -> tuple[str, int, str]:
    file, line, function = frame.values() if isinstance(frame, dict) else frame
    return file, line, function


def functions(reel: torchreel.Reel) -> set[str]:
    """The names of all functions in which something stands."""
    return {row["function"] for row in rows(reel, "select distinct function from frames")}


def locations_of_the_source(entry: Entry) -> list[tuple[str, str, list[int]]]:
    """As Python itself runs the model."""
    model = entry.model()
    with torch.no_grad(), EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        model(*entry.inputs())
    return locations(profiler.result())
