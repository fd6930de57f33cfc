"""Memory over time, its holders and its blocks: against adding up by hand, and against the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchreel
from tests.analyze.memory.traces import EPOCH, Trace, user
from tests.snapshots import snapshot
from tests.synthetic import Process, call, write_reel
from torchreel.analyze.memory import DeviceMemory, device_memories, holders, memory_report
from torchreel.cli.main import main
from torchreel.errors import OptionError
from torchreel.ingest import import_snapshot
from torchreel.web.answers import Answers

BY = ("stack", "module", "op", "category")


def trained_trace(times: bool = True, seed: int = 0) -> Trace:
    """Blocks of five lines that come and go; the history begins with some alive."""
    random = np.random.default_rng(seed)
    trace = Trace(times=times)
    trace.rows["processes"][0].update(start_ns=EPOCH, end_ns=EPOCH + 400_000)
    alive: list[tuple[int, int]] = []
    trace.free(7, 5_000)
    for number in range(1, 300):
        if random.random() < 0.55 or not alive:
            size = int(random.integers(1, 100_000))
            trace.alloc(1_000_000 * number, size, user(int(random.integers(5)), "main"))
            alive.append((1_000_000 * number, size))
        else:
            trace.free(*alive.pop(int(random.integers(len(alive)))))
    for address, size in [*alive, (1 << 40, 3_333)]:  # the last is older, and stays
        trace.block(address, size)
    return trace


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command line prints."""
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


class Asked:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.reel = torchreel.load(path)
        self.answers = Answers(self.reel)

    def __call__(self, question: str, **query: object) -> Any:
        texts = {name.rstrip("_"): str(value) for name, value in query.items()}
        return json.loads(self.answers.encoded(self.answers.answer("GET", question, texts, b"")))

    @property
    def memory(self) -> DeviceMemory:
        return device_memories(self.reel)[0]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return Asked(trained_trace().write(tmp_path_factory.mktemp("memory") / "run.reel"))


