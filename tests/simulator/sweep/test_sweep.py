from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.snapshots import snapshot
from torchreel.errors import OptionError
from torchreel.ingest import open_source
from torchreel.ingest.source import write_reel
from torchreel.reel import load
from torchreel.simulator.request_trace import RequestTraces
from torchreel.simulator.source import request_traces
from torchreel.simulator.sweep.advice import advise
from torchreel.simulator.sweep.sweep import made_on_windows, only, sweep, try_settings

MIB = 1 << 20

# The block of `a` is cut for `b`, and what is left of it is too small for `c`. Cut or not, 440 MiB are alive at most.
CUT = [
    {"action": "alloc", "addr": "a", "size": 320 * MIB},
    {"action": "free", "addr": "a"},
    {"action": "alloc", "addr": "b", "size": 120 * MIB},
    {"action": "alloc", "addr": "c", "size": 320 * MIB},
]


def rows(**options: Any) -> dict[str, dict[str, Any]]:
    return {row["conf"]: row for row in sweep(CUT, **options).to_pylist()}


def test_each_setting_has_its_row_and_the_best_comes_first() -> None:
    found = rows()
    assert {conf: row["peak_reserved"] // MIB for conf, row in found.items()}.items() >= {
        ("", 640),
        ("expandable_segments:True", 440),
        ("max_split_size_mb:20", 440),
        ("max_split_size_mb:128", 440),
        ("roundup_power2_divisions:2", 768),  # 384 each for a and c
        ("large_segment_size_mb:32", 640),
    }
    reserved = [row["peak_reserved"] for row in found.values()]
    assert reserved == sorted(reserved)
    assert [conf for conf, row in found.items() if row["current"]] == [""]
    assert found["expandable_segments:True"]["gain"] == 200 * MIB
    assert found[""]["fragmentation"] == pytest.approx(200 / 640)


def test_with_a_capacity_settings_that_fit_come_first() -> None:
    found = rows(capacity="500MiB")
    fits = [row["fits"] for row in found.values()]
    assert fits == sorted(fits, reverse=True)
    assert found["expandable_segments:True"]["fits"]
    assert not found[""]["fits"]
    assert found[""]["ooms"] == 1


def test_the_smallest_device_is_found() -> None:
    trials = try_settings(request_traces(CUT), capacity="500MiB")
    assert trials.needed == 440 * MIB
    assert trials.smallest is not None
    assert trials.smallest[1] == 440 * MIB
    advice = advise(trials)
    assert advice.sentences[0].startswith("The run does not fit in 500 MiB with PyTorch's default.")
    assert advice.sentences[-1].startswith("The smallest device on which it fits has 440 MiB for the allocator")


def test_where_nothing_fits_the_tensors_are_named() -> None:
    advice = advise(try_settings(request_traces(CUT), capacity=400 * MIB))
    assert advice.conf is None
    assert advice.sentences[0].startswith("No setting makes the run fit in 400 MiB: its tensors alone need 440 MiB")


def test_pytorch_97925_the_value_of_max_split_size_is_found() -> None:
    # Small blocks that stay are cut from the large ones, which are then asked for again.
    events = [{"action": "alloc", "addr": f"large {i}", "size": 200 * MIB} for i in range(4)]
    events += [{"action": "free", "addr": f"large {i}"} for i in range(4)]
    events += [{"action": "alloc", "addr": f"small {i}", "size": 30 * MIB} for i in range(4)]
    events += [{"action": "alloc", "addr": f"again {i}", "size": 190 * MIB} for i in range(4)]
    trials = try_settings(request_traces(events), windows=True)
    advice = advise(trials)
    assert advice.conf is not None
    assert advice.conf.startswith("max_split_size_mb:")
    assert "expandable_segments:True" not in {trial.text for trial in trials.trials}
    assert trials.best.peak_reserved < trials.current.peak_reserved


