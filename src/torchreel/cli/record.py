"""`torchreel record`: run a script and record it."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchreel._units import bytes_text, count_text
from torchreel.cli.script import Script, own_frames
from torchreel.cli.sources import refuse_standard_output
from torchreel.errors import OptionError, ReelExistsError, TorchreelError

if TYPE_CHECKING:
    from torchreel.record import Recorder, RecordOptions
    from torchreel.reel.job import Job

PARTS = ("shapes", "memory", "stacks", "modules", "flops", "python")
DEFAULT_NAME = "run"
SPEAKERS_S = 5.0  # time for the rank that speaks to do so
SECOND_STEP = 1  # the first often makes what later ones find, such as an optimizer's state


class ScriptCommand(click.Command):
    """A command whose options end at the script or at -m MODULE: what follows belongs to the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        position = 0
        while position < len(args) and args[position].startswith("-"):
            if args[position].startswith("-m") and not args[position].startswith("--"):
                end = position + (2 if args[position] == "-m" else 1)
                args = [*args[:end], "--", *args[end:]]
                break
            if args[position] == "--tape":
                args = _with_step(args, position)
            position += 2 if args[position] in takes_value else 1
        return super().parse_args(ctx, args)


def _with_step(args: list[str], position: int) -> list[str]:
    """--tape takes a step or nothing: what follows it is the script, unless it is a number."""
    follows = args[position + 1 : position + 2]
    if follows and follows[0].isdecimal():
        return [*args[:position], f"--tape={follows[0]}", *args[position + 2 :]]
    return [*args[:position], f"--tape={SECOND_STEP}", *args[position + 1 :]]


