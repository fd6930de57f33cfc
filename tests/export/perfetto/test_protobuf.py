from __future__ import annotations

from torchreel.export.perfetto.protobuf import fixed64, message, number, text, varint


def test_varints() -> None:
    assert [varint(value) for value in (0, 127, 128, 300)] == [b"\0", b"\x7f", b"\x80\x01", b"\xac\x02"]
    assert varint(-1) == b"\xff" * 9 + b"\x01"


def test_fields() -> None:
    assert number(1, 150) == b"\x08\x96\x01"
    assert text(2, "testing") == b"\x12\x07testing"
    assert message(3, number(1, 150)) == b"\x1a\x03\x08\x96\x01"
    assert fixed64(47, 1) == b"\xf9\x02" + b"\x01" + b"\0" * 7
    assert text(1, "\ud800") == b"\x0a\x03\xef\xbf\xbd"
