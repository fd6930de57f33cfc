"""What an event knows of where it came from: compiled regions, forward calls, FX nodes, and one block's stack."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.alone import alone
from tests.memory.state import trace
from torchreel import memory
from torchreel.errors import OptionError

HERE = os.path.basename(__file__)  # noqa: PTH119


def allocs(size: int | None = None) -> list[dict[str, Any]]:
    events = [event for event in trace(memory.snapshot()) if event["action"] == "alloc"]
    return [event for event in events if size is None or event["size"] == size]


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def raised(x: torch.Tensor) -> torch.Tensor:
    unused = torch.zeros(77)  # takes the sequence number that the next call's node gets
    return x.exp() + unused[0]


def forward_functions(event: dict[str, Any]) -> list[str]:
    lines = event.get("forward_frames", [])
    return [line.split(", in ")[1].split("\n")[0] for line in lines if HERE in line]


@pytest.mark.parametrize("allocator", ["system", "caching"])
@alone
def test_allocs_of_a_backward_have_the_lines_of_their_forward_call(allocator: str) -> None:
    memory.use_caching_allocator(allocator == "caching")
    memory.record_history(forward_frames=True)
    x = torch.ones(5000, requires_grad=True)
    y = raised(scaled(x)).sum()
    assert not any("forward_frames" in event for event in allocs())
    y.backward()
    found = [functions[-1] for event in allocs(20_000) if (functions := forward_functions(event))]
    assert found == ["raised", "scaled"]  # exp and mul; add hands its gradient on
    for event in allocs(20_000):
        if "forward_frames" in event:
            first, *_, last = event["forward_frames"]
            assert first.startswith('  File "') and last.endswith("\n")
            assert event["frames"][-1]["name"] == first.split(", in ")[1].strip()


@alone
def test_a_backward_in_another_thread_finds_its_forward_call() -> None:
    memory.record_history(forward_frames=True)
    x = torch.ones(5000, requires_grad=True)
    made: list[torch.Tensor] = []
    forward = threading.Thread(target=lambda: made.append(raised(scaled(x)).sum()))
    forward.start()
    forward.join()
    backward = threading.Thread(target=made[0].backward)
    backward.start()
    backward.join()
    found = [functions[-1] for event in allocs(20_000) if (functions := forward_functions(event))]
    assert found == ["raised", "scaled"]


@alone
def test_a_forward_call_before_the_history_is_not_guessed() -> None:
    x = torch.ones(5000, requires_grad=True)
    old = scaled(x).exp().sum()
    memory.record_history(forward_frames=True)
    new = raised(torch.ones(3, requires_grad=True)).sum()
    old.backward()
    assert not any("forward_frames" in event for event in allocs(20_000))
    memory.record_history(clear_history=True, forward_frames=True)
    new.backward()
    assert not any("forward_frames" in event for event in allocs(12))


@alone
def test_anomaly_detection_gives_the_lines_as_torch_does() -> None:
    memory.record_history()
    with torch.autograd.set_detect_anomaly(True):
        x = torch.ones(5000, requires_grad=True)
        raised(scaled(x)).sum().backward()
    found = {forward_functions(event)[-1] for event in allocs(20_000) if "forward_frames" in event}
    assert {"raised", "scaled"} <= found
    lines = next(event["forward_frames"] for event in allocs(20_000) if "forward_frames" in event)
    assert any("return x.exp() + unused[0]" in line for line in lines), "with the text of the line"
    x = torch.ones(6000, requires_grad=True)
    raised(scaled(x)).sum().backward()
    assert not any("forward_frames" in event for event in allocs(24_000))


@alone
def test_forward_lines_come_back_from_a_reel(tmp_path: Path) -> None:
    memory.record_history(forward_frames=True)
    scaled(torch.ones(5000, requires_grad=True)).sum().backward()
    memory.dump(tmp_path / "snapshot.pickle")
    expected = [event["forward_frames"] for event in allocs(20_000) if "forward_frames" in event]
    assert expected
    import torchreel.ingest

    torchreel.ingest.import_snapshot(tmp_path / "snapshot.pickle", tmp_path / "x.reel")
    rows = torchreel.load(tmp_path / "x.reel").allocs.to_pylist()
    kept = [row["forward"] for row in rows if row["size"] == 20_000 and row["forward"]]
    assert len(kept) == len(expected) and "in scaled" in kept[0]


@alone
def test_events_within_a_compiled_region_have_its_name() -> None:
    first = torch.compile(lambda x: (x * 3).relu(), backend="eager")
    second = torch.compile(lambda x: x - 5, backend="eager")
    x = torch.ones(5000)
    first(x), second(x)  # compiled
    memory.record_history(compile_context=True)
    held = [torch.ones(6000), first(x), torch.ones(6000), second(x), torch.ones(6000)]
    contexts = [event["compile_context"] for event in allocs(24_000)]
    assert contexts == ["N/A"] * 3
    regions = [event["compile_context"] for event in allocs(20_000)]
    assert len(set(regions)) == 2 and all(region.startswith("Torch-Compiled Region: ") for region in regions)
    assert regions == sorted(regions)
    with pytest.raises(RuntimeError):
        torch.compile(lambda x: x @ x.view(2, -1), backend="eager")(x)
    torch.ones(7000)
    assert [event["compile_context"] for event in allocs(28_000)] == ["N/A"]
    memory.record_history(clear_history=True)
    held.append(first(x))
    assert {event["compile_context"] for event in allocs()} == {"N/A"}


@alone
def test_a_history_that_changes_within_a_region_keeps_no_stale_name() -> None:
    @torch._dynamo.disable
    def change(enabled: str | None) -> None:
        memory.record_history(enabled, compile_context=True)

    def restarts(x: torch.Tensor) -> torch.Tensor:
        change(None)
        change("all")
        return x * 2

    x = torch.ones(5000)
    torch.compile(restarts, backend="eager")(x)
    memory.record_history(compile_context=True)
    torch.compile(restarts, backend="eager")(x)
    torch.ones(7000)
    assert [event["compile_context"] for event in allocs(28_000)] == ["N/A"]


@alone
def test_frames_of_generated_code_have_their_fx_node(tmp_path: Path) -> None:
    torch.fx.experimental._config.enrich_profiler_metadata = True
    compiled = torch.compile(scaled, backend="eager")
    x = torch.ones(5000)
    compiled(x)
    memory.record_history()
    held = compiled(x)
    memory.dump(tmp_path / "plain.pickle")
    assert b"fx_node_name" not in (tmp_path / "plain.pickle").read_bytes()
    memory.dump(tmp_path / "snapshot.pickle", augment_with_fx_traces=True)
    snapshot = memory.snapshot(augment_with_fx_traces=True)
    event = next(event for event in trace(snapshot) if event.get("addr") == held.data_ptr())
    frame = next(frame for frame in event["frames"] if "fx_node_name" in frame)
    assert (frame["fx_node_op"], frame["fx_node_name"]) == ("call_function", "mul")
    assert "return x * 2" in frame["fx_original_trace"]
    # They come back from a reel.
    import torchreel.ingest
    from torchreel.export import export

    torchreel.ingest.import_snapshot(tmp_path / "snapshot.pickle", tmp_path / "x.reel")
    export(torchreel.load(tmp_path / "x.reel"), tmp_path / "again.pickle", to="snapshot")
    import pickle

    again = pickle.loads((tmp_path / "again.pickle").read_bytes())
    [same] = [event for event in trace(again) if event.get("addr") == held.data_ptr() and event["action"] == "alloc"]
    assert frame in same["frames"]


@alone
def test_generated_code_without_nodes_is_said() -> None:
    compiled = torch.compile(scaled, backend="eager")
    memory.record_history()
    held = compiled(torch.ones(5000))
    with pytest.warns(UserWarning, match="enrich_profiler_metadata = True before it is compiled"):
        memory.snapshot(augment_with_fx_traces=True)
    assert held.numel() == 5000


@pytest.mark.parametrize("allocator", ["system", "caching"])
@alone
def test_the_stack_of_a_block_by_its_address(allocator: str) -> None:
    memory.use_caching_allocator(allocator == "caching")
    old = torch.ones(1000)
    memory.record_history()
    tensors = [scaled(torch.ones(size)) for size in (10, 1000, 3_000_000)]
    for tensor in tensors:
        frames = memory.allocation_traceback(tensor.data_ptr())
        assert frames is not None
        assert frames[0]["name"] == "scaled" and frames[0]["filename"].endswith(HERE)
        assert set(frames[0]) == {"filename", "line", "name"}
        assert memory.allocation_traceback(tensor.data_ptr() + 4) is None, "not its beginning"
    address = tensors[1].data_ptr()
    tensors[1] = tensors[0]
    assert memory.allocation_traceback(address) is None, "freed"
    assert memory.allocation_traceback(old.data_ptr()) is None, "older than the history"
    assert memory.allocation_traceback(0) is memory.allocation_traceback(2**64 - 1) is None
    memory.record_history(context=None, clear_history=True)
    assert memory.allocation_traceback(torch.ones(10).data_ptr()) is None
    memory.record_history(None)
    assert memory.allocation_traceback(tensors[0].data_ptr()) is None
    for wrong in (-1, 2**64, "x", None, 1.5, True):
        with pytest.raises(OptionError, match="allocation_traceback takes an address, not"):
            memory.allocation_traceback(wrong)
