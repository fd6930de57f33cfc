"""What sections say."""

from __future__ import annotations

import pytest

from tests.atlas.site.example_facts import COSTS, SITE, file_facts
from torchreel.atlas.model import Costs, FileFacts
from torchreel.atlas.site.sections import (
    BY_DISPATCH,
    NOT_ENTERED,
    NOT_IN_RECORDING,
    NOT_RECORDED,
    counts_text,
    language_text,
    looked_for_text,
    performance_text,
)


@pytest.mark.parametrize(
    ("recorded", "costs", "language", "text"),
    [
        (False, None, "python", NOT_RECORDED),
        (True, None, "python", NOT_IN_RECORDING),
        (True, Costs(), "python", NOT_ENTERED),
        (True, Costs(), "c++", NOT_ENTERED),
        (True, COSTS, "python", ""),
        (True, COSTS, "c++", BY_DISPATCH),
        (True, COSTS, "cuda", BY_DISPATCH),
    ],
)
def test_nothing_recorded_is_not_nothing_spent(recorded: bool, costs: Costs | None, language: str, text: str) -> None:
    facts = FileFacts("r", "p", "files/r/p.html", language, 1, 1, "00", recorded=recorded, costs=costs)
    assert performance_text(facts) == text


def test_counts() -> None:
    assert counts_text(file_facts()) == "1 class, 1 method, 1 attribute, 1 import."
    assert counts_text(FileFacts("r", "p", "files/r/p.html", "c++", 0, 0, "00")) == "0 includes."


def test_what_was_looked_for() -> None:
    facts = file_facts()
    assert looked_for_text(facts, SITE) == "Looked for: eval, exec."
    facts.language = "yaml"
    assert looked_for_text(facts, SITE) == "No calls are looked for in files of this language (YAML)."


def test_languages() -> None:
    assert [language_text(one) for one in ("python", "c++", "markdown", "")] == ["Python", "C++", "Markdown", ""]
