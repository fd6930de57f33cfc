"""Edge comparisons: the numbers of `torchreel edge --compare`."""

from __future__ import annotations

from pathlib import Path

import torchreel
from tests.analyze.edge.reels import edge_reel, run
from tests.synthetic import Process, call, write_reel
from torchreel.analyze.edge import edge_compare, edge_costs
from torchreel.web.query import Query
from torchreel.web.questions.edge import edge
from torchreel.web.viewed_reel import ViewedReel


def both(tmp_path: Path) -> tuple[torchreel.Reel, torchreel.Reel]:
    left = edge_reel(
        tmp_path / "left.reel",
        run(5, call("Conv", 100, module="Net.stem"), call("Relu", 10, module="Net.act")),
        backends={"Conv": "ONNX Runtime", "Relu": "ONNX Runtime"},
    )
    right = edge_reel(
        tmp_path / "right.reel",
        run(3, call("native_call_convolution.out", 40, module="Net.stem")),
        backends={"native_call_convolution.out": "ExecuTorch"},
    )
    return left, right


def test_two_reels_of_models_are_compared(tmp_path: Path) -> None:
    left, right = both(tmp_path)
    answer = edge(ViewedReel(left, right), Query({}))
    assert answer["comparison"] == edge_compare(left, right).as_dict()
    for side, reel in (("left", left), ("right", right)):
        expected = edge_costs(reel).as_dict()
        assert {key: answer[side][key] for key in expected} == expected


def test_one_reel_of_a_model_is_shown_by_itself(tmp_path: Path) -> None:
    left, _ = both(tmp_path)
    plain = torchreel.load(write_reel(tmp_path / "plain.reel", Process({"main": [call("aten::mm", 5)]})))
    for viewed in (ViewedReel(left), ViewedReel(left, plain)):
        answer = edge(viewed, Query({}))
        assert answer["left"]["runs"] == 1 and answer["right"] is answer["comparison"] is None


def test_a_reel_of_another_program_is_none_of_a_model(tmp_path: Path) -> None:
    """A training run has calls of modules as well: they are no runs of a deployed model."""
    trained = Process(
        {"main": [call("nn.Module: Net", 5, call("aten::mm", 9, module="Net"), kind="module", module="Net")]}
    )
    for process in (trained, Process({})):
        path = write_reel(tmp_path / f"{len(process.threads)}.reel", process)
        answer = edge(ViewedReel(torchreel.load(path)), Query({}))
        assert answer == {"left": None, "right": None, "comparison": None}
