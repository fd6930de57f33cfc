"""`torchreel record`: the script runs as Python would run it, and the reel is closed whatever happens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import torchreel as library
from tests.alone import run_forked
from tests.cli.conftest import Outcome
from tests.synthetic import Process, write_reel
from torchreel.cli.record import reel_path
from torchreel.cli.script import Script
from torchreel.errors import OptionError, ReelExistsError

Torchreel = Callable[..., Outcome]

WAIT = """\
import sys, threading, time
import torch


def wait_for_the_end():
    'Until the main thread has left the code of this file.'
    while is_running():
        time.sleep(0.01)


def is_running():
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and (frame.f_globals is not globals() or frame.f_code.co_name != "<module>"):
        frame = frame.f_back
    return frame is not None
"""

SCRIPT = f"""\
{WAIT}

class Thing:
    pass


def fail():
    raise ValueError("the script's own")


def double(number):
    return (torch.ones(number) * 2).sum().item()


if __name__ == "__main__":
    torch.ones(3).add(1)
    mode = sys.argv[1]
    if mode == "show":
        import pickle
        print([__name__, __file__, sys.argv, sys.path[0], __spec__ and __spec__.name], flush=True)
        threading.Thread(target=lambda: (wait_for_the_end(), pickle.dumps(Thing()), torch.ones(2).mul(2))).start()
    elif mode == "fail":
        fail()
    elif mode == "exit":
        sys.exit(int(sys.argv[2]) if sys.argv[2].isdigit() else sys.argv[2])
    elif mode == "spawn":
        import multiprocessing
        pool = multiprocessing.get_context("spawn").Pool(1)
        print(pool.map(double, [3]))
        pool.close()
        pool.join()
    elif mode == "wait":
        print("ready", flush=True)
        while True:
            time.sleep(0.1)
"""


@pytest.fixture
def script(directory: Path) -> Path:
    package = directory / "work" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for path in (directory / "work" / "train.py", package / "train.py"):
        path.write_text(SCRIPT)
    return directory / "work" / "train.py"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "torchreel", "record", *arguments]


def record(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, cwd=cwd or Path.cwd())


def record_in_fork(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The same in a process that has imported torch: for what does not concern the start of a process."""
    main = "import sys; from torchreel.cli.main import main; sys.exit(main(['record', *sys.argv[1:]]))"
    return run_forked(main, *arguments, directory=cwd or Path.cwd())


def names(path: str) -> list[str]:
    return library.load(path).sql("select name from ops order by start_ns")["name"].to_pylist()


def test_a_script_runs_as_python_would_run_it(script: Path) -> None:
    # WHEN options stand before and after the script
    result = record("--shapes", "--memory", "work/train.py", "show", "--memory", "-o", "x", "--", "-m")
    # THEN those after it are the script's, and its surroundings are those of `python work/train.py`
    shown = [
        "__main__",
        str(script),
        ["work/train.py", "show", "--memory", "-o", "x", "--", "-m"],
        str(script.parent),
        None,
    ]
    assert (result.returncode, result.stdout) == (0, f"{shown}\n")
    # AND one line on stderr says what there is, with the op of the thread that was the last to end
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Recorded ")
    assert last.endswith(" Next: torchreel report run.reel")
    assert "aten::mul" in names("run.reel")
    options = json.loads(Path("run.reel/meta.json").read_text())["options"]
    assert (options["shapes"], options["memory"], options["stacks"]) == (True, True, False)


@pytest.mark.parametrize("target", [["work/train.py"], ["-m", "package.train"]])
def test_sources_are_those_of_the_script_or_module(script: Path, target: list[str]) -> None:
    cwd = None if target[0] != "-m" else script.parent
    file = str(script) if target[0] != "-m" else str(script.parent / "package" / "train.py")
    for name, options in (("with", []), ("without", ["--no-source"])):
        result = record_in_fork("--stacks", *options, "-o", f"{name}.reel", *target, "none", cwd=cwd)
        assert result.returncode == 0, result.stderr
    reels = {name: library.load((cwd or Path.cwd()) / f"{name}.reel") for name in ("with", "without")}
    texts = {name: reel.sql("select path, text from sources where text is not null") for name, reel in reels.items()}
    assert texts["with"].to_pylist() == [{"path": file, "text": SCRIPT}]
    assert texts["without"].num_rows == 0
    hashes = [reel.sql("select path, sha256 from sources order by path").to_pylist() for reel in reels.values()]
    assert hashes[0] == hashes[1] and file in {row["path"] for row in hashes[0]}
    assert [reel.meta["options"]["source"] for reel in reels.values()] == [True, False]


