"""Exported programs: their calls, the places of their ops, and files that are refused."""

from __future__ import annotations

import inspect
import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export.pt2_archive._package import package_pt2

import torchreel
from tests.alone import run_alone
from tests.edge.formats import zoo
from tests.edge.formats.told import Told
from tests.edge.formats.zoo import ZOO
from torchreel.edge.formats.adapter import Location
from torchreel.edge.formats.exported import adapter as exported
from torchreel.edge.formats.exported.adapter import Exported
from torchreel.edge.formats.exported.pt2_expression import is_plain_expression
from torchreel.errors import EdgeError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

MOBILENET = ZOO["mobilenet"]


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    return zoo.exported(MOBILENET)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, program: torch.export.ExportedProgram) -> Path:
    path = tmp_path_factory.mktemp("exported") / "mobilenet.pt2"
    torch.export.save(program, path)
    return path


def line_of(text: str, owner: type[nn.Module]) -> int:
    """Where this line stands in the zoo."""
    lines, first = inspect.getsourcelines(owner.forward)
    return first + next(index for index, line in enumerate(lines) if text in line)


def locations_of_convolutions(adapter: Exported, module: Any) -> list[Location]:
    """By the lines of the generated code, as a recording of stacks sees them."""
    code = type(module).forward.__code__
    lines = [""] * code.co_firstlineno + module.code[module.code.index("def forward") :].split("\n")
    numbers = [number for number, line in enumerate(lines) if "aten.conv2d" in line]
    locations = [adapter.location_of_line(code.co_filename, number) for number in numbers]
    assert None not in locations
    return [location for location in locations if location is not None]


def expected_paths() -> list[str]:
    return [path for path, module in zoo.mobilenet().named_modules() if isinstance(module, nn.Conv2d)]


def assert_real_locations(locations: list[Location]) -> None:
    assert [location.modules[-1] for location in locations] == [(path, "Conv2d") for path in expected_paths()]
    assert {location.modules[0] for location in locations} == {("", "MobileNet")}
    for location in locations:
        path = location.modules[-1][0]
        frame = next(frame for frame in location.frames if frame.file == zoo.__file__)
        if path.endswith(".project"):
            assert frame.line == line_of("self.project(y)", zoo.InvertedResidual)
        else:
            assert frame.line == line_of("self.conv(x)", zoo.ConvNormActivation)
        assert frame.function == "forward"
        assert location.frames[-1].line == line_of("self.features(x)", zoo.MobileNet)


def test_it_adapts_what_export_gives(program: torch.export.ExportedProgram) -> None:
    assert exported.adapts(program)
    assert exported.adapts(program.module())
    assert not exported.adapts(zoo.mobilenet())
    assert not exported.adapts(torch.fx.symbolic_trace(nn.ReLU()))
    assert not exported.adapts(print)


def test_the_name_is_the_class_of_the_model(program: torch.export.ExportedProgram) -> None:
    assert Exported(program).name == "MobileNet"
    assert Exported(program.module()).name == "MobileNet"


def test_calls_of_a_module_are_told(program: torch.export.ExportedProgram) -> None:
    module, told = program.module(), Told()
    undo = Exported(module).watch(told)
    answer = module(*MOBILENET.inputs())
    assert (told.entered, told.left) == (1, 1)
    torch.testing.assert_close(answer, MOBILENET.expected())
    undo()
    module(*MOBILENET.inputs())
    assert told.entered == 1
    assert "forward" not in vars(module)


def test_a_call_that_fails_is_left(program: torch.export.ExportedProgram) -> None:
    module, told = program.module(check_guards=False), Told()
    module.validate_inputs = False
    undo = Exported(module).watch(told)
    with pytest.raises(RuntimeError):
        module(torch.zeros(1, 5, 64, 64))
    undo()
    assert (told.entered, told.left) == (1, 1)


def test_all_modules_that_a_program_gives_are_told() -> None:
    program = zoo.exported(ZOO["lstm"])
    adapter, told = Exported(program), Told()
    before = program.module()
    adapter.runnable(*ZOO["lstm"].inputs())
    undo = adapter.watch(told)
    during = program.module()
    during(*ZOO["lstm"].inputs())
    assert told.entered == 1
    adapter.runnable(*ZOO["lstm"].inputs())
    assert told.entered == 2
    before(*ZOO["lstm"].inputs())
    assert told.entered == 2
    undo()
    during(*ZOO["lstm"].inputs())
    program.module()(*ZOO["lstm"].inputs())
    adapter.runnable(*ZOO["lstm"].inputs())
    assert (told.entered, told.left) == (2, 2)
    assert "module" not in vars(program)


