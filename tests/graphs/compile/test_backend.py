"""torch.compile(backend="torchreel") gives the bits of backend="aot_eager", forward and backward."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchreel
from torchreel.errors import OptionError
from torchreel.graphs import Status, status


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


def all_same(ours: Any, theirs: Any) -> bool:
    ours, theirs = list(ours), list(theirs)
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


class Pair:
    """One model, twice: compiled by us, and by the backend that is the oracle."""

    def __init__(self, model: nn.Module, **compiling: Any) -> None:
        self.models = [model, copy.deepcopy(model)]
        self.compiled = [
            torch.compile(self.models[0], backend="torchreel", **compiling),
            torch.compile(
                self.models[1], backend="aot_eager", **{k: v for k, v in compiling.items() if k != "options"}
            ),
        ]

    def both(self, use: Callable[[Any, nn.Module], Any]) -> tuple[Any, Any]:
        """What `use` gives with each, from the same state of the generator, which both leave in one state."""
        before = torch.get_rng_state()
        ours = use(self.compiled[0], self.models[0])
        left = torch.get_rng_state()
        torch.set_rng_state(before)
        theirs = use(self.compiled[1], self.models[1])
        assert torch.equal(left, torch.get_rng_state())
        return ours, theirs

    def status(self) -> Status:
        return status(self.compiled[0])

    def check_state(self) -> None:
        assert all_same(self.models[0].parameters(), self.models[1].parameters())
        assert all_same(self.models[0].buffers(), self.models[1].buffers())
        assert all_same(
            (one.grad for one in self.models[0].parameters()), (one.grad for one in self.models[1].parameters())
        )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def test_it_is_listed_among_the_backends() -> None:
    assert "torchreel" in torch._dynamo.list_backends()


def test_inference_is_replayed() -> None:
    pair = Pair(mlp().eval())
    for _ in range(6):
        x = torch.randn(3, 16)
        with torch.no_grad():
            ours, theirs = pair.both(lambda model, _, x=x: model(x))
        assert same(ours, theirs)
    assert pair.status().replays >= 3
    assert not pair.status().skips


def test_training_with_an_eager_optimizer() -> None:
    pair = Pair(mlp())
    optimizers = {id(model): torch.optim.Adam(model.parameters()) for model in pair.models}

    def step(compiled: Any, model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        optimizers[id(model)].zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizers[id(model)].step()
        return loss.detach()

    for _ in range(8):
        x = torch.randn(5, 16)
        ours, theirs = pair.both(lambda compiled, model, x=x: step(compiled, model, x))
        assert same(ours, theirs)
        pair.check_state()
    shown = pair.status()
    assert shown.replays >= 10  # forward and backward
    assert not shown.skips and not shown.history


def test_buffers_are_written_and_dropout_draws_as_eager() -> None:
    pair = Pair(nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 2)))

    def step(compiled: Any, model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        out = compiled(x)
        out.sum().backward()
        return out.detach()

    for _ in range(8):
        x = torch.randn(6, 16)
        ours, theirs = pair.both(lambda compiled, model, x=x: step(compiled, model, x))
        assert same(ours, theirs)
        pair.check_state()
    assert pair.models[0][1].num_batches_tracked == 8
    assert pair.status().replays >= 10


def test_parameters_are_read_where_they_lie() -> None:
    wide = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256))  # 512 KiB of weights
    compiled = torch.compile(wide, backend="torchreel")
    for _ in range(6):
        compiled(torch.randn(2, 256)).sum().backward()
    shown = status(compiled)
    assert shown.nodes
    # A forward's memory is what it is given and makes; a backward's that and the gradients of the parameters.
    weights = sum(one.nbytes for one in wide.parameters())
    assert max(node.bytes for node in shown.nodes) < weights * 1.2


def test_a_parameter_that_moves_is_followed() -> None:
    pair = Pair(mlp())
    for turn in range(8):
        if turn in (4, 6):
            for model in pair.models:
                with torch.no_grad():
                    model[0].weight.data = torch.full_like(model[0].weight, float(turn))
        x = torch.randn(3, 16)
        ours, theirs = pair.both(lambda compiled, _, x=x: compiled(x).detach())
        assert same(ours, theirs)


def test_weights_loaded_between_calls_are_seen() -> None:
    pair = Pair(mlp())
    other = mlp().state_dict()
    for turn in range(6):
        if turn == 4:
            for model in pair.models:
                model.load_state_dict(other)
        x = torch.randn(3, 16)
        ours, theirs = pair.both(lambda compiled, _, x=x: compiled(x).detach())
        assert same(ours, theirs)


def test_dynamic_sizes() -> None:
    pair = Pair(mlp(), dynamic=True)
    for rows in (2, 3, 5, 3, 2, 5, 3, 2, 5, 7):
        x = torch.randn(rows, 16)

        def step(compiled: Any, model: nn.Module, x: torch.Tensor = x) -> torch.Tensor:
            model.zero_grad()
            out = compiled(x)
            (out.shape[0] * out).sum().backward()
            return out.detach()

        ours, theirs = pair.both(step)
        assert same(ours, theirs)
        pair.check_state()
    shown = pair.status()
    assert shown.replays >= 4
    assert any("5" in shape for shape in shown.shapes)


def test_graph_breaks_make_several_parts() -> None:
    seen: list[torch.Tensor] = []

    @torch._dynamo.disable
    def look(y: torch.Tensor) -> None:
        seen.append(y)

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() * 2
        look(y)
        return y.cos() + x

    compiled = torch.compile(broken, backend="torchreel")
    for turn in range(6):
        x = torch.randn(7)
        assert same(compiled(x), (x.sin() * 2).cos() + x)
        assert len(seen) == turn + 1 and same(seen[-1], x.sin() * 2)
    assert status(compiled).function.endswith("broken")
    assert len({node.recording for node in status(compiled).nodes}) == 2


def test_dynamos_guards_compile_anew() -> None:
    class Scaled(nn.Module):
        scale = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale if self.training else x + self.scale

    model = Scaled()
    compiled = torch.compile(model, backend="torchreel")
    for scale in (2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 2.0):
        model.scale = scale
        for training in (True, False):
            model.train(training)
            x = torch.randn(4)
            assert same(compiled(x), model(x))


def test_a_second_forward_leaves_what_the_first_saved() -> None:
    pair = Pair(nn.Sequential(nn.Linear(16, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Tanh()))
    for _ in range(6):
        first, second = torch.randn(4, 16), torch.randn(4, 16)

        def twice(compiled: Any, model: nn.Module, a: torch.Tensor = first, b: torch.Tensor = second) -> list[Any]:
            model.zero_grad()
            one, two = compiled(a), compiled(b)
            one.square().sum().backward()
            early = [each.grad.clone() for each in model.parameters()]
            two.exp().sum().backward()
            return [one.detach(), two.detach(), *early]

        ours, theirs = pair.both(twice)
        assert all_same(ours, theirs)
        pair.check_state()
    assert pair.status().replays >= 16


def test_a_graph_that_is_retained() -> None:
    pair = Pair(mlp())
    for _ in range(6):
        x = torch.randn(4, 16, requires_grad=True)

        def step(compiled: Any, model: nn.Module, x: torch.Tensor = x) -> list[Any]:
            model.zero_grad()
            x.grad = None
            loss = compiled(x).square().mean()
            loss.backward(retain_graph=True)
            first = x.grad.clone()
            loss.backward()
            return [first, x.grad.clone()]

        ours, theirs = pair.both(step)
        assert all_same(ours, theirs)
        pair.check_state()


def test_outputs_that_are_kept_stay() -> None:
    pair = Pair(mlp())
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(12):
        x = torch.randn(4, 16)
        kept.append(pair.both(lambda compiled, _, x=x: compiled(x)))
    assert all(same(ours.detach(), theirs.detach()) for ours, theirs in kept)


def test_an_input_is_mutated() -> None:
    def grow(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(y)
        return x.sum()

    compiled = torch.compile(grow, backend="torchreel")
    for _ in range(6):
        x, y = torch.randn(5), torch.randn(5)
        mine, version = x.clone(), x._version
        expected = grow(mine, y)
        assert same(compiled(x, y), expected)
        assert same(x, mine)
        assert x._version > version


def test_outputs_that_are_inputs_and_views_of_them() -> None:
    def views(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return {"x": x, "row": x[0], "both": (y + 1, y.t()), "none": None}

    compiled = torch.compile(views, backend="torchreel")
    for _ in range(6):
        x, y = torch.randn(2, 3), torch.randn(3, 2)
        out = compiled(x, y)
        assert out["x"] is x and out["none"] is None
        assert out["row"].data_ptr() == x.data_ptr()
        assert same(out["both"][0], y + 1)
        assert out["both"][1].data_ptr() == y.data_ptr()


def test_a_number_that_leaves_for_python() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + 1 if y.sum().item() > 0 else y - 1

    compiled = torch.compile(branch, backend="torchreel")
    for _ in range(10):
        x = torch.randn(3)
        assert same(compiled(x), branch(x))


def test_inexact_is_close() -> None:
    model = mlp()
    compiled = torch.compile(model, backend="torchreel", options={"exact": False})
    for _ in range(5):
        x = torch.randn(4, 16)
        torch.testing.assert_close(compiled(x), model(x))
    assert status(compiled).replays >= 2


@pytest.mark.parametrize(
    ("compiling", "sentence"),
    [
        ({"options": {"exactly": True}}, "has no option 'exactly': did you mean exact? There are exact, held"),
        ({"options": {"held": "never"}}, "held is 'never': give one of"),
        ({"options": {"pad_to": {0: 8}}}, "pad the inputs before the call"),
        ({"mode": "reduce-overhead"}, "mode is 'reduce-overhead': the backend torchreel has none"),
    ],
)
def test_a_wrong_option_is_a_sentence(compiling: dict[str, Any], sentence: str) -> None:
    compiled = torch.compile(torch.sin, backend="torchreel", **compiling)
    with warnings.catch_warnings(), pytest.raises(Exception, match="torchreel") as caught:
        warnings.simplefilter("ignore")
        compiled(torch.randn(2))
    assert sentence in str(caught.value)


def test_status_of_what_is_not_ours() -> None:
    for stranger in (torch.sin, torch.compile(torch.sin, backend="aot_eager"), 3, None):
        with pytest.raises(OptionError, match=r"what torchreel\.graphed"):
            status(stranger)
    fresh = torchreel.graphs.status(torch.compile(torch.sin, backend="torchreel"))
    assert fresh.nodes == [] and fresh.replays == 0
