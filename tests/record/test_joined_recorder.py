"""A recorder, or the drop-in, in a program that is recorded from outside: it joins."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest
import torch

import torchreel
import torchreel.profiler
from tests.alone import run_forked
from tests.record.rows import names, rows
from torchreel.errors import AlreadyRecordingError, RecorderError
from torchreel.record.recorder import Recorder
from torchreel.reel.joining import holds_process


def outside(path: Path, **options: bool) -> Recorder:
    return Recorder(path, torchreel.RecordOptions(**options), from_outside=True)


def record(script: str, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (directory / "program.py").write_text(textwrap.dedent(script))
    command = "import sys; from torchreel.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return run_forked(command, "record", *options, "-o", "outer.reel", "program.py", directory=directory)


def test_a_program_with_a_recorder_and_the_drop_in_runs_under_torchreel_record(tmp_path: Path) -> None:
    result = record(
        """
        import torch, torchreel, torchreel.profiler
        torch.full((1,), 1.0)
        with torchreel.record("inner.reel", shapes=True, stacks=True) as recorder:
            torch.ones(2).exp()
        with torchreel.profiler.profile(record_shapes=True) as prof:
            torch.ones(3).sin()
        torch.zeros(1)
        print([row.key for row in prof.key_averages() if row.key in ("aten::sin", "aten::exp")])
        print(torchreel.load("inner.reel").sql("select name from ops where depth = 0").to_pydict())
        """,
        tmp_path,
        "--shapes",
    )
    assert result.returncode == 0, result.stderr
    assert "['aten::sin']" in result.stdout
    assert "{'name': ['aten::ones', 'aten::exp']}" in result.stdout
    assert "without stacks" in result.stderr
    assert "Give --stacks to 'torchreel record'" in result.stderr
    outer = names(torchreel.load(tmp_path / "outer.reel"), "depth = 0")
    assert outer[0] == "aten::full" and outer[-1] == "aten::zeros"
    assert {"aten::exp", "aten::sin"} <= set(outer)


def test_the_part_is_what_a_recorder_of_its_own_would_have(tmp_path: Path) -> None:
    """Nesting, modules, memory, backward, marks: the same rows, whether it joins or not."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    options = {"shapes": True, "memory": True, "modules": True}

    def program() -> None:
        with torchreel.range("mine"):
            out = model(torch.ones(2, 4))
            torchreel.mark("half")
            out.sum().backward()
        model.zero_grad()

    program()
    with torchreel.record(tmp_path / "alone.reel", **options):
        program()
    outer = outside(tmp_path / "outer.reel", **options).start()
    with torchreel.range("around"):
        kept = torch.ones(100)
        with torchreel.record(tmp_path / "joined.reel", **options) as recorder:
            assert torchreel.current_recorder() is recorder
            program()
        assert torchreel.current_recorder() is outer
        del kept
    outer.stop()
    assert torchreel.current_recorder() is None
    alone, joined = (torchreel.load(tmp_path / f"{name}.reel") for name in ("alone", "joined"))
    query = """select o.name, o.kind, o.depth, p.name as parent, f.name as forward, m.path, i.dims,
        o.alloc_bytes, o.step from ops o left join ops p on p.id = o.parent left join ops f on f.id = o.fwd
        left join modules m on m.id = o.module left join inputs i on i.id = o.inputs order by o.thread, o.id"""
    assert rows(joined, query) == rows(alone, query)
    assert len(rows(joined, query)) > 20
    assert rows(joined, "select name from marks") == [{"name": "half"}]
    old = rows(joined, "select size from allocs where action not in ('alloc', 'free') and size = 400")
    assert old == [{"size": 400}]  # it lived before
    ids = [row["id"] for row in rows(joined, "select id from ops order by id")]
    assert ids == list(range(len(ids)))
    process = rows(joined, "select complete, lost_events, start_ns, end_ns from processes")[0]
    assert process["complete"] and process["lost_events"] == 0
    first, last = rows(joined, "select min(start_ns) as a, max(start_ns + dur_ns) as b from ops")[0].values()
    assert process["start_ns"] <= first <= last <= process["end_ns"]
    assert "around" not in names(joined) and names(torchreel.load(tmp_path / "outer.reel")).count("mine") == 1


