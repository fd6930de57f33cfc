from __future__ import annotations

import json
from pathlib import Path

import pytest

import torchreel
from tests.alone import run_alone
from tests.simulator.predict.cpu_reels import MIB, CpuProgram
from tests.snapshots import snapshot
from torchreel.allocator import predict
from torchreel.errors import NotAReelError, OptionError, TorchreelError
from torchreel.simulator.predict.gpu_only import reduction_buffer

pytestmark = pytest.mark.programs

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL_WORKSPACE, LARGE_WORKSPACE = 8_519_680, 32 * MIB


def record(target: Path, *command: str) -> Path:
    """What `torchreel record` makes of one of the examples."""
    program = (EXAMPLES / command[0], *command[1:])
    run_alone(
        "import sys\nfrom torchreel.cli.main import main\nsys.exit(main(sys.argv[1:]))",
        *("record", "-o", target, "--memory", "--shapes", *program),
    )
    return target


def test_allocs_without_anything_of_a_gpus_own(tmp_path: Path) -> None:
    program = CpuProgram()
    program.alloc(30 * MIB, action="preexisting")
    first = program.alloc(3 * MIB)
    program.alloc(1000)
    program.free(first)
    program.alloc(4 * MIB)  # in what the first left, merged with the rest of its segment
    prediction = predict(program.write(tmp_path / "run.reel"))
    assert prediction.peak_reserved == (52 * MIB, 52 * MIB)  # 30 as they are, one of 20, one of 2 for the small
    assert prediction.peak_allocated == (34 * MIB + 1024, 34 * MIB + 1024)
    assert prediction.gpu_only == ()


def test_each_thread_that_multiplies_has_a_workspace_and_the_backward_pass_too(tmp_path: Path) -> None:
    program = CpuProgram()
    for _ in range(2):
        program.op("aten::mm", MIB + 1)
        program.op("aten::bmm", MIB + 1, thread=1)
        program.op("aten::mm", MIB + 1, backward=True)
    prediction = predict(program.write(tmp_path / "run.reel"))
    (item,) = prediction.gpu_only
    assert (item.name, item.low, item.high) == ("cuBLAS workspaces", 3 * SMALL_WORKSPACE, 3 * LARGE_WORKSPACE)
    assert "here 3" in item.why
    tensors = 6 * (MIB + 512)
    # What is left of a segment after two workspaces and three tensors, less than 1 MiB, goes to the third.
    slack = 20 * MIB - 2 * SMALL_WORKSPACE - 3 * (MIB + 512)
    assert prediction.peak_allocated == (tensors + 3 * SMALL_WORKSPACE + slack, tensors + 3 * LARGE_WORKSPACE)
    # Two of the small ones share a segment with tensors; the large ones have one each.
    assert prediction.peak_reserved == (40 * MIB, 20 * MIB + 3 * LARGE_WORKSPACE)


def test_a_linear_layer_took_a_workspace_of_its_own_before_torch_2_8(tmp_path: Path) -> None:
    program = CpuProgram()
    program.op("aten::addmm", 4 * MIB)
    reel = program.write(tmp_path / "run.reel")
    assert [item.name for item in predict(reel).gpu_only] == ["cuBLAS workspaces"]
    older = predict(reel, torch_version="2.4")
    assert [item.name for item in older.gpu_only] == ["cuBLAS workspaces", "cuBLASLt workspace"]
    assert (older.gpu_only[1].low, older.gpu_only[1].high) == (0, MIB)
    assert older.torch_version == "2.4"


@pytest.mark.parametrize(
    ("rows", "columns", "processors", "expected"),
    [
        (2000, 512, 108, 8_388_608),  # as recorded: 32 blocks of 128 columns
        (1000, 512, 108, 0),  # as recorded: too few rows to be divided
        (2000, 512, 20, 8_388_608),
        (1_000_000, 512, 1, 4 * 512 * 977 * 128),  # one processor: no thread adds more than 256 values of its four rows
        (0, 512, 108, 0),
        (512, 0, 108, 0),
    ],
)
def test_buffers_of_reductions(rows: int, columns: int, processors: int, expected: int) -> None:
    assert reduction_buffer(rows, columns, processors) == expected


