"""What changed from one reel to another."""

from torchreel.analyze.diff.diff import BY, Change, Diff, changes, compared_steps, diff
from torchreel.analyze.diff.limits import Limit, parse_limits

__all__ = ["BY", "Change", "Diff", "Limit", "changes", "compared_steps", "diff", "parse_limits"]
