"""Each rule on a step made by hand, with what it saves; and when it must be silent."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchreel
from tests.analyze.findings.steps import run_of
from tests.synthetic import Call, Process, call, write_reel
from torchreel.analyze.findings import RULES, Finding, findings

MS = 1_000_000
WORK = call("aten::mm", 80 * MS)


def loader(ns: int, kind: str = "_SingleProcessDataLoaderIter") -> Call:
    return call(f"enumerate(DataLoader)#{kind}.__next__", ns, kind="range")


def only(reel: torchreel.Reel) -> Finding:
    found = findings(reel)
    assert len(found) == 1, [each.rule for each in found]
    return found[0]


def test_waiting_for_data(tmp_path: Path) -> None:
    found = only(run_of(tmp_path / "run.reel", lambda step: [loader(20 * MS), WORK]))
    assert (found.rule, found.saves_ns, found.percent) == ("data", 20 * MS, 20.0)
    assert found.sentence == (
        "A step waits 20 ms for its DataLoader, 20 % of its time: batches are made by the training process itself."
    )
    assert "num_workers" in found.cure
    assert [(each.text, each.screen) for each in found.evidence] == [("3 batches, 60 ms", "timeline")]


def test_waiting_for_workers_has_another_cure(tmp_path: Path) -> None:
    workers = loader(20 * MS, "_MultiProcessingDataLoaderIter")
    found = only(run_of(tmp_path / "run.reel", lambda step: [workers, WORK]))
    assert found.sentence == "A step waits 20 ms for its DataLoader, 20 % of its time."
    assert "more workers" in found.cure


def tiny(count: int, ns: int, between: int) -> list[Call]:
    """Ops with time between them, in a range of the user's."""
    return [call("iteration", between, *(call("aten::add", ns) for _ in range(count)), kind="range")]


def test_many_tiny_ops(tmp_path: Path) -> None:
    found = only(run_of(tmp_path / "run.reel", lambda step: tiny(400, 5_000, 2 * MS)))
    assert (found.rule, found.saves_ns, found.percent) == ("tiny_ops", 2 * MS, 50.0)
    assert found.sentence == "2 ms of a step (50 %) passes between ops: it has 400 of them, 100 % take under 20 us."
    assert "graphed" in found.cure
    assert found.evidence[0].text == "1,200 calls, 5 us each"


@pytest.mark.parametrize(("count", "ns"), [(90, 5_000), (400, 30_000)], ids=["few ops", "large ops"])
def test_few_or_large_ops_are_not_tiny(tmp_path: Path, count: int, ns: int) -> None:
    assert findings(run_of(tmp_path / "run.reel", lambda step: tiny(count, ns, 2 * MS))) == []


def product(ns: int, flops: int, dims: str, name: str = "aten::mm") -> Call:
    return call(name, ns, inputs=dims, flops=flops)


def test_slow_shapes_are_held_against_the_usual_rate(tmp_path: Path) -> None:
    """50 ms at 100 GFLOP/s, and 30 ms at 10, which would take 3."""
    step = [
        product(50 * MS, 100 * 50 * MS, "[[512, 512], [512, 512]]"),
        product(30 * MS, 10 * 30 * MS, "[[16, 64], [64, 16]]", "aten::bmm"),
        call("aten::relu", 20 * MS),
    ]
    found = only(run_of(tmp_path / "run.reel", lambda number: step))
    assert (found.rule, found.saves_ns, found.percent) == ("matmul_shapes", 27 * MS, 27.0)
    assert found.title == "aten::bmm at 10 GFLOP/s"
    assert found.sentence == (
        "One shape runs at less than half the usual rate of 100 GFLOP/s: they take 30 ms of a step, 27 % of it for "
        "their shapes."
    )
    assert found.evidence[0].text == "[[16, 64], [64, 16]]: 10 GFLOP/s, 3 calls"


def test_shapes_of_one_rate_are_not_said(tmp_path: Path) -> None:
    step = [product(50 * MS, 100 * 50 * MS, "[[8]]"), product(30 * MS, 60 * 30 * MS, "[[4]]")]
    assert findings(run_of(tmp_path / "run.reel", lambda number: step)) == []


def adam(*names: str, kind: str = "AdamW") -> Call:
    return call(f"Optimizer.step#{kind}.step", 0, *(call(name, 2 * MS) for name in names), kind="range")