def test_a_sum_of_rows_has_a_buffer_while_it_runs(tmp_path: Path) -> None:
    program = CpuProgram()
    for _ in range(3):
        program.op(
            "aten::sum",
            2048,
            dims=[[10, 200, 512], [], [], []],
            strides=[[102_400, 512, 1], [], [], []],
            dtypes=["float", "ScalarList", "Scalar", ""],
            scalars=["", "[0, 1]", "True", ""],
        )
    program.op("aten::sum", 2048, dims=[[10, 200, 512], []], strides=[[102_400, 512, 1], []], scalars=["", "[2]"])
    prediction = predict(program.write(tmp_path / "run.reel"))
    (item,) = prediction.gpu_only
    assert (item.name, item.low, item.high) == ("reduction buffers", 8_388_608, 8_388_608)
    assert prediction.peak_reserved == (22 * MIB, 22 * MIB)
    assert prediction.peak_allocated == (3 * 2048 + 8_388_608,) * 2


def test_a_gradient_of_indexed_rows_sorts_the_indices(tmp_path: Path) -> None:
    program = CpuProgram()
    for count, accumulates in ((100, "True"), (900, "False")):
        dims = [[50, 8], [[10, count]], [10, count, 8], [], []]
        program.op("aten::_index_put_impl_", dims=dims, scalars=["", "", "", accumulates, "True"])
    program.op("aten::embedding_dense_backward", dims=[[10, 50, 8], [10, 50], [], [], []])
    program.alloc(512)
    (item,) = predict(program.write(tmp_path / "run.reel")).gpu_only
    assert (item.name, item.low, item.high) == ("sorted indices", 4 * 8 * 1000, 4 * 8 * 1000)


def test_an_optimizer_takes_all_parameters_at_once_on_a_gpu(tmp_path: Path) -> None:
    import torch

    def items(name: str, foreach: bool | None) -> dict[str, tuple[int, int]]:
        model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
        with torchreel.record(tmp_path / name, memory=True):
            for _ in range(2):
                model(torch.randn(8, 256)).sum().backward()
                optimizer.step()
        return {item.name: (item.low, item.high) for item in predict(tmp_path / name).gpu_only}

    parameters = 4 * (2 * 256 * 512 + 512 + 256)
    assert items("default.reel", foreach=None)["foreach optimizer"] == (0, parameters)
    assert "foreach optimizer" not in items("foreach.reel", foreach=True)


def test_results_in_half_precision_may_be_float32_under_autocast(tmp_path: Path) -> None:
    program = CpuProgram()
    (block,) = program.op("aten::exp", 6 * MIB, dims=[[1]], dtypes=["c10::BFloat16"])
    program.free(block)
    program.op("aten::exp", 3 * MIB, dims=[[1]], dtypes=["c10::BFloat16"])
    program.op("aten::exp", 3 * MIB, dims=[[1]], dtypes=["float"])
    program.op("aten::mul", 3 * MIB, dims=[[1]], dtypes=["c10::BFloat16"])
    prediction = predict(program.write(tmp_path / "run.reel"))
    (item,) = prediction.gpu_only
    assert (item.name, item.low, item.high) == ("float32 under autocast", 0, 6 * MIB)
    assert item.why.startswith("2 results of exp")
    assert prediction.peak_allocated == (9 * MIB, 12 * MIB)


