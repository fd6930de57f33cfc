"""What each option adds to a recording."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
import torch
from torch import nn

import torchreel
from tests.record.rows import names, rows
from torchreel import _core
from torchreel.errors import OptionError, UnavailableError
from torchreel.record.options import RecordOptions, parse_size


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x))


def inputs_of(reel: torchreel.Reel, name: str) -> list[dict]:
    found = rows(reel, f"select i.* from ops o join inputs i on o.inputs = i.id where o.name = '{name}' order by o.id")
    return [{key: json.loads(row[key]) for key in ("dims", "strides", "dtypes", "scalars")} for row in found]


def test_shapes_hold_sizes_strides_types_scalars_and_lists(tmp_path: Path) -> None:
    x = torch.ones(2, 3, dtype=torch.float64)
    with torchreel.record(tmp_path / "a.reel", shapes=True):
        torch.add(x, x.t().contiguous().t(), alpha=2)
        torch.cat([x, x], dim=1)
        x.sum(dim=[0, 1], keepdim=True)
        torch.clamp(x, min=-1.5)
        torch.nn.functional.interpolate(x[None], scale_factor=2.0)
        torch.ops.aten.index.Tensor(x, [None, torch.tensor([0])])
    reel = torchreel.load(tmp_path / "a.reel")
    assert inputs_of(reel, "aten::add")[0] == {
        "dims": [[2, 3], [2, 3], []],
        "strides": [[3, 1], [1, 2], []],
        "dtypes": ["double", "double", "Scalar"],
        "scalars": ["", "", "2"],
    }
    cat = inputs_of(reel, "aten::cat")[0]
    assert cat["dims"] == [[[2, 3], [2, 3]], []]
    assert cat["dtypes"] == ["TensorList", "Scalar"]
    total = next(row for row in inputs_of(reel, "aten::sum") if len(row["scalars"]) == 4)
    assert total["scalars"] == ["", "[0, 1]", "True", ""]
    assert inputs_of(reel, "aten::clamp")[0]["scalars"] == ["", "-1.5", ""]
    assert inputs_of(reel, "aten::index")[0]["dims"] == [[2, 3], [[], [1]]]


def test_shapes_beyond_32_bits_and_of_many_tensors(tmp_path: Path) -> None:
    huge = torch.empty(1).expand(2**33)
    many = [torch.ones(3) for _ in range(2000)]
    with torchreel.record(tmp_path / "a.reel", shapes=True):
        huge.view(2, -1)
        torch._foreach_add(many, 1.0)
        torch.zeros(1)
    reel = torchreel.load(tmp_path / "a.reel")
    assert inputs_of(reel, "aten::view")[0]["dims"][0] == [2**33]
    assert inputs_of(reel, "aten::view")[0]["scalars"][1] == "[2, -1]"
    dims = inputs_of(reel, "aten::_foreach_add")[0]["dims"]
    assert len(dims[0]) > 400  # cut, and the recording goes on
    assert names(reel, "depth = 0")[-1] == "aten::zeros"


def test_memory_knows_each_block_its_op_and_its_end(tmp_path: Path) -> None:
    old = torch.ones(1000)
    with torchreel.record(tmp_path / "a.reel", memory=True):
        new = torch.zeros(500)
        del new
        del old
    reel = torchreel.load(tmp_path / "a.reel")
    events = rows(
        reel,
        """select a.action, a.size, a.alloc is not null as known, o.name, a.total
           from allocs a left join ops o on a.op = o.id where a.size in (2000, 4000) order by a.id""",
    )
    assert [(e["action"], e["size"], e["known"], e["name"]) for e in events] == [
        ("preexisting", 4000, False, None),
        ("alloc", 2000, False, "aten::empty"),
        ("free", 2000, True, None),
        ("free", 4000, True, None),
    ]
    assert events[1]["total"] - events[2]["total"] == 2000
    assert rows(reel, "select alloc_bytes, self_alloc_bytes from ops where name = 'aten::zeros'") == [
        {"alloc_bytes": 2000, "self_alloc_bytes": 0}
    ]


def test_pain_14_tensors_older_than_the_recording_are_known(tmp_path: Path) -> None:
    model = nn.Linear(67, 61)  # a size that no other model of this process has
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 67)).sum().backward()
    optimizer.step()
    gc.collect()
    with torchreel.record(tmp_path / "a.reel", memory=True):
        optimizer.zero_grad()
    reel = torchreel.load(tmp_path / "a.reel")
    size = 67 * 61 * 4
    found = rows(
        reel,
        f"""select action, category, count(*) as n from allocs where size = {size}
            group by action, category order by action, category""",
    )
    assert found == [
        {"action": "free", "category": "gradient", "n": 1},
        {"action": "preexisting", "category": "gradient", "n": 1},
        {"action": "preexisting", "category": "optimizer_state", "n": 2},
        {"action": "preexisting", "category": "parameter", "n": 1},
    ]
    assert rows(reel, "select min(total)::bigint >= 0 as ok from allocs") == [{"ok": True}]


def test_memory_freed_on_another_thread(tmp_path: Path) -> None:
    import threading

    held = []
    with torchreel.record(tmp_path / "a.reel", memory=True):
        maker = threading.Thread(target=lambda: held.append(torch.zeros(777)))
        maker.start()
        maker.join()
        held.clear()
    reel = torchreel.load(tmp_path / "a.reel")
    events = rows(reel, "select action, thread, alloc is not null as known from allocs where size = 3108 order by id")
    assert [(e["action"], e["known"]) for e in events] == [("alloc", False), ("free", True)]
    assert events[0]["thread"] != events[1]["thread"]


def stack_of(reel: torchreel.Reel, name: str) -> list[tuple[str, int, str]]:
    frames = {frame["id"]: frame for frame in reel.frames.to_pylist()}
    stack = rows(reel, f"select s.frames from ops o join stacks s on o.stack = s.id where o.name = '{name}' limit 1")
    return [(Path(frames[i]["file"]).name, frames[i]["line"], frames[i]["function"]) for i in stack[0]["frames"]]


def where_it_is_called() -> torch.Tensor:
    return torch.special.erf(torch.ones(2, requires_grad=True))


def test_stacks_name_the_line_of_each_op_and_alloc(tmp_path: Path) -> None:
    first = where_it_is_called.__code__.co_firstlineno
    with torchreel.record(tmp_path / "a.reel", stacks=True, memory=True):
        where_it_is_called().sum().backward()
    reel = torchreel.load(tmp_path / "a.reel")
    stack = stack_of(reel, "aten::special_erf")
    assert stack[0] == ("test_options.py", first + 1, "where_it_is_called")
    assert stack[1][2] == "test_stacks_name_the_line_of_each_op_and_alloc"
    assert stack_of(reel, "ErfBackward0")[0] == stack[0], "a backward op has the line of its forward op"
    made = rows(
        reel,
        """select count(*) as n from allocs a join stacks s on a.stack = s.id
           join frames f on s.frames[1] = f.id where f.function = 'where_it_is_called'""",
    )
    assert made[0]["n"] >= 2


def test_stacks_of_generators_lambdas_and_deep_recursion(tmp_path: Path) -> None:
    def deep(n: int) -> torch.Tensor:
        return torch.ones(1) if n == 0 else deep(n - 1)

    def generate():
        yield torch.zeros(1)

    with torchreel.record(tmp_path / "a.reel", stacks=True):
        deep(400)
        list(generate())
        (lambda: torch.empty(7))()
    reel = torchreel.load(tmp_path / "a.reel")
    assert len(stack_of(reel, "aten::ones")) == 256
    assert stack_of(reel, "aten::zeros")[0][2].endswith("generate")


def test_pain_17_every_op_has_its_module_backward_included(tmp_path: Path) -> None:
    model = nn.Sequential(Block(), Block())
    with torchreel.record(tmp_path / "a.reel", modules=True):
        model(torch.ones(2, 8)).sum().backward()
    reel = torchreel.load(tmp_path / "a.reel")
    found = rows(
        reel,
        """select o.name, m.path from ops o join modules m on o.module = m.id
           where o.name in ('aten::linear', 'aten::native_layer_norm', 'AddmmBackward0', 'NativeLayerNormBackward0')
           order by o.id""",
    )
    assert [(row["name"], row["path"]) for row in found] == [
        ("aten::native_layer_norm", "Sequential.0.norm"),
        ("aten::linear", "Sequential.0.linear"),
        ("aten::native_layer_norm", "Sequential.1.norm"),
        ("aten::linear", "Sequential.1.linear"),
        ("AddmmBackward0", "Sequential.1.linear"),
        ("NativeLayerNormBackward0", "Sequential.1.norm"),
        ("AddmmBackward0", "Sequential.0.linear"),
        ("NativeLayerNormBackward0", "Sequential.0.norm"),
    ]
    assert names(reel, "kind = 'module'")[:3] == ["nn.Module: Sequential", "nn.Module: Block", "nn.Module: LayerNorm"]


def test_modules_called_alone_replaced_and_forgotten(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    x = torch.ones(1, 2)
    with torchreel.record(tmp_path / "a.reel", modules=True):
        model[0](x)
        model(x)
        model[1] = nn.Tanh()
        model(x)
        for _ in range(50):
            nn.Sigmoid()(x)
    reel = torchreel.load(tmp_path / "a.reel")
    paths = rows(
        reel, "select o.name, m.path from ops o join modules m on o.module = m.id where o.depth = 1 or o.kind = 'op'"
    )
    found = {(row["name"], row["path"]) for row in paths}
    assert ("aten::linear", "Sequential.0") in found
    assert ("aten::tanh", "Sequential.1") in found
    assert not any(name == "aten::sigmoid" and not path.startswith("Sigmoid") for name, path in found)


def test_pain_16_flops_of_forward_backward_convolution_and_attention(tmp_path: Path) -> None:
    q = torch.ones(2, 4, 16, 8, requires_grad=True)
    image = torch.ones(1, 3, 8, 8, requires_grad=True)
    convolution = nn.Conv2d(3, 5, 3, bias=False)
    with torchreel.record(tmp_path / "a.reel", flops=True):
        torch.ones(3, 4) @ torch.ones(4, 5)
        nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
        convolution(image).sum().backward()
    reel = torchreel.load(tmp_path / "a.reel")
    counts = {
        row["name"]: row["flops"]
        for row in rows(reel, "select name, sum(flops)::bigint as flops from ops where flops > 0 group by name")
    }
    assert counts["aten::mm"] == 2 * 3 * 4 * 5
    assert counts["aten::convolution"] == 2 * 3 * 5 * 3 * 3 * 6 * 6
    assert counts["aten::convolution_backward"] == 2 * counts["aten::convolution"]
    attention = 2 * (2 * 2 * 4 * 16 * 16 * 8)
    assert counts["aten::_scaled_dot_product_flash_attention_for_cpu"] == attention
    assert counts["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] == attention * 5 // 2
    assert "aten::_convolution" not in counts, "the same work is counted once"


def test_flops_equal_torchs_own_counter(tmp_path: Path) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(nn.Conv1d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 6, 7))

    def step() -> None:
        model(torch.ones(2, 3, 8)).square().mean().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    with torchreel.record(tmp_path / "a.reel", flops=True):
        step()
    total = rows(torchreel.load(tmp_path / "a.reel"), "select sum(flops)::bigint as n from ops")[0]["n"]
    assert total == counter.get_total_flops() > 0


def test_python_calls_are_ranges(tmp_path: Path) -> None:
    def inner() -> None:
        torch.ones(1)

    def outer() -> None:
        inner()

    with torchreel.record(tmp_path / "a.reel", python=True):
        outer()
        with pytest.raises(ZeroDivisionError):
            _ = (lambda: 1 / 0)()
        torch.zeros(1)
    reel = torchreel.load(tmp_path / "a.reel")
    found = rows(
        reel, "select id, parent, name, depth from ops where name like '%test_options.py%' or name = 'aten::ones'"
    )
    names_ = [row["name"].rpartition(".")[2] if "<locals>" in row["name"] else row["name"] for row in found]
    assert names_[:3] == ["outer", "inner", "aten::ones"]
    assert found[1]["parent"] == found[0]["id"] and found[2]["parent"] == found[1]["id"]
    assert rows(reel, "select depth from ops where name = 'aten::zeros'") == [{"depth": 0}]


def test_nothing_of_ours_is_among_the_python_calls(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)

    def mine() -> None:
        model(torch.ones(1, 2))

    with torchreel.record(tmp_path / "a.reel", python=True, modules=True, memory=True, stacks=True):
        mine()
    reel = torchreel.load(tmp_path / "a.reel")
    calls = rows(reel, "select name, stack from ops where kind in ('python', 'module') order by id")
    assert [call["name"].rpartition(".")[2] for call in calls if "torch/nn" not in call["name"]] == [
        "mine",
        "Module: Linear",
    ]
    assert all(call["stack"] is None for call in calls)
    assert rows(reel, "select count(fwd_thread) as n from ops") == [{"n": 0}]


def test_modules_and_python_beside_torch_compile(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    with torchreel.record(tmp_path / "a.reel", modules=True, python=True, stacks=True):
        first = compiled(torch.ones(2, 4))
        second = compiled(torch.ones(2, 4))
    assert torch.equal(first, second) and torch.equal(first, model(torch.ones(2, 4)))
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel).count("aten::relu") >= 2
    # Other threads of the process, such as those of the test runner, may be within a call when the recording ends.
    own = "thread in (select thread from ops where name = 'aten::relu')"
    assert rows(reel, f"select name from ops where open and {own}") == []


def test_counters_are_recorded_or_refused_with_a_reason(tmp_path: Path) -> None:
    problem = _core.counter_problem("instructions")
    if problem:
        with pytest.raises(UnavailableError, match="instructions"):
            torchreel.record(tmp_path / "a.reel", counters=["instructions"]).start()
        assert not (tmp_path / "a.reel").exists()
    if _core.counter_problem("page-faults"):
        pytest.skip("perf_event_open offers no counter at all here")
    with torchreel.record(tmp_path / "b.reel", counters=["page-faults", "task-clock"]):
        torch.ones(64 << 20, dtype=torch.uint8)
        torch.ones(1)
    reel = torchreel.load(tmp_path / "b.reel")
    found = rows(
        reel,
        """select c.name, c.value from counters c join ops o on c.op = o.id
           where o.name = 'aten::ones' order by c.name, o.id""",
    )
    assert [row["name"] for row in found] == ["page-faults"] * 2 + ["task-clock"] * 2
    assert found[0]["value"] > found[1]["value"] >= 0
    assert found[2]["value"] > found[3]["value"] > 0


def test_emission_to_itt_or_the_reason_why_not(tmp_path: Path) -> None:
    try:
        with torchreel.record(tmp_path / "a.reel", emit="itt"):
            torch.ones(1)
        assert names(torchreel.load(tmp_path / "a.reel"), "depth = 0") == ["aten::ones"]
    except UnavailableError as error:
        assert "itt" in str(error)
    if not torch.cuda.is_available():
        with pytest.raises(UnavailableError, match="nvtx"):
            torchreel.record(tmp_path / "b.reel", emit="nvtx").start()
        assert not (tmp_path / "b.reel").exists()
        with torchreel.record(tmp_path / "b.reel"):
            pass


@pytest.mark.parametrize(
    ("text", "size"), [("64MB", 64_000_000), ("1GiB", 2**30), ("5000", 5000), (7, 7), ("1.5kib", 1536)]
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


def test_a_size_that_is_none() -> None:
    with pytest.raises(OptionError, match="not a size"):
        parse_size("64 apples")


def test_options_survive_the_way_to_a_child() -> None:
    options = RecordOptions(shapes=True, counters=("cycles",), ring="64MB")
    assert RecordOptions.from_json(json.loads(json.dumps(options.to_json()))) == options
