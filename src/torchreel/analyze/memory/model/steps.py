"""Steps of a program, as positions in a device's history: recorded ones, or what recurs like a step.

The recorder counts steps. A snapshot has annotations, of which those of an optimizer's step end one. A program without
either may have ranges that recur and whose name says step, iteration or batch, or a module that is called again and
again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from torchreel.analyze.memory.model.run import Run
from torchreel.reel.allocator_history import AllocatorHistory
from torchreel.reel.columns import NOTHING, Ints, Mask, ints, texts

_FEWEST = 3  # fewer recurrences are no rhythm
_NAME = re.compile(r"step|iter|batch", re.IGNORECASE)


@dataclass(frozen=True)
class Steps:
    """Where each step ended: a block that lives then has `end` beyond that position."""

    ends: Ints  # positions, sorted
    first: int  # the number of the first step
    source: str  # what ends each of them, in words; empty for recorded steps

    def __len__(self) -> int:
        return len(self.ends)

    def number(self, position: int) -> int | None:
        """The step in which an event happened."""
        if not len(self.ends):
            return None
        return self.first + int(np.searchsorted(self.ends, position, side="right"))

    def numbers(self, positions: Ints) -> Ints:
        return self.first + np.searchsorted(self.ends, positions, side="right")


def steps(run: Run, history: AllocatorHistory) -> Steps:
    """The steps of a history; none if nothing tells them."""
    if history.has_times:
        for source in (_recorded, _annotated, _ranges, _modules):
            found = source(run, history)
            if found is not None:
                return found
    return Steps(np.zeros(0, np.int64), 0, "")


def _positions(history: AllocatorHistory, times: Ints) -> Ints:
    """The last event before each time, in order of time."""
    return np.sort(np.searchsorted(history.times, times, side="left"))


def _recorded(run: Run, history: AllocatorHistory) -> Steps | None:
    """The last one ends with the recording, in the middle of what it would have been: it is left out."""
    table = run.steps
    if table.num_rows < _FEWEST:
        return None
    ends = ints(table, "end_ns")[:-1]
    return Steps(_positions(history, ends), int(ints(table, "step")[0]), "")


def _annotated(run: Run, history: AllocatorHistory) -> Steps | None:
    table = run.annotations
    names, words = texts(table, "name")
    stages, stage_words = texts(table, "stage")
    ended = np.array([*(word == "END" for word in stage_words), False], bool)[stages]
    chosen = _recurring(names[ended], words)
    if chosen is None:
        return None
    times = ints(table, "time_ns")[ended & (names == chosen)]
    return Steps(_positions(history, times), 0, f"ends of {words[chosen]}")


def _ranges(run: Run, history: AllocatorHistory) -> Steps | None:
    calls = run.calls
    ranges = calls.of_kind("range")
    chosen = _recurring(calls.name[ranges], calls.names)
    if chosen is None:
        return None
    times = calls.end[ranges & (calls.name == chosen)]
    return Steps(_positions(history, times), 0, f"ends of {calls.names[chosen]}")


def _recurring(names: Ints, words: list[str]) -> int | None:
    """The name that ends steps: of an optimizer's step, else one that says so; the one that recurs most."""
    counts = np.bincount(names[names >= 0], minlength=len(words))
    for wanted in (lambda word: word.startswith("Optimizer.step#"), _NAME.search):
        found = [number for number, word in enumerate(words) if counts[number] >= _FEWEST and wanted(word)]
        if found:
            return max(found, key=lambda number: (counts[number], -number))
    return None


def _modules(run: Run, history: AllocatorHistory) -> Steps | None:
    """Calls of the outermost module that is called most."""
    calls = run.calls
    modules: Mask = calls.of_kind("module")
    roots = np.flatnonzero(modules & (calls.outermost(modules) == np.arange(len(calls))) & (calls.module != NOTHING))
    if not len(roots):
        return None
    counts = np.bincount(calls.module[roots])
    module = int(counts.argmax())
    if counts[module] < _FEWEST:
        return None
    name = run.module_paths(np.array([module]))[0]
    times = calls.end[roots[calls.module[roots] == module]]
    return Steps(_positions(history, times), 0, f"calls of {name}")
