"""C++ texts (C, CUDA and HIP as well) -> what they say by themselves.

The text is taken apart three times, each time by what reads it best: one regular expression gives its words
(`words`), its preprocessor lines are read one by one (`directives`), and what remains is code, without the
macros that no parser can know (`macros`, `code`), for tree-sitter (`tree`), whose nodes are the
declarations (`structure`).

Kinds of symbols: a `using a::b;` is "using"; a new name for a type or a namespace (`using T = ...`, `typedef`,
`namespace a = b`) is "alias"; a static or constexpr member is "variable". `namespace a::b` is one symbol, b in a.
"""

from __future__ import annotations

from torchreel.atlas.model import Parsed
from torchreel.atlas.read.cpp.code import Code
from torchreel.atlas.read.cpp.comments import Comments
from torchreel.atlas.read.cpp.directives import Directives
from torchreel.atlas.read.cpp.looks import looks
from torchreel.atlas.read.cpp.registrations import registrations
from torchreel.atlas.read.cpp.structure import Structure
from torchreel.atlas.read.cpp.symbols import symbols
from torchreel.atlas.read.cpp.uses import Uses
from torchreel.atlas.read.cpp.words import Words


def parse(text: str) -> Parsed:
    """What a C++ text says by itself. Never raises: what is not understood is in `errors`."""
    words = Words(text)
    directives = Directives(words)
    code = Code(words, directives)
    structure = Structure(words, code)
    comments = Comments(words)
    found = symbols(words, code, directives, structure, comments)
    uses, lines, columns, slots, tokens = Uses(
        words, code, directives, structure, {word: number for number, (word, _) in enumerate(found)}
    ).listed()
    return Parsed(
        language="c++",
        doc=comments.first(structure.functions()),
        symbols=[symbol for _, symbol in found],
        imports=directives.imports,
        uses=uses,
        lines=lines,
        columns=columns,
        slots=slots,
        registrations=registrations(words, directives),
        looks=looks(words, directives, structure.declared),
        errors=sorted({words.line(code.place(start)) for start, _ in structure.errors}),
        prose=comments.prose,
        tokens=tokens,
    )
