"""How long does it take to write a snapshot of a hundred thousand events with their stacks?"""

from __future__ import annotations

import json
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import child
from benchmarks.result import Goal, Result, Spread, number
from benchmarks.rounds import in_words

EVENTS = 100_000
ROUNDS = 7
QUICK_ROUNDS = 2


def measure(quick: bool) -> list[Result]:
    runs = [child.call(__name__) for _ in range(QUICK_ROUNDS if quick else ROUNDS)]

    def spread(what: str) -> Spread:
        return Spread.of([run[what] for run in runs])

    first = runs[0]
    size = f"{number(first['bytes'] / 1e6)} MB, {first['stacks']:,} distinct stacks of up to {first['deepest']}"
    events = f"{number(first['events'])} events"
    torchs_way = in_words(spread("snapshot"), "s")
    return [
        Result(f"{events} of the caching allocator, dump() as a pickle", spread("pickle"), Goal(0.5), "s", size),
        Result("the same, in CPU time", spread("pickle_cpu"), None, "s"),
        Result(
            "the same as Python objects, by pickle.dump: what torch does for CUDA",
            spread("torch"),
            None,
            "s",
            f"without the {torchs_way} that snapshot() takes to make them",
        ),
        Result("the same, dump() as JSON", spread("json"), None, "s", f"{number(first['json_bytes'] / 1e6)} MB"),
    ]


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _record() -> None:
    """Steps of the policy loop, until there are events enough. A free is two of them, requested and completed."""
    import torch

    from benchmarks.policy_loop import PolicyLoop
    from torchreel import memory

    torch.set_num_threads(1)
    memory.use_caching_allocator()
    memory.record_history(context="all", stacks="python")
    loop = PolicyLoop()
    while memory.memory_stats()["allocation.all.allocated"] * 3 < EVENTS * 1.02:
        loop.step()


def _main() -> None:
    _record()
    from torchreel import memory

    with tempfile.TemporaryDirectory() as directory:
        file, other = Path(directory, "snapshot.pickle"), Path(directory, "snapshot.json")
        # The first of all, as in a program that dumps once.
        cpu = time.process_time()
        taken = {"pickle": _seconds(lambda: memory.dump(file))}
        taken["pickle_cpu"] = time.process_time() - cpu
        start = time.perf_counter()
        snapshot = memory.snapshot()
        taken["snapshot"] = time.perf_counter() - start
        with Path(directory, "torch.pickle").open("wb") as target:
            taken["torch"] = _seconds(lambda: pickle.dump(snapshot, target))
        taken["json"] = _seconds(lambda: memory.dump(other))
        sizes = {"bytes": file.stat().st_size, "json_bytes": other.stat().st_size}
        events = pickle.loads(file.read_bytes())["device_traces"][0]
    stacks = {tuple((frame["filename"], frame["line"]) for frame in event["frames"]) for event in events}
    if len(events) < EVENTS or not all(event["frames"] for event in events if event["action"] != "snapshot"):
        raise RuntimeError(f"{len(events)} events, some of them without a stack, are not what was to be measured.")
    deepest = max(map(len, stacks))
    print(json.dumps({**taken, **sizes, "events": len(events), "stacks": len(stacks), "deepest": deepest}))


if __name__ == "__main__":
    _main()
