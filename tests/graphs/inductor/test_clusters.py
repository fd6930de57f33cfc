"""Which ops of a recording would be one kernel, what it takes, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchreel.graphs.inductor.clusters import Cluster, clusters_of
from torchreel.graphs.options import GraphOptions
from torchreel.graphs.record.take import Take


def found(function: Callable[..., Any], *args: Tensor, exact: bool = True) -> list[Cluster]:
    take = Take(function, args, {})
    take.begin()
    take.run(args, {}, None)
    parts = take._captured.parts()
    return clusters_of(parts.program, take._native(parts, GraphOptions(inductor=True)), exact)


def names(cluster: Cluster) -> list[str]:
    return [op.name.removeprefix("aten::").partition(".")[0] for op in cluster.ops]


X, Y = torch.randn(4, 6), torch.randn(4, 6)


@torch.no_grad()
def test_a_run_of_ops_with_what_it_takes_and_leaves() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a = (x + y) * 2
        return a.relu() - 1, a.view(-1)

    (cluster,) = found(function, X, Y)
    assert names(cluster) == ["add", "mul", "relu", "sub"]
    assert len(cluster.inputs) == 2 and len(cluster.outputs) == 2 and not cluster.written


@torch.no_grad()
def test_other_ops_part_clusters_and_few_ops_make_none() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        a = (x + y).relu() * 3
        b = a @ y.t()
        c = b * 2 - 1
        return (c @ y).abs() / 2 + x

    assert [names(cluster) for cluster in found(function, X, Y)] == [["add", "relu", "mul"], ["abs", "div", "add"]]


@torch.no_grad()
def test_exact_ones_have_no_op_whose_bits_may_differ() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        a = torch.add(x, y, alpha=0.3) * 2 - y
        return (a.relu() + 1).sqrt() * a.softmax(-1)

    assert [names(cluster) for cluster in found(function, X, Y)] == [["mul", "sub", "relu", "add"]]
    (cluster,) = found(function, X, Y, exact=False)
    assert names(cluster) == ["add", "mul", "sub", "relu", "add", "sqrt", "_softmax", "mul"]
    assert found(lambda x, y: (x + y).relu() * 2, X.bfloat16(), Y.bfloat16()) == []


@torch.no_grad()
def test_what_is_written_through_one_view_is_not_read_through_another_that_meets_it() -> None:
    def meets(x: Tensor, y: Tensor) -> Tensor:
        x[:, :4].mul_(2)
        a = x[:, 2:5] + 1
        return a.relu() * 2

    def apart(x: Tensor, y: Tensor) -> Tensor:
        x[:, :3].mul_(2)
        a = x[:, 3:] + x[:, :3]
        return a.relu() * 2

    assert names(found(meets, X.clone(), Y)[0])[0] == "add"
    (cluster,) = found(apart, X.clone(), Y)
    assert names(cluster) == ["mul_", "add", "relu", "mul"]
    assert len(cluster.inputs) == 2 and len(cluster.written) == 1 and not cluster.discarded


@torch.no_grad()
def test_views_of_what_it_made_are_a_part_of_it() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        a = x * y
        left, right = a.chunk(2, -1)
        left.add_(1)
        return (left - right).neg()

    (cluster,) = found(function, X, Y)
    assert "add_" in names(cluster) and names(cluster)[-2:] == ["sub", "neg"]
    assert len(cluster.outputs) == 1 and not cluster.written


@torch.no_grad()
def test_what_is_written_and_of_no_use_later_is_discarded() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        gates = x @ y.t()
        one, other = gates.chunk(2, 1)
        return one.relu_() * other.abs_() + 1

    (cluster,) = found(function, X, Y)
    assert sorted(cluster.discarded) == sorted(cluster.written) and len(cluster.written) == 2


def test_a_forward_and_its_backward_are_apart() -> None:
    weight = torch.randn(6, requires_grad=True)
    clusters = found(lambda x: (x + weight).relu() * x * 2 / 3, X)
    assert len(clusters) == 2
    assert clusters[0].end <= clusters[1].begin
