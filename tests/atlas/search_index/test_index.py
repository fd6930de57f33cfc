"""The index: a fresh one and one brought up to date have the same bytes, and only what changes is written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torchreel.atlas.search_index import Entries, FileTitle, update, write
from torchreel.errors import AtlasError

SEED = 20_240_607
WORDS = ["relu", "ReLU", "_relu", "re", "r", "thread", "größe", "𐐨", "__proto__", "constructor", "a_b", "adam", "Adam2"]
MARKS = ["A", "A12", "M7", "C3N", "N", "F120Q"]


def title(path: str, importers: int = 0) -> FileTitle:
    return FileTitle(path.rpartition("/")[2], f"files/{path}.html", path, importers)


def content(site: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (site / "search").iterdir()}


def some_entries(choices: random.Random) -> Entries:
    words = choices.sample(WORDS, choices.randrange(len(WORDS)))
    return Entries({word: choices.choice(MARKS) for word in words})


def test_the_whole_index(tmp_path: Path) -> None:
    files = {7: title("torch/nn/functional.py", 300), 3: title("torch/_refs.py"), 5: title("test/test_nn.py", 1)}
    entries = {
        3: Entries({"relu": "A9", "refs": "N"}),
        5: Entries({"relu": "M2"}),
        7: Entries({"relu": "A1760", "ReLU": "M4", "torch": "P"}),
    }
    assert sorted(write(tmp_path, files, entries)) == ["search/files.js", "search/re.js", "search/to.js"]
    found = content(tmp_path)
    assert found.keys() == {"files.js", "re.js", "to.js"}
    assert found["re.js"] == b'torchreelAtlas.shard("re","0refs bN;0ReLU cM4;0relu aM2bA9cA1760")\n'
    assert found["to.js"] == b'torchreelAtlas.shard("to","0torch cP")\n'
    assert found["files.js"].startswith(b'torchreelAtlas.files({"classes":[["A","defines",100,true],["B",')
    assert found["files.js"].endswith(
        b'"shards":"re to","files":[["test_nn.py","files/test/test_nn.py.html","test/test_nn.py",18],'
        b'["_refs.py","files/torch/_refs.py.html","torch/_refs.py",21],'
        b'["functional.py","files/torch/nn/functional.py.html","torch/nn/functional.py",42]]})\n'
    )


@pytest.mark.parametrize("round_", range(40))
def test_an_index_brought_up_to_date_has_the_bytes_of_a_fresh_one(tmp_path: Path, round_: int) -> None:
    choices = random.Random(SEED + round_)
    files: dict[int, FileTitle] = {}
    entries: dict[int, Entries] = {}
    for file in range(choices.randrange(60)):
        files[file] = title(f"r/{choices.random()}.py")
        entries[file] = some_entries(choices)
    updated, fresh = tmp_path / "updated", tmp_path / "fresh"
    write(updated, files, entries)
    for _ in range(4):
        gone = choices.sample(sorted(files), min(len(files), choices.choice([0, 0, 1, 20])))
        for file in gone:
            del files[file], entries[file]
        told = set(choices.sample(sorted(files), min(len(files), choices.choice([0, 1, 2, 20]))))
        for file in range(1000, 1000 + choices.choice([0, 0, 1, 5])):
            files[file] = title(f"r/{choices.random()}.py")
            told.add(file)
        had = {file: entries[file] for file in told if file in entries}
        entries.update({file: some_entries(choices) for file in told})
        before = content(updated)
        written = update(updated, files, {file: entries[file] for file in told}, choices.choice([None, had]))
        write(fresh, files, entries)
        after = content(updated)
        assert after == content(fresh)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert {path.removeprefix("search/") for path in written} == changed


def test_what_does_not_change_is_not_written(tmp_path: Path) -> None:
    files = {1: title("r/a.py"), 2: title("r/b.py")}
    entries = {1: Entries({"relu": "A3", "torch": "M3"}), 2: Entries({"adam": "A3"})}
    write(tmp_path, files, entries)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "search").iterdir()}
    assert update(tmp_path, files, {1: entries[1]}) == []
    assert write(tmp_path, files, entries) == []
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "search").iterdir()} == times
    assert update(tmp_path, files, {1: Entries({"relu": "A4", "torch": "M3"})}) == ["search/re.js"]
    assert times[tmp_path / "search" / "to.js"] == (tmp_path / "search" / "to.js").stat().st_mtime_ns


def test_files_that_are_shown_alike_stay_apart(tmp_path: Path) -> None:
    files = {1: FileTitle("a", "files/a~01.html", "r/a␁"), 2: FileTitle("a", "files/a.html", "r/a␁")}
    entries = {1: Entries({"one": "A1"}), 2: Entries({"two": "A2"})}
    write(tmp_path, files, entries)
    before = content(tmp_path)
    assert update(tmp_path, files, {2: Entries({"two": "A3"})}) == ["search/tw.js"]
    assert update(tmp_path, files, {2: entries[2]}) == ["search/tw.js"]
    assert content(tmp_path) == before


def test_what_many_need_is_worth_more_and_what_is_hidden_or_a_test_less() -> None:
    ranks = [
        title("r/a.py", 100).rank,
        title("r/a.py", 70).rank,
        title("r/latest.py").rank,
        title("r/s/a.py").rank,
        title("r/_a.py").rank,
        title("r/test_a.py").rank,
        title("r/testing/_a/_b/_c/_d/_e/_f.py").rank,
    ]
    assert ranks == [40, 40, 26, 24, 21, 16, 0]


def test_a_new_file_without_its_words_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {1: title("r/a.py")}, {1: Entries({"relu": "A3"})})
    before = content(tmp_path)
    with pytest.raises(AtlasError, match=r"does not know r/b\.py, and is not told its words"):
        update(tmp_path, {1: title("r/a.py"), 2: title("r/b.py")}, {})
    with pytest.raises(AtlasError, match=r"does not know r/b\.py, and is not told its words"):
        write(tmp_path, {2: title("r/b.py")}, {})
    assert content(tmp_path) == before


def test_a_missing_or_damaged_list_of_files_says_so(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match=r"There is no search index: .*files\.js is missing"):
        update(tmp_path, {}, {})
    write(tmp_path, {1: title("r/a.py")}, {1: Entries({"relu": "A3"})})
    (tmp_path / "search" / "files.js").write_text('torchreelAtlas.files({"files":[["a"]]})\n')
    with pytest.raises(AtlasError, match=r"damaged: .*files\.js cannot be read"):
        update(tmp_path, {}, {})


def test_a_shard_that_names_a_file_which_is_not_there_says_so(tmp_path: Path) -> None:
    files = {1: title("r/a.py"), 2: title("r/b.py")}
    write(tmp_path, files, {1: Entries({"relu": "A3"}), 2: Entries({"relu": "A4"})})
    (tmp_path / "search" / "re.js").write_text('torchreelAtlas.shard("re","0relu aA3zzA1")\n')
    with pytest.raises(AtlasError, match=r"damaged: .*re\.js cannot be read"):
        update(tmp_path, {2: files[2]}, {})


def test_while_shards_change_there_is_no_list_of_files(tmp_path: Path) -> None:
    """An index that was left half way says so. The folder in the way of a shard stands for a full disk."""
    write(tmp_path, {1: title("r/a.py")}, {1: Entries({"relu": "A3"})})
    (tmp_path / "search" / "re.js.part").mkdir()
    with pytest.raises(OSError, match=r"re\.js"):
        update(tmp_path, {1: title("r/a.py")}, {1: Entries({"relu": "A4", "torch": "A3"})})
    with pytest.raises(AtlasError, match="There is no search index"):
        update(tmp_path, {1: title("r/a.py")}, {})
