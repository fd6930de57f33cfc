"""`torchreel simulate`: what the CUDA caching allocator would do with a run, under other settings or elsewhere."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchreel.cli.terminal.formats import FORMATS, write_json
from torchreel.cli.terminal.interrupt import interruptible
from torchreel.errors import OptionError

if TYPE_CHECKING:
    from torchreel.cli.simulate.recorded import Recorded
    from torchreel.cli.simulate.what_if import WhatIf
    from torchreel.reel import Reel
    from torchreel.simulator.conf import Conf
    from torchreel.simulator.request_trace import RequestTrace, RequestTraces
    from torchreel.simulator.simulate import Simulation


@dataclass(frozen=True)
class Question:
    """What to simulate, as it was given."""

    source: str
    conf: str | None
    capacity: str | None
    fraction: float | None
    version: str | None
    device: str | None


@click.command("simulate")
@click.argument("source")
@click.option("--conf", metavar="TEXT", help="The settings, as in PYTORCH_CUDA_ALLOC_CONF.  [as recorded]")
@click.option("--capacity", metavar="SIZE", help="Memory that the allocator has: 24GiB, 80GB ...  [no limit]")
@click.option("--fraction", type=float, metavar="F", help="The part of it that the process may use, from 0 to 1.")
@click.option("--torch", "version", metavar="VERSION", help="The version of torch: 2.6, 2.13 ...  [as recorded]")
@click.option("--device", metavar="NAME", help="Only this device: cuda:0 ...  [all]")
@click.option("--sweep", is_flag=True, help="Try the sensible settings and say which to use.")
@click.option("--verify", is_flag=True, help="Replay the recorded run and compare; exit code 1 if anything differs.")
@click.option("--predict", is_flag=True, help="What a GPU would reserve for a reel that was recorded on the CPU.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print.")
def command(
    source: str,
    conf: str | None,
    capacity: str | None,
    fraction: float | None,
    version: str | None,
    device: str | None,
    sweep: bool,
    verify: bool,
    predict: bool,
    form: str,
) -> int:
    """Run the requests and frees of SOURCE through a model of PyTorch's CUDA caching allocator.

    SOURCE is a memory snapshot with a history (torch.cuda.memory._dump_snapshot), or a reel. No GPU is needed.
    --capacity is what the allocator has for itself: the device's memory less what the CUDA context and libraries take,
    usually 0.5 to 1.5 GiB. docs/simulator.md says what is modelled, and what no simulator can know.

    \b
    torchreel simulate snapshot.pickle --sweep
        which PYTORCH_CUDA_ALLOC_CONF reserves least, or that none helps, and why
    torchreel simulate snapshot.pickle --conf expandable_segments:True
        the recorded run beside the one with that setting
    torchreel simulate snapshot.pickle --capacity 22.5GiB
        whether it fits there, and which line runs out of memory if not
    torchreel simulate snapshot.pickle --capacity 22.5GiB --sweep
        which settings make it fit, and the smallest device for it
    torchreel simulate snapshot.pickle --verify --format json
        how much of the recorded run the model does again; the exit code is 0 only if it is all
    """
    if sum((sweep, verify, predict)) > 1:
        raise OptionError("--sweep, --verify and --predict are different questions: give one of them.")
    question = Question(source, conf, capacity, fraction, version, device)
    answer = _verify if verify else _predict if predict else _sweep if sweep else _what_if
    return answer(question, form)


def _verify(question: Question, form: str) -> int:
    from torchreel.cli.simulate.verification import print_verification
    from torchreel.simulator.recorded.verify import Verification, verify

    if any(given is not None for given in (question.conf, question.capacity, question.fraction, question.version)):
        raise OptionError("--verify replays what was recorded: leave out --conf, --capacity, --fraction and --torch.")
    found = interruptible(lambda: verify(question.source)).devices
    device = question.device
    if device is not None and device not in found:
        raise OptionError(f"There is no device {device!r} in {question.source}: it has {', '.join(found)}.")
    return print_verification(Verification({device: found[device]} if device else found), form)


def _predict(question: Question, form: str) -> int:
    from torchreel.simulator.predict.predict import predict

    if question.fraction is not None or question.device is not None:
        raise OptionError("--predict answers for one whole device: leave out --fraction and --device.")
    if Path(question.source).is_file():
        raise OptionError(f"--predict is for a reel that was recorded on the CPU: {question.source} is a file.")
    prediction = interruptible(lambda: predict(question.source, question.capacity, question.conf, question.version))
    if form not in ("json", "table"):
        raise OptionError(f"--predict cannot be printed as {form}: give --format json, or none.")
    if form == "json":
        write_json(prediction.to_json())
    else:
        click.echo(prediction.describe())
    return 0


def _sweep(question: Question, form: str) -> int:
    from torchreel.cli.simulate.recorded import recorded
    from torchreel.cli.simulate.sweeping import print_sweep
    from torchreel.cli.terminal.progress import progress_bar
    from torchreel.ingest import open_source
    from torchreel.simulator.sweep.advice import advise
    from torchreel.simulator.sweep.sweep import made_on_windows, try_settings

    with open_source(question.source) as reel:
        request_traces = _request_traces(reel, question)
        windows = made_on_windows(reel)
        more = _about_recording(recorded(reel), request_traces, question)
    with progress_bar("settings") as progress:
        trials = try_settings(
            request_traces, question.capacity, question.fraction, question.version, question.conf, windows, progress
        )
    print_sweep(trials, advise(trials), more, form)
    return 0


def _about_recording(facts: list[Recorded], request_traces: RequestTraces, question: Question) -> list[str]:
    """What the recording gives reason to ask next."""
    from torchreel.simulator.sweep.advice import room

    said = []
    failed = [
        fact
        for fact in facts
        if fact.ooms and fact.room and any(fact.device in name for name in request_traces.devices)
    ]
    if failed and question.capacity is None:
        size = failed[0].room or 0
        said.append(
            f"The recorded run ran out of memory on {failed[0].device}, where its allocator had {room(size)}: "
            f"--capacity {size >> 20}MiB tells which settings would have fitted there."
        )
    if len(request_traces.devices) > 1:
        said.append(f"These are {len(request_traces.devices)} devices together: --device asks about one of them.")
    return said


def _what_if(question: Question, form: str) -> int:
    from torchreel.cli.simulate.what_if import print_what_if
    from torchreel.ingest import open_source
    from torchreel.simulator.simulate import simulate

    with open_source(question.source) as reel:
        request_traces = _request_traces(reel, question)
        simulated = interruptible(
            lambda: simulate(request_traces, question.conf, question.capacity, question.version, question.fraction)
        )
        answers = _answers(reel, question, request_traces, simulated)
    print_what_if(answers, form)
    if form == "table":
        capacity = f" --capacity {shlex.quote(question.capacity)}" if question.capacity else ""
        line = f"torchreel simulate {shlex.quote(question.source)}{capacity} --sweep"
        click.echo(f"Next: {line}  which setting would be best")
    return 0


def _request_traces(reel: Reel, question: Question) -> RequestTraces:
    """The request traces of the devices that were asked for; a state without a history has none."""
    from torchreel.simulator.source import request_traces
    from torchreel.simulator.sweep.sweep import only

    found = only(interruptible(lambda: request_traces(reel)), question.device)
    if question.fraction is not None and question.capacity is None and not any(map(_total, found.devices.values())):
        raise OptionError("--fraction is a part of the device's memory, which this recording lacks: give --capacity.")
    # PyTorch keeps one event even where no history is recorded.
    if not any((requests.ids >= 0).sum() > 1 for requests in found.devices.values()):
        raise OptionError(
            f"{question.source} holds no history, only the state at one moment: call "
            "torch.cuda.memory._record_memory_history() before the part of interest, and dump the snapshot after it."
        )
    return found


def _answers(reel: Reel, question: Question, request_traces: RequestTraces, simulated: Simulation) -> dict[str, WhatIf]:
    """Each device's simulation beside what was recorded."""
    from torchreel.cli.simulate.recorded import recorded, source_line
    from torchreel.cli.simulate.what_if import WhatIf
    from torchreel.reel.sizes import parse_size
    from torchreel.simulator.conf import parse
    from torchreel.simulator.simulate import simulate

    asked = None if question.conf is None else parse(question.conf)
    facts = recorded(reel)
    as_recorded = simulate(request_traces).devices
    answers = {}
    for name, simulation in simulated.devices.items():
        fact, failure = _fact(facts, name), simulation.first_oom
        recorded_conf = request_traces.devices[name].conf
        answers[name] = WhatIf(
            recorded=fact,
            as_recorded=as_recorded[name],
            simulated=simulation,
            recorded_conf=recorded_conf,
            conf=asked or recorded_conf,
            capacity=None if question.capacity is None else parse_size(question.capacity),
            limited=_is_limited(question, request_traces.devices[name], asked or recorded_conf),
            line=None if failure is None or failure.event < 0 else source_line(reel, fact.process, failure.event),
        )
    return answers


def _total(requests: RequestTrace) -> int | None:
    return requests.total


def _is_limited(question: Question, requests: RequestTrace, conf: Conf) -> bool:
    from torchreel.reel.sizes import parse_size
    from torchreel.simulator.rules import limit_of

    given = (question.fraction, conf.per_process_memory_fraction, requests.fraction)
    fraction = next((one for one in given if one is not None), None)
    total = requests.total if question.capacity is None else parse_size(question.capacity)
    return limit_of(total, fraction) is not None


def _fact(facts: list[Recorded], name: str) -> Recorded:
    """What was recorded under a name: 1/cuda:0, or cuda:0 where only one process has a history."""
    process, slash, device = name.partition("/")
    if slash:
        return next(one for one in facts if (one.process, one.device) == (int(process), device))
    return max((one for one in facts if one.device == name), key=lambda one: one.peak_requested)
