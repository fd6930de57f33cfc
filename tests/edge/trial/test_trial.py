"""Files of models are tried in a process of their own: whatever is in them, a sentence comes of it, or the model."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchreel.edge
from tests.alone import run_forked
from tests.edge.nets import Net, batch
from tests.edge.trial.damage import damaged, forged
from tests.in_child import in_child
from torchreel.edge.trial import trials
from torchreel.edge.trial.child import DiedError
from torchreel.errors import EdgeError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ARCHIVES = (".ptl", ".pt", ".pt2")


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def save(path: Path, model: nn.Module | None = None) -> Path:
    model = model or net()
    match path.suffix:
        case ".ptl":
            torch.jit.script(model)._save_for_lite_interpreter(str(path), _save_mobile_debug_info=True)
        case ".pt":
            torch.jit.script(model).save(str(path))
        case ".pt2":
            torch.export.save(torch.export.export(model, (batch(),)), path)
        case ".onnx":
            pytest.importorskip("onnxscript")
            torch.onnx.export(model, (batch(),), str(path), dynamo=True, external_data=False, verbose=False)
        case ".pte":
            exir = pytest.importorskip("executorch.exir")
            path.write_bytes(exir.to_edge(torch.export.export(model, (batch(),))).to_executorch().buffer)
    return path


def try_all(path: Path, change: Callable[..., bytes], seeds: range, wanted: str) -> dict[str, int]:
    """How many changed files gave what, in this process: the same result, another one, or a sentence."""
    data = path.read_bytes()
    right = torchreel.edge.load(path).run([batch()])
    counts = {"same": 0, "other": 0, "sentence": 0, "error of a run": 0}
    for seed in seeds:
        print("seed", seed, flush=True)
        bad = path.with_stem("bad")
        bad.write_bytes(change(data, seed) if change is damaged else change(data, seed, wanted))
        counts[_outcome(bad, right)] += 1
    return counts


def _outcome(path: Path, right: Tensor) -> str:
    try:
        deployed = torchreel.edge.load(path)
    except EdgeError as error:
        assert str(error).endswith((".", '"')) and "\n" not in str(error), str(error)
        assert str(path) in str(error) or "cannot be read" in str(error), str(error)
        return "sentence"
    try:
        result = deployed.run([batch()])
    except EdgeError:
        return "sentence"
    except (RuntimeError, ValueError, TypeError, IndexError):
        return "error of a run"
    is_same = isinstance(result, Tensor) and result.shape == right.shape and torch.equal(result, right)
    return "same" if is_same else "other"


def try_damaged(suffix: str, folder: Path, seeds: range) -> None:
    save(folder / f"model{suffix}")
    counts = in_child(try_all, folder / f"model{suffix}", damaged, seeds, "")
    assert sum(counts.values()) == len(seeds) and counts["sentence"] > len(seeds) // 10
    if suffix in ARCHIVES:  # these have checksums
        assert counts["other"] == counts["error of a run"] == 0


@pytest.mark.parametrize("suffix", [*ARCHIVES, ".onnx", ".pte"])
def test_damage_is_a_sentence_or_does_not_matter(suffix: str, tmp_path: Path) -> None:
    try_damaged(suffix, tmp_path, range(15))


@pytest.mark.long
@pytest.mark.parametrize("suffix", [*ARCHIVES, ".onnx", ".pte"])
def test_much_damage_is_a_sentence_or_does_not_matter(suffix: str, tmp_path: Path) -> None:
    try_damaged(suffix, tmp_path, range(15, 400))


@pytest.mark.parametrize(
    ("suffix", "wanted"), [(".ptl", "bytecode.pkl"), (".ptl", "debug"), (".pt", ".p"), (".pt2", "")]
)
def test_damage_with_the_right_checksum_does_not_crash_us(suffix: str, wanted: str, tmp_path: Path) -> None:
    save(tmp_path / f"model{suffix}")
    counts = in_child(try_all, tmp_path / f"model{suffix}", forged, range(6), wanted)
    assert sum(counts.values()) == 6 and counts["sentence"] > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("suffix", "wanted"), [(".ptl", "bytecode.pkl"), (".ptl", "debug"), (".pt", ".p"), (".pt2", "")]
)
def test_much_damage_of_single_parts_does_not_crash_us(suffix: str, wanted: str, tmp_path: Path) -> None:
    save(tmp_path / f"model{suffix}")
    in_child(try_all, tmp_path / f"model{suffix}", forged, range(6, 100), wanted)


@pytest.mark.long
@pytest.mark.parametrize("suffix", ARCHIVES)
@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_much_damage_with_the_right_checksum(suffix: str, first: int, tmp_path: Path) -> None:
    save(tmp_path / f"model{suffix}")
    in_child(try_all, tmp_path / f"model{suffix}", forged, range(first, first + 250), "")


def killer(path: Path) -> Path:
    """A file that ends whoever loads it: tuples within tuples, which torch takes apart by a call within a call."""
    depth, victim = 300_000, "bytecode.pkl" if path.suffix == ".ptl" else "constants.pkl"
    data = save(path).read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            nested = b"\x80\x02" + b"(" * depth + b"t" * depth + b"."
            target.writestr(name, nested if name.endswith(victim) else source.read(name))
    return path


@pytest.mark.parametrize("suffix", [".ptl", ".pt"])
def test_a_file_that_kills_its_loader_is_told_and_others_are_loaded_after_it(suffix: str, tmp_path: Path) -> None:
    bad = killer(tmp_path / f"killer{suffix}")
    loads = {
        ".ptl": "from torch.jit.mobile import _load_for_lite_interpreter as load",
        ".pt": "from torch.jit import load",
    }
    alone = run_forked(f"{loads[suffix]}; load({str(bad)!r})")
    assert alone.returncode == -signal.SIGSEGV
    said = rf"killer\{suffix} crashes what loads it: a process of its own died of SIGSEGV \(it touched memory .*again"
    with pytest.raises(EdgeError, match=said):
        torchreel.edge.load(bad)
    good = torchreel.edge.load(save(tmp_path / f"good{suffix}"))
    assert torch.equal(good.run([batch()]), net()(batch()))


COMMAND = "import sys; from torchreel.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_the_command_tells_it_too(tmp_path: Path) -> None:
    bad, good = killer(tmp_path / "killer.ptl"), save(tmp_path / "good.pt")
    for arguments in ([str(bad)], [str(good), "--compare", str(bad)]):
        ended = run_forked(COMMAND, "edge", *arguments, "--input", "2x4", "--repeat", "1", directory=tmp_path)
        assert ended.returncode == 1
        assert "killer.ptl crashes what loads it" in " ".join(ended.stderr.split())
        assert "Traceback" not in ended.stderr
    assert not list(tmp_path.glob("*.reel"))


def test_the_command_without_a_check_dies_of_it(tmp_path: Path) -> None:
    bad = killer(tmp_path / "killer.ptl")
    ended = run_forked(COMMAND, "edge", bad, "--no-check", "--input", "2x4", directory=tmp_path)
    assert ended.returncode == -signal.SIGSEGV


class Endless(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while bool(x.sum() < 1e9):
            x = x.relu()
        return x


def test_a_run_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed = torchreel.edge.load(save(tmp_path / "endless.pt", Endless()))
    monkeypatch.setattr(trials, "_RUN_SECONDS", 2)
    with pytest.raises(
        EdgeError, match=r"endless\.pt did not come back: the process of its own that runs it was ended"
    ):
        deployed.run([batch()])
    assert trials._child is None


class Hungry(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        return torch.empty(self.count, dtype=torch.uint8)[:1]


def test_memory_has_a_limit(tmp_path: Path) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    deployed = torchreel.edge.load(save(tmp_path / "hungry.pt", Hungry(int(0.6 * machine))))
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        deployed.run([batch()])
    small = torchreel.edge.load(save(tmp_path / "small.pt", Hungry(1000)))
    assert small.run([batch()]).shape == (1,)


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the process is asked from now on."""
    requests: list[str] = []
    ask = trials._ask

    def counted(path: Path, request: dict[str, Any], seconds: float, does: str) -> dict[str, Any]:
        requests.append(does)
        return ask(path, request, seconds, does)

    monkeypatch.setattr(trials, "_ask", counted)
    return requests


