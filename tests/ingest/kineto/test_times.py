"""Microseconds as text become nanoseconds, whatever their form: the fast ways against Python's decimals."""

from __future__ import annotations

import decimal
import random

import pytest
from msgspec import Raw

from torchreel.ingest.kineto.columns import NOTHING
from torchreel.ingest.kineto.times import nanoseconds


def raws(texts: list[str]) -> list[Raw]:
    return [Raw(text.encode()) for text in texts]


def exact(text: str) -> int:
    value = int((decimal.Decimal(text) * 1000).to_integral_value())
    return value if abs(value) < 2**62 else NOTHING


@pytest.mark.parametrize("decimals", [0, 1, 2, 3])
@pytest.mark.parametrize("digits", [1, 5, 13, 16])
def test_times_of_one_form(decimals: int, digits: int) -> None:
    chance = random.Random(digits * 10 + decimals)
    whole = [str(chance.randrange(10 ** (digits - 1), 10**digits)) for _ in range(50)]
    point = "." if decimals else ""
    texts = [f"{each}{point}{chance.randrange(10**decimals):0{decimals}}" if decimals else each for each in whole]
    assert nanoseconds(raws(texts)).tolist() == [exact(text) for text in texts]


def test_times_of_many_forms() -> None:
    texts = ["1", "12.5", "1.25", "0.001", "-3", "4611686018427387.903", "4611686018427387.904", "9999999999999999.999"]
    texts += ["9223372036854775807", "99999999999999999999999", "1e3", "1.0000", "0.0004", "123456789012345678"]
    for chosen in (texts, *([text] for text in texts)):
        assert nanoseconds(raws(chosen)).tolist() == [exact(text) for text in chosen]


@pytest.mark.parametrize("text", ["", "null", "true", "[1]", '"x"', "NaN", "1e999", ".", "1.2.3"])
def test_what_is_no_time(text: str) -> None:
    assert nanoseconds(raws([text, "5", "6.250"])).tolist() == [NOTHING, 5000, 6250]
    assert nanoseconds(raws([text])).tolist() == [NOTHING]


def test_texts_and_two_signs() -> None:
    assert nanoseconds(raws(['"12.5"', "0.-05", "-1.-005", "7.-123"])).tolist() == [12500, -5, -1005, 6877]
    assert nanoseconds([]).tolist() == []
