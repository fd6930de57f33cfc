"""What names mean across files: found through scopes and imports, listed where only the name agrees, never chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchreel.atlas.read import parse
from torchreel.atlas.references import IMPORT, NAME, SCOPE, Resolver
from torchreel.atlas.site import paths
from torchreel.atlas.symbols import Catalog, Defined, FileNames, anchors_of, ids_of, module_names, qualified

LANGUAGES = {".py": "python", ".h": "c++", ".cpp": "c++", ".md": "markdown"}


class Atlas:
    """Files by path, read and known to each other."""

    def __init__(self, texts: dict[str, str], above: str = "root") -> None:
        packages = frozenset(path.rpartition("/")[0] for path in texts if path.endswith("__init__.py"))
        self.parsed = {path: parse(text, LANGUAGES[Path(path).suffix]) for path, text in texts.items()}
        files = []
        for number, (path, parsed) in enumerate(self.parsed.items()):
            anchors = anchors_of(parsed.symbols)
            ids = ids_of(number, anchors)
            symbols = [
                Defined(one.name, one.scope, one.kind, anchor, at, one.declaration)
                for one, anchor, at in zip(parsed.symbols, anchors, ids, strict=True)
            ]
            modules = module_names(path, packages, above) if path.endswith(".py") else []
            page = paths.file_page("r", path)
            files.append(FileNames(number, "r", path, page, parsed.language, modules, symbols, parsed.imports))
        self.files = {file.path: file for file in files}
        self.catalog = Catalog(files)
        self.resolver = Resolver(self.catalog)

    def meaning(self, path: str, name: str) -> tuple[str | None, list[str]]:
        """How the last use of a name in a file is known, and what it may mean: `path: scope.name`."""
        uses = self.parsed[path].uses
        (found,) = (
            meaning
            for use, meaning in zip(uses, self.resolver.meanings(self.files[path], uses), strict=True)
            if use.name == name
        )
        names = [
            f"{self.catalog.files[file].path}: {qualified(one.scope, one.name)}"
            for file, index in found.symbols
            for one in [self.catalog.defined(file, index)]
        ]
        if not names and found.file >= 0:
            names = [self.catalog.files[found.file].path]
        return found.how, names


PACKAGE = {
    "pkg/__init__.py": "from .layers import Linear as Dense\nfrom .tools import *\nfrom . import layers\n",
    "pkg/layers.py": "class Linear:\n    def forward(self): ...\n    weight = 1\n",
    "pkg/tools.py": "def helper(): ...\nLIMIT = 3\n",
    "pkg/sub/__init__.py": "",
    "pkg/sub/deep.py": "from ..layers import Linear\nfrom ...outside import gone\nLinear\ngone\n",
}


@pytest.mark.parametrize(
    ("text", "name", "how", "meant"),
    [
        ("from pkg.layers import Linear\nLinear()", "Linear", IMPORT, ["pkg/layers.py: Linear"]),
        ("import pkg.layers as l\nl.Linear()", "Linear", IMPORT, ["pkg/layers.py: Linear"]),
        ("import pkg\npkg.layers.Linear()", "Linear", IMPORT, ["pkg/layers.py: Linear"]),
        ("from pkg.layers import Linear\nLinear.forward", "forward", IMPORT, ["pkg/layers.py: Linear.forward"]),
        ("from pkg import Dense\nDense()", "Dense", IMPORT, ["pkg/layers.py: Linear"]),
        ("from pkg import helper\nhelper()", "helper", IMPORT, ["pkg/tools.py: helper"]),
        ("from pkg import *\nLIMIT", "LIMIT", IMPORT, ["pkg/tools.py: LIMIT"]),
        ("import pkg.tools\nprint(pkg)", "pkg", IMPORT, ["pkg/__init__.py"]),
        ("import numpy as np\nnp.helper", "helper", IMPORT, []),
        ("from pkg.layers import missing\nmissing()", "missing", IMPORT, []),
        ("x.helper()", "helper", NAME, ["pkg/tools.py: helper"]),
        ("len(x)", "len", None, []),
        ("nothing_of_that_name()", "nothing_of_that_name", None, []),
        ("def own(): ...\nown()", "own", SCOPE, ["main.py: own"]),
    ],
)
def test_python(text: str, name: str, how: str | None, meant: list[str]) -> None:
    assert Atlas({**PACKAGE, "main.py": text}).meaning("main.py", name) == (how, meant)


def test_relative_imports_begin_at_the_package_of_the_file() -> None:
    atlas = Atlas(PACKAGE)
    assert atlas.meaning("pkg/sub/deep.py", "Linear") == (IMPORT, ["pkg/layers.py: Linear"])
    assert atlas.meaning("pkg/sub/deep.py", "gone") == (IMPORT, [])


def test_a_root_that_is_a_package_itself() -> None:
    atlas = Atlas({"__init__.py": "", "nn.py": "class Module: ...", "a.py": "import torch\ntorch.nn.Module"}, "torch")
    assert atlas.meaning("a.py", "Module") == (IMPORT, ["nn.py: Module"])


def test_all_that_only_share_a_name_are_listed() -> None:
    atlas = Atlas({"a.py": "def f(): ...", "b.py": "class C:\n    def f(self): ...", "c.py": "x.f()"})
    assert atlas.meaning("c.py", "f") == (NAME, ["a.py: f", "b.py: C.f"])


def test_modules_that_import_each_other_whole_do_not_go_round() -> None:
    names = [f"m{number}" for number in range(24)]
    texts = {f"{name}.py": "".join(f"from {other} import *\n" for other in names) for name in names}
    atlas = Atlas({**texts, "main.py": "from m0 import *\nwanted()", "end.py": "def wanted(): ..."})
    assert atlas.meaning("main.py", "wanted") == (NAME, ["end.py: wanted"])
    with_end = {**texts, "m23.py": texts["m23.py"] + "from end import wanted\n"}
    atlas = Atlas({**with_end, "main.py": "from m0 import *\nwanted()", "end.py": "def wanted(): ..."})
    assert atlas.meaning("main.py", "wanted") == (IMPORT, ["end.py: wanted"])


def test_includes_come_before_names() -> None:
    texts = {
        "lib/a.h": "struct Thing { int x; };\n",
        "lib/b.h": "struct Thing { int y; };\n",
        "one.cpp": '#include "lib/a.h"\nThing* one();\n',
        "two.cpp": "Thing* two();\n",
    }
    atlas = Atlas(texts)
    assert atlas.meaning("one.cpp", "Thing") == (IMPORT, ["lib/a.h: Thing"])
    assert atlas.meaning("two.cpp", "Thing") == (NAME, ["lib/a.h: Thing", "lib/b.h: Thing"])


@pytest.mark.parametrize(
    ("target", "found"),
    [("ATen/core/x.h", "include/ATen/core/x.h"), ("x.h", "src/x.h"), ("y.h", None), ("ATen/none.h", None)],
)
def test_a_path_is_beside_the_file_or_the_only_one_that_ends_so(target: str, found: str | None) -> None:
    texts = {"include/ATen/core/x.h": "", "src/x.h": "", "a/y.h": "", "b/y.h": "", "src/main.cpp": ""}
    atlas = Atlas(texts)
    number = atlas.resolver.imported(atlas.files["src/main.cpp"], target)
    assert (atlas.catalog.files[number].path if number >= 0 else None) == found


def test_python_and_cpp_names_are_not_mixed_up() -> None:
    atlas = Atlas({"a.h": "void launch();\n", "b.py": "x.launch()", "c.md": "# About\nSee `launch_all` and launch.\n"})
    assert atlas.meaning("b.py", "launch") == (None, [])


@pytest.mark.parametrize(
    ("path", "packages", "names"),
    [
        ("a.py", (), ["a"]),
        ("p/a.py", ("p",), ["p.a"]),
        ("src/p/a.py", ("src/p",), ["p.a", "src.p.a"]),
        ("p/__init__.py", ("p",), ["p"]),
        ("nn/a.py", ("", "nn"), ["torch.nn.a", "nn.a"]),
        ("__init__.py", ("",), ["torch"]),
        ("loose/a.py", ("",), ["a", "loose.a"]),
    ],
)
def test_names_of_modules(path: str, packages: tuple[str, ...], names: list[str]) -> None:
    assert module_names(path, frozenset(packages), "torch") == names
