"""The viewer's server: a reel, looked at in a browser. Nothing here needs torch."""
