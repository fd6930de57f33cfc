"""The page as one file: the viewer with answers and calls of a reel in it, for a browser without a server."""
