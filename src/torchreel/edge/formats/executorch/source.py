"""What is known of a loaded ExecuTorch program beyond what its runtime says: its file, and the ETRecord beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torchreel.edge.formats.executorch.etrecord import RecordedMethod, read_record, record_beside
from torchreel.edge.formats.executorch.pte import Method, read_methods
from torchreel.errors import EdgeError

_FILES: WeakKeyDictionary[Any, Path] = WeakKeyDictionary()
_NOT_LINKED = "The ops are not linked to source lines"


def loaded_from(module: Any, path: Path) -> None:
    """Tell which file a module was loaded from: the runtime does not keep it."""
    _FILES[module] = path


class Source:
    """The methods of a program and their ops' locations, as far as they are known."""

    def __init__(self, module: Any) -> None:
        self.path = _FILES.get(module)
        self.methods: dict[str, Method] = {}
        self.recorded: dict[str, RecordedMethod] = {}
        self.remark: str | None = None
        try:
            self._read(self.path or getattr(module, "_data", None))
        except EdgeError as error:
            self.remark = f"{_NOT_LINKED}: {error}"

    def _read(self, source: Path | bytes | None) -> None:
        if source is not None:
            self.methods = read_methods(source)
        if not isinstance(source, Path):
            self.remark = (
                f"{_NOT_LINKED}, because ExecuTorch does not say which file the program was loaded from: "
                "load it with torchreel.edge.load(path).module."
            )
            return
        record = record_beside(source)
        if record is None:
            self.remark = (
                f"{_NOT_LINKED}, because there is no ETRecord beside {source.name}: export the program with "
                f"generate_etrecord=True, and save its get_etrecord() as {source.with_suffix('.etrecord').name}."
            )
            return
        recorded = read_record(record)
        if all(_fits(recorded.get(name), method) for name, method in self.methods.items()):
            self.recorded = recorded
        else:
            self.remark = f"{_NOT_LINKED}, because {record.name} was written for another program than {source.name}."


def _fits(recorded: RecordedMethod | None, method: Method) -> bool:
    """Names may differ where export replaced an op by its own, but not most of them."""
    if recorded is None:
        return not method.instructions
    pairs = [
        (_bare(instruction.operator), [_bare(node.op) for node in recorded.of(number)])
        for number, instruction in method.instructions.items()
        if instruction.operator is not None
    ]
    known = [(operator, ops) for operator, ops in pairs if ops]
    is_inside = all(number in method.instructions for number in recorded.handles)
    return is_inside and 2 * _count(operator in ops for operator, ops in known) >= len(known)


def _bare(op: str) -> str:
    return op.partition("::")[2].partition(".")[0]


def _count(flags: Iterable[bool]) -> int:
    return sum(flags)
