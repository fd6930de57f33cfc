"""Which share of the functions that 0.6.0's own tests graph, and that it replayed, is still replayed?

The tests of 0.6.0 run against this revision; a plugin counts the replays of each function that they graph. What 0.6.0
itself replayed was counted in the same way, and stands in replayed_0_6_0.txt: a test, and the functions of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.result import Goal, Result, Spread

REVISION = "aa13bb2"  # the last one before guards by following
BEFORE = Path(__file__).with_name("replayed_0_6_0.txt")
GOAL = Goal(0.95, at_least=True)
_QUICK = "tests/graphs/test_models.py"
Functions = dict[tuple[str, int], tuple[int, str]]  # a test and the number of a function: its replays, and why eager


def measure(quick: bool) -> list[Result]:
    before = _before(quick)
    with tempfile.TemporaryDirectory() as folder:
        if not _fetch_tests(Path(folder)):
            return []  # no history of this repository here
        now = _census(Path(folder), _QUICK if quick else "tests/graphs")
    known = [one for one in before if one in now]  # a test that fails early graphs less
    eager = [one for one in known if not now[one][0]]
    lost = len(before) - len(known) + len(eager)
    tests = {test for test, _ in before}
    broken = {test for test, _ in eager} | {test for test, number in before if (test, number) not in now}
    reasons = Counter(now[one][1].split(" (/")[0].partition(" ")[2] or "changed" for one in eager)
    detail = "; ".join(f"{count} {why}" for why, count in reasons.most_common(12))
    return [
        Result(f"replayed, of {len(before)} functions", Spread.of([1 - lost / len(before)]), GOAL, detail=detail),
        Result(f"tests with all of theirs, of {len(tests)}", Spread.of([1 - len(broken) / len(tests)]), GOAL),
    ]


def _before(quick: bool) -> list[tuple[str, int]]:
    rows = (line.rsplit(" ", 1) for line in BEFORE.read_text().splitlines())
    return [(test, int(number)) for test, number in rows if not quick or test.startswith(_QUICK)]


def _fetch_tests(folder: Path) -> bool:
    root = Path(__file__).parents[1]
    archive = folder / "tests.tar"
    command = ["git", "-C", str(root), "archive", "-o", str(archive), REVISION, "tests", "benchmarks", "pyproject.toml"]
    if subprocess.run(command, capture_output=True).returncode != 0:
        return False
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    plugin = Path(__file__).with_name("replay_census.py")
    (folder / plugin.name).write_text(plugin.read_text())
    return True


def _census(folder: Path, tests: str) -> Functions:
    counts = folder / "counts"
    counts.mkdir()
    environment = {**os.environ, "REPLAY_CENSUS": str(counts), "PYTHONPATH": str(folder)}
    options = ["-q", "-n", "2", "-m", "not long", "-p", "replay_census", "--continue-on-collection-errors"]
    command = [sys.executable, "-m", "pytest", *options, tests]
    subprocess.run(command, cwd=folder, env=environment, capture_output=True)  # some fail: they expect what 0.6.0 did
    found: Functions = {}
    for file in counts.iterdir():
        for line in file.read_text().splitlines():
            test, number, replays, _, why = line.split("\t")
            found[test, int(number)] = int(replays), why
    return found