def test_places_of_a_program(program: torch.export.ExportedProgram) -> None:
    adapter = Exported(program)
    assert_real_locations(locations_of_convolutions(adapter, adapter.runnable))


def test_places_of_a_file(file: Path) -> None:
    deployed = exported.load(file)
    assert_real_locations(locations_of_convolutions(Exported(deployed.module), deployed.module))


def test_the_line_is_the_one_that_python_runs(program: torch.export.ExportedProgram) -> None:
    """Not a count of our own: the frame of a real call of an op."""
    module = program.module()
    adapter, seen = Exported(module), []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "convolution" in str(func) or "conv2d" in str(func):
                frame = sys._getframe()
                while frame is not None and not frame.f_code.co_filename.startswith("<eval_with_key>"):
                    frame = frame.f_back
                seen.append(adapter.location_of_line(frame.f_code.co_filename, frame.f_lineno))
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watch():
        module(*MOBILENET.inputs())
    assert_real_locations(seen)


def test_a_profile_has_the_real_modules_and_lines(file: Path, tmp_path: Path) -> None:
    deployed = exported.load(file)
    with torchreel.EdgeProfiler(
        deployed.module, tmp_path / "trace.json", with_modules=True, with_stack=True
    ) as profiler:
        deployed.run(MOBILENET.inputs())
    rows = profiler.result().sql(
        """
        select modules.path, list(frames.line) as lines
        from ops join modules on modules.id = ops.module join stacks on stacks.id = ops.stack
            join frames on list_contains(stacks.frames, frames.id)
        where ops.name = 'aten::conv2d' and frames.file like '%zoo.py'
        group by ops.id, ops.start_ns, modules.path order by ops.start_ns
        """
    )
    assert [row["path"] for row in rows.to_pylist()] == [f"MobileNet.{path}" for path in expected_paths()]
    for row in rows.to_pylist():
        text, owner = ("self.conv(x)", zoo.ConvNormActivation)
        if row["path"].endswith(".project"):
            text, owner = ("self.project(y)", zoo.InvertedResidual)
        assert line_of(text, owner) in row["lines"]


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        x = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))
        return self.linear(x)


def test_a_branch_has_the_modules_of_its_condition() -> None:
    module = torch.export.export(Branches(), (torch.ones(2, 3),)).module()
    adapter = Exported(module)
    branch = module.true_graph_0
    code = type(branch).forward.__code__
    location = adapter.location_of_line(code.co_filename, code.co_firstlineno + 1)
    assert location is not None
    assert location.modules == (("", "Branches"),)
    assert location.frames[-1].file == __file__


def test_what_is_no_line_of_the_model_has_no_place(program: torch.export.ExportedProgram) -> None:
    adapter = Exported(program.module())
    assert adapter.location_of_line("<eval_with_key>.999999", 9) is None
    assert adapter.location_of_line(__file__, 1) is None


@pytest.mark.parametrize("name", ZOO)
def test_load(name: str, tmp_path: Path) -> None:
    entry = ZOO[name]
    deployed = exported.load(zoo.save_exported(entry, tmp_path / "model.pt2"))
    torch.testing.assert_close(deployed.run(entry.inputs()), entry.expected(), rtol=1e-4, atol=1e-5)
    (spec,), (tensor,) = deployed.inputs or (), entry.inputs()
    assert spec.sizes == tuple(tensor.shape)
    assert spec.dtype == str(tensor.dtype).removeprefix("torch.")


class Nested(nn.Module):
    def forward(self, pair: tuple[Tensor, dict[str, Tensor]], scale: int, *, extra: Tensor) -> Tensor:
        return pair[0] * scale + pair[1]["other"] - extra


def test_load_with_nested_inputs_and_sizes_that_vary(tmp_path: Path) -> None:
    one, other, extra = torch.ones(4), torch.full((4,), 5.0), torch.full((4,), 2.0)
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = {"pair": ({0: batch}, {"other": {0: batch}}), "scale": None, "extra": {0: batch}}
    program = torch.export.export(Nested(), ((one, {"other": other}), 3), {"extra": extra}, dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "nested.pt2")
    deployed = exported.load(tmp_path / "nested.pt2")
    assert [spec.sizes for spec in deployed.inputs or ()] == [(None,)] * 3
    assert torch.equal(deployed.run([one, other, extra]), torch.full((4,), 6.0))
    assert torch.equal(deployed.run([torch.ones(7), torch.ones(7), torch.ones(7)]), torch.full((7,), 3.0))


