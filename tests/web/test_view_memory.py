"""Memory and segments in a real browser: what is drawn, what a click, a drag and the keys do, and where links lead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.analyze.memory import simulated
from tests.analyze.memory.traces import Trace, user
from tests.synthetic import Process, call, write_reel
from tests.web.conftest import Page, viewing
from torchreel.analyze.memory import allocator_state, device_memories, holders
from torchreel.analyze.memory.segments import USED, usage

pytestmark = pytest.mark.browser

MIB = 1 << 20


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a CUDA allocator did, in a history that begins in the middle."""
    path = tmp_path_factory.mktemp("cuda")
    simulated.write(path, 11, count=300, skipped=60)
    return path / "trace.reel"


@pytest.fixture(scope="module")
def snapshot_page(browser: Any, cuda: Path) -> Iterator[Page]:
    with viewing(cuda) as url:
        page = Page(browser, url)
        yield page
        page.close()


def shown_bytes(page: Page, name: str) -> list[int]:
    return [int(row.get_attribute("data-bytes")) for row in page.wait_for(name).all()]


def place(page: Page) -> str:
    """The address as the page has it: the browser's driver learns of it later."""
    return str(page.page.evaluate("location.hash"))


def event_of(page: Page) -> int:
    found = re.search(r"event=(-?\d+)", place(page))
    assert found is not None, place(page)
    return int(found[1])


def span(page: Page) -> float:
    view = page.page.evaluate("torchreel.view")
    return float(view["end"] - view["begin"])


def canvas_point(page: Page, name: str, x: float, y: float) -> tuple[float, float]:
    box = page.all(name).bounding_box()
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


@pytest.mark.parametrize("by", ["stack", "module", "op", "category", "blocks"])
def test_holders_are_those_of_the_peak(page: Page, trained: Path, by: str) -> None:
    page.show(f"#/memory?by={by}")
    memory = device_memories(torchreel.load(trained))[0]
    expected = [row["bytes"] for row in holders(memory, "stack" if by == "blocks" else by).to_pylist()]
    page.until(lambda: shown_bytes(page, "holder-row") == expected, f"the holders by {by}")
    assert page.count("memory-canvas") == 1 and page.page.evaluate("torchreel.painted") > 0


def test_a_click_chooses_the_moment_and_its_holders(page: Page, trained: Path) -> None:
    page.show("#/memory?by=category")
    page.page.mouse.click(*canvas_point(page, "memory-canvas", 0.6, 0.9))
    page.until(lambda: "event=" in place(page), "a moment")
    page.settle()
    memory = device_memories(torchreel.load(trained))[0]
    expected = [row["bytes"] for row in holders(memory, "category", event_of(page)).to_pylist()]
    page.until(lambda: shown_bytes(page, "holder-row") == expected, "the holders of that moment")


def test_a_holder_leads_to_its_blocks_and_a_block_to_its_op(page: Page, trained: Path) -> None:
    page.show("#/memory?by=category")
    holder = page.wait_for("holder-row").first
    total = int(holder.get_attribute("data-bytes"))
    holder.click()
    page.until(lambda: sum(shown_bytes(page, "block")) == total, "the blocks of the holder")
    page.all("block").first.click()
    details = page.wait_for("details")
    size = int(page.all("block").first.get_attribute("data-bytes"))
    page.until(lambda: int(page.wait_for("details-bytes").get_attribute("data-bytes")) == size, "the block")
    assert details.locator("a[href*='#/source']").count() > 0
    link = details.locator("a[href*='#/timeline']")
    op = re.search(r"op=(\d+)%3A(\d+)", link.get_attribute("href"))
    assert op is not None
    link.click()
    page.wait_for("screen-timeline")
    page.settle()
    rows = torchreel.load(trained).sql(f"select name from ops where process = {op[1]} and id = {op[2]}")
    page.until(lambda: page.wait_for("details-name").inner_text() == rows["name"][0].as_py(), "the call that made it")


