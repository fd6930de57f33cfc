"""What a backend reports of its own work, by hand."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.edge.nets import Calling, Net, batch, calls
from tests.record.rows import rows
from torchreel import EdgeProfiler, current_edge_profiler
from torchreel.errors import EdgeError, OptionError


def now_us() -> float:
    return time.time_ns() / 1000


def wait(milliseconds: float = 1) -> None:
    """Until both clocks show a later time."""
    ends = [(clock, clock() + milliseconds * 1_000_000) for clock in (time.time_ns, time.monotonic_ns)]
    while any(clock() < end for clock, end in ends):
        time.sleep(0)


def current() -> EdgeProfiler:
    profiler = current_edge_profiler()
    assert profiler is not None
    return profiler


def reporting(clock: Callable[[], float] = now_us) -> Calling:
    """A model in which a backend runs two ops, one of them with another in it."""

    def forward(x: Tensor) -> Tensor:
        x = x.exp()
        wait()
        start = clock()
        wait(2)
        middle = clock()
        wait(2)
        end = clock()
        wait()
        current().record_backend_event(start, end, 7, "conv", "npu")
        current().record_backend_event(start, middle, 8, "load", "npu")
        current().record_backend_event(middle, end, 9, "multiply", "npu")
        return x.sin()

    return Calling(forward)


EVENTS = """select o.name, o.backend, o.debug_handle, p.name as parent, o.depth, o.start_ns, o.dur_ns, o.self_ns,
                   o.start_ns - p.start_ns as after, p.start_ns + p.dur_ns - o.start_ns - o.dur_ns as before
            from ops o left join ops p on o.parent = p.id where o.kind = 'backend' order by o.id"""


def test_events_by_hand_are_nested_in_the_call() -> None:
    model = reporting()
    with EdgeProfiler(model) as profiler:
        model(batch())
        model(batch())
    reel = profiler.result()
    found = rows(reel, EVENTS)
    assert [(row["name"], row["backend"], row["debug_handle"], row["parent"], row["depth"]) for row in found] == 2 * [
        ("conv", "npu", 7, "nn.Module: Calling", 1),
        ("load", "npu", 8, "conv", 2),
        ("multiply", "npu", 9, "conv", 2),
    ]
    assert all(row["after"] >= 0 and row["before"] >= 0 for row in found)
    for conv, load, multiply in (found[:3], found[3:]):
        assert conv["self_ns"] == conv["dur_ns"] - load["dur_ns"] - multiply["dur_ns"]
    root = rows(reel, "select dur_ns, self_ns from ops where parent is null order by id")[0]
    below = rows(reel, "select sum(dur_ns) as n from ops where parent = (select min(id) from ops where parent is null)")
    assert root["self_ns"] == root["dur_ns"] - below[0]["n"]
    assert [row["name"] for row in rows(reel, "select name from ops where kind = 'op' order by id")] == 2 * [
        "aten::exp",
        "aten::sin",
    ]


def test_an_event_within_an_op_is_below_it() -> None:
    library = torch.library.Library("edge_test", "FRAGMENT")
    library.define("delegated(Tensor x) -> Tensor")

    def delegated(x: Tensor) -> Tensor:
        wait()
        start = now_us()
        wait()
        end = now_us()
        wait()
        current().record_backend_event(start, end, 1, "inner", "dsp")
        return x.clone()

    library.impl("delegated", delegated, "CPU")
    model = Calling(lambda x: torch.ops.edge_test.delegated(x).exp())
    with torch.no_grad(), EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        model(batch())
    assert [row["parent"] for row in rows(profiler.result(), EVENTS)] == ["edge_test::delegated"]


def test_reported_after_the_call_it_is_still_in_it() -> None:
    spans: list[tuple[float, float]] = []

    def forward(x: Tensor) -> Tensor:
        wait()
        start = now_us()
        wait()
        spans.append((start, now_us()))
        wait()
        return x.exp()

    model = Calling(forward)
    with EdgeProfiler(model) as profiler:
        model(batch())
        model(batch())
        for number, (start, end) in enumerate(spans):
            profiler.record_backend_event(start, end, number, "late", "gpu")
    found = rows(
        profiler.result(),
        """select o.debug_handle, rank() over (order by p.start_ns) as call
           from ops o join ops p on o.parent = p.id where o.kind = 'backend' order by o.debug_handle""",
    )
    assert [(row["debug_handle"], row["call"]) for row in found] == [(0, 1), (1, 2)]


def test_each_thread_has_its_own_events() -> None:
    """Calls on two threads at the same time: an event belongs to the call of the thread that reports it."""
    meeting = threading.Barrier(2)

    def forward(number: int) -> None:
        meeting.wait()
        wait(3)
        start = now_us()
        wait(3)
        end = now_us()
        wait(3)
        meeting.wait()
        current().record_backend_event(start, end, number, f"event {number}", "npu")

    model = Calling(forward)
    for adjust in (False, True):
        with EdgeProfiler(model, adjust_timestamps=adjust) as profiler:
            threads = [threading.Thread(target=model, args=(number,), name=f"runner {number}") for number in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        found = rows(
            profiler.result(),
            """select o.name, t.name as thread from ops o join threads t on o.thread = t.id
               where o.kind = 'backend' order by o.name""",
        )
        assert [(row["name"], row["thread"]) for row in found] == [("event 0", "runner 0"), ("event 1", "runner 1")]


def test_an_event_between_calls_is_on_a_thread_of_its_backend() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        wait()
        start = now_us()
        wait()
        profiler.record_backend_event(start, now_us(), -1, "upload", "gpu")
        wait()
        net(batch())
    found = rows(
        profiler.result(),
        """select o.name, o.parent, o.depth, t.name as thread from ops o join threads t on o.thread = t.id
           where o.kind = 'backend'""",
    )
    assert found == [{"name": "upload", "parent": None, "depth": 0, "thread": "gpu"}]


@pytest.mark.parametrize("shift_us", [1e12, -1e12, 5e9, -5e9], ids=["10^15 ns", "-10^15 ns", "hours", "-hours"])
def test_another_clock_is_aligned(shift_us: float) -> None:
    model = reporting(lambda: now_us() + shift_us)
    with EdgeProfiler(model, adjust_timestamps=True) as profiler:
        for _ in range(3):
            model(batch())
    reel = profiler.result()
    found = rows(reel, EVENTS)
    assert [row["name"] for row in found] == 3 * ["conv", "load", "multiply"]
    assert [row["parent"] for row in found] == 3 * ["nn.Module: Calling", "conv", "conv"]
    assert all(row["after"] >= 0 and row["before"] >= 0 for row in found)
    for conv, load, multiply in (found[:3], found[3:6], found[6:]):
        assert load["start_ns"] == conv["start_ns"]
        assert multiply["start_ns"] == load["start_ns"] + load["dur_ns"]
        assert conv["dur_ns"] == load["dur_ns"] + multiply["dur_ns"] >= 4_000_000


def test_distances_are_kept_by_the_alignment() -> None:
    spans: list[tuple[float, float]] = []

    def forward(x: Tensor) -> Tensor:
        start = time.monotonic_ns() / 1000
        wait()
        spans.append((start, time.monotonic_ns() / 1000))
        current().record_backend_event(*spans[-1], len(spans), "op", "npu")
        return x.exp()

    model = Calling(forward)
    with EdgeProfiler(model, adjust_timestamps=True) as profiler:
        for _ in range(5):
            model(batch())
            wait()
    found = rows(profiler.result(), EVENTS)
    for (start, end), row in zip(spans, found, strict=True):
        assert abs(row["dur_ns"] - (end - start) * 1000) <= 2
        assert abs(row["start_ns"] - found[0]["start_ns"] - (start - spans[0][0]) * 1000) <= 2000


def test_an_event_longer_than_the_call_is_cut() -> None:
    def forward(x: Tensor) -> Tensor:
        current().record_backend_event(0, 3_600_000_000, 1, "hour", "npu")
        return x.exp()

    model = Calling(forward)
    with EdgeProfiler(model, adjust_timestamps=True) as profiler:
        model(batch())
    (found,) = rows(profiler.result(), EVENTS)
    assert found["parent"] == "nn.Module: Calling"
    assert found["after"] == 0
    assert found["before"] >= 0


def test_two_backends_have_two_clocks() -> None:
    def forward(x: Tensor) -> Tensor:
        for backend, shift in (("npu", 1e12), ("dsp", -1e12)):
            start = now_us() + shift
            wait()
            current().record_backend_event(start, now_us() + shift, 1, backend, backend)
        return x.exp()

    model = Calling(forward)
    with EdgeProfiler(model, adjust_timestamps=True) as profiler:
        model(batch())
        model(batch())
    found = rows(profiler.result(), EVENTS)
    assert [row["name"] for row in found] == ["npu", "dsp"] * 2
    assert all(row["dur_ns"] >= 1_000_000 for row in found)


def test_an_event_that_ends_before_it_starts() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        start = now_us()
        with pytest.raises(EdgeError, match=r"'conv' of 'npu' ends at .* before it starts at .*: give the start first"):
            profiler.record_backend_event(start, start - 1, 1, "conv", "npu")
        profiler.record_backend_event(start, start, 1, "instant", "npu")
    assert [row["name"] for row in rows(profiler.result(), EVENTS)] == ["instant"]


@pytest.mark.parametrize("shift_us", [-3.6e9, 3.6e9, -1.7e15])
def test_an_event_outside_of_the_profile(shift_us: float) -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        start = now_us() + shift_us
        with pytest.raises(EdgeError, match=r"lies outside of the profile.*adjust_timestamps=True"):
            profiler.record_backend_event(start, start + 1, 1, "conv", "npu")
    assert rows(profiler.result(), EVENTS) == []


def test_events_after_the_profile() -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        profiler.disable()
        with pytest.raises(EdgeError, match="was reported outside of the profile: report it while"):
            profiler.record_backend_event(now_us(), now_us(), 1, "conv", "npu")
    with pytest.raises(EdgeError, match="'conv' of 'npu' was reported outside of the profile"):
        profiler.record_backend_event(now_us(), now_us(), 1, "conv", "npu")
    with pytest.raises(EdgeError, match="The memory event of 64 bytes was reported outside of the profile"):
        profiler.record_backend_memory_event(1, 64, 64, 64)


def test_before_the_first_call_another_clock_cannot_be_aligned() -> None:
    net = Net()
    with EdgeProfiler(net, adjust_timestamps=True) as profiler:
        with pytest.raises(EdgeError, match=r"before the first call of the model.*report it within the call"):
            profiler.record_backend_event(1, 2, 1, "conv", "npu")
        net(batch())
        profiler.record_backend_event(1, 2, 1, "conv", "npu")
    (found,) = rows(profiler.result(), EVENTS)
    assert found["parent"] is not None
    assert found["after"] >= 0


BAD_EVENTS: list[dict[str, Any]] = [
    *({"start_us": value} for value in (float("nan"), float("-inf"), "now", None, True)),
    *({"end_us": value} for value in (float("inf"), 1e300, b"", [])),
    *({"debug_handle": value} for value in (2**64, -(2**70), 1.5, "7", None)),
    *({"event_name": value} for value in (None, 3, b"conv", "half \ud800")),
    *({"backend_name": value} for value in (None, 3, "\udfff")),
]


@pytest.mark.parametrize("adjust", [False, True])
@pytest.mark.parametrize("bad", BAD_EVENTS, ids=repr)
def test_values_that_are_no_event(bad: dict[str, Any], adjust: bool) -> None:
    net = Net()
    with EdgeProfiler(net, adjust_timestamps=adjust) as profiler:
        net(batch())
        good = {"start_us": now_us(), "end_us": now_us(), "debug_handle": 1, "event_name": "e", "backend_name": "b"}
        with pytest.raises(OptionError, match=f"{next(iter(bad))}="):
            profiler.record_backend_event(**{**good, **bad})
    assert len(calls(profiler.result())) == 1


@pytest.mark.parametrize(
    "bad",
    [
        *({"ptr": value} for value in (2**64, -(2**63) - 1, None, "0x7f", 1.5)),
        *({"alloc_size": value} for value in (2**64, None, 1.5)),
        *({"total_allocated": value} for value in (2**64, None)),
        *({"total_reserved": value} for value in (2**64, "much")),
        *({"device": value} for value in ("nonsense", None, 3.5, "cuda:-7", object)),
    ],
    ids=repr,
)
def test_values_that_are_no_memory_event(bad: dict[str, Any]) -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        good = {"ptr": 4096, "alloc_size": 64, "total_allocated": 64, "total_reserved": 128, "device": "cpu"}
        with pytest.raises(OptionError, match=f"{next(iter(bad))}="):
            profiler.record_backend_memory_event(**{**good, **bad})
    assert len(calls(profiler.result())) == 1


def test_names_of_all_kinds_come_back(tmp_path: Path) -> None:
    names = ['"quoted"', "back\\slash", "línea ü 層 🎞", "new\nline\ttab", "</script>", "", "nul\0"]

    def forward() -> None:
        for name in names:
            current().record_backend_event(now_us(), now_us(), 2**63 - 1, name, name)

    model = Calling(forward)
    with EdgeProfiler(model, tmp_path / "trace.json.gz") as profiler:
        model()
    found = rows(profiler.result(), EVENTS)
    assert sorted(row["name"] for row in found) == sorted(names)
    trace = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    told = [event for event in trace["traceEvents"] if "Backend" in event.get("args", {})]
    assert sorted(event["name"] for event in told) == sorted(names)
    assert all(event["args"]["Backend"] == event["name"] for event in told)


def test_events_in_the_trace(tmp_path: Path) -> None:
    model = reporting()
    with EdgeProfiler(model, tmp_path / "trace.json") as profiler:
        model(batch())
    told = [
        event
        for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        if event.get("args", {}).get("Backend") == "npu"
    ]
    assert [(event["ph"], event["cat"], event["name"]) for event in told] == [
        ("X", "cpu_op", "conv"),
        ("X", "cpu_op", "load"),
        ("X", "cpu_op", "multiply"),
    ]
    found = rows(profiler.result(), EVENTS)
    assert [event["dur"] for event in told] == pytest.approx([row["dur_ns"] / 1000 for row in found])


def test_memory_of_a_backend_is_in_the_trace(tmp_path: Path) -> None:
    def forward(x: Tensor) -> Tensor:
        current().record_backend_memory_event(0xFFFF_FFFF_FFFF_F000, 4096, 4096, 65536, "vulkan")
        current().record_backend_memory_event(0x2000, 512, 512, 8192, torch.device("cpu"))
        current().record_backend_memory_event(0x2000, -512, 0, 8192, torch.device("cpu"))
        return x.exp()

    for memory in (False, True):
        model = Calling(forward)
        with EdgeProfiler(model, tmp_path / "trace.json", profile_memory=memory) as profiler:
            model(batch())
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        told = [event["args"] for event in events if event["name"] == "[memory]"]
        reported = [args for args in told if args["Total Reserved"]]
        assert [(args["Bytes"], args["Total Allocated"], args["Total Reserved"]) for args in reported] == [
            (4096, 4096, 65536),
            (512, 512, 8192),
            (-512, 0, 8192),
        ]
        assert (len(told) > 3) is memory
        devices = rows(profiler.result(), "select device from allocs where reserved is not null order by id")
        assert [row["device"] for row in devices] == ["vulkan", "cpu", "cpu"]


def test_only_backend_events_and_no_call() -> None:
    """A backend may run a model that Python never calls."""
    with EdgeProfiler(Net()) as profiler:
        profiler.record_backend_event(now_us(), now_us(), 1, "conv", "npu")
    assert [row["name"] for row in rows(profiler.result(), EVENTS)] == ["conv"]


def test_thousands_of_events() -> None:

    def forward(x: Tensor) -> None:
        for number in range(2000):
            x = x.exp()
            start = now_us()
            current().record_backend_event(start, start, number, "event", "npu")

    model = Calling(forward)
    with EdgeProfiler(model) as profiler:
        model(batch())
        model(batch())
    found = rows(profiler.result(), "select count(*) as n, count(distinct parent) as p from ops where kind = 'backend'")
    assert found == [{"n": 4000, "p": 2}]


class Delegating(torch.nn.Module):
    """An op that gives work to a backend is the first of two."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def report(profiler: EdgeProfiler, handle: int, name: str) -> None:
    """An event that lies in no other."""
    wait()
    now = now_us()
    profiler.record_backend_event(now, now, handle, name, "npu")


