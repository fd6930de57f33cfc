"""`torchreel edge`: what a deployed model costs, op by op and module by module, in the format that is shipped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchreel.cli.edge.reels import reel_names, rooms
from torchreel.cli.sources import refuse_standard_output
from torchreel.cli.terminal.formats import write_json
from torchreel.errors import OptionError

if TYPE_CHECKING:
    from torchreel.edge.measure import MeasureOptions

PARTS = ("modules", "flops", "memory", "shapes", "stack", "times")
_USUAL = ("modules", "flops", "memory", "shapes")
_ROWS = 15


@dataclass(frozen=True)
class Parts:
    """What to record beside times, and which hardware counters."""

    words: tuple[str, ...]
    counters: tuple[str, ...] = ()


def _parts(ctx: click.Context, param: click.Parameter, uses: Sequence[str]) -> Parts:
    words: dict[str, None] = {}
    counters: dict[str, None] = {}
    for word in (word.strip() for use in uses for word in use.split(",")):
        name, equals, value = word.partition("=")
        if name == "counters" and equals:
            counters.update(dict.fromkeys(counter.strip() for counter in value.split("+") if counter.strip()))
        elif word in PARTS:
            words[word] = None
        else:
            known = f"{', '.join(PARTS)}, or counters=cycles+instructions"
            raise click.BadParameter(f"{word!r} is not one of {known}.", ctx, param)
    return Parts(tuple(words) if words else _USUAL, tuple(counters))


@click.command("edge")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--input", "inputs", multiple=True, metavar="1x3x224x224:float32", help="An input; once for each of the model's."
)
@click.option("--repeat", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Runs to record.")
@click.option("--warmup", type=click.IntRange(0, 1_000_000), default=3, show_default=True, help="Runs before them.")
@click.option(
    "--with",
    "parts",
    multiple=True,
    callback=_parts,
    metavar="|".join((*PARTS, "counters=NAME+...")),
    help=f"What to record; several with commas.  [{','.join(_USUAL)}]",
)
@click.option("--compare", type=click.Path(path_type=Path), metavar="MODEL", help="Another format of it, beside it.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the runtime.  [as many as torch chooses]")
@click.option("--no-check", is_flag=True, help="Load it here at once, not first in a process that may crash.")
@click.option("--nested", is_flag=True, help="Ops within ops as well, each with its own time.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The reel to write.  [run.reel, run-2.reel ...]")
@click.option("--force", is_flag=True, help="Replace the reel of -o if it exists.")
@click.option("--limit", type=click.IntRange(min=0), default=_ROWS, show_default=True, help="Rows of a table, 0: all.")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", help="How to print.")
def command(
    model: Path,
    inputs: tuple[str, ...],
    compare: Path | None,
    output: Path | None,
    force: bool,
    form: str,
    limit: int,
    parts: Parts,
    no_check: bool,
    **numbers: Any,
) -> None:
    """Run MODEL, a file as it is shipped, and show what each op and each module of it costs.

    The file is a TorchScript model (.pt), one for the lite interpreter (.ptl), an exported program or an AOTInductor
    package (.pt2), an ONNX model (.onnx) or an ExecuTorch program (.pte). It is loaded, warmed up and run; the runs
    are recorded in a reel. Models with native code of their own, such as AOTInductor packages, run that code.

    An input is written as sizes, a dtype and how to fill it: 1x3x224x224:float32 has random numbers,
    1x16:int64:0-1000 whole ones below 1000; zeros, ones and random are fills too. Without --input, inputs are such as
    the file declares, if it does.

    \b
    torchreel edge model.ptl --input 1x3x224x224:float32
        ops and modules by time, with FLOP/s and memory
    torchreel edge model.onnx --compare model.pte --threads 1
        two formats of one model side by side, op by op, and whether they agree
    torchreel edge model.pt --input 1x3x224x224 --with stack,modules --repeat 100
        with the source line of every op: torchreel report run.reel --by stack
    torchreel edge model.pt --input 1x16:int64:0-1000 --with counters=cycles+instructions
        hardware counters of each op (see torchreel doctor)
    torchreel edge model.pte --format json | jq '.op_costs[0]'
        for programs: integers in nanoseconds and bytes; these keys stay
    """
    for path in (model, compare):
        if path is not None and not path.exists():
            raise OptionError(f"There is no model {path}: check the path.")
    refuse_standard_output(output)
    reels = reel_names(output, force, 1 if compare is None else 2)
    options = _options(parts, numbers)
    if compare is None:
        _one(model, inputs, options, reels, form, limit, not no_check)
    else:
        _two((model, compare), inputs, options, reels, form, limit, not no_check)


def _options(parts: Parts, numbers: dict[str, Any]) -> MeasureOptions:
    from torchreel.edge.measure import MeasureOptions

    wanted = {part: part in parts.words for part in PARTS if part != "times"}
    return MeasureOptions(**wanted, counters=parts.counters, lenient=parts.words == _USUAL, **numbers)


def _one(
    path: Path,
    inputs: tuple[str, ...],
    options: MeasureOptions,
    names: list[Path | None],
    form: str,
    limit: int,
    check: bool,
) -> None:
    from torchreel.analyze.edge.costs import edge_costs
    from torchreel.cli.edge.costs import costs_dict, print_costs
    from torchreel.edge.measure import load_model, measure, warm_up

    _say(f"{path}: loading and running ...")
    loaded = load_model(path, inputs, options.threads, check)
    warm_up(loaded, options)
    with rooms(names) as reels:
        measurement = measure(loaded, reels[0], options)
    costs = edge_costs(measurement.reel, options.nested)
    if form == "json":
        write_json(costs_dict(measurement, costs))
    else:
        print_costs(measurement, costs, limit)


def _two(
    paths: tuple[Path, Path],
    inputs: tuple[str, ...],
    options: MeasureOptions,
    names: list[Path | None],
    form: str,
    limit: int,
    check: bool,
) -> None:
    from torchreel.cli.edge.compared import Compared, compared_dict, print_compared
    from torchreel.edge.by_turns import by_turns, largest_difference, load_both
    from torchreel.edge.measure import measure, warm_up

    _say(f"{paths[0]} and {paths[1]}: loading and running ...")
    models = load_both(paths, inputs, options.threads, check)
    for model in models:
        warm_up(model, options)
    apart = largest_difference(models[0], models[1], options)
    with rooms(names) as reels:
        both = [measure(model, reel, options) for model, reel in zip(models, reels, strict=True)]
        plain = by_turns(models, options)  # after it: a session of ONNX Runtime measures itself until it was profiled
    compared = Compared(both[0], both[1], plain[0], plain[1], apart)
    if form == "json":
        write_json(compared_dict(compared))
    else:
        print_compared(compared, limit)


def _say(text: str) -> None:
    """What takes long, to somebody who waits for it."""
    if sys.stderr.isatty():
        click.echo(text, err=True)
