"""The calls of the host, sorted and linked: to their parents, from backward to forward, to modules and stacks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel._decode import Nesting
from torchreel.ingest.kineto.categories import LEAVES
from torchreel.ingest.kineto.collecting import KIND, KINDS, Collected
from torchreel.ingest.kineto.columns import NOTHING, Codes, Ints, Mask, plain, rows_of

_STEP = re.compile(r"ProfilerStep#?\s*(\d{1,9})")
_MODULE = "nn.Module: "
_FRAME = re.compile(r"(.*)\((\d{1,9})\): (.*)", re.DOTALL)
_ENGINE = "autograd::engine::evaluate_function"
# Frames of one stack, the innermost first; recursion may go much deeper.
_DEEPEST = 1000


@dataclass
class Step:
    number: int
    start: int
    end: int


class Calls:
    """All calls of one process. A row is the id of a call: rows are sorted by start."""

    def __init__(self, collected: Collected, names: list[str], moments: tuple[Ints, Ints]) -> None:
        """`moments` are threads and times for each of which the innermost call is wanted."""
        columns = collected.host.taken()
        self._names = names
        _classify(columns, names)
        order = _order(columns)
        self.columns = {name: columns.pop(name)[order] for name in list(columns)}  # never twice in memory
        self.count = len(order)
        self.end = self.columns["start"] + np.maximum(self.columns["dur"], 0)
        self._nest(moments)
        self.kind = self.columns["kind"]
        self.is_op = (self.kind == KIND["op"]) | (self.kind == KIND["backward"])
        self.is_range = self.kind == KIND["range"]
        self.steps = self._find_steps()
        self.step = self.step_at(self.columns["start"])
        self.forward, self.torch_ids = self._link_backward(collected)
        self._find_modules()
        self._find_stacks(collected)

    def _nest(self, moments: tuple[Ints, Ints]) -> None:
        """Moments are sorted in among the calls, and taken out again."""
        threads, times = moments
        count = self.count + len(times)
        thread = np.concatenate([self.columns["thread"], threads])
        start = np.concatenate([self.columns["start"], times])
        end = np.concatenate([self.end, times])
        moment = np.arange(count) >= self.count
        self._sorted = np.argsort(start, kind="stable")  # at one time, calls before moments
        self.nesting = Nesting(thread[self._sorted], start[self._sorted], end[self._sorted], moment[self._sorted])
        self._place = np.empty(count, np.int64)
        self._place[self._sorted] = np.arange(count)
        parent = self.calls(self.nesting.parent)
        self.parent, self.at_moment = parent[: self.count], parent[self.count :]
        self.depth = self.nesting.depth[self._place[: self.count]]
        self.self_ns = self.nesting.self_times()[self._place[: self.count]]

    def _whole(self, mask: Mask) -> Mask:
        """A mask of calls as one of calls and moments in their order."""
        result = np.zeros(len(self._sorted), bool)
        result[self._place[: self.count]] = mask
        return result

    def calls(self, found: Ints) -> Ints:
        """What was found for each sorted row, for calls and then moments; as numbers of calls."""
        result = found[self._place]
        return np.where(result < 0, -1, self._sorted[np.maximum(result, 0)])

    def around(self, mask: Mask) -> Ints:
        """Of each call the innermost of the chosen calls that holds it; -1 for none."""
        return self.calls(self.nesting.around(self._whole(mask)))[: self.count]

    def within(self, mask: Mask) -> Ints:
        """The same, or the call itself."""
        return self.calls(self.nesting.nearest(self._whole(mask)))[: self.count]

    def sums(self, values: Ints) -> Ints:
        """For each call the values of the first moments that happened while it was open."""
        moments = self._place[self.count : self.count + len(values)]
        return self.nesting.sums(moments, values)[self._place[: self.count]]

    def _find_steps(self) -> list[Step]:
        numbers = {code: int(match[1]) for code, name in enumerate(self._names) if (match := _STEP.fullmatch(name))}
        named = np.isin(self.columns["name"], list(numbers))  # up to torch 1.11 they are ops
        steps: dict[int, Step] = {}
        for row in np.flatnonzero((self.is_range | self.is_op) & named).tolist():
            number = numbers[int(self.columns["name"][row])]
            steps.setdefault(number, Step(number, int(self.columns["start"][row]), int(self.end[row])))
        return sorted(steps.values(), key=lambda step: step.start)

    def step_at(self, times: Ints) -> Ints:
        """The step in which each time lies."""
        if not self.steps:
            return np.full(len(times), NOTHING)
        starts = np.array([step.start for step in self.steps])
        ends = np.array([step.end for step in self.steps])
        numbers = np.array([step.number for step in self.steps])
        place = np.searchsorted(starts, times, side="right") - 1
        inside = (place >= 0) & (times < ends[np.maximum(place, 0)])
        return np.where(inside, numbers[np.maximum(place, 0)], NOTHING)

    def _link_backward(self, collected: Collected) -> tuple[Ints, dict[int, int]]:
        """For each backward call its forward call, and what PyTorch calls the threads of those."""
        seq, forward = self.columns["seq"], self.columns["forward"]
        backward = np.flatnonzero((forward > 0) & (seq >= 0))
        result = np.full(self.count, -1, np.int64)
        if not len(backward):
            return result, {}
        known = self._arrow_pairs(collected)
        candidates = np.flatnonzero(self.is_op & (seq >= 0) & (forward <= 0))
        latest: dict[tuple[int, int], int] = {}
        threads_of: dict[int, set[int]] = {}
        for row, number, thread in zip(
            candidates.tolist(), seq[candidates].tolist(), self.columns["thread"][candidates].tolist(), strict=True
        ):
            latest[thread, number] = row
            threads_of.setdefault(number, set()).add(thread)
        torch_ids = {int(self.columns["thread"][row]): number for (number, _), row in known.items()}
        by_torch_id = {number: thread for thread, number in torch_ids.items()}
        for row, number, torch_id in zip(
            backward.tolist(), seq[backward].tolist(), forward[backward].tolist(), strict=True
        ):
            found = known.get((torch_id, number))
            if found is None:
                threads = threads_of.get(number, set())
                thread = by_torch_id.get(torch_id)
                if thread is None and len(threads) == 1:
                    thread = next(iter(threads))
                found = latest.get((thread, number)) if thread is not None else None
            if found is not None and self.columns["start"][found] <= self.columns["start"][row]:
                result[row] = found
                torch_ids.setdefault(int(self.columns["thread"][found]), torch_id)
                by_torch_id.setdefault(torch_id, int(self.columns["thread"][found]))
        return result, torch_ids

    def _arrow_pairs(self, collected: Collected) -> dict[tuple[int, int], int]:
        """From arrows: for a thread's number and a sequence number, the forward call."""
        arrows = collected.arrows.taken()
        if not len(arrows["id"]):
            return {}
        places: dict[tuple[int, int], list[int]] = {}
        chosen = np.flatnonzero(self.is_op & (self.columns["seq"] >= 0))
        for row, thread, start in zip(
            chosen.tolist(),
            self.columns["thread"][chosen].tolist(),
            self.columns["start"][chosen].tolist(),
            strict=True,
        ):
            places.setdefault((thread, start), []).append(row)
        ends: dict[tuple[int, int], list[int]] = {}
        for id, thread, start, out in zip(
            *(arrows[name].tolist() for name in ("id", "thread", "start", "out")), strict=True
        ):
            ends[id, out] = places.get((thread, start), [])
        pairs: dict[tuple[int, int], int] = {}
        seq, forward = self.columns["seq"].tolist(), self.columns["forward"].tolist()
        for (id, out), rows in ends.items():
            for row in rows if not out and (id, 1) in ends else ():
                begins = [each for each in ends[id, 1] if seq[each] == seq[row]]
                if begins and forward[row] > 0:
                    pairs[forward[row], seq[row]] = begins[-1]
        return pairs

    def _find_modules(self) -> None:
        """The module around each call; under a backward call that of its forward call."""
        is_module = self.kind == KIND["module"]
        self.module_names = Codes()
        self.module_parents: dict[int, int] = {}
        linked = self.forward >= 0
        own = self.within(is_module | linked)
        for _ in range(4):  # a backward call of a backward call
            hop = (own >= 0) & ~is_module[np.maximum(own, 0)]
            if not hop.any():
                break
            forward = self.forward[own[hop]]
            own[hop] = np.where(forward < 0, -1, own[np.maximum(forward, 0)])
        own[(own >= 0) & ~is_module[np.maximum(own, 0)]] = -1
        holder = self.around(is_module)
        name = self.columns["name"]
        numbers = np.full(self.count, NOTHING)
        for row in np.flatnonzero(is_module).tolist():
            new = int(name[row]) not in self.module_names
            number = numbers[row] = self.module_names[int(name[row])]
            if new and holder[row] >= 0:
                self.module_parents[number] = self.module_names[int(name[holder[row]])]
        self.module = np.where(own < 0, NOTHING, numbers[np.maximum(own, 0)])

    def modules(self) -> pa.Table:
        """The table modules. Names are those of classes with a number, because a trace has no other."""
        paths: list[str] = []
        rows: list[dict[str, Any]] = []
        for code, number in self.module_names.items():
            label = plain(self._names[code].removeprefix(_MODULE))
            parent = self.module_parents.get(number)
            parent = parent if parent is not None and parent < number else None
            paths.append(label if parent is None else f"{paths[parent]}.{label}")
            rows.append({"id": number, "path": paths[-1], "class": re.sub(r"_\d+$", "", label), "parent": parent})
        return pa.Table.from_pylist(
            rows, pa.schema([("id", pa.int32()), ("path", pa.string()), ("class", pa.string()), ("parent", pa.int32())])
        )

    def _find_stacks(self, collected: Collected) -> None:
        """The stack of each call: as it is written there or around it, that of the forward call, or Python's calls."""
        self.frames = Codes()
        self.stacks = Codes()
        written = [self._written_stack(text) for text in collected.stacks]
        self.written = np.array(written or [NOTHING], np.int64)
        given = self.columns["stack"]
        is_python = (self.kind == KIND["python"]) | (self.kind == KIND["module"])
        linked = self.forward >= 0
        holder = self.within(is_python | linked | (given != NOTHING))
        stack = np.full(self.count, NOTHING)
        held = (holder >= 0) & ~is_python
        rows = np.flatnonzero(held & (given[holder] != NOTHING)) if self.count else holder
        stack[rows] = self.written[given[holder[rows]]]
        rows = np.flatnonzero(held & is_python[holder]) if self.count else holder
        if len(rows):
            stack[rows] = self._python_stacks(self._chains(is_python)[holder[rows]])
        rows = np.flatnonzero(held & linked[holder]) if self.count else holder
        for _ in range(4):  # a backward call of a backward call
            stack[rows] = stack[self.forward[holder[rows]]]
        self.stack = stack

    def _python_stacks(self, chains: Ints) -> Ints:
        """The stacks of chains of Python calls; only those that are wanted are made."""
        numbers, places = np.unique(chains, return_inverse=True)
        return np.array([self._stack_of(chain) for chain in numbers.tolist()], np.int64)[places]

    def _written_stack(self, text: str) -> int:
        frames = [self._frame(line) for line in text.split(";")[:_DEEPEST]]
        return self.stacks[tuple(frame for frame in frames if frame is not None)]

    def _frame(self, line: str) -> int | None:
        match = _FRAME.fullmatch(line.strip())
        return self.frames[match[1], int(match[2]), match[3]] if match else None

    def _chains(self, is_python: Mask) -> Ints:
        """For each Python call a number of the calls that led to it; 0 is no frame at all."""
        rows = np.flatnonzero(is_python)
        around = self.around(is_python)[rows]
        callers = rows[rows_of(self.columns["python"][rows], self.columns["caller"][rows])]
        has_caller = rows_of(self.columns["python"][rows], self.columns["caller"][rows]) >= 0
        callers = np.where(has_caller & (callers < rows), callers, around)
        frames = {int(code): self._frame(self._names[code]) for code in np.unique(self.columns["name"][rows])}
        keys: dict[tuple[int, int], int] = {}
        self._chain_keys: list[tuple[int, int]] = []
        chains = np.zeros(self.count, np.int64)
        values = [0] * self.count
        for row, caller, name in zip(rows.tolist(), callers.tolist(), self.columns["name"][rows].tolist(), strict=True):
            below = values[caller] if caller >= 0 else 0
            frame = frames[name]
            if frame is None:
                values[row] = below
                continue
            key = (frame, below)
            number = keys.get(key)
            if number is None:
                number = keys[key] = len(keys) + 1
                self._chain_keys.append(key)
            values[row] = number
        chains[:] = values
        return chains

    def _stack_of(self, chain: int) -> int:
        if not chain:
            return NOTHING
        frames: list[int] = []
        while chain and len(frames) < _DEEPEST:
            frame, chain = self._chain_keys[chain - 1]
            frames.append(frame)
        return self.stacks[tuple(frames)]


def _classify(columns: dict[str, Ints], names: list[str]) -> None:
    """Calls of modules among those of Python, and backward nodes among the ops."""
    modules = np.array([name.startswith(_MODULE) for name in names] or [False])
    engine = np.array([name.startswith(_ENGINE) for name in names] or [False])
    kind, name = columns["kind"], columns["name"]
    kind[(kind == KIND["python"]) & modules[name]] = KIND["module"]
    kind[(kind == KIND["op"]) & (columns["forward"] > 0) & ~engine[name]] = KIND["backward"]


def _order(columns: dict[str, Ints]) -> Ints:
    """By start; at one time the longer call holds the others, and calls of a device's API hold none."""
    leaf = np.isin(columns["kind"], [KIND[kind] for kind in LEAVES])
    return np.lexsort((columns["order"], -columns["dur"], leaf, columns["start"]))


assert set(LEAVES) <= set(KINDS)
