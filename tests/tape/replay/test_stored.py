"""Tensors from the bytes of a file."""

from __future__ import annotations

import struct

import pytest
import torch

from tests.program.small import small_data, small_program
from torchreel.errors import ReplayError
from torchreel.program.dtypes import ITEM_BYTES
from torchreel.program.model import Slot
from torchreel.tape.replay.stored import StoredTensors


def test_the_dtypes_are_those_of_torch() -> None:
    found = [value for value in vars(torch).values() if isinstance(value, torch.dtype)]
    assert {str(dtype).removeprefix("torch."): dtype.itemsize for dtype in found} == ITEM_BYTES


def stored(*slots: Slot, data: dict[int, bytes], constants: dict[int, bytes] | None = None) -> list[torch.Tensor]:
    program = small_program()
    program.slots = list(slots)
    program.constants = constants or {}
    tensors = StoredTensors(program, data)
    made = [tensors.tensor(index) for index in range(len(slots))]
    return [tensor for tensor in made if tensor is not None]


def test_views_of_one_storage_share_it() -> None:
    whole, part = stored(
        Slot(1, "float32", (3, 3), (3, 1), role="parameter", requires_grad=True),
        Slot(1, "float32", (3,), (3,), 2, role="captured"),
        data=small_data(),
    )
    assert whole.requires_grad and whole.is_leaf and not part.requires_grad
    assert torch.equal(whole, torch.arange(9.0).view(3, 3))
    assert torch.equal(part, torch.tensor([2.0, 5.0, 8.0]))
    part[0] = 70.0
    assert whole[0, 2] == 70.0


def test_the_bytes_are_copied() -> None:
    data = small_data()
    before = dict(data)
    (tensor,) = stored(Slot(1, "float32", (9,), (1,), role="captured"), data=data)
    tensor.zero_()
    assert data == before


def test_bits_that_are_not_in_the_bytes() -> None:
    content = struct.pack("<4f", 1, 2, 3, 4)
    plain, conjugate, negative = stored(
        Slot(0, "complex64", (2,), (1,), role="captured"),
        Slot(0, "complex64", (2,), (1,), role="captured", conjugate=True),
        Slot(0, "float32", (2,), (2,), 1, role="captured", negative=True),
        data={0: content},
    )
    assert plain.tolist() == [1 + 2j, 3 + 4j]
    assert conjugate.is_conj() and conjugate.tolist() == [1 - 2j, 3 - 4j]
    assert negative.is_neg() and negative.tolist() == [-2.0, -4.0]


@pytest.mark.parametrize("dtype", [name for name in ITEM_BYTES if not name.startswith(("q", "bits"))])
def test_every_dtype(dtype: str) -> None:
    (tensor,) = stored(Slot(0, dtype, (2,), (2,), role="captured"), data={0: bytes(range(3 * ITEM_BYTES[dtype]))})
    assert str(tensor.dtype) == f"torch.{dtype}" and tensor.stride() == (2,)


def test_empty_tensors() -> None:
    tensors = stored(
        Slot(0, "float32", (0,), (1,), role="captured"), Slot(1, "int64", (3, 0), (1, 1), role="captured"),
        data={0: b"", 1: bytes(8)},
    )  # fmt: skip
    assert [tuple(tensor.shape) for tensor in tensors] == [(0,), (3, 0)]


@pytest.mark.parametrize("strides", [(3, 1), (1, 2), (0, 1), (1, 0), (8, 2)])
def test_constants_have_the_strides_of_their_slot(strides: tuple[int, int]) -> None:
    values = torch.arange(6).view(2, 3)
    if strides[0] == 0:
        values = values[:1].expand(2, 3)
    if strides[1] == 0:
        values = values[:, :1].expand(2, 3)
    content = values.contiguous().numpy().tobytes()
    (tensor,) = stored(Slot(0, "int64", (2, 3), strides, role="constant"), data={}, constants={0: content})
    assert torch.equal(tensor, values) and tensor.stride() == strides


def test_what_a_file_has_no_bytes_of() -> None:
    sparse = Slot(0, "float32", (2,), (), role="captured", layout="sparse_coo")
    quantized = Slot(0, "qint8", (2,), (1,), role="captured")
    absent = Slot(5, "float32", (2,), (1,), role="captured")
    assert stored(sparse, quantized, absent, data=small_data()) == []


def test_a_device_that_is_not_here() -> None:
    with pytest.raises(ReplayError) as caught:
        stored(Slot(0, "float32", (2,), (1,), device="cuda:1", role="captured"), data=small_data())
    assert str(caught.value) == (
        "The tape has tensors on cuda:1, which this machine does not have: replay it where there is one."
    )