class Unusual(nn.Module):
    """Names that are no identifiers, an op whose name has underscores, sizes that PyTorch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"a-b": nn.Linear(4, 4), "c d": nn.Linear(4, 4)})

    def forward(self, x: Tensor, mode: str) -> Tensor:
        y = self.parts["a-b"](x) + self.parts["c d"](x)
        z = torch.cat([y[: y.shape[0] // 2 + 1], y]) if mode == "it's" else y
        return z * ((x > 0) & (x < 1)).sum()


def test_unusual_programs_are_not_refused(tmp_path: Path) -> None:
    model = Unusual()
    shapes = {"x": {0: torch.export.Dim.AUTO}, "mode": None}
    program = torch.export.export(model, (torch.rand(6, 4), "it's"), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "model.pt2")
    deployed = exported.load(tmp_path / "model.pt2")
    x = torch.rand(9, 4)
    torch.testing.assert_close(deployed.run([x]), model(x, "it's"))
    assert Exported(deployed.module).name == "Unusual"


def test_too_few_inputs(file: Path) -> None:
    with pytest.raises(EdgeError, match="takes 1 inputs, and 0 were given"):
        exported.load(file).run([])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match="There is no file"):
        exported.load(tmp_path / "none.pt2")


@pytest.mark.parametrize("content", [b"", b"no model", b"PK\x03\x04" + bytes(100)])
def test_no_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    with pytest.raises(EdgeError, match=r"is no \.pt2 file"):
        exported.load(path)


def test_a_file_without_its_end(tmp_path: Path, file: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(EdgeError, match="end is missing"):
        exported.load(path)


def test_two_programs_in_a_file(tmp_path: Path, program: torch.export.ExportedProgram) -> None:
    path = tmp_path / "two.pt2"
    package_pt2(str(path), exported_programs={"left": program, "right": program})
    with pytest.raises(EdgeError, match=r"holds 2 exported programs \(left, right\), and one is profiled at a time"):
        exported.load(path)


def test_a_foreign_archive(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/hello.txt", "hello")
    with pytest.raises(EdgeError, match=r"of PyTorch 2\.8 or later"):
        exported.load(path)


def test_a_file_of_torchscript(tmp_path: Path) -> None:
    with pytest.raises(EdgeError, match=r"of PyTorch 2\.8 or later"):
        exported.load(zoo.save_script(ZOO["lstm"], tmp_path / "model.pt2"))


WITH_A_CLASS = """
import sys, torch
from torch.utils import _pytree as pytree

class Answer:
    def __init__(self, tensors, names):
        self.tensors, self.names = tensors, names

pytree.register_pytree_node(
    Answer,
    lambda answer: (answer.tensors, answer.names),
    lambda tensors, names: Answer(list(tensors), names),
    serialized_type_name="elsewhere.Answer",
)

class Net(torch.nn.Module):
    def forward(self, left, right):
        return {"answer": Answer([left + right, left * 3], ["sum", "product"])}

program = torch.export.export(Net(), (torch.ones(2), torch.ones(2)))
torch.export.save(program, sys.argv[1])
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2])
"""


def test_outputs_of_a_class_that_only_another_package_knows(tmp_path: Path) -> None:
    """As those of transformers: this process has not imported what made the class known to PyTorch."""
    paths = [tmp_path / "answer.pt2", tmp_path / "compiled.pt2"]
    run_alone(WITH_A_CLASS, *paths)
    for path in paths:
        deployed = exported.load(path)
        total, product = deployed.run([torch.ones(2), torch.full((2,), 4.0)])["answer"]
        assert (total.tolist(), product.tolist()) == ([5, 5], [3, 3])
        assert type(deployed.run([torch.ones(2), torch.ones(2)])["answer"]).__name__ == "Answer"


Edit = Callable[[bytes], bytes]


def rewritten(file: Path, path: Path, edits: dict[str, Edit | None]) -> Path:
    """The archive with some of its members changed, or left out."""
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(path, "w") as target:
        for info in source.infolist():
            name, content = info.filename.partition("/")[2], source.read(info)
            edit = edits.get(name, bytes)
            if edit is not None:
                target.writestr(f"model/{name}", edit(content))
    return path


def described(change: Callable[[dict[str, Any]], None]) -> dict[str, Edit | None]:
    """A change of the program's description."""

    def edit(content: bytes) -> bytes:
        description = json.loads(content)
        change(description)
        return json.dumps(description).encode()

    return {"models/model.json": edit}


