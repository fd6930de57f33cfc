"""`torchreel atlas`: source trees, documented from themselves, with what each line cost."""

from __future__ import annotations

import atexit
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchreel.cli.sources import open_reel, skip_damaged_option
from torchreel.errors import OptionError

if TYPE_CHECKING:
    from torchreel.atlas.generate.build import Built

_MOST_PROBLEMS = 20


@click.command("atlas")
@click.argument("reel", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder of the site.")
@click.option("--source", "sources", multiple=True, metavar="[NAME=]DIR", help="A folder of sources; can be repeated.")
@click.option("--torch", is_flag=True, help="Add the Python sources of the torch that is installed.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out paths or names that match; can be repeated.")
@click.option("--executed", is_flag=True, help="Keep only files that the run entered.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Processes that read and write.  [one for each core]")
@click.option("--force", is_flag=True, help="Make everything anew, and allow a folder that holds other files.")
@click.option("--check", type=click.Path(path_type=Path), metavar="SITE", help="Check a site instead of making one.")
@skip_damaged_option
def command(
    reel: str | None,
    output: Path | None,
    sources: tuple[str, ...],
    torch: bool,
    exclude: tuple[str, ...],
    executed: bool,
    jobs: int | None,
    force: bool,
    check: Path | None,
    skip_damaged: bool,
) -> int:
    """Document source trees from themselves, as an offline site; with REEL, with what each line cost in that run.

    The site has a page for each file (structure, imports both ways, names that link to their definitions, keywords, the
    source), for each folder and operator, an index of keywords, a search, and tables for SQL. Nothing of the sources is
    imported or run. A second run writes only what changed. Without --source, the recorded script's folder is read.

    \b
    torchreel atlas -o site --source src
        any tree of Python and C++, without a recording
    torchreel record --stacks train.py; torchreel atlas run.reel -o site
        the program's own sources, with the time, memory and backward of each line
    torchreel atlas run.reel -o site --source . --torch --executed
        also torch's files, as far as the run entered them
    torchreel atlas --check site
        whether every link and anchor leads somewhere; exit code 1 if not
    torchreel sql site "select path, self_ns from files order by self_ns desc limit 10"
        the tables behind the pages
    """
    if check is not None:
        return _check(check)
    if output is None:
        raise OptionError("Name the folder of the site: torchreel atlas ... -o SITE.")
    from torchreel.atlas.generate.build import build
    from torchreel.cli.terminal.progress import stages

    atexit.register(_end_at_once)
    opened = open_reel(reel, skip_damaged) if reel is not None else None
    with stages() as progress:
        built = build(
            output,
            opened,
            _named(sources),
            torch=torch,
            exclude=exclude,
            executed=executed,
            jobs=jobs,
            force=force,
            progress=progress,
        )
    _say(built)
    return 0


def _end_at_once() -> None:
    """Keep Python from looking through all that it holds when the process ends. Native modules count what is left."""
    if not sys.modules.keys() & {"torch", "torchreel._decode"}:
        gc.freeze()


def _named(sources: tuple[str, ...]) -> dict[str, str]:
    """Folders by name: `NAME=DIR`, or the folder's own name."""
    found: dict[str, str] = {}
    for source in sources:
        name, is_named, directory = source.partition("=")
        if not is_named or Path(source).is_dir():
            directory = source
            name = Path(source).resolve().name or "root"
        if name in found:
            raise OptionError(f"Two sources are named {name!r}: name them apart, as in --source other={directory}.")
        found[name] = directory
    return found


def _say(built: Built) -> None:
    for sentence in built.left_out[:_MOST_PROBLEMS]:
        click.echo(f"Left out: {sentence}", err=True)
    if len(built.left_out) > _MOST_PROBLEMS:
        click.echo(f"Left out: {len(built.left_out) - _MOST_PROBLEMS:,} more.", err=True)
    removed = f", {built.removed:,} removed" if built.removed else ""
    click.echo(
        f"{built.site}: {built.files:,} source files, {built.read:,} of them read{removed}; {built.written:,} files of "
        f"the site written. Open {built.site / 'index.html'} in a browser."
    )


def _check(site: Path) -> int:
    from torchreel.atlas.site.links import check

    found = check(site)
    for problem in found.problems[:_MOST_PROBLEMS]:
        click.echo(problem)
    if len(found.problems) > _MOST_PROBLEMS:
        click.echo(f"{len(found.problems) - _MOST_PROBLEMS:,} more.")
    click.echo(f"{site}: {found.pages:,} pages, {found.links:,} links, {len(found.problems):,} problems.")
    return 1 if found.problems else 0
