"""The sections of a file's page and of its Markdown twin, and what they say when there is nothing to say."""

from __future__ import annotations

from collections import Counter

from torchreel.atlas.model import FileFacts, Keyword
from torchreel.atlas.read.languages import CPP, PYTHON
from torchreel.atlas.site.facts import Site
from torchreel.atlas.site.format import count_text

HEADINGS = (
    "About",
    "Structure",
    "Imports",
    "Imported by",
    "Registers",
    "Performance",
    "Calls worth a look",
    "Tests",
    "Related",
    "Keywords",
    "Source",
)
EMPTY = {
    "About": "The file does not begin with a docstring or a comment that says what it is.",
    "Structure": "No definitions were found in it.",
    "Imports": "No imports were found in it.",
    "Imported by": "No file of this site imports it.",
    "Registers": "It registers no operators: TORCH_LIBRARY, TORCH_IMPL_FUNC, DEFINE_DISPATCH, REGISTER_DISPATCH, "
    "torch.library and m.def were looked for.",
    "Tests": "No test file of this site imports it.",
    "Related": "No references between it and other files of this site were found.",
    "Keywords": "No keywords were found in it.",
    "Source": "The file is empty.",
}
COMMANDS = ("torchreel record --stacks script.py", "torchreel atlas run.reel -o SITE")
NOT_RECORDED = "This site was made without a recording. These commands measure what each line costs:"
NOT_IN_RECORDING = "The recording says nothing about this file. A recording with stacks tells what each line costs:"
NOT_ENTERED = "The run was recorded, and spent nothing in this file."
BY_DISPATCH = (
    "A recording has no frames of C++. These costs come by the dispatch table and not from frames: what an operator "
    "cost stands at the definition of the kernel that it calls."
)
STATES = {
    "same": "the same as when the run was recorded",
    "changed": "Changed since recorded: the costs are those of another version, and may stand at the wrong lines.",
    "unknown": "The recording has no copy of this file, so the source could not be compared with what ran.",
}
_KINDS = ("defines", "uses", "speaks")
_SPELLED = {PYTHON: "Python", "c++": "C++", "cuda": "CUDA", "yaml": "YAML", "rst": "reStructuredText", "cmake": "CMake"}
_NOUNS = {"using": "using declaration", "key": "key"}


def language_text(language: str) -> str:
    """The name of a language as its people write it."""
    return _SPELLED.get(language) or language[:1].upper() + language[1:]


def counts_text(facts: FileFacts) -> str:
    """How many symbols of each kind a file has, and how many imports."""
    kinds = Counter(symbol.kind for symbol in facts.symbols)
    parts = [count_text(count, _NOUNS.get(kind, kind)) for kind, count in kinds.most_common()]
    parts.append(count_text(len(facts.imports), "include" if is_cpp(facts) else "import"))
    return f"{', '.join(parts)}."


def by_kind(keywords: list[Keyword]) -> list[tuple[str, list[Keyword]]]:
    """The keywords in their order, apart by kind."""
    found: dict[str, list[Keyword]] = {kind: [] for kind in _KINDS}
    for keyword in keywords:
        found.setdefault(keyword.kind, []).append(keyword)
    return [(kind, rows) for kind, rows in found.items() if rows]


def looked_for_text(facts: FileFacts, site: Site) -> str:
    """Which calls the reader of this language looks for."""
    names = site.looked_for.get(facts.language)
    if not names:
        return f"No calls are looked for in files of this language ({language_text(facts.language)})."
    return f"Looked for: {', '.join(names)}."


def performance_text(facts: FileFacts) -> str:
    """What is to be said before, or instead of, the numbers."""
    if facts.costs is None:
        return NOT_IN_RECORDING if facts.recorded else NOT_RECORDED
    if not touched(facts):
        return NOT_ENTERED
    return BY_DISPATCH if is_cpp(facts) else ""


def touched(facts: FileFacts) -> bool:
    """Whether the run spent anything in the file."""
    return facts.costs is not None and bool(facts.costs.calls or facts.costs.total_ns)


def is_cpp(facts: FileFacts) -> bool:
    return facts.language in CPP


def id_of(heading: str) -> str:
    """The id of a heading. Those of symbols begin with `d.`, and those of lines with `L`."""
    return heading.lower().replace(" ", "-")
