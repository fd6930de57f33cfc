"""The site of an atlas beside the viewer, over real sockets: what is served of it, and to whom."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from tests.web.test_server import Served
from torchreel.atlas.generate.build import build
from torchreel.errors import AtlasError
from torchreel.web.answers import Answers
from torchreel.web.atlas_site import AtlasSite

TEXT = '"""Trains."""\n\n\ndef run(x):\n    return x + 1\n'


def made(directory: Path, name: str = "run") -> tuple[Path, Path]:
    """A reel and its site: the run entered train.py, as it is, old.py, as it was, and a file elsewhere."""
    sources = directory / "src"
    sources.mkdir(exist_ok=True)
    for file in ("train.py", "old.py", "odd #1?.py"):
        (sources / file).write_text(TEXT)
    ran = {"train.py": TEXT, "old.py": "before = 1\n", "odd #1?.py": TEXT}
    rows = [
        {
            "path": str(sources / file),
            "bytes": len(text),
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "text": text,
        }
        for file, text in ran.items()
    ]
    paths = [*(str(sources / file) for file in ran), "/elsewhere/library.py"]
    calls = [call("aten::mm", 1000, stack=((path, 5, "run"),)) for path in paths]
    reel = write_reel(directory / f"{name}.reel", Process({"main": calls}, sources=rows))
    site = directory / f"{name}-site"
    build(site, reel, {"src": sources}, jobs=1)
    return reel, site


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("atlas-site")


@pytest.fixture(scope="module")
def served(directory: Path) -> Iterator[Served]:
    reel, site = made(directory)
    (directory / "secret.html").write_text("secret")
    (site / "linked.html").symlink_to(directory / "secret.html")
    (site / "out").symlink_to(directory)
    os.mkfifo(site / "pipe.html")
    loaded = torchreel.load(reel)
    server = Served(Answers(loaded, None, AtlasSite(site, loaded)))
    yield server
    server.close()


def page_of(served: Served, file: Path | str) -> Any:
    from urllib.parse import quote

    status, answer, _ = served.ask(f"/api/atlas?file={quote(str(file))}")
    assert status == 200
    return answer


def test_pages_styles_scripts_and_twins_are_served_as_what_they_are(served: Served, directory: Path) -> None:
    site = directory / "run-site"
    kinds = {
        "index.html": "text/html; charset=utf-8",
        "files/src/train.py.html": "text/html; charset=utf-8",
        "assets/atlas.css": "text/css; charset=utf-8",
        "assets/atlas.js": "text/javascript; charset=utf-8",
        "search/files.js": "text/javascript; charset=utf-8",
        "md/src/train.py.md": "text/plain; charset=utf-8",
        "llms.txt": "text/plain; charset=utf-8",
    }
    for path, kind in kinds.items():
        status, data, headers = served.ask(f"/atlas/{path}")
        assert (status, data, headers["content-type"]) == (200, (site / path).read_bytes(), kind), path
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';") and "form-action 'none'" in policy
        assert "unsafe" not in policy and headers["x-content-type-options"] == "nosniff"
    assert served.ask("/atlas/")[1] == (site / "index.html").read_bytes()


REFUSED = (
    "atlas.json",
    "build.msgpack",
    "data/files.parquet",
    "files",
    "files/src",
    "nothing.html",
    "linked.html",
    "out/secret.html",
    "pipe.html",
    "../secret.html",
    "..%2fsecret.html",
    "%2e%2e/secret.html",
    "files/../../secret.html",
    "files/src/train.py.html/../../../../secret.html",
    "%2fetc%2fpasswd",
    "/etc/passwd",
    "index.html%00.js",
    "%ff%fe",
    "index.html/",
)


@pytest.mark.parametrize("path", REFUSED)
def test_nothing_else_of_the_disk_is_served(served: Served, path: str) -> None:
    status, answer, headers = served.ask(f"/atlas/{path}")
    assert status == 404 and list(answer) == ["error"]
    assert headers["content-security-policy"].startswith("default-src 'none'")


def test_a_page_needs_the_token_and_is_only_read(served: Served) -> None:
    for path in ("/atlas/", "/atlas/index.html", "/atlas/nothing", "/api/atlas?file=x"):
        assert served.ask(path, token=False)[0] == 403
        assert served.ask(path, Host="evil.example")[0] == 403
    for method in ("POST", "PUT", "DELETE"):
        assert served.ask("/atlas/index.html", method=method, body=b"x")[0] == 405


def test_a_file_that_became_a_link_is_no_longer_served(served: Served, directory: Path) -> None:
    page = directory / "run-site" / "llms.txt"
    text = page.read_bytes()
    assert served.ask("/atlas/llms.txt")[1] == text
    page.unlink()
    page.symlink_to(directory / "secret.html")
    try:
        assert served.ask("/atlas/llms.txt")[0] == 404
    finally:
        page.unlink()
        page.write_bytes(text)


def test_the_page_of_a_file(served: Served, directory: Path) -> None:
    sources = directory / "src"
    found = page_of(served, sources / "train.py")
    address = "/atlas/files/src/train.py.html"
    assert found == {"file": str(sources / "train.py"), "site": "/atlas/", "page": address, "lines": 5, "why": None}
    odd = page_of(served, sources / "odd #1?.py")
    assert odd["page"] == "/atlas/files/src/odd%20%231%3F.py.html" and served.ask(odd["page"])[0] == 200


def test_where_there_is_no_page_a_sentence_says_why(served: Served, directory: Path) -> None:
    old = page_of(served, directory / "src" / "old.py")
    assert old["page"] == "/atlas/files/src/old.py.html"
    assert old["why"] == "The atlas has another version of this file than the recording: lines may have moved."
    for file in ("/elsewhere/library.py", "/etc/passwd", "", "<script>"):
        found = page_of(served, file)
        assert (found["page"], found["why"]) == (None, "This file is in no source folder of the atlas.")


def test_a_site_of_another_run_is_not_served(directory: Path) -> None:
    """Its scripts would share the origin of the viewer."""
    reel, _ = made(directory, "mine")
    _, other = made(directory, "other")
    bare = directory / "bare-site"
    build(bare, sources={"src": directory / "src"}, jobs=1)
    loaded = torchreel.load(reel)
    for site in (other, bare):
        atlas = AtlasSite(site, loaded)
        assert atlas.file("index.html") is None and atlas.file("assets/atlas.js") is None
        found = atlas.page_of(str(directory / "src" / "train.py"))
        assert found == {"site": None, "page": None, "lines": 0, "why": "The atlas was not made from this reel."}


def test_a_reel_that_is_recorded_anew_is_another_one(directory: Path) -> None:
    reel, site = made(directory, "anew")
    assert AtlasSite(site, torchreel.load(reel)).file("index.html") is not None
    shutil.rmtree(reel)
    write_reel(reel, Process({"main": [call("aten::add", 7)]}))
    assert AtlasSite(site, torchreel.load(reel)).file("index.html") is None


def test_a_site_that_is_made_anew_is_read_anew(directory: Path) -> None:
    reel, site = made(directory, "again")
    loaded = torchreel.load(reel)
    atlas = AtlasSite(site, loaded)
    assert atlas.file("files/src/later.py.html") is None
    (directory / "src" / "later.py").write_text("later = 1\n")
    build(site, reel, {"src": directory / "src"}, jobs=1)
    assert atlas.file("files/src/later.py.html") is not None
    about = json.loads((site / "atlas.json").read_text())
    (site / "atlas.json").write_text(json.dumps({**about, "complete": False}))
    assert atlas.file("index.html") is None
    (site / "atlas.json").unlink()
    assert atlas.file("index.html") is None
    assert "is not a site of torchreel" in atlas.page_of("x")["why"]


@pytest.mark.parametrize("about", [None, "", "[]", "3", "{", "[" * 100_000, '{"complete": true, "reel": 3}'])
def test_what_is_no_site(tmp_path: Path, about: str | None) -> None:
    reel = torchreel.load(write_reel(tmp_path / "a.reel", Process({"main": [call("aten::add", 7)]})))
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<script src=x.js></script>")
    if about is not None:
        (site / "atlas.json").write_text(about)
    try:
        atlas = AtlasSite(site, reel)
    except AtlasError as error:
        assert str(site) in str(error)
    else:
        assert about is not None and "reel" in about and atlas.file("index.html") is None


def test_without_a_site_there_is_nothing(directory: Path) -> None:
    reel = torchreel.load(directory / "run.reel")
    answer = Answers(reel).answer("GET", "atlas", {"file": "a.py"}, b"")
    assert answer == {"file": "a.py", "site": None, "page": None, "lines": 0, "why": None}
