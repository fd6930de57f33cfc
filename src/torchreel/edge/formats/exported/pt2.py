"""What a .pt2 file holds: it is a zip archive of exported programs, or of models that AOTInductor compiled."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchreel._torch.deployed import load_pt2, open_pt2
from torchreel.errors import EdgeError

MODELS = "models/"
COMPILED = "data/aotinductor/"
_FORMAT = "archive_format"
_WRITERS = "torch.export.save, or with torch._inductor.aoti_compile_and_package"
_DAMAGED = (
    "{path} is no .pt2 file: it is no zip archive, or it is damaged and its end is missing. Copy it again, or save it "
    f"again with {_WRITERS}."
)


@dataclass(frozen=True)
class Archive:
    """An opened file, read by PyTorch's own reader: another one might see other bytes in a file made to deceive."""

    path: Path
    names: tuple[str, ...]
    """Without the folder that all of them lie in."""
    reader: Any

    def read(self, name: str) -> bytes:
        if name not in self.names:
            raise EdgeError(f"{self.path} has no {name}: the file is damaged, or was never whole. Save it again.")
        try:
            data: bytes = self.reader.read_bytes(name)
        except Exception as error:
            raise EdgeError(
                f"{name} in {self.path} cannot be read: the file is damaged. Copy or save it again."
            ) from error
        return data

    def programs(self) -> list[str]:
        """The names of the exported programs."""
        return [name.removeprefix(MODELS).removesuffix(".json") for name in self.names if name.startswith(MODELS)]

    def compiled_models(self) -> list[str]:
        """The names of the models that AOTInductor compiled."""
        parts = {name.removeprefix(COMPILED).partition("/")[0] for name in self.names if name.startswith(COMPILED)}
        return sorted(parts)

    def only(self, names: Sequence[str], what: str, remedy: str) -> str:
        """The one of these names that there is."""
        if len(names) != 1:
            raise EdgeError(
                f"{self.path} holds {len(names)} {what} ({', '.join(names)}), and one is profiled at a time: {remedy}."
            )
        return names[0]

    def load_programs(self) -> dict[str, Any]:
        return dict(load_pt2(str(self.path)).exported_programs)


def open_archive(path: Path) -> Archive:
    if not path.is_file():
        raise EdgeError(f"There is no file {path}: give the path of a .pt2 file.")
    # PyTorch's reader takes seconds to import: only for what may well be such a file.
    _refuse_foreign(path)
    try:
        reader = open_pt2(str(path))
        archive = Archive(path, tuple(reader.get_file_names()), reader)
    except Exception as error:
        raise EdgeError(_DAMAGED.format(path=path)) from error
    if not archive.programs() and not archive.compiled_models():
        raise EdgeError(
            f"{path} holds neither an exported program nor a model that AOTInductor compiled. Save it again with "
            f"{_WRITERS}."
        )
    return archive


def is_exported(names: Sequence[str]) -> bool:
    """Whether a zip archive of these files is one of PyTorch 2.8 or later."""
    return any(name.partition("/")[2] == _FORMAT for name in names)


def _refuse_foreign(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, OSError) as error:
        raise EdgeError(_DAMAGED.format(path=path)) from error
    if not is_exported(names):
        raise EdgeError(
            f"{path} is no .pt2 file of PyTorch 2.8 or later, or its end is missing. Save it again with {_WRITERS}."
        )