def test_a_block_is_selected_where_it_is_drawn(snapshot_page: Page) -> None:
    page = snapshot_page
    page.show("#/memory?by=blocks")
    page.page.mouse.click(*canvas_point(page, "memory-canvas", 0.6, 0.9))
    page.until(lambda: "block=" in place(page), "a block")
    assert "Block of" in page.wait_for("details-name").inner_text()
    number = re.search(r"block=(\d+)", place(page))
    page.page.keyboard.press("Escape")
    page.until(lambda: "block=" not in place(page), "the end of the selection")
    assert number is not None
    page.show(f"#/memory?by=blocks&block={number[1]}")
    assert "Block of" in page.wait_for("details-name").inner_text()


def test_keys_zoom_and_pan_and_the_range_is_that_of_all_screens(page: Page) -> None:
    page.show("#/memory?by=category")
    whole = span(page)
    page.page.mouse.move(*canvas_point(page, "memory-canvas", 0.7, 0.5))
    page.page.keyboard.down("w")
    page.until(lambda: span(page) < whole / 2, "zooming in")
    page.page.keyboard.up("w")
    page.settle()
    page.until(lambda: page.count("range") == 1, "the range in the top bar")
    begin = page.page.evaluate("torchreel.view.begin")
    page.page.keyboard.down("a")
    page.until(lambda: page.page.evaluate("torchreel.view.begin") < begin, "panning")
    page.page.keyboard.up("a")
    page.settle()
    # The same range brings the same view back.
    here = place(page)
    view = page.page.evaluate("torchreel.view")
    page.show("#/ops")
    page.show(here)
    again = page.page.evaluate("torchreel.view")
    assert again["begin"] == pytest.approx(view["begin"], abs=2) and again["end"] == pytest.approx(view["end"], abs=2)
    page.all("range-clear").click()
    page.until(lambda: span(page) == whole, "the whole run")
    page.page.keyboard.down("w")
    page.until(lambda: span(page) < whole / 2, "zooming in")
    page.page.keyboard.up("w")
    page.page.keyboard.press("0")
    page.until(lambda: span(page) == whole, "the whole run")
    page.settle()
    page.page.mouse.move(*canvas_point(page, "memory-canvas", 0.5, 0.5))
    page.page.keyboard.down("Control")
    page.page.mouse.wheel(0, -400)
    page.page.keyboard.up("Control")
    page.until(lambda: span(page) < whole, "zooming by the wheel")
    page.page.keyboard.press("0")
    page.settle()


def test_a_drag_shows_what_changed(page: Page, trained: Path) -> None:
    page.show("#/memory?by=category")
    page.page.mouse.move(*canvas_point(page, "memory-canvas", 0.2, 0.5))
    page.page.mouse.down()
    page.page.mouse.move(*canvas_point(page, "memory-canvas", 0.5, 0.5))
    page.page.mouse.move(*canvas_point(page, "memory-canvas", 0.9, 0.5))
    page.page.mouse.up()
    page.wait_for("change-row")
    found = re.search(r"a=(\d+)&b=(\d+)", place(page))
    assert found is not None
    history = device_memories(torchreel.load(trained))[0].history
    origin = int(torchreel.load(trained).process_rows()[0]["start_ns"])
    first, last = (int(history.times.searchsorted(int(time) + origin)) for time in found.groups())
    change = int(history.allocated[last]) - int(history.allocated[first])
    assert sum(shown_bytes(page, "change-row")) == change
    page.page.keyboard.press("r")
    page.until(lambda: "begin=" in place(page) and page.count("change-row") == 0, "the range")
    page.page.keyboard.press("0")
    page.settle()


def test_events_can_be_the_axis(page: Page) -> None:
    page.show("#/memory?by=category")
    page.all("memory-axis").select_option("events")
    page.until(lambda: "x=events" in place(page), "events")
    page.settle()
    assert page.page.evaluate("torchreel.view.end") > 10
    assert page.count("range") == 0


