"""`torchreel doctor`: what this machine offers."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from torchreel._units import bytes_text
from torchreel.cli.terminal.formats import write_json
from torchreel.errors import first_line

_PYTHON = (3, 11)
_LITTLE_DISK = 1 << 30
_LITTLE_SHARED_MEMORY = 1 << 30
_REBUILD = "install torchreel again with 'pip install --no-build-isolation --force-reinstall torchreel'"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and what to do if it is not there."""

    name: str
    available: bool
    detail: str
    advice: str = ""
    needed: bool = False  # to record at all


@click.command("doctor")
@click.option("--format", "form", type=click.Choice(("table", "json")), default="table", help="How to print.")
def command(form: str) -> int:
    """Say what this machine offers to torchreel, and what to do about what it does not.

    The exit code is 0 if recording can work here, else 1. Opening and exporting reels needs none of this.

    \b
    torchreel doctor
        a line for each thing: ok or not available
    torchreel doctor --format json | jq '.findings[] | select(.available | not)'
        what is missing, for programs
    """
    findings = [finding for look in LOOKS for finding in look()]
    can_record = all(finding.available for finding in findings if finding.needed)
    if form == "json":
        write_json({"can_record": can_record, "findings": [asdict(finding) for finding in findings]})
    else:
        _print(findings, can_record)
    return 0 if can_record else 1


def _print(findings: list[Finding], can_record: bool) -> None:
    from rich.text import Text

    from torchreel.cli.terminal.table import console

    out = console()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        state = Text("ok           ", "green") if finding.available else Text("not available", "red")
        advice = f": {finding.advice}" if finding.advice and not finding.available else ""
        out.print(state, Text(f"{finding.name:<{width}}  {finding.detail}{advice}"), soft_wrap=True)
    out.print()
    if can_record:
        out.print("Recording can work here. Next: torchreel record --all SCRIPT", soft_wrap=True)
    else:
        out.print("Recording cannot work here until what is needed for it is available; reels can be opened.")


def _python() -> Iterable[Finding]:
    yield Finding(
        "Python",
        sys.version_info[:2] == _PYTHON,
        f"{platform.python_implementation()} {platform.python_version()}",
        f"recording needs CPython {_PYTHON[0]}.{_PYTHON[1]}",
        needed=True,
    )


def _torch() -> Iterable[Finding]:
    version, problem = _version("torch")
    yield Finding("torch", not problem, version or problem, "install it with 'pip install torch==2.13.0'", needed=True)


def _native() -> Iterable[Finding]:
    for name, module, needed in (("native recorder", "_core", True), ("native decoder", "_decode", False)):
        _, problem = _version(f"torchreel.{module}")
        yield Finding(name, not problem, problem or f"torchreel.{module} is built for this torch", _REBUILD, needed)


def _version(module: str) -> tuple[str, str]:
    """The version of a module that can be imported, or else why it cannot."""
    try:
        return str(getattr(importlib.import_module(module), "__version__", "")), ""
    except Exception as error:  # an extension built for another torch fails in its own ways
        return "", f"it cannot be imported ({first_line(error)})"


def _clock() -> Iterable[Finding]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    missing = [flag for flag in ("constant_tsc", "nonstop_tsc") if flag not in flags]
    detail = f"the processor does not say {' and '.join(missing)}" if missing else "constant_tsc and nonstop_tsc"
    yield Finding("steady clock", not missing, detail, "times come from the system's clock, which costs more per op")


def _counters() -> Iterable[Finding]:
    try:
        core = importlib.import_module("torchreel._core")
        problems = {name: core.counter_problem(name) for name in core.counter_names()}
    except Exception:
        yield Finding("hardware counters", False, "the native recorder is not there to ask", _REBUILD)
        return
    usable = [name for name, problem in problems.items() if not problem]
    missing = [name for name, problem in problems.items() if problem]
    reason = problems[missing[0]] if missing else ""
    detail = ", ".join(usable) + (f" (not {', '.join(missing)}: {reason})" if missing else "") if usable else reason
    yield Finding("hardware counters", bool(usable), detail, "record without --counters")


def _emitters() -> Iterable[Finding]:
    try:
        import torch
    except Exception:
        return
    itt = bool(torch.profiler.itt.is_available())
    yield Finding("ITT", itt, "--emit itt" if itt else "this torch has no ITT", "install a torch built with it")
    nvtx = hasattr(torch._C, "_nvtx")
    yield Finding("NVTX", nvtx, "--emit nvtx" if nvtx else "this torch has no NVTX", "install a torch built with CUDA")


def _disk() -> Iterable[Finding]:
    free = shutil.disk_usage(Path.cwd()).free
    yield Finding(
        "disk space",
        free >= _LITTLE_DISK,
        f"{bytes_text(free)} free in the current directory",
        "record to another disk with -o, or keep only the last moments with --ring",
    )


def _processors() -> Iterable[Finding]:
    usable = len(os.sched_getaffinity(0))
    yield Finding("processors", True, f"{usable} usable of {os.cpu_count()}")


def _shared_memory() -> Iterable[Finding]:
    path = Path("/dev/shm")
    size = shutil.disk_usage(path).total if path.is_dir() else 0
    yield Finding(
        "shared memory",
        size >= _LITTLE_SHARED_MEMORY,
        f"/dev/shm holds {bytes_text(size)}",
        "DataLoader workers may need more: start the container with a greater --shm-size",
    )


LOOKS: tuple[Callable[[], Iterable[Finding]], ...] = (
    *(_python, _torch, _native, _clock, _counters, _emitters),
    *(_disk, _processors, _shared_memory),
)
