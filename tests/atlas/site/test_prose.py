"""Docstrings as HTML."""

from __future__ import annotations

from torchreel.atlas.site.prose import inline, prose


def test_paragraphs_flow_lists_keep_lines_and_examples_keep_columns() -> None:
    doc = """One line
and another with ``code`` & <b>.

Args:
    x: an argument

- first
- second

    >>> f(1)
    1

    >>> f(2)

Shape  size
=====  ====
"""
    assert prose(doc) == (
        "<p>One line and another with <code>code</code> &amp; &lt;b&gt;.</p>\n"
        '<p class="kept">Args:\n    x: an argument</p>\n'
        '<p class="kept">- first\n- second</p>\n'
        "<pre>    &gt;&gt;&gt; f(1)\n    1\n\n    &gt;&gt;&gt; f(2)\n\nShape  size\n=====  ====</pre>\n"
    )


def test_code_in_backquotes_with_and_without_a_role() -> None:
    assert inline("``a`` `b` :class:`C` :py:meth:`~d.e` it's `open") == (
        "<code>a</code> <code>b</code> <code>C</code> <code>~d.e</code> it&#x27;s `open".replace("&#x27;", "'")
    )


def test_markup_within_code_stays_text() -> None:
    assert inline("``<script>``") == "<code>&lt;script&gt;</code>"


def test_nothing() -> None:
    assert prose(" \n ") == ""