def test_all_by_the_keyboard(page: Page) -> None:
    page.show("#/memory?by=category")
    page.wait_for("holder-row").first.focus()
    page.page.keyboard.press("ArrowDown")
    name = page.page.evaluate("document.activeElement.dataset.name")
    assert name == page.all("holder-row").nth(1).get_attribute("data-name")
    page.page.keyboard.press("Enter")
    page.wait_for("block").first.focus()
    page.page.keyboard.press("Enter")
    page.wait_for("details-bytes")
    page.page.keyboard.press("Escape")
    page.show("#/memory?by=blocks&event=100")
    page.all("memory-canvas").focus()
    page.page.keyboard.press("ArrowRight")
    page.until(lambda: event_of(page) > 100, "the next moment")
    page.settle()
    page.page.keyboard.press("ArrowUp")
    page.until(lambda: "block=" in place(page), "a block by the keyboard")


def test_marks_say_what_the_command_says_and_lead_to_their_moment(page: Page) -> None:
    page.show("#/memory")
    sections = [each.get_attribute("data-kind") for each in page.wait_for("memory-section").all()]
    assert "peak" in sections and "fragmentation" in sections
    assert "None: the system's allocator has no segments" in page.page.inner_text("main")
    mark = page.page.locator('[data-testid="memory-mark"][data-kind="peak"]').first
    event = mark.get_attribute("data-event")
    mark.click()
    page.until(lambda: f"event={event}" in place(page), "the moment of the peak")


def test_a_cpu_run_has_blocks_and_says_why_no_segments(page: Page, trained: Path) -> None:
    page.show("#/overview")
    page.page.keyboard.press("7")
    page.wait_for("screen-segments")
    page.until(lambda: "The system's allocator has no segments" in page.page.inner_text("main"), "why")
    memory = device_memories(torchreel.load(trained))[0]
    state = allocator_state(memory, int(memory.history.allocated.argmax()) - 1)
    rows = page.wait_for("segment")
    assert [int(row.get_attribute("data-bytes")) for row in rows.all()] == state.segments.size.tolist()
    rows.first.click()
    expected = state.pieces.requested[state.pieces.segment == 0].tolist()
    page.until(lambda: shown_bytes(page, "block") == expected, "the blocks of the region")


def test_a_snapshot_opens_on_its_memory(browser: Any, cuda: Path) -> None:
    with viewing(cuda) as url:
        page = Page(browser, url)
        assert place(page) == "#/memory"
        page.wait_for("screen-memory")
        page.until(lambda: "older than the history" in page.page.inner_text("main"), "the holders")
        page.show("#/overview")  # an address that names a screen is that screen
        page.page.reload()
        page.wait_for("screen-overview")
        page.close()


