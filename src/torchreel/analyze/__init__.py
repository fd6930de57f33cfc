"""Questions about a reel, one per file, each answered with a table. Nothing here needs torch."""

from torchreel.analyze.averages import averages
from torchreel.analyze.summary import Summary, summary

__all__ = ["Summary", "averages", "summary"]
