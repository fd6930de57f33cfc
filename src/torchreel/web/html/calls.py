"""The calls of all lanes as columns, lane after lane: what the page draws any view of, and tells of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torchreel.analyze.connection import opened
from torchreel.reel.tables import OPS
from torchreel.web.html.planes import Planes, nullable, zigzag
from torchreel.web.query import rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchreel.web.lanes import Lane
    from torchreel.web.viewed_reel import ViewedReel

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_RELATIVE = ("parent", "fwd")
"""Ids of other calls: as distances they repeat from step to step."""
_NUMBERS = ("step", "flops", "alloc_bytes", "self_alloc_bytes")
_TEXTS = {
    "module": "SELECT process, id, path, class FROM modules",
    "inputs": "SELECT process, id, dims, dtypes FROM inputs",
    "stack": "SELECT process, id, frames FROM stacks",
}
_FRAMES = "SELECT process, id, file, line, function FROM frames"


def lanes_of(viewed: ViewedReel) -> list[Lane]:
    """The lanes of calls. Kernels of devices are not in the file."""
    return viewed.lanes_without(("kernel",)) if any(lane.thread < 0 for lane in viewed.lanes) else viewed.lanes


@dataclass
class Calls:
    """All calls of a reel. A selection of them is an array that says for each whether it is in."""

    viewed: ViewedReel
    lengths: Ints
    starts: Ints
    durations: Ints
    labels: Ints
    ids: Ints
    processes: Ints
    rows: list[Ints]
    """For each process of the reel, where its calls stand in its table."""

    @classmethod
    def read(cls, viewed: ViewedReel) -> Calls:
        lanes = lanes_of(viewed)
        ids = _joined([lane.ids for lane in lanes])
        lengths = np.array([len(lane) for lane in lanes], np.int64)
        processes = np.repeat(np.array([lane.process for lane in lanes], np.int64), lengths)
        rows = []
        for part in viewed.reel.parts:
            known = np.asarray(part.table(OPS, ["id"])["id"].fill_null(0).to_numpy(zero_copy_only=False), np.int64)
            order = np.argsort(known, kind="stable")
            wanted = ids[processes == part.index]
            rows.append(order[known[order].searchsorted(wanted)] if len(known) else order)
        return cls(
            viewed=viewed,
            lengths=lengths,
            starts=_joined([lane.starts for lane in lanes]),
            durations=_joined([np.diff(lane.sums) for lane in lanes]),
            labels=_joined([lane.labels for lane in lanes]),
            ids=ids,
            processes=processes,
            rows=rows,
        )

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def has_kernels(self) -> bool:
        """Whether the reel has kernels of devices, which are not among these."""
        return any(lane.thread < 0 for lane in self.viewed.lanes)

    def column(self, name: str) -> tuple[Ints, Flags]:
        """A column of the table, and which of its values are not null."""
        values = np.zeros(len(self), np.int64)
        valid = np.zeros(len(self), bool)
        for part, rows in zip(self.viewed.reel.parts, self.rows, strict=True):
            found = part.table(OPS, [name])[name].combine_chunks()
            where = np.flatnonzero(self.processes == part.index)
            values[where] = np.asarray(found.fill_null(0).to_numpy(zero_copy_only=False), np.int64)[rows]
            valid[where] = np.asarray(found.is_valid().to_numpy(zero_copy_only=False), bool)[rows]
        return values, valid

    def lengths_of(self, chosen: Flags) -> Ints:
        """How many calls of each lane are chosen."""
        before = np.concatenate([[0], np.cumsum(chosen)])
        ends = np.cumsum(self.lengths)
        lengths: Ints = before[ends] - before[ends - self.lengths]
        return lengths

    def timeline(self, chosen: Flags) -> Planes:
        """What the timeline is drawn of: for each call the time since the one before it in its lane ended, its
        duration, its label, and how much larger than the one before its id is."""
        starts, durations, ids = self.starts[chosen], self.durations[chosen], self.ids[chosen]
        first = np.zeros(len(starts), bool)
        heads = np.cumsum(self.lengths_of(chosen)) - self.lengths_of(chosen)
        first[heads[heads < len(first)]] = True
        ends = np.where(first, 0, np.roll(starts + durations, 1))
        before = np.where(first, 0, np.roll(ids, 1))
        return Planes.of(
            {
                "gap": zigzag(starts - ends),
                "dur": durations,
                "label": self.labels[chosen],
                "id": zigzag(ids - before),
            }
        )

    def details(self, chosen: Flags) -> tuple[Planes, dict[str, Any]]:
        """What is told of a single call, and the texts that this refers to by number."""
        planes = Planes()
        planes.add("self", zigzag(self._self_correction(chosen)))
        for name in _RELATIVE:
            values, valid = self.column(name)
            planes.add(name, nullable(self.ids[chosen] - values[chosen], valid[chosen]))
        for name in _NUMBERS:
            values, valid = self.column(name)
            planes.add(name, nullable(values[chosen], valid[chosen]))
        texts: dict[str, Any] = {}
        for name in _TEXTS:
            values, valid = self.column(name)
            used = valid[chosen]
            keys = self.processes[chosen][used] << 32 | values[chosen][used] & 0xFFFFFFFF
            distinct, numbers = np.unique(keys, return_inverse=True)
            found = np.zeros(len(used), np.int64)
            found[used] = numbers + 1
            planes.add(name, found)
            texts[name] = [(key >> 32, key & 0xFFFFFFFF) for key in distinct.tolist()]
        return planes, self._texts(texts)

    def _self_correction(self, chosen: Flags) -> Ints:
        """Self time less what the page finds: the duration less those of the calls within that are chosen, too."""
        own, _ = self.column("self_ns")
        parents, has_parent = self.column("parent")
        asynchronous = self._asynchronous()
        inner = np.zeros(len(self), np.int64)
        for part in self.viewed.reel.parts:
            here = np.flatnonzero(self.processes == part.index)
            order = here[np.argsort(self.ids[here], kind="stable")]
            inside = here[(chosen & has_parent & ~asynchronous)[here]]
            if not len(inside):
                continue
            found = np.minimum(self.ids[order].searchsorted(parents[inside]), len(order) - 1)
            known = self.ids[order[found]] == parents[inside]
            np.add.at(inner, order[found[known]], self.durations[inside[known]])
        rest = np.where(asynchronous, 0, self.durations - inner)
        return (own - rest)[chosen]

    def _asynchronous(self) -> Flags:
        return np.repeat(np.array([lane.is_async for lane in lanes_of(self.viewed)], bool), self.lengths)

    def _texts(self, used: dict[str, list[tuple[int, int]]]) -> dict[str, Any]:
        """The rows that numbers of `module`, `inputs` and `stack` stand for, and the frames of the stacks."""
        with opened(self.viewed.reel, ("modules", "inputs", "stacks", "frames")) as connection:
            rows = {name: _by_id(connection.execute(query)) for name, query in _TEXTS.items()}
            frames = _by_id(connection.execute(_FRAMES))
        result: dict[str, Any] = {
            name: [found.get(key, [None, None]) for key in used[name]] for name, found in rows.items()
        }
        numbers: dict[tuple[int, int], int] = {}
        for position, (process, _) in enumerate(used["stack"]):
            of_stack = [(process, frame) for frame in result["stack"][position][0] or ()]
            result["stack"][position] = [numbers.setdefault(key, len(numbers)) for key in of_stack if key in frames]
        result["frames"] = [frames[key] for key in numbers]
        return result

    def totals(self) -> list[list[int]]:
        """For each label how many calls there are of it, and their self time."""
        count = max(len(self.viewed.labels), 1)
        own, _ = self.column("self_ns")
        sums = np.zeros(count, np.int64)
        np.add.at(sums, self.labels, own)
        counts = np.bincount(self.labels, minlength=count)
        return [[int(calls), int(total)] for calls, total in zip(counts, sums, strict=True)]


def _by_id(found: Any) -> dict[tuple[int, int], list[Any]]:
    """Rows by their process and id: what else is in them."""
    return {(row.pop("process"), row.pop("id")): list(row.values()) for row in rows_of(found)}


def _joined(parts: list[Any]) -> Ints:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