def test_the_slider_goes_through_the_states(snapshot_page: Page, cuda: Path) -> None:
    page = snapshot_page
    memory = device_memories(torchreel.load(cuda))[0]
    page.show("#/segments")
    for position in (0, memory.history.events // 2, memory.history.events - 1):
        page.wait_for("segments-slider").fill(str(position))
        page.until(lambda at=position: page.all("instant").get_attribute("data-event") == str(at), "the instant")  # type: ignore[misc]
        page.settle()
        state = allocator_state(memory, position)
        sums = {
            each.get_attribute("data-name"): int(each.get_attribute("data-bytes")) for each in page.all("sum").all()
        }
        assert sums["reserved"] == usage(state).reserved == memory.history.reserved[position + 1]
        assert (sums["split"], sums["cached"]) == (usage(state).split, usage(state).cached)
        shown = [int(row.get_attribute("data-bytes")) for row in page.all("segment").all()]
        assert shown == state.segments.size.tolist()[: len(shown)] and (shown or not len(state.segments))
    page.all("segments-slider").focus()
    page.page.keyboard.press("ArrowLeft")
    last = memory.history.events - 2
    page.until(lambda: page.all("instant").get_attribute("data-event") == str(last), "the event before")


def test_the_curve_chooses_an_instant_too(snapshot_page: Page) -> None:
    page = snapshot_page
    page.show("#/segments?event=0")
    page.page.mouse.click(*canvas_point(page, "segments-curve", 0.75, 0.5))
    page.until(lambda: event_of(page) > 0, "an instant")
    page.settle()


def test_a_segment_has_its_blocks_and_a_block_its_life(snapshot_page: Page, cuda: Path) -> None:
    page = snapshot_page
    memory = device_memories(torchreel.load(cuda))[0]
    position = int(memory.history.allocated.argmax()) - 1
    state = allocator_state(memory, position)
    page.show("#/segments")
    page.page.locator('[aria-label^="segments:"]').focus()
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("ArrowDown")
    page.until(lambda: f"segment={int(state.segments.address[1]):#x}" in place(page), "the second segment")
    mine = (state.pieces.segment == 1) & (state.pieces.state == USED)
    page.until(lambda: shown_bytes(page, "block") == state.pieces.requested[mine].tolist(), "its blocks")
    assert [int(row.get_attribute("data-size")) for row in page.all("block").all()] == state.pieces.size[mine].tolist()
    page.page.keyboard.press("ArrowRight")
    page.until(lambda: f"block={state.pieces.block[mine][0]}" in place(page), "its first block")
    page.wait_for("details-bytes")
    page.page.locator("[data-testid=details] a[href*='#/memory']").click()
    page.wait_for("screen-memory")
    assert "by=blocks" in place(page) and "Block of" in page.wait_for("details-name").inner_text()


def test_simulate_stands_beside(snapshot_page: Page) -> None:
    page = snapshot_page
    page.show("#/segments")
    rows = page.wait_for("simulated", 6)
    assert rows.first.inner_text().startswith("peak reserved")
    page.all("simulate-conf").fill("max_split_size_mb:1")
    page.all("simulate-conf").press("Enter")
    page.until(lambda: "must be a whole number of MiB" in page.page.inner_text("main"), "why it is refused")
    page.all("simulate-conf").fill("expandable_segments:True")
    page.all("simulate-conf").press("Enter")
    page.until(lambda: "With it" in page.page.inner_text("main"), "a third column")


def test_few_elements_however_many_segments(browser: Any, tmp_path: Path) -> None:
    trace = Trace()
    for number in range(3_000):
        trace.event("segment_alloc", 4 * MIB * number, 2 * MIB)
        trace.alloc(4 * MIB * number, 1_000, user(1))
    for number in range(3_000):
        trace.segment(4 * MIB * number, 2 * MIB, (1_024, "active_allocated"), (2 * MIB - 1_024, "inactive"))
    with viewing(trace.write(tmp_path / "run.reel")) as url:
        page = Page(browser, url)
        page.show("#/segments")
        page.wait_for("segment")
        assert page.count("segment") < 100
        page.page.evaluate("document.querySelector('.seg-scroll').scrollTo(0, 17 * 2000)")
        address = hex(4 * MIB * 2_000)
        page.until(lambda: page.all("segment").first.get_attribute("data-address") == address, "other segments")
        assert page.count("segment") < 100
        page.close()


def test_without_memory_and_without_anything(browser: Any, tmp_path: Path) -> None:
    with viewing(write_reel(tmp_path / "plain.reel", Process({"main": [call("aten::mm", 5_000)]}))) as url:
        page = Page(browser, url)
        page.show("#/segments")
        assert "--memory" in page.wait_for("empty").first.inner_text()
        page.close()
    with viewing(write_reel(tmp_path / "empty.reel", Process({}))) as url:
        page = Page(browser, url)
        assert "#/memory" not in place(page)
        for screen in ("memory", "segments"):
            page.show(f"#/{screen}")
            assert "--memory" in page.wait_for("empty").first.inner_text()
        page.close()


HOSTILE = '<img src=x onerror="window.hacked=1">'


def test_nothing_of_a_snapshot_is_ever_markup(browser: Any, tmp_path: Path) -> None:
    trace = Trace(HOSTILE)
    trace.alloc(0, 5_000, (f"/home/{HOSTILE}.py", 3, HOSTILE))
    trace.segment(0, 2 * MIB, (5_120, "active_allocated"), pool=HOSTILE)
    with viewing(trace.write(tmp_path / "run.reel")) as url:
        page = Page(browser, url)
        for screen in ("memory", "memory?by=blocks&block=0", "segments?segment=0x0&block=0", f"memory?name={HOSTILE}"):
            page.show(f"#/{screen}")
            assert page.page.evaluate("window.hacked") is None
            assert page.page.locator("img").count() == 0
        page.close()
