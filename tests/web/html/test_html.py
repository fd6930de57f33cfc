"""The exported file in a real browser, from disk: the page of the server, with its numbers, without a network."""

from __future__ import annotations

import base64
import json
import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.export_formats import needs_page
from tests.synthetic import Call, Process, call, write_reel
from tests.web.conftest import Page, viewing
from torchreel.errors import OptionError, ViewerError
from torchreel.export import export
from torchreel.web.answers import Answers
from torchreel.web.html import html

HOSTILE = '</script><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"\'&\u2028\u2029\u202e\x1b[31m'
SCREENS = ("overview", "ops", "flame", "modules", "memory", "source", "tape")


def written(reel: Path, path: Path, **options: Any) -> Path:
    export(torchreel.load(reel), path, "html", **options)
    return path


def opened(browser: Any, path: Path) -> Page:
    return Page(browser, path.as_uri())


def show(page: Page, screen: str) -> None:
    page.show(f"#/{screen}")
    # The address is told to the page only after this, if it is on the screen already.
    page.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.settle()


def shown_on(page: Page, screen: str) -> str:
    """What a screen says and draws: canvases to the last pixel, but for memory's, which has as many points as fit.

    The timeline of a file has no buttons that hide kinds.
    """
    show(page, screen)
    assert page.page.locator(".error").count() == 0, page.page.inner_text("main")
    if screen in ("memory", "segments"):
        return str(page.page.inner_text("main"))
    drawn = page.page.evaluate("[...document.querySelectorAll('main canvas')].map((canvas) => canvas.toDataURL())")
    says = page.all("details") if screen == "timeline" else page.page.locator("main")
    return f"{says.inner_text()}\n{drawn}"


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(trained, tmp_path_factory.mktemp("exported") / "run.html")


@pytest.fixture(scope="module")
def page(browser: Any, exported: Path) -> Iterator[Page]:
    page = opened(browser, exported)
    yield page
    page.close()


@pytest.mark.browser
def test_each_screen_is_that_of_the_server(browser: Any, page: Page, trained: Path) -> None:
    with viewing(trained) as url:
        served = Page(browser, url)
        for screen in (*SCREENS, "timeline", "ops?by=name,inputs&sort=count", "ops?by=module&sort=total", "diff"):
            assert shown_on(page, screen) == shown_on(served, screen), screen
        served.close()


@pytest.mark.browser
def test_every_choice_of_every_screen_has_its_answer(page: Page) -> None:
    """What a screen asks at first is in torchreel.web.stored_questions; what else its menus ask, too, or is refused."""
    page.show("#/overview")
    names = [link.get_attribute("data-testid").removeprefix("nav-") for link in page.page.locator("nav a").all()]
    assert {"overview", "timeline", *SCREENS} <= set(names)
    for name in names:
        page.show(f"#/{name}")
        assert page.page.locator("main .error").count() == 0, (name, page.page.inner_text("main"))
        menus = page.page.locator("main select")
        for menu in range(menus.count()):
            for value in [each.get_attribute("value") for each in menus.nth(menu).locator("option").all()]:
                show(page, name)
                menus.nth(menu).select_option(value)
                page.settle()
                for problem in page.page.locator("main .error").all():
                    assert "open the reel with torchreel view" in problem.inner_text(), (name, value)


def check_tiles(page: Page, reel: Path) -> None:
    answers = Answers(torchreel.load(reel))
    end = answers.viewed.end
    generator = random.Random(2)
    script = "async (path) => Array.from(new Uint8Array(await torchreel.askBytes(path)))"
    for level in range(0, end.bit_length()):
        last = end // (1024 << level)
        for index in {0, last, generator.randint(0, last)}:
            path = f"tile/{level}/{index}"
            assert bytes(page.page.evaluate(script, path)) == answers.answer("GET", path, {}, b""), path


