"""Texts, one at a time -> what they say by themselves."""

from __future__ import annotations

from torchreel.atlas.model import Parsed
from torchreel.atlas.read.languages import CPP, PYTHON, language_of

__all__ = ["LOOKED_FOR", "language_of", "parse"]

_OF_CPP = ["system", "popen", "exec*", "posix_spawn*", "dlopen of a name made at run time"]
LOOKED_FOR = {
    PYTHON: [
        "eval, exec and compile",
        "pickle and marshal that load",
        "torch.load without weights_only=True",
        "yaml.load without a safe loader",
        "os.system and os.popen",
        "subprocess with a shell",
        "imports of names made at run time",
    ],
    **dict.fromkeys(CPP, _OF_CPP),
}
"""By language: the calls worth a look that its reader looks for."""


def parse(text: str, language: str) -> Parsed:
    """What a text says by itself, by the reader for its language."""
    if language == PYTHON:
        from torchreel.atlas.read.python import source as python_source

        return python_source.parse(text)
    if language in CPP:
        from torchreel.atlas.read.cpp import source as cpp_source

        parsed = cpp_source.parse(text)
        parsed.language = language
        return parsed
    from torchreel.atlas.read import plain_source

    return plain_source.parse(text, language)
