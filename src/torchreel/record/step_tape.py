"""The tape of one step of a recording: begun and ended where the recorder counts its steps."""

from __future__ import annotations

import contextlib
from pathlib import Path

from torchreel.errors import TorchreelError, first_line
from torchreel.tape.capture.span import Span
from torchreel.tape.quiet import unobserved


class StepTape:
    """Waits for its step, traces it, and writes it beside the process's tables. Never disturbs the program."""

    def __init__(self, step: int, directory: Path) -> None:
        self._step = step
        self._path = directory / f"step-{step}.tape"
        self._span: Span | None = None
        self._reached = -1
        self.problem = ""  # why there is no tape, in a sentence

    def begins(self, step: int) -> None:
        """A step begins."""
        self._reached = step
        if step != self._step:
            return
        try:
            self._span = Span()
        except TorchreelError as error:
            self._say(str(error))

    def ends(self) -> None:
        """The step that began last is over."""
        span, self._span = self._span, None
        if span is None:
            return
        # What is done here is not the program's: neither in the recording, nor seen if it fails.
        with unobserved():
            try:
                tape = span.end()
                if not len(tape):
                    return
                self._path.parent.mkdir(exist_ok=True)  # a short program has left nothing there yet
                tape.save(self._path, data=False)
            except Exception as error:
                self._say(f"{first_line(error)}.")

    def forget(self) -> None:
        """Steps are counted from the first again: the traced step had another number."""
        span, self._span = self._span, None
        if span is not None:
            with unobserved(), contextlib.suppress(TorchreelError):
                span.end()
        self._path.unlink(missing_ok=True)
        self.problem = ""

    def close(self) -> None:
        """The recording is over; so is the step, if it is the last one."""
        self.ends()
        if self.problem or self._path.exists():
            return
        if self._reached <= 0:
            self.problem = (
                f"There is no tape of step {self._step}, because the program counted no steps: an optimizer's step() "
                "or recorder.step() ends one; without them, trace a part of the program with torchreel.tracing()."
            )
        else:
            self.problem = (
                f"There is no tape of step {self._step}: the last step in which an op ran was before it "
                f"({self._reached} ended), so name an earlier one, from 0."
            )

    def _say(self, reason: str) -> None:
        self.problem = f"There is no tape of step {self._step}. {reason}"
