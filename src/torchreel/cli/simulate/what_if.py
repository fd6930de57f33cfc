"""The answer of `torchreel simulate`: the recorded run beside the simulated one, and what follows from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torchreel.cli.terminal.formats import write_csv, write_json, write_markdown

if TYPE_CHECKING:
    from torchreel.cli.simulate.recorded import Recorded
    from torchreel.cli.terminal.table import Column
    from torchreel.simulator.conf import Conf
    from torchreel.simulator.simulate import DeviceSimulation


@dataclass(frozen=True)
class WhatIf:
    """One device: as recorded, simulated with the recorded setting, and simulated as was asked for."""

    recorded: Recorded
    as_recorded: DeviceSimulation
    simulated: DeviceSimulation
    recorded_conf: Conf
    conf: Conf
    capacity: int | None
    limited: bool  # whether the process may use only a part of the device
    line: str | None  # of the source, that asked for what could not be had

    @property
    def is_same(self) -> bool:
        """Whether nothing else was asked for than what was recorded."""
        return self.simulated == self.as_recorded and self.capacity is None and self.conf == self.recorded_conf


def print_what_if(answers: dict[str, WhatIf], form: str) -> None:
    """Print each device's answer in the form that was asked for."""
    if form == "json":
        write_json({name: _document(answer) for name, answer in answers.items()})
    elif form == "csv":
        rows = [{"device": name, **row} for name, answer in answers.items() for row in _rows(answer)]
        write_csv(list(rows[0]), (tuple(row.values()) for row in rows))
    elif form == "markdown":
        for name, answer in answers.items():
            write_markdown(_columns(name, answer))
    else:
        _print_table(answers)


def _print_table(answers: dict[str, WhatIf]) -> None:
    from torchreel.cli.terminal.sentences import say
    from torchreel.cli.terminal.table import console, draw

    out = console()
    for name, answer in answers.items():
        draw(_columns(name, answer), out)
        out.print()
        for sentence in sentences(answer):
            say(out, sentence)
        for note in answer.simulated.notes:
            say(out, f"Note: {note}.")
        out.print()


def _columns(name: str, answer: WhatIf) -> list[Column]:
    from torchreel.cli.terminal.table import Column
    from torchreel.simulator.sweep.advice import mib

    recorded, simulated = answer.recorded, answer.simulated
    reserved = "" if recorded.peak_reserved is None else mib(recorded.peak_reserved)
    unused = "" if recorded.fragmentation is None else f"{recorded.fragmentation:.1%}"
    rows = [
        ("peak reserved", reserved, mib(simulated.peak_reserved)),
        ("tensors at their peak", mib(recorded.peak_requested), mib(simulated.peak_requested)),
        ("their blocks, rounded up", "", mib(simulated.peak_active)),
        ("unused when most is reserved", unused, f"{simulated.fragmentation:.1%}"),
        ("retries", "", f"{simulated.retries:,}"),
        ("out of memory", _failures(recorded.ooms), _failures(simulated.ooms)),
    ]
    names, ours, theirs = zip(*rows, strict=True)
    return [
        Column(name, list(names)),
        Column("recorded", list(ours), number=True),
        Column("simulated", list(theirs), number=True),
    ]


def _failures(count: int) -> str:
    return f"{count:,} times" if count > 1 else "once" if count else "no"


def sentences(answer: WhatIf) -> list[str]:
    """What follows: whether it fits, what is saved, and how far the simulation can be trusted."""
    found = [_failure(answer)] if answer.simulated.ooms else [_comparison(answer)]
    found += filter(None, (_difference(answer), _idle(answer)))
    return found


def _failure(answer: WhatIf) -> str:
    from torchreel.simulator.sweep.advice import mib, room

    first = answer.simulated.first_oom
    memory = f" of {room(answer.capacity)}" if answer.capacity is not None else ""
    if first is None:
        return f"The run does not fit in the memory{memory} with {_with(answer)}."
    if first.event < 0:
        where = "already for blocks that are older than the history"
    else:
        where = f"at {answer.line}" if answer.line else f"at event {first.event:,}"
    others = answer.simulated.ooms - 1
    more = f", and {others:,} more requests after it" if others else ""
    return (
        f"The run does not fit in the memory{memory} with {_with(answer)}: a request of {mib(first.size)} fails "
        f"{where}, when {mib(first.reserved)} are reserved{more}."
    )


