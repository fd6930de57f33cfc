"""The rules, held against torchgen's own tracer generator and against the dispatcher of the torch that runs."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torchgen.api import cpp
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction
from torchgen.packaged.autograd import gen_trace_type

from tests.alone import run_alone
from torchreel.errors import OptionError
from torchreel.tape import rules
from torchreel.tape.rules import cache as rule_cache
from torchreel.tape.rules.derivation import derive
from torchreel.tape.rules.schemas import parsed
from torchreel.tape.rules.text import HEADERS

# What the generator writes for a value that is not an argument, and our word for it.
VALUES = {
    "::std::optional<ScalarType>()": "dtype=None",
    "layout_or_default(::std::nullopt)": "layout=strided",
    "device_or_default(::std::nullopt)": "device=cpu",
    "pinned_memory_or_default(::std::nullopt)": "pin_memory=False",
    "memory_format": "memory_format=preserve_format",
    "c10::optTypeMetaToScalarType(out.options().dtype_opt())": "out.dtype",
    "out.options().layout()": "out.layout",
    "out.options().device()": "out.device",
    "out.options().pinned_memory()": "out.pin_memory",
}


@functools.cache
def functions() -> dict[str, NativeFunction]:
    return {f"aten::{function.func.name}": function for function in parsed().native_functions}


def is_manual(function: NativeFunction) -> bool:
    return cpp.name(function.func) in gen_trace_type.MANUAL_TRACER


def test_there_is_a_rule_for_every_function() -> None:
    assert [rule.name for rule in rules] == list(functions())
    assert len(rules) == 3101
    assert rules.counts("kind") == {"functional": 1647, "out": 1107, "inplace": 337, "mutable": 10}
    assert rules.counts("tracer") == {"records": 2802, "passes": 266, "unfolds": 18, "by hand": 15}
    assert len(rules.where(tracer="passes", why=lambda why: "Storage" in why)) == 6


def test_what_is_recorded_is_what_pytorch_decides() -> None:
    """should_trace and the sets of gen_trace_type, function by function."""
    for rule in rules:
        function = functions()[rule.name]
        assert (rule.tracer == "by hand") == is_manual(function), rule.name
        if not is_manual(function):
            assert (rule.tracer == "records") == gen_trace_type.should_trace(function), rule.name
            unfolds = function.func.name.name.base in gen_trace_type.DONT_RECORD_TRACE
            assert (rule.tracer == "unfolds") == (unfolds and rule.tracer != "passes"), rule.name


def branches(text: str) -> tuple[str, str]:
    """The text as the tracer runs it: in its ordinary mode, and under force_outplace."""
    choice = re.compile(r"if \(tracer_state->force_outplace\) \{(.*?)\} else \{(.*?)\}", re.DOTALL)
    return choice.sub(lambda match: match[2], text), choice.sub(lambda match: match[1], text)


def inputs(text: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    expressions = re.findall(r'addInputs\(node, "\w+", (.*)\);', text)
    return tuple(expression if expression in arguments else VALUES[expression] for expression in expressions)


def test_nodes_are_those_that_pytorch_generates() -> None:
    """The wrapper that gen_trace_type writes for a function, read back: its node's name, inputs, guard and outputs."""
    compared = 0
    for rule in rules.where(tracer="records"):
        function = functions()[rule.name]
        with native_function_manager(function):
            before = gen_trace_type.format_prerecord_trace(function)
            after = gen_trace_type.format_postrecord_trace(function)
        for text, node, given in zip(
            branches(before), (rule.node, rule.outplace_node), (rule.inputs, rule.outplace_inputs), strict=True
        ):
            assert re.findall(r'fromQualString\("(.*)"\)', text) == [node], rule.name
            assert inputs(text, rule.arguments) == given, rule.name
        guards = re.findall(r"ensureUniqueIfOutOfPlaced\(\"\w+\", (\w+)\)", before)
        assert guards == ([rule.guard] if rule.guard else []), rule.name
        assert tuple(re.findall(r"addOutput\(node, (\w+)\)", after)) == rule.outputs, rule.name
        compared += 1
    assert compared == 2802


def test_torch_has_a_tracer_kernel_for_every_rule() -> None:
    for rule in rules:
        line = table_of(rule.name)["Tracer"]
        assert ("TraceTypeManual" in line) == (rule.tracer == "by hand"), rule.name


def table_of(name: str) -> dict[str, str]:
    lines = torch._C._dispatch_dump_table(name).splitlines()
    return {line.partition(":")[0]: line for line in lines}


def test_parts_are_where_autograd_has_a_composite_kernel() -> None:
    # In a process that has not traced: the first trace gives a few of them kernels of the tape's own.
    run_alone("from tests.tape.rules.test_rules import check_parts; check_parts()")


