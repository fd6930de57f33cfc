"""A function runs once, and what it did is on tape."""
