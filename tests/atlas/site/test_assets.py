"""The style sheet and the script of the pages in a browser, opened from a disk, under their policy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import one_playwright
from tests.atlas.site.example_facts import HOSTILE, PAGES, SITE, recorded_file_facts, with_suffix
from torchreel.atlas.model import Costs
from torchreel.atlas.site.file_page import file_page
from torchreel.atlas.site.frame import ASSETS

CHROMIUM = "/usr/bin/chromium"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every page with plain facts, at its place, and with hostile ones beside."""
    site = tmp_path_factory.mktemp("ätlas #1 %41")
    shutil.copytree(ASSETS, site / "assets")
    for name, (facts, page) in PAGES.items():
        for folder, made in ((name, facts()), (f"hostile-{name}", with_suffix(facts(), HOSTILE))):
            made.page = f"pages/{folder}"
            (site / "pages").mkdir(exist_ok=True)
            (site / made.page).write_text(page(made, SITE))
    return site


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
def page(browser: Any) -> Iterator[Any]:
    """A page on which nothing may go wrong: no error, no refusal by the policy, no dialog."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: wrong.append(f"a dialog says {dialog.message}") or dialog.dismiss())
    yield page
    context.close()
    assert wrong == []


def ground(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.mark.parametrize("name", [f"{before}{name}" for name in PAGES for before in ("", "hostile-")])
def test_every_page_opens_from_a_disk_and_does_not_scroll_sideways(page: Any, site: Path, name: str) -> None:
    page.goto((site / "pages" / name).as_uri())
    assert ground(page) == "rgb(246, 247, 249)"
    assert page.locator("button.theme").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_light_and_dark_follow_the_system_and_then_the_switch(page: Any, site: Path) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto((site / "pages" / "index.html").as_uri())
    assert ground(page) == "rgb(20, 23, 29)"
    page.locator("button.theme").click()
    assert ground(page) == "rgb(246, 247, 249)"
    page.goto((site / "pages" / "folder.html").as_uri())
    assert ground(page) == "rgb(246, 247, 249)"


def test_a_slash_goes_to_the_search_field_unless_one_is_typing(page: Any, site: Path) -> None:
    page.goto((site / "pages" / "index.html").as_uri())
    field = page.locator(".search input")
    page.keyboard.press("/")
    assert field.evaluate("field => field === document.activeElement")
    page.keyboard.type("a/b")
    assert field.input_value() == "a/b"


def test_tables_sort_by_a_click_on_their_heads(page: Any, site: Path) -> None:
    page.goto((site / "pages" / "folder.html").as_uri())
    table = page.locator("table.sortable").nth(1)

    def names() -> list[str]:
        return list(table.locator("td.name").all_inner_texts())

    assert names() == ["net.py", "net.h"]
    table.get_by_role("button", name="name").click()
    assert names() == ["net.h", "net.py"]
    table.get_by_role("button", name="lines").click()
    assert names() == ["net.h", "net.py"]
    table.get_by_role("button", name="lines").click()
    assert names() == ["net.py", "net.h"]
    assert table.locator("th[aria-sort]").all_inner_texts() == ["lines"]


def test_the_line_of_the_address_is_in_view_and_the_contents_name_its_symbol(page: Any, site: Path) -> None:
    facts = recorded_file_facts()
    facts.page = "pages/long.html"
    facts.body = facts.text = "x = 1\n" * 5000
    facts.symbols[0].line, facts.symbols[1].line = 2000, 4000
    facts.symbols[2].line = 4001
    facts.line_costs = {4500: Costs(1, 1, 1, 0, 1, total_backward_ns=0)}
    (site / facts.page).write_text(file_page(facts, SITE))
    page.goto((site / facts.page).as_uri() + "#L4500")
    box = page.locator("#L4500").bounding_box()
    assert 92 <= box["y"] <= 120  # below the header and the names of the columns
    page.locator(".symbols [aria-current]").wait_for()
    assert page.locator(".symbols [aria-current]").all_inner_texts() == ["forward"]


def test_the_search_field_leads_to_the_page_of_results(page: Any, site: Path) -> None:
    (site / "search.html").write_text("<!doctype html><title>found</title>")
    page.goto((site / "pages" / "index.html").as_uri())
    page.locator(".search input").fill("a b")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.evaluate("location.search") == "?q=a+b"
    assert page.title() == "found"
