"""Sites for tests: small trees, what a site holds, and what is the same in two of them."""

from __future__ import annotations

from pathlib import Path

from torchreel.atlas import tables
from torchreel.atlas.generate.build import Built, build
from torchreel.atlas.site.links import check

TREE = {
    "pkg/__init__.py": '"""A package of layers."""\nfrom .layers import Linear\nfrom .tools import *\n',
    "pkg/layers.py": (
        '"""Layers. They are made of lines."""\nfrom .tools import helper\n\n\nclass Linear:\n    """A layer."""\n\n'
        "    def forward(self, x):\n        return helper(x)\n"
    ),
    "pkg/tools.py": "# What layers need.\nLIMIT = 3\n\n\ndef helper(x):\n    return min(x, LIMIT)\n",
    "tests/test_layers.py": "from pkg import Linear\n\n\ndef test():\n    assert Linear().forward(1) == 1\n",
    "native/kernel.h": (
        "#pragma once\n// A kernel.\nnamespace native {\nstruct Kernel { int size; };\nint launch(Kernel* k);\n}\n"
    ),
    "native/kernel.cpp": '#include "kernel.h"\nnamespace native {\nint launch(Kernel* k) { return k->size; }\n}\n',
    "README.md": "# About\n\nSee pkg/layers.py and `helper`.\n",
}


def written(root: Path, texts: dict[str, str] | None = None) -> Path:
    """A folder with these files, by path."""
    for path, text in (TREE if texts is None else texts).items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def made(root: Path, site: Path, **options: object) -> Built:
    """A site of one root, without processes unless they are asked for; it must be whole."""
    built = build(site, sources={"r": root}, **{"jobs": 1, **options})  # type: ignore[arg-type]
    assert check(site).problems == []
    return built


def pages(site: Path) -> dict[str, bytes]:
    """All files of a site but its tables and what is kept for the next run, by path."""
    return {
        path.relative_to(site).as_posix(): path.read_bytes()
        for path in sorted(site.rglob("*"))
        if path.is_file() and path.parent.name != "data" and path.name != "build.msgpack"
    }


def rows(site: Path) -> dict[str, list[str]]:
    """All tables of a site, with paths in the place of ids, which depend on the order in which files came."""
    files = {row["id"]: f"{row['root']}/{row['path']}" for row in tables.read(site, "files").to_pylist()}
    symbols = {
        row["id"]: f"{files[row['file']]} {row['scope']} {row['name']} {row['line']}"
        for row in tables.read(site, "symbols").to_pylist()
    }
    found = {}
    for name in tables.TABLES:
        listed = tables.read(site, name).to_pylist()
        for row in listed:
            for column in ("file", "to", "kernel_file"):
                if row.get(column) is not None:
                    row[column] = files[row[column]]
            if row.get("symbol") is not None:
                row["symbol"] = symbols[row["symbol"]]
            row.pop("id", None)
        found[name] = sorted(map(repr, listed))
    return found
