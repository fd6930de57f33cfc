"""Search: the words of all files in small scripts, which a page can load from a disk and Python can read."""

from torchreel.atlas.search_index.entries import Entries, entries
from torchreel.atlas.search_index.index import FileTitle, update, write
from torchreel.atlas.search_index.page import SCRIPTS, search_body
from torchreel.atlas.search_index.query import search

__all__ = ["SCRIPTS", "Entries", "FileTitle", "entries", "search", "search_body", "update", "write"]
