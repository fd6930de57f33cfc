"""The page of a file."""

from __future__ import annotations

import re

from tests.atlas.site.example_facts import COSTS, OP_COSTS, SITE, file_facts, recorded_file_facts
from tests.atlas.site.read_html import ReadPage
from torchreel.atlas.model import Costs, FileFacts, LineKernel, Symbol
from torchreel.atlas.site import paths
from torchreel.atlas.site.file_page import file_page
from torchreel.atlas.site.markdown import markdown_twin
from torchreel.atlas.site.sections import BY_DISPATCH, COMMANDS, NOT_ENTERED
from torchreel.atlas.symbols import anchors_of

HEADINGS = [
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
]


def headings(page: str) -> list[str]:
    return re.findall(r'<h2 id="[^"]+">([^<]+)</h2>', page)


def section(page: str, heading: str) -> str:
    return page.partition(f">{heading}</h2>")[2].partition("</section>")[0]


def empty_file() -> FileFacts:
    return FileFacts("app", "a.py", paths.file_page("app", "a.py"), "python", 0, 0, "00")


def test_the_headings_are_those_of_the_contract_in_its_order() -> None:
    assert headings(file_page(recorded_file_facts(), SITE)) == HEADINGS


def test_an_empty_file_has_them_too_and_each_says_that_there_is_nothing() -> None:
    page = file_page(empty_file(), SITE)
    assert headings(page) == HEADINGS
    for heading in HEADINGS:
        text = ReadPage(section(page, heading)).text.strip()
        assert text.endswith(".") or heading == "Performance", f"{heading} says {text!r}"
    assert 'class="source' not in page


def test_what_lived_at_the_peak_and_what_ran_on_devices() -> None:
    facts = recorded_file_facts()
    line = max(facts.line_costs, key=lambda one: facts.line_costs[one].self_ns)
    facts.line_peaks = {line: 3 << 20, 10_000: 1}
    facts.line_kernels = [LineKernel(line, "cuda:0", "gemm<float, 4>", 2, 1500)]
    page = file_page(facts, SITE)
    performance = section(page, "Performance")
    assert "Live at the peak of memory" in performance and "3.0 MiB" in performance
    assert "<td><code>gemm&lt;float, 4&gt;</code></td><td>cuda:0</td>" in performance
    assert "live at the peak: 3.00 MiB\non devices: 1.50 µs, 2 kernels" in section(page, "Source")
    assert "| `gemm<float, 4>` | cuda:0 | 1.50 µs | 2 |" in markdown_twin(facts, SITE)


def test_without_a_reel_the_performance_is_the_command_that_measures_it() -> None:
    performance = section(file_page(file_facts(), SITE), "Performance")
    assert "\n".join(COMMANDS) in performance
    assert "<table" not in performance


def test_null_and_zero_are_told_apart() -> None:
    facts = file_facts()
    structure = section(file_page(facts, SITE), "Structure")
    assert "self" not in ReadPage(structure).text.replace("self,", "")
    facts.recorded, facts.costs = True, Costs()
    page = file_page(facts, SITE)
    assert NOT_ENTERED in section(page, "Performance")
    assert COMMANDS[0] not in page
    assert section(page, "Structure").count('<td class="n zero">0</td>') == 4


def test_the_gutter_is_there_only_with_costs() -> None:
    facts = file_facts()
    assert '<div class="source digits3" ' in file_page(facts, SITE)
    facts.recorded, facts.costs, facts.line_costs = True, Costs(), {6: Costs()}
    assert '<div class="source digits3" ' in file_page(facts, SITE)
    assert '<div class="source digits3 costed split" ' in file_page(recorded_file_facts(), SITE)
    many = recorded_file_facts()
    many.line_costs[6] = Costs(1_234_567, 1, 1, 0, 1)
    assert '<div class="source digits3 costed split many" ' in file_page(many, SITE)


def test_costs_of_cpp_say_whence_they_come() -> None:
    facts = recorded_file_facts()
    facts.language = "c++"
    assert BY_DISPATCH in section(file_page(facts, SITE), "Performance")


def test_costs_of_kernels_have_no_backward_part_of_the_total() -> None:
    facts = recorded_file_facts()
    facts.language, facts.costs = "c++", OP_COSTS
    facts.symbol_costs, facts.line_costs = {1: OP_COSTS}, {6: OP_COSTS}
    page = file_page(facts, SITE)
    assert "of it backward" not in page and "backward of total" not in page
    assert page.count('<rect class="t" ') == 5 and '<rect class="t' not in page.replace('<rect class="t" ', "")
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", section(page, "Performance").partition("Costliest lines")[2])
    assert heads[:7] == ["line", "source", "", "self", "backward", "total", "calls"]
    assert '<div class="source digits3 costed" ' in page
    assert "<i>self</i><i>total</i><i></i><i>calls</i>" in page


def test_a_changed_source_is_said_in_the_head() -> None:
    facts = recorded_file_facts()
    states = {"changed": "Changed since recorded", "unknown": "could not be compared", "same": "the same as"}
    for state, words in states.items():
        facts.state = state
        assert words in file_page(facts, SITE).partition("</header>\n\n<section>")[0]


def test_the_name_in_a_signature_is_a_whole_word() -> None:
    facts = empty_file()
    facts.symbols = [
        Symbol("f", "", "function", 1, 1, "def f(f_, of)"),
        Symbol("x", "", "variable", 1, 1, "from_x = max_"),
        Symbol("", "", "struct", 1, 1, "struct"),
    ]
    facts.anchors, facts.body = anchors_of(facts.symbols), "def f"
    structure = section(file_page(facts, SITE), "Structure")
    assert '<code>def <a href="#d.f">f</a>(f_, of)</code>' in structure
    assert '<code><a href="#d.x">x</a></code>' in structure


def test_the_costliest_are_ten_and_the_rest_is_said() -> None:
    facts = recorded_file_facts()
    facts.body = facts.text = "x\n" * 30
    facts.line_costs = {line: Costs(1, line, line, 0, line) for line in range(1, 26)}
    performance = section(file_page(facts, SITE), "Performance")
    assert "10 of 25; the others stand beside the source" in performance
    rows = performance.partition("Costliest lines")[2].partition("Costliest functions")[0]
    assert [int(one) for one in re.findall(r'href="#L(\d+)"', rows)] == list(range(25, 15, -1))


def test_lines_that_the_page_does_not_have_are_no_links() -> None:
    facts = recorded_file_facts()
    facts.line_costs = {999: COSTS}
    facts.errors = [999]
    page = file_page(facts, SITE)
    assert 'href="#L999"' not in page
    assert '<td class="n">999</td>' in section(page, "Performance")
