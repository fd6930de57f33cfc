"""The tape of a step in a reel: each of its ops has its call among the recorded ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torchreel
from tests.record.rows import rows
from torchreel.errors import OptionError
from torchreel.program.file.file import read_tape, write_tape
from torchreel.program.validate import check
from torchreel.record.tape_ops import write_tape_ops

JOINED = """
    select t."index", t.name, t.op, t.inserted, t.module, t.line, t.file, t.backward, t.forward, t.inputs, t.outputs,
        case when o.overload = '' then o.name else o.name || '.' || o.overload end as called, o.step
    from tape_ops t left join ops o on o.process = t.process and o.id = t.op order by t."index"
"""


def train_mlp(steps: int, after_step: Callable[[], None] = lambda: None) -> list[bytes]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.randn(5, 6)), torch.randint(0, 3, (5,))).backward()
        optimizer.step()
        after_step()
    return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


def train_gpt2(steps: int) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        tokens = torch.randint(0, 64, (2, 8))
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()


def tape_file(reel: torchreel.Reel, step: int = 1) -> Path:
    return reel.parts[0].directory / f"step-{step}.tape"


@pytest.mark.parametrize("train", [train_mlp, train_gpt2])
def test_every_op_of_the_tape_has_its_call(tmp_path: Path, train: Callable[[int], object]) -> None:
    with torchreel.record(tmp_path / "run.reel", tape=1):
        train(3)
    reel = torchreel.load(tmp_path / "run.reel")
    program = read_tape(tape_file(reel)).program
    check(program)
    joined = rows(reel, JOINED)
    assert [row["name"] for row in joined] == [op.name for op in program.ops]
    assert {row["step"] for row in joined if not row["inserted"]} == {1}
    for row in joined:
        assert row["called"] == (None if row["inserted"] else row["name"]), row
    calls = [row["op"] for row in joined if row["op"] is not None]
    assert len(calls) == len(set(calls)) > 30  # no call is that of two ops


def test_rows_say_where_an_op_stands(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "run.reel", tape=1):
        train_mlp(3)
    reel = torchreel.load(tmp_path / "run.reel")
    addmm = [row for row in rows(reel, JOINED) if row["name"] == "aten::addmm"]
    assert [row["module"] for row in addmm] == ["model.0", "model.3"]
    assert {(Path(row["file"]).name, row["backward"], row["forward"]) for row in addmm} == {
        (Path(__file__).name, False, None)
    }
    assert addmm[0]["inputs"].startswith("model.0.bias: float32[8], ")
    assert addmm[0]["inputs"].endswith(", 1, 1") and addmm[0]["outputs"].endswith(": float32[5, 8]")
    backward = [row for row in rows(reel, JOINED) if row["name"] == "aten::mm"]
    assert backward and all(row["backward"] for row in backward)
    assert {row["forward"] for row in backward} == {row["index"] for row in addmm}


def test_the_step_does_what_it_does_without_a_tape(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "plain.reel"):
        plain = train_mlp(4)
    with torchreel.record(tmp_path / "taped.reel", tape=2):
        taped = train_mlp(4)
    assert plain == taped
    query = "select step, name, overload from ops where kind = 'op' and name like 'aten::%' order by start_ns"
    assert rows(torchreel.load(tmp_path / "plain.reel"), query) == rows(torchreel.load(tmp_path / "taped.reel"), query)
    assert not tape_file(torchreel.load(tmp_path / "taped.reel"), 1).exists()


def test_steps_counted_by_hand(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "run.reel", tape=0) as recorder:
        torch.ones(3).add(1)
        recorder.step()
        torch.ones(3).mul(2)
    reel = torchreel.load(tmp_path / "run.reel")
    assert [row["name"] for row in rows(reel, JOINED)] == ["aten::ones", "aten::add.Tensor"]
    with torchreel.record(tmp_path / "last.reel", tape=1) as recorder:
        torch.ones(3).add(1)
        recorder.step()
        torch.ones(3).mul(2)
    reel = torchreel.load(tmp_path / "last.reel")
    assert [row["called"] for row in rows(reel, JOINED)] == ["aten::ones", "aten::mul.Tensor"]


def test_ops_of_threads_are_joined_with_calls_of_their_threads(tmp_path: Path) -> None:
    def work() -> None:
        torch.ones(4).mul(3).sum()

    with torchreel.record(tmp_path / "run.reel", tape=0) as recorder:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch.ones(4).mul(3).sum()
        recorder.step()
    reel = torchreel.load(tmp_path / "run.reel")
    joined = rows(reel, JOINED)
    assert len(joined) == 6 and all(row["called"] == row["name"] for row in joined)
    threads = rows(reel, "select count(distinct o.thread) as n from tape_ops t join ops o on o.id = t.op")
    assert threads == [{"n": 2}]


def test_a_clock_that_was_set_meanwhile(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "run.reel", tape=1):
        train_mlp(3)
    reel = torchreel.load(tmp_path / "run.reel")
    joined = rows(reel, JOINED)
    program = read_tape(tape_file(reel)).program
    for op in program.ops:
        op.time_ns += 3_000_000_000
    write_tape(tape_file(reel), program)
    write_tape_ops(reel.parts[0].directory)
    assert rows(torchreel.load(tmp_path / "run.reel"), JOINED) == joined


def test_workers_of_a_loader_that_start_within_the_step(tmp_path: Path) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(12.0).reshape(6, 2))
    with torchreel.record(tmp_path / "run.reel", tape=0, children=False) as recorder:
        total = sum(batch.sum().item() for (batch,) in torch.utils.data.DataLoader(data, 3, num_workers=2))
        recorder.step()
    assert total == 66
    joined = rows(torchreel.load(tmp_path / "run.reel"), JOINED)
    assert [row["name"] for row in joined].count("aten::sum") == 2
    assert all(row["called"] == row["name"] for row in joined if not row["inserted"])


def test_a_program_without_steps_is_told_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with torchreel.record(tmp_path / "run.reel", tape=1):
        torch.ones(3).add(1)
    said = capsys.readouterr().err
    assert "There is no tape of step 1, because the program counted no steps" in said
    assert "torchreel.tracing()" in said and said.count("\n") == 1
    assert torchreel.load(tmp_path / "run.reel").tape_ops.num_rows == 0


def test_a_step_that_never_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with torchreel.record(tmp_path / "run.reel", tape=7):
        train_mlp(2)
    assert "There is no tape of step 7" in capsys.readouterr().err


def test_a_step_that_cannot_be_traced_is_recorded_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with torchreel.record(tmp_path / "run.reel", tape=0) as recorder:
        pass
    with torchreel.tracing() as tape, torchreel.record(tmp_path / "other.reel", tape=0) as recorder:
        torch.ones(3).add(1)
        recorder.step()
    assert "There is no tape of step 0. A tape is being made already" in capsys.readouterr().err
    assert "aten::add" in [row["name"] for row in rows(torchreel.load(tmp_path / "other.reel"), "select name from ops")]
    assert len(tape) == 2


def test_an_exception_in_the_step_leaves_nothing_switched_on(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), torchreel.record(tmp_path / "run.reel", tape=0):
        torch.ones(3).add(1)
        raise ValueError("mine")
    assert len(torchreel.trace(torch.sin, torch.ones(2))) == 1
    assert torchreel.load(tmp_path / "run.reel").tape_ops.num_rows == 2


def test_a_forked_child_leaves_the_tape_to_its_parent(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "run.reel", tape=0) as recorder:
        torch.ones(3).add(1)
        child = os.fork()
        if child == 0:
            torch.ones(3).mul(2)
            os._exit(int(torch._C._dispatch_tls_is_dispatch_key_included("Fake")))
        assert os.waitpid(child, 0)[1] == 0
        torch.ones(3).sub(1)
        recorder.step()
    names = [row["name"] for row in rows(torchreel.load(tmp_path / "run.reel"), JOINED)]
    assert names == ["aten::ones", "aten::add.Tensor", "aten::ones", "aten::sub.Tensor"]


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    for step in (-1, "1", True, 1.5):
        with pytest.raises(OptionError, match="is not a step"):
            torchreel.record(tmp_path / "run.reel", tape=step)
    with pytest.raises(OptionError, match="flight recorder"):
        torchreel.record(tmp_path / "run.reel", tape=1, ring="64MB")
