"""How far is the memory that is predicted from a CPU recording from what a GPU was recorded to reserve?

The snapshots are not part of the repository: TORCHREEL_SNAPSHOTS names their directory, and those that are not there
are left out. `python -m benchmarks.prediction` runs all and puts the table into docs/prediction.md.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import document, machine
from benchmarks.child import ROOT
from benchmarks.result import Result, Spread

SNAPSHOTS = Path(os.environ.get("TORCHREEL_SNAPSHOTS", ROOT.parent / "shared" / "data" / "snapshots"))


@dataclass(frozen=True)
class Run:
    """A program of examples/, and the snapshot that it was written out from."""

    snapshot: str
    torch_version: str
    command: tuple[str, ...]
    quick: bool = False

    @property
    def path(self) -> Path:
        return SNAPSHOTS / f"{self.snapshot}.pickle"


_AMP = ("lm4.py", "--context", "200", "--mode", "train", "--amp")
RUNS = (
    Run("lm4_fwd_ctx100", "2.6", ("lm4.py", "--context", "100"), quick=True),
    Run("lm4_fwd_ctx150", "2.6", ("lm4.py", "--context", "150")),
    Run("lm4_train_ctx100", "2.6", ("lm4.py", "--context", "100", "--mode", "train"), quick=True),
    Run("lm4_train_amp_ctx200", "2.6", _AMP),
    Run("lm4_train_amp_ctx200", "2.6", (*_AMP, "--lists", "cpu")),
    Run("linear_hopper", "2.4", ("linear.py", "--scale", "1")),
)


@dataclass(frozen=True)
class Peak:
    """One peak of one run, in bytes; and how many of the GPU's events the CPU had too."""

    run: Run
    same: str
    what: str
    recorded: int
    low: int
    high: int

    @property
    def error(self) -> float:
        """In percent, from the nearest end of what was predicted; 0 within."""
        nearest = min(max(self.recorded, self.low), self.high)
        return 100 * (nearest / self.recorded - 1)

    @property
    def predicted(self) -> str:
        return f"{_mib(self.low)} to {_mib(self.high)} MiB"

    @property
    def ends(self) -> str:
        return f"{_percent(self.low, self.recorded)} to {_percent(self.high, self.recorded)}"


def measure(quick: bool) -> list[Result]:
    results = []
    for run in available(quick):
        for peak in peaks(run):
            what = f"{' '.join(run.command)}: {peak.what}, error from the nearest end"
            detail = f"recorded {_mib(peak.recorded)} MiB, predicted {peak.predicted} ({peak.ends})"
            results.append(Result(what, Spread.of([peak.error]), None, "%", detail))
    return results


def available(quick: bool) -> list[Run]:
    runs = [run for run in RUNS if run.path.is_file() and (run.quick or not quick)]
    if not runs:
        print(f"There are no snapshots in {SNAPSHOTS}: name their directory in TORCHREEL_SNAPSHOTS.", file=sys.stderr)
    return runs


def peaks(run: Run) -> list[Peak]:
    """Record the program here, predict, and compare with the GPU's own history, played again."""
    from torchreel.allocator import predict, simulate

    (recorded,) = simulate(run.path).devices.values()
    with tempfile.TemporaryDirectory() as directory:
        reel = Path(directory, "run.reel")
        recorder = [sys.executable, "-m", "torchreel", "record", "--memory", "--shapes", "-o", str(reel)]
        script, *arguments = run.command
        subprocess.run([*recorder, str(ROOT / "examples" / script), *arguments], check=True, stdout=subprocess.DEVNULL)
        prediction = predict(reel, torch_version=run.torch_version)
        same = in_common(events(run.path), events(reel))
    return [
        Peak(run, same, "reserved", recorded.peak_reserved, *prediction.peak_reserved),
        Peak(run, same, "allocated", recorded.peak_allocated, *prediction.peak_allocated),
    ]


def events(source: Path) -> list[tuple[str, int]]:
    """What was allocated and freed, in order; scalars and the like, of less than a block, are left out."""
    from torchreel.ingest import open_source

    with open_source(source) as reel:
        rows = reel.sql(
            "SELECT left(action, 4) AS kind, size FROM allocs WHERE action IN ('alloc', 'free', 'free_requested')"
            " AND size >= 512 ORDER BY id"
        )
    return list(zip(rows["kind"].to_pylist(), rows["size"].to_pylist(), strict=True))


def in_common(gpu: list[tuple[str, int]], cpu: list[tuple[str, int]]) -> str:
    """Of the GPU's events, those that the CPU has in the same order and of the same size."""
    blocks = difflib.SequenceMatcher(None, gpu, cpu, autojunk=False).get_matching_blocks()
    return f"{sum(block.size for block in blocks):,} of {len(gpu):,}"


def table(results: list[Peak]) -> list[list[str]]:
    """The cells of the table, below its headers."""
    rows = [["snapshot", "`examples/`", "same events", "peak", "recorded", "predicted", "error of the ends"]]
    for peak in results:
        command = f"`{' '.join(peak.run.command)}`"
        recorded = f"{_mib(peak.recorded)} MiB"
        rows.append([peak.run.snapshot, command, peak.same, peak.what, recorded, peak.predicted, peak.ends])
    return rows


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f}"


def _percent(predicted: int, recorded: int) -> str:
    return f"{100 * (predicted / recorded - 1):+.2f} %"


def _main() -> None:
    results = [peak for run in available(quick=False) for peak in peaks(run)]
    if not results:
        raise SystemExit(1)
    made = {what: value for what, value in machine.describe().items() if what not in ("CPU", "memory")}
    document.write_table("prediction", table(results), made)
    print("\n".join("  ".join(row) for row in table(results)))


if __name__ == "__main__":
    _main()