def test_dropout_keeps_a_byte_per_element_on_a_gpu(tmp_path: Path) -> None:
    import torch

    x = torch.randn(1024, 1024, requires_grad=True)
    with torchreel.record(tmp_path / "run.reel", memory=True, shapes=True):
        kept = [torch.nn.functional.dropout(x, 0.5) for _ in range(2)]
        kept.append(torch.nn.functional.dropout(x, 0.5, training=False))
    prediction = predict(tmp_path / "run.reel")
    (item,) = (item for item in prediction.gpu_only if item.name == "dropout masks")
    assert (item.low, item.high) == (-2 * 3 * MIB, -2 * 3 * MIB)
    assert "dropout masks, 6.00 MiB less: a GPU keeps a byte per element" in prediction.describe()
    assert kept[0].numel() == MIB


def test_whether_it_fits(tmp_path: Path) -> None:
    program = CpuProgram()
    program.alloc(100 * MIB)
    program.op("aten::mm", 2 * MIB)
    reel = program.write(tmp_path / "run.reel")
    prediction = predict(reel)
    assert prediction.fits("2GiB") == "yes"
    assert prediction.fits(400 * MIB) == "maybe"  # with a small context
    assert prediction.fits("300MiB") == "no"
    assert prediction.fits(1) == "no"
    with pytest.raises(OptionError, match="fits\\(\\) needs the memory of the GPU"):
        prediction.fits()
    with pytest.raises(OptionError, match="'much' is not a size"):
        prediction.fits("much")
    assert predict(reel, capacity="2GiB").fits() == "yes"


def test_cached_memory_is_given_back_before_it_does_not_fit(tmp_path: Path) -> None:
    program = CpuProgram()
    for size in (600, 700, 800):
        program.free(program.alloc(size * MIB))
    prediction = predict(program.write(tmp_path / "run.reel"))
    assert prediction.peak_reserved == (2100 * MIB, 2100 * MIB)
    assert prediction.peak_allocated == (800 * MIB, 800 * MIB)
    assert prediction.fits("2400MiB") == "yes"


def test_settings_of_the_allocator_count(tmp_path: Path) -> None:
    program = CpuProgram()
    for size in (600, 700, 800):
        program.free(program.alloc(size * MIB))
    reel = program.write(tmp_path / "run.reel")
    assert predict(reel, conf="expandable_segments:True").peak_reserved == (800 * MIB, 800 * MIB)
    with pytest.raises(OptionError, match="max_split"):
        predict(reel, conf="max_split_size_mb:1")


def test_what_is_said(tmp_path: Path) -> None:
    program = CpuProgram()
    program.op("aten::mm", 4 * MIB)
    program.op("aten::convolution", 4 * MIB)
    prediction = predict(program.write(tmp_path / "run.reel", lost_events=7), capacity="24GiB")
    assert prediction.describe() == (
        "A GPU with torch 2.13 would reserve 20.00 MiB to 52.00 MiB at its peak,\n"
        "and hold 16.12 MiB to 40.00 MiB of tensors.\n"
        "Of that, what the CPU does not allocate:\n"
        "  cuBLAS workspaces, 8.12 MiB to 32.00 MiB: cuBLAS keeps a workspace for each thread that multiplies "
        "matrices, here 1: 8.125 MiB each, or 32 MiB on Hopper and Blackwell, "
        "unless CUBLAS_WORKSPACE_CONFIG sets another size.\n"
        "Not counted: the CUDA context and libraries, usually 256.00 MiB to 1.50 GiB.\n"
        "It fits into 24.00 GiB.\n"
        "Not known:\n"
        "  1 convolutions: cuDNN chooses an algorithm when it runs, and takes a workspace for it that may be large.\n"
        "  Tensors that the program leaves on the host, such as a data set, are counted as if they were on the GPU, "
        "and memory that is allocated past torch's CPU allocator is not counted.\n"
        "  Where the GPU lays its segments breaks ties, which moved the peak of one run in ten by 3.5 %.\n"
        "  Sizes of arguments were not recorded, so buffers of reductions are not counted: record with --shapes.\n"
        "  7 events of the recording were lost, so this is too low."
    )
    values = json.loads(json.dumps(prediction.to_json()))
    assert values["peak_reserved"] == {"low": 20 * MIB, "high": 52 * MIB}
    assert (values["capacity"], values["fits"]) == (24 << 30, "yes")
    assert values["unknown"] == list(prediction.unknown)


