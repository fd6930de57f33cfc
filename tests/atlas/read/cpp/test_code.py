"""The code that the parser reads, and the way back to the text."""

from __future__ import annotations

from torchreel.atlas.read.cpp.code import Code
from torchreel.atlas.read.cpp.directives import Directives
from torchreel.atlas.read.cpp.words import Words


def code_of(text: str) -> Code:
    words = Words(text)
    return Code(words, Directives(words))


def test_what_says_nothing_is_left_out() -> None:
    text = (
        "#include <x>\n/* why */ class   TORCH_API  A {  // b\n  const char* s = \"a { b\";\n  char größe = '{';\n};\n"
    )
    assert " ".join(code_of(text).text.split()) == "class A{ const char*s=\"\";char _='0'; };"


def test_every_character_of_the_code_has_its_place() -> None:
    text = 'a\n  ::  b  /* c */ <d>\n#if X // y\n  ( e , "f" )\n#endif\n{ ; }\n'
    code = code_of(text)
    places = [code.place(offset) for offset, character in enumerate(code.text) if character not in ' "']
    assert "".join(text[place] for place in places) == "a::b<d>(e,){;}"
    assert places == sorted(places)


def test_brackets_too_deep_for_the_parser_become_blanks() -> None:
    code = code_of("(" * 5000 + "x" + ")" * 5000 + "{}").text
    assert len(code) == 10_003
    assert code.replace(" ", "") == "(" * 200 + "x" + ")" * 200 + "{}"


def test_angles_too_many_for_the_parser_become_blanks() -> None:
    assert "<" not in code_of("a<" * 5000 + "; ").text
    assert code_of("a<b>c;" * 5000).text.count("<") == 5000
