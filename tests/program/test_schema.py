"""Schemas as torch prints them, taken apart and held against torch's own."""

from __future__ import annotations

import torch

from torchreel.program.schema import arguments


def test_every_schema_of_torch_is_taken_apart_as_torch_does() -> None:
    schemas = torch._C._jit_get_all_schemas()
    assert len(schemas) > 3000
    for schema in schemas:
        if "..." in str(schema):
            continue
        expected = [(argument.name, argument.kwarg_only) for argument in schema.arguments]
        found = [(argument.name, argument.keyword_only) for argument in arguments(str(schema))]
        assert found == expected, schema
        written = [argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments]
        assert [argument.written for argument in arguments(str(schema))] == written, schema
        optional = [argument.has_default_value() for argument in schema.arguments]
        assert [argument.default is not None for argument in arguments(str(schema))] == optional, schema


def test_a_tensor_is_told_from_a_list_of_tensors() -> None:
    schema = (
        "x::y(Tensor a, Tensor? b, Tensor(c!) c, Tensor(d!)? d, Tensor[] e, Tensor?[] f, Tensor(g!)[] g, int h) -> ()"
    )
    assert [argument.name for argument in arguments(schema) if argument.is_tensor] == ["a", "b", "c", "d"]


def test_a_default_is_known_by_value_and_type() -> None:
    schema = 'x::y(Scalar a=1, float b=1., int[2] c=0, str d="mean", bool e=False, int? f=None, int[] g=[1, 2]) -> ()'
    a, b, c, d, e, f, g = arguments(schema)
    assert a.is_default(1) and not a.is_default(1.0) and not a.is_default(True)
    assert b.is_default(1.0) and not b.is_default(1)
    assert c.is_default([0, 0]) and not c.is_default([0]) and not c.is_default([0, 0, 0])
    assert d.is_default("mean") and not d.is_default("sum")
    assert e.is_default(False) and not e.is_default(0) and not e.is_default(None)
    assert f.is_default(None) and not f.is_default(0)
    assert g.is_default([1, 2]) and not g.is_default([2, 1])


def test_what_is_no_schema_has_no_arguments() -> None:
    for text in ("", "aten::add", "(", "((((", "aten::add(" * 50, "a(b c=" + "[" * 5000, "a(b c='\\"):
        for argument in arguments(text):
            assert not argument.is_default(0)
