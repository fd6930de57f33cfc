"""What changed from one reel to another."""

from torchreel.analyze.diff.diff import BY, Change, Diff, diff
from torchreel.analyze.diff.limits import Limit, parse_limits

__all__ = ["BY", "Change", "Diff", "Limit", "diff", "parse_limits"]
