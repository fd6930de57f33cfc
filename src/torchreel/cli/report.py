"""`torchreel report`: where the time went, as torch.profiler's table."""

from __future__ import annotations

import shlex
import textwrap
from typing import TYPE_CHECKING, Any

import click

from torchreel._units import bytes_text, count_text
from torchreel.cli.gpu.kernels import kernel_columns, kernel_rows
from torchreel.cli.sources import open_reel, skip_damaged_option
from torchreel.cli.terminal.choices import several
from torchreel.cli.terminal.formats import FORMATS, write_csv, write_json, write_markdown
from torchreel.cli.terminal.interrupt import interruptible
from torchreel.cli.terminal.units import flops_unit, time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from torchreel.analyze import Finding, Summary, TypicalStep
    from torchreel.cli.terminal.table import Column

BY = ("name", "inputs", "module", "line", "stack", "thread", "step", "kind", "overload", "process", "kernel")
SORT = ("self", "total", "count", "memory", "flops", "average", "device")
KINDS: tuple[str, ...] = (
    "op",
    "backward",
    "torchscript",
    "lite",
    "custom",
    "static_runtime",
    "range",
    "module",
    "python",
)
KINDS += ("runtime", "driver", "overhead", "other")

_HEADERS = {
    "name": "Name",
    "overload": "Overload Name",
    "inputs": "Input Shapes",
    "module": "Module",
    "line": "Your Line",
    "stack": "Source Location",
    "thread": "Thread",
    "step": "Step",
    "process": "Process",
    "kind": "Kind",
}
# Long texts stand to the right of the numbers, unless there is nothing else to stand before them.
_TRAILING = ("inputs", "module", "line", "stack")
_ROWS = 30
_PHASES = {
    "data": "data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other ops",
    "no_op": "no op running",
}


