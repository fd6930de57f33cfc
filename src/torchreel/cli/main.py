"""The command `torchreel`: finds the command that was asked for, and turns errors into a sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from torchreel._version import __version__
from torchreel.cli.terminal.interrupt import INTERRUPTED
from torchreel.errors import TorchreelError

# Each command and its module, which is imported when the command is asked for: keep heavy imports out of their tops.
COMMANDS = {
    "record": "torchreel.cli.record",
    "report": "torchreel.cli.report",
    "view": "torchreel.cli.view",
    "atlas": "torchreel.cli.atlas",
    "diff": "torchreel.cli.diff",
    "gpu": "torchreel.cli.gpu.command",
    "sql": "torchreel.cli.sql",
    "memory": "torchreel.cli.memory.command",
    "simulate": "torchreel.cli.simulate.command",
    "import": "torchreel.cli.import_",
    "export": "torchreel.cli.export",
    "replay": "torchreel.cli.replay",
    "bench-graphs": "torchreel.cli.bench_graphs",
    "edge": "torchreel.cli.edge.command",
    "doctor": "torchreel.cli.doctor",
}


class Commands(click.Group):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="torchreel", message="%(prog)s %(version)s")
def torchreel() -> None:
    """Record a PyTorch run once; then see it, size it, replay it.

    \b
    torchreel record --all train.py --epochs 1    runs the script and writes run.reel
    torchreel report run.reel                     shows where its time went
    torchreel COMMAND --help                      explains a command, with examples
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 1 for an error, 2 for a misspelt command line, 130 for Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        code = torchreel.main(args=arguments, prog_name="torchreel", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return _closed_pipe()
    except Exception as error:
        # DuckDB turns some Ctrl-C into an exception of its own.
        return INTERRUPTED if str(error) == "Query interrupted" else _failure(error)


def _closed_pipe() -> int:
    """The reader of our output has gone, as `head` does: say nothing, not even when Python flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _failure(error: Exception) -> int:
    if isinstance(error, TorchreelError):
        sentence = str(error)
    elif isinstance(error, OSError) and error.strerror:
        subject = f" ({error.filename})" if error.filename else ""
        sentence = f"The system refused: {error.strerror}{subject}."
    elif isinstance(error, MemoryError):
        sentence = "There is too little memory for this: free some, or ask for less."
    elif os.environ.get("TORCHREEL_TRACEBACK"):
        traceback.print_exception(error)
        return 1
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        sentence = (
            f"torchreel has a fault ({type(error).__name__}: {error}; in {Path(last.filename).name} "
            f"line {last.lineno}): please report it with what TORCHREEL_TRACEBACK=1 prints."
        )
    from torchreel.cli.terminal.table import printable

    sentence = printable(sentence)
    click.echo(f"{click.style('Error:', fg='red') if sys.stderr.isatty() else 'Error:'} {sentence}", err=True)
    return 1
