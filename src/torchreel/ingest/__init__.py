"""Foreign files -> reel. Nothing here needs torch."""

from torchreel.ingest.snapshot.snapshot import read_snapshot, tables_of
from torchreel.ingest.source import import_snapshot, open_source

__all__ = ["import_snapshot", "open_source", "read_snapshot", "tables_of"]
