"""A progress bar on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(noun: str) -> Iterator[Callable[[int, int], None] | None]:
    """Gives what is to be told how many are done, of how many; None where nobody would see it."""
    with stages() as show:
        yield None if show is None else lambda done, total: show(noun, done, total)


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None] | None]:
    """The same for work in stages: it is told what is being done, too. A total of 0 means that nobody knows."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)
