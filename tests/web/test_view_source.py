"""The source screen in a real browser: which text it shows, what it says of it, and that it stays text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import Process, call, write_reel
from tests.web.conftest import Page, viewing

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="window.hacked=1">'
RECORDED = f'def run(x):\n    """{HOSTILE}"""\n    return x + 1  # the costly one\n'
COSTLY, LONG = 3, 5000


def row(path: Path, content: str, text: str | None) -> dict[str, Any]:
    data = content.encode()
    return {"path": str(path), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "text": text}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files as they are now, beside a reel that ran them as they were."""
    directory = tmp_path_factory.mktemp("sources")
    texts = {
        "same.py": RECORDED,
        "changed.py": f"# new\n{RECORDED}",
        "hashed.py": RECORDED,
        "lost.py": f"# new\n{RECORDED}",
        "unknown.py": RECORDED,
        "long.py": "x = 1\n" * LONG,
    }
    for name, text in texts.items():
        (directory / name).write_text(text)
    sources = [
        *(row(directory / name, RECORDED, RECORDED) for name in ("same.py", "changed.py", "gone.py")),
        *(row(directory / name, RECORDED, None) for name in ("hashed.py", "lost.py")),
        row(directory / "long.py", texts["long.py"], texts["long.py"]),
    ]
    calls = [
        call(
            "aten::mm", 5_000 + at, stack=((str(directory / name), LONG // 2 if name == "long.py" else COSTLY, "run"),)
        )
        for at, name in enumerate([*texts, "gone.py"])
    ]
    write_reel(directory / "run.reel", Process({"main": calls}, sources=sources))
    return directory


@pytest.fixture(scope="module")
def page(browser: Any, directory: Path) -> Iterator[Page]:
    with viewing(directory / "run.reel") as url:
        page = Page(browser, url)
        yield page
        page.close()


def shown(page: Page, file: Path) -> tuple[list[str], str | None, str | None]:
    """The lines, the state and the sentence."""
    page.show(f"#/source?file={file}")
    page.until(lambda: page.page.locator(f'[data-file="{file}"][aria-pressed="true"]').count() == 1, "the choice")
    page.wait_for("source-line")
    page.settle()
    lines = [cell.inner_text() for cell in page.page.locator(".code td.text").all()]
    notes = page.all("source-note").all()
    assert len(notes) <= 1
    return lines, *((notes[0].get_attribute("data-state"), notes[0].inner_text()) if notes else (None, None))


TEXT = RECORDED.splitlines()
CASES = {
    "same.py": (TEXT, None, None),
    "changed.py": (TEXT, "changed", "changed since the recording: this is the text that was recorded"),
    "gone.py": (TEXT, "missing", "not on this machine: this is the text that was recorded"),
    "hashed.py": (TEXT, None, None),
    "lost.py": (["run"], "changed", "changed since the recording: line numbers only"),
    "unknown.py": (TEXT, "unknown", "as it is on this machine now: the recording has no hash to compare it with"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_recorded_text_is_shown_and_a_change_is_said(page: Page, directory: Path, name: str) -> None:
    assert shown(page, directory / name) == CASES[name]
    lines = page.all("source-line")
    assert [line.get_attribute("data-line") for line in lines.all()] == [str(COSTLY)]
    assert int(lines.first.get_attribute("data-self-ns")) >= 5_000
    assert page.page.evaluate("window.hacked") is None and page.page.locator("main img").count() == 0


def test_a_line_has_an_address(page: Page, directory: Path) -> None:
    page.show(f"#/source?file={directory / 'same.py'}")
    page.wait_for("source-line").first.locator("a").click()
    page.until(lambda: page.page.locator(f'tr.hot[data-line="{COSTLY}"]').count() == 1, "the line of the address")
    assert f"line={COSTLY}" in page.address()


@pytest.mark.parametrize("width", [1280, 2560])
def test_numbers_of_lines_stand_below_each_other(page: Page, directory: Path, width: int) -> None:
    """With and without a cost, and where the parts of self are hidden for want of room."""
    page.page.set_viewport_size({"width": width, "height": 800})
    try:
        for name in ("same.py", "long.py"):
            shown(page, directory / name)
            ends = page.page.evaluate(_ENDS)
            assert len(ends) > 2 and {len(set(column)) for column in zip(*ends, strict=True)} == {1}, name
    finally:
        page.page.set_viewport_size({"width": 1280, "height": 800})


# Where the number and the text of each row end, the head's too.
_ENDS = """() => [...document.querySelectorAll('.code tr')].map((row) =>
    [...row.cells].slice(-2).map((cell) => Math.round(cell.getBoundingClientRect().right)))"""


def test_a_long_file_is_folded_where_nothing_costs(page: Page, directory: Path) -> None:
    lines, _, _ = shown(page, directory / "long.py")
    folds = page.page.locator(".fold button")
    rows = len(lines) - folds.count()
    assert folds.count() == 2 and 20 < rows < 100
    hidden = [int(text.split()[0].replace(",", "")) for text in folds.all_inner_texts()]
    assert sum(hidden) + rows == LONG
    assert page.page.locator(f'[data-line="{LONG // 2}"]').count() == 1
    folds.first.click()
    page.until(lambda: len(page.page.locator(".code td.text").all()) == len(lines) + 500, "more lines")


def test_a_file_that_no_frame_names_is_refused(page: Page, directory: Path) -> None:
    (directory / "secret.py").write_text("key = 1\n")
    page.show(f"#/source?file={directory / 'secret.py'}")
    page.until(lambda: "No frame of this reel is in that file" in page.page.inner_text("main"), "a sentence")
    assert "key = 1" not in page.page.inner_text("main")
