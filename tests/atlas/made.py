"""Parsed files made by hand: what a reader would say of a text that nobody wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchreel.atlas.model import Parsed, Registration, Symbol, Use


def made(
    symbols: Sequence[Symbol] = (),
    uses: Mapping[str | Use, Sequence[int]] | None = None,
    *,
    language: str = "python",
    doc: str = "",
    prose: str = "",
    registrations: Sequence[Registration] = (),
) -> Parsed:
    """`uses` are names, or whole uses, with the lines where they stand."""
    found = {use if isinstance(use, Use) else Use(use): lines for use, lines in (uses or {}).items()}
    places = sorted((line, slot) for slot, lines in enumerate(found.values()) for line in lines)
    return Parsed(
        language,
        doc,
        list(symbols),
        uses=list(found),
        lines=[line for line, _ in places],
        columns=[0 for _ in places],
        slots=[slot for _, slot in places],
        registrations=list(registrations),
        prose=prose,
    )


def symbol(name: str, kind: str, line: int, scope: str = "", doc: str = "", *, declaration: bool = False) -> Symbol:
    return Symbol(name, scope, kind, line, line, doc=doc, declaration=declaration)