@pytest.mark.parametrize(
    ("target", "is_module", "wanted"),
    [
        ("work/train.py", False, "work"),
        ("work", False, "work"),  # with a __main__.py
        ("link.py", False, "work"),  # as sys.path[0] is, which Python resolves
        ("alone_here", True, "work"),
        ("package.train", True, "work"),
        ("spaced.train", True, "work"),  # a package without an __init__.py
        ("sys", True, None),
        ("no_such_module_anywhere", True, None),
    ],
)
def test_where_the_source_of_a_program_is(
    script: Path, monkeypatch: pytest.MonkeyPatch, target: str, is_module: bool, wanted: str | None
) -> None:
    (script.parent / "alone_here.py").touch()
    (script.parent / "spaced").mkdir()
    (script.parent / "spaced" / "train.py").touch()
    Path("link.py").symlink_to(script)
    monkeypatch.syspath_prepend(str(script.parent))
    found = Script(target, is_module=is_module).directory()
    assert found == (None if wanted is None else Path(wanted).resolve())


def test_a_module_runs_as_python_would_run_it(script: Path) -> None:
    result = record("--all", "-o", "m.reel", "-m", "package.train", "show", "--shapes", cwd=script.parent)
    file = str(script.parent / "package" / "train.py")
    shown = ["__main__", file, [file, "show", "--shapes"], str(script.parent), "package.train"]
    assert (result.returncode, result.stdout) == (0, f"{shown}\n")
    options = json.loads((script.parent / "m.reel" / "meta.json").read_text())["options"]
    parts = ("shapes", "memory", "stacks", "modules", "flops", "python")
    assert [options[part] for part in parts] == [True] * 5 + [False]


def test_an_exception_is_shown_as_the_script_s_own(script: Path) -> None:
    result = record("work/train.py", "fail")
    plain = subprocess.run([sys.executable, "work/train.py", "fail"], capture_output=True, text=True, check=False)
    trace, _, last = result.stderr.rstrip("\n").rpartition("\n")
    assert (result.returncode, trace + "\n") == (plain.returncode, plain.stderr)
    assert last.startswith("Recorded ")
    assert "aten::add" in names("run.reel")


@pytest.mark.parametrize(("code", "expected", "said"), [("7", 7, ""), ("enough", 1, "enough\n")])
def test_exit_codes_are_passed_on(script: Path, code: str, expected: int, said: str) -> None:
    result = record_in_fork("work/train.py", "exit", code)
    assert result.returncode == expected
    assert result.stderr.startswith(f"{said}Recorded ")


