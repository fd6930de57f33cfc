"""Edge: what a deployed model costs: each of its ops, each of its modules, and a run as a whole.

For a reel of EdgeProfiler. What the numbers mean:

- A run is one call of the model. Times, FLOPs, bytes and counters are those of one run; a time is the median over the
  runs, and an op that a run did not make took no time in it.
- Ops are the outermost ones: aten::conv2d, and not the aten::convolution that it calls. With `nested` they are all of
  them, each with the time that it spent in no other. Of a runtime they are the innermost ones that it measured.
- A share is of the time of a run, so that the shares of all ops leave out what was spent between ops. Where a runtime
  has several threads they may add up to more than all of it.
- A module's own time is that of the ops in it and in none of its submodules; its total has those of the submodules too.
- Memory is what was allocated, whether or not it was freed again; the peak is how much more there was at a time than
  when the run began.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torchreel.analyze.connection import opened
from torchreel.analyze.edge.modules import ModuleCost, module_costs
from torchreel.analyze.edge.ops import OpCost, op_costs
from torchreel.analyze.edge.runs import TABLES, place_ops
from torchreel.analyze.edge.totals import RunTotals, run_totals
from torchreel.reel import Reel


@dataclass(frozen=True)
class EdgeCosts:
    """The costs of a model: ops with the greatest time first, and so with modules."""

    totals: RunTotals
    ops: list[OpCost]
    modules: list[ModuleCost]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `torchreel edge --format json` prints them."""
        return {
            **asdict(self.totals),
            "flops_per_s": self.totals.flops_per_s,
            "op_costs": [{**asdict(op), "flops_per_s": op.flops_per_s} for op in self.ops],
            "module_costs": [{**asdict(module), "flops_per_s": module.flops_per_s} for module in self.modules],
        }


def edge_costs(reel: Reel, nested: bool = False) -> EdgeCosts:
    """What the runs of a model cost. The reel is one that EdgeProfiler made."""
    with opened(reel, TABLES) as connection:
        place_ops(connection, reel, nested)
        totals = run_totals(connection)
        with_memory = totals.peak_bytes is not None
        return EdgeCosts(
            totals, op_costs(connection, totals, with_memory), module_costs(connection, totals, with_memory)
        )
