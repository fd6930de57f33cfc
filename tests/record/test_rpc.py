"""torch.distributed.rpc: ops of the worker are linked to the caller's range, with all their fields."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import torchreel
from tests.record.rows import rows

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.rpc.is_available()), reason="torch has no RPC here"
)

PROGRAM = """
import os, sys
import torch, torch.distributed.rpc as rpc, torch.multiprocessing as mp
import torchreel

def remote(x, factor=1):
    return (x @ x) * factor

@rpc.functions.async_execution
def remote_async(x):
    future = torch.futures.Future()
    future.set_result(x + 1)
    return future

def fails():
    raise ValueError("remote trouble")

def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2)
    if rank == 0:
        x = torch.ones(3, 3)
        assert torch.equal(rpc.rpc_sync("w1", remote, args=(x,), kwargs={"factor": 2}), (x @ x) * 2)
        assert torch.equal(rpc.rpc_async("w1", torch.add, args=(x, x)).wait(), x + x)
        assert torch.equal(rpc.rpc_sync("w1", remote_async, args=(x,)), x + 1)
        assert torch.equal(rpc.remote("w1", remote, args=(x,)).to_here(), x @ x)
        try:
            rpc.rpc_sync("w1", fails)
        except ValueError as error:
            assert "remote trouble" in str(error)
    rpc.shutdown()

if __name__ == "__main__":
    with torchreel.record(sys.argv[1], shapes=True, stacks=True, memory=True):
        torch.ones(1)
        mp.spawn(worker, args=(sys.argv[2],), nprocs=2)
"""


def test_remote_ops_are_linked_to_the_callers_range(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    result = subprocess.run([sys.executable, script, tmp_path / "a.reel", str(port)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    reel = torchreel.load(tmp_path / "a.reel")
    linked = rows(
        reel,
        """select caller.name as call, op.name as op, op.inputs is not null as shapes, op.stack is not null as stack,
                  op.thread is not null as thread, op.node, caller.node as from_node, op.alloc_bytes > 0 as memory
           from flows o join flows i on o.id = i.id and o."end" = 'out' and i."end" = 'in'
           join ops caller on caller.process = o.process and caller.id = o.op
           join ops inside on inside.process = i.process and inside.id = i.op
           join ops op on op.process = inside.process and op.parent = inside.id
           where op.name in ('aten::matmul', 'aten::add') order by caller.start_ns, op.id""",
    )
    calls = [(row["call"], row["op"]) for row in linked]
    assert calls == [
        ("rpc_sync#remote(w0 -> w1)", "aten::matmul"),
        ("rpc_async#add(w0 -> w1)", "aten::add"),
        ("rpc_sync#remote_async(w0 -> w1)", "aten::add"),
        ("rpc_remote#remote(w0 -> w1)", "aten::matmul"),
    ]
    assert all(row["shapes"] and row["stack"] and row["memory"] for row in linked)
    assert {(row["from_node"], row["node"]) for row in linked} == {(0, 1)}
    assert rows(reel, "select count(*) as n from ops where name like 'rpc_%' and open") == [{"n": 0}]