@pytest.mark.parametrize("by", BY)
def test_without_a_moment_it_is_what_the_command_prints(
    ask: Asked, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask("memory", by=by)
    text = printed(capsys, "memory", str(ask.path), "--by", by, "--format", "json")
    (device,) = json.loads(text)["devices"]
    assert answer["peak"] == device["peak"]["allocated"]["bytes"] == answer["allocated"]
    assert answer["peak_at"] == answer["at"]
    assert answer["at"]["event"] == device["peak"]["allocated"]["event"]
    assert answer["at"]["time"] == device["peak"]["allocated"]["since_start_ns"]
    assert (answer["older"]["blocks"], answer["older"]["bytes"]) == (device["older_blocks"], device["older_bytes"])
    own = [{key: row[key] for key in device["holders"][0]} for row in answer["holders"]]
    assert own == device["holders"]


@pytest.mark.parametrize("by", [*BY, "blocks"])
@pytest.mark.parametrize("axis", ["time", "events"])
def test_what_is_drawn_adds_up(ask: Asked, by: str, axis: str) -> None:
    level = ask.memory.history.allocated
    for points in (1, 7, 100, 1_500):
        answer = ask("memory", by=by, x=axis, points=points)
        at = np.array(answer["at_events"])
        assert len(at) == points if axis == "time" else len(at) == min(points, answer["events"])
        assert answer["most"] == level[at + 1].tolist() and max(answer["most"]) == answer["peak"]
        rest = np.array(answer["rest"]["bytes"] or [0] * len(at))
        if by == "blocks":
            drawn = np.zeros(len(at), np.int64)
            columns = answer["blocks"]
            for first, last, size in zip(columns["first"], columns["last"], columns["size"], strict=True):
                drawn[first:last] += size
        else:
            drawn = np.array([band["bytes"] for band in answer["bands"]]).sum(axis=0)
        assert (drawn + rest).tolist() == answer["most"]


def test_a_range_has_its_own_peak(ask: Asked) -> None:
    history = ask.memory.history
    times = history.times - EPOCH
    begin, end = 50_000, 90_000
    answer = ask("memory", begin=begin, end=end, points=40)
    inside = np.flatnonzero((times >= begin) & (times < end))
    levels = history.allocated[inside[0] : inside[-1] + 2]
    assert (answer["begin"], answer["finish"]) == (begin, end)
    assert answer["allocated"] == max(answer["most"]) == levels.max()
    assert answer["peak"] == history.allocated.max()
    events = ask("memory", x="events", begin=begin, end=end)
    assert (events["begin"], events["finish"]) == (inside[0], inside[-1] + 1)
    cut = ask("memory", x="events", from_=10, to=30)
    assert (cut["begin"], cut["finish"], len(cut["most"])) == (10, 30, 20)


@pytest.mark.parametrize("position", [-1, 0, 17, 200])
def test_holders_and_blocks_at_an_event(ask: Asked, position: int) -> None:
    answer = ask("memory", event=position)
    expected = holders(ask.memory, "stack", position).to_pylist()
    assert [row["bytes"] for row in answer["holders"]] == [row["bytes"] for row in expected]
    every = ask("blocks", event=position, limit=1_000)
    assert every["bytes"] == answer["allocated"] == sum(row["size"] for row in every["rows"])
    for holder in answer["holders"]:
        part = ask("blocks", event=position, by="stack", name=holder["name"], limit=1_000)
        assert (part["bytes"], part["count"]) == (holder["bytes"], holder["blocks"])
        assert [row["size"] for row in part["rows"]] == sorted((row["size"] for row in part["rows"]), reverse=True)
        assert all(row["stack"] == holder["name"] for row in part["rows"])


def test_a_time_means_the_last_event_until_then(ask: Asked) -> None:
    time = int(ask.memory.history.times[40]) - EPOCH
    assert ask("memory", at=time)["at"] == {"event": 40, "time": time}
    assert ask("memory", at=time + 999)["at"]["event"] == 40
    assert ask("memory", at=0)["at"]["event"] == 0


def test_one_block_with_its_stack(ask: Asked) -> None:
    blocks = ask.memory.history.blocks
    for number in (0, 1, len(blocks) - 1):
        found = ask("block", block=number)
        assert found["size"] == blocks.size[number]
        assert found["older"] == (blocks.start[number] == -1)
        if not found["older"]:
            assert found["frames"] == [
                {"file": "/home/user/train.py", "line": found["source"]["line"], "function": "main", "owner": "user"}
            ]
        end = int(blocks.end[number])
        assert found["freed"] == (None if end >= ask.memory.history.events else ask("memory", event=end)["at"])


def test_what_changed_in_a_range(ask: Asked) -> None:
    level = ask.memory.history.allocated
    answer = ask("memory/changes", x="events", from_=20, to=60)
    assert (answer["first"]["event"], answer["last"]["event"]) == (19, 59)
    assert (answer["before"], answer["after"]) == (level[20], level[60])
    assert (answer["least"], answer["most"]) == (level[20:61].min(), level[20:61].max())
    assert sum(row["change"] for row in answer["rows"]) == level[60] - level[20]
    assert ask("memory/changes", begin=0, end=0)["rows"] == ask("memory/changes", begin=0, end=1)["rows"]


@pytest.mark.parametrize("times", [True, False])
def test_the_sentences_are_the_commands(tmp_path: Path, times: bool, capsys: pytest.CaptureFixture[str]) -> None:
    ask = Asked(trained_trace(times).write(tmp_path / "run.reel"))
    lines = printed(capsys, "memory", str(ask.path), "--format", "markdown").splitlines()
    sections = ask("memory/marks")["sections"]
    assert [section["kind"] for section in sections][:2] == ["history", "peak"]
    for section in sections:
        assert all(sentence in lines for sentence in section["sentences"]), section
    report = memory_report(ask.memory)
    assert report.peak is not None
    peak = next(section for section in sections if section["kind"] == "peak")["rows"][0]
    assert (peak["event"], peak["time"]) == (
        report.peak.allocated.moment.event,
        report.peak.allocated.moment.since_start_ns,
    )


@pytest.mark.parametrize("name", ["lm4_train_ctx100", "three_gpus_expandable_oom", "state_only_a"])
def test_sentences_of_real_snapshots(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    import_snapshot(snapshot(name), tmp_path / "run.reel")
    ask = Asked(tmp_path / "run.reel")
    lines = printed(capsys, "memory", str(ask.path), "--format", "markdown").splitlines()
    for section in ask("memory/marks")["sections"]:
        if section["kind"] != "oom":  # times are written shorter there
            assert all(sentence in lines for sentence in section["sentences"]), section
    assert ask("memory")["has_history"] == (name != "state_only_a")


def test_without_times_events_are_the_axis(tmp_path: Path) -> None:
    ask = Asked(trained_trace(times=False).write(tmp_path / "run.reel"))
    answer = ask("memory", x="time")
    assert (answer["axis"], answer["has_times"], answer["finish"]) == ("events", False, answer["events"])
    assert answer["at"]["time"] is None
    assert ask("block", block=3)["lives_ns"] is None
    assert ask("memory", begin=5, end=9)["finish"] == answer["events"]  # a range of time says nothing here


def test_an_answer_stays_small(tmp_path: Path) -> None:
    """However many blocks there are: those that are drawn are at most 2,000."""
    trace = Trace()
    for number in range(30_000):
        trace.alloc(4096 * number, 1 + number % 977, user(number % 3_000))
    ask = Asked(trace.write(tmp_path / "run.reel"))
    for by in ("blocks", "stack"):
        answer = ask("memory", by=by, points=1_500)
        assert len(json.dumps(answer)) < 350_000
    assert len(ask("memory", by="blocks")["blocks"]["block"]) == 2_000
    assert ask("memory", by="blocks")["rest"]["groups"] == 28_000
    assert len(json.dumps(ask("blocks", limit=1_000))) < 500_000


def test_a_reel_without_memory(tmp_path: Path) -> None:
    ask = Asked(write_reel(tmp_path / "run.reel", Process({"main": [call("aten::mm", 5)]})))
    assert ask("memory") == {"devices": [], "holders": []}
    assert ask("memory/marks") == {"sections": []}
    assert ask("memory/changes")["rows"] == ask("blocks")["rows"] == []
    with pytest.raises(OptionError, match="no memory was recorded"):
        ask("block", block=0)


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("memory", {"by": "colour"}),
        ("memory", {"x": "bytes"}),
        ("memory", {"points": "1000000"}),
        ("memory", {"points": "-3"}),
        ("memory", {"event": "100000"}),
        ("memory", {"event": "-2"}),
        ("memory", {"event": "0x10"}),
        ("memory", {"device": "1"}),
        ("memory", {"device": "-1"}),
        ("memory", {"begin": "-1", "end": "5"}),
        ("memory", {"x": "events", "from_": "9", "to": "3"}),
        ("memory", {"x": "events", "from_": "99999", "to": "100000"}),
        ("memory/changes", {"by": "blocks"}),
        ("blocks", {"by": "blocks"}),
        ("blocks", {"sort": "name"}),
        ("blocks", {"limit": "0"}),
        ("block", {}),
        ("block", {"block": "99999"}),
    ],
)
def test_nonsense_is_refused(ask: Asked, question: str, query: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        ask(question, **query)
