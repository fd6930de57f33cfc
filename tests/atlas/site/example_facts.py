"""Small facts for every kind of page, and the same with hostile text in each field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from torchreel.atlas.model import Costs, FileFacts, Keyword, LineOp, Link, Look, Registration, Symbol
from torchreel.atlas.site import paths
from torchreel.atlas.site.facts import (
    CostRow,
    DerivativeRow,
    FolderFacts,
    FolderRow,
    IndexFacts,
    KernelRow,
    KeywordFacts,
    KeywordRow,
    OpFacts,
    OpRow,
    OpsIndexFacts,
    OverloadFacts,
    RootRow,
    RunFacts,
    ShapeRow,
    Site,
    SummaryRow,
    TourFacts,
    TourFunction,
    TourStop,
)
from torchreel.atlas.site.markdown import llms_text, markdown_twin
from torchreel.atlas.site.pages import (
    file_page,
    folder_page,
    index_page,
    keyword_page,
    op_page,
    ops_page,
    tour_page,
)

EXPECTED = Path(__file__).parent / "expected"
HARMLESS = "y/y z`"
"""What may stand for the hostile text: as many folders, and as many backquotes."""
HOSTILE = "</script><img src=x onerror=alert(1)>\"'`|&\x01\udc80"
SITE = Site(
    "app",
    [Link("Keywords", "keywords/N.html"), Link("Tour", "tour.html")],
    {"python": ["eval", "exec"]},
)
COSTS = Costs(12, 3_000_000, 1_000_000, 2_000_000, 4_000_000, 2048, 5000, 2_400_000)
OP_COSTS = Costs(12, 3_000_000, 1_000_000, 2_000_000, 4_000_000, 2048, 5000)
"""Of an operator or a kernel: the backward part of its total is not known."""
TEXT = """import torch

class Net:
    \"\"\"A net. It learns.\"\"\"
    def forward(self, x):
        return x @ self.weight
"""
BODY = """<span class="k">import</span> torch

<span class="k">class</span> <span class="d">Net</span>:
    <span class="s">\"\"\"A net. It learns.\"\"\"</span>
    <span class="k">def</span> <span class="d">forward</span>(self, x):
        <span class="k">return</span> x @ self.<a href="#d.Net.weight">weight</a>
