"""One device's memory in one process: its history, with what is known of each block."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from torchreel.analyze.memory.model.categories import CATEGORIES, categories
from torchreel.analyze.memory.model.phases import BACKWARD, Phases
from torchreel.analyze.memory.model.phases_by_calls import phases_by_calls
from torchreel.analyze.memory.model.phases_by_stacks import phases_by_stacks, phases_of_blocks
from torchreel.analyze.memory.model.run import Run
from torchreel.analyze.memory.model.stacks import Line
from torchreel.analyze.memory.model.steps import Steps, steps
from torchreel.errors import OptionError
from torchreel.reel import Reel
from torchreel.reel.allocator_history import OLD, AllocatorHistory, histories
from torchreel.reel.columns import NOTHING, Ints, Mask, rows_of

GROUPS = ("stack", "module", "op", "category")

OLDER = "(older than the history)"
_MAKES_ROOM = ("aten::empty", "aten::resize_", "aten::new_empty", "aten::set_")


@dataclass(frozen=True)
class Labels:
    """A text for each block: `texts[number[block]]`."""

    number: Ints
    texts: list[str]


@dataclass(frozen=True)
class DeviceMemory:
    """Questions about memory are asked of this."""

    run: Run
    history: AllocatorHistory

    @functools.cached_property
    def phases(self) -> Phases:
        by_stack = phases_of_blocks(self.run, self.history)
        if (self.history.blocks.op != NOTHING).any() and len(self.run.calls):
            return phases_by_calls(self.run, self.history, by_stack)
        return phases_by_stacks(self.run, self.history, by_stack)

    @functools.cached_property
    def steps(self) -> Steps:
        return steps(self.run, self.history)

    @functools.cached_property
    def categories(self) -> Ints:
        """The category of each block, as a number of CATEGORIES."""
        return categories(self.history, self.phases, self.steps)

    @functools.cached_property
    def _call(self) -> Ints:
        """The place among the calls of the one that made each block."""
        return rows_of(self.run.calls.id, self.history.blocks.op)

    def labels(self, by: str) -> Labels:
        """What each block is called by: its line, module, op or category."""
        if by == "category":
            return Labels(self.categories, list(CATEGORIES))
        makers = {"stack": self._lines, "module": self._modules, "op": self._ops}
        if by not in makers:
            raise OptionError(f"Blocks cannot be grouped by {by!r}: by {', '.join(GROUPS)}.")
        known = self.__dict__.setdefault(f"_labels_{by}", None)
        if known is None:
            known = self.__dict__[f"_labels_{by}"] = makers[by]()
        labels: Labels = known
        return labels

    @functools.cached_property
    def _line_stacks(self) -> tuple[Ints, Mask]:
        """The stack that tells the line of each block, and whether it is that of its forward call."""
        stacks, blocks = self.run.stacks, self.history.blocks
        stack, backward = stacks.rows(blocks.stack), np.zeros(len(blocks), bool)
        if self.phases.by_calls:
            forward = stacks.rows(np.append(self.run.calls.stack, NOTHING)[self._call])
            backward = (self.phases.phase == BACKWARD) & (forward != NOTHING) & (forward != stack)
            stack = np.where(backward, forward, stack)
        return stack, backward

    def line(self, block: int) -> Line | None:
        """The line that a block is called by, if its stack is known."""
        row = int(self._line_stacks[0][block])
        return None if row == NOTHING else self.run.stacks.line(row)

    def _lines(self) -> Labels:
        """The user's line. A block of a backward pass has the line of its forward call, if that is known."""
        stacks, (stack, backward) = self.run.stacks, self._line_stacks
        without = self._without_stack()
        keys = np.where(stack == NOTHING, without, 2 * stack + backward)
        older = OLDER if self.history.allocs else "(no stack)"
        texts = {_OLD: older, _ENGINE: "(backward, no Python frames)", _NONE: "(no stack)"}
        return _labels(
            keys, lambda key: texts[key] if key < 0 else f"{'backward of ' * (key % 2)}{stacks.line(key // 2).text}"
        )

    def _without_stack(self) -> Ints:
        blocks = self.history.blocks
        bare = np.where(self.run.stacks.without_python(blocks.stack), _ENGINE, _NONE)
        return np.where(blocks.start == OLD, _OLD, bare)

    def _modules(self) -> Labels:
        module = np.append(self.run.calls.module, NOTHING)[self._call]
        old = self.history.blocks.start == OLD
        keys = np.where(module >= 0, module, np.where(old, _OLD, _NONE))
        texts = {_OLD: OLDER, _NONE: "(no module)"}

        def text(key: int) -> str:
            return texts[key] if key < 0 else self.run.module_paths(np.array([key]))[0] or "(no module)"

        return _labels(keys, text)

    def _ops(self) -> Labels:
        """The call that made a block; one that only makes room gives way to the call around it."""
        calls, blocks = self.run.calls, self.history.blocks
        telling = calls.of_kind("op", "backward", "torchscript", "custom") & ~calls.named(*_MAKES_ROOM)
        call = self._call
        told = np.append(calls.nearest(telling), NOTHING)[call]
        call = np.where(told != NOTHING, told, call)
        name = np.append(calls.name, NOTHING)[call]
        stack = self.run.stacks.rows(blocks.stack)
        without = np.where(stack != NOTHING, _STACKS + stack, np.where(blocks.start == OLD, _OLD, _NONE))
        texts = {_OLD: OLDER, _NONE: "(no op)"}

        def text(key: int) -> str:
            if key >= _STACKS:
                return self.run.stacks.operator(key - _STACKS) or "(no op)"
            return texts[key] if key < 0 else calls.names[key]

        return _labels(np.where(name != NOTHING, name, without), text)


_OLD, _ENGINE, _NONE = -1, -2, -3
_STACKS = 1 << 40  # keys from here on are stacks, where an op is read from C++ frames


def _labels(keys: Ints, text: Callable[[int], str]) -> Labels:
    """Give each distinct key its text, and blocks of equal texts the same number."""
    distinct, inverse = np.unique(keys, return_inverse=True)
    numbers: dict[str, int] = {}
    number = np.array([numbers.setdefault(text(int(key)), len(numbers)) for key in distinct], np.int64)
    return Labels(number[inverse] if len(number) else np.zeros(0, np.int64), list(numbers))


def device_memories(reel: Reel) -> list[DeviceMemory]:
    """Every device of every process of a reel that has a history or a state; the greatest peak first."""
    runs: dict[int, Run] = {}
    found = [DeviceMemory(runs.setdefault(h.process, Run(reel, h.process)), h) for h in histories(reel)]
    return sorted(found, key=lambda memory: (-_greatest(memory.history), memory.history.process, memory.history.device))


def _greatest(history: AllocatorHistory) -> int:
    return max(int(history.allocated.max()), int(history.reserved.max()))
