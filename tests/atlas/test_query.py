"""SQL over a site."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.atlas.generate.test_run import program, recorded
from torchreel.atlas import query
from torchreel.atlas.generate.build import build
from torchreel.errors import AtlasError, QueryError


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("query")
    build(folder / "site", recorded(program(folder / "program"), folder / "run.reel"), jobs=1)
    return folder / "site"


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("select path from files order by path", [("model.py",), ("train.py",)]),
        ("select count(*) > 0 from references where name = 'forward'", [(True,)]),
        ('select count(*) > 0 from "references" where "column" >= 0', [(True,)]),
        ("select count(column) > 0 from references", [(True,)]),
        ("select count(*) from imports where to is not null", [(1,)]),
        ("select 'references, to' as text", [("references, to",)]),
        ("select sum(self_ns) from ops where stack is not null", [(617,)]),
        ("select path, name from files, ops where name = 'aten::add' order by 1 limit 1", [("model.py", "aten::add")]),
    ],
)
def test_questions(site: Path, statement: str, rows: list[tuple[object, ...]]) -> None:
    assert [tuple(row.values()) for row in query.run(site, statement).to_pylist()] == rows


def test_nonsense_is_a_sentence(site: Path) -> None:
    with pytest.raises(QueryError, match="The tables are files, symbols"):
        query.run(site, "select * from nowhere")
    with pytest.raises(QueryError):
        query.run(site, "selec references")


def test_a_reel_that_is_gone_leaves_the_tables_of_the_site(site: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(site, tmp_path / "site")
    about = tmp_path / "site/atlas.json"
    about.write_text(about.read_text().replace("run.reel", "gone.reel"))
    assert query.run(tmp_path / "site", "select count(*) from files").to_pylist()[0] == {"count_star()": 2}
    with pytest.raises(QueryError, match="ops"):
        query.run(tmp_path / "site", "select count(*) from ops")
    about.write_text("{")
    with pytest.raises(AtlasError, match="make the site anew"):
        query.run(tmp_path / "site", "select count(*) from ops")
