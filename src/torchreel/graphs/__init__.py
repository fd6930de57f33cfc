"""Graphs: what a tape becomes when its memory is planned and its ops are bound to it."""
