"""Looks: colours, sizes, and that nothing is cut sideways, measured in a real browser."""

from __future__ import annotations

import pytest

from tests.web.conftest import Page

pytestmark = pytest.mark.browser

SCREENS = [
    "overview",
    "timeline",
    "flame",
    "ops",
    "modules",
    "memory",
    "segments",
    "source",
    "tape",
    "diff",
    "edge",
    "sql",
]
# Of each name in light and in dark.
COLOURS = {
    "ground": ("f6f7f9", "14171d"),
    "panel": ("ffffff", "1b1f27"),
    "line": ("dfe2e8", "2e3440"),
    "ink": ("1c2230", "e8ebf1"),
    "soft": ("5b6475", "9aa4b5"),
    "accent": ("0b62d6", "6cb0ff"),
    "matmul": ("1566c9", "69adff"),
    "convolution": ("3c4fc4", "92a2ff"),
    "attention": ("7b3fb5", "c394f2"),
    "module": ("566a86", "8fa6c6"),
    "backward": ("a08cc0", "ab9acb"),
    "normalisation": ("0e7a83", "4cc7d2"),
    "index": ("0f7f56", "4fcf9c"),
    "elementwise": ("378029", "86cf75"),
    "copy": ("6b7382", "8b94a5"),
    "optimizer": ("bd5209", "ff9d57"),
    "communication": ("c7323a", "ff7b80"),
    "data": ("8a6116", "d9ab55"),
    "range": ("a3246f", "f58bc4"),
}
_STYLE = "getComputedStyle(document.querySelector({selector!r}))[{name!r}]"


def style(page: Page, selector: str, name: str) -> str:
    return str(page.page.evaluate(_STYLE.format(selector=selector, name=name)))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_colours_are_those_of_the_table(page: Page, theme: str) -> None:
    page.show(f"#/overview?theme={theme}")
    names = list(COLOURS)
    found = page.page.evaluate(
        "(names) => names.map((n) => getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim())",
        names,
    )
    assert dict(zip(names, found, strict=True)) == {name: f"#{pair[theme == 'dark']}" for name, pair in COLOURS.items()}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_is_read_on_every_colour() -> None:
    """White in a call on light, nearly black on dark; no text stands on the phase of backward."""
    families = [name for name in COLOURS if name not in ("ground", "panel", "line", "ink", "soft", "backward")]
    for name in families:
        light, dark = COLOURS[name]
        assert contrast("ffffff", light) >= 4.5 and contrast("0d1016", dark) >= 4.5, name
    for at in (0, 1):
        for ground in ("ground", "panel"):
            for text in ("ink", "soft", "accent"):
                assert contrast(COLOURS[text][at], COLOURS[ground][at]) >= 4.5, (text, ground)


def test_sizes(page: Page) -> None:
    page.show("#/timeline?theme=light")
    boxes = page.page.evaluate(
        "['.rail', '.bar', '.details'].map((s) => {"
        " const b = document.querySelector(s).getBoundingClientRect(); return [b.width, b.height]; })"
    )
    assert (boxes[0][0], boxes[1][1], boxes[2][1]) == (152, 44, 186)
    page.show("#/ops")
    page.wait_for("op-row", 3)
    heights = page.page.evaluate(
        "[...document.querySelectorAll('[data-testid=op-row]')].map((r) => r.getBoundingClientRect().height)"
    )
    assert set(heights) == {25}
    assert (style(page, ".ops", "borderRadius"), style(page, ".by-words button", "borderRadius")) == ("8px", "6px")
    assert (style(page, "body", "fontSize"), style(page, "table.grid", "fontSize")) == ("13px", "12px")
    assert style(page, "body", "fontVariantNumeric") == "tabular-nums"
    page.show("#/overview")
    assert style(page, ".number", "fontSize") == "20px"
    shadows = page.page.evaluate(
        "[...document.querySelectorAll('*')].filter((e) => getComputedStyle(e).boxShadow !== 'none')"
    )
    assert shadows == []


# What holds more than it shows and has no way to scroll or an ellipsis, and whatever makes the screen scroll sideways.
_CUT = """() => {
    const found = [];
    const main = document.querySelector('main');
    const page = document.documentElement;
    if (page.scrollWidth > innerWidth || main.scrollWidth > main.clientWidth) found.push("the page");
    for (const each of document.querySelectorAll('main *, header, header *, nav, nav *')) {
        if (each.scrollWidth <= each.clientWidth + 1 || !each.clientWidth) continue;
        const { overflowX, textOverflow, display } = getComputedStyle(each);
        if (overflowX === 'hidden' && textOverflow === 'ellipsis') continue;
        if (overflowX === 'hidden' || overflowX === 'auto') found.push(`${each.tagName}.${each.className}`);
    }
    return found;
}"""


@pytest.mark.parametrize("width", [1280, 2560])
def test_no_screen_scrolls_sideways(page: Page, width: int) -> None:
    page.page.set_viewport_size({"width": width, "height": 800 if width == 1280 else 1440})
    try:
        found = {}
        for screen in SCREENS:
            page.show(f"#/{screen}")
            found[screen] = page.page.evaluate(_CUT)
        assert found == {screen: [] for screen in SCREENS}
    finally:
        page.page.set_viewport_size({"width": 1280, "height": 800})


# A number that ends in an ellipsis is a wrong one.
_CUT_NUMBERS = """() => [...document.querySelectorAll('main td.n, main .number, main b[data-ns], main .percent')]
    .filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== 'visible')
    .map((each) => each.innerText)"""


def test_no_number_is_shortened(page: Page) -> None:
    for screen in SCREENS:
        page.show(f"#/{screen}")
        assert page.page.evaluate(_CUT_NUMBERS) == [], screen
