"""The overview of a long run: what it adds up call by call is that of the steps that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.long_reel import lengthen

import torchreel
from torchreel.analyze import averages, typical_step
from torchreel.analyze.source.lines import user_lines
from torchreel.web.query import Query
from torchreel.web.questions import overview as question
from torchreel.web.viewed_reel import ViewedReel


@pytest.fixture(scope="module")
def long_run(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> torchreel.Reel:
    ops = torchreel.load(trained).table("ops", ["id"]).num_rows
    path = tmp_path_factory.mktemp("long") / "long.reel"
    assert lengthen(trained, path, 10 * ops) == 10
    return torchreel.load(path)


def test_a_run_that_is_not_long_is_added_up_wholly(long_run: torchreel.Reel) -> None:
    answer = question.overview(ViewedReel(long_run), Query())
    assert answer["part"] is None
    assert answer["ops"] == averages(long_run, "name", limit=10).to_pylist()


def test_a_long_run_is_added_up_in_part_and_says_so(long_run: torchreel.Reel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question, "_MOST_CALLS", long_run.table("ops", ["id"]).num_rows // 5)
    answer = question.overview(ViewedReel(long_run), Query())
    first, last = answer["part"]
    steps = {row["step"]: row for row in long_run.table("steps").to_pylist()}
    assert 0 < first < last < max(steps)
    within = (steps[first]["start_ns"], steps[last]["end_ns"])
    assert answer["ops"] == averages(long_run, "name", limit=10, within=within).to_pylist()
    assert answer["modules"] == averages(long_run, "module", limit=10, within=within).to_pylist()
    assert answer["lines"] == user_lines(long_run, within).slice(0, 8).to_pylist()
    # The step is that of the whole run.
    step = typical_step(long_run)
    assert step is not None and answer["step"] == step.as_dict() and len(answer["steps"]) == len(steps)


def test_ids_and_times_of_a_lengthened_reel_fit(long_run: torchreel.Reel) -> None:
    wrong = long_run.sql(
        "select count(*) as n from ops as o left join ops as p on p.process = o.process and p.id = o.parent"
        " where o.parent is not null and (p.id is null or o.start_ns < p.start_ns"
        " or o.start_ns + o.dur_ns > p.start_ns + p.dur_ns + 2)"
    )
    assert wrong["n"][0].as_py() == 0
