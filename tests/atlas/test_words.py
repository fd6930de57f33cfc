"""Names taken apart."""

from __future__ import annotations

import pytest

from torchreel.atlas.words import LANGUAGE_WORDS, STOP_WORDS, parts, plain


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("GradScaler", ["Grad", "Scaler"]),
        ("CUDAGraphTree", ["CUDA", "Graph", "Tree"]),
        ("cudagraph_trees2", ["cudagraph", "trees", "2"]),
        ("Conv2d", ["Conv", "2", "d"]),
        ("__init__", ["init"]),
        ("profiler_edge.h", ["profiler", "edge", "h"]),
        ("größeÄndern", ["größeÄndern"]),
        ("___", []),
        ("", []),
    ],
)
def test_a_name_is_split_where_its_spelling_changes(name: str, expected: list[str]) -> None:
    assert parts(name) == expected


def test_a_plain_name_has_no_capitals_and_nothing_around_it() -> None:
    assert [plain(name) for name in ("__init__", "_ReLU", "clip_grad_norm_", "_", "ÉT")] == [
        "init",
        "relu",
        "clip_grad_norm",
        "",
        "ét",
    ]


def test_words_that_say_nothing_are_known() -> None:
    assert {"the", "which", "todo"} <= STOP_WORDS
    assert {"self", "isinstance", "ValueError", "lambda", "constexpr", "size_t"} <= LANGUAGE_WORDS
    assert not {"tensor", "relu", "graph"} & (STOP_WORDS | LANGUAGE_WORDS)