def check_parts() -> None:
    for rule in rules.where(tracer=lambda tracer: tracer != "by hand"):
        composite = table_of(rule.name).get("AutogradCPU", "").endswith("[math kernel]")
        assert (rule.tape == "parts") == composite, rule.name


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: torch.zeros(2).copy_(x), "aten::copy_"),
        (lambda x: x.detach() + 1, "aten::detach"),
        (lambda x: (x * 2).detach_() + 1, "aten::detach_"),
        (lambda x: (x * 2).resize_(1) + 1, "aten::resize_"),
        (lambda x: (x * 2).requires_grad_(False) + 1, "aten::requires_grad_"),
        (lambda x: x.data + 1, "aten::data"),
        (lambda x: (x * 2).zero_() + 1, "aten::zero_"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore")
def test_jit_trace_records_what_the_rule_says(function: object, name: str) -> None:
    rule = rules.of(name)
    for outplace, node in ((False, rule.node), (True, rule.outplace_node)):
        traced = torch.jit.trace(function, (torch.randn(2),), check_trace=False, _force_outplace=outplace)
        kinds = [found.kind() for found in traced.graph.nodes()]
        if node:
            assert node in kinds
        else:
            assert not any(kind.startswith(name) for kind in kinds)


def test_rules_are_found_by_name() -> None:
    rule = rules.of("aten::add_.Tensor")
    assert rule is rules.of("add_.Tensor")
    assert rules.of("aten::relu.default").name == "aten::relu"
    assert (rule.kind, rule.node, rule.outplace_node, rule.guard) == ("inplace", "aten::add_", "aten::add", "self")
    assert rule.arguments == ("self", "other", "alpha") and rule.writes == ("self",)
    with pytest.raises(
        OptionError, match=r"aten::add_ has no overload of that name: there are aten::add_.Tensor, aten"
    ):
        rules.of("add_")
    with pytest.raises(OptionError, match=r"There is no function aten::reluu .*: did you mean aten::relu"):
        rules.of("reluu")


def test_rules_are_found_by_what_they_say() -> None:
    assert {rule.name for rule in rules.named("zero")} == {"aten::zero", "aten::zero.out"}
    assert all(rule.base.startswith("conv") for rule in rules.named("conv*"))
    outs = rules.where(kind="out", traced=False)
    assert outs and all(rule.kind == "out" and not rule.node for rule in outs)
    assert len(rules.where(kind={"out", "inplace"})) == 1107 + 337
    assert "aten::_foreach_add_.List" in [rule.name for rule in rules.where(writes="self", tracer="passes")]
    assert len(rules.where(options="dtype")) == 100
    with pytest.raises(OptionError, match="Rules have no column 'colour': choose from name, schema"):
        rules.where(colour="red")


def test_renames_pad_what_is_missing() -> None:
    zero, fill = rules.of("zero_"), rules.of("fill_.Scalar")
    assert (zero.node, zero.outplace_node) == ("aten::zero_", "aten::zeros_like")
    assert (fill.node, fill.outplace_node) == ("aten::fill_", "aten::full_like")
    schema = torch._C._get_schema("aten::zeros_like", "")
    assert len(zero.outplace_inputs) == len(schema.arguments)
    assert zero.padded == fill.padded and zero.padded[0] == "dtype=None"


def test_the_tape_keeps_what_the_tracer_does_not() -> None:
    storage = rules.of("set_.source_Storage")
    assert (storage.tracer, storage.tape) == ("passes", "itself") and "source, a Storage" in storage.why
    assert rules.of("_foreach_add_.List").tape == "itself"
    assert rules.of("convolution").tape == "itself"
    assert rules.of("linear").tape == "parts"
    assert rules.of("detach_").tape == "nothing"


def test_print() -> None:
    """GIVEN the module itself, a table and a rule WHEN they are printed THEN a person can read them."""
    assert str(rules).splitlines()[0] == "3,101 functions"
    assert str(rules.of("zero_")).splitlines()[:5] == [
        "function    aten::zero_",
        "schema      zero_(Tensor(a!) self) -> Tensor(a!)",
        "kind        inplace, writes self",
        "tracer      records",
        "  node      self = aten::zero_(self)",
    ]
    lines = str(rules.where(kind="out")).splitlines()
    assert re.split(r"  +", lines[0]) == list(HEADERS)
    assert "... and 1,067 more" in lines


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchreel.tape.rules", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_command() -> None:
    table = run("add_", "--kind", "inplace").stdout
    assert [line.split()[0] for line in table.splitlines()[2:4]] == ["aten::add_.Tensor", "aten::add_.Scalar"]
    assert run("add_.Tensor").stdout == f"{rules.of('add_.Tensor')}\n"
    assert run().stdout.startswith("3,101 functions\n")


def test_command_says_what_is_wrong() -> None:
    unknown = run("reluu")
    assert unknown.returncode == 1 and unknown.stderr.startswith("Error: There is no function aten::reluu")
    misspelt = run("--kind", "outplace")
    assert misspelt.returncode == 2 and "'outplace' is not one of" in misspelt.stderr
    assert run("relu", "--kind", "out").stdout.startswith("function    aten::relu.out\n")
    assert run("relu", "--kind", "mutable").stdout == "No function is like that.\n"


def test_rules_do_not_need_torch() -> None:
    script = "import sys; from torchreel.tape import rules; len(rules); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_rules_without_yaml_say_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ModuleNotFoundError('no yaml', name='yaml')\n")
    script = "from torchreel.tape.rules import __main__ as command; raise SystemExit(command.main())"
    environment = {"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stderr == (
        "Error: torchgen cannot read native_functions.yaml, because yaml is missing: pip install pyyaml.\n"
    )


def test_rules_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN an empty cache WHEN rules are kept there THEN they come back; a damaged file is as good as none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    derived = derive()[:50]
    assert rule_cache.load() is None
    rule_cache.store(derived)
    assert rule_cache.load() == derived
    (file,) = (tmp_path / "torchreel").iterdir()
    for damage in (file.read_bytes()[:-9], b"", b"\x93\x01\x02\x03"):
        file.write_bytes(damage)
        assert rule_cache.load() is None
    file.unlink()
    (tmp_path / "torchreel").rmdir()
    (tmp_path / "torchreel").write_text("no folder")
    rule_cache.store(derived)
    assert rule_cache.load() is None
