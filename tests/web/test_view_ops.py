"""The screens for calls added up, in a real browser: flame, ops, modules, diff, edge and tape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.analyze.edge.reels import edge_reel, run
from tests.synthetic import Process, call, write_reel
from tests.web.conftest import Page, viewing
from torchreel.analyze import averages, diff
from torchreel.analyze.edge import edge_compare
from torchreel.analyze.time.module_tree import module_tree
from torchreel.analyze.time.slowest import slowest

pytestmark = pytest.mark.browser


def told(page: Page) -> str | None:
    found = page.all("flame-told")
    return found.get_attribute("data-name") if found.count() else None


def focused(page: Page, attribute: str) -> Any:
    return page.page.evaluate(f"document.activeElement.getAttribute('{attribute}')")


def test_arrows_move_through_the_flame_graph(page: Page) -> None:
    page.show("#/flame?by=module")
    page.wait_for("flame-canvas").focus()
    page.page.keyboard.press("ArrowDown")
    page.until(lambda: told(page) is not None, "the widest box")
    first = told(page)
    page.page.keyboard.press("ArrowRight")
    page.until(lambda: told(page) != first, "the box beside it")
    page.page.keyboard.press("ArrowLeft")
    page.until(lambda: told(page) == first, "the widest box again")
    if first is not None and first.startswith("("):  # calls in no module: the model is beside them
        page.page.keyboard.press("ArrowRight")
        page.until(lambda: told(page) != first, "the model")
        first = told(page)
    page.page.keyboard.press("ArrowDown")
    page.until(lambda: told(page) != first, "the box below")
    inner = told(page)
    page.page.keyboard.press("ArrowUp")
    page.until(lambda: told(page) == first, "the box above")
    page.page.keyboard.press("ArrowDown")
    page.until(lambda: told(page) == inner, "the box below")
    page.page.keyboard.press("Enter")
    page.until(lambda: page.page.get_by_text("← whole width").count() == 1, "the whole width")
    address = page.address()
    page.page.keyboard.press("Escape")
    page.until(lambda: told(page) == first, "the box around it")
    page.page.keyboard.press("Escape")
    page.until(lambda: "top=" not in page.address(), "the whole graph")
    # The address brings the box back.
    page.show(address[address.index("#") :])
    page.until(lambda: told(page) == inner, "the box of the address")


def test_the_flame_graph_tells_the_share_of_a_search(page: Page, trained: Path) -> None:
    page.show("#/flame?q=addmm")
    share = page.wait_for("flame-share")
    whole = torchreel.load(trained).sql("select sum(self_ns) as ns from ops")["ns"][0].as_py()
    # Rounding of clock ticks to nanoseconds may move one of them from a call to another.
    assert abs(int(share.get_attribute("data-whole")) - int(whole)) <= page_calls(trained)
    page.show("#/flame?by=stack&q=addmm")
    page.until(
        lambda: int(page.wait_for("flame-share").get_attribute("data-whole")) == int(whole), "the whole of stacks"
    )
    assert 0 < int(page.all("flame-share").get_attribute("data-matched")) < int(whole)


def page_calls(trained: Path) -> int:
    return int(torchreel.load(trained).table("ops", ["id"]).num_rows)


def test_a_box_has_its_callers_and_callees(page: Page) -> None:
    page.show("#/flame?name=aten::addmm")
    page.wait_for("flame-callers")
    assert told(page) == "aten::addmm"
    page.page.get_by_text("slowest call").click()
    page.until(lambda: page.count("details-name") == 1, "the call in the timeline")
    assert page.all("details-name").inner_text() == "aten::addmm"


def test_a_row_of_ops_opens_its_slowest_calls(page: Page, trained: Path) -> None:
    reel = torchreel.load(trained)
    page.show("#/ops")
    rows = page.wait_for("op-row", 10)
    rows.first.focus()
    page.page.keyboard.press("ArrowDown")
    page.until(lambda: focused(page, "data-name") == rows.nth(1).get_attribute("data-name"), "the next row")
    page.page.keyboard.press("Enter")
    name = rows.nth(1).get_attribute("data-name")
    shown = [row.get_attribute("data-op") for row in page.wait_for("slowest-row").all()]
    assert shown == [f"{row['process']}:{row['id']}" for row in slowest(reel, {"name": name}, 10).to_pylist()]
    assert "open=" in page.address()
    page.all("slowest-row").first.get_by_text("timeline").click()
    page.until(lambda: page.count("details-name") == 1, "the call in the timeline")
    assert page.address().endswith(f"op={shown[0].replace(':', '%3A')}")


@pytest.mark.parametrize("sort", ["self", "total", "count", "memory", "flops", "average"])
def test_the_table_is_sorted_as_the_report(page: Page, trained: Path, sort: str) -> None:
    page.show(f"#/ops?sort={sort}")
    expected = [row["name"] for row in averages(torchreel.load(trained), sort=sort).to_pylist()]
    page.wait_for("op-row", 10)
    page.until(lambda: [row.get_attribute("data-name") for row in page.all("op-row").all()] == expected, "the order")


@pytest.mark.parametrize("by", ["inputs", "module", "line", "stack", "thread", "step", "kind", "overload", "process"])
def test_every_grouping_of_the_report_is_there(page: Page, trained: Path, by: str) -> None:
    groups = ["name", by] if by in ("inputs", "overload") else [by]
    expected = averages(torchreel.load(trained), groups).to_pylist()
    page.show(f"#/ops?by={by}")
    page.until(lambda: page.count("op-row") == min(len(expected), 300), f"the rows by {by}")
    assert [int(row.get_attribute("data-calls")) for row in page.all("op-row").all()] == [
        row["calls"] for row in expected[:300]
    ]


def test_a_filter_and_a_module_choose_rows(page: Page) -> None:
    page.show("#/ops?by=name,module&module=Sequential.0")
    page.wait_for("op-row")
    page.until(lambda: "of" in page.all("op-count").inner_text(), "fewer rows")
    page.show("#/ops?q=no such op")
    assert "no such op" in page.wait_for("empty").inner_text()


def test_the_tree_of_modules(page: Page, trained: Path) -> None:
    expected = {row["path"]: row for row in module_tree(torchreel.load(trained)).to_pylist()}
    page.show("#/modules")
    rows = page.wait_for("module-row", 4)
    for row in rows.all():
        wanted = expected[row.get_attribute("data-path")]
        assert int(row.get_attribute("data-self-ns")) == wanted["self_ns"]
        assert int(row.get_attribute("data-total-ns")) == wanted["total_ns"]
    rows.first.focus()
    page.page.keyboard.press("ArrowLeft")
    page.until(lambda: page.count("module-row") < len(expected), "a closed tree")
    assert "open=" in page.address()
    page.page.keyboard.press("ArrowRight")
    page.until(lambda: page.count("module-row") == len(expected), "an open tree")
    page.page.keyboard.press("ArrowRight")
    page.until(lambda: focused(page, "data-path") == "Sequential.0", "the first that it holds")
    page.page.keyboard.press("Enter")
    page.wait_for("slowest-row")
    page.page.keyboard.press("ArrowLeft")
    page.until(lambda: focused(page, "data-path") == "Sequential", "what holds it")


def test_equal_layers_fold(browser: Any, tmp_path: Path) -> None:
    layers = [
        call("mm", 10 * (n + 1), call("add", 1, module=f"Net.blocks.{n}.fc"), module=f"Net.blocks.{n}.fc")
        for n in range(12)
    ]
    reel = write_reel(tmp_path / "run.reel", Process({"main": [*layers, call("x", 5, module="Net.head")]}))
    with viewing(reel) as url:
        page = Page(browser, url)
        page.show("#/modules")
        page.wait_for("module-row", 4)
        paths = [row.get_attribute("data-path") for row in page.all("module-row").all()]
        assert paths == ["Net", "Net.blocks", "Net.blocks.*", "Net.head"]
        folded = page.all("module-row").nth(2)
        assert (
            "\u00d712" in folded.inner_text()
            and int(folded.get_attribute("data-total-ns")) == sum(range(10, 130, 10)) + 12
        )
        folded.focus()
        page.page.keyboard.press("ArrowRight")
        page.until(lambda: page.count("module-row") >= 16, "each layer")
        page.close()


def test_two_reels_by_every_grouping(browser: Any, trained: Path, tmp_path: Path) -> None:
    other = write_reel(tmp_path / "other.reel", Process({"main": [call("aten::mm", 5_000), call("gone", 7)]}))
    with viewing(other, trained) as url:
        page = Page(browser, url)
        for by in ("name", "module", "line"):
            expected = diff(torchreel.load(other), torchreel.load(trained), by).rows.to_pylist()
            page.show(f"#/diff?by={by}")
            if not (page.count("empty") and by != "name"):  # the first reel was recorded without them
                page.until(lambda expected=expected: page.count("diff-row") == len(expected), "the rows")
                shown = [
                    (row.get_attribute("data-name"), row.get_attribute("data-state"))
                    for row in page.all("diff-row").all()
                ]
                assert shown == [(row[by], row["state"]) for row in expected]
        page.show("#/diff?by=tree")
        page.wait_for("diff-icicle")
        page.show("#/diff?sort=less")
        page.until(lambda: _changes(page) == sorted(_changes(page)), "from less to more")
        page.close()


def _changes(page: Page) -> list[float]:
    return [float(row.get_attribute("data-change-ns")) for row in page.all("diff-row").all()]


def test_one_reel_composes_the_command_for_two(page: Page) -> None:
    page.show("#/diff")
    page.page.get_by_label("the other reel").fill("it's/other.reel")
    page.until(lambda: page.all("command").inner_text().endswith("run.reel 'it'\\''s/other.reel'"), "the command")


def test_edge_comparisons(browser: Any, page: Page, tmp_path: Path) -> None:
    page.show("#/edge")
    assert "torchreel edge" in page.wait_for("empty").inner_text()
    left = edge_reel(
        tmp_path / "l.reel",
        run(5, call("Conv", 900, module="Net.stem"), call("Relu", 10, module="Net.act")),
        backends={"Conv": "ort", "Relu": "ort"},
    )
    right = edge_reel(
        tmp_path / "r.reel", run(3, call("convolution", 400, module="Net.stem")), backends={"convolution": "et"}
    )
    with viewing(left.path, right.path) as url:
        other = Page(browser, url)
        other.show("#/edge")
        rows = edge_compare(left, right).rows
        shown = [
            (row.get_attribute("data-name"), row.get_attribute("data-ns")) for row in other.wait_for("edge-row").all()
        ]
        assert shown == [(row.op, "" if row.left is None else str(row.left.ns)) for row in rows]
        other.show("#/edge?by=modules")
        other.until(
            lambda: [row.get_attribute("data-path") for row in other.all("edge-row").all()] == ["stem"], "modules"
        )
        other.close()
    with viewing(left.path) as url:
        other = Page(browser, url)
        other.show("#/edge")
        assert [row.get_attribute("data-ns") for row in other.wait_for("edge-row").all()] == ["900", "10"]
        other.close()


def test_the_tape_leads_to_calls_and_back(page: Page, trained: Path) -> None:
    reel = torchreel.load(trained)
    op = reel.sql(
        'select process, op, "index" as at from tape_ops where op is not null and forward is not null limit 1'
    )
    process, number, at = (op[name][0].as_py() for name in ("process", "op", "at"))
    page.show(f"#/tape?op={process}:{number}")
    page.until(lambda: page.page.locator("tr.picked").count() == 1, "the op of the call")
    picked = page.page.locator("tr.picked")
    assert picked.get_attribute("data-index") == str(at)
    picked.get_by_text("backward of").click()
    page.until(lambda: page.page.locator("tr.picked").get_attribute("data-index") != str(at), "the forward op")
    page.show("#/tape?fold=module")
    parts = page.wait_for("tape-part", 2)
    parts.first.focus()
    page.page.keyboard.press("Enter")
    page.wait_for("tape-op")
    page.all("tape-call").first.click()
    page.wait_for("screen-timeline")


HOSTILE = '<img src=x onerror="hacked=1">"\'&,|%2C\u202e'


def test_hostile_names_are_text_on_every_screen(browser: Any, tmp_path: Path) -> None:
    stack = ((f"/home/{HOSTILE}.py", 3, HOSTILE),)
    inner = call(HOSTILE, 3_000, stack=stack, module=f"{HOSTILE}.0")
    process = Process({HOSTILE: [call(HOSTILE, 5_000, inner, kind="module", module=HOSTILE, stack=stack)]})
    with viewing(
        write_reel(tmp_path / "run.reel", process), write_reel(tmp_path / "b.reel", Process({HOSTILE: [inner]}))
    ) as url:
        page = Page(browser, url)
        screens = (
            "flame?by=stack",
            "flame?by=module",
            "ops?by=name,module,line",
            "modules",
            "diff",
            "diff?by=tree",
            "edge",
            "tape",
        )
        for screen in screens:
            page.show(f"#/{screen}")
            assert page.page.evaluate("window.hacked") is None
            assert page.page.locator("img").count() == 0
        page.show("#/modules")
        page.wait_for("module-row").first.click()
        page.wait_for("slowest-row")
        page.show("#/ops")
        page.wait_for("op-row").first.click()
        page.wait_for("slowest-row")
        page.close()