@click.command("report")
@click.argument("reel")
@several("--by", words=BY, text="What to group calls by; several with commas, but for kernel.  [name]")
@click.option("--sort", type=click.Choice(SORT), default="self", show_default=True, help="The greatest first.")
@click.option("--limit", type=click.IntRange(min=0), help="Rows to print, 0 for all.  [30; all for csv and json]")
@several("--kind", words=KINDS, text="Kinds of calls to count.  [all but module and python]")
@click.option(
    "--frames", type=click.IntRange(min=1), default=5, show_default=True, help="Frames of a stack to tell apart."
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print.")
@skip_damaged_option
def command(
    reel: str,
    by: tuple[str, ...],
    sort: str,
    limit: int | None,
    kind: tuple[str, ...],
    frames: int,
    form: str,
    skip_damaged: bool,
) -> None:
    """Show where the time of REEL went: calls grouped, added up and sorted, in the columns of torch.profiler.

    Self CPU is time in the calls themselves, CPU total also in what they called; percentages are of all self time.
    The time of module and Python calls, which are not shown, counts as that of the call around them.

    \b
    torchreel report run.reel
        the ops that took most of the time
    torchreel report run.reel --by inputs --sort total
        the same by the shapes of their arguments (which means: by name and inputs)
    torchreel report run.reel --by module --limit 0
        every module: its own time, and its total with that of its submodules
    torchreel report run.reel --by line
        the innermost lines of your own, with what they led to, backward included
    torchreel report run.reel --by name,stack --frames 3
        which line of the source called what
    torchreel report run.reel --kind backward --sort memory
        backward nodes, by the memory that they kept
    torchreel report gpu.reel --by kernel
        the kernels, copies and sets of devices, by name
    torchreel report gpu.reel --by module --sort device
        modules by the time that devices took for what their calls launched
    torchreel report run.reel --format json | jq '.rows[0]'
        for programs: integers in nanoseconds and bytes; these keys stay
    """
    from torchreel.analyze import averages, findings, summary, typical_step

    opened = open_reel(reel, skip_damaged)
    groups = _groups(by)
    if limit is None and form in ("table", "markdown"):
        limit = _ROWS
    head = interruptible(lambda: summary(opened))
    steps = interruptible(lambda: typical_step(opened))
    advice = interruptible(lambda: findings(opened))
    if "kernel" in groups:
        table = kernel_rows(opened, groups, sort, kind)
    else:
        table = interruptible(lambda: averages(opened, groups, sort=sort, kinds=kind or None, stack_frames=frames))
        if sort == "device" and "device_ns" not in table.column_names:
            from torchreel.analyze.gpu.missing import NO_DEVICE

            click.echo(f"{NO_DEVICE} The rows are sorted by self time.", err=True)
    rows = table.slice(0, limit) if limit else table
    if form == "json":
        write_json(
            {
                "summary": head.as_dict(),
                "step": None if steps is None else steps.as_dict(),
                "findings": [finding.as_dict() for finding in advice],
                "rows": rows.to_pylist(),
            }
        )
    elif form == "csv":
        write_csv(rows.column_names, (tuple(row.values()) for row in rows.to_pylist()))
    elif form == "markdown":
        write_markdown(_shown(rows, groups, head, sort))
    else:
        _print_table(rows, table.num_rows, groups, head, steps, advice, sort)


def _groups(by: tuple[str, ...]) -> tuple[str, ...]:
    """Shapes and overloads say nothing without the op that they belong to."""
    if not by or ("name" not in by and set(by) & {"inputs", "overload"}):
        return ("name", *by)
    return by


def _print_table(
    rows: pa.Table,
    all_rows: int,
    groups: tuple[str, ...],
    head: Summary,
    step: TypicalStep | None,
    advice: list[Finding],
    sort: str,
) -> None:
    from torchreel.cli.terminal.sentences import say
    from torchreel.cli.terminal.table import console, draw, one_line

    out = console()
    for sentence in (*sentences(head), *_phases(step)):
        out.print(one_line(sentence))
    for line in _advice(advice, step, out.width):
        out.print(line)
    out.print()
    if not rows.num_rows:
        say(out, _nothing(groups, head))
    else:
        draw(_shown(rows, groups, head, sort), out)
    if rows.num_rows < all_rows:
        out.print(f"These are {rows.num_rows} of {all_rows:,} rows: --limit 0 shows all.")
    out.print()
    for line in _next(groups, head, "device_ns" in rows.column_names):
        out.print(one_line(line), soft_wrap=True)


def sentences(head: Summary) -> list[str]:
    """The summary in words."""
    where = f"{count_text(head.threads, 'thread')} of {count_text(head.processes, 'process')}"
    steps = f", {count_text(head.steps, 'step')}" if head.steps else ""
    lines = [f"{head.reel}: {time_text(head.wall_ns)}, {count_text(head.ops, 'op')} on {where}{steps}."]
    if head.peak_memory:
        peak = head.peak_memory[0]
        owner = f" in process {peak.process}" if head.processes > 1 else ""
        lines.append(f"Peak memory: {bytes_text(peak.bytes)} on {peak.device}{owner}.")
    if head.incomplete_processes:
        names = head.incomplete_processes
        who = f"{'Process' if len(names) == 1 else 'Processes'} {', '.join(names[:3])}"
        others = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(f"{who}{others} did not close the recording: the last moments before the end may be missing.")
    if head.lost_events:
        lines.append(
            f"{count_text(head.lost_events, 'event')} could not be kept because the disk did not follow: "
            "counts and times are too low."
        )
    return lines


def _phases(step: TypicalStep | None) -> list[str]:
    """Where a step goes, in words."""
    if step is None or not step.wall_ns:
        return []
    of = f"A step takes {time_text(step.wall_ns)} (mean of {step.steps})" if step.steps else "Of the recorded time"
    parts = [f"{_PHASES[phase]} {100 * ns / step.wall_ns:.0f}%" for phase, ns in step.phase_ns.items() if ns]
    return [f"{of}: {', '.join(parts)}."]


def _advice(advice: list[Finding], step: TypicalStep | None, width: int) -> list[str]:
    """The findings, the one that saves most first."""
    from torchreel.cli.terminal.table import one_line

    if not advice:
        return []
    what = "a step" if step is not None and step.steps else "the run"
    lines = ["", f"What would save most of {what}, at most:"]
    for finding in advice:
        text = one_line(f"{finding.title}: {finding.sentence} {finding.cure}")
        lines += textwrap.wrap(text, width, initial_indent=f"  {finding.percent:4.1f}%  ", subsequent_indent=" " * 9)
    return lines


def _nothing(groups: tuple[str, ...], head: Summary) -> str:
    if "kernel" in groups:
        from torchreel.analyze.gpu.missing import NO_DEVICE

        return NO_DEVICE
    return "There are no calls to show." if head.ops else "No ops were recorded."


def _shown(rows: pa.Table, groups: tuple[str, ...], head: Summary, sort: str) -> list[Column]:
    return kernel_columns(rows) if "kernel" in groups else _columns(rows, groups, head, sort)


def _columns(rows: pa.Table, groups: tuple[str, ...], head: Summary, sort: str) -> list[Column]:
    values = {name: rows[name].to_pylist() for name in rows.column_names}
    lead = "name" if "name" in groups else groups[0]
    leading = [lead, *(group for group in groups if group != lead and group not in _TRAILING)]
    trailing = [group for group in groups if group not in leading]
    columns = [
        *(_text(group, values[group]) for group in leading),
        _number("Self CPU %", [f"{share:.2f}%" for share in values["self_percent"]]),
        _number("Self CPU", [time_text(ns) for ns in values["self_ns"]]),
        _number("CPU total %", [f"{share:.2f}%" for share in values["total_percent"]]),
        _number("CPU total", [time_text(ns) for ns in values["total_ns"]]),
        _number("CPU time avg", ["" if ns is None else time_text(ns) for ns in values["average_ns"]]),
    ]
    devices = "device_ns" in values  # there is no room for all columns then
    memory = head.recorded["memory"] or any(values["alloc_bytes"]) or any(values["self_alloc_bytes"])
    if memory and (not devices or sort == "memory"):
        columns.append(_number("CPU Mem", [_bytes(size) for size in values["alloc_bytes"]]))
        columns.append(_number("Self CPU Mem", [_bytes(size) for size in values["self_alloc_bytes"]]))
    columns.append(_number("# of Calls", [f"{calls:,}" for calls in values["calls"]]))
    if devices:
        columns.append(_number("Self device", [time_text(ns) for ns in values["self_device_ns"]]))
        columns.append(_number("Device total", [time_text(ns) for ns in values["device_ns"]]))
        columns.append(_number("# of Kernels", [f"{count:,}" if count else "" for count in values["kernels"]]))
    if any(values["flops"]):
        unit, divisor = flops_unit(max(flops or 0 for flops in values["flops"]))
        columns.append(_number(unit, [f"{flops / divisor:.3f}" if flops else "" for flops in values["flops"]]))
    columns.extend(_text(group, values[group]) for group in trailing)
    return [column for column in columns if any(column.cells)]


def _number(header: str, cells: list[str]) -> Column:
    from torchreel.cli.terminal.table import Column

    return Column(header, cells, number=True)


def _text(group: str, values: list[Any]) -> Column:
    from torchreel.cli.terminal.table import Column, one_line

    # The frames of a stack are lines; a line's end in any other name would look like a row of its own.
    shown = str if group == "stack" else one_line
    cells = [f"(no {group})" if value is None else shown(str(value)) for value in values]
    return Column(_HEADERS[group], cells, keep_end=group in ("module", "line", "stack", "thread", "process"))


def _bytes(size: int | None) -> str:
    return "" if size is None else bytes_text(size)


def _next(groups: tuple[str, ...], head: Summary, devices: bool) -> list[str]:
    """Commands that go deeper from here, by what the reel holds."""
    reel = shlex.quote(head.reel)
    ideas = []
    if devices:
        ideas.append((f"torchreel gpu {reel}", "what the devices did, and why they waited"))
    if head.recorded["shapes"] and "inputs" not in groups:
        ideas.append((f"torchreel report {reel} --by inputs", "by the shapes of the arguments"))
    if head.recorded["modules"] and "module" not in groups:
        ideas.append((f"torchreel report {reel} --by module", "by nn.Module"))
    if head.recorded["stacks"] and not {"line", "stack"} & set(groups):
        ideas.append((f"torchreel report {reel} --by line", "by the line of your source"))
    ideas.append((f"torchreel view {reel}", "timeline, flame graph, memory and source, in a browser"))
    ideas.append((f"torchreel sql {reel}", "the tables, for questions of your own"))
    width = max(len(line) for line, _ in ideas)
    return [
        f"{'Next:' if number == 0 else '     '} {line:<{width}}  {what}" for number, (line, what) in enumerate(ideas)
    ]
