"""What a deployed model costs, and how two formats of one compare."""

from torchreel.analyze.edge.compare import Comparison, edge_compare
from torchreel.analyze.edge.costs import EdgeCosts, edge_costs

__all__ = ["Comparison", "EdgeCosts", "edge_compare", "edge_costs"]