PLACED = """select o.name, m.path, f.function
            from ops o left join modules m on o.module = m.id left join stacks s on o.stack = s.id
            left join frames f on f.id = list_extract(s.frames, 1) where o.kind = 'backend' order by o.name"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("modules", "stacks"), [(True, True), (True, False), (False, True)])
def test_a_known_debug_handle_says_where_the_event_stands(tmp_path: Path, modules: bool, stacks: bool) -> None:
    from torch.jit.mobile import _load_for_lite_interpreter

    path = tmp_path / "model.ptl"
    torch.jit.script(Delegating().eval())._save_for_lite_interpreter(str(path), _save_mobile_debug_info=True)
    model = _load_for_lite_interpreter(str(path))
    with EdgeProfiler(model, with_modules=True) as profiler:
        model(batch())
    handles = {
        row["path"]: row["debug_handle"]
        for row in rows(
            profiler.result(),
            "select m.path, o.debug_handle from ops o join modules m on o.module = m.id where o.name = 'aten::linear'",
        )
    }
    with EdgeProfiler(model, with_modules=modules, with_stack=stacks) as profiler:
        model(batch())
        for name, handle in (("a", handles["Delegating.second"]), ("b", handles["Delegating.first"])):
            report(profiler, handle, name)
        report(profiler, 10**9, "c")
        report(profiler, -1, "d")
    found = [(row["name"], row["path"], row["function"]) for row in rows(profiler.result(), PLACED)]
    expected = [("a", "Delegating.second"), ("b", "Delegating.first"), ("c", None), ("d", None)]
    assert [(name, path) for name, path, _ in found if modules] == [one for one in expected if modules]
    assert [function for *_, function in found] == (["forward", "forward", None, None] if stacks else 4 * [None])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_number_that_means_nothing_to_the_model_is_kept_as_a_number() -> None:
    """TorchScript's ops have numbers of ours, in the order in which they ran: a backend cannot mean these."""
    model = torch.jit.script(Delegating().eval())
    with EdgeProfiler(model, with_modules=True, with_stack=True) as profiler:
        model(batch())
        for handle in range(4):
            report(profiler, handle, str(handle))
    assert [(row["path"], row["function"]) for row in rows(profiler.result(), PLACED)] == 4 * [(None, None)]
