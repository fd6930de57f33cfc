"""Under which words a file is found, what they are to it, and where."""

from __future__ import annotations

from tests.atlas.made import made, symbol
from torchreel.atlas.model import Registration, Use
from torchreel.atlas.search_index import Entries, entries


def test_names_parts_docs_uses_and_the_path() -> None:
    parsed = made(
        [
            symbol("GradScaler", "class", 5, doc="Scales the gradients. Nothing else."),
            symbol("__init__", "method", 7, "GradScaler"),
            symbol("_unscale_grads_", "method", 9, "GradScaler"),
            symbol("_scale", "attribute", 8, "GradScaler"),
            symbol("OptState", "variable", 3),
        ],
        {Use("Tensor", path="torch.Tensor"): [12, 9], "found_inf": [10], "isinstance": [11], "x": [11]},
        doc="Mixed precision.\n\nMore of it.",
    )
    assert entries("torch/amp/grad_scaler.py", parsed) == Entries(
        {
            "GradScaler": "A5",
            "scaler": "F5O",
            "scales": "K5",
            "gradients": "K5",
            "__init__": "R7",
            "_unscale_grads_": "C9",
            "grads": "G9",
            "_scale": "D8",
            "OptState": "B3",
            "state": "H3",
            "mixed": "J",
            "precision": "J",
            "Tensor": "L9",
            "found_inf": "M10",
            "torch": "P",
            "amp": "P",
            "grad_scaler": "N",
            "py": "Q",
        }
    )


def test_the_best_that_a_word_is_counts_and_its_first_line() -> None:
    parsed = made(
        [
            symbol("graph", "field", 9, "Node"),
            symbol("graph", "function", 40),
            symbol("graph", "function", 30),
            symbol("sub_graph", "function", 2),
        ],
        {"graph": [1, 35]},
    )
    assert entries("r/a.py", parsed).marks["graph"] == "A30"


def test_what_is_within_a_scope_of_python_is_hidden_and_in_a_namespace_of_cpp_is_not() -> None:
    symbols = [
        symbol("native", "namespace", 1, "at"),
        symbol("relu", "function", 2, "at"),
        symbol("Kernel", "struct", 3, "at", declaration=True),
        symbol("RELU_MAX", "macro", 4),
        symbol("operator()", "method", 5, "at::Kernel"),
        symbol("~Kernel", "method", 6, "at::Kernel"),
    ]
    registrations = [Registration(7, "m.impl", "aten::relu.out", "CPU")]
    found = {
        language: entries("r/a.x", made(symbols, language=language, registrations=registrations)).marks
        for language in ("c++", "python")
    }
    assert found["c++"] == {
        "native": "R",
        "relu": "A2",
        "out": "B7",
        "Kernel": "C6",
        "RELU_MAX": "A4",
        "max": "F4",
        "operator": "C5",
        "r": "P",
        "a": "N",
        "x": "Q",
    }
    assert found["python"]["relu"] == "B7"


def test_headings_are_found_by_their_words() -> None:
    parsed = made([symbol("The Limits of CUDAGraph Trees", "heading", 12)], language="rst")
    assert entries("docs/trees.rst", parsed).marks == {
        "Limits": "I12",
        "CUDAGraph": "I12",
        "Trees": "I12",
        "docs": "P",
        "trees": "N",
        "rst": "Q",
    }


def test_a_package_is_found_by_its_name() -> None:
    assert entries("torch/_export/__init__.py", made()).marks == {"torch": "P", "export": "N", "py": "Q"}
    assert entries("__init__.py", made()).marks == {"init": "N", "py": "Q"}


def test_words_hold_letters_digits_and_underscores_only() -> None:
    hostile = ['</script>"', "a;b c", "\u2028", "back\\slash", "__proto__", "größe", "x" * 101, "_", "\udc80", "𐐨"]
    parsed = made(
        [symbol(name, "function", line) for line, name in enumerate(hostile, 2)],
        {name: [20] for name in hostile},
        doc=" ".join(hostile),
    )
    found = entries("r/a\udc80b/</script>.py", parsed).marks
    assert sorted(found) == ["__proto__", "a", "b", "back", "c", "größe", "py", "r", "script", "slash", "𐐨"]