@click.command("record", cls=ScriptCommand, context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The reel to write.  [run.reel, run-2.reel ...]")
@click.option("--force", is_flag=True, help="Replace the reel of -o if it exists.")
@click.option("--shapes", is_flag=True, help="Sizes, strides and dtypes of tensors; values of other arguments.")
@click.option("--memory", is_flag=True, help="Every alloc and free of CPU tensors.")
@click.option("--stacks", is_flag=True, help="The Python stack of every op and alloc.")
@click.option("--no-source", is_flag=True, help="With --stacks: keep no text of your own files, only their hashes.")
@click.option("--modules", is_flag=True, help="The nn.Module in which each op ran.")
@click.option("--flops", is_flag=True, help="Floating point operations; implies --shapes.")
@click.option("--python", is_flag=True, help="Calls of Python functions; costs the most.")
@click.option("--all", "everything", is_flag=True, help="All of these but --python; not --gpu.")
@click.option("--gpu", is_flag=True, help="What GPUs do, and with --memory what they allocate.")
@click.option("--counters", metavar="NAME,...", help="Hardware counters per op: cycles,instructions ...")
@click.option("--tape", type=int, metavar="[STEP]", help="The tape of one step, counted from 0.  [1]")
@click.option("--ring", metavar="SIZE", help="Keep only the last of it, in this much memory: 64MB.")
@click.option("--emit", type=click.Choice(("itt", "nvtx")), help="Also emit ops as ranges for VTune or Nsight.")
@click.option("--allocator", type=click.Choice(("system", "caching")), help="Where CPU tensors get their memory.")
@click.option("--no-children", is_flag=True, help="Do not record child processes.")
@click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
@click.argument("script", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
def command(output: Path | None, force: bool, module: str | None, script: tuple[str, ...], **options: Any) -> int:
    """Run SCRIPT, or a module with -m, as Python would, and record what PyTorch does in it.

    The options of torchreel come before the script; those after it are the script's. The exit code is the script's.
    If it fails or is interrupted, the reel holds what it did until then.

    \b
    torchreel record train.py --epochs 1
        ops with their times and threads, in run.reel
    torchreel record --all -o first.reel train.py
        also shapes, memory, stacks, modules and flops
    torchreel record --memory --stacks -m package.train --epochs 1
        a module; where each byte was allocated
    torchreel record --ring 64MB train.py
        a flight recorder: only the last moments are kept
    torchreel record --memory --allocator caching train.py
        freed CPU memory is kept for the next tensor, which makes many programs faster
    torchreel record --tape train.py
        the second step as a program, each of its ops joined with its times
    torchreel record --gpu --memory train.py
        kernels, copies and waits of GPUs, each with the op that launched it; their memory
    torchreel record --counters cycles,instructions train.py
        hardware counters of each op (see torchreel doctor)
    """
    refuse_standard_output(output)
    if module is None and not script:
        raise click.UsageError("Give a script to record, or -m and a module.")
    if options["gpu"]:
        _check_gpu()
    target = Script(module, script, is_module=True) if module is not None else Script(script[0], script[1:])
    target.prepare()
    from torchreel.reel.job import current_job

    job = current_job()
    if job is None:
        reel_path(output, force)
    elif output is not None and not force:
        _check_output_of_job(output, job)
    return _record(target, output, force, _options(options))


class _RefusedError(click.ClickException):
    """An option that cannot be given here: a sentence, without the help that a misspelt one gets."""

    exit_code = 2


def _check_gpu() -> None:
    """Say that there is none, as of an option that cannot be given here, before anything is begun."""
    from torchreel.errors import UnavailableError
    from torchreel.record.device_activity import check_devices

    try:
        check_devices()
    except UnavailableError as error:
        raise _RefusedError(str(error)) from None


def _check_output_of_job(output: Path, job: Job) -> None:
    """One rank of each machine says that the reel is another job's; a launcher ends all when the first leaves."""
    from torchreel.reel.joining import check_joinable

    try:
        check_joinable(output, job)
    except ReelExistsError:
        if job.speaks:
            raise
        time.sleep(SPEAKERS_S)
        raise click.exceptions.Exit(1) from None


def reel_path(output: Path | None, force: bool) -> Path:
    """Where to write: a free name, or with --force that of a reel, which gives way when writing begins."""
    if output is None:
        return next(path for path in default_names() if not os.path.lexists(path))
    if not os.path.lexists(output):
        return output
    if not force:
        raise ReelExistsError(f"{output} exists: name another reel with -o, or give --force to replace it.")
    from torchreel.reel.joining import check_replaceable

    check_replaceable(output)
    return output


def default_names() -> Iterator[Path]:
    """run.reel, run-2.reel ..."""
    yield Path(f"{DEFAULT_NAME}.reel")
    for number in itertools.count(2):
        yield Path(f"{DEFAULT_NAME}-{number}.reel")


def _options(given: dict[str, Any]) -> RecordOptions:
    from torchreel.record import RecordOptions

    parts = {part: given[part] for part in PARTS}
    if given["everything"]:
        parts |= {part: True for part in PARTS if part != "python"}
    counters = tuple(name.strip() for name in (given["counters"] or "").split(",") if name.strip())
    return RecordOptions(
        **parts,
        source=not given["no_source"],
        gpu=given["gpu"],
        counters=counters,
        tape=given["tape"],
        ring=given["ring"],
        emit=given["emit"],
        allocator=given["allocator"],
        children=not given["no_children"],
    )


def _start(output: Path | None, force: bool, options: RecordOptions, program: Path | None = None) -> Recorder:
    """Records into the reel that was named, or into the first that is free or of this job."""
    from torchreel.record import Recorder

    if output is not None:
        return Recorder(output, options, force=force, from_outside=True, program=program).start()
    for path in default_names():
        with contextlib.suppress(ReelExistsError):
            return Recorder(path, options, from_outside=True, program=program).start()
    raise AssertionError("there is always another name")


def _record(target: Script, output: Path | None, force: bool, options: RecordOptions) -> int:
    recorder = _start(output, force, options, target.directory())
    process, began = os.getpid(), time.monotonic()
    try:
        code, crashed = _run(target)
    except OptionError:  # there was nothing to run, so there is nothing to keep
        recorder.discard()
        raise
    if os.getpid() == process and recorder.running:  # else the script forked, and this is the child at its end
        _close(recorder, crashed, began)
    return code


def _run(target: Script) -> tuple[int, bool]:
    """The script's exit code, and whether an exception of its own ended it: then that is printed as Python would."""
    try:
        target.run()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0, False
        print(leaving.code, file=sys.stderr)
        return 1, False
    except KeyboardInterrupt:
        return 130, False
    except BaseException as error:
        trace = own_frames(error.__traceback__)
        if trace is None and isinstance(error, ImportError):  # runpy found no such module, or nothing to run in it
            raise OptionError(f"{target.target} cannot be run: {error}.") from None
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1, True
    return 0, False


def _close(recorder: Recorder, crashed: bool, began: float) -> None:
    """End the recording, and say in one line what there is now."""
    seconds = time.monotonic() - began
    dumped = None
    if recorder.options.ring is not None and not (crashed and recorder.path.exists()):
        try:
            dumped = recorder.dump()  # a crash has dumped already, through sys.excepthook
        except TorchreelError as error:  # the exit code is the script's all the same
            click.echo(f"torchreel: {error}", err=True)
    reel = recorder.stop() or dumped
    if reel is None or ("job" in reel.meta and not recorder.closed_job):
        return  # the last rank of a job speaks for all
    from torchreel.reel.reel import open_parquet
    from torchreel.reel.tables import OPS

    files = [file for part in reel.parts if (file := part.file("ops")) is not None]
    ops = sum(open_parquet(file).metadata.num_rows for file in files)
    if reel.parts and reel.parts[0].spooled:  # this process's own: the disk refused its Parquet files
        ops += reel.parts[0].table(OPS, ["id"]).num_rows
    size = sum(file.stat().st_size for file in reel.path.rglob("*") if file.is_file())
    unclosed = sum(part.spooled for part in reel.parts)
    tapes = [file for part in reel.parts for file in part.directory.glob("step-*.tape")]
    tape = "".join(f" Tape of a step: {file}." for file in tapes)
    still = f" ({unclosed} not closed yet)" if unclosed else ""
    click.echo(
        f"Recorded {count_text(ops, 'op')} of {count_text(len(reel.parts), 'process')}{still} in {seconds:.2f} s: "
        f"{reel.path}, {bytes_text(size)}.{tape} Next: torchreel report {shlex.quote(str(reel.path))}",
        err=True,
    )
