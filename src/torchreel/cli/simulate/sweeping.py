"""The sweep of `torchreel simulate`: a table of settings, and the line to use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchreel.cli.terminal.formats import write_csv, write_json, write_markdown

if TYPE_CHECKING:
    from torchreel.cli.terminal.table import Column
    from torchreel.simulator.sweep.advice import Advice
    from torchreel.simulator.sweep.trials import Trial, Trials


def print_sweep(trials: Trials, advice: Advice, more: list[str], form: str) -> None:
    """Print what was tried and what to do, in the form that was asked for; `more` is what else is to be said."""
    rows = trials.table().to_pylist()
    if form == "json":
        write_json(_document(trials, advice, rows))
    elif form == "csv":
        write_csv(list(rows[0]), (tuple(row.values()) for row in rows))
    elif form == "markdown":
        write_markdown(_columns(trials))
    else:
        _print_table(trials, advice, more)


def _document(trials: Trials, advice: Advice, rows: list[dict[str, Any]]) -> dict[str, Any]:
    smallest = trials.smallest
    return {
        "capacity": trials.capacity,
        "needed": trials.needed,
        "settings": rows,
        "smallest": None if smallest is None else {"conf": str(smallest[0]), "capacity": smallest[1]},
        "advice": {
            "conf": advice.conf,
            "line": advice.line,
            "gain": advice.gain,
            "sentences": list(advice.sentences),
        },
    }


def _print_table(trials: Trials, advice: Advice, more: list[str]) -> None:
    from torchreel.cli.terminal.sentences import say
    from torchreel.cli.terminal.table import console, draw

    out = console()
    draw(_columns(trials), out)
    hidden = len(trials.trials) - len(trials.telling)
    if hidden:
        say(out, f"Not shown: {hidden} settings that do the same as one that is.")
    out.print()
    for sentence in [*advice.sentences, *more]:
        say(out, sentence)
    if advice.line is not None:
        out.print()
        out.print(advice.line, soft_wrap=True)


def _columns(trials: Trials) -> list[Column]:
    from torchreel.cli.terminal.table import Column
    from torchreel.simulator.sweep.advice import mib

    every = trials.telling
    columns = [
        Column("Setting", [_name(trial) for trial in every]),
        Column("Peak reserved", [mib(trial.peak_reserved) if trial.fits else "" for trial in every], number=True),
        Column("Change", [_change(trial, trials.current) for trial in every], number=True),
        Column("Peak allocated", [mib(trial.peak_allocated) if trial.fits else "" for trial in every], number=True),
        Column("Unused at peak", [f"{trial.fragmentation:.1%}" if trial.fits else "" for trial in every], number=True),
        Column("Retries", [f"{trial.retries:,}" for trial in every], number=True),
        Column("Driver calls", [f"{trial.device_calls:,}" for trial in every], number=True),
    ]
    if trials.capacity is not None or not all(trial.fits for trial in every):
        columns.insert(1, Column("Fits", ["yes" if trial.fits else "no" for trial in every]))
        columns.append(Column("Failed requests", [f"{trial.ooms:,}" for trial in every], number=True))
    return [column for column in columns if any(column.cells)]


def _name(trial: Trial) -> str:
    return (trial.text or "(default)") + (" <- current" if trial.current else "")


def _change(trial: Trial, current: Trial) -> str:
    if trial.current or not trial.fits or not current.fits or not current.peak_reserved:
        return ""
    return f"{trial.peak_reserved / current.peak_reserved - 1:+.1%}"
