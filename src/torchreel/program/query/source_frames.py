"""Where in the user's own source an op was called."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Iterator

from torchreel.program.model import Frame, Op, Program

# Files that the user did not write: torch's, wherever it is installed or built, ours, and those that are no files.
_NOT_THE_USERS = re.compile(
    r"^<|[/\\](?:site|dist)-packages[/\\](?:torch|functorch|torchgen|torchreel)[/\\]"
    r"|[/\\]torchreel[/\\](?:tape|graphs|record|cli)[/\\]"
    r"|[/\\]torch[/\\](?:nn|optim|autograd|utils|func|fx|jit|ao|nested|sparse|distributed|_[a-z]\w*)[/\\]"
    r"|[/\\]torch[/\\](?:functional|library|_[a-z]\w*)\.py$"
)


def source_frame(program: Program, op: Op) -> Frame | None:
    """The innermost frame of an op's stack that is the user's own; if all are torch's, the innermost of these."""
    innermost = None
    for frame in frames_of(program, op):
        if is_the_users(frame.file):
            return frame
        innermost = innermost or frame
    return innermost


def frames_of(program: Program, op: Op) -> Iterator[Frame]:
    """The frames of an op's stack, innermost first."""
    return _frames(program, op.stack)


def source_line(program: Program, op: Op) -> str:
    """`train.py:31 in step: loss = model(x)`; empty for an op without a stack."""
    frame = source_frame(program, op)
    if frame is None:
        return ""
    if not frame.text:
        frame = Frame(frame.file, frame.line, frame.function, linecache.getline(frame.file, frame.line))
    return frame_line(frame, re.split(r"[/\\]", frame.file)[-1])


def frame_line(frame: Frame, file: str) -> str:
    """A frame in one line, its file under the given name."""
    where = f"{file}:{frame.line} in {frame.function}"
    return f"{where}: {frame.text.strip()}" if frame.text.strip() else where


def short_files(program: Program) -> dict[str, str]:
    """Each file that is named in the program -> its last parts, as many as tell it from the others."""
    files = sorted({frame.file for frame in program.frames})
    short: dict[str, str] = {}
    for file in files:
        parts = re.split(r"[/\\]", file)
        for count in range(1, len(parts) + 1):
            end = "/".join(parts[-count:])
            if count == len(parts) or sum(_ends_with(other, end) for other in files) == 1:
                short[file] = end
                break
    return short


@functools.lru_cache(maxsize=4096)
def is_the_users(file: str) -> bool:
    """Whether it is none of torch's and none of ours."""
    return _NOT_THE_USERS.search(file) is None


def _ends_with(file: str, end: str) -> bool:
    path = file.replace("\\", "/")
    return path == end or path.endswith("/" + end)


def _frames(program: Program, stack: int) -> Iterator[Frame]:
    """The frames of a stack, innermost first."""
    # A damaged program may have a stack that is its own caller: no stack is longer than all there are.
    for _ in program.stacks:
        if not 0 < stack < len(program.stacks):
            return
        entry = program.stacks[stack]
        if 0 <= entry.frame < len(program.frames):
            yield program.frames[entry.frame]
        stack = entry.parent
