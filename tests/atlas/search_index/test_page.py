"""The page of results in a browser, opened from a disk, under the policy of every page."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import one_playwright
from tests.atlas.search_index.small_site import TITLES, write_small
from torchreel.atlas.search_index import SCRIPTS, search, search_body
from torchreel.atlas.site.facts import Site
from torchreel.atlas.site.frame import ASSETS, framed

CHROMIUM = "/usr/bin/chromium"
PATIENCE_S = float(os.environ.get("TORCHREEL_TEST_PATIENCE_S", "300"))

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = write_small(tmp_path_factory.mktemp("ätlas #1 %41"))
    shutil.copytree(ASSETS, site / "assets")
    about = Site("Small")
    (site / "search.html").write_text(framed(about, "search.html", "Search", search_body(), scripts=SCRIPTS))
    (site / "files").mkdir()
    for number in TITLES:
        page = f"files/{number}.html"
        lines = "".join(f'<p id="L{line}">{line}</p>' for line in (1, 2, 5, 53, 104, 1760))
        (site / page).write_text(framed(about, page, f"File {number}", lines))
    return site


class Results:
    """The page, and what to wait for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        page.on("dialog", lambda dialog: self.errors.append(f"a dialog says {dialog.message}") or dialog.dismiss())

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen; errors: {self.errors}"
            time.sleep(0.02)

    def answered(self, words: str) -> list[list[str]]:
        """Title, kind and place of each result, when the page has answered these words."""
        results = self.page.locator("#search-results")
        self.until(lambda: results.get_attribute("data-query") == words, f"the answer to {words!r}")
        return [
            [row.locator(f".search-{part}").text_content() for part in ("title", "kind", "path")]
            for row in results.locator("li").all()
        ]

    def selected(self) -> str:
        return str(self.page.locator("#search-results .selected .search-title").text_content())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright.sync_api", reason="the tests of pages need playwright")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"the tests of pages need Debian's chromium at {CHROMIUM}")
    chromium = one_playwright.started().chromium.launch(
        executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    )
    yield chromium
    chromium.close()


@pytest.fixture
def results(browser: Any) -> Iterator[Results]:
    results = Results(browser.new_page(viewport={"width": 1000, "height": 700}))
    yield results
    results.page.close()
    assert not results.errors, results.errors


def test_a_question_in_the_address_is_answered_from_a_disk(results: Results, site: Path) -> None:
    results.page.goto((site / "search.html").as_uri() + "?q=relu")
    assert results.answered("relu") == [
        ["RELU", "defines", "src/native/Relu.cpp:5"],
        ["relu", "defines", "torch/nn/functional.py:1760"],
        ["ReLU", "defines", "torch/nn/modules/activation.py:104"],
        ["relu", "uses", "torch/optim/_functional.py:12"],
    ]
    assert results.page.locator("#search-status").text_content() == "4 files"
    assert results.page.locator(".search input").input_value() == "relu"


def test_results_follow_what_is_typed_and_keys_open_one(results: Results, site: Path) -> None:
    page = results.page
    page.goto((site / "search.html").as_uri())
    assert results.answered("") == []
    assert "Type a name" in page.locator("#search-status").text_content()
    page.keyboard.type("grad")
    assert results.answered("grad") == [["GradScaler", "defines", "torch/amp/grad_scaler.py:53"]]
    page.keyboard.type(" relu")
    found = [title for title, _, _ in results.answered("grad relu")]
    assert found == [one["title"] for one in search(site, "grad relu")]
    walked = [results.selected()]
    for key in ("ArrowUp", "ArrowDown", "ArrowDown", *["ArrowDown"] * 10, "ArrowUp"):
        page.keyboard.press(key)
        walked.append(results.selected())
    assert walked == [found[at] for at in (0, 0, 1, 2, 3, *[4] * 9, 3)]
    page.keyboard.press("Enter")
    page.wait_for_url("**/files/2.html#L53", timeout=PATIENCE_S * 1000)


def test_the_field_of_any_page_leads_to_the_results(results: Results, site: Path) -> None:
    page = results.page
    page.goto((site / "files" / "1.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("nn/functional.py")
    page.keyboard.press("Enter")
    assert results.answered("nn/functional.py")[0] == ["functional.py", "speaks", "torch/nn/functional.py:1"]


def test_nothing_of_a_name_becomes_live(results: Results, site: Path) -> None:
    page = results.page
    page.goto((site / "search.html").as_uri() + "?q=hostile")
    path = "src/<img src=x onerror=alert(1)>\"'&.py"
    assert results.answered("hostile") == [["hostile", "defines", f"{path}:2"]]
    assert page.locator("main img, main b").count() == 0
    for words in ("<img src=x onerror=alert(1)>", "__proto__", "constructor", "größe", "𐐨y", "'); alert(1)//"):
        page.locator(".search input").fill(words)
        titles = [title for title, _, _ in results.answered(words)]
        assert titles == [one["title"] for one in search(site, words, 50)], words


def test_a_missing_index_says_so(results: Results, site: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(site, copy)
    shutil.rmtree(copy / "search")
    results.page.goto((copy / "search.html").as_uri() + "?q=relu")
    status = results.page.locator("#search-status")
    results.until(lambda: status.text_content() != "", "an answer")
    assert status.text_content() == "search/files.js cannot be loaded. Make the atlas again."
    assert results.errors == ["Failed to load resource: net::ERR_FILE_NOT_FOUND"]
    results.errors.clear()
