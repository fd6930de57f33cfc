"""The answer of `torchreel edge`: a model and its runs in a few sentences, then its ops and its modules."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchreel._units import bytes_text, count_text
from torchreel.cli.terminal.units import flops_unit, time_text

if TYPE_CHECKING:
    from rich.console import Console

    from torchreel.analyze.edge.costs import EdgeCosts
    from torchreel.analyze.edge.modules import ModuleCost
    from torchreel.analyze.edge.ops import OpCost
    from torchreel.cli.terminal.table import Column
    from torchreel.edge.measure import Measurement


def costs_dict(measurement: Measurement, costs: EdgeCosts) -> dict[str, Any]:
    """For JSON: times in nanoseconds, sizes in bytes, shares from 0 to 1, all of one run."""
    return {
        "model": str(measurement.path),
        "format": measurement.format,
        "name": measurement.name,
        "bytes": measurement.bytes,
        "inputs": list(measurement.inputs),
        "threads": measurement.threads,
        "warmup": measurement.warmup,
        "reel": str(measurement.reel.path),
        "remark": measurement.remark,
        **costs.as_dict(),
    }


def print_costs(measurement: Measurement, costs: EdgeCosts, limit: int) -> None:
    from torchreel.cli.terminal.sentences import say
    from torchreel.cli.terminal.table import console

    out = console()
    for sentence in sentences(measurement, costs):
        say(out, sentence)
    out.print()
    if costs.ops:
        _draw(_op_columns(costs.ops[: limit or None]), len(costs.ops), limit, out)
    else:
        out.print("No op was recorded in these runs.")
    if costs.modules:
        out.print()
        _draw(_module_columns(costs.modules[: limit or None]), len(costs.modules), limit, out)
    out.print()
    print_next(_ideas(measurement), out)


def sentences(measurement: Measurement, costs: EdgeCosts) -> list[str]:
    """The model and its runs in words."""
    totals = costs.totals
    ops = count_text(round(totals.ops), "op")
    lines = [
        describe(measurement),
        f"{count_text(totals.runs, 'run')} after {measurement.warmup} to warm up: {time_text(totals.ns)} each (the "
        f"median; quartiles {time_text(totals.low_ns)} to {time_text(totals.high_ns)}), {time_text(totals.ops_ns)} in "
        f"{ops} and {time_text(totals.between_ns)} between them.",
    ]
    if totals.flops is not None:
        speed = totals.flops_per_s
        rate = f", {flops_text(speed)[:-1]}/s" if speed is not None else ""
        lines.append(f"{flops_text(totals.flops)} a run{rate}.")
    if totals.peak_bytes is not None:
        unseen = ", what the runtime keeps for itself not counted" if any(op.backend for op in costs.ops) else ""
        lines.append(f"Memory: at most {bytes_text(totals.peak_bytes)} more within a run than before it{unseen}.")
    if totals.is_uneven:
        lines.append(
            "Note: The runs took very different times, as on a busy machine, so that the times of ops, each a median "
            "of its own, do not add up to that of a run: more runs with --repeat or fewer --threads may help."
        )
    if measurement.remark:
        lines.append(f"Note: {measurement.remark}")
    return lines


def describe(measurement: Measurement) -> str:
    """A model in a sentence."""
    inputs = f"on {', '.join(measurement.inputs)}" if measurement.inputs else "without inputs"
    return (
        f"{measurement.path}: {measurement.format}, {bytes_text(measurement.bytes)}, {inputs}, "
        f"{count_text(measurement.threads, 'thread')}."
    )


def flops_text(flops: float) -> str:
    """1.234 GFLOPs"""
    unit, divisor = flops_unit(round(flops))
    return f"{flops / divisor:.3f} {unit}"


def _draw(columns: Sequence[Column], rows: int, limit: int, out: Console) -> None:
    from torchreel.cli.terminal.table import draw

    draw(columns, out)
    if limit and limit < rows:
        out.print(f"These are {limit} of {rows:,} rows: --limit 0 shows all.")


def _op_columns(ops: Sequence[OpCost]) -> list[Column]:
    from torchreel.cli.terminal.table import Column

    counters = list(dict.fromkeys(name for op in ops for name in op.counters))
    columns = [
        Column("Op", [op.name for op in ops]),
        Column("Backend", [op.backend or "" for op in ops]),
        Column("Calls", [calls_text(op.calls) for op in ops], number=True),
        Column("Time", [time_text(op.ns) for op in ops], number=True),
        Column("%", [percent(op.share) for op in ops], number=True),
        *_work_columns([op.flops for op in ops], [op.flops_per_s for op in ops]),
        Column("Inputs", [_text(op.input_bytes, bytes_text) for op in ops], number=True),
        Column("Allocated", [_text(op.alloc_bytes, bytes_text) for op in ops], number=True),
        *(Column(name, [_text(op.counters.get(name), "{:,}".format) for op in ops], number=True) for name in counters),
    ]
    return [column for column in columns if any(column.cells)]


def _module_columns(modules: Sequence[ModuleCost]) -> list[Column]:
    from torchreel.cli.terminal.table import Column

    columns = [
        Column("Module", [module.path or "(no module)" for module in modules], keep_end=True),
        Column("Class", [module.class_name for module in modules]),
        Column("Time", [time_text(module.total_ns) for module in modules], number=True),
        Column("%", [percent(module.share) for module in modules], number=True),
        Column("Own time", [time_text(module.self_ns) for module in modules], number=True),
        *_work_columns([module.flops for module in modules], [module.flops_per_s for module in modules]),
        Column("Allocated", [_text(module.alloc_bytes, bytes_text) for module in modules], number=True),
    ]
    return [column for column in columns if any(column.cells)]


def _work_columns(flops: Sequence[int | None], rates: Sequence[float | None]) -> list[Column]:
    """FLOPs and FLOP/s, each in one unit for the whole column."""
    from torchreel.cli.terminal.table import Column

    unit, divisor = flops_unit(max((work or 0 for work in flops), default=0))
    rate_unit, rate_divisor = flops_unit(round(max((rate or 0 for rate in rates), default=0)))
    return [
        Column(unit, ["" if work is None else f"{work / divisor:.3f}" for work in flops], number=True),
        Column(
            rate_unit.replace("FLOPs", "FLOP/s"),
            ["" if rate is None else f"{rate / rate_divisor:.2f}" for rate in rates],
            number=True,
        ),
    ]


def calls_text(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else f"{calls:,.2f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _text(value: int | None, text: Callable[[int], str]) -> str:
    return "" if value is None else text(value)


def _ideas(measurement: Measurement) -> list[tuple[str, str]]:
    reel = shlex.quote(str(measurement.reel.path))
    ideas = [(f"torchreel export {reel} --to perfetto", "the runs as a timeline, for ui.perfetto.dev")]
    stacks = measurement.reel.table("ops", ["stack"])["stack"]
    if stacks.null_count < len(stacks):
        ideas.append((f"torchreel report {reel} --by stack", "by the line of the source"))
    elif measurement.remark is None:  # else it says why there are no lines
        model = shlex.quote(str(measurement.path))
        ideas.append((f"torchreel edge {model} --with stack,modules ...", "with the source line of every op"))
    ideas.append((f"torchreel sql {reel}", "the tables, for questions of your own"))
    return ideas


def print_next(ideas: Sequence[tuple[str, str]], out: Console) -> None:
    """Commands that go on from here, and what each of them shows."""
    width = max(len(line) for line, _ in ideas)
    for number, (line, what) in enumerate(ideas):
        out.print(f"{'Next:' if number == 0 else '     '} {line:<{width}}  {what}", soft_wrap=True)