def test_a_file_is_tried_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = asked(monkeypatch)
    model = nn.Linear(4, 3)
    path = save(tmp_path / "model.ptl", model)
    for _ in range(2):
        deployed = torchreel.edge.load(path)
        deployed.run([batch()])
        deployed.run([batch() + 1])
    assert requests == ["loads", "runs", "runs"]
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[data.index(model.weight.detach().numpy().tobytes())] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(EdgeError, match="damaged"):
        torchreel.edge.load(path)
    save(path, nn.Linear(4, 5))
    assert torchreel.edge.load(path).run([batch()]).shape == (2, 5)
    assert requests == ["loads", "runs", "runs", "loads", "runs"]


def test_without_a_check_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = asked(monkeypatch)
    for suffix in ARCHIVES:
        deployed = torchreel.edge.load(save(tmp_path / f"model{suffix}"), check=False)
        assert torch.equal(deployed.run([batch()]), net()(batch()))
    assert requests == []


def test_wrong_inputs_are_torchs_own_error(tmp_path: Path) -> None:
    deployed = torchreel.edge.load(save(tmp_path / "model.pt"))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        deployed.run([torch.ones(3, 3)])
    assert torch.equal(deployed.run([batch()]), net()(batch()))


def test_ops_that_only_this_process_has(tmp_path: Path) -> None:
    library = torch.library.Library("trial_test", "FRAGMENT")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: x * 2, "CPU")

    class Doubling(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.trial_test.doubled(x)

    for suffix in (".pt", ".ptl"):
        deployed = torchreel.edge.load(save(tmp_path / f"model{suffix}", Doubling()))
        assert torch.equal(deployed.run([batch()]), batch() * 2)


def test_how_a_process_can_end() -> None:
    assert trials._how(DiedError(-9, "")).endswith(
        "died of SIGKILL (somebody ended it, perhaps because memory ran out)"
    )
    assert trials._how(DiedError(3, "no")) == "a process of its own ended with exit code 3, saying: no"


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_it_ends_with_the_process_that_started_it(number: int, tmp_path: Path) -> None:
    script = (
        "import sys, time, torchreel.edge\nfrom torchreel.edge.trial import trials\n"
        "torchreel.edge.load(sys.argv[1])\nprint(trials._child._process.pid, flush=True)\ntime.sleep(10_000)\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script, str(save(tmp_path / "model.pt"))], stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    child = int(running.stdout.readline())
    running.send_signal(number)
    running.wait()
    while Path(f"/proc/{child}").exists() and "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text():
        time.sleep(0.05)


def test_a_process_that_cannot_be_started_is_not_the_files_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials._close()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EdgeError, match=r"The process in which files of models are tried could not be started"):
        torchreel.edge.load(save(tmp_path / "model.ptl", nn.Linear(4, 7)))
    assert trials._child is None
