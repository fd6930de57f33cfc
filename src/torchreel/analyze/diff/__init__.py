"""What changed from one reel to another."""

from torchreel.analyze.diff.diff import BY, Change, Diff, compared_steps, diff, module_changes
from torchreel.analyze.diff.limits import Limit, parse_limits

__all__ = ["BY", "Change", "Diff", "Limit", "compared_steps", "diff", "module_changes", "parse_limits"]