@pytest.mark.browser
def test_tiles_are_the_bytes_of_the_server(page: Page, trained: Path) -> None:
    check_tiles(page, trained)


@pytest.mark.browser
def test_tiles_of_many_calls_of_few_lengths(browser: Any, tmp_path: Path) -> None:
    """Many to a pixel, and often several that are the longest: the page takes the one that the server takes."""
    generator = random.Random(8)

    def one(depth: int) -> Call:
        inner = [one(depth - 1) for _ in range(generator.choice((0, 1, 2)))] if depth else []
        return call(generator.choice("abc"), generator.choice((1, 1, 2, 3, 50)), *inner)

    reel = write_reel(tmp_path / "run.reel", Process({"main": [one(2) for _ in range(6_000)]}))
    page = opened(browser, written(reel, tmp_path / "run.html"))
    check_tiles(page, reel)
    page.close()


def told(page: Page, path: str, **query: Any) -> Any:
    return page.page.evaluate("([path, query]) => torchreel.ask(path, query)", [path, query])


@pytest.mark.browser
def test_calls_areas_and_searches_are_those_of_the_server(page: Page, trained: Path) -> None:
    answers = Answers(torchreel.load(trained))

    def answer(path: str, **query: Any) -> Any:
        values = {name: str(value) for name, value in query.items()}
        return json.loads(Answers.encoded(answers.answer("GET", path, values, b"")))

    generator = random.Random(4)
    calls = answers.viewed.reel.sql("select process, id from ops").to_pylist()
    for one in generator.sample(calls, 60):
        path = f"op/{one['process']}/{one['id']}"
        found, expected = told(page, path), answer(path)
        assert found.pop("note", None) is None
        like = f"like/{one['process']}/{one['id']}"
        assert told(page, like) == {**answer(like), "part": False}
        for name in ("frames", "backward", "children"):
            keys = found[name][0] if found[name] else {}
            expected[name] = [{key: each[key] for key in keys if key in each} for each in expected[name]]
            found[name] = [{key: each[key] for key in keys if key in expected[name][0]} for each in found[name]]
        assert found == {name: expected[name] for name in found}
    for _ in range(20):
        begin, end = sorted(generator.randint(0, answers.viewed.end) for _ in range(2))
        assert told(page, "area", begin=begin, end=end)["rows"] == answer("area", begin=begin, end=end)["rows"]
    for text in ("mm", "ADDMM", "e", "%", "_", "nothing of this"):
        expected = answer("search", q=text)
        for row in expected["rows"]:
            del row["kind"]
        assert told(page, "search", q=text) == expected
    for sort in ("self", "total", "count", "memory", "flops", "average"):
        for by in ("name", "module", "step", "name,inputs"):
            assert told(page, "averages", by=by, sort=sort, limit=5000) == answer(
                "averages", by=by, sort=sort, limit=5000
            )


@pytest.mark.browser
def test_nothing_is_asked_of_any_network(browser: Any, exported: Path) -> None:
    asked: list[str] = []

    class Offline:
        @staticmethod
        def new_page(**options: Any) -> Any:
            page = browser.new_page(offline=True, **options)
            page.on("request", lambda request: asked.append(request.url))
            return page

    page = opened(Offline, exported)
    for screen in (*SCREENS, "timeline"):
        page.show(f"#/{screen}")
    assert asked == [exported.as_uri()]
    page.page.evaluate("fetch('http://127.0.0.1:9/').catch(() => {})")
    page.page.evaluate(
        "() => { const part = document.createElement('script'); part.textContent = 'window.hacked = 1';"
        " document.body.append(part); }"
    )
    assert page.page.evaluate("window.hacked") is None, "the policy lets a script in"
    assert asked == [exported.as_uri()], "the policy lets a connection out"
    page.close()


