"""From the source screen into the site of an atlas, in a real browser and under the viewer's policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import Page, viewing
from tests.web.test_atlas_site import made

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("view-atlas")
    made(directory)
    made(directory, "other")
    return directory


@pytest.fixture
def page(browser: Any, directory: Path) -> Iterator[Page]:
    with viewing(directory / "run.reel", "--atlas", directory / "run-site") as url:
        page = Page(browser, url)
        page.page.on("console", lambda one: page.errors.append(one.text) if one.type == "error" else None)
        yield page
        page.close()


def shown(page: Page, file: Path | str, line: str = "") -> Any:
    page.show(f"#/source?file={file}{line}")
    page.until(lambda: page.page.locator(f'[data-file="{file}"][aria-pressed="true"]').count() == 1, "the choice")
    page.wait_for("source-line")
    page.settle()
    return page.all("source-page")


def test_a_line_leads_to_its_page_and_the_page_works(page: Page, directory: Path) -> None:
    file = directory / "src" / "train.py"
    assert shown(page, file).get_attribute("href") == "/atlas/files/src/train.py.html"
    assert shown(page, file, "&line=99").get_attribute("href") == "/atlas/files/src/train.py.html"
    link = shown(page, file, "&line=5")
    assert link.inner_text() == "line 5 in the atlas"
    link.click()
    tab = page.page
    page.until(lambda: "/atlas/files/src/train.py.html#L5" in page.address(), "the page of the file")
    page.until(lambda: tab.locator("#L5:target").count() == 1, "the line")
    assert "return x + 1" in tab.inner_text("#L5")
    # It has its style, and its script runs.
    assert "mono" in tab.evaluate("getComputedStyle(document.querySelector('.source')).fontFamily")
    button = tab.locator("button.theme")
    page.until(button.is_visible, "the button that its script shows")
    button.click()
    assert tab.evaluate("document.documentElement.dataset.theme") in ("light", "dark")


def test_the_search_works_where_forms_are_forbidden(page: Page) -> None:
    page.show("#/source")
    page.wait_for("source-atlas").locator("a").click()
    tab = page.page
    page.until(lambda: page.address().endswith("/atlas/"), "the site")
    tab.fill("form.search input", "run")
    tab.press("form.search input", "Enter")
    page.until(lambda: "/atlas/search.html?q=run" in page.address(), "the page of results")
    page.until(lambda: tab.locator("#search-results a").count() == 3, "results")
    tab.press("form.search input", "Enter")
    page.until(lambda: "/atlas/files/src/" in page.address() and "#L4" in page.address(), "the first result")


def test_where_there_is_no_page_the_screen_says_so(page: Page, directory: Path) -> None:
    assert shown(page, "/elsewhere/library.py").count() == 0
    assert page.all("source-page-note").inner_text() == "This file is in no source folder of the atlas."
    assert shown(page, directory / "src" / "old.py").count() == 1
    assert "another version" in page.all("source-page-note").inner_text()


@pytest.mark.parametrize(("given", "said"), [(True, "The atlas was not made from this reel."), (False, "As pages")])
def test_without_its_own_site_there_are_the_commands(browser: Any, directory: Path, given: bool, said: str) -> None:
    with viewing(directory / "run.reel", *(["--atlas", directory / "other-site"] if given else [])) as url:
        page = Page(browser, url)
        assert shown(page, directory / "src" / "train.py").count() == 0
        told = page.all("source-atlas").inner_text()
        assert told.startswith(said) and "torchreel view run.reel --atlas site" in told
        assert page.count("source-page-note") == 0
        page.close()
