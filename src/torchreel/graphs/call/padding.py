"""`pad_to=`: inputs of many sizes are padded to few, for which there are graphs, and outputs are cut back.

The function must be one for which that is right: positions along the padded dimension are treated each by itself, or
those beyond the end are masked. A sum over the padded dimension is not changed by zeros; a mean, a softmax or a batch
norm is. Only the user can know, and by giving `pad_to` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchreel._torch.tensors import version_of
from torchreel.graphs.call.entry import Graphed
from torchreel.tape.structure import Structure

_MANY_NOTES = 32


class UnpaddedError(Exception):
    """Why a call cannot be padded, as a sentence."""


class Padded(Graphed):
    """A graphed function whose inputs are padded before each call. To pad and to cut are eager ops, with gradients."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = Structure((args, kwargs))
        try:
            sizes = padded_sizes(self._options.pad_to, given.tensors)
        except UnpaddedError as why:
            self._remark(str(why))
            self._say("", str(why))
            return self._run(args, kwargs)
        if not sizes:
            return super().__call__(*args, **kwargs)
        padded = [_padded(tensor, sizes) for tensor in given.tensors]
        versions = [version_of(tensor) for tensor in padded]
        padded_args, padded_kwargs = given.rebuild(padded)
        results = Structure(super().__call__(*padded_args, **padded_kwargs))
        for tensor, whole, version in zip(given.tensors, padded, versions, strict=True):
            if tensor is not whole and version_of(whole) != version:
                tensor.copy_(_cut(whole, sizes))
        own = {id(whole): tensor for tensor, whole in zip(given.tensors, padded, strict=True)}
        return results.rebuild([own[id(one)] if id(one) in own else _cut(one, sizes) for one in results.tensors])

    def _remark(self, sentence: str) -> None:
        if sentence in self.remarks or len(self.remarks) < _MANY_NOTES:
            self.remarks[sentence] = self.remarks.get(sentence, 0) + 1
        self._warn("padding", f"A call of {self._name} runs eagerly, without padding. {sentence}")


# For a dimension: the size that tensors have, and the one that they get.
Sizes = dict[int, tuple[int, int]]


def padded_sizes(pad_to: Mapping[int, int | Sequence[int]], tensors: Sequence[torch.Tensor]) -> Sizes:
    """Dimensions whose size changes. Raises UnpaddedError."""
    found: Sizes = {}
    for dimension, allowed in pad_to.items():
        # A size of one is broadcast along the others, and stays.
        have = {tensor.shape[dimension] for tensor in tensors if _has(tensor, dimension)}
        sizes = sorted(have - {1}) or sorted(have)
        if not sizes:
            continue
        if len(sizes) > 1:
            raise UnpaddedError(
                f"Its inputs have sizes {', '.join(map(str, sizes))} in dimension {dimension}: to be padded, they must "
                "agree."
            )
        wanted = _next(allowed, sizes[0])
        if wanted is None:
            raise UnpaddedError(
                f"Size {sizes[0]} of dimension {dimension} is beyond the largest in pad_to={dict(pad_to)}."
            )
        if wanted != sizes[0]:
            found[dimension] = (sizes[0], wanted)
    return found


def _next(allowed: int | Sequence[int], size: int) -> int | None:
    if isinstance(allowed, int):
        return -(-size // allowed) * allowed
    return min((each for each in allowed if each >= size), default=None)


def _has(tensor: torch.Tensor, dimension: int) -> bool:
    return bool(tensor.layout == torch.strided) and -tensor.dim() <= dimension < tensor.dim()


def _padded(tensor: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    behind = [0] * tensor.dim()
    for dimension, (size, wanted) in sizes.items():
        if _has(tensor, dimension) and tensor.shape[dimension] == size:
            behind[dimension] = wanted - size
    if not any(behind):
        return tensor
    pairs = [each for count in reversed(behind) for each in (0, count)]
    inference = torch.is_inference_mode_enabled()
    # Only a tensor that is no inference tensor tells whether it was written.
    with torch.inference_mode(False), torch.set_grad_enabled(torch.is_grad_enabled() and not inference):
        return torch.nn.functional.pad(tensor, pairs)


def _cut(tensor: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    part = tensor
    for dimension, (size, wanted) in sizes.items():
        if _has(part, dimension) and part.shape[dimension] == wanted:
            part = part.narrow(dimension, 0, size)
    # Where the function gives dense memory, so does this: or a view() after it would fail.
    return part.contiguous() if part is not tensor and tensor.is_contiguous() else part
