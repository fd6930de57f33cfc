"""ExecuTorch programs: what their runtime measures, where it stands in the source, and what is refused."""

from __future__ import annotations

import functools
import gc
import inspect
import random
import struct
import subprocess
import sys
import weakref
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import torchreel
from tests.edge.formats import zoo
from tests.edge.formats.told import Told
from tests.edge.formats.trap import trap
from torchreel.edge.formats.adapter import BackendEvent, Deployed
from torchreel.edge.formats.executorch.adapter import ExecuTorch, adapts, runs_by_count
from torchreel.edge.formats.executorch.delegate_links import DelegateCall, link
from torchreel.edge.formats.executorch.etdump import Run, read_runs
from torchreel.edge.formats.executorch.etrecord import Node, read_record
from torchreel.edge.formats.executorch.flatbuffer import Buffer
from torchreel.edge.formats.executorch.pte import read_methods
from torchreel.edge.formats.executorch.watch import Call
from torchreel.edge.formats.formats import load
from torchreel.errors import EdgeError, MissingPackageError

pytestmark = pytest.mark.filterwarnings("ignore")

ENTRY = zoo.ZOO["mobilenet"]
INPUTS = list(ENTRY.inputs())
BLOCKS = len(zoo.MobileNet.BLOCKS)
CONVOLUTIONS = 2 + 3 * BLOCKS
FIRST_CONVOLUTIONS = [
    ("features.0.conv", "Conv2d"),
    ("features.1.expand.conv", "Conv2d"),
    ("features.1.depthwise.conv", "Conv2d"),
    ("features.1.project", "Conv2d"),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """plain.pte and xnnpack.pte, with the ETRecord of each beside them."""
    exir = pytest.importorskip("executorch.exir")
    xnnpack = pytest.importorskip("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    folder = tmp_path_factory.mktemp("programs")
    for name, partitioners in (("plain", []), ("xnnpack", [xnnpack.XnnpackPartitioner()])):
        edge = exir.to_edge_transform_and_lower(zoo.exported(ENTRY), partitioner=partitioners, generate_etrecord=True)
        program = edge.to_executorch()
        (folder / f"{name}.pte").write_bytes(program.buffer)
        program.get_etrecord().save(folder / f"{name}.etrecord")
    return folder


@pytest.fixture(scope="module")
def plain(programs: Path) -> Deployed:
    return load(programs / "plain.pte")


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("executorch.extension.pybindings._C")


def profiled(module: Any, *runs: Any) -> tuple[ExecuTorch, list[list[BackendEvent]], Told]:
    adapter, told = ExecuTorch(module), Told()
    undo = adapter.watch(told)
    try:
        for run in runs:
            run()
    finally:
        undo()
    return adapter, adapter.events(), told


def line_of(text: str) -> int:
    lines, start = inspect.getsourcelines(zoo.InvertedResidual)
    return start + next(number for number, line in enumerate(lines) if text in line)


def changed(data: bytes, before: bytes, after: bytes) -> bytes:
    assert before in data and len(before) == len(after)
    return data.replace(before, after)


def test_each_call_has_the_kernels_that_it_ran(programs: Path, plain: Deployed) -> None:
    plain.run(INPUTS)  # before it is watched: not told
    answers: list[torch.Tensor] = []
    adapter, events, told = profiled(
        plain.module,
        lambda: answers.append(plain.run(INPUTS)),
        lambda: plain.module.forward(INPUTS),
        lambda: plain.module(INPUTS),
    )
    assert adapts(plain.module)
    assert (adapter.format, adapter.name, adapter.remark) == ("ExecuTorch", "plain", None)
    assert (told.entered, told.left) == (3, 3)
    torch.testing.assert_close(answers[0], ENTRY.expected(), rtol=1e-4, atol=1e-4)
    method = read_methods(programs / "plain.pte")["forward"]
    kernels = [
        "native_call_" + instruction.operator.removeprefix("aten::")
        for instruction in method.instructions.values()
        if instruction.operator is not None
    ]
    assert [[event.name for event in call] for call in events] == [kernels] * 3
    for call in events:
        assert {event.backend for event in call} == {"ExecuTorch"}
        assert all(event.start_ns <= event.end_ns for event in call)
        assert all(one.end_ns <= next.start_ns for one, next in pairwise(call))


def test_flops_and_inputs_of_kernels_are_those_of_the_model(plain: Deployed) -> None:
    _, [call], _ = profiled(plain.module, lambda: plain.run(INPUTS))
    convolutions = [event for event in call if event.name == "native_call_convolution.out"]
    assert len(convolutions) == CONVOLUTIONS
    assert convolutions[0].inputs is not None
    assert [one.sizes for one in convolutions[0].inputs][:2] == [(1, 3, 64, 64), (16, 3, 3, 3)]
    assert convolutions[0].inputs[0].dtype == "float32"
    # 16 channels of 32 x 32 values, each of 3 x 3 x 3 products
    assert convolutions[0].flops == 2 * 16 * 32 * 32 * 27
    # depthwise: 16 channels of 32 x 32 values, each of 3 x 3 products
    assert convolutions[2].flops == 2 * 16 * 32 * 32 * 9
    [linear] = [event for event in call if event.name == "native_call_addmm.out"]
    assert linear.flops == 2 * 256 * 100


def test_ops_are_linked_to_modules_and_lines(plain: Deployed) -> None:
    adapter, [call], _ = profiled(plain.module, lambda: plain.run(INPUTS))
    locations = [event.location for event in call if event.name == "native_call_convolution.out"]
    paths = [location.modules[-1] for location in locations if location is not None]
    assert paths[:4] == FIRST_CONVOLUTIONS
    project = locations[3]
    assert project is not None
    assert [(path, kind) for path, kind in project.modules[:2]] == [("", "MobileNet"), ("features", "Sequential")]
    own = [frame for frame in project.frames if Path(frame.file).name == "zoo.py"]
    assert (own[0].line, own[0].function) == (line_of("y = self.project(y)"), "forward")
    handle = call[0].debug_handle
    assert handle is not None
    assert adapter.locations([handle, 10**6]) == {handle: call[0].location}


def test_what_a_delegate_ran_lies_within_its_call(programs: Path) -> None:
    deployed = load(programs / "xnnpack.pte")
    adapter, events, _ = profiled(deployed.module, lambda: deployed.run(INPUTS), lambda: deployed.run(INPUTS))
    assert adapter.planned_bytes == read_methods(programs / "xnnpack.pte")["forward"].planned_bytes > 0
    for call in events:
        delegates = {index for index, event in enumerate(call) if event.name == "DELEGATE_CALL"}
        within = [event for event in call if event.parent is not None]
        assert delegates and {event.parent for event in within} <= delegates
        assert {call[index].backend for index in delegates} == {"XNNPACK"}
        assert {event.backend for event in within} == {"XNNPACK"}
        # XNNPACK runs a convolution by a filter of one value as a fully connected layer.
        products = [event for event in within if event.name.startswith(("Convolution", "Fully Connected"))]
        paths = [event.location.modules[-1] for event in products if event.location is not None]
        assert len(paths) == CONVOLUTIONS + 1
        assert paths[:4] == FIRST_CONVOLUTIONS and paths[-1] == ("classifier", "Linear")
        assert products[0].flops == 2 * 16 * 32 * 32 * 27
        assert products[2].name.startswith("Convolution") and products[2].flops == 2 * 16 * 32 * 32 * 9
        assert products[-1].flops == 2 * 256 * 100


def test_a_delegates_ops_are_linked_only_where_their_number_agrees() -> None:
    convolution, add = Node(0, 1, "aten::convolution", None, None), Node(1, 2, "aten::add", None, None)
    names = ("Convolution (NHWC, F32) IGEMM #1", "Add (ND) #1", "Add (ND) #2", "Transpose (ND, X32) #1")
    assert link([DelegateCall(names, (convolution, add))]) == [[convolution, None, None, None]]


def test_calls_of_a_delegate_that_share_their_ops_are_linked_in_the_order_of_the_run() -> None:
    first, second = (Node(number, 1, "aten::bmm", None, None) for number in range(2))
    name = "Batch Matrix Multiply (NC, F32) GEMM #1"
    calls = [DelegateCall((name,), (first, second)), DelegateCall(("Add (ND) #1", name), (first, second))]
    assert link(calls) == [[first], [None, second]]
    assert link([*calls, calls[0]]) == [[None], [None, None], [None]]


def test_a_profile_has_the_backends_ops_in_the_calls(programs: Path, tmp_path: Path) -> None:
    deployed = load(programs / "xnnpack.pte")
    with torchreel.EdgeProfiler(deployed.module, tmp_path / "run.json", with_modules=True, with_flops=True) as profiler:
        for _ in range(2):
            deployed.run(INPUTS)
    reel = profiler.result()
    found = reel.sql(
        "select root.id, count(*) as ops, sum(o.flops) as flops from ops o join ops delegate on o.parent = delegate.id "
        "join ops root on delegate.parent = root.id join modules m on o.module = m.id "
        "where o.kind = 'backend' and o.backend = 'XNNPACK' and root.kind = 'module' and m.path like 'xnnpack%' "
        "group by root.id"
    ).to_pylist()
    assert len(found) == 2
    assert len({(row["ops"], row["flops"]) for row in found}) == 1
    assert found[0]["flops"] == sum(
        instruction.call.flops() or 0
        for instruction in read_methods(programs / "plain.pte")["forward"].instructions.values()
        if instruction.call is not None
    )


def test_calls_that_fail_have_no_events(plain: Deployed) -> None:

    def fails() -> None:
        with pytest.raises(RuntimeError):
            plain.module.forward([INPUTS[0].double()])

    _, events, told = profiled(plain.module, lambda: plain.run(INPUTS), fails, lambda: plain.run(INPUTS))
    assert (told.entered, told.left) == (3, 3)
    assert [bool(call) for call in events] == [True, False, True]
    _, events, _ = profiled(plain.module, fails)
    assert events == [[]]


def test_other_modules_are_not_told(programs: Path, library: Any) -> None:
    path = str(programs / "plain.pte")
    mine, other = (library._load_for_executorch(path, enable_etdump=True) for _ in range(2))
    _, events, told = profiled(mine, lambda: other.forward(INPUTS), lambda: mine.forward(INPUTS))
    assert told.entered == len(events) == 1


def test_the_users_own_etdump_is_still_there(programs: Path, library: Any, tmp_path: Path) -> None:
    """The runtime by itself crashes when it is asked for its measurements twice."""
    module = library._load_for_executorch(str(programs / "plain.pte"), enable_etdump=True)
    path = tmp_path / "run.etdump"
    module.forward(INPUTS)
    _, events, _ = profiled(
        module,
        lambda: module.forward(INPUTS),
        lambda: module.write_etdump_result_to_file(str(tmp_path / "within.etdump")),
        lambda: module.forward(INPUTS),
    )
    assert [bool(call) for call in events] == [True, True]
    assert len(read_runs((tmp_path / "within.etdump").read_bytes())) == 2
    for _ in range(2):
        module.write_etdump_result_to_file(str(path))
        assert len(read_runs(path.read_bytes())) == 1
    module.forward(INPUTS)
    module.forward(INPUTS)
    module.write_etdump_result_to_file(path=str(path))
    assert len(read_runs(path.read_bytes())) == 2


def test_a_watched_module_is_not_kept_alive(programs: Path, library: Any) -> None:
    module = library._load_for_executorch(str(programs / "plain.pte"), enable_etdump=True)
    profiled(module, functools.partial(type(module).forward, module, INPUTS))
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None


def test_a_program_of_the_runtime_tells_the_calls_of_its_methods(programs: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    program = runtime.load_program((programs / "plain.pte").read_bytes(), enable_etdump=True)
    assert adapts(program)
    adapter, events, told = profiled(
        program,
        lambda: program.load_method("forward").execute(INPUTS),
        lambda: program.load_method("forward").execute(INPUTS),
    )
    assert told.entered == 2
    assert [len(call) for call in events] == [len(read_methods(programs / "plain.pte")["forward"].instructions)] * 2
    assert events[0][0].flops is not None
    assert adapter.remark is not None and "which file" in adapter.remark
    with pytest.raises(EdgeError, match="which file"):
        adapter.check(locations=True)
    program.write_etdump_result_to_file(str(tmp_path / "a.etdump"), str(tmp_path / "a.bin"))
    assert len(read_runs((tmp_path / "a.etdump").read_bytes())) == 2


def test_loaded_as_the_sentence_says_it_has_its_places(programs: Path, library: Any) -> None:
    """A module of the runtime does not know its file: what it says to do about that is what is done here."""
    module = library._load_for_executorch(str(programs / "plain.pte"), enable_etdump=True)
    with pytest.raises(EdgeError, match=r"load it with torchreel\.edge\.load\(path\)\.module\."):
        torchreel.EdgeProfiler(module, with_modules=True)
    module = torchreel.edge.load(str(programs / "plain.pte")).module
    with torchreel.EdgeProfiler(module, with_modules=True) as profiler:
        module.forward(INPUTS)
    assert "plain.features.0.conv" in profiler.result().table("modules", ["path"])["path"].to_pylist()


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_program_without_its_end(programs: Path, tmp_path: Path, kept: float) -> None:
    whole = (programs / "plain.pte").read_bytes()
    part = whole[: int(len(whole) * kept)]
    (tmp_path / "part.pte").write_bytes(part)
    with pytest.raises(EdgeError) as error:
        load(tmp_path / "part.pte")
    assert f"part.pte has {len(part):,} of the {len(whole):,} bytes that it says it has" in str(error.value)


def test_what_does_not_measure_says_how_to_load_it(programs: Path, library: Any) -> None:
    runtime = pytest.importorskip("executorch.runtime").Runtime.get()
    path = programs / "plain.pte"
    program = runtime.load_program(path)
    for module in (
        library._load_for_executorch(str(path)),
        program,
        program.load_method("forward"),
        library._load_program(str(path), enable_etdump=True),
    ):
        assert adapts(module)
        with pytest.raises(EdgeError, match="enable_etdump=True"):
            ExecuTorch(module)
    assert not adapts(torch.nn.Linear(1, 1))


def test_without_its_etrecord_the_program_is_measured_all_the_same(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pte").write_bytes((programs / "plain.pte").read_bytes())
    deployed = load(tmp_path / "model.pte")
    adapter, [call], _ = profiled(deployed.module, lambda: deployed.run(INPUTS))
    assert adapter.remark is not None and "no ETRecord beside model.pte" in adapter.remark
    assert call[0].location is None and call[0].debug_handle is None and call[0].flops is not None
    adapter.check(locations=False)
    with pytest.raises(EdgeError, match="generate_etrecord=True"):
        adapter.check(locations=True)


def test_the_etrecord_of_another_program_is_not_believed(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pte").write_bytes((programs / "plain.pte").read_bytes())
    (tmp_path / "etrecord.bin").write_bytes((programs / "xnnpack.etrecord").read_bytes())
    module = load(tmp_path / "model.pte").module
    adapter = ExecuTorch(module)
    assert adapter.remark is not None and "etrecord.bin was written for another program" in adapter.remark
    (tmp_path / "model.etrecord").write_bytes(b"PK but no archive")
    adapter = ExecuTorch(module)
    assert adapter.remark is not None and "cannot be read as an ETRecord" in adapter.remark


def test_nothing_of_an_etrecord_is_executed(programs: Path, tmp_path: Path) -> None:
    payload = trap(tmp_path / "executed")
    path = tmp_path / "model.etrecord"
    with zipfile.ZipFile(programs / "plain.etrecord") as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            is_archive = name.endswith(("_state_dict", "_constants", "_example_inputs"))
            target.writestr(name, payload if is_archive else source.read(name))
    assert read_record(path)["forward"].handles
    assert not (tmp_path / "executed").exists()


def test_damaged_files_are_refused_or_read_but_nothing_else(programs: Path, tmp_path: Path) -> None:
    chance = random.Random(0)
    for name, read in (("plain.pte", read_methods), ("xnnpack.pte", read_methods), ("plain.etrecord", read_record)):
        data = (programs / name).read_bytes()
        refused = 0
        for _ in range(150):
            damaged = bytearray(data if name.endswith("record") else data[:40000])
            for _ in range(chance.randrange(1, 30)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            (tmp_path / name).write_bytes(damaged[: chance.choice([None, chance.randrange(len(damaged))])])
            try:
                read(tmp_path / name)
            except EdgeError:
                refused += 1
        assert refused > 10


def test_files_that_are_no_programs_are_refused(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    with pytest.raises(EdgeError, match="There is no model at"):
        load(path)
    for data in (b"", b"PK\x03\x04 something else", bytes(100)):
        path.write_bytes(data)
        with pytest.raises(EdgeError, match="is no ExecuTorch program that can be read"):
            load(path)
    # The shorter header of earlier releases does not say how long the weights are.
    part = (programs / "plain.pte").read_bytes()[:-1000]
    path.write_bytes(part[:12] + struct.pack("<I", 24) + part[16:])
    with pytest.raises(EdgeError, match=r"cannot be loaded by ExecuTorch: .+\. Export it again"):
        load(path)


def test_a_program_that_crashes_the_runtime_does_not_crash_us(programs: Path, tmp_path: Path) -> None:
    """Its first instruction takes a number where it needs a tensor: the runtime aborts the process."""
    data = bytearray((programs / "plain.pte").read_bytes())
    offset = first_argument(bytes(data))
    data[offset : offset + 4] = data[offset + 24 : offset + 28]  # transposed, in place of the input
    path = tmp_path / "model.pte"
    path.write_bytes(data)
    with pytest.raises(EdgeError, match=r"model\.pte crashes what loads it: a process of its own died of SIG[A-Z]+ \("):
        load(path)


def first_argument(data: bytes) -> int:
    """Where in the file of a program the first argument of its first operator is named."""
    buffer = Buffer(data)
    method = next(buffer.root(b"ET12").tables(1))
    instruction = next(next(method.tables(5)).tables(2))
    call = instruction.table(1)
    assert call is not None
    where = call._where(1)
    assert where is not None
    return buffer.follow(where) + 4


@pytest.mark.parametrize(
    ("name", "before", "after", "sentence"),
    [
        ("plain", b"aten::hardtanh", b"aten::hardtanx", r"needs operators .+ lacks: aten::hardtanx.out\."),
        ("xnnpack", b"XnnpackBackend", b"XnnpackBackenx", r"delegates .+ lacks: XnnpackBackenx\."),
    ],
)
def test_what_the_runtime_lacks_is_named(
    programs: Path, tmp_path: Path, name: str, before: bytes, after: bytes, sentence: str
) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(changed((programs / f"{name}.pte").read_bytes(), before, after))
    with pytest.raises(EdgeError, match=sentence):
        load(path)


def test_inputs_that_do_not_fit_are_refused(plain: Deployed) -> None:
    [spec] = plain.inputs or ()
    assert (spec.sizes, spec.dtype) == ((1, 3, 64, 64), "float32")
    for inputs, sentence in (
        ([], "takes 1 inputs, and 0 are given"),
        ([INPUTS[0].double()], "Input 0 of the program is float32, and float64 is given"),
        ([INPUTS[0][:, :, :32]], "Input 0 of the program is 1x3x64x64, and 1x3x32x64 is given"),
    ):
        with pytest.raises(EdgeError, match=sentence):
            plain.run(inputs)
    turned = INPUTS[0].transpose(2, 3)
    torch.testing.assert_close(plain.run([turned]), plain.run([turned.contiguous()]))


def test_a_runtime_without_a_clock_is_matched_by_count() -> None:
    runs = [Run((), start, start + 1) for start in range(3)]
    calls = [Call("forward", has_returned=True), Call("forward"), Call("forward", has_returned=True)]
    assert runs_by_count(runs, calls) == [runs[1], None, runs[2]]


def test_without_executorch_loading_says_what_to_install(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_C", "_portable_lib"):
        monkeypatch.setitem(sys.modules, f"executorch.extension.pybindings.{name}", None)
    with pytest.raises(MissingPackageError, match="pip install executorch"):
        load(programs / "plain.pte")


def test_looking_at_a_model_does_not_import_executorch() -> None:
    code = (
        "import sys, torch; from torchreel.edge.formats.executorch.adapter import adapts; "
        "assert not adapts(torch.nn.Linear(1, 1)); assert not any(n.startswith('executorch') for n in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        return self.linear(x) * times


def test_a_method_of_another_name_with_sizes_that_vary_and_a_number(tmp_path: Path) -> None:
    exir = pytest.importorskip("executorch.exir")
    model, path = Scaled().eval(), tmp_path / "scaled.pte"
    sizes = {"x": {0: torch.export.Dim("batch", min=1, max=32)}, "times": None}
    exported = torch.export.export(model, (torch.randn(3, 8), 2), dynamic_shapes=sizes)
    program = exir.to_edge_transform_and_lower({"scale": exported}, generate_etrecord=True).to_executorch()
    path.write_bytes(program.buffer)
    program.get_etrecord().save(path.with_suffix(".etrecord"))

    deployed, x, two = load(path), torch.randn(5, 8), torch.tensor(2)
    assert [spec.sizes for spec in deployed.inputs or ()] == [(32, 8), ()]
    adapter, [call], _ = profiled(deployed.module, lambda: deployed.run([x, two]))
    assert adapter.remark is None
    torch.testing.assert_close(deployed.run([x, two]), model(x, 2))
    [linear] = [event for event in call if event.name == "native_call_addmm.out"]
    assert linear.location is not None and linear.location.modules[-1] == ("linear", "Linear")
    # How many rows there were is not in the file.
    assert linear.flops is None and linear.inputs is None
    for inputs, sentence in (
        ([torch.randn(40, 8), two], "Input 0 of the program is at most 32x8, and 40x8 is given"),
        ([x, torch.tensor(3)], "Input 1 of the program is the number 2, and 3 is given"),
        ([x, torch.ones(3, dtype=torch.int64)], "Input 1 of the program is a number, and 3 is given"),
    ):
        with pytest.raises(EdgeError, match=sentence):
            deployed.run(inputs)
