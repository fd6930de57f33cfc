"""Writes the kernels of structured ops, and which op has which out= overload, as C++ for the build to compile.

    python -m torchreel.graphs.codegen.kernel_generator OUT_DIR

A file whose text would stay the same is not touched, so that it is not compiled again.
"""

from __future__ import annotations

import argparse
import functools
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchreel.graphs.codegen.structured_kernel import class_name, definition_of, include_of, names_of
from torchreel.tape.codegen import shards as code
from torchreel.tape.rules.schemas import NAMESPACE, parsed

if TYPE_CHECKING:
    from torchgen.model import NativeFunctionsGroup

SHARDS = 2
# It gives complex results with the mark that they are to be read conjugated, which memory that is fixed has not.
MARKS_ITS_RESULT = "linalg_lu_solve"

_SHARD = """\
// Written by torchreel.graphs.codegen.kernel_generator: shard {shard} of {shards}.
#include "graphs/kernels/layers/structured.h"

{includes}

namespace torchreel::graphs {{

namespace {{

{definitions}
}}  // namespace

void add_kernels_{shard}(Preparers& all);
void add_kernels_{shard}(Preparers& all) {{
{registrations}
}}

}}  // namespace torchreel::graphs
"""

_ALL = """\
// Written by torchreel.graphs.codegen.kernel_generator.
#include "graphs/kernels/layers/out.h"

namespace torchreel::graphs {{

{declarations}

const Preparers& structured_kernels() {{
  static const Preparers* all = [] {{
    auto* made = new Preparers();
{calls}
    return made;
  }}();
  return *all;
}}

const OutOverloads& out_overloads() {{
  static const auto* all = new OutOverloads{{
{overloads}
  }};
  return *all;
}}

}}  // namespace torchreel::graphs
"""


def generate(folder: Path, shards: int = SHARDS) -> list[Path]:
    """Write the kernels and return the files that have changed."""
    texts = {"kernels.cpp": _all(shards)}
    for shard in range(shards):
        mine = [group for group in structured_groups() if shard_of(group, shards) == shard]
        texts[f"kernels_{shard}.cpp"] = _shard(mine, shard, shards)
    return code.write(folder, texts, "kernels*.cpp")


@functools.cache
def cpu_groups() -> list[NativeFunctionsGroup]:
    """The functions whose out= overload has a kernel of its own for the CPU, by name."""
    from torchgen.gen import get_grouped_native_functions
    from torchgen.model import DispatchKey, NativeFunctionsGroup

    cpu = parsed().backend_indices[DispatchKey.CPU]
    groups = get_grouped_native_functions(parsed().native_functions)
    found = [group for group in groups if isinstance(group, NativeFunctionsGroup) and cpu.has_kernel(group.out)]
    fixed = [group for group in found if group.root_name != MARKS_ITS_RESULT]
    return sorted(fixed, key=lambda group: str(group.functional.func.name))


def out_groups() -> list[NativeFunctionsGroup]:
    """The groups that take the same arguments with out=. Factory ops are left out: with out= they take no dtype."""
    return [group for group in cpu_groups() if group.functional.func.arguments.tensor_options is None]


def structured_groups() -> list[NativeFunctionsGroup]:
    """The groups that are structured."""
    return [group for group in cpu_groups() if group.structured]


def shard_of(group: NativeFunctionsGroup, shards: int = SHARDS) -> int:
    """The same in every process and for ever."""
    return zlib.crc32(str(group.functional.func.name).encode()) % shards


def _shard(groups: Sequence[NativeFunctionsGroup], shard: int, shards: int) -> str:
    registrations = [
        f'  all.emplace("{name}", &prepare_structured<{class_name(group)}>);'
        for group in groups
        for name in names_of(group)
    ]
    return _SHARD.format(
        shard=shard,
        shards=shards,
        includes=code.lines(sorted({include_of(group) for group in groups})),
        definitions="\n".join(definition_of(group) for group in groups),
        registrations=code.lines(registrations),
    )


def _all(shards: int) -> str:
    overloads = [
        f'      {{"{NAMESPACE}{group.functional.func.name}", '
        f'{{"{NAMESPACE}{group.out.func.name.name}", "{group.out.func.name.overload_name}"}}}},'
        for group in out_groups()
    ]
    return _ALL.format(
        declarations=code.lines(f"void add_kernels_{shard}(Preparers& all);" for shard in range(shards)),
        calls=code.lines(f"    add_kernels_{shard}(*made);" for shard in range(shards)),
        overloads=code.lines(overloads),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the generator from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m torchreel.graphs.codegen.kernel_generator", description="Write the kernels of structured ops."
    )
    parser.add_argument("folder", metavar="OUT_DIR", type=Path, help="where the C++ files go")
    options = parser.parse_args(arguments)

    def written() -> str:
        changed = generate(options.folder)
        count = len(structured_groups())
        return f"{count:,} kernels in {SHARDS} shards; {len(changed)} files changed in {options.folder}."

    return code.run(written)


if __name__ == "__main__":
    sys.exit(main())
