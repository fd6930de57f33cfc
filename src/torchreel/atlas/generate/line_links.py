"""Lines of sources as links, with their text and what they cost."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchreel.atlas import tree
from torchreel.atlas.generate.reader import Task
from torchreel.atlas.generate.state import Record
from torchreel.atlas.model import Costs, Link
from torchreel.atlas.site import paths
from torchreel.atlas.site.facts import CostRow

if TYPE_CHECKING:
    from torchreel.atlas.kernel_costs import Place


class Lines:
    """Lines of sources as links, with their text."""

    def __init__(self, records: Mapping[int, Record], tasks: Mapping[int, Task], files: Mapping[str, int]) -> None:
        self.records, self._tasks, self._files = records, tasks, files
        self._texts = functools.cache(self._read)

    def row(self, page: str, path: str | None, line: int | None, costs: Costs) -> CostRow:
        """A line as the reel names it, and what it cost; without a link, if it is in no root."""
        file = self._files.get(path or "")
        if file is None or line is None or line < 1:
            return CostRow(Link(f"{_short(path)}:{line}" if path is not None else "no file"), costs)
        return CostRow(self.link(page, (file, line)), costs, self._text(file, line))

    def link(self, page: str, place: Place, text: str = "") -> Link:
        """To a line; named by its file and number, if no text is given."""
        file, line = place
        record = self.records[file]
        anchor = f"L{line}" if line <= record.lines else ""
        return Link(text or f"{record.names.path}:{line}", paths.href(page, record.names.page, anchor))

    def file(self, path: str) -> int | None:
        return self._files.get(path)

    def _text(self, file: int, line: int) -> str:
        lines = self._texts(file)
        return lines[line - 1].strip() if line <= len(lines) else ""

    def _read(self, file: int) -> list[str]:
        task = self._tasks[file]
        data = tree.content(task.source)
        same = data is not None and tree.digest(data) == self.records[file].sha256
        return tree.text(data, task.language).split("\n") if data is not None and same else []


def _short(path: str) -> str:
    """The end of a path, from the package that it is in, if it is one that was installed."""
    _, installed, package = path.rpartition("/site-packages/")
    return package if installed else "/".join(path.split("/")[-3:])
