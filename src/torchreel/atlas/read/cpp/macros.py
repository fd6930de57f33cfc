"""Macros in the middle of C++ code, judged by their names and by what stands around them.

A parser that does not expand macros takes `class TORCH_API Tensor` for a function. So those that stand for an attribute
are to be left out, and so is a call of a macro that is a statement by itself.
"""

from __future__ import annotations

import re
from itertools import compress

from torchreel.atlas.read.cpp.directives import Directives
from torchreel.atlas.read.cpp.words import COMMENT, KEYWORD, NAME, Words

_ATTRIBUTES_TEXT = """
    __host__ __device__ __global__ __forceinline__ __noinline__ __inline__ __inline __forceinline __restrict__
    __restrict __shared__ __constant__ __managed__ __grid_constant__ __extension__ __cdecl __stdcall
    C10_RESTRICT RESTRICT PyObject_HEAD PyObject_VAR_HEAD
"""
_ATTRIBUTES = frozenset(_ATTRIBUTES_TEXT.split())
_WITH_ARGUMENTS = re.compile(
    r"__attribute__|__attribute|__declspec|__launch_bounds__|__align__|\w*_LAUNCH_BOUNDS_[012]"
    r"|\w*_(?:ATTRIBUTE|ATTR|DEPRECATED|GUARDED_BY|REQUIRES)(?:_\w+)?"
)
# Names that say what they are for. A type, a value or an enumerator may have such a name, too: what follows decides.
_LIKELY = re.compile(
    r"""\w*_(?:API|EXPORTS?|IMPORT|PUBLIC|PRIVATE|HIDDEN|LOCAL|VISIBLE|DECL|DLL|\w*INLINE\w*|NODISCARD|\w*UNUSED|NORETURN
    |DEPRECATED|\w*CONSTEXPR\w*|COLD|HOT|PURE|WEAK|HOST|DEVICE|GLOBAL|FUNC|FUNCTION|MATH|CALL)
    |\w*INLINE|NO_SANITIZE\w*|EXPORT|__\w+__""",
    re.VERBOSE,
)
_CLASS_KEYS = frozenset(("class", "struct", "union", "enum"))
_BEGIN_DECLARATIONS_TEXT = """
    auto bool char class const consteval constexpr constinit decltype double enum explicit extern float friend
    inline int long mutable namespace operator short signed static struct template thread_local typedef typename
    union unsigned using virtual void volatile
"""
_BEGIN_DECLARATIONS = frozenset(_BEGIN_DECLARATIONS_TEXT.split())
_FOLLOW_DECLARATORS = frozenset(["const", "noexcept", "override", "final", "requires", "throw", "try", "volatile"])
_SPECIFIERS = frozenset(("inline", "constexpr", "static"))
_MISREAD = frozenset(("extern", "friend", "typename"))
"""Keywords that the parser does not understand in all places where they may stand."""
_KNOWN = _MISREAD | _ATTRIBUTES | {"__attribute__", "__attribute", "__declspec", "__launch_bounds__", "__align__"}
_LONGEST_CALL = 2000
"""Words between the brackets of a macro call. No more are looked at."""
_WORDS_READ = 30
"""How often all words of the text may be read in search of closing brackets. More is needed by no text of C++."""


