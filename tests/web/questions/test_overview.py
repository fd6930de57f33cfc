"""The overview of a long run: what it adds up call by call is that of the steps that it names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.long_reel import lengthen

import torchreel
from torchreel.analyze import averages, phases, typical_step
from torchreel.analyze.source.lines import user_lines
from torchreel.analyze.time.phases import PHASES, steps_of
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
    for limit in ("_MOST_CALLS", "_PART_CALLS"):
        monkeypatch.setattr(question, limit, long_run.table("ops", ["id"]).num_rows // 5)
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
    assert step is not None and answer["step"] == step.as_dict()


def test_a_column_is_a_step_or_the_mean_of_a_few(long_run: torchreel.Reel, monkeypatch: pytest.MonkeyPatch) -> None:
    viewed = ViewedReel(long_run)
    rows = steps_of(phases(long_run))
    single = question.overview(viewed, Query())["columns"]
    assert [(each["first"], each["last"]) for each in single] == [(row["step"], row["step"]) for row in rows]
    assert [each["phase_ns"] for each in single] == [{phase: row[f"{phase}_ns"] for phase in PHASES} for row in rows]
    monkeypatch.setattr(question, "_COLUMNS", 4)
    joined = question.overview(viewed, Query())["columns"]
    each = -(-len(rows) // 4)
    parts = [rows[at : at + each] for at in range(0, len(rows), each)]
    assert joined == [
        {
            "first": part[0]["step"],
            "last": part[-1]["step"],
            "begin": part[0]["start_ns"] - viewed.origin,
            "end": part[-1]["end_ns"] - viewed.origin,
            "wall_ns": sum(row["end_ns"] - row["start_ns"] for row in part) // len(part),
            "phase_ns": {phase: sum(row[f"{phase}_ns"] for row in part) // len(part) for phase in PHASES},
        }
        for part in parts
    ]


def test_the_memory_strip_is_that_of_all_events(long_run: torchreel.Reel) -> None:
    viewed = ViewedReel(long_run)
    curve = viewed.curve
    assert curve is not None
    memory = question.overview(viewed, Query())["memory"]
    points = len(memory["most"])
    part_of = np.minimum(curve.times * points // viewed.end, points - 1)
    level, expected = 0, []
    for part in range(points):
        inside = curve.totals[part_of == part].tolist()
        expected.append(max([level, *inside]))
        level = inside[-1] if inside else level
    peak = int(curve.totals.argmax())
    assert memory == {"most": expected, "peak": int(curve.totals[peak]), "peak_at": int(curve.times[peak])}


def test_ids_and_times_of_a_lengthened_reel_fit(long_run: torchreel.Reel) -> None:
    wrong = long_run.sql(
        "select count(*) as n from ops as o left join ops as p on p.process = o.process and p.id = o.parent"
        " where o.parent is not null and (p.id is null or o.start_ns < p.start_ns"
        " or o.start_ns + o.dur_ns > p.start_ns + p.dur_ns + 2)"
    )
    assert wrong["n"][0].as_py() == 0
