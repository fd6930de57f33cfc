"""A session of ONNX Runtime under the edge profiler: its own profile, linked to the program it was exported from."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.edge.formats.told import Told
from tests.edge.formats.zoo import ZOO, save_onnx
from torchreel.edge.formats.adapter import BackendEvent, TensorType
from torchreel.edge.formats.onnx import session as onnx_session
from torchreel.edge.formats.onnx.adapter import OnnxRuntime, adapts, load
from torchreel.errors import EdgeError, MissingPackageError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

FLOAT = onnx.TensorProto.FLOAT


def profiled(session: Any, run: Callable[[], Any]) -> list[list[BackendEvent]]:
    adapter = OnnxRuntime(session)
    undo = adapter.watch(Told())
    try:
        run()
    finally:
        undo()
    return adapter.events()


def nodes(events: list[BackendEvent]) -> list[BackendEvent]:
    return [event for event in events if event.backend != "ONNX Runtime"]


def model(steps: list[Any], inputs: dict[str, list[int]], outputs: dict[str, list[int]], **weights: Any) -> bytes:
    graph = onnx.helper.make_graph(
        steps,
        "graph",
        [onnx.helper.make_tensor_value_info(name, FLOAT, sizes) for name, sizes in inputs.items()],
        [onnx.helper.make_tensor_value_info(name, FLOAT, sizes) for name, sizes in outputs.items()],
        [onnx.numpy_helper.from_array(np.ones(sizes, np.float32), name) for name, sizes in weights.items()],
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    return made.SerializeToString()


def step(op: str, inputs: list[str], output: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(op, inputs, [output], name=f"node_{output}", **attributes)


def one_run(source: bytes, **inputs: list[int]) -> list[BackendEvent]:
    session = onnxruntime.InferenceSession(source)
    feed = {name: np.ones(sizes, np.float32) for name, sizes in inputs.items()}
    return profiled(session, lambda: session.run(None, feed))[0]


def flops(source: bytes, **inputs: list[int]) -> dict[str, int | None]:
    return {event.name: event.flops for event in nodes(one_run(source, **inputs))}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go: nothing of ours may be left there."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Models of the zoo in their files, each exported once."""
    directory = tmp_path_factory.mktemp("zoo")

    def path(name: str) -> Path:
        file = directory / f"{name}.onnx"
        return file if file.exists() else save_onnx(ZOO[name], file)

    return path


@pytest.fixture
def relu() -> Any:
    return onnxruntime.InferenceSession(model([step("Relu", ["x"], "y")], {"x": [2, 3]}, {"y": [2, 3]}))


def feed(rows: int = 2) -> dict[str, Any]:
    return {"x": np.ones((rows, 3), np.float32)}


@pytest.mark.parametrize("name", ZOO)
def test_every_node_of_the_zoo_is_linked_to_its_source(zoo: Callable[[str], Path], temporary: Path, name: str) -> None:
    entry, path = ZOO[name], zoo(name)
    beside = sorted(path.parent.iterdir())
    deployed = load(path)
    deployed.run(entry.inputs())
    answers = []
    calls = profiled(deployed.module, lambda: answers.extend(deployed.run(entry.inputs()) for _ in range(2)))

    assert len(calls) == 2
    torch.testing.assert_close(answers[1], entry.expected())
    run, executor, *rest = calls[1]
    assert (run.name, run.parent) == ("model_run", None)
    assert (executor.name, executor.parent) == ("SequentialExecutor::Execute", 0)
    assert len(rest) > 5
    for event in rest:
        assert event.parent == 1
        assert event.backend == "ONNX Runtime CPU"
        assert executor.start_ns <= event.start_ns <= event.end_ns <= executor.end_ns
        assert event.location is not None
        assert event.location.modules[0] == ("", type(entry.model()).__name__)
        assert any(frame.file.endswith("zoo.py") and frame.line > 0 for frame in event.location.frames)
    assert sorted(path.parent.iterdir()) == beside
    assert list(temporary.glob("torchreel*")) == []


