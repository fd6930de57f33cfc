"""The viewer in a real browser: its screens, keys and addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from tests.web.conftest import Page, viewing
from torchreel.analyze import averages, typical_step
from torchreel.analyze.memory import device_memories, holders

pytestmark = pytest.mark.browser


def test_the_token_does_not_stay_in_the_address(page: Page) -> None:
    assert "token" not in page.address()


def test_the_overview_adds_up_to_a_step(page: Page, trained: Path) -> None:
    page.show("#/overview")
    step = typical_step(torchreel.load(trained))
    assert step is not None
    parts = page.wait_for("phase", 6)
    shown = {part.get_attribute("data-phase"): int(part.get_attribute("data-ns")) for part in parts.all()}
    assert shown == step.phase_ns and sum(shown.values()) == step.wall_ns
    assert page.count("step-column") == step.steps


def test_the_ops_are_those_of_the_report(page: Page, trained: Path) -> None:
    page.show("#/ops")
    rows = page.wait_for("op-row", 10)
    expected = averages(torchreel.load(trained)).to_pylist()
    first = rows.first
    assert first.get_attribute("data-name") == expected[0]["name"]
    assert int(first.get_attribute("data-self-ns")) == expected[0]["self_ns"]
    assert page.count("op-row") == len(expected)


def test_modules_and_source(page: Page) -> None:
    page.show("#/modules")
    paths = [row.get_attribute("data-path") for row in page.wait_for("module-row", 3).all()]
    assert {"Sequential.0", "Sequential.2"} <= set(paths)
    page.show("#/source")
    assert page.wait_for("source-line").first.get_attribute("data-self-ns") is not None


def test_flame_and_memory(page: Page, trained: Path) -> None:
    page.show("#/flame")
    assert page.wait_for("flame-canvas").count() == 1
    page.show("#/memory")
    rows = page.wait_for("holder-row")
    memory = next(iter(device_memories(torchreel.load(trained))))
    expected = holders(memory, "stack").to_pylist()
    assert [int(row.get_attribute("data-bytes")) for row in rows.all()] == [row["bytes"] for row in expected]
    page.all("memory-canvas").click(position={"x": 5, "y": 50})
    page.until(lambda: "event=" in page.address(), "another moment")


def test_the_tape_has_its_ops(page: Page, trained: Path) -> None:
    page.show("#/tape")
    count = torchreel.load(trained).sql("select count(*) as n from tape_ops")["n"][0].as_py()
    assert page.wait_for("tape-op", 10).count() == count
    page.all("tape-op").first.click()
    page.wait_for("screen-timeline")


def test_a_call_is_selected_by_a_click_and_has_an_address(page: Page, trained: Path) -> None:
    reel = torchreel.load(trained)
    mm = reel.sql("select process, id, dur_ns from ops where name = 'aten::addmm' order by dur_ns desc limit 1")
    process, number, duration = (mm[name][0].as_py() for name in ("process", "id", "dur_ns"))
    page.show(f"#/timeline?op={process}:{number}")
    page.until(lambda: page.wait_for("details-name").inner_text() == "aten::addmm", "the selection by its address")
    assert int(page.all("details-dur").get_attribute("data-ns")) == duration
    # What the recording has of no call is told apart from what this one has not.
    shown = page.all("details").inner_text()
    assert "record with" not in shown and "nn.Module: " not in shown
    # Centred and fitted, it is where the page says, and a click there finds it again.
    page.page.keyboard.press("f")
    page.page.keyboard.press("f")
    page.settle()
    spot = page.page.evaluate(f"torchreel.place({process}, {number})")
    assert spot is not None and spot["width"] > 100
    x, y = spot["x"] + spot["width"] / 2, spot["y"]
    assert page.page.evaluate(f"torchreel.at({x}, {y})") == {"process": process, "id": number, "name": "aten::addmm"}
    page.page.keyboard.press("Escape")
    page.until(lambda: page.count("details-name") == 0, "the end of the selection")
    box = page.all("timeline-canvas").bounding_box()
    page.page.mouse.click(box["x"] + x, box["y"] + y)
    assert page.wait_for("details-name").inner_text() == "aten::addmm"


def test_keys_zoom_and_pan(page: Page) -> None:
    page.show("#/timeline")
    page.page.keyboard.press("0")
    page.settle()
    whole = page.page.evaluate("torchreel.view")
    box = page.all("timeline-canvas").bounding_box()
    page.page.mouse.move(box["x"] + 700, box["y"] + 300)
    page.page.keyboard.down("w")
    page.until(lambda: _span(page) < (whole["end"] - whole["begin"]) / 2, "zooming in")
    page.page.keyboard.up("w")
    begin = page.page.evaluate("torchreel.view.begin")
    page.page.keyboard.down("d")
    page.until(lambda: page.page.evaluate("torchreel.view.begin") > begin, "panning")
    page.page.keyboard.up("d")
    page.page.keyboard.press("0")
    page.until(lambda: _span(page) == whole["end"] - whole["begin"], "the whole run")
    assert page.page.evaluate("torchreel.painted") > 0 and page.page.evaluate("torchreel.frames.length") > 0


def _span(page: Page) -> float:
    view = page.page.evaluate("torchreel.view")
    return float(view["end"] - view["begin"])


def test_digits_are_screens_and_a_question_mark_is_help(page: Page) -> None:
    page.show("#/overview")
    for key, screen in (
        ("2", "timeline"),
        ("3", "flame"),
        ("4", "ops"),
        ("5", "modules"),
        ("8", "source"),
        ("1", "overview"),
    ):
        page.page.keyboard.press(key)
        page.wait_for(f"screen-{screen}")
    page.page.keyboard.press("?")
    assert "zoom" in page.wait_for("help").inner_text()
    page.page.keyboard.press("Escape")
    page.until(lambda: page.count("help") == 0, "the end of help")


def test_search_counts_and_no_key_is_taken_while_typing(page: Page, trained: Path) -> None:
    page.show("#/timeline")
    page.page.keyboard.press("/")
    page.page.keyboard.type("addmm")
    count = torchreel.load(trained).sql("select count(*) as n from ops where name ilike '%addmm%'")["n"][0].as_py()
    page.until(lambda: page.count("search-count") == 1, "a count")
    assert page.all("search-count").inner_text().startswith(f"{count} calls")
    assert page.count("screen-timeline") == 1
    page.page.keyboard.press("Enter")
    assert "addmm" in page.wait_for("details-name").inner_text().lower()
    page.page.keyboard.press("Escape")
    page.all("search").fill("")


def test_sql_and_its_errors(page: Page) -> None:
    page.show("#/sql")
    page.wait_for("sql-input").fill("select 41 + 1 as answer")
    page.all("sql-run").click()
    assert page.wait_for("sql-row").inner_text() == "42"
    # Larger than JavaScript's numbers can tell apart.
    page.all("sql-input").fill("select 1794952607883485219 as start_ns")
    page.all("sql-run").click()
    page.until(lambda: page.all("sql-row").inner_text() == "1794952607883485219", "the exact number")
    page.all("sql-input").fill("drop table ops")
    page.all("sql-run").click()
    assert "Only SELECT" in page.wait_for("sql-error").inner_text()


def test_dark_and_light(page: Page) -> None:
    page.show("#/overview?theme=light")
    assert page.page.evaluate("document.documentElement.dataset.theme") == "light"
    page.all("theme").click()
    page.until(lambda: page.page.evaluate("document.documentElement.dataset.theme") == "dark", "dark")
    assert "theme=dark" in page.address()


def test_a_reel_without_anything_says_what_to_record(browser: Any, tmp_path: Path) -> None:
    with viewing(write_reel(tmp_path / "plain.reel", Process({"main": [call("aten::mm", 5_000)]}))) as url:
        page = Page(browser, url)
        page.show("#/modules")
        assert "--modules" in page.wait_for("empty").first.inner_text()
        page.show("#/source")
        assert "--stacks" in page.wait_for("empty").first.inner_text()
        page.show("#/tape")
        assert "--tape" in page.wait_for("empty").first.inner_text()
        page.show("#/memory")
        assert "--memory" in page.wait_for("empty").first.inner_text()
        page.show("#/diff")
        assert "after.reel" in page.wait_for("empty").first.inner_text()
        page.close()
    with viewing(write_reel(tmp_path / "empty.reel", Process({}))) as url:
        page = Page(browser, url)
        assert "No ops" in page.wait_for("empty").first.inner_text()
        page.show("#/timeline")
        page.close()


HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"\'&\u202e\x1b[31m'


def test_nothing_of_a_reel_is_ever_markup(browser: Any, tmp_path: Path) -> None:
    """Markup in every name: it is shown as text, and nothing of it runs."""
    stack = ((f"/home/{HOSTILE}.py", 3, HOSTILE),)
    calls = [
        call(HOSTILE, 5_000, call(f"{HOSTILE} inside", 3_000, stack=stack), kind="module", module=HOSTILE, stack=stack),
        call(HOSTILE, 2_000, inputs=f'[["{HOSTILE}"]]', stack=stack),
    ]
    process = Process({HOSTILE: calls}, allocs=[("alloc", 5)])
    with viewing(write_reel(tmp_path / "run.reel", process)) as url:
        page = Page(browser, url)
        for screen in ("overview", "timeline", "flame", "memory", "ops", "modules", "source", "sql", "timeline?op=0:0"):
            page.show(f"#/{screen}")
            assert page.page.evaluate("window.hacked") is None
            assert page.page.locator("img").count() == 0
        assert page.wait_for("details-name").inner_text().startswith("<img src=x")
        page.close()


def test_a_server_that_goes_away_is_said(browser: Any, trained: Path) -> None:
    with viewing(trained) as url:
        page = Page(browser, url)
        page.show("#/overview")
    page.page.evaluate("location.hash = '#/ops'")
    page.until(lambda: "does not answer" in page.page.inner_text("main"), "a sentence")
    page.close()


def test_two_reels_are_compared(browser: Any, trained: Path, tmp_path: Path) -> None:
    other = write_reel(tmp_path / "other.reel", Process({"main": [call("aten::mm", 5_000)]}))
    with viewing(other, trained) as url:
        page = Page(browser, url)
        page.show("#/diff")
        rows = page.wait_for("diff-row", 10)
        assert rows.first.get_attribute("data-change-ns") is not None
        page.close()


def test_two_browsers_at_once(browser: Any, trained: Path) -> None:
    with viewing(trained) as url:
        pages = [Page(browser, url) for _ in range(2)]
        for page in pages:
            page.show("#/timeline")
        views = [page.page.evaluate("JSON.stringify(torchreel.view)") for page in pages]
        assert views[0] == views[1] and json.loads(views[0])["end"] > 0
        for page in pages:
            page.close()
