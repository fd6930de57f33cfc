"""Damages a Parquet file of a reel in a way that a seed chooses, and asks every reader: run in a process of its own.

    python -m tests.reel.damage REEL WORK FIRST COUNT [EXPORTS]

prints a line of JSON for each seed before it is tried, so that a crash is traced to its seed, and one for each reader
that broke its promise: rows, or a sentence of ours that names the file. EXPORTS is to how many formats each seed
exports, others than its neighbours; to all of them if it is not given.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.export_formats import WRITABLE
from torchreel import allocator
from torchreel.analyze import averages, source_states, summary
from torchreel.analyze.memory.report import memory_reports
from torchreel.errors import OptionError, TorchreelError
from torchreel.export import export
from torchreel.reel import TABLES, Reel, load


def truncate(file: Path, chance: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: chance.randrange(len(content))])


def flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 3, 40])):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def flip_the_end(file: Path, chance: random.Random) -> None:
    """Damage where the schema and the places of the columns are written."""
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    for _ in range(chance.choice([1, 2, 10])):
        content[len(content) - 8 - 1 - chance.randrange(length)] = chance.randrange(256)
    file.write_bytes(content)


def overwrite(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    at = chance.randrange(len(content))
    size = chance.choice([4, 100, 4096])
    content[at : at + size] = chance.choice([bytes(size), b"\xff" * size, chance.randbytes(size)])
    file.write_bytes(content)


def empty(file: Path, chance: random.Random) -> None:
    file.write_bytes(b"")


def be_a_directory(file: Path, chance: random.Random) -> None:
    file.unlink()
    file.mkdir()


def be_something_else(file: Path, chance: random.Random) -> None:
    file.write_bytes(chance.choice([b"hello", b"PAR1", b"PAR1PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1"]))


def have_another_schema(file: Path, chance: random.Random) -> None:
    table = pq.read_table(file)
    column = chance.choice(table.column_names)
    other = chance.choice([pa.array(["x"] * table.num_rows), pa.array([[1.5]] * table.num_rows)])
    pq.write_table(table.set_column(table.column_names.index(column), column, other), file)


DAMAGES = (
    *(truncate, flip, flip, flip, flip_the_end, flip_the_end, overwrite, overwrite),
    *(empty, be_a_directory, be_something_else, have_another_schema),
)


def exporter(name: str) -> Callable[[Path, Path], None]:
    return lambda path, work: export(load(path), work / f"out.{name}", name)


def _tables(path: Path, work: Path) -> None:
    reel = load(path)
    for name in TABLES:
        reel.table(name).to_pylist()


def _columns(path: Path, work: Path) -> None:
    reel = load(path)
    for name, definition in TABLES.items():
        for column in definition.names:
            reel.table(name, [column])


def _sql(path: Path, work: Path) -> None:
    reel = load(path)
    for name in TABLES:
        reel.sql(f"select * from {name}").to_pylist()


def _grouped(path: Path, work: Path) -> None:
    averages(load(path), by=["name", "inputs", "module", "stack"])


READERS: dict[str, Callable[[Path, Path], Any]] = {
    "tables": _tables,
    "columns": _columns,
    "sql": _sql,
    "averages": _grouped,
    "sources": lambda path, work: source_states(load(path)),
    "summary": lambda path, work: summary(load(path)),
    "memory": lambda path, work: [memory_reports(load(path), by) for by in ("stack", "module", "op", "category")],
    "simulate": lambda path, work: allocator.simulate(load(path)),
    "predict": lambda path, work: allocator.predict(load(path)),
    **{f"export {name}": exporter(name) for name in WRITABLE},
}


def promise_broken(reader: Callable[[Path, Path], Any], path: Path, work: Path, file: Path) -> str | None:
    try:
        reader(path, work)
    except OptionError:
        return None  # the reel has not what this reader is for
    except TorchreelError as error:
        said = str(error)
        if not said.endswith(".") or "\n" in said or file.name not in said:
            return f"{type(error).__name__}: {said}"
    except Exception as error:
        import traceback

        return f"{type(error).__name__}: {error} " + " < ".join(
            f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-3:][::-1]
        )
    return None


def rest_is_read(path: Path, file: Path) -> str | None:
    """What is whole is read, and what was left out is said."""
    reel: Reel = load(path, skip_damaged=True)
    left = [part.name for part in reel.parts]
    for name in TABLES:
        reel.table(name)
    if file.parent.name in left:
        return None if not reel.left_out else f"left out nothing, and says {reel.left_out}"
    return None if len(reel.left_out) == 1 and str(file) in reel.left_out[0] else f"does not say it: {reel.left_out}"


def readers_for(seed: int, exports: int) -> list[str]:
    formats = [WRITABLE[(seed * exports + place) % len(WRITABLE)] for place in range(exports)]
    asked = {f"export {name}" for name in formats}
    return [name for name in READERS if name in asked or not name.startswith("export ")]


def main() -> None:
    exports = int(sys.argv[5]) if len(sys.argv) > 5 else len(WRITABLE)
    whole, work = Path(sys.argv[1]), Path(sys.argv[2])
    files = sorted(file.relative_to(whole) for file in whole.glob("*/*.parquet"))
    for seed in range(int(sys.argv[3]), int(sys.argv[3]) + int(sys.argv[4])):
        chance = random.Random(seed)
        path = work / "x.reel"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole, path)
        file, damage = path / files[seed * 7 % len(files)], DAMAGES[seed % len(DAMAGES)]
        print(json.dumps({"seed": seed, "file": str(file.relative_to(path)), "damage": damage.__name__}), flush=True)
        damage(file, chance)
        for name in readers_for(seed, exports):
            broken = promise_broken(READERS[name], path, work, file)
            if broken is not None:
                print(json.dumps({"seed": seed, "reader": name, "broken": broken}), flush=True)
        broken = rest_is_read(path, file)
        if broken is not None:
            print(json.dumps({"seed": seed, "reader": "skip_damaged", "broken": broken}), flush=True)


if __name__ == "__main__":
    main()
