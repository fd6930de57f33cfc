from __future__ import annotations

import inspect
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch

import torchreel
from tests.alone import alone, resident_bytes, run_alone, run_forked
from tests.record.rows import names, rows
from torchreel import _core
from torchreel.errors import AlreadyRecordingError, OptionError, RecorderError, ReelExistsError


def test_every_op_is_recorded_with_its_parent_depth_and_self_time(tmp_path: Path) -> None:
    x = torch.ones(4, 4)
    with torchreel.record(tmp_path / "a.reel"):
        torch.nn.functional.linear(x, x)
    reel = torchreel.load(tmp_path / "a.reel")
    ops = rows(reel, "select id, parent, depth, name, start_ns, dur_ns, self_ns from ops order by id")
    assert [(op["name"], op["depth"]) for op in ops] == [
        ("aten::linear", 0),
        ("aten::t", 1),
        ("aten::transpose", 2),
        ("aten::as_strided", 3),
        ("aten::matmul", 1),
        ("aten::mm", 2),
        ("aten::resolve_conj", 3),
        ("aten::resolve_conj", 3),
    ]
    by_id = {op["id"]: op for op in ops}
    for op in ops:
        children = [child for child in ops if child["parent"] == op["id"]]
        assert abs(op["dur_ns"] - op["self_ns"] - sum(child["dur_ns"] for child in children)) <= len(children)
        if op["parent"] is not None:
            parent = by_id[op["parent"]]
            assert parent["start_ns"] <= op["start_ns"]
            assert op["start_ns"] + op["dur_ns"] <= parent["start_ns"] + parent["dur_ns"]


def test_backward_is_linked_to_forward(tmp_path: Path) -> None:
    weight = torch.ones(3, 3, requires_grad=True)
    with torchreel.record(tmp_path / "a.reel"):
        (weight @ weight).sum().backward()
    reel = torchreel.load(tmp_path / "a.reel")
    links = rows(
        reel,
        """select b.name as backward, f.name as forward, b.seq = f.seq as same, b.fwd_thread = f.thread as thread
           from ops b join ops f on b.fwd = f.id where b.kind = 'backward' order by b.id""",
    )
    assert links == [
        {"backward": "SumBackward0", "forward": "aten::sum", "same": True, "thread": True},
        {"backward": "MmBackward0", "forward": "aten::mm", "same": True, "thread": True},
    ]


