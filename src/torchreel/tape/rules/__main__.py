"""`python -m torchreel.tape.rules`: the rules on a terminal."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from torchreel.errors import TorchreelError
from torchreel.tape.rules.rule import KINDS, TAPES, TRACERS, WAYS


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False)
@click.option("--kind", type=click.Choice(KINDS), help="What it changes: nothing, self, out arguments, or others.")
@click.option("--tracer", type=click.Choice(TRACERS), help="What torch.jit.trace does with it.")
@click.option("--tape", type=click.Choice(TAPES), help="What stands on the tape.")
@click.option("--way", type=click.Choice(WAYS), help="What writes it to the tape.")
@click.option("--factory", is_flag=True, default=None, help="Only those that make a tensor out of none.")
def command(name: str | None, **conditions: Any) -> None:
    """Print what becomes of a function of ATen when it is recorded.

    NAME is a function (add_), one of its overloads (add_.Tensor), or a pattern ('add*'). Without a name and without
    conditions, only counts are printed; one function is printed in full, several as a table.

    \b
    python -m torchreel.tape.rules add_.Tensor
    python -m torchreel.tape.rules 'conv*' --kind functional
    python -m torchreel.tape.rules --tracer passes
    """
    from torchreel.tape import rules
    from torchreel.tape.rules.text import summary

    wanted = {column: value for column, value in conditions.items() if value is not None}
    if name is None and not wanted:
        click.echo(summary(rules.table()))
        return
    found = rules.where(**wanted) if name is None else rules.named(name).where(**wanted)
    if not found and name is not None and not wanted:
        rules.of(name)  # says which ones there are
    if not found:
        click.echo("No function is like that.")
    else:
        click.echo(str(found[0]) if len(found) == 1 else found.text())


def main() -> int:
    """Run the command; an error is a sentence and a code, and a reader that goes away is none."""
    try:
        command.main(prog_name="python -m torchreel.tape.rules", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except TorchreelError as error:
        click.echo(f"Error: {error}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
