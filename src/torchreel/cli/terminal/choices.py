"""An option that takes several of a few words: repeated, or with commas between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click


def choices(words: Sequence[str]) -> Callable[[click.Context, click.Parameter, Sequence[str]], tuple[str, ...]]:
    """The callback of such an option: its words, each once, in their order."""

    def chosen(ctx: click.Context, param: click.Parameter, uses: Sequence[str]) -> tuple[str, ...]:
        given = [word.strip().lower() for use in uses for word in use.split(",")]
        for word in given:
            if word not in words:
                raise click.BadParameter(f"{word!r} is not one of {', '.join(words)}.", ctx, param)
        return tuple(dict.fromkeys(given))

    return chosen


def several(*names: str, words: Sequence[str], text: str) -> Callable[[Any], Any]:
    """The decorator that gives a command such an option."""
    return click.option(*names, multiple=True, callback=choices(words), metavar="|".join(words), help=text)