def test_an_op_that_raises_ends_and_the_next_stands_beside_it(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"):
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        torch.ones(1)
    reel = torchreel.load(tmp_path / "a.reel")
    assert rows(reel, "select name, depth, open from ops where name in ('aten::mm', 'aten::ones') order by id")[
        -2:
    ] == [
        {"name": "aten::mm", "depth": 0, "open": False},
        {"name": "aten::ones", "depth": 0, "open": False},
    ]


def test_ranges_that_end_out_of_order_keep_their_own_times(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"):
        a, b = torchreel.range("a"), torchreel.range("b")
        a.__enter__()
        torch.ones(1)
        b.__enter__()
        torch.ones(1)
        a.__exit__(None, None, None)
        torch.zeros(1)
        b.__exit__(None, None, None)
        torch.empty(1)
    reel = torchreel.load(tmp_path / "a.reel")
    ranges = {row["name"]: row for row in rows(reel, "select * from ops where kind = 'range'")}
    assert ranges["b"]["parent"] == ranges["a"]["id"]
    end_a = ranges["a"]["start_ns"] + ranges["a"]["dur_ns"]
    end_b = ranges["b"]["start_ns"] + ranges["b"]["dur_ns"]
    assert ranges["a"]["start_ns"] < ranges["b"]["start_ns"] < end_a < end_b
    assert not ranges["a"]["open"] and not ranges["b"]["open"]
    zeros = rows(reel, "select parent from ops where name = 'aten::zeros'")
    assert zeros == [{"parent": ranges["b"]["id"]}]
    last = rows(reel, "select parent, depth from ops where name = 'aten::empty' order by id desc limit 1")
    assert last == [{"parent": None, "depth": 0}]


def test_a_range_that_ends_on_another_thread_is_async(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"), torchreel.range("around"):
        crossing = torchreel.range("crossing")
        crossing.__enter__()
        torch.ones(1)
        thread = threading.Thread(target=lambda: crossing.__exit__(None, None, None), name="other")
        thread.start()
        thread.join()
        torch.zeros(1)
    reel = torchreel.load(tmp_path / "a.reel")
    crossing_row = rows(reel, "select * from ops where name = 'crossing'")[0]
    other = rows(reel, "select id from threads where name = 'other'")[0]["id"]
    assert crossing_row["async"] and not crossing_row["open"]
    assert crossing_row["end_thread"] == other != crossing_row["thread"]
    assert crossing_row["self_ns"] == 0
    around = rows(reel, "select id, dur_ns, self_ns from ops where name = 'around'")[0]
    assert rows(reel, "select parent, depth from ops where name = 'aten::zeros'") == [
        {"parent": around["id"], "depth": 1}
    ]
    inner = rows(reel, "select sum(dur_ns)::bigint as ns from ops where name in ('aten::ones', 'aten::zeros')")[0]["ns"]
    assert abs(around["dur_ns"] - around["self_ns"] - inner) <= 2


def test_ranges_open_at_start_and_at_stop(tmp_path: Path) -> None:
    before = torchreel.range("before")
    before.__enter__()
    recorder = torchreel.record(tmp_path / "a.reel").start()
    after = torchreel.range("after")
    after.__enter__()
    torch.ones(1)
    before.__exit__(None, None, None)
    recorder.stop()
    after.__exit__(None, None, None)
    reel = torchreel.load(tmp_path / "a.reel")
    found = rows(reel, "select name, open, depth from ops where depth < 2 order by id")
    assert found == [{"name": "after", "open": True, "depth": 0}, {"name": "aten::ones", "open": False, "depth": 1}]
    with torchreel.record(tmp_path / "b.reel"):
        torch.ones(1)
    assert names(torchreel.load(tmp_path / "b.reel"), "depth = 0") == ["aten::ones"]


def test_pain_10_ops_of_other_threads_are_recorded_with_their_memory(tmp_path: Path) -> None:
    def work() -> None:
        torch.ones(1000).add(1)

    with torchreel.record(tmp_path / "a.reel", memory=True):
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    reel = torchreel.load(tmp_path / "a.reel")
    found = rows(
        reel,
        """select t.name, count(*) as calls, sum(self_alloc_bytes)::bigint > 0 as has_memory
           from ops join threads t on ops.thread = t.id where ops.name = 'aten::add' group by t.name order by t.name""",
    )
    assert found == [{"name": f"worker {i}", "calls": 1, "has_memory": True} for i in range(3)]
    allocs = rows(
        reel, "select count(*) as n from allocs a join threads t on a.thread = t.id where t.name like 'worker%'"
    )
    assert allocs[0]["n"] >= 12


def test_inter_op_threads_and_torchscript(tmp_path: Path) -> None:
    @torch.jit.script
    def branch(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)

    @torch.jit.script
    def both(x: torch.Tensor) -> torch.Tensor:
        future = torch.jit.fork(branch, x)
        return torch.cos(x) + torch.jit.wait(future)

    both(torch.ones(3))
    with torchreel.record(tmp_path / "a.reel"):
        both(torch.ones(3))
    reel = torchreel.load(tmp_path / "a.reel")
    assert {"aten::sin", "aten::cos"} <= set(names(reel))
    assert "torchscript" in {row["kind"] for row in rows(reel, "select distinct kind from ops")}
    assert (
        len({row["thread"] for row in rows(reel, "select thread from ops where name in ('aten::sin', 'aten::cos')")})
        == 2
    )


def test_a_second_recorder_is_refused_and_the_first_is_unharmed(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"):
        torch.ones(1)
        with pytest.raises(AlreadyRecordingError, match="already running"):
            torchreel.record(tmp_path / "b.reel").start()
        torch.zeros(1)
    assert not (tmp_path / "b.reel").exists()
    assert names(torchreel.load(tmp_path / "a.reel"), "depth = 0") == ["aten::ones", "aten::zeros"]


def test_an_existing_path_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.reel").mkdir()
    (tmp_path / "a.reel" / "precious").write_text("data")
    with pytest.raises(ReelExistsError, match="already exists"):
        torchreel.record(tmp_path / "a.reel").start()
    assert (tmp_path / "a.reel" / "precious").read_text() == "data"


def test_stop_step_peek_and_dump_without_a_recording_say_so(tmp_path: Path) -> None:
    recorder = torchreel.record(tmp_path / "a.reel")
    for call in (recorder.stop, recorder.step, recorder.peek, recorder.dump):
        with pytest.raises(RecorderError, match=r"start\(\)"):
            call()


def test_pain_19_an_exception_in_the_block_closes_the_reel(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), torchreel.record(tmp_path / "a.reel"):
        torch.ones(1)
        _ = 1 / 0
    assert names(torchreel.load(tmp_path / "a.reel"), "depth = 0") == ["aten::ones"]


def test_steps_marks_and_schedule(tmp_path: Path) -> None:
    plan = torchreel.schedule(wait=1, warmup=1, active=2, repeat=2)
    with torchreel.record(tmp_path / "a.reel", schedule=plan) as recorder:
        for i in range(10):
            with torchreel.range(f"step {i}"):
                torch.ones(1)
            torchreel.mark("done")
            recorder.step()
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel, "kind = 'range'") == ["step 2", "step 3", "step 6", "step 7"]
    assert rows(reel, "select distinct step from ops order by step") == [{"step": s} for s in (2, 3, 6, 7)]
    assert reel.steps.column("step").to_pylist() == list(range(11))


@pytest.mark.parametrize(
    "plan",
    [
        {"skip_first_wait": 1},
        {"skip_first": 2, "skip_first_wait": 1},
        {"repeat": 2, "skip_first_wait": 1},
        {"skip_first": 1, "repeat": 1, "skip_first_wait": 1},
        {"warmup": 0, "skip_first_wait": 1},
        {"skip_first_wait": 0},
    ],
    ids=str,
)
def test_a_schedule_records_the_steps_that_torch_s_would(plan: dict[str, int]) -> None:
    words = {"wait": 3, "warmup": 1, "active": 2, **plan}
    recording = (torch.profiler.ProfilerAction.RECORD, torch.profiler.ProfilerAction.RECORD_AND_SAVE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends a warm-up
        theirs = torch.profiler.schedule(**words)
    ours = torchreel.schedule(**words)
    steps = [step for step in range(40) if ours.records(step)]
    assert steps and steps == [step for step in range(40) if theirs(step) in recording]


def test_a_schedule_takes_the_words_of_torch_s() -> None:
    theirs, ours = (inspect.signature(made).parameters for made in (torch.profiler.schedule, torchreel.schedule))
    assert set(ours) == set(theirs)


def test_the_first_wait_of_a_recording_is_left_out(tmp_path: Path) -> None:
    plan = torchreel.schedule(wait=2, active=1, skip_first=1, skip_first_wait=1)
    with torchreel.record(tmp_path / "a.reel", schedule=plan) as recorder:
        for i in range(6):
            with torchreel.range(f"step {i}"):
                torch.ones(1)
            recorder.step()
    assert names(torchreel.load(tmp_path / "a.reel"), "kind = 'range'") == ["step 1", "step 4"]


def test_steps_follow_the_first_optimizer(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    first, second = (torch.optim.SGD([parameter], lr=0.1) for _ in range(2))
    with torchreel.record(tmp_path / "a.reel"):
        for _ in range(3):
            parameter.sum().backward()
            first.step()
            second.step()
    assert torchreel.load(tmp_path / "a.reel").steps.column("step").to_pylist() == [0, 1, 2, 3]


def test_marks_carry_the_call_they_stand_in(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"), torchreel.range("r"):
        torchreel.mark('a "mark"')
    reel = torchreel.load(tmp_path / "a.reel")
    assert rows(reel, "select m.name as mark, o.name as op from marks m join ops o on m.op = o.id") == [
        {"mark": 'a "mark"', "op": "r"}
    ]


def test_peek_shows_what_is_recorded_while_it_goes_on(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel") as recorder:
        torch.ones(1)
        with torchreel.range("open"):
            so_far = recorder.peek()
            assert names(so_far, "depth = 0") == ["aten::ones", "open"]
            assert rows(so_far, "select open from ops where name = 'open'") == [{"open": True}]
            assert rows(so_far, "select complete from processes") == [{"complete": False}]
        torch.zeros(1)
    assert names(torchreel.load(tmp_path / "a.reel"), "depth = 0") == ["aten::ones", "open", "aten::zeros"]


def test_recording_beside_torch_profiler_loses_nothing(tmp_path: Path) -> None:
    x = torch.ones(4)
    with torch.profiler.profile(profile_memory=True) as theirs, torchreel.record(tmp_path / "a.reel", memory=True):
        for _ in range(10):
            x.add(1)
            with torch.profiler.record_function("theirs"), torchreel.range("ours"):
                pass
    counts = {event.key: event for event in theirs.key_averages()}
    assert counts["aten::add"].count == 10
    assert counts["aten::add"].cpu_memory_usage == 160
    assert counts["theirs"].count == counts["ours"].count == 10
    reel = torchreel.load(tmp_path / "a.reel")
    found = rows(reel, "select name, count(*) as n, sum(alloc_bytes)::bigint as b from ops group by name order by name")
    assert {"name": "aten::add", "n": 10, "b": 160} in found
    assert {"name": "theirs", "n": 10, "b": 0} in found
    assert {"name": "ours", "n": 10, "b": 0} in found


def test_a_thousand_range_names_and_more_than_there_are_ids(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"):
        for i in range(70_000):
            with torchreel.range(f"number {i}"):
                pass
        torchreel.mark("a mark of a new name")
    reel = torchreel.load(tmp_path / "a.reel")
    assert rows(reel, "select count(distinct name) as n, count(*) as all from ops") == [{"n": 70_000, "all": 70_000}]
    assert names(reel)[-1] == "number 69999"
    assert reel.marks.column("name").to_pylist() == ["a mark of a new name"]


def test_range_is_a_decorator(tmp_path: Path) -> None:
    @torchreel.range("decorated")
    def work() -> None:
        torch.ones(1)

    with torchreel.record(tmp_path / "a.reel"):
        work()
        work()
    assert names(torchreel.load(tmp_path / "a.reel"), "kind = 'range'") == ["decorated", "decorated"]


@pytest.mark.parametrize(
    "options", [{"ring": "lots"}, {"ring": "10"}, {"emit": "smoke"}, {"counters": ["teeth"]}], ids=str
)
def test_a_wrong_option_is_a_sentence(tmp_path: Path, options: dict) -> None:
    with pytest.raises(OptionError, match=r"\.$"):
        torchreel.record(tmp_path / "a.reel", **options).start()
    assert not (tmp_path / "a.reel").exists()


@pytest.mark.parametrize(
    ("name", "hint"),
    [("shape", r"did you mean 'shapes'\?"), ("memroy", r"did you mean 'memory'\?"), ("zzz", "there are shapes, ")],
)
def test_an_unknown_option_is_a_sentence_that_names_the_nearest(tmp_path: Path, name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=rf"There is no option '{name}' of a recording: {hint}"):
        torchreel.record(tmp_path / "a.reel", **{name: True})
    assert not (tmp_path / "a.reel").exists()


def test_pain_19_a_program_that_never_stops_has_its_reel(tmp_path: Path) -> None:
    script = "import sys, torch, torchreel; torchreel.record(sys.argv[1]).start(); torch.ones(1)"
    result = run_forked(script, tmp_path / "a.reel")
    assert (result.returncode, result.stderr) == (0, "")
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel, "depth = 0") == ["aten::ones"]
    assert rows(reel, "select complete from processes") == [{"complete": True}]


def test_pain_5_repeated_recordings_do_not_grow(tmp_path: Path) -> None:
    script = """
    import gc, sys, torch, torchreel
    from tests.alone import resident_bytes
    gc.disable()
    for i in range(30):
        with torchreel.record(f"{sys.argv[1]}/{i}.reel", shapes=True, memory=True, stacks=True):
            torch.ones(3).add(1)
        if i == 10:
            before = resident_bytes()
    print(resident_bytes() - before)
    """
    assert int(run_alone(script, tmp_path)) < 20_000_000


def test_a_disk_that_is_full_ends_the_recording_not_the_program(tmp_path: Path) -> None:
    script = """
import resource, signal, sys, torch, torchreel
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
recorder = torchreel.record(sys.argv[1]).start()
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
x = torch.ones(1)
for _ in range(100_000):
    x.add_(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
recorder.stop()
print(x.item(), recorder.lost_events > 0)
"""
    result = run_forked(script, tmp_path / "a.reel")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "100001.0 True\n"
    assert "only up to the moment when the disk refused: File too large" in result.stderr
    reel = torchreel.load(tmp_path / "a.reel")
    assert 1000 < len(names(reel, "name = 'aten::add_'")) < 100_000
    assert rows(reel, "select lost_events > 0 as lost from processes") == [{"lost": True}]


def stream(path: Path, ops: int) -> tuple[int, torchreel.Reel]:
    """Record so many ops; gives by how much memory grew after the first tenth."""
    x = torch.ones(1)
    before = 0
    with torchreel.record(path, memory=True):
        for i in range(ops):
            x.add_(1)
            # On a loaded machine the flusher may come late; what waits for it is bounded too, but by more.
            if i % 20_000 == 0:
                _core.flush()
            if i == ops // 10:
                before = resident_bytes()
        grown = resident_bytes() - before
    return grown, torchreel.load(path)


@alone  # what other tests leave behind comes and goes, too
def test_long_recordings_stream_to_disk_in_bounded_memory(tmp_path: Path) -> None:
    grown, reel = stream(tmp_path / "a.reel", 400_000)
    assert grown < 64_000_000
    assert rows(reel, "select count(*) as n from ops where name = 'aten::add_'") == [{"n": 400_000}]
    assert rows(reel, "select count(distinct id) = count(*) as unique from ops") == [{"unique": True}]
    assert rows(reel, "select max(depth) as depth, sum(open::int)::int as open from ops") == [{"depth": 3, "open": 0}]


@pytest.mark.long
def test_very_long_recordings_stream_to_disk_in_bounded_memory(tmp_path: Path) -> None:
    grown, reel = stream(tmp_path / "a.reel", 20_000_000)
    assert grown < 128_000_000
    assert rows(reel, "select count(*) as n from ops where name = 'aten::add_'") == [{"n": 20_000_000}]


def test_scopes_of_the_lite_interpreter_and_of_custom_classes(tmp_path: Path) -> None:
    import io

    from torch.jit.mobile import _load_for_lite_interpreter

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin() + 1

    saved = io.BytesIO(torch.jit.script(Module())._save_to_buffer_for_lite_interpreter())
    module = _load_for_lite_interpreter(saved)
    with torchreel.record(tmp_path / "a.reel"):
        module(torch.ones(2))
    kinds = {row["kind"] for row in rows(torchreel.load(tmp_path / "a.reel"), "select distinct kind from ops")}
    assert {"lite", "op"} <= kinds


def test_pain_1_from_stop_to_averages_memory_stays_small(tmp_path: Path) -> None:
    x = torch.ones(1)
    recorder = torchreel.record(tmp_path / "a.reel").start()
    for _ in range(200_000):
        x.add_(1)
    before = resident_bytes()
    recorder.stop()
    table = torchreel.averages(torchreel.load(tmp_path / "a.reel"))
    assert table.to_pylist()[0]["calls"] == 200_000
    assert resident_bytes() - before < 200_000 * 1_000  # torch.profiler keeps 4.7 kB per event


def test_pain_3_a_reel_is_a_fraction_of_its_chrome_trace(tmp_path: Path) -> None:
    from torchreel.export import export

    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torchreel.record(tmp_path / "a.reel"):
        for _ in range(100):
            model(torch.ones(1, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    reel = torchreel.load(tmp_path / "a.reel")
    export(reel, tmp_path / "a.json", "chrome")
    size = sum(file.stat().st_size for file in reel.path.rglob("*") if file.is_file())
    assert reel.ops.num_rows > 10_000
    assert size * 20 < (tmp_path / "a.json").stat().st_size


def test_pain_6_an_op_costs_a_few_words_and_no_python_object(tmp_path: Path) -> None:
    x = torch.ones(1)
    with torchreel.record(tmp_path / "a.reel", stacks=True, shapes=True) as recorder:
        for _ in range(1_000):
            x.add_(1)
        recorder.peek()
        spool = next((tmp_path / "a.reel").rglob("events"))
        size, blocks = spool.stat().st_size, sys.getallocatedblocks()
        for _ in range(10_000):
            x.add_(1)
        grown = sys.getallocatedblocks() - blocks
        recorder.peek()
        written = spool.stat().st_size - size
    ops = torchreel.load(tmp_path / "a.reel").ops.num_rows / 11_000
    assert grown < 100
    assert written / (10_000 * ops) < 32
