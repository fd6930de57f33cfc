"""Which steps to record."""

from __future__ import annotations

from dataclasses import dataclass

from torchreel.errors import OptionError


@dataclass(frozen=True)
class Schedule:
    """Skip `skip_first` steps; then wait, warm up and record, over and over, `repeat` times (0: for ever)."""

    wait: int = 0
    warmup: int = 0
    active: int = 1
    repeat: int = 0
    skip_first: int = 0
    skip_first_wait: int = 0
    """1 to leave out the first wait, as torch.profiler.schedule has it."""

    def __post_init__(self) -> None:
        for name in ("wait", "warmup", "repeat", "skip_first", "skip_first_wait"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name}={getattr(self, name)} of a schedule is negative: give 0 or more.")
        if self.active < 1:
            raise OptionError(f"active={self.active} of a schedule records nothing: give 1 or more.")

    def records(self, step: int) -> bool:
        """Whether this step, counted from 0, is recorded."""
        step -= self.skip_first
        if step < 0:
            return False
        if self.skip_first_wait:
            step += self.wait
        cycle = self.wait + self.warmup + self.active
        if self.repeat and step >= cycle * self.repeat:
            return False
        return step % cycle >= self.wait + self.warmup


def schedule(
    *,
    wait: int = 0,
    warmup: int = 0,
    active: int = 1,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Schedule:
    """A schedule for `torchreel.record(..., schedule=...)`, in the words of torch.profiler.schedule."""
    return Schedule(wait, warmup, active, repeat, skip_first, skip_first_wait)
