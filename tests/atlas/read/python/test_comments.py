"""What a file is about, and its prose."""

from __future__ import annotations

import pytest

from tests.atlas.read.python.reading import read


@pytest.mark.parametrize(
    ("text", "doc"),
    [
        ('#!/usr/bin/env python\n# comment\n"""\n    Docstring.\n\n    More.\n    """\n', "Docstring.\n\nMore."),
        ("#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n# What it\n#  does.\nimport os\n", "What it\n does."),
        ("# Copyright (c) Somebody.\n# All rights reserved.\n\n# What it does.\n\nimport os\n", "What it does."),
        ("# mypy: allow-untyped-defs\nimport os\n# Later.\n", ""),
        ("# SPDX-License-Identifier: MIT\n", ""),
        ("# Helps the function.\ndef f(): ...\n", ""),
        ("# Helps the class.\n@decorated\nclass A: ...\n", ""),
        ("# About the file.\n\ndef f(): ...\n", "About the file."),
        ("# Only comments.\n#\n# Nothing else.", "Only comments.\n\nNothing else."),
        ("import os\n# Later.\n", ""),
        ("# Früh.\r\n# Spät.\r\nx = 1\r\n", "Früh.\nSpät."),
        ("b'bytes'\n", ""),
        ("f'{x}'\n", ""),
        ('"""</script><b>"""\n', "</script><b>"),
        ("", ""),
    ],
)
def test_doc(text: str, doc: str) -> None:
    assert read(text).doc == doc


def test_prose_is_all_comments_and_docstrings_in_order() -> None:
    parsed = read('''\
        #! first
        """Second."""
        x = "no"  #: third
        """Fourth."""
        def f():
            """Fifth
               and more."""
            # é sixth ##
            "no"
        ''')
    assert parsed.prose == "! first\nSecond.\nthird\nFourth.\nFifth\nand more.\né sixth ##"
