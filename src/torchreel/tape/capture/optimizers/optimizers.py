"""What torch's optimizers do in Python between two ops, as formulas, so that a replayed step counts on.

Adam and AdamW read their step count with `.item()` and correct for it in Python. Those numbers would be frozen by the
tape, and the guard on the count would stop the second replay. The code of torch is known, though: where the numbers of
a recorded step are, bit for bit, what the formulas of that code give for its count, they are replaced by the formulas.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch

from torchreel.program.model import Formula, Op, Program, Ref, Value
from torchreel.tape.capture.optimizers.group_settings import GroupSettings

_ITEM = "aten::_local_scalar_dense"
_FILE = "torch/optim/adam.py"


Rate = tuple[float, float, float]  # lr, beta1, beta2


class StepTaken:
    """A step of an optimizer on the tape, and the settings that it was taken with."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = weakref.ref(optimizer)  # weak: a function may make an optimizer and drop it
        is_torchs = self.is_torchs = type(optimizer).__module__.startswith("torch.optim")
        self.free_rates: set[int] = set()  # groups whose learning rate nobody but the optimizer reads in this step
        self.settings = [GroupSettings(group, is_torchs) for group in optimizer.param_groups]
        groups = enumerate(optimizer.param_groups)
        self._groups = {id(parameter): index for index, group in groups for parameter in group["params"]}
        self._without_state = {
            index
            for index, group in enumerate(optimizer.param_groups)
            if any(parameter not in optimizer.state for parameter in group["params"])
        }
        # Torch's own keep their numbers in tensors, but for one, whose count is on the tape.
        self._numbers = None if is_torchs else numbers_in(optimizer)

    def group_of(self, parameter: torch.Tensor) -> int | None:
        """The group of a parameter, or None."""
        return self._groups.get(id(parameter))

    def begins(self, group: int) -> bool:
        """Whether the optimizer makes state of the group in this step, for which it may use its settings."""
        return group in self._without_state

    def changed_numbers(self) -> tuple[str, str, Any, Any] | None:
        """If the optimizer keeps numbers in Python: its class, and a number that the step changed."""
        optimizer = self.optimizer()
        if self._numbers is None or optimizer is None:
            return None
        for (parameter, key), now in numbers_in(optimizer).items():
            was = self._numbers.get((parameter, key))
            if was != now:
                return type(optimizer).__name__, key, was, now
        return None

    @property
    def rates(self) -> list[Rate]:
        """The rates of all groups."""
        return [rate for each in self.settings if (rate := _rate(each.values)) is not None]

    def rate_of(self, parameter: torch.Tensor) -> Rate | None:
        """The rate of a parameter's group, or None."""
        group = self._groups.get(id(parameter))
        return None if group is None else _rate(self.settings[group].values)


def _rate(group: dict[str, Any]) -> Rate | None:
    """The rate of a group, if it is made of plain numbers."""
    betas = group.get("betas")
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        return None
    lr, (beta1, beta2) = group.get("lr"), betas
    if not all(isinstance(value, float | int) for value in (lr, beta1, beta2)):
        return None
    return float(lr), float(beta1), float(beta2)  # type: ignore[arg-type]


def numbers_in(optimizer: torch.optim.Optimizer) -> dict[tuple[int, str], Any]:
    """The numbers that an optimizer keeps in Python, by parameter and name."""
    return {
        (id(parameter), key): value
        for parameter, state in optimizer.state.items()
        for key, value in (state.items() if isinstance(state, dict) else ())
        if isinstance(value, bool | int | float | str | type(None))
    }


class _Rates:
    """What a parameter may have been updated with."""

    def __init__(self, steps: list[StepTaken], tensors: dict[int, torch.Tensor]) -> None:
        self._steps, self._tensors = steps, tensors
        self.all = list(dict.fromkeys(rate for step in steps for rate in step.rates))

    def of(self, updated: Value) -> list[Rate]:
        """The rates of the group of an updated parameter, or all rates if the group is not known."""
        first = updated[0] if isinstance(updated, list) and updated else updated
        tensor = self._tensors.get(first.slot) if isinstance(first, Ref) else None
        found = [step.rate_of(tensor) for step in self._steps] if tensor is not None else []
        return list(dict.fromkeys(filter(None, found))) or self.all


