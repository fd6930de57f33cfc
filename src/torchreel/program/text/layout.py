"""Long calls over several lines."""

from __future__ import annotations

_WIDTH = 112  # a line of the emitted program without its indentation


def wrapped(head: str, parts: list[str], tail: str) -> list[str]:
    """`head`, the parts with commas between them, `tail`: in one line, or the parts in lines of their own."""
    line = f"{head}{', '.join(parts)}{tail}"
    if len(line) <= _WIDTH:
        return [line]
    rows = [""]
    for piece in _pieces(parts):
        if rows[-1] and len(rows[-1]) + len(piece) > _WIDTH - 4:
            rows.append("")
        rows[-1] += f"{piece} "
    return [head, *(f"    {row.rstrip()}" for row in rows), tail]


def _pieces(parts: list[str]) -> list[str]:
    """What must stay in one line. A list may be broken at its commas; text between quotes may not."""
    pieces = []
    for part in parts:
        inner = part.split(", ") if "'" not in part and '"' not in part else [part]
        pieces += [f"{piece}," for piece in inner]
    return pieces
