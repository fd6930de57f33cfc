"""The answer of `torchreel edge --compare`: two formats of one model, side by side."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torchreel._units import bytes_text, count_text
from torchreel.cli.edge.costs import costs_dict, describe, flops_text, print_next
from torchreel.cli.terminal.units import time_text

if TYPE_CHECKING:
    from rich.console import Console

    from torchreel.analyze.edge.compare import Comparison, Match, ModuleMatch, Side
    from torchreel.analyze.edge.costs import EdgeCosts
    from torchreel.cli.terminal.table import Column
    from torchreel.edge.by_turns import Plain
    from torchreel.edge.measure import Measurement


@dataclass(frozen=True)
class Compared:
    """Two models that were measured: profiled, and without a profiler by turns."""

    left: Measurement
    right: Measurement
    left_plain: Plain
    right_plain: Plain
    apart: float | str  # the largest difference of their outputs, or why there is none


def compared_dict(compared: Compared) -> dict[str, Any]:
    """For JSON: the left and the right one as `torchreel edge` gives each, and the rows of both."""
    from torchreel.analyze.edge.compare import edge_compare
    from torchreel.analyze.edge.costs import edge_costs

    left, right = compared.left, compared.right
    comparable = not isinstance(compared.apart, str)
    return {
        "left": {**costs_dict(left, edge_costs(left.reel)), "plain": asdict(compared.left_plain)},
        "right": {**costs_dict(right, edge_costs(right.reel)), "plain": asdict(compared.right_plain)},
        "largest_difference": compared.apart if comparable else None,
        "incomparable": None if comparable else compared.apart,
        **edge_compare(left.reel, right.reel).as_dict(),
    }


def print_compared(compared: Compared, limit: int) -> None:
    from torchreel.analyze.edge.compare import edge_compare
    from torchreel.analyze.edge.costs import edge_costs
    from torchreel.cli.terminal.sentences import say
    from torchreel.cli.terminal.table import console, draw

    out = console()
    for measurement in (compared.left, compared.right):
        say(out, describe(measurement))
        if measurement.remark:
            say(out, f"Note: {measurement.remark}")
    say(out, _agreement(compared.apart))
    out.print()
    draw(_totals(compared, edge_costs(compared.left.reel), edge_costs(compared.right.reel)), out)
    out.print()
    _print_rows(compared, edge_compare(compared.left.reel, compared.right.reel), limit, out)
    out.print()
    reels = [shlex.quote(str(one.reel.path)) for one in (compared.left, compared.right)]
    whats = ("the runs as a timeline, for ui.perfetto.dev", "those of the other")
    print_next([(f"torchreel export {reel} --to perfetto", what) for reel, what in zip(reels, whats, strict=True)], out)


def _agreement(apart: float | str) -> str:
    if isinstance(apart, str):
        return f"Their outputs cannot be compared: {apart}."
    if apart == 0:
        return "Their outputs are the same."
    return f"Their outputs differ by at most {apart:.3g}."


def _totals(compared: Compared, left: EdgeCosts, right: EdgeCosts) -> list[Column]:
    from torchreel.cli.terminal.table import Column

    ours, theirs = left.totals, right.totals
    rows: list[tuple[str, float | None, float | None, Any]] = [
        ("a run, by turns", compared.left_plain.ns, compared.right_plain.ns, time_text),
        ("a run, profiled", ours.ns, theirs.ns, time_text),
        ("  in ops", ours.ops_ns, theirs.ops_ns, time_text),
        ("  between ops", ours.between_ns, theirs.between_ns, time_text),
        ("ops of a run", round(ours.ops), round(theirs.ops), "{:,}".format),
        ("FLOPs", ours.flops, theirs.flops, flops_text),
        ("memory within a run", ours.peak_bytes, theirs.peak_bytes, bytes_text),
        ("file", compared.left.bytes, compared.right.bytes, bytes_text),
    ]
    rows = [row for row in rows if row[1] is not None or row[2] is not None]
    return [
        Column("", [name for name, *_ in rows]),
        Column(compared.left.path.name, ["" if one is None else text(one) for _, one, _, text in rows], number=True),
        Column(compared.right.path.name, ["" if two is None else text(two) for *_, two, text in rows], number=True),
        Column(
            "Ratio", [_ratio(two / one if one and two is not None else None) for _, one, two, _ in rows], number=True
        ),
    ]


def _print_rows(compared: Compared, comparison: Comparison, limit: int, out: Console) -> None:
    from torchreel.cli.terminal.sentences import say
    from torchreel.cli.terminal.table import draw

    matched, unmatched = comparison.matched, comparison.unmatched
    if not comparison.by_module:
        say(out, "The modules are not known of both: ops are matched by what they compute alone.")
    if matched:
        draw(_match_columns(matched[: limit or None], compared), out)
        _say_limit(len(matched), limit, out)
    else:
        out.print("No op of one is an op of the other.")
    if comparison.modules:
        out.print()
        draw(_module_columns(comparison.modules[: limit or None], compared), out)
        _say_limit(len(comparison.modules), limit, out)
    if unmatched:
        out.print()
        out.print(f"{count_text(len(unmatched), 'row')} of only one of them, as compilers fold and fuse ops:")
        draw(_match_columns(unmatched[: limit or None], compared), out)
        _say_limit(len(unmatched), limit, out)


def _match_columns(rows: Sequence[Match], compared: Compared) -> list[Column]:
    from torchreel.cli.terminal.table import Column

    columns = [
        Column("Module", [row.path for row in rows], keep_end=True),
        Column("Op", [row.op for row in rows]),
        Column(compared.left.path.name, [_names(row.left) for row in rows]),
        Column(compared.right.path.name, [_names(row.right) for row in rows]),
        Column("Time", [_time(row.left) for row in rows], number=True),
        Column("and", [_time(row.right) for row in rows], number=True),
        Column("Ratio", [_ratio(row.ratio) for row in rows], number=True),
    ]
    return [column for column in columns if any(column.cells)]


def _module_columns(modules: Sequence[ModuleMatch], compared: Compared) -> list[Column]:
    from torchreel.cli.terminal.table import Column

    return [
        Column("Module, with all that is in it", [module.path for module in modules], keep_end=True),
        Column(compared.left.path.name, [time_text(module.left_ns) for module in modules], number=True),
        Column(compared.right.path.name, [time_text(module.right_ns) for module in modules], number=True),
        Column("Ratio", [_ratio(module.ratio) for module in modules], number=True),
    ]


def _names(side: Side | None) -> str:
    return "" if side is None else ", ".join(side.names)


def _time(side: Side | None) -> str:
    return "" if side is None else time_text(side.ns)


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _say_limit(rows: int, limit: int, out: Console) -> None:
    if limit and limit < rows:
        out.print(f"These are {limit} of {rows:,} rows: --limit 0 shows all.")
