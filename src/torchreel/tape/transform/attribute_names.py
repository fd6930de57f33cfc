"""Where in a module the tensors of a tape go: `model.layers.0.weight` stays what it is, as far as a module allows."""

from __future__ import annotations

import re

import torch


class AttributeNames:
    """Gives each name a path of attributes: none is given twice, and none leads through another one's tensor."""

    def __init__(self) -> None:
        self._tensors: set[str] = set()
        self._modules: set[str] = set()

    def unique(self, name: str) -> str:
        parts = [_part(part) for part in name.split(".")]
        # The gradient of model.weight, which is a tensor, becomes model.weight_grad.
        while len(parts) > 1 and any(".".join(parts[:count]) in self._tensors for count in range(1, len(parts))):
            parts[-2:] = [f"{parts[-2]}_{parts[-1]}"]
        path, count = ".".join(parts), 0
        while path in self._tensors or path in self._modules:
            count += 1
            path = f"{'.'.join(parts)}_{count}"
        self._tensors.add(path)
        self._modules.update(".".join(parts[:count]) for count in range(1, len(parts)))
        return path


def _part(text: str) -> str:
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "value"
    return f"{word}_" if hasattr(torch.fx.GraphModule, word) or word in ("graph", "training") else word
