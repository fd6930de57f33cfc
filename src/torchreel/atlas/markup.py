"""A source text as HTML: comments, strings and so on in spans, and a place for the link of each name.

The links of a name are known only when all files have been read. Until then a name stands in the text as a *slot*: the
character 1, the index of its use, the character 2, the name, and the character 3. Sources that hold these characters
show their pictures (␁) instead, as for all control characters.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from torchreel.atlas.model import COMMENT, DEFINITION, KEYWORD, NUMBER, PREPROCESSOR, STRING

_CLASSES = {COMMENT: "c", STRING: "s", KEYWORD: "k", NUMBER: "n", DEFINITION: "d", PREPROCESSOR: "p"}
_CONTROL = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {127: "␡"}
_CONTROL_BYTES = bytes(_CONTROL)


def marked(text: str, tokens: Sequence[tuple[int, int, int]]) -> str:
    """The text as HTML with slots; its lines are those of the text, and no span reaches over the end of a line."""
    parts: list[str] = []
    add = parts.append
    text = shown(text)
    at = 0
    escape = html.escape
    for start, end, kind in tokens:
        if start > at:
            add(escape(text[at:start], False))
        at = end
        token = text[start:end]
        if not token.isidentifier():  # which most tokens are, and need nothing of this
            token = escape(token, False)
        if kind >= 0:
            add(f"\x01{kind}\x02{token}\x03")
            continue
        mark = _CLASSES[kind]
        if "\n" in token:
            token = token.replace("\n", f'</span>\n<span class="{mark}">')
        add(f'<span class="{mark}">{token}</span>')
    add(escape(text[at:], False))
    return "".join(parts)


def linked(marked_text: str, opening: Sequence[str]) -> str:
    """The same with links for slots: `opening` has the start tag of each use, or nothing for plain text."""
    pieces = marked_text.split("\x01")
    parts = [pieces[0]]
    add = parts.append
    for piece in pieces[1:]:
        slot, _, rest = piece.partition("\x02")
        tag = opening[int(slot)]
        if tag:
            add(tag)
            add(rest.replace("\x03", "</a>", 1))
        else:
            add(rest.replace("\x03", "", 1))
    return "".join(parts)


def shown(text: str) -> str:
    """The text with pictures for control characters, of the same length."""
    data = text.encode("utf-8", "surrogatepass")  # where such a character is one byte: to look for bytes is fastest
    return text.translate(_CONTROL) if len(data.translate(None, _CONTROL_BYTES)) < len(data) else text
