from __future__ import annotations

from tests.program.small import small_program
from torchreel.program.model import Frame, Op, Program, Stack
from torchreel.program.query.source_frames import short_files, source_frame, source_line


def program_with(*files: str) -> tuple[Program, Op]:
    """A program whose op was called through these files, the outermost first."""
    program = small_program()
    program.frames = [Frame(file, place + 1, f"f{place}", f"  line {place}  ") for place, file in enumerate(files)]
    program.stacks = [Stack(0, -1), *(Stack(place, place) for place in range(len(files)))]
    return program, Op("aten::relu", [], [], stack=len(files))


def test_the_innermost_frame_outside_torch() -> None:
    program, op = program_with(
        "/home/me/main.py",
        "/usr/lib/python3/site-packages/torchreel/tape/trace.py",
        "/home/me/train.py",
        "/usr/lib/python3/site-packages/torch/nn/modules/module.py",
        "/src/pytorch/torch/nn/functional.py",
        "<eval_with_key>.3",
    )
    assert source_line(program, op) == "train.py:3 in f2: line 2"


def test_the_users_own_directory_may_be_named_torch() -> None:
    program, op = program_with("/home/me/main.py", "/home/me/torch/models/net.py")
    assert source_line(program, op) == "net.py:2 in f1: line 1"


def test_libraries_that_use_torch_are_not_torch() -> None:
    program, op = program_with("/home/me/main.py", "/x/site-packages/transformers/models/gpt2.py")
    assert source_line(program, op) == "gpt2.py:2 in f1: line 1"


def test_all_in_torch() -> None:
    program, op = program_with("/x/site-packages/torch/a.py", "/x/site-packages/torch/b.py")
    frame = source_frame(program, op)
    assert frame is not None and frame.file.endswith("b.py")


def test_no_stack_and_stacks_that_go_nowhere() -> None:
    program, _ = program_with("a.py")
    assert source_line(program, Op("aten::relu", [], [])) == ""
    assert source_line(program, Op("aten::relu", [], [], stack=77)) == ""
    program.frames = [Frame("/x/site-packages/torch/a.py", 1, "f")]
    program.stacks = [Stack(0, -1), Stack(2, 0), Stack(1, 0)]  # each the caller of the other
    assert source_line(program, Op("aten::relu", [], [], stack=1)) == "a.py:1 in f"


def test_files_get_as_much_of_their_path_as_tells_them_apart() -> None:
    program, _ = program_with("/a/x/train.py", "/a/y/train.py", "/a/model.py", "model.py", "C:\\w\\net.py")
    assert short_files(program) == {
        "/a/x/train.py": "x/train.py",
        "/a/y/train.py": "y/train.py",
        "/a/model.py": "a/model.py",
        "model.py": "model.py",
        "C:\\w\\net.py": "net.py",
    }
