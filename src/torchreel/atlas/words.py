"""Words: what names and sentences are made of. Keywords and search take them apart in the same way."""

from __future__ import annotations

import builtins
import keyword
import re

WORD = re.compile(r"\w+")
# Letters beyond ASCII count as small ones, so that JavaScript, with other tables of Unicode, splits in the same places.
_PART = re.compile(r"[A-Z]+(?![a-z\x80-\U0010ffff])|[A-Z]?[a-z\x80-\U0010ffff]+|[0-9]+")

_STOP = """
    a about above after again all also although always an and any are as at be because been before being below between
    both but by can cannot could did do does doing done down during each either else etc even ever every few for from
    further had has have having he her here him his how however i if in instead into is it its itself just least less
    let like ll many may maybe me might more most much must my need needs neither never no nor not note now of off often
    on once one only onto or other others otherwise our out over own per please rather re really same see shall she
    should since so some still such t than that the their them then there therefore these they this those though through
    thus to too todo two under until up upon us use used uses using usually very via want was way we well were what when
    where whether which while who whole whom whose why will with within without won would yes yet you your
    """
STOP_WORDS = frozenset(_STOP.split())

_C_WORDS = """
    alignas alignof auto bool break case catch char class const const_cast constexpr constinit consteval continue
    decltype default delete do double dynamic_cast else enum explicit export extern false final float for friend goto if
    inline int long mutable namespace new noexcept nullptr operator override private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    size_t ssize_t ptrdiff_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t
    std make_unique make_shared make_pair make_tuple move forward get begin end push_back emplace_back string vector
    unique_ptr shared_ptr weak_ptr unordered_map unordered_set initializer_list runtime_error string_view size data
    NULL TRUE FALSE __FILE__ __LINE__ __func__ __cplusplus defined ifdef ifndef endif elif include pragma
    """
LANGUAGE_WORDS = frozenset([*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "self", "cls", *_C_WORDS.split()])
"""Keywords and builtins of Python and C++: they say nothing of the file that uses them."""


def parts(name: str) -> list[str]:
    """The words that a name is written of: `CUDAGraph_trees2` is CUDA, Graph, trees and 2."""
    return _PART.findall(name)


def plain(name: str) -> str:
    """A name as people type it: without underscores around it, and in lower case."""
    return name.strip("_").lower()
