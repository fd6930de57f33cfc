"""record_history and its options: what is kept, with which stacks, and what is refused."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from typing import Any

import pytest
import torch

import torchreel
from tests.memory.state import assert_tiled, blocks, heap_segments, live, replay, trace
from torchreel import memory
from torchreel.errors import OptionError

KIB = 1024


def here(offset: int = 0) -> tuple[str, int]:
    """File and line of the caller."""
    return __file__, sys._getframe(1).f_lineno + offset


def place(entry: dict[str, Any]) -> tuple[str, int]:
    frame = entry["frames"][0]
    return frame["filename"], frame["line"]


def actions(of: int | None = None) -> list[str]:
    events = [event for event in trace(memory.snapshot()) if of is None or event["size"] == of]
    return [event["action"] for event in events if of is None or event["action"] != "snapshot"]


def test_a_tensor_is_an_alloc_a_free_requested_and_a_free_completed() -> None:
    memory.record_history()
    tensor = torch.empty(12345, dtype=torch.uint8)
    address = tensor.data_ptr()
    del tensor
    events = [event for event in trace(memory.snapshot()) if event["size"] == 12345]
    assert [event["action"] for event in events] == ["alloc", "free_requested", "free_completed"]
    assert {event["addr"] for event in events} == {address}


def test_frames_are_the_users_lines_the_innermost_first() -> None:
    def inner() -> torch.Tensor:
        return torch.empty(777, dtype=torch.uint8)

    memory.record_history()
    tensor = inner()
    made_at = here(-1)
    del tensor
    freed_at = here(-1)
    alloc, requested, completed = (event for event in trace(memory.snapshot()) if event["size"] == 777)
    assert place(alloc) == (__file__, inner.__code__.co_firstlineno + 1)
    assert alloc["frames"][0]["name"].endswith("<locals>.inner")
    assert (alloc["frames"][1]["filename"], alloc["frames"][1]["line"]) == made_at
    assert alloc["frames"][1]["name"] == "test_frames_are_the_users_lines_the_innermost_first"
    assert place(requested) == place(completed) == freed_at


def test_frames_of_backward_and_of_the_optimizer() -> None:
    model = torch.nn.Linear(300, 300)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    memory.record_history()
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    snapshot = memory.snapshot()
    size = 300 * 300 * 4
    made = [event for event in trace(snapshot) if event["action"] == "alloc" and event["size"] == size]
    names = [[frame["name"] for frame in event["frames"]] for event in made]
    assert any("backward" in frames for frames in names), "the gradient is made in backward"
    assert any("SGD.step" in frames for frames in names), "the momentum is made by the optimizer"
    assert all("test_frames_of_backward_and_of_the_optimizer" in frames for frames in names)


def test_stacks_all_has_frames_of_cpp_before_those_of_python() -> None:
    memory.record_history(stacks="all")
    tensor = torch.empty(999, dtype=torch.uint8)
    alloc = next(event for event in trace(memory.snapshot()) if event["size"] == 999)
    files = [frame["filename"] for frame in alloc["frames"]]
    first_of_python = next(index for index, file in enumerate(files) if file.endswith(".py"))
    assert first_of_python > 3
    assert any("at::" in frame["name"] for frame in alloc["frames"][:first_of_python])
    assert files[first_of_python] == __file__
    assert tensor.numel() == 999


@pytest.mark.parametrize("context", [None, "state", "alloc", "all"])
def test_context_says_whose_stacks_are_kept(context: str | None) -> None:
    memory.record_history(context=context)
    kept = torch.empty(1111, dtype=torch.uint8)
    gone = torch.empty(2222, dtype=torch.uint8)
    made_at = here(-1)
    del gone
    freed_at = here(-1)
    snapshot = memory.snapshot()
    block = next(block for block in blocks(snapshot) if block["requested_size"] == 1111)
    assert bool(block["frames"]) == (context is not None)
    alloc, requested, completed = (event for event in trace(snapshot) if event["size"] == 2222)
    if context in (None, "state"):
        assert not any("frames" in event for event in trace(snapshot))
    else:
        assert place(alloc) == made_at
        # Below "all", a free has the stack of its alloc, as torch does it.
        assert place(requested) == place(completed) == (freed_at if context == "all" else made_at)
    assert kept.numel() == 1111


def test_state_keeps_stacks_of_what_lives_and_no_events() -> None:
    memory.record_history("state")
    gone = torch.empty(50 * KIB, dtype=torch.uint8)
    kept = torch.empty(60 * KIB, dtype=torch.uint8)
    made_at = here(-1)
    del gone
    snapshot = memory.snapshot()
    assert trace(snapshot) == []
    assert snapshot["lost_events"] == [0]
    block = next(block for block in blocks(snapshot) if block["address"] == kept.data_ptr())
    assert place(block) == made_at


def test_none_stops_and_forgets() -> None:
    memory.record_history()
    kept = torch.empty(50 * KIB, dtype=torch.uint8)
    memory.record_history(None)
    snapshot = memory.snapshot()
    assert heap_segments(snapshot) == [] and trace(snapshot) == [] and snapshot["external_annotations"] == []
    assert "record_history()" in snapshot["notes"][0]
    assert kept.numel() == 50 * KIB


@pytest.mark.parametrize(("switch", "says"), [(True, "all"), (False, None)])
def test_a_bool_is_all_or_none(switch: bool, says: str | None) -> None:
    memory.record_history()
    memory.record_history(switch)
    tensor = torch.empty(4321, dtype=torch.uint8)
    assert actions(4321) == (["alloc"] if says else [])
    assert tensor.numel() == 4321


def test_on_and_off_many_times() -> None:
    for _ in range(20):
        memory.record_history()
        for _ in range(10):
            torch.empty(3456, dtype=torch.uint8)
        assert actions(3456) == ["alloc", "free_requested", "free_completed"] * 10
        memory.record_history(None)
        torch.empty(3456, dtype=torch.uint8)
        assert actions() == []


def test_a_second_call_goes_on_unless_the_history_is_cleared() -> None:
    memory.record_history()
    first = torch.empty(1001, dtype=torch.uint8)
    memory.record_history(context="alloc")
    second = torch.empty(1002, dtype=torch.uint8)
    assert actions(1001) == ["alloc"] and actions(1002) == ["alloc"]
    memory.record_history(clear_history=True)
    assert actions(1001) == actions(1002) == []
    assert {1001, 1002} <= set(live(memory.snapshot()).values()), "what lives is still part of the state"
    assert first.numel() < second.numel()


def test_pytorch_129674_max_entries_is_a_ring_that_counts_what_it_lost() -> None:
    memory.record_history(max_entries=10)
    for size in range(1000, 1100):
        torch.empty(size, dtype=torch.uint8)
    snapshot = memory.snapshot()
    assert len(trace(snapshot)) == 10
    assert snapshot["lost_events"] == [290]
    # The youngest are kept, in their order.
    assert [event["size"] for event in trace(snapshot)] == [1096, *[1097] * 3, *[1098] * 3, *[1099] * 3]
    assert trace(snapshot)[0]["action"] == "free_completed"


def test_a_ring_larger_than_a_chunk_of_its_memory() -> None:
    memory.record_history(context=None, max_entries=40_000)
    for _ in range(20_000):
        torch.empty(64, dtype=torch.uint8)
    snapshot = memory.snapshot()
    assert len(trace(snapshot)) == 40_000
    assert snapshot["lost_events"] == [20_000]
    times = [event["time_us"] for event in trace(snapshot)]
    assert times == sorted(times)


@pytest.mark.parametrize("entries", [1, 2, 3])
def test_the_smallest_rings(entries: int) -> None:
    memory.record_history(max_entries=entries)
    torch.empty(64, dtype=torch.uint8)
    snapshot = memory.snapshot()
    assert [event["action"] for event in trace(snapshot)] == ["alloc", "free_requested", "free_completed"][-entries:]
    assert snapshot["lost_events"] == [3 - entries]


@pytest.mark.parametrize(
    ("skipped", "kept"),
    [
        (["alloc"], ["free_requested", "free_completed"]),
        (["free_requested"], ["alloc", "free_completed"]),
        (["free_completed"], ["alloc", "free_requested"]),
        (["free_requested", "free_completed"], ["alloc"]),
        (("segment_map", "segment_unmap"), ["alloc", "free_requested", "free_completed"]),
        (["alloc", "free_requested", "free_completed"], []),
    ],
)
def test_skip_actions(skipped: list[str], kept: list[str]) -> None:
    memory.record_history(skip_actions=skipped)
    torch.empty(2468, dtype=torch.uint8)
    snapshot = memory.snapshot()
    assert [event["action"] for event in trace(snapshot)] == kept
    assert snapshot["lost_events"] == [0]


def test_skipped_actions_take_no_room_in_the_ring() -> None:
    memory.record_history(skip_actions=["free_requested", "alloc"], max_entries=5)
    for _ in range(8):
        torch.empty(64, dtype=torch.uint8)
    snapshot = memory.snapshot()
    assert [event["action"] for event in trace(snapshot)] == ["free_completed"] * 5
    assert snapshot["lost_events"] == [3]


def test_a_dump_is_an_event_that_the_next_one_sees() -> None:
    memory.record_history()
    tensor = torch.empty(5000, dtype=torch.uint8)
    assert actions().count("snapshot") == 0
    first, second = memory.snapshot(), memory.snapshot()
    assert [event["action"] for event in trace(first)].count("snapshot") == 1
    event = trace(second)[-1]
    assert (event["action"], event["addr"]) == ("snapshot", 0)
    assert event["size"] == sum(block["size"] for block in blocks(first))
    memory.record_history(skip_actions=["snapshot"], clear_history=True)
    memory.snapshot()
    assert actions() == []
    assert tensor.numel() == 5000


def test_annotations_are_the_beginnings_and_ends_of_ranges_of_all_threads() -> None:
    memory.record_history()

    def work() -> None:
        with torch.profiler.record_function("in a thread"):
            torch.ones(10)

    with torchreel.range("step"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    snapshot = memory.snapshot()
    shown = [(row["name"], row["stage"], row["device"]) for row in snapshot["external_annotations"]]
    assert shown == [("step", "START", 0), ("in a thread", "START", 0), ("in a thread", "END", 0), ("step", "END", 0)]
    times = [row["time_us"] for row in snapshot["external_annotations"]]
    assert times == sorted(times)
    inside = next(event for event in trace(snapshot) if event["size"] == 40)
    assert times[1] <= inside["time_us"] <= times[2]


def test_annotations_can_be_left_out_and_are_a_ring_too() -> None:
    memory.record_history(annotations=False)
    with torchreel.range("unseen"):
        pass
    assert memory.snapshot()["external_annotations"] == []
    memory.record_history(max_entries=3, clear_history=True)
    for number in range(4):
        with torchreel.range(f"step {number}"):
            pass
    shown = [(row["name"], row["stage"]) for row in memory.snapshot()["external_annotations"]]
    assert shown == [("step 2", "END"), ("step 3", "START"), ("step 3", "END")]


def test_annotations_of_the_calling_thread_alone() -> None:
    def other() -> None:
        with torchreel.range("theirs"):
            torch.empty(5)

    for everybody, expected in ((False, ["mine"]), (True, ["mine", "theirs"]), (None, ["mine", "theirs"])):
        memory.record_history(global_record_annotations=everybody, clear_history=True)
        with torchreel.range("mine"):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        notes = memory.snapshot()["external_annotations"]
        assert sorted(note["name"] for note in notes if note["stage"] == "START") == expected
        memory.record_history(None)


@pytest.mark.parametrize("device", [None, "cpu", "cuda:1", 3, torch.device("cuda")])
def test_a_call_that_was_written_for_torch_carries_over(device: Any) -> None:
    memory.record_history("all", "all", "python", 1000, device, False, False, True, None)
    torch.empty(4321, dtype=torch.uint8)
    assert actions(4321) == ["alloc", "free_requested", "free_completed"], "the history is of the CPU all the same"


def test_the_words_are_torchs_in_torchs_order() -> None:
    theirs = list(inspect.signature(torch.cuda.memory._record_memory_history).parameters)
    ours = list(inspect.signature(memory.record_history).parameters)
    assert ours[: len(theirs)] == theirs


def test_metadata_can_be_read_and_put_back() -> None:
    assert memory.get_metadata() == ""
    memory.set_metadata("epoch 3, ünïcode")
    read: list[str] = []
    thread = threading.Thread(target=lambda: read.append(memory.get_metadata()))
    thread.start()
    thread.join()
    assert (memory.get_metadata(), read) == ("epoch 3, ünïcode", [""])
    memory.record_history()
    memory.record_history(None)
    assert memory.get_metadata() == "epoch 3, ünïcode"
    memory.set_metadata("")
    assert memory.get_metadata() == ""


def test_the_state_alone() -> None:
    memory.record_history()
    held = torch.empty(54321, dtype=torch.uint8)
    with torchreel.range("step"):
        whole = memory.snapshot()
    state = memory.snapshot(include_traces=False)
    assert state["segments"] == whole["segments"]
    assert state["device_traces"] == [[]] and state["external_annotations"] == []
    assert state["lost_events"] == [None]
    assert set(state) == set(whole)
    assert any(block["requested_size"] == held.numel() and block["frames"] for block in blocks(state))


def test_metadata_is_of_the_thread_that_set_it() -> None:
    memory.record_history()
    memory.set_metadata("eins, zwei, grün")
    seen: list[torch.Tensor] = []

    def work(text: str, size: int) -> None:
        if text:
            memory.set_metadata(text)
        seen.append(torch.empty(size, dtype=torch.uint8))

    for text, size in (("", 2001), ("other", 2002)):
        thread = threading.Thread(target=work, args=(text, size))
        thread.start()
        thread.join()
    seen.append(torch.empty(2003, dtype=torch.uint8))
    memory.set_metadata("")
    seen.append(torch.empty(2004, dtype=torch.uint8))
    found = {event["size"]: event["user_metadata"] for event in trace(memory.snapshot()) if event["size"] > 2000}
    assert found == {2001: "", 2002: "other", 2003: "eins, zwei, grün", 2004: ""}


def test_metadata_that_no_file_can_hold_is_kept_as_far_as_it_can() -> None:
    memory.record_history()
    memory.set_metadata("half \ud800 a pair \0 and more" + "x" * 300)
    tensor = torch.empty(2005, dtype=torch.uint8)
    event = next(event for event in trace(memory.snapshot()) if event["size"] == 2005)
    assert event["user_metadata"] == "half ? a pair \0 and more" + "x" * 300
    assert tensor.numel() == 2005


def test_what_is_older_than_the_history_is_in_the_state_and_its_free_is_an_event() -> None:
    old = torch.empty(7001, dtype=torch.uint8)
    older = torch.nn.Linear(7, 9)
    memory.record_history()
    before = memory.snapshot()
    assert live(before)[old.data_ptr()] == 7001
    assert live(before)[older.weight.data_ptr()] == 7 * 9 * 4
    assert trace(before) == []
    address = old.data_ptr()
    del old
    after = memory.snapshot()
    assert [(event["action"], event["addr"]) for event in trace(after) if event["size"] == 7001] == [
        ("free_requested", address),
        ("free_completed", address),
    ]
    assert address not in live(after)


def test_what_is_made_by_a_history_and_freed_by_the_next() -> None:
    memory.record_history()
    tensor = torch.empty(7002, dtype=torch.uint8)
    memory.record_history(None)
    memory.record_history()
    assert live(memory.snapshot())[tensor.data_ptr()] == 7002
    del tensor
    assert actions(7002) == ["free_requested", "free_completed"]


def test_times_are_of_the_wall_clock() -> None:
    memory.record_history()
    before = time.time_ns() // 1000
    for size in range(3000, 3200):
        torch.empty(size, dtype=torch.uint8)
    after = time.time_ns() // 1000
    times = [event["time_us"] for event in trace(memory.snapshot())]
    assert times == sorted(times)
    # The two clocks are read one after the other, and may be set right meanwhile.
    assert before - 5000 <= times[0] and times[-1] <= after + 5000


def churn(seconds_of_work: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    held: list[torch.Tensor] = []
    for size in torch.randint(1, 300_000, (seconds_of_work,), generator=generator).tolist():
        held.append(torch.empty(size, dtype=torch.uint8))
        if len(held) > 20:
            del held[size % 20]


def test_the_trace_and_the_state_agree() -> None:
    memory.record_history()
    start = memory.snapshot()
    churn(2000, 0)
    model = torch.nn.Sequential(torch.nn.Linear(50, 80), torch.nn.ReLU(), torch.nn.Linear(80, 5))
    model(torch.randn(16, 50)).sum().backward()
    end = memory.snapshot()
    assert_tiled(end)
    assert replay(trace(end), live(start)) == live(end)


def test_the_trace_and_the_state_agree_with_four_threads() -> None:
    memory.record_history(context="alloc")
    start = memory.snapshot()
    threads = [threading.Thread(target=churn, args=(2000, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    middles = [memory.snapshot() for _ in range(5)]
    for thread in threads:
        thread.join()
    for snapshot in [*middles, memory.snapshot()]:
        assert replay(trace(snapshot), live(start)) == live(snapshot)


def test_the_systems_blocks_are_shown_one_by_one_and_said_to_be() -> None:
    tensor = torch.empty(70_000, dtype=torch.uint8)
    memory.record_history()
    snapshot = memory.snapshot()
    segment = next(segment for segment in snapshot["segments"] if segment["address"] == tensor.data_ptr())
    assert segment["total_size"] == segment["allocated_size"] == segment["requested_size"] == 70_000
    assert len(segment["blocks"]) == 1
    assert snapshot["notes"] == [
        "The system's allocator keeps no segments: each block is shown as a segment of its own."
    ]
    assert snapshot["allocator_settings"]["cpu_allocator"] == "system"


def test_memory_that_is_not_of_torchs_allocator_is_not_seen() -> None:
    import numpy

    foreign = numpy.ones(123_457, dtype=numpy.uint8)
    tensor = torch.from_numpy(foreign)
    memory.record_history()
    more = torch.from_numpy(numpy.ones(123_458, dtype=numpy.uint8))
    snapshot = memory.snapshot()
    assert not {tensor.data_ptr(), more.data_ptr()} & set(live(snapshot))
    del tensor, more
    assert actions() == ["snapshot"]


def test_share_memory_is_the_free_of_the_block_that_was_copied() -> None:
    memory.record_history()
    tensor = torch.ones(5003, dtype=torch.uint8)
    address = tensor.data_ptr()
    tensor.share_memory_()
    assert actions(5003) == ["alloc", "free_requested", "free_completed"]
    assert tensor.data_ptr() != address and tensor.sum() == 5003


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"enabled": "yes"}, "enabled='yes' is not known: it is 'all', 'state' or None."),
        ({"enabled": 3}, "enabled=3 is not known"),
        ({"context": "frees"}, "context='frees' is not known: it is 'all', 'alloc', 'state' or None."),
        ({"stacks": "cpp"}, "stacks='cpp' is not known: it is 'python' or 'all'."),
        ({"stacks": None}, "stacks=None is not known"),
        ({"max_entries": 0}, "max_entries=0 is not a number of events: give at least 1."),
        ({"max_entries": -1}, "max_entries=-1 is not"),
        ({"max_entries": 1.5}, "max_entries=1.5 is not"),
        ({"max_entries": "10"}, "max_entries='10' is not"),
        ({"skip_actions": ["allocs"]}, "skip_actions has 'allocs', which is not an action: they are alloc, "),
        ({"skip_actions": "alloc"}, "skip_actions='alloc' is a text: give a list of actions, like ['alloc']."),
        ({"skip_actions": 5}, "skip_actions=5 is not a list of actions."),
        ({"skip_actions": [["alloc"]]}, "skip_actions has ['alloc'], which is not an action"),
        ({"device": "gpu"}, "device='gpu' is not a device. Leave it out: the history is always of all devices."),
        ({"device": [0]}, "device=[0] is not a device."),
        ({"compile_context": "yes"}, "compile_context='yes' is neither True nor False."),
        ({"global_record_annotations": 1}, "global_record_annotations=1 is neither True nor False."),
        ({"clear_history": None}, "clear_history=None is neither True nor False."),
        ({"forward_frames": True, "context": "state"}, "forward_frames=True needs events with stacks: enabled='all'"),
        ({"forward_frames": True, "enabled": "state"}, "forward_frames=True needs events with stacks"),
    ],
)
def test_wrong_options_are_said(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError) as error:
        memory.record_history(**options)
    assert str(error.value).startswith(says)
    # And nothing has begun.
    torch.empty(64)
    assert actions() == []


def test_max_entries_may_be_any_number() -> None:
    memory.record_history(max_entries=sys.maxsize * 4)
    torch.empty(6006, dtype=torch.uint8)
    assert actions(6006) == ["alloc", "free_requested", "free_completed"]


@pytest.mark.parametrize("wrong", [None, 3, b"bytes"])
def test_metadata_is_a_text(wrong: Any) -> None:
    with pytest.raises(OptionError, match="set_metadata takes a text, not "):
        memory.set_metadata(wrong)


def test_an_out_of_memory_callback_is_a_function() -> None:
    with pytest.raises(OptionError, match="on_out_of_memory takes a function"):
        memory.on_out_of_memory("dump")  # type: ignore[arg-type]


def test_a_copy_on_write_tensor_stays_one() -> None:
    tensor = torch.ones(40_000)
    clone = tensor._lazy_clone()
    memory.record_history()
    assert torch._C._is_cow_tensor(clone)
    clone.add_(1)
    assert tensor.sum() == 40_000 and clone.sum() == 80_000
