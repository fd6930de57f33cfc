"""The reel: tables, the file, and how both are read. Nothing here needs torch."""

from torchreel.reel.reel import Reel, load
from torchreel.reel.tables import TABLES

__all__ = ["TABLES", "Reel", "load"]
