"""A recording of PyTorch itself, through the exporters, into Perfetto: all that was recorded is shown."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from torchreel.export import export
from torchreel.reel import Reel, load

from .perfetto_oracle import Oracle

pytest.importorskip("torch", reason="recording needs torch")
pytest.importorskip("torchreel._core", reason="recording needs the native core")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def reel(tmp_path_factory: pytest.TempPathFactory) -> Reel:
    """Two threads, forward and backward, nested ranges, and two that end in the order in which they began."""
    import torch

    import torchreel

    path = tmp_path_factory.mktemp("real") / "run.reel"
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    optimizer = torch.optim.Adam(model.parameters())
    options = dict.fromkeys(("shapes", "memory", "stacks", "modules", "flops", "python"), True)

    def work() -> None:
        with torchreel.range("in a thread"):
            torch.ones(3) + 1

    with torchreel.record(path, **options) as recorder:
        thread = threading.Thread(target=work)
        thread.start()
        for step in range(3):
            with torchreel.range(f"step {step}"), torchreel.range('say "hi"'):
                model(torch.randn(2, 8)).sum().backward()
                optimizer.step()
            torchreel.mark("step done")
            recorder.step()
        first, second = torch.profiler.record_function("first"), torch.profiler.record_function("second")
        first.__enter__()
        second.__enter__()
        torch.ones(3)
        first.__exit__(None, None, None)
        torch.ones(3)
        second.__exit__(None, None, None)
        thread.join()
    return load(path)


def ops_of(reel: Reel) -> dict[int, dict[str, Any]]:
    rows = reel.sql("SELECT id, parent, name, kind, start_ns, dur_ns FROM ops").to_pylist()
    return {row["id"]: row for row in rows}


def check(oracle: Oracle, reel: Reel, shown: list[dict[str, Any]]) -> None:
    """Every op is shown once; ranges are within what called them; arrows are as many as forward calls with one."""
    assert oracle.problems() == []
    ops = ops_of(reel)
    assert sorted((row["name"], row["dur"]) for row in shown) == sorted(
        (op["name"], op["dur_ns"]) for op in ops.values()
    )
    ranges = {row["name"]: (row["parent"], row["track"]) for row in shown if row["category"] == "user_annotation"}
    for step in range(3):
        assert ranges[f"step {step}"][0] is None
    assert ranges['say "hi"'][0] == "step 2"
    assert ranges["in a thread"][0] is not None
    assert ranges["first"] != ranges["second"]
    arrows = reel.sql("SELECT count(DISTINCT fwd) AS n FROM ops")["n"][0].as_py()
    assert arrows > 0
    assert oracle.value("SELECT count(DISTINCT slice_out) FROM flow") == arrows


SLICES = """
SELECT s.name, s.category, s.dur, p.name AS parent, s.track_id AS track FROM slice s
LEFT JOIN slice p ON p.id = s.parent_id
WHERE s.category IN ('cpu_op', 'user_annotation', 'python_function') AND s.name NOT LIKE 'ProfilerStep#%'
"""


def test_pain_8_a_recording_with_python_calls_loses_no_range_in_a_chrome_trace(
    tmp_path: Path, oracle: Oracle, reel: Reel
) -> None:
    export(reel, tmp_path / "out.json", "chrome")
    oracle.load(tmp_path / "out.json")
    check(oracle, reel, oracle.query(SLICES))
    instants = oracle.value("SELECT count(*) FROM slice WHERE name = '[memory]'")
    assert instants == reel.table("allocs").num_rows


def test_pain_8_a_recording_with_python_calls_loses_no_range_in_perfettos_own_format(
    tmp_path: Path, oracle: Oracle, reel: Reel
) -> None:
    export(reel, tmp_path / "out.pftrace", "perfetto")
    oracle.load(tmp_path / "out.pftrace")
    check(oracle, reel, oracle.query(SLICES))
    assert oracle.value("SELECT count(*) FROM counter") == reel.table("allocs").num_rows
