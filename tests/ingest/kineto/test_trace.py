"""Each rule by which a trace becomes tables, on traces of a few events."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.ingest.kineto.small import (
    PID,
    arrow,
    instant,
    kernel,
    launch,
    meta,
    op,
    python,
    read,
    read_text,
    reel_of,
    rows,
    slice_of,
)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def event(ts: str, dur: str) -> str:
    return f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}'


@pytest.mark.parametrize(
    ("ts", "dur", "base", "start_ns", "dur_ns"),
    [
        ("1623142623460111", "25", 0, 1623142623460111000, 25000),
        ("1712195495520871.001", "36.526", 0, 1712195495520871001, 36526),
        ("1712195495520871.999", "0.001", 0, 1712195495520871999, 1),
        ("2915995397672.546", "3.5", 1782967788000000000, 1782967788000000000 + 2915995397672546, 3500),
        ("5e3", "1E-3", 0, 5_000_000, 1),
        ("1.0004", "2.0006", 0, 1000, 2001),
        ("-4", "0.-05", 0, -4000, -5),
        ("7", "-1.-005", 0, 7000, -1005),
    ],
)
def test_times_are_exact(tmp_path: Path, ts: str, dur: str, base: int, start_ns: int, dur_ns: int) -> None:
    text = f'{{"baseTimeNanoseconds": {base}, "traceEvents": [{event(ts, dur)}, {event("9", "9")}]}}'
    reel, _ = read_text(write(tmp_path / "t.json", text))
    assert (start_ns, dur_ns) in rows(reel, "select start_ns, dur_ns from ops")


def test_the_base_may_stand_after_the_events(tmp_path: Path) -> None:
    text = f'{{"traceEvents": [{event("1", "2")}], "baseTimeNanoseconds": 1000000}}'
    reel, _ = read_text(write(tmp_path / "t.json", text))
    assert rows(reel, "select start_ns from ops") == [(1_001_000,)]


def test_a_list_of_events_is_a_trace(tmp_path: Path) -> None:
    reel, trace = read_text(write(tmp_path / "t.json", f"\n[{event('1', '2')},\n{event('2', '2')}]\n"))
    assert rows(reel, "select count(*) from ops") == [(2,)]
    assert trace.warnings() == []


def test_old_categories_and_streams_as_text(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path,
        slice_of("Operator", "ProfilerStep#3", 0, 90, tid=str(PID)),
        slice_of("Operator", "aten::mm", 10, 50, tid=str(PID), External_id=4),
        slice_of("Runtime", "cudaLaunchKernel", 20, 5, tid=str(PID), correlation=8, external_id=4),
        slice_of("Kernel", "gemm", 40, 6, pid=0, tid="stream 7", correlation=8, external_id=4),
        slice_of("Memcpy", "Memcpy DtoH (Device -> Pinned)", 50, 1, pid=0, tid="stream 9", bytes=64),
        slice_of("Memset", "Memset (Device)", 52, 1, pid=0, tid="stream 9", bytes=32),
        slice_of("Trace", "PyTorch Profiler (0)", 0, 99, pid="Traces", tid="PyTorch Profiler"),
    )
    assert rows(reel, "select name, kind, thread from ops order by id") == [
        ("ProfilerStep#3", "op", 0),
        ("aten::mm", "op", 0),
        ("cudaLaunchKernel", "runtime", 0),
    ]
    assert rows(
        reel, "select device, stream, kind, launch, op, bytes, direction, source, target, step from kernels"
    ) == [
        ("cuda:0", 7, "compute", 2, 1, None, None, None, None, 3),
        ("cuda:0", 9, "copy", None, None, 64, "DtoH", "Device", "Pinned", None),
        ("cuda:0", 9, "set", None, None, 32, None, None, None, None),
    ]
    assert rows(reel, "select os_id from threads") == [(PID,)]


def test_the_category_decides_not_the_process(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path,
        slice_of("cpu_op", "aten::mm", 0, 20, pid=0, tid=0),
        slice_of("python_function", "a.py(1): f", 0, 30, pid=0, tid=0, Python_id=1),
        kernel("gemm", 5, 2, 1, device=0, stream=0),
    )
    assert rows(reel, "select name, kind from ops order by id") == [("a.py(1): f", "python"), ("aten::mm", "op")]
    assert rows(reel, "select name, device, stream from kernels") == [("gemm", "cuda:0", 0)]


def test_a_kernel_has_its_launch_and_the_innermost_op(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path,
        op("aten::linear", 0, 100),
        slice_of("user_annotation", "mine", 5, 90),
        op("aten::addmm", 10, 20),
        slice_of("user_annotation", "inner", 15, 10),
        launch(20, 50, 1),  # ends after its op, as on ROCm
        launch(92, 1, 2),
        slice_of("user_annotation", "alone", 200, 50),
        slice_of("cuda_driver", "cuLaunchKernel", 210, 5, correlation=3),
        op("aten::other", 210, 3),  # begins with the launch
        launch(300, 5, 4, tid=9),
        launch(301, 5, 4, tid=9),  # the earliest counts
        kernel("a", 30, 1, 1),
        kernel("b", 95, 1, 2),
        kernel("c", 220, 1, 3),
        kernel("d", 310, 1, 4),
        kernel("e", 320, 1, 5),
    )
    assert rows(
        reel,
        "select k.name, l.start_ns // 1000, o.name from kernels k left join ops l on l.id = k.launch "
        "left join ops o on o.id = k.op order by k.id",
    ) == [
        ("a", 20, "aten::addmm"),
        ("b", 92, "aten::linear"),
        ("c", 210, "aten::other"),
        ("d", 300, None),
        ("e", None, None),
    ]


@pytest.mark.parametrize(("external", "expected"), [(7, "aten::mm"), (31, None)])
def test_external_ids_are_ops_or_correlations(tmp_path: Path, external: int, expected: str | None) -> None:
    """Of the second file the External ids are correlations again, which collide with ids of ops."""
    reel = reel_of(
        tmp_path,
        op("aten::mm", 0, 50, External_id=7),
        op("aten::add", 60, 50, External_id=31),
        launch(10, 5, 31, External_id=external),
        kernel("known", 20, 1, 31, External_id=external),
        kernel("older", 21, 1, 30, External_id=external),
    )
    assert rows(reel, "select k.name, o.name from kernels k left join ops o on o.id = k.op order by k.id") == [
        ("known", "aten::mm"),
        ("older", expected),
    ]


def test_graph_replays_share_a_launch(tmp_path: Path) -> None:
    nodes = [kernel(f"k{n}", 20 + n, 1, 5, graph_id=3, graph_node_id=n) for n in range(3)]
    reel = reel_of(tmp_path, launch(10, 5, 5, name="cudaGraphLaunch"), *nodes)
    assert rows(reel, "select launch, graph, graph_node from kernels order by id") == [(0, 3, n) for n in range(3)]


def test_overlap_without_nesting(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path,
        op("outer", 0, 20),
        op("first", 1, 9),
        op("second", 5, 10),  # begins in first, ends after it
        op("third", 12, 1),
        op("fourth", 16, 1),
    )
    assert rows(reel, "select name, parent, depth, self_ns // 1000 from ops order by id") == [
        ("outer", None, 0, 5),
        ("first", 0, 1, 4),
        ("second", 1, 2, 9),
        ("third", 2, 2, 1),
        ("fourth", 0, 1, 1),
    ]


def test_what_began_in_a_call_and_outlives_it_has_other_calls_around_it(tmp_path: Path) -> None:
    """record_function begins in the Python call that enters it."""
    reel = reel_of(
        tmp_path,
        python("train.py(3): main", 0, 100, 1, None),
        python("profiler.py(700): __enter__", 10, 5, 2, 1),
        slice_of("user_annotation", "step", 12, 50),
        op("aten::mm", 30, 10),
        launch(31, 1, 1),
        kernel("gemm", 40, 3, 1),
    )
    assert rows(reel, "select name, parent, depth from ops order by id") == [
        ("train.py(3): main", None, 0),
        ("profiler.py(700): __enter__", 0, 1),
        ("step", 1, 2),
        ("aten::mm", 2, 2),
        ("cudaLaunchKernel", 3, 3),
    ]
    assert rows(
        reel,
        "select f.file, f.line, f.function from ops o join stacks s on s.id = o.stack "
        "join frames f on list_contains(s.frames, f.id) where o.name = 'aten::mm'",
    ) == [("train.py", 3, "main")]


def forward_and_backward() -> list[dict[str, object]]:
    return [
        python("nn.Module: Net_0", 0, 100, 1, None),
        python("net.py(5): forward", 1, 90, 2, 1),
        python("nn.Module: Linear_0", 10, 30, 3, 2),
        op("aten::linear", 12, 20, Sequence_number=4, Fwd_thread_id=0),
        op("aten::addmm", 14, 10, Sequence_number=4, Fwd_thread_id=0),
        op("autograd::engine::evaluate_function: AddmmBackward0", 200, 50, tid=9, Sequence_number=4, Fwd_thread_id=1),
        op("AddmmBackward0", 205, 40, tid=9, Sequence_number=4, Fwd_thread_id=1),
        op("aten::mm", 210, 10, tid=9),
        launch(212, 2, 8, tid=9),
        kernel("gemm", 220, 5, 8),
        op("AccumulateGrad", 300, 5, tid=9),
    ]


@pytest.mark.parametrize("arrows", [True, False])
def test_backward_has_the_module_and_stack_of_forward(tmp_path: Path, arrows: bool) -> None:
    drawn = [arrow("s", 1, 14), arrow("f", 1, 205, tid=9)] if arrows else []
    reel = reel_of(tmp_path, *forward_and_backward(), *drawn)
    query = """
        select o.name, o.kind, f.name, m.path, o.fwd_thread, len(s.frames) from ops o left join ops f on f.id = o.fwd
        left join modules m on m.id = o.module left join stacks s on s.id = o.stack
        where o.kind not in ('python', 'module') order by o.id
    """
    engine = "autograd::engine::evaluate_function: AddmmBackward0"
    assert rows(reel, query) == [
        ("aten::linear", "op", None, "Net_0.Linear_0", None, 1),
        ("aten::addmm", "op", None, "Net_0.Linear_0", None, 1),
        (engine, "op", "aten::addmm", "Net_0.Linear_0", 0, 1),
        ("AddmmBackward0", "backward", "aten::addmm", "Net_0.Linear_0", 0, 1),
        ("aten::mm", "op", None, "Net_0.Linear_0", None, 1),
        ("cudaLaunchKernel", "runtime", None, "Net_0.Linear_0", None, 1),
        ("AccumulateGrad", "op", None, None, None, None),
    ]
    assert rows(reel, "select m.path, m.class from kernels k join modules m on m.id = k.module") == [
        ("Net_0.Linear_0", "Linear")
    ]
    assert rows(reel, "select os_id, torch_id from threads order by os_id") == [(9, None), (PID, 1)]


def test_stacks_as_text(tmp_path: Path) -> None:
    stack = "a b/net.py(7): forward;<built-in x>;train.py(30): main"
    reel = reel_of(
        tmp_path, op("aten::mm", 0, 5, Call_stack=stack), launch(1, 1, 1), op("aten::mm", 9, 5, Call_stack="")
    )
    assert rows(reel, "select stack from ops order by id") == [(0,), (0,), (None,)]
    assert rows(reel, "select frames from stacks") == [([0, 1],)]
    assert rows(reel, "select file, line, function from frames") == [
        ("a b/net.py", 7, "forward"),
        ("train.py", 30, "main"),
    ]


def test_inputs(tmp_path: Path) -> None:
    given = {
        "Input Dims": [[2, 3], [], [[4], [5]]],
        "Input type": ["float", "Scalar", "TensorList"],
        "Input Strides": [[3, 1], [], [[1], [1]]],
        "Concrete Inputs": ["", "1.5", ""],
    }
    reel = reel_of(tmp_path, op("a", 0, 1, **given), op("b", 2, 1, **given), op("c", 4, 1, **{"Input Dims": [[]]}))
    assert rows(reel, "select inputs, args from ops order by id") == [(0, None), (0, None), (1, None)]
    assert rows(reel, "select dims, strides, dtypes, scalars from inputs order by id") == [
        (
            "[[2, 3], [], [[4], [5]]]",
            "[[3, 1], [], [[1], [1]]]",
            '["float", "Scalar", "TensorList"]',
            '["", "1.5", ""]',
        ),
        ("[[]]", None, None, None),
    ]


def test_all_columns_of_a_kernel(tmp_path: Path) -> None:
    more = {
        "context": 1,
        "registers per thread": 32,
        "shared memory": 1024,
        "blocks per SM": 0.5,
        "warps per SM": 4,
        "grid": [8, 1, 1],
        "block": [128, 1, 1],
        "est. achieved occupancy %": 25,
        "queued": 0,
    }
    reel = reel_of(tmp_path, kernel("gemm", 1, 2, 3, **more))
    assert rows(reel, "select * exclude (process) from kernels") == [
        (
            *(0, "cuda:0", 7, "gemm", 1000, 2000, None, "compute", None, 3, 1, None, None, [8, 1, 1], [128, 1, 1]),
            *(32, 1024, 0.5, 4.0, 25.0, None, None, None, None, None, None, None, '{"queued": 0}'),
        )
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "communication"),
        ("void vllm::cross_device_reduce_1stage<c10::BFloat16, 8>", "communication"),
        ("two_shot_all_reduce_kernel", "communication"),
        ("multimem_all_reduce_kernel<c10::BFloat16, 16>", "communication"),
        ("__amd_rocclr_copyBuffer", "copy"),
        ("__amd_rocclr_fillBufferAligned", "set"),
        ("hipblasLtMatmul_dma_Sync", "compute"),
    ],
)
def test_kinds_of_kernels(tmp_path: Path, name: str, kind: str) -> None:
    assert rows(reel_of(tmp_path, kernel(name, 1, 2, 3)), "select kind from kernels") == [(kind,)]


def test_syncs(tmp_path: Path) -> None:
    more = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 1, "wait_on_cuda_event_id": 8}

    def sync(name: str, ts: int, stream: int, correlation: int, **args: int) -> dict[str, object]:
        event = slice_of("cuda_sync", name, ts, 5, pid=0, tid=stream)
        return {**event, "args": {"stream": stream, "device": 0, "correlation": correlation, **args}}

    reel = reel_of(
        tmp_path,
        launch(1, 1, 1, name="cudaEventRecord"),
        launch(5, 9, 2, name="cudaEventSynchronize"),
        sync("Event Sync", 6, -1, 2, **more),
        sync("Stream Sync", 20, 7, 3),
    )
    assert rows(reel, "select * exclude (process) from syncs") == [
        ("cuda:0", None, "Event Sync", 6000, 5000, 1, 7, 8, 0),
        ("cuda:0", 7, "Stream Sync", 20000, 5000, None, None, None, None),
    ]


def test_ranges_of_devices(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path,
        op("aten::mm", 0, 5, External_id=3),
        slice_of("user_annotation", "mine", 0, 9, External_id=3),
        slice_of("gpu_user_annotation", "mine", 20, 9, pid=1, tid=7, External_id=3),
    )
    query = (
        "select r.device, r.stream, r.name, r.start_ns, r.dur_ns, o.kind from device_ranges r join ops o on o.id = r.op"
    )
    assert rows(reel, query) == [("cuda:1", 7, "mine", 20000, 9000, "range")]


def test_steps(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path,
        op("before", 0, 1),
        slice_of("user_annotation", "ProfilerStep#7", 10, 10),
        op("in", 12, 1),
        launch(19, 3, 1),
        kernel("late", 40, 1, 1),
        slice_of("user_annotation", "ProfilerStep#8", 20, 10),
        op("on another thread", 25, 1, tid=9),
        op("after", 30, 1),
    )
    assert rows(reel, "select step, start_ns, end_ns from steps") == [(7, 10000, 20000), (8, 20000, 30000)]
    assert rows(reel, "select name, step from ops where kind = 'op' order by id") == [
        ("before", None),
        ("in", 7),
        ("on another thread", 8),
        ("after", None),
    ]
    assert rows(reel, "select step from kernels") == [(7,)]


def test_memory(tmp_path: Path) -> None:
    def memory(ts: int, size: int, addr: int, total: int, kind: int = 1, index: int = 0) -> dict[str, object]:
        device = {"Device_Type": kind, "Device_Id": index, "Total_Allocated": total, "Total_Reserved": 4096}
        return instant("[memory]", ts, Bytes=size, Addr=addr, **device)

    reel = reel_of(
        tmp_path,
        op("aten::empty", 0, 10),
        memory(2, 512, 99, 512),
        op("aten::mm", 20, 10),
        op("aten::resize_", 22, 5),
        memory(23, 256, 50, 768),
        memory(25, -512, 99, 256),
        memory(28, -64, 7, 192, kind=0, index=-1),
        {**memory(40, 1, 1, 0, kind=6, index=2), "name": "[OutOfMemory]"},
    )
    query = "select time_ns, device, action, addr, size, total, reserved, op, alloc from allocs order by id"
    assert rows(reel, query) == [
        (2000, "cuda:0", "alloc", 99, 512, 512, 4096, 0, None),
        (23000, "cuda:0", "alloc", 50, 256, 768, 4096, 2, None),
        (25000, "cuda:0", "free", 99, 512, 256, 4096, 2, 0),
        (28000, "cpu", "free", 7, 64, 192, 4096, 1, None),
        (40000, "cuda:2", "oom", 1, 1, 0, 4096, None, None),
    ]
    assert rows(reel, "select name, alloc_bytes, self_alloc_bytes from ops order by id") == [
        ("aten::empty", 512, 512),
        ("aten::mm", -320, -64),
        ("aten::resize_", -256, -256),
    ]


def test_memory_without_totals(tmp_path: Path) -> None:
    """torch 1.8 to 1.10 wrote sizes only."""
    sizes = [(1, 100, 1), (2, 50, 0), (3, -30, 1), (4, -50, 0)]
    events = [instant("[memory]", ts, Bytes=size, Device_Type=kind, Device_Id=kind - 1) for ts, size, kind in sizes]
    assert rows(reel_of(tmp_path, *events), "select device, addr, size, total from allocs order by id") == [
        ("cuda:0", None, 100, 100),
        ("cpu", None, 50, 50),
        ("cuda:0", None, 30, 70),
        ("cpu", None, 50, 0),
    ]


def collective(name: str, ts: int, correlation: int, **args: object) -> list[dict[str, object]]:
    said = {"Collective name": name, "dtype": "BFloat16", "In msg nelems": 8, "Out msg nelems": 16, "Group size": 2}
    said |= {"Process Group Name": "3", "Process Group Ranks": "[0, 4]", "In split size": "[]", **args}
    return [
        op("record_param_comms", ts, 10, **said),
        slice_of("user_annotation", f"nccl:{name}", ts + 1, 8),
        launch(ts + 2, 1, correlation),
        kernel("ncclDevKernel_Generic", ts + 100, 5, correlation, **said),
    ]


def test_collectives_and_groups(tmp_path: Path) -> None:
    config = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2, "ranks": [0, 1]}]
    reel = reel_of(
        tmp_path,
        *collective("all_gather", 0, 1, **{"Process Group Description": "mesh"}),
        *collective("send", 20, 2, **{"Src Rank": 0, "Dst Rank": 4, "Rank": 0}),
        *collective("allreduce", 40, 3, **{"Out split size": [1, 2]}),
        op("record_param_comms", 60, 5, **{"Collective name": "wait"}),
        kernel("ncclKernel_AllReduce", 500, 5, 99),
        distributedInfo={"backend": "nccl", "rank": 0, "world_size": 8, "pg_count": 1, "pg_config": config},
    )
    assert rows(reel, "select * exclude (process) from process_groups") == [
        (0, "0", "default_pg", "cuda:nccl", [0, 1], 2),
        (1, "3", "mesh", None, [0, 4], 2),
    ]
    query = """select c."group", c.name, c.seq, c.peer, c.bytes, c.in_bytes, c.out_bytes, c.out_split, o.name,
        c.kernel, c.enter_ns, c.start_ns, c.end_ns from collectives c left join ops o on o.id = c.op order by c.id"""
    name = "record_param_comms"
    assert rows(reel, query) == [
        (1, "all_gather", 0, None, 32, 16, 32, None, name, 0, 0, 100_000, 105_000),
        (1, "send", 0, 4, 32, 16, 32, None, name, 1, 20_000, 120_000, 125_000),
        (1, "allreduce", 1, None, 32, 16, 32, [1, 2], name, 2, 40_000, 140_000, 145_000),
        (None, None, 0, None, None, None, None, None, None, 3, 500_000, 500_000, 505_000),
    ]
    assert rows(reel, "select collective, kind from kernels order by id") == [(n, "communication") for n in range(4)]
    assert rows(reel, "select rank, world_size, name from processes") == [(0, 8, f"rank00000-trace-{PID}")]


def test_counters_and_samples(tmp_path: Path) -> None:
    sample = {"ph": "C", "name": "GPU 0 Utilization", "pid": 0, "ts": 5, "args": {"GPU Utilization": 0.5}}
    reel, trace = read(
        tmp_path,
        slice_of("cuda_profiler_range", "__profile__", 1, 2, pid=0, tid=0, **{"smsp__inst.sum": 7}),
        slice_of("cuda_profiler_range", "empty", 1, 2, pid=0, tid=0),
        sample,
        {**sample, "args": {"a": 1, "b": 2}, "pid": PID},
        {**sample, "args": {"a": "text"}},
        meta("process_labels", "GPU 0", pid=0),
    )
    assert rows(reel, 'select "range", start_ns, dur_ns, name, value from kernel_counters') == [
        ("__profile__", 1000, 2000, "smsp  inst.sum", 7.0)
    ]
    assert rows(reel, "select * exclude (process) from samples") == [
        (5000, "cuda:0", "GPU 0 Utilization", 0.5),
        (5000, None, "GPU 0 Utilization: a", 1.0),
        (5000, None, "GPU 0 Utilization: b", 2.0),
    ]
    assert trace.left_out == {"ranges of the profiler without a counter": 1, "counters without a value": 1}


def test_unknown_categories_are_calls_or_activities(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path,
        op("aten::mm", 0, 50),
        slice_of("new_host_thing", "mine", 10, 5, colour="red"),
        slice_of("new_device_thing", "theirs", 60, 5, pid=2, tid=4),
        slice_of(None, "nobody's", 70, 1),
        meta("process_labels", "GPU 2", pid=2),
    )
    assert rows(reel, "select name, kind, parent, args from ops order by id") == [
        ("aten::mm", "op", None, None),
        ("mine", "other", 0, '{"cat": "new_host_thing", "colour": "red"}'),
        ("nobody's", "other", None, '{"cat": ""}'),
    ]
    assert rows(reel, "select name, kind, device, stream, args from kernels") == [
        ("theirs", "other", "cuda:2", 4, '{"cat": "new_device_thing"}')
    ]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    base = {"name": "x", "pid": PID, "tid": PID, "ts": 1}
    _, trace = read(
        tmp_path,
        slice_of("Trace", "PyTorch Profiler (0)", 0, 9, pid="Spans"),
        {**base, "ph": "B"},
        {**base, "ph": "E"},
        {"name": "no phase"},
        {"ph": "X", "name": "no time", "pid": 1, "tid": 1},
        {**base, "ph": "i", "name": "Record Window End", "pid": "", "tid": ""},
        {**base, "ph": "i", "name": "mine"},
        op("aten::mm", 1, 2),
        arrow("s", 1, 1, category="ac2g"),
    )
    assert trace.events == 9
    assert trace.left_out == {
        "spans of the profiler itself": 1,
        "of the phase 'B'": 1,
        "of the phase 'E'": 1,
        "without a phase": 1,
        "without a time": 1,
        "marks of the profiler's window": 1,
    }
    assert {name: table.num_rows for name, table in trace.tables.items() if table.num_rows and name != "processes"} == {
        "ops": 1,
        "marks": 1,
        "threads": 1,
    }


def test_marks_and_other_arrows(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path,
        op("aten::mm", 0, 9),
        instant("mine", 4),
        arrow("s", 5, 3, category="rpc"),
        arrow("f", 5, 8, category="rpc"),
    )
    assert rows(reel, "select thread, time_ns, name, op from marks") == [(0, 4000, "mine", 0)]
    assert rows(reel, 'select id, name, "end", thread, time_ns, op from flows') == [
        (0, "rpc", "out", 0, 3000, 0),
        (0, "rpc", "in", 0, 8000, 0),
    ]


def test_the_last_name_of_a_thread_counts(tmp_path: Path) -> None:
    names = [meta("thread_name", name, tid=PID) for name in ("first", f"thread {PID} (python3)")]
    reel = reel_of(
        tmp_path,
        op("a", 0, 1),
        *names,
        meta("process_name", "python3"),
        meta("thread_name", "stream 7 ", pid=0, tid=7),
        kernel("k", 1, 1, 1),
    )
    assert rows(reel, "select os_id, name from threads") == [(PID, "python3")]
    assert rows(reel, "select device, stream, name from streams") == [("cuda:0", 7, "stream 7")]
    assert rows(reel, "select pid, command from processes") == [(PID, "python3")]


def test_devices(tmp_path: Path) -> None:
    properties = [
        {
            "id": n,
            "name": "H100",
            "totalGlobalMem": 80,
            "computeMajor": 9,
            "computeMinor": 0,
            "warpSize": 32,
            "numSms": 132,
        }
        for n in range(2)
    ]
    reel = reel_of(tmp_path, kernel("k", 1, 1, 1, device=1), deviceProperties=properties)
    query = 'select device, "index", total, api, model, capability, multiprocessors, warp_size, note from devices'
    assert rows(reel, query) == [("cuda:1", 1, 80, "cuda", "H100", "9.0", 132, 32, None)]
    assert json.loads(rows(reel, "select properties from devices")[0][0]) == properties[1]


def test_rocm_counts_devices_in_two_ways(tmp_path: Path) -> None:
    properties = [{"id": n, "name": "MI300X", "numSms": 304} for n in range(2)]
    reel = reel_of(
        tmp_path,
        launch(1, 1, 1, name="hipLaunchKernel", kernel="k", grid=[1, 1, 1], bytes="0x10"),
        kernel("k", 2, 1, 1, device=2, stream=0),
        instant("[memory]", 3, Bytes=64, Addr=1, Device_Type=6, Device_Id=0),
        deviceProperties=properties,
    )
    assert rows(reel, "select device, api, model, note is null from devices") == [
        ("cuda:0", "hip", "MI300X", False),
        ("cuda:2", "hip", "MI300X", False),
    ]
    assert rows(reel, "select args from ops") == [('{"bytes": "0x10", "grid": [1, 1, 1], "kernel": "k"}',)]


@pytest.mark.parametrize("api", ["xpu", "mtia"])
def test_other_devices(tmp_path: Path, api: str) -> None:
    category = {"xpu": "kernel", "mtia": "mtia_ccp_events"}[api]
    reel = reel_of(
        tmp_path,
        slice_of(f"{api}_runtime", "urEnqueueKernelLaunch", 1, 1, correlation=1),
        slice_of(category, "k", 2, 1, pid=3, tid=5, correlation=1),
        slice_of(category, "event_wait", 4, 1, pid=3, tid=5, stream=8, wait_on_stream=2),
    )
    assert rows(reel, "select device, api from devices") == [(f"{api}:3", api)]
    assert rows(reel, "select name, stream, launch from kernels where name = 'k'") == [("k", 5, 0)]
    assert rows(reel, "select count(*) from syncs") == [(1 if api == "mtia" else 0,)]
    assert rows(reel, "select kind, args from ops") == [("runtime", f'{{"cat": "{api}_runtime"}}')]


@pytest.mark.parametrize(
    ("name", "rank"), [("trace_rank-3.json", 3), ("Rank12.pt.trace.json", 12), ("frank.json", None)]
)
def test_the_rank_may_stand_in_the_name(tmp_path: Path, name: str, rank: int | None) -> None:
    reel, _ = read(tmp_path, op("a", 0, 1), name=name)
    assert rows(reel, "select rank, world_size from processes") == [(rank, None)]


def test_the_source_is_kept(tmp_path: Path) -> None:
    top = {"host_name": "node1", "INFO": ["a", "b"], "mine": {"x": [1, None]}, "traceName": "t"}
    reel, _ = read(tmp_path, op("a", 0, 1), **top)
    text = (tmp_path / "trace.json").read_bytes()
    assert reel.meta["source"] == {
        "file": "trace.json",
        "kind": "trace",
        "size": len(text),
        "sha256": hashlib.sha256(text).hexdigest(),
        "schemaVersion": 1,
        **top,
    }
    assert rows(reel, "select name, host from processes") == [(f"node1-{PID}", "node1")]


def test_open_calls_and_negative_times(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path, op("a", 5, 10, finished=False), {"ph": "X", "cat": "cpu_op", "name": "b", "pid": 1, "ts": 7}
    )
    assert rows(reel, 'select name, dur_ns, "open" from ops order by id') == [("a", 10000, True), ("b", 0, True)]


def test_no_device_no_step_no_rank(tmp_path: Path) -> None:
    reel, trace = read(tmp_path)
    assert trace.events == 0
    assert rows(reel, "select complete from processes") == [(True,)]