def test_the_setting_to_compare_with_can_be_given() -> None:
    found = rows(conf="expandable_segments:True")
    assert [conf for conf, row in found.items() if row["current"]] == ["expandable_segments:True"]
    assert found[""]["gain"] == -200 * MIB
    advice = advise(try_settings(request_traces(CUT), conf="expandable_segments:True"))
    assert advice.conf is None


def test_garbage_is_collected_only_under_a_fraction_of_a_known_device() -> None:
    assert "garbage_collection_threshold:0.8" in rows(capacity="1GiB", fraction=0.9)
    assert "garbage_collection_threshold:0.8" not in rows(capacity="1GiB")
    assert "garbage_collection_threshold:0.8" not in rows(fraction=0.9)


def test_an_older_torch_is_not_told_of_newer_options() -> None:
    assert "large_segment_size_mb:32" in rows()
    assert not any("large_segment" in conf for conf in rows(torch_version="2.12"))
    assert not any("max_non_split" in conf for conf in rows(torch_version="2.5"))
    assert not any("expandable" in conf for conf in rows(torch_version="2.0"))


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    trials = try_settings(request_traces(CUT), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(trials.trials), len(trials.trials))
    assert [done for done, _ in told] == list(range(1, len(trials.trials) + 1))


def test_settings_that_do_the_same_as_a_simpler_one_are_told_apart() -> None:
    trials = try_settings(request_traces(CUT))
    shown = {trial.text for trial in trials.telling}
    assert "" in shown
    assert "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]" in {trial.text for trial in trials.trials} - shown
    assert sum(text.startswith("max_split_size_mb") and "," not in text for text in shown) == 1


def test_one_device_of_several() -> None:
    program = request_traces(CUT).devices["cuda:0"]
    both = RequestTraces({"cuda:0": program, "cuda:1": program})
    assert sweep(both).to_pylist()[0]["peak_reserved"] == 880 * MIB
    assert sweep(both, device="cuda:1").to_pylist()[0]["peak_reserved"] == 440 * MIB
    with pytest.raises(OptionError, match="There is no device 'cuda:7' in this recording: it has cuda:0, cuda:1"):
        only(both, "cuda:7")


@pytest.mark.parametrize("options", [{"conf": "backend:cudaMallocAsync"}, {"conf": "x:1"}, {"capacity": "lots"}])
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        sweep(CUT, **options)  # type: ignore[arg-type]


def test_a_program_without_requests_reserves_nothing() -> None:
    table = sweep([])
    assert set(table["peak_reserved"].to_pylist()) == {0}
    assert advise(try_settings(request_traces([]))).conf is None


def test_windows_is_known_by_its_paths(tmp_path: Path) -> None:
    import pyarrow as pa

    def frames(file: str) -> dict[str, pa.Table]:
        return {
            "frames": pa.table({"id": [0], "file": [file], "line": [1], "function": ["f"]}),
            "processes": pa.table({"name": ["snapshot"]}),
        }

    write_reel(tmp_path / "windows.reel", frames("C:\\Users\\me\\train.py"), "x")
    write_reel(tmp_path / "linux.reel", frames("/home/me/C:train.py"), "x")
    assert made_on_windows(load(tmp_path / "windows.reel"))
    assert not made_on_windows(load(tmp_path / "linux.reel"))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("lm4_train_ctx100", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("lm_windows_midrun", None),
        ("lm_expandable_ctx128", None),  # pytorch#173049: it is on already
    ],
)
def test_advice_for_real_runs(name: str, line: str | None) -> None:
    with open_source(snapshot(name)) as reel:
        trials = try_settings(request_traces(reel), windows=made_on_windows(reel))
    assert advise(trials).line == line


def test_a_path_is_swept_as_its_reel_is() -> None:
    path = snapshot("lm_windows_midrun")
    table = sweep(path)
    with open_source(path) as reel:
        assert sweep(reel) == table
    assert "expandable_segments:True" not in table["conf"].to_pylist()
