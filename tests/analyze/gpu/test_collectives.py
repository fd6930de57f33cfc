"""Collectives, their bus bandwidth and who was late, counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analyze.gpu.by_hand import Rows, collective, kernel, reel_of
from torchreel.analyze.gpu.activities import activities
from torchreel.analyze.gpu.collectives import collectives
from torchreel.analyze.gpu.ranks import clocks, stragglers

GROUP = {"name": "world", "size": 4, "ranks": [0, 1, 2, 3], "backend": "nccl"}


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("allreduce", 1.5),
        ("all_reduce", 1.5),
        ("_allgather_base", 0.75),
        ("reduce_scatter_tensor_coalesced", 0.75),
        ("all_to_allv", 0.75),
        ("alltoall", 0.75),
        ("scatter", 0.75),
        ("gather", 0.75),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send", 1.0),
    ],
)
def test_the_bus_bandwidth_of_four_ranks(tmp_path: Path, name: str, factor: float) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "process_groups": [GROUP],
            "collectives": [collective(name, 100, 300, bytes=8000, seq=0, kernel=0)],
            "kernels": [kernel(100, 300, kind="communication", collective=0), kernel(250, 400)],
        },
    )
    assert collectives(reel, activities(reel)).to_pylist() == [
        {
            "name": name,
            "group": "world",
            "count": 1,
            "bytes": 8000,
            "ns": 200,
            "exposed_ns": 150,
            "bus_gbps": 40.0 * factor,
        }
    ]


def test_groups_names_and_sizes_are_apart(tmp_path: Path) -> None:
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "process_groups": [GROUP, {"name": "pair", "size": None}],
            "collectives": [
                collective("allreduce", 0, 10, bytes=80, seq=0, kernel=0),
                collective("allreduce", 20, 40, bytes=80, seq=1, kernel=1),
                collective("allreduce", 50, 55, bytes=8, seq=2, kernel=2),
                collective("allreduce", 60, 64, bytes=8, seq=0, kernel=3, group=1),
                collective("send", 80, 81, bytes=8, seq=0, group=1),  # no kernel: made by a CPU's backend
                collective("send", 90, 91, bytes=8, seq=1, group=1, start_ns=None, end_ns=None, open=True),
            ],
            "kernels": [
                kernel(0, 10, kind="communication", collective=0),
                kernel(20, 40, kind="communication", collective=1),
                kernel(50, 55, kind="communication", collective=2),
                kernel(60, 64, kind="communication", collective=3),
                kernel(70, 73, kind="communication", name="ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"),
                kernel(75, 77, kind="communication", name="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
                kernel(78, 79, kind="communication", name="nvshmem_put"),
            ],
        },
    )
    found = [tuple(row.values()) for row in collectives(reel, activities(reel)).to_pylist()]
    assert found == [
        ("allreduce", "world", 2, 160, 30, 30, 8.0),
        ("allreduce", "world", 1, 8, 5, 5, 2.4),
        ("allreduce", "pair", 1, 8, 4, 4, None),  # of how many ranks?
        ("allreduce", None, 1, None, 3, 3, None),
        ("sendrecv", None, 1, None, 2, 2, None),
        ("nvshmem_put", None, 1, None, 1, 1, None),
        ("send", "pair", 1, 8, 1, None, 8.0),
    ]
    of_step = collectives(reel, activities(reel).within(step=3), whole=False)
    assert of_step.num_rows == 0


def ranks(offset: int, hosts: tuple[str, str]) -> list[Rows]:
    """Two ranks with three all-reduces. Rank 1 is late for the second by 50; its clock is ahead by `offset`."""
    group = {"name": "world", "size": 2, "ranks": [0, 1]}
    times = ([(0, 20), (100, 170), (210, 230)], [(10, 20), (150, 170), (200, 230)])
    return [
        {
            "processes": [{"rank": rank, "host": hosts[rank]}],
            "process_groups": [group],
            "collectives": [
                collective("allreduce", start + rank * offset, end + rank * offset, bytes=100, seq=seq)
                for seq, (start, end) in enumerate(times[rank])
            ],
        }
        for rank in (0, 1)
    ]


@pytest.mark.parametrize(("offset", "hosts"), [(0, ("one", "one")), (7_000_000, ("one", "other"))])
def test_the_rank_that_started_last(tmp_path: Path, offset: int, hosts: tuple[str, str]) -> None:
    reel = reel_of(tmp_path / "run.reel", *ranks(offset, hosts))
    assert [tuple(row.values()) for row in stragglers(reel).to_pylist()] == [
        ("world", "allreduce", 1, 2, 1, 1, 50, 20),
        ("world", "allreduce", 0, 2, 1, 1, 10, 10),
        ("world", "allreduce", 2, 2, 0, 0, 10, 20),
    ]
    assert [tuple(row.values()) for row in clocks(reel).to_pylist()] == [(0, 0, 3, 0, 0), (1, 1, 3, offset, 0)]
    # The time of the bus is that from the last start: 10 + 20 + 20 on both ranks. A factor of 2(n-1)/n is 1 here.
    (row,) = collectives(reel, activities(reel)).to_pylist()
    assert (row["count"], row["bytes"], row["ns"], row["bus_gbps"]) == (6, 600, 110 + 60, 600 / 100)


def test_clocks_of_one_host_are_one(tmp_path: Path) -> None:
    reel = reel_of(tmp_path / "run.reel", *ranks(9, ("one", "one")))
    assert clocks(reel)["offset_ns"].to_pylist() == [0, 0]
