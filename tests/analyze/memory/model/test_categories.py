"""Categories, against what PyTorch itself says of the tensors, and in snapshots, which have no calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analyze.memory.conftest import Programs
from tests.analyze.memory.programs import CATEGORY_CASES
from tests.analyze.memory.traces import BACKWARD_CALL, MODULE_CALL, SITE, STEP_CALL, Trace, user
from tests.snapshots import snapshot
from torchreel.analyze.memory.holders import holders
from torchreel.analyze.memory.model.categories import CATEGORIES
from torchreel.analyze.memory.model.device import DeviceMemory, device_memories
from torchreel.ingest import open_source

CASES = [f"{name}-{when}" for name in CATEGORY_CASES for when in ("inside", "before")]


def at_the_end(memory: DeviceMemory) -> dict[str, int]:
    rows = holders(memory, "category", memory.history.events).to_pylist()
    return {row["name"]: row["bytes"] for row in rows}


@pytest.mark.parametrize("name", CASES)
def test_parameters_gradients_and_optimizer_state_are_exact(programs: Programs, name: str) -> None:
    found = at_the_end(programs.memory(name))
    truth = programs.truths[name]
    assert {category: found.get(category, 0) for category in truth} == truth


def test_buffers_are_no_parameters(programs: Programs) -> None:
    # the buffer of Net, and BatchNorm's running_mean, running_var and num_batches_tracked
    assert at_the_end(programs.memory("batch-norm-inside"))["unknown"] == 4 * (64 + 64 + 64) + 8
    assert at_the_end(programs.memory("batch-norm-before"))["unknown"] == 4 * (64 + 64 + 64) + 8


def test_input_activation_and_temporary(programs: Programs) -> None:
    memory = programs.memory("one-step")
    found = at_the_end(memory)
    truth = programs.truths["one-step"]
    assert {category: found[category] for category in truth} == truth
    # the block that was freed again at the end
    blocks = memory.history.blocks
    (temporary,) = [n for n in range(len(blocks)) if blocks.size[n] == 4 * 4096]
    assert CATEGORIES[memory.categories[temporary]] in ("temporary", "unknown")


def test_recomputed_activations_live_within_the_backward_pass(programs: Programs) -> None:
    for name in ("checkpoint-inside", "checkpoint-reentrant-inside"):
        memory = programs.memory(name)
        sizes = memory.history.blocks.size
        # The output of ReLU is kept for the backward pass: once recomputed in it, without checkpoint once in forward.
        recomputed = (sizes == 16 * 128 * 4) & (memory.categories == CATEGORIES.index("activation"))
        assert recomputed.sum() >= 4, name


def test_inference_keeps_no_activation(programs: Programs) -> None:
    memory = programs.memory("inference-inside")
    peak = holders(memory, "category").to_pylist()
    assert {row["name"] for row in peak} <= {"parameter", "temporary", "activation", "input", "unknown"}
    activations = sum(row["bytes"] for row in peak if row["name"] == "activation")
    assert activations <= 16 * 10 * 4  # the output


PARAMETER = (f"{SITE}/torch/nn/modules/linear.py", 100, "__init__")
MOVED = (f"{SITE}/torch/nn/modules/module.py", 900, "convert")
LOADER = (f"{SITE}/torch/utils/data/dataloader.py", 700, "__next__")
FORWARD = (user(5, "forward", "/home/user/model.py"), MODULE_CALL, user(30))
BACKWARD = (BACKWARD_CALL, user(31))
STEP = ((f"{SITE}/torch/optim/adam.py", 170, "step"), STEP_CALL, user(32))
OWN_INIT = (user(3, "__init__", "/home/user/model.py"), user(20))


def training(trace: Trace, steps: int = 3) -> dict[str, int]:
    """A training as a snapshot shows it: sizes are the names of what they are."""
    sizes = {"parameter": 1, "own parameter": 2, "moved": 4, "state": 8, "gradient": 16, "activation": 32, "loss": 64}
    sizes |= {"input": 128, "loaded": 256, "temporary": 512}
    trace.alloc(1 << 20, sizes["parameter"], PARAMETER, user(20))
    trace.alloc(2 << 20, sizes["own parameter"], *OWN_INIT)
    trace.alloc(3 << 20, sizes["moved"], MOVED, user(21))
    for step in range(steps):
        trace.alloc(4 << 20, sizes["input"], user(29))
        trace.alloc(5 << 20, sizes["loaded"], LOADER, user(29))
        trace.alloc(6 << 20, sizes["temporary"], *FORWARD)
        trace.alloc(7 << 20, sizes["activation"], *FORWARD)
        trace.free(6 << 20, sizes["temporary"])
        trace.alloc(8 << 20, sizes["loss"], user(30, "loss"))
        trace.alloc(9 << 20, sizes["temporary"], *BACKWARD)
        trace.alloc(10 << 20, sizes["gradient"], *BACKWARD)
        trace.free(9 << 20, sizes["temporary"])
        trace.free(7 << 20, sizes["activation"])
        trace.free(8 << 20, sizes["loss"])
        trace.alloc(11 << 20, sizes["temporary"], *STEP)
        if step == 0:
            trace.alloc(12 << 20, sizes["state"], *STEP)
        trace.free(11 << 20, sizes["temporary"])
        trace.alloc(13 << 20, 1024, user(33))
        trace.free(13 << 20, 1024)
        trace.free(10 << 20, sizes["gradient"])
        trace.free(4 << 20, sizes["input"])
        trace.free(5 << 20, sizes["loaded"])
    return sizes


def test_a_snapshot_of_a_training(tmp_path: Path) -> None:
    trace = Trace()
    sizes = training(trace)
    memory = trace.memory(tmp_path)
    expected = {
        **dict.fromkeys(("parameter", "own parameter", "moved"), "parameter"),
        **{"state": "optimizer_state", "gradient": "gradient", "activation": "activation", "loss": "activation"},
        **{"input": "input", "loaded": "input", "temporary": "temporary"},
    }
    for name, size in sizes.items():
        found = {CATEGORIES[c] for c in memory.categories[memory.history.blocks.size == size]}
        assert found == {expected[name]}, name


def test_a_snapshot_without_times(tmp_path: Path) -> None:
    timed, untimed = Trace(), Trace(times=False)
    training(timed)
    training(untimed)
    (tmp_path / "a").mkdir()
    first, second = timed.memory(tmp_path / "a"), untimed.memory(tmp_path / "b")
    assert first.categories.tolist() == second.categories.tolist()


def test_a_thread_without_python_is_the_backward_pass(tmp_path: Path) -> None:
    trace = Trace()
    trace.alloc(1, 32, *FORWARD)
    trace.event("alloc", 2, 16, ())
    trace.free(1, 32)
    trace.alloc(3, 8, *STEP)
    trace.alloc(4, 1, user(29))
    memory = trace.memory(tmp_path)
    by_size = dict(zip(memory.history.blocks.size.tolist(), memory.categories.tolist(), strict=True))
    assert {size: CATEGORIES[code] for size, code in by_size.items()} == {
        32: "activation",
        16: "gradient",
        8: "optimizer_state",
        1: "unknown",
    }


def test_what_lived_when_memory_ran_out_was_kept_for_the_backward_pass() -> None:
    with open_source(snapshot("three_gpus_expandable_oom")) as reel:
        failed = next(memory for memory in device_memories(reel) if memory.history.ooms)
        rows = {row["name"]: row["percent"] for row in holders(failed, "category").to_pylist()}
    assert rows["activation"] > 99


def test_real_trainings() -> None:
    # 4 layers, 22,696,448 parameters of 4 bytes each. Its optimizer makes its state and, without changing the old
    # ones in place, the new parameters; so in the second snapshot all three are known as its state.
    weights = 90_785_792
    with open_source(snapshot("lm4_fwd_ctx100")) as reel:
        (memory,) = device_memories(reel)
        assert at_the_end(memory)["parameter"] == weights
    with open_source(snapshot("lm4_train_ctx100")) as reel:
        (memory,) = device_memories(reel)
        assert at_the_end(memory)["optimizer_state"] == 3 * weights
        assert at_the_end(memory)["gradient"] == weights
