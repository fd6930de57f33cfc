"""A docstring or comment as HTML: the words as they are, with paragraphs that flow and code that stays in its lines."""

from __future__ import annotations

import re
from html import escape

from torchreel.atlas.site.format import writable

_CODE = re.compile(r"``([^`\n]+)``|(?<![`\w])(?::[\w:+-]+:)?`([^`\n]+)`(?!`)")
_ITEM = re.compile(r"\s*([-*+•]|\d+[.)]|:\w)\s?")
_BLANK_LINE = "\n\n"
_DRAWN = re.compile(r"\s*(>>>|\.\.\. |[|+][-=|+ ]|[-=~^][-=~^ ]{3,}$|\$ |#)")


def prose(doc: str) -> str:
    """The text in paragraphs. One with indented or listed lines keeps its lines; examples and tables, their columns."""
    parts: list[str] = []
    drawn: list[str] = []
    for paragraph in re.split(r"\n\s*\n", writable(doc).strip("\n")):
        lines = paragraph.rstrip().split("\n")
        if any(_DRAWN.match(line) for line in lines) or (drawn and lines[0].startswith("    ")):
            drawn.append("\n".join(lines))
            continue
        _draw(parts, drawn)
        if any(line[:1].isspace() or _ITEM.match(line) for line in lines):
            parts.append(f'<p class="kept">{inline(paragraph.rstrip())}</p>\n')
        elif paragraph.strip():
            parts.append(f"<p>{inline(' '.join(lines))}</p>\n")
    _draw(parts, drawn)
    return "".join(parts)


def _draw(parts: list[str], drawn: list[str]) -> None:
    if drawn:
        parts.append(f"<pre>{escape(_BLANK_LINE.join(drawn), False)}</pre>\n")
        drawn.clear()


def inline(text: str) -> str:
    """Escaped, with code where the text has backquotes, with or without a role. Escaping leaves those as they are."""
    return _CODE.sub(lambda found: f"<code>{found[1] or found[2]}</code>", escape(text, False))
