"""What changed from one reel to another."""

from torchreel.analyze.diff.diff import BY, Change, Diff, compared_steps, diff, module_changes
from torchreel.analyze.diff.kernels import KernelChanges, kernel_changes
from torchreel.analyze.diff.limits import Limit, parse_limits

__all__ = [
    "BY",
    "Change",
    "Diff",
    "KernelChanges",
    "Limit",
    "compared_steps",
    "diff",
    "kernel_changes",
    "module_changes",
    "parse_limits",
]
