"""`torchreel view`: look at a reel in a browser."""

from __future__ import annotations

import gc
import sys
import webbrowser
from pathlib import Path

import click

from torchreel.cli.sources import open_reel, skip_damaged_option


@click.command("view")
@click.argument("reel")
@click.argument("other", required=False)
@click.option("--port", type=click.IntRange(1, 65535), help="The port to listen on.  [any that is free]")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option(
    "--atlas",
    type=click.Path(path_type=Path),
    metavar="SITE",
    help="Link the source screen to a site of 'torchreel atlas' that was made from REEL.",
)
@skip_damaged_option
def command(
    reel: str, other: str | None, port: int | None, no_browser: bool, atlas: Path | None, skip_damaged: bool
) -> None:
    """Look at REEL in a browser: where its time and memory went, down to each call. Ctrl-C ends it.

    The page comes from this machine alone, works offline, and can be opened only with the token in the address that is
    printed. On a machine without a browser, forward the port: ssh -L 8719:127.0.0.1:8719 machine.

    \b
    torchreel view run.reel
        opens the browser
    torchreel view before.reel after.reel
        the same, with what changed from the one to the other
    torchreel view run.reel --no-browser --port 8719
        prints the address, for another machine's browser
    torchreel atlas run.reel -o site; torchreel view run.reel --atlas site
        the source screen links to the pages of the site, line by line
    """
    _import()
    from torchreel.web.answers import Answers
    from torchreel.web.atlas_site import AtlasSite
    from torchreel.web.server import listen, serve
    from torchreel.web.without_pandas import leave_out_pandas

    first = open_reel(reel, skip_damaged)
    second = open_reel(other, skip_damaged) if other is not None else None
    site = AtlasSite(atlas, first) if atlas is not None else None
    listener = listen(port or 0)
    click.echo(listener.url)
    sys.stdout.flush()
    if not no_browser:
        webbrowser.open(listener.url)
    leave_out_pandas()
    serve(Answers(first, second, site), listener)


def _import() -> None:
    """Import what the server needs. All of it stays: to look for garbage in it meanwhile takes a tenth of the start."""
    gc.disable()
    try:
        import duckdb  # noqa: F401
        import uvicorn  # noqa: F401

        import torchreel.web.answers  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()
