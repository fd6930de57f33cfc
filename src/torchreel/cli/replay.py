"""`torchreel replay`: a tape runs again, without the code that it was made of."""

from __future__ import annotations

import statistics
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchreel._units import bytes_text, count_text
from torchreel.cli.terminal.units import time_text
from torchreel.errors import ReplayError

if TYPE_CHECKING:
    from torchreel.tape.tape import Tape


@click.command("replay")
@click.argument("tape", type=click.Path(path_type=Path))
@click.option("--check", "checked", is_flag=True, help="Compare every op's output with what was recorded.")
@click.option("--repeat", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="How many times.")
def command(tape: Path, checked: bool, repeat: int) -> int:
    """Replay TAPE on the inputs and the state that it was saved with, and say how long that takes.

    Each replay begins with the state and the random generators of the file, which is not changed.

    With --check the hash of every op's output is compared with the one recorded. The exit code is 1 if one differs, and
    the first that does is shown with its source line. The tape must have been traced with hashes=True.

    \b
    torchreel replay step.tape --repeat 20
        the median time of a replay
    torchreel replay step.tape --check --repeat 100
        does this machine compute the same, a hundred times?
    """
    loaded = _load(tape)
    _describe(tape, loaded)
    return _check(loaded, repeat) if checked else _time(tape, loaded, repeat)


def _load(path: Path) -> Tape:
    """The tape; what loading has to say goes to standard error, a sentence a line."""
    from torchreel.program.file.file import read_tape

    file = read_tape(path)  # what is wrong is told at once: importing torch takes seconds
    if file.data is None and not file.complete:
        raise ReplayError(
            f"{path} was saved without its data, so there is nothing to replay it on: save it with tape.save(path)."
        )
    from torchreel.tape.replay.load import load_tape

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loaded = load_tape(path)
    for each in said:
        if issubclass(each.category, UserWarning):
            click.echo(f"Warning: {each.message}", err=True)
    return loaded


def _describe(path: Path, tape: Tape) -> None:
    from torchreel.program.query.peak import peak_bytes

    program = tape.program
    made = program.provenance
    state = sum({slot.storage: slot.bytes for slot in program.slots if slot.role != "made"}.values())
    click.echo(
        f"{path}: {count_text(len(program.ops), 'op')} of {made.function}, by torch {made.torch} on {made.machine}."
    )
    click.echo(
        f"Memory: {bytes_text(state)} of state and inputs, at most {bytes_text(peak_bytes(program))} more at a time."
    )


def _time(path: Path, tape: Tape, repeat: int) -> int:
    inputs = tape.example_inputs()
    times = []
    for _ in range(repeat):
        tape.restore()
        begin = time.perf_counter_ns()
        tape.run(inputs, digests=False)
        times.append(time.perf_counter_ns() - begin)
    click.echo(f"Replayed {count_text(repeat, 'time')}: {_times(times)}.")
    if any(op.digests for op in tape.program.ops):
        click.echo("")
        click.echo(f"Next: torchreel replay {path} --check    does it compute what was recorded?")
    return 0


def _check(tape: Tape, repeat: int) -> int:
    from torchreel.tape.replay.check import check

    for number in range(1, repeat + 1):
        result = check(tape)
        if not result.ok:
            click.echo(f"Replay {number} of {repeat} is not what was recorded. {result}" if repeat > 1 else str(result))
            return 1
    click.echo(f"Replayed {count_text(repeat, 'time')}. {result}")
    return 0


def _times(times: list[int]) -> str:
    median = time_text(int(statistics.median(times)))
    if len(times) == 1:
        return median
    return f"{median} each (the median; from {time_text(min(times))} to {time_text(max(times))})"