def test_a_schedule_of_a_joined_recorder_does_not_pause_the_other(tmp_path: Path) -> None:
    outer = outside(tmp_path / "outer.reel").start()
    with torchreel.record(tmp_path / "a.reel", schedule=torchreel.schedule(wait=1, active=1)) as recorder:
        for step in range(4):
            torch.full((step + 1,), 1.0)
            recorder.step()
    outer.stop()
    joined = torchreel.load(tmp_path / "a.reel")
    assert rows(joined, "select step from ops where name = 'aten::full' order by id") == [{"step": 1}, {"step": 3}]
    assert rows(
        torchreel.load(tmp_path / "outer.reel"), "select step from ops where name = 'aten::full' order by id"
    ) == [{"step": step} for step in range(4)]


def test_peek_dump_and_discard_of_a_joined_recorder(tmp_path: Path) -> None:
    outer = outside(tmp_path / "outer.reel").start()
    torch.full((1,), 1.0)
    recorder = torchreel.record(tmp_path / "a.reel").start()
    torch.ones(1)
    assert names(recorder.peek(), "depth = 0") == ["aten::ones"]
    torch.zeros(1)
    assert names(recorder.peek(), "depth = 0") == ["aten::ones", "aten::zeros"]
    recorder.discard()
    assert not (tmp_path / "a.reel").exists()
    flight = torchreel.record(tmp_path / "b.reel", ring="1MiB", dump_signal=None).start()
    torch.eye(2)
    assert "aten::eye" in names(flight.dump())
    assert "aten::full" not in names(torchreel.load(tmp_path / "b.reel"))
    assert flight.stop() is None
    outer.stop()
    assert not any(entry.name not in ("b.reel", "outer.reel") for entry in tmp_path.iterdir())


