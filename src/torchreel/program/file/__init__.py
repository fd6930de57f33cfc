"""A program on disk."""
