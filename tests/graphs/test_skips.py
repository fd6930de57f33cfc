"""Calls that run eagerly: each is named with its reason, logged once, or an error where one was asked for."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import torchreel
from torchreel import graphs
from torchreel.errors import GraphError, OptionError

LIMIT_REACHED = "There are recordings of 2 kinds of calls, and may be no more (limit=2)."


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def scaled(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by + 1


def skips_of(fast: Any) -> dict[str, tuple[str, int]]:
    return {skip.call: (skip.reason, skip.calls) for skip in graphs.status(fast).skips}


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "torchreel.graphs"]


def test_the_limit_is_named_for_each_kind_beyond_it(caplog: pytest.LogCaptureFixture) -> None:
    fast = torchreel.graphed(scaled, limit=2)
    for size in range(1, 6):
        for _ in range(4):
            assert torch.equal(fast(torch.ones(size)), scaled(torch.ones(size)))
    status = graphs.status(fast)
    assert status.shapes == [f"float32[{size}]" for size in range(1, 6)]
    assert skips_of(fast) == {f"float32[{size}]": (LIMIT_REACHED, 4) for size in (3, 4, 5)}
    assert status.eager == 2 + 12 and "limit=2" in str(status) and "(4 calls)" in str(status)
    assert logged(caplog) == [f"A call of scaled (float32[3]) runs eagerly: {LIMIT_REACHED}"]


def test_kinds_beyond_the_limit_differ_in_plain_arguments_too() -> None:
    fast = torchreel.graphed(scaled, limit=1)
    for by in (2.0, 3.0, 4.0):
        for _ in range(2):
            assert torch.equal(fast(torch.ones(2), by=by), scaled(torch.ones(2), by=by))
    assert [calls for _, calls in skips_of(fast).values()] == [2, 2]


def test_no_more_kinds_are_told_apart_than_fit() -> None:
    fast = torchreel.graphed(scaled, limit=1)
    for size in range(1, 400):
        fast(torch.ones(size))
    skips = graphs.status(fast).skips
    assert len(skips) == 257 and sum(skip.calls for skip in skips) == 398 and skips[-1].call == "others"


def test_skip_dynamic_names_the_other_sizes(caplog: pytest.LogCaptureFixture) -> None:
    fast = torchreel.graphed(scaled, skip_dynamic=True)
    for size in (2, 3, 4):
        for _ in range(3):
            assert torch.equal(fast(torch.ones(size)), scaled(torch.ones(size)))
    assert list(skips_of(fast)) == ["float32[3]", "float32[4]"] and len(graphs.status(fast).nodes) == 1
    assert len(logged(caplog)) == 1 and "skip_dynamic=True" in logged(caplog)[0]


def test_skip_dynamic_takes_another_mode_for_another_function() -> None:
    fast = torchreel.graphed(scaled, skip_dynamic=True)
    for _ in range(3):
        fast(torch.ones(2))
        with torch.no_grad():
            fast(torch.ones(2))
    assert not graphs.status(fast).skips and graphs.status(fast).replays == 2


@pytest.mark.parametrize("dynamic", [True, None])
def test_skip_dynamic_under_compile_records_no_size_by_itself(dynamic: bool | None) -> None:
    torch._dynamo.reset()
    fast = torch.compile(scaled, backend="torchreel", dynamic=dynamic, options={"skip_dynamic": True})
    for size in range(2, 8):
        for _ in range(4):
            assert torch.equal(fast(torch.ones(size)), scaled(torch.ones(size)))
    status = graphs.status(fast)
    parts = 1 if dynamic else 2  # one with the first size in it, and one for all others
    assert len({node.recording for node in status.nodes}) == parts
    assert len(status.skips) == 6 - parts and all("skip_dynamic" in skip.reason for skip in status.skips)


def test_skip_dynamic_under_compile_with_a_backward() -> None:
    torch._dynamo.reset()
    fast = torch.compile(scaled, backend="torchreel", dynamic=True, options={"skip_dynamic": True})
    for size in range(2, 6):
        for _ in range(4):
            x = torch.randn(size, requires_grad=True)
            fast(x).sum().backward()
            assert torch.equal(x.grad, torch.full((size,), 2.0))
    recorded = {node.recording for node in graphs.status(fast).nodes}
    assert len(recorded) <= 2  # the forward and the backward, of one size


def test_only_listed_sizes_are_captured() -> None:
    fast = torchreel.graphed(scaled, capture_sizes=[2, (4, 3)])
    for shape in ((2,), (2, 7), (4, 3), (4, 4), (3,)):
        for _ in range(3):
            assert torch.equal(fast(torch.ones(shape)), scaled(torch.ones(shape)))
    assert {node.call for node in graphs.status(fast).nodes} == {"float32[2]", "float32[2, 7]", "float32[4, 3]"}
    found = skips_of(fast)
    assert set(found) == {"float32[4, 4]", "float32[3]"}
    assert all(reason == "Its sizes are not among capture_sizes." for reason, _ in found.values())


def test_only_listed_sizes_are_captured_under_compile() -> None:
    torch._dynamo.reset()
    fast = torch.compile(scaled, backend="torchreel", dynamic=True, options={"capture_sizes": [3, 5]})
    for size in range(2, 7):
        for _ in range(4):
            assert torch.equal(fast(torch.ones(size)), scaled(torch.ones(size)))
    assert {node.call.partition(",")[0] for node in graphs.status(fast).nodes} == {"3", "5"}
    assert len(graphs.status(fast).skips) == 3


def test_a_mode_that_is_active_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    fast = torchreel.graphed(scaled)
    for _ in range(3):
        fast(torch.ones(2))
    for _ in range(2):
        with Seen():
            fast(torch.ones(2))
    (told,) = graphs.status(fast).history.items()
    assert told[1] == 2 and told[0].startswith("A mode of Python")
    assert len(logged(caplog)) == 1


def test_a_profile_function_is_named() -> None:
    fast = torchreel.graphed(scaled)
    for _ in range(3):
        fast(torch.ones(2))
    sys.setprofile(lambda *_: None)
    try:
        fast(torch.ones(2))
    finally:
        sys.setprofile(None)
    assert any("profile function" in told for told in graphs.status(fast).history)


def test_a_reason_is_logged_once_for_each_function(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[Tensor] = []

    def keeping(x: Tensor) -> Tensor:
        kept.append(x * 2)
        return kept[-1] + 1

    for _ in range(2):
        fast = torchreel.graphed(keeping)
        for _ in range(6):
            fast(torch.ones(2))
        assert len(graphs.status(fast).skips) == 1 and graphs.status(fast).skips[0].calls == 5
    assert len(logged(caplog)) == 2 and logged(caplog)[0] == logged(caplog)[1]
    assert "test_skips.py" in logged(caplog)[0]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


# or_error


def test_or_error_is_silent_where_there_is_a_graph() -> None:
    fast = torchreel.graphed(scaled, or_error=True)
    for _ in range(5):
        assert torch.equal(fast(torch.ones(3)), scaled(torch.ones(3)))
    assert graphs.status(fast).replays == 3


def test_or_error_names_reason_and_line() -> None:
    seen: list[int] = []

    def counting(x: Tensor) -> Tensor:
        seen.append(1)
        return x + 1

    fast = torchreel.graphed(counting, or_error=True)
    fast(torch.ones(2))
    with pytest.raises(
        GraphError, match=r"no graph for a call of .*counting \(float32\[2\]\).*test_skips.py"
    ) as raised:
        fast(torch.ones(2))
    assert str(raised.value).endswith(".")


def test_or_error_at_the_limit_but_not_for_what_was_asked_for() -> None:
    fast = torchreel.graphed(scaled, or_error=True, limit=1)
    for _ in range(3):
        fast(torch.ones(2))
    with pytest.raises(GraphError, match="limit=1"):
        fast(torch.ones(3))
    for options in ({"skip_dynamic": True}, {"capture_sizes": [2]}):
        fast = torchreel.graphed(scaled, or_error=True, **options)
        for _ in range(3):
            fast(torch.ones(2))
        assert torch.equal(fast(torch.ones(3)), scaled(torch.ones(3)))


def test_or_error_with_an_op_marked_as_unsafe() -> None:
    with torch.library._scoped_library("torchreel_skips", "DEF") as library:
        library.define("unsafe(Tensor x) -> Tensor", tags=(torch.Tag.cudagraph_unsafe,))
        library.impl("unsafe", lambda x: x + 1, "CPU")
        fast = torchreel.graphed(lambda x: torch.ops.torchreel_skips.unsafe(x * 2), trust=True, or_error=True)
        fast(torch.ones(2))
        with pytest.raises(GraphError, match="cudagraph_unsafe"):
            fast(torch.ones(2))


def test_or_error_within_another_graphed_function_is_a_part_of_it() -> None:
    inner = torchreel.graphed(scaled, or_error=True)

    def outer(x: Tensor) -> Tensor:
        return inner(x) * 3

    fast = torchreel.graphed(outer, trust=True)
    for _ in range(4):
        assert torch.equal(fast(torch.ones(2)), scaled(torch.ones(2)) * 3)


def test_or_error_while_a_mode_is_active() -> None:
    class Passing(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    fast = torchreel.graphed(scaled, or_error=True)
    with Passing(), pytest.raises(GraphError, match="A mode of Python"):
        fast(torch.ones(2))


def test_or_error_of_padding() -> None:
    fast = torchreel.graphed(scaled, pad_to={0: [4]}, or_error=True)
    with pytest.raises(GraphError, match="beyond the largest"):
        fast(torch.ones(5))


def test_or_error_under_compile() -> None:
    torch._dynamo.reset()
    fast = torch.compile(scaled, backend="torchreel", options={"or_error": True})
    for _ in range(4):
        assert torch.equal(fast(torch.ones(3)), scaled(torch.ones(3)))
    assert graphs.status(fast).replays > 0
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        parted = torch.compile(
            lambda x: (x * 2).nonzero() + 1, backend="torchreel", options={"or_error": True}, fullgraph=True
        )
        with pytest.raises(Exception, match="or_error=True was asked for, and not all can be one graph"):
            parted(torch.ones(3))


def test_or_error_in_a_thread() -> None:
    fast = torchreel.graphed(scaled, or_error=True)
    raised: list[BaseException] = []

    def calls() -> None:
        try:
            for _ in range(5):
                fast(torch.ones(3))
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not raised


# Options


@pytest.mark.parametrize(
    ("name", "near"),
    [("skip_dynamics", "skip_dynamic"), ("warmup", "warm_up"), ("pad", "pad_to"), ("capturesizes", "capture_sizes")],
)
def test_an_unknown_option_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(OptionError, match=rf"graphed\(\) has no option '{name}': did you mean {near}\?"):
        torchreel.graphed(scaled, **{name: True})
    with pytest.raises(OptionError, match=f"has no option '{name}'"):

        @torchreel.graphed(**{name: True})
        def decorated(x: Tensor) -> Tensor:
            return x


def test_an_option_unlike_any_lists_them() -> None:
    with pytest.raises(OptionError, match="has no option 'zzz': give some of exact, held"):
        torchreel.graphed(scaled, zzz=1)


@pytest.mark.parametrize(
    "options",
    [
        {"or_error": 1},
        {"skip_dynamic": "yes"},
        {"exact": None},
        {"capture_sizes": 8},
        {"capture_sizes": []},
        {"capture_sizes": [()]},
        {"capture_sizes": [(2, -1)]},
        {"capture_sizes": [True]},
        {"capture_sizes": [2], "pad_to": {0: 4}},
    ],
)
def test_a_wrong_value_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=rf"^{next(iter(options))} "):
        torchreel.graphed(scaled, **options)