def test_an_archive_written_anew_is_loaded(tmp_path: Path, file: Path) -> None:
    """So that what the tests below refuse is refused for their change alone."""
    exported.load(rewritten(file, tmp_path / "model.pt2", {}))


@pytest.mark.parametrize(
    "name",
    [
        "data/sample_inputs/model.pt",
        "data/weights/model_weights_config.json",
        "data/constants/model_constants_config.json",
    ],
)
def test_a_missing_part(tmp_path: Path, file: Path, name: str) -> None:
    with pytest.raises(EdgeError, match=f"has no {name}"):
        exported.load(rewritten(file, tmp_path / "model.pt2", {name: None}))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"range_constraints": 3}', b"[" * 100_000])
def test_a_damaged_description(tmp_path: Path, file: Path, content: bytes) -> None:
    path = rewritten(file, tmp_path / "model.pt2", {"models/model.json": lambda _: content})
    with pytest.raises(EdgeError, match="is damaged"):
        exported.load(path)


def test_a_program_that_makes_no_sense(tmp_path: Path, file: Path) -> None:
    def change(description: dict[str, Any]) -> None:
        description["graph_module"]["graph"]["nodes"].reverse()

    with pytest.raises(EdgeError, match="cannot be loaded"):
        exported.load(rewritten(file, tmp_path / "model.pt2", described(change)))


def test_a_weight_of_another_size(tmp_path: Path) -> None:
    """PyTorch's own recurrent layers would read beyond it."""

    def edit(content: bytes) -> bytes:
        config = json.loads(content)
        config["config"]["lstm.weight_ih_l1"]["tensor_meta"]["sizes"][0]["as_int"] = 0
        return json.dumps(config).encode()

    file = zoo.save_exported(ZOO["lstm"], tmp_path / "lstm.pt2")
    with pytest.raises(EdgeError, match=r"its weight lstm.weight_ih_l1 is a float32\[0, 32\], where the program takes"):
        exported.load(rewritten(file, tmp_path / "model.pt2", {"data/weights/model_weights_config.json": edit}))


