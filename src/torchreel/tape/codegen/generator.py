"""Writes the wrappers of the hot set as C++, for the build to compile.

    python -m torchreel.tape.codegen.generator OUT_DIR [--all]

A function goes to the shard that a hash of its C++ type says. So one more changes one shard, and what the compiler
instantiates for a type, which takes it longer than the wrappers themselves, it instantiates once. A file whose text
would stay the same is not touched, so that it is not compiled again.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchreel.errors import OptionError
from torchreel.tape.codegen import shards as code
from torchreel.tape.codegen.wrapper import definition_of, include_of, registration_of, signature_of
from torchreel.tape.rules.hot_ops import hot_ops
from torchreel.tape.rules.schemas import NAMESPACE, parsed
from torchreel.tape.rules.unboxed import boxed_because

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

SHARDS = 3

_SHARD = """\
// Written by torchreel.tape.codegen.generator: shard {shard} of {shards}.
#include "tape/capture/capture.h"

// They use types that they do not include.
#include <torch/library.h>

{includes}

namespace torchreel::tape {{

namespace {{

{definitions}
}}  // namespace

void register_shard_{shard}(torch::Library& aten);
void register_shard_{shard}(torch::Library& aten) {{
{registrations}
}}

}}  // namespace torchreel::tape
"""

_ALL = """\
// Written by torchreel.tape.codegen.generator, which calls its {shards} shards.
#include "tape/dispatch/wrappers.h"

namespace torchreel::tape {{

{declarations}

void register_wrappers(torch::Library& aten) {{
{calls}
}}

}}  // namespace torchreel::tape
"""


def generate(folder: Path, *, every: bool = False, shards: int = SHARDS) -> list[Path]:
    """Write the wrappers of the hot set, or of all that can have one, and return the files that have changed."""
    functions = wrapped(every)
    texts = {"wrappers.cpp": _registration(shards)}
    for shard in range(shards):
        mine = [function for function in functions if shard_of(function, shards) == shard]
        texts[f"wrappers_{shard}.cpp"] = _shard(mine, shard, shards)
    return code.write(folder, texts, "wrappers*.cpp")


def wrapped(every: bool) -> list[NativeFunction]:
    """The functions that get a wrapper, by name."""
    functions = {f"{NAMESPACE}{function.func.name}": function for function in parsed().native_functions}
    names = set(functions) if every else hot_ops()
    unknown = sorted(names - functions.keys())
    if unknown:
        raise OptionError(
            f"The hot set names {', '.join(unknown)}, which this torch does not have: "
            "count its ops anew with `python -m benchmarks.hot --write`."
        )
    return [functions[name] for name in sorted(names) if not boxed_because(functions[name])]


def shard_of(function: NativeFunction, shards: int = SHARDS) -> int:
    """The same in every process and for ever."""
    return zlib.crc32(signature_of(function).encode()) % shards


def _shard(functions: Sequence[NativeFunction], shard: int, shards: int) -> str:
    return _SHARD.format(
        shard=shard,
        shards=shards,
        includes=code.lines(sorted({include_of(function) for function in functions})),
        definitions="\n".join(definition_of(function) for function in functions),
        registrations=code.lines(registration_of(function) for function in functions),
    )


def _registration(shards: int) -> str:
    return _ALL.format(
        shards=shards,
        declarations=code.lines(f"void register_shard_{shard}(torch::Library& aten);" for shard in range(shards)),
        calls=code.lines(f"  register_shard_{shard}(aten);" for shard in range(shards)),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the generator from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m torchreel.tape.codegen.generator", description="Write the tape's wrappers."
    )
    parser.add_argument("folder", metavar="OUT_DIR", type=Path, help="where the C++ files go")
    parser.add_argument("--all", action="store_true", help="not only the hot set, but all that can have a wrapper")
    options = parser.parse_args(arguments)

    def written() -> str:
        changed = generate(options.folder, every=options.all)
        count = len(wrapped(options.all))
        return f"{count:,} wrappers in {SHARDS} shards; {len(changed)} files changed in {options.folder}."

    return code.run(written)


if __name__ == "__main__":
    sys.exit(main())