def test_flops_of_a_whole_network_are_those_that_torch_counts(zoo: Callable[[str], Path]) -> None:
    entry = ZOO["mobilenet"]
    deployed = load(zoo("mobilenet"))
    (events,) = profiled(deployed.module, lambda: deployed.run(entry.inputs()))
    with FlopCounterMode(display=False) as counter:
        entry.model()(*entry.inputs())
    assert sum(event.flops or 0 for event in events) == counter.get_total_flops()


def test_a_convolution_stands_in_its_own_module_though_it_took_in_what_follows(zoo: Callable[[str], Path]) -> None:
    entry = ZOO["mobilenet"]
    deployed = load(zoo("mobilenet"))
    (events,) = profiled(deployed.module, lambda: deployed.run(entry.inputs()))
    convolutions = [event.location for event in events if event.name in ("Conv", "FusedConv")]
    found = {location.modules[-1] for location in convolutions if location is not None}
    expected = {(path, "Conv2d") for path, part in entry.model().named_modules() if isinstance(part, nn.Conv2d)}
    assert found == expected


def test_the_line_of_a_fused_node_is_the_one_of_its_heart(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.conv(x)
            return torch.relu(y)

    pytest.importorskip("onnxscript")
    path = tmp_path / "net.onnx"
    torch.onnx.export(Net().eval(), (torch.ones(1, 3, 8, 8),), str(path), dynamo=True, verbose=False)
    deployed = load(path)
    (events,) = profiled(deployed.module, lambda: deployed.run([torch.ones(1, 3, 8, 8)]))
    conv = next(event for event in events if "Conv" in event.name)
    assert not any(event.name == "Relu" for event in events)
    assert conv.location is not None
    assert conv.location.modules == (("", "Net"), ("conv", "Conv2d"))
    called = Net.forward.__code__.co_firstlineno + 1
    assert [frame.line for frame in conv.location.frames if frame.file == __file__] == [called]
    assert conv.inputs is not None
    assert conv.inputs[0] == TensorType((1, 3, 8, 8), "float32")
    assert conv.flops == 2 * 8 * 3 * 3 * 3 * 6 * 6


@pytest.mark.parametrize("channels", [16, 10])
def test_flops_of_a_convolution(channels: int) -> None:
    source = model(
        [step("Conv", ["x", "w"], "y", pads=[1, 1, 1, 1])], {"x": [2, 3, 8, 8]}, {"y": [2, channels, 8, 8]},
        w=[channels, 3, 3, 3],
    )  # fmt: skip
    assert flops(source, x=[2, 3, 8, 8])["Conv"] == 2 * 2 * channels * 3 * 3 * 3 * 8 * 8


def test_flops_of_a_depthwise_convolution() -> None:
    source = model(
        [step("Conv", ["x", "w"], "y", group=16, strides=[2, 2])], {"x": [1, 16, 9, 9]}, {"y": [1, 16, 4, 4]},
        w=[16, 1, 3, 3],
    )  # fmt: skip
    assert flops(source, x=[1, 16, 9, 9])["Conv"] == 2 * 16 * 3 * 3 * 4 * 4


def test_flops_of_a_convolution_whose_filter_is_an_input() -> None:
    source = model(
        [step("Conv", ["x", "w"], "y")], {"x": [1, 3, 8, 8], "w": [5, 3, 3, 3]}, {"y": [1, 5, 6, 6]}
    )  # fmt: skip
    assert flops(source, x=[1, 3, 8, 8], w=[5, 3, 3, 3])["Conv"] == 2 * 5 * 3 * 3 * 3 * 6 * 6


def test_flops_of_a_transposed_convolution() -> None:
    source = model(
        [step("ConvTranspose", ["x", "w"], "y", strides=[2, 2])], {"x": [1, 4, 5, 5]}, {"y": [1, 6, 11, 11]},
        w=[4, 6, 3, 3],
    )  # fmt: skip
    assert flops(source, x=[1, 4, 5, 5])["ConvTranspose"] == 2 * 5 * 5 * 4 * 6 * 3 * 3


@pytest.mark.parametrize(("sizes", "transposed"), [([4, 5], 0), ([5, 4], 1)])
def test_flops_of_a_gemm_whose_weight_was_packed(sizes: list[int], transposed: int) -> None:
    source = model(
        [step("Gemm", ["x", "w", "b"], "y", transA=transposed)], {"x": sizes}, {"y": [4, 7]}, w=[5, 7], b=[7]
    )
    (gemm,) = nodes(one_run(source, x=sizes))
    assert gemm.flops == 2 * 4 * 5 * 7
    assert gemm.inputs == tuple(TensorType(tuple(one), "float32") for one in (sizes, [5, 7], [7]))


def test_flops_of_a_matmul_with_a_batch() -> None:
    source = model([step("MatMul", ["x", "w"], "y")], {"x": [2, 3, 4, 5]}, {"y": [2, 3, 4, 6]}, w=[5, 6])
    assert flops(source, x=[2, 3, 4, 5]) == {"MatMul": 2 * 2 * 3 * 4 * 5 * 6}


def test_flops_of_a_matmul_that_took_in_a_transposition() -> None:
    source = model(
        [
            step("Transpose", ["x"], "t", perm=[0, 1, 3, 2]),
            step("Transpose", ["w"], "u", perm=[0, 2, 1, 3]),
            step("MatMul", ["t", "u"], "y"),
        ],
        {"x": [2, 3, 5, 4], "w": [2, 5, 3, 6]},
        {"y": [2, 3, 4, 6]},
    )
    found = flops(source, x=[2, 3, 5, 4], w=[2, 5, 3, 6])
    assert set(found) == {"FusedMatMul", "Transpose"}
    assert found["FusedMatMul"] == 2 * 2 * 3 * 4 * 5 * 6


def test_flops_of_what_has_no_formula_are_not_known() -> None:
    source = model([step("Softmax", ["x"], "y")], {"x": [2, 3]}, {"y": [2, 3]})
    assert flops(source, x=[2, 3]) == {"Softmax": None}


def test_nodes_of_a_branch_lie_in_the_node_that_chose_it() -> None:
    def branch(op: str) -> Any:
        inner = [step(op, ["x"], f"{op}_out"), step("Exp", [f"{op}_out"], f"{op}_exp")]
        return onnx.helper.make_graph(
            inner, op, [], [onnx.helper.make_tensor_value_info(f"{op}_exp", FLOAT, [2])]
        )  # fmt: skip

    steps = [
        step("ReduceMax", ["x"], "largest", keepdims=0),
        step("Cast", ["largest"], "is_large", to=onnx.TensorProto.BOOL),
        onnx.helper.make_node(
            "If", ["is_large"], ["z"], name="choice", then_branch=branch("Neg"), else_branch=branch("Abs")
        ),
        step("Relu", ["z"], "y"),
    ]
    events = one_run(model(steps, {"x": [2]}, {"y": [2]}), x=[2])

    def line(event: BackendEvent) -> list[str]:
        return [event.name, *(line(events[event.parent]) if event.parent is not None else [])]

    assert [line(event) for event in events if event.name in ("Neg", "Exp", "Abs")] == [
        ["Neg", "SequentialExecutor::Execute", "If", "SequentialExecutor::Execute", "model_run"],
        ["Exp", "SequentialExecutor::Execute", "If", "SequentialExecutor::Execute", "model_run"],
    ]
    assert all(event.parent is None or event.parent < at for at, event in enumerate(events))


def test_each_way_to_call_a_session_is_told(relu: Any) -> None:
    before = relu.io_binding()
    before.bind_cpu_input("x", feed()["x"])
    before.bind_output("y")
    told, adapter = Told(), OnnxRuntime(relu)
    undo = adapter.watch(told)
    relu.run(None, feed())
    relu.run_with_ort_values(["y"], {"x": onnxruntime.OrtValue.ortvalue_from_numpy(feed()["x"])})
    relu.run_with_iobinding(before)
    during = relu.io_binding()
    during.bind_cpu_input("x", feed()["x"])
    during.bind_output("y")
    relu.run_with_iobinding(during)
    undo()
    relu.run_with_iobinding(during)
    relu.run(None, feed())

    assert (told.entered, told.left, told.threads) == (4, 4, {threading.get_native_id()})
    assert [[event.name for event in nodes(call)] for call in adapter.events()] == [["Relu"]] * 4
    assert before.copy_outputs_to_cpu()[0].tolist() == feed()["x"].tolist()
    assert during.copy_outputs_to_cpu()[0].tolist() == feed()["x"].tolist()


def test_a_call_that_fails_is_told_and_has_no_events(relu: Any) -> None:
    told, adapter = Told(), OnnxRuntime(relu)
    undo = adapter.watch(told)
    with pytest.raises(Exception, match="dimensions"):
        relu.run(None, feed(rows=5))
    relu.run(None, feed())
    undo()
    assert told.entered == told.left == 2
    assert [len(nodes(call)) for call in adapter.events()] == [0, 1]


def test_calls_of_several_threads_are_kept_apart(relu: Any) -> None:
    def run() -> None:
        for _ in range(20):
            relu.run(None, feed())

    def run_all() -> None:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    calls = profiled(relu, run_all)
    assert [[event.name for event in nodes(call)] for call in calls] == [["Relu"]] * 80
    assert {event.thread for call in calls for event in call} == {0}


def test_nodes_that_ran_on_other_threads_belong_to_the_call() -> None:
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 2
    steps = [step("Neg", ["x"], "a"), step("Abs", ["x"], "b"), step("Mul", ["a", "b"], "y")]
    session = onnxruntime.InferenceSession(model(steps, {"x": [2, 3]}, {"y": [2, 3]}), options)
    calls = profiled(session, lambda: [session.run(None, feed()) for _ in range(3)])
    assert [sorted(event.name for event in nodes(call)) for call in calls] == [["Abs", "Mul", "Neg"]] * 3
    assert all(call[event.parent].name.endswith("Execute") for call in calls for event in nodes(call))


def test_the_session_is_as_it_was_afterwards(relu: Any) -> None:
    before = dict(vars(relu))
    profiled(relu, lambda: relu.run(None, feed()))
    assert vars(relu) == before


def test_a_session_can_be_profiled_again(zoo: Callable[[str], Path]) -> None:
    deployed = load(zoo("lstm"))
    inputs = ZOO["lstm"].inputs()
    first = profiled(deployed.module, lambda: deployed.run(inputs))
    second = profiled(deployed.module, lambda: [deployed.run(inputs) for _ in range(3)])
    assert [len(call) for call in second] == [len(first[0])] * 3
    assert [event.location for event in second[2]] == [event.location for event in first[0]]


def test_calls_before_the_watch_are_not_in_it(zoo: Callable[[str], Path]) -> None:
    deployed = load(zoo("lstm"))
    inputs = ZOO["lstm"].inputs()
    for _ in range(3):
        deployed.run(inputs)
    assert len(profiled(deployed.module, lambda: deployed.run(inputs))) == 1
    assert profiled(deployed.module, lambda: None) == []


def test_the_profile_and_the_options_of_the_user_are_left_alone(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "mine")
    session = onnxruntime.InferenceSession(
        model([step("Relu", ["x"], "y")], {"x": [2, 3]}, {"y": [2, 3]}), options
    )  # fmt: skip
    session.run(None, feed())
    assert len(profiled(session, lambda: session.run(None, feed()))) == 1
    session.run(None, feed())

    assert (options.enable_profiling, options.profile_file_prefix) == (True, str(tmp_path / "mine"))
    written = Path(session.end_profiling())
    assert written.parent == tmp_path
    assert [event["name"] for event in json.loads(written.read_text())].count("model_run") == 2


def test_only_a_session_is_adapted(relu: Any) -> None:
    assert adapts(relu)
    assert not adapts(nn.Linear(2, 3))


def test_a_model_without_source_lines_says_so(relu: Any) -> None:
    adapter = OnnxRuntime(relu)
    undo = adapter.watch(Told())
    relu.run(None, feed())
    undo()
    (events,) = adapter.events()
    assert all(event.location is None for event in events)
    assert adapter.remark is not None
    assert "dynamo=True" in adapter.remark
    adapter.check(locations=False)
    with pytest.raises(EdgeError, match="dynamo=True"):
        adapter.check(locations=True)


def test_without_the_package_onnx_there_are_times_and_no_places(
    zoo: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zoo("lstm")
    monkeypatch.setitem(sys.modules, "onnx", None)
    deployed = load(path)
    adapter = OnnxRuntime(deployed.module)
    undo = adapter.watch(Told())
    deployed.run(ZOO["lstm"].inputs())
    undo()
    (events,) = adapter.events()
    assert len(nodes(events)) > 5
    assert {(event.location, event.flops) for event in events} == {(None, None)}
    assert adapter.remark is not None
    assert "pip install onnx`" in adapter.remark
    with pytest.raises(MissingPackageError, match="pip install onnx`"):
        adapter.check(locations=True)


def test_a_model_that_is_too_large_to_be_written_again(
    zoo: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_session, "_LARGEST_WRITTEN", 0)
    deployed = load(zoo("mobilenet"))
    adapter = OnnxRuntime(deployed.module)
    undo = adapter.watch(Told())
    deployed.run(ZOO["mobilenet"].inputs())
    undo()
    (events,) = adapter.events()
    assert {event.name for event in nodes(events) if event.location is None} <= {"ReorderInput", "ReorderOutput"}
    assert adapter.remark is not None
    assert "large" in adapter.remark


def test_a_model_in_the_format_of_onnx_runtime_itself(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "relu.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model([step("Relu", ["x"], "y")], {"x": [2, 3]}, {"y": [2, 3]}), options)
    deployed = load(tmp_path / "relu.ort")
    (events,) = profiled(deployed.module, lambda: deployed.run([torch.ones(2, 3)]))
    assert [(event.name, event.location, event.flops) for event in nodes(events)] == [("Relu", None, None)]


def test_without_onnxruntime_loading_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackageError, match="pip install onnxruntime"):
        load(tmp_path / "model.onnx")
    assert not adapts(nn.Linear(2, 3))


def test_inputs_that_a_file_declares(tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    path.write_bytes(model([step("Relu", ["x"], "y")], {"x": ["batch", 3]}, {"y": ["batch", 3]}))  # type: ignore[list-item]
    (spec,) = load(path).inputs or ()
    assert (spec.name, spec.sizes, spec.dtype) == ("x", (None, 3), "float32")


def test_a_file_that_is_no_model(tmp_path: Path, temporary: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(EdgeError, match=r"There is no file .*model\.onnx"):
        load(path)
    for content in (b"", b"no model at all", model([step("Relu", ["x"], "y")], {"x": [2]}, {"y": [2]})[:40]):
        path.write_bytes(content)
        with pytest.raises(EdgeError, match=r"cannot be loaded as an ONNX model: .*Export it again"):
            load(path)
    assert list(temporary.glob("torchreel*")) == []
    assert capfd.readouterr() == ("", "")


def test_a_model_whose_weights_are_missing(zoo: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "lstm.onnx"
    path.write_bytes(zoo("lstm").read_bytes())
    with pytest.raises(EdgeError, match=r"lstm\.onnx\.data"):
        load(path)


def test_inputs_that_do_not_fit(zoo: Callable[[str], Path], capfd: pytest.CaptureFixture[str]) -> None:
    deployed = load(zoo("lstm"))
    with pytest.raises(EdgeError, match="inputs are x, 1 in all, and 2 are given"):
        deployed.run([torch.ones(1), torch.ones(1)])
    with pytest.raises(EdgeError, match=r"ONNX Runtime says: .* Got: 3 Expected: 20"):
        deployed.run([torch.ones(1, 3, 16)])
    with pytest.raises(EdgeError, match="int64"):
        deployed.run([torch.ones(1, 20, 16, dtype=torch.int64)])
    with pytest.raises(EdgeError, match="bfloat16"):
        deployed.run([torch.ones(1, 20, 16, dtype=torch.bfloat16)])
    assert capfd.readouterr() == ("", "")


def test_a_session_whose_model_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "relu.onnx"
    path.write_bytes(model([step("Relu", ["x"], "y")], {"x": [2, 3]}, {"y": [2, 3]}))
    session = onnxruntime.InferenceSession(str(path))
    path.unlink()
    with pytest.raises(EdgeError, match="could not be made of its model"):
        OnnxRuntime(session).watch(Told())
    assert session.run(None, feed())[0].tolist() == feed()["x"].tolist()
