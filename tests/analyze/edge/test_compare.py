"""Two formats of one model, matched op by op."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.edge.reels import edge_reel, run
from tests.synthetic import call
from torchreel.analyze.edge.compare import Match, ModuleMatch, Side, edge_compare


def test_ops_are_matched_by_module_and_by_what_they_compute(tmp_path: Path) -> None:
    left = edge_reel(
        tmp_path / "left.reel",
        run(
            5,
            call("aten::conv2d", 40, module="Net.stem"),
            call("aten::batch_norm", 10, module="Net.norm"),
            call("aten::conv2d", 20, module="Net.head"),
            call("aten::add_", 3, module="Net"),
            call("aten::add", 4, module="Net"),
        ),
    )
    right = edge_reel(
        tmp_path / "right.reel",
        run(
            9,
            call("FusedConv", 60, kind="backend", module="main_graph.stem"),
            call("Conv", 10, kind="backend", module="main_graph.head"),
            call("Add", 2, kind="backend", module="main_graph"),
            call("Reshape", 1, kind="backend", module="main_graph"),
            name="main_graph",
        ),
    )
    found = edge_compare(left, right)
    assert found.by_module
    assert found.matched == [
        Match("stem", "conv", Side(("aten::conv2d",), 1.0, 40), Side(("FusedConv",), 1.0, 60)),
        Match("head", "conv", Side(("aten::conv2d",), 1.0, 20), Side(("Conv",), 1.0, 10)),
        Match("", "add", Side(("aten::add_", "aten::add"), 2.0, 7), Side(("Add",), 1.0, 2)),
    ]
    assert found.unmatched == [
        Match("norm", "batch_norm", Side(("aten::batch_norm",), 1.0, 10), None),
        Match("", "reshape", None, Side(("Reshape",), 1.0, 1)),
    ]
    assert [row.ratio for row in found.rows] == [1.5, 0.5, None, 2 / 7, None]
    assert [row["ratio"] for row in found.as_dict()["rows"]] == [row.ratio for row in found.rows]


def test_without_modules_on_one_side_ops_of_a_name_are_one_row(tmp_path: Path) -> None:
    left = edge_reel(
        tmp_path / "left.reel",
        run(0, call("aten::conv2d", 40, module="Net.a"), call("aten::conv2d", 20, module="Net.b")),
        run(0, call("aten::conv2d", 50, module="Net.a"), call("aten::conv2d", 20, module="Net.b")),
    )
    right = edge_reel(tmp_path / "right.reel", run(0, call("Conv", 10), call("Conv", 11), name="graph"))
    found = edge_compare(left, right)
    assert not found.by_module
    assert found.rows == [Match("", "conv", Side(("aten::conv2d",), 2.0, 65), Side(("Conv",), 2.0, 21))]


def test_a_side_whose_ops_are_all_in_the_model_itself_does_not_know_its_modules(tmp_path: Path) -> None:
    left = edge_reel(tmp_path / "left.reel", run(0, call("aten::conv2d", 40, module="Net.a")))
    right = edge_reel(tmp_path / "right.reel", run(0, call("Conv", 10, module="graph"), name="graph"))
    found = edge_compare(left, right)
    assert not found.by_module
    assert [(row.op, row.ratio) for row in found.rows] == [("conv", 0.25)]


def test_modules_have_what_is_fused_in_them(tmp_path: Path) -> None:
    left = edge_reel(
        tmp_path / "left.reel",
        run(
            0,
            call("aten::conv2d", 40, module="Net.block.conv"),
            call("aten::batch_norm", 10, module="Net.block.norm"),
            call("aten::relu", 5, module="Net"),
        ),
    )
    right = edge_reel(tmp_path / "right.reel", run(0, call("FusedConv", 25, module="g.block.conv"), name="g"))
    found = edge_compare(left, right)
    assert found.modules == [ModuleMatch("block", 50, 25), ModuleMatch("block.conv", 40, 25)]
    assert [module["ratio"] for module in found.as_dict()["modules"]] == [0.5, 0.625]
