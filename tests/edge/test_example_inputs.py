"""Inputs from words, and from what a model's file says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchreel.edge.example_inputs import check_count, declared_inputs, given_inputs, tensor_words
from torchreel.edge.formats.adapter import InputSpec
from torchreel.errors import EdgeError, OptionError

MODEL = Path("model.onnx")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1x3x8x8:float32", "1x3x8x8:float32"),
        ("1x3", "1x3:float32"),
        ("7", "7:float32"),
        (":int64", ":int64"),
        ("0x4:bool", "0x4:bool"),
        ("2:bfloat16", "2:bfloat16"),
        ("2:float8_e4m3fn", "2:float8_e4m3fn"),
        ("2:complex64:0-5", "2:complex64"),
        ("2::ones", "2:float32"),
        (" 2x3 ", "2x3:float32"),
    ],
)
def test_sizes_and_dtypes(text: str, words: str) -> None:
    assert tensor_words(given_inputs([text])[0]) == words


def test_fills() -> None:
    zeros, ones, indices, some, uniform, default = given_inputs(
        ["9", "4:float32:ones", "1000:int64:3-7", "1000:int8:random", "1000:float32:-2-2", "5:int64"]
    )
    assert len(set(zeros.tolist())) == 9
    assert ones.tolist() == [1, 1, 1, 1]
    assert set(indices.tolist()) == {3, 4, 5, 6}
    assert set(some.tolist()) == {0, 1}
    assert -2 <= uniform.min() < -1 and 1 < uniform.max() <= 2
    assert default.tolist() == [0, 0, 0, 0, 0]


def test_the_numbers_are_the_same_each_time() -> None:
    torch.manual_seed(3)
    first = given_inputs(["2x3", "2x3"])
    state = torch.get_rng_state()
    second = given_inputs(["2x3", "2x3"])
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2y3", "is no input: write sizes, a dtype and how to fill it, as 1x3x224x224:float32 or 1x16:int64:0-1000."),
        ("", "is no input: write sizes, a dtype and how to fill it, as 1x3x224x224:float32 or 1x16:int64:0-1000."),
        (
            "1:a:b:c",
            "is no input: write sizes, a dtype and how to fill it, as 1x3x224x224:float32 or 1x16:int64:0-1000.",
        ),
        ("2:float33", "there is no dtype float33: write one as torch names it, such as float32."),
        ("2:nn", "there is no dtype nn: write one as torch names it, such as float32."),
        ("2:a b", "there is no dtype a b: write one as torch names it, such as float32."),
        ("2:int64:many", "there is no fill many: write random, zeros, ones, or a range as 0-1000."),
        ("2:int64:5-5", "there is no number from 5 up to, and without, 5."),
        ("99999999x99999999", "takes more than a quarter of this machine's memory: give a smaller one."),
        ("2:quint8", "there is no dtype quint8: write one as torch names it, such as float32."),
        ("2:uint8:0-99999999999999999999", "there is no fill 0-99999999999999999999: write random"),
        (f"{'9' * 5000}", "is no input"),
    ],
)
def test_what_is_no_input(text: str, sentence: str) -> None:
    with pytest.raises(OptionError) as error:
        given_inputs([text])
    assert str(error.value).startswith(f"--input {text!r}") and sentence in str(error.value)


def test_inputs_that_the_file_declares() -> None:
    declared = (InputSpec("x", (1, 3), "float32"), InputSpec("index", (), "int64"))
    assert [tensor_words(tensor) for tensor in declared_inputs(MODEL, declared)] == ["1x3:float32", ":int64"]


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        (
            None,
            "model.onnx does not say what its inputs are: give --input once for each, such as "
            "--input 1x3x224x224:float32.",
        ),
        (
            (InputSpec("x", (1, None), "float32"), InputSpec("y", None, None), InputSpec("z", (2,), "int64")),
            "model.onnx leaves open what its inputs are: give --input 1x?:float32 --input ?:float32 --input 2:int64, "
            "with a number in place of each ?.",
        ),
    ],
)
def test_inputs_that_the_file_leaves_open(declared: tuple[InputSpec, ...] | None, sentence: str) -> None:
    with pytest.raises(EdgeError) as error:
        declared_inputs(MODEL, declared)
    assert str(error.value) == sentence


def test_as_many_as_the_file_declares() -> None:
    declared = (InputSpec("x", (1, None), "float32"), InputSpec("y", (2,), "int64"))
    check_count(MODEL, given_inputs(["1", "1"]), declared)
    check_count(MODEL, given_inputs(["1"]), None)
    with pytest.raises(OptionError) as error:
        check_count(MODEL, given_inputs(["1"]), declared)
    assert str(error.value) == (
        "model.onnx takes 2 inputs (x as 1x?:float32, y as 2:int64), and --input was given once: give it once for each."
    )
