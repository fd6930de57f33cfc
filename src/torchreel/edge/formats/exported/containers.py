"""Containers: classes of other packages that hold a program's outputs, such as those of transformers.

PyTorch loads such a program only where the package has made its classes known, and to import what a file names would
be to execute what it asks for. Running the program takes the tensors alone: a tuple stands for each such class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from torchreel._torch.deployed import known_containers, register_container
from torchreel.edge.formats.exported.pt2 import MODELS, Archive


class StandIn(tuple[Any, ...]):
    """The tensors of a container, and what its class said of them, which must stay the same."""

    context: str


def stand_in_for_containers(archive: Archive, program: str) -> None:
    """Register stand-ins for the containers of a program in an archive."""
    description = json.loads(archive.read(f"{MODELS}{program}.json"))
    for call in description["graph_module"]["module_call_graph"]:
        signature = call.get("signature") or {}
        stand_in([signature[key] for key in ("in_spec", "out_spec") if key in signature])  # of submodules, too


def stand_in(structures: Iterable[str]) -> None:
    """Register stand-ins for the containers in these structures. A package may register its own class later."""
    names = {name for structure in structures if structure for name in _classes(json.loads(structure))}
    for name in names - known_containers.keys():
        register_container(
            (kind := type(name.rpartition(".")[2], (StandIn,), {})),
            lambda held: (list(held), held.context),
            _unflatten(kind),
            serialized_type_name=name,
            to_dumpable_context=str,
            from_dumpable_context=str,
        )


def _unflatten(kind: type[StandIn]) -> Any:
    def unflatten(held: Iterable[Any], context: str) -> StandIn:
        made = kind(held)
        made.context = context
        return made

    return unflatten


def _classes(structure: Any) -> Iterator[str]:
    if isinstance(structure, list):
        for inner in structure:
            yield from _classes(inner)
    elif isinstance(structure, dict):
        if structure.get("type") is not None:
            yield structure["type"]
        yield from _classes(structure.get("children_spec", []))
