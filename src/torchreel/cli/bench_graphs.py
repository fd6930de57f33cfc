"""`torchreel bench-graphs`: what graphs would do for a function of the user's."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from torchreel._units import count_text
from torchreel.cli.terminal.formats import write_json
from torchreel.cli.terminal.units import time_text

if TYPE_CHECKING:
    from rich.console import Console

    from torchreel.graphs.bench.measure import Measurement, Way

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_ROWS = 15


@click.command("bench-graphs")
@click.argument("target", metavar="SCRIPT:FUNCTION")
@click.option("--inputs", metavar="EXPRESSION", help="What to call it with: Python, with the script's names and torch.")
@click.option(
    "--shape", "shapes", multiple=True, metavar="1x64:float32", help="A random tensor; one for each argument."
)
@click.option("--inference", is_flag=True, help="Call it in torch.inference_mode().")
@click.option("--relaxed", is_flag=True, help="Measure graphed(exact=False) as well.")
@click.option("--no-compile", is_flag=True, help="Leave out torch.compile, which may take minutes.")
@click.option("--mode", type=click.Choice(MODES), default="default", show_default=True, help="Of torch.compile.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of torch.  [as many as torch chooses]")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=2.0, show_default=True, help="How long to measure.")
@click.option("--limit", type=click.IntRange(min=0), default=_ROWS, show_default=True, help="Ops to show, 0 for all.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", help="How to print.")
def command(target: str, form: str, limit: int, **options: Any) -> int:
    """Measure FUNCTION of SCRIPT as it is, as torchreel.graphed() replays it, and as torch.compile() compiles it.

    The script is imported, so what stands below its `if __name__ == "__main__"` is not run. FUNCTION may be a module
    too. It is called thousands of times, and what it changes stays changed.

    Inputs come from --inputs, from --shape, or from `example_inputs` in the script: a value or a function that gives
    one. A tuple holds the arguments, a dictionary those by name, anything else is the only one. Without any of these
    the function is called with nothing.

    \b
    torchreel bench-graphs model.py:net --shape 1x64 --inference
        a module on a random tensor
    torchreel bench-graphs train.py:step --inputs "next(iter(loader))" --no-compile
        a training step, without waiting for the compiler
    torchreel bench-graphs model.py:net --threads 1 --format json | jq '.ways[] | {name, ns}'
        for programs: times in nanoseconds; these keys stay
    """
    measurement = _measure(target, **options)
    if form == "json":
        write_json(as_dict(measurement))
    else:
        _print(measurement, limit)
    return 1 if all(way.failed for way in measurement.ways[1:]) else 0


def _measure(
    target: str, inputs: str | None, shapes: tuple[str, ...], no_compile: bool, mode: str, **rest: Any
) -> Measurement:
    from torchreel.graphs.bench.measure import MeasureOptions, measure
    from torchreel.graphs.bench.target import load_target

    options = MeasureOptions(compile=not no_compile, mode=mode, **rest)
    return measure(load_target(target, inputs, shapes), options, _say)


def _say(text: str) -> None:
    """What takes long, to somebody who waits for it."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def as_dict(measurement: Measurement) -> dict[str, Any]:
    """For JSON. An op's time is that of all its calls in one replay."""
    eager = measurement.ways[0]
    ways = [{**asdict(way), "pays_after_calls": way.pays_after(eager)} for way in measurement.ways]
    return {
        "function": measurement.target,
        "threads": measurement.threads,
        "ways": ways,
        "ops": [asdict(share) for share in measurement.shares],
        "not_replayed": measurement.not_replayed,
    }


def _print(measurement: Measurement, limit: int) -> None:
    from torchreel.cli.terminal.sentences import say
    from torchreel.cli.terminal.table import console

    out = console()
    out.print(f"{measurement.target}, {count_text(measurement.threads, 'thread')}", soft_wrap=True)
    out.print()
    _print_ways(measurement, out)
    for way in measurement.ways:
        if way.failed:
            say(out, f"{way.name} was not measured: {_sentence(way.failed)}")
    if measurement.not_replayed:
        out.print()
        say(out, _sentence(measurement.not_replayed))
    if measurement.shares:
        out.print()
        _print_shares(measurement, limit, out)
    if measurement.way("graphed, exact=False") is None:
        out.print()
        name = shlex.quote(measurement.target)
        out.print(f"Next: torchreel bench-graphs {name} --relaxed    what exact=False adds", soft_wrap=True)


def _print_ways(measurement: Measurement, out: Console) -> None:
    from torchreel.cli.terminal.table import Column, draw

    eager = measurement.ways[0]
    ways = [way for way in measurement.ways if not way.failed]
    columns = [
        Column("", [way.name for way in ways]),
        Column("A call", [_time(way.ns) for way in ways], number=True),
        Column("Quartiles", [f"{_time(way.low_ns)} to {_time(way.high_ns)}" for way in ways], number=True),
        Column("Of eager", [f"{way.ns / eager.ns:.3f}" for way in ways], number=True),
        Column("Ready after", ["" if way is eager else _time(way.ready_ns) for way in ways], number=True),
        Column("Pays after", ["" if way is eager else _pays(way, eager) for way in ways], number=True),
    ]
    draw(columns, out)


def _pays(way: Way, eager: Way) -> str:
    calls = way.pays_after(eager)
    return "never" if calls is None else count_text(calls, "call")


def _print_shares(measurement: Measurement, limit: int, out: Console) -> None:
    from torchreel.cli.terminal.table import Column, draw

    graphed = next(way for way in measurement.ways if way.name == "graphed")
    ops = sum(share.ns for share in measurement.shares)
    rest = max(0.0, graphed.ns - ops)
    out.print(
        f"A replay: {count_text(sum(share.calls for share in measurement.shares), 'op')} in {_time(ops)}, "
        f"and {_time(rest)} for the call itself, inputs, checks and outputs."
    )
    out.print()
    shown = measurement.shares[: limit or None]
    columns = [
        Column("Op", [share.op for share in shown]),
        Column("Layer", [share.layer for share in shown]),
        Column("Calls", [f"{share.calls:,}" for share in shown], number=True),
        Column("Time", [_time(share.ns) for share in shown], number=True),
        Column("%", [f"{100 * share.ns / ops if ops else 0:.1f}%" for share in shown], number=True),
        Column("Source Location", [share.line for share in shown], keep_end=True),
    ]
    draw(columns, out)
    if len(shown) < len(measurement.shares):
        out.print(f"These are {len(shown)} of {len(measurement.shares):,} rows: --limit 0 shows all.")


def _time(ns: float) -> str:
    return time_text(round(ns))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