"""


def file_facts() -> FileFacts:
    """A file without a recording."""
    return FileFacts(
        root="app",
        path="nets/net.py",
        page=paths.file_page("app", "nets/net.py"),
        language="python",
        lines=6,
        bytes=len(TEXT),
        sha256="ab" * 32,
        commit="cd" * 20,
        doc="Nets that learn.\n\nMore of ``them``:\n\n    >>> Net()",
        errors=[2],
        symbols=[
            Symbol("Net", "", "class", 3, 6, "class Net", "A net. It learns."),
            Symbol("forward", "Net", "method", 5, 6, "def forward(self, x)"),
            Symbol("weight", "Net", "attribute", 6, 6),
        ],
        anchors=["d.Net", "d.Net.forward", "d.Net.weight"],
        imports=[Link("torch", "", "1")],
        imported_by=[Link("app/train.py", "../train.py.html", "2 names")],
        registrations=[Registration(6, "torch.library.custom_op", "app::net", "CPU")],
        registration_links=["../../../ops/app/net.html"],
        looks=[Look(6, "eval")],
        tests=[Link("app/test_net.py", "../test_net.py.html")],
        related=[Link("app/nets/other.py", "other.py.html", "3 references")],
        keywords=[Keyword("Net", "defines", 3, 2), Keyword("torch", "uses", 1, 1), Keyword("nets", "speaks", 4, 1)],
        body=BODY,
        text=TEXT,
    )


def recorded_file_facts() -> FileFacts:
    """The same file, entered by a run."""
    facts = file_facts()
    facts.recorded, facts.state, facts.costs = True, "same", COSTS
    facts.symbol_costs = {1: COSTS}
    facts.line_costs = {3: Costs(), 6: COSTS}
    facts.line_ops = [
        LineOp(6, "aten::mm", "", False, 4, 1_000_000, 2048, 5000, "../../../ops/aten/mm.html"),
        LineOp(6, "aten::mm", "out", True, 8, 2_000_000, 0, None),
    ]
    return facts


def folder_facts() -> FolderFacts:
    return FolderFacts(
        "app",
        "nets",
        paths.folder_page("app", "nets"),
        "Nets.",
        [FolderRow(Link("deep", "deep/index.html"), "Deep ones.", "", 2, 40, 6, COSTS)],
        [
            FolderRow(Link("net.py", "../../../files/app/nets/net.py.html"), "It learns.", "python", 0, 6, 3, Costs()),
            FolderRow(Link("net.h", "../../../files/app/nets/net.h.html"), "", "c++", 0, 9, 1, None),
        ],
        COSTS,
        [Link("Net", "../../../keywords/N.html#k.Net")],
    )


def index_facts() -> IndexFacts:
    row = CostRow(Link("nets/net.py:6", "files/app/nets/net.py.html#L6", "Net.forward"), COSTS, "return x")
    return IndexFacts(
        [RootRow(Link("app", "folders/app/index.html"), 3, 55, 1234, 10, [("python", 2), ("c++", 1)], COSTS)],
        run=RunFacts("run.reel", "train.py", "2026-01-02 03:04", "2.13.0", 9_000_000_000, COSTS, 20, Costs(1, 60_000)),
        lines=[row],
        functions=[row],
        files=[row],
        ops=[CostRow(Link("aten::mm", "ops/aten/mm.html"), OP_COSTS)],
    )


def keyword_facts() -> KeywordFacts:
    links = [Link("nets/net.py", "../files/app/nets/net.py.html#d.Net", "class"), Link("gone.py")]
    return KeywordFacts(
        "N-e",
        "keywords/N-e.html",
        [Link("M", "M.html"), Link("N", "N.html")],
        [KeywordRow("Net", "defines", links), KeywordRow("Net", "uses", links[:1]), KeywordRow("Next", "uses", links)],
        [Link("Ne", "N-e.html")],
    )


def tour_facts() -> TourFacts:
    function = TourFunction(Link("Net.forward", "files/app/nets/net.py.html#L5"), 5, COSTS)
    stop = TourStop(Link("nets/net.py", "files/app/nets/net.py.html"), 1500, COSTS, "It learns.", 0, [function])
    return TourFacts([stop, TourStop(Link("train.py"), 2500, Costs())], "train.py")


def op_facts() -> OpFacts:
    kernel = KernelRow("CPU", Link("mm_cpu", "../../files/aten/mm.cpp.html#L9", "mm.cpp:9"))
    overloads = [
        OverloadFacts(
            "aten::mm",
            "mm(Tensor self, Tensor mat2) -> Tensor",
            [kernel],
            [DerivativeRow("self", "grad.mm(mat2.t())")],
            [Link("app/ops.py:3", "../../files/app/ops.py.html#L3")],
            OP_COSTS,
        ),
        OverloadFacts("aten::mm.out", costs=Costs()),
    ]
    line = CostRow(Link("nets/net.py:6", "../../files/app/nets/net.py.html#L6"), OP_COSTS, "return x @ self.weight")
    shapes = [ShapeRow("[2, 3], [3, 4]", OP_COSTS)]
    return OpFacts("aten::mm", "ops/aten/mm.html", overloads, OP_COSTS, OP_COSTS, [line], shapes)


def ops_facts() -> OpsIndexFacts:
    return OpsIndexFacts(
        [OpRow(Link("aten::mm", "aten/mm.html"), 2, 1, OP_COSTS), OpRow(Link("app::net"), 1, 0, Costs())]
    )


def summary() -> list[SummaryRow]:
    net = SummaryRow(Link("app/nets/net.py", "md/app/nets/net.py.md"), "It learns.", COSTS)
    return [net, SummaryRow(Link("app/train.py", "md/app/train.py.md"))]


PAGES: dict[str, tuple[Callable[[], Any], Callable[[Any, Site], str]]] = {
    "file.html": (file_facts, file_page),
    "recorded_file.html": (recorded_file_facts, file_page),
    "folder.html": (folder_facts, folder_page),
    "index.html": (index_facts, index_page),
    "keywords.html": (keyword_facts, keyword_page),
    "tour.html": (tour_facts, tour_page),
    "op.html": (op_facts, op_page),
    "ops.html": (ops_facts, ops_page),
}
"""Each page by the name of the file that it should equal: its facts, and what makes it."""
TEXTS: dict[str, tuple[Callable[[], Any], Callable[[Any, Site], str]]] = {
    "file.md": (file_facts, markdown_twin),
    "recorded_file.md": (recorded_file_facts, markdown_twin),
    "llms.txt": (summary, lambda rows, site: llms_text(site, rows)),
}

# What is not text: paths within the site, HTML that is escaped already, words that we choose ourselves.
_NO_TEXT = {"page", "body", "state", "language", "kind", "text"}


def with_suffix(value: Any, suffix: str = HOSTILE) -> Any:
    """The same facts with a hostile text, or another one, behind each text."""
    if isinstance(value, str):
        return value + suffix
    if isinstance(value, list | tuple):
        return type(value)(with_suffix(one, suffix) for one in value)
    if isinstance(value, dict):
        return {key: with_suffix(one, suffix) for key, one in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {}
    for field in msgspec.structs.fields(value):
        old = getattr(value, field.name)
        fields[field.name] = old if _is_no_text(value, field.name) else with_suffix(old, suffix)
    return type(value)(**fields)


def _is_no_text(value: msgspec.Struct, name: str) -> bool:
    # The text of a link is text; that of a file stands in its body, and in a fence.
    return name in _NO_TEXT and not (name == "text" and isinstance(value, Link))
