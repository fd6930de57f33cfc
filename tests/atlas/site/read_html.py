"""A page as a strict reader sees it: which elements it has, and whether each that begins also ends."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = {"meta", "link", "input", "rect", "circle", "path"}


class ReadPage(HTMLParser):
    """Reads a page; raises for an element that ends without having begun, or does not end."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [], f"these elements do not end: {self._open}"

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.elements if "id" in attributes]

    @property
    def hrefs(self) -> list[str]:
        return [attributes["href"] or "" for tag, attributes in self.elements if tag == "a" and "href" in attributes]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, f"</{tag}> ends nothing"

    def handle_data(self, data: str) -> None:
        self.text += data
