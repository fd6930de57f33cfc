"""The generator: what it writes, that it is stable, and what it says when something is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchreel.errors import OptionError
from torchreel.tape import rules
from torchreel.tape.codegen import generator
from torchreel.tape.codegen.generator import generate, shard_of, wrapped
from torchreel.tape.codegen.wrapper import LOCALS, definition_of
from torchreel.tape.rules.hot_ops import FILE, hot_ops
from torchreel.tape.rules.schemas import parsed

ALL = {str(function.func.name): function for function in parsed().native_functions}


def registered(folder: Path) -> list[str]:
    """The ops that the files in a folder register, with the name of each wrapper."""
    texts = "".join(path.read_text() for path in folder.glob("wrappers_*.cpp"))
    return re.findall(r'aten\.impl\("([^"]+)", &\w+\);', texts)


def test_the_hot_set_is_sorted_and_known() -> None:
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    assert lines == sorted(set(lines))
    assert FILE.read_text().startswith("# The ops that ")
    assert hot_ops() == set(lines) <= {rule.name for rule in rules}
    assert 200 < len(lines) < 500


def test_every_op_of_the_hot_set_is_in_one_shard(tmp_path: Path) -> None:
    generate(tmp_path)
    names = registered(tmp_path)
    assert sorted(names) == sorted(rule.name.removeprefix("aten::") for rule in rules.where(way="wrapper"))
    calls = re.findall(r"  register_shard_(\d+)\(aten\);", (tmp_path / "wrappers.cpp").read_text())
    assert [int(number) for number in calls] == list(range(generator.SHARDS))


def test_all_that_can_have_a_wrapper_get_one(tmp_path: Path) -> None:
    generate(tmp_path, every=True)
    assert len(registered(tmp_path)) == len(rules.where(boxed="")) > 2000
    assert "sym_size.int" not in registered(tmp_path)
    assert rules.of("sym_size.int").boxed == "torch takes it apart, and the tape has its parts"


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    """GIVEN generated files WHEN they are generated again THEN no file is touched, and strays are removed."""
    first = generate(tmp_path)
    assert len(first) == generator.SHARDS + 1
    times = {path: path.stat().st_mtime_ns for path in first}
    (tmp_path / "wrappers_99.cpp").write_text("of another number of shards")
    assert generate(tmp_path) == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_one_more_op_changes_one_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(tmp_path)
    more = hot_ops() | {"aten::sinc"}
    assert more != hot_ops()
    monkeypatch.setattr(generator, "hot_ops", lambda: more)
    assert generate(tmp_path) == [tmp_path / f"wrappers_{shard_of(ALL['sinc'])}.cpp"]


def test_an_op_that_torch_has_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "hot_ops", lambda: frozenset({"aten::relu", "aten::gone"}))
    with pytest.raises(OptionError, match=r"The hot set names aten::gone, which this torch does not have: count"):
        wrapped(every=False)


def test_a_wrapper() -> None:
    assert definition_of(ALL["add.Tensor"]) == (
        "at::Tensor add_Tensor(c10::DispatchKeySet keys, const at::Tensor & self, const at::Tensor & other, "
        "const at::Scalar & alpha) {\n"
        "  if (!is_recording()) return at::_ops::add_Tensor::redispatch(below(keys), self, other, alpha);\n"
        '  static const OpInfo& op = op_named("aten::add", "Tensor");\n'
        "  Call call(op);\n"
        "  call.argument(self);\n"
        "  call.argument(other);\n"
        "  call.argument(alpha);\n"
        "  decltype(auto) result = [&]() -> decltype(auto) {\n"
        "    Below kernel(call);\n"
        "    return at::_ops::add_Tensor::redispatch(below(keys), self, other, alpha);\n"
        "  }();\n"
        "  call.result(result);\n"
        "  return result;\n"
        "}\n"
    )


def test_wrappers_return_what_the_op_returns() -> None:
    heads = {name: definition_of(ALL[name]).partition("(")[0] for name in ALL}
    assert heads["add_.Tensor"] == "at::Tensor & add__Tensor"
    assert heads["add.out"] == "at::Tensor & add_out"
    assert heads["resize_"] == "const at::Tensor & resize_"
    assert heads["max.dim_max"] == "::std::tuple<at::Tensor &,at::Tensor &> max_dim_max"
    assert heads["split.Tensor"] == "::std::vector<at::Tensor> split_Tensor"
    assert heads["_foreach_add_.List"] == "void _foreach_add__List"
    assert heads["item"] == "at::Scalar item"
    assert "call.result();" in definition_of(ALL["_foreach_add_.List"])


def test_arguments_are_all_there_in_the_order_of_the_schema() -> None:
    for name, function in ALL.items():
        given = re.findall(r"call\.argument\((\w+)\);", definition_of(function))
        arguments = rules.of(name).arguments
        assert [argument.removesuffix("_") for argument in given] == [
            argument.removesuffix("_") for argument in arguments
        ]
        assert not LOCALS & set(given), name


def test_names_of_wrappers_are_unique() -> None:
    names = [definition_of(function).partition("(")[0].split()[-1] for function in ALL.values()]
    assert len(names) == len(set(names)) == 3101


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchreel.tape.codegen.generator", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_command(tmp_path: Path) -> None:
    count = len(rules.where(way="wrapper"))
    assert run(str(tmp_path)).stdout == f"{count} wrappers in 3 shards; 4 files changed in {tmp_path}.\n"
    assert run(str(tmp_path)).stdout == f"{count} wrappers in 3 shards; 0 files changed in {tmp_path}.\n"


def test_command_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    refused = run(str(file))
    assert refused.returncode == 1 and refused.stderr == f"Error: The system refused: File exists ({file}).\n"
    assert run().returncode == 2
