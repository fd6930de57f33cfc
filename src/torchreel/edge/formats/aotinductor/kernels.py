"""The kernels of an AOTInductor package: where each of them stands in the program that was compiled.

PyTorch unpacks a package into a folder. With it comes kernel_information.json, if the package was compiled with
provenance tracking: each call of a kernel, in the order in which they run, with the user's stack. The C++ beside it
shows which weights a call is given, and so the module that it belongs to; the module's class is not known.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torchreel.edge.formats.adapter import Frame, Location
from torchreel.edge.formats.exported.fx_locations import frames_of_trace

_LIBRARY = re.compile(r"(/.*/data/aotinductor/[^/]+)/[^/]+\.so$")
# Kernels that were generated carry the number of their graph in a recording.
_GRAPH = re.compile(r"^graph_\d+_")
_RUN = "void AOTInductorModel::run_impl("
_CALL = re.compile(r'^ *KernelContextGuard _ctx\("(?P<name>\w+)"', re.MULTILINE)

Chain = tuple[tuple[str, str], ...]
"""A module and all that it lies within, the outermost first."""

_folders: WeakKeyDictionary[Any, Path] = WeakKeyDictionary()


def unpacked_packages() -> set[Path]:
    """The folders of all packages that are loaded: their libraries are mapped from there."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return set()
    return {Path(found[1]) for line in lines if (found := _LIBRARY.search(line))}


def remember_folder(model: Any, folder: Path) -> None:
    _folders[model] = folder


def folder_of(model: Any) -> Path | None:
    """A loaded model does not say where it was unpacked: if several are loaded, only those that we loaded are known."""
    if model in _folders:
        return _folders[model]
    loaded = unpacked_packages()
    return loaded.pop() if len(loaded) == 1 else None


class Kernels:
    """The locations of a package's kernels, as far as its files tell them."""

    def __init__(self, folder: Path | None, weights: Sequence[str]) -> None:
        origins = _origins(folder / "kernel_information.json") if folder is not None else {}
        modules = _modules(folder, weights) if folder is not None else {}
        self.remark = _remark(folder, bool(modules), bool(origins))
        self._locations = _locations(origins, modules)

    @property
    def are_located(self) -> bool:
        """Whether anything is known of where one of them stands."""
        return any(
            location.modules or location.frames for locations in self._locations.values() for location in locations
        )

    def location(self, name: str, nth: int) -> Location | None:
        """The location of the nth call of a kernel, from 0."""
        locations = self._locations.get(_GRAPH.sub("", name), [])
        return locations[nth] if nth < len(locations) else None


def _remark(folder: Path | None, are_seen: bool, are_located: bool) -> str | None:
    if folder is None:
        return (
            "Where PyTorch unpacked this AOTInductor package cannot be told, as when several are loaded, so nothing is "
            "known of where its kernels stand: load it alone."
        )
    if not are_seen:
        return (
            "The kernels that AOTInductor generated are not seen, only what they call of PyTorch: compile the package "
            'with inductor_configs={"cpp.enable_kernel_profile": True, "trace.provenance_tracking_level": 1}.'
        )
    if not are_located:
        return (
            "The lines that kernels come from are not known: compile the package with "
            'inductor_configs={"cpp.enable_kernel_profile": True, "trace.provenance_tracking_level": 1}.'
        )
    return None


@dataclass(frozen=True)
class _Origin:
    """What a call of a kernel was compiled from."""

    frames: tuple[Frame, ...]
    """Of the first op, if several were fused."""
    nodes: frozenset[str]
    """The ops, as nodes of the graph that was compiled."""


def _origins(file: Path) -> dict[str, list[_Origin]]:
    """By kernel, in the order of its calls."""
    origins: dict[str, list[_Origin]] = defaultdict(list)
    try:
        calls = json.loads(file.read_text())
        for key in sorted(calls, key=_number):
            trace = next(iter(calls[key]["stack_traces"]), None)
            nodes = frozenset(calls[key]["post_grad_nodes"])
            origins[key.rpartition(":")[0]].append(_Origin(frames_of_trace(trace), nodes))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return origins


def _number(key: str) -> int:
    """Keys are a kernel's name and the number of the call."""
    number = key.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def _locations(origins: dict[str, list[_Origin]], modules: dict[str, list[Chain]]) -> dict[str, list[Location]]:
    if not origins:
        return {name: [Location(chain) for chain in chains] for name, chains in modules.items()}
    chains = {name: _chains_like(origins[name], modules.get(name, [])) for name in origins}
    # A kernel that makes a weight ready for the next one takes the weight in its place: they are of the same op.
    by_nodes = {
        origin.nodes: chain
        for name in origins
        for origin, chain in zip(origins[name], chains[name], strict=True)
        if chain
    }
    return {
        name: [
            Location(chain or by_nodes.get(origin.nodes, ()), origin.frames)
            for origin, chain in zip(origins[name], chains[name], strict=True)
        ]
        for name in origins
    }


def _chains_like(origins: list[_Origin], chains: list[Chain]) -> list[Chain]:
    """The two say the same calls in the same order, or the source is not to be trusted."""
    return chains if len(chains) == len(origins) else [()] * len(origins)


def _modules(folder: Path, weights: Sequence[str]) -> dict[str, list[Chain]]:
    """By kernel, the modules of each of its calls: those that all weights of the call belong to."""
    variables = {re.sub(r"\W", "_", weight): weight.split(".")[:-1] for weight in weights}
    modules: dict[str, list[Chain]] = defaultdict(list)
    for file in folder.glob("*.wrapper.cpp"):
        source = file.read_text(errors="replace").partition(_RUN)[2]
        calls = list(_CALL.finditer(source))
        ends = [call.start() for call in calls] + [len(source)]
        for call, end in zip(calls, ends[1:], strict=True):
            used = (variables[word] for word in re.findall(r"\w+", source[call.end() : end]) if word in variables)
            modules[call["name"]].append(_chain(_common(used)))
    return modules


def _common(paths: Iterable[list[str]]) -> list[str]:
    common: list[str] | None = None
    for path in paths:
        shared = zip(common if common is not None else path, path, strict=False)
        common = []
        for one, other in shared:
            if one != other:
                break
            common.append(one)
    return common or []


def _chain(path: list[str]) -> Chain:
    """The module and all that it lies within. Without any weight nothing is known, not even that it is the model's."""
    if not path:
        return ()
    return tuple((".".join(path[:length]), "") for length in range(len(path) + 1))
