"""`torchreel export`: a reel or a tape for other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from torchreel._units import bytes_text
from torchreel.cli.sources import is_standard_output, open_reel, skip_damaged_option
from torchreel.cli.terminal.progress import progress_bar
from torchreel.errors import OptionError
from torchreel.export import export, formats


@click.command("export")
@click.argument("reel")
@click.option("--to", "target", type=click.Choice(list(formats.ALL)), required=True, help="The format to write.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The file, - for the standard output.  [REEL's name with another end]",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--budget", metavar="SIZE", help="html: the most that the file may take: 5MB, 100MB ...  [25MB]")
@click.option("--no-source", is_flag=True, help="html: leave out the text of your source files.")
@click.option("--compare", metavar="REEL", help="html: a second reel, and what changed from REEL to it.")
@skip_damaged_option
def command(
    reel: str,
    target: str,
    output: Path | None,
    force: bool,
    budget: str | None,
    no_source: bool,
    compare: str | None,
    skip_damaged: bool,
) -> None:
    """Write REEL, or a tape, as a file that another tool opens.

    \b
    torchreel export run.reel --to html
        run.html, the pages of 'torchreel view' in one file that any browser opens
    torchreel export before.reel --to html --compare after.reel --budget 5MB --no-source
        the same with what changed, in at most 5 MB, without the text of source files
    torchreel export run.reel --to perfetto
        run.pftrace, a timeline for https://ui.perfetto.dev
    torchreel export run.reel --to chrome -o trace.json
        the JSON that torch.profiler writes; compressed if the name ends in .gz
    torchreel export run.reel --to chrome -o - | gzip | ssh host 'cat > trace.json.gz'
        to the standard output, uncompressed
    torchreel export run.reel --to speedscope
        run.speedscope.json, flame graphs for https://www.speedscope.app
    torchreel export run.reel --to stacks && flamegraph.pl run.stacks.txt > run.svg
        folded stacks, one line each with its self time
    torchreel export run.reel --to snapshot -o memory.pickle
        its memory, as torch.cuda.memory._dump_snapshot writes it; JSON if the name ends in .json
    torchreel export step.tape --to execution-trace
        step.et.json, the ops of a tape as torch.profiler.ExecutionTraceObserver writes them
    """
    from torchreel.program.file.file import read_tape

    is_tape = formats.ALL[target].of_tapes and not Path(reel).is_dir()
    opened = read_tape(Path(reel)).program if is_tape else open_reel(reel, skip_damaged)
    options: dict[str, Any] = {
        **({} if budget is None else {"budget": budget}),
        **({"sources": False} if no_source else {}),
        **({} if compare is None else {"other": open_reel(compare, skip_damaged)}),
    }
    _check_options(target, {"budget": budget, "no-source": no_source, "compare": compare})
    if is_standard_output(output):
        _check_terminal(target)
        with progress_bar("ops") as progress:
            export(opened, sys.stdout.buffer, target, progress, **options)
        return
    path = output or Path(_stem(Path(reel)) + formats.ALL[target].ending)
    _check(path, force)
    with progress_bar("ops") as progress:
        export(opened, path, target, progress, **options)
    click.echo(f"Wrote {path} ({bytes_text(path.stat().st_size)}): {formats.ALL[target].opened_by}.")


def _check_options(target: str, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value and not formats.ALL[target].options:
            raise OptionError(f"--{name} is for --to html, and {target} has no such option: leave it out.")


def _stem(reel: Path) -> str:
    name = reel.resolve().name
    return name.removesuffix(".reel").removesuffix(".tape") or name


def _check_terminal(target: str) -> None:
    if not formats.ALL[target].is_text and sys.stdout.isatty():
        raise OptionError(f"{target} is bytes, which a terminal cannot show: pipe them into a file or a program.")


def _check(path: Path, force: bool) -> None:
    if path.is_dir():
        raise OptionError(f"{path} is a directory: name a file to write to with -o.")
    if path.exists() and not force:
        raise OptionError(f"{path} exists: name another file with -o, or give --force to replace it.")