def _comparison(answer: WhatIf) -> str:
    from torchreel.simulator.sweep.advice import mib, room

    peak, base = answer.simulated.peak_reserved, answer.as_recorded.peak_reserved
    if answer.is_same:
        if answer.recorded.peak_reserved is None:
            return f"A CUDA allocator with {_with(answer)} would reserve {mib(peak)} at its peak."
        return f"With {_with(answer)}, as it was recorded, the run reserves {mib(peak)} at its peak."
    fits = "" if answer.capacity is None else f"The run fits in {room(answer.capacity)}. "
    retries = answer.simulated.retries
    after = f", after giving back its cache {_failures(retries)}" if retries else ""
    return f"{fits}With {_with(answer)} it reserves {mib(peak)} at its peak{after}: {_change(peak, base)}."


def _change(peak: int, base: int) -> str:
    from torchreel.simulator.sweep.advice import mib

    if peak == base:
        return "as much as with the recorded setting"
    word = "less" if peak < base else "more"
    share = f" ({abs(peak - base) / base:.1%})" if base else ""
    return f"{mib(abs(peak - base))}{share} {word} than with the recorded setting"


def _difference(answer: WhatIf) -> str | None:
    """A simulation of the recorded setting that is not what was recorded is said to be that."""
    from torchreel.simulator.sweep.advice import mib

    recorded, simulated = answer.recorded.peak_reserved, answer.as_recorded.peak_reserved
    if recorded is None or recorded == simulated:
        return None
    if answer.recorded.ooms:
        why = "what was refused then is given here."
    else:
        why = "the addresses, or the state at the beginning, were others. --verify replays it with the recorded ones."
    return (
        f"With the recorded setting the simulator reserves {mib(simulated)} where {mib(recorded)} was recorded: {why}"
    )


def _idle(answer: WhatIf) -> str | None:
    """An option that does nothing is said to do nothing."""
    if answer.conf.garbage_collection_threshold and not answer.limited:
        return (
            "garbage_collection_threshold does nothing here: PyTorch collects garbage only under a memory fraction "
            "(--fraction, or per_process_memory_fraction, with --capacity)."
        )
    if answer.conf.max_non_split_rounding != answer.conf.large_segment_size and answer.conf.max_split_size is None:
        return "max_non_split_rounding_mb does nothing here: it is about blocks that max_split_size_mb keeps whole."
    return None


def _with(answer: WhatIf) -> str:
    from torchreel.simulator.sweep.advice import name

    return name(answer.conf)


def _document(answer: WhatIf) -> dict[str, Any]:
    recorded = {
        key: value for key, value in asdict(answer.recorded).items() if key not in ("process", "device", "room")
    }
    first = answer.simulated.first_oom
    simulated = {
        "conf": str(answer.conf),
        "capacity": answer.capacity,
        **answer.simulated.numbers(),
        "first_oom": None if first is None else {**asdict(first), "line": answer.line},
    }
    return {
        "recorded": {"conf": str(answer.recorded_conf), **recorded},
        "as_recorded": answer.as_recorded.numbers(),
        "simulated": simulated,
        "sentences": sentences(answer),
        "notes": list(answer.simulated.notes),
    }


def _rows(answer: WhatIf) -> list[dict[str, Any]]:
    recorded = {name: getattr(answer.recorded, name, None) for name in answer.simulated.numbers()}
    return [
        {"run": "recorded", "conf": str(answer.recorded_conf), "capacity": None, **recorded},
        {"run": "as_recorded", "conf": str(answer.recorded_conf), "capacity": None, **answer.as_recorded.numbers()},
        {"run": "simulated", "conf": str(answer.conf), "capacity": answer.capacity, **answer.simulated.numbers()},
    ]
