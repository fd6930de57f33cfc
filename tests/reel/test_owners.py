"""Whose code a file is."""

from __future__ import annotations

import pytest

from torchreel.reel.owners import LIBRARY, NATIVE, TORCH, USER, owner_of


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/home/me/train.py", USER),
        (r"C:\Dev\lm\model.py", USER),
        ("<ipython-input-3-abc>", USER),
        ("/tmp/ipykernel_114/3105878423.py", USER),
        ("/env/lib/python3.11/site-packages/transformers/trainer.py", LIBRARY),
        ("/usr/lib/python3/dist-packages/einops/einops.py", LIBRARY),
        ("/env/lib/python3.11/site-packages/torch/nn/functional.py", TORCH),
        (r"C:\env\Lib\site-packages\torch\nn\modules\module.py", TORCH),
        ("/home/me/pytorch/torch/nn/functional.py", TORCH),
        ("/usr/lib/python3.11/threading.py", TORCH),
        ("<frozen runpy>", TORCH),
        ("<string>", TORCH),
        ("/tmp/torchinductor_me/zg/czgnk.py", TORCH),
        # As torch's profiler writes them: without the directory that Python found them in.
        ("train.py", USER),
        ("test.py", USER),
        ("src/model.py", USER),
        ("torch.py", USER),
        ("torch/nn/modules/conv.py", TORCH),
        ("threading.py", TORCH),
        ("multiprocessing/queues.py", TORCH),
        ("transformers/models/vit/modeling_vit.py", LIBRARY),
        ("RegisterCUDA.cpp", NATIVE),
        ("??", NATIVE),
        ("", NATIVE),
    ],
)
def test_owners_of_files(file: str, owner: int) -> None:
    assert owner_of(file) == owner
