"""Foreign files -> reel. Nothing here needs torch."""

from torchreel.ingest.formats import Format, format_of
from torchreel.ingest.snapshot.snapshot import read_snapshot, tables_of
from torchreel.ingest.source import import_snapshot, import_traces, open_source

__all__ = ["Format", "format_of", "import_snapshot", "import_traces", "open_source", "read_snapshot", "tables_of"]