class Macros:
    """The words of a text that a parser of declarations must not see."""

    def __init__(self, words: Words, directives: Directives) -> None:
        self._words = words
        self._count = len(words.words)
        self._directives = directives.indices
        self.left_out = set[int]()
        """Indices of the words to leave out."""
        self.calls: list[tuple[int, int]] = []
        """Places, from and to, of calls to leave out."""
        self._heads = set[int]()
        """Those of the words left out that stand between `class` and its name."""
        self._after_calls = set[int]()
        self._left_to_read = _WORDS_READ * self._count
        for index in self._candidates():
            if index not in self.left_out:
                self._judge(index)

    def _candidates(self) -> list[int]:
        names = _KNOWN & self._words.kind_of.keys()
        names |= {
            name for name in self._words.names if len(name) > 2 and (name.isupper() or name[:2] == "__" == name[-2:])
        }
        if not names:
            return []
        words = self._words.words
        return [i for i in compress(range(self._count), map(names.__contains__, words)) if i not in self._directives]

    def _after(self, index: int) -> tuple[int, str]:
        """The next word that is no comment, and what is between, comments and blanks left out."""
        words = self._words
        if index >= self._count:
            return index, ""
        between = words.gaps[index + 1].strip()
        index += 1
        while index < self._count and words.kinds[index] == COMMENT:
            between += words.gaps[index + 1].strip()
            index += 1
        return index, between

    def _after_place(self, behind: int, place: int) -> tuple[int, str]:
        """The same for a place in the gap before this word."""
        following, between = self._after(behind - 1)
        gap = self._words.gaps[behind]
        left = gap[place + 1 - self._words.ends[behind - 1] :].strip()
        return following, left + between[len(gap.strip()) :]

    def _before(self, index: int) -> tuple[int, str]:
        """The last word before this one that is no comment, and what is between."""
        words = self._words
        between = words.gaps[index].strip()
        index -= 1
        while index >= 0 and words.kinds[index] == COMMENT:
            between = words.gaps[index].strip() + between
            index -= 1
        if index in self._directives and between:
            between = words.text[words.ends[index] : words.starts[index + 1]].partition("\n")[2].strip()
        return index, between

    def _word(self, index: int) -> str:
        return self._words.words[index] if 0 <= index < self._count else ""

    def _judge(self, index: int) -> None:
        word = self._words.words[index]
        following, between = self._after(index)
        if word in _MISREAD:
            self._judge_keyword(index, following, between)
        elif word in _ATTRIBUTES:
            self.left_out.add(index)
        elif between[:1] == "(":
            self._judge_call(index)
        elif between:
            if self._is_attribute_before(index, between):
                self.left_out.add(index)
        elif following < self._count and self._is_attribute(index, following):
            self.left_out.add(index)

    def _judge_keyword(self, index: int, following: int, between: str) -> None:
        word, next_word = self._words.words[index], self._word(following)
        if between:
            return
        if word == "friend":
            if next_word in _SPECIFIERS:
                self.left_out.add(following)
            previous, between = self._before(index)
            if not between and self._word(previous) in _SPECIFIERS:
                self.left_out.add(previous)
        elif word == "extern":
            if next_word == "template":
                self.left_out.add(index)
        elif self._after(following)[1][:2] == "::":
            previous, between = self._before(index)
            if between[-1:] in ("(", "=", "{") or (
                not between and self._word(previous) in ("return", "using", "throw")
            ):
                self.left_out.add(index)

    def _is_attribute_before(self, index: int, following: str) -> bool:
        """Whether this word is an attribute, if this punctuation follows it."""
        word = self._words.words[index]
        if following[:1] in ("{", ":", ";") and following[:2] != "::":
            name, between = self._before(index)
            if between[-1:] == ")" or (not between and self._word(name) in _FOLLOW_DECLARATORS):
                return _LIKELY.fullmatch(word) is not None
            if following[:1] == ";" or between or name in self.left_out or self._words.kinds[name] != NAME:
                return False
            key, between = self._before(name)
            return not between and (self._word(key) in _CLASS_KEYS or key in self._heads)
        if following[0] == "}":
            previous, _ = self._before(index)
            return "_" in word and self._begins(index) and "enum" not in self._words.words[max(previous - 4, 0) : index]
        return following[:2] in ("~", "[[", "::") and _LIKELY.fullmatch(word) is not None

    def _is_attribute(self, index: int, following: int) -> bool:
        """Whether this word is an attribute, if that word follows it."""
        words = self._words
        likely = _LIKELY.fullmatch(words.words[index]) is not None
        previous, between = self._before(index)
        if following in self._directives:
            return (likely or "_" in words.words[index]) and between[-1:] != "{" and self._begins(index)
        if words.kinds[following] not in (NAME, KEYWORD):
            return False
        after, punctuation = self._after(following)
        if not between and (self._word(previous) in _CLASS_KEYS or previous in self._heads):
            if likely or punctuation[:1] in ("{", ":") or self._word(after) == "final":
                self._heads.add(index)
                return True
            return False
        if likely:
            return between[-1:] not in ("=", ".", "+", ">") or between[-2:] != "->"
        if not self._begins(index) and (between or self._word(previous) not in _BEGIN_DECLARATIONS):
            return False
        if words.words[following] == "const":
            return punctuation == "" and (self._word(after) in _BEGIN_DECLARATIONS or self._is_typed(after))
        if words.words[following] in _BEGIN_DECLARATIONS:
            return words.words[following] != "operator"
        return ("_" in words.words[index] and "\n" in words.gaps[index + 1]) or self._is_typed(following)

    def _is_typed(self, index: int) -> bool:
        """Whether this word seems to be a type: a name follows."""
        after, punctuation = self._after(index)
        return after < self._count and self._words.kinds[after] == NAME and punctuation in ("", "*", "&", "&&")

    def _begins(self, index: int) -> bool:
        """Whether a declaration or a statement may begin with this word."""
        previous, between = self._before(index)
        if previous < 0 or index in self._after_calls:
            return True
        if between:
            return between[-1] in ";{}>" or (between[-1] == ":" and between[-2:] != "::" and "?" not in between)
        return previous in self._directives or previous in self.left_out

    def _judge_call(self, index: int) -> None:
        words = self._words
        behind, place = self._closing(index)
        if behind < 0:
            return
        following, between = self._after_place(behind, place)
        previous, before = self._before(index)
        if (
            _WITH_ARGUMENTS.fullmatch(words.words[index])
            or (not before and self._word(previous) in _CLASS_KEYS and not between)
            or (before[-1:] in ("]", ")") and between[:1] in (";", "{", ","))
        ):
            self._leave_out(index, behind, place)
        elif self._begins(index) and self._is_statement(index, behind, place, following, between):
            if between[:1] == "=":
                behind, place = self._semicolon(behind, place)
            self._leave_out(index, behind, place)
            self._after_calls.add(following)

    def _is_statement(self, index: int, behind: int, place: int, following: int, between: str) -> bool:
        """Whether a call at the begin of a statement is all of it."""
        words = self._words
        named = "_" in words.words[index]
        if between:
            if between[0] == "=":
                return named and between[:2] != "==" and self._word(following) not in ("default", "delete", "0")
            if between[0] == ";":
                return named and "{" not in words.text[words.starts[index] : place]
            return between[0] in "}~" or between[:2] == "[["
        if following >= self._count or following in self._directives:
            return True
        if words.words[following] in _BEGIN_DECLARATIONS - _FOLLOW_DECLARATORS:
            return True
        return "\n" in words.text[place : words.starts[following]] and words.words[following] not in _FOLLOW_DECLARATORS

    def _leave_out(self, index: int, behind: int, place: int) -> None:
        self.left_out.update(range(index, behind))
        self.calls.append((self._words.starts[index], place + 1))

    def _semicolon(self, behind: int, place: int) -> tuple[int, int]:
        """Where the statement ends after this place: the index of the word behind the semicolon, and its place."""
        words = self._words
        for i in range(behind, min(behind + _LONGEST_CALL, len(words.gaps))):
            found = words.text.find(";", max(place, words.ends[i - 1]), words.ends[i - 1] + len(words.gaps[i]))
            if found >= 0:
                return i, found
        return behind, place

    def _closing(self, index: int) -> tuple[int, int]:
        """Where the bracket closes that opens after this word: the index of the word behind it, and its place."""
        words = self._words
        depth = 0
        for i in range(index + 1, min(index + min(_LONGEST_CALL, self._left_to_read), len(words.gaps))):
            self._left_to_read -= 1
            gap = words.gaps[i]
            if "(" in gap or ")" in gap:
                for j, character in enumerate(gap):
                    if character == "(":
                        depth += 1
                    elif character == ")":
                        depth -= 1
                        if depth == 0:
                            return i, words.ends[i - 1] + j
        return -1, -1
