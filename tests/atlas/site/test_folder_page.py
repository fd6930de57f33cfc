"""The page of a folder."""

from __future__ import annotations

from tests.atlas.site.example_facts import OP_COSTS, SITE, folder_facts
from torchreel.atlas.model import Costs
from torchreel.atlas.site.folder_page import folder_page


def test_a_file_that_was_not_recorded_has_a_dash_and_one_that_was_not_touched_a_zero() -> None:
    page = folder_page(folder_facts(), SITE)
    rows = {row.partition('.html">')[2][:6]: row for row in page.split("<tr>")}
    assert rows["net.py"].count('<td class="n zero" data-value="0">0</td>') == 4
    assert rows["net.h<"].count('<td class="n none" title="not recorded">\N{EN DASH}</td>') == 4


def test_of_the_total_of_kernels_the_backward_part_is_not_known() -> None:
    facts = folder_facts()
    facts.files[1].costs = OP_COSTS
    (row,) = [row for row in folder_page(facts, SITE).split("<tr>") if ">net.h<" in row]
    known = '<td class="n" data-value="4000000">4.00 ms</td>'
    assert f'{known}<td class="n none" title="not known">\N{EN DASH}</td><td class="n" data-value="12">12</td>' in row


def test_without_a_reel_there_are_no_columns_of_costs() -> None:
    facts = folder_facts()
    facts.costs = None
    for row in facts.files + facts.subfolders:
        row.costs = None
    page = folder_page(facts, SITE)
    assert ">self<" not in page
    assert "not recorded" not in page


def test_a_folder_that_the_run_did_not_touch_says_so() -> None:
    facts = folder_facts()
    facts.costs = Costs()
    assert "The run was recorded, and spent nothing in this folder." in folder_page(facts, SITE)


def test_the_page_of_a_root_has_its_name() -> None:
    facts = folder_facts()
    facts.path, facts.page = "", "folders/app/index.html"
    page = folder_page(facts, SITE)
    assert "<title>app</title>" in page
    assert '<h1>app<span class="soft">/</span></h1>' in page
    assert 'class="trail"' not in page


def test_an_empty_folder() -> None:
    facts = folder_facts()
    facts.subfolders, facts.files, facts.keywords = [], [], []
    page = folder_page(facts, SITE)
    assert "There are no folders in it." in page
    assert "There are no source files right in it." in page
    assert "No keywords were found below it." in page
