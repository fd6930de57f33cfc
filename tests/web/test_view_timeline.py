"""The timeline in a real browser: what its keys do, kernels and flows, marks, ranges, kinds, and a reel that grows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.web.conftest import Page, viewing
from tests.web.gpu_reel import STEP_NS, write_ranks
from torchreel.analyze import averages

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> torchreel.Reel:
    return torchreel.load(write_ranks(tmp_path_factory.mktemp("ranks") / "run.reel"))


@pytest.fixture(scope="module")
def page(browser: Any, ranks: torchreel.Reel) -> Iterator[Page]:
    with viewing(ranks.path) as url:
        page = Page(browser, url)
        yield page
        page.close()


def name_of(page: Page) -> str:
    return str(page.all("details-name").inner_text()) if page.count("details-name") else ""


def selected(page: Page) -> str:
    return str(page.page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('op') ?? ''"))


def press(page: Page, key: str, name: str) -> None:
    page.page.keyboard.press(key)
    page.until(lambda: name_of(page) == name, f"{name} by {key}")


def test_brackets_lead_to_backward_and_forward_and_to_the_kernel(page: Page, ranks: torchreel.Reel) -> None:
    forward, backward = (
        ranks.sql("select fwd, id from ops where process = 1 and fwd is not null order by id limit 1")
        .to_pydict()
        .values()
    )
    page.show(f"#/timeline?op=1:{forward[0]}")
    page.until(lambda: name_of(page).startswith("aten::"), "the selection by its address")
    press(page, "]", "AddmmBackward0")
    assert selected(page) == f"1:{backward[0]}"
    press(page, "[", ranks.sql(f"select name from ops where process = 1 and id = {forward[0]}")["name"][0].as_py())
    assert selected(page) == f"1:{forward[0]}"


def test_a_call_without_backward_leads_to_its_kernel_and_that_back(page: Page, ranks: torchreel.Reel) -> None:
    (number,) = ranks.sql("select min(id) as id from ops where process = 0 and name = 'c10d::allreduce_'")[
        "id"
    ].to_pylist()
    page.show(f"#/timeline?op=0:{number}")
    page.until(lambda: name_of(page) == "c10d::allreduce_", "the selection by its address")
    assert "to process 1" in page.all("details").inner_text()
    press(page, "]", "ncclDevKernel_AllReduce_Sum_f32")
    assert selected(page).startswith("0:k")
    assert "c10d::allreduce_" in page.all("details").inner_text()


def test_dots_and_arrows_move_along_the_lane(page: Page, ranks: torchreel.Reel) -> None:
    rows = ranks.sql("select id, name from ops where process = 2 and thread = 0 order by start_ns limit 3").to_pylist()
    page.show(f"#/timeline?op=2:{rows[0]['id']}")
    page.until(lambda: name_of(page) == rows[0]["name"], "the selection by its address")
    for key, row in ((".", rows[1]), ("ArrowRight", rows[2]), (",", rows[1]), ("ArrowLeft", rows[0])):
        page.page.keyboard.press(key)
        page.until(lambda row=row: selected(page) == f"2:{row['id']}", f"{row} by {key}")
    # Before the first one there is none.
    page.page.keyboard.press(",")
    page.settle()
    assert selected(page) == f"2:{rows[0]['id']}"


def test_a_step_becomes_the_range_of_all_screens_and_a_mark(page: Page, ranks: torchreel.Reel) -> None:
    page.show("#/timeline")
    page.page.keyboard.press("0")
    page.settle()
    box = page.all("timeline-canvas").bounding_box()
    view = page.page.evaluate("torchreel.view")
    scale = (box["width"] - 152) / (view["end"] - view["begin"])
    page.page.mouse.click(box["x"] + 152 + 1.5 * STEP_NS * scale, box["y"] + 28 + 16 + 9)
    page.until(lambda: "40.0 ms" in page.all("details").inner_text(), "the step")
    page.page.keyboard.press("m")
    page.page.keyboard.press("r")
    page.until(lambda: page.count("range") == 1, "the range")
    assert "marks=" in page.address() and f"range={STEP_NS}-{2 * STEP_NS}" in page.address()
    page.page.keyboard.press("4")
    rows = page.wait_for("op-row", 3)
    expected = averages(ranks, within=(_begin(ranks) + STEP_NS, _begin(ranks) + 2 * STEP_NS))
    assert {row.get_attribute("data-name"): int(row.get_attribute("data-calls")) for row in rows.all()} == {
        row["name"]: row["calls"] for row in expected.to_pylist()
    }
    page.page.keyboard.press("2")
    page.settle()
    assert page.page.evaluate("torchreel.view") == {"begin": STEP_NS, "end": 2 * STEP_NS}
    page.all("range-clear").click()
    page.until(lambda: page.count("range") == 0, "the end of the range")
    page.page.keyboard.press("Escape")
    assert page.wait_for("marks").locator("input").input_value() == "mark 1"


def test_keys_that_come_at_once_do_not_undo_each_other(page: Page) -> None:
    page.show("#/timeline")
    page.page.evaluate("for (const key of ['m', 'r', 'm']) dispatchEvent(new KeyboardEvent('keydown', {key}))")
    address = page.address()
    assert "range=" in address and address.count("mark%2520") == 2, address
    # Nor does the view, which is written into the address a while after it has moved.
    page.page.keyboard.press("w")
    page.page.evaluate("location.hash = '#/ops?q=mm'; torchreel.view")
    page.until(lambda: page.count("screen-ops") == 1, "another screen")
    page.settle()
    assert page.address().endswith("#/ops?q=mm")


def _begin(reel: torchreel.Reel) -> int:
    return min(row["start_ns"] for row in reel.process_rows())


def test_hiding_a_kind_has_an_address_and_takes_its_calls_away(page: Page) -> None:
    page.show("#/timeline")
    lanes = (
        "fetch('/api/lanes' + (location.hash.includes('hide') ? '?hide=kernel' : ''))"
        ".then(r => r.json()).then(l => l.lanes.length)"
    )
    before = page.page.evaluate(lanes)
    page.page.locator(".kinds button", has_text="kernel").click()
    page.until(lambda: "hide=kernel" in page.address(), "the address")
    page.settle()
    assert page.page.evaluate(lanes) == before - 8
    page.page.locator(".kinds button", has_text="kernel").click()
    page.until(lambda: "hide=" not in page.address(), "the address without it")


def test_a_track_folds_by_its_title(page: Page) -> None:
    page.page.reload()  # other tests may have scrolled
    page.settle()
    page.show("#/timeline")
    page.page.keyboard.press("0")
    page.settle()
    box = page.all("timeline-canvas").bounding_box()
    top = 28 + 16 + 18 + 2 * 34
    page.page.mouse.click(box["x"] + 40, box["y"] + top + 8)
    page.until(lambda: "fold=0%2F0" in page.address(), "the fold in the address")
    page.page.mouse.click(box["x"] + 40, box["y"] + top + 8)
    page.until(lambda: "fold=" not in page.address(), "the track again")


GROWING = """
import sys, torch, torchreel
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters())
with torchreel.record(sys.argv[1], modules=True):
    for line in sys.stdin:
        for _ in range(int(line)):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
        print("done", flush=True)
