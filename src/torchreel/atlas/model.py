"""What is known of a source file, and of the run that entered it: the words that all files of the atlas share.

A file is first *read* (its text alone: `Parsed`), then its names are *resolved* (with all other files), then its page
is *written* (`FileFacts`). These structures travel between processes as MessagePack, so they hold plain values only.
"""

from __future__ import annotations

import msgspec

# Kinds of symbols: namespace, class, struct, union, enum, enumerator, function, method, field, variable, macro, using,
# alias; and, beyond the usual, attribute (`self.x = ...`), heading (of a text), key (of a YAML file).

# Kinds of a token below zero; at or above zero it is an index in `Parsed.uses`.
COMMENT, STRING, KEYWORD, NUMBER, DEFINITION, PREPROCESSOR = -1, -2, -3, -4, -5, -6


class Symbol(msgspec.Struct, array_like=True):
    """A name that a file defines."""

    name: str
    scope: str
    """The names around it, joined with `::` (C++) or `.` (Python); empty at the top."""
    kind: str
    line: int
    """Of the name itself, from 1."""
    end_line: int
    """The last line of the definition."""
    signature: str = ""
    """Its declaration on one line, as the source has it, without the body."""
    doc: str = ""
    """Its docstring, or the comment above it, without quotes and comment marks."""
    declaration: bool = False
    """Whether it is only declared here: a prototype, a forward declaration, `extern`."""
    column: int = 0
    """Of the name, in characters from 0."""


class Import(msgspec.Struct, array_like=True):
    """An import of Python, an #include, or a path that a text names."""

    line: int
    target: str
    """What is imported: `torch.nn`, `..utils`, `ATen/ATen.h`. `from a import b, c` is two rows: `a.b` and `a.c`."""
    star: bool = False
    """`from target import *`."""
    local: str = ""
    """The name that it has in this file, where that is not the last part of the target: `import numpy as np`."""


class Use(msgspec.Struct, array_like=True, frozen=True):
    """A name as a file uses it. All occurrences with the same meaning share one."""

    name: str
    symbol: int = -1
    """Index in `Parsed.symbols` of what it names, where the scopes of this file say so."""
    path: str = ""
    """For an imported name: the whole dotted path, `torch.nn.functional.relu`; relative ones begin with dots."""


class Registration(msgspec.Struct, array_like=True):
    """An operator, a kernel or a stub that a line registers."""

    line: int
    what: str
    """How: TORCH_LIBRARY, m.def, m.impl, TORCH_IMPL_FUNC, DEFINE_DISPATCH, torch.library.custom_op ..."""
    name: str
    """The operator with its namespace if that is known, `aten::add.out`, or the stub's name."""
    key: str = ""
    """The dispatch key, if one is named."""


class Look(msgspec.Struct, array_like=True):
    """A call that is worth a look: it may execute what it is given."""

    line: int
    what: str
    """eval, exec, pickle.load, torch.load, os.system, subprocess with a shell ..."""


class Parsed(msgspec.Struct, array_like=True):
    """What the text of a file says by itself."""

    language: str
    doc: str = ""
    """The file's docstring or first comment (licences left out), without quotes and comment marks."""
    symbols: list[Symbol] = []
    """In the order of their lines."""
    imports: list[Import] = []
    uses: list[Use] = []
    lines: list[int] = []
    """Of each occurrence of a use, in order: its line, from 1 ..."""
    columns: list[int] = []
    """... its column, in characters from 0 ..."""
    slots: list[int] = []
    """... and its index in `uses`."""
    registrations: list[Registration] = []
    looks: list[Look] = []
    errors: list[int] = []
    """Lines where something was not understood."""
    prose: str = ""
    """All comments and docstrings, one after the other."""
    tokens: list[tuple[int, int, int]] = []
    """What is not plain: start and end (in characters of the text) and kind, in order and without overlap. A name that
    is used has its index in `uses`; a name that is defined is DEFINITION. A token may span lines."""


class Costs(msgspec.Struct, array_like=True):
    """What a run spent on something. 0 means: recorded, and not touched. Where nothing was recorded there are none."""

    calls: int = 0
    self_ns: int = 0
    forward_ns: int = 0
    backward_ns: int = 0
    total_ns: int = 0
    alloc_bytes: int = 0
    flops: int | None = None
    total_backward_ns: int | None = None
    """The part of `total_ns` in backward; None where that is not known: of operators and kernels."""


class Keyword(msgspec.Struct, array_like=True):
    """A word by which a file can be found."""

    keyword: str
    kind: str
    """defines, uses or speaks."""
    line: int
    count: int


class Link(msgspec.Struct, array_like=True):
    """A text on a page, and where it leads; nowhere, if there is no page of it."""

    text: str
    href: str = ""
    """Relative to the page that it is on, and quoted for a URL."""
    note: str = ""
    """What is said beside it: how many references, which line."""


class LineOp(msgspec.Struct, array_like=True):
    """What one op cost on one line."""

    line: int
    op: str
    overload: str
    backward: bool
    calls: int
    self_ns: int
    alloc_bytes: int
    flops: int | None
    href: str = ""


class LineKernel(msgspec.Struct, array_like=True):
    """What one kernel, copy or memset took on a device that one line had launched."""

    line: int
    device: str
    kernel: str
    calls: int
    dur_ns: int


class FileFacts(msgspec.Struct):
    """All that stands on the page of a file, and on its Markdown twin."""

    root: str
    path: str
    """Below its root, with slashes."""
    page: str
    """Where the page is in the site: `files/<root>/<path>.html`."""
    language: str
    lines: int
    bytes: int
    sha256: str
    commit: str = ""
    """Of the checkout that the file is in, if it is in one and is unchanged there."""
    state: str = ""
    """Against the recording: same, changed, unknown (nothing to compare with); empty without a reel, or not in it."""
    doc: str = ""
    errors: list[int] = []
    symbols: list[Symbol] = []
    anchors: list[str] = []
    """The id of each symbol on the page."""
    symbol_costs: dict[int, Costs] = {}
    imports: list[Link] = []
    """In the order of the source; the note is the line."""
    imported_by: list[Link] = []
    registrations: list[Registration] = []
    registration_links: list[str] = []
    """The page of each one's operator, or empty."""
    looks: list[Look] = []
    tests: list[Link] = []
    related: list[Link] = []
    keywords: list[Keyword] = []
    recorded: bool = False
    """Whether there is a reel at all."""
    costs: Costs | None = None
    line_costs: dict[int, Costs] = {}
    line_ops: list[LineOp] = []
    """By line, then by own time."""
    line_kernels: list[LineKernel] = []
    """By line, the longest first."""
    line_peaks: dict[int, int] = {}
    """By line: bytes that it had made and that lived at the peak of memory, of all devices together."""
    body: str = ""
    """The source as HTML, lines apart by newlines, each name as a link or plain."""
    text: str = ""
    """The source as it is."""
