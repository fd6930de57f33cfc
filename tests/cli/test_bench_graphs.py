"""`torchreel bench-graphs`: what it prints of a function, how it finds inputs, and what it says when it cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from torchreel.graphs import Graphed

Torchreel = Callable[..., Outcome]

TIME = r"[\d.]+(?:us|ms|s)"
QUICK = ("--no-compile", "--seconds", "0.1", "--threads", "1")

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
rows = 2
value = 3


def double(x):
    return x * 2


def both(x, y=None):
    return x @ y


def nothing():
    return torch.zeros(3)


def noisy(x):
    print("called")
    return x + 1


def failing(x):
    raise ValueError("no such luck")


class Thing:
    pass


if __name__ == "__main__":
    raise SystemExit("this is not to be run")
"""


@pytest.fixture
def script(directory: Path) -> Path:
    path = Path("model.py")
    path.write_text(SCRIPT)
    return path


def measured(outcome: Outcome) -> dict:
    assert outcome.code == 0, outcome.err
    found: dict = json.loads(outcome.out)
    return found


def test_table(torchreel: Torchreel, script: Path) -> None:
    outcome = torchreel("bench-graphs", "model.py:net", "--shape", "1x8", "--inference", *QUICK)
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0] == "model.py:net, 1 thread"
    assert re.fullmatch(rf"eager +{TIME} +{TIME} to {TIME} +1\.000", lines[4])
    assert re.match(rf"graphed +{TIME} +{TIME} to {TIME} +[\d.]+ +{TIME} ", lines[5])
    assert lines[-1] == "Next: torchreel bench-graphs model.py:net --relaxed    what exact=False adds"


def test_json(torchreel: Torchreel, script: Path) -> None:
    outcome = torchreel("bench-graphs", "model.py:net", "--shape", "1x8", *QUICK, "--format", "json")
    found = measured(outcome)
    assert set(found) == {"function", "threads", "ways", "ops", "not_replayed"}
    assert [way["name"] for way in found["ways"]] == ["eager", "graphed"]
    assert set(found["ways"][1]) == {"name", "ns", "low_ns", "high_ns", "ready_ns", "failed", "pays_after_calls"}
    assert all(way["low_ns"] <= way["ns"] <= way["high_ns"] for way in found["ways"])


@pytest.mark.skipif(not hasattr(Graphed, "costs"), reason="the engine does not tell what each op costs")
def test_where_the_time_goes(torchreel: Torchreel, script: Path) -> None:
    arguments = ("bench-graphs", "model.py:net", "--shape", "1x8", *QUICK)
    ops = measured(torchreel(*arguments, "--format", "json"))["ops"]
    assert ops and set(ops[0]) == {"op", "layer", "line", "calls", "ns"}
    assert [op["ns"] for op in ops] == sorted((op["ns"] for op in ops), reverse=True)
    out = torchreel(*arguments, "--limit", "1").out
    assert re.search(rf"^A replay: \d+ ops in {TIME}, and {TIME} for the call itself", out, re.MULTILINE)
    assert f"These are 1 of {len(ops)} rows: --limit 0 shows all." in out


def test_a_function_that_is_not_replayed(torchreel: Torchreel, script: Path) -> None:
    script.write_text(f"{SCRIPT}\n\ndef unsafe(x):\n    return x * float(x.numpy().sum())\n")
    found = measured(torchreel("bench-graphs", "model.py:unsafe", "--shape", "2", *QUICK, "--format", "json"))
    assert {way["name"]: way["failed"] for way in found["ways"]} == {"eager": "", "graphed": ""}


def test_relaxed_and_compiled(torchreel: Torchreel, script: Path) -> None:
    arguments = ("--shape", "3", "--relaxed", "--seconds", "0.1", "--format", "json")
    found = measured(torchreel("bench-graphs", "model.py:double", *arguments))
    assert {way["name"] for way in found["ways"]} == {"eager", "graphed", "graphed, exact=False", "torch.compile"}


@pytest.mark.parametrize(
    "given",
    [
        ("double", "--inputs", "torch.ones(rows)"),
        ("double", "--inputs", "(torch.ones(rows),)"),
        ("double", "--inputs", "{'x': torch.ones(rows)}"),
        ("double", "--shape", "2x3:int64"),
        ("double", "--shape", ":float64"),
        ("double", "--shape", "0x4:bool"),
        ("both", "--inputs", "torch.ones(2, 3), torch.ones(3, 2)"),
        ("both", "--shape", "2x3", "--shape", "3x2"),
        ("net.forward", "--shape", "2x8"),
        ("nothing",),
    ],
    ids=" ".join,
)
def test_inputs(torchreel: Torchreel, script: Path, given: tuple[str, ...]) -> None:
    function, *rest = given
    measured(torchreel("bench-graphs", f"model.py:{function}", *rest, *QUICK, "--format", "json"))


