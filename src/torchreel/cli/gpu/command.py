"""`torchreel gpu`: what devices did, why they waited, and what would change that."""

from __future__ import annotations

import re

import click

from torchreel.cli.sources import open_reel, skip_damaged_option
from torchreel.cli.terminal.formats import write_json
from torchreel.cli.terminal.interrupt import interruptible

_ROWS = 5
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def _duration(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """A time with its unit: 30us."""
    match = re.fullmatch(r"(\d{1,12})\s*(ns|us|ms|s)", value.strip(), re.ASCII)
    if match is None:
        raise click.BadParameter(f"{value!r} is no time: give a whole number and its unit, as in 30us.", ctx, param)
    return int(match[1]) * _UNITS[match[2]]


@click.command("gpu")
@click.argument("reel")
@click.option("--step", type=int, help="Only what was launched in this step.")
@click.option("--device", metavar="NAME", help="Only this device: cuda:0, xpu:1 ...")
@click.option(
    "--gap",
    "gap_ns",
    callback=_duration,
    default="30us",
    show_default=True,
    metavar="TIME",
    help="A shorter wait between two activities of a stream is back to back.",
)
@click.option(
    "--if",
    "changes",
    multiple=True,
    metavar="REGEX=2x",
    help="How long it would take if what the expression finds were so many times faster; may be repeated.",
)
@click.option(
    "--peak",
    metavar="FLOPS",
    help="What a device can do, in FLOP per second, for roofline and MFU: 989T, or with its memory 989T,3.35TB.",
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=_ROWS, show_default=True, help="Rows of each table, 0: all."
)
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", help="How to print.")
@skip_damaged_option
def command(
    reel: str,
    step: int | None,
    device: str | None,
    gap_ns: int,
    changes: tuple[str, ...],
    peak: str | None,
    limit: int,
    form: str,
    skip_damaged: bool,
) -> None:
    """Show what the devices of REEL did: compute, communication, memory and idle, why they waited, and who launched.

    REEL comes from 'torchreel import trace.json', of a trace that torch.profiler wrote. All times are exact, in
    nanoseconds; docs/gpu.md says how each is found.

    \b
    torchreel gpu run.reel
        one screen: where the time of each device went, why it was idle, its kernels, streams and launches
    torchreel gpu run.reel --step 3 --device cuda:0
        the activities of one device that were launched in one step
    torchreel gpu run.reel --gap 10us
        streams: a wait of 10 us and more between two kernels is no longer back to back
    torchreel gpu run.reel --if 'gemm=2x' --if 'data loader=10x'
        how long it would take if these were faster: names of kernels, ops and modules are searched
    torchreel gpu run.reel --peak 312T
        model FLOP utilisation of a device whose peak torchreel does not know
    torchreel gpu run.reel --format json | jq '.devices[0].idle_ns'
        for programs: integers in nanoseconds and bytes, all rows; these keys stay
    """
    from torchreel.analyze.gpu.answers import gpu
    from torchreel.analyze.gpu.model.peaks import parse_peak
    from torchreel.analyze.gpu.what_if import parse_change

    wanted = [parse_change(change) for change in changes]
    given = parse_peak(peak) if peak is not None else None
    opened = open_reel(reel, skip_damaged)
    answers = interruptible(lambda: gpu(opened, step, device, gap_ns, wanted, given))
    if form == "json":
        write_json(interruptible(answers.as_dict))
    else:
        from torchreel.cli.gpu.screen import sections, show

        show(interruptible(lambda: sections(answers, limit or None)), answers)
