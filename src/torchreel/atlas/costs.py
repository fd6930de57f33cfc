"""Costs: what a run spent in the files of an atlas, by line, by symbol, by file and by folder.

A reel names files by paths, which may be anything: relative ones, `<string>`, those of another machine. One that is,
letter by letter, a path under which the atlas knows a file is joined with that file; nothing is looked up on the disk,
and lines of all other paths are in the tables alone.

Frames are Python's. A Python file that no frame is in was recorded and not touched; of a C++ file frames say nothing,
so it has costs only if `add_kernels` gives it some.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from torchreel.analyze.source.line_kernels import line_kernels
from torchreel.analyze.source.line_ops import line_ops
from torchreel.analyze.source.lines import lines
from torchreel.analyze.source.peak_lines import peak_lines
from torchreel.analyze.source.regions import MEASURES
from torchreel.analyze.source.states import CHANGED, SAME
from torchreel.atlas.cost_regions import CostRegions
from torchreel.atlas.kernel_costs import Place
from torchreel.atlas.model import Costs, LineKernel, LineOp
from torchreel.reel import Reel

UNKNOWN = "unknown"
NO_STACKS = (
    "No call of this reel has a stack, so it is not known what lines cost: record the program with "
    "'torchreel record --stacks' or '--all'."
)
KINDS = ("class", "function", "method")
"""Of symbols that can cost something."""
_PYTHON = (".py", ".pyx")
_ELSEWHERE = -1


class RunCosts:
    """What a run spent in files that have ids."""

    def __init__(
        self,
        reel: Reel,
        files: Mapping[str, int],
        symbols: pa.Table,
        folders: Mapping[Hashable, Collection[int]] | None = None,
    ) -> None:
        """`files` are ids by the paths that a reel may have; several paths may be of one file.

        `symbols` has the columns id, file, kind, line, end_line and declaration; `folders` are files that are added up
        together, by any key: a call that entered several of them counts once.
        """
        found = lines(reel)
        self.recorded: bool = found.num_rows > 0
        """Whether anything is known of lines. If not, nothing has costs, and `problem` says why."""
        self.problem = "" if self.recorded else NO_STACKS
        self.lines = _with_files(found, files)
        """As in the atlas: file, path, line, and costs."""
        self.line_ops = line_ops(reel)
        self.files: dict[int, Costs] = {}
        """Of each file that the run entered."""
        self.folders: dict[Hashable, Costs] = {}
        """Of each of `folders`, if anything is known."""
        self.elsewhere = Costs(total_backward_ns=0)
        """Of lines in files without an id."""
        self._paths = files
        self._hashes = _hashes(reel, files)
        self._python = frozenset(file for path, file in files.items() if path.endswith(_PYTHON))
        self._symbols = _defined(symbols)
        self._by_line: dict[int, dict[int, Costs]] = {}
        self._by_symbol: dict[int, Costs] = {}
        if self.recorded:
            self._ask(reel, folders or {})
        self._ops = self._ops_by_file()
        self._kernels = self._kernels_by_file(reel)
        self._peaks = self._peaks_by_file(reel)

    @property
    def whole(self) -> Costs:
        """Of all lines, wherever their files are."""
        sums = {name: pc.sum(self.lines[name]).as_py() for name in MEASURES}
        known = {name: value or 0 for name, value in sums.items() if name != "flops"}
        totals = {"total_ns": known["self_ns"], "total_backward_ns": known["backward_ns"]}
        return Costs(**{**known, **totals, "flops": sums["flops"]})

    def of_file(self, file: int) -> Costs | None:
        """Zeros for a Python file that the run did not enter; None if nothing is known of such a file."""
        return self.files.get(file) or self._otherwise(file)

    def of_lines(self, file: int) -> dict[int, Costs]:
        """Those of its lines that stacks hold."""
        return self._by_line.get(file, {})

    def of_symbols(self, file: int, ids: Sequence[int]) -> dict[int, Costs]:
        """Classes, functions and methods among the symbols of a file, by their place in `ids`."""
        found = ((place, self._of_symbol(symbol)) for place, symbol in enumerate(ids))
        return {place: costs for place, costs in found if costs is not None}

    def ops_of(self, file: int) -> list[LineOp]:
        """The ops of its lines, by line, the costliest first."""
        return self._ops.get(file, [])

    def kernels_of(self, file: int) -> list[LineKernel]:
        """What its lines launched on devices, by line, the longest first."""
        return self._kernels.get(file, [])

    def peaks_of(self, file: int) -> dict[int, int]:
        """By line, the bytes that it had made and that lived at the peak of memory, of all devices together."""
        return self._peaks.get(file, {})

    def state_of(self, file: int, sha256: str) -> str:
        """Whether a file with this hash is the one that ran: same, changed, or unknown; empty if the reel has no frame
        in it. Where processes ran different versions, it has changed."""
        hashes = self._hashes.get(file)
        if hashes is None:
            return ""
        if not hashes:
            return UNKNOWN
        return SAME if hashes == {sha256} else CHANGED

    def columns_of_files(self, ids: pa.ChunkedArray) -> dict[str, pa.Array]:
        """The columns of costs for these files."""
        return _columns([self.of_file(file) for file in ids.to_pylist()])

    def columns_of_symbols(self, ids: pa.ChunkedArray) -> dict[str, pa.Array]:
        """The columns of costs for these symbols."""
        return _columns([self._of_symbol(symbol) for symbol in ids.to_pylist()])

    def add_kernels(self, places: Mapping[Place, Costs], files: Mapping[int, Costs]) -> None:
        """Put what kernels cost at the lines that define them, and at the symbols there, and in their files."""
        self.files.update(files)
        for (file, line), costs in places.items():
            self._by_line.setdefault(file, {})[line] = costs
        for symbol, (file, begin, _) in self._symbols.items():
            if (file, begin) in places:
                self._by_symbol[symbol] = places[file, begin]

    def _otherwise(self, file: int) -> Costs | None:
        return Costs(total_backward_ns=0) if self.recorded and file in self._python else None

    def _of_symbol(self, symbol: int) -> Costs | None:
        where = self._symbols.get(symbol)
        return self._by_symbol.get(symbol) or (self._otherwise(where[0]) if where is not None else None)

    def _ask(self, reel: Reel, folders: Mapping[Hashable, Collection[int]]) -> None:
        """Ask for all regions at once: of files that stacks hold, as all else is zero."""
        paths = set(self.lines["path"].to_pylist())
        entered = {self._paths[path] for path in paths if path in self._paths}
        asked = CostRegions()
        asked.add("elsewhere", _ELSEWHERE)
        for file in entered:
            asked.add(("file", file), file)
        for file, line in zip(self.lines["file"].to_pylist(), self.lines["line"].to_pylist(), strict=True):
            if file is not None and line is not None and line > 0:
                asked.add(("line", file, line), file, line, line)
        for symbol, (file, begin, end) in self._symbols.items():
            if file in entered:
                asked.add(("symbol", symbol), file, begin, end)
        together = {max(entered, default=0) + 1 + number: key for number, key in enumerate(folders)}
        for number, key in together.items():
            asked.add(("folder", key), number)
        held: dict[int, list[int]] = {}
        for number, key in together.items():
            for file in folders[key]:
                held.setdefault(file, []).append(number)
        self._keep(asked.costs(reel, _named(paths, self._paths, held)))

    def _keep(self, costs: Mapping[Any, Costs]) -> None:
        for key, each in costs.items():
            match key:
                case "elsewhere":
                    self.elsewhere = each
                case ("file", file):
                    self.files[file] = each
                case ("line", file, line):
                    self._by_line.setdefault(file, {})[line] = each
                case ("symbol", symbol):
                    self._by_symbol[symbol] = each
                case ("folder", folder):
                    self.folders[folder] = each

    def _kernels_by_file(self, reel: Reel) -> dict[int, list[LineKernel]]:
        found: dict[int, list[LineKernel]] = {}
        for row in line_kernels(reel).to_pylist():
            place = self._place(row)
            if place is not None:
                file, line = place
                kernel = LineKernel(line, row["device"] or "", row["kernel"] or "", row["calls"], row["dur_ns"] or 0)
                found.setdefault(file, []).append(kernel)
        return found

    def _peaks_by_file(self, reel: Reel) -> dict[int, dict[int, int]]:
        found: dict[int, dict[int, int]] = {}
        for row in peak_lines(reel).to_pylist():
            place = self._place(row)
            if place is not None:
                of_file = found.setdefault(place[0], {})
                of_file[place[1]] = of_file.get(place[1], 0) + row["bytes"]
        return found

    def _place(self, row: Mapping[str, Any]) -> Place | None:
        """The file and line of a row, if it is of a file that has an id."""
        file, line = self._paths.get(row["path"] or ""), row["line"]
        return (file, line) if file is not None and line is not None and line > 0 else None

    def _ops_by_file(self) -> dict[int, list[LineOp]]:
        found: dict[int, list[LineOp]] = {}
        names = ("line", "op", "overload", "backward", "calls", "self_ns", "alloc_bytes", "flops")
        for row in self.line_ops.to_pylist():
            file = self._paths.get(row["path"])
            if file is not None and row["line"] is not None and row["line"] > 0:
                row["op"] = row["op"] or ""
                found.setdefault(file, []).append(LineOp(*(row[name] for name in names)))
        for each in found.values():
            each.sort(key=lambda one: (one.line, -one.self_ns, one.op, one.overload, one.backward))
        return found


def _with_files(found: pa.Table, files: Mapping[str, int]) -> pa.Table:
    paths = found["file"].to_pylist()
    ids = pa.array([files.get(path) for path in paths], pa.int32())
    return pa.table({"file": ids, "path": found["file"], "line": found["line"], **{n: found[n] for n in MEASURES}})


def _defined(symbols: pa.Table) -> dict[int, tuple[int, int, int]]:
    """File, first and last line of symbols that can cost something."""
    runs = pc.and_(pc.is_in(symbols["kind"].cast(pa.string()), pa.array(KINDS)), pc.invert(symbols["declaration"]))
    kept = symbols.filter(runs)
    columns = (kept[name].to_pylist() for name in ("id", "file", "line", "end_line"))
    return {symbol: (file, begin, end) for symbol, file, begin, end in zip(*columns, strict=True)}


def _named(
    paths: Collection[str | None], files: Mapping[str, int], held: Mapping[int, Sequence[int]]
) -> Iterator[tuple[str | None, int]]:
    """Of which file each path of the reel is, and of which folders."""
    for path in paths:
        file = files.get(path) if path is not None else None
        if file is None:
            yield path, _ELSEWHERE
            continue
        yield path, file
        for folder in held.get(file, ()):
            yield path, folder


def _hashes(reel: Reel, files: Mapping[str, int]) -> dict[int, set[str]]:
    """The hashes that files had when they ran, of those that the reel names."""
    found: dict[int, set[str]] = {}
    for path in pc.unique(reel.table("frames", ["file"])["file"].combine_chunks()).to_pylist():
        if path in files:
            found.setdefault(files[path], set())
    for row in reel.table("sources", ["path", "sha256"]).to_pylist():
        if row["path"] in files:
            hashes = found.setdefault(files[row["path"]], set())
            hashes |= {row["sha256"]} - {None}
    return found


def _columns(costs: Sequence[Costs | None]) -> dict[str, pa.Array]:
    return {
        name: pa.array([getattr(each, name) if each is not None else None for each in costs], pa.int64())
        for name in MEASURES
    }