def test_an_optimizer_without_a_fused_kernel(tmp_path: Path) -> None:
    """Two parameters, four ops each: what writes them takes a quarter of the 16 ms."""
    names = ("aten::mul_", "aten::lerp_", "aten::sqrt", "aten::addcdiv_") * 2
    found = only(run_of(tmp_path / "run.reel", lambda step: [call("aten::mm", 84 * MS), adam(*names)]))
    assert (found.rule, found.saves_ns, found.percent) == ("optimizer", 12 * MS, 12.0)
    assert found.sentence == (
        "AdamW takes 16 ms of a step (16 %) with 8 ops; aten::addcdiv_, which writes the parameters, is 4 ms of it."
    )
    assert found.cure == "torch.optim.AdamW(..., fused=True) runs one kernel instead."


def test_an_optimizer_with_lists_of_parameters(tmp_path: Path) -> None:
    names = ("aten::_foreach_mul_", "aten::_foreach_addcdiv_")
    found = only(run_of(tmp_path / "run.reel", lambda step: [call("aten::mm", 16 * MS), adam(*names)]))
    assert (found.rule, found.saves_ns) == ("optimizer", 2 * MS)


@pytest.mark.parametrize(
    "optimizer",
    [adam("aten::_foreach_add_", "aten::_fused_adamw_"), adam("aten::mul_", "aten::add_", kind="LBFGS")],
    ids=["fused", "no fused kernel"],
)
def test_an_optimizer_that_cannot_be_fused_is_not_said(tmp_path: Path, optimizer: Call) -> None:
    assert findings(run_of(tmp_path / "run.reel", lambda step: [call("aten::mm", 16 * MS), optimizer])) == []


def test_less_than_two_percent_is_not_said(tmp_path: Path) -> None:
    reel = run_of(tmp_path / "a.reel", lambda step: [loader(1_990_000), call("aten::mm", 98_010_000)])
    assert findings(reel) == []
    reel = run_of(tmp_path / "b.reel", lambda step: [loader(2_010_000), call("aten::mm", 97_990_000)])
    assert only(reel).rule == "data"


def test_less_than_the_spread_between_steps_is_not_said(tmp_path: Path) -> None:
    """Steps of 60 and 140 ms: their standard deviation is some 40, and 20 ms of data could be chance."""
    reel = run_of(
        tmp_path / "run.reel", lambda step: [loader(20 * MS), call("aten::mm", (40 + 80 * (step % 2)) * MS)], steps=8
    )
    assert findings(reel) == []


def test_the_finding_that_saves_most_comes_first(tmp_path: Path) -> None:
    names = ("aten::mul_", "aten::addcdiv_")
    reel = run_of(tmp_path / "run.reel", lambda step: [loader(MS), call("aten::mm", 10 * MS), adam(*names)])
    assert [each.rule for each in findings(reel)] == ["optimizer", "data"]


def test_without_steps_it_is_said_of_the_run(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"MainThread": [loader(20 * MS), WORK]})))
    assert only(reel).sentence.startswith("The run waits 20 ms for its DataLoader")


def test_an_empty_reel_has_no_findings(tmp_path: Path) -> None:
    assert findings(torchreel.load(write_reel(tmp_path / "empty.reel", Process({})))) == []


def test_rules_have_names_of_their_own() -> None:
    assert len({rule.RULE for rule in RULES}) == len(RULES) == 4


@pytest.mark.programs
def test_a_real_optimizer(tmp_path: Path) -> None:
    """What torch itself runs for a fused optimizer and for one that is not."""
    import torch

    for fused in (False, True):
        parameters = [torch.nn.Parameter(torch.randn(64, 64)) for _ in range(20)]
        optimizer = torch.optim.AdamW(parameters, fused=fused, foreach=False)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        path = tmp_path / f"{fused}.reel"
        with torchreel.record(path):
            for _ in range(6):
                optimizer.step()
        from torchreel.analyze.findings import optimizer as rule
        from torchreel.analyze.findings.run import opened_run

        with opened_run(torchreel.load(path)) as run:
            assert run is not None
            found = rule.find(run)
        if fused:
            assert found is None
        else:
            assert found is not None and "200 ops; aten::addcdiv_, which writes the parameters" in found.sentence, found