@pytest.mark.parametrize(
    "example",
    ["example_inputs = torch.ones(2)", "def example_inputs():\n    return (torch.ones(2),)"],
    ids=["value", "function"],
)
def test_example_inputs(torchreel: Torchreel, script: Path, example: str) -> None:
    script.write_text(f"{SCRIPT}\n{example}\n")
    measured(torchreel("bench-graphs", "model.py:double", *QUICK, "--format", "json"))


def test_what_the_function_prints_does_not_spoil_json(torchreel: Torchreel, script: Path) -> None:
    outcome = torchreel("bench-graphs", "model.py:noisy", "--shape", "2", *QUICK, "--format", "json")
    measured(outcome)
    assert "called" in outcome.err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("model.py",), "'model.py' names no function: write it as script.py:function."),
        (("nowhere.py:net",), "There is no script nowhere.py: check the path before the colon."),
        (
            ("model.py:nets",),
            "model.py has no nets: it has net, double, both, nothing, noisy, failing, Thing.",
        ),
        (("model.py:value",), "value of model.py is no function but of type int: name a function or a module."),
        (("model.py:Thing",), "Thing of model.py is no function but the class Thing: name a function or a module."),
        (
            ("model.py:failing", "--shape", "2"),
            "model.py:failing raised ValueError: no such luck (line 29 of model.py): "
            "it must work before it can be fast.",
        ),
        (
            ("model.py:double", "--inputs", "torch.ones("),
            "--inputs 'torch.ones(' cannot be evaluated: SyntaxError: '(' was never closed (<string>, line 1).",
        ),
        (
            ("model.py:double", "--inputs", "lost"),
            "--inputs 'lost' cannot be evaluated: NameError: name 'lost' is not defined (line 1 of <string>).",
        ),
        (
            ("model.py:double", "--inputs", "1", "--shape", "2"),
            "--inputs and --shape both say what to call the function with: give one of them.",
        ),
        (
            ("model.py:double", "--shape", "2y3"),
            "--shape '2y3' is no shape: write sizes and a dtype as 1x64:float32, or one of them.",
        ),
        (
            ("model.py:double", "--shape", "2:float33"),
            "--shape '2:float33': there is no dtype float33: write one as torch names it, such as float32.",
        ),
        (
            ("model.py:double", "--shape", "99999999999x99999999999"),
            "--shape '99999999999x99999999999' takes more than a quarter of this machine's memory: give a smaller one.",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_sentences(torchreel: Torchreel, script: Path, given: tuple[str, ...], sentence: str) -> None:
    outcome = torchreel("bench-graphs", *given, *QUICK)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == f"Error: {sentence}\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "raise SystemExit(3)",
            "bad.py ended itself with exit code 3 while it was imported: put what it does as a program below "
            "if __name__ == '__main__'.",
        ),
        (
            "import nowhere",
            "bad.py cannot be imported: ModuleNotFoundError: No module named 'nowhere' (line 1 of bad.py).",
        ),
        ("def f(:", "bad.py cannot be imported: SyntaxError: invalid syntax (bad.py, line 1)."),
        (
            "def f(): pass\ndef example_inputs(): 1 / 0",
            "example_inputs() beside bad.py:f cannot be called: "
            "ZeroDivisionError: division by zero (line 2 of bad.py).",
        ),
    ],
    ids=["exits", "imports nothing", "no Python", "no inputs"],
)
def test_scripts_that_cannot_be_used(torchreel: Torchreel, directory: Path, text: str, sentence: str) -> None:
    Path("bad.py").write_text(text)
    outcome = torchreel("bench-graphs", "bad.py:f", *QUICK)
    assert (outcome.code, outcome.err) == (1, f"Error: {sentence}\n")


@pytest.mark.parametrize(
    "given",
    [
        ("model.py:net", "--threads", "0"),
        ("model.py:net", "--seconds", "nan"),
        ("model.py:net", "--seconds", "x"),
        ("model.py:net", "--mode", "fastest"),
        (":net",),
        ("model.py:",),
        (".:net",),
        ("",),
        ("model.py:net", "--shape", ""),
        ("model.py:net", "--shape", "2:quint8"),
    ],
    ids=" ".join,
)
def test_nonsense(torchreel: Torchreel, script: Path, given: tuple[str, ...]) -> None:
    outcome = torchreel("bench-graphs", *given, "--no-compile")
    assert outcome.code in (1, 2)
    assert outcome.err and "Traceback" not in outcome.err and "has a fault" not in outcome.err


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script changes where modules are found and what the command line was: as it does in a process of its own."""
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    for name in ("model", "bad"):
        monkeypatch.delitem(sys.modules, name, raising=False)
