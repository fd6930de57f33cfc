"""All that stands on the pages that are not of one file: of the site, folders, keywords, operators and the tour.

Each `page` is where the page lies in the site, and each link on it is relative to that. Costs are None where nothing
was recorded, and 0 where the run was recorded and did not touch the thing.
"""

from __future__ import annotations

import msgspec

from torchreel.atlas.model import Costs, Link


class Site(msgspec.Struct):
    """What all pages of a site share."""

    title: str
    pages: list[Link] = []
    """Named in the header of every page. These links are relative to the top of the site."""
    looked_for: dict[str, list[str]] = {}
    """By language: the calls worth a look that its reader looks for."""


class CostRow(msgspec.Struct):
    """A line, a function, a file or an op, and what it cost."""

    link: Link
    costs: Costs
    code: str = ""
    """The text of a line."""


class RootRow(msgspec.Struct):
    """A root of the site, all folders below it counted."""

    link: Link
    files: int
    lines: int
    bytes: int
    symbols: int
    languages: list[tuple[str, int]] = []
    """Each with its number of files."""
    costs: Costs | None = None


class RunFacts(msgspec.Struct):
    """The run that the reel of this site recorded."""

    reel: str
    """Its file name."""
    script: str
    recorded: str
    """When, as text."""
    torch: str
    """The version of PyTorch."""
    wall_ns: int
    costs: Costs
    """Of all lines, wherever their files are."""
    steps: int | None = None
    elsewhere: Costs | None = None
    """Of lines in files of no root: they are in the tables, and on no page."""
    notes: list[str] = []
    """What is missing of the recording, a sentence each."""


class IndexFacts(msgspec.Struct):
    """The front page."""

    roots: list[RootRow]
    page: str = "index.html"
    run: RunFacts | None = None
    lines: list[CostRow] = []
    """The costliest ones, costliest first; so are the others."""
    functions: list[CostRow] = []
    files: list[CostRow] = []
    ops: list[CostRow] = []


class FolderRow(msgspec.Struct):
    """A file or a folder in the table of its folder."""

    link: Link
    doc: str = ""
    """The first sentence of its own text; for a folder, of its `__init__.py` or README."""
    language: str = ""
    files: int = 0
    """Of a folder: how many are below it."""
    lines: int = 0
    symbols: int = 0
    costs: Costs | None = None


class FolderFacts(msgspec.Struct):
    """A folder of a root; the root itself, if the path is empty."""

    root: str
    path: str
    page: str
    doc: str = ""
    """What the folder says of itself: the docstring of its `__init__.py` or the start of its README."""
    subfolders: list[FolderRow] = []
    files: list[FolderRow] = []
    costs: Costs | None = None
    keywords: list[Link] = []
    """Of all files below it."""


class KeywordRow(msgspec.Struct):
    """A keyword with all places of one kind."""

    keyword: str
    kind: str
    """defines, uses or speaks."""
    links: list[Link]


class KeywordFacts(msgspec.Struct):
    """The keywords of one letter, or of its part with one second letter. The rows of a keyword follow each other."""

    letter: str
    """As the heading names it: `A`; with the second letter `A-d`."""
    page: str
    letters: list[Link]
    """All letters that have a page, in order."""
    rows: list[KeywordRow]
    seconds: list[Link] = []
    """The pages of this letter, where it has several. Its own page then has no rows."""


class TourFunction(msgspec.Struct):
    """A function that the run entered."""

    link: Link
    line: int
    costs: Costs


class TourStop(msgspec.Struct):
    """A file that the run entered."""

    link: Link
    at_ns: int
    """When it was entered first, since the beginning of the run."""
    costs: Costs
    doc: str = ""
    """The first sentence of its own text."""
    step: int | None = None
    """The step of the run in which that was, if it was in one."""
    functions: list[TourFunction] = []
    """In the order in which they were entered."""


class TourFacts(msgspec.Struct):
    """The files in the order in which the run entered them."""

    stops: list[TourStop]
    script: str = ""
    page: str = "tour.html"


class KernelRow(msgspec.Struct):
    """What an overload calls for some dispatch keys."""

    keys: str
    kernel: Link


class DerivativeRow(msgspec.Struct):
    """The formula by which the gradient of an argument is computed."""

    argument: str
    formula: str


class OverloadFacts(msgspec.Struct):
    """One overload of an operator."""

    name: str
    """With its overload: `aten::add.out`."""
    schema: str = ""
    kernels: list[KernelRow] = []
    derivatives: list[DerivativeRow] = []
    registered: list[Link] = []
    """Lines of the roots that register it."""
    costs: Costs | None = None


class ShapeRow(msgspec.Struct):
    """The calls with the same shapes of the inputs."""

    shapes: str
    costs: Costs


class OpFacts(msgspec.Struct):
    """An operator, all overloads."""

    name: str
    page: str
    overloads: list[OverloadFacts]
    costs: Costs | None = None
    backward: Costs | None = None
    """Of the calls that compute its gradients, and of all below them; None if nothing was recorded."""
    lines: list[CostRow] = []
    """Where it ran, costliest first."""
    shapes: list[ShapeRow] = []


class OpRow(msgspec.Struct):
    """An operator in the table of all."""

    link: Link
    overloads: int
    lines: int = 0
    """On how many lines it ran."""
    costs: Costs | None = None


class OpsIndexFacts(msgspec.Struct):
    """The operators that ran or are registered."""

    rows: list[OpRow]
    page: str = "ops/index.html"


class SummaryRow(msgspec.Struct):
    """A file in `llms.txt`."""

    link: Link
    """To the Markdown twin, relative to the top of the site."""
    doc: str = ""
    """The first sentence of its own text."""
    costs: Costs | None = None
