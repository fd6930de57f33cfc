"""What torchgen knows of operators: against torch's own dispatcher, and how it is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchreel.atlas import operator_schemas as module
from torchreel.atlas.operator_schemas import Derivative, Kernel, Read, Schema, operator_schemas

# What runs a call of plain CPU tensors, as the dispatcher has it.
KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache directory of its own, which all tests share: reading takes seconds."""
    path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(path))
        yield path


@pytest.fixture(scope="module")
def read(cache: Path) -> Read:
    return operator_schemas()


def test_structured_ones_lead_to_the_kernel_of_their_out_overload(read: Read) -> None:
    assert read.problem == "" and len(read.schemas) > 3_000
    found = read.schemas["aten::mm"]
    assert found.text == "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    assert found.delegate == "aten::mm.out"
    assert found.on_cpu == found.kernels[0] == Kernel("CPU", "mm_out_cpu", structured=True)
    assert Kernel("SparseCPU", "_sparse_mm") in found.kernels
    assert [one.arguments for one in found.derivatives] == ["mat2", "self"]
    assert read.schemas["aten::mm.out"].delegate == ""


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("aten::add_.Tensor", Kernel("CPU", "ufunc_add_CPU", structured=True, generated=True)),
        ("aten::sqrt", Kernel("CPU", "sqrt_out", structured=True)),
        ("aten::native_layer_norm", Kernel("CPU", "layer_norm_cpu")),
        ("aten::linear", Kernel("CompositeImplicitAutograd", "linear")),
        ("aten::_to_copy", Kernel("CompositeExplicitAutograd", "_to_copy")),
        ("aten::mul.Scalar_out", Kernel("CompositeExplicitAutograd", "mul_Scalar_out", generated=True)),
        ("aten::t_copy", Kernel("CompositeExplicitAutogradNonFunctional", "t_copy", generated=True)),
        ("aten::_nested_get_values", None),
    ],
)
def test_kernels_of_the_cpu(read: Read, name: str, kernel: Kernel | None) -> None:
    assert read.schemas[name].on_cpu == kernel


def test_formulas_stand_as_they_do_in_the_table(read: Read) -> None:
    in_place = [Derivative("self", "threshold_backward(grad, result, 0)")]
    assert read.schemas["aten::relu"].derivatives == read.schemas["aten::relu_"].derivatives == in_place
    assert read.schemas["aten::relu.out"].derivatives == []
    assert read.schemas["aten::view"].derivatives == [
        Derivative("self", "grad.reshape_symint(self.sym_sizes())"),
        Derivative("self", "grad.reshape_as(self)", "AutogradNestedTensor"),
    ]


@pytest.mark.programs
def test_against_the_dispatcher_of_torch(read: Read) -> None:
    """In another process: whether this one has torch must not matter to the others."""
    script = (
        "import sys, torch\n"
        "for line in sys.stdin:\n"
        "    name = line.strip()\n"
        f"    keys = [k for k in {KEYS!r} if torch._C._dispatch_has_kernel_for_dispatch_key(name, k)]\n"
        "    print(name, keys[0] if keys else '')\n"
    )
    given = "\n".join(read.schemas)
    answer = subprocess.run([sys.executable, "-c", script], input=given, capture_output=True, text=True, check=True)
    asked = dict(line.split(" ", 1) for line in answer.stdout.splitlines())
    assert {name: each.on_cpu.key if each.on_cpu else "" for name, each in read.schemas.items()} == asked


def test_what_was_read_is_kept(cache: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    (kept,) = (cache / "torchreel").iterdir()
    assert kept.suffix == ".msgpack"
    with monkeypatch.context() as patch:
        patch.setattr(module, "_read", lambda files: pytest.fail("it was read again"))
        assert operator_schemas() == read
    for damage in (b"", kept.read_bytes()[:-1], b"\xff" * 100, b"\x91" * 100_000, b"\x81\xa1\xff\x91\xa0"):
        before = kept.read_bytes()
        kept.write_bytes(damage)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_read", lambda files: {"aten::one": Schema("read again")})
            assert operator_schemas() == Read({"aten::one": Schema("read again")})
        kept.write_bytes(before)


def test_another_torch_is_read_anew(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    files = module._files()
    assert files is not None
    now = module._cache_file(files)
    monkeypatch.setattr(module, "_version", lambda: "9.9")
    assert module._cache_file(files) != now


def test_a_cache_that_cannot_be_written(read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(module, "_read", lambda files: {"aten::one": Schema("read")})
    assert operator_schemas() == Read({"aten::one": Schema("read")})


def test_without_torchgen_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchgen", None)
    assert operator_schemas() == Read(
        problem="Schemas, kernels and derivatives are read by torchgen, and there is none here: "
        "install torch, which it comes with, to see them."
    )


def run(script: str, **variables: str) -> str:
    environment = {**os.environ, **variables}
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return answer.stdout


def test_a_torchgen_that_cannot_be_used(tmp_path: Path) -> None:
    for name in module._FILES:
        file = tmp_path / "torchgen" / "packaged" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("- func: no schema\n")
    (tmp_path / "torchgen" / "__init__.py").touch()
    script = "from torchreel.atlas.operator_schemas import operator_schemas; print(operator_schemas())"
    said = run(script, PYTHONPATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert "torchgen cannot read the operators of this torch (ModuleNotFoundError: No module named 'torchgen" in said
    assert not (tmp_path / "cache").exists()


def test_torch_is_not_imported(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom torchreel.atlas.operator_schemas import operator_schemas\n"
        "print(len(operator_schemas().schemas) > 3_000, 'torch' in sys.modules)"
    )
    assert run(script, XDG_CACHE_HOME=str(tmp_path)).split() == ["True", "False"]
