"""A reel in a notebook: its summary, and its page in a frame."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.export_formats import needs_page
from tests.synthetic import Process, call, write_reel
from tests.web.conftest import PATIENCE_S

HOSTILE = '</td><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_reel_shows_its_summary(trained: Path) -> None:
    reel = torchreel.load(trained)
    shown = Tags(reel._repr_html_())
    assert set(shown.tags) <= {"div", "b", "table", "tr", "th", "td", "code"}
    count = reel.table("ops", ["id"]).num_rows
    assert f"run.reel: {count:,} ops" in shown.text
    for row in torchreel.averages(reel, limit=10).to_pylist():
        assert row["name"] in shown.text
    assert shown.tags.count("tr") == 11


def test_nothing_of_a_reel_is_markup(tmp_path: Path) -> None:
    reel = torchreel.load(
        write_reel(tmp_path / f"{HOSTILE.replace('/', '-')}.reel", Process({"main": [call(HOSTILE, 5_000)]}))
    )
    shown = Tags(reel._repr_html_())
    assert set(shown.tags) <= {"div", "b", "table", "tr", "th", "td", "code"}
    assert HOSTILE in shown.text


def test_a_damaged_or_empty_reel_is_told_too(tmp_path: Path) -> None:
    empty = torchreel.load(write_reel(tmp_path / "empty.reel", Process({})))
    assert "0 ops" in Tags(empty._repr_html_()).text
    path = write_reel(tmp_path / "run.reel", Process({"main": [call("aten::mm", 5_000)]}))
    reel = torchreel.load(path)
    (file,) = path.glob("*/ops.parquet")
    file.write_bytes(file.read_bytes()[:100])
    assert "ops.parquet ends after 100 bytes" in Tags(reel._repr_html_()).text


@needs_page
def test_a_view_is_a_sandboxed_frame(trained: Path) -> None:
    shown = torchreel.load(trained).view(height=500)._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" srcdoc="')
    assert Tags(shown).tags == ["iframe"] and "height: 500px" in shown
    assert len(shown) < 6_000_000


@pytest.mark.browser
def test_the_page_works_in_the_frame_of_a_notebook(browser: Any, trained: Path, tmp_path: Path) -> None:
    reel = torchreel.load(trained)
    notebook = tmp_path / "notebook.html"
    view = reel.view()._repr_html_()
    notebook.write_text(f"<!doctype html><meta charset=utf-8><body>{reel._repr_html_()}{view}", encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{notebook.as_uri()}#here")
    (frame,) = page.frames[1:]

    def until(condition: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not frame.evaluate(condition):
            assert time.monotonic() < deadline, f"{condition} did not come true; errors: {errors}"
            time.sleep(0.05)

    def settle() -> None:
        until("!!(window.torchreel && torchreel.ready && torchreel.idle)")

    settle()
    assert frame.evaluate("window.origin") == "null", "the frame's script could reach the notebook"
    names = [link.get_attribute("data-testid") for link in frame.locator("nav a").all()]
    for name in (*names, "nav-timeline"):
        frame.click(f'[data-testid="{name}"]')
        until(f"!!document.querySelector('[data-testid=\"{name.replace('nav-', 'screen-')}\"]')")
        settle()
        assert frame.locator("main .error").count() == 0, name
    frame.fill('[data-testid="search"]', "addmm")
    settle()
    until("!!document.querySelector('[data-testid=\"search-count\"]')")
    frame.press('[data-testid="search"]', "Enter")
    until("!!document.querySelector('[data-testid=\"details-name\"]')")
    assert "addmm" in frame.inner_text('[data-testid="details-name"]').lower()
    before = frame.evaluate("document.documentElement.dataset.theme")
    frame.click('[data-testid="theme"]')
    until(f"document.documentElement.dataset.theme !== {before!r}")
    assert re.search(r"notebook\.html#here$", page.url)
    assert errors == []
    page.close()
