"""The generator of kernels: what it writes, and that it is stable."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torchgen.model import NativeFunctionsGroup

from torchreel.graphs.codegen.kernel_generator import generate, main, out_groups, structured_groups
from torchreel.graphs.codegen.structured_kernel import definition_of, names_of


@functools.cache
def groups() -> dict[str, NativeFunctionsGroup]:
    """By name. Reading the table of all ops takes two seconds, which not every test process needs."""
    return {str(group.functional.func.name): group for group in structured_groups()}


def test_every_structured_op_is_in_one_shard(tmp_path: Path) -> None:
    generate(tmp_path)
    texts = "".join(path.read_text() for path in sorted(tmp_path.glob("kernels_*.cpp")))
    names = re.findall(r'all\.emplace\("([^"]+)", &prepare_structured<\w+>\);', texts)
    assert sorted(names) == sorted(name for group in groups().values() for name in names_of(group))
    assert len(set(names)) == len(names) > 600
    known = {schema.name + ("." + schema.overload_name if schema.overload_name else "") for schema in _schemas()}
    assert set(names) <= known


def _schemas() -> list[torch.FunctionSchema]:
    schemas: list[torch.FunctionSchema] = torch._C._jit_get_all_schemas()
    return schemas


def test_every_out_overload_takes_the_same_arguments_and_its_results() -> None:
    for group in out_groups():
        functional = [argument.name for argument in group.functional.func.schema_order_arguments()]
        with_out = [argument.name for argument in group.out.func.schema_order_arguments()]
        results = [argument.name for argument in group.out.func.arguments.out]
        assert with_out == functional + results


def test_a_kernel_does_its_checks_when_it_is_made() -> None:
    assert (
        definition_of(groups()["add.Tensor"])
        == """\
class kernel_add_Tensor final : public Structured<at::native::structured_ufunc_add_CPU> {
 public:
  explicit kernel_add_Tensor(const KernelCall& call)
      : Structured(call),
        self_(tensor_in(call, 0)),
        other_(tensor_in(call, 1)),
        alpha_(scalar_in(call, 2)) {
    meta(self_, other_, alpha_);
    check(call);
  }

  void run() override {
    renew();
    impl(self_, other_, alpha_, outputs[0]);
  }

 private:
  at::Tensor self_;
  at::Tensor other_;
  at::Scalar alpha_;
};
"""
    )


def test_what_meta_computed_goes_to_impl() -> None:
    text = definition_of(groups()["max.dim"])
    assert "precomputed_ = meta(self_, dim_, keepdim_);" in text
    assert "impl(self_, precomputed_.dim, keepdim_, outputs[0], outputs[1]);" in text


def test_files_that_stay_the_same_are_not_touched(tmp_path: Path) -> None:
    assert len(generate(tmp_path)) == 3
    (tmp_path / "kernels_9.cpp").write_text("of an earlier run with more shards")
    assert generate(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernels.cpp", "kernels_0.cpp", "kernels_1.cpp"]


def test_the_command_needs_no_extension_and_says_what_it_did(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchreel.graphs.codegen.kernel_generator", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == f"{len(groups())} kernels in 2 shards; 3 files changed in {tmp_path}.\n"


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file" / "folder")]) == 1
    assert capsys.readouterr().err == f"Error: The system refused: Not a directory ({tmp_path / 'file' / 'folder'}).\n"
