"""Stacks of one process as arrays: what each frame is, and the frame that says most about a block.

A frame is the user's own, a library's, torch's or Python's own, or C++. The line that is shown for a block is the
innermost of the user's own, with the innermost line of a library, if one is further in: `train.py:30 ->
gpt2/modeling_gpt2.py:412 forward`. A stack without any Python is of a thread of the autograd engine.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.analyze.source.frames import LIBRARY, NATIVE, TORCH, USER, Frame, frame_of
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, Mask, ints, rows_of, texts

_OPERATOR = re.compile(r"\bat::_ops::(\w+)::")
_OVERLOAD = re.compile(r"(_[A-Z]\w*|_out|_dim|_int|_dim_\w+|_memory_format|_generator|_names|_dtype\w*)$")
_EMPTY = re.compile(r"^(empty|resize|_reshape_alias|as_strided|new_empty)")
_WORKSPACE = re.compile(r"at::cuda::(getNewWorkspace|getCurrentCUDABlasHandle|getCUDABlasLtWorkspace)\b")
ENGINE = "torch::autograd::Engine"  # in the name of a C++ frame: a backward pass


@dataclass(frozen=True)
class Line:
    """Where a block comes from: the user's line, and the library's line that it led to, if any."""

    frame: Frame | None
    via: Frame | None
    text: str


@dataclass(frozen=True)
class Stacks:
    """The stacks of one process. `starts[n]` to `starts[n + 1]` is where the n-th one lies in `frame_numbers`."""

    id: Ints
    starts: Ints
    frame_numbers: Ints  # numbers of frames, the innermost of a stack first
    frames: list[Frame]

    def __len__(self) -> int:
        return len(self.id)

    def rows(self, ids: Ints) -> Ints:
        """Places of stacks by their ids, or NOTHING; a stack without frames is none."""
        rows = rows_of(self.id, ids)
        return np.where(np.append(self._depths, 0)[rows] > 0, rows, NOTHING)

    def having(self, chosen: Mask) -> Mask:
        """Whether each stack has one of the chosen frames."""
        return self.innermost(chosen) < self._depths

    @functools.cached_property
    def _depths(self) -> Ints:
        return np.diff(self.starts)

    def innermost(self, chosen: Mask) -> Ints:
        """How far from the inner end the first chosen frame of each stack is; the depth of the stack if it has none."""
        depths = self._depths
        if not len(self.frame_numbers):
            return depths
        distance = np.arange(len(self.frame_numbers)) - np.repeat(self.starts[:-1], depths)
        distance = np.where(chosen[self.frame_numbers], distance, np.iinfo(np.int64).max)
        full = depths > 0
        result = depths.copy()
        result[full] = np.minimum(np.minimum.reduceat(distance, self.starts[:-1][full]), depths[full])
        return result

    @functools.cached_property
    def kinds(self) -> Ints:
        return np.array([frame.kind for frame in self.frames], np.int64)

    @functools.cached_property
    def python(self) -> Mask:
        """Whether each stack has a frame of Python at all."""
        return self.having(self.kinds != NATIVE)

    @functools.cached_property
    def workspace(self) -> Mask:
        """Whether each stack made a workspace of cuBLAS, which stays until the process ends. Needs C++ frames."""
        return self.having(np.array([_WORKSPACE.search(frame.function) is not None for frame in self.frames], bool))

    def without_python(self, ids: Ints) -> Mask:
        """Whether each of these is a stack, and has no frame of Python."""
        return np.append(~self.python, False)[rows_of(self.id, ids)]

    def frames_of(self, row: int) -> list[Frame]:
        """The frames of one stack, the innermost first."""
        return [self.frames[number] for number in self.frame_numbers[self.starts[row] : self.starts[row + 1]]]

    @functools.cached_property
    def _first(self) -> tuple[Ints, Ints, Ints]:
        """Where the innermost frame of the user, of a library and of torch or Python itself stands in each stack."""
        user, library, torch = (self.innermost(self.kinds == kind) for kind in (USER, LIBRARY, TORCH))
        return user, library, torch

    def operator(self, row: int) -> str | None:
        """The operator that a stack with C++ frames was in: aten::mm."""
        return _operator(self.frames_of(row))

    def line(self, row: int) -> Line:
        """The line to show for a stack."""
        line = self._line(row)
        if self.workspace[row]:
            return Line(line.frame, line.via, f"{line.text} (workspace of cuBLAS)")
        return line

    def _line(self, row: int) -> Line:
        depth = int(self._depths[row])
        user, library, torch = (int(place[row]) for place in self._first)
        if user < depth:
            frame = self._frame(row, user)
            via = self._frame(row, library) if library < user else None
            text = f"{frame.name}:{frame.line} -> {via.text}" if via else frame.text
            return Line(frame, via, text)
        if min(library, torch) < depth:
            frame = self._frame(row, library if library < depth else torch)
            return Line(frame, None, frame.text)
        frames = self.frames_of(row)
        operator = _operator(frames)
        where = "backward, no Python frames" if any(ENGINE in f.function for f in frames) else "no Python frames"
        return Line(None, None, f"({where}: {operator})" if operator else f"({where})")

    def _frame(self, row: int, distance: int) -> Frame:
        return self.frames[int(self.frame_numbers[self.starts[row] + distance])]


def _operator(frames: list[Frame]) -> str | None:
    """The innermost operator that does more than make room; its overload cannot be told from its name for sure."""
    names = [match[1] for frame in frames if frame.kind == NATIVE and (match := _OPERATOR.search(frame.function))]
    telling = next((name for name in names if not _EMPTY.match(name)), names[0] if names else None)
    return None if telling is None else f"aten::{_OVERLOAD.sub('', telling)}"


def stacks_of(reel: Reel, process: int) -> Stacks:
    """Read the stacks of one process."""
    import pyarrow.compute as pc  # slow to import, and few questions need it

    stacks, frames = (reel.table(name) for name in ("stacks", "frames"))
    stacks = stacks.filter(pc.equal(stacks["process"], process))
    frames = frames.filter(pc.equal(frames["process"], process))
    stacks = stacks.take(np.argsort(ints(stacks, "id"), kind="stable"))
    frames = frames.take(np.argsort(ints(frames, "id"), kind="stable"))
    lists = stacks["frames"].combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], lists.type)
    values = pa.table({"frame": lists.flatten()})
    frame_numbers = rows_of(ints(frames, "id"), ints(values, "frame"))
    depths = np.nan_to_num(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
    return Stacks(
        id=ints(stacks, "id"),
        starts=np.concatenate(([0], np.cumsum(depths))),
        frame_numbers=np.where(frame_numbers == NOTHING, frames.num_rows, frame_numbers),
        frames=[*_frames(frames), frame_of("?", 0, "?")],  # the last stands for one that the reel lacks
    )


def _frames(table: pa.Table) -> list[Frame]:
    files, file_names = texts(table, "file")
    functions, function_names = texts(table, "function")
    lines = ints(table, "line", 0)
    file_names, function_names = [*file_names, "?"], [*function_names, "?"]
    return [
        frame_of(file_names[file], int(line), function_names[function])
        for file, line, function in zip(files, lines, functions, strict=True)
    ]
