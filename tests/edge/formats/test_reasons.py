"""What others raise, as one sentence."""

from __future__ import annotations

import pytest

from torchreel.edge.formats.reasons import first_line, or_say
from torchreel.errors import EdgeError, OptionError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("  It is broken.\nException raised from here\n"), "It is broken"),
        (KeyError("weight"), "'weight'"),
        (ValueError(), "ValueError"),
        (ValueError(" \n "), "ValueError"),
    ],
)
def test_first_line(error: Exception, words: str) -> None:
    assert first_line(error) == words


def test_what_is_raised_becomes_a_sentence() -> None:
    with pytest.raises(EdgeError) as raised, or_say("x.pt cannot be loaded", "Save it again."):
        raise RuntimeError("It is broken.\nmore of it")
    assert str(raised.value) == "x.pt cannot be loaded: It is broken. Save it again."
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_our_own_errors_stay_as_they_are() -> None:
    with pytest.raises(OptionError, match=r"^The option is wrong\.$"), or_say("x", "y"):
        raise OptionError("The option is wrong.")