def test_interrupt_closes_the_reel(script: Path) -> None:
    process = subprocess.Popen(
        command("-o", "x.reel", "work/train.py", "wait"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "aten::add" in names("x.reel")
    assert [row["complete"] for row in library.load("x.reel").process_rows()] == [True]


def test_spawned_processes_find_the_script(script: Path) -> None:
    result = record("work/train.py", "spawn")
    assert (result.returncode, result.stdout) == (0, "[6.0]\n")
    assert " of 2 processes " in result.stderr


def test_flight_recorder_leaves_its_last_moments(script: Path) -> None:
    result = record_in_fork("--ring", "4MiB", "work/train.py", "exit", "3")
    assert result.returncode == 3
    assert "aten::add" in names("run.reel")


def test_what_cannot_be_run_is_one_sentence(torchreel: Torchreel, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip  # noqa: E501
    monkeypatch.setattr(sys, "path", ["", *sys.path[1:]])
    sentences = {
        "nonesuch.py": "There is no script nonesuch.py: check the path, or give -m for a module.",
        "work": "work is a directory without a __main__.py: name the script in it.",
    }
    for target, sentence in sentences.items():
        assert torchreel("record", target) == Outcome(1, "", f"Error: {sentence}\n")
    sentence = "There is no module nonesuch: check its name and the current directory."
    assert torchreel("record", "-m", "nonesuch") == Outcome(1, "", f"Error: {sentence}\n")
    assert not Path("run.reel").exists()


def test_a_package_without_main_leaves_no_reel(script: Path) -> None:
    result = record_in_fork("-m", "package", cwd=script.parent)
    reason = "No module named package.__main__; 'package' is a package and cannot be directly executed"
    assert (result.returncode, result.stderr) == (1, f"Error: package cannot be run: {reason}.\n")
    assert not (script.parent / "run.reel").exists()


def test_names_of_reels_are_counted_up(directory: Path) -> None:
    assert reel_path(None, False) == Path("run.reel")
    Path("run.reel").mkdir()
    Path("run-2.reel").touch()
    assert reel_path(None, False) == Path("run-3.reel")
    assert reel_path(None, True) == Path("run-3.reel")


def test_nothing_is_replaced_without_force_and_only_reels_with_it(directory: Path) -> None:
    assert reel_path(Path("new.reel"), True) == Path("new.reel")
    old = write_reel(directory / "old.reel", Process({"main": []}))
    with pytest.raises(ReelExistsError, match=r"old\.reel exists: name another reel with -o, or give --force"):
        reel_path(old, False)
    assert reel_path(old, True) == old
    foreign = directory / "notes"
    foreign.mkdir()
    (directory / "file").touch()
    (directory / "link").symlink_to(old)
    for path in (foreign, directory / "file", directory / "link"):
        with pytest.raises(OptionError, match=r"is not a reel, so --force does not remove it"):
            reel_path(path, True)
    assert sorted(entry.name for entry in directory.iterdir()) == ["file", "link", "notes", "old.reel"]


def test_force_replaces_the_reel(script: Path) -> None:
    write_reel(Path("old.reel"), Process({"main": []}, name="someone-else"))
    assert record_in_fork("-o", "old.reel", "--force", "work/train.py", "exit", "0").returncode == 0
    assert not Path("old.reel/someone-else").exists()
    assert "aten::add" in names("old.reel")


def test_a_script_does_not_inherit_our_future(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Annotations of the script are values, though this package's own are texts."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    Path("x.py").write_text("def f(x: int): pass\nassert f.__annotations__ == {'x': int}\n")
    Script("x.py").run()
    assert sys.modules["__main__"].__file__ == str(directory / "x.py")


@pytest.mark.usefixtures("directory")
def test_a_script_that_leaves_a_pool_of_threads_to_python() -> None:
    """Its workers wait for work until Python tells them that none will come; what they were given is done before."""
    Path("x.py").write_text(
        f"{WAIT}\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(2)\n"
        "for _ in range(4):\n"
        "    pool.submit(lambda: (wait_for_the_end(), torch.ones(3).exp()))\n"
    )
    assert record("-o", "x.reel", "x.py").returncode == 0
    assert library.load("x.reel").ops["name"].to_pylist().count("aten::exp") == 4


STEPS = """\
import sys
import torch

model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("options", "step"), [(("--tape",), 1), (("--tape", "2"), 2), (("--tape=0", "--shapes"), 0)], ids=str
)
def test_the_tape_of_a_step(directory: Path, options: tuple[str, ...], step: int) -> None:
    Path("train.py").write_text(STEPS)
    result = record_in_fork("-o", "x.reel", *options, "train.py", "4", "--tape")
    assert result.returncode == 0
    (path,) = Path("x.reel").glob("*/*.tape")
    assert path.name == f"step-{step}.tape"
    assert f" Tape of a step: {path}. Next: " in result.stderr
    joined = "tape_ops t left join ops o on o.id = t.op"
    query = f"select count(*) as n, count(t.op) as joined, min(o.step) as step from {joined}"
    (row,) = library.load("x.reel").sql(query).to_pylist()
    assert row["n"] == row["joined"] > 5 and row["step"] == step


def test_no_tape_of_a_script_without_steps(script: Path) -> None:
    result = record_in_fork("--tape", "work/train.py", "exit", "3")
    assert result.returncode == 3
    said, recorded = result.stderr.splitlines()
    assert said.startswith("torchreel: There is no tape of step 1, because the program counted no steps: ")
    assert recorded.startswith("Recorded ")


def test_a_tape_of_no_step(torchreel: Torchreel, script: Path) -> None:
    assert torchreel("record", "--tape=-1", "work/train.py", "show").err == (
        "Error: tape=-1 is not a step: give its number, counted from 0.\n"
    )
    assert torchreel("record", "--tape=one", "work/train.py").code == 2
    assert torchreel("record", "--tape", "--ring", "64MB", "work/train.py", "show").err.startswith(
        "Error: A flight recorder has no place for a tape"
    )
    assert torchreel("record", "--tape").code == 2


def test_gpu_without_one_is_a_sentence_and_the_script_does_not_run(torchreel: Torchreel, directory: Path) -> None:
    script = directory / "train.py"
    script.write_text("open('ran', 'w')")
    outcome = torchreel("record", "--gpu", str(script))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "Error: There is no GPU whose activity could be recorded: torch finds none here, or its Kineto cannot read it. "
        "Record without gpu, or on a machine with one.\n"
    )
    assert list(directory.iterdir()) == [script]
