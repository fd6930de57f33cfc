"""`torchreel.graphs.status`: what became of a graphed function's calls, drawn as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torchreel import _graphs
from torchreel._units import bytes_text
from torchreel.errors import OptionError
from torchreel.graphs.call.entry import Graphed
from torchreel.graphs.skips import Skip


@dataclass(frozen=True)
class Node:
    """One graph: a recording bound to addresses in the pool, at its position in the tree."""

    id: int
    recording: int
    part: str  # "forward" or "backward"
    call: str  # the arguments that it is for
    ops: int
    bytes: int  # how far into the pool it reaches
    outputs: int  # bytes that it gives out or keeps for its backward
    hits: int
    layers: dict[str, int]
    beside: int  # ops that run on two cores, beside others
    parents: list[tuple[int, int]]  # ids, and how often it came after them


@dataclass(frozen=True)
class Status:
    """What became of a function's calls. Prints as a tree."""

    function: str
    nodes: list[Node]
    shapes: list[str]  # the kinds of calls that were seen
    skips: list[Skip]
    history: dict[str, int]  # why recordings were made anew or calls ran eagerly, and how often
    guarded: list[str]  # what of Python's state is compared before each replay
    replays: int
    eager: int
    pool_bytes: int  # the farthest that the graphs of this thread reach
    outputs_held: int
    between: list[str]  # ops of torch.compile's graphs that run between graphs, and why
    kernels: list[str]  # that Inductor was asked for, and what became of them

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"{self.function}: {self.replays} calls replayed, {self.eager} eager; {len(self.nodes)} graphs, "
            f"{_bytes(self.pool_bytes)} of pool, {self.outputs_held} outputs held"
        )
        yield from self._tree()
        yield from (f"  {line}" for line in self.between)
        yield from (f"  inductor: {line}" for line in self.kernels)
        for skip in self.skips:
            count = f" ({skip.calls} calls)" if skip.calls > 1 else ""
            yield f"  eager: ({skip.call}): {skip.reason}{count}"
        if self.history:
            yield "  recorded anew, or left to eager, because:"
            yield from (f"    {why}{f' ({count} times)' if count > 1 else ''}" for why, count in self.history.items())
        if self.shapes:
            yield f"  kinds of calls seen: {len(self.shapes)}"
            yield from (f"    ({shape})" for shape in self.shapes)
        yield f"  guarded: {_listed(self.guarded)}"

    def _tree(self) -> Iterator[str]:
        children: dict[int, list[Node]] = {}
        known = {node.id for node in self.nodes}
        for node in self.nodes:
            for parent in {one if one in known else 0 for one, _ in node.parents or [(0, 0)]}:
                children.setdefault(parent, []).append(node)
        drawn: set[int] = set()

        def draw(parent: int, indent: str) -> Iterator[str]:
            below = children.get(parent, [])
            for index, node in enumerate(below):
                last = index == len(below) - 1
                mark = "└── " if last else "├── "
                if node.id in drawn:
                    yield f"{indent}{mark}{node.id} (above)"
                    continue
                drawn.add(node.id)
                layers = ", ".join(f"{count} {layer}" for layer, count in sorted(node.layers.items()))
                yield (
                    f"{indent}{mark}{node.id} {node.part} ({node.call}): {node.ops} ops ({layers}), "
                    f"{f'{node.beside} of them on two cores, ' if node.beside else ''}"
                    f"{_bytes(node.bytes)}, of which {_bytes(node.outputs)} given out, {node.hits} runs"
                )
                yield from draw(node.id, indent + ("    " if last else "│   "))

        yield from draw(0, "  ")


def status(graphed: Any) -> Status:
    """What became of the calls of a graphed function: its tree of graphs, and every skip with its reason.

    Takes what `torchreel.graphed` returned, or `torch.compile(backend="torchreel")`: all parts of it are shown then.
    """
    if isinstance(graphed, Graphed):
        return _status(graphed.name, [graphed], [])
    from torchreel.graphs.compile.compiled import name_of, parts_of, remarks_of

    parts = parts_of(graphed)
    if parts is None:
        raise OptionError(
            f"status() was given {graphed!r}: give what torchreel.graphed() returned, or "
            "torch.compile(backend='torchreel')."
        )
    return _status(name_of(graphed), parts, remarks_of(graphed))


def _status(name: str, parts: list[Graphed], between: list[str]) -> Status:
    recordings = [one for part in parts for one in part.recordings()]
    kinds = [kind for part in parts for kind in part.kinds()]
    beyond = [skip for part in parts for skip in part.skips()]
    nodes = [
        Node(row["id"], one.number, row["part"], one.signature, row["kernels"], row["bytes"], row["outputs"],
             row["hits"], dict(row["layers"]), row["beside"], [tuple(each) for each in row["parents"]])
        for one in recordings
        for row in one.entry.replay.graphs()
    ]  # fmt: skip
    reached, held = _graphs.pool()
    return Status(
        function=name,
        nodes=nodes,
        shapes=list(dict.fromkeys([*(kind.text for kind in kinds), *(skip.call for skip in beyond)])),
        skips=[*(Skip(kind.text, kind.reason, kind.skipped) for kind in kinds if kind.reason), *beyond],
        history=_joined([*(kind.history for kind in kinds), *(part.remarks for part in parts)]),
        # Every module has hooks: what the program has of its own comes first.
        guarded=sorted(
            {name for one in recordings if one.guards for name in one.guards.paths()},
            key=lambda name: ("_hooks" in name, name),
        ),
        replays=sum(part.replays() for part in parts),
        eager=sum(part.eager_calls() for part in parts),
        pool_bytes=reached,
        outputs_held=held,
        between=between,
        kernels=[line for one in recordings if one.lowering is not None for line in one.lowering.lines()],
    )


def _joined(histories: Iterable[dict[str, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for history in histories:
        for why, count in history.items():
            counts[why] = counts.get(why, 0) + count
    return counts


def _listed(names: list[str], most: int = 8) -> str:
    if not names:
        return "nothing"
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _bytes(count: int) -> str:
    return bytes_text(count, digits=1)