def test_a_joined_recorder_that_is_never_stopped_has_its_reel(tmp_path: Path) -> None:
    result = record(
        """
        import torch, torchreel, torchreel.profiler
        torch.ones(1)
        torchreel.record("inner.reel").start()
        torch.zeros(1)
        """,
        tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert names(torchreel.load(tmp_path / "inner.reel"), "depth = 0") == ["aten::zeros"]
    assert names(torchreel.load(tmp_path / "outer.reel"), "depth = 0") == ["aten::ones", "aten::zeros"]
    result = record(
        """
        import torch, torchreel.profiler
        profile = torchreel.profiler.profile()
        profile.__enter__()
        torch.zeros(1)
        """,
        tmp_path,
        "--force",
    )
    assert result.returncode == 0 and "Traceback" not in result.stderr, result.stderr
    assert names(torchreel.load(tmp_path / "outer.reel"), "depth = 0") == ["aten::zeros"]


def test_a_recorder_that_names_the_reel_of_the_whole_has_one_beside_it(tmp_path: Path) -> None:
    """`torchreel record` and the example of the README both say run.reel."""
    program = """
        import torch, torchreel
        torch.ones(1)
        for _ in range(2):
            with torchreel.record("outer.reel", force=True) as recorder:
                torch.zeros(1)
            print(recorder.path)
        """
    result = record(program, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "outer-part.reel\nouter-part-2.reel\n"
    assert result.stderr.count("this part of it goes to") == 2
    assert names(torchreel.load(tmp_path / "outer.reel"), "depth = 0") == ["aten::ones", "aten::zeros", "aten::zeros"]
    for name in result.stdout.split():
        assert names(torchreel.load(tmp_path / name), "depth = 0") == ["aten::zeros"]


def test_joining_a_flight_recorder(tmp_path: Path) -> None:
    outer = Recorder(
        tmp_path / "outer.reel", torchreel.RecordOptions(ring="8MiB", dump_signal=None), from_outside=True
    ).start()
    torch.full((1,), 1.0)
    with torchreel.record(tmp_path / "a.reel"):
        torch.ones(1)
    outer.stop()
    assert names(torchreel.load(tmp_path / "a.reel"), "depth = 0") == ["aten::ones"]


def test_only_a_recording_from_outside_is_joined_and_by_one_at_a_time(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel"), pytest.raises(AlreadyRecordingError, match=r"a\.reel is already"):
        torchreel.record(tmp_path / "b.reel").start()
    outer = outside(tmp_path / "outer.reel").start()
    with torchreel.record(tmp_path / "c.reel"), pytest.raises(AlreadyRecordingError, match=r"c\.reel is already"):
        torchreel.record(tmp_path / "d.reel").start()
    outer.stop()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.reel", "c.reel", "outer.reel"]


def test_discard_leaves_nothing_and_says_when_there_is_nothing(tmp_path: Path) -> None:
    recorder = torchreel.record(tmp_path / "a.reel").start()
    torch.ones(1)
    recorder.discard()
    assert list(tmp_path.iterdir()) == []
    assert torchreel.current_recorder() is None
    with pytest.raises(RecorderError):
        recorder.discard()
    torchreel.step()  # nothing is on: nothing happens


@pytest.mark.parametrize("by_hand_first", [False, True])
def test_one_count_when_an_optimizer_and_the_program_both_count(tmp_path: Path, by_hand_first: bool) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torchreel.record(tmp_path / "a.reel", tape=1) as recorder:
        for number in range(4):
            with torchreel.range(f"iteration {number}"):
                optimizer.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
            recorder.step() if not by_hand_first else torchreel.step()
    reel = torchreel.load(tmp_path / "a.reel")
    assert rows(reel, "select name, step from ops where name like 'iteration%' order by id") == [
        {"name": f"iteration {number}", "step": number} for number in range(4)
    ]
    assert rows(reel, "select step from steps order by start_ns") == [{"step": number} for number in range(5)]
    tape = torchreel.load_tape(next(reel.parts[0].directory.glob("step-1.tape")))
    assert len(tape) > 3
    joined = rows(reel, "select distinct o.step from tape_ops t join ops o on o.id = t.op")
    assert joined == [{"step": 1}]


def test_a_pool_that_is_terminated_loses_nothing(tmp_path: Path) -> None:
    result = record(
        """
        import multiprocessing, torch

        def work(n):
            torch.ones(n + 1).cumsum(0)
            return n

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                assert pool.map(work, range(6), chunksize=1) == list(range(6))
        """,
        tmp_path,
    )
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "outer.reel")
    assert len(names(reel, "name = 'aten::cumsum'")) == 6
    assert rows(reel, "select count(*) as n from processes where not complete") == [{"n": 0}]


def test_a_child_that_is_ended_while_it_begins_to_record_is_whole(tmp_path: Path) -> None:
    """A pool that has no work left ends workers wherever they are: also between their claim and the first event."""
    result = record(
        """
        import os, torch
        from torchreel.reel import joining

        claim, parent = joining.claim_directory, os.getpid()

        def claim_and_be_ended(*arguments):
            directory = claim(*arguments)
            os.kill(os.getpid(), 15)
            return directory

        joining.claim_directory = claim_and_be_ended
        torch.ones(1)
        child = os.fork()
        if child == 0:
            torch.zeros(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 15
        """,
        tmp_path,
    )
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "outer.reel")
    assert rows(reel, "select complete from processes") == [{"complete": True}] * 2
    assert names(reel, "depth = 0") == ["aten::ones"]


ENDED_WITH_THREADS = """
import os, threading
from torchreel.reel import joining

threading.Thread(target=threading.Event().wait, daemon=True).start()
claim = joining.claim_directory

def claim_and_be_ended(*arguments):
    directory = claim(*arguments)
    os.kill(os.getpid(), 15)
    return directory

joining.claim_directory = claim_and_be_ended
import torch
torch.zeros(1)
"""


def test_a_child_with_threads_that_is_ended_while_it_begins_to_record_is_whole(tmp_path: Path) -> None:
    """The signal comes to a thread that does not know that it is to wait."""
    (tmp_path / "child.py").write_text(ENDED_WITH_THREADS)
    result = record(
        f"""
        import subprocess, sys, torch
        torch.ones(1)
        assert subprocess.run([sys.executable, "{tmp_path}/child.py"]).returncode == -15
        """,
        tmp_path,
    )
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "outer.reel")
    assert rows(reel, "select complete from processes") == [{"complete": True}] * 2
    assert names(reel, "depth = 0") == ["aten::ones"]


