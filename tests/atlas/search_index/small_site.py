"""A small tree with every kind of word, made by hand, and its index."""

from __future__ import annotations

from pathlib import Path

from tests.atlas.made import made, symbol
from torchreel.atlas.model import Parsed, Use
from torchreel.atlas.search_index import FileTitle, entries, write

TREE: dict[str, Parsed] = {
    "torch/nn/functional.py": made(
        [symbol("relu", "function", 1760, doc="Apply the rectified linear unit."), symbol("_relu_", "function", 1790)],
        {Use("Tensor", path="torch.Tensor"): [3]},
        doc="Functional interface.",
    ),
    "torch/nn/modules/activation.py": made(
        [symbol("ReLU", "class", 104), symbol("forward", "method", 110, "ReLU"), symbol("ReLU6", "class", 300)],
        {"relu": [111], "inplace": [112]},
    ),
    "torch/amp/grad_scaler.py": made(
        [
            symbol("GradScaler", "class", 53),
            symbol("OptState", "class", 40),
            symbol("scale", "method", 60, "GradScaler"),
        ],
        {"Tensor": [60]},
    ),
    "torch/optim/_functional.py": made([symbol("adam", "function", 9)], {"relu": [12]}),
    "torch/fx/__init__.py": made(doc="A toolkit to transform programs: graphs, and what runs them."),
    "docs/fake_tensor.rst": made([symbol("Fake Tensors und Größe", "heading", 4)], language="rst"),
    "src/proto/__proto__.js": made([symbol("constructor", "function", 2), symbol("toString", "function", 3)]),
    "src/native/Relu.cpp": made(
        [
            symbol("at", "namespace", 3),
            symbol("relu_kernel", "function", 9, "at"),
            symbol("RELU", "macro", 5),
            symbol("operator<<", "function", 7),
        ],
        language="c++",
    ),
    "src/größe/𐐨y.py": made([symbol("größe", "function", 2), symbol("𐐨y𐐨y", "function", 3)]),
    "src/<img src=x onerror=alert(1)>\"'&.py": made([symbol("hostile", "function", 2)], doc="</script><b>hostile</b>"),
}
TITLES = {
    number: FileTitle(path.rpartition("/")[2], f"files/{number}.html", path, 400 if "nn/f" in path else 1)
    for number, path in enumerate(TREE)
}


def write_small(site: Path) -> Path:
    write(site, TITLES, {number: entries(path, parsed) for number, (path, parsed) in enumerate(TREE.items())})
    return site
