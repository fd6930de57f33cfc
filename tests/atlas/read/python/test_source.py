"""The reader of Python as a whole: complete on real files, unmoved by hostile ones."""

from __future__ import annotations

import ast
import gc
import json
import random
import shutil
import subprocess
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.atlas import pytorch_sources
from tests.atlas.read.python.reading import STANDARD_LIBRARY, TORCH, files_of, read, title
from tests.sample import sampled
from torchreel.atlas.model import Import, Parsed
from torchreel.atlas.read.python.source import parse

STRUCTURE = ("class", "function", "method")
VARIABLES = ("variable", "field", "enumerator", "alias")
Found = tuple[str, str, str, int]

TORCH_FILES = files_of(TORCH, 100, seed=41)
OTHER_FILES = files_of(STANDARD_LIBRARY, 30, seed=42)


def structure_of(parsed: Parsed) -> list[Found]:
    return sorted((one.name, one.scope, one.kind, one.line) for one in parsed.symbols if one.kind in STRUCTURE)


def variables_of(parsed: Parsed) -> list[tuple[str, str, int]]:
    return sorted((one.name, one.scope, one.line) for one in parsed.symbols if one.kind in VARIABLES)


def definitions_in(node: ast.AST, scope: tuple[str, ...] = (), in_class: bool = False) -> Iterator[Found]:
    """Classes and functions, counted in the plainest way."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child.name, ".".join(scope), "method" if in_class else "function", child.lineno
            yield from definitions_in(child, (*scope, child.name))
        elif isinstance(child, ast.ClassDef):
            yield child.name, ".".join(scope), "class", child.lineno
            yield from definitions_in(child, (*scope, child.name), True)
        else:
            yield from definitions_in(child, scope, in_class)


def variables_in(
    node: ast.AST, scope: tuple[str, ...] = (), in_function: bool = False
) -> Iterator[tuple[str, str, int]]:
    """Names that are assigned to in modules and classes, counted in the plainest way."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from variables_in(child, (*scope, getattr(child, "name", "")), True)
        elif isinstance(child, ast.ClassDef):
            yield from variables_in(child, (*scope, child.name))
        else:
            if not in_function and isinstance(child, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                for target in child.targets if isinstance(child, ast.Assign) else [child.target]:
                    elements = (ast.Name, ast.Tuple, ast.List, ast.Starred)
                    for one in ast.walk(target) if isinstance(target, elements) else ():
                        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                            yield one.id, ".".join(scope), one.lineno
            yield from variables_in(child, scope, in_function)


def imports_in(tree: ast.AST) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update((alias.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (f"{node.module}." if node.module else "")
            star = "." * node.level + (node.module or "")
            found.update((one.lineno, star if one.name == "*" else start + one.name) for one in node.names)
    return found


def text_of(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")


@pytest.mark.parametrize("path", sampled([*TORCH_FILES, *OTHER_FILES], 3, title), ids=title)
def test_all_that_a_plain_count_finds_and_nothing_else(path: Path) -> None:
    text = text_of(path)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        pytest.skip("Python itself refuses this file")
    parsed = parse(text)
    assert structure_of(parsed) == sorted(definitions_in(tree))
    # The plain count does not know what functions assign to names that they declare global.
    declared = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    assert [one for one in variables_of(parsed) if one[0] not in declared] == sorted(
        one for one in variables_in(tree) if one[0] not in declared
    )
    assert Counter((one.line, one.target) for one in parsed.imports) == imports_in(tree)
    assert [one.line for one in parsed.symbols] == sorted(one.line for one in parsed.symbols)
    assert parsed.errors == []


@pytest.mark.parametrize(
    ("path", "count"), [("tools/autograd/gen_trace_type.py", 30), ("torch/_inductor/cudagraph_trees.py", 164)]
)
def test_the_files_that_the_atlas_is_measured_by(path: str, count: int) -> None:
    text = (pytorch_sources.directory() / path).read_text()
    parsed = parse(text)
    tree = ast.parse(text)
    assert structure_of(parsed) == sorted(definitions_in(tree))
    assert variables_of(parsed) == sorted(variables_in(tree))
    assert Counter((one.line, one.target) for one in parsed.imports) == imports_in(tree)
    assert len(structure_of(parsed)) + len(variables_of(parsed)) == count


def ctags_of(paths: list[Path]) -> dict[Path, set[tuple[str, str, int]]]:
    """What ctags finds: name, kind and line; nothing that it reads imports to be."""
    if shutil.which("ctags") is None:
        pytest.skip("there is no ctags to compare with: install Universal Ctags")
    command = ["ctags", "--languages=python", "--output-format=json", "--fields=+nK", "-f", "-"]
    listed = subprocess.run([*command, *map(str, paths)], check=True, capture_output=True, text=True).stdout
    found: dict[Path, set[tuple[str, str, int]]] = {path: set() for path in paths}
    for line in listed.splitlines():
        tag = json.loads(line)
        if tag.get("kind") in ("class", "function", "member", "variable"):
            found[Path(tag["path"])].add((tag["name"], tag["kind"], tag["line"]))
    return found


def test_what_ctags_finds() -> None:
    found = wanted = 0
    missed: list[tuple[str, tuple[str, str, int]]] = []
    for path, tags in ctags_of(TORCH_FILES).items():
        ours = {(one.name, one.line) for one in parse(text_of(path)).symbols}
        wanted += len(tags)
        found += sum((name, line) in ours for name, _, line in tags)
        missed += [(path.name, tag) for tag in tags if (tag[0], tag[2]) not in ours]
    assert wanted > 2_000
    assert [tag for tag in missed if tag[1][1] != "variable"] == []
    assert found >= 0.995 * wanted, missed


HOSTILE = {
    "nothing": "",
    "only a line end": "\n",
    "brackets": "(" * 5000,
    "brackets of all kinds": "([{" * 30_000,
    "closing brackets": ")" * 100_000,
    "a deep sum": "a+" * 5000 + "a",
    "a deeper sum": "a+" * 200_000 + "a",
    "signs": "-" * 300_000 + "1",
    "a deep negation": "not " * 3000 + "x",
    "lambdas": "lambda:" * 100_000 + "x",
    "lambdas with names": "".join(f"lambda a{number}: b{number}+" for number in range(20_000)) + "1",
    "attributes": "import a\na" + ".b" * 2500,
    "many attributes": "a" + ".b" * 100_000,
    "branches": "if x: pass\n" + "elif x: pass\n" * 5000,
    "indentation": "".join(" " * depth + "if x:\n" for depth in range(1000)),
    "nested classes": "".join(" " * depth + f"class A{depth}:\n" for depth in range(99)) + " " * 99 + "pass",
    "derived classes": "".join(f"class A{one + 1}(A{one}):\n def m(self): self.x\n" for one in range(500)),
    "errors one behind the other": "if x: if y: lambda: +\n" * 1000,
    "headers without end": "def f(:\n" * 5000,
    "a line of 1 MB": "x = [" + "a, " * 333_333 + "]",
    "a name of 1 MB": "x = " + "a" * 1_000_000,
    "a string of 1 MB": "x = '" + "a\\n" * 333_333 + "'",
    "a comment of 1 MB": "#" * 1_000_000,
    "line ends": "\n" * 1_000_000,
    "quotes": '"' * 999_999,
    "open f-strings": 'f"{' * 50_000,
    "open string": '"""abc\\',
    "a number of many digits": "x = " + "9" * 10_000,
    "NUL": "x = 1\0\ndef f(): pass\n",
    "NULs": "\0" * 100_000,
    "half of a character": "x = '\ud800'\ndef f(): pass\n",
    "half of a character as an escape": "'''\\ud800'''\ndef f():\n    '''\\udfff'''\n",
    "control characters": "x = 1\n\x1a\ny\v= 2\n\x01",
    "invalid escapes": "x = '\\d'\ny = 1 is 1\nassert (x, 'y')\n",
    "script": "'''</script><script>alert(1)</script>'''\n",
    "decorators": "@a\n" * 20_000 + "def f(): pass\n",
    "targets": "a=" * 5000 + "1\n",
    "mixed tabs": "if x:\n\ty = 1\n        z = 1\n",
    "backslash": "\\",
    "old Python": "print 'x'\nexec 'y'\nraise E, 'z'\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parsed = parse(text)
    check(text, parsed)


def check(text: str, parsed: Parsed) -> None:
    """All places are in the text and in order, and what was found can be sent."""
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(parsed), type=Parsed).language == "python"
    at = 0
    for start, end, _ in parsed.tokens:
        assert at <= start < end <= len(text)
        at = end
    lines = 1 + text.replace("\r\n", "\n").replace("\r", "\n").count("\n")
    places = list(zip(parsed.lines, parsed.columns, strict=True))
    assert places == sorted(places)
    assert [slot for _, _, slot in parsed.tokens if slot >= 0] == parsed.slots
    for one in parsed.symbols:
        assert 1 <= one.line <= one.end_line <= lines and one.column >= 0 and "\n" not in one.signature
    assert all(1 <= line <= lines for line in [*parsed.lines, *parsed.errors])


def test_texts_with_random_damage() -> None:
    chance = random.Random(43)
    texts = [text_of(path) for path in files_of(STANDARD_LIBRARY, 60, seed=44)]
    damage = [*"\"'()[]{}\0\ud801\r\n\\:=@é", "def ", "class ", 'f"{', '"""', "import ", "lambda ", "match x:\n case "]
    for _ in range(200):
        text = chance.choice(texts)
        start = chance.randrange(len(text) or 1)
        text = text[start : start + chance.randrange(1, 6000)]
        for _ in range(chance.randrange(8)):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(damage) + text[at + chance.randrange(5) :]
        check(text, parse(text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\ufeff'''doc'''\nx = 1\n", [("x", 2, 0)]),
        ("\ufeffx = 1\n", [("x", 1, 1)]),
        ("x = 1\ry = 2\r\nz = 3\n", [("x", 1, 0), ("y", 2, 0), ("z", 3, 0)]),
        ("x = 1\f\n\fy = 2\n", [("x", 1, 0), ("y", 2, 1)]),
        ("x = 'a\u2028b\x85c'\ny = 1  # \u2029\nz = 2\n", [("x", 1, 0), ("y", 2, 0), ("z", 3, 0)]),
        ("'''a\rb\r\nc'''\rx = 1", [("x", 4, 0)]),
        ("ä = 'ö𝛼'; ü = 1\n", [("ä", 1, 0), ("ü", 1, 10)]),
        ("ﬁ = 1; x = ﬁ\n", [("fi", 1, 0), ("x", 1, 7)]),
    ],
)
def test_lines_and_columns_as_python_counts_them(text: str, found: list[tuple[str, int, int]]) -> None:
    parsed = parse(text)
    assert [(one.name, one.line, one.column) for one in parsed.symbols] == found
    assert parsed.errors == []
    check(text, parsed)


def test_lines_that_cannot_be_read_are_named() -> None:
    parsed = parse("x = 1\ny = '\0'\nz = '\ud800'\n")
    assert parsed.errors == [2, 3]
    assert [one.signature for one in parsed.symbols] == ["x = 1", "y = ' '", "z = '?'"]


def test_nothing_is_executed(tmp_path: Path) -> None:
    made = tmp_path / "made"
    parsed = parse(f"import missing\nopen({str(made)!r}, 'w')\nraise SystemExit\n")
    assert parsed.imports == [Import(1, "missing")]
    assert not made.exists()


def test_nothing_is_left_for_the_collector() -> None:
    """The atlas reads with the collector off: what is only garbage by it would stay."""
    text = (TORCH / "nn" / "modules" / "module.py").read_text() + "\ndef newer[T](): self.x = f'{T}'\n"
    parse(text)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            parse(text)
        assert gc.collect() < 100
    finally:
        gc.enable()


def test_the_same_text_gives_the_same() -> None:
    text = (TORCH / "functional.py").read_text()
    assert parse(text) == parse(text) == read(text)