"""


def test_a_reel_that_is_recorded_grows_on_the_screen_and_the_view_stays(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.reel"
    program = [sys.executable, "-c", GROWING, str(path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as recording:
        assert recording.stdin is not None and recording.stdout is not None

        def train(steps: int) -> None:
            recording.stdin.write(f"{steps}\n")  # type: ignore[union-attr]
            recording.stdin.flush()  # type: ignore[union-attr]
            assert recording.stdout.readline() == "done\n"  # type: ignore[union-attr]

        train(3)
        with viewing(path) as url:
            page = Page(browser, url)
            page.wait_for("recording")
            page.show("#/ops")

            def calls() -> int:
                return sum(
                    int(row.get_attribute("data-calls"))
                    for row in page.all("op-row").all()
                    if row.get_attribute("data-name") == "aten::linear"
                )

            page.until(lambda: calls() == 3, "the first steps")
            page.show("#/timeline")
            page.page.keyboard.press("0")
            page.settle()
            view = page.page.evaluate("torchreel.view")
            train(5)
            steps = "fetch('/api/about').then(r => r.json()).then(a => a.steps.length)"
            page.until(lambda: page.page.evaluate(steps) >= 8, "more steps")
            page.until(
                lambda: (
                    page.page.evaluate("fetch('/api/search?q=aten::linear').then(r => r.json()).then(f => f.calls)")
                    == 8
                ),
                "more calls",
            )
            assert page.page.evaluate("torchreel.view") == view
            page.show("#/ops")
            page.until(lambda: calls() == 8, "the table with them")
            recording.stdin.close()
            recording.wait()
            page.until(lambda: page.count("recording") == 0, "the end of the recording")
            page.until(lambda: calls() == 8, "the closed reel")
            page.close()