def test_names_that_are_none(tmp_path: Path, file: Path) -> None:
    def change(description: dict[str, Any]) -> None:
        description["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = [True]

    with pytest.raises(EdgeError, match="cannot be loaded"):
        exported.load(rewritten(file, tmp_path / "model.pt2", described(change)))


class Evil:
    """A pickle that leaves a file behind when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


def pickled(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def assert_refused(path: Path, mark: Path) -> None:
    with pytest.raises(EdgeError, match="could make PyTorch execute code"):
        exported.load(path)
    assert not mark.exists()


def test_pytorch_itself_would_execute_a_pickle(tmp_path: Path, file: Path) -> None:
    """If PyTorch becomes careful, this says so, and our own care can be less."""
    mark = tmp_path / "mark"
    evil = {"data/sample_inputs/model.pt": lambda _: pickled(Evil(mark))}
    with pytest.raises(Exception):  # noqa: B017, PT011
        torch.export.load(rewritten(file, tmp_path / "model.pt2", evil))
    assert mark.exists()


def test_a_pickle_of_inputs_is_refused(tmp_path: Path, file: Path) -> None:
    mark = tmp_path / "mark"
    evil: dict[str, Edit | None] = {"data/sample_inputs/model.pt": lambda _: pickled(Evil(mark))}
    assert_refused(rewritten(file, tmp_path / "model.pt2", evil), mark)


def test_a_pickle_of_weights_is_refused(tmp_path: Path, file: Path) -> None:
    mark = tmp_path / "mark"

    def with_pickle(content: bytes) -> bytes:
        config = json.loads(content)
        for payload in config["config"].values():
            payload["use_pickle"] = True
        return json.dumps(config).encode()

    edits: dict[str, Edit | None] = {
        "data/weights/model_weights_config.json": with_pickle,
        "data/weights/weight_0": lambda _: pickled(Evil(mark)),
    }
    assert_refused(rewritten(file, tmp_path / "model.pt2", edits), mark)


@pytest.mark.parametrize("kind", ["opaque_obj_0", "custom_obj_0"])
def test_an_object_among_the_constants_is_refused(tmp_path: Path, file: Path, kind: str) -> None:
    mark = tmp_path / "mark"
    config = {"config": {"evil": {"path_name": kind, "is_param": False, "use_pickle": True, "tensor_meta": None}}}
    edits: dict[str, Edit | None] = {
        "data/constants/model_constants_config.json": lambda _: json.dumps(config).encode(),
        "archive_format": bytes,
    }
    path = rewritten(file, tmp_path / "model.pt2", edits)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"model/data/constants/{kind}", pickle.dumps(Evil(mark)))
    assert_refused(path, mark)


def test_a_size_that_is_code_is_refused(tmp_path: Path, file: Path) -> None:
    mark = tmp_path / "mark"

    def change(description: dict[str, Any]) -> None:
        text = f"__import__('pathlib').Path({str(mark)!r}).touch()"
        meta = description["graph_module"]["graph"]["tensor_values"]["x"]
        meta["sizes"][0] = {"as_expr": {"expr_str": text, "hint": None}}

    assert_refused(rewritten(file, tmp_path / "model.pt2", described(change)), mark)


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.__class__.default",
        "torch.ops.__class__.__init__",
        "os.system",
        "torch.load",
    ],
)
def test_an_operator_that_is_none_is_refused(tmp_path: Path, file: Path, target: str) -> None:
    def change(description: dict[str, Any]) -> None:
        description["graph_module"]["graph"]["nodes"][0]["target"] = target

    assert_refused(rewritten(file, tmp_path / "model.pt2", described(change)), tmp_path / "mark")


def test_names_that_are_code_are_refused(tmp_path: Path, file: Path) -> None:
    mark = tmp_path / "mark"
    call = f"__import__('pathlib').Path({str(mark)!r}).touch()"

    def argument(description: dict[str, Any]) -> None:
        description["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = [f"x={call}"]

    def weight(description: dict[str, Any]) -> None:
        first = description["graph_module"]["signature"]["input_specs"][0]
        first["parameter"]["parameter_name"] = f'a b") or {call} or ("'

    def structure(description: dict[str, Any]) -> None:
        signature = description["graph_module"]["module_call_graph"][0]["signature"]
        spec = json.loads(signature["in_spec"])
        spec[1]["children_spec"][1]["context"] = json.dumps([f"a':{call},'"])
        signature["in_spec"] = json.dumps(spec)

    for number, change in enumerate((argument, weight, structure)):
        assert_refused(rewritten(file, tmp_path / f"model{number}.pt2", described(change)), mark)


def test_a_function_among_the_inputs_is_refused(tmp_path: Path, file: Path) -> None:
    context = {"default_factory_module": "os", "default_factory_name": "abort", "dict_context": []}
    spec = [1, {"type": "collections.defaultdict", "context": json.dumps(context), "children_spec": []}]

    def change(description: dict[str, Any]) -> None:
        description["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps(spec)

    assert_refused(rewritten(file, tmp_path / "model.pt2", described(change)), tmp_path / "mark")


def test_checks_of_inputs_are_not_executed(tmp_path: Path, file: Path) -> None:
    mark = tmp_path / "mark"

    def change(description: dict[str, Any]) -> None:
        description["guards_code"] = [f"__import__('pathlib').Path({str(mark)!r}).touch()"]

    deployed = exported.load(rewritten(file, tmp_path / "model.pt2", described(change)))
    deployed.run(MOBILENET.inputs())
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "4",
        "s0 + 1",
        "2*s0 // 3",
        "Symbol('s77', positive=True, integer=True)",
        "Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(-1))",
        "FloorDiv(Symbol('s0', integer=True), Integer(2))",
        "Pow(Symbol('s0', integer=True), Integer(2))",
        "Eq(s0, 1) & (s1 < 4)",
        "Float('0.5', precision=53)",
    ],
)
def test_plain_expressions(text: str) -> None:
    assert is_plain_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f(",
        "__import__('os')",
        "eval(1)",
        "Symbol('s0').__class__",
        "(lambda: 1)()",
        "[s0]",
        "'a' * 1000000000",
        "Pow('9', '999999999')",
        "9**9**9",
        "9**999999999",
        "9**(64*64*64)",
        "Pow(Integer(9), Mul(Integer(64), Integer(64), Integer(64), Integer(64), Integer(64)))",
        "Pow(Pow(Integer(9), Integer(64)), Integer(64))",
        "Float('0.5', precision=1000000000)",
        "s0 + " * 2000 + "1",
        "-" * 3000 + "1",
    ],
)
def test_other_expressions(text: str) -> None:
    assert not is_plain_expression(text)
