"""The pages of the site: facts in, HTML out. A file's Markdown twin and `llms.txt` are in `markdown`."""

from torchreel.atlas.site.file_page import file_page
from torchreel.atlas.site.folder_page import folder_page
from torchreel.atlas.site.frame import ASSETS, framed
from torchreel.atlas.site.index_page import index_page
from torchreel.atlas.site.keyword_pages import keyword_page
from torchreel.atlas.site.op_page import op_page, ops_page
from torchreel.atlas.site.tour_page import tour_page

__all__ = [
    "ASSETS",
    "file_page",
    "folder_page",
    "framed",
    "index_page",
    "keyword_page",
    "op_page",
    "ops_page",
    "tour_page",
]