def test_a_child_that_is_killed_at_once_is_known_and_not_complete(tmp_path: Path) -> None:
    result = record(
        """
        import os, signal, subprocess, sys, torch
        torch.ones(1)
        program = "import torch, os, signal; torch.ones(1); os.kill(os.getpid(), signal.SIGKILL)"
        assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
        """,
        tmp_path,
    )
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "outer.reel")
    assert rows(reel, "select complete from processes order by process") == [{"complete": True}, {"complete": False}]
    assert len(torchreel.load(tmp_path / "outer.reel").process_rows()) == 2


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_a_process_that_is_ended_by_a_signal_is_whole(tmp_path: Path, number: str) -> None:
    script = f"""
        import os, signal, sys, torch, torchreel
        signal.signal(signal.{number}, signal.SIG_DFL)  # whoever runs the tests may ignore it
        recorder = torchreel.record(sys.argv[1]).start()
        for i in range(50):
            torch.ones(1)
        os.kill(os.getpid(), signal.{number})
        torch.zeros(1)
    """
    result = run_forked(script, tmp_path / "a.reel")
    assert result.returncode < 0
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel, "depth = 0") == ["aten::ones"] * 50
    assert rows(reel, "select complete from processes") == [{"complete": True}]


def test_a_program_s_own_handler_of_sigterm_stays(tmp_path: Path) -> None:
    script = """
        import os, signal, sys, torch, torchreel
        signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
        with torchreel.record(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGTERM)
            torch.ones(1)
        os.kill(os.getpid(), signal.SIGTERM)
        print("alive")
    """
    result = run_forked(script, tmp_path / "a.reel")
    assert (result.returncode, result.stdout) == (0, "mine\nmine\nalive\n"), result.stderr


def test_a_root_without_ops_is_not_named(tmp_path: Path) -> None:
    result = record(
        """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import torch; torch.ones(1)"], check=True)
        """,
        tmp_path,
    )
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "outer.reel")
    assert reel.meta["root"] is None
    assert [holds_process(part.directory) for part in reel.parts] == [True]
    assert names(reel, "depth = 0") == ["aten::ones"]


def test_an_edge_profiler_under_torchreel_record_says_what_to_do(tmp_path: Path) -> None:
    result = record(
        """
        import torch, torchreel
        from torchreel.errors import AlreadyRecordingError
        model = torch.nn.Linear(2, 2)
        try:
            with torchreel.EdgeProfiler(model):
                model(torch.ones(1, 2))
        except AlreadyRecordingError as error:
            print(error)
        torch.ones(3).sin()
        """,
        tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert "recorded from outside, into outer.reel" in result.stdout.replace(f"{tmp_path}/", "")
    assert "without `torchreel record`, or profile the model's file with `torchreel edge`" in result.stdout
    assert "aten::sin" in names(torchreel.load(tmp_path / "outer.reel"), "depth = 0")


def test_a_profile_without_memory_has_none_though_the_recording_has(tmp_path: Path) -> None:
    outer = outside(tmp_path / "outer.reel", memory=True).start()
    with torchreel.profiler.profile() as prof:
        kept = torch.ones(3)
        del kept
    outer.stop()
    assert [event.name for event in prof.events()] == ["aten::ones", "aten::empty", "aten::fill_"]
    assert {event.cpu_memory_usage for event in prof.events()} == {0}
    assert "[memory]" not in {row.key for row in prof.key_averages()}
