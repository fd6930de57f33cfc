"""Classes: what a word is to a file, and what that is worth in a ranking.

Each class is a capital letter in the index. The table travels with the index, so that the page's script ranks by the
same numbers as Python does.
"""

from __future__ import annotations

from typing import NamedTuple


class WordClass(NamedTuple):
    """What a word is to a file."""

    letter: str
    kind: str
    """What a result says: defines, speaks, uses or path."""
    weight: int
    named: bool = False
    """Whether the word is the whole name of what stands on the line."""


TOP = WordClass("A", "defines", 100, named=True)
"""A class, a function, a macro that others can reach by its name."""
VARIABLE = WordClass("B", "defines", 85, named=True)
"""A variable or an alias at the top, a registered operator."""
MEMBER = WordClass("C", "defines", 70, named=True)
"""A method, a function within a function."""
FIELD = WordClass("D", "defines", 60, named=True)
DECLARED = WordClass("E", "defines", 60, named=True)
SPECIAL = WordClass("R", "defines", 18, named=True)
"""`__init__` and the like, and namespaces: nearly all files have them."""
TOP_PART = WordClass("F", "defines", 48)
"""A part of such a name: `scaler` of GradScaler."""
MEMBER_PART = WordClass("G", "defines", 32)
FIELD_PART = WordClass("H", "defines", 26)
HEADING = WordClass("I", "speaks", 55)
"""A word of a heading of a text."""
FILE_DOC = WordClass("J", "speaks", 40)
"""A word of the first sentence of a file's doc."""
DOC = WordClass("K", "speaks", 30)
"""A word of the first sentence of a symbol's doc."""
IMPORTED = WordClass("L", "uses", 20, named=True)
USED = WordClass("M", "uses", 12, named=True)
STEM = WordClass("N", "path", 50)
"""The name of the file. What the path says counts beside what the text says."""
STEM_PART = WordClass("O", "path", 35)
FOLDER = WordClass("P", "path", 20)
FOLDER_PART = WordClass("Q", "path", 10)

CLASSES = (
    TOP, VARIABLE, MEMBER, FIELD, DECLARED, SPECIAL, TOP_PART, MEMBER_PART, FIELD_PART, HEADING, FILE_DOC, DOC,
    IMPORTED, USED, STEM, STEM_PART, FOLDER, FOLDER_PART,
)  # fmt: skip
