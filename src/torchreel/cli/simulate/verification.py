"""The verification of `torchreel simulate`: what of a recorded run the simulator does again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchreel.cli.terminal.formats import write_csv, write_json, write_markdown

if TYPE_CHECKING:
    from torchreel.simulator.recorded.verify import DeviceVerification, Verification


def print_verification(verification: Verification, form: str) -> int:
    """Print what matched and return the exit code: 0 only if there was something to verify and all of it matched."""
    devices = verification.devices
    if form == "json":
        write_json(verification.to_json())
    elif form == "csv":
        rows = [_row(name, device) for name, device in devices.items()]
        write_csv(list(rows[0]), (tuple(row.values()) for row in rows))
    elif form == "markdown":
        _print_markdown(verification)
    else:
        _print_sentences(verification)
    without = [name for name, device in devices.items() if device.history == "none"]
    if without:
        click.echo(_nothing_to_verify(without, len(devices)), err=True)
    return 0 if verification.ok and len(without) < len(devices) else 1


def _print_sentences(verification: Verification) -> None:
    from torchreel.cli.terminal.sentences import say
    from torchreel.cli.terminal.table import console

    out = console()
    for name, device in verification.devices.items():
        for line in _sentences(name, device):
            say(out, line)


def _sentences(name: str, device: DeviceVerification) -> list[str]:
    if device.history == "none":
        return [f"{name}: no history."]
    sentence = (
        f"{name}: {_of(device.allocs.matched, device.allocs.total)} allocations at their recorded addresses, "
        f"{_of(device.segment_events.matched, device.segment_events.total)} segment events, "
        f"peak reserved {_peak(device)}; history {device.history}."
    )
    lines = [sentence]
    if device.mismatch is not None:
        lines.append(f"The first difference is at {device.mismatch}.")
    return lines + [f"Note: {note}." for note in device.notes]


def _of(matched: int, total: int) -> str:
    return f"{matched:,} of {total:,}"


def _peak(device: DeviceVerification) -> str:
    from torchreel.simulator.sweep.advice import mib

    if device.recorded_peak == device.simulated_peak:
        return f"{mib(device.recorded_peak)} as recorded"
    return f"{mib(device.simulated_peak)} where {mib(device.recorded_peak)} was recorded"


def _row(name: str, device: DeviceVerification) -> dict[str, Any]:
    return {
        "device": name,
        "allocs_matched": device.allocs.matched,
        "allocs_total": device.allocs.total,
        "segment_events_matched": device.segment_events.matched,
        "segment_events_total": device.segment_events.total,
        "peak_reserved_recorded": device.recorded_peak,
        "peak_reserved_simulated": device.simulated_peak,
        "history": device.history,
    }


def _print_markdown(verification: Verification) -> None:
    from torchreel.cli.terminal.table import Column
    from torchreel.simulator.sweep.advice import mib

    every = list(verification.devices.values())
    write_markdown(
        [
            Column("Device", list(verification.devices)),
            Column("Allocations", [_of(one.allocs.matched, one.allocs.total) for one in every], number=True),
            Column(
                "Segment events", [_of(one.segment_events.matched, one.segment_events.total) for one in every], True
            ),
            Column("Peak reserved", [mib(one.recorded_peak) for one in every], number=True),
            Column("simulated", [mib(one.simulated_peak) for one in every], number=True),
            Column("History", [one.history for one in every]),
        ]
    )


def _nothing_to_verify(names: list[str], count: int) -> str:
    where = "" if len(names) == count else f" of {', '.join(names)}"
    return (
        f"There is no history{where} to verify, only the state at one moment: call "
        "torch.cuda.memory._record_memory_history() before the part of interest, and dump the snapshot after it."
    )
