"""How many bytes does an op take in each format, compressed and not?

Of a training loop that is recorded with more and more options. `python -m benchmarks.export_size` puts the table into
results.json and docs/export.md.
"""

from __future__ import annotations

import gzip
import io
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import document, machine
from benchmarks.result import Result, Spread

_STEPS = 400
_OPTIONS: dict[str, dict[str, Any]] = {
    "ops only": {},
    "with shapes": {"shapes": True},
    "with shapes, stacks, modules, FLOPs": {"shapes": True, "stacks": True, "modules": True, "flops": True},
}
_FORMATS = ("chrome", "perfetto", "speedscope")
_COMPRESSED = ("chrome", "perfetto")


def measure(quick: bool) -> list[Result]:
    results = []
    for options in _OPTIONS:
        ops, sizes = _sizes(options, 20 if quick else _STEPS)
        for form, size in sizes.items():
            what = f"{options}: bytes per op as {form}"
            results.append(Result(what, Spread.of([size / ops]), unit="bytes", detail=f"{ops:,} ops"))
    return results


def _sizes(options: str, steps: int) -> tuple[int, dict[str, int]]:
    """The ops of a recording, and its bytes in each format."""
    from torchreel.export import export

    with tempfile.TemporaryDirectory() as directory:
        reel = _record(Path(directory, "x.reel"), steps, _OPTIONS[options])
        sizes: dict[str, int] = {}
        for form in _FORMATS:
            stream = io.BytesIO()
            export(reel, stream, form)
            sizes[form] = len(stream.getvalue())
            if form in _COMPRESSED:
                sizes[f"{form} .gz"] = len(gzip.compress(stream.getvalue(), 5))
        return reel.table("ops", ["id"]).num_rows, sizes


def _record(path: Path, steps: int, options: dict[str, Any]) -> Any:
    import torch

    import torchreel

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    with torchreel.record(path, **options):
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(torch.ones(8, 32)), torch.zeros(8, 32)).backward()
            optimizer.step()
    return torchreel.load(path)


def _main() -> None:
    rows = []
    for options in _OPTIONS:
        ops, sizes = _sizes(options, _STEPS)
        rows.append([options, f"{ops:,}", *(f"{size / ops:,.1f}" for size in sizes.values())])
    formats = [f"`{form.removesuffix(' .gz')}`{' .gz' if form.endswith('.gz') else ''}" for form in sizes]
    document.write_table("export_size", [["recorded", "ops", *formats], *rows], machine.describe())


if __name__ == "__main__":
    _main()
