"""What commands read from and write to: a reel, with or without what is damaged of it, and the standard output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchreel.errors import OptionError

if TYPE_CHECKING:
    from torchreel.reel import Reel

skip_damaged_option = click.option(
    "--skip-damaged", is_flag=True, help="Leave out processes of which a file is damaged, and say which."
)


def open_reel(path: str | Path, skip_damaged: bool) -> Reel:
    """Open a reel, and say what was left out of it."""
    from torchreel.reel import load

    reel = load(path, skip_damaged=skip_damaged)
    say_left_out(reel)
    return reel


def say_left_out(reel: Reel) -> None:
    """On the standard error, a line for each process that was left out."""
    from torchreel.cli.terminal.table import printable

    for sentence in reel.left_out:
        click.echo(printable(sentence), err=True)


def is_standard_output(output: Path | None) -> bool:
    """Whether a command is to write to its standard output: `-o -`; a file of that name is `-o ./-`."""
    return output == Path("-")


def refuse_standard_output(output: Path | None) -> None:
    """For commands that write a reel."""
    if is_standard_output(output):
        raise OptionError(
            "A reel is a directory, which the standard output cannot hold: name one with -o, or ./- for that name."
        )
