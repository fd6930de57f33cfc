"""`torchreel edge`: what it prints of a model, how two are compared, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchreel as torchreel_package
from tests.cli.conftest import Outcome
from tests.edge.formats import zoo
from tests.edge.formats.zoo import Entry
from tests.waiting import until, written
from torchreel._units import bytes_text
from torchreel.cli.edge.reels import reel_names, rooms
from torchreel.errors import ReelExistsError

Torchreel = Callable[..., Outcome]

TIME = r"[\d.]+(?:us|ms|s)"
INPUT = ("--input", "1x3x8x8")
QUICK = ("--repeat", "3", "--warmup", "1", "--threads", "1")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4 * 36, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x))
        return self.head(x.flatten(1))


@pytest.fixture
def net(directory: Path) -> nn.Module:
    """net.pt and net.ptl in the current directory: one model in two formats."""
    torch.manual_seed(0)
    net = Net().eval()
    scripted = torch.jit.script(net)
    scripted.save("net.pt")
    scripted._save_for_lite_interpreter("net.ptl", _save_mobile_debug_info=True)
    return net


def found(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def test_table(torchreel: Torchreel, net: nn.Module) -> None:
    outcome = torchreel("edge", "net.pt", *INPUT, *QUICK)
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert re.fullmatch(r"net\.pt: TorchScript, [\d.]+ KiB, on 1x3x8x8:float32, 1 thread\.", lines[0])
    said = " ".join(lines[1:4])
    assert re.match(
        rf"3 runs after 1 to warm up: {TIME} each \(the median; quartiles {TIME} to {TIME}\), "
        rf"{TIME} in 4 ops and {TIME} between them\.",
        said,
    )
    # 4 x 36 outputs of 27 products each, and 144 x 5 products: each a multiplication and an addition.
    assert f"{2 * (144 * 27 + 144 * 5) / 1e3:.3f} KFLOPs a run, " in outcome.out
    assert re.search(r"^aten::conv2d +1 ", outcome.out, re.MULTILINE)
    assert re.search(rf"^Net\.head +Linear +{TIME} ", outcome.out, re.MULTILINE)
    assert "Next: torchreel export run.reel --to perfetto" in outcome.out


def test_json(torchreel: Torchreel, net: nn.Module) -> None:
    document = found(torchreel("edge", "net.ptl", *INPUT, *QUICK, "-o", "x.reel", "--format", "json"))
    assert (document["model"], document["reel"], document["inputs"]) == ("net.ptl", "x.reel", ["1x3x8x8:float32"])
    assert (document["runs"], document["threads"], document["bytes"]) == (3, 1, Path("net.ptl").stat().st_size)
    assert document["low_ns"] <= document["ns"] <= document["high_ns"]
    assert document["flops"] == 2 * (144 * 27 + 144 * 5)
    ops = {op["name"]: op for op in document["op_costs"]}
    assert ops["aten::conv2d"]["calls"] == 1
    assert ops["aten::conv2d"]["flops"] == 2 * 144 * 27
    assert sum(op["ns"] for op in ops.values()) <= document["ns"] + document["high_ns"]
    assert {module["class_name"] for module in document["module_costs"]} >= {"Conv2d", "Linear"}
    assert torchreel_package.load("x.reel").ops.num_rows > 0


FORMATS: dict[str, tuple[str, Callable[[Entry, Path], Path]]] = {
    "TorchScript": ("lstm.pt", zoo.save_script),
    "lite interpreter": ("lstm.ptl", zoo.save_lite),
    "torch.export": ("lstm.pt2", zoo.save_exported),
    "AOTInductor": ("lstm.pt2", zoo.save_aotinductor),
    "ONNX Runtime": ("lstm.onnx", zoo.save_onnx),
    "ExecuTorch": ("lstm.pte", zoo.save_executorch),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "form",
    # Their packages take long to make; the tests of these formats make one each.
    [pytest.param(form, marks=[pytest.mark.long] * (form in ("AOTInductor", "ExecuTorch"))) for form in FORMATS],
)
def test_each_format(torchreel: Torchreel, directory: Path, form: str) -> None:
    name, save = FORMATS[form]
    path = save(zoo.ZOO["lstm"], directory / name)
    given = ("--input", "1x20x16") if form in ("TorchScript", "lite interpreter", "AOTInductor") else ()
    outcome = torchreel("edge", name, *given, *QUICK)
    assert (outcome.code, outcome.err) == (0, "")
    size = bytes_text(path.stat().st_size + sum(file.stat().st_size for file in directory.glob("*.data")))
    assert outcome.out.startswith(f"{name}: {form}, {size}, on 1x20x16:float32, 1 thread.\n3 runs after 1 to warm up: ")
    header, _, *rows = outcome.out.partition("\n\n")[2].splitlines()
    assert header.split()[0] == "Op" and {"Calls", "Time", "%"} <= set(header.split())
    assert re.search(rf" +{TIME} +[\d.]+%", rows[0])
    assert "\nNext: torchreel export run.reel" in outcome.out
    if form not in ("AOTInductor", "ONNX Runtime"):  # the one keeps its ops, the other its memory to itself
        assert "Memory: at most " in outcome.out
    if form != "AOTInductor":
        assert f"{574_080 / 1e3:.3f} KFLOPs a run, " in outcome.out
    if form not in ("AOTInductor", "ExecuTorch"):
        assert re.search(rf"\.classifier +Linear +{TIME} ", outcome.out)


def test_nested_ops(torchreel: Torchreel, net: nn.Module) -> None:
    document = found(torchreel("edge", "net.pt", *INPUT, *QUICK, "--nested", "--format", "json"))
    assert {"aten::conv2d", "aten::convolution", "aten::_convolution"} <= {op["name"] for op in document["op_costs"]}
    assert document["flops"] == 2 * (144 * 27 + 144 * 5)


def test_only_times(torchreel: Torchreel, net: nn.Module) -> None:
    document = found(torchreel("edge", "net.pt", *INPUT, *QUICK, "--with", "times", "--format", "json"))
    assert (document["flops"], document["peak_bytes"]) == (None, None)
    assert document["op_costs"]


def test_limit(torchreel: Torchreel, net: nn.Module) -> None:
    outcome = torchreel("edge", "net.pt", *INPUT, *QUICK, "--limit", "1")
    assert "These are 1 of 4 rows: --limit 0 shows all." in outcome.out


def test_compare(torchreel: Torchreel, net: nn.Module) -> None:
    document = found(torchreel("edge", "net.pt", *INPUT, *QUICK, "--compare", "net.ptl", "--format", "json"))
    assert document["left"]["model"] == "net.pt" and document["right"]["model"] == "net.ptl"
    assert document["largest_difference"] < 1e-5
    assert document["left"]["plain"]["ns"] > 0
    rows = {(row["path"], row["op"]): row for row in document["rows"]}
    assert document["by_module"]
    assert rows["conv", "conv"]["left"]["names"] == ["aten::conv2d"]
    assert rows["conv", "conv"]["right"]["names"] == ["aten::conv2d"]
    assert rows["conv", "conv"]["ratio"] > 0
    assert Path("run.reel").is_dir() and Path("run-2.reel").is_dir()


def test_compare_as_a_table(torchreel: Torchreel, net: nn.Module) -> None:
    outcome = torchreel("edge", "net.pt", *INPUT, *QUICK, "--compare", "net.ptl", "-o", "x.reel")
    assert outcome.code == 0, outcome.err
    assert re.search(r"^Their outputs (are the same|differ by at most [\d.e-]+)\.$", outcome.out, re.MULTILINE)
    assert re.search(rf"^a run, by turns +{TIME} +{TIME} +[\d.]+$", outcome.out, re.MULTILINE)
    assert re.search(rf"^conv +conv +aten::conv2d +aten::conv2d +{TIME} +{TIME} +[\d.]+$", outcome.out, re.MULTILINE)
    assert Path("x.reel").is_dir() and Path("x-2.reel").is_dir()


def test_compared_with_the_same_model_in_a_wrapper(torchreel: Torchreel, net: nn.Module) -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) * 2

    torch.export.save(torch.export.export(Wrapper().eval(), (torch.ones(1, 3, 8, 8),)), "wrapped.pt2")
    document = found(torchreel("edge", "net.pt", *QUICK, "--compare", "wrapped.pt2", "--format", "json"))
    matched = {(row["path"], row["op"]) for row in document["rows"] if row["left"] and row["right"]}
    assert matched == {("conv", "conv"), ("", "relu"), ("", "reshape"), ("head", "matmul")}
    assert {module["path"] for module in document["modules"]} == {"conv", "head"}


def test_what_is_in_ops_and_what_is_between_them_is_the_whole(torchreel: Torchreel, net: nn.Module) -> None:
    document = found(torchreel("edge", "net.pt", *INPUT, "--repeat", "10", "--format", "json"))
    assert document["ops_ns"] + document["between_ns"] == document["ns"]


def test_a_reel_is_replaced_only_if_that_is_asked_for(torchreel: Torchreel, net: nn.Module) -> None:
    arguments = ("edge", "net.pt", *INPUT, *QUICK, "-o", "x.reel")
    assert torchreel(*arguments).code == 0
    again = torchreel(*arguments)
    assert again.err == "Error: x.reel exists: name another reel with -o, or give --force to replace it.\n"
    assert torchreel(*arguments, "--force").code == 0
    # What cannot be measured leaves the old one in place.
    assert torchreel("edge", "net.pt", "--input", "1x9", *QUICK, "-o", "x.reel", "--force").code == 1
    assert torchreel_package.load("x.reel").ops.num_rows > 0


def test_a_model_that_knows_no_lines_is_not_said_to_have_them(torchreel: Torchreel, net: nn.Module) -> None:
    torch.jit.script(net)._save_for_lite_interpreter("bare.ptl")
    outcome = torchreel("edge", "bare.ptl", *INPUT, *QUICK)
    assert "Note: The model was saved without debug information" in outcome.out
    assert "torchreel export" in outcome.out and "--with stack" not in outcome.out
    assert "--with stack" in torchreel("edge", "net.ptl", *INPUT, *QUICK).out


def test_two_commands_at_the_same_time_write_two_reels(directory: Path) -> None:
    with rooms([None]) as first, rooms([None, None]) as second:
        assert (first, second) == ([Path("run.reel")], [Path("run-2.reel"), Path("run-3.reel")])
    with rooms([Path("x.reel")]), pytest.raises(ReelExistsError, match=r"x\.reel exists"):
        reel_names(Path("x.reel"), False, 1)


def test_a_measurement_that_fails_leaves_the_reels_as_they_were(directory: Path, reel: Path) -> None:
    before = torchreel_package.load(reel).ops.num_rows
    with pytest.raises(KeyboardInterrupt), rooms([*reel_names(reel, True, 1), None]) as made:
        assert made == [reel, Path("run-2.reel")]
        assert not any(reel.iterdir())
        raise KeyboardInterrupt
    assert sorted(path.name for path in Path().iterdir()) == [reel.name]
    assert torchreel_package.load(reel).ops.num_rows == before
    with rooms([reel]):
        pass
    assert sorted(path.name for path in Path().iterdir()) == [reel.name]
    assert not any(reel.iterdir())


@pytest.mark.parametrize("model", ["net.pt", pytest.param("net.ptl", marks=pytest.mark.long)])
def test_interrupted_while_it_measures(net: nn.Module, directory: Path, model: str) -> None:
    (directory / "tmp").mkdir()
    running = subprocess.Popen(
        [sys.executable, "-m", "torchreel", "edge", model, *INPUT, "--repeat", "1000000", "--threads", "1"],
        env={**os.environ, "TMPDIR": str(directory / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until(lambda: (Path("run.reel").exists() and written(Path("tmp")) > 100_000) or running.poll() is not None)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()
    assert (running.returncode, out.strip(), err.strip()) == (130, b"", b"")
    assert not list(Path().glob("*.reel")) and not list(Path("tmp").glob("torchreel*"))


def test_standard_output_that_is_closed(net: nn.Module) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "torchreel", "edge", "net.pt", *INPUT, *QUICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None and running.stderr is not None
    running.stdout.close()
    assert running.stderr.read() == b""
    assert running.wait() == 1
    assert torchreel_package.load("run.reel").ops.num_rows > 0


def test_what_the_model_prints_does_not_spoil_json(torchreel: Torchreel, directory: Path) -> None:
    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            print("called")
            return x + 1

    torch.jit.script(Noisy()).save("noisy.pt")
    outcome = torchreel("edge", "noisy.pt", "--input", "2", *QUICK, "--format", "json")
    found(outcome)
    assert "called" in outcome.err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("nowhere.pt", *INPUT), "There is no model nowhere.pt: check the path."),
        (("net.pt", *INPUT, "--compare", "lost.pt2"), "There is no model lost.pt2: check the path."),
        (
            ("net.pt",),
            "net.pt does not say what its inputs are: give --input once for each, such as --input 1x3x224x224:float32.",
        ),
        (
            ("net.pt", "--input", "2y3"),
            "--input '2y3' is no input: write sizes, a dtype and how to fill it, as 1x3x224x224:float32 or "
            "1x16:int64:0-1000.",
        ),
        (
            ("net.pt", "--input", "2:float33"),
            "--input '2:float33': there is no dtype float33: write one as torch names it, such as float32.",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_sentences(torchreel: Torchreel, net: nn.Module, given: tuple[str, ...], sentence: str) -> None:
    outcome = torchreel("edge", *given, *QUICK)
    assert (outcome.code, outcome.out, outcome.err) == (1, "", f"Error: {sentence}\n")


@pytest.mark.parametrize("model", ["net.pt", "net.ptl"])
@pytest.mark.parametrize("words", [("1x9x8x8",), ("1x3x8x8:int64",), ("1x3x8x8", "2"), ("3",)], ids=" ".join)
def test_inputs_that_the_model_does_not_take(
    torchreel: Torchreel, net: nn.Module, model: str, words: tuple[str, ...]
) -> None:
    outcome = torchreel("edge", model, *(part for word in words for part in ("--input", word)), *QUICK)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("Error: ") and outcome.err.count("\n") == 1
    assert not list(Path().glob("*.reel"))


@pytest.mark.parametrize("suffix", [".pt", ".ptl", ".pt2", ".onnx", ".pte", ".bin", ""])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"\x80\x02}q\x00.", b"\x00" * 4096], ids=len)
def test_files_that_are_no_models(torchreel: Torchreel, directory: Path, suffix: str, content: bytes) -> None:
    Path(f"bad{suffix}").write_bytes(content)
    outcome = torchreel("edge", f"bad{suffix}", *INPUT, *QUICK)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("Error: ") and "has a fault" not in outcome.err and "Traceback" not in outcome.err
    assert f"bad{suffix}" in outcome.err or "pip install" in outcome.err


@pytest.mark.parametrize(
    "given",
    [
        ("net.pt", "--with", "everything"),
        ("net.pt", "--with", "counters"),
        ("net.pt", "--repeat", "0"),
        ("net.pt", "--threads", "0"),
        ("net.pt", "--limit", "x"),
        (".", *INPUT),
        ("", *INPUT),
        ("net.pt", *INPUT, "--with", "counters=nonsense"),
    ],
    ids=" ".join,
)
def test_nonsense(torchreel: Torchreel, net: nn.Module, given: tuple[str, ...]) -> None:
    outcome = torchreel("edge", *given, *QUICK[-2:])
    assert outcome.code in (1, 2)
    assert outcome.err and "Traceback" not in outcome.err and "has a fault" not in outcome.err
