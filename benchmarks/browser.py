"""A browser of its own for a measurement, and what processes use of processor and memory."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

CHROMIUM = "/usr/bin/chromium"
_TICKS = os.sysconf("SC_CLK_TCK")


class Browser:
    """A browser of its own, and what all its processes used."""

    def __init__(self, started: Any) -> None:
        self._before = set(_descendants())
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        self._browser = started.chromium.launch(executable_path=CHROMIUM, args=arguments)
        self.page = self._browser.new_page(viewport={"width": 1280, "height": 800})
        self.page.goto("about:blank")
        self.settle(1.0)
        self._empty_s, self._empty_bytes = self.cpu_s(), self.memory()

    def _own(self) -> list[int]:
        return [pid for pid in _descendants() if pid not in self._before and "chromium" in _name(pid)]

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self._own()))

    def memory(self) -> int:
        return sum(map(private_bytes, self._own()))

    def driver_s(self) -> float:
        """Of this process and of what drives the browser for it."""
        own = set(self._own())
        drivers = (pid for pid in _descendants() if pid not in own and "playwright" in _name(pid))
        return cpu_s(os.getpid()) + sum(map(cpu_s, drivers))

    @property
    def used_s(self) -> float:
        return self.cpu_s() - self._empty_s

    @property
    def used_bytes(self) -> int:
        return self.memory() - self._empty_bytes

    def settle(self, seconds: float) -> None:
        """Until it has hardly used the processor for so long."""
        quiet, last = time.monotonic(), self.cpu_s()
        while time.monotonic() - quiet < seconds:
            time.sleep(0.25)
            now = self.cpu_s()
            if now - last > 0.02:
                quiet = time.monotonic()
            last = now

    def close(self) -> None:
        self._browser.close()


def _descendants() -> list[int]:
    """The processes that this one began, and those began."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if entry.name.isdecimal():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def cpu_s(pid: int) -> float:
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    return 0.0


def all_cpu_s() -> float:
    """Of all processes of the machine since it started; guests are in the times of users already."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS


def private_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private_"))
    return 0
