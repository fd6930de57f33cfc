"""The comment lines above ops: where in the user's source they were called, and in which module."""

from __future__ import annotations

from collections.abc import Iterator

from torchreel.program.model import Frame, Op, Program
from torchreel.program.query.source_frames import frame_line, short_files, source_frame
from torchreel.program.text.literals import comment


class Comments:
    """Says where ops come from, once for each group of them that comes from one place."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._files = short_files(program)
        self._frames: dict[int, Frame | None] = {}  # by stack
        self._last: str | None = None

    def above(self, op: Op) -> Iterator[str]:
        """An empty line and a comment if the op comes from elsewhere than the one before it."""
        text = self.where(op)
        extra = self._context(op)
        line = f"{text}  [{extra}]" if extra and text else text or extra
        if line != self._last:
            self._last = line
            yield ""
            if line:
                yield f"# {comment(line)}"

    def where(self, op: Op) -> str:
        """`train.py:31 in step: loss = model(x)`."""
        frame = self._frame(op)
        return frame_line(frame, self._files[frame.file]) if frame is not None else ""

    def _context(self, op: Op) -> str:
        """The module; in backward, the line and module whose gradient it is."""
        if not op.backward:
            return self._module(op)
        if not 0 <= op.forward < len(self._program.ops):
            return "backward"
        source = self._program.ops[op.forward]
        frame = self._frame(source)
        location = f"{self._files[frame.file]}:{frame.line}" if frame is not None else source.name
        return ", ".join(filter(None, (f"gradient of {location}", self._module(source))))

    def _module(self, op: Op) -> str:
        if not 0 <= op.module < len(self._program.modules):
            return ""
        module = self._program.modules[op.module]
        return f"{module.path} {module.type}".strip()

    def _frame(self, op: Op) -> Frame | None:
        if op.stack not in self._frames:
            self._frames[op.stack] = source_frame(self._program, op)
        return self._frames[op.stack]