def write_formulas(program: Program, steps: list[StepTaken], tensors: dict[int, torch.Tensor]) -> None:
    """Replace the numbers of Adam's bias correction in the program by what they were computed with.

    Where those of several groups give the same numbers, and nobody can tell which it was, the count stays guarded.
    """
    rates = _Rates(steps, tensors)
    if not rates.all:
        return
    of_adam = {stack for stack, _ in enumerate(program.stacks) if _is_adam(program, stack)}
    items = [index for index, op in enumerate(program.ops) if op.name == _ITEM and op.stack in of_adam]
    for index in items:
        _write_single(program, index, rates)
    open_items = [index for index in items if program.ops[index].guarded]
    if open_items:
        _write_lists(program, open_items, rates)


def _is_adam(program: Program, stack: int) -> bool:
    for _ in range(4):  # item() is called by a function of torch.optim, from the loop in adam.py
        if stack <= 0:
            return False
        entry = program.stacks[stack]
        if program.frames[entry.frame].file.replace("\\", "/").endswith(_FILE):
            return True
        stack = entry.parent
    return False


def _count(op: Op) -> float | None:
    value = op.results[0]
    return float(value) if isinstance(value, float | int) else None


def _formulas(index: int, count: float, rate: Rate) -> dict[str, Formula]:
    """As torch/optim/adam.py writes them; `index` is that of the op that read the step's count."""
    lr, beta1, beta2 = rate
    first, second = 1 - beta1**count, 1 - beta2**count
    if first == 0:
        return {}
    item = f"item:{index}"
    correction1: tuple[float | str, ...] = (1.0, beta1, item, "pow", "sub")
    correction2: tuple[float | str, ...] = (1.0, beta2, item, "pow", "sub")
    return {
        "root": Formula((*correction2, 0.5, "pow"), second**0.5),
        "step": Formula((lr, *correction1, "div", "neg"), -(lr / first)),
        "listed": Formula((lr, *correction1, "div", -1.0, "mul"), (lr / first) * -1),
    }


def _write_single(program: Program, index: int, rates: _Rates) -> None:
    """The loop over parameters: sqrt() / root, and addcdiv_(..., value=step), before the next count is read."""
    count = _count(program.ops[index])
    if count is None:
        return
    division = update = None
    for op in program.ops[index + 1 : index + 16]:
        if op.name == _ITEM:
            break
        if op.name in ("aten::div.Tensor", "aten::div_.Tensor") and _number(program, op.args[1]) is not None:
            division = op
        elif op.name == "aten::addcdiv_":
            update = op
    if division is None or update is None:
        return
    root, step = _number(program, division.args[1]), update.args[3]
    tried = [_formulas(index, count, rate) for rate in rates.of(update.args[0])]
    found = [each for each in tried if each and root == each["root"].value and step == each["step"].value]
    if len(found) == 1:
        division.args[1] = found[0]["root"]
        update.args[3] = found[0]["step"]
        program.ops[index].guarded = False


def _number(program: Program, value: Value) -> float | None:
    """The number that a wrapped tensor stands for."""
    if not isinstance(value, Ref):
        return None
    number = program.slots[value.slot].number
    return float(number) if isinstance(number, float | int) else None


def _write_lists(program: Program, items: list[int], rates: _Rates) -> None:
    """The lists of foreach: all counts are read for the first correction, then all for the second."""
    for group in _runs(program, items):
        half = len(group) // 2
        end = group[-1]
        later = program.ops[end + 1 : end + 8]
        division = next((op for op in later if op.name == "aten::_foreach_div_.ScalarList"), None)
        update = next((op for op in later if op.name == "aten::_foreach_addcdiv_.ScalarList"), None)
        if len(group) % 2 or division is None or update is None:
            continue
        found = []
        for rate in rates.of(update.args[0]):
            roots = [_formula(program, index, rate, "root") for index in group[half:]]
            steps = [_formula(program, index, rate, "listed") for index in group[:half]]
            if _are(division.args[1], roots) and _are(update.args[3], steps):
                found.append((roots, steps))
        if len(found) == 1:
            division.args[1], update.args[3] = list(found[0][0]), list(found[0][1])
            for index in group:
                program.ops[index].guarded = False


def _formula(program: Program, index: int, rate: Rate, which: str) -> Formula | None:
    count = _count(program.ops[index])
    return None if count is None else _formulas(index, count, rate).get(which)


def _are(recorded: Value, formulas: list[Formula | None]) -> bool:
    return isinstance(recorded, list) and recorded == [
        None if formula is None else formula.value for formula in formulas
    ]


def _runs(program: Program, items: list[int]) -> Iterator[list[int]]:
    """Counts that are read one after the other."""
    run: list[int] = []
    for index in items:
        if run and index != run[-1] + 1:
            yield run
            run = []
        run.append(index)
    if run:
        yield run
