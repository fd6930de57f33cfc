"""Our files beside those of torch.profiler, in torch's own validator and in Perfetto."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchreel.export import export

from .perfetto_oracle import LoadError, Oracle
from .reels import ProcessBuilder, build, training_step

profiler = pytest.importorskip("torch.profiler", reason="these tests compare with torch.profiler")


def torch_trace(path: Path, name: str, **options: Any) -> None:
    """What torch.profiler writes of two steps of a small model."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    options["activities"] = [profiler.ProfilerActivity.CPU]
    options["schedule"] = profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    with profiler.profile(**options, on_trace_ready=lambda done: done.export_chrome_trace(str(path))) as profile:
        for _ in range(3):
            with profiler.record_function(name):
                model(torch.randn(2, 4)).sum().backward()
            profile.step()


def test_torchs_own_validator_has_no_complaint(tmp_path: Path) -> None:
    from torch.profiler._trace_validator import validate_trace

    process = ProcessBuilder("a-100", 100)
    training_step(process)
    export(build(tmp_path / "r.reel", process), tmp_path / "out.json.gz", "chrome")
    assert validate_trace(str(tmp_path / "out.json.gz")) == (True, [])


def test_our_events_have_the_keys_of_torchs(tmp_path: Path) -> None:
    torch_trace(tmp_path / "torch.json", "step", record_shapes=True, profile_memory=True)
    process = ProcessBuilder("a-100", 100)
    training_step(process)
    export(build(tmp_path / "r.reel", process), tmp_path / "ours.json", "chrome")
    ours, torchs = (json.loads((tmp_path / name).read_bytes()) for name in ("ours.json", "torch.json"))
    extra = {"with_stack", "with_modules", "with_flops"}
    assert [key for key in ours if key not in extra] == list(torchs)

    def keys(trace: dict[str, Any]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for event in trace["traceEvents"]:
            kind = f"{event['ph']} {event.get('cat', event['name'])}"
            found.setdefault(kind, set()).update([*event, *(f"args {key}" for key in event.get("args", ()))])
        return found

    mine, theirs = keys(ours), keys(torchs)
    assert set(theirs) <= set(mine)
    for kind, names in theirs.items():
        assert names <= mine[kind] | {"args finished"}, kind


@pytest.mark.browser
def test_pain_8_torchs_own_trace_loses_its_steps_in_perfetto(tmp_path: Path, oracle: Oracle) -> None:
    torch_trace(tmp_path / "torch.json", "my range", with_stack=True)
    oracle.load(tmp_path / "torch.json")
    dropped = {row["name"]: row["value"] for row in oracle.problems()}
    if not dropped:
        pytest.skip("this torch writes slices that nest")
    assert dropped.keys() == {"slice_drop_overlapping_complete_event"}
    events = json.loads((tmp_path / "torch.json").read_bytes())["traceEvents"]
    written = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    shown = [row["name"] for row in oracle.query("SELECT name FROM slice WHERE category = 'user_annotation'")]
    assert sorted(written) == ["ProfilerStep#1", "ProfilerStep#2", "my range", "my range"]
    assert len(shown) < len(written)
    assert not any(name.startswith("ProfilerStep") for name in shown)
    print(written, shown, dropped)


@pytest.mark.browser
def test_pain_9_torchs_own_trace_is_refused_by_perfetto(tmp_path: Path, oracle: Oracle) -> None:
    torch_trace(tmp_path / "torch.json", 'say "hi"')
    try:
        json.loads((tmp_path / "torch.json").read_bytes())
    except ValueError:
        with pytest.raises(LoadError):
            oracle.load(tmp_path / "torch.json")
    else:
        pytest.skip("this torch escapes quotes")
