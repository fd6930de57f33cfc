"""The run that a site shows: its reel, which files it entered, and where the sources of its program are."""

from __future__ import annotations

import datetime
import functools
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from torchreel.analyze.summary import Summary, summary
from torchreel.atlas.costs import RunCosts
from torchreel.atlas.reel_key import reel_key
from torchreel.atlas.site.facts import RunFacts
from torchreel.errors import AtlasError
from torchreel.reel import Reel, load
from torchreel.reel.owners import USER, owner_of
from torchreel.reel.source_files import content_of, digest_of

if TYPE_CHECKING:
    import pyarrow as pa


class Run:
    """A reel, as an atlas sees it."""

    def __init__(self, reel: Reel) -> None:
        self.reel = reel
        self._sources = reel.table("sources", ["path", "sha256", "text"]).to_pylist()
        self._files = {path for path in _unique(reel, "frames", "file") if path}

    @functools.cached_property
    def key(self) -> str:
        return reel_key(self.reel)

    @property
    def about(self) -> dict[str, str]:
        """What `atlas.json` says of it."""
        return {"path": str(self.reel.path.resolve()), "key": self.key}

    def entered(self, path: str) -> bool:
        """Whether a frame of the run is in a file."""
        return path in self._files

    def own_source(self) -> dict[str, str | os.PathLike[str]]:
        """The folder of the recorded script, if a file in it is one that was recorded, byte for byte.

        A reel names paths, and one from elsewhere could name a folder of this machine that is not to be published. Who
        made it cannot know the hashes of the files in that.
        """
        script = self.script
        if script is None:
            raise AtlasError(
                f"{self.reel.path} does not say where its program's source is: record it with --stacks, or name the "
                "folder with --source."
            )
        folder = self._folder(script)
        if not any(self._is_here(row["path"], row["sha256"]) for row in self._sources if _below(row["path"], folder)):
            raise AtlasError(
                f"No file below {folder}, the folder of the recorded {Path(script).name}, is here as it was recorded: "
                "name the folder to read with --source."
            )
        return {Path(folder).name or "root": folder}

    @functools.cached_property
    def begin_ns(self) -> int:
        """When the recording began, as `tour` counts."""
        starts = [*self.reel.table("processes", ["start_ns"])["start_ns"].to_pylist()]
        starts += [pc.min(self.reel.table("ops", ["start_ns"])["start_ns"]).as_py()]
        return min((start for start in starts if start is not None), default=0)

    @functools.cached_property
    def script(self) -> str | None:
        """The file in which the program began: that of most stacks' outermost frame in the user's own code."""
        frames = self.reel.table("frames", ["id", "file"])
        files = {
            (process, frame): file
            for process, frame, file in zip(
                *(frames[name].to_pylist() for name in ("process", "id", "file")), strict=True
            )
            if file and owner_of(file) == USER and Path(file).is_absolute()
        }
        stacks = self.reel.table("stacks", ["frames"])
        outermost: Counter[str] = Counter()
        for process, held in zip(stacks["process"].to_pylist(), stacks["frames"].to_pylist(), strict=True):
            own = [files[process, frame] for frame in held or () if (process, frame) in files]
            if own:
                outermost[own[-1]] += 1
        return min(outermost, key=lambda file: (-outermost[file], file)) if outermost else None

    def _folder(self, script: str) -> str:
        """The folder of the script, or the one above it that holds all of the program's own files."""
        folder = str(Path(script).parent)
        own = [row["path"] for row in self._sources if row["text"] is not None and row["path"]]
        common = os.path.commonpath([script, *own]) if own else script
        return common if common != script and _below(folder, common) else folder

    @staticmethod
    def _is_here(path: str | None, sha256: str | None) -> bool:
        data = content_of(path) if path and sha256 else None
        return data is not None and digest_of(data) == sha256

    def facts(self, costs: RunCosts) -> RunFacts:
        """What the front page says of it."""
        known: Summary = summary(self.reel)
        processes = self.reel.table("processes", ["start_ns", "torch_version"]).to_pylist()
        starts = [row["start_ns"] for row in processes if row["start_ns"] is not None]
        versions = sorted({row["torch_version"] for row in processes if row["torch_version"]})
        return RunFacts(
            self.reel.path.name,
            Path(self.script).name if self.script else "",
            _date(min(starts)) if starts else "",
            ", ".join(versions),
            known.wall_ns,
            costs.whole,
            known.steps or None,
            costs.elsewhere if costs.recorded else None,
            _notes(known, costs),
        )


def opened_run(reel: Reel | str | os.PathLike[str]) -> Run:
    return Run(reel if isinstance(reel, Reel) else load(reel))


def _unique(reel: Reel, table: str, column: str) -> list[str]:
    values: pa.ChunkedArray = reel.table(table, [column])[column]
    return list(dict.fromkeys(values.to_pylist()))


def _below(path: str | None, folder: str) -> bool:
    return path is not None and (path == folder or path.startswith(folder.rstrip("/") + "/"))


def _date(ns: int) -> str:
    return datetime.datetime.fromtimestamp(ns / 1e9, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _notes(known: Summary, costs: RunCosts) -> list[str]:
    """What is missing of the recording."""
    notes = [costs.problem] if costs.problem else []
    if known.lost_events:
        notes.append(f"{known.lost_events:,} events of this recording were lost.")
    if known.incomplete_processes:
        listed = ", ".join(known.incomplete_processes)
        notes.append(f"Processes that did not close their recording: {listed}. What they did last may be missing.")
    return notes
