"""Reel -> speedscope's file format (https://www.speedscope.app), one evented profile per thread."""

from __future__ import annotations

from typing import BinaryIO

from torchreel._version import __version__
from torchreel.export.output import Progress, Target, writing
from torchreel.export.texts import quoted
from torchreel.export.timeline.timeline import Timeline
from torchreel.export.timeline.tracks import Track
from torchreel.reel import Reel

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write(reel: Reel, target: Target, progress: Progress) -> None:
    """Write the whole reel as one speedscope file."""
    with Timeline(reel) as timeline, writing(target) as file:
        _Writer(timeline, file).write(reel.path.name, progress)


class _Writer:
    """Writes profiles as they come and the frames that they share at the end."""

    def __init__(self, timeline: Timeline, file: BinaryIO) -> None:
        self._timeline = timeline
        self._file = file
        self._base = 0
        self._frames: dict[str, int] = {}
        self._profile: _Profile | None = None
        self._profiles = 0

    def write(self, name: str, progress: Progress) -> None:
        timeline = self._timeline
        total, done = timeline.count("ops"), 0
        self._base = timeline.first_ns()
        head = f'"$schema": "{_SCHEMA}", "exporter": "torchreel {__version__}", "name": {quoted(name)}'
        self._file.write(f'{{{head}, "activeProfileIndex": 0, "profiles": [\n'.encode())
        for process in timeline.processes:
            for track, batch in timeline.slices("ops", process, ["name"]):
                profile = self._profile_of(track)
                starts = batch.column("start_ns").to_numpy() - self._base
                ends = starts + batch.column("dur_ns").to_numpy()
                names = batch.column("name").to_pylist()
                frames = [self._frames.setdefault(name, len(self._frames)) for name in names]
                profile.write(starts.tolist(), ends.tolist(), frames)
                done += batch.num_rows
                progress(done, total)
        self._end_profile()
        shared = ",\n".join(f'{{"name": {quoted(name)}}}' for name in self._frames)
        self._file.write(f'\n], "shared": {{"frames": [\n{shared}\n]}}}}\n'.encode())

    def _profile_of(self, track: Track) -> _Profile:
        if self._profile is None or self._profile.track is not track:
            self._end_profile()
            several = len(self._timeline.processes) > 1
            name = f"{track.process.name} {track.process.pid}: {track.name}" if several else track.name
            self._file.write(b",\n" if self._profiles else b"")
            self._file.write(
                f'{{"type": "evented", "name": {quoted(name)}, "unit": "nanoseconds", "events": [\n'.encode()
            )
            self._profile = _Profile(track, self._file)
            self._profiles += 1
        return self._profile

    def _end_profile(self) -> None:
        if self._profile is not None:
            self._profile.close()
            self._profile = None


class _Profile:
    """One thread's events: each slice is opened and closed, and what is opened last is closed first."""

    def __init__(self, track: Track, file: BinaryIO) -> None:
        self.track = track
        self._file = file
        self._open: list[tuple[int, int]] = []
        self._first: int | None = None
        self._last = 0

    def write(self, starts: list[int], ends: list[int], frames: list[int]) -> None:
        """Write slices, which begin in this order and lie within one another or apart."""
        stack, lines = self._open, []
        comma = ",\n" if self._first is not None else ""
        if self._first is None:
            self._first = starts[0]
        for start, end, frame in zip(starts, ends, frames, strict=True):
            while stack and stack[-1][0] <= start:
                at, closing = stack.pop()
                lines.append(f'{{"type":"C","frame":{closing},"at":{at}}}')
            lines.append(f'{{"type":"O","frame":{frame},"at":{start}}}')
            stack.append((end, frame))
        self._last = max(self._last, max(ends))
        self._file.write((comma + ",\n".join(lines)).encode())

    def close(self) -> None:
        lines = [f',\n{{"type":"C","frame":{frame},"at":{at}}}' for at, frame in reversed(self._open)]
        self._file.write(("".join(lines) + f'\n], "startValue": {self._first}, "endValue": {self._last}}}').encode())
