"""The scripts that hold the words: safe names, safe bytes, and the same again when they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchreel.atlas.search_index.shards import (
    call,
    called,
    letters,
    number_of,
    path_of,
    read_rows,
    rows_text,
    shard_of,
    shards_in,
)
from torchreel.errors import AtlasError

HOSTILE = ["</script>", "\u2028\u2029", "\"'`${x}", "\\", "__proto__", "\udc80", "a\0b\n", "größe", "𐐨"]


def test_names_of_shards_are_safe_names_of_files() -> None:
    words = ["thread", "x", "a_b", "2d", "größe", "öl", "𐐨y", "..", "/etc", "con"]
    assert [shard_of(word) for word in words] == ["th", "x", "a_", "2d", "gr", "-l", "-y", "--", "-e", "co"]


def test_numbers_of_files_are_small_letters() -> None:
    assert [letters(number) for number in (0, 25, 26, 675, 676, 17_575, 17_576)] == [
        *("a", "z", "ba", "zz", "baa", "zzz", "baaa")
    ]
    assert [number_of(letters(number)) for number in range(0, 20_000, 7)] == list(range(0, 20_000, 7))


def test_a_shard_is_one_string_in_the_order_of_its_words(tmp_path: Path) -> None:
    rows = {"threads": "cM7", "ThreadLocal": "bC33N", "_thread": "aA120cM7", "thread": "aJ", "thé": "aB2", "théa": "aA"}
    rows |= {"ThreadLocals": "bM", "th" * 20: "aA", "th" * 20 + "z": "aA"}
    text = rows_text("th", rows)
    assert text == (
        'torchreelAtlas.shard("th","0thread aJ;0_thread aA120cM7;0ThreadLocal bC33N;bs bM;0threads cM7;'
        f'2{"th" * 19} aA;zhththz aA;2\\u00e9 aB2;2\\u00e9a aA")\n'
    )
    (tmp_path / "search").mkdir()
    (tmp_path / path_of("th")).write_text(text)
    (tmp_path / "search" / "files.js").write_text("")
    assert read_rows(tmp_path, "th") == rows
    assert read_rows(tmp_path, "zz") == {}
    assert shards_in(tmp_path) == ["th"]


def test_what_is_handed_over_comes_back_whatever_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.js"
    path.write_text(call("files", {"files": HOSTILE}, 1))
    assert path.read_bytes().isascii()
    assert called(path, "files") == [{"files": HOSTILE}, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        'torchreelAtlas.shard("th",',
        'alert("th","a aA")\n',
        "torchreelAtlas.shard(x)\n",
        'torchreelAtlas.shard("th",1)\n',
        'torchreelAtlas.shard("th","é aA")\n',
        'torchreelAtlas.shard("th","0one two three")\n',
        'torchreelAtlas.shard("th","")\n',
        'torchreelAtlas.shard("th","!a aA")\n',
    ],
)
def test_a_damaged_shard_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / path_of("th")).write_text(text)
    with pytest.raises(AtlasError, match=r"is damaged: .*th\.js cannot be read\. Make the atlas again\."):
        read_rows(tmp_path, "th")