@pytest.mark.browser
def test_an_address_brings_back_the_view(browser: Any, page: Page, exported: Path, trained: Path) -> None:
    mm = torchreel.load(trained).sql(
        "select id, dur_ns from ops where name = 'aten::addmm' order by dur_ns desc limit 1"
    )
    number, duration = (mm[name][0].as_py() for name in ("id", "dur_ns"))
    other = Page(browser, f"{exported.as_uri()}#/timeline?op=0:{number}")
    assert other.wait_for("details-name").inner_text() == "aten::addmm"
    assert int(other.all("details-dur").get_attribute("data-ns")) == duration
    other.page.keyboard.press("4")
    other.wait_for("screen-ops")
    other.page.go_back()
    other.wait_for("screen-timeline")
    other.close()


@pytest.mark.browser
def test_what_a_file_cannot_answer_is_said_with_the_command(page: Page, trained: Path) -> None:
    page.show("#/sql")
    statement = "select 'it''s' as \"word\",\n $begin"
    page.wait_for("sql-input").fill(statement)
    expected = ["torchreel", "sql", "run.reel", statement]
    page.until(lambda: shlex.split(page.all("sql-command").text_content()) == expected, "the command")
    page.show("#/memory?at=5")
    page.until(lambda: "torchreel view run.reel" in page.page.inner_text("main"), "a sentence")
    page.show("#/ops?begin=0&end=1000")
    page.until(lambda: page.page.locator(".error").count() == 1, "a sentence")
    assert "clear the range" in page.page.locator(".error").inner_text()
    page.all("range-clear").click()
    page.wait_for("op-row", 10)
    page.show("#/timeline?op=0:123456789")
    page.until(lambda: "no call 123456789" in page.wait_for("details").inner_text(), "a sentence")
    page.show("#/overview")


@pytest.mark.browser
def test_a_range_of_the_timeline_stays_there(page: Page) -> None:
    """A file has tables of the whole run only: a link out of a part of the timeline leads to these."""
    page.show("#/timeline?begin=1000&end=900000")
    page.page.keyboard.press("4")
    page.wait_for("op-row", 10)
    assert page.count("range") == 0


@pytest.mark.browser
def test_a_hostile_reel(browser: Any, tmp_path: Path) -> None:
    """Markup in every name: it is shown as text, nothing of it runs, and none of it stands in the file."""
    stack = ((f"/home/{HOSTILE}.py", 3, HOSTILE),)
    calls = [
        call(HOSTILE, 5_000, call(f"{HOSTILE} in", 3_000, stack=stack), kind="module", module=HOSTILE, stack=stack),
        call(HOSTILE, 2_000, inputs=f'[["{HOSTILE}"]]', stack=stack),
    ]
    reel = write_reel(tmp_path / f"{HOSTILE.replace('/', '-')}.reel", Process({HOSTILE: calls}, allocs=[("alloc", 5)]))
    path = written(reel, tmp_path / "run.html")
    assert b"window.hacked" not in path.read_bytes()
    page = opened(browser, path)
    for screen in ("overview", "flame", "memory", "ops", "modules", "source", "sql", "timeline?op=0:0"):
        page.show(f"#/{screen}")
        assert page.page.evaluate("window.hacked") is None
        assert page.page.locator("img").count() == 0
    assert page.wait_for("details-name").inner_text().startswith("</script><img src=x")
    page.close()


