"""Programs that two processes run together, as ranks of torch.distributed over gloo."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

_BEGIN = """
    import os
    import sys
    import torch
    import torch.distributed as dist
    from torch import nn
    from torchreel import graphed
    from torchreel.graphs import status
    rank = int(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
"""
# Gone at once: an end of the interpreter beside gloo's threads is not what is tested, and was seen to abort.
_END = """
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""
_SECONDS = 500  # a rank that waits for another for ever is ended


def run_ranks(script: str, folder: Path) -> list[str]:
    """What each of the ranks prints. The script finds `rank`, `dist`, `graphed` and `status`."""
    whole = textwrap.dedent(_BEGIN) + textwrap.dedent(script) + _END
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", whole, str(rank), str(folder / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        for rank in range(2)
    ]
    try:
        _wait(ranks)
    finally:
        for one in ranks:
            one.kill()
    said = [one.communicate() for one in ranks]
    failures = [f"rank {rank}: {errors}" for rank, (_, errors) in enumerate(said) if ranks[rank].returncode > 0]
    assert not failures, "\n".join(failures)
    ends = [one.returncode for one in ranks]
    assert ends == [0, 0], f"The ranks wait for each other for ever, or one died: {ends}, {said}"
    return [out for out, _ in said]


def _wait(ranks: list[subprocess.Popen[str]]) -> None:
    """Until all are done. One that fails leaves the others waiting for it, and nobody waits for them."""
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and not any(one.poll() for one in ranks):
        if all(one.poll() == 0 for one in ranks):
            return
        time.sleep(0.05)
