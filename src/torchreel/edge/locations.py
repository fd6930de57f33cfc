"""Places of ops -> the modules, stacks and frames of a reel."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from torchreel.edge.formats.adapter import Adapter, Frame, Location
from torchreel.reel.tables import FRAMES, MODULES, STACKS

Tables = dict[str, pa.Table]
Row = dict[str, Any]

# Code that torch generates for a graph has no file.
_GENERATED = "<eval_with_key>"


class LocationTables:
    """Adds to the tables what locations need, each once."""

    def __init__(self, tables: Tables, root: int) -> None:
        self._root = root
        self._modules: list[Row] = tables["modules"].to_pylist()
        self._frames: list[Row] = tables["frames"].to_pylist()
        self._stacks: list[Row] = tables["stacks"].to_pylist()
        self._module_ids: dict[str, int] = {row["path"]: row["id"] for row in self._modules}
        self._root_path = next(row["path"] for row in self._modules if row["id"] == root)
        self._frame_ids: dict[tuple[str, int, str], int] = {
            (row["file"], row["line"], row["function"]): row["id"] for row in self._frames
        }
        self._stack_ids: dict[tuple[int, ...], int] = {tuple(row["frames"]): row["id"] for row in self._stacks}
        self._next = 1 + max((row["id"] for row in [*self._modules, *self._frames, *self._stacks]), default=0)
        self._by_id = {row["id"]: row for row in self._frames}
        self._frames_of = {row["id"]: row["frames"] for row in self._stacks}

    def module(self, location: Location) -> int | None:
        """The innermost module of a location."""
        above = self._root
        for path, kind in location.modules:
            if path:
                above = self._module(f"{self._root_path}.{path}", kind, above)
        return above if location.modules else None

    def _module(self, path: str, kind: str, parent: int) -> int:
        if path not in self._module_ids:
            self._module_ids[path] = self._take()
            row = {"id": self._module_ids[path], "path": path, "class": kind, "parent": parent}
            self._modules.append(row)
        return self._module_ids[path]

    def stack(self, location: Location) -> int | None:
        if not location.frames:
            return None
        frames = tuple(self._frame(frame) for frame in location.frames)
        if frames not in self._stack_ids:
            self._stack_ids[frames] = self._take()
            self._stacks.append({"id": self._stack_ids[frames], "frames": list(frames)})
        return self._stack_ids[frames]

    def _frame(self, frame: Frame) -> int:
        key = (frame.file, frame.line, frame.function)
        if key not in self._frame_ids:
            self._frame_ids[key] = self._take()
            row = {"id": self._frame_ids[key], "file": frame.file, "line": frame.line, "function": frame.function}
            self._frames.append(row)
        return self._frame_ids[key]

    def _take(self) -> int:
        self._next += 1
        return self._next - 1

    def generated_location(self, stack: int, adapter: Adapter) -> Location | None:
        """The location of a stack that passes through code generated for the model."""
        for frame in self._frames_of.get(stack, ()):
            row = self._by_id[frame]
            if row["file"].startswith(_GENERATED):
                return adapter.location_of_line(row["file"], row["line"])
        return None

    def write(self, tables: Tables) -> None:
        tables["modules"] = pa.Table.from_pylist(self._modules, schema=MODULES.schema)
        tables["frames"] = pa.Table.from_pylist(self._frames, schema=FRAMES.schema)
        tables["stacks"] = pa.Table.from_pylist(self._stacks, schema=STACKS.schema)


def set_locations(rows: list[Row], tables: LocationTables, adapter: Adapter, modules: bool, stacks: bool) -> None:
    """Give each op its location, if the model knows it, or else that of the call around it."""
    by_handle = adapter.locations(sorted({row["debug_handle"] for row in rows if row["debug_handle"] is not None}))
    by_stack: dict[int, Location | None] = {}
    counts: dict[tuple[Any, str], int] = {}
    at: dict[int, tuple[int | None, int | None]] = {}
    for row in rows:  # parents come before what is within them
        location = by_handle.get(row["debug_handle"])
        if location is None and row["stack"] is not None and not adapter.handles:
            if row["stack"] not in by_stack:
                by_stack[row["stack"]] = tables.generated_location(row["stack"], adapter)
            location = by_stack[row["stack"]]
        if location is None and row["kind"] != "module":
            key = (row["parent"], row["name"])
            location = adapter.location_of_kernel(row["name"], counts.get(key, 0))
            counts[key] = counts.get(key, 0) + 1
        if location is not None:
            module = tables.module(location)
            at[row["id"]] = (row["module"] if module is None else module, tables.stack(location))
        elif row["parent"] in at:
            at[row["id"]] = at[row["parent"]]
        if row["id"] in at:
            row["module"], row["stack"] = at[row["id"]]
        if not stacks:
            row["stack"] = None
    if not modules:
        root = next((row["module"] for row in rows if row["parent"] is None), None)
        for row in rows:
            row["module"] = root
