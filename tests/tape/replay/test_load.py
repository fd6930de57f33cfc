"""A tape that is saved and loaded: it owns its state, and replays without the code it came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.alone import run_alone
from tests.tape.steps import bits, inputs, training_step
from torchreel.errors import CorruptTapeError, NotATapeError, ReplayError
from torchreel.program.file.file import read_tape, write_tape
from torchreel.program.model import Op, Ref
from torchreel.tape.capture.trace import trace
from torchreel.tape.replay.check import check
from torchreel.tape.replay.load import load_tape


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "step.tape"


def test_a_loaded_tape_goes_on_as_the_program_does(path: Path) -> None:
    model, step = training_step()
    tape = trace(step, *inputs())
    tape.save(path)
    loaded = load_tape(path)
    assert sorted(loaded.state) == sorted(tape.state)
    for seed in range(5):
        assert bits(loaded.replay(*inputs(seed))) == bits(step(*inputs(seed)))
    for name, tensor in tape.state.items():
        assert bits(loaded.state[name]) == bits(tensor), name
    assert any(bits(parameter) == bits(loaded.state[name]) for name in loaded.state for parameter in model.parameters())


def test_it_owns_its_state(path: Path) -> None:
    _, step = training_step()
    tape = trace(step, *inputs())
    tape.save(path)
    before = {name: bits(tensor) for name, tensor in tape.state.items()}
    content = path.read_bytes()
    loaded = load_tape(path)
    loaded.replay(*inputs())
    assert {name: bits(tensor) for name, tensor in tape.state.items()} == before
    assert path.read_bytes() == content


def test_another_process_without_the_code(path: Path) -> None:
    _, step = training_step(dropout=0.5)
    tape = trace(step, *inputs())
    tape.save(path)
    torch.manual_seed(3)
    expected = bits(step(*inputs(2)))
    torch.save(inputs(2), path.with_name("inputs.pt"))
    script = (
        "import torch, torchreel; tape = torchreel.load_tape('step.tape'); torch.manual_seed(3); "
        "print(tape.replay(*torch.load('inputs.pt')).numpy().tobytes().hex())"
    )
    assert run_alone(script, directory=path.parent).strip() == expected.hex()


def test_a_loaded_tape_is_saved_as_it_is_now(path: Path) -> None:
    _, step = training_step()
    trace(step, *inputs()).save(path)
    loaded = load_tape(path)
    loaded.replay(*inputs())
    loaded.save(path)
    again = load_tape(path)
    assert again.program == loaded.program
    assert {name: bits(tensor) for name, tensor in again.state.items()} == {
        name: bits(tensor) for name, tensor in loaded.state.items()
    }
    assert bits(again.replay(*inputs())) == bits(loaded.replay(*inputs()))


def test_tied_weights_stay_tied(path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(4, 4))

    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            weight[1].mul_(2.0)
            return x @ weight.t() + weight.view(-1)[:4]

    tape = trace(step, torch.ones(2, 4))
    tape.save(path)
    loaded = load_tape(path)
    assert bits(loaded.replay(torch.ones(2, 4))) == bits(step(torch.ones(2, 4)))


def test_without_data_it_can_be_read_but_not_replayed(path: Path) -> None:
    _, step = training_step()
    tape = trace(step, *inputs())
    tape.save(path, data=False)
    loaded = load_tape(path)
    assert loaded.program.ops == tape.program.ops
    assert "cross_entropy" in loaded.python()
    with pytest.raises(ReplayError) as caught:
        loaded.replay(*inputs())
    assert str(caught.value) == (
        "The tape was kept without its data (model.0.weight is missing), so it can be read but not replayed: save it "
        "with data=True."
    )


def test_a_function_without_state_needs_no_data(path: Path) -> None:
    tape = trace(lambda x: (x * 2).relu(), torch.ones(3))
    tape.save(path, data=False)
    assert load_tape(path).replay(-torch.ones(3)).tolist() == [0, 0, 0]


def test_ops_that_have_changed_are_told_and_refused(path: Path) -> None:
    tape = trace(lambda x: x.relu() + 1, torch.ones(3))
    tape.save(path)
    file = read_tape(path)
    program = file.program
    program.schemas["aten::relu"] = "aten::relu(Tensor self, bool old) -> Tensor"
    program.ops.append(Op("aten::gone", [Ref(0)], []))
    program.provenance.torch = "2.12.0"
    write_tape(path, program, dict(file.data or {}))
    with pytest.warns(UserWarning, match="This tape was made by") as said:
        loaded = load_tape(path)
    sentence = (
        f"This tape was made by torch 2.12.0, and under torch {torch.__version__} it cannot be replayed, because ops "
        "have changed: aten::gone is not there; aten::relu was aten::relu(Tensor self, bool old) -> Tensor and is "
        "aten::relu(Tensor self) -> Tensor."
    )
    assert [str(each.message) for each in said] == [sentence]
    with pytest.raises(ReplayError) as caught:
        loaded.replay(torch.ones(3))
    assert str(caught.value) == sentence


def test_nothing_is_said_of_a_tape_of_this_torch(path: Path, recwarn: pytest.WarningsRecorder) -> None:
    _, step = training_step()
    trace(step, *inputs()).save(path)
    recwarn.clear()
    load_tape(path)
    assert list(recwarn) == []


def test_what_is_no_tape(path: Path) -> None:
    with pytest.raises(NotATapeError):
        load_tape(path)


def test_a_flipped_bit_in_the_data(path: Path) -> None:
    _, step = training_step()
    trace(step, *inputs()).save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptTapeError, match="is not what was written"):
        load_tape(path)


def checked_twice(path: Path, function: Callable[..., object], *arguments: torch.Tensor) -> None:
    """A tape of the function, saved and loaded, gives the recorded bits, and gives them again."""
    trace(function, *arguments, hashes=True).save(path)
    loaded = load_tape(path)
    for _ in range(2):
        result = check(loaded)
        assert result.ok, str(result)


def test_generators_begin_as_they_did(path: Path) -> None:
    own = torch.Generator().manual_seed(3)
    checked_twice(path, lambda x: x + torch.randn(3, generator=own) + torch.rand(3), torch.ones(3))
    checked_twice(path, lambda: torch.rand(3))


def test_state_that_a_replay_resizes(path: Path) -> None:
    buffer = torch.ones(3)

    def step(x: torch.Tensor) -> torch.Tensor:
        return buffer.resize_(6).fill_(2)[:3] * x

    checked_twice(path, step, torch.ones(3))


def test_room_to_work_in_is_not_compared(path: Path) -> None:
    lstm = torch.nn.LSTM(4, 5, 2)
    checked_twice(path, lambda x: lstm(x)[0], torch.randn(3, 2, 4))


def test_numbers_constants_and_bits_of_tensors(path: Path) -> None:
    weight = torch.randn(3, dtype=torch.complex64).conj()
    checked_twice(
        path, lambda x: (x * weight)[torch.tensor([0, 2])] * 2.5 + (1 + 2j), torch.randn(3).to(torch.complex64)
    )


def test_inputs_that_share_memory(path: Path) -> None:
    base = torch.randn(10)
    checked_twice(path, lambda x, y: x.add_(1) * y, base[:5], base[3:8])


@pytest.mark.parametrize("tensor", ["sparse", "quantized"])
def test_state_that_a_file_has_no_place_for(path: Path, tensor: str) -> None:
    state = {
        "sparse": torch.eye(3).to_sparse(),
        "quantized": torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8),
    }[tensor]

    def step(x: torch.Tensor) -> torch.Tensor:
        return x + state.to_dense() if state.is_sparse else x + state.dequantize()

    tape = trace(step, torch.ones(3, 3))
    with pytest.warns(UserWarning, match="can be read but not replayed, because a file has no place for .*: state\\.$"):
        tape.save(path)
    with pytest.raises(ReplayError, match=r"^The tape begins with state, and a file has no place for"):
        load_tape(path).replay(torch.ones(3, 3))
