"""The screen of `torchreel gpu`: where the time of devices went first, then why, then what they ran."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from torchreel.cli.gpu.activity import collectives, copies, graphs, kernels, launches, streams
from torchreel.cli.gpu.time import critical_path, devices, idle, what_if
from torchreel.cli.gpu.work import modules, replays, roofline
from torchreel.cli.terminal.sentences import say
from torchreel.cli.terminal.table import Column, console, draw, printable

if TYPE_CHECKING:
    from torchreel.analyze.gpu.answers import Gpu

Section = tuple[str, list[str], list[Column]]  # a heading, sentences, a table


def sections(answers: Gpu, limit: int | None) -> list[Section]:
    """What there is to say, the most important first; a part without an answer is left out."""
    found = [
        what_if(answers),
        devices(answers),
        idle(answers, limit),
        critical_path(answers, limit),
        kernels(answers, limit),
        modules(answers, limit),
        roofline(answers, limit),
        streams(answers, limit),
        launches(answers),
        collectives(answers, limit),
        copies(answers),
        graphs(answers),
        replays(answers, limit),
    ]
    return [section for section in found if section[1] or section[2]]


def show(shown: list[Section], answers: Gpu) -> None:
    """Print it."""
    out = console()
    if answers.of_cpu:
        for sentence in answers.missing:
            say(out, sentence)
        out.print()
    for heading, sentences, columns in shown:
        out.print(printable(heading), style="bold")
        for sentence in sentences:
            say(out, sentence)
        if columns:
            draw(columns, out)
        out.print()
    if not answers.of_cpu and answers.missing:
        out.print("What the recording lacks", style="bold")
        for sentence in answers.missing:
            say(out, sentence)
        out.print()
    for line in _next(answers):
        out.print(printable(line), soft_wrap=True)


def _next(answers: Gpu) -> list[str]:
    """Commands that go deeper from here."""
    name = shlex.quote(str(answers.reel.path))
    if answers.of_cpu:
        ideas = [(f"torchreel report {name}", "where the time of the CPU went")]
    else:
        ideas = [
            (f"torchreel report {name} --by kernel", "all kernels"),
            (f"torchreel report {name} --by module --sort device", "by nn.Module: what its calls launched"),
        ]
        if not answers.changes:
            ideas.append((f"torchreel gpu {name} --if 'gemm=2x'", "what faster kernels, ops or modules would gain"))
        steps = sorted({row["step"] for row in answers.reel.table("steps", ["step"]).to_pylist()})
        if answers.step is None and len(steps) > 1:
            ideas.append((f"torchreel gpu {name} --step {steps[len(steps) // 2]}", "one step"))
        ideas.append((f"torchreel view {name}", "the timeline, in a browser"))
    width = max(len(line) for line, _ in ideas)
    return [f"{'Next:' if n == 0 else '     '} {line:<{width}}  {what}" for n, (line, what) in enumerate(ideas)]