def test_what_it_cannot_be_made_from(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"empty.reel holds no memory events.*'torchreel record --memory --shapes'"):
        predict(CpuProgram().write(tmp_path / "empty.reel"))
    program = CpuProgram()
    program.alloc(512, device="cuda:0")
    with pytest.raises(OptionError, match="holds the memory of a GPU already"):
        predict(program.write(tmp_path / "gpu.reel"))
    with pytest.raises(NotAReelError):
        predict(tmp_path / "nothing.reel")
    program = CpuProgram()
    program.alloc(512)
    with pytest.raises(OptionError, match="'new' is not a version of torch"):
        predict(program.write(tmp_path / "version.reel"), torch_version="new")


def test_a_reel_of_nonsense_is_no_crash(tmp_path: Path) -> None:
    program = CpuProgram()
    program.alloc(-5)
    program.alloc(0)
    program.op("aten::sum", 512, dims=[None, "x"], strides=[{}], dtypes=[], scalars=["", "[a]"])
    program.op("aten::sum", 512, dims=[[2, 3], []], strides=[[3, 1], []], scalars=["", "[7]"])
    program.op("aten::_index_put_impl_", 512, dims=[[1], ["a", [None]]], scalars=["", "", "", "True"])
    program.ops[-1]["inputs"] = 999
    reel = program.write(tmp_path / "run.reel", torch_version=None)
    try:
        assert predict(reel).peak_reserved.low >= 0
    except TorchreelError as error:
        assert str(error).endswith(".")


@pytest.mark.parametrize("mode", [["forward"], pytest.param(["train"], marks=pytest.mark.long), ["train", "--amp"]])
def test_the_transformer_runs(tmp_path: Path, mode: list[str]) -> None:
    reel = record(tmp_path / "run.reel", "lm4.py", "--context", "2", "--steps", "1", "--mode", *mode)
    prediction = predict(reel, torch_version="2.6")
    parameters = 4 * (2 * 10_000 * 512 + 4 * (4 * 512 * 512 + 3 * 512 * 1344 + 2 * 512) + 512)
    assert prediction.peak_allocated.low > parameters * (3 if "train" in mode else 1)
    workspaces = next(item for item in prediction.gpu_only if item.name == "cuBLAS workspaces")
    assert workspaces.low == SMALL_WORKSPACE * (2 if "train" in mode else 1)


def test_the_linear_layer_runs(tmp_path: Path) -> None:
    prediction = predict(record(tmp_path / "run.reel", "linear.py", "--scale", "0.05"), torch_version="2.4")
    # A weight of 2,500 x 500 with its bias, and two inputs of 250 x 500 and outputs of 250 x 2,500 at once.
    tensors = 4 * (2500 * 500 + 2500 + 2 * (250 * 500 + 250 * 2500))
    assert tensors <= prediction.peak_allocated.low - SMALL_WORKSPACE <= tensors + 2 * MIB


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("lm4_fwd_ctx100", ["--context", "100", "--steps", "2"]),
        ("lm4_train_ctx100", ["--context", "100", "--mode", "train"]),
    ],
)
def test_a_recorded_gpu_run_lies_within_its_prediction(tmp_path: Path, name: str, arguments: list[str]) -> None:
    from torchreel.allocator import simulate

    (recorded,) = simulate(snapshot(name)).devices.values()
    prediction = predict(record(tmp_path / "run.reel", "lm4.py", *arguments), torch_version="2.6")
    # The GPU was older than Hopper: the low end is meant to be it, the high end leaves room for others.
    assert prediction.peak_reserved.low == recorded.peak_reserved
    assert prediction.peak_allocated.low == pytest.approx(recorded.peak_allocated, rel=0.001)
    assert prediction.peak_reserved.high < 1.1 * recorded.peak_reserved
