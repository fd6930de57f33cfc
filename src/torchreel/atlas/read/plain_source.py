"""Texts that are no program we read -> their headings or keys, the paths and the names of code that they hold.

YAML, Markdown, CMake and others are looked at line by line: nothing here is a parser of theirs, and what a line does
not say by itself is not known. Every text takes time in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchreel.atlas.model import COMMENT, DEFINITION, Import, Parsed, Symbol, Use

_MOST_LINE = 4_000  # characters of a line that is looked at: a longer one is data
_HASH_COMMENTS = {"yaml", "cmake", "toml", "ini", "shell", "make", "docker", "starlark"}
_SLASH_COMMENTS = {"typescript", "javascript", "protobuf", "flatbuffers", "css"}
_MARKDOWN_HEADING = re.compile(r"#{1,6}\s++(?=\S)")
_RST_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*$")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
_YAML_KEY = re.compile(r"(?:- )?([A-Za-z_][\w.\-]*):(?:\s|$)")
_YAML_FUNCTION = re.compile(r"- func: ([\w.:]+)\(")
_CMAKE = re.compile(r"\s*(function|macro)\s*\(\s*(\w+)", re.I)
_SECTION = re.compile(r"\s*+\[++([^\[\]]++)\]++\s*+$")
# A path has a slash, or stands as a link, and its last part has an ending.
_PATH = re.compile(r"[\w\-./+]++")
_LINK = re.compile(r"\]\(([^()\[\]\s:#?]++)(?:#[^()\[\]\s]*+)?\)")
_ENDING = re.compile(r".*[\w\-+]\.[A-Za-z]\w{0,9}")
# Words that only code has: an underscore or a capital within, a scope before, a call behind.
_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:::|\.)[A-Za-z_]\w*)*(\(\))?")
_CODE_WORD = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|^_+[a-z]\w|[A-Z]{2}[a-z]")


def parse(text: str, language: str) -> Parsed:
    """What a text says by itself. Never raises."""
    return _Text(text, language).parsed


class _Text:
    """A text, read line by line from its beginning to its end."""

    def __init__(self, text: str, language: str) -> None:
        self.parsed = Parsed(language, symbols=[], imports=[], uses=[], lines=[], columns=[], slots=[], tokens=[])
        self._language = language
        self._slots: dict[str, int] = {}
        self._prose: list[str] = []
        self._fence = ""
        self._lines = text.split("\n")
        start = 0
        for number, line in enumerate(self._lines, 1):
            if len(line) <= _MOST_LINE:
                self._read(number, line, start)
            start += len(line) + 1
        self.parsed.prose = "\n".join(self._prose)
        self.parsed.doc = self._documentation()

    def _read(self, number: int, line: str, start: int) -> None:
        heading = self._heading(number, line, start)
        comment = self._comment(line, start)
        if not heading:
            self._paths(number, line)
            self._names(number, line, start, comment)

    def _heading(self, number: int, line: str, start: int) -> bool:
        """Whether the line is a heading or a key; it is a symbol then."""
        found = _FINDERS.get(self._language, _nothing)(self, number, line)
        if found is None:
            return False
        name, kind, column = found
        self.parsed.symbols.append(Symbol(name, "", kind, number, number, line.strip()[:200], column=column))
        end = min(column + len(name), len(line))
        if end > column:
            self.parsed.tokens.append((start + column, start + end, DEFINITION))
        return kind == "heading"

    def _comment(self, line: str, start: int) -> int:
        """Where a comment begins in the line, or its length."""
        marks = "#" if self._language in _HASH_COMMENTS else "//" if self._language in _SLASH_COMMENTS else ""
        stripped = line.lstrip()
        if not marks or not stripped.startswith(marks):
            if self._language in ("markdown", "rst", "text"):
                self._prose.append(line)
            return len(line)
        at = len(line) - len(stripped)
        self._prose.append(stripped.lstrip(marks).strip())
        self.parsed.tokens.append((start + at, start + len(line), COMMENT))
        return at

    def _paths(self, number: int, line: str) -> None:
        paths = [path for path in (one.rstrip("./-+") for one in _PATH.findall(line)) if "/" in path.lstrip("/")]
        for path in dict.fromkeys([*paths, *_LINK.findall(line)]):
            if "//" not in path and _ENDING.fullmatch(path.rpartition("/")[2]):
                self.parsed.imports.append(Import(number, path))

    def _names(self, number: int, line: str, start: int, comment: int) -> None:
        for found in _NAME.finditer(line):
            for name, at in _parts(found[0]):
                if _CODE_WORD.search(name) is None and found[1] is None and "::" not in found[0]:
                    continue
                column = found.start() + at
                slot = self._slots.setdefault(name, len(self._slots))
                if slot == len(self.parsed.uses):
                    self.parsed.uses.append(Use(name))
                self.parsed.lines.append(number)
                self.parsed.columns.append(column)
                self.parsed.slots.append(slot)
                last = self.parsed.tokens[-1][1] if self.parsed.tokens else 0
                if column < comment and start + column >= last:
                    self.parsed.tokens.append((start + column, start + column + len(name), slot))

    def underlined(self, number: int, line: str) -> tuple[str, str, int] | None:
        """A heading of reStructuredText: the line below is as long and of one character."""
        below = self._lines[number] if number < len(self._lines) else ""
        is_heading = line.strip() and not line[0].isspace() and _RST_UNDERLINE.match(below)
        if not is_heading or len(below.rstrip()) < len(line.rstrip()) or _RST_UNDERLINE.match(line):
            return None
        return line.strip(), "heading", 0

    def marked(self, number: int, line: str) -> tuple[str, str, int] | None:
        """A heading of Markdown, outside of code."""
        fence = _FENCE.match(line)
        if fence:
            if not self._fence:
                self._fence = fence[1]
            elif fence[1].startswith(self._fence):
                self._fence = ""
            return None
        found = None if self._fence else _MARKDOWN_HEADING.match(line)
        if found is None:
            return None
        name = line[found.end() :].rstrip()
        closed = name.rstrip("#")
        return (closed.rstrip() if closed[-1:].isspace() else name), "heading", found.end()

    def _documentation(self) -> str:
        """The first paragraph: of the text, or of its first comment."""
        whole = "\n".join(self._prose).strip()
        paragraphs = (one.strip() for one in re.split(r"\n\s*\n", whole))
        headings = {symbol.signature for symbol in self.parsed.symbols if symbol.kind == "heading"}
        for paragraph in paragraphs:
            lines = [
                one for one in paragraph.split("\n") if one.strip() not in headings and not _RST_UNDERLINE.match(one)
            ]
            if any(one.strip() for one in lines):
                return "\n".join(lines).strip()
        return ""


def _nothing(text: _Text, number: int, line: str) -> None:
    return None


def _yaml(text: _Text, number: int, line: str) -> tuple[str, str, int] | None:
    found = _YAML_FUNCTION.match(line) or _YAML_KEY.match(line)
    return (found[1], "key", found.start(1)) if found else None


def _cmake(text: _Text, number: int, line: str) -> tuple[str, str, int] | None:
    found = _CMAKE.match(line)
    return (found[2], found[1].lower(), found.start(2)) if found else None


def _sections(text: _Text, number: int, line: str) -> tuple[str, str, int] | None:
    found = _SECTION.match(line)
    return (found[1].strip(), "key", found.start(1)) if found else None


_FINDERS = {
    "markdown": _Text.marked,
    "rst": _Text.underlined,
    "yaml": _yaml,
    "cmake": _cmake,
    "toml": _sections,
    "ini": _sections,
}


def _parts(name: str) -> Iterator[tuple[str, int]]:
    """The names in a dotted or scoped one, each with where it begins."""
    for found in re.finditer(r"\w+", name):
        yield found[0], found.start()
