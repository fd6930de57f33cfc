"""Inputs to run a deployed model on, from words like 1x3x224x224:float32, or from what its file says of them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from torchreel.edge.formats.adapter import InputSpec
from torchreel.errors import EdgeError, OptionError, first_line

_SIZES = re.compile(r"(?:\d{1,12}(?:x\d{1,12})*)?")
_RANGE = re.compile(r"(-?\d{1,18})-(-?\d{1,18})")
_EXAMPLE = "1x3x224x224:float32"
_FORM = f"write sizes, a dtype and how to fill it, as {_EXAMPLE} or 1x16:int64:0-1000"


@dataclass(frozen=True)
class _Fill:
    """The numbers of a tensor: random ones, all the same, or random ones from low up to, and without, high."""

    random: bool = True
    low: int | None = None
    high: int | None = None

    def tensor(self, sizes: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        if not self.random:
            return torch.full(sizes, self.low or 0, dtype=dtype)
        if self.low is not None and self.high is not None:
            return self._between(sizes, dtype, generator)
        if dtype.is_floating_point or dtype.is_complex:
            wide = dtype if dtype.itemsize > 1 else torch.float32  # torch has no random numbers of eight bits
            return torch.randn(sizes, dtype=wide, generator=generator).to(dtype)
        return torch.randint(0, 2, sizes, dtype=dtype, generator=generator)

    def _between(self, sizes: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        low, high = self.low or 0, self.high or 0
        if dtype.is_floating_point or dtype.is_complex:
            return (low + (high - low) * torch.rand(sizes, generator=generator)).to(dtype)
        return torch.randint(low, high, sizes, generator=generator).to(dtype)


def given_inputs(texts: Sequence[str]) -> list[torch.Tensor]:
    """One tensor for each text: sizes, dtype and fill with colons between them, of which only sizes must be there.

    The numbers are the same each time.
    """
    generator = torch.Generator().manual_seed(0)
    return [_tensor(text, generator) for text in texts]


def declared_inputs(path: Path, declared: tuple[InputSpec, ...] | None) -> list[torch.Tensor]:
    """Tensors as the model's file declares them, if it says all that is needed."""
    if declared is None:
        raise EdgeError(
            f"{path} does not say what its inputs are: give --input once for each, such as --input {_EXAMPLE}."
        )
    if any(spec.sizes is None or spec.dtype is None or None in spec.sizes for spec in declared):
        words = " ".join(f"--input {described(spec)}" for spec in declared)
        raise EdgeError(f"{path} leaves open what its inputs are: give {words}, with a number in place of each ?.")
    return given_inputs([described(spec) for spec in declared])


def check_count(path: Path, given: Sequence[torch.Tensor], declared: tuple[InputSpec, ...] | None) -> None:
    """As many inputs as the file declares, if it does."""
    if declared is not None and len(given) != len(declared):
        takes = ", ".join(f"{spec.name} as {described(spec)}" for spec in declared) or "none"
        raise OptionError(
            f"{path} takes {_count(len(declared))} ({takes}), and --input was given {_times(len(given))}: give it "
            "once for each."
        )


def described(spec: InputSpec) -> str:
    """An input in the words of --input; ? stands for what the file leaves open."""
    sizes = "?" if spec.sizes is None else "x".join("?" if size is None else str(size) for size in spec.sizes)
    return f"{sizes}:{spec.dtype or 'float32'}"


def tensor_words(tensor: torch.Tensor) -> str:
    """A tensor in the words of --input."""
    return f"{'x'.join(map(str, tensor.shape))}:{str(tensor.dtype).removeprefix('torch.')}"


def _tensor(text: str, generator: torch.Generator) -> torch.Tensor:
    words = text.strip().split(":")
    if len(words) > 3 or not _SIZES.fullmatch(words[0]) or words == [""]:
        raise OptionError(f"--input {text!r} is no input: {_FORM}.")
    dtype = _dtype(text, words[1] if len(words) > 1 and words[1] else "float32")
    fill = _fill(text, words[2] if len(words) > 2 else "", dtype)
    sizes = [int(size) for size in words[0].split("x")] if words[0] else []
    if math.prod(sizes) * max(dtype.itemsize, 4) > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4:
        raise OptionError(f"--input {text!r} takes more than a quarter of this machine's memory: give a smaller one.")
    try:
        return fill.tensor(sizes, dtype, generator)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise OptionError(
            f"--input {text!r} cannot be made ({first_line(error)}): give another dtype or fill."
        ) from None


def _dtype(text: str, name: str) -> torch.dtype:
    of_numbers = not name.startswith(("quint", "qint", "bits"))  # these are made from others, with a scale
    dtype = getattr(torch, name, None) if of_numbers else None
    if not isinstance(dtype, torch.dtype):
        raise OptionError(f"--input {text!r}: there is no dtype {name}: write one as torch names it, such as float32.")
    return dtype


def _fill(text: str, word: str, dtype: torch.dtype) -> _Fill:
    if not word:  # zeros are indices into anything
        return _Fill(random=dtype.is_floating_point or dtype.is_complex)
    if word in ("zeros", "ones"):
        return _Fill(random=False, low=int(word == "ones"))
    if word == "random":
        return _Fill()
    found = _RANGE.fullmatch(word)
    if found is None:
        raise OptionError(
            f"--input {text!r}: there is no fill {word}: write random, zeros, ones, or a range as 0-1000."
        )
    low, high = int(found[1]), int(found[2])
    if low >= high:
        raise OptionError(f"--input {text!r}: there is no number from {low} up to, and without, {high}.")
    return _Fill(low=low, high=high)


def _count(number: int) -> str:
    return f"{number} input{'' if number == 1 else 's'}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
