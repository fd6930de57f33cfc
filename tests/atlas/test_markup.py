"""A source as HTML: whole, line by line, and with nothing in it that a browser would take for markup."""

from __future__ import annotations

from html.parser import HTMLParser

from torchreel.atlas import markup
from torchreel.atlas.model import COMMENT, DEFINITION, KEYWORD, STRING


class Text(HTMLParser):
    """What a reader sees."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)


def seen(html: str) -> Text:
    text = Text()
    text.feed(html)
    text.close()
    return text


def test_spans_and_links() -> None:
    source = "def f(): # a <b>\n    return g\n"
    tokens = [(0, 3, KEYWORD), (4, 5, DEFINITION), (9, 16, COMMENT), (21, 27, KEYWORD), (28, 29, 0)]
    marked = markup.marked(source, tokens)
    assert markup.linked(marked, ['<a href="x.html">']) == (
        '<span class="k">def</span> <span class="d">f</span>(): <span class="c"># a &lt;b&gt;</span>\n'
        '    <span class="k">return</span> <a href="x.html">g</a>\n'
    )
    assert markup.linked(marked, [""]).splitlines()[1] == '    <span class="k">return</span> g'


def test_a_token_over_several_lines_is_closed_in_each() -> None:
    assert markup.marked('"""a\n\nb"""', [(0, 10, STRING)]) == (
        '<span class="s">"""a</span>\n<span class="s"></span>\n<span class="s">b"""</span>'
    )


def test_control_characters_are_pictures_and_cannot_be_slots() -> None:
    source = "a\x01" + "0\x02b\x03 \x1b[31m \x7f\tc"
    html = markup.linked(markup.marked(source, []), [])
    assert html == "a␁0␂b␃ ␛[31m ␡\tc"


def test_a_hostile_text_is_only_text() -> None:
    source = "</script><script>alert(1)</script>&lt;<!-- ]]> '\"\n" * 3
    shown = seen(markup.linked(markup.marked(source, [(0, 9, STRING), (9, 17, 0)]), ['<a href="#x">']))
    assert shown.text == source
    assert shown.tags == {"span", "a"}
