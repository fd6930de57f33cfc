"""`torchreel diff`: what changed from one reel to another."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from torchreel._units import bytes_text, count_text
from torchreel.cli.sources import open_reel, skip_damaged_option
from torchreel.cli.terminal.formats import FORMATS, write_csv, write_json, write_markdown
from torchreel.cli.terminal.interrupt import interruptible
from torchreel.cli.terminal.units import time_text

if TYPE_CHECKING:
    from torchreel.analyze.diff import Change, Diff, KernelChanges, Limit
    from torchreel.cli.terminal.table import Column

BY = ("name", "inputs", "module", "line", "kernel")
LIMIT_BROKEN = 3

_HEADERS = {"name": "Name", "inputs": "Input Shapes", "module": "Module", "line": "Source Location"}
_ROWS = 20


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--by", type=click.Choice(BY), default="name", show_default=True, help="What to compare.")
@click.option("--limit", type=click.IntRange(min=0), help="Rows to print, 0 for all.  [20; all for csv and json]")
@click.option("--fail-on", metavar="LIMITS", help='Exit with code 3 if B breaks one: "self +5%, peak +2%, ops +0".')
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print.")
@skip_damaged_option
def command(
    a: str, b: str, by: str, limit: int | None, fail_on: str | None, form: str, skip_damaged: bool
) -> int | None:
    """Show what changed from reel A to reel B, the greatest change of self time first.

    Both are compared by the step if both have steps, else as a whole. The spread is the standard deviation between
    steps, the larger one of the two reels: a change within it may be noise, and is marked so.

    --fail-on names what may grow, and by how much: self and wall (a percentage, or a time such as 2ms), peak (a
    percentage, or bytes such as 10MiB), ops (a percentage, or a number).

    \b
    torchreel diff before.reel after.reel
        which ops became slower or faster, which are new or gone
    torchreel diff before.reel after.reel --by line
        the same by the lines of your own that called them
    torchreel diff before.reel after.reel --by kernel
        what changed on the devices: kernels that have other names are compared by what they do, under the same op
    torchreel diff main.reel branch.reel --fail-on "self +5%, peak +2%, ops +0"
        for CI: exit code 3 if the branch is slower, needs more memory or runs more ops
    """
    from torchreel.analyze.diff import diff, kernel_changes, parse_limits

    limits = parse_limits(fail_on) if fail_on is not None else []
    first, second = (open_reel(path, skip_damaged) for path in (a, b))
    found = interruptible(lambda: diff(first, second, "name" if by == "kernel" else by))
    kernels = interruptible(lambda: kernel_changes(first, second))
    broken = [each for each in limits if each.is_broken(found)]
    if limit is None and form in ("table", "markdown"):
        limit = _ROWS
    shown = kernels.rows if by == "kernel" else found.rows
    rows = shown.slice(0, limit) if limit else shown
    if form == "json":
        device = {"device_ns": kernels.device_ns.as_dict(), "device_notes": list(kernels.notes)}
        answers = {**found.as_dict(), **device, "rows": rows.to_pylist()}
        write_json({**answers, "broken_limits": [each.text for each in broken]})
    elif form == "csv":
        write_csv(rows.column_names, (tuple(row.values()) for row in rows.to_pylist()))
    elif form == "markdown":
        _print_markdown(found, kernels, _columns_of(by, found, kernels, rows.to_pylist()))
    else:
        _print(found, kernels, _columns_of(by, found, kernels, rows.to_pylist()), (rows.num_rows, shown.num_rows))
    for each in broken:
        click.echo(_broken(each, found), err=True)
    sys.stdout.flush()
    return LIMIT_BROKEN if broken else None


def sentences(found: Diff) -> list[str]:
    """The change as a whole, in words."""
    if found.per == "step":
        compared = f"by the step: {count_text(found.a_steps, 'step')} and {count_text(found.b_steps, 'step')}"
    else:
        compared = "as a whole, as not both have steps"
    lines = [
        f"{found.a} and {found.b}, compared {compared}.",
        f"{'A step' if found.per == 'step' else 'Wall time'}: {_both(found.wall_ns, _time)}.",
        f"Self time: {_both(found.self_ns, _time)}.",
        f"Ops: {_both(found.ops, _count)}.",
    ]
    if found.peak_bytes is not None:
        lines.append(f"Peak memory: {_both(found.peak_bytes, lambda size: bytes_text(round(size)))}.")
    return lines


def _time(ns: float) -> str:
    return time_text(round(ns))


def _count(count: float) -> str:
    return f"{count:,.1f}".removesuffix(".0")


def _both(change: Change, text: Any) -> str:
    percent = "" if change.percent is None else f" ({change.percent:+.1f}%{_noise(change)})"
    return f"{text(change.a)} to {text(change.b)}{percent}"


def _noise(change: Change) -> str:
    return ", within the spread" if change.spread and change.within_spread and change.change else ""


def _broken(limit: Limit, found: Diff) -> str:
    change = limit.change(found)
    assert change is not None
    text = {"peak": lambda size: bytes_text(round(size)), "ops": _count}.get(limit.what, _time)
    return f"The limit {limit.text!r} is broken: {limit.what} went from {_both(change, text)}."


def _columns(found: Diff, rows: list[dict[str, Any]]) -> list[Column]:
    from torchreel.cli.terminal.table import Column, one_line

    keys = [name for name in found.rows.column_names if name in _HEADERS]
    columns = [
        Column(_HEADERS[key], [one_line(str(row[key])) for row in rows], keep_end=key in ("module", "line"))
        for key in keys
    ]

    def number(header: str, cells: list[str]) -> None:
        columns.append(Column(header, cells, number=True))

    number("A Self CPU", [_time(row["a_self_ns"]) if row["state"] != "new" else "" for row in rows])
    number("B Self CPU", [_time(row["b_self_ns"]) if row["state"] != "gone" else "" for row in rows])
    number("Change", [_signed(row["change_ns"]) for row in rows])
    number("Change %", [_percent(row) for row in rows])
    if found.per == "step":
        number("Spread", [_time(row["spread_ns"]) for row in rows])
    number("A Calls", [_count(row["a_calls"]) if row["state"] != "new" else "" for row in rows])
    number("B Calls", [_count(row["b_calls"]) if row["state"] != "gone" else "" for row in rows])
    columns.append(Column("", [_remark(found, row) for row in rows]))
    return [column for column in columns if any(column.cells)]


def _signed(ns: float) -> str:
    return f"{'+' if round(ns) > 0 else ''}{_time(ns)}"


def _percent(row: dict[str, Any]) -> str:
    return f"{100 * row['change_ns'] / row['a_self_ns']:+.1f}%" if row["a_self_ns"] and row["state"] == "both" else ""


def _remark(found: Diff, row: dict[str, Any]) -> str:
    if row["state"] != "both":
        return str(row["state"])
    return "within spread" if found.per == "step" and 0 < abs(row["change_ns"]) <= row["spread_ns"] else ""


def _columns_of(by: str, found: Diff, kernels: KernelChanges, rows: list[dict[str, Any]]) -> list[Column]:
    return _kernel_columns(kernels, rows) if by == "kernel" else _columns(found, rows)


def _kernel_columns(kernels: KernelChanges, rows: list[dict[str, Any]]) -> list[Column]:
    from torchreel.cli.terminal.table import Column, one_line

    steps = {"a": max(kernels.a_steps, 1), "b": max(kernels.b_steps, 1)}

    def time(row: dict[str, Any], side: str) -> str:
        return _time(row[f"{side}_ns"] / steps[side]) if row[f"{side}_count"] else ""

    def count(row: dict[str, Any], side: str) -> str:
        return _count(row[f"{side}_count"] / steps[side]) if row[f"{side}_count"] else ""

    columns = [
        Column("Op", [one_line(row["op"] or "") for row in rows]),
        Column("Kernel", [one_line(row["b_kernel"] or row["a_kernel"] or "") for row in rows]),
        Column("Family", [row["family"] for row in rows]),
        Column("A Device", [time(row, "a") for row in rows], number=True),
        Column("B Device", [time(row, "b") for row in rows], number=True),
        Column("Change", [_signed(row["change_ns"]) for row in rows], number=True),
        Column("A Count", [count(row, "a") for row in rows], number=True),
        Column("B Count", [count(row, "b") for row in rows], number=True),
        Column("", [_kernel_remark(row) for row in rows]),
    ]
    return [column for column in columns if any(column.cells)]


def _kernel_remark(row: dict[str, Any]) -> str:
    if row["match"] == "family":
        return "another kernel" if row["a_kernel"] != row["b_kernel"] else ""
    return {"name": "", "moved": "in another op"}.get(row["match"], str(row["match"]))


def _device_sentences(kernels: KernelChanges) -> list[str]:
    """The change on the devices, if they did anything."""
    if not kernels.rows.num_rows:
        return []
    return [f"Device time: {_both(kernels.device_ns, _time)}.", *kernels.notes]


def _print(found: Diff, kernels: KernelChanges, columns: list[Column], counts: tuple[int, int]) -> None:
    from torchreel.cli.terminal.table import console, draw, one_line

    out = console()
    for sentence in (*sentences(found), *_device_sentences(kernels)):
        out.print(one_line(sentence))
    out.print()
    printed, all_rows = counts
    if printed:
        draw(columns, out)
    elif found.rows.num_rows:
        out.print(one_line(" ".join(kernels.notes)))
    else:
        out.print("No ops were recorded in either reel.")
    if printed < all_rows:
        out.print(f"These are {printed} of {all_rows:,} rows: --limit 0 shows all.")


def _print_markdown(found: Diff, kernels: KernelChanges, columns: list[Column]) -> None:
    from torchreel.cli.terminal.table import one_line

    for sentence in (*sentences(found), *_device_sentences(kernels)):
        click.echo(f"- {one_line(sentence)}")
    click.echo()
    write_markdown(columns)
