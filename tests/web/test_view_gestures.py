"""What fingers do on the timeline, in a real browser: wheel, drag, double click, the way through a search, and Back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import torchreel
from tests.web.conftest import Page, viewing
from tests.web.gpu_reel import STEP_NS, write_ranks

pytestmark = pytest.mark.browser

LEFT = 152
X, Y = 700, 300


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> torchreel.Reel:
    return torchreel.load(write_ranks(tmp_path_factory.mktemp("ranks") / "run.reel"))


@pytest.fixture(scope="module")
def shared(browser: Any, ranks: torchreel.Reel) -> Iterator[Page]:
    with viewing(ranks.path) as url:
        page = Page(browser, url)
        yield page
        page.close()


@pytest.fixture
def page(shared: Page) -> Page:
    """The whole run on the timeline, the tracks not scrolled, the pointer on it, nothing selected."""
    shared.page.evaluate("location.hash = '#/overview'")
    shared.show("#/timeline")
    box = shared.all("timeline-canvas").bounding_box()
    shared.page.mouse.move(box["x"] + X, box["y"] + Y)
    return shared


def view(page: Page) -> tuple[float, float]:
    found = page.page.evaluate("torchreel.view")
    return float(found["begin"]), float(found["end"])


def time_at(page: Page, x: float) -> float:
    begin, end = view(page)
    width = float(page.all("timeline-canvas").bounding_box()["width"]) - LEFT
    return begin + (x - LEFT) / width * (end - begin)


def wheel(page: Page, by: float, *keys: str) -> None:
    for key in keys:
        page.page.keyboard.down(key)
    page.page.mouse.wheel(0, by)
    for key in keys:
        page.page.keyboard.up(key)


def zoomed(page: Page) -> None:
    """To a quarter of the run."""
    begin, end = view(page)
    wheel(page, -700, "Control")
    page.until(lambda: view(page)[1] - view(page)[0] < 0.3 * (end - begin), "a closer view")
    page.settle()


def test_ctrl_and_the_wheel_zoom_at_the_pointer(page: Page) -> None:
    there, whole = time_at(page, X), view(page)
    zoomed(page)
    assert time_at(page, X) == pytest.approx(there, rel=1e-6)
    page.wait_for("whole-run").click()  # the way out is in sight
    page.until(lambda: view(page) == whole and page.count("whole-run") == 0, "the whole run")


def test_shift_and_the_wheel_pan(page: Page) -> None:
    zoomed(page)
    begin, end = view(page)
    wheel(page, 120, "Shift")
    page.until(lambda: view(page)[0] > begin, "a later view")
    assert view(page)[1] - view(page)[0] == pytest.approx(end - begin)


def test_shift_and_a_drag_pan(page: Page) -> None:
    zoomed(page)
    begin, end = view(page)
    there = time_at(page, X)
    box = page.all("timeline-canvas").bounding_box()
    page.page.keyboard.down("Shift")
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + X + 150, box["y"] + Y, steps=5)
    page.page.mouse.up()
    page.page.keyboard.up("Shift")
    page.until(lambda: view(page)[0] < begin, "an earlier view")
    # What was under the pointer went with it.
    assert time_at(page, X + 150) == pytest.approx(there, rel=1e-6)
    assert view(page)[1] - view(page)[0] == pytest.approx(end - begin)


def test_the_wheel_scrolls_the_tracks(page: Page, ranks: torchreel.Reel) -> None:
    (number,) = ranks.sql("select id from ops where process = 0 and thread = 1 order by dur_ns desc limit 1")[
        "id"
    ].to_pylist()
    before, place = view(page), f"torchreel.place(0, {number})"
    high = page.page.evaluate(place)["y"]
    wheel(page, 40)
    page.until(lambda: page.page.evaluate(place)["y"] == high - 40, "the track further up")
    assert view(page) == before
    wheel(page, -400)
    page.until(lambda: page.page.evaluate(place)["y"] == high, "the top")


def test_a_drag_adds_up_an_area(page: Page, ranks: torchreel.Reel) -> None:
    box = page.all("timeline-canvas").bounding_box()
    begin, end = view(page)
    scale = (box["width"] - LEFT) / (end - begin)
    page.page.mouse.move(box["x"] + LEFT + 0.9 * STEP_NS * scale, box["y"] + Y)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + LEFT + 1.9 * STEP_NS * scale, box["y"] + Y, steps=4)
    page.page.mouse.up()
    page.until(lambda: "range of all screens" in page.all("details").inner_text(), "the area")
    page.settle()
    origin = min(row["start_ns"] for row in ranks.process_rows())
    # From between two steps to between two: whichever pixel it began at, it has all calls of one step.
    (row,) = ranks.sql(
        "select count(*) n, sum(self_ns)::bigint s, min(dur_ns) low, avg(dur_ns)::bigint mean, max(dur_ns) high"
        " from ops"
        f" where name = 'AddmmBackward0' and start_ns between {origin + STEP_NS} and {origin + 2 * STEP_NS}"
    ).to_pylist()
    shown = [
        cell.inner_text() for cell in page.all("details").locator("tr", has_text="AddmmBackward0").locator("td").all()
    ]
    micro = [f"{row[name] / 1000:.1f} µs" for name in ("low", "mean", "high")]
    assert shown[:6] == ["AddmmBackward0", str(row["n"]), f"{row['s'] / 1e6:.2f} ms", *micro]


def test_a_double_click_centres_and_the_next_one_fits(page: Page, ranks: torchreel.Reel) -> None:
    origin = min(each["start_ns"] for each in ranks.process_rows())
    (row,) = ranks.sql(
        "select id, start_ns, dur_ns from kernels"
        f" where process = 0 and start_ns > {origin + 2 * STEP_NS} order by dur_ns desc, id limit 1"
    ).to_pylist()
    number, begin, length = row["id"], row["start_ns"] - origin, row["dur_ns"]
    page.show(f"#/timeline?op=0:k{number}&begin={begin - 5 * length}&end={begin + 15 * length}")
    page.until(lambda: page.count("details-name") == 1, "the selection by its address")
    page.settle()
    box = page.all("timeline-canvas").bounding_box()
    middle = begin + length / 2
    canvas = page.page

    def twice() -> None:
        first, last = view(page)
        x = LEFT + (middle - first) / (last - first) * (box["width"] - LEFT)
        y = next(y for y in range(130, int(box["height"]), 4) if _id(page, x, y) == number)
        canvas.mouse.dblclick(box["x"] + x, box["y"] + y)

    twice()
    page.until(lambda: abs(sum(view(page)) / 2 - middle) < length / 100, "it in the middle")
    assert view(page)[1] - view(page)[0] == pytest.approx(20 * length)
    page.settle()
    twice()
    page.until(lambda: view(page)[1] - view(page)[0] == pytest.approx(1.2 * length), "it as wide as the screen")


def _id(page: Page, x: float, y: float) -> int | None:
    found = page.page.evaluate(f"torchreel.at({x}, {y})")
    return None if found is None or not found["name"].startswith(("nccl", "ampere")) else int(found["id"])


def test_ctrl_f_searches_and_enter_goes_through_the_matches(page: Page, ranks: torchreel.Reel) -> None:
    rows = ranks.sql("select process, id from ops where name = 'c10d::allreduce_' order by start_ns, id").to_pylist()
    page.page.keyboard.press("Control+f")
    page.page.keyboard.type("allreduce_")
    page.wait_for("search-count")
    page.settle()
    found = [_match(page, key) for key in ("Enter", "Enter", "Shift+Enter")]
    assert found[0] == found[2] != found[1]
    assert {*found} <= {f"{row['process']}:{row['id']}" for row in rows}
    page.all("search").fill("")
    page.page.keyboard.press("Escape")


def _match(page: Page, key: str) -> str:
    selected = "new URLSearchParams(location.hash.split('?')[1]).get('op') ?? ''"
    before = page.page.evaluate(selected)
    page.page.keyboard.press(key)
    page.until(lambda: page.page.evaluate(selected) != before, f"another match by {key}")
    return str(page.page.evaluate(selected))


def test_a_call_of_its_own_is_placed_at_once(page: Page, ranks: torchreel.Reel) -> None:
    (row,) = ranks.sql("select id, start_ns, dur_ns from ops where process = 0 order by id limit 1").to_pylist()
    page.show(f"#/timeline?begin=0&end={20 * row['dur_ns']}")
    at_once = f"(() => {{ const spot = torchreel.place(0, {row['id']}); return spot && 'width' in spot; }})()"
    assert page.page.evaluate(at_once) is True
    assert page.page.evaluate(f"torchreel.place(0, {10**9})") is None


def test_back_goes_by_screens_and_ranges(page: Page) -> None:
    page.page.keyboard.press("4")
    page.wait_for("screen-ops")
    page.page.keyboard.press("5")
    page.wait_for("screen-modules")
    page.page.go_back()
    page.wait_for("screen-ops")
    page.page.go_back()
    page.wait_for("screen-timeline")
    zoomed(page)
    page.page.keyboard.press("r")
    page.until(lambda: page.count("range") == 1, "the range")
    page.page.go_back()
    page.until(lambda: page.count("range") == 0, "no range")
    assert page.count("screen-timeline") == 1


def test_a_copied_address_of_a_query_brings_its_rows(page: Page) -> None:
    page.show("#/sql?sql=select%20process%2C%20id%20from%20ops%20order%20by%20process%2C%20id%20limit%203")
    rows = page.wait_for("sql-row", 3)
    # Rows that lead to calls are reached by Tab and moved through by arrows.
    rows.first.focus()
    page.page.keyboard.press("ArrowDown")
    assert page.page.evaluate("document.activeElement.innerText").split() == ["0", "1"]
    page.page.keyboard.press("Enter")
    page.wait_for("screen-timeline")
    page.until(lambda: page.page.evaluate("location.hash").find("op=0%3A1") > 0, "the call")
