"""Whether PyTorch would execute code that an exported program's file brings along.

torch.export.load trusts its file. It loads pickles, and without limits when the limited way fails; it hands sizes to
sympy, which evaluates them; it looks up functions by their dotted names; and the names of inputs and weights become
part of the Python that torch.fx generates. A profiler gets files from anywhere: all that is not plain data or an op
is refused.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

import torch

from torchreel.edge.formats.exported.pt2 import MODELS, Archive
from torchreel.edge.formats.exported.pt2_expression import is_plain_expression
from torchreel.errors import EdgeError

# No quotes, brackets or line ends: such a name can end no string and call nothing.
_NAME = re.compile(r"[\w.\-:@/ ]*", re.ASCII)
_OPERATOR = re.compile(
    r"torch\.ops\.(?!__)\w+\.((?!__)\w+|__i?(and|or|xor|lshift|rshift)__)(\.(?!__)\w+)?"
    r"|_operator\.[a-z_]+|math\.[a-z]+|torch\._?sym_\w+",
    re.ASCII,
)
# Ops that open files by name.
_FILE_OPERATOR = re.compile(r"torch\.ops\.(aten\.from_file|debugprims)\b")
# PyTorch counts up to the number of a symbol.
_MANY = re.compile(r"\D*\d{7,}")
# What is kept as text, and the checks of inputs, which we do not let PyTorch generate.
_TEXT = {"metadata", "as_string", "as_strings", "torch_version", "guards_code"}
_PLAIN_FACTORIES = {"list", "dict", "int", "float", "str", "bool", "tuple", "set"}


def refuse_code(archive: Archive) -> None:
    """Raises EdgeError for a file that PyTorch could not load without executing something of it."""
    for program in archive.programs():
        try:
            _Program(archive, program).check()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise EdgeError(
                f"The exported program {program} in {archive.path} is damaged: its description is not what "
                f"torch.export.save writes. Save it again."
            ) from error


class _Program:
    """One exported program of an archive."""

    def __init__(self, archive: Archive, name: str) -> None:
        self.archive = archive
        self.name = name

    def check(self) -> None:
        description = json.loads(self.archive.read(f"{MODELS}{self.name}.json"))
        for symbol in description["range_constraints"]:
            if _MANY.match(symbol):
                self._refuse(f"the symbol {symbol[:40]!r}")
        self._check_value("", description)
        self._check_pickle(f"data/sample_inputs/{self.name}.pt")
        for folder in ("data/weights/", "data/constants/"):
            self._check_tensors(folder)

    def _check_tensors(self, folder: str) -> None:
        legacy = f"{folder}{self.name}.pt"
        if legacy in self.archive.names:
            self._check_pickle(legacy)
            return
        kind = folder.split("/")[1]
        config = json.loads(self.archive.read(f"{folder}{self.name}_{kind}_config.json"))
        for payload in config["config"].values():
            path = payload["path_name"]
            if not path.startswith(("weight_", "tensor_")):
                self._refuse(f"the object {path!r}")
            if payload["use_pickle"]:
                self._check_pickle(f"{folder}{path}")

    def _check_pickle(self, name: str) -> None:
        """PyTorch would load it without limits if the limited way failed: so it must not fail."""
        data = self.archive.read(name)
        try:
            if data:
                torch.load(io.BytesIO(data), weights_only=True)
        except Exception as error:
            raise EdgeError(self._refusal(f"the pickle {name}")) from error

    def _check_value(self, key: str, value: Any) -> None:
        if key in _TEXT:
            return
        if isinstance(value, dict):
            for inner, child in value.items():
                self._check_name(inner)
                self._check_value(inner, child)
        elif isinstance(value, list):
            for child in value:
                self._check_value(key, child)
        elif isinstance(value, str):
            self._check_string(key, value)

    def _check_string(self, key: str, value: str) -> None:
        if key in ("in_spec", "out_spec"):
            self._check_structure(json.loads(value))
        elif key == "expr_str":
            if not is_plain_expression(value):
                self._refuse(f"the size {value[:80]!r}")
        elif key in ("target", "as_operator"):
            if not _OPERATOR.fullmatch(value) or _FILE_OPERATOR.match(value):
                self._refuse(f"the operator {value[:80]!r}")
        else:
            self._check_name(value)

    def _check_structure(self, spec: Any) -> None:
        """How inputs lie in lists and dictionaries: contexts in it are JSON within JSON, and name things to import."""
        if isinstance(spec, dict):
            if "__enum__" in spec:
                self._refuse("an enumeration among its inputs")
            if "default_factory_module" in spec and not _is_plain_factory(spec):
                self._refuse(f"the function {spec.get('default_factory_name')!r} among its inputs")
            for key, child in spec.items():
                self._check_name(key)
                if key == "context" and isinstance(child, str):
                    child = json.loads(child)
                self._check_structure(child)
        elif isinstance(spec, list):
            for child in spec:
                self._check_structure(child)
        elif isinstance(spec, str):
            self._check_name(spec)

    def _check_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            self._refuse(f"the name {name[:80]!r}")

    def _refuse(self, what: str) -> None:
        raise EdgeError(self._refusal(what))

    def _refusal(self, what: str) -> str:
        return (
            f"{self.archive.path} is refused: {what} in it could make PyTorch execute code of the file. If you trust "
            f"it, load it with torch.export.load and profile the program in Python."
        )


def _is_plain_factory(spec: dict[str, Any]) -> bool:
    return spec["default_factory_module"] == "builtins" and spec["default_factory_name"] in _PLAIN_FACTORIES
