"""Does a run of 10^7 calls move at 60 frames per second?

Keys are held that zoom and pan, and the browser tells when each frame began. That is wall time, and so about this
machine alone: where other programs take more than a tenth of a core meanwhile, there is no verdict, and the detail has
what was seen.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.browser import CHROMIUM, Browser, all_cpu_s, cpu_s
from benchmarks.long_reel import lengthen
from benchmarks.result import Goal, Result, Spread
from benchmarks.viewer import GESTURES, hold, open_page, p95, record, viewing

ROUNDS = 3
_OTHERS = 0.1
"""As many cores may be busy with other things."""


@dataclass
class Round:
    intervals_ms: list[float]
    drawing_ms: list[float]
    others: float
    """How many cores other programs used meanwhile."""
    browser_s: float
    painted: int


def measure(quick: bool) -> list[Result]:
    if not Path(CHROMIUM).exists():
        return [Result("panning and zooming", None, detail=f"there is no {CHROMIUM}")]
    calls, rounds = (60_000, 1) if quick else (10_000_000, ROUNDS)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "long.reel"
        record(Path(directory) / "run.reel")
        lengthen(Path(directory) / "run.reel", path, calls)
        return results(calls, [look(path) for _ in range(rounds)])


def results(calls: int, rounds: list[Round]) -> list[Result]:
    what = f"panning and zooming, {calls:,} calls"
    others = max(each.others for each in rounds)
    frames = sum(len(each.intervals_ms) for each in rounds)
    paced = [
        (f"{what}: from frame to frame, p95", [p95(each.intervals_ms) for each in rounds], 20),
        (f"{what}: the longest", [max(each.intervals_ms) for each in rounds], 100),
    ]
    return [
        *(_paced(name, Spread.of(values), Goal(goal), frames, others) for name, values, goal in paced),
        Result(f"{what}: drawing a frame, p95", Spread.of([p95(each.drawing_ms) for each in rounds]), None, "ms"),
        Result(
            f"{what}: CPU of the browser per frame",
            Spread.of([1e3 * each.browser_s / max(each.painted, 1) for each in rounds]),
            None,
            "ms",
        ),
    ]


def _paced(what: str, found: Spread, goal: Goal, frames: int, others: float) -> Result:
    detail = f"{frames:,} frames, other programs used {others:.2f} of {os.cpu_count()} cores"
    if others <= _OTHERS:
        return Result(what, found, goal, "ms", detail)
    return Result(what, None, goal, "ms", f"{found.median:.0f} ms seen, which says nothing of this program: {detail}")


# Times of all frames of the browser, whether something was drawn in them or not.
_TIME_FRAMES = """() => {
    window.frameTimes = [];
    const tick = (now) => { window.frameTimes.push(now); requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
}"""


def look(path: Path) -> Round:
    """Hold the keys, and time the frames meanwhile."""
    from playwright.sync_api import sync_playwright

    with viewing(path) as (url, server), sync_playwright() as started:
        browser = Browser(started)
        try:
            open_page(browser.page, url, "timeline")
            browser.settle(2.0)
            page: Any = browser.page
            page.evaluate(_TIME_FRAMES)
            painted, own = page.evaluate("torchreel.painted"), _Used(browser, server)
            intervals: list[float] = []
            for key, seconds in GESTURES:
                page.evaluate("window.frameTimes.length = 0")
                hold(page, key, seconds)
                times = page.evaluate("window.frameTimes")
                intervals += [after - before for before, after in itertools.pairwise(times)]
            others, used = own.since()
            drawn = int(page.evaluate("torchreel.painted")) - int(painted)
            return Round(intervals, list(page.evaluate("torchreel.frames"))[-drawn:], others, used, drawn)
        finally:
            browser.close()


class _Used:
    """What this measurement and the whole machine use from now on."""

    def __init__(self, browser: Browser, server: int) -> None:
        self._browser, self._server = browser, server
        self._before = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        browser = self._browser.cpu_s()
        return time.monotonic(), all_cpu_s(), browser, browser + cpu_s(self._server) + self._browser.driver_s()

    def since(self) -> tuple[float, float]:
        """How many cores others used, and the CPU seconds of the browser."""
        began, now = self._before, self._now()
        passed, total, browser, own = (after - before for before, after in zip(began, now, strict=True))
        return max(0.0, (total - own) / passed), browser
