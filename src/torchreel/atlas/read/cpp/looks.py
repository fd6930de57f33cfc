"""Calls in a C++ text that are worth a look.

They start a shell or a program, or load code by a name made at run time.
"""

from __future__ import annotations

from torchreel.atlas.model import Look
from torchreel.atlas.read.cpp.directives import Directives
from torchreel.atlas.read.cpp.frames import Declared
from torchreel.atlas.read.cpp.words import KEYWORD, NAME, STRING, Words

_STARTING_TEXT = """
    system popen _popen execl execle execlp execv execve execvp execvpe fexecve posix_spawn posix_spawnp
"""
_STARTING = frozenset(_STARTING_TEXT.split())
_LOADING = frozenset(("dlopen", "dlmopen"))
"""With a literal they name a library that is known beforehand."""
_CALLS = _STARTING | _LOADING
_BEFORE_CALLS_TEXT = """
    return else do throw and or not co_return co_await co_yield case
"""
_BEFORE_CALLS = frozenset(_BEFORE_CALLS_TEXT.split())


def looks(words: Words, directives: Directives, declared: list[Declared]) -> list[Look]:
    """The calls, in the order of their lines. What the file declares itself is not the system's function."""
    if words.kind_of.keys().isdisjoint(_CALLS):
        return []
    names = _CALLS - {row.name for row in declared}
    return [
        Look(words.line(words.starts[index]), word)
        for index, word in enumerate(words.words)
        if word in names and index not in directives.indices and _is_call(words, index)
    ]


def _is_call(words: Words, index: int) -> bool:
    if not words.gaps[index + 1].lstrip().startswith("("):
        return False
    literal = words.gaps[index + 1].strip() == "(" and words.kinds[index + 1 : index + 2] == bytes((STRING,))
    if literal and words.words[index] in _LOADING:
        return False
    before = words.gaps[index].rstrip()
    if before.endswith((".", "->")):
        return False
    if before.endswith("::"):
        return (
            before != "::" or words.gaps[index] != before or index == 0 or words.words[index - 1] in ("std", "return")
        )
    if before or index == 0:
        return True
    # Two names in a row declare the second one.
    return words.kinds[index - 1] not in (NAME, KEYWORD) or words.words[index - 1] in _BEFORE_CALLS
