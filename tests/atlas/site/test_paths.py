"""Where pages lie: no two files share one, and every link finds its way back."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchreel.atlas.site import paths

NAMES = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=("Cs",))
    | st.sampled_from(["\udc80", "\udcff", "~", "."]),
    min_size=1,
    max_size=300,
).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


def test_plain_names_keep_their_spelling() -> None:
    assert paths.file_page("torch", "nn/linear.py") == "files/torch/nn/linear.py.html"
    assert paths.twin("torch", "nn/linear.py") == "md/torch/nn/linear.py.md"
    assert paths.folder_page("torch", "nn") == "folders/torch/nn/index.html"
    assert paths.folder_page("torch", "") == "folders/torch/index.html"
    assert paths.operator_page("aten::add_") == "ops/aten/add_.html"


def test_a_folder_that_looks_like_a_page_does_not_take_its_place() -> None:
    page, inside = paths.file_page("r", "a.py"), paths.file_page("r", "a.py.html/b.py")
    assert page == "files/r/a.py.html"
    assert not inside.startswith(page + "/")
    assert paths.folder_page("r", "index.html") != paths.folder_page("r", "") + "/index.html"
    assert not paths.folder_page("r", "index.html").startswith(paths.folder_page("r", "") + "/")


@settings(max_examples=150, deadline=None)
@given(st.lists(PATHS, min_size=2, max_size=2, unique=True))
def test_two_files_never_share_a_page(both: list[str]) -> None:
    pages = [paths.file_page("r", path) for path in both]
    assert pages[0] != pages[1]
    for page in pages:
        assert all(len(part.encode()) <= 255 for part in page.split("/"))
        assert ".." not in page.split("/")
        assert page.isprintable() or not any(ord(character) < 32 for character in page)


@settings(max_examples=150, deadline=None)
@given(PATHS, PATHS, st.text(max_size=20))
def test_a_link_leads_where_it_should(start: str, end: str, anchor: str) -> None:
    page, target = paths.file_page("r", start), paths.file_page("other", end)
    link = paths.href(page, target, anchor)
    path, _, fragment = link.partition("#")
    assert posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(path))) == target
    assert unquote(fragment) == anchor
    assert not set(link) & set("\"'<>& \n")
    assert ":" not in link.split("/")[0]


def test_a_link_within_a_page_stands_alone() -> None:
    assert paths.href("files/r/a.html", "files/r/a.html", "L3") == "#L3"
    assert paths.href("index.html", "files/r/a.html") == "files/r/a.html"
    assert paths.href("files/r/a.html", "index.html") == "../../index.html"
    assert paths.href("", "files/r/a b.html") == "files/r/a%20b.html"


@pytest.mark.parametrize(
    ("word", "split", "page"),
    [
        ("relu", (), "keywords/R.html"),
        ("__init__", (), "keywords/I.html"),
        ("relu", ("R",), "keywords/R-e.html"),
        ("r", ("R",), "keywords/R-other.html"),
        ("7zip", (), "keywords/other.html"),
        ("ß", (), "keywords/other.html"),
        ("_", (), "keywords/other.html"),
    ],
)
def test_the_page_of_a_keyword(word: str, split: tuple[str, ...], page: str) -> None:
    assert paths.keyword_page(word, split) == page