@pytest.mark.browser
def test_a_small_budget_is_kept_and_said(browser: Any, exported: Path, trained: Path, tmp_path: Path) -> None:
    budget = exported.stat().st_size - 4_000
    path = written(trained, tmp_path / "small.html", budget=budget)
    assert path.stat().st_size <= budget
    page = opened(browser, path)
    whole = opened(browser, exported)
    for screen in SCREENS:  # all but the timeline count everything
        assert shown_on(page, screen) == shown_on(whole, screen)
    page.show("#/timeline")
    said = page.wait_for("file-note").inner_text()
    counts = re.match(r"([\d,]+) of ([\d,]+) calls are in this file's timeline: all of steps? ([\d, and]+)", said)
    assert counts is not None and "torchreel view run.reel" in said
    here, everything = (int(counts[n].replace(",", "")) for n in (1, 2))
    ops = torchreel.load(trained).table("ops", ["id", "dur_ns"])
    assert 0 < here < everything == ops.num_rows
    # A search counts all calls of the run; a call that is not here says so, as does an area.
    assert told(page, "search", q="aten")["calls"] == told(whole, "search", q="aten")["calls"]
    for row in sorted(ops.to_pylist(), key=lambda row: row["dur_ns"]):
        page.show(f"#/timeline?op={row['process']}:{row['id']}")
        if "not in this file" in page.all("details").inner_text():
            break
    else:
        pytest.fail("every call has details")
    assert "Not all calls" in told(page, "area", begin=0, end=everything * 10**9)["note"]
    page.close()
    whole.close()


@pytest.mark.browser
def test_no_source_leaves_out_the_text(browser: Any, tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text("import torch\nsecret = 1\nloss.backward()\n")
    stack = ((str(source), 3, "<module>"),)
    reel = write_reel(tmp_path / "run.reel", Process({"main": [call("aten::mm", 5_000, stack=stack)]}))
    for sources in (True, False):
        page = opened(browser, written(reel, tmp_path / f"{sources}.html", sources=sources))
        page.show("#/source")
        assert page.wait_for("source-line").first.get_attribute("data-line") == "3"
        page.settle()
        assert ("secret" in page.page.inner_text("main")) == sources
        assert ("line numbers only" in page.page.inner_text("main")) != sources
        page.close()


@pytest.mark.browser
def test_two_reels(browser: Any, trained: Path, tmp_path: Path) -> None:
    other = write_reel(tmp_path / "other.reel", Process({"main": [call("aten::mm", 5_000)]}))
    path = written(other, tmp_path / "two.html", other=torchreel.load(trained))
    page = opened(browser, path)
    with viewing(other, trained) as url:
        served = Page(browser, url)
        for by in ("name", "inputs", "module", "line"):
            assert shown_on(page, f"diff?by={by}") == shown_on(served, f"diff?by={by}")
        served.close()
    page.close()


@pytest.mark.browser
def test_an_empty_reel(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, written(write_reel(tmp_path / "empty.reel", Process({})), tmp_path / "empty.html"))
    assert "No ops" in page.wait_for("empty").first.inner_text()
    for screen in ("timeline", "flame", "ops", "memory", "source", "tape"):
        page.show(f"#/{screen}")
    page.close()


@needs_page
def test_a_budget_for_nothing_is_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"alone take [\d,]+ bytes, and the file may have 1,000"):
        written(trained, tmp_path / "x.html", budget=1000)
    with pytest.raises(OptionError, match="is not a size"):
        written(trained, tmp_path / "x.html", budget="small")
    assert list(tmp_path.iterdir()) == []


@needs_page
def test_the_same_reel_gives_the_same_file(trained: Path, tmp_path: Path) -> None:
    first, second = (written(trained, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


@needs_page
def test_all_of_the_reel_is_in_base64(exported: Path) -> None:
    blobs = re.findall(rb'<script type="text/plain" id="reel-\d+">([^<]*)</script>', exported.read_bytes())
    assert len(blobs) > 20
    for blob in blobs:
        assert base64.b64decode(blob, validate=True)[:2] == b"\x1f\x8b"


def test_a_page_that_is_not_built_says_how(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "PAGE", tmp_path)
    with pytest.raises(ViewerError, match="run 'make viewer'"):
        written(trained, tmp_path / "x.html")


def test_a_page_that_would_end_early_is_refused(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "PAGE", tmp_path)
    (tmp_path / "page.css").write_text("")
    (tmp_path / "page.js").write_text('let text = "</SCRIPT>"')
    with pytest.raises(ViewerError, match="</script"):
        written(trained, tmp_path / "x.html")
